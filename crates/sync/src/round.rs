//! Rounds: places on a board where collectives meet that members do not wait in.
//!
//! Used by nonblocking collectives, of which several may be open at once: number k of them meets in round k modulo [`ROUNDS`]. A member puts down what it brings and
//! arrives; whoever arrives last may combine what all put down and opens. Each looks when it likes, takes what it came for, and leaves. A round is free for number
//! k + [`ROUNDS`] when all have left number k: who comes earlier puts nothing down yet, asks to be told, and arrives later. Two counters on one line are all
//! that members change together. Bounded: [`ROUNDS`] rounds, a small cell and a wide one per member in each; nothing grows.
//!
//! Nobody waits in a circle: number k waits for members to leave k - [`ROUNDS`], which they do when all have arrived there, which
//! waits for still lower numbers only, and the first [`ROUNDS`] wait for nothing. A member that misbehaves can delay the others or change what they compute,
//! nothing else: contents are only ever copied.

use crate::board::{Arrival, Gate, Words};
use crate::facade::{AtomicU32, Ordering, fence};

/// Rounds of a board: collectives that one may have open before it has to wait for the slowest to leave. A power of two.
pub const ROUNDS: u32 = 8;

/// The words of one round.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    gate: Gate<'a>,
    /// Members that have left.
    left: &'a AtomicU32,
    /// Number of the last collective here that all have left.
    through: &'a AtomicU32,
    /// A member waits for the round to be free.
    asked: &'a AtomicU32,
    members: u32,
}

impl Round<'_> {
    /// Whether number `number` may be put down here: all have left the one before it.
    #[inline(always)]
    pub fn is_free(self, number: u32) -> bool {
        // Acquire: the last looks of all at what was put down before. SYNC(round-left). Numbers wrap; the first ones find a zero.
        let through = self.through.load(Ordering::Acquire);
        through.wrapping_sub(number.wrapping_sub(ROUNDS)) as i32 >= 0
    }

    /// As [`Self::is_free`]; after a no the caller is told (see [`Self::leave`]).
    pub fn ask(self, number: u32) -> bool {
        if self.is_free(number) {
            return true;
        }
        self.asked.store(1, Ordering::Relaxed);
        // Either this finds the round free, or who frees it finds this. SYNC(round-asked).
        fence(Ordering::SeqCst);
        self.is_free(number)
    }

    /// Arrives with a word, as at a [`Gate`].
    #[inline(always)]
    pub fn arrive(self, word: u32) -> Arrival {
        self.gate.arrive(word)
    }

    /// Opens number `number`; the caller arrived last.
    #[inline(always)]
    pub fn open(self, number: u32, words: Words) {
        self.gate.open(number, words);
    }

    /// Whether all have arrived for number `number`, which the caller has not left.
    #[inline(always)]
    pub fn is_open(self, number: u32) -> bool {
        self.gate.passed(number)
    }

    /// Whether all brought the same word to number `number`, which is open and which the caller has not left.
    #[inline(always)]
    pub fn words(self, number: u32) -> Words {
        self.gate.words(number)
    }

    /// The caller has arrived for number `number`, and looks at nothing there any more. `true`: the round is free now and a member asked for it, so all that
    /// sleep are to be woken.
    #[inline(always)]
    #[must_use]
    pub fn leave(self, number: u32) -> bool {
        // Release: the caller's looks; Acquire, for the last: those of all others. SYNC(round-left).
        if self.left.fetch_add(1, Ordering::AcqRel).wrapping_add(1) < self.members {
            return false;
        }
        // Ordered before the next time by `through`.
        self.left.store(0, Ordering::Relaxed);
        self.through.store(number, Ordering::Release);
        // SYNC(round-asked).
        fence(Ordering::SeqCst);
        self.asked.load(Ordering::Relaxed) != 0 && self.asked.swap(0, Ordering::Relaxed) != 0
    }
}

#[cfg(not(loom))]
mod segment {
    use super::{ROUNDS, Round};
    use crate::board::{CELL_BYTES, Flag, Gate, NOTE_BYTES};
    use crate::shm::Segment;
    use crate::user::UserMem;

    /// All that members change together lies on one line: who arrives and leaves at once has it once.
    const ARRIVED: usize = 0;
    const LEFT: usize = 8;
    const THROUGH: usize = 12;
    const ASKED: usize = 16;
    /// On a line of its own: who comes and goes disturbs nobody who looks.
    const OPEN: usize = 128;
    const ODD: usize = OPEN + 4;
    /// Begins on the line of `OPEN`: who sees the round open has a small result already.
    const RESULT: usize = OPEN + 16;
    const ROUND: usize = (RESULT + CELL_BYTES).next_multiple_of(128);
    /// What a member says of itself follows its flag, then what it puts down.
    const NOTE: usize = 8;
    const CELL: usize = NOTE + NOTE_BYTES;
    const SLOT: usize = (CELL + CELL_BYTES).next_multiple_of(128);
    const ALIGN: usize = 256;

    /// The rounds of a board in shared memory. Zeroed memory is one where nobody has met.
    #[derive(Debug)]
    pub struct Rounds {
        memory: Segment,
        members: u32,
        wide: usize,
    }

    impl Rounds {
        /// Bytes of the rounds of `members` with wide cells of `wide` bytes; saturates.
        pub const fn bytes(members: u32, wide: usize) -> usize {
            // One more of them in each round, for what the last to arrive combined.
            let cells = (members as usize + 1).saturating_mul(ROUNDS as usize);
            Self::wide_at(members).saturating_add(cells.saturating_mul(wide))
        }

        const fn wide_at(members: u32) -> usize {
            let slots = (members as usize).saturating_mul(ROUNDS as usize * SLOT);
            slots
                .saturating_add(ROUNDS as usize * ROUND)
                .next_multiple_of(ALIGN)
        }

        /// Those in `memory`; `None` if that is too small.
        pub fn new(memory: Segment, members: u32, wide: usize) -> Option<Self> {
            (members > 0 && memory.len() >= Self::bytes(members, wide)).then_some(Self {
                memory,
                members,
                wide,
            })
        }

        /// Number of members.
        pub fn members(&self) -> u32 {
            self.members
        }

        /// Bytes of each wide cell; 0: there are none.
        pub fn wide_len(&self) -> usize {
            self.wide
        }

        /// The most that a member can put down.
        pub fn room(&self) -> usize {
            self.wide.max(CELL_BYTES)
        }

        /// The round of number `number`.
        #[inline]
        pub fn round(&self, number: u32) -> Round<'_> {
            let at = (number % ROUNDS) as usize * ROUND;
            let word = |offset| self.memory.atomic_u32(at + offset);
            Round {
                gate: Gate::new(
                    self.memory.atomic_u64(at + ARRIVED),
                    word(OPEN),
                    word(ODD),
                    self.members,
                ),
                left: word(LEFT),
                through: word(THROUGH),
                asked: word(ASKED),
                members: self.members,
            }
        }

        fn slot(&self, member: u32, number: u32) -> usize {
            let index = (number % ROUNDS) as usize * self.members as usize + member as usize;
            ROUNDS as usize * ROUND + index * SLOT
        }

        /// The flag of `member` for number `number`.
        #[inline]
        pub fn flag(&self, member: u32, number: u32) -> Flag<'_> {
            Flag::new(self.memory.atomic_u64(self.slot(member, number)))
        }

        /// What `member` says of number `number`: [`NOTE_BYTES`] bytes to be copied from and to, never referred to. The view lasts as long as the rounds.
        #[inline]
        pub fn note(&self, member: u32, number: u32) -> UserMem {
            self.memory.mem(self.slot(member, number) + NOTE, NOTE_BYTES)
        }

        /// Where `member` puts down `len` bytes for number `number`, likewise: at most [`Self::room`], and as many as all others. What fits a small cell touches no wide one.
        #[inline]
        pub fn cell(&self, member: u32, number: u32, len: usize) -> UserMem {
            match len <= CELL_BYTES {
                true => self.memory.mem(self.slot(member, number) + CELL, CELL_BYTES),
                false => self.wide(member, number),
            }
        }

        /// Where the last to arrive puts down `len` bytes for all, likewise.
        #[inline]
        pub fn result(&self, number: u32, len: usize) -> UserMem {
            match len <= CELL_BYTES {
                true => {
                    let at = (number % ROUNDS) as usize * ROUND;
                    self.memory.mem(at + RESULT, CELL_BYTES)
                }
                false => self.wide(self.members, number),
            }
        }

        fn wide(&self, member: u32, number: u32) -> UserMem {
            let index = (number % ROUNDS) as usize * (self.members as usize + 1) + member as usize;
            self.memory
                .mem(Self::wide_at(self.members) + index * self.wide, self.wide)
        }

        /// Makes those of a deserted board new. The caller then tells its members.
        pub fn clear(&self) {
            use crate::facade::Ordering::Relaxed;
            for at in (0..ROUNDS as usize).map(|index| index * ROUND) {
                self.memory.atomic_u64(at + ARRIVED).store(0, Relaxed);
                for word in [OPEN, ODD, LEFT, THROUGH, ASKED] {
                    self.memory.atomic_u32(at + word).store(0, Relaxed);
                }
            }
            for (member, number) in (0..self.members).flat_map(|member| (0..ROUNDS).map(move |n| (member, n)))
            {
                self.memory
                    .atomic_u64(self.slot(member, number))
                    .store(0, Relaxed);
            }
        }
    }
}

#[cfg(not(loom))]
pub use segment::Rounds;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shm::Segment;

    /// A small generator of pseudo-random numbers, so that a seed names a run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) % bound
        }
    }

    /// What a member puts down: its own.
    fn put(rounds: &Rounds, member: u32, number: u32, len: usize) {
        let bytes: Vec<u8> = (0..len)
            .map(|at| (number * 7 + member * 3 + at as u32) as u8)
            .collect();
        rounds.cell(member, number, len).write(0, &bytes);
    }

    fn check(rounds: &Rounds, member: u32, number: u32, len: usize) {
        let mut bytes = vec![0; len];
        rounds.cell(member, number, len).read(0, &mut bytes);
        for (at, byte) in bytes.into_iter().enumerate() {
            assert_eq!(
                byte,
                (number * 7 + member * 3 + at as u32) as u8,
                "number {number}"
            );
        }
    }

    fn len_of(number: u32) -> usize {
        [4, CELL_BYTES, CELL_BYTES + 1, 700][number as usize % 4]
    }

    use crate::board::CELL_BYTES;

    #[derive(Default)]
    struct Member {
        /// The next number to come to.
        next: u32,
        /// Arrived and not left.
        open: Vec<u32>,
    }

    /// Members move in any order, each with as many collectives open as it gets; a number is one whose first member others read, or
    /// one that waits for all. What lies in a cell is there until all have left.
    #[test]
    fn members_that_come_and_leave_in_any_order_find_what_was_put_down_and_all_get_through() {
        const LAST: u32 = 60;
        for seed in 1..=400u64 {
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let members = 1 + random.below(6) as u32;
            let memory = Segment::anonymous(Rounds::bytes(members, 1024)).unwrap();
            let rounds = Rounds::new(memory, members, 1024).unwrap();
            let mut all: Vec<Member> = (0..members).map(|_| Member::default()).collect();
            all.iter_mut().for_each(|member| member.next = 1);
            let (mut idle, mut told) = (0, true);
            while all
                .iter()
                .any(|member| member.next <= LAST || !member.open.is_empty())
            {
                let me = random.below(members.into()) as u32;
                let member = &mut all[me as usize];
                idle += 1;
                assert!(idle < 20_000, "seed {seed}: nothing moves");
                let number = member.next;
                if number <= LAST && random.below(2) == 0 {
                    let round = rounds.round(number);
                    if !round.ask(number) {
                        told = false;
                        continue;
                    }
                    put(&rounds, me, number, len_of(number));
                    rounds.flag(me, number).raise(number, 5);
                    if let Arrival::Last(words) = round.arrive(5) {
                        assert_eq!(words, Words::Same);
                        round.open(number, words);
                    }
                    member.open.push(number);
                    member.next += 1;
                    idle = 0;
                } else if !member.open.is_empty() {
                    let at = random.below(member.open.len() as u64) as usize;
                    let number = member.open[at];
                    let first = number % members;
                    let by_first = number.is_multiple_of(3);
                    let come = match by_first {
                        true => rounds.flag(first, number).raised(number).is_some(),
                        false => rounds.round(number).is_open(number),
                    };
                    if come {
                        for other in (0..members).filter(|&other| !by_first || other == first) {
                            check(&rounds, other, number, len_of(number));
                        }
                        member.open.swap_remove(at);
                        told |= rounds.round(number).leave(number);
                        idle = 0;
                    }
                }
            }
            assert!(told, "seed {seed}: who asked was not told");
            assert!(
                (1..=LAST)
                    .rev()
                    .take(ROUNDS as usize)
                    .all(|number| rounds.round(number).is_free(number + ROUNDS))
            );
        }
    }

    #[test]
    fn members_that_bring_different_words_are_told_in_that_number_and_in_no_other() {
        let memory = Segment::anonymous(Rounds::bytes(2, 0)).unwrap();
        let rounds = Rounds::new(memory, 2, 0).unwrap();
        for number in 1..40u32 {
            let round = rounds.round(number);
            assert!(round.is_free(number));
            let odd = number.is_multiple_of(5);
            assert_eq!(round.arrive(9), Arrival::Early);
            assert!(!round.is_open(number));
            let Arrival::Last(words) = round.arrive(9 + u32::from(odd)) else {
                panic!("two of two have come")
            };
            round.open(number, words);
            assert_eq!(round.words(number) == Words::Different, odd);
            assert!(!round.is_free(number + ROUNDS));
            let _ = (round.leave(number), round.leave(number));
        }
        rounds.clear();
        assert!(
            rounds.round(1).is_free(1) && !rounds.round(1).is_open(1) && !rounds.round(1).is_free(1 + ROUNDS)
        );
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::facade::{AtomicU64, Cell};
    use loom::sync::Arc;

    /// One round, which serves one number after the other, and a bell.
    struct Model {
        arrived: AtomicU64,
        words: [AtomicU32; 5],
        cells: [Cell<u32>; 2],
        rung: AtomicU32,
    }

    impl Model {
        fn new() -> Arc<Self> {
            Arc::new(Model {
                arrived: AtomicU64::new(0),
                words: std::array::from_fn(|_| AtomicU32::new(0)),
                cells: [Cell::new(0), Cell::new(0)],
                rung: AtomicU32::new(0),
            })
        }

        fn round(&self) -> Round<'_> {
            let [open, odd, left, through, asked] = &self.words;
            Round {
                gate: Gate::new(&self.arrived, open, odd, 2),
                left,
                through,
                asked,
                members: 2,
            }
        }

        fn come(&self, me: usize, number: u32) {
            // SAFETY: loom checks that nobody else accesses the cell meanwhile.
            self.cells[me].with_mut(|cell| unsafe { *cell = number });
            if let Arrival::Last(words) = self.round().arrive(7) {
                self.round().open(number, words);
            }
        }

        fn go(&self, number: u32) {
            while !self.round().is_open(number) {
                loom::thread::yield_now();
            }
            for cell in &self.cells {
                // SAFETY: as above.
                assert_eq!(cell.with(|cell| unsafe { *cell }), number);
            }
            if self.round().leave(number) {
                self.rung.store(1, Ordering::Release);
            }
        }
    }

    const FIRST: u32 = ROUNDS;
    const SECOND: u32 = 2 * ROUNDS;

    /// What is put down stays until all have left, and the next number finds nothing of it.
    #[test]
    fn a_round_serves_again_when_all_have_left_it() {
        loom::model(|| {
            let model = Model::new();
            let take_part = |model: &Model, me: usize| {
                for number in [FIRST, SECOND] {
                    while !model.round().is_free(number) {
                        loom::thread::yield_now();
                    }
                    model.come(me, number);
                    model.go(number);
                }
            };
            let other = model.clone();
            let thread = loom::thread::spawn(move || take_part(&other, 1));
            take_part(&model, 0);
            thread.join().unwrap();
        });
    }

    /// A member that asked and was refused is told, by whoever leaves last.
    #[test]
    fn who_asks_for_a_round_that_is_not_free_is_told_when_it_is() {
        loom::model(|| {
            let model = Model::new();
            let other = model.clone();
            model.come(0, FIRST);
            model.come(1, FIRST);
            model.go(FIRST);
            let thread = loom::thread::spawn(move || other.go(FIRST));
            if !model.round().ask(SECOND) {
                while model.rung.load(Ordering::Acquire) == 0 {
                    loom::thread::yield_now();
                }
                assert!(model.round().is_free(SECOND));
            }
            thread.join().unwrap();
        });
    }
}
