//! Ways by libfabric as the transport opens and ends them: when one is opened, what becomes of
//! endpoints that were opened elsewhere, and memory that comes back late.
//!
//! Part of [`Connections`]; called from polls and looks of the transport. That such a way fails
//! says nothing of the peer.

use super::Connections;
use crate::context::TransportContext;
use crate::frame::StreamNumber;
use crate::ofi_path::hello::NotUsedReason;
use crate::ofi_path::{OfiPath, STREAM};
use crate::peer::ConnectState;
use crate::sockets::EpollTarget;
use garonne_engine::api::Peer;
use garonne_engine::transport::WakeSource;
use garonne_transport::limits::{OFI_ENDPOINTS_MAX, TCP_EXTRA_NETWORK_RETRY};
use std::time::Instant;

impl Connections {
    /// Large data are to be read from this peer: the way by libfabric is opened, where there may be
    /// one.
    pub(crate) fn want_fabric(&mut self, ctx: &mut TransportContext, peer: Peer) {
        if self.ofi.unused().is_some() {
            return;
        }
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return;
        };
        let is_open = remote.fd(STREAM).is_some();
        let rests = matches!(remote.calls(STREAM).call, ConnectState::Rest);
        let Some(fabric) = remote.paths.fabric_mut() else {
            return;
        };
        if is_open || !rests || fabric.opening || !fabric.is_possible() {
            return;
        }
        match fabric.has_device() {
            true => self.want(ctx, peer, STREAM),
            false => self.open_endpoint(ctx, peer),
        }
    }

    /// Returns whether a call for such a way may be made now: there is an endpoint. Has one opened
    /// otherwise.
    pub(crate) fn may_call_fabric(&mut self, ctx: &mut TransportContext, peer: Peer) -> bool {
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return false;
        };
        let is_wanted = remote.is_wanted(STREAM) && !remote.condemned && !remote.link.heard_bye;
        if is_wanted && remote.paths.fabric().is_some_and(OfiPath::has_device) {
            return true;
        }
        remote.calls(STREAM).call = ConnectState::Rest;
        if is_wanted {
            self.want_fabric(ctx, peer);
        }
        false
    }

    /// Has an endpoint opened, unless there are too many.
    fn open_endpoint(&mut self, ctx: &mut TransportContext, peer: Peer) {
        let has_one = |peer: &&Peer| {
            ctx.fabric(**peer)
                .is_some_and(|fabric| fabric.has_device() || fabric.opening)
        };
        let many = ctx.peers.met().iter().filter(has_one).count() >= OFI_ENDPOINTS_MAX;
        let ends = ctx
            .ends(peer, StreamNumber::Small)
            .or(ctx.ends(peer, STREAM));
        let Some(fabric) = ctx.fabric_mut(peer) else {
            return;
        };
        if many {
            fabric.equip(Err(NotUsedReason::TooMany));
            return ctx.show_fabric(peer);
        }
        fabric.opening = true;
        let own = ends.map(|(own, _)| own.ip());
        self.ofi.open(ctx.sockets.wake(), (peer, own));
    }

    /// A connection for such a way is open, whoever called.
    pub(crate) fn opened_fabric(&mut self, ctx: &mut TransportContext, peer: Peer) {
        let why = self.ofi.unused();
        let Some(fabric) = ctx.fabric_mut(peer) else {
            return;
        };
        match (
            fabric.has_device() || fabric.opening,
            why.or(fabric.unused().0),
        ) {
            (true, _) => {}
            (false, Some(why)) => fabric.equip(Err(why)),
            (false, None) => self.open_endpoint(ctx, peer),
        }
        ctx.show_fabric(peer);
    }

    /// Endpoints were opened, or could not be.
    pub(crate) fn take_endpoints(&mut self, ctx: &mut TransportContext) {
        for (peer, opened) in self.ofi.take() {
            // A peer that is gone by now needs none.
            let Some(fabric) = ctx.fabric_mut(peer) else {
                continue;
            };
            fabric.equip(opened);
            ctx.show_fabric(peer);
            let Some(remote) = ctx.peers.get(peer) else {
                continue;
            };
            if remote.fd(STREAM).is_some() {
                ctx.flush(peer, STREAM);
                ctx.ready.mark(peer);
                ctx.spread(peer);
            } else {
                self.want_fabric(ctx, peer);
            }
        }
    }

    /// Handles the end of such a way: it is tried again later, if that may help.
    pub(crate) fn broke_fabric(&mut self, ctx: &mut TransportContext, peer: Peer) {
        let may_help = ctx.fabric(peer).is_some_and(OfiPath::is_possible);
        let at = Instant::now() + TCP_EXTRA_NETWORK_RETRY;
        if let Some(remote) = ctx.peers.get_mut(peer) {
            let calls = remote.calls(STREAM);
            calls.watches_room = false;
            if may_help {
                calls.put_off(at);
                ctx.timers.remind(at);
            } else {
                calls.call = ConnectState::Rest;
            }
        }
        ctx.settle_recalls();
        ctx.show_fabric(peer);
    }

    /// A look for silence: a peer that keeps what its owner wants back loses the way.
    pub(crate) fn listen_to_fabric(&mut self, ctx: &mut TransportContext, peer: Peer) {
        if ctx.fabric_mut(peer).is_some_and(OfiPath::is_kept_too_long) {
            self.broke(ctx, peer, STREAM);
        }
    }
}

impl TransportContext {
    fn fabric(&self, peer: Peer) -> Option<&OfiPath> {
        self.peers.get(peer)?.paths.fabric()
    }

    fn fabric_mut(&mut self, peer: Peer) -> Option<&mut OfiPath> {
        self.peers.get_mut(peer)?.paths.fabric_mut()
    }

    /// Shows such a way to those who watch.
    pub(crate) fn show_fabric(&self, peer: Peer) {
        if let Some(fabric) = self.fabric(peer) {
            self.table
                .fabric(peer, fabric.provider().unwrap_or_default(), fabric.unused());
        }
    }

    /// The owner may be about to sleep: endpoints with something under way are to end that.
    pub(crate) fn watch_fabrics(&mut self) {
        for at in 0..self.peers.met().len() {
            let peer = self.peers.met()[at];
            let wake = self.sockets.wake().clone();
            let data = EpollTarget::Peer(peer, STREAM).data();
            let Some(fabric) = self.fabric_mut(peer) else {
                continue;
            };
            match fabric.before_sleep(&wake.epoll, data) {
                None => {}
                Some(limit) if limit.is_zero() => {
                    self.ready.mark(peer);
                    wake.wake();
                }
                Some(limit) => {
                    self.ready.mark(peer);
                    self.timers.remind(Instant::now() + limit);
                }
            }
        }
    }
}
