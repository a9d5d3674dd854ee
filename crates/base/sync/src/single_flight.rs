//! A value that one thread at a time works on. A thread that finds it busy leaves a mark and goes
//! on.
//!
//! The busy thread may already have passed the place that the newcomer cares about. So it looks for
//! the mark after it has let go, and works once more if there is one. A newcomer sets the mark
//! before it tries again; the worker unlocks before it reads the mark. So one of the two sees the
//! other: SYNC(attended-missed). Nobody waits, and no event is lost. Bounded: one mark, however
//! many come.

use crate::facade::{AtomicBool, Mutex, MutexGuard, Ordering, fence};
use std::sync::{PoisonError, TryLockError};

/// A value that one thread at a time works on, and the mark of threads that came meanwhile.
/// `attend` does both steps; [`SingleFlight::begin`] and [`SingleFlightTurn::end`] are for callers
/// that look by themselves.
#[derive(Debug, Default)]
pub struct SingleFlight<T> {
    value: Mutex<T>,
    /// Somebody came while another was at it.
    missed: AtomicBool,
}

/// One's turn at it. Whoever has it ends it by [`SingleFlightTurn::end`].
#[derive(Debug)]
pub struct SingleFlightTurn<'a, T> {
    value: MutexGuard<'a, T>,
    missed: &'a AtomicBool,
}

impl<T> SingleFlight<T> {
    /// Nobody is at it.
    pub fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            missed: AtomicBool::new(false),
        }
    }

    /// The caller is at it, without having looked after it as one does who came for that. `None`:
    /// another thread is at it, and looks again for the caller.
    #[inline]
    pub fn begin(&self) -> Option<SingleFlightTurn<'_, T>> {
        let value = match self.try_lock() {
            Some(value) => value,
            None => {
                // Before the other try, with all that the caller knows, and that those knew who
                // marked before: SYNC(attended-missed).
                self.missed.swap(true, Ordering::AcqRel);
                fence(Ordering::SeqCst);
                self.try_lock()?
            }
        };
        let missed = &self.missed;
        Some(SingleFlightTurn { value, missed })
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.value.try_lock() {
            Ok(value) => Some(value),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Has `look` look after it, as often as others come meanwhile; leaves that to another thread
    /// that is at it.
    #[inline]
    pub fn attend(&self, mut look: impl FnMut(&mut T)) {
        while let Some(mut attending) = self.begin() {
            if self.missed.load(Ordering::Relaxed) {
                // What those know whose marks this takes away the caller sees from now on:
                // SYNC(attended-missed).
                self.missed.swap(false, Ordering::AcqRel);
            }
            look(attending.value());
            if !attending.end() {
                return;
            }
        }
    }

    /// Calls `f` on it when nobody is at it. For what nobody looks after any more: who comes
    /// meanwhile finds somebody who does not look.
    pub fn with_locked<U>(&self, f: impl FnOnce(&T) -> U) -> U {
        f(&self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> SingleFlightTurn<'_, T> {
    /// Returns what it is about.
    #[inline]
    pub fn value(&mut self) -> &mut T {
        &mut self.value
    }

    /// Lets go. `true`: somebody came meanwhile, or before and was not looked for yet: the caller
    /// is to look after it.
    #[must_use = "nobody else looks for who came meanwhile"]
    #[inline]
    pub fn end(self) -> bool {
        let Self { value, missed } = self;
        drop(value);
        // SYNC(attended-missed).
        fence(Ordering::SeqCst);
        missed.load(Ordering::SeqCst)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_finds_another_at_it_has_that_one_look_again() {
        let attended = SingleFlight::new(0);
        let turn = attended.begin().unwrap();
        assert!(attended.begin().is_none() && attended.begin().is_none());
        assert!(turn.end());
        let glance = attended.begin().unwrap();
        assert!(glance.end(), "nobody has looked since");
        let mut looks = 0;
        attended.attend(|_| looks += 1);
        assert_eq!(looks, 1, "the mark is for those who were at it");
        attended.attend(|value| {
            *value += 1;
            if *value < 3 {
                assert!(attended.begin().is_none());
            }
        });
        assert_eq!(attended.with_locked(|value| *value), 3);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::facade::AtomicU32;
    use loom::sync::Arc;

    /// Each of them brings a word, and looks whether all have come.
    struct Met {
        words: [AtomicU32; THREADS],
        seen: SingleFlight<bool>,
    }

    const THREADS: usize = 3;

    impl Met {
        fn look(&self) {
            self.seen.attend(|seen| {
                let come = |word: &AtomicU32| word.load(Ordering::Acquire) == 1;
                *seen = self.words.iter().all(come);
            });
        }

        fn come(&self, thread: usize) {
            self.words[thread].store(1, Ordering::Release);
            self.look();
        }

        /// Only asks how things are, and looks where that hindered another.
        fn glance(&self) {
            if self.seen.begin().is_some_and(SingleFlightTurn::end) {
                self.look();
            }
        }
    }

    fn met() -> Met {
        Met {
            words: std::array::from_fn(|_| AtomicU32::new(0)),
            seen: SingleFlight::new(false),
        }
    }

    #[test]
    fn what_all_have_brought_somebody_sees() {
        let mut bounded = loom::model::Builder::new();
        bounded.preemption_bound = Some(3);
        bounded.check(|| {
            let met = Arc::new(met());
            let others: Vec<_> = (1..THREADS)
                .map(|thread| {
                    let met = met.clone();
                    loom::thread::spawn(move || met.come(thread))
                })
                .collect();
            met.come(0);
            others.into_iter().for_each(|other| other.join().unwrap());
            assert!(met.seen.with_locked(|seen| *seen));
        });
    }

    #[test]
    fn who_only_glances_hinders_nobody() {
        let mut bounded = loom::model::Builder::new();
        bounded.preemption_bound = Some(3);
        bounded.check(|| {
            let met = Arc::new(met());
            met.words[2].store(1, Ordering::Release);
            let others = [Met::glance as fn(&Met), |met: &Met| met.come(1)].map(|act| {
                let met = met.clone();
                loom::thread::spawn(move || act(&met))
            });
            met.come(0);
            others.into_iter().for_each(|other| other.join().unwrap());
            assert!(met.seen.with_locked(|seen| *seen));
        });
    }

    /// A lock alone would lose events: nobody sees what others bring to a thread that has looked
    /// already.
    #[test]
    #[should_panic(expected = "nobody looked")]
    fn without_a_mark_it_would_be_lost() {
        loom::model(|| {
            let (word, seen) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(false)));
            let look = |word: &AtomicU32, seen: &Mutex<bool>| {
                if let Ok(mut seen) = seen.try_lock() {
                    *seen = word.load(Ordering::Acquire) == 1;
                }
            };
            let other = {
                let (word, seen) = (word.clone(), seen.clone());
                loom::thread::spawn(move || look(&word, &seen))
            };
            word.store(1, Ordering::Release);
            look(&word, &seen);
            other.join().unwrap();
            assert!(*seen.lock().unwrap(), "nobody looked");
        });
    }
}
