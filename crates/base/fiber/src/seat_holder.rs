//! Which thread holds a worker's seat: the word by which a stuck thread is replaced.
//!
//! The thread that holds a seat says whether it runs fibers. Only then may others take the seat
//! away: a thread that searches for work is about to run or to sleep by itself. A thread looks at
//! the word before each fiber, and goes away when it is another one's.

use crate::facade::{AtomicU32, Ordering};

/// Bit of the word: the holder runs fibers.
const RUNNING: u32 = 1;

/// See the module's paragraph. Holds twice the thread's number, with the bit; 0: nobody's.
#[derive(Debug)]
pub(crate) struct SeatHolder(AtomicU32);

impl SeatHolder {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The thread of this number, which was given the seat, runs fibers there.
    pub(crate) fn take(&self, number: u32) {
        self.0.store(number << 1 | RUNNING, Ordering::Release);
    }

    /// Tells whether the thread, which runs fibers, still holds the seat.
    #[inline]
    pub(crate) fn is_held_by(&self, number: u32) -> bool {
        self.0.load(Ordering::Relaxed) == number << 1 | RUNNING
    }

    /// Tells whether the holder runs fibers.
    pub(crate) fn runs(&self) -> bool {
        self.0.load(Ordering::Relaxed) & RUNNING != 0
    }

    /// The holder has no fiber: nobody takes the seat away until it calls [`SeatHolder::take`].
    /// `false`: somebody has.
    pub(crate) fn begin_search(&self, number: u32) -> bool {
        let (running, searching) = (number << 1 | RUNNING, number << 1);
        self.0
            .compare_exchange(running, searching, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the seat away from whoever runs fibers there. `true`: it is the caller's to give.
    pub(crate) fn take_away(&self) -> bool {
        let held = self.0.load(Ordering::Relaxed);
        held & RUNNING != 0
            && self
                .0
                .compare_exchange(held, 0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;

    /// The monitor and the worker itself (`blocking`) give the seat of thread 1 away, which wants
    /// to search meanwhile. Exactly one of the three has its way.
    #[test]
    fn a_seat_is_given_away_once_and_not_during_a_search() {
        loom::model(|| {
            let shared = Arc::new((SeatHolder::new(), AtomicU32::new(0)));
            shared.0.take(1);
            let takers: Vec<_> = (0..2)
                .map(|_| {
                    let shared = shared.clone();
                    loom::thread::spawn(move || {
                        if shared.0.take_away() {
                            shared.1.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            let searches = shared.0.begin_search(1);
            takers.into_iter().for_each(|taker| taker.join().unwrap());
            let taken = shared.1.load(Ordering::Relaxed);
            assert_eq!(taken + u32::from(searches), 1);
            assert!(!shared.0.runs() && !shared.0.is_held_by(1));
        });
    }
}
