//! The transport's part of ways by libfabric: when one is opened, what becomes of endpoints that
//! were opened elsewhere, and memory that comes back late.
//!
//! Part of [`TcpTransport`]; called from its polls and its looks. That such a way fails says
//! nothing of the peer.

use crate::frame::{FABRIC, StreamNumber};
use crate::ofi_path::OfiPath;
use crate::ofi_path::hello::NotUsedReason;
use crate::peer::ConnectState;
use crate::{PendingNotice, TcpTransport};
use garonne_engine::api::Peer;
use garonne_engine::transport::{BulkToken, WakeSource};
use garonne_transport::limits::{FABRIC_ENDPOINTS, TCP_FURTHER_AGAIN, TCP_SILENCE_LOOK};
use rustix::event::epoll::EventData;
use std::time::Instant;

/// Stream of the libfabric path.
pub(crate) const STREAM: StreamNumber = StreamNumber::Bulk(FABRIC);

impl TcpTransport {
    fn fabric_mut(&mut self, peer: Peer) -> Option<&mut OfiPath> {
        self.remotes
            .get_mut(peer as usize)?
            .as_mut()?
            .paths
            .fabric_mut()
    }

    fn fabric(&self, peer: Peer) -> Option<&OfiPath> {
        self.remotes.get(peer as usize)?.as_ref()?.paths.fabric()
    }

    /// Large data are to be read from this peer: the way by libfabric is opened, where there may be
    /// one.
    pub(crate) fn want_fabric(&mut self, peer: Peer) {
        if self.no_fabric.is_some() {
            return;
        }
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
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
            true => self.want(peer, STREAM),
            false => self.open_endpoint(peer),
        }
    }

    /// Has an endpoint opened, unless there are too many.
    fn open_endpoint(&mut self, peer: Peer) {
        let has_one = |peer: &&Peer| {
            self.fabric(**peer)
                .is_some_and(|fabric| fabric.has_device() || fabric.opening)
        };
        let many = self.open.iter().filter(has_one).count() >= FABRIC_ENDPOINTS;
        let ends = self
            .ends(peer, StreamNumber::Small)
            .or(self.ends(peer, STREAM));
        let Some(fabric) = self.fabric_mut(peer) else {
            return;
        };
        if many {
            fabric.equip(Err(NotUsedReason::TooMany));
            return self.show_fabric(peer);
        }
        fabric.opening = true;
        let own = ends.map(|(own, _)| own.ip());
        self.opener.open(&self.fabrics, &self.wake, (peer, own));
    }

    /// A connection for such a way is open, whoever called.
    pub(crate) fn opened_fabric(&mut self, peer: Peer) {
        let why = self.no_fabric;
        let Some(fabric) = self.fabric_mut(peer) else {
            return;
        };
        match (
            fabric.has_device() || fabric.opening,
            why.or(fabric.unused().0),
        ) {
            (true, _) => {}
            (false, Some(why)) => fabric.equip(Err(why)),
            (false, None) => self.open_endpoint(peer),
        }
        self.show_fabric(peer);
    }

    /// Endpoints were opened, or could not be.
    pub(crate) fn take_endpoints(&mut self) {
        for (peer, opened) in self.opener.take() {
            // A peer that is gone by now needs none.
            let Some(fabric) = self.fabric_mut(peer) else {
                continue;
            };
            fabric.equip(opened);
            self.show_fabric(peer);
            let Some(Some(remote)) = self.remotes.get(peer as usize) else {
                continue;
            };
            if remote.fd(STREAM).is_some() {
                self.flush(peer, STREAM);
                self.mark_ready(peer);
                self.spread(peer);
            } else {
                self.want_fabric(peer);
            }
        }
    }

    /// Returns whether a call for such a way may be made now: there is an endpoint. Has one opened
    /// otherwise.
    pub(crate) fn may_call_fabric(&mut self, peer: Peer) -> bool {
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return false;
        };
        let is_wanted = remote.is_wanted(STREAM) && !remote.condemned && !remote.link.heard_bye;
        if is_wanted && remote.paths.fabric().is_some_and(OfiPath::has_device) {
            return true;
        }
        remote.calls(STREAM).call = ConnectState::Rest;
        if is_wanted {
            self.want_fabric(peer);
        }
        false
    }

    /// Handles the end of such a way: it is tried again later, if that may help.
    pub(crate) fn broke_fabric(&mut self, peer: Peer) {
        let may_help = self.fabric(peer).is_some_and(OfiPath::is_possible);
        let at = Instant::now() + TCP_FURTHER_AGAIN;
        if let Some(Some(remote)) = self.remotes.get_mut(peer as usize) {
            let calls = remote.calls(STREAM);
            calls.watches_room = false;
            if may_help {
                calls.put_off(at);
                self.remind(at);
            } else {
                calls.call = ConnectState::Rest;
            }
        }
        self.settle_recalls();
        self.show_fabric(peer);
    }

    /// The owner of a region waits for what of it is lent.
    pub(crate) fn recall(&mut self, peer: Peer, cookie: u64, token: BulkToken) {
        self.recalled.push((peer, cookie, token));
        self.remind(Instant::now() + TCP_SILENCE_LOOK);
    }

    /// Tells of regions of which nothing is lent any more.
    pub(crate) fn settle_recalls(&mut self) {
        let (remotes, untold) = (&self.remotes, &mut self.untold);
        self.recalled.retain(|(peer, cookie, token)| {
            let remote = remotes.get(*peer as usize).and_then(Option::as_ref);
            let lends = remote.is_some_and(|remote| remote.paths.lends(*cookie));
            if !lends {
                untold.push(PendingNotice::Revoked(*token));
            }
            lends
        });
    }

    /// A look for silence: a peer that keeps what its owner wants back loses the way.
    pub(crate) fn listen_to_fabric(&mut self, peer: Peer) {
        if self.fabric_mut(peer).is_some_and(OfiPath::is_kept_too_long) {
            self.broke(peer, STREAM);
        }
    }

    /// The owner may be about to sleep: endpoints with something under way are to end that.
    pub(crate) fn watch_fabrics(&mut self) {
        for at in 0..self.open.len() {
            let peer = self.open[at];
            let wake = self.wake.clone();
            let data: EventData = crate::socket_progress::watched(peer, STREAM);
            let Some(fabric) = self.fabric_mut(peer) else {
                continue;
            };
            match fabric.before_sleep(&wake.epoll, data) {
                None => {}
                Some(limit) if limit.is_zero() => {
                    self.mark_ready(peer);
                    wake.wake();
                }
                Some(limit) => {
                    self.mark_ready(peer);
                    self.remind(Instant::now() + limit);
                }
            }
        }
    }

    /// Shows such a way to those who watch.
    pub(crate) fn show_fabric(&self, peer: Peer) {
        if let Some(fabric) = self.fabric(peer) {
            self.shown
                .fabric(peer, fabric.provider().unwrap_or_default(), fabric.unused());
        }
    }
}
