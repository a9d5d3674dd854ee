//! Larger blocking collectives through the lanes of a board, piece by piece, for communicators whose processes share a node.
//!
//! Called at the start of blocking collectives with their [`Table`]; says `false` where messages must serve, for the same reasons on
//! all processes. One meeting of all per piece replaces every other synchronisation, so ranks that share a core switch twice per
//! piece however many they are; lanes are short enough that pieces stay in caches between writer and readers. Where every member
//! has a core, pieces are shorter: the readers of one overlap with the writer of the next. Bounded by the board. A lane of
//! meeting k may be written once k - 1 is passed, and is read before arriving at k + 1.

use super::algo::{Reduction, minus, part};
use super::blocks::Blocks;
use super::node::{Place, Style, Table};
use super::typed::{self, slice};
use crate::error::Result;
use crate::limits::coll as limit;
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

/// Carries out a collective through lanes; `false`: messages must serve.
pub(super) fn meet(table: &Table<'_>, large: &Large<'_>) -> Result<bool> {
    let place = table.place;
    let (lane, members) = (place.board.lane_len(), place.board.members());
    if lane == 0 || !large.suits(lane, members) {
        return Ok(false);
    }
    let lanes = Lanes { table, place };
    match large {
        Large::Bcast(root, data) => lanes.bcast(*root, data),
        Large::Gather(block, mine, blocks, root) => lanes.gather(*block, mine, blocks, *root),
        Large::Scatter(block, blocks, mine, root) => lanes.scatter(*block, blocks, mine, *root),
        Large::Alltoall(block, send, recv) => lanes.alltoall(*block, send, recv),
        Large::Reduce(r, root) if members == 2 => lanes.exchange(r, *root),
        Large::Reduce(r, root) => lanes.reduce(r, *root),
    }
    .map(|()| true)
}

/// What a call moves through lanes.
struct Lanes<'a> {
    table: &'a Table<'a>,
    place: &'a Place,
}

impl Lanes<'_> {
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

    fn pass(&self, epoch: u32) -> Result<()> {
        self.table.pass(epoch, || {})
    }

    /// Bytes that pass through a lane at a time, of `total` in all, where `most` fit.
    fn piece(&self, total: u64, most: u64) -> u64 {
        match self.place.style {
            // A meeting costs switches between processes.
            Style::Gate => most,
            Style::Flags => (total / limit::LANE_STAGES)
                .next_multiple_of(LINE as u64)
                .clamp(limit::LANE_STAGE_BYTES_MIN, limit::LANE_STAGE_BYTES_MAX)
                .min(most),
        }
    }

    /// What `from` puts down for `to`, which is another: shares lie in the order of distance.
    fn shared(&self, (from, to): (u32, u32), epoch: u32, (share, len): (u64, u64)) -> Data {
        let index = minus(to, from, self.members()) - 1;
        self.in_lane(from, epoch, u64::from(index) * share, len)
    }

    /// The root fills the next piece while the others read the last one.
    fn bcast(&self, root: u32, data: &Data) -> Result<()> {
        for (at, len) in pieces(data.len, self.piece(data.len, self.lane_len())) {
            let epoch = self.place.next();
            let there = self.in_lane(root, epoch, 0, len);
            if root == self.place.me {
                typed::copy(&slice(data, at, len), &there);
            }
            self.pass(epoch)?;
            if root != self.place.me {
                typed::copy(&there, &slice(data, at, len));
            }
        }
        Ok(())
    }

    fn gather(&self, block: u64, mine: &Option<Data>, blocks: &Blocks<'_>, root: Option<u32>) -> Result<()> {
        let me = self.place.me;
        let takes = root.is_none_or(|root| root == me);
        let own = match mine {
            Some(mine) => mine.clone(),
            None => blocks.one(me),
        };
        for (at, len) in pieces(block, self.piece(block, self.lane_len())) {
            let epoch = self.place.next();
            if root != Some(me) {
                typed::copy(&slice(&own, at, len), &self.in_lane(me, epoch, 0, len));
            }
            self.pass(epoch)?;
            if takes {
                for from in self.place.others() {
                    let there = self.in_lane(from, epoch, 0, len);
                    typed::copy(&there, &slice(&blocks.one(from), at, len));
                }
            }
        }
        if takes && mine.is_some() {
            typed::copy(&own, &blocks.one(me));
        }
        Ok(())
    }

    fn scatter(&self, block: u64, blocks: &Blocks<'_>, mine: &Option<Data>, root: u32) -> Result<()> {
        let me = self.place.me;
        let piece = self.piece(block, share(self.place.board.lane_len(), self.members(), block));
        for (at, len) in pieces(block, piece) {
            let epoch = self.place.next();
            if root == me {
                for to in self.place.others() {
                    let there = self.shared((me, to), epoch, (piece, len));
                    typed::copy(&slice(&blocks.one(to), at, len), &there);
                }
            }
            self.pass(epoch)?;
            if let (true, Some(mine)) = (root != me, mine) {
                let there = self.shared((root, me), epoch, (piece, len));
                typed::copy(&there, &slice(mine, at, len));
            }
        }
        if let (true, Some(mine)) = (root == me, mine) {
            typed::copy(&blocks.one(me), mine);
        }
        Ok(())
    }

    /// In place, a piece of a block is received after the same piece was put down.
    fn alltoall(&self, block: u64, send: &Blocks<'_>, recv: &Blocks<'_>) -> Result<()> {
        let me = self.place.me;
        let piece = self.piece(block, share(self.place.board.lane_len(), self.members(), block));
        for (at, len) in pieces(block, piece) {
            let epoch = self.place.next();
            for to in self.place.others() {
                let there = self.shared((me, to), epoch, (piece, len));
                typed::copy(&slice(&send.one(to), at, len), &there);
            }
            self.pass(epoch)?;
            for from in self.place.others() {
                let there = self.shared((from, me), epoch, (piece, len));
                typed::copy(&there, &slice(&recv.one(from), at, len));
            }
        }
        typed::copy(&send.one(me), &recv.one(me));
        Ok(())
    }

    /// Two members: each puts everything down and combines all of it where it wants the result.
    fn exchange(&self, r: &Reduction<'_>, root: Option<u32>) -> Result<()> {
        let (me, size) = (self.place.me, r.shape().size());
        let takes = root.is_none_or(|root| root == me);
        let most = self.piece(r.count * size, self.lane_len()) / size;
        for (at, count) in pieces(r.count, most.max(1)) {
            let epoch = self.place.next();
            let here = r.input.offset((at * size) as isize);
            if root != Some(me) {
                typed::copy(
                    &Data::contiguous(here, count * size),
                    &self.in_lane(me, epoch, 0, count * size),
                );
            }
            self.pass(epoch)?;
            if takes {
                let lane = |member| self.place.board.lane(member, epoch);
                let result = Some(r.output.offset((at * size) as isize));
                self.combine(r, count, (here, result), &lane, |_, _| {});
            }
        }
        Ok(())
    }

    /// In meeting k contributions to piece k are put down, each member combines its slice of piece k - 1, and afterwards takes
    /// the other slices of that.
    fn reduce(&self, r: &Reduction<'_>, root: Option<u32>) -> Result<()> {
        let (me, n) = (self.place.me, self.members());
        let takes = root.is_none_or(|root| root == me);
        let slots = slots(self.place.board.lane_len(), n, r.shape().size());
        let most = slots.each * u64::from(n) * slots.size;
        let piece = self.piece(r.count * slots.size, most) / slots.size;
        let all = pieces(r.count, piece.max(1)).map(Some);
        let mut before = None;
        for piece in all.chain([None]) {
            let epoch = self.place.next();
            if let Some(piece) = piece {
                self.put(r, &slots, piece, epoch);
            }
            if let Some(last) = before {
                self.combine_slice(r, &slots, last, (epoch, root));
            }
            self.pass(epoch)?;
            if let (Some((at, count)), true) = (before, takes) {
                for member in self.place.others() {
                    let range = part(count, n, member);
                    let there = self.results(&slots, member, epoch);
                    let here = slots.at(r.output, at + range.start);
                    typed::copy(&slots.data(there, &range), &slots.data(here, &range));
                }
            }
            before = piece;
        }
        Ok(())
    }

    fn results(&self, slots: &Slots, member: u32, epoch: u32) -> UserMem {
        let there = self.place.board.lane(member, epoch);
        there.offset(slots.results as isize)
    }

    /// Puts down what the others combine of a piece.
    fn put(&self, r: &Reduction<'_>, slots: &Slots, (at, count): (u64, u64), epoch: u32) {
        let lane = self.place.board.lane(self.place.me, epoch);
        for to in self.place.others() {
            let range = part(count, self.members(), to);
            let (here, there) = (slots.at(r.input, at + range.start), slots.at(lane, range.start));
            typed::copy(&slots.data(here, &range), &slots.data(there, &range));
        }
    }

    /// Combines the own slice of the piece that was put down in the last meeting, and puts it down for those who want it.
    fn combine_slice(
        &self,
        r: &Reduction<'_>,
        slots: &Slots,
        (at, count): (u64, u64),
        (epoch, root): (u32, Option<u32>),
    ) {
        let me = self.place.me;
        let slice = part(count, self.members(), me);
        let published = self.results(slots, me, epoch);
        let here = slots.at(r.input, at + slice.start);
        let lane = |member| {
            let lane = self.place.board.lane(member, epoch.wrapping_sub(1));
            slots.at(lane, slice.start)
        };
        let takes = root.is_none_or(|root| root == me);
        let result = takes.then(|| slots.at(r.output, at + slice.start));
        self.combine(r, slice.end - slice.start, (here, result), &lane, |from, some| {
            if root != Some(me) {
                typed::copy(some, &Data::contiguous(published.offset(from), some.len));
            }
        });
    }

    /// Combines `count` elements of all members in the order of ranks, a little at a time: the own ones at `here`, the others' in
    /// lanes, the result where it is wanted if it is. What is in lanes is copied out first: peers may write there at any time.
    /// `then` gets every part of the result with its offset.
    fn combine(
        &self,
        r: &Reduction<'_>,
        count: u64,
        (here, result): (UserMem, Option<UserMem>),
        lane: &dyn Fn(u32) -> UserMem,
        then: impl Fn(isize, &Data),
    ) {
        let (me, n, size) = (self.place.me, self.members(), r.shape().size());
        let private = |index: u32| {
            let buffer = self.place.private.mem();
            buffer.offset((index % 2) as isize * limit::COMBINE_BYTES as isize)
        };
        for (from, len) in pieces(count, limit::COMBINE_BYTES as u64 / size) {
            let at = (from * size) as isize;
            let some = |mem: UserMem| Data::contiguous(mem, len * size);
            let operand = |member: u32| match member == me {
                true => here.offset(at),
                false => lane(member).offset(at),
            };
            // The own operand is read where it is, unless the result comes to lie there.
            let mut sum = operand(0);
            if me != 0 || result == Some(here) {
                typed::copy(&some(sum), &some(private(0)));
                sum = private(0);
            }
            for member in 1..n {
                let into = match result {
                    Some(result) if member + 1 == n => result.offset(at),
                    _ => private(member),
                };
                typed::copy(&some(operand(member)), &some(into));
                r.fold.fold(sum, into, len);
                sum = into;
            }
            then(at, &some(sum));
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
