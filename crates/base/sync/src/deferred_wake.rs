//! Wake-ups that a thread defers until it has released a lock.
//!
//! A kernel that wakes a thread may run it at once in place of the waker. The waker then loses its
//! core with the lock held, and every thread that wants the lock waits for a time slice. So the
//! holder of a contended lock keeps a [`DeferredWakes`], declared before the lock's guard or placed
//! behind it in one value. Doorbells that this thread rings meanwhile are rung when that value is
//! dropped. Bounded by `WAKES_MAX` wake-ups of a thread; further ones are not deferred.

use crate::facade::AtomicU32;
use crate::futex;
use std::cell::Cell;
use std::marker::PhantomData;

/// Wake-ups put off at most: one look at a transport rings a few doorbells.
#[cfg(not(loom))]
const WAKES_MAX: usize = 16;
#[cfg(loom)]
const WAKES_MAX: usize = 1;

struct PendingWakes {
    depth: Cell<u32>,
    count: Cell<usize>,
    words: [Cell<*const u32>; WAKES_MAX],
}

impl PendingWakes {
    const fn nothing() -> Self {
        Self {
            depth: Cell::new(0),
            count: Cell::new(0),
            words: [const { Cell::new(std::ptr::null()) }; WAKES_MAX],
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
thread_local! {
    static OWED: PendingWakes = const { PendingWakes::nothing() };
}
#[cfg(any(loom, shuttle))]
crate::facade::thread_local! {
    static OWED: PendingWakes = PendingWakes::nothing();
}

/// While this lives, [`wake_all`] of this thread puts off. Stays on its thread.
#[derive(Debug)]
#[must_use = "dropping it wakes"]
pub struct DeferredWakes(PhantomData<*const ()>);

impl DeferredWakes {
    /// From now on.
    #[allow(
        clippy::new_without_default,
        reason = "it changes what the thread does"
    )]
    pub fn new() -> Self {
        OWED.with(|owed| owed.depth.set(owed.depth.get() + 1));
        Self(PhantomData)
    }
}

impl Drop for DeferredWakes {
    fn drop(&mut self) {
        let depth = OWED.with(|owed| owed.depth.replace(owed.depth.get() - 1) - 1);
        if depth == 0 {
            flush();
        }
    }
}

/// Wakes at once whom this thread put off: before it sleeps itself.
#[inline]
pub fn flush() {
    OWED.with(|owed| {
        if owed.count.get() > 0 {
            for word in &owed.words[..owed.count.replace(0)] {
                futex::wake_at(word.get(), u32::MAX);
            }
        }
    });
}

/// Wakes all sleepers on `word`, at once or when this thread has let go of what it holds.
pub fn wake_all(word: &AtomicU32) {
    let put_off = OWED.with(|owed| {
        let count = owed.count.get();
        let put_off = owed.depth.get() > 0 && count < WAKES_MAX;
        if put_off {
            owed.words[count].set(std::ptr::from_ref(word).cast());
            owed.count.set(count + 1);
        }
        put_off
    });
    if !put_off {
        futex::wake(word, u32::MAX);
    }
}

#[cfg(all(test, loom))]
#[path = "deferred_wake_loom.rs"]
mod loom_tests;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Calls `wake` until somebody who sleeps on `word` says that a wake-up came.
    fn wakes(wake: impl Fn(&AtomicU32)) {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            // The word stays as it is: only a wake-up ends this.
            let sleeper = scope.spawn(|| futex::wait(&word, 0, Some(Duration::from_secs(60))));
            while !sleeper.is_finished() {
                wake(&word);
                std::thread::yield_now();
            }
            assert_eq!(sleeper.join().unwrap(), futex::Wake::Maybe);
        });
    }

    #[test]
    fn a_wake_up_comes_at_once_or_at_the_end_of_what_puts_it_off() {
        wakes(wake_all);
        wakes(|word| {
            let postponed = DeferredWakes::new();
            wake_all(word);
            drop(DeferredWakes::new());
            drop(postponed);
        });
    }

    #[test]
    fn who_sleeps_wakes_others_first() {
        wakes(|word| {
            let postponed = DeferredWakes::new();
            wake_all(word);
            flush();
            std::mem::forget(postponed);
            // As it was.
            OWED.with(|owed| owed.depth.set(0));
        });
    }

    #[test]
    fn nobody_is_woken_before_the_outermost_is_dropped() {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let postponed = DeferredWakes::new();
            let sleeper = scope.spawn(|| futex::wait(&word, 0, Some(Duration::from_millis(50))));
            while !sleeper.is_finished() {
                wake_all(&word);
                drop(DeferredWakes::new());
                OWED.with(|owed| owed.count.set(0));
            }
            assert_eq!(sleeper.join().unwrap(), futex::Wake::Timeout);
            drop(postponed);
        });
    }

    #[test]
    fn more_than_can_be_put_off_are_done_at_once() {
        let others: Vec<AtomicU32> = (0..WAKES_MAX).map(|_| AtomicU32::new(0)).collect();
        let postponed = DeferredWakes::new();
        others.iter().for_each(wake_all);
        wakes(wake_all);
        drop(postponed);
    }
}
