//! An event that comes once, and whoever waits for it.

use crate::wait_queue::WaitQueue;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Comes once; then all waits end, also later ones. Setting it neither waits nor allocates.
#[derive(Debug)]
pub struct Completion {
    has_come: AtomicBool,
    waiters: WaitQueue,
}

impl Completion {
    /// An event that has not come.
    pub const fn new() -> Self {
        Self {
            has_come: AtomicBool::new(false),
            waiters: WaitQueue::new(),
        }
    }

    /// The event comes.
    pub fn set(&self) {
        self.waiters.close(&self.has_come);
    }

    /// Tells whether it has come.
    pub fn is_set(&self) -> bool {
        self.has_come.load(Ordering::Acquire)
    }

    /// Waits for it.
    pub fn wait(&self) {
        self.waiters.wait_for(&self.has_come, None);
    }

    /// Waits for it, at most so long; `false`: it has not come.
    pub fn wait_for(&self, limit: Duration) -> bool {
        let deadline = crate::spawn::deadline(limit);
        self.waiters.wait_for(&self.has_come, Some(deadline))
    }
}

impl Default for Completion {
    fn default() -> Self {
        Self::new()
    }
}
