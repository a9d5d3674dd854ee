//! A thread of the library, from its start to its end. Whoever tells it to end waits for that for a
//! bounded time only, because its current work may take long.

use crate::facade::{AtomicU32, Mutex, Ordering, lock};
use crate::limits::STACK;
use crate::sys::{self, ThreadHandle, ThreadMain};
use crate::tasks::spawn_ordinary;
use garonne_sync::futex;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// A thread of the library, one at a time. Order of calls: `start`; then `end` by the owner, or
/// `retires` by the thread itself.
#[derive(Debug, Default)]
pub(crate) struct LibraryThread {
    started: Mutex<Option<ThreadHandle>>,
    /// Not zero: it works no more.
    left: AtomicU32,
}

impl LibraryThread {
    /// Starts it.
    pub(crate) fn start<W: ThreadMain>(&self, work: &Arc<W>) -> io::Result<()> {
        self.left.store(0, Ordering::Relaxed);
        // Held until it is known which thread it is: one that retires at once waits for that.
        let mut started = lock(&self.started);
        let work = work.clone();
        *started = Some(spawn_ordinary(move || sys::start(&work, STACK))?);
        Ok(())
    }

    /// The thread leaves by itself: nobody is going to wait for it, and another may be started at
    /// once.
    pub(crate) fn retires(&self) {
        if let Some(started) = lock(&self.started).take() {
            started.detach();
        }
    }

    /// The last that a thread does which was told to leave.
    pub(crate) fn leaves(&self) {
        // Release: SYNC(own-left).
        self.left.store(1, Ordering::Release);
        futex::wake(&self.left, u32::MAX);
    }

    /// Waits until `deadline` for the thread, which was told to leave.
    pub(crate) fn end(&self, deadline: Instant) {
        let Some(started) = lock(&self.started).take() else {
            return;
        };
        // What it does may be the one that ends everything.
        while !started.is_me() && self.left.load(Ordering::Acquire) == 0 {
            let Some(limit) = deadline.checked_duration_since(Instant::now()) else {
                break;
            };
            futex::wait(&self.left, 0, Some(limit));
        }
        // Acquire: its work is done. SYNC(own-left).
        match self.left.load(Ordering::Acquire) {
            0 => started.detach(),
            _ => started.join(),
        }
    }
}
