//! How much of large data a socket takes before it leaves.
//!
//! Owned by a bulk connection. What waits there has left the caches when it leaves; but it leaves
//! without anybody's help. So a socket holds little of it only while somebody polls who would fill
//! it again at once.

use crate::connection::Connection;
use crate::sys;
use garonne_transport::limits::{TCP_BULK_UNSENT, TCP_POLLS_WITHIN, TCP_SLICE_YIELDING};
use std::time::Instant;

/// Bound on what a connection's socket takes.
///
/// Owned by a bulk connection, which makes a new one for each socket. Whoever sends calls
/// [`SendQueueLimit::begin`] before and [`SendQueueLimit::end`] after;
/// [`SendQueueLimit::nobody_polls`] says that nobody may come back soon.
#[derive(Debug, Default)]
pub(super) struct SendQueueLimit {
    /// When sending ended last.
    ended: Option<Instant>,
    /// Bytes that the socket takes; `None`: as much as there is room for.
    bound: Option<usize>,
}

impl SendQueueLimit {
    /// Sending begins, of about `most` bytes.
    pub(super) fn begin(&mut self, channel: &Connection, most: usize, now: Instant) {
        let bound = match self.polls(now) {
            // What leaves from the socket by itself stands in the way of others, too.
            _ if most <= TCP_SLICE_YIELDING => Some(TCP_SLICE_YIELDING),
            true => Some(TCP_BULK_UNSENT),
            false => None,
        };
        if bound != self.bound {
            sys::bound_unsent(channel.fd(), bound);
            self.bound = bound;
        }
    }

    /// Returns whether the sender has just polled.
    fn polls(&self, now: Instant) -> bool {
        let within = |ended: Instant| now.saturating_duration_since(ended) < TCP_POLLS_WITHIN;
        self.ended.is_some_and(within)
    }

    /// Sending has ended.
    pub(super) fn end(&mut self, now: Instant) {
        self.ended = Some(now);
    }

    /// Notes that the next sender may not come back soon.
    pub(super) fn nobody_polls(&mut self) {
        self.ended = None;
    }

    /// Returns whether the socket takes less than it has room for.
    pub(super) fn is_bounded(&self) -> bool {
        self.bound.is_some()
    }
}
