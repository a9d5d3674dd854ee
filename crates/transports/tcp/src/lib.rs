//! The TCP transport: packets and bulk data to ranks of other hosts.
//!
//! A [`TcpTransport`] is one rank's transport and belongs to its engine; what surrounds it comes
//! from [`PeerDirectory`]. A pair's connection is made when it is first used, by whoever needs it,
//! proved by both ends (`handshake`), and made again when it breaks; numbers and replay live above
//! the sockets (`packet_stream`, `replay_log`). Packets and bulk data have a connection each, so
//! that small messages do not stand behind large ones. Large data are asked for by the receiver and
//! go from user memory to user memory (`bulk`). Sockets never block; their readiness is in one
//! epoll, in which a rank also sleeps (`epoll_wake`).
//!
//! Bounded by the log of each peer spoken to, the strangers at the door, and `limits`. No room is
//! `ClaimError::Full`. Peers that are gone are told once.

#![deny(unsafe_code)]

pub mod agent_channel;
mod blackhole_detector;
mod bulk;
mod coalescer;
mod connection;
pub mod connection_table;
mod connector;
mod dispatch;
mod eager_prefix;
mod epoll_wake;
mod extra_networks;
mod fragments;
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
mod listener;
mod listener_gate;
mod memory_path;
mod multipath;
mod ofi_path;
mod packet_stream;
mod path_rate;
mod path_transport;
mod peer;
mod peer_directory;
mod poll_pacing;
pub mod relay;
mod relay_protocol;
mod replay_log;
mod reverse_connect;
mod shutdown;
mod socket_progress;
mod sys;
#[cfg(test)]
mod test_support;
#[cfg(test)]
mod tests;
mod timer_fd;
mod timers;
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

use crate::blackhole_detector::ShortLivedConnections;
use crate::bulk::eager_prefix::PrefixBuffer;
use crate::coalescer::{Coalescer, LatencyPriority};
use crate::connection_table::ConnectionTable;
use crate::dispatch::StreamKind;
use crate::epoll_wake::EpollWake;
pub use crate::epoll_wake::SocketSet;
use crate::frame::{FrameKind, HEADER, ReadRequest};
pub use crate::intra_node_paths::PendingReads;
use crate::listener::Listener;
use crate::ofi_path::endpoint_opener::EndpointOpener;
use crate::peer::TcpPeer;
use crate::poll_pacing::PollPacing;
use crate::replay_log::{BEFORE, LogBlocks};
use crate::timers::TimerResult;
use garonne_engine::api::{Error, Peer};
use garonne_engine::limits::CONTROL_PAYLOAD_MAX;
use garonne_engine::transport::{
    AsyncProgress, BulkStatus, BulkToken, BulkTransfer as BulkCopy, ClaimError, ExposeResult,
    FastPath, Fragmentation, FragmentedSends, Fragments, NodeMemory, PacketBuffer, PacketClass,
    PacketHeader, PeerCapabilities, PollSink, RegionDescriptor, RemoteMemory, SharedCopy,
    Transport, TransportLimits, WakeSource,
};
use garonne_sync::copy::StoreKind;
use garonne_sync::user::{Data, Scratch, UserMem};
use garonne_transport::limits::{
    TCP_EAGER_MAX, TCP_FLOW_MAX, TCP_INLINE_MAX, TCP_PACKED_MAX, TCP_PACKET_MAX, TCP_REGIONS,
};
use std::collections::{HashMap, VecDeque};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// Room that was lent.
#[derive(Debug)]
struct ClaimedRoom {
    room: Scratch,
}

/// Memory that a peer may ask for.
#[derive(Debug)]
struct ExposedData {
    token: BulkToken,
    peer: Peer,
    data: Data,
}

/// Reason given for a peer of which nothing else is known.
const LOST: &str = "it died or cut the connection";

/// Something that the engine is still to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingNotice {
    /// A peer counts as gone, and why.
    Gone(Peer, &'static str),
    /// A region that was to be withdrawn is.
    Revoked(BulkToken),
}

/// One rank's TCP transport.
pub struct TcpTransport {
    house: LocalIdentity,
    hosts: Arc<dyn PeerDirectory>,
    wake: Arc<EpollWake>,
    door: Listener,
    /// By peer; `None`: not spoken to yet.
    remotes: Vec<Option<Box<TcpPeer>>>,
    /// Peers that have an entry in `remotes`.
    open: Vec<Peer>,
    gone: Vec<bool>,
    /// Notices that the engine has not been given yet, but for reads.
    untold: Vec<PendingNotice>,
    blocks: LogBlocks,
    claims: Vec<Option<ClaimedRoom>>,
    /// Where large data wait that came before they were read.
    keep: Arc<PrefixBuffer>,
    /// By cookie.
    regions: HashMap<u64, ExposedData>,
    next_cookie: u64,
    /// Bulk reads that ended.
    done: Vec<(BulkToken, Result<(), Error>)>,
    /// Peers from which something may be taken.
    ready: Vec<Peer>,
    /// Peers of `ready` whose turn it is; empty between two polls.
    turn: Vec<Peer>,
    /// Peers for which an acknowledgement was put off.
    owing: Vec<Peer>,
    /// The peer that brought something last.
    hot: Option<Peer>,
    glance: PollPacing,
    must_look: bool,
    /// Bulk data that may be there are left to the next poll, for small messages that were told of.
    put_off: bool,
    /// Some sockets tell of much alone.
    patient: bool,
    /// The last poll left bulk data to the next. Some may have been read already, so that no socket
    /// tells of them: who was told nothing would sleep.
    sliced: bool,
    deadline: Option<Instant>,
    /// Since the clock was last asked.
    worked: TimerResult,
    /// The last look for silent hosts.
    listened: Instant,
    /// Something left since the kernel said last that all that had left was confirmed.
    unconfirmed: bool,
    brief: ShortLivedConnections,
    /// Ways begin with nothing that was found another time.
    anew: bool,
    gathering: Coalescer,
    brisk: LatencyPriority,
    shown: ConnectionTable,
    /// Count of changes to disabled networks, as the directory gave it last.
    drained: u32,
    fabrics: OfiSetting,
    /// Why no large data go by libfabric, if that is known.
    no_fabric: Option<NotUsedReason>,
    opener: EndpointOpener,
    /// Regions that are to be withdrawn and of which something is lent: peer, cookie, token.
    recalled: Vec<(Peer, u64, BulkToken)>,
    /// By peer; empty: none. See `intra_node_paths`.
    beside: Vec<bool>,
    /// Peers of `beside` from which something is read, in turn.
    copying: VecDeque<Peer>,
}

impl std::fmt::Debug for TcpTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpTransport")
            .field("me", &self.house.me.rank)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

impl TcpTransport {
    /// The transport of the rank that `house` names, which listens on `listener`.
    ///
    /// # Errors
    /// The system lacks what it needs.
    pub fn new(
        house: LocalIdentity,
        hosts: Arc<dyn PeerDirectory>,
        listener: TcpListener,
    ) -> Result<Self, Error> {
        listener
            .set_nonblocking(true)
            .map_err(|error| Error::System {
                what: "cannot use the listening socket",
                errno: error.raw_os_error().unwrap_or(0),
            })?;
        let size = hosts.size() as usize;
        let fabrics = hosts.fabrics();
        let rail = Self {
            no_fabric: fabrics.unused(house.sealed),
            fabrics,
            opener: EndpointOpener::default(),
            recalled: Vec::new(),
            beside: Vec::new(),
            copying: VecDeque::new(),
            wake: Arc::new(EpollWake::new()?),
            door: Listener::new(OwnedFd::from(listener)),
            remotes: bytemuck::zeroed_vec(size),
            open: Vec::new(),
            gone: vec![false; size],
            untold: Vec::new(),
            blocks: LogBlocks::default(),
            claims: Vec::new(),
            keep: Arc::default(),
            regions: HashMap::new(),
            next_cookie: 1,
            done: Vec::new(),
            ready: Vec::new(),
            turn: Vec::new(),
            owing: Vec::new(),
            hot: None,
            glance: PollPacing::default(),
            must_look: true,
            put_off: false,
            patient: false,
            sliced: false,
            deadline: None,
            worked: TimerResult::begin(),
            listened: Instant::now(),
            unconfirmed: false,
            brief: ShortLivedConnections::default(),
            anew: false,
            gathering: Coalescer::default(),
            brisk: LatencyPriority::default(),
            shown: ConnectionTable::default(),
            drained: hosts.drained(),
            house,
            hosts,
        };
        rail.shown.no_fabric(rail.no_fabric);
        rail.shown.sealed(rail.house.sealed);
        rail.watch_own()?;
        Ok(rail)
    }

    /// Told by the host that a peer died: what came from it is still delivered, then the engine is
    /// told.
    pub fn peer_gone(&mut self, peer: Peer) {
        if self.gone.get(peer as usize).is_none_or(|gone| *gone) {
            return;
        }
        match &mut self.remotes[peer as usize] {
            Some(remote) => {
                remote.condemned = true;
                self.mark_ready(peer);
            }
            None => self.lose(peer),
        }
    }

    /// Something lies here that came, of which no socket will tell.
    pub fn has_taken(&self) -> bool {
        !self.ready.is_empty() || !self.done.is_empty() || !self.untold.is_empty()
    }

    /// Returns the sockets, for a rank that sleeps elsewhere.
    pub fn sockets(&self) -> SocketSet {
        SocketSet::new(self.wake.clone())
    }

    /// Does what is due with sockets, and delivers nothing: what a progress thread does for a rank
    /// that computes.
    pub fn drive(&mut self) {
        self.let_go();
        self.look();
    }

    /// Closes every connection and the port at once and without a word, as the end of the process
    /// does.
    pub fn sever(mut self) {
        for peer in std::mem::take(&mut self.open) {
            self.remotes[peer as usize] = None;
        }
    }

    fn remote(&mut self, peer: Peer) -> Result<&mut Box<TcpPeer>, ClaimError> {
        if self.gone.get(peer as usize).is_none_or(|gone| *gone) || peer == self.house.me.rank {
            return Err(ClaimError::Gone);
        }
        let slot = &mut self.remotes[peer as usize];
        if slot.is_none() {
            self.open.push(peer);
        }
        let remote = slot.get_or_insert_with(Default::default);
        if remote.link.heard_bye || remote.condemned {
            return Err(ClaimError::Gone);
        }
        Ok(remote)
    }

    /// Sends what was added to the log, or leaves it until there is a connection.
    #[inline]
    fn added(&mut self, peer: Peer) {
        let up = match &self.remotes[peer as usize] {
            Some(remote) => remote.link.is_up(),
            None => return,
        };
        if up {
            self.flush(peer, StreamNumber::Small);
        } else {
            self.want(peer, StreamNumber::Small);
        }
    }

    fn tell(&mut self, sink: &mut impl PollSink) -> u32 {
        let mut told = 0;
        for (token, result) in self.done.drain(..) {
            sink.on_bulk_done(token, result);
            told += 1;
        }
        for what in self.untold.drain(..) {
            match what {
                PendingNotice::Gone(peer, why) => sink.on_peer_lost(peer, why),
                PendingNotice::Revoked(token) => sink.on_revoked(token),
            }
            told += 1;
        }
        told
    }
}

impl Transport for TcpTransport {
    fn limits(&self) -> TransportLimits {
        TransportLimits {
            inline_max: TCP_INLINE_MAX,
            packet_max: TCP_PACKET_MAX,
            control_max: CONTROL_PAYLOAD_MAX,
            ordered: true,
        }
    }

    fn capabilities(&self, peer: Peer) -> Option<PeerCapabilities> {
        if self.gone.get(peer as usize).is_none_or(|gone| *gone) || peer == self.house.me.rank {
            return None;
        }
        Some(PeerCapabilities {
            eager_max: TCP_EAGER_MAX,
            fragmented_max: TCP_FLOW_MAX,
            can_read: true,
            can_write: false,
            pipeline_chunk: TCP_PACKET_MAX,
            read_chunk: u64::MAX,
        })
    }

    fn claim(
        &mut self,
        peer: Peer,
        len: usize,
        class: PacketClass,
    ) -> Result<PacketBuffer, ClaimError> {
        let remote = self.remote(peer)?;
        if len > TCP_PACKET_MAX || !remote.link.log.has_room(HEADER + len, class) {
            self.want(peer, StreamNumber::Small);
            return Err(ClaimError::Full);
        }
        let room = self.blocks.take().ok_or(ClaimError::Full)?;
        let mem = room.mem().offset(BEFORE as isize);
        let free = match self.claims.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.claims.push(None);
                self.claims.len() - 1
            }
        };
        self.claims[free] = Some(ClaimedRoom { room });
        Ok(PacketBuffer {
            mem,
            len,
            peer,
            token: free as u64,
            stores: StoreKind::Cached,
        })
    }

    fn commit(&mut self, room: PacketBuffer, header: &PacketHeader) {
        let claim = self
            .claims
            .get_mut(room.token as usize)
            .and_then(Option::take);
        let (Some(claim), len) = (claim, header.len as usize) else {
            return;
        };
        let Some(Some(remote)) = self.remotes.get_mut(room.peer as usize) else {
            return self.blocks.give(claim.room);
        };
        if len > TCP_PACKED_MAX {
            remote
                .link
                .send_block(&mut self.blocks, (claim.room, len), header);
        } else {
            let payload = (claim.room.mem().offset(BEFORE as isize), len);
            if remote.link.send_copy(&mut self.blocks, header, payload) {
                self.blocks.give(claim.room);
            } else {
                // No memory for another block: this one serves.
                remote
                    .link
                    .send_block(&mut self.blocks, (claim.room, len), header);
            }
        }
        self.leaves(room.peer, header);
    }

    fn abandon(&mut self, room: PacketBuffer) {
        if let Some(claim) = self
            .claims
            .get_mut(room.token as usize)
            .and_then(Option::take)
        {
            self.blocks.give(claim.room);
        }
    }

    fn send_inline(
        &mut self,
        peer: Peer,
        header: &PacketHeader,
        bytes: UserMem,
    ) -> Result<(), ClaimError> {
        let remote = self.remote(peer)?;
        let len = header.len as usize;
        if !remote.link.log.has_room(HEADER + len, PacketClass::Data) {
            self.want(peer, StreamNumber::Small);
            return Err(ClaimError::Full);
        }
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return Err(ClaimError::Gone);
        };
        if !remote
            .link
            .send_copy(&mut self.blocks, header, (bytes, len))
        {
            return Err(ClaimError::Full);
        }
        self.leaves(peer, header);
        Ok(())
    }

    fn poll(&mut self, budget: u32, sink: &mut impl PollSink) -> u32 {
        let mut told = 0;
        self.let_go();
        let mut is_due = true;
        self.put_off = false;
        if let Some(hot) = self.hot
            && self.ready.is_empty()
            && !self.brings_long(hot)
        {
            told = self.take_from((hot, StreamKind::Wanted), budget, sink);
            is_due = self.glance.is_due(told, Instant::now);
        }
        if !self.put_off && (self.must_look || !self.ready.is_empty() || is_due) {
            self.look();
            told += self.take_from_ready(budget.saturating_sub(told), sink);
        }
        if !self.done.is_empty() || !self.untold.is_empty() {
            told += self.tell(sink);
        }
        if told == 0 && !self.owing.is_empty() {
            self.acknowledge_late();
        }
        told.max(std::mem::take(&mut self.sliced).into())
    }

    fn peer_lost(&mut self, peer: Peer) {
        self.lose(peer);
    }

    fn arm(&mut self) -> u32 {
        let ticket = self.wake.word();
        self.let_go();
        self.before_sleep();
        ticket
    }

    fn disarm(&mut self) {}

    fn wake_source(&self) -> Arc<dyn WakeSource> {
        self.wake.clone()
    }

    fn wake_peer(&mut self, peer: Peer) {
        if self.remote(peer).is_err() {
            return;
        }
        if let Some(Some(remote)) = self.remotes.get_mut(peer as usize) {
            remote.link.send_word(&mut self.blocks, FrameKind::Ring);
            self.added(peer);
        }
    }
}

impl FastPath for TcpTransport {}

impl FragmentedSends for TcpTransport {
    fn fragmentation(&mut self, peer: Peer, len: usize) -> Fragmentation {
        self.flow_of(peer, len)
    }

    fn send_fragments(&mut self, pieces: &Fragments, mem: UserMem) -> Result<bool, ClaimError> {
        self.send_from(pieces, mem)
    }
}

impl RemoteMemory for TcpTransport {
    fn expose(&mut self, token: BulkToken, peer: Peer, data: &Data) -> ExposeResult {
        if self.regions.len() >= TCP_REGIONS {
            return ExposeResult::Unable;
        }
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let ahead = self.advance(peer, cookie, data);
        let data = data.clone();
        self.regions
            .insert(cookie, ExposedData { token, peer, data });
        let blob = ahead.to_le_bytes();
        match RegionDescriptor::new(cookie, if ahead > 0 { &blob } else { &[] }) {
            Some(descriptor) => ExposeResult::Ready(descriptor),
            None => ExposeResult::Unable,
        }
    }

    fn revoke(&mut self, token: BulkToken) -> BulkStatus {
        let found = self
            .regions
            .iter()
            .find(|(_, region)| region.token == token)
            .map(|(cookie, region)| (*cookie, region.peer));
        if let Some((cookie, peer)) = found {
            self.regions.remove(&cookie);
            if let Some(Some(remote)) = self.remotes.get_mut(peer as usize) {
                let over = remote.paths.revoke(cookie);
                let (lends, numbers) = (remote.paths.lends(cookie), remote.paths.numbers());
                for path in over {
                    self.broke(peer, StreamNumber::Bulk(path));
                }
                for path in numbers {
                    self.flush(peer, StreamNumber::Bulk(path));
                }
                if lends {
                    self.recall(peer, cookie, token);
                    return BulkStatus::Pending;
                }
            }
        }
        BulkStatus::Done
    }

    fn read(&mut self, bulk: BulkCopy<'_>) -> Result<BulkStatus, Error> {
        let peer = bulk.peer;
        if bulk
            .local_offset
            .checked_add(bulk.len)
            .is_none_or(|end| end > bulk.local.len)
        {
            return Err(Error::Misuse("a read beyond the end of its buffer"));
        }
        let gone = |_| Error::Peer { peer, what: LOST };
        let remote = self.remote(peer).map_err(gone)?;
        if bulk.len == 0 {
            return Ok(BulkStatus::Done);
        }
        let ask = ReadRequest {
            cookie: bulk.descriptor.cookie,
            offset: bulk.offset,
            len: bulk.len,
        };
        let local = (bulk.local.clone(), bulk.local_offset);
        match eager_prefix::ahead_of(bulk.descriptor) {
            // Of a read that is shorter than what comes unasked nothing is taken from that.
            Some(ahead) if bulk.offset == 0 && ahead <= bulk.len => {
                self.read_unasked(peer, (bulk.token, ask, ahead), local);
            }
            _ => remote.paths.read(bulk.token, ask, local),
        }
        self.widen(peer);
        self.spread(peer);
        Ok(BulkStatus::Pending)
    }

    fn write(&mut self, _bulk: BulkCopy<'_>) -> Result<BulkStatus, Error> {
        Err(Error::Misuse(
            "regions of ranks on other hosts are not written",
        ))
    }
}

impl SharedCopy for TcpTransport {}

impl AsyncProgress for TcpTransport {
    fn yield_to_small(&mut self, yields: bool) {
        self.brisk.yields(yields);
    }
}

impl NodeMemory for TcpTransport {}

impl Drop for TcpTransport {
    fn drop(&mut self) {
        self.leave();
    }
}
