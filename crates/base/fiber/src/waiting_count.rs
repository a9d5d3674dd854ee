//! How many wait at the addresses of a bucket: the word by which whoever changes memory looks for
//! waiters without a lock.
//!
//! A waiter counts itself, then looks at the memory. Whoever changes the memory looks at the count
//! afterwards. So one of the two sees what the other did.

use crate::facade::{AtomicU32, Ordering, fence};

/// See the module's paragraph.
#[derive(Debug)]
pub(crate) struct WaitingCount(AtomicU32);

impl WaitingCount {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The caller is about to look whether it must wait.
    pub(crate) fn enter(&self) {
        // SYNC(parking-lot): before the look at the memory; pairs with the fence in `is_zero`.
        self.0.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Removes waits that have ended.
    pub(crate) fn leave(&self, count: u32) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    /// Tells whether nobody waits. The caller has changed the memory before.
    #[inline]
    pub(crate) fn is_zero(&self) -> bool {
        // SYNC(parking-lot): after the change of the memory, before the look for waiters.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) == 0
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;

    /// A waiter that finds the memory unchanged is seen by whoever changes it.
    #[test]
    fn a_change_is_seen_by_the_waiter_or_finds_it() {
        loom::model(|| {
            let shared = Arc::new((WaitingCount::new(), AtomicU32::new(0)));
            let other = shared.clone();
            let waiter = loom::thread::spawn(move || {
                other.0.enter();
                let must_wait = other.1.load(Ordering::Relaxed) == 0;
                if !must_wait {
                    other.0.leave(1);
                }
                must_wait
            });
            shared.1.store(1, Ordering::Relaxed);
            let looks_for_waiters = !shared.0.is_zero();
            let waits = waiter.join().unwrap();
            assert!(!waits || looks_for_waiters, "a wake-up would be lost");
        });
    }
}
