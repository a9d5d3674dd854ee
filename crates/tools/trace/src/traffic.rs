//! How many messages went from which rank to which, and how many bytes: a sum over what was seen.
//!
//! Counted where messages are received, so each once. Bounded by [`PAIRS_MAX`] pairs; what others
//! sent is counted together.

use std::collections::HashMap;

use crate::event::{EventKind, TraceEvent};

/// Pairs of ranks that are told apart.
pub const PAIRS_MAX: usize = 1 << 16;

/// Messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficSum {
    /// How many.
    pub messages: u64,
    /// Bytes of all.
    pub bytes: u64,
}

impl TrafficSum {
    fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Matrix of messages and bytes by sender and receiver.
#[derive(Clone, Debug, Default)]
pub struct TrafficMatrix {
    pairs: HashMap<(u32, u32), TrafficSum>,
    others: TrafficSum,
}

impl TrafficMatrix {
    /// Counts what was seen, if it is the end of a receive. A rank's messages to itself are no
    /// traffic.
    pub fn see(&mut self, seen: &TraceEvent) {
        let EventKind::Done {
            message: Some(message),
            bytes,
            ..
        } = &seen.kind
        else {
            return;
        };
        if message.to != seen.rank || message.from == message.to {
            return;
        }
        let pair = (message.from, message.to);
        match self.pairs.len() < PAIRS_MAX || self.pairs.contains_key(&pair) {
            true => self.pairs.entry(pair).or_default().add(*bytes),
            false => self.others.add(*bytes),
        }
    }

    /// Pairs of sender and receiver, those with most bytes first.
    pub fn busiest(&self) -> Vec<((u32, u32), TrafficSum)> {
        let mut all: Vec<_> = self
            .pairs
            .iter()
            .map(|(pair, load)| (*pair, *load))
            .collect();
        all.sort_unstable_by_key(|(pair, load)| {
            (u64::MAX - load.bytes, u64::MAX - load.messages, *pair)
        });
        all
    }

    /// Returns the sum over pairs that are not counted apart.
    pub fn others(&self) -> TrafficSum {
        self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::MessageId;

    fn done(rank: u32, from: u32, to: u32, bytes: u64) -> TraceEvent {
        let message = MessageId {
            context: 0,
            from,
            to,
            sequence: 0,
        };
        TraceEvent {
            rank,
            thread: 0,
            cpu: 0,
            at_ns: 0,
            kind: EventKind::Done {
                operation: 0,
                message: Some(message),
                bytes,
            },
        }
    }

    #[test]
    fn messages_are_counted_once_where_they_are_received() {
        let mut traffic = TrafficMatrix::default();
        // The send, the receive, another receive, and a message of a rank to itself.
        for seen in [
            done(0, 0, 1, 8),
            done(1, 0, 1, 8),
            done(1, 0, 1, 4),
            done(2, 1, 2, 100),
            done(3, 3, 3, 7),
        ] {
            traffic.see(&seen);
        }
        let load = |messages, bytes| TrafficSum { messages, bytes };
        assert_eq!(
            traffic.busiest(),
            [((1, 2), load(1, 100)), ((0, 1), load(2, 12))]
        );
    }

    #[test]
    fn pairs_beyond_those_that_are_told_apart_are_counted_together() {
        let mut traffic = TrafficMatrix::default();
        for from in 0..PAIRS_MAX as u32 + 3 {
            traffic.see(&done(u32::MAX, from, u32::MAX, 2));
        }
        traffic.see(&done(u32::MAX, 0, u32::MAX, 2));
        assert_eq!(
            (traffic.busiest().len(), traffic.others().bytes),
            (PAIRS_MAX, 6)
        );
        assert_eq!(
            traffic
                .busiest()
                .first()
                .map(|(pair, load)| (pair.0, load.messages)),
            Some((0, 2))
        );
    }
}
