//! How much of large data a socket takes before it leaves.
//!
//! Part of [`BulkConnection`]. What waits there has left the caches when it leaves; but it leaves
//! without anybody's help. So a socket holds little of it only while somebody polls who would fill
//! it again at once.

use super::BulkConnection;
use crate::connection::Connection;
use crate::packet_stream::SendResult;
use crate::sys;
use garonne_transport::limits::{TCP_BULK_UNSENT, TCP_POLLS_WITHIN, TCP_SLICE_YIELDING};
use std::time::Instant;

/// Bound on what a connection's socket takes.
#[derive(Debug, Default)]
pub(super) struct SendQueueLimit {
    /// When sending ended last.
    ended: Option<Instant>,
    /// Bytes that the socket takes; `None`: as much as there is room for.
    bound: Option<usize>,
}

impl SendQueueLimit {
    fn begin(&mut self, channel: &Connection, most: usize, now: Instant) {
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
}

impl BulkConnection {
    /// Notes that the next sender may not come back soon.
    pub(crate) fn nobody_polls(&mut self) {
        self.unsent.ended = None;
    }

    /// Notes that the sender is about to poll no more. Returns whether its socket is to be filled,
    /// since it holds little for somebody who polls.
    pub(crate) fn is_left(&mut self) -> bool {
        self.nobody_polls();
        self.holds_little() && self.is_serving()
    }

    /// The socket takes less than it has room for.
    pub(crate) fn holds_little(&self) -> bool {
        self.unsent.bound.is_some()
    }

    /// Sends what waits, as far as the socket takes it, and about `most` bytes.
    pub(crate) fn flush(&mut self, most: usize) -> SendResult {
        let Some(channel) = &self.channel else {
            return SendResult::All;
        };
        if !self.is_serving() {
            return self.send(most);
        }
        self.unsent.begin(channel, most, Instant::now());
        let sent = self.send(most);
        self.unsent.ended = Some(Instant::now());
        sent
    }
}
