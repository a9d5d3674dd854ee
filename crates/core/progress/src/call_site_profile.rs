//! A profile per call site: does the program compute between a call that leaves an operation open
//! and the wait for that operation?
//!
//! The locked engine owns the profile. To release ownership costs some hundred nanoseconds here,
//! and a wake-up at peers for each answer. A program that waits at once gains nothing. So a call
//! site that left something open [`SHORT_RELEASES`] times in a row for a short time only is skipped
//! until a longer time is seen. The time is measured whether ownership was released or not.
//! Bounded: a table of sites. Two sites that share an entry evict each other, so that none is
//! judged by the other's behaviour.

use crate::limits::SHORT_RELEASES;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Entries: each is a bit of a word.
const SITES: usize = 32;

/// The site of what a wait for something else left open.
pub(crate) const REOPENED_SITE: u64 = u64::MAX;

/// A moment, and what is judged at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProfileTime {
    /// Since any fixed point.
    pub at: Duration,
    /// Being away for less is not worth hands.
    pub worth: Duration,
}

/// The profile of call sites. Relaxed everywhere: a stale value costs one needless or missed
/// release.
#[derive(Debug, Default)]
pub(crate) struct CallSiteProfile {
    /// Whose each entry is.
    sites: [AtomicU64; SITES],
    /// Times in a row that each left something open for a moment only.
    shorts: [AtomicU8; SITES],
    /// Entries that left something open since the last wait, as bits.
    away: AtomicU32,
    /// When the last of them did, in nanoseconds.
    since: AtomicU64,
}

fn entry(site: u64) -> usize {
    if site == REOPENED_SITE {
        // Every wait may take this one.
        return SITES - 1;
    }
    // Fibonacci hashing.
    (site.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % (SITES - 1)
}

impl CallSiteProfile {
    /// A call leaves something open. `nothing_left`: of what was left open before nothing is, and
    /// nobody had to wait for it. Whether hands are worth lending.
    pub(crate) fn leave(&self, site: u64, now: ProfileTime, all_over: bool) -> bool {
        if all_over {
            self.back(now);
        }
        let entry = entry(site);
        if self.sites[entry].swap(site, Ordering::Relaxed) != site {
            self.shorts[entry].store(0, Ordering::Relaxed);
        }
        self.away.fetch_or(1 << entry, Ordering::Relaxed);
        self.go(now);
        self.shorts[entry].load(Ordering::Relaxed) < SHORT_RELEASES
    }

    /// The call returns to the program now: what it did itself is no computing.
    pub(crate) fn go(&self, now: ProfileTime) {
        self.since
            .store(now.at.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Returns whether something was left open since the last wait.
    #[inline]
    pub(crate) fn is_program_away(&self) -> bool {
        self.away.load(Ordering::Relaxed) != 0
    }

    /// The program waits for something.
    pub(crate) fn back(&self, now: ProfileTime) {
        let sites = self.away.swap(0, Ordering::Relaxed);
        let since = Duration::from_nanos(self.since.load(Ordering::Relaxed));
        let long = now.at.saturating_sub(since) >= now.worth;
        let mut left = sites;
        while left != 0 {
            let shorts = &self.shorts[left.trailing_zeros() as usize];
            let count = shorts.load(Ordering::Relaxed);
            let count = if long { 0 } else { count.saturating_add(1) };
            shorts.store(count, Ordering::Relaxed);
            left &= left - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASE_WORTH: Duration = Duration::from_micros(50);

    fn at(nanos: u128) -> ProfileTime {
        ProfileTime {
            at: Duration::from_nanos(nanos as u64),
            worth: RELEASE_WORTH,
        }
    }

    #[test]
    fn a_site_that_waits_at_once_is_not_released_until_it_computes_once() {
        let profile = CallSiteProfile::default();
        let (long, mut now) = (RELEASE_WORTH.as_nanos(), 0);
        let mut turn = |gap| {
            let lent = profile.leave(7, at(now), false);
            assert!(profile.is_program_away());
            profile.back(at(now + gap));
            now += 2 * gap;
            lent
        };
        for _ in 0..SHORT_RELEASES {
            assert!(turn(long / 10), "unknown sites are");
        }
        assert!(!turn(long / 10) && !turn(long));
        assert!(turn(long) && turn(long / 10));
        assert!(!profile.is_program_away());
    }

    #[test]
    fn a_site_is_not_judged_by_what_others_of_its_entry_do() {
        let profile = CallSiteProfile::default();
        let other = (8..).find(|&site| entry(site) == entry(7)).unwrap();
        assert!((0..10_000).all(|site| entry(site) != entry(REOPENED_SITE)));
        for _ in 0..2 * SHORT_RELEASES {
            assert!(profile.leave(7, at(0), false));
            for _ in 0..SHORT_RELEASES {
                profile.leave(other, at(0), false);
                profile.leave(REOPENED_SITE, at(0), false);
                profile.back(at(1));
            }
            assert!(
                !profile.leave(other, at(0), false) && !profile.leave(REOPENED_SITE, at(0), false)
            );
        }
    }

    #[test]
    fn what_ended_without_a_wait_is_learned_from_at_the_next_call() {
        let profile = CallSiteProfile::default();
        for call in 0..u128::from(SHORT_RELEASES) {
            assert!(profile.leave(7, at(call), true));
        }
        profile.leave(7, at(10), true);
        assert!(!profile.leave(7, at(11), true));
        assert!(profile.leave(7, at(11 + RELEASE_WORTH.as_nanos()), true));
    }

    #[test]
    fn several_open_at_a_time_are_judged_by_the_time_after_the_last() {
        let profile = CallSiteProfile::default();
        for _ in 0..SHORT_RELEASES {
            profile.leave(1, at(0), false);
            profile.leave(2, at(RELEASE_WORTH.as_nanos()), false);
            profile.back(at(RELEASE_WORTH.as_nanos() + 1));
        }
        assert!(!profile.leave(1, at(0), false) && !profile.leave(2, at(0), false));
        assert!(profile.leave(3, at(0), false), "others are not");
    }
}
