//! Small messages that are kept until their rank looks at its sockets, so that they leave in one
//! write.
//!
//! Part of [`TcpTransport`]; whether a message may wait the engine's strategy says. What is kept
//! lies in the peer's log, ready to leave, and leaves with whatever else is sent to the peer, at
//! the rank's next look, or, if that does not come, when the thread that watches sockets finds it
//! there a nap later; so does what a socket did not take at once. Switched on by whoever owns such
//! a thread; bounded by the strategy's limits and two naps, three beside a rank that polls.

use crate::TcpTransport;
use crate::frame::StreamNumber;
use garonne_engine::api::Peer;
use garonne_engine::schedule::coalesce::{
    CoalesceCandidate, CoalescePolicy, SendHistory, may_wait,
};
use garonne_engine::schedule::plugin::{CheckedPlugin, CoalesceQuery};
use garonne_engine::schedule::stripe::StripePolicy;
use garonne_engine::transport::{PacketHeader, PacketKind};
use garonne_transport::limits::{
    TCP_BRISK_FOR, TCP_NAP, TCP_NAPS_IDLE, TCP_NAPS_LONGER, TCP_NAPS_STUCK, TCP_SLICE,
    TCP_SLICE_ALONE, TCP_SLICE_YIELDING,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// State of all messages that the transport keeps for others.
#[derive(Debug, Default)]
pub(super) struct Coalescer {
    /// `None`: nothing is kept.
    leaving: Option<CoalescePolicy>,
    /// Strategy that is asked first.
    loaded: Option<Arc<CheckedPlugin>>,
    /// How large data are split.
    pub(super) splitting: StripePolicy,
    /// Strategy that is asked how large data are split, before that.
    pub(super) splits: Option<Arc<CheckedPlugin>>,
    /// Peers to which something was sent since the last look.
    fresh: Vec<Peer>,
    /// Peers to which something was sent that their sockets did not take.
    rest: Vec<Peer>,
    /// Naps in a row in which none of that left.
    stuck: u32,
    /// All of it has left by a nap, and whoever waits for room was not told.
    emptied: bool,
    naps: u32,
    /// Naps since something was kept.
    idle: u32,
    /// The thread that watches naps, and looks here after each.
    watched: bool,
    kept: u64,
    overdue: u64,
}

/// True while small messages come and go, so that bulk data must leave them their turn often. Only
/// what moves bulk data reads the clock.
#[derive(Debug, Default)]
pub(super) struct LatencyPriority {
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
    pub(super) fn small(&mut self, header: &PacketHeader) {
        self.fresh |= header.kind == PacketKind::Eager as u8;
    }

    /// From now on some of the bulk data are to stand in nobody's way, or none.
    pub(super) fn yields(&mut self, yields: bool) {
        self.yields = yields;
    }

    /// Returns whether small messages that came are told of before bulk data move, if those that
    /// came last, from the same peer, were not. So where some come in every poll, bulk data are
    /// taken in every other, from each peer, whatever moves to it and others.
    #[inline]
    pub(super) fn goes_first(&self, went_first: &mut bool) -> bool {
        (self.fresh || self.since.is_some()) && !std::mem::replace(went_first, true)
    }

    /// Bytes of the next slice of bulk data.
    pub(super) fn slice(&mut self, now: impl FnOnce() -> Instant) -> usize {
        if self.fresh || self.since.is_some() {
            let now = now();
            let since = self.since.filter(|_| !self.fresh).unwrap_or(now);
            self.since = (now < since + TCP_BRISK_FOR).then_some(since);
            self.fresh = false;
        }
        match self.since {
            Some(_) if self.yields => TCP_SLICE_YIELDING,
            Some(_) => TCP_SLICE,
            None => TCP_SLICE_ALONE,
        }
    }
}

/// Messages kept for one peer.
#[derive(Debug, Default)]
pub(crate) struct QueuedSince {
    history: SendHistory,
    /// The nap in which the first of what is kept was sent.
    since: Option<u32>,
}

impl Coalescer {
    /// Returns what the loaded strategy says of a message, if there is one and it does.
    #[inline]
    fn asks(
        &self,
        peer: Peer,
        header: &PacketHeader,
        candidate: &CoalesceCandidate,
        history: &SendHistory,
    ) -> Option<bool> {
        let loaded = self.loaded.as_ref().filter(|_| !candidate.must_leave())?;
        loaded.may_wait(&CoalesceQuery {
            peer,
            context: header.context,
            tag: header.tag,
            since_look: history.since_look(),
            series: history.series(),
            backoff: history.backoff(),
            len: candidate.len as u64,
            kept: candidate.kept as u64,
        })
    }
}

impl TcpTransport {
    /// From now on messages may be kept, as the strategy says; [`TcpTransport::nap`] will be
    /// called.
    pub fn gather(&mut self, leaving: CoalescePolicy) {
        self.gathering.leaving = Some(leaving);
    }

    /// From now on large data are split like this, where no other strategy decides.
    pub fn split_by(&mut self, splitting: StripePolicy) {
        self.gathering.splitting = splitting;
    }

    /// From now on this strategy is asked what may wait, if anything may at all, and how large data
    /// are split.
    pub fn consult(&mut self, loaded: Arc<CheckedPlugin>) {
        self.gathering.loaded = loaded.decides().waiting.then(|| loaded.clone());
        self.gathering.splits = loaded.decides().pieces.then_some(loaded);
    }

    /// From now on nothing is kept.
    pub fn gather_nothing(&mut self) {
        (self.gathering.leaving, self.gathering.loaded) = (Some(CoalescePolicy::Immediate), None);
    }

    /// Messages that were kept, and times that some were overdue.
    pub fn gathered(&self) -> (u64, u64) {
        (self.gathering.kept, self.gathering.overdue)
    }

    /// Returns whether a message of so many bytes would wait for others, as far as that can be said
    /// before a strategy that was loaded is asked.
    pub(super) fn may_wait(&self, peer: Peer, len: usize) -> bool {
        let (Some(leaving), Some(Some(remote))) =
            (self.gathering.leaving, self.remotes.get(peer as usize))
        else {
            return false;
        };
        let candidate = CoalesceCandidate {
            len,
            urgent: !remote.link.is_up(),
            kept: remote.link.log.unsent_len() + len,
        };
        match self.gathering.loaded {
            Some(_) => !candidate.must_leave(),
            None => may_wait(leaving, &candidate, &remote.keeping.history),
        }
    }

    /// A packet was added to the log of a peer.
    #[inline]
    pub(super) fn leaves(&mut self, peer: Peer, header: &PacketHeader) {
        let (Some(leaving), Some(Some(remote))) =
            (self.gathering.leaving, self.remotes.get(peer as usize))
        else {
            return self.leaves_or_waits(peer, header, false);
        };
        let candidate = CoalesceCandidate {
            len: header.len as usize,
            urgent: header.kind != PacketKind::Eager as u8 || !remote.link.is_up(),
            kept: remote.link.log.unsent_len(),
        };
        let history = &remote.keeping.history;
        let waits = self.gathering.asks(peer, header, &candidate, history);
        let waits = waits.unwrap_or_else(|| may_wait(leaving, &candidate, history));
        self.leaves_or_waits(peer, header, waits);
    }

    /// Sends or keeps a message of which it is known whether it waits.
    #[inline]
    pub(super) fn leaves_or_waits(&mut self, peer: Peer, header: &PacketHeader, waits: bool) {
        self.brisk.small(header);
        if self.gathering.leaving.is_none() {
            self.added(peer);
            return self.lead(peer, header);
        }
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        let keeping = &mut remote.keeping;
        // What the engine says by itself (credits, say) leaves at once, and is no part of a series:
        // a message behind it would be kept for others that do not come.
        if header.is_envelope() {
            if keeping.history.is_fresh() {
                self.gathering.fresh.push(peer);
            }
            keeping.history.sent();
        }
        if !waits {
            keeping.since = None;
            self.added(peer);
            self.lead(peer, header);
            return self.note_rest(peer);
        }
        self.gathering.kept += 1;
        if keeping.since.is_none() {
            keeping.since = Some(self.gathering.naps);
            self.gathering.idle = 0;
        }
    }

    /// Notes that bytes which the peer's socket did not take leave when the rank looks, or with
    /// the naps if it computes.
    #[inline]
    fn note_rest(&mut self, peer: Peer) {
        if self.rest_of(peer) > 0 && !self.gathering.rest.contains(&peer) {
            self.gathering.rest.push(peer);
            self.gathering.stuck = 0;
        }
    }

    /// Bytes that a peer's socket did not take.
    fn rest_of(&self, peer: Peer) -> usize {
        let remote = self.remotes[peer as usize].as_ref();
        remote.map_or(0, |remote| {
            if remote.link.is_up() {
                remote.link.log.unsent_len()
            } else {
                0
            }
        })
    }

    /// A socket has just not taken all, and nobody looks after that yet.
    fn has_fresh_rest(&self) -> bool {
        self.gathering.stuck == 0 && !self.gathering.rest.is_empty()
    }

    /// The rank looks: what was kept leaves.
    #[inline]
    pub(super) fn let_go(&mut self) {
        while let Some(peer) = self.gathering.fresh.pop() {
            let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
                continue;
            };
            let kept = remote.keeping.since.take().is_some();
            remote.keeping.history.looked(kept);
            if kept {
                self.flush(peer, StreamNumber::Small);
            }
        }
    }

    /// Returns whether something is kept and nobody has been asked to look after it; asks once.
    #[inline]
    pub fn wants_naps(&mut self) -> bool {
        let keeps = || self.gathering.kept > 0 && self.keeps_something() || self.has_fresh_rest();
        let wants = !self.gathering.watched && keeps();
        self.gathering.watched |= wants;
        wants
    }

    /// Returns whether there is room since the last nap that somebody may sleep for.
    pub fn makes_room(&mut self) -> bool {
        std::mem::take(&mut self.gathering.emptied)
    }

    fn keeps_something(&self) -> bool {
        let keeps = |peer: &Peer| {
            let remote = self.remotes[*peer as usize].as_ref();
            remote.is_some_and(|remote| remote.keeping.since.is_some())
        };
        self.gathering.fresh.iter().any(keeps)
    }

    /// A nap is over: what was kept before it began leaves, and what sockets take now of what they
    /// did not. How long the next one is; `None`: nothing has been kept for long, and nobody needs
    /// to look any more until something is.
    pub fn nap(&mut self) -> Option<Duration> {
        let over = self.gathering.naps;
        self.gathering.naps = over.wrapping_add(1);
        for at in 0..self.gathering.fresh.len() {
            let peer = self.gathering.fresh[at];
            let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
                continue;
            };
            if remote.keeping.since.is_some_and(|since| since != over) {
                remote.keeping.since = None;
                remote.keeping.history.overdue();
                self.gathering.overdue += 1;
                self.flush(peer, StreamNumber::Small);
            }
        }
        let mut moved = self.gathering.rest.is_empty();
        for at in (0..self.gathering.rest.len()).rev() {
            let peer = self.gathering.rest[at];
            let before = self.rest_of(peer);
            self.flush(peer, StreamNumber::Small);
            let left = self.rest_of(peer);
            moved |= left < before;
            if left == 0 {
                self.gathering.rest.swap_remove(at);
                self.gathering.emptied = true;
            }
        }
        self.gathering.stuck = if moved { 0 } else { self.gathering.stuck + 1 };
        self.gathering.idle += 1;
        self.gathering.watched = self.gathering.idle < TCP_NAPS_IDLE || self.keeps_something();
        if self.gathering.watched || self.gathering.rest.is_empty() {
            return self.gathering.watched.then_some(TCP_NAP);
        }
        // Who keeps something meanwhile calls.
        Some(TCP_NAP * (1 << (self.gathering.stuck / TCP_NAPS_STUCK).min(TCP_NAPS_LONGER)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_are_told_of_before_bulk_data_move_but_not_twice_without_any() {
        let (mut brisk, mut went_first) = (LatencyPriority::default(), false);
        assert!(!brisk.goes_first(&mut went_first), "nothing small came");
        brisk.small(&PacketHeader {
            kind: PacketKind::Eager as u8,
            ..PacketHeader::default()
        });
        assert!(brisk.goes_first(&mut went_first));
        // What moves meanwhile may be another's, or go the other way.
        brisk.slice(Instant::now);
        assert!(!brisk.goes_first(&mut went_first));
        assert!(brisk.goes_first(&mut false), "another peer's");
    }

    #[test]
    fn slices_are_shorter_yet_where_bulk_data_yield() {
        let mut brisk = LatencyPriority::default();
        brisk.yields(true);
        assert_eq!(brisk.slice(|| unreachable!()), TCP_SLICE_ALONE);
        brisk.small(&PacketHeader {
            kind: PacketKind::Eager as u8,
            ..PacketHeader::default()
        });
        assert_eq!(brisk.slice(Instant::now), TCP_SLICE_YIELDING);
        brisk.yields(false);
        assert_eq!(brisk.slice(Instant::now), TCP_SLICE);
    }

    #[test]
    fn a_small_message_keeps_slices_short_for_a_while_and_no_clock_is_read_without_one() {
        let begun = Instant::now();
        let mut brisk = LatencyPriority::default();
        assert_eq!(brisk.slice(|| unreachable!()), TCP_SLICE_ALONE);
        let packet = |kind: PacketKind| PacketHeader {
            kind: kind as u8,
            ..PacketHeader::default()
        };
        brisk.small(&packet(PacketKind::Fin));
        assert_eq!(brisk.slice(|| unreachable!()), TCP_SLICE_ALONE);
        brisk.small(&packet(PacketKind::Eager));
        // It counts from when bulk data moves.
        let after = |part: u32| move || begun + TCP_BRISK_FOR * part / 4;
        for part in [8, 9, 11] {
            assert_eq!(brisk.slice(after(part)), TCP_SLICE, "{part}");
        }
        brisk.small(&packet(PacketKind::Eager));
        brisk.small(&packet(PacketKind::Fin));
        for part in [11, 14] {
            assert_eq!(brisk.slice(after(part)), TCP_SLICE, "{part}");
        }
        assert_eq!(brisk.slice(after(15)), TCP_SLICE_ALONE);
        assert_eq!(brisk.slice(|| unreachable!()), TCP_SLICE_ALONE);
    }
}
