//! Larger blocking collectives through the lanes of a board, piece by piece, for communicators whose processes share a node.
//!
//! Called at the start of blocking collectives with their [`Table`]; says `false` where messages must serve, for the same reasons on
//! all processes. One meeting of all per piece replaces every other synchronisation, so ranks that share a core switch twice per
//! piece however many they are; lanes are short enough that pieces stay in caches between writer and readers. Bounded
//! by the board. A lane of meeting k may be written once k - 1 is passed, and is read before arriving at k + 1.

mod apart;
mod combine;
mod direct;
mod moves;

use super::algo::scan::Own;
use super::algo::{Reduction, minus};
use super::blocks::Blocks;
use super::node::{Place, Style};
use super::table::Table;
use super::tag::Kind;
use crate::error::Result;
use crate::limits::coll as limit;
use combine::slots;
pub(super) use combine::{Operands, Room};
use garonne_sync::board::CELL_BYTES;
use garonne_sync::user::Data;
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
    /// The same to all, with blocks whose lengths all ranks know.
    Allgatherv(Option<Data>, Blocks<'a>),
    /// One rank's blocks, each to its rank; the own block unless it stays in place.
    Scatter(u64, Blocks<'a>, Option<Data>, u32),
    /// A block from every rank to every rank; in place, what is received replaces what was sent.
    Alltoall(u64, Blocks<'a>, Blocks<'a>),
    /// The same with blocks whose length only its two ranks know.
    Uneven(Kind, Blocks<'a>, Blocks<'a>),
    /// Everybody's elements combined, to all or to one rank.
    Reduce(&'a Reduction<'a>, Option<u32>),
    /// Everybody's elements combined, a slice of the result to each rank.
    ReduceScatter(&'a Reduction<'a>, &'a dyn Fn(u32) -> Range<u64>),
    /// The elements of all lower ranks combined, with or without the own ones.
    Scan(&'a Reduction<'a>, Own),
}

/// Pieces of `total` bytes of at most `piece`.
fn pieces(total: u64, piece: u64) -> impl Iterator<Item = (u64, u64)> {
    let piece = piece.max(1);
    (0..total.div_ceil(piece)).map(move |k| (k * piece, piece.min(total - k * piece)))
}

/// Bytes of a member's lane that are for one other member: whole cache lines.
fn share(lane: usize, members: u32, block: u64) -> u64 {
    let most = (lane / (members as usize - 1).max(1) / LINE * LINE) as u64;
    most.min(block.next_multiple_of(LINE as u64))
}

/// Parts of lanes for different members begin on lines of their own.
const LINE: usize = 64;

/// Whether an all-to-all of blocks up to `block` bytes is worth its meetings.
fn suits_alltoall(lane: usize, members: u32, block: u64) -> bool {
    let piece = share(lane, members, block);
    let few = block.div_ceil(piece.max(1)) <= limit::LANE_ROUNDS_SHORT;
    block > 0 && piece > 0 && (few || piece >= limit::LANE_PIECE_SHORT)
}

/// Whether the elements are combined by a predefined operation and lie without gaps.
pub(super) fn is_plain(r: &Reduction<'_>) -> bool {
    let size = r.shape().size();
    r.shape().extent() == size as i64 && r.shape().true_bounds() == (0, size as i64) && !r.fold.user()
}

impl Large<'_> {
    /// Whether lanes of `lane` bytes suit it.
    fn suits(&self, lane: usize, members: u32) -> bool {
        let combines = |r| is_plain(r) && slots(lane, members, r.shape().size()).each > 0;
        match self {
            Large::Bcast(_, data) => data.len > 0,
            Large::Gather(block, ..) => *block > 0,
            Large::Allgatherv(_, blocks) => (0..members).any(|rank| blocks.len(rank) > 0),
            Large::Scatter(block, ..) | Large::Alltoall(block, ..) => suits_alltoall(lane, members, *block),
            // Lengths are said in lanes first.
            Large::Uneven(..) => (members as usize + 1) * 8 <= lane,
            Large::Reduce(r, _) | Large::ReduceScatter(r, _) => combines(r),
            Large::Scan(r, _) => members <= limit::LANE_SCAN_RANKS && combines(r),
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
        Large::Gather(block, mine, blocks, root) => lanes.gather(&|_| *block, mine, blocks, *root),
        Large::Allgatherv(mine, blocks) => lanes.gather(&|rank| blocks.len(rank), mine, blocks, None),
        Large::Scatter(block, blocks, mine, root) => lanes.scatter(*block, blocks, mine, *root),
        Large::Alltoall(block, send, recv) => lanes.alltoall(*block, send, recv),
        Large::Uneven(kind, send, recv) => return lanes.uneven(*kind, send, recv),
        Large::ReduceScatter(r, slice) => lanes.reduce_scatter(r, *slice),
        Large::Scan(r, own) => lanes.scan(r, *own),
        Large::Reduce(r, None)
            if place.style == Style::Flags
                && lanes.reads_directly(slice_bytes(r, members))?
                && lanes.reduce_apart(r)? =>
        {
            Ok(())
        }
        Large::Reduce(r, root) if members == 2 => lanes.exchange(r, *root),
        Large::Reduce(r, root) => lanes.reduce(r, *root),
    }
    .map(|()| true)
}

/// About how much of a reduction's elements is one member's slice.
fn slice_bytes(r: &Reduction<'_>, members: u32) -> u64 {
    r.count.saturating_mul(r.shape().size()) / u64::from(members)
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

    /// Whether blocks of `bytes` are read from where they lie.
    fn reads_directly(&self, bytes: u64) -> Result<bool> {
        Ok(bytes >= limit::DIRECT_BYTES && self.table.reads()?)
    }

    /// `len` bytes of a lane from `at`.
    fn in_lane(&self, member: u32, epoch: u32, at: u64, len: u64) -> Data {
        Data::contiguous(self.place.board.lane(member, epoch).offset(at as isize), len)
    }

    fn next(&self) -> u32 {
        self.table.next_with_lanes()
    }

    fn pass(&self, epoch: u32) -> Result<()> {
        self.table.pass(epoch, || {})
    }

    /// As [`Self::pass`], with something to do between coming and waiting.
    fn pass_doing(&self, epoch: u32, meanwhile: impl FnOnce()) -> Result<()> {
        self.table.pass_doing(epoch, || {}, meanwhile)
    }

    /// What `from` puts down for `to`, which is another: shares lie in the order of distance.
    fn shared(&self, (from, to): (u32, u32), epoch: u32, (share, len): (u64, u64)) -> Data {
        let index = minus(to, from, self.members()) - 1;
        self.in_lane(from, epoch, u64::from(index) * share, len)
    }
}
