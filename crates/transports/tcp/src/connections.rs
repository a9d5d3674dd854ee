//! How the connections of a rank come about and end: calls, and by which addresses; what a broken
//! connection says of its peer and of the network; ways for large data by further networks; calls
//! that the two of a pair ask each other for.
//!
//! Owned by the transport. A pair's connection is made when it is first needed, by whoever needs
//! it. That a way by a further network fails says nothing of the peer. Who asks for a call has
//! proved that it knows the secret, so this side acts on it, also where it seems to itself to have
//! called, or to be connected.

#[cfg(test)]
mod drained_networks;
mod ofi_paths;
#[cfg(test)]
mod reverse_connect;
mod socket_progress;

use crate::blackhole_detector::{ConnectionEnd, EndedConnection, NextStep, ShortLivedConnections};
use crate::connection::{CloseReason, Connection};
use crate::connection_table::ConnectionTable;
use crate::connector::{ConnectFailure, ConnectStep, Connector};
use crate::context::TransportContext;
use crate::frame::{FABRIC, StreamNumber};
use crate::handshake::{HandshakeError, LocalIdentity};
use crate::listener::Listener;
use crate::ofi_path::endpoint_opener::EndpointOpener;
use crate::peer::{ConnectState, RetryDecision, TcpPeer};
use crate::sockets::EpollTarget;
use crate::{LOST, PeerDirectory, sys};
use garonne_engine::api::Peer;
use garonne_engine::limits::STRIPE_PATHS;
use garonne_engine::transport::ClaimError;
use garonne_transport::limits::{TCP_CARRIED, TCP_EXTRA_NETWORK_RETRY, TCP_SEGMENT};
use rustix::event::epoll::EventFlags;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

/// Makes the connections of a rank, and makes them again.
///
/// Owned by the transport, and called with the state that all its parts share.
/// [`Connections::want`] opens a stream of a peer, [`Connections::broke`] notes its end and opens
/// it again where it is needed, and [`Connections::lose`] gives the peer up. Whatever happens at
/// sockets meanwhile is found by [`Connections::look`].
pub(crate) struct Connections {
    identity: LocalIdentity,
    directory: Arc<dyn PeerDirectory>,
    listener: Listener,
    /// Addresses to which connections bring nothing but short packets.
    short_lived: ShortLivedConnections,
    /// Count of changes to disabled networks, as the directory gave it last.
    drained_changes: u32,
    ofi: EndpointOpener,
    /// By peer; empty: none. See `intra_node_paths`.
    beside: Vec<bool>,
}

impl Connections {
    /// Returns what makes the connections of the rank that `identity` names.
    pub(crate) fn new(
        identity: LocalIdentity,
        directory: Arc<dyn PeerDirectory>,
        listener: Listener,
    ) -> Self {
        Self {
            drained_changes: directory.drained(),
            ofi: EndpointOpener::new(directory.fabrics(), identity.sealed),
            short_lived: ShortLivedConnections::default(),
            beside: Vec::new(),
            identity,
            directory,
            listener,
        }
    }

    /// Returns the own rank.
    #[inline]
    pub(crate) fn rank(&self) -> Peer {
        self.identity.me.rank
    }

    /// Returns the descriptor that is readable when somebody calls.
    pub(crate) fn listener_fd(&self) -> BorrowedFd<'_> {
        self.listener.fd()
    }

    /// Returns the listener, for tests of what it does with callers.
    #[cfg(test)]
    pub(crate) fn listener(&mut self) -> &mut Listener {
        &mut self.listener
    }

    /// Shows those who watch what holds for all connections.
    pub(crate) fn show(&self, table: &ConnectionTable) {
        table.no_fabric(self.ofi.unused());
        table.sealed(self.identity.sealed);
    }

    /// Returns whether large data of a peer may come by more ways than one.
    pub(crate) fn may_have_several_paths(&self, peer: Peer) -> bool {
        self.ofi.unused().is_none() || self.directory.networks(peer).len() > 1
    }

    /// Sets the peers, by index, whose memory this rank reaches, and to whom only large data go by
    /// this transport.
    pub(crate) fn set_beside(&mut self, beside: Vec<bool>) {
        self.beside = beside;
    }

    /// Returns whether the transport is one of two to this peer.
    pub(super) fn is_beside(&self, peer: Peer) -> bool {
        self.beside.get(peer as usize).copied().unwrap_or(false)
    }

    /// Returns whether a call to such a peer is of no use any more: nothing is read from it.
    pub(super) fn is_idle_beside(
        &self,
        ctx: &TransportContext,
        peer: Peer,
        stream: StreamNumber,
    ) -> bool {
        let remote = ctx.peers.get(peer);
        self.is_beside(peer) && remote.is_none_or(|remote| !remote.is_wanted(stream))
    }

    /// Returns the record of a peer to which something is to be sent.
    #[inline]
    pub(crate) fn remote<'a>(
        &self,
        ctx: &'a mut TransportContext,
        peer: Peer,
    ) -> Result<&'a mut TcpPeer, ClaimError> {
        if peer == self.rank() {
            return Err(ClaimError::Gone);
        }
        let remote = ctx.peers.meet(peer).ok_or(ClaimError::Gone)?;
        if remote.link.heard_bye || remote.condemned {
            return Err(ClaimError::Gone);
        }
        Ok(remote)
    }

    /// A stream of a peer is needed: it is opened, unless it is.
    pub(super) fn want(&mut self, ctx: &mut TransportContext, peer: Peer, stream: StreamNumber) {
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return;
        };
        if remote.fd(stream).is_none() && matches!(remote.calls(stream).call, ConnectState::Rest) {
            let now = Instant::now();
            remote.calls(stream).want(now);
            self.call(ctx, peer, stream, now);
        }
    }

    /// Opens the ways that large data to read are worth.
    pub(super) fn widen(&mut self, ctx: &mut TransportContext, peer: Peer) {
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return;
        };
        if remote.fd(StreamNumber::Bulk(0)).is_none() {
            self.want(ctx, peer, StreamNumber::Bulk(0));
        }
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return;
        };
        if !remote.paths.is_much() {
            return;
        }
        // The network that every pair's connection takes counts once.
        let is_open = remote.fd(StreamNumber::Bulk(0)).is_some();
        let first = remote.calls(StreamNumber::Bulk(0)).met.filter(|_| is_open);
        self.want_fabric(ctx, peer);
        let networks = self.directory.networks(peer);
        for (network, path) in networks.iter().zip(1..STRIPE_PATHS as u8) {
            let Some(remote) = ctx.peers.get_mut(peer) else {
                return;
            };
            if first.is_some_and(|first| first != network.ip())
                && !self.directory.is_drained(network.ip())
            {
                remote.paths.expect_several();
                self.want(ctx, peer, StreamNumber::Bulk(path));
            }
        }
    }

    /// Calls a peer, if it is time for that.
    pub(super) fn call(
        &mut self,
        ctx: &mut TransportContext,
        peer: Peer,
        stream: StreamNumber,
        now: Instant,
    ) {
        let idle = self.is_idle_beside(ctx, peer, stream);
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return;
        };
        let calls = remote.calls(stream);
        match calls.call {
            ConnectState::At(at) if at <= now && idle => {
                calls.call = ConnectState::Rest;
                return;
            }
            ConnectState::At(at) if at <= now => {}
            ConnectState::At(at) => return ctx.timers.remind(at),
            _ => return,
        }
        if stream.is_fabric() && !self.may_call_fabric(ctx, peer) {
            return;
        }
        // The one beside an endpoint stands for no network: it takes the one that works.
        let works = stream
            .is_fabric()
            .then(|| ctx.ends(peer, StreamNumber::Bulk(0)))
            .flatten();
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return;
        };
        let calls = remote.calls(stream);
        let address = match stream {
            StreamNumber::Small | StreamNumber::Bulk(0) => {
                let (all, led) = (
                    self.directory.addresses(peer),
                    self.directory.may_be_led(peer),
                );
                let is_drained = |address| led && self.directory.is_drained(address);
                let now_tried = calls.may_try(&all, is_drained, now);
                calls.address(now_tried)
            }
            StreamNumber::Bulk(FABRIC) => {
                let addresses = self.directory.addresses(peer);
                let works = addresses
                    .iter()
                    .find(|address| works.is_some_and(|(_, other)| other.ip() == address.ip()));
                works.copied().or_else(|| calls.address(&addresses))
            }
            StreamNumber::Bulk(path) => self
                .directory
                .networks(peer)
                .get(usize::from(path) - 1)
                .copied(),
        };
        let Some(address) = address else {
            calls.call = ConnectState::Rest;
            // Of a further network nobody needs to know why it is not there any more.
            if !stream.is_further() && !self.is_beside(peer) {
                self.lose(ctx, peer);
            }
            return;
        };
        let to = (peer, self.directory.incarnation(peer));
        let longest = self.short_lived.longest_to(address.ip());
        match Connector::begin_with(&self.identity, (address, to, stream), longest, now) {
            Ok(line) => {
                let flags = EventFlags::IN | EventFlags::OUT;
                let target = EpollTarget::Peer(peer, stream);
                if !ctx.sockets.watch(line.fd(), target, flags) {
                    return self.failed(ctx, peer, stream, ConnectFailure::Unreachable, now);
                }
                calls.call = ConnectState::Out(Box::new(line));
                if let Some(due) = remote.due(stream) {
                    ctx.timers.remind(due);
                }
            }
            Err(failure) => self.failed(ctx, peer, stream, failure, now),
        }
    }

    pub(super) fn failed(
        &mut self,
        ctx: &mut TransportContext,
        peer: Peer,
        stream: StreamNumber,
        failure: ConnectFailure,
        now: Instant,
    ) {
        if stream.is_further() || self.is_beside(peer) {
            return self.failed_further(ctx, peer, stream, &failure, now);
        }
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return;
        };
        let calls = remote.calls(stream);
        let verdict = match self.directory.may_be_hidden(peer) {
            true => calls.failed_hidden(&failure, now),
            false if self.directory.may_be_led(peer) => calls.failed_led(&failure, now),
            false if calls.failed(&failure, now) => RetryDecision::Gone,
            false => RetryDecision::Again,
        };
        let due = calls.due();
        // Who has cut it may be a host between that does not reach the peer.
        let unreached = !matches!(failure, ConnectFailure::Fault(_));
        if unreached {
            self.ask(ctx, peer, stream, now);
        }
        match verdict {
            RetryDecision::Gone => return self.lose_for(ctx, peer, self.why(peer, &failure)),
            RetryDecision::Apart => self.directory.cannot_reach(peer),
            RetryDecision::Again => {}
        }
        if let Some(due) = due {
            ctx.timers.remind(due);
        }
    }

    /// Returns what is to be said of a peer that is given up since calls to it fail like that;
    /// where the two cannot have a connection, the hosts hear of it, too.
    fn why(&self, peer: Peer, failure: &ConnectFailure) -> &'static str {
        let ConnectFailure::Fault(fault) = failure else {
            return LOST;
        };
        self.directory.refused(peer, fault);
        fault.for_good()
    }

    /// The call by a further network failed: that says nothing of the peer, and it is tried again
    /// later as long as there is much to move.
    pub(super) fn failed_further(
        &mut self,
        ctx: &mut TransportContext,
        peer: Peer,
        stream: StreamNumber,
        failure: &ConnectFailure,
        now: Instant,
    ) {
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return;
        };
        let calls = remote.calls(stream);
        let _ = calls.failed(failure, now);
        calls.put_off(now + TCP_EXTRA_NETWORK_RETRY);
        ctx.timers.remind(now + TCP_EXTRA_NETWORK_RETRY);
    }

    /// A call goes on.
    pub(super) fn step(
        &mut self,
        ctx: &mut TransportContext,
        peer: Peer,
        stream: StreamNumber,
        now: Instant,
    ) {
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return;
        };
        let expected = match stream {
            StreamNumber::Small => remote.link.expected(),
            StreamNumber::Bulk(_) => 0,
        };
        let calls = remote.calls(stream);
        let line = match std::mem::take(&mut calls.call) {
            ConnectState::Out(line) => line,
            other => {
                calls.call = other;
                return;
            }
        };
        let (was_called, was_kept) = (line.called().is_some(), line.is_kept());
        match line.step(expected, now) {
            ConnectStep::Wait(line) => {
                if !was_called && line.called().is_some() {
                    let target = EpollTarget::Peer(peer, stream);
                    ctx.sockets.change(line.fd(), target, EventFlags::IN);
                }
                let newly_kept = !was_kept && line.is_kept();
                calls.call = ConnectState::Out(Box::new(line));
                if newly_kept {
                    self.ask(ctx, peer, stream, now);
                } else if let Some(due) = calls.due() {
                    ctx.timers.remind(due);
                }
            }
            ConnectStep::Failed(failure) => self.failed(ctx, peer, stream, failure, now),
            ConnectStep::Open(channel, theirs) => {
                let target = EpollTarget::Peer(peer, stream);
                if !ctx.sockets.change(channel.fd(), target, EventFlags::IN) {
                    return self.failed(ctx, peer, stream, ConnectFailure::Cut, now);
                }
                let outdated = calls.is_outdated(&self.directory.addresses(peer));
                self.opened(ctx, peer, stream, channel, theirs);
                if outdated {
                    // Its network may have been drained meanwhile.
                    self.leave_drained_by(ctx, peer, stream);
                }
            }
        }
    }

    /// Asks a peer for its call, since ours does not get through, unless it was asked just now.
    pub(super) fn ask(
        &mut self,
        ctx: &mut TransportContext,
        peer: Peer,
        stream: StreamNumber,
        now: Instant,
    ) {
        let beside = self.is_beside(peer);
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return;
        };
        // Of a further network nobody asks, nor does that wait for an answer.
        let due = remote.calls(stream).asks(now);
        if due && !stream.is_further() && !beside {
            self.directory.ask(peer, stream != StreamNumber::Small);
            if remote
                .calls(stream)
                .is_led_elsewhere(&self.directory.addresses(peer), now)
            {
                return self.call(ctx, peer, stream, now);
            }
        }
        if let Some(due) = remote.due(stream) {
            ctx.timers.remind(due);
        }
    }

    /// A peer that does not reach this side wants its call.
    pub(super) fn wanted_there(
        &mut self,
        ctx: &mut TransportContext,
        peer: Peer,
        stream: StreamNumber,
    ) {
        let now = Instant::now();
        let remote = ctx.peers.get(peer);
        let calls = remote.and_then(|remote| remote.call_of(stream));
        if calls.is_some_and(|calls| calls.is_unanswered(now)) {
            // The answer may be here, and nobody has looked.
            self.step(ctx, peer, stream, now);
        }
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return;
        };
        if remote.fd(stream).is_some() {
            if !remote.calls(stream).wanted_though_open(now) {
                return;
            }
            // Nothing is lost with it, and a host between is to let go of it at once.
            ctx.cut_short(peer, stream);
            self.broke(ctx, peer, stream);
        }
        if let Some(remote) = ctx.peers.get_mut(peer)
            && remote.fd(stream).is_none()
        {
            remote.calls(stream).wanted_there(now);
            self.call(ctx, peer, stream, now);
        }
    }

    /// A stream of a peer is open, whoever called.
    fn opened(
        &mut self,
        ctx: &mut TransportContext,
        peer: Peer,
        stream: StreamNumber,
        channel: Connection,
        theirs: u32,
    ) {
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return;
        };
        remote.calls(stream).opened();
        let version = channel.version();
        let honest = match stream {
            StreamNumber::Small => remote
                .link
                .adopt(channel, theirs, ctx.rooms.blocks())
                .is_ok(),
            StreamNumber::Bulk(path) => {
                remote.paths.adopt(path, channel);
                true
            }
        };
        if !honest {
            return self.lose(ctx, peer);
        }
        let ends = ctx.ends(peer, stream);
        if let Some(remote) = ctx.peers.get_mut(peer) {
            let calls = remote.calls(stream);
            calls.met = ends.map(|(_, other)| other.ip());
            calls.silences.opened(Instant::now());
        }
        if let (StreamNumber::Bulk(path), Some(ends)) = (stream, ends) {
            let (drained, share) = (self.is_drained(ends), self.directory.share(ends.0.ip()));
            if let Some(remote) = ctx.peers.get_mut(peer) {
                if !stream.is_fabric() {
                    remote.paths.set_share(path, share);
                }
                if stream.is_further() {
                    remote.paths.set_drained(path, drained);
                }
            }
        }
        ctx.table.opened(peer, stream, ends);
        ctx.table.version(peer, stream, version);
        if let (StreamNumber::Bulk(path), Some(ends)) = (stream, ends) {
            self.begin_tuned(ctx, peer, path, ends);
        }
        ctx.show_round_trip(peer, stream);
        ctx.table
            .brief(peer, stream, self.is_brief(ctx, peer, stream));
        if stream.is_fabric() {
            self.opened_fabric(ctx, peer);
        }
        ctx.ready.mark(peer);
        ctx.flush(peer, stream);
        ctx.spread(peer);
    }

    /// A way is open: it begins with what was found another time, if anything was.
    pub(crate) fn begin_tuned(
        &mut self,
        ctx: &mut TransportContext,
        peer: Peer,
        path: u8,
        ends: (SocketAddr, SocketAddr),
    ) {
        if ctx.striping.measures_anew() || StreamNumber::Bulk(path).is_fabric() {
            return;
        }
        let Some(tuned) = self.directory.tuned(ends.0.ip(), ends.1.ip()) else {
            return;
        };
        if let Some(remote) = ctx.peers.get_mut(peer)
            && remote.paths.begin_with(path, tuned, Instant::now())
        {
            ctx.table
                .tuned(peer, StreamNumber::Bulk(path), tuned.0 as u32);
        }
    }

    /// Returns whether a connection between these ends is on a network that is to be left alone.
    pub(super) fn is_drained(&self, (own, other): (SocketAddr, SocketAddr)) -> bool {
        self.directory.is_drained(own.ip()) || self.directory.is_drained(other.ip())
    }

    /// Leaves the network of this stream if it is to be left alone; what every pair needs, only if
    /// there is another.
    pub(super) fn leave_drained_by(
        &mut self,
        ctx: &mut TransportContext,
        peer: Peer,
        stream: StreamNumber,
    ) {
        let drained = ctx.ends(peer, stream).map(|ends| self.is_drained(ends));
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return;
        };
        let Some(drained) = drained else {
            // The address that was to be called next may be another's place by now, and those to be
            // left alone come last.
            return remote.calls(stream).start_over();
        };
        if let StreamNumber::Bulk(path @ 1..) = stream {
            return remote.paths.set_drained(path, drained);
        }
        let addresses = self.directory.addresses(peer);
        let has_other = |first: &SocketAddr| !self.directory.is_drained(first.ip());
        if drained && addresses.first().is_some_and(has_other) {
            remote.calls(stream).start_over();
            self.broke(ctx, peer, stream);
        }
    }

    /// Bytes are under way on a connection, and the other host has confirmed nothing for long.
    pub(super) fn fell_silent(
        &mut self,
        ctx: &mut TransportContext,
        peer: Peer,
        stream: StreamNumber,
        now: Instant,
    ) {
        self.broke_so(ctx, peer, stream, (true, now));
    }

    /// A connection has ended.
    pub(super) fn broke(&mut self, ctx: &mut TransportContext, peer: Peer, stream: StreamNumber) {
        self.broke_so(ctx, peer, stream, (false, Instant::now()));
    }

    fn broke_so(
        &mut self,
        ctx: &mut TransportContext,
        peer: Peer,
        stream: StreamNumber,
        (silent, now): (bool, Instant),
    ) {
        if self.note_end(ctx, peer, stream, silent, now) {
            return self.give_up_silent(ctx, peer);
        }
        let next = self.by_next_network(ctx, peer, stream);
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return;
        };
        if let Some(next) = next {
            remote.calls(stream).turn_to(next);
        }
        match stream {
            StreamNumber::Small => remote.link.cut(),
            StreamNumber::Bulk(path) => remote.paths.cut(path),
        }
        ctx.table.closed(peer, stream);
        if remote.condemned {
            return;
        }
        if remote.link.heard_bye {
            // It left in good order; whoever still asks it for something asks in vain.
            let reads = remote.paths.take_reads();
            ctx.notices.reads_failed(peer, reads, LOST);
            ctx.notices.peer_left(peer);
            ctx.settle_recalls();
            return;
        }
        if stream.is_fabric() {
            self.broke_fabric(ctx, peer);
        } else if remote.is_wanted(stream) {
            remote.calls(stream).broke(now, self.rank() > peer);
            if let Some(due) = remote.due(stream) {
                ctx.timers.remind(due);
            }
            ctx.sockets.look_again();
        }
        ctx.spread(peer);
    }

    /// Which of a peer's addresses is to be called when its open connection by one of several
    /// networks in common breaks: that of the next one. The network itself may be why, as a tunnel
    /// that takes calls and loses all longer packets.
    fn by_next_network(
        &self,
        ctx: &TransportContext,
        peer: Peer,
        stream: StreamNumber,
    ) -> Option<usize> {
        if !matches!(stream, StreamNumber::Small | StreamNumber::Bulk(0)) {
            return None;
        }
        let remote = ctx.peers.get(peer)?;
        let met = remote.call_of(stream)?.met?;
        let networks = self.directory.networks(peer);
        let at = networks.iter().position(|network| network.ip() == met)?;
        let mut others = networks[at + 1..].iter().chain(&networks[..at]);
        let next = others.find(|network| !self.directory.is_drained(network.ip()))?;
        let addresses = self.directory.addresses(peer);
        addresses.iter().position(|address| address == next)
    }

    /// The connection of a stream is about to be closed. Whether the peer is given up for it.
    pub(super) fn note_end(
        &mut self,
        ctx: &mut TransportContext,
        peer: Peer,
        stream: StreamNumber,
        silent: bool,
        now: Instant,
    ) -> bool {
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return false;
        };
        let how = match (silent, how_ended(remote, stream)) {
            (true, _) => ConnectionEnd::Silent,
            (false, Some(CloseReason::Reset | CloseReason::Broke)) => ConnectionEnd::Lost,
            (false, _) => ConnectionEnd::Ended,
        };
        let [confirmed, came] = remote.fd(stream).and_then(sys::carried).unwrap_or_default();
        // Who sends is the one that finds the silence, and what came the other way says nothing of
        // what it sent.
        let carried = if how == ConnectionEnd::Silent {
            confirmed
        } else {
            came
        };
        let (moved, wanted) = (remote.moved(), remote.is_waiting());
        let calls = remote.calls(stream);
        let ended = EndedConnection {
            how,
            with: calls.met,
            carried: carried >= TCP_CARRIED,
            wanted,
        };
        let follows = calls.silences.ended(ended, moved, now);
        if follows == NextStep::Nothing {
            return false;
        }
        for address in remote.calls(stream).silences.addresses().to_vec() {
            self.short_lived.add(address);
        }
        // Of the others there is a way without it.
        follows == NextStep::Over
            && !stream.is_further()
            && !stream.is_fabric()
            && !self.is_beside(peer)
    }

    /// Connections to a peer are made and bring nothing.
    pub(super) fn give_up_silent(&mut self, ctx: &mut TransportContext, peer: Peer) {
        let fault = HandshakeError::Silent;
        self.directory.refused(peer, &fault);
        self.lose_for(ctx, peer, fault.for_good());
    }

    /// Returns whether an open connection has small segments because longer ones do not arrive.
    pub(super) fn is_brief(
        &self,
        ctx: &TransportContext,
        peer: Peer,
        stream: StreamNumber,
    ) -> bool {
        let remote = ctx.peers.get(peer);
        let segment = remote
            .and_then(|remote| remote.fd(stream))
            .and_then(sys::segment);
        let met = remote.and_then(|remote| remote.call_of(stream)?.met);
        met.is_some_and(|met| self.short_lived.has(met))
            && segment.is_some_and(|bytes| bytes <= TCP_SEGMENT)
    }

    /// A peer counts as gone.
    pub(super) fn lose(&mut self, ctx: &mut TransportContext, peer: Peer) {
        self.lose_for(ctx, peer, LOST);
    }

    pub(super) fn lose_for(&mut self, ctx: &mut TransportContext, peer: Peer, why: &'static str) {
        let beside = self.is_beside(peer);
        if beside && !self.directory.is_gone(peer) {
            return self.part(ctx, peer);
        }
        let Some(record) = ctx.peers.lose(peer) else {
            return;
        };
        if let Some(mut remote) = record {
            for stream in remote.streams() {
                ctx.table.closed(peer, stream);
            }
            ctx.notices
                .reads_failed(peer, remote.paths.take_reads(), why);
            remote.link.log.clear(ctx.rooms.blocks());
        }
        ctx.settle_recalls();
        if !beside {
            ctx.notices.peer_gone(peer, why);
        }
    }

    /// The connections with such a peer are of no use: they end, and the next read tries again.
    pub(super) fn part(&mut self, ctx: &mut TransportContext, peer: Peer) {
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return;
        };
        remote.link.cut();
        remote.paths.cut(0);
        let now = Instant::now();
        for stream in [StreamNumber::Small, StreamNumber::Bulk(0)] {
            ctx.table.closed(peer, stream);
        }
        self.failed_further(ctx, peer, StreamNumber::Bulk(0), &ConnectFailure::Cut, now);
        ctx.spread(peer);
    }
}

fn how_ended(remote: &TcpPeer, stream: StreamNumber) -> Option<CloseReason> {
    let channel = match stream {
        StreamNumber::Small => remote.link.channel(),
        StreamNumber::Bulk(path) => remote.paths.get(path)?.bulk.channel(),
    };
    channel.and_then(Connection::end)
}
