//! Agreement of the processes of one host through shared memory, whoever dies meanwhile.
//!
//! Each member writes its contribution and counts itself. Whoever finds that every member has
//! contributed or is gone writes a proposal and names itself in the decision word, by one
//! compare-and-swap. All members take the proposal of the member that is named. Memory outlives
//! processes, so what is decided stays decided when its proposer dies.
//!
//! # Order of calls
//!
//! For agreement number k: [`AgreementBoard::contribute`], then [`AgreementBoard::propose`] and
//! [`AgreementBoard::decision`] until there is a decision. A member contributes to k + 1 after it
//! has read the decision of k. All members pass the same numbers in the same order, from 0 on.
//!
//! Two agreements have places of their own. The place of k is written again by who contributes to
//! k + 2, after k + 1 was decided. By then every member that lives has read the decision of k.
//!
//! # What the caller answers for
//!
//! A member that is called gone never writes again. Contents are written by peers; no value of them
//! leads to a panic.

use crate::facade::{AtomicU32, AtomicU64, Ordering};

/// Words of a member's place before its sets.
const ARRIVED: usize = 0;
const FLAGS: usize = 1;
const NUMBER: usize = 2;
const PROPOSED_FLAGS: usize = 3;
const PROPOSED_NUMBER: usize = 4;
const PROPOSED_ACKNOWLEDGED: usize = 5;
/// Not 0: the member will not use the board again. In the place of the first agreement.
const LEFT: usize = 6;
const SETS: usize = 8;

/// Agreements that have places of their own.
const PLACES: u32 = 2;

/// Marks a number as one of an agreement that has begun: cleared memory is none.
const BEGUN: u32 = 1 << 31;

/// State of a member as the detector of deaths tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// The member runs, or may still write.
    Alive,
    /// The member has ended well, and contributes no more.
    Ended,
    /// The member has died.
    Dead,
}

/// What was decided, alike for all members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardDecision {
    /// Conjunction of the contributed bits.
    pub flags: u32,
    /// Greatest contributed number.
    pub number: u32,
    /// Whether all contributions acknowledge all dead members.
    pub acknowledged: bool,
    /// Dead members, in order.
    pub dead: Vec<u32>,
}

/// The words of a board: atomics, 0 at first.
pub trait BoardWords {
    /// Who decided an agreement of this place: its number in the high half, and 1 plus the member.
    fn decided(&self, place: u32) -> &AtomicU64;
    /// How many have contributed: the agreement's number in the high half, and the count.
    fn arrivals(&self, place: u32) -> &AtomicU64;
    /// Word number `index`, below [`cell_words`], of a member.
    fn word(&self, place: u32, member: u32, index: usize) -> &AtomicU32;
}

/// Words of one member for one agreement on a board of so many.
pub const fn cell_words(members: u32) -> usize {
    SETS + 2 * set_words(members)
}

const fn set_words(members: u32) -> usize {
    (members as usize).div_ceil(32)
}

/// A board as one of its members uses it.
#[derive(Clone, Debug)]
pub struct AgreementBoard<W> {
    words: W,
    members: u32,
}

/// What stands for an agreement's number in a word.
fn mark(number: u32) -> u32 {
    number | BEGUN
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

impl<W: BoardWords> AgreementBoard<W> {
    /// The board of so many members in these words.
    pub fn new(words: W, members: u32) -> Self {
        Self { words, members }
    }

    /// Number of members.
    pub fn members(&self) -> u32 {
        self.members
    }

    /// Member `me` brings its bits, its number, and the members whose deaths it acknowledges.
    /// Returns whether it came last: then nobody else may propose.
    pub fn contribute(
        &self,
        me: u32,
        agreement: u32,
        (flags, number): (u32, u32),
        acknowledged: impl Iterator<Item = u32>,
    ) -> bool {
        let (place, mark) = (agreement % PLACES, mark(agreement));
        for index in 0..set_words(self.members) {
            let word = self.words.word(place, me, SETS + index);
            word.store(0, Ordering::Relaxed);
        }
        for member in acknowledged.filter(|member| *member < self.members) {
            let word = self.words.word(place, me, SETS + member as usize / 32);
            let others = word.load(Ordering::Relaxed);
            word.store(others | 1 << (member % 32), Ordering::Relaxed);
        }
        let store = |index, value| {
            let word = self.words.word(place, me, index);
            word.store(value, Ordering::Relaxed);
        };
        store(FLAGS, flags);
        store(NUMBER, number);
        // Release: the contribution. SYNC(agreement-arrived).
        self.words
            .word(place, me, ARRIVED)
            .store(mark, Ordering::Release);
        self.count(place, mark) >= self.members
    }

    /// Counts one more contribution, and returns how many there are.
    fn count(&self, place: u32, mark: u32) -> u32 {
        let arrivals = self.words.arrivals(place);
        let mut seen = arrivals.load(Ordering::Relaxed);
        loop {
            let before = match high(seen) == mark {
                true => seen as u32,
                false => 0,
            };
            let counted = before.saturating_add(1);
            let next = u64::from(mark) << 32 | u64::from(counted);
            // Release: the own contribution; Acquire, for the last: those of all.
            // SYNC(agreement-arrived).
            match arrivals.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return counted,
                Err(now) => seen = now,
            }
        }
    }

    /// Returns whether an agreement is decided.
    #[inline]
    pub fn is_decided(&self, agreement: u32) -> bool {
        // Acquire: the proposal. SYNC(agreement-decided).
        let decided = self.words.decided(agreement % PLACES);
        high(decided.load(Ordering::Acquire)) == mark(agreement)
    }

    /// Returns what was decided; `None`: nothing yet.
    pub fn decision(&self, agreement: u32) -> Option<BoardDecision> {
        let place = agreement % PLACES;
        // Acquire: the proposal. SYNC(agreement-decided).
        let decided = self.words.decided(place).load(Ordering::Acquire);
        if high(decided) != mark(agreement) {
            return None;
        }
        let last = self.members.saturating_sub(1);
        let proposer = (decided as u32).saturating_sub(1).min(last);
        let word = |index| {
            let word = self.words.word(place, proposer, index);
            word.load(Ordering::Relaxed)
        };
        let dead = SETS + set_words(self.members);
        let is_dead = |member: &u32| word(dead + *member as usize / 32) & 1 << (member % 32) != 0;
        Some(BoardDecision {
            flags: word(PROPOSED_FLAGS),
            number: word(PROPOSED_NUMBER),
            acknowledged: word(PROPOSED_ACKNOWLEDGED) != 0,
            dead: (0..self.members).filter(is_dead).collect(),
        })
    }

    /// Returns whether a member has contributed.
    #[inline]
    pub fn has_come(&self, member: u32, agreement: u32) -> bool {
        // Acquire: the contribution. SYNC(agreement-arrived).
        let word = self.words.word(agreement % PLACES, member, ARRIVED);
        word.load(Ordering::Acquire) == mark(agreement)
    }

    /// Returns whether all members have contributed and counted themselves.
    pub fn all_have_come(&self, agreement: u32) -> bool {
        // Acquire: the contributions. SYNC(agreement-arrived).
        let arrivals = self
            .words
            .arrivals(agreement % PLACES)
            .load(Ordering::Acquire);
        high(arrivals) == mark(agreement) && arrivals as u32 >= self.members
    }

    /// Decides if every member has contributed or is gone. Member `me` has contributed. Returns
    /// whether this call decided: then the others are to be woken.
    pub fn propose(&self, me: u32, agreement: u32, state: impl Fn(u32) -> MemberState) -> bool {
        let (place, mark) = (agreement % PLACES, mark(agreement));
        let decided = self.words.decided(place);
        let before = decided.load(Ordering::Relaxed);
        if high(before) == mark {
            return false;
        }
        let has_come = |member| self.has_come(member, agreement);
        let (mut flags, mut number, mut dead) = (u32::MAX, 0, Vec::new());
        for member in 0..self.members {
            let before = has_come(member);
            let state = state(member);
            if !before && state == MemberState::Alive {
                return false;
            }
            if state == MemberState::Dead {
                dead.push(member);
            }
            // Who is gone may have contributed just before.
            if before || has_come(member) {
                let word = |index| {
                    self.words
                        .word(place, member, index)
                        .load(Ordering::Relaxed)
                };
                flags &= word(FLAGS);
                number = number.max(word(NUMBER));
            }
        }
        let knows = |of: u32, member: &u32| {
            let word = self.words.word(place, of, SETS + *member as usize / 32);
            word.load(Ordering::Relaxed) & 1 << (member % 32) != 0
        };
        let acknowledged = (0..self.members)
            .filter(|member| has_come(*member))
            .all(|of| dead.iter().all(|member| knows(of, member)));
        self.write_proposal(me, place, (flags, number, acknowledged), &dead);
        let named = u64::from(mark) << 32 | u64::from(me.saturating_add(1));
        // Release: the proposal. SYNC(agreement-decided).
        decided
            .compare_exchange(before, named, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    fn write_proposal(
        &self,
        me: u32,
        place: u32,
        (flags, number, acknowledged): (u32, u32, bool),
        dead: &[u32],
    ) {
        let store = |index, value| {
            let word = self.words.word(place, me, index);
            word.store(value, Ordering::Relaxed);
        };
        store(PROPOSED_FLAGS, flags);
        store(PROPOSED_NUMBER, number);
        store(PROPOSED_ACKNOWLEDGED, acknowledged.into());
        let first = SETS + set_words(self.members);
        for index in 0..set_words(self.members) {
            let within = dead.iter().filter(|member| **member as usize / 32 == index);
            let bits = within.fold(0, |bits, member| bits | 1 << (member % 32));
            store(first + index, bits);
        }
    }

    /// Member `me` will not use the board again.
    pub fn leave(&self, me: u32) {
        // Release: its last looks. SYNC(agreement-left).
        let word = self.words.word(0, me, LEFT);
        word.store(1, Ordering::Release);
    }

    /// Returns whether all members have left or, as `state` says, are gone.
    pub fn is_deserted(&self, state: impl Fn(u32) -> MemberState) -> bool {
        // Acquire: their last looks. SYNC(agreement-left).
        let has_left = |member| self.words.word(0, member, LEFT).load(Ordering::Acquire) != 0;
        (0..self.members).all(|member| has_left(member) || state(member) != MemberState::Alive)
    }
}

#[cfg(not(loom))]
mod memory {
    use super::{AgreementBoard, BoardWords, PLACES, cell_words};
    use crate::facade::{AtomicU32, AtomicU64, Ordering};
    use crate::shm::Segment;

    /// Processors fetch lines in pairs, and neighbours must not disturb each other.
    const ALIGN: usize = 128;
    const DECIDED: usize = 0;
    const ARRIVALS: usize = ALIGN;
    const CELLS: usize = 2 * ALIGN;

    /// The words of a board in shared memory.
    #[derive(Clone, Debug)]
    pub struct BoardMemory {
        memory: Segment,
        cell: usize,
        place: usize,
    }

    const fn cell_bytes(members: u32) -> usize {
        (4 * cell_words(members)).next_multiple_of(ALIGN)
    }

    const fn place_bytes(members: u32) -> usize {
        CELLS + members as usize * cell_bytes(members)
    }

    impl BoardWords for BoardMemory {
        fn decided(&self, place: u32) -> &AtomicU64 {
            self.memory
                .atomic_u64(place as usize * self.place + DECIDED)
        }

        fn arrivals(&self, place: u32) -> &AtomicU64 {
            self.memory
                .atomic_u64(place as usize * self.place + ARRIVALS)
        }

        fn word(&self, place: u32, member: u32, index: usize) -> &AtomicU32 {
            let cell = CELLS + member as usize * self.cell;
            self.memory
                .atomic_u32(place as usize * self.place + cell + 4 * index)
        }
    }

    impl AgreementBoard<BoardMemory> {
        /// Bytes of a board for so many members.
        pub const fn bytes(members: u32) -> usize {
            PLACES as usize * place_bytes(members)
        }

        /// The board in this memory; `None`: it is too short.
        pub fn in_memory(memory: Segment, members: u32) -> Option<Self> {
            (members > 0 && memory.len() >= Self::bytes(members)).then(|| {
                let (cell, place) = (cell_bytes(members), place_bytes(members));
                let words = BoardMemory {
                    memory,
                    cell,
                    place,
                };
                Self::new(words, members)
            })
        }

        /// Memory of the board.
        #[cfg(test)]
        pub(super) fn memory(&self) -> &Segment {
            &self.words.memory
        }

        /// Makes it a board that nobody has used. The caller then tells its members.
        pub fn clear(&self) {
            let memory = &self.words.memory;
            for at in (0..Self::bytes(self.members)).step_by(4) {
                memory.atomic_u32(at).store(0, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(not(loom))]
pub use memory::BoardMemory;

#[cfg(all(test, loom))]
#[path = "agreement_board_loom.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::MemberState::{Alive, Dead, Ended};
    use super::*;
    use crate::shm::Segment;
    use std::sync::atomic::AtomicU8;

    type Board = AgreementBoard<BoardMemory>;

    fn board(members: u32) -> Board {
        let memory = Segment::anonymous(Board::bytes(members)).unwrap();
        Board::in_memory(memory, members).unwrap()
    }

    fn all_live(_: u32) -> MemberState {
        Alive
    }

    #[test]
    fn the_last_to_come_decides_for_all() {
        let board = board(3);
        for agreement in 0..7u32 {
            let brought = [(0b110, 4), (0b011, agreement), (0b111, 2)];
            for (me, one) in (0..).zip(brought) {
                assert!(!board.is_decided(agreement));
                assert_eq!(board.decision(agreement), None);
                let last = board.contribute(me, agreement, one, [].into_iter());
                assert_eq!(last, me == 2);
                assert_eq!(board.propose(me, agreement, all_live), last);
            }
            let decision = board.decision(agreement).unwrap();
            assert_eq!((decision.flags, decision.number), (0b010, 4.max(agreement)));
            assert!(decision.acknowledged && decision.dead.is_empty());
            assert!(!board.propose(0, agreement, all_live), "it is decided");
        }
    }

    #[test]
    fn deaths_count_as_decided_whatever_is_seen_later() {
        let board = board(70);
        let gone = |member| match member {
            0 => Ended,
            33 | 69 => Dead,
            _ => Alive,
        };
        // Member 33 contributes before it dies.
        for me in (1..69).rev() {
            board.contribute(me, 0, (!(1 << (me % 32)), me), [69].into_iter());
        }
        assert!(!board.propose(1, 0, all_live));
        assert!(board.propose(1, 0, gone));
        assert!(!board.propose(2, 0, all_live));
        let decision = board.decision(0).unwrap();
        assert_eq!((decision.flags, decision.number), (0, 68));
        assert_eq!(decision.dead, [33, 69]);
        assert!(!decision.acknowledged, "33 is not acknowledged");
        for me in (1..69).filter(|me| *me != 33) {
            board.contribute(me, 1, (7, 0), [69, 33, 1000].into_iter());
        }
        assert!(board.propose(5, 1, gone));
        let decision = board.decision(1).unwrap();
        assert!(decision.acknowledged && decision.flags == 7);
    }

    #[test]
    fn a_board_is_deserted_when_all_have_left_or_are_gone() {
        let board = board(3);
        board.leave(1);
        assert!(!board.is_deserted(all_live));
        board.leave(0);
        assert!(board.is_deserted(|member| if member == 2 { Dead } else { Alive }));
        board.clear();
        assert!(!board.is_deserted(all_live));
    }

    #[test]
    fn any_contents_end_every_call() {
        for value in [u32::MAX, BEGUN, 1] {
            let board = board(3);
            for at in (0..Board::bytes(3)).step_by(4) {
                let memory = board.memory();
                memory.atomic_u32(at).store(value, Ordering::Relaxed);
            }
            let _ = board.contribute(1, 0, (1, 1), [0, 2].into_iter());
            let _ = (board.propose(1, 0, all_live), board.decision(0));
            let _ = board.decision(u32::MAX >> 1);
            let _ = board.is_deserted(all_live);
        }
    }

    /// Members die between any two steps, and all that live decide alike.
    #[test]
    fn threads_that_end_anywhere_leave_one_decision() {
        let rounds = if cfg!(miri) { 3 } else { 300 };
        for round in 0..rounds {
            let (board, dead) = (board(4), [const { AtomicU8::new(0) }; 4]);
            let state = |member: u32| match dead[member as usize].load(Ordering::Acquire) {
                0 => Alive,
                _ => Dead,
            };
            let run = |me: u32| {
                let mut seen = Vec::new();
                for agreement in 0..20 {
                    let dies = me < 2 && agreement == (round * 7 + me) % 20;
                    if dies && round % 3 == 0 {
                        break;
                    }
                    board.contribute(me, agreement, (agreement | me << 8, me), [].into_iter());
                    if dies {
                        let _ = round % 3 == 2 && board.propose(me, agreement, state);
                        break;
                    }
                    let decision = loop {
                        board.propose(me, agreement, state);
                        match board.decision(agreement) {
                            Some(decision) => break decision,
                            None => std::thread::yield_now(),
                        }
                    };
                    assert_eq!(decision.flags & 0xff & !agreement, 0);
                    seen.push(decision);
                }
                // SYNC: as the detector, after the last write.
                dead[me as usize].store(u8::from(me < 2), Ordering::Release);
                seen
            };
            let all: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|me| scope.spawn(move || run(me))).collect();
                threads.into_iter().map(|one| one.join().unwrap()).collect()
            });
            assert_eq!(all[2].len(), 20);
            assert_eq!(all[2], all[3]);
            for early in &all[..2] {
                assert_eq!(early[..], all[2][..early.len()]);
            }
        }
    }
}
