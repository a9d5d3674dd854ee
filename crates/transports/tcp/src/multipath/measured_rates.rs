//! Rates of a pair's paths: those measured at another time, with which paths begin, and those found
//! now.
//!
//! Part of [`Multipath`].

use super::Multipath;
use crate::TcpTransport;
use crate::frame::StreamNumber;
use garonne_engine::api::Peer;
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
}

impl TcpTransport {
    /// From now on nothing is begun with but what this transport finds itself: for who measures. To
    /// be called before large data come.
    pub fn measure_anew(&mut self) {
        self.anew = true;
    }

    /// Returns what the sockets for large data from a peer give.
    pub fn gives(&self, peer: Peer) -> Vec<MeasuredRate> {
        let Some(Some(remote)) = self.remotes.get(peer as usize) else {
            return Vec::new();
        };
        let gives = |number: u8| {
            let stream = StreamNumber::Bulk(number);
            let (path, ends) = (remote.paths.get(number)?, self.ends(peer, stream)?);
            Some(MeasuredRate {
                ends,
                rate: path.pace.rate(),
                latency: path.pace.latency,
                brought: path.bulk.moved(),
            })
        };
        let sockets = remote
            .paths
            .numbers()
            .filter(|number| !StreamNumber::Bulk(*number).is_fabric());
        sockets.filter_map(gives).collect()
    }

    /// A way is open: it begins with what was found another time, if anything was.
    pub(crate) fn begin_tuned(&mut self, peer: Peer, path: u8, ends: (SocketAddr, SocketAddr)) {
        if self.anew || StreamNumber::Bulk(path).is_fabric() {
            return;
        }
        let Some(tuned) = self.hosts.tuned(ends.0.ip(), ends.1.ip()) else {
            return;
        };
        if let Some(Some(remote)) = self.remotes.get_mut(peer as usize)
            && remote.paths.begin_with(path, tuned, Instant::now())
        {
            self.shown
                .tuned(peer, StreamNumber::Bulk(path), tuned.0 as u32);
        }
    }
}
