//! Rates of a pair's paths: those measured at another time, with which paths begin, and those found
//! now.
//!
//! Part of [`Multipath`].

use super::Multipath;
use std::net::SocketAddr;
use std::time::Instant;

/// Rate of a way for large data from a peer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredRate {
    /// The own and the peer's end.
    pub ends: (SocketAddr, SocketAddr),
    /// Bytes in a microsecond; `None`: not known, as where there is no other way to compare with.
    pub rate: Option<f64>,
    /// Microseconds until something that is asked for begins to come.
    pub latency: f64,
    /// Bytes that it has brought.
    pub brought: u64,
}

impl Multipath {
    /// Starts a path with a measured rate.
    pub(crate) fn begin_with(&mut self, path: u8, tuned: (f64, f64), now: Instant) -> bool {
        self.at(path).pace.begin_with(tuned, now)
    }

    /// Returns what a path gives whose connection has these ends.
    pub(crate) fn measured(
        &self,
        path: u8,
        ends: (SocketAddr, SocketAddr),
    ) -> Option<MeasuredRate> {
        let path = self.get(path)?;
        Some(MeasuredRate {
            ends,
            rate: path.pace.rate(),
            latency: path.pace.latency,
            brought: path.bulk.moved(),
        })
    }
}
