//! Larger blocking collectives through the lanes of a board, piece by piece, for communicators whose processes share a node.
//!
//! Called at the start of blocking collectives; says `false` where messages must serve, for the same reasons on all
//! processes. One meeting of all per piece replaces every other synchronisation, so ranks that share a core switch twice per piece
//! however many they are; lanes are short enough that pieces stay in caches between writer and readers. Bounded
//! by the board. A lane of meeting k may be written once k - 1 is passed, and is read before arriving at k + 1.

use super::algo::{Reduction, minus, part, plus};
use super::blocks::Blocks;
use super::node::{self, Place, Turn};
use super::tag::{Call, Kind};
use super::typed::{self, slice};
use crate::comm::Comm;
use crate::error::Result;
use crate::limits::coll as limit;
use garonne_engine::api::Origin;
use garonne_sync::board::CELL_BYTES;
use garonne_sync::user::{Data, UserMem};
use std::ops::Range;

/// Bytes of a lane for so many members; 0: too many for lanes.
pub(super) fn lane_len(members: u32) -> usize {
    let even = limit::LANES_BYTES / (2 * members.max(1) as usize) / CELL_BYTES * CELL_BYTES;
    match even.min(limit::LANE_BYTES_MAX) {
        short if short < limit::LANE_BYTES_MIN => 0,
        len => len,
    }
}

/// What a collective is to lanes.
pub(super) enum Large<'a> {
    /// The bytes of this rank to all.
    Bcast(u32, Data),
    /// The block of every rank to all, or to one; the own contribution unless it is in place, blocks where they are wanted.
    Gather(u64, Option<Data>, Blocks<'a>, Option<u32>),
    /// One rank's blocks, each to its rank; the own block unless it stays in place.
    Scatter(u64, Blocks<'a>, Option<Data>, u32),
    /// A block from every rank to every rank; `true` in place of the sent blocks: what is received replaces them.
    Alltoall(u64, Blocks<'a>, Blocks<'a>),
    /// Everybody's elements combined, to all or to one rank.
    Reduce(&'a Reduction<'a>, Option<u32>),
}

/// Pieces of `total` bytes of at most `piece`, which is not 0.
fn pieces(total: u64, piece: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..total.div_ceil(piece)).map(move |k| (k * piece, piece.min(total - k * piece)))
}

/// Bytes of a member's lane that are for one other member: whole cache lines.
fn share(lane: usize, members: u32, block: u64) -> u64 {
    let most = (lane / (members as usize - 1).max(1) / LINE * LINE) as u64;
    most.min(block.next_multiple_of(LINE as u64))
}

/// Parts of lanes for different members begin on lines of their own.
const LINE: usize = 64;

impl Large<'_> {
    fn kind(&self) -> Kind {
        match self {
            Large::Bcast(..) => Kind::Bcast,
            Large::Gather(.., None) => Kind::Allgather,
            Large::Gather(.., Some(_)) => Kind::Gather,
            Large::Scatter(..) => Kind::Scatter,
            Large::Alltoall(..) => Kind::Alltoall,
            Large::Reduce(_, None) => Kind::Allreduce,
            Large::Reduce(_, Some(_)) => Kind::Reduce,
        }
    }

    /// Whether lanes of `lane` bytes suit it.
    fn suits(&self, lane: usize, members: u32) -> bool {
        match self {
            Large::Bcast(_, data) => data.len > 0,
            Large::Gather(block, ..) => *block > 0,
            Large::Scatter(block, ..) | Large::Alltoall(block, ..) => {
                let piece = share(lane, members, *block);
                let few = block.div_ceil(piece.max(1)) <= limit::LANE_ROUNDS_SHORT;
                *block > 0 && piece > 0 && (few || piece >= limit::LANE_PIECE_SHORT)
            }
            Large::Reduce(r, _) => {
                let size = r.shape().size();
                let dense = r.shape().extent() == size as i64 && r.shape().true_bounds() == (0, size as i64);
                dense && !r.fold.user() && slots(lane, members, size).each > 0
            }
        }
    }
}

/// Carries out a collective through the lanes of `comm`; `false`: messages must serve.
pub(super) fn meet(comm: &Comm, large: &Large<'_>, origin: Origin) -> Result<bool> {
    let members = comm.size();
    let lane = lane_len(members);
    if comm.is_inter() || members < 2 || lane == 0 || !large.suits(lane, members) {
        return Ok(false);
    }
    match node::place(comm)? {
        Some(place) if place.board.lane_len() == lane => {
            let call = node::number(comm, large.kind());
            Lanes {
                comm,
                place,
                call,
                origin,
            }
            .carry_out(large);
            Ok(true)
        }
        _ => Ok(false),
    }
}

struct Lanes<'a> {
    comm: &'a Comm,
    place: &'a Place,
    call: Call,
    origin: Origin,
}

impl Lanes<'_> {
    fn carry_out(&self, large: &Large<'_>) {
        match large {
            Large::Bcast(root, data) => self.bcast(*root, data),
            Large::Gather(block, mine, blocks, root) => self.gather(*block, mine, blocks, *root),
            Large::Scatter(block, blocks, mine, root) => self.scatter(*block, blocks, mine, *root),
            Large::Alltoall(block, send, recv) => self.alltoall(*block, send, recv),
            Large::Reduce(r, root) => self.reduce(r, *root),
        }
    }

    fn members(&self) -> u32 {
        self.place.board.members()
    }

    fn lane_len(&self) -> u64 {
        self.place.board.lane_len() as u64
    }

    /// `len` bytes of a lane from `at`.
    fn in_lane(&self, member: u32, epoch: u32, at: u64, len: u64) -> Data {
        Data::contiguous(self.place.board.lane(member, epoch).offset(at as isize), len)
    }

    fn pass(&self, epoch: u32) {
        let (comm, call, origin) = (self.comm, self.call, self.origin);
        let turn = Turn {
            comm,
            epoch,
            call,
            origin,
        };
        self.place.pass(&turn, || {});
    }

    fn others(&self) -> impl Iterator<Item = u32> {
        let (me, n) = (self.place.me, self.members());
        (1..n).map(move |distance| plus(me, distance, n))
    }

    /// What `from` puts down for `to`, which is another: shares lie in the order of distance.
    fn shared(&self, (from, to): (u32, u32), epoch: u32, (share, len): (u64, u64)) -> Data {
        let index = minus(to, from, self.members()) - 1;
        self.in_lane(from, epoch, u64::from(index) * share, len)
    }

    /// The root fills the next piece while the others read the last one.
    fn bcast(&self, root: u32, data: &Data) {
        for (at, len) in pieces(data.len, self.lane_len()) {
            let epoch = self.place.next();
            let there = self.in_lane(root, epoch, 0, len);
            if root == self.place.me {
                typed::copy(&slice(data, at, len), &there);
            }
            self.pass(epoch);
            if root != self.place.me {
                typed::copy(&there, &slice(data, at, len));
            }
        }
    }

    fn gather(&self, block: u64, mine: &Option<Data>, blocks: &Blocks<'_>, root: Option<u32>) {
        let me = self.place.me;
        let takes = root.is_none_or(|root| root == me);
        let own = match mine {
            Some(mine) => mine.clone(),
            None => blocks.one(me),
        };
        for (at, len) in pieces(block, self.lane_len()) {
            let epoch = self.place.next();
            if root != Some(me) {
                typed::copy(&slice(&own, at, len), &self.in_lane(me, epoch, 0, len));
            }
            self.pass(epoch);
            if takes {
                for from in self.others() {
                    let there = self.in_lane(from, epoch, 0, len);
                    typed::copy(&there, &slice(&blocks.one(from), at, len));
                }
            }
        }
        if takes && mine.is_some() {
            typed::copy(&own, &blocks.one(me));
        }
    }

    fn scatter(&self, block: u64, blocks: &Blocks<'_>, mine: &Option<Data>, root: u32) {
        let me = self.place.me;
        let piece = share(self.place.board.lane_len(), self.members(), block);
        for (at, len) in pieces(block, piece) {
            let epoch = self.place.next();
            if root == me {
                for to in self.others() {
                    let there = self.shared((me, to), epoch, (piece, len));
                    typed::copy(&slice(&blocks.one(to), at, len), &there);
                }
            }
            self.pass(epoch);
            if let (true, Some(mine)) = (root != me, mine) {
                let there = self.shared((root, me), epoch, (piece, len));
                typed::copy(&there, &slice(mine, at, len));
            }
        }
        if let (true, Some(mine)) = (root == me, mine) {
            typed::copy(&blocks.one(me), mine);
        }
    }

    /// In place, a piece of a block is received after the same piece was put down.
    fn alltoall(&self, block: u64, send: &Blocks<'_>, recv: &Blocks<'_>) {
        let me = self.place.me;
        let piece = share(self.place.board.lane_len(), self.members(), block);
        for (at, len) in pieces(block, piece) {
            let epoch = self.place.next();
            for to in self.others() {
                let there = self.shared((me, to), epoch, (piece, len));
                typed::copy(&slice(&send.one(to), at, len), &there);
            }
            self.pass(epoch);
            for from in self.others() {
                let there = self.shared((from, me), epoch, (piece, len));
                typed::copy(&there, &slice(&recv.one(from), at, len));
            }
        }
        typed::copy(&send.one(me), &recv.one(me));
    }

    /// In meeting k contributions to piece k are put down, each member combines its slice of piece k - 1, and afterwards takes
    /// the other slices of that.
    fn reduce(&self, r: &Reduction<'_>, root: Option<u32>) {
        let (me, n) = (self.place.me, self.members());
        let takes = root.is_none_or(|root| root == me);
        let slots = slots(self.place.board.lane_len(), n, r.shape().size());
        let all = pieces(r.count, slots.each * u64::from(n)).map(Some);
        let mut before = None;
        for piece in all.chain([None]) {
            let epoch = self.place.next();
            if let Some(piece) = piece {
                self.put(r, &slots, piece, epoch);
            }
            if let Some(last) = before {
                self.combine(r, &slots, last, epoch);
            }
            self.pass(epoch);
            if let (Some((at, count)), true) = (before, takes) {
                for member in 0..n {
                    let range = part(count, n, member);
                    let there = self.results(&slots, member, epoch);
                    let here = slots.at(r.output, at + range.start);
                    typed::copy(&slots.data(there, &range), &slots.data(here, &range));
                }
            }
            before = piece;
        }
    }

    fn results(&self, slots: &Slots, member: u32, epoch: u32) -> UserMem {
        let there = self.place.board.lane(member, epoch);
        there.offset(slots.results as isize)
    }

    /// Puts down what the others combine of a piece.
    fn put(&self, r: &Reduction<'_>, slots: &Slots, (at, count): (u64, u64), epoch: u32) {
        let lane = self.place.board.lane(self.place.me, epoch);
        for to in self.others() {
            let range = part(count, self.members(), to);
            let (here, there) = (slots.at(r.input, at + range.start), slots.at(lane, range.start));
            typed::copy(&slots.data(here, &range), &slots.data(there, &range));
        }
    }

    /// Combines the own slice of the piece that was put down in the last meeting, in the order of ranks, a little at a time.
    /// It is copied out first: peers may write lanes at any time.
    fn combine(&self, r: &Reduction<'_>, slots: &Slots, (at, count): (u64, u64), epoch: u32) {
        let (me, n) = (self.place.me, self.members());
        let slice = part(count, n, me);
        let result = self.results(slots, me, epoch);
        let some = limit::COMBINE_BYTES as u64 / slots.size;
        for (from, len) in pieces(slice.end - slice.start, some) {
            let run = 0..len;
            let operand = |member: u32| match member {
                _ if member == me => slots.at(r.input, at + slice.start + from),
                _ => slots.at(
                    self.place.board.lane(member, epoch.wrapping_sub(1)),
                    slice.start + from,
                ),
            };
            let mut next = self.place.private.mem();
            let mut spare = next.offset(limit::COMBINE_BYTES as isize);
            let mut sum = operand(0);
            if me != 0 {
                typed::copy(&slots.data(sum, &run), &slots.data(spare, &run));
                sum = spare;
            }
            for member in 1..n {
                typed::copy(&slots.data(operand(member), &run), &slots.data(next, &run));
                r.fold.fold(sum, next, len);
                (sum, spare, next) = (next, next, spare);
            }
            typed::copy(&slots.data(sum, &run), &slots.data(slots.at(result, from), &run));
        }
    }
}

/// How a lane is divided for a reduction: contributions first, then the results of the own slice.
struct Slots {
    /// Elements of a slice.
    each: u64,
    /// Bytes of an element.
    size: u64,
    /// Where results begin.
    results: u64,
}

impl Slots {
    fn at(&self, mem: UserMem, element: u64) -> UserMem {
        mem.offset((element * self.size) as isize)
    }

    fn data(&self, mem: UserMem, range: &Range<u64>) -> Data {
        Data::contiguous(mem, (range.end - range.start) * self.size)
    }
}

fn slots(lane: usize, members: u32, size: u64) -> Slots {
    let slice = lane / (members as usize + 1) / LINE * LINE;
    let fits = size > 0 && size <= limit::COMBINE_BYTES as u64;
    Slots {
        each: if fits { slice as u64 / size } else { 0 },
        size,
        results: slice as u64 * u64::from(members),
    }
}
