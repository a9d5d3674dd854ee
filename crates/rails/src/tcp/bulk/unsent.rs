//! How much of large data a socket takes before it leaves.
//!
//! Part of [`Bulk`]. What waits there has left the caches when it leaves; but it leaves without anybody's help. So a socket holds little of it only while somebody polls who would fill it again
//! at once.

use super::Bulk;
use crate::limits::{TCP_BULK_UNSENT, TCP_POLLS_WITHIN};
use crate::sys;
use crate::tcp::channel::Channel;
use crate::tcp::link::Sent;
use std::time::Instant;

/// What a connection's socket takes.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    /// When sending ended last.
    ended: Option<Instant>,
    /// The socket takes little.
    bounded: bool,
}

impl Unsent {
    fn begin(&mut self, channel: &Channel, now: Instant) {
        let polls = self.polls(now);
        if polls != self.bounded {
            sys::bound_unsent(channel.fd(), polls.then_some(TCP_BULK_UNSENT));
            self.bounded = polls;
        }
    }

    /// Whoever sends now has just done so.
    fn polls(&self, now: Instant) -> bool {
        let within = |ended: Instant| now.saturating_duration_since(ended) < TCP_POLLS_WITHIN;
        self.ended.is_some_and(within)
    }
}

impl Bulk {
    /// Sends what waits, as far as the socket takes it, and about `most` bytes.
    pub(crate) fn flush(&mut self, most: usize) -> Sent {
        let Some(channel) = &self.channel else {
            return Sent::All;
        };
        if !self.is_serving() {
            return self.send(most);
        }
        self.unsent.begin(channel, Instant::now());
        let sent = self.send(most);
        self.unsent.ended = Some(Instant::now());
        sent
    }
}
