//! Slots in shared memory in which nonblocking collectives meet, without waiting.
//!
//! Several nonblocking collectives may be open at once. Collective number k uses slot k modulo
//! [`ROUNDS`]. A member writes its contribution and raises its flag. With many members it also
//! arrives at a counter barrier, and the last member may combine all contributions. Each member
//! polls when it likes, takes its result, and leaves.
//!
//! Slot and cells are free for number k + [`ROUNDS`] when all members have left number k. Each
//! member publishes up to which number it has left all, in a word of its own. The others read that
//! word only when the value that they remember no longer suffices. There are fewer large cells,
//! [`WIDE_SETS`] sets; a collective that needs one waits until all have left number k -
//! [`WIDE_SETS`]. A member that comes too early writes nothing yet. It asks to be notified and
//! arrives later. Bounded: [`ROUNDS`] slots with a small cell per member, and [`WIDE_SETS`] sets of
//! large cells.
//!
//! A persistent collective has slots of its own ([`NbcLayout::own`]), because members may start
//! several of them in different orders. A few suffice, for it is open once at a time. A member that
//! has come to number k has left k - 1. So where all wait for all, number k + 1 finds k - 1 left by
//! everybody, and two slots need no further look. The memory serves another collective when all
//! have deserted it.
//!
//! There is no deadlock. Number k waits until members leave k - [`ROUNDS`], which they do when all
//! have arrived there. That arrival waits only for lower numbers, and the first [`ROUNDS`] wait for
//! nothing. A member that misbehaves can delay the others or change their results. Contents are
//! only ever copied.

mod layout;

use crate::facade::{AtomicU32, Ordering, fence};
pub use layout::NbcLayout;

/// Rounds of a segment: collectives that one may have open before it has to wait for the slowest to
/// leave. A power of two.
pub const ROUNDS: u32 = 16;

/// Sets of wide cells, which rounds share: fewer than rounds, so that what one number leaves in the
/// caches the next but a few find there. Divides [`ROUNDS`].
pub const WIDE_SETS: u32 = 4;
const _: () = assert!(ROUNDS.is_multiple_of(WIDE_SETS));

/// A member's word: all numbers up to that in it it has left.
#[derive(Clone, Copy, Debug)]
pub struct ExitCounter<'a> {
    left: &'a AtomicU32,
    /// How many members ask for numbers that are not free: in the low half all, in the high half
    /// those that want to be called for one.
    askers: &'a AtomicU32,
}

/// Way in which a member asks for a number that is not free, and who has to be told of what is
/// left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotDemand {
    /// Nobody.
    No,
    /// Members that wait, or poll by themselves, must be told.
    Waits,
    /// Their progress threads as well, if they compute.
    Computes,
}

/// An asker that computes, in its word.
const COMPUTES: u32 = 1 << 16;

impl SlotDemand {
    fn of(askers: u32) -> Self {
        match askers {
            0 => SlotDemand::No,
            1..COMPUTES => SlotDemand::Waits,
            _ => SlotDemand::Computes,
        }
    }

    fn unit(self) -> u32 {
        match self {
            SlotDemand::No => 0,
            SlotDemand::Waits => 1,
            SlotDemand::Computes => COMPUTES | 1,
        }
    }
}

/// The word in which members ask for numbers that are not free. Who asks and goes away to compute
/// looks once more after it has asked, and after its progress thread may be called.
#[derive(Clone, Copy, Debug)]
pub struct SlotWaiters<'a>(&'a AtomicU32);

impl SlotWaiters<'_> {
    /// Returns who but one that asks so itself asks to be told of what is left, after a look at
    /// what all have left ([`NbcSlots::through`]): whoever asks later than this finds at least as
    /// much left.
    fn asked_beside(self, own: SlotDemand) -> SlotDemand {
        // Orders the look before the question, against the counting in `ask_instead`.
        // SYNC(round-asked).
        fence(Ordering::SeqCst);
        SlotDemand::of(self.0.load(Ordering::Relaxed).wrapping_sub(own.unit()))
    }

    /// Asks so from now on, no longer as `ready_before`. SYNC(round-asked).
    fn ask_instead(self, before: SlotDemand, now: SlotDemand) {
        if now != before {
            self.0
                .fetch_add(now.unit().wrapping_sub(before.unit()), Ordering::SeqCst);
        }
    }
}

/// For how many numbers one member asks, of which the members' word says only whether there are
/// any.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotRequests {
    waiting: u32,
    computing: u32,
}

impl SlotRequests {
    fn how(self) -> SlotDemand {
        match self {
            SlotRequests { computing: 1.., .. } => SlotDemand::Computes,
            SlotRequests { waiting: 1.., .. } => SlotDemand::Waits,
            SlotRequests { .. } => SlotDemand::No,
        }
    }

    fn count(&mut self, how: SlotDemand) -> Option<&mut u32> {
        match how {
            SlotDemand::No => None,
            SlotDemand::Waits => Some(&mut self.waiting),
            SlotDemand::Computes => Some(&mut self.computing),
        }
    }

    /// Asks for one more.
    pub fn ask(&mut self, askers: SlotWaiters<'_>, how: SlotDemand) {
        let before = self.how();
        if let Some(count) = self.count(how) {
            *count += 1;
        }
        askers.ask_instead(before, self.how());
    }

    /// Asks no more for one for which it asked so.
    pub fn ask_no_more(&mut self, askers: SlotWaiters<'_>, how: SlotDemand) {
        let before = self.how();
        if let Some(count) = self.count(how) {
            *count -= 1;
        }
        askers.ask_instead(before, self.how());
    }

    /// Returns how others ask: see [`SlotWaiters`]. After a look at what all have left.
    pub fn of_others(self, askers: SlotWaiters<'_>) -> SlotDemand {
        askers.asked_beside(self.how())
    }
}

impl ExitCounter<'_> {
    /// Publishes that the owner has left all numbers up to `number` and reads nothing there any
    /// more. Returns whether members asked for that, so that all sleepers are to be woken.
    ///
    /// There is no fence between both: who asks and goes to sleep on a
    /// [`Doorbell`](crate::doorbell::Doorbell) makes up for that, as for any other writer. Who asks
    /// and computes may be missed here; whoever finds that all have left more than before asks once
    /// more ([`SlotRequests::of_others`]), before anybody can need the number that is asked for.
    #[inline(always)]
    #[must_use]
    pub fn leave(self, number: u32) -> SlotDemand {
        // Release: the owner's last looks. SYNC(round-left).
        self.left.store(number, Ordering::Release);
        SlotDemand::of(self.askers.load(Ordering::Relaxed))
    }

    /// The word, after which what its owner has left may be written.
    #[inline(always)]
    pub fn left(self) -> u32 {
        // Acquire: see `leave`. SYNC(round-left).
        self.left.load(Ordering::Acquire)
    }
}

/// Which numbers a member has left, in whatever order.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExitWindow {
    /// All up to this.
    through: u32,
    /// Numbers after `through` that were left, the lowest bit first.
    beyond: u32,
}

impl ExitWindow {
    /// Adds `number`, one of the [`ROUNDS`] after those that all have been left. Gives up to where
    /// all have been left now, if that is further than before.
    #[inline]
    pub fn add(&mut self, number: u32) -> Option<u32> {
        let after = number.wrapping_sub(self.through).wrapping_sub(1);
        debug_assert!(after < ROUNDS, "number {number} after {}", self.through);
        self.beyond |= 1 << (after % ROUNDS);
        let more = self.beyond.trailing_ones();
        self.through = self.through.wrapping_add(more);
        self.beyond >>= more;
        (more > 0).then_some(self.through)
    }
}

/// Returns whether `number` may be put down where all have left numbers up to `through`: `after` is
/// [`ROUNDS`], or [`WIDE_SETS`] if it needs wide cells. Numbers wrap.
#[inline(always)]
pub fn is_free(number: u32, after: u32, through: u32) -> bool {
    through.wrapping_sub(number.wrapping_sub(after)) as i32 >= 0
}

/// Returns whether the others have all come to a number, asked by a member that has raised its own
/// flag there: of those who come last at least one is told so, whichever they are, and each that is
/// told may be the only one. For what is to be done once all are there, by somebody. `come` looks
/// at another's flag.
#[inline]
pub fn is_whole(members: impl IntoIterator<Item = u32>, come: impl Fn(u32) -> bool) -> bool {
    // Own flag before the others'. SYNC(round-whole).
    fence(Ordering::SeqCst);
    members.into_iter().all(come)
}

#[cfg(not(loom))]
mod segment {
    use super::{ExitCounter, NbcLayout, SlotWaiters};
    use crate::facade::{AtomicU32, Ordering};
    use crate::shm::Segment;
    use crate::shm_barrier::{ArrivalFlag, CounterBarrier, NOTE_BYTES};
    use crate::user::UserMem;

    /// Members that ask, in front of the slots; seldom written.
    const ASKERS: usize = 0;
    const ROUND_0: usize = 128;
    /// What a member says of itself follows its flag, then what it puts down.
    const NOTE: usize = 8;
    const CELL: usize = NOTE + NOTE_BYTES;
    const ALIGN: usize = 256;
    /// Place where a member says what it has left, after that what reading takes it, and that it
    /// will not come again: after the slots, each on lines of its own.
    const EXIT: usize = 128;
    const READS: usize = 8;
    const GONE: usize = 16;

    impl NbcLayout {
        /// Bytes of a member's flag, note and small cell.
        const fn slot(self) -> usize {
            (CELL + self.cell).next_multiple_of(128)
        }

        /// Returns where those begin.
        const fn slots(self) -> usize {
            ROUND_0 + self.rounds as usize * CounterBarrier::BYTES
        }

        const fn wide_at(self, members: u32) -> usize {
            let slots =
                (members as usize).saturating_mul(self.rounds as usize * self.slot() + EXIT);
            slots.saturating_add(self.slots()).next_multiple_of(ALIGN)
        }
    }

    /// The rounds of a segment in shared memory. Zeroed memory is one where nobody has met.
    #[derive(Debug)]
    pub struct NbcSlots {
        memory: Segment,
        members: u32,
        shape: NbcLayout,
    }

    impl NbcSlots {
        /// Bytes of the slots of `members` of that shape; saturates.
        pub const fn bytes(members: u32, shape: NbcLayout) -> usize {
            // One more wide cell in each set, for what the last to arrive combined.
            let cells = (members as usize + 1).saturating_mul(shape.sets as usize);
            shape
                .wide_at(members)
                .saturating_add(cells.saturating_mul(shape.wide))
        }

        /// Slots in `memory`; `None` if that is too small.
        pub fn new(memory: Segment, members: u32, shape: NbcLayout) -> Option<Self> {
            (members > 0 && memory.len() >= Self::bytes(members, shape)).then_some(Self {
                memory,
                members,
                shape,
            })
        }

        /// Number of members.
        pub fn members(&self) -> u32 {
            self.members
        }

        /// Bytes of the memory that they were given.
        pub fn memory_len(&self) -> usize {
            self.memory.len()
        }

        /// Bytes of each wide cell; 0: there are none.
        pub fn wide_len(&self) -> usize {
            self.shape.wide
        }

        /// The most that a member can put down in one cell.
        pub fn room(&self) -> usize {
            self.shape.room()
        }

        /// After how many numbers round and cells serve again, wide cells or others.
        pub fn after(&self, wide: bool) -> u32 {
            if wide {
                self.shape.sets
            } else {
                self.shape.rounds
            }
        }

        /// The barrier of number `number`, for where members are many.
        #[inline]
        pub fn barrier(&self, number: u32) -> CounterBarrier<'_> {
            CounterBarrier::at(&self.memory, self.round_at(number), self.members)
        }

        /// The round of that number: their number is a power of two.
        fn round(&self, number: u32) -> usize {
            (number & (self.shape.rounds - 1)) as usize
        }

        fn round_at(&self, number: u32) -> usize {
            ROUND_0 + self.round(number) * CounterBarrier::BYTES
        }

        /// Returns where `member` says what it has left.
        #[inline]
        pub fn exit(&self, member: u32) -> ExitCounter<'_> {
            ExitCounter {
                left: self.memory.atomic_u32(self.exit_at(member)),
                askers: self.memory.atomic_u32(ASKERS),
            }
        }

        /// Up to where all members have left all numbers.
        pub fn through(&self) -> u32 {
            let lower = |a: u32, b: u32| if b.wrapping_sub(a) as i32 > 0 { a } else { b };
            let left = (0..self.members).map(|member| self.exit(member).left());
            left.reduce(lower).unwrap_or(0)
        }

        /// Returns where members ask for numbers that are not free.
        pub fn askers(&self) -> SlotWaiters<'_> {
            SlotWaiters(self.memory.atomic_u32(ASKERS))
        }

        fn exit_at(&self, member: u32) -> usize {
            let slots = self.members as usize * self.shape.rounds as usize * self.shape.slot();
            self.shape.slots() + slots + member as usize * EXIT
        }

        fn reads(&self, member: u32) -> &crate::facade::AtomicU64 {
            self.memory.atomic_u64(self.exit_at(member) + READS)
        }

        /// Returns what reading others' wide cells took `member`, as it said last: see
        /// [`ReadCosts`](crate::store_policy::Reads).
        pub fn told_reads(&self, member: u32) -> u64 {
            // Relaxed: a hint.
            self.reads(member).load(Ordering::Relaxed)
        }

        /// Says so of the caller.
        pub fn tell_reads(&self, member: u32, word: u64) {
            self.reads(member).store(word, Ordering::Relaxed);
        }

        fn slot(&self, member: u32, number: u32) -> usize {
            let index = self.round(number) * self.members as usize + member as usize;
            self.shape.slots() + index * self.shape.slot()
        }

        /// The flag of `member` for number `number`.
        #[inline]
        pub fn flag(&self, member: u32, number: u32) -> ArrivalFlag<'_> {
            ArrivalFlag::new(self.memory.atomic_u64(self.slot(member, number)))
        }

        /// Returns what `member` says of number `number`: [`NOTE_BYTES`] bytes to be copied from
        /// and to, never referred to. The view lasts as long as the slots.
        #[inline]
        pub fn note(&self, member: u32, number: u32) -> UserMem {
            self.memory
                .mem(self.slot(member, number) + NOTE, NOTE_BYTES)
        }

        /// Returns where `member` puts down `len` bytes for number `number`, likewise: at most
        /// [`Self::room`], and as many as all others. What fits a small cell touches no wide one.
        #[inline]
        pub fn cell(&self, member: u32, number: u32, len: usize) -> UserMem {
            match len <= self.shape.cell {
                true => self
                    .memory
                    .mem(self.slot(member, number) + CELL, self.shape.cell),
                false => self.wide(member, number),
            }
        }

        /// Bytes of the cell in which `len` are put down.
        pub fn cell_len(&self, len: usize) -> usize {
            match len <= self.shape.cell {
                true => self.shape.cell,
                false => self.shape.wide,
            }
        }

        /// The wide cell of `member`, likewise; empty where there are none.
        #[inline]
        pub fn wide_cell(&self, member: u32, number: u32) -> UserMem {
            self.wide(member, number)
        }

        /// Returns where the last to arrive puts down `len` bytes for all, likewise.
        #[inline]
        pub fn result(&self, number: u32, len: usize) -> UserMem {
            match len <= self.shape.cell {
                true => CounterBarrier::result(&self.memory, self.round_at(number)),
                false => self.wide(self.members, number),
            }
        }

        fn wide(&self, member: u32, number: u32) -> UserMem {
            let NbcLayout { sets, wide, .. } = self.shape;
            let index = (number % sets) as usize * (self.members as usize + 1) + member as usize;
            self.memory
                .mem(self.shape.wide_at(self.members) + index * wide, wide)
        }

        /// `member` will not look at them again.
        pub fn desert(&self, member: u32) {
            // Release: its last look comes before. SYNC(rounds-desert).
            self.gone(member).store(1, Ordering::Release);
        }

        /// Returns whether all have deserted them, so that the memory may serve others.
        pub fn is_deserted(&self) -> bool {
            // Acquire: see `desert`. SYNC(rounds-desert).
            (0..self.members).all(|member| self.gone(member).load(Ordering::Acquire) != 0)
        }

        fn gone(&self, member: u32) -> &AtomicU32 {
            self.memory.atomic_u32(self.exit_at(member) + GONE)
        }

        /// Makes those new that all have deserted, or nobody has come to. The caller then tells the
        /// members.
        pub fn clear(&self) {
            use crate::facade::Ordering::Relaxed;
            let rounds = self.shape.rounds;
            self.memory.atomic_u32(ASKERS).store(0, Relaxed);
            (0..rounds).for_each(|number| self.barrier(number).clear());
            for member in 0..self.members {
                self.exit(member).left.store(0, Relaxed);
                self.gone(member).store(0, Relaxed);
                self.tell_reads(member, 0);
                for number in 0..rounds {
                    self.memory
                        .atomic_u64(self.slot(member, number))
                        .store(0, Relaxed);
                }
            }
        }
    }
}

#[cfg(not(loom))]
pub use segment::NbcSlots;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
