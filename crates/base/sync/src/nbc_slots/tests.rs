//! Nonblocking slots in memory, with members that move in any order.

use super::*;
use crate::shm::Segment;
use crate::shm_barrier::{Agreement, Arrival, CELL_BYTES};

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
fn put(rounds: &NbcSlots, member: u32, number: u32, len: usize) {
    let bytes: Vec<u8> = (0..len)
        .map(|at| (number * 7 + member * 3 + at as u32) as u8)
        .collect();
    rounds.cell(member, number, len).write(0, &bytes);
}

fn check(rounds: &NbcSlots, member: u32, number: u32, len: usize) {
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
    left: ExitWindow,
    asks: bool,
    asked: SlotRequests,
}

/// Members move in any order, each with as many collectives open as it gets; a number is one whose
/// first member others read, or one that waits for all. What lies in a cell is there until all have
/// left.
#[test]
fn members_that_come_and_leave_in_any_order_find_what_was_put_down_and_all_get_through() {
    const LAST: u32 = 60;
    for seed in 1..=400u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let members = 1 + random.below(6) as u32;
        let memory = Segment::anonymous(NbcSlots::bytes(members, NbcLayout::common(1024))).unwrap();
        let rounds = NbcSlots::new(memory, members, NbcLayout::common(1024)).unwrap();
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
                        SlotDemand::Waits
                    } else {
                        SlotDemand::Computes
                    };
                    match free {
                        true => member.asked.ask_no_more(rounds.askers(), how),
                        false => member.asked.ask(rounds.askers(), how),
                    }
                }
                if !free {
                    continue;
                }
                put(&rounds, me, number, len_of(number));
                rounds.flag(me, number).raise(number, 5);
                if let Arrival::Last(words) = rounds.barrier(number).arrive(5) {
                    assert_eq!(words, Agreement::Same);
                    rounds.barrier(number).open(number, words);
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
                    1 => rounds.barrier(number).passed(number),
                    _ => (0..members)
                        .all(|other| rounds.flag(other, number).raised(number).is_some()),
                };
                if come {
                    for other in
                        (0..members).filter(|&other| !number.is_multiple_of(3) || other == first)
                    {
                        check(&rounds, other, number, len_of(number));
                    }
                    member.open.swap_remove(at);
                    if let Some(through) = member.left.add(number) {
                        let asked = rounds.exit(me).leave(through);
                        let asks =
                            |odd: u32| all.iter().skip(odd as usize).step_by(2).any(|m| m.asks);
                        let expected = match (asks(0), asks(1)) {
                            (_, true) => SlotDemand::Computes,
                            (true, false) => SlotDemand::Waits,
                            (false, false) => SlotDemand::No,
                        };
                        assert_eq!(asked, expected, "seed {seed}");
                        told += u32::from(asked != SlotDemand::No);
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
    let memory = Segment::anonymous(NbcSlots::bytes(2, NbcLayout::common(0))).unwrap();
    let rounds = NbcSlots::new(memory, 2, NbcLayout::common(0)).unwrap();
    for number in 1..40u32 {
        let barrier = rounds.barrier(number);
        assert!(is_free(number, ROUNDS, rounds.through()));
        let odd = number.is_multiple_of(5);
        assert_eq!(barrier.arrive(9), Arrival::Early);
        assert!(!barrier.passed(number));
        let Arrival::Last(words) = barrier.arrive(9 + u32::from(odd)) else {
            panic!("two of two have come")
        };
        barrier.open(number, words);
        assert_eq!(barrier.words(number) == Agreement::Different, odd);
        assert!(!is_free(number + ROUNDS, ROUNDS, rounds.through()));
        assert!((0..2).all(|member| rounds.exit(member).leave(number) == SlotDemand::No));
    }
    rounds.clear();
    assert!(!rounds.barrier(1).passed(1) && rounds.through() == 0);
}

#[test]
fn numbers_are_left_up_to_where_none_is_missing_and_wrap() {
    let mut left = ExitWindow {
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

/// Members that wait for all, or for the first, in rounds that are theirs alone: each goes on as
/// soon as it can, and finds what the others put down for its number.
#[test]
fn a_collective_with_rounds_of_its_own_needs_two_where_all_wait_for_all_and_a_look_where_one_goes_ahead()
 {
    const LAST: u32 = 40;
    for (seed, len) in
        (1..=60u64).flat_map(|seed| [4, 88, 89, 256, 257, 1000].map(|len| (seed, len)))
    {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (members, rooted) = (1 + random.below(4) as u32, random.below(2) == 0);
        let shape = NbcLayout::own(if rooted { 4 } else { 2 }, len);
        assert!(shape.is_sound() && shape.room() >= len);
        let memory = Segment::anonymous(NbcSlots::bytes(members, shape)).unwrap();
        let rounds = NbcSlots::new(memory, members, shape).unwrap();
        let mut all: Vec<Member> = (0..members).map(|_| Member::default()).collect();
        let mut idle = 0;
        while all
            .iter()
            .any(|member| member.next < LAST || !member.open.is_empty())
        {
            let me = random.below(members.into()) as u32;
            let member = &mut all[me as usize];
            idle += 1;
            assert!(idle < 20_000, "seed {seed}: nothing moves");
            if let Some(number) = member.open.pop() {
                let awaited = if rooted { 0..1 } else { 0..members };
                let come = |other: u32| rounds.flag(other, number).raised(number).is_some();
                if !awaited.clone().all(come) {
                    member.open.push(number);
                    continue;
                }
                awaited.for_each(|other| check(&rounds, other, number, len));
                let through = member.left.add(number).expect("one after another");
                assert_eq!(rounds.exit(me).leave(through), SlotDemand::No);
            } else if member.next < LAST {
                let number = member.next + 1;
                if rooted && !is_free(number, rounds.after(len > CELL_BYTES), rounds.through()) {
                    continue;
                }
                member.next = number;
                member.open.push(number);
                put(&rounds, me, number, len);
                rounds.flag(me, number).raise(number, 5);
            }
            idle = 0;
        }
        assert!(!rounds.is_deserted());
        (0..members).for_each(|member| rounds.desert(member));
        assert!(rounds.is_deserted());
        rounds.clear();
        assert!(!rounds.is_deserted() && rounds.through() == 0);
    }
}

#[test]
fn a_shape_that_cannot_be_is_not_sound() {
    let shape = NbcLayout::own(2, 8);
    assert!(
        shape.is_sound() && NbcLayout::common(0).is_sound() && NbcLayout::common(4096).is_sound()
    );
    for odd in [
        NbcLayout { rounds: 0, ..shape },
        NbcLayout { rounds: 3, ..shape },
        NbcLayout {
            rounds: 32,
            ..shape
        },
        NbcLayout { sets: 0, ..shape },
        NbcLayout { cell: 8, ..shape },
        NbcLayout { wide: 100, ..shape },
    ] {
        assert!(!odd.is_sound(), "{odd:?}");
    }
}

/// However many numbers a member asks for, it counts once, and does not call itself.
#[test]
fn who_asks_for_many_numbers_counts_once_and_not_for_itself() {
    let memory = Segment::anonymous(NbcSlots::bytes(2, NbcLayout::common(0))).unwrap();
    let rounds = NbcSlots::new(memory, 2, NbcLayout::common(0)).unwrap();
    let askers = || rounds.askers();
    let (mut mine, mut theirs) = (SlotRequests::default(), SlotRequests::default());
    for _ in 0..100_000 {
        mine.ask(askers(), SlotDemand::Waits);
        mine.ask(askers(), SlotDemand::Computes);
    }
    let seen = |mine: SlotRequests, theirs: SlotRequests| {
        (mine.of_others(askers()), theirs.of_others(askers()))
    };
    assert_eq!(seen(mine, theirs), (SlotDemand::No, SlotDemand::Computes));
    theirs.ask(askers(), SlotDemand::Waits);
    assert_eq!(
        seen(mine, theirs),
        (SlotDemand::Waits, SlotDemand::Computes)
    );
    for _ in 0..100_000 {
        mine.ask_no_more(askers(), SlotDemand::Computes);
    }
    assert_eq!(seen(mine, theirs), (SlotDemand::Waits, SlotDemand::Waits));
    for _ in 0..100_000 {
        mine.ask_no_more(askers(), SlotDemand::Waits);
    }
    assert_eq!(seen(mine, theirs), (SlotDemand::Waits, SlotDemand::No));
    assert_eq!(rounds.exit(0).leave(1), SlotDemand::Waits);
    theirs.ask_no_more(askers(), SlotDemand::Waits);
    assert_eq!(rounds.exit(0).leave(2), SlotDemand::No);
}
