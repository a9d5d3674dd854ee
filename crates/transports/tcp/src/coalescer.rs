//! Small messages that are kept until their rank looks at its sockets, so that they leave in one
//! write.
//!
//! Owned by the transport; whether a message may wait the engine's strategy says. What is kept
//! lies in the peer's log, ready to leave, and leaves with whatever else is sent to the peer, at
//! the rank's next look, or, if that does not come, when the thread that watches sockets finds it
//! there a nap later; so does what a socket did not take at once. Switched on by whoever owns such
//! a thread; bounded by the strategy's limits and two naps, three beside a rank that polls.

use crate::context::TransportContext;
use crate::frame::StreamNumber;
use crate::peer::TcpPeer;
use crate::peer_table::PeerTable;
use garonne_engine::api::Peer;
use garonne_engine::schedule::coalesce::{
    CoalesceCandidate, CoalescePolicy, SendHistory, may_wait,
};
use garonne_engine::schedule::plugin::{CheckedPlugin, CoalesceQuery};
use garonne_engine::transport::{PacketHeader, PacketKind};
use garonne_transport::limits::{
    TCP_COALESCE_CHECK, TCP_COALESCE_CHECKS_IDLE, TCP_COALESCE_CHECKS_STUCK, TCP_COALESCE_DOUBLINGS,
};
use std::sync::Arc;
use std::time::Duration;

/// Keeps small messages back so that several leave in one write.
///
/// Owned by the transport. Each packet that was added to a peer's log goes through
/// [`Coalescer::admit`], which says whether it leaves now. [`Coalescer::note_unsent`] follows what
/// left. Each look of the rank calls [`Coalescer::release`]; between looks the thread that watches
/// sockets calls [`Coalescer::nap`], once [`Coalescer::wants_naps`] has asked for it.
#[derive(Debug, Default)]
pub(crate) struct Coalescer {
    /// `None`: nothing is kept.
    policy: Option<CoalescePolicy>,
    /// Strategy that is asked first.
    plugin: Option<Arc<CheckedPlugin>>,
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

/// Messages kept for one peer.
#[derive(Debug, Default)]
pub(crate) struct QueuedSince {
    history: SendHistory,
    /// The nap in which the first of what is kept was sent.
    since: Option<u32>,
}

impl Coalescer {
    /// From now on messages may be kept, as the strategy says; [`Coalescer::nap`] will be called.
    pub(crate) fn set_policy(&mut self, policy: CoalescePolicy) {
        self.policy = Some(policy);
    }

    /// From now on this strategy is asked first what may wait, if anything may at all.
    pub(crate) fn set_plugin(&mut self, plugin: Option<Arc<CheckedPlugin>>) {
        self.plugin = plugin;
    }

    /// From now on nothing is kept.
    pub(crate) fn keep_nothing(&mut self) {
        (self.policy, self.plugin) = (Some(CoalescePolicy::Immediate), None);
    }

    /// Returns the number of messages that were kept, and how often some were overdue.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.kept, self.overdue)
    }

    /// Returns what the loaded strategy says of a message, if there is one and it does.
    #[inline]
    fn asks(
        &self,
        peer: Peer,
        header: &PacketHeader,
        candidate: &CoalesceCandidate,
        history: &SendHistory,
    ) -> Option<bool> {
        let plugin = self.plugin.as_ref().filter(|_| !candidate.must_leave())?;
        plugin.may_wait(&CoalesceQuery {
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

    /// Returns whether a message of so many bytes would wait for others, as far as that can be said
    /// before a strategy that was loaded is asked.
    pub(crate) fn may_wait(&self, remote: &TcpPeer, len: usize) -> bool {
        let Some(policy) = self.policy else {
            return false;
        };
        let candidate = CoalesceCandidate {
            len,
            urgent: !remote.link.is_up(),
            kept: remote.link.log.unsent_len() + len,
        };
        match self.plugin {
            Some(_) => !candidate.must_leave(),
            None => may_wait(policy, &candidate, &remote.keeping.history),
        }
    }

    /// Decides whether a packet that was added to the log of a peer leaves now. One that does not
    /// is kept, and leaves with others.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        peers: &mut PeerTable,
        peer: Peer,
        header: &PacketHeader,
    ) -> bool {
        let (Some(policy), Some(remote)) = (self.policy, peers.get_mut(peer)) else {
            return true;
        };
        let candidate = CoalesceCandidate {
            len: header.len as usize,
            urgent: header.kind != PacketKind::Eager as u8 || !remote.link.is_up(),
            kept: remote.link.log.unsent_len(),
        };
        let history = &remote.keeping.history;
        let waits = self.asks(peer, header, &candidate, history);
        let waits = waits.unwrap_or_else(|| may_wait(policy, &candidate, history));
        self.note_sent(remote, peer, header);
        if !waits {
            remote.keeping.since = None;
            return true;
        }
        self.kept += 1;
        if remote.keeping.since.is_none() {
            remote.keeping.since = Some(self.naps);
            self.idle = 0;
        }
        false
    }

    /// Notes a packet that leaves now whatever was kept, and all of that with it.
    #[inline]
    pub(crate) fn pass(&mut self, peers: &mut PeerTable, peer: Peer, header: &PacketHeader) {
        if self.policy.is_some()
            && let Some(remote) = peers.get_mut(peer)
        {
            self.note_sent(remote, peer, header);
            remote.keeping.since = None;
        }
    }

    #[inline]
    fn note_sent(&mut self, remote: &mut TcpPeer, peer: Peer, header: &PacketHeader) {
        // What the engine says by itself (credits, say) leaves at once, and is no part of a series:
        // a message behind it would be kept for others that do not come.
        if header.is_envelope() {
            if remote.keeping.history.is_fresh() {
                self.fresh.push(peer);
            }
            remote.keeping.history.sent();
        }
    }

    /// Notes that bytes which the peer's socket did not take leave when the rank looks, or with
    /// the naps if it computes.
    #[inline]
    pub(crate) fn note_unsent(&mut self, peers: &PeerTable, peer: Peer) {
        if self.policy.is_some() && unsent(peers, peer) > 0 && !self.rest.contains(&peer) {
            self.rest.push(peer);
            self.stuck = 0;
        }
    }

    /// A socket has just not taken all, and nobody looks after that yet.
    fn has_fresh_rest(&self) -> bool {
        self.stuck == 0 && !self.rest.is_empty()
    }

    /// Has everything leave that was kept: the rank looks.
    #[inline]
    pub(crate) fn release(&mut self, ctx: &mut TransportContext) {
        while let Some(peer) = self.fresh.pop() {
            let Some(remote) = ctx.peers.get_mut(peer) else {
                continue;
            };
            let kept = remote.keeping.since.take().is_some();
            remote.keeping.history.looked(kept);
            if kept {
                ctx.flush(peer, StreamNumber::Small);
            }
        }
    }

    /// Returns whether something is kept and nobody has been asked to look after it; asks once.
    #[inline]
    pub(crate) fn wants_naps(&mut self, peers: &PeerTable) -> bool {
        let keeps = || self.kept > 0 && self.keeps_something(peers) || self.has_fresh_rest();
        let wants = !self.watched && keeps();
        self.watched |= wants;
        wants
    }

    /// Returns whether there is room since the last nap that somebody may sleep for.
    pub(crate) fn makes_room(&mut self) -> bool {
        std::mem::take(&mut self.emptied)
    }

    fn keeps_something(&self, peers: &PeerTable) -> bool {
        let keeps = |peer: &Peer| {
            let remote = peers.get(*peer);
            remote.is_some_and(|remote| remote.keeping.since.is_some())
        };
        self.fresh.iter().any(keeps)
    }

    /// A nap is over: what was kept before it began leaves, and what sockets take now of what they
    /// did not. How long the next one is; `None`: nothing has been kept for long, and nobody needs
    /// to look any more until something is.
    pub(crate) fn nap(&mut self, ctx: &mut TransportContext) -> Option<Duration> {
        let over = self.naps;
        self.naps = over.wrapping_add(1);
        for at in 0..self.fresh.len() {
            let peer = self.fresh[at];
            let Some(remote) = ctx.peers.get_mut(peer) else {
                continue;
            };
            if remote.keeping.since.is_some_and(|since| since != over) {
                remote.keeping.since = None;
                remote.keeping.history.overdue();
                self.overdue += 1;
                ctx.flush(peer, StreamNumber::Small);
            }
        }
        let mut moved = self.rest.is_empty();
        for at in (0..self.rest.len()).rev() {
            let peer = self.rest[at];
            let before = unsent(&ctx.peers, peer);
            ctx.flush(peer, StreamNumber::Small);
            let left = unsent(&ctx.peers, peer);
            moved |= left < before;
            if left == 0 {
                self.rest.swap_remove(at);
                self.emptied = true;
            }
        }
        self.stuck = if moved { 0 } else { self.stuck + 1 };
        self.idle += 1;
        self.watched = self.idle < TCP_COALESCE_CHECKS_IDLE || self.keeps_something(&ctx.peers);
        if self.watched || self.rest.is_empty() {
            return self.watched.then_some(TCP_COALESCE_CHECK);
        }
        // Who keeps something meanwhile calls.
        Some(
            TCP_COALESCE_CHECK
                * (1 << (self.stuck / TCP_COALESCE_CHECKS_STUCK).min(TCP_COALESCE_DOUBLINGS)),
        )
    }
}

/// Bytes that a peer's socket did not take.
fn unsent(peers: &PeerTable, peer: Peer) -> usize {
    let remote = peers.get(peer).filter(|remote| remote.link.is_up());
    remote.map_or(0, |remote| remote.link.log.unsent_len())
}
