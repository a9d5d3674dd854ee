//! NbcSlots in every order of their steps.

use super::*;
use crate::facade::{AtomicU64, Cell};
use crate::shm_barrier::{Arrival, CounterBarrier};
use loom::sync::Arc;

/// One round, which serves one number after the other.
struct Model {
    arrived: AtomicU64,
    words: [AtomicU32; 5],
    cells: [Cell<u32>; 2],
}

impl Model {
    fn barrier(&self) -> CounterBarrier<'_> {
        CounterBarrier {
            arrived: &self.arrived,
            epoch: &self.words[0],
            odd: &self.words[1],
            members: 2,
        }
    }

    fn exit(&self, member: usize) -> ExitCounter<'_> {
        ExitCounter {
            left: &self.words[2 + member],
            askers: &self.words[4],
        }
    }

    fn take_part(&self, me: usize) {
        for number in [ROUNDS, 2 * ROUNDS] {
            // Oneself has left what one has left.
            while !is_free(number, ROUNDS, self.exit(1 - me).left()) {
                loom::thread::yield_now();
            }
            // SAFETY: loom checks that nobody else accesses the cell meanwhile.
            self.cells[me].with_mut(|cell| unsafe { *cell = number });
            if let Arrival::Last(words) = self.barrier().arrive(7) {
                self.barrier().open(number, words);
            }
            while !self.barrier().passed(number) {
                loom::thread::yield_now();
            }
            for cell in &self.cells {
                // SAFETY: as above.
                assert_eq!(cell.with(|cell| unsafe { *cell }), number);
            }
            let _ = self.exit(me).leave(number);
        }
    }
}

/// What is put down stays until all have left, and the next number finds nothing of it.
#[test]
fn a_round_serves_again_when_all_have_left_it() {
    loom::model(|| {
        let model = Arc::new(Model {
            arrived: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU32::new(0)),
            cells: [Cell::new(0), Cell::new(0)],
        });
        let other = model.clone();
        let thread = loom::thread::spawn(move || other.take_part(1));
        model.take_part(0);
        thread.join().unwrap();
    });
}

/// Two members come last at once, and a third, which came before them, is about to be lent hands:
/// either it sees that all have come when it looks once more, or one of them calls.
#[test]
fn whoever_comes_last_calls_those_who_went_away() {
    use crate::progress_owner::{ProgressWakeup, WakeupScope};
    loom::model(|| {
        let flags = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let words = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let members: Vec<_> = (0..2u32)
            .map(|me| {
                let (flags, words) = (flags.clone(), words.clone());
                loom::thread::spawn(move || {
                    flags[me as usize].store(1, Ordering::Release);
                    let come = |member: u32| flags[member as usize].load(Ordering::Acquire) == 1;
                    is_whole([1 - me], come)
                        && ProgressWakeup::new(&words[0], &words[1]).claim(WakeupScope::Everything)
                })
            })
            .collect();
        ProgressWakeup::new(&words[0], &words[1]).arm(WakeupScope::Everything);
        let seen = flags.iter().all(|flag| flag.load(Ordering::Acquire) == 1);
        let called = members.into_iter().map(|member| member.join().unwrap());
        let called = called.filter(|&called| called).count();
        assert!(seen || called > 0, "nobody takes what is there");
        assert!(called < 2, "it is called once");
    });
}

/// A member that is early asks for its number, is lent hands, looks once more and goes away to
/// compute; another leaves the number before and comes to its own. Either the first one saw that
/// its number is free, or it is called.
#[test]
fn who_asks_and_computes_is_called_by_the_time_another_comes_to_that_number() {
    asked_by(1);
}

/// Two other members leave, and either may be the last.
#[test]
fn of_several_that_leave_one_calls_who_asked() {
    asked_by(2);
}

fn asked_by(others: usize) {
    use crate::progress_owner::{ProgressWakeup, WakeupScope};
    let mut builder = loom::model::Builder::new();
    // Of three threads all orders with few switches: each has some ten steps, and waits in a loop.
    builder.preemption_bound = (others > 1).then_some(3);
    builder.check(move || {
        // What others have left, the askers, and the two words to be called by.
        let words: Arc<[AtomicU32; 5]> = Arc::new(std::array::from_fn(|_| AtomicU32::new(0)));
        let number = ROUNDS + 1;
        let free = move |words: &[AtomicU32; 5]| {
            let exit = |member| ExitCounter {
                left: &words[member],
                askers: &words[2],
            };
            let through = (0..others).map(|member| exit(member).left()).min();
            is_free(number, ROUNDS, through.unwrap_or(0))
        };
        let threads: Vec<_> = (0..others)
            .map(|me| {
                let words = words.clone();
                loom::thread::spawn(move || {
                    let call =
                        || ProgressWakeup::new(&words[3], &words[4]).claim(WakeupScope::Everything);
                    let exit = ExitCounter {
                        left: &words[me],
                        askers: &words[2],
                    };
                    let mut called = exit.leave(1) == SlotDemand::Computes && call();
                    while !free(&words) {
                        loom::thread::yield_now();
                    }
                    // It found that all have left more than before.
                    called |= SlotRequests::default().of_others(SlotWaiters(&words[2]))
                        == SlotDemand::Computes
                        && call();
                    called
                })
            })
            .collect();
        let mut seen = free(&words);
        if !seen {
            SlotRequests::default().ask(SlotWaiters(&words[2]), SlotDemand::Computes);
            ProgressWakeup::new(&words[3], &words[4]).arm(WakeupScope::Everything);
            seen = free(&words);
        }
        let called = threads.into_iter().map(|thread| thread.join().unwrap());
        let called = called.filter(|&called| called).count();
        assert!(seen || called > 0, "nobody calls who computes");
    });
}

/// Two rounds that one collective has for itself, and where all wait for all: no look at what
/// others have left.
struct Own {
    gates: [(AtomicU64, [AtomicU32; 2]); 2],
    cells: [[Cell<u32>; 2]; 2],
}

impl Own {
    fn take_part(&self, me: usize) {
        for number in 1..=3u32 {
            let (arrived, words) = &self.gates[(number & 1) as usize];
            let barrier = CounterBarrier {
                arrived,
                epoch: &words[0],
                odd: &words[1],
                members: 2,
            };
            let cells = &self.cells[(number & 1) as usize];
            // SAFETY: loom checks that nobody else accesses the cell meanwhile.
            cells[me].with_mut(|cell| unsafe { *cell = number });
            if let Arrival::Last(words) = barrier.arrive(7) {
                barrier.open(number, words);
            }
            while !barrier.passed(number) {
                loom::thread::yield_now();
            }
            for cell in cells {
                // SAFETY: as above.
                assert_eq!(cell.with(|cell| unsafe { *cell }), number);
            }
        }
    }
}

#[test]
fn two_rounds_are_enough_for_a_collective_of_its_own_in_which_all_wait_for_all() {
    loom::model(|| {
        let zero = || AtomicU32::new(0);
        let barrier = || (AtomicU64::new(0), [zero(), zero()]);
        let cells = || [Cell::new(0), Cell::new(0)];
        let own = Arc::new(Own {
            gates: [barrier(), barrier()],
            cells: [cells(), cells()],
        });
        let other = own.clone();
        let thread = loom::thread::spawn(move || other.take_part(1));
        own.take_part(0);
        thread.join().unwrap();
    });
}
