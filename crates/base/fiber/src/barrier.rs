//! Barriers: so many wait until all have come, again and again.

use crate::wait_queue::{WaitHandle, WaitQueue};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A barrier of a fixed number of participants.
#[derive(Debug)]
pub struct Barrier {
    participants: usize,
    /// Changed under the queue's lock.
    come: AtomicUsize,
    waiters: WaitQueue,
}

impl Barrier {
    /// A barrier of so many participants; one at least.
    pub const fn new(participants: usize) -> Self {
        Self {
            participants: if participants == 0 { 1 } else { participants },
            come: AtomicUsize::new(0),
            waiters: WaitQueue::new(),
        }
    }

    /// Waits until callers that others no longer wait for have left it: before memory is freed that
    /// no borrow protects, as in C.
    pub fn await_last_use(&self) {
        self.waiters.await_last_use();
    }

    /// Waits for the others. `true` for the one that came last.
    pub fn wait(&self) -> bool {
        let mut others = Default::default();
        let is_last = || {
            let come = self.come.load(Ordering::Relaxed) + 1;
            self.come.store(come % self.participants, Ordering::Relaxed);
            come == self.participants
        };
        match self.waiters.join_unless_taking(is_last, &mut others) {
            Some(waiter) => waiter.wait(),
            None => {
                others.iter().for_each(WaitHandle::wake);
                return true;
            }
        }
        false
    }
}
