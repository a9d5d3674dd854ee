//! Whether small messages come and go, so that large data must leave them their turn.
//!
//! Owned by the transport. Told of each packet; asked by whatever moves large data, how much of
//! them it may move at a time. Only what moves large data reads the clock.

use garonne_engine::transport::{PacketHeader, PacketKind};
use garonne_transport::limits::{
    TCP_LATENCY_PRIORITY_FOR, TCP_SLICE, TCP_SLICE_ALONE, TCP_SLICE_YIELDING,
};
use std::time::Instant;

/// True while small messages come and go, so that bulk data must leave them their turn often. Only
/// what moves bulk data reads the clock.
#[derive(Debug, Default)]
pub(crate) struct LatencyPriority {
    /// One was sent or came since bulk data moved last.
    fresh: bool,
    /// When the last of them was first heard of.
    since: Option<Instant>,
    /// Some of the bulk data are to stand in nobody's way.
    yields: bool,
}

impl LatencyPriority {
    /// A packet was sent or came.
    #[inline]
    pub(crate) fn small(&mut self, header: &PacketHeader) {
        self.fresh |= header.kind == PacketKind::Eager as u8;
    }

    /// From now on some of the bulk data are to stand in nobody's way, or none.
    pub(crate) fn yields(&mut self, yields: bool) {
        self.yields = yields;
    }

    /// Returns whether small messages that came are told of before bulk data move, if those that
    /// came last, from the same peer, were not. So where some come in every poll, bulk data are
    /// taken in every other, from each peer, whatever moves to it and others.
    #[inline]
    pub(crate) fn goes_first(&self, went_first: &mut bool) -> bool {
        (self.fresh || self.since.is_some()) && !std::mem::replace(went_first, true)
    }

    /// Bytes of the next slice of bulk data.
    pub(crate) fn slice(&mut self, now: impl FnOnce() -> Instant) -> usize {
        if self.fresh || self.since.is_some() {
            let now = now();
            let since = self.since.filter(|_| !self.fresh).unwrap_or(now);
            self.since = (now < since + TCP_LATENCY_PRIORITY_FOR).then_some(since);
            self.fresh = false;
        }
        match self.since {
            Some(_) if self.yields => TCP_SLICE_YIELDING,
            Some(_) => TCP_SLICE,
            None => TCP_SLICE_ALONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_are_told_of_before_bulk_data_move_but_not_twice_without_any() {
        let (mut priority, mut went_first) = (LatencyPriority::default(), false);
        assert!(!priority.goes_first(&mut went_first), "nothing small came");
        priority.small(&PacketHeader {
            kind: PacketKind::Eager as u8,
            ..PacketHeader::default()
        });
        assert!(priority.goes_first(&mut went_first));
        // What moves meanwhile may be another's, or go the other way.
        priority.slice(Instant::now);
        assert!(!priority.goes_first(&mut went_first));
        assert!(priority.goes_first(&mut false), "another peer's");
    }

    #[test]
    fn slices_are_shorter_yet_where_bulk_data_yield() {
        let mut priority = LatencyPriority::default();
        priority.yields(true);
        assert_eq!(priority.slice(|| unreachable!()), TCP_SLICE_ALONE);
        priority.small(&PacketHeader {
            kind: PacketKind::Eager as u8,
            ..PacketHeader::default()
        });
        assert_eq!(priority.slice(Instant::now), TCP_SLICE_YIELDING);
        priority.yields(false);
        assert_eq!(priority.slice(Instant::now), TCP_SLICE);
    }

    #[test]
    fn a_small_message_keeps_slices_short_for_a_while_and_no_clock_is_read_without_one() {
        let begun = Instant::now();
        let mut priority = LatencyPriority::default();
        assert_eq!(priority.slice(|| unreachable!()), TCP_SLICE_ALONE);
        let packet = |kind: PacketKind| PacketHeader {
            kind: kind as u8,
            ..PacketHeader::default()
        };
        priority.small(&packet(PacketKind::Fin));
        assert_eq!(priority.slice(|| unreachable!()), TCP_SLICE_ALONE);
        priority.small(&packet(PacketKind::Eager));
        // It counts from when bulk data moves.
        let after = |part: u32| move || begun + TCP_LATENCY_PRIORITY_FOR * part / 4;
        for part in [8, 9, 11] {
            assert_eq!(priority.slice(after(part)), TCP_SLICE, "{part}");
        }
        priority.small(&packet(PacketKind::Eager));
        priority.small(&packet(PacketKind::Fin));
        for part in [11, 14] {
            assert_eq!(priority.slice(after(part)), TCP_SLICE, "{part}");
        }
        assert_eq!(priority.slice(after(15)), TCP_SLICE_ALONE);
        assert_eq!(priority.slice(|| unreachable!()), TCP_SLICE_ALONE);
    }
}
