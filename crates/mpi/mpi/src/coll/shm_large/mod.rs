//! Long blocking collectives through the lanes of a communicator's segment, piece by piece.
//!
//! [`run`] takes the [`ShmSync`] of the call. Returns `false` where messages must serve, for equal
//! reasons on all processes. One barrier per piece is the only synchronisation: ranks that share a
//! core switch twice per piece, however many they are. Lanes are short enough that a piece stays in
//! the caches between writer and readers. A lane of epoch k may be written once epoch k - 1 is
//! passed, and is read before arriving at epoch k + 1.
//!
//! [`lane_copy`] moves blocks, [`lane_reduce`] combines them. Where processes can read each other's
//! memory, [`direct_read`] and [`direct_reduce`] copy from where the data lies.
//! [`garonne_coll::autotune`] chooses among these paths by the time that earlier calls took.

mod direct_read;
mod direct_reduce;
mod lane_copy;
mod lane_reduce;

use super::comm_segment::{Attachment, BarrierKind};
use super::shm_sync::ShmSync;
use super::tuned_call::TunedCall;
use crate::error::Result;
use crate::limits::coll as limit;
use direct_read::DirectTransfer;
use garonne_coll::algo::scan::ScanKind;
use garonne_coll::algo::{Reduction, minus};
use garonne_coll::autotune::{
    AvailablePaths, CallClass, CopyKind, DataPath, LaneCopies, TrafficPattern,
};
use garonne_coll::blocks::Blocks;
use garonne_coll::call_tag::CollectiveKind;
use garonne_coll::typed_buffer;
use garonne_sync::user::Data;
use lane_reduce::slots;
pub(super) use lane_reduce::{OperandRoom, Operands};
use std::ops::Range;

/// A long collective, as lanes carry it out.
pub(super) enum LargeOp<'a> {
    /// The bytes of this rank to all.
    Bcast(u32, Data),
    /// The block of every rank to all, or to one; the own contribution unless it is in place,
    /// blocks where they are wanted.
    Gather(u64, Option<Data>, Blocks<'a>, Option<u32>),
    /// Blocks of different lengths to all; all ranks know the lengths.
    Allgatherv(Option<Data>, Blocks<'a>),
    /// One rank's blocks, each to its rank; the own block unless it stays in place.
    Scatter(u64, Blocks<'a>, Option<Data>, u32),
    /// A block from every rank to every rank; in place, what is received replaces what was sent.
    Alltoall(u64, Blocks<'a>, Blocks<'a>),
    /// Blocks from every rank to every rank, whose length only sender and receiver know.
    Uneven(CollectiveKind, Blocks<'a>, Blocks<'a>),
    /// Everybody's elements combined, to all or to one rank.
    Reduce(&'a Reduction<'a>, Option<u32>),
    /// Everybody's elements combined, a slice of the result to each rank.
    ReduceScatter(&'a Reduction<'a>, &'a dyn Fn(u32) -> Range<u64>),
    /// The elements of all lower ranks combined, with or without the own ones.
    Scan(&'a Reduction<'a>, ScanKind),
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

/// Returns whether an all-to-all of blocks up to `block` bytes is worth its meetings.
fn suits_alltoall(lane: usize, members: u32, block: u64) -> bool {
    let piece = share(lane, members, block);
    let few = block.div_ceil(piece.max(1)) <= limit::LANE_ROUNDS_SHORT;
    block > 0 && piece > 0 && (few || piece >= limit::LANE_PIECE_SHORT)
}

/// Returns whether the elements are combined by a predefined operation and lie without gaps.
pub(super) fn is_plain(r: &Reduction<'_>) -> bool {
    let size = r.shape().size();
    r.shape().extent() == size as i64
        && r.shape().true_bounds() == (0, size as i64)
        && !r.fold.user()
}

impl LargeOp<'_> {
    /// Returns the class in which the path is chosen, from facts that all members know alike.
    fn call_class(&self, members: u32) -> CallClass {
        let whole = |r: &Reduction<'_>| r.count.saturating_mul(r.shape().size());
        let (pattern, len) = match self {
            LargeOp::Bcast(_, data) => (TrafficPattern::Bcast, data.len),
            LargeOp::Gather(block, .., None) => (TrafficPattern::Allgather, *block),
            LargeOp::Gather(block, .., Some(_)) => (TrafficPattern::Gather, *block),
            LargeOp::Allgatherv(_, blocks) => {
                let total = (0..members)
                    .map(|rank| blocks.len(rank))
                    .fold(0, u64::saturating_add);
                (TrafficPattern::Allgather, total / u64::from(members))
            }
            LargeOp::Scatter(block, ..) => (TrafficPattern::Scatter, *block),
            LargeOp::Alltoall(block, ..) => (TrafficPattern::Alltoall, *block),
            // Its length shows later.
            LargeOp::Uneven(..) => (TrafficPattern::Alltoall, 0),
            LargeOp::Reduce(r, None) => (TrafficPattern::Allreduce, whole(r)),
            LargeOp::Reduce(r, Some(_)) => (TrafficPattern::Reduce, whole(r)),
            LargeOp::ReduceScatter(r, _) => (TrafficPattern::ReduceScatter, whole(r)),
            LargeOp::Scan(r, _) => (TrafficPattern::Scan, whole(r)),
        };
        CallClass { pattern, len }
    }

    /// The ways that it could go, likewise.
    fn available_paths(&self, lanes: &LaneTransfer<'_>) -> Result<AvailablePaths> {
        let members = lanes.members();
        let CallClass { pattern, len } = self.call_class(members);
        let by_one = len / u64::from(members);
        let read = match pattern {
            TrafficPattern::Allgather | TrafficPattern::Alltoall => len,
            TrafficPattern::Allreduce if lanes.attachment.barrier == BarrierKind::Flags => by_one,
            _ => 0,
        };
        Ok(AvailablePaths {
            direct: read >= limit::DIRECT_BYTES && lanes.sync.reads_directly()?,
            messages: pattern == TrafficPattern::Bcast && members == 2 && len >= limit::SINGLE_COPY,
            ..lanes.available_paths(pattern, len)
        })
    }

    /// Returns whether lanes of `lane` bytes suit it.
    fn suits(&self, lane: usize, members: u32) -> bool {
        let combines = |r| is_plain(r) && slots(lane, members, r.shape().size()).each > 0;
        match self {
            LargeOp::Bcast(_, data) => data.len > 0,
            LargeOp::Gather(block, ..) => *block > 0,
            LargeOp::Allgatherv(_, blocks) => (0..members).any(|rank| blocks.len(rank) > 0),
            LargeOp::Scatter(block, ..) | LargeOp::Alltoall(block, ..) => {
                suits_alltoall(lane, members, *block)
            }
            // Lengths are said in lanes first.
            LargeOp::Uneven(..) => (members as usize + 1) * 8 <= lane,
            LargeOp::Reduce(r, _) | LargeOp::ReduceScatter(r, _) => combines(r),
            LargeOp::Scan(r, _) => members <= limit::LANE_SCAN_RANKS && combines(r),
        }
    }
}

/// Carries out a collective through lanes; `false`: messages must serve.
pub(super) fn run(sync: &ShmSync<'_>, large: &LargeOp<'_>) -> Result<bool> {
    let place = sync.attachment;
    let (lane, members) = (place.segment.lane_len(), place.segment.members());
    if lane == 0 || !large.suits(lane, members) {
        return Ok(false);
    }
    let lanes = LaneTransfer {
        sync,
        attachment: place,
        copies: LaneCopies::default(),
    };
    // How much it is shows in its first meeting.
    if let LargeOp::Uneven(kind, send, recv) = large {
        return lanes.uneven(*kind, send, recv);
    }
    lanes.run_tuned(
        large.call_class(members),
        large.available_paths(&lanes)?,
        |lanes, way| lanes.carry_out(large, way),
    )
}

/// One call that moves its data through lanes.
struct LaneTransfer<'a> {
    sync: &'a ShmSync<'a>,
    attachment: &'a Attachment,
    copies: LaneCopies,
}

impl<'a> LaneTransfer<'a> {
    /// Lets a call of this sort go the way that it is its turn to go; `false`: by messages.
    fn run_tuned(
        &self,
        sort: CallClass,
        open: AvailablePaths,
        go: impl FnOnce(&LaneTransfer<'a>, DataPath) -> Result<()>,
    ) -> Result<bool> {
        if sort.len < limit::TUNE_FROM {
            return go(self, DataPath::Lanes(self.copies)).map(|()| true);
        }
        let mut tuned = TunedCall::decide(self.sync, sort, open);
        let strokes = match tuned.way() {
            DataPath::Messages => {
                self.sync.use_messages(tuned);
                return Ok(false);
            }
            DataPath::Lanes(strokes) => strokes,
            DataPath::Direct => self.copies,
        };
        tuned.begin(self.sync)?;
        let lanes = LaneTransfer {
            copies: strokes,
            ..*self
        };
        let outcome = go(&lanes, tuned.way());
        tuned.end(self.sync, outcome).map(|()| true)
    }

    fn carry_out(&self, large: &LargeOp<'_>, way: DataPath) -> Result<()> {
        // What cannot be lent goes through lanes after all; all members learn that alike.
        if way == DataPath::Direct && self.carry_out_directly(large)? {
            return Ok(());
        }
        match large {
            LargeOp::Bcast(root, data) => self.bcast(*root, data),
            LargeOp::Gather(block, mine, blocks, root) => {
                self.gather(&|_| *block, mine, blocks, *root)
            }
            LargeOp::Allgatherv(mine, blocks) => {
                self.gather(&|rank| blocks.len(rank), mine, blocks, None)
            }
            LargeOp::Scatter(block, blocks, mine, root) => {
                self.scatter(*block, blocks, mine, *root)
            }
            LargeOp::Alltoall(block, send, recv) => self.alltoall(*block, send, recv),
            LargeOp::Uneven(..) => Ok(()),
            LargeOp::ReduceScatter(r, slice) => self.reduce_scatter(r, *slice),
            LargeOp::Scan(r, own) => self.scan(r, *own),
            LargeOp::Reduce(r, root) if self.members() == 2 => self.exchange(r, *root),
            LargeOp::Reduce(r, root) => self.reduce(r, *root),
        }
    }

    /// Puts into a lane what another member takes.
    fn put(&self, part: &Data, there: &Data) {
        typed_buffer::copy_by(self.copies.put, part, there);
    }

    /// Takes what is to stay.
    fn take(&self, part: &Data, here: &Data) {
        typed_buffer::copy_by(self.copies.take, part, here);
    }

    /// Moves what stays with this member.
    fn keep(&self, part: &Data, here: &Data) {
        match self.copies.take {
            CopyKind::Streamed => self.take(part, here),
            CopyKind::Cached | CopyKind::Library => typed_buffer::copy_own(part, here),
        }
    }

    /// The call without lanes: members read each other's memory.
    fn direct(&self) -> DirectTransfer<'a> {
        DirectTransfer {
            sync: self.sync,
            attachment: self.attachment,
        }
    }

    fn members(&self) -> u32 {
        self.attachment.segment.members()
    }

    fn lane_len(&self) -> u64 {
        self.attachment.segment.lane_len() as u64
    }

    /// Returns the paths that are available to all calls of a pattern.
    fn available_paths(&self, pattern: TrafficPattern, len: u64) -> AvailablePaths {
        let n = u64::from(self.members());
        // What all read and write, where the copies out of lanes are to where the data stays.
        let blocks = match pattern {
            TrafficPattern::Alltoall => 2 * n * n,
            TrafficPattern::Allgather => n + n * n,
            TrafficPattern::Scatter => 2 * n,
            TrafficPattern::Bcast => n,
            _ => 0,
        };
        AvailablePaths {
            streamed: len.saturating_mul(blocks) >= self.attachment.past_caches_from,
            library: self.attachment.has_library_copy,
            ..AvailablePaths::default()
        }
    }

    /// Reads from where it lies what is wanted. `false`: lanes must serve, and nothing was moved.
    fn carry_out_directly(&self, large: &LargeOp<'_>) -> Result<bool> {
        match large {
            LargeOp::Gather(_, mine, blocks, None) | LargeOp::Allgatherv(mine, blocks) => {
                self.gather_directly(mine, blocks)
            }
            LargeOp::Alltoall(block, send, recv) => self.alltoall_directly(*block, send, recv),
            LargeOp::Reduce(r, None) => self.direct().reduce_directly(r),
            _ => Ok(false),
        }
    }

    /// Bytes of a piece of `total` where at most `most` fit: two pieces at least, so that one
    /// member's copies go on beside another's, if all have a core, and no short ones.
    fn piece(&self, most: u64, total: u64) -> u64 {
        match self.attachment.barrier {
            BarrierKind::Counter => most,
            BarrierKind::Flags => {
                let half = total.div_ceil(2).next_multiple_of(LINE as u64);
                most.min(half.max(limit::LANE_PIECE_MIN))
            }
        }
    }

    /// `len` bytes of a lane from `at`.
    fn in_lane(&self, member: u32, epoch: u32, at: u64, len: u64) -> Data {
        Data::contiguous(
            self.attachment
                .segment
                .lane(member, epoch)
                .offset(at as isize),
            len,
        )
    }

    fn next_epoch(&self) -> u32 {
        self.sync.next_epoch_with_lanes()
    }

    fn barrier(&self, epoch: u32) -> Result<()> {
        self.sync.barrier(epoch, || {})
    }

    /// Passes a barrier, and calls `meanwhile` between arriving and waiting.
    fn barrier_with(&self, epoch: u32, meanwhile: impl FnOnce()) -> Result<()> {
        self.sync.barrier_with(epoch, || {}, meanwhile)
    }

    /// Returns the part of `from`'s lane that is for `to`. The parts lie in the order of distance.
    fn share_of(&self, (from, to): (u32, u32), epoch: u32, (share, len): (u64, u64)) -> Data {
        let index = minus(to, from, self.members()) - 1;
        self.in_lane(from, epoch, u64::from(index) * share, len)
    }
}
