//! The rate of a path for large data, estimated from what it has moved so far.
//!
//! Owned by the path. Time is an argument.

use garonne_transport::limits::{
    TCP_KNOWN_RATE_WEIGHT, TCP_RATE_MEMORY, TCP_SLOW_AGAIN, TCP_SLOW_COST, TCP_SLOW_PATH,
};
use std::time::{Duration, Instant};

/// Bytes that a connection has moved, and how fast.
#[derive(Debug, Default)]
pub(crate) struct PathRate {
    /// Bytes that came lately, and microseconds that this took while something was asked for.
    pub(crate) bytes: f64,
    pub(crate) took: f64,
    /// Microseconds from a request on an idle connection to its first byte.
    pub(crate) latency: f64,
    /// Since when something is asked for, and what had been moved then.
    pub(crate) since: Option<(Instant, u64)>,
    /// When a piece came last, and how long it took.
    pub(crate) last: Option<(Instant, Duration)>,
    /// Answers heard by the way when silence was last looked for, and how many looks in a
    /// row have found the same.
    pub(crate) heard: u64,
    pub(crate) silent_looks: u32,
    /// True if the way brings nothing while others do.
    pub(crate) stalls: bool,
    /// True if the way is on a disabled network.
    pub(crate) drained: bool,
    /// True if the rate is what the way was seen to move, not only what was found another time.
    pub(crate) found: bool,
    /// Part that the way should give, of what the best gives; `None`: the same.
    pub(crate) share: Option<f64>,
}

impl PathRate {
    /// Begins with the bytes that the way moves in a microsecond, and how long it takes to begin,
    /// as they were found another time. `false`: it is known better.
    pub(crate) fn begin_with(&mut self, (rate, latency): (f64, f64), now: Instant) -> bool {
        if self.rate().is_some() {
            return false;
        }
        (self.bytes, self.took) = (rate * TCP_KNOWN_RATE_WEIGHT, TCP_KNOWN_RATE_WEIGHT);
        self.latency = latency;
        // Doubted after a while, as what it brought itself.
        self.last = Some((now, Duration::ZERO));
        true
    }

    /// Something is asked for.
    pub(crate) fn asks(&mut self, now: Instant, moved: u64) {
        self.since.get_or_insert((now, moved));
    }

    /// A piece came; `more`: others are asked for.
    pub(crate) fn came(&mut self, now: Instant, moved: u64, more: bool) {
        self.stalls = false;
        let Some((since, before)) = self.since else {
            return;
        };
        self.last = Some((now, now - since));
        self.found = true;
        let (took, bytes) = ((now - since).as_secs_f64() * 1e6, (moved - before) as f64);
        self.since = more.then_some((now, moved));
        // By time, not by pieces: what a queue on the way lets through at once in the beginning
        // says little of what it lets through in the long run.
        let kept = (-took / TCP_RATE_MEMORY).exp();
        self.bytes = self.bytes * kept + bytes;
        self.took = self.took * kept + took;
    }

    /// Forgets how fast it was if it is asked for nothing for being so much slower than the
    /// fastest, and that was found out some time ago: it may have been a bad moment, and only
    /// another piece can tell.
    pub(crate) fn forget_bad_moment(&mut self, now: Instant, fastest: f64) {
        let is_slow = self
            .rate()
            .is_some_and(|rate| rate < fastest * TCP_SLOW_PATH);
        let due = |(last, took): (Instant, Duration)| {
            now > last + TCP_SLOW_AGAIN.max(took * TCP_SLOW_COST)
        };
        if self.since.is_none() && is_slow && self.last.is_some_and(due) {
            (self.bytes, self.took, self.found) = (0.0, 0.0, false);
        }
    }

    /// Bytes per microsecond; `None`: not known.
    pub(crate) fn rate(&self) -> Option<f64> {
        (self.took > 0.0 && self.bytes > 0.0).then(|| self.bytes / self.took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_another_time_is_believed_until_the_way_brings_something() {
        let (mut pace, begun) = (PathRate::default(), Instant::now());
        assert!(pace.begin_with((500.0, 30.0), begun));
        assert_eq!((pace.rate(), pace.latency), (Some(500.0), 30.0));
        assert!(!pace.found);
        pace.asks(begun, 0);
        // A hundred bytes in a microsecond, for ten and a hundred milliseconds.
        pace.came(begun + Duration::from_millis(10), 1_000_000, true);
        assert!(pace.found && pace.rate().is_some_and(|rate| rate < 250.0));
        pace.came(begun + Duration::from_millis(110), 11_000_000, false);
        assert!(pace.rate().is_some_and(|rate| rate < 110.0));
        assert!(!pace.begin_with((500.0, 30.0), begun), "it is known better");
        // One that is said to be slow is tried all the same.
        let mut slow = PathRate::default();
        slow.begin_with((1.0, 30.0), begun);
        slow.forget_bad_moment(begun + 2 * TCP_SLOW_AGAIN, 1000.0);
        assert_eq!(slow.rate(), None);
    }

    #[test]
    fn a_way_that_was_slow_once_is_tried_again_after_a_while_and_seldom_if_that_took_long() {
        let begun = Instant::now();
        let after = |seconds: f64| begun + Duration::from_secs_f64(seconds);
        let found = |took: f64| {
            let mut pace = PathRate::default();
            pace.asks(begun, 0);
            pace.came(after(took), 65_536, false);
            pace
        };
        // A megabyte a second, where another way moves a gigabyte.
        let mut pace = found(0.0625);
        for (now, known) in [(1.0, true), (3.0, true), (3.3, false)] {
            pace.forget_bad_moment(after(now), 1000.0);
            assert_eq!(pace.rate().is_some(), known, "after {now} s");
        }
        // Half as fast as the other: it takes its share, and is known from that.
        let mut pace = found(0.0625);
        pace.forget_bad_moment(after(60.0), 2.0);
        assert!(pace.rate().is_some());
        // Something is under way: that will tell.
        let mut pace = found(0.0625);
        pace.asks(after(1.0), 65_536);
        pace.forget_bad_moment(after(60.0), 1000.0);
        assert!(pace.rate().is_some());
    }
}
