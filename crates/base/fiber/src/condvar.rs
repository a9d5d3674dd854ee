//! Conditions: waits for a change of what a mutex protects.

use crate::mutex::{MutexGuard, RawMutex};
use crate::spawn::deadline;
use crate::wait_queue::{WaitHandle, WaitQueue};
use std::time::Duration;

/// A condition. Used with one mutex at a time.
#[derive(Debug)]
pub struct Condvar(WaitQueue);

impl Condvar {
    /// A condition for which nobody waits.
    pub const fn new() -> Self {
        Self(WaitQueue::new())
    }

    /// Waits for a call of [`Condvar::notify_one`] or [`Condvar::notify_all`].
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_raw(guard.raw(), None);
        guard
    }

    /// Waits likewise, at most so long; `false`: the time is over.
    pub fn wait_for<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let notified = self.wait_raw(guard.raw(), Some(limit));
        (guard, notified)
    }

    /// Waits with a mutex that the caller holds, and holds again afterwards.
    pub fn wait_raw(&self, mutex: &RawMutex, limit: Option<Duration>) -> bool {
        let deadline = limit.map(deadline);
        let Some(waiter) = self.0.join_unless(|| false) else {
            return true;
        };
        mutex.unlock();
        let notified = self.0.wait_in(&waiter, deadline);
        mutex.lock();
        notified
    }

    /// Waits until callers that others no longer wait for have left it: before memory is freed that
    /// no borrow protects, as in C.
    pub fn await_last_use(&self) {
        self.0.await_last_use();
    }

    /// Ends the wait that began first.
    pub fn notify_one(&self) {
        if let Some(first) = self.0.take_first(|| {}, |_| {}) {
            first.wake();
        }
    }

    /// Ends all waits.
    pub fn notify_all(&self) {
        self.0.take_all(|| {}).iter().for_each(WaitHandle::wake);
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}
