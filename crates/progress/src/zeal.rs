//! Whether a waiter that has spun its share spins on for a while, or sleeps.
//!
//! Owned by the engine's host, asked by its poller when the first share of a wait is spent. A sleep breeds sleeps: who
//! falls asleep before a partner just woken can answer must be woken in turn, and then both pay for a wake-up with every
//! message. Spinning on for as long as two wake-ups take ends that. Where other programs want the same core it never pays, so
//! every failure doubles the number of waits that do without it. Bounded by `limits`.

use crate::limits::{SPIN_ON_LIMIT, SPIN_ON_SKIPS};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// What is known of spinning on. Relaxed everywhere: a stale value costs one wait.
#[derive(Debug, Default)]
pub(crate) struct Zeal {
    /// Waits to come that do not spin on.
    skip: AtomicU32,
    /// What `skip` was set to last; 0: it paid.
    last: AtomicU32,
}

impl Zeal {
    /// The start of spinning on; `None`: not in this wait.
    pub(crate) fn begin(&self) -> Option<Instant> {
        let skip = self.skip.load(Ordering::Relaxed);
        if skip == 0 {
            return Some(Instant::now());
        }
        self.skip.store(skip - 1, Ordering::Relaxed);
        None
    }

    /// Something came while spinning on since `begun`: late news means that the core was somebody else's.
    pub(crate) fn came(&self, begun: Instant) {
        if begun.elapsed() < SPIN_ON_LIMIT {
            self.last.store(0, Ordering::Relaxed);
        } else {
            self.failed();
        }
    }

    /// Nothing came: it sleeps now.
    pub(crate) fn failed(&self) {
        let skip = (self.last.load(Ordering::Relaxed) * 2 + 1).min(SPIN_ON_SKIPS);
        self.last.store(skip, Ordering::Relaxed);
        self.skip.store(skip, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(zeal: &Zeal) -> u32 {
        (0..10 * SPIN_ON_SKIPS)
            .take_while(|_| zeal.begin().is_none())
            .count() as u32
    }

    #[test]
    fn each_failure_doubles_the_waits_that_do_not_spin_on_up_to_a_bound() {
        let zeal = Zeal::default();
        assert_eq!(skipped(&zeal), 0);
        for skips in [1, 3, 7, 15] {
            zeal.failed();
            assert_eq!(skipped(&zeal), skips);
        }
        (0..40).for_each(|_| zeal.failed());
        assert_eq!(skipped(&zeal), SPIN_ON_SKIPS);
    }

    #[test]
    fn a_success_forgets_the_failures_and_a_late_one_counts_as_a_failure() {
        let zeal = Zeal::default();
        (0..5).for_each(|_| zeal.failed());
        skipped(&zeal);
        zeal.came(Instant::now() + SPIN_ON_LIMIT);
        assert_eq!(skipped(&zeal), 0);
        let Some(early) = Instant::now().checked_sub(2 * SPIN_ON_LIMIT) else {
            return;
        };
        zeal.came(early);
        assert_eq!(skipped(&zeal), 1);
    }
}
