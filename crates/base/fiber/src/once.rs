//! What is done once, whoever comes first.

use crate::mutex::RawMutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs a function once. The others wait for its end; if it panics the next one runs it.
#[derive(Debug, Default)]
pub struct Once {
    done: AtomicBool,
    running: RawMutex,
}

impl Once {
    /// Nothing was done yet.
    pub const fn new() -> Self {
        Self {
            done: AtomicBool::new(false),
            running: RawMutex::new(),
        }
    }

    /// Tells whether it is done.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Runs `body` unless it was run.
    pub fn call(&self, body: impl FnOnce()) {
        if self.is_done() {
            return;
        }
        self.running.lock();
        let unlock = UnlockAtEnd(&self.running);
        if !self.is_done() {
            body();
            self.done.store(true, Ordering::Release);
        }
        drop(unlock);
    }
}

struct UnlockAtEnd<'a>(&'a RawMutex);

impl Drop for UnlockAtEnd<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}
