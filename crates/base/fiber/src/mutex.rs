//! Mutexes that suspend the fiber that waits. Who waits gets them in the order of coming.

mod sys;

pub use sys::{Mutex, MutexGuard};

use crate::wait_queue::WaitQueue;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Nobody holds it.
const FREE: u32 = 0;
/// Somebody holds it, and nobody waits.
const HELD: u32 = 1;
/// Somebody holds it, and others wait.
const CONTENDED: u32 = 2;

/// A mutex without a value. Whoever unlocks it need not be the one who locked it.
///
/// One that is unlocked while others wait goes to the first of them at once.
#[derive(Debug)]
pub struct RawMutex {
    state: AtomicU32,
    waiters: WaitQueue,
}

impl RawMutex {
    /// A mutex that nobody holds.
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            waiters: WaitQueue::new(),
        }
    }

    /// Takes it if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.state
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes it.
    #[inline]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.lock_contended(None);
        }
    }

    /// Takes it, unless that takes longer than `limit`.
    pub fn lock_for(&self, limit: Duration) -> bool {
        self.try_lock() || self.lock_contended(Some(crate::spawn::deadline(limit)))
    }

    fn lock_contended(&self, deadline: Option<u64>) -> bool {
        // Under the queue's lock: an unlock comes before the mark, or finds the waiter.
        let taken = || self.state.swap(CONTENDED, Ordering::Acquire) == FREE;
        match self.waiters.join_unless(taken) {
            Some(waiter) => self.waiters.wait_in(&waiter, deadline),
            None => true,
        }
    }

    /// Waits until callers that others no longer wait for have left it: before memory is freed that
    /// no borrow protects, as in C.
    pub fn await_last_use(&self) {
        self.waiters.await_last_use();
    }

    /// Releases it.
    #[inline]
    pub fn unlock(&self) {
        let released =
            self.state
                .compare_exchange(HELD, FREE, Ordering::Release, Ordering::Relaxed);
        if released.is_err() {
            self.unlock_contended();
        }
    }

    fn unlock_contended(&self) {
        let next = self.waiters.take_first(
            || self.state.store(FREE, Ordering::Release),
            |others| {
                if !others {
                    self.state.store(HELD, Ordering::Relaxed);
                }
            },
        );
        if let Some(next) = next {
            next.wake();
        }
    }
}

impl Default for RawMutex {
    fn default() -> Self {
        Self::new()
    }
}
