//! Barriers and small cells in shared memory, through which the processes of one node exchange a
//! few bytes.
//!
//! This module owns two barrier protocols, [`CounterBarrier`] and [`ArrivalFlag`], and outside loom
//! the layout of a [`CollSegment`]. Collectives use them; all members enter every epoch in one
//! order.
//!
//! - At a counter barrier the last member to arrive opens it for all, so a waiter reads one word.
//!   The last member may combine what the others put down before it opens.
//! - With arrival flags each member reads everybody's flag. That takes one cache-line transfer
//!   instead of three, and pays while members are few and each has a core.
//!
//! Each member brings a word that describes its call. The barrier reports whether all words agree.
//! Bounded: [`DEPTH`] epochs, each with a barrier and a slot per member, and two large cells per
//! member. Large cells lie on pages of their own, which stay untouched until a collective needs
//! them.
//!
//! A member need not wait for the others. It may be ahead of the slowest by less than [`DEPTH`]
//! epochs. Barrier, flag and cell of epoch k are used again in epoch k + [`DEPTH`]. A member may
//! enter that epoch once it knows that all have come to k + 1, because they have then left k. There
//! are two large cells per member: the one of epoch k may be written once all have come to k - 1. A
//! misbehaving member can delay the others or change their results. Contents are only ever copied.

use crate::facade::{AtomicU32, AtomicU64, Ordering};

/// Meetings that may be under way at once: a root goes so far ahead of its readers. A power of two;
/// with eight, half of them pass between two looks at whether the slowest has followed.
pub const DEPTH: u32 = 8;

/// The words of a meeting that its last member ends.
#[derive(Clone, Copy, Debug)]
pub struct CounterBarrier<'a> {
    /// Low half: how many have come; high half: the sum of their words.
    pub(crate) arrived: &'a AtomicU64,
    pub(crate) epoch: &'a AtomicU32,
    /// Number of the last meeting here whose members brought different words; 0: there was none.
    pub(crate) odd: &'a AtomicU32,
    pub(crate) members: u32,
}

/// Result of arriving at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Others are still to come.
    Early,
    /// The caller is the last, sees what all others wrote before they arrived, and must `open`.
    Last(Agreement),
}

/// Agreement of the members of a meeting on the word that they brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// All the same.
    Same,
    /// At least two different ones.
    Different,
}

impl<'a> CounterBarrier<'a> {
    /// Arrives with a word.
    #[inline(always)]
    pub fn arrive(self, word: u32) -> Arrival {
        let own = u64::from(word) << 32 | 1;
        // Release: what the caller put down; Acquire, for the last: what all others did.
        // SYNC(board-arrive).
        let all = self
            .arrived
            .fetch_add(own, Ordering::AcqRel)
            .wrapping_add(own);
        if (all as u32) < self.members {
            return Arrival::Early;
        }
        // Ordered before the arrivals of the next meeting at this barrier, whose members know of
        // later arrivals of this one's.
        self.arrived.store(0, Ordering::Relaxed);
        // Different words have the same sum by chance only: words are well mixed.
        let same = (all >> 32) as u32 == word.wrapping_mul(self.members);
        Arrival::Last(if same {
            Agreement::Same
        } else {
            Agreement::Different
        })
    }

    /// Lets everybody pass meeting number `epoch`.
    #[inline(always)]
    pub fn open(self, epoch: u32, words: Agreement) {
        if words == Agreement::Different {
            self.odd.store(epoch, Ordering::Relaxed);
        }
        // Release: what all put down, what the last combined and found. SYNC(board-open).
        self.epoch.store(epoch, Ordering::Release);
    }

    /// Returns whether meeting number `epoch` is over: what was put down may be read then.
    #[inline(always)]
    pub fn passed(self, epoch: u32) -> bool {
        // Acquire: see `open`. SYNC(board-open). Numbers wrap; the one here is never far from the
        // current one.
        self.epoch.load(Ordering::Acquire).wrapping_sub(epoch) as i32 >= 0
    }

    /// Returns whether all brought the same word to meeting number `epoch`, which the caller has
    /// passed and after which it has not arrived again.
    #[inline(always)]
    pub fn words(self, epoch: u32) -> Agreement {
        // Written before the `open` that the caller acquired, and not again before its next
        // arrival.
        match self.odd.load(Ordering::Relaxed) == epoch && epoch != 0 {
            true => Agreement::Different,
            false => Agreement::Same,
        }
    }
}

/// A member's sign that it has come to a meeting: number and word in one.
#[derive(Clone, Copy, Debug)]
pub struct ArrivalFlag<'a>(&'a AtomicU64);

impl<'a> ArrivalFlag<'a> {
    /// The flag of this word.
    #[cfg(not(loom))]
    pub(crate) fn new(word: &'a AtomicU64) -> Self {
        Self(word)
    }

    /// Says that its owner has come to meeting number `epoch` with `word`.
    #[inline(always)]
    pub fn raise(self, epoch: u32, word: u32) {
        // Release: what the owner put down. SYNC(board-flag).
        self.0
            .store(u64::from(word) << 32 | u64::from(epoch), Ordering::Release);
    }

    /// Returns whether the owner has come to meeting number `epoch`, or to a later one with the
    /// same flag.
    #[inline(always)]
    pub fn reached(self, epoch: u32) -> bool {
        // Acquire: the owner's last look at what earlier meetings brought. SYNC(board-flag).
        (self.0.load(Ordering::Acquire) as u32).wrapping_sub(epoch) as i32 >= 0
    }

    /// The owner's word if it has come to meeting number `epoch`: what it put down may be read
    /// then. It cannot have come to a later one with the same flag while the caller is in this one.
    #[inline(always)]
    pub fn raised(self, epoch: u32) -> Option<u32> {
        // Acquire: see `raise`. SYNC(board-flag).
        let value = self.0.load(Ordering::Acquire);
        (value as u32 == epoch).then_some((value >> 32) as u32)
    }
}

#[cfg(not(loom))]
mod segment {
    use super::{ArrivalFlag, CELL_BYTES, CounterBarrier, DEPTH, NOTE_BYTES};
    use crate::facade::{AtomicU64, Ordering};
    use crate::shm::Segment;
    use crate::user::UserMem;

    /// Number of the last meeting of all whose members brought different words.
    const ODD: usize = 0;
    /// A word that collectives leave alone.
    const SHARED_WORD: usize = 64;
    /// Gates follow, each on lines of its own: who arrives disturbs nobody who looks.
    const BARRIERS: usize = 128;
    /// Members' marks follow the gates, each in a word of its own.
    const MARKS: usize =
        (BARRIERS + DEPTH as usize * CounterBarrier::BYTES).next_multiple_of(ALIGN);
    /// What a member says of the meeting follows its flag.
    const NOTE: usize = 8;
    /// A cell begins on the line of its flag: who sees it raised has a few bytes already.
    const CELL: usize = NOTE + NOTE_BYTES;
    /// Flag, note and cell; processors fetch lines in pairs, and neighbours must not disturb each
    /// other.
    const SLOT: usize = (CELL + CELL_BYTES).next_multiple_of(128);
    const ALIGN: usize = 256;

    /// Words of a barrier, from where it begins.
    const ARRIVED: usize = 0;
    /// On a line of its own: who arrives disturbs nobody who looks.
    const EPOCH: usize = 128;
    const BARRIER_ODD: usize = EPOCH + 4;
    /// Begins on the line of `EPOCH`: who sees the barrier open has a small result already.
    const RESULT: usize = EPOCH + 16;

    impl<'a> CounterBarrier<'a> {
        /// Bytes of a barrier and the small result that its last member leaves there. Zeroed memory
        /// is a barrier at which nobody has met.
        pub(crate) const BYTES: usize = (RESULT + CELL_BYTES).next_multiple_of(128);

        /// The barrier of `members` that begins there.
        #[inline(always)]
        pub(crate) fn at(memory: &'a Segment, offset: usize, members: u32) -> Self {
            Self {
                arrived: memory.atomic_u64(offset + ARRIVED),
                epoch: memory.atomic_u32(offset + EPOCH),
                odd: memory.atomic_u32(offset + BARRIER_ODD),
                members,
            }
        }

        /// Returns what the last to arrive leaves for all at the barrier that begins there:
        /// [`CELL_BYTES`] bytes to be copied from and to, never referred to.
        #[inline]
        pub(crate) fn result(memory: &Segment, offset: usize) -> UserMem {
            memory.mem(offset + RESULT, CELL_BYTES)
        }

        /// Makes it new. The caller then tells its members.
        pub(crate) fn clear(self) {
            self.arrived.store(0, Ordering::Relaxed);
            self.epoch.store(0, Ordering::Relaxed);
            self.odd.store(0, Ordering::Relaxed);
        }
    }

    /// A segment in shared memory. Zeroed memory is a segment on which nobody has met.
    #[derive(Debug)]
    pub struct CollSegment {
        memory: Segment,
        members: u32,
        lane: usize,
    }

    impl CollSegment {
        /// Bytes of a segment for `members` with lanes of `lane` bytes; saturates.
        pub const fn bytes(members: u32, lane: usize) -> usize {
            let lanes = lane.saturating_mul(2).saturating_mul(members as usize);
            Self::lanes(members).saturating_add(lanes)
        }

        /// Returns where lanes begin: after marks and cells.
        const fn lanes(members: u32) -> usize {
            (Self::cells(members) + members as usize * DEPTH as usize * SLOT)
                .next_multiple_of(ALIGN)
        }

        const fn cells(members: u32) -> usize {
            MARKS + (members as usize * 4).next_multiple_of(ALIGN)
        }

        /// The segment in `memory`; `None` if that is too small.
        pub fn new(memory: Segment, members: u32, lane: usize) -> Option<Self> {
            (members > 0 && memory.len() >= Self::bytes(members, lane)).then_some(Self {
                memory,
                members,
                lane,
            })
        }

        /// Returns a word for what the members do beside collectives; 0 at first.
        pub fn shared_word(&self) -> &AtomicU64 {
            self.memory.atomic_u64(SHARED_WORD)
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

        /// The barrier of meeting number `epoch`.
        #[inline(always)]
        pub fn gate(&self, epoch: u32) -> CounterBarrier<'_> {
            CounterBarrier::at(&self.memory, Self::gate_at(epoch), self.members)
        }

        #[inline(always)]
        fn gate_at(epoch: u32) -> usize {
            BARRIERS + (epoch % DEPTH) as usize * CounterBarrier::BYTES
        }

        /// Number of the last meeting that members are to hear of because some brought different
        /// words; 0: there was none.
        #[inline(always)]
        pub fn odd(&self) -> u32 {
            // Relaxed: whoever has met the one that wrote it since sees it.
            self.memory.atomic_u32(ODD).load(Ordering::Relaxed)
        }

        /// Lets those hear of meeting number `epoch` who did not wait in it.
        pub fn tell_odd(&self, epoch: u32) {
            // Relaxed: the next meeting's flags and arrivals publish it.
            self.memory.atomic_u32(ODD).store(epoch, Ordering::Relaxed);
        }

        #[inline(always)]
        fn slot(&self, member: u32, epoch: u32) -> usize {
            let index = member as usize * DEPTH as usize + (epoch % DEPTH) as usize;
            Self::cells(self.members) + index * SLOT
        }

        /// The flag of `member` for meeting number `epoch`.
        #[inline(always)]
        pub fn flag(&self, member: u32, epoch: u32) -> ArrivalFlag<'_> {
            ArrivalFlag(self.memory.atomic_u64(self.slot(member, epoch)))
        }

        /// Returns what `member` puts down for meeting number `epoch`: [`CELL_BYTES`] bytes to be
        /// copied from and to, never referred to. The view lasts as long as the segment.
        #[inline]
        pub fn cell(&self, member: u32, epoch: u32) -> UserMem {
            self.memory.mem(self.slot(member, epoch) + CELL, CELL_BYTES)
        }

        /// Returns what `member` says of meeting number `epoch`: [`NOTE_BYTES`] bytes, likewise.
        #[inline]
        pub fn note(&self, member: u32, epoch: u32) -> UserMem {
            self.memory.mem(self.slot(member, epoch) + NOTE, NOTE_BYTES)
        }

        /// Returns what the last to arrive at meeting number `epoch` combined, likewise.
        #[inline]
        pub fn result(&self, epoch: u32) -> UserMem {
            CounterBarrier::result(&self.memory, Self::gate_at(epoch))
        }

        /// `member` will not look at the segment again.
        pub fn leave(&self, member: u32) {
            // Release: its last look comes before. SYNC(board-leave).
            self.memory
                .atomic_u32(MARKS + member as usize * 4)
                .store(1, Ordering::Release);
        }

        /// Returns whether all have left, so that the memory may serve another segment.
        pub fn is_deserted(&self) -> bool {
            // Acquire: see `leave`. SYNC(board-leave).
            (0..self.members).all(|member| {
                self.memory
                    .atomic_u32(MARKS + member as usize * 4)
                    .load(Ordering::Acquire)
                    != 0
            })
        }

        /// Makes a deserted segment new. The caller then tells its members.
        pub fn clear(&self) {
            for offset in (0..MARKS + self.members as usize * 4).step_by(4) {
                self.memory.atomic_u32(offset).store(0, Ordering::Relaxed);
            }
            for member in 0..self.members {
                for epoch in 0..DEPTH {
                    self.flag(member, epoch).0.store(0, Ordering::Relaxed);
                }
            }
        }
    }
}

#[cfg(not(loom))]
pub use segment::CollSegment;

/// Bytes that a member can put down: the small vectors of reductions, and four cache lines.
pub const CELL_BYTES: usize = 256;

/// Bytes that a member says of a meeting beside its word, for when words differ.
pub const NOTE_BYTES: usize = 32;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shm::Segment;

    const MEMBERS: u32 = 3;
    const LANE: usize = 4096;

    fn on_threads(meet: impl Fn(&CollSegment, u32, u32) + Sync) -> CollSegment {
        let memory = Segment::anonymous(CollSegment::bytes(MEMBERS, LANE)).unwrap();
        std::thread::scope(|scope| {
            for me in 0..MEMBERS {
                let board = CollSegment::new(memory.clone(), MEMBERS, LANE).unwrap();
                let meet = &meet;
                scope.spawn(move || {
                    for epoch in 1..=200u32 {
                        board
                            .cell(me, epoch)
                            .write(0, &(epoch * (me + 1)).to_ne_bytes());
                        board
                            .lane(me, epoch)
                            .write(LANE as isize - 4, &(epoch * (me + 2)).to_ne_bytes());
                        meet(&board, me, epoch);
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
        CollSegment::new(memory, MEMBERS, LANE).unwrap()
    }

    /// Every seventh meeting one member brings another word.
    fn word(me: u32, epoch: u32) -> u32 {
        epoch.wrapping_mul(0x9e37_79b9)
            ^ u32::from(epoch.is_multiple_of(7) && me == epoch % MEMBERS)
    }

    #[test]
    fn threads_meet_at_a_peer_again_and_again_and_see_what_the_others_put_down_and_whether_words_differ()
     {
        let board = on_threads(|board, me, epoch| {
            let gate = board.gate(epoch);
            if let Arrival::Last(words) = gate.arrive(word(me, epoch)) {
                gate.open(epoch, words);
            }
            while !gate.passed(epoch) {
                std::thread::yield_now();
            }
            assert_eq!(
                gate.words(epoch) == Agreement::Different,
                epoch.is_multiple_of(7),
                "meeting {epoch}"
            );
        });
        assert!(board.is_deserted());
        board.clear();
        assert!(!board.is_deserted());
        assert!(!board.gate(1).passed(1));
    }

    /// Member 0 waits for nobody, as a root does: it only keeps to the rule of when a slot is its
    /// own again. The others begin when it can go no further.
    #[test]
    fn a_member_that_does_not_wait_goes_ahead_and_spoils_nothing() {
        let memory = Segment::anonymous(CollSegment::bytes(MEMBERS, 0)).unwrap();
        let ahead = std::sync::atomic::AtomicU32::new(0);
        let wait = |come: &dyn Fn() -> bool| {
            while !come() {
                std::thread::yield_now();
            }
        };
        let take_part = |me: u32, board: CollSegment| {
            for epoch in 1..=500u32 {
                let free = epoch.saturating_sub(DEPTH - 1);
                wait(&|| board.gate(free).passed(free));
                if me == 0 {
                    board.cell(0, epoch).write(0, &(epoch * 3).to_ne_bytes());
                } else {
                    wait(&|| ahead.load(Ordering::Relaxed) >= DEPTH - 1);
                }
                board.flag(me, epoch).raise(epoch, 7);
                if let Arrival::Last(words) = board.gate(epoch).arrive(7) {
                    assert_eq!(words, Agreement::Same);
                    board.gate(epoch).open(epoch, words);
                }
                if me == 0 {
                    ahead.store(epoch, Ordering::Relaxed);
                    continue;
                }
                wait(&|| board.flag(0, epoch).raised(epoch) == Some(7));
                let mut bytes = [0; 4];
                board.cell(0, epoch).read(0, &mut bytes);
                assert_eq!(u32::from_ne_bytes(bytes), epoch * 3);
            }
        };
        std::thread::scope(|scope| {
            for me in 0..MEMBERS {
                let board = CollSegment::new(memory.clone(), MEMBERS, 0).unwrap();
                let take_part = &take_part;
                scope.spawn(move || take_part(me, board));
            }
        });
    }

    #[test]
    fn threads_meet_by_flags_again_and_again_and_see_what_the_others_put_down_and_their_words() {
        let board = on_threads(|board, me, epoch| {
            board.flag(me, epoch).raise(epoch, word(me, epoch));
            for other in 0..MEMBERS {
                loop {
                    match board.flag(other, epoch).raised(epoch) {
                        Some(theirs) => break assert_eq!(theirs, word(other, epoch)),
                        None => std::thread::yield_now(),
                    }
                }
            }
        });
        board.clear();
        assert_eq!(board.flag(0, 200).raised(200), None);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::facade::Cell;
    use loom::sync::Arc;

    struct Model {
        arrived: AtomicU64,
        epoch: AtomicU32,
        odd: AtomicU32,
        flags: [[AtomicU64; 2]; 2],
        cells: [[Cell<u32>; 2]; 2],
        result: Cell<u32>,
    }

    impl Model {
        fn new() -> Arc<Self> {
            let cell = || Cell::new(0);
            let flag = || AtomicU64::new(0);
            Arc::new(Model {
                arrived: AtomicU64::new(0),
                epoch: AtomicU32::new(0),
                odd: AtomicU32::new(0),
                flags: [[flag(), flag()], [flag(), flag()]],
                cells: [[cell(), cell()], [cell(), cell()]],
                result: cell(),
            })
        }

        fn put(&self, member: usize, epoch: u32) {
            // SAFETY: loom checks that nobody else accesses the cell meanwhile.
            self.cells[member][(epoch & 1) as usize].with_mut(|cell| unsafe { *cell = epoch });
        }

        fn sum(&self, epoch: u32) -> u32 {
            let read = |member: usize| {
                let cell = &self.cells[member][(epoch & 1) as usize];
                // SAFETY: as above.
                cell.with(|cell| unsafe { *cell })
            };
            read(0) + read(1)
        }
    }

    fn at_the_gate(model: &Model, me: usize) {
        let gate = CounterBarrier {
            arrived: &model.arrived,
            epoch: &model.epoch,
            odd: &model.odd,
            members: 2,
        };
        for epoch in 1..=2u32 {
            model.put(me, epoch);
            // In the second meeting words differ.
            if let Arrival::Last(words) = gate.arrive(if epoch == 2 { me as u32 } else { 5 }) {
                let sum = model.sum(epoch);
                // SAFETY: loom checks that nobody else accesses the result meanwhile.
                model.result.with_mut(|cell| unsafe { *cell = sum });
                gate.open(epoch, words);
            }
            while !gate.passed(epoch) {
                loom::thread::yield_now();
            }
            assert_eq!(gate.words(epoch) == Agreement::Different, epoch == 2);
        }
    }

    fn by_flags(model: &Model, me: usize) {
        for epoch in 1..=3u32 {
            model.put(me, epoch);
            let flag = |member: usize| ArrivalFlag(&model.flags[member][(epoch & 1) as usize]);
            flag(me).raise(epoch, epoch + 7);
            while flag(1 - me).raised(epoch) != Some(epoch + 7) {
                loom::thread::yield_now();
            }
            assert_eq!(model.sum(epoch), 2 * epoch);
        }
    }

    /// Member 0 puts down and goes on; with two slots it may be one meeting ahead.
    fn a_root_ahead(model: &Model, me: usize) {
        for epoch in 1..=4u32 {
            let flag =
                |member: usize, epoch: u32| ArrivalFlag(&model.flags[member][(epoch & 1) as usize]);
            if epoch > 1 {
                while !flag(1 - me, epoch - 1).reached(epoch - 1) {
                    loom::thread::yield_now();
                }
            }
            if me == 0 {
                model.put(0, epoch);
            }
            flag(me, epoch).raise(epoch, 7);
            if me == 1 {
                while flag(0, epoch).raised(epoch) != Some(7) {
                    loom::thread::yield_now();
                }
                // SAFETY: loom checks that nobody writes the cell meanwhile.
                let seen = model.cells[0][(epoch & 1) as usize].with(|cell| unsafe { *cell });
                assert_eq!(seen, epoch);
            }
        }
    }

    #[test]
    fn a_cell_is_its_owners_again_once_the_others_have_come_to_the_meeting_after() {
        loom::model(|| {
            both(a_root_ahead);
        });
    }

    fn both(take_part: fn(&Model, usize)) -> Arc<Model> {
        let model = Model::new();
        let other = model.clone();
        let thread = loom::thread::spawn(move || take_part(&other, 1));
        take_part(&model, 0);
        thread.join().unwrap();
        model
    }

    #[test]
    fn the_last_to_arrive_sees_all_cells_and_cells_are_free_two_meetings_later() {
        loom::model(|| {
            let model = both(at_the_gate);
            // SAFETY: both are done.
            assert_eq!(model.result.with_mut(|cell| unsafe { *cell }), 4);
        });
    }

    #[test]
    fn who_sees_a_flag_sees_its_cell_and_cells_are_free_two_meetings_later() {
        loom::model(|| {
            both(by_flags);
        });
    }
}
