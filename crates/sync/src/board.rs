//! A board: shared words and small cells through which the processes of one node meet and exchange a few bytes.
//!
//! Owns the protocol of the meeting ([`Gate`]) and, outside loom, the layout of a board in a shared segment ([`Board`]). Used by small
//! collectives, whose members all take part in every meeting in the same order. Whoever comes last opens the gate for all;
//! before that it may combine what the others put down. Bounded: one header, two cells and two lanes per member, nothing grows.
//! Lanes are large cells, on memory of their own that nobody touches before the first collective that needs them.
//!
//! A cell of meeting k is its owner's again at meeting k + 2, which nobody can enter before all have left k: hence two cells each.
//! A misbehaving member can delay the others or change what they compute, nothing else: contents are only ever copied.

use crate::facade::{AtomicU32, Ordering};

/// The two words of a meeting.
#[derive(Clone, Copy, Debug)]
pub struct Gate<'a> {
    arrived: &'a AtomicU32,
    epoch: &'a AtomicU32,
    members: u32,
}

impl<'a> Gate<'a> {
    /// The gate at these words, for this number of members.
    #[inline(always)]
    pub fn new(arrived: &'a AtomicU32, epoch: &'a AtomicU32, members: u32) -> Self {
        Self {
            arrived,
            epoch,
            members,
        }
    }

    /// Arrives. `true`: the caller is the last, sees what all others wrote before they arrived, and must `open`.
    #[inline(always)]
    pub fn arrive(self) -> bool {
        // Release: what the caller put down; Acquire, for the last: what all others did. SYNC(board-arrive).
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 < self.members {
            return false;
        }
        // Ordered before the next meeting's arrivals by the Release of `open`, which they acquire in `passed`.
        self.arrived.store(0, Ordering::Relaxed);
        true
    }

    /// Lets everybody pass meeting number `epoch`.
    #[inline(always)]
    pub fn open(self, epoch: u32) {
        // Release: what all put down and what the last combined. SYNC(board-open).
        self.epoch.store(epoch, Ordering::Release);
    }

    /// Whether meeting number `epoch` is over: what was put down may be read then.
    #[inline(always)]
    pub fn passed(self, epoch: u32) -> bool {
        // Acquire: see `open`. SYNC(board-open). Numbers wrap; the one here is never far from the current one.
        self.epoch.load(Ordering::Acquire).wrapping_sub(epoch) as i32 >= 0
    }

    /// The number of the last meeting.
    pub fn epoch(self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }
}

#[cfg(not(loom))]
mod segment {
    use super::Gate;
    use crate::facade::Ordering;
    use crate::shm::Segment;
    use crate::user::UserMem;

    const ARRIVED: usize = 0;
    /// Not on the line of `ARRIVED`: waiters look at it while others arrive.
    const EPOCH: usize = 128;
    /// Begins on the line of `EPOCH`: who sees the gate open has a small result already.
    const RESULT: usize = EPOCH + 16;
    /// Members' marks follow the result, each in a word of its own.
    const MARKS: usize = (RESULT + super::CELL_BYTES).next_multiple_of(super::CELL_BYTES);

    /// A board in shared memory. Zeroed memory is a board on which nobody has met.
    #[derive(Debug)]
    pub struct Board {
        memory: Segment,
        members: u32,
        lane: usize,
    }

    impl Board {
        /// Bytes of a board for `members` with lanes of `lane` bytes; saturates.
        pub const fn bytes(members: u32, lane: usize) -> usize {
            let lanes = lane.saturating_mul(2).saturating_mul(members as usize);
            Self::lanes(members).saturating_add(lanes)
        }

        /// Where lanes begin: after marks and cells.
        const fn lanes(members: u32) -> usize {
            Self::cells(members) + members as usize * 2 * super::CELL_BYTES
        }

        const fn cells(members: u32) -> usize {
            MARKS + (members as usize * 4).next_multiple_of(super::CELL_BYTES)
        }

        /// The board in `memory`; `None` if that is too small.
        pub fn new(memory: Segment, members: u32, lane: usize) -> Option<Self> {
            (members > 0 && memory.len() >= Self::bytes(members, lane)).then_some(Self {
                memory,
                members,
                lane,
            })
        }

        /// Bytes of each lane; 0: there are none.
        pub fn lane_len(&self) -> usize {
            self.lane
        }

        /// The large cell of `member` for meeting number `epoch`, as [`Self::cell`].
        #[inline]
        pub fn lane(&self, member: u32, epoch: u32) -> UserMem {
            let index = member as usize * 2 + (epoch & 1) as usize;
            self.memory
                .mem(Self::lanes(self.members) + index * self.lane, self.lane)
        }

        /// Number of members.
        pub fn members(&self) -> u32 {
            self.members
        }

        /// The gate.
        #[inline(always)]
        pub fn gate(&self) -> Gate<'_> {
            Gate::new(
                self.memory.atomic_u32(ARRIVED),
                self.memory.atomic_u32(EPOCH),
                self.members,
            )
        }

        /// What `member` puts down for meeting number `epoch`: [`CELL_BYTES`](super::CELL_BYTES) bytes to be copied from and to, never
        /// referred to. The view lasts as long as the board.
        #[inline]
        pub fn cell(&self, member: u32, epoch: u32) -> UserMem {
            let index = member as usize * 2 + (epoch & 1) as usize;
            self.memory.mem(
                Self::cells(self.members) + index * super::CELL_BYTES,
                super::CELL_BYTES,
            )
        }

        /// What the last to arrive combined, likewise.
        #[inline]
        pub fn result(&self) -> UserMem {
            self.memory.mem(RESULT, super::CELL_BYTES)
        }

        /// `member` will not look at the board again.
        pub fn leave(&self, member: u32) {
            // Release: its last look comes before. SYNC(board-leave).
            self.memory
                .atomic_u32(MARKS + member as usize * 4)
                .store(1, Ordering::Release);
        }

        /// Whether all have left, so that the memory may serve another board.
        pub fn is_deserted(&self) -> bool {
            // Acquire: see `leave`. SYNC(board-leave).
            (0..self.members).all(|member| {
                self.memory
                    .atomic_u32(MARKS + member as usize * 4)
                    .load(Ordering::Acquire)
                    != 0
            })
        }

        /// Makes a deserted board new. The caller then tells its members.
        pub fn clear(&self) {
            for offset in (0..MARKS + self.members as usize * 4).step_by(4) {
                self.memory.atomic_u32(offset).store(0, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(not(loom))]
pub use segment::Board;

/// Bytes that a member can put down: the small vectors of reductions, and four cache lines.
pub const CELL_BYTES: usize = 256;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shm::Segment;

    #[test]
    fn threads_meet_again_and_again_and_see_what_the_others_put_down() {
        const MEMBERS: u32 = 3;
        const LANE: usize = 4096;
        let memory = Segment::anonymous(Board::bytes(MEMBERS, LANE)).unwrap();
        std::thread::scope(|scope| {
            for me in 0..MEMBERS {
                let board = Board::new(memory.clone(), MEMBERS, LANE).unwrap();
                scope.spawn(move || {
                    for epoch in 1..=200u32 {
                        board.cell(me, epoch).write(0, &(epoch * (me + 1)).to_ne_bytes());
                        board
                            .lane(me, epoch)
                            .write(LANE as isize - 4, &(epoch * (me + 2)).to_ne_bytes());
                        if board.gate().arrive() {
                            board.gate().open(epoch);
                        }
                        while !board.gate().passed(epoch) {
                            std::thread::yield_now();
                        }
                        for other in 0..MEMBERS {
                            let mut bytes = [0; 4];
                            board.cell(other, epoch).read(0, &mut bytes);
                            assert_eq!(u32::from_ne_bytes(bytes), epoch * (other + 1));
                            board.lane(other, epoch).read(LANE as isize - 4, &mut bytes);
                            assert_eq!(u32::from_ne_bytes(bytes), epoch * (other + 2));
                        }
                    }
                    board.leave(me);
                });
            }
        });
        let board = Board::new(memory, MEMBERS, LANE).unwrap();
        assert!(board.is_deserted());
        board.clear();
        assert!(!board.is_deserted());
        assert_eq!(board.gate().epoch(), 0);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::facade::Cell;
    use loom::sync::Arc;

    struct Model {
        arrived: AtomicU32,
        epoch: AtomicU32,
        cells: [[Cell<u32>; 2]; 2],
        result: Cell<u32>,
    }

    fn take_part(model: &Model, me: usize) {
        let gate = Gate::new(&model.arrived, &model.epoch, 2);
        for epoch in 1..=2u32 {
            let put = |member: usize| &model.cells[member][(epoch & 1) as usize];
            // SAFETY: loom checks that nobody else accesses the cell meanwhile.
            put(me).with_mut(|cell| unsafe { *cell = epoch });
            if gate.arrive() {
                // SAFETY: as above, for both cells and the result.
                let sum = put(0).with_mut(|cell| unsafe { *cell }) + put(1).with_mut(|cell| unsafe { *cell });
                // SAFETY: as above.
                model.result.with_mut(|cell| unsafe { *cell = sum });
                gate.open(epoch);
            }
            while !gate.passed(epoch) {
                loom::thread::yield_now();
            }
        }
    }

    #[test]
    fn the_last_to_arrive_sees_all_cells_and_cells_are_free_two_meetings_later() {
        loom::model(|| {
            let cell = || Cell::new(0);
            let model = Arc::new(Model {
                arrived: AtomicU32::new(0),
                epoch: AtomicU32::new(0),
                cells: [[cell(), cell()], [cell(), cell()]],
                result: cell(),
            });
            let other = model.clone();
            let thread = loom::thread::spawn(move || take_part(&other, 1));
            take_part(&model, 0);
            thread.join().unwrap();
            // SAFETY: both are done.
            assert_eq!(model.result.with_mut(|cell| unsafe { *cell }), 4);
        });
    }
}
