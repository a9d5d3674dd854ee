//! Clocks of schedulers: the machine's, or a virtual one that a simulation moves on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A clock that shows ns.
#[derive(Debug)]
pub(crate) enum Clock {
    /// Time since an instant.
    Real(Instant),
    /// Stands still until it is moved on.
    Virtual(AtomicU64),
}

impl Clock {
    pub(crate) fn now(&self) -> u64 {
        match self {
            Self::Real(start) => start.elapsed().as_nanos() as u64,
            Self::Virtual(time) => time.load(Ordering::Relaxed),
        }
    }

    /// Moves a virtual clock on to `time`.
    pub(crate) fn advance(&self, time: u64) {
        if let Self::Virtual(now) = self {
            now.fetch_max(time, Ordering::Relaxed);
        }
    }
}
