//! The state that all parts of a TCP transport work on, and what each of them does with it: sends
//! what waits on a stream, and divides what is to be read among the paths of a peer.
//!
//! Owned by the transport, which hands it to its other parts as an argument. Nothing here delivers
//! to the engine, and nothing here opens or ends a connection.

use crate::bulk::BulkConnection;
use crate::connection_table::{ConnectionTable, plain};
use crate::frame::{ReadRequest, StreamNumber};
use crate::latency_priority::LatencyPriority;
use crate::multipath::ReadResult;
use crate::notices::PendingNotices;
use crate::packet_rooms::PacketRooms;
use crate::packet_stream::SendResult;
use crate::peer_table::PeerTable;
use crate::ready_peers::ReadyPeers;
use crate::regions::ExposedRegions;
use crate::sockets::{EpollTarget, Sockets};
use crate::stripe_settings::StripeSettings;
use crate::sys;
use crate::timers::Timers;
use garonne_engine::api::{Error, Peer};
use garonne_engine::transport::{BulkToken, PacketHeader, PacketKind};
use garonne_sync::user::Data;
use garonne_transport::limits::{EAGER_PREFIX_MAX, TCP_SILENCE_CHECK};
use rustix::event::epoll::EventFlags;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Shared state of the parts of a transport.
///
/// Owned by the transport. Each field is a part with private fields of its own; the methods here
/// are those that need several of them. None needs to be called in any order.
pub(crate) struct TransportContext {
    pub(crate) peers: PeerTable,
    pub(crate) sockets: Sockets,
    pub(crate) timers: Timers,
    pub(crate) ready: ReadyPeers,
    pub(crate) priority: LatencyPriority,
    pub(crate) notices: PendingNotices,
    pub(crate) regions: ExposedRegions,
    pub(crate) rooms: PacketRooms,
    pub(crate) striping: StripeSettings,
    pub(crate) table: ConnectionTable,
}

impl TransportContext {
    /// Sends what waits on a stream, and has its socket watched for room if it is full.
    pub(crate) fn flush(&mut self, peer: Peer, stream: StreamNumber) {
        let slice = match stream {
            StreamNumber::Small => usize::MAX,
            StreamNumber::Bulk(_) => self.priority.slice(Instant::now),
        };
        self.flush_some(peer, stream, slice);
    }

    /// Sends what waits, but about `slice` bytes of bulk data at most.
    pub(crate) fn flush_some(&mut self, peer: Peer, stream: StreamNumber, slice: usize) {
        let Some(remote) = self.peers.get_mut(peer) else {
            return;
        };
        self.timers.expect_confirmation();
        let sent = match stream {
            StreamNumber::Small => remote.link.flush(),
            StreamNumber::Bulk(path) => remote.paths.at(path).bulk.flush(slice),
        };
        if sent == SendResult::Over {
            // What the other side sent before it cut is taken first.
            self.ready.mark(peer);
            self.sockets.look_again();
            return;
        }
        // What may leave later is seen to at the next look, as where there is no room now.
        let full = sent != SendResult::All;
        if sent == SendResult::Enough {
            self.sockets.look_again();
        }
        if remote.calls(stream).watches_room == full {
            return;
        }
        let flags = if full {
            EventFlags::IN | EventFlags::OUT
        } else {
            EventFlags::IN
        };
        let target = EpollTarget::Peer(peer, stream);
        if let Some(fd) = remote.fd(stream)
            && self.sockets.change(fd, target, flags)
        {
            remote.calls(stream).watches_room = full;
        }
    }

    /// Asks for what is to be read and nobody is asked for, as the strategy divides it among the
    /// paths of a peer.
    pub(crate) fn spread(&mut self, peer: Peer) {
        let Some(remote) = self.peers.get_mut(peer) else {
            return;
        };
        if !remote.paths.is_wanted() {
            return;
        }
        let mut asked = remote.paths.spread(self.striping.rule(peer));
        if let Some(ended) = remote.paths.refused_whole() {
            self.tell_of(peer, ended);
        }
        while asked != 0 {
            self.flush(peer, StreamNumber::Bulk(asked.trailing_zeros() as u8));
            asked &= asked - 1;
        }
    }

    /// Sends what leaves unasked behind an announcement.
    #[inline]
    pub(crate) fn lead(&mut self, peer: Peer, header: &PacketHeader) {
        if header.kind != PacketKind::Eager as u8
            && let Some(remote) = self.peers.get_mut(peer)
            && remote.paths.takes_advance()
        {
            // The sender may compute then, also right behind other large data.
            if let Some(bulk) = remote.paths.at(0).bulk.socket_mut() {
                bulk.nobody_polls();
            }
            self.flush_some(peer, StreamNumber::Bulk(0), EAGER_PREFIX_MAX as usize);
        }
    }

    /// Starts a read of which `ahead` bytes come unasked.
    pub(crate) fn read_unasked(
        &mut self,
        peer: Peer,
        read: (BulkToken, ReadRequest, u64),
        local: (Data, u64),
    ) {
        let Some(remote) = self.peers.get_mut(peer) else {
            return;
        };
        if let Some(ended) = remote.paths.read_advanced(read, local) {
            self.tell_of(peer, ended);
        }
        // It may be here, and was left in the socket.
        self.ready.mark(peer);
    }

    /// A read is over.
    pub(crate) fn tell_of(&mut self, peer: Peer, ended: ReadResult) {
        match ended {
            ReadResult::Done(token) => self.notices.read_ended(token, Ok(())),
            ReadResult::Refused(token) => {
                let what = "it has withdrawn the memory that it had announced";
                self.notices
                    .read_ended(token, Err(Error::Peer { peer, what }));
            }
        }
    }

    /// The owner of a region waits for what of it is lent.
    pub(crate) fn recall(&mut self, peer: Peer, cookie: u64, token: BulkToken) {
        self.regions.recall(peer, cookie, token);
        self.timers.remind(Instant::now() + TCP_SILENCE_CHECK);
    }

    /// Tells of regions of which nothing is lent any more.
    pub(crate) fn settle_recalls(&mut self) {
        let peers = &self.peers;
        self.regions.settle(&mut self.notices, |peer, cookie| {
            peers
                .get(peer)
                .is_some_and(|remote| remote.paths.lends(cookie))
        });
    }

    pub(crate) fn ends(
        &self,
        peer: Peer,
        stream: StreamNumber,
    ) -> Option<(SocketAddr, SocketAddr)> {
        let remote = self.peers.get(peer)?;
        let socket = remote.fd(stream)?;
        let own = rustix::net::getsockname(socket).ok()?;
        let other = rustix::net::getpeername(socket).ok()??;
        Some((plain(own.try_into().ok()?), plain(other.try_into().ok()?)))
    }

    pub(crate) fn show_round_trip(&self, peer: Peer, stream: StreamNumber) {
        let remote = self.peers.get(peer);
        let fd = remote.and_then(|remote| remote.fd(stream));
        self.table
            .round_trip(peer, stream, fd.and_then(sys::round_trip));
    }

    /// Cuts a connection short: bytes in its socket are not sent any more when it is closed: the
    /// end of the connection would stand behind it, and the peer would never hear of that where
    /// only long packets are lost.
    pub(crate) fn cut_short(&self, peer: Peer, stream: StreamNumber) {
        let remote = self.peers.get(peer);
        if let Some(socket) = remote.and_then(|remote| remote.fd(stream)) {
            let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
        }
    }

    /// For how long a peer's host has not confirmed what is under way on a stream; `None`: nothing
    /// is.
    pub(crate) fn silence(&self, peer: Peer, stream: StreamNumber) -> Option<Duration> {
        let remote = self.peers.get(peer)?;
        sys::unanswered(remote.fd(stream)?)
    }

    /// Sockets that hold little of large data, since somebody polled who would have filled them
    /// again, take what they have room for.
    pub(crate) fn fill_sockets(&mut self) {
        for at in 0..self.peers.met().len() {
            let peer = self.peers.met()[at];
            let Some(remote) = self.peers.get(peer) else {
                continue;
            };
            for path in remote.paths.numbers() {
                let Some(remote) = self.peers.get_mut(peer) else {
                    break;
                };
                if remote
                    .paths
                    .at(path)
                    .bulk
                    .socket_mut()
                    .is_some_and(BulkConnection::is_left)
                {
                    self.flush(peer, StreamNumber::Bulk(path));
                }
            }
        }
    }

    /// While bytes are under way, the hosts they go to are listened for. Of what needs no answer of
    /// the peer's, such as acknowledgements, the kernel alone knows whether it arrived; as long as
    /// it has not, the kernel does not probe, and tries for a quarter of an hour.
    pub(crate) fn listen_again(&mut self, now: Instant) {
        let waiting = |peer: &Peer| {
            self.peers
                .get(*peer)
                .is_some_and(|remote| remote.is_waiting())
        };
        if self.timers.is_unconfirmed() || self.peers.met().iter().any(waiting) {
            self.timers.remind(now + TCP_SILENCE_CHECK);
        }
    }

    /// Returns whether everything sent has reached the other hosts.
    pub(crate) fn has_left(&self) -> bool {
        !self.peers.met().iter().any(|peer| self.holds_words(*peer))
    }

    /// The peers that something is still on its way to.
    pub(crate) fn owed(&self) -> Vec<Peer> {
        self.peers
            .met()
            .iter()
            .copied()
            .filter(|peer| self.holds_words(*peer))
            .collect()
    }

    pub(crate) fn holds_words(&self, peer: Peer) -> bool {
        let Some(remote) = self.peers.get(peer) else {
            return false;
        };
        if remote.condemned || remote.link.heard_bye {
            return false;
        }
        match remote.fd(StreamNumber::Small) {
            // The kernel of the other host has it.
            Some(fd) => {
                remote.link.log.has_unsent() || sys::unacknowledged(fd).is_ok_and(|bytes| bytes > 0)
            }
            None => !remote.link.log.is_settled(),
        }
    }
}
