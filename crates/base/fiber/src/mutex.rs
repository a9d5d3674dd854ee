//! Mutexes that suspend the fiber that waits. Who waits gets them in the order of coming.

mod sys;

pub use sys::{Mutex, MutexGuard};

use crate::mutex_word::MutexWord;
use crate::wait_queue::WaitQueue;
use std::time::Duration;

/// A mutex without a value. Whoever unlocks it need not be the one who locked it.
///
/// One that is unlocked while others wait goes to the first of them at once.
#[derive(Debug)]
pub struct RawMutex {
    word: MutexWord,
    waiters: WaitQueue,
}

impl RawMutex {
    /// A mutex that nobody holds.
    pub const fn new() -> Self {
        Self {
            word: MutexWord::new(),
            waiters: WaitQueue::new(),
        }
    }

    /// Takes it if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.word.try_lock()
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
        match self.waiters.join_unless(|| self.word.take_or_mark()) {
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
        if !self.word.try_unlock() {
            self.unlock_contended();
        }
    }

    fn unlock_contended(&self) {
        let next = self
            .waiters
            .take_first(|| self.word.free(), |others| self.word.hand_over(others));
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
