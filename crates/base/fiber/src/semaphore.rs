//! Counting semaphores.

use crate::spawn::deadline;
use crate::wait_queue::WaitQueue;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A semaphore. Units go to whoever waits, in the order of coming.
#[derive(Debug)]
pub struct Semaphore {
    units: AtomicU32,
    waiters: WaitQueue,
}

impl Semaphore {
    /// A semaphore with so many units.
    pub const fn new(units: u32) -> Self {
        Self {
            units: AtomicU32::new(units),
            waiters: WaitQueue::new(),
        }
    }

    /// Takes a unit if there is one.
    pub fn try_wait(&self) -> bool {
        let less = |units: u32| units.checked_sub(1);
        self.units
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, less)
            .is_ok()
    }

    /// Takes a unit.
    pub fn wait(&self) {
        self.wait_until(None);
    }

    /// Takes a unit, unless that takes longer than `limit`.
    pub fn wait_for(&self, limit: Duration) -> bool {
        self.wait_until(Some(deadline(limit)))
    }

    fn wait_until(&self, deadline: Option<u64>) -> bool {
        if self.try_wait() {
            return true;
        }
        match self.waiters.join_unless(|| self.try_wait()) {
            Some(waiter) => self.waiters.wait_in(&waiter, deadline),
            None => true,
        }
    }

    /// Adds a unit. `false`: there are as many as a semaphore can count.
    pub fn post(&self) -> bool {
        let mut added = true;
        let more = || {
            let more = |units: u32| {
                units
                    .checked_add(1)
                    .filter(|units| *units <= i32::MAX as u32)
            };
            added = self
                .units
                .fetch_update(Ordering::Release, Ordering::Relaxed, more)
                .is_ok();
        };
        if let Some(first) = self.waiters.take_first(more, |_| {}) {
            first.wake();
        }
        added
    }

    /// Waits until callers that others no longer wait for have left it: before memory is freed that
    /// no borrow protects, as in C.
    pub fn await_last_use(&self) {
        self.waiters.await_last_use();
    }

    /// Units that nobody has taken.
    pub fn value(&self) -> u32 {
        self.units.load(Ordering::Relaxed)
    }
}
