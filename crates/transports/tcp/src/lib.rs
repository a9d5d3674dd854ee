//! The TCP transport: packets and bulk data to ranks of other hosts.
//!
//! A [`TcpTransport`] is one rank's transport and belongs to its engine; what surrounds it comes
//! from [`PeerDirectory`]. Its parts are files of their own (`connections`, `context`, `coalescer`,
//! `poll_pacing`). A pair's connection is made when it is first used, by whoever needs it,
//! proved by both ends (`handshake`), and made again when it breaks; numbers and replay live above
//! the sockets (`packet_stream`, `replay_log`). Packets and bulk data have a connection each, so
//! that small messages do not stand behind large ones. Large data are asked for by the receiver and
//! go from user memory to user memory (`bulk`). Sockets never block; their readiness is in one
//! epoll, in which a rank also sleeps (`epoll_wake`).
//!
//! Bounded by the log of each peer spoken to, the unauthenticated callers at the door, and
//! `limits`. No room is `ClaimError::Full`. Peers that are gone are told once.

#![deny(unsafe_code)]

pub mod agent_channel;
mod blackhole_detector;
mod bulk;
mod coalescer;
mod connection;
pub mod connection_table;
mod connections;
mod connector;
mod context;
mod dispatch;
mod epoll_wake;
#[cfg(not(fuzzing))]
pub(crate) mod frame;
#[cfg(fuzzing)]
pub mod frame;
#[cfg(test)]
mod fuzz_seeds;
mod handshake;
#[cfg(any(test, fuzzing))]
pub mod hostile;
mod intra_node_paths;
mod latency_priority;
mod listener;
mod listener_gate;
mod memory_path;
mod multipath;
mod notices;
mod ofi_path;
mod packet_rooms;
mod packet_stream;
mod path_rate;
mod path_transport;
mod peer;
mod peer_directory;
mod peer_table;
mod poll_pacing;
mod ready_peers;
mod regions;
pub mod relay;
mod relay_protocol;
mod replay_log;
mod sockets;
mod stripe_settings;
mod sys;
#[cfg(test)]
mod test_support;
#[cfg(test)]
mod tests;
mod timers;
mod transport;
mod unauthenticated;
mod versions;

pub use frame::{LIBRARY, LibraryName, MEMORY, ProcessId, RejectReason, StreamNumber, VERSIONS};
pub use handshake::{HandshakeError, LocalIdentity, SECRET_BYTES, Secret};
pub use listener::listen;
pub use multipath::measured_rates::MeasuredRate;
pub use ofi_path::endpoint_opener::OfiSetting;
pub use ofi_path::hello::NotUsedReason;
pub use peer_directory::PeerDirectory;
pub use versions::{NoneInCommon, Versions};

use crate::bulk::eager_prefix::PrefixBuffer;
use crate::coalescer::Coalescer;
use crate::connection_table::ConnectionTable;
use crate::connections::Connections;
use crate::context::TransportContext;
use crate::dispatch::StreamKind;
use crate::epoll_wake::EpollWake;
pub use crate::epoll_wake::SocketSet;
use crate::frame::{FrameKind, ReadRequest};
use crate::intra_node_paths::IntraNodeReads;
pub use crate::intra_node_paths::PendingReads;
use crate::latency_priority::LatencyPriority;
use crate::listener::Listener;
use crate::notices::PendingNotices;
use crate::packet_rooms::PacketRooms;
use crate::peer_table::PeerTable;
use crate::poll_pacing::PollPacing;
use crate::ready_peers::ReadyPeers;
use crate::regions::ExposedRegions;
use crate::sockets::Sockets;
use crate::stripe_settings::StripeSettings;
use crate::timers::Timers;
use garonne_engine::api::{Error, Peer};
use garonne_engine::schedule::coalesce::CoalescePolicy;
use garonne_engine::schedule::plugin::CheckedPlugin;
use garonne_engine::schedule::stripe::StripePolicy;
use garonne_engine::transport::{
    BulkStatus, BulkToken, BulkTransfer, PacketHeader, PollSink, RegionDescriptor,
};
use garonne_sync::user::UserMem;
use garonne_transport::limits::TCP_LINGER;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Reason given for a peer of which nothing else is known.
const LOST: &str = "it died or cut the connection";

/// One rank's TCP transport.
///
/// Owned by the rank's engine, or by the transport that joins several. Calls come through
/// [`Transport`](garonne_engine::transport::Transport), and before the first of them settings:
/// [`TcpTransport::gather`], [`TcpTransport::consult`], [`TcpTransport::set_beside`]. Polls deliver
/// what came; [`TcpTransport::drive`] moves bytes without delivering any. Dropping it sends what
/// waits, for a short time; [`TcpTransport::sever`] does not.
///
/// What all parts work on is in the context; each other part gets it as an argument.
pub struct TcpTransport {
    ctx: TransportContext,
    connections: Connections,
    coalescer: Coalescer,
    pacing: PollPacing,
    intra_node: IntraNodeReads,
    /// Place where large data wait that came before they were read.
    prefixes: Arc<PrefixBuffer>,
}

impl std::fmt::Debug for TcpTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpTransport")
            .field("me", &self.connections.rank())
            .field("met", &self.ctx.peers.met())
            .finish_non_exhaustive()
    }
}

impl TcpTransport {
    /// The transport of the rank that `identity` names, which listens on `listener`.
    ///
    /// # Errors
    /// The system lacks what it needs.
    pub fn new(
        identity: LocalIdentity,
        hosts: Arc<dyn PeerDirectory>,
        listener: TcpListener,
    ) -> Result<Self, Error> {
        listener
            .set_nonblocking(true)
            .map_err(|error| Error::System {
                what: "cannot use the listening socket",
                errno: error.raw_os_error().unwrap_or(0),
            })?;
        let world = hosts.size();
        let listener = Listener::new(OwnedFd::from(listener));
        let connections = Connections::new(identity, hosts, listener);
        let wake = Arc::new(EpollWake::new()?);
        let table = ConnectionTable::default();
        connections.show(&table);
        Ok(Self {
            ctx: TransportContext {
                peers: PeerTable::new(world),
                sockets: Sockets::new(wake.clone(), connections.listener_fd())?,
                timers: Timers::new(wake),
                ready: ReadyPeers::default(),
                priority: LatencyPriority::default(),
                notices: PendingNotices::default(),
                regions: ExposedRegions::default(),
                rooms: PacketRooms::default(),
                striping: StripeSettings::default(),
                table,
            },
            connections,
            coalescer: Coalescer::default(),
            pacing: PollPacing::default(),
            intra_node: IntraNodeReads::default(),
            prefixes: Arc::default(),
        })
    }

    /// Told by the host that a peer died: what came from it is still delivered, then the engine is
    /// told.
    pub fn peer_gone(&mut self, peer: Peer) {
        self.connections.peer_gone(&mut self.ctx, peer);
    }

    /// Something lies here that came, of which no socket will tell.
    pub fn has_taken(&self) -> bool {
        !self.ctx.ready.is_empty() || !self.ctx.notices.is_empty()
    }

    /// Returns the sockets, for a rank that sleeps elsewhere.
    pub fn sockets(&self) -> SocketSet {
        SocketSet::new(self.ctx.sockets.wake().clone())
    }

    /// Does what is due with sockets, and delivers nothing: what a progress thread does for a rank
    /// that computes.
    pub fn drive(&mut self) {
        self.coalescer.release(&mut self.ctx);
        self.connections.look(&mut self.ctx, &mut self.pacing);
    }

    /// Last words before the owner sleeps: acknowledgements that are owed, deaths that the host
    /// knows of, the time to wake up.
    pub fn before_sleep(&mut self) {
        self.connections.before_sleep(&mut self.ctx);
    }

    /// Closes every connection and the port at once and without a word, as the end of the process
    /// does.
    pub fn sever(mut self) {
        self.ctx.peers.clear();
    }

    /// From now on messages may be kept, as the strategy says; [`TcpTransport::nap`] will be
    /// called.
    pub fn gather(&mut self, leaving: CoalescePolicy) {
        self.coalescer.set_policy(leaving);
    }

    /// From now on large data are split like this, where no other strategy decides.
    pub fn split_by(&mut self, splitting: StripePolicy) {
        self.ctx.striping.set_policy(splitting);
    }

    /// From now on this strategy is asked what may wait, if anything may at all, and how large data
    /// are split.
    pub fn consult(&mut self, loaded: Arc<CheckedPlugin>) {
        let decides = loaded.decides();
        self.coalescer
            .set_plugin(decides.waiting.then(|| loaded.clone()));
        self.ctx
            .striping
            .set_plugin(decides.pieces.then_some(loaded));
    }

    /// From now on nothing is kept.
    pub fn gather_nothing(&mut self) {
        self.coalescer.keep_nothing();
    }

    /// Messages that were kept, and times that some were overdue.
    pub fn gathered(&self) -> (u64, u64) {
        self.coalescer.counts()
    }

    /// Returns whether something is kept and nobody has been asked to look after it; asks once.
    #[inline]
    pub fn wants_naps(&mut self) -> bool {
        self.coalescer.wants_naps(&self.ctx.peers)
    }

    /// Returns whether there is room since the last nap that somebody may sleep for.
    pub fn makes_room(&mut self) -> bool {
        self.coalescer.makes_room()
    }

    /// A nap is over: what was kept before it began leaves, and what sockets take now of what they
    /// did not. How long the next one is; `None`: nothing has been kept for long, and nobody needs
    /// to look any more until something is.
    pub fn nap(&mut self) -> Option<Duration> {
        self.coalescer.nap(&mut self.ctx)
    }

    /// Returns whether everything sent has reached the other hosts.
    pub fn has_left(&self) -> bool {
        self.ctx.has_left()
    }

    /// The peers that something is still on its way to.
    pub fn owed(&self) -> Vec<Peer> {
        self.ctx.owed()
    }

    /// Sets whether large data are left in their sockets until there is much of them.
    pub fn be_patient(&mut self, patient: bool) {
        if self.pacing.set_in_background(patient) && !patient {
            for at in 0..self.ctx.peers.met().len() {
                let peer = self.ctx.peers.met()[at];
                if let Some(remote) = self.ctx.peers.get_mut(peer) {
                    remote.paths.hurry();
                }
            }
        }
    }

    /// Peers, by index, whose memory this rank reaches, and to whom only large data go by this
    /// transport.
    pub fn set_beside(&mut self, beside: Vec<bool>) {
        self.connections.set_beside(beside);
    }

    /// Reads a region of such a peer: what `memory` names is the same as what the read names.
    pub fn read_beside(
        &mut self,
        bulk: &BulkTransfer<'_>,
        memory: RegionDescriptor,
    ) -> Result<BulkStatus, Error> {
        let peer = bulk.peer;
        let gone = |_| Error::Peer { peer, what: LOST };
        let remote = self.connections.remote(&mut self.ctx, peer).map_err(gone)?;
        let ask = ReadRequest {
            cookie: bulk.descriptor.cookie,
            offset: bulk.offset,
            len: bulk.len,
        };
        let local = (bulk.local.clone(), bulk.local_offset);
        remote.paths.read_by_both((bulk.token, ask), memory, local);
        let is_much = remote.paths.is_much();
        if self.intra_node.add(peer) {
            self.ctx.table.opened_once(peer, StreamNumber::Bulk(MEMORY));
        }
        if is_much {
            self.connections
                .want(&mut self.ctx, peer, StreamNumber::Bulk(0));
        }
        self.ctx.spread(peer);
        Ok(BulkStatus::Pending)
    }

    /// Returns whether anything is read from such peers.
    pub fn reads_beside(&self) -> bool {
        !self.intra_node.is_empty()
    }

    /// Returns what is to be copied next; peers take turns.
    pub fn next_copy(&mut self) -> Option<PendingReads> {
        self.intra_node.next(&self.ctx.peers)
    }

    /// Records how many bytes of the last [`TcpTransport::next_copy`] of this peer were copied, or
    /// that they cannot be.
    pub fn copied(&mut self, peer: Peer, result: Result<u64, Error>) {
        let Some(remote) = self.ctx.peers.get_mut(peer) else {
            return;
        };
        match result {
            Ok(len) => {
                if let Some(ended) = remote.paths.copied(len) {
                    self.ctx.tell_of(peer, ended);
                }
            }
            Err(error) => {
                let token = remote.paths.fail_copy();
                if let Some(token) = token {
                    self.ctx.notices.read_ended(token, Err(error));
                }
            }
        }
        self.show_ways(peer);
        self.ctx.spread(peer);
    }

    fn show_ways(&mut self, peer: Peer) {
        let Some(remote) = self.ctx.peers.get(peer) else {
            return;
        };
        for path in [0, MEMORY] {
            self.ctx
                .table
                .moved(peer, StreamNumber::Bulk(path), remote.paths.brought(path));
        }
    }

    /// The address of the table of connections that [`read_shown`](connection_table::read_shown)
    /// reads; it stays as long as the transport lives.
    pub fn shown_at(&self) -> usize {
        self.ctx.table.at()
    }

    /// Returns the bytes that [`read_shown`](connection_table::read_shown) would read now.
    pub fn shown_table(&self) -> Vec<u8> {
        self.ctx.table.table()
    }

    /// Bytes of large data that each way from a peer has brought, the first way first.
    pub fn brought_by(&self, peer: Peer) -> Vec<u64> {
        let remote = self.ctx.peers.get(peer);
        remote.map_or_else(Vec::new, |remote| remote.paths.bytes_brought())
    }

    /// The own and the peer's end of the connection that packets take, while there is one.
    pub fn ends_of(&self, peer: Peer) -> Option<(SocketAddr, SocketAddr)> {
        self.ctx.ends(peer, StreamNumber::Small)
    }

    /// Returns what the sockets for large data from a peer give.
    pub fn gives(&self, peer: Peer) -> Vec<MeasuredRate> {
        let Some(remote) = self.ctx.peers.get(peer) else {
            return Vec::new();
        };
        let gives = |number: u8| {
            let ends = self.ctx.ends(peer, StreamNumber::Bulk(number))?;
            remote.paths.measured(number, ends)
        };
        let sockets = remote
            .paths
            .numbers()
            .filter(|number| !StreamNumber::Bulk(*number).is_fabric());
        sockets.filter_map(gives).collect()
    }

    /// From now on nothing is begun with but what this transport finds itself: for who measures. To
    /// be called before large data come.
    pub fn measure_anew(&mut self) {
        self.ctx.striping.measure_anew();
    }

    /// Says goodbye: everything sent has reached the other hosts, or the time is over.
    fn leave(&mut self) {
        let until = Instant::now() + TCP_LINGER;
        for at in 0..self.ctx.peers.met().len() {
            let peer = self.ctx.peers.met()[at];
            if let Some(remote) = self.ctx.peers.get_mut(peer) {
                // What was never sent needs no goodbye.
                if remote.link.is_up() || !remote.link.log.is_settled() {
                    remote
                        .link
                        .send_word(self.ctx.rooms.blocks(), FrameKind::Bye);
                }
            }
            self.ctx.flush(peer, StreamNumber::Small);
        }
        while Instant::now() < until && !self.ctx.has_left() {
            self.connections.look(&mut self.ctx, &mut self.pacing);
            for peer in self.ctx.ready.begin_turn() {
                self.take_from((peer, StreamKind::Both), u32::MAX, &mut UnreachedPeers);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Drop for TcpTransport {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Sink of the polls of a transport that leaves: nobody listens any more.
struct UnreachedPeers;

impl PollSink for UnreachedPeers {
    fn on_packet(&mut self, _: Peer, _: PacketHeader, _: UserMem, _: usize) {}
    fn on_exposed(&mut self, _: BulkToken, _: Option<RegionDescriptor>) {}
    fn on_revoked(&mut self, _: BulkToken) {}
    fn on_bulk_done(&mut self, _: BulkToken, _: Result<(), Error>) {}
    fn on_peer_gone(&mut self, _: Peer) {}
}
