//! Rounds: places on a board where collectives meet that members do not wait in.
//!
//! Used by nonblocking collectives, of which several may be open at once: number k of them meets in round k modulo [`ROUNDS`]. A member puts down what it brings and raises its
//! flag; where members are many it arrives at a gate as well, and whoever arrives last may combine what all put down, and opens. Each looks when it likes, takes what it came for, and
//! leaves. Round and cells are free for number k + [`ROUNDS`] when all have left number k: each member says up to where it has left all, in a word of its own, which
//! others look at only when what they saw there last no longer suffices. Wide cells are fewer, [`WIDE_SETS`]: a number that needs them waits until all have left number k - [`WIDE_SETS`].
//! Who comes earlier puts nothing down yet, asks to be told, and arrives later. Bounded: [`ROUNDS`] rounds with a small cell per member in each, [`WIDE_SETS`] wide ones; nothing grows.
//!
//! Nobody waits in a circle: number k waits for members to leave k - [`ROUNDS`], which they do when all have arrived there, which
//! waits for still lower numbers only, and the first [`ROUNDS`] wait for nothing. A member that misbehaves can delay the others or change what they compute,
//! nothing else: contents are only ever copied.

use crate::facade::{AtomicU32, Ordering, fence};

/// Rounds of a board: collectives that one may have open before it has to wait for the slowest to leave. A power of two.
pub const ROUNDS: u32 = 16;

/// Sets of wide cells, which rounds share: fewer than rounds, so that what one number leaves in the caches the next but a few find there. Divides [`ROUNDS`].
pub const WIDE_SETS: u32 = 4;
const _: () = assert!(ROUNDS.is_multiple_of(WIDE_SETS));

/// A member's word: all numbers up to that in it it has left.
#[derive(Clone, Copy, Debug)]
pub struct Exit<'a> {
    left: &'a AtomicU32,
    /// How many members ask for a number that is not free: in the low half all, in the high half those that want to be called for it.
    askers: &'a AtomicU32,
}

/// How a member asks for a number that is not free, and who has to be told of what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nobody.
    No,
    /// Those who wait, or look by themselves.
    Waits,
    /// Their helpers as well, if they compute.
    Computes,
}

/// An asker that computes, in its word.
const COMPUTES: u32 = 1 << 16;

impl Asked {
    fn of(askers: u32) -> Self {
        match askers {
            0 => Asked::No,
            1..COMPUTES => Asked::Waits,
            _ => Asked::Computes,
        }
    }

    fn unit(self) -> u32 {
        match self {
            Asked::No => 0,
            Asked::Waits => 1,
            Asked::Computes => COMPUTES | 1,
        }
    }
}

/// The word in which members ask for numbers that are not free. Who asks and goes away to compute looks once more after it has asked, and after its helper may be called.
#[derive(Clone, Copy, Debug)]
pub struct Askers<'a>(&'a AtomicU32);

impl Askers<'_> {
    /// Who asks to be told of what is left, after a look at what all have left ([`Rounds::through`]): whoever asks later than this finds at least as much left.
    pub fn asked(self) -> Asked {
        // Orders the look before the question, against the counting in `ask`. SYNC(round-asked).
        fence(Ordering::SeqCst);
        Asked::of(self.0.load(Ordering::Relaxed))
    }

    /// One more asks. SYNC(round-asked).
    pub fn ask(self, how: Asked) {
        self.0.fetch_add(how.unit(), Ordering::SeqCst);
    }

    /// One that asked so does not any more.
    pub fn ask_no_more(self, how: Asked) {
        self.0.fetch_sub(how.unit(), Ordering::SeqCst);
    }
}

impl Exit<'_> {
    /// Its owner has left all numbers up to `number`: it looks at nothing there any more. Whether somebody asked for that, so that all that sleep are to be woken.
    ///
    /// There is no fence between both: who asks and goes to sleep on a [`Doorbell`](crate::doorbell::Doorbell) makes up for that, as for any other writer. Who asks and computes may be
    /// missed here; whoever finds that all have left more than before asks once more ([`Askers::asked`]), before anybody can need the number that is asked for.
    #[inline(always)]
    #[must_use]
    pub fn leave(self, number: u32) -> Asked {
        // Release: the owner's last looks. SYNC(round-left).
        self.left.store(number, Ordering::Release);
        Asked::of(self.askers.load(Ordering::Relaxed))
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
pub struct Left {
    /// All up to this.
    through: u32,
    /// Of those after it, the lowest bit first.
    beyond: u32,
}

impl Left {
    /// Adds `number`, one of the [`ROUNDS`] after those that all have been left. Gives up to where all have been left now, if that is further than before.
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

/// Whether `number` may be put down where all have left numbers up to `through`: `after` is [`ROUNDS`], or [`WIDE_SETS`] if it needs wide cells. Numbers wrap.
#[inline(always)]
pub fn is_free(number: u32, after: u32, through: u32) -> bool {
    through.wrapping_sub(number.wrapping_sub(after)) as i32 >= 0
}

/// Whether the others have all come to a number, asked by a member that has raised its own flag there: of those who come last at least one is told so, whichever they are, and each that is
/// told may be the only one. For what is to be done once all are there, by somebody. `come` looks at another's flag.
#[inline]
pub fn is_whole(members: impl IntoIterator<Item = u32>, come: impl Fn(u32) -> bool) -> bool {
    // Own flag before the others'. SYNC(round-whole).
    fence(Ordering::SeqCst);
    members.into_iter().all(come)
}

#[cfg(not(loom))]
mod segment {
    use super::{Askers, Exit, ROUNDS, WIDE_SETS};
    use crate::board::{CELL_BYTES, Flag, Gate, NOTE_BYTES};
    use crate::facade::Ordering;
    use crate::shm::Segment;
    use crate::user::UserMem;

    /// Members that ask, in front of the rounds; seldom written.
    const ASKERS: usize = 0;
    const ROUND_0: usize = 128;
    /// What a member says of itself follows its flag, then what it puts down.
    const NOTE: usize = 8;
    const CELL: usize = NOTE + NOTE_BYTES;
    const SLOT: usize = (CELL + CELL_BYTES).next_multiple_of(128);
    const ALIGN: usize = 256;
    const SLOTS: usize = ROUND_0 + ROUNDS as usize * Gate::BYTES;
    /// Where a member says what it has left, and after that what reading takes it: after the slots, each on lines of its own.
    const EXIT: usize = 128;
    const READS: usize = 8;

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
            // One more of them in each set, for what the last to arrive combined.
            let cells = (members as usize + 1).saturating_mul(WIDE_SETS as usize);
            Self::wide_at(members).saturating_add(cells.saturating_mul(wide))
        }

        const fn wide_at(members: u32) -> usize {
            let slots = (members as usize).saturating_mul(ROUNDS as usize * SLOT + EXIT);
            slots.saturating_add(SLOTS).next_multiple_of(ALIGN)
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

        /// The most that a member can put down in one cell.
        pub fn room(&self) -> usize {
            self.wide.max(CELL_BYTES)
        }

        /// The gate of number `number`, for where members are many.
        #[inline]
        pub fn gate(&self, number: u32) -> Gate<'_> {
            Gate::at(&self.memory, Self::round_at(number), self.members)
        }

        const fn round_at(number: u32) -> usize {
            ROUND_0 + (number % ROUNDS) as usize * Gate::BYTES
        }

        /// Where `member` says what it has left.
        #[inline]
        pub fn exit(&self, member: u32) -> Exit<'_> {
            Exit {
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

        /// Where members ask for numbers that are not free.
        pub fn askers(&self) -> Askers<'_> {
            Askers(self.memory.atomic_u32(ASKERS))
        }

        fn exit_at(&self, member: u32) -> usize {
            let slots = self.members as usize * ROUNDS as usize * SLOT;
            SLOTS + slots + member as usize * EXIT
        }

        fn reads(&self, member: u32) -> &crate::facade::AtomicU64 {
            self.memory.atomic_u64(self.exit_at(member) + READS)
        }

        /// What reading others' wide cells took `member`, as it said last: see [`Reads`](crate::stores::Reads).
        pub fn told_reads(&self, member: u32) -> u64 {
            // Relaxed: a hint.
            self.reads(member).load(Ordering::Relaxed)
        }

        /// Says so of the caller.
        pub fn tell_reads(&self, member: u32, word: u64) {
            self.reads(member).store(word, Ordering::Relaxed);
        }

        fn slot(&self, member: u32, number: u32) -> usize {
            let index = (number % ROUNDS) as usize * self.members as usize + member as usize;
            SLOTS + index * SLOT
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

        /// Bytes of the cell in which `len` are put down.
        pub fn cell_len(&self, len: usize) -> usize {
            match len <= CELL_BYTES {
                true => CELL_BYTES,
                false => self.wide,
            }
        }

        /// The wide cell of `member`, likewise; empty where there are none.
        #[inline]
        pub fn wide_cell(&self, member: u32, number: u32) -> UserMem {
            self.wide(member, number)
        }

        /// Where the last to arrive puts down `len` bytes for all, likewise.
        #[inline]
        pub fn result(&self, number: u32, len: usize) -> UserMem {
            match len <= CELL_BYTES {
                true => Gate::result(&self.memory, Self::round_at(number)),
                false => self.wide(self.members, number),
            }
        }

        fn wide(&self, member: u32, number: u32) -> UserMem {
            let index = (number % WIDE_SETS) as usize * (self.members as usize + 1) + member as usize;
            self.memory
                .mem(Self::wide_at(self.members) + index * self.wide, self.wide)
        }

        /// Makes those of a deserted board new. The caller then tells its members.
        pub fn clear(&self) {
            use crate::facade::Ordering::Relaxed;
            self.memory.atomic_u32(ASKERS).store(0, Relaxed);
            (0..ROUNDS).for_each(|number| self.gate(number).clear());
            for member in 0..self.members {
                self.exit(member).left.store(0, Relaxed);
                self.tell_reads(member, 0);
                for number in 0..ROUNDS {
                    self.memory
                        .atomic_u64(self.slot(member, number))
                        .store(0, Relaxed);
                }
            }
        }
    }
}

#[cfg(not(loom))]
pub use segment::Rounds;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::board::{Arrival, CELL_BYTES, Words};
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

    /// After how many the next that needs the same cells may come.
    fn after(number: u32) -> u32 {
        if len_of(number) > CELL_BYTES {
            WIDE_SETS
        } else {
            ROUNDS
        }
    }

    fn len_of(number: u32) -> usize {
        [4, CELL_BYTES, CELL_BYTES + 1, 700][number as usize % 4]
    }

    #[derive(Default)]
    struct Member {
        /// The next number to come to.
        next: u32,
        /// Arrived and not left.
        open: Vec<u32>,
        left: Left,
        asks: bool,
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
            let (mut idle, mut told) = (0, 0);
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
                    let free = is_free(number, after(number), rounds.through());
                    if member.asks == free {
                        member.asks = !free;
                        let how = if me.is_multiple_of(2) {
                            Asked::Waits
                        } else {
                            Asked::Computes
                        };
                        match free {
                            true => rounds.askers().ask_no_more(how),
                            false => rounds.askers().ask(how),
                        }
                    }
                    if !free {
                        continue;
                    }
                    put(&rounds, me, number, len_of(number));
                    rounds.flag(me, number).raise(number, 5);
                    if let Arrival::Last(words) = rounds.gate(number).arrive(5) {
                        assert_eq!(words, Words::Same);
                        rounds.gate(number).open(number, words);
                    }
                    member.open.push(number);
                    member.next += 1;
                    idle = 0;
                } else if !member.open.is_empty() {
                    let at = random.below(member.open.len() as u64) as usize;
                    let number = member.open[at];
                    let first = number % members;
                    let come = match number % 3 {
                        0 => rounds.flag(first, number).raised(number).is_some(),
                        1 => rounds.gate(number).passed(number),
                        _ => (0..members).all(|other| rounds.flag(other, number).raised(number).is_some()),
                    };
                    if come {
                        for other in (0..members).filter(|&other| !number.is_multiple_of(3) || other == first)
                        {
                            check(&rounds, other, number, len_of(number));
                        }
                        member.open.swap_remove(at);
                        if let Some(through) = member.left.add(number) {
                            let asked = rounds.exit(me).leave(through);
                            let asks = |odd: u32| all.iter().skip(odd as usize).step_by(2).any(|m| m.asks);
                            let expected = match (asks(0), asks(1)) {
                                (_, true) => Asked::Computes,
                                (true, false) => Asked::Waits,
                                (false, false) => Asked::No,
                            };
                            assert_eq!(asked, expected, "seed {seed}");
                            told += u32::from(asked != Asked::No);
                        }
                        idle = 0;
                    }
                }
            }
            assert!(told > 0 || members == 1, "seed {seed}: nobody was told");
            assert_eq!(rounds.through(), LAST);
        }
    }

    #[test]
    fn members_that_bring_different_words_are_told_in_that_number_and_in_no_other() {
        let memory = Segment::anonymous(Rounds::bytes(2, 0)).unwrap();
        let rounds = Rounds::new(memory, 2, 0).unwrap();
        for number in 1..40u32 {
            let gate = rounds.gate(number);
            assert!(is_free(number, ROUNDS, rounds.through()));
            let odd = number.is_multiple_of(5);
            assert_eq!(gate.arrive(9), Arrival::Early);
            assert!(!gate.passed(number));
            let Arrival::Last(words) = gate.arrive(9 + u32::from(odd)) else {
                panic!("two of two have come")
            };
            gate.open(number, words);
            assert_eq!(gate.words(number) == Words::Different, odd);
            assert!(!is_free(number + ROUNDS, ROUNDS, rounds.through()));
            assert!((0..2).all(|member| rounds.exit(member).leave(number) == Asked::No));
        }
        rounds.clear();
        assert!(!rounds.gate(1).passed(1) && rounds.through() == 0);
    }

    #[test]
    fn numbers_are_left_up_to_where_none_is_missing_and_wrap() {
        let mut left = Left {
            through: u32::MAX - 2,
            beyond: 0,
        };
        assert_eq!(left.add(u32::MAX), None);
        assert_eq!(left.add(u32::MAX - 1), Some(u32::MAX));
        assert_eq!(left.add(1), None);
        assert_eq!(left.add(0), Some(1));
        let free = |number, through| is_free(number, ROUNDS, through);
        assert!(free(1 + ROUNDS, 1) && !free(2 + ROUNDS, 1));
        assert!(is_free(1 + WIDE_SETS, WIDE_SETS, 1) && !is_free(2 + WIDE_SETS, WIDE_SETS, 1));
        assert!(free(ROUNDS - 3, u32::MAX - 2) && !free(ROUNDS - 2, u32::MAX - 2));
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
