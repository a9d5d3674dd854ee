//! Exponential back-off of a speculative step. A step that failed is skipped once, then three
//! times, seven times, up to a bound. A step that paid is done again each time.
//!
//! The locked engine uses a back-off in three places: for spinning on (or yielding on) after the
//! first share of a wait, for yielding before a thread parks, and for releasing ownership to the
//! progress thread. Sleeps cause sleeps: a thread that falls asleep before its woken partner can
//! answer must be woken in turn, and both then pay a wake-up with every message. Spinning on for as
//! long as two wake-ups take ends that. Where other programs want the same core it never pays.
//! Bounded by `limits`.

use crate::limits::{SPIN_ON_LIMIT, SPIN_ON_SKIPS};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Outcomes of earlier tries. Relaxed everywhere: a stale value costs one occasion.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    /// Occasions to come on which it is not made.
    skip: AtomicU32,
    /// What `skip` was set to last; 0: it paid.
    last: AtomicU32,
}

impl Backoff {
    /// When it begins; `None`: not on this occasion.
    pub(crate) fn begin(&self) -> Option<Instant> {
        let skip = self.skip.load(Ordering::Relaxed);
        if skip == 0 {
            return Some(Instant::now());
        }
        self.skip.store(skip - 1, Ordering::Relaxed);
        None
    }

    /// What was hoped for came, of a bet that began then: late news means that the core was
    /// somebody else's.
    pub(crate) fn came(&self, begun: Instant) {
        if begun.elapsed() < SPIN_ON_LIMIT {
            self.last.store(0, Ordering::Relaxed);
        } else {
            self.failed();
        }
    }

    /// Notes that the step paid this time, which does not prove that it pays: it is skipped a
    /// quarter as often as before.
    pub(crate) fn eased(&self) {
        let skip = self.last.load(Ordering::Relaxed) / 4;
        self.last.store(skip, Ordering::Relaxed);
        self.skip.store(skip, Ordering::Relaxed);
    }

    /// Nothing came of it.
    pub(crate) fn failed(&self) {
        let skip = (self.last.load(Ordering::Relaxed) * 2 + 1).min(SPIN_ON_SKIPS);
        self.last.store(skip, Ordering::Relaxed);
        self.skip.store(skip, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(backoff: &Backoff) -> u32 {
        (0..10 * SPIN_ON_SKIPS)
            .take_while(|_| backoff.begin().is_none())
            .count() as u32
    }

    #[test]
    fn each_failure_doubles_the_occasions_left_out_up_to_a_bound() {
        let backoff = Backoff::default();
        assert_eq!(skipped(&backoff), 0);
        for skips in [1, 3, 7, 15] {
            backoff.failed();
            assert_eq!(skipped(&backoff), skips);
        }
        (0..40).for_each(|_| backoff.failed());
        assert_eq!(skipped(&backoff), SPIN_ON_SKIPS);
    }

    #[test]
    fn what_pays_half_the_time_is_done_and_what_pays_a_quarter_of_it_hardly() {
        for (failures, skips) in [(1, 0), (3, SPIN_ON_SKIPS / 4)] {
            let backoff = Backoff::default();
            for _ in 0..40 {
                (0..failures).for_each(|_| backoff.failed());
                backoff.eased();
            }
            assert_eq!(skipped(&backoff), skips);
        }
    }

    #[test]
    fn a_success_forgets_the_failures_and_a_late_one_counts_as_a_failure() {
        let backoff = Backoff::default();
        (0..5).for_each(|_| backoff.failed());
        skipped(&backoff);
        backoff.came(Instant::now() + SPIN_ON_LIMIT);
        assert_eq!(skipped(&backoff), 0);
        let Some(early) = Instant::now().checked_sub(2 * SPIN_ON_LIMIT) else {
            return;
        };
        backoff.came(early);
        assert_eq!(skipped(&backoff), 1);
    }
}
