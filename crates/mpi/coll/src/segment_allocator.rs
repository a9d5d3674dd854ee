//! Allocator of the shared memory that a process offers for collectives (its heap,
//! `Messaging::coll_heap`).
//!
//! Rank 0 of a communicator allocates the communicator's segment, and slots for single persistent
//! collectives. A piece is used again when all members have left it, which each says in the piece
//! itself. Boards of agreements lie in the same heap; members of theirs may be dead. Slots of
//! persistent collectives take at most
//! [`PERSISTENT_SLOTS_BYTES`](limit::PERSISTENT_SLOTS_BYTES), so that communicators find room for
//! their segments. Without room, messages serve.

use crate::limits as limit;
use garonne_sync::agreement_board::{AgreementBoard, BoardMemory, MemberState};
use garonne_sync::nbc_slots::{NbcLayout, NbcSlots, WIDE_SETS};
use garonne_sync::shm::Segment;
use garonne_sync::shm_barrier::{CELL_BYTES, CollSegment};
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The allocator of one process's heap for collectives.
///
/// It lives as long as the heap, also where MPI is finalized and initialised again in between: a
/// slower process may still use a segment that this process has left.
#[derive(Debug, Default)]
pub struct SegmentAllocator(Mutex<Allocations>);

/// The allocated parts of the heap.
#[derive(Debug, Default)]
struct Allocations {
    segments: Vec<Allocation>,
    /// Place where the unused part of the heap begins.
    end: usize,
    /// Bytes ever allocated as slots of persistent collectives.
    slot_bytes: usize,
    /// Slots that this process has deserted and others may still use, by their length.
    free_slots: BTreeMap<usize, VecDeque<(usize, NbcSlots)>>,
    boards: Vec<BoardAllocation>,
}

impl Allocations {
    /// Takes `len` more bytes of the heap. Returns `None` if there is no room.
    fn extend(&mut self, heap: &Segment, len: usize) -> Option<usize> {
        let offset = self.end;
        let end = offset.checked_add(len).filter(|&end| end <= heap.len())?;
        self.end = end;
        Some(offset)
    }
}

/// A piece of the heap.
#[derive(Debug)]
struct Allocation {
    offset: usize,
    len: usize,
    segment: Arc<CollSegment>,
    /// True if a communicator of this process still uses it.
    in_use: bool,
}

/// A piece of the heap for the agreements of one communicator.
#[derive(Debug)]
struct BoardAllocation {
    offset: usize,
    len: usize,
    board: AgreementBoard<BoardMemory>,
    /// Processes of its members.
    peers: Vec<u32>,
    /// True if a communicator of this process still uses it.
    in_use: bool,
}

/// Boards begin at multiples of this, so that their places are small numbers.
pub const BOARD_UNIT: usize = 4 << 10;

/// An allocated segment with its slots, and its offset in the heap.
pub struct AllocatedSegment {
    /// Place where it begins in the heap.
    pub offset: usize,
    /// Cells, lanes and barriers of blocking collectives.
    pub segment: Arc<CollSegment>,
    /// Slots of nonblocking collectives.
    pub slots: NbcSlots,
}

/// Rounds the length of slots of one persistent collective up: lengths are few, so that one
/// collective can reuse the slots of another.
fn slots_len(len: usize) -> usize {
    let unit = (len.next_power_of_two() / 8).max(CELL_BYTES);
    len.next_multiple_of(unit)
}

/// Bytes of a lane for so many members; 0: too many for lanes.
pub fn lane_len(members: u32) -> usize {
    let even = limit::LANES_BYTES / (2 * members.max(1) as usize) / CELL_BYTES * CELL_BYTES;
    match even.min(limit::LANE_BYTES_MAX) {
        short if short < limit::LANE_BYTES_MIN => 0,
        len => len,
    }
}

/// Returns the bytes of a wide cell of a segment for `members` members, if the heap has room for
/// them.
pub fn wide_cell_len(members: u32) -> usize {
    let cells = (members as usize + 1) * WIDE_SETS as usize;
    let each = (limit::SLOTS_BYTES / cells).min(limit::SLOT_CELL_MAX);
    // What a call fills of it lies on as few pages as can be, which every member has to touch.
    let unit = if each < PAGE { CELL_BYTES } else { PAGE };
    each / unit * unit
}

/// Bytes of a page, as most machines have them.
const PAGE: usize = 4 << 10;

/// Returns the bytes of a segment with its slots.
pub fn segment_bytes(members: u32, lane: usize, wide: usize) -> usize {
    CollSegment::bytes(members, lane)
        .next_multiple_of(CELL_BYTES)
        .saturating_add(NbcSlots::bytes(members, NbcLayout::common(wide)))
        .next_multiple_of(CELL_BYTES)
}

/// Returns `len` bytes of the owner's heap. `place` is their offset plus one; 0 means that nothing
/// was allocated. Returns `None` also if the range is not inside the heap or not aligned: the
/// number came from another process.
pub fn heap_part(heap: &Segment, place: usize, len: usize) -> Option<Segment> {
    let offset = place
        .checked_sub(1)
        .filter(|offset| offset.is_multiple_of(CELL_BYTES))?;
    let end = offset.checked_add(len)?;
    (end <= heap.len()).then(|| heap.part(offset, len))
}

/// Both in memory of `bytes`.
pub fn split_segment(
    memory: &Segment,
    members: u32,
    (lane, wide): (usize, usize),
) -> Option<(Arc<CollSegment>, NbcSlots)> {
    let shape = NbcLayout::common(wide);
    let (first, second) = (
        CollSegment::bytes(members, lane),
        NbcSlots::bytes(members, shape),
    );
    let board = CollSegment::new(memory.part(0, first), members, lane)?;
    let rounds = memory.part(first.next_multiple_of(CELL_BYTES), second);
    Some((Arc::new(board), NbcSlots::new(rounds, members, shape)?))
}

impl SegmentAllocator {
    fn allocations(&self) -> MutexGuard<'_, Allocations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates a cleared segment for `members`, with lanes and wide cells if there is room.
    /// Returns `None` if there is no room even without.
    pub fn allocate(&self, heap: &Segment, members: u32) -> Option<AllocatedSegment> {
        let (lane, wide) = (lane_len(members), wide_cell_len(members));
        let short = wide.min(limit::SLOT_SHORT as usize);
        let narrow = short / 4 / CELL_BYTES * CELL_BYTES;
        [(lane, wide), (lane, short), (0, short), (0, narrow), (0, 0)]
            .into_iter()
            .find_map(|lens| self.allocate_with(heap, members, lens))
    }

    /// Allocates a segment with lanes and wide cells of these lengths.
    fn allocate_with(
        &self,
        heap: &Segment,
        members: u32,
        (lane, wide): (usize, usize),
    ) -> Option<AllocatedSegment> {
        let mut allocations = self.allocations();
        let len = segment_bytes(members, lane, wide);
        let old = allocations
            .segments
            .iter()
            .find(|lot| !lot.in_use && lot.len >= len && lot.segment.is_deserted());
        let (offset, kept) = match old {
            Some(lot) => (lot.offset, lot.len),
            None => (allocations.extend(heap, len)?, len),
        };
        let (board, rounds) = split_segment(&heap.part(offset, len), members, (lane, wide))?;
        board.clear();
        rounds.clear();
        let lot = Allocation {
            offset,
            len: kept,
            segment: board.clone(),
            in_use: true,
        };
        match allocations
            .segments
            .iter_mut()
            .find(|lot| lot.offset == offset)
        {
            Some(old) => *old = lot,
            None => allocations.segments.push(lot),
        }
        Some(AllocatedSegment {
            offset,
            segment: board,
            slots: rounds,
        })
    }

    /// Marks a segment as unused here, when its communicator is gone. Other members may still use
    /// it.
    pub fn release(&self, board: &Arc<CollSegment>) {
        let mut allocations = self.allocations();
        let segments = allocations.segments.iter_mut();
        segments
            .filter(|lot| Arc::ptr_eq(&lot.segment, board))
            .for_each(|lot| lot.in_use = false);
    }

    /// Allocates a cleared board for the agreements of these processes, and returns it with its
    /// offset, a multiple of [`BOARD_UNIT`]. A board is used again when its members have left it or
    /// are gone, as `state` says of a process. Returns `None` if there is no room.
    pub fn allocate_board(
        &self,
        heap: &Segment,
        peers: &[u32],
        state: impl Fn(u32) -> MemberState,
    ) -> Option<(usize, AgreementBoard<BoardMemory>)> {
        let members = u32::try_from(peers.len()).ok()?;
        let len = AgreementBoard::bytes(members).next_multiple_of(BOARD_UNIT);
        let mut allocations = self.allocations();
        let is_free = |lot: &BoardAllocation| {
            let of_member = |member: u32| state(lot.peers[member as usize]);
            !lot.in_use && lot.len >= len && lot.board.is_deserted(of_member)
        };
        let old = allocations.boards.iter().position(is_free);
        let (offset, len) = match old {
            Some(index) => {
                let old = allocations.boards.swap_remove(index);
                (old.offset, old.len)
            }
            None => {
                let padding = allocations.end.next_multiple_of(BOARD_UNIT) - allocations.end;
                (allocations.extend(heap, padding + len)? + padding, len)
            }
        };
        let board = AgreementBoard::in_memory(heap.part(offset, len), members)?;
        board.clear();
        allocations.boards.push(BoardAllocation {
            offset,
            len,
            board: board.clone(),
            peers: peers.to_vec(),
            in_use: true,
        });
        Some((offset, board))
    }

    /// Marks a board as unused here. `unseen`: no other process knows of it, so that it can be used
    /// again at once.
    pub fn release_board(&self, offset: usize, unseen: bool) {
        let mut allocations = self.allocations();
        let boards = allocations.boards.iter_mut();
        for lot in boards.filter(|lot| lot.offset == offset) {
            lot.in_use = false;
            if unseen {
                (0..lot.board.members()).for_each(|member| lot.board.leave(member));
            }
        }
    }

    /// Allocates cleared slots for one persistent collective of `members`. Returns their offset and
    /// the slots, or `None` if there is no room.
    pub fn allocate_slots(
        &self,
        heap: &Segment,
        members: u32,
        shape: NbcLayout,
    ) -> Option<(usize, NbcSlots)> {
        let len = slots_len(NbcSlots::bytes(members, shape));
        let mut allocations = self.allocations();
        let place = allocations.reusable_slots(len..=len);
        let place = place.or_else(|| Some((allocations.extend_slots(heap, len)?, len)));
        // What is longer than it has to be, when nothing else is left.
        let (offset, len) = place.or_else(|| allocations.reusable_slots(len..=usize::MAX))?;
        let rounds = NbcSlots::new(heap.part(offset, len), members, shape)?;
        rounds.clear();
        Some((offset, rounds))
    }

    /// Takes back slots whose collective is gone here. This process has deserted them; others may
    /// still look at them.
    pub fn release_slots(&self, offset: usize, rounds: NbcSlots) {
        let left = &mut self.allocations().free_slots;
        left.entry(rounds.memory_len())
            .or_default()
            .push_back((offset, rounds));
    }
}

impl Allocations {
    /// Takes `len` more bytes of the heap for the slots of one persistent collective.
    fn extend_slots(&mut self, heap: &Segment, len: usize) -> Option<usize> {
        let own = self.slot_bytes.checked_add(len)?;
        let offset = (own <= limit::PERSISTENT_SLOTS_BYTES).then(|| self.extend(heap, len))??;
        self.slot_bytes = own;
        Some(offset)
    }

    /// Returns slots of one of these lengths that all members have deserted. The slots that were
    /// released first are tried first.
    fn reusable_slots(&mut self, lens: RangeInclusive<usize>) -> Option<(usize, usize)> {
        let of_len = |(len, left): (&usize, &mut VecDeque<(usize, NbcSlots)>)| {
            for _ in 0..left.len().min(limit::PERSISTENT_SLOTS_CHECKED) {
                let (offset, rounds) = left.pop_front()?;
                if rounds.is_deserted() {
                    return Some((offset, *len));
                }
                left.push_back((offset, rounds));
            }
            None
        };
        self.free_slots.range_mut(lens).find_map(of_len)
    }
}

/// For tests of what the allocator was asked for.
impl SegmentAllocator {
    /// Returns the number of segments ever allocated.
    pub fn segments_made(&self) -> usize {
        self.allocations().segments.len()
    }

    /// Returns the bytes ever allocated for persistent collectives.
    pub fn slot_bytes(&self) -> usize {
        self.allocations().slot_bytes
    }

    /// Marks all but `bytes` bytes of the heap as allocated.
    pub fn leave_room(&self, bytes: usize, of: usize) {
        let memory = Segment::anonymous(CollSegment::bytes(1, 0)).unwrap();
        let mut allocations = self.allocations();
        allocations.end = of - bytes;
        allocations.segments.push(Allocation {
            offset: 0,
            len: of - bytes,
            segment: Arc::new(CollSegment::new(memory, 1, 0).unwrap()),
            in_use: true,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_is_lent_again_only_when_all_have_left_it() {
        let heap = Segment::anonymous(segment_bytes(2, 0, 0) * 2).unwrap();
        let allocator = SegmentAllocator::default();
        let lend = || allocator.allocate_with(&heap, 2, (0, 0));
        let first = lend().unwrap();
        let second = lend().unwrap();
        assert_ne!(first.offset, second.offset);
        assert!(lend().is_none());
        allocator.release(&first.segment);
        first.segment.leave(0);
        assert!(lend().is_none());
        first.segment.leave(1);
        assert_eq!(lend().unwrap().offset, first.offset);
    }

    #[test]
    fn rounds_of_one_collective_are_lent_again_only_when_all_have_deserted_them() {
        let shape = NbcLayout::own(2, 8);
        let each = slots_len(NbcSlots::bytes(2, shape));
        let heap = Segment::anonymous(each * 2).unwrap();
        let allocator = SegmentAllocator::default();
        let lend = || allocator.allocate_slots(&heap, 2, shape);
        let (offset, first) = lend().unwrap();
        assert_ne!(lend().unwrap().0, offset);
        assert!(lend().is_none());
        let other = NbcSlots::new(heap.part(offset, each), 2, shape).unwrap();
        first.desert(0);
        allocator.release_slots(offset, first);
        assert!(lend().is_none());
        other.desert(1);
        assert_eq!(lend().unwrap().0, offset);
        assert!(!other.is_deserted());
    }

    #[test]
    fn what_is_longer_than_needed_is_lent_when_nothing_else_is_left() {
        let (short, long) = (NbcLayout::own(2, 8), NbcLayout::own(2, 4000));
        let each = |shape| slots_len(NbcSlots::bytes(2, shape));
        let heap = Segment::anonymous(each(short) + each(long)).unwrap();
        let allocator = SegmentAllocator::default();
        let (offset, rounds) = allocator.allocate_slots(&heap, 2, long).unwrap();
        (0..2).for_each(|member| rounds.desert(member));
        allocator.release_slots(offset, rounds);
        let lend = |shape| allocator.allocate_slots(&heap, 2, shape);
        let first = lend(short).unwrap();
        assert_ne!(first.0, offset, "there is room of its length");
        let second = lend(short).unwrap();
        assert_eq!(second.0, offset);
        assert!(lend(short).is_none());
        // It comes back as long as it was.
        (0..2).for_each(|member| second.1.desert(member));
        allocator.release_slots(offset, second.1);
        assert_eq!(lend(long).unwrap().0, offset);
    }

    #[test]
    fn a_board_of_agreements_is_used_again_when_its_members_have_left_or_are_dead() {
        let heap = Segment::anonymous(2 * BOARD_UNIT).unwrap();
        let allocator = SegmentAllocator::default();
        let lend = |dead: &'static [u32]| {
            allocator.allocate_board(&heap, &[3, 8], |peer| match dead.contains(&peer) {
                true => MemberState::Dead,
                false => MemberState::Alive,
            })
        };
        let (first, board) = lend(&[]).unwrap();
        let (second, _) = lend(&[]).unwrap();
        assert_eq!(second, BOARD_UNIT);
        assert!(lend(&[3, 8]).is_none(), "both are in use here");
        allocator.release_board(first, false);
        board.leave(0);
        assert!(lend(&[]).is_none());
        let (again, board) = lend(&[8]).unwrap();
        assert_eq!(again, first);
        assert!(!board.is_decided(0) && lend(&[8]).is_none());
        // Nobody was told of it.
        allocator.release_board(second, true);
        assert_eq!(lend(&[]).unwrap().0, second);
    }

    #[test]
    fn rounds_of_single_collectives_leave_room_for_boards() {
        let heap = Segment::anonymous(2 * limit::PERSISTENT_SLOTS_BYTES).unwrap();
        let allocator = SegmentAllocator::default();
        let lent =
            std::iter::from_fn(|| allocator.allocate_slots(&heap, 3, NbcLayout::own(4, 4000)));
        assert!(lent.count() > 10);
        assert!(allocator.allocate(&heap, 3).is_some());
    }
}
