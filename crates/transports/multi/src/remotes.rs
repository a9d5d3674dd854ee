//! All transports of a rank to other hosts: TCP to those of its job, Ethernet to the ones among
//! them that it leads to, and TCP per bridge to processes of other worlds.
//!
//! Owned by [`MultiTransport`](super::MultiTransport) behind a lock. [`RemoteTransports`] asks the
//! transport of a peer, which it finds by the peer's number. The processes of a bridge have numbers
//! of their own in it, which are translated here in both directions. Sockets of all transports are
//! in one epoll ([`RemoteSockets`]), so that one thread can watch them.

use crate::frames_by_tcp::{FrameSink, carry_frames};
use crate::{MultiTransport, OtherPeers, lock};
use garonne_engine::api::{Error, Peer, UnreachableCause};
use garonne_engine::protocol::offload::{OffloadKind, OffloadResult};
use garonne_engine::transport::{
    AsyncProgress, BulkStatus, BulkToken, BulkTransfer, ClaimError, ExposeResult, Fragmentation,
    FragmentedSends, Fragments, PacketBuffer, PacketClass, PacketHeader, PartWritten,
    PeerCapabilities, PollSink, RegionDescriptor, RemoteMemory, RendezvousMode, SharedCopy,
    Transport, WakeReason,
};
use garonne_ethernet::EthernetTransport;
use garonne_sync::user::{Data, UserMem};
use garonne_tcp::{SocketSet, TcpTransport};
use garonne_transport::limits::{
    MULTI_SLEEP, MULTI_TCP_EVERY_MAX, TCP_EAGER_MAX, TCP_FRAGMENTED_MAX,
};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Connection to processes of another world: a TCP transport whose world is the union of two
/// groups.
///
/// Owned by [`RemoteTransports`] from [`MultiTransport::add_bridge`](super::MultiTransport) to
/// `remove_bridge`.
pub struct Bridge {
    /// The engine's number of the bridge's first remote process.
    pub first: Peer,
    /// Number of remote processes.
    pub count: u32,
    /// Number that the first remote process has within the bridge.
    pub offset: u32,
    /// Transport that knows processes by their numbers within the bridge.
    pub tcp: TcpTransport,
}

impl Bridge {
    /// Returns the number within the bridge of a peer of the engine.
    fn inner(&self, peer: Peer) -> Option<Peer> {
        let at = peer.checked_sub(self.first)?;
        (at < self.count).then(|| at + self.offset)
    }
}

/// Sockets of all TCP transports of a rank, for whoever sleeps elsewhere and has them watched.
#[derive(Debug)]
pub(super) struct RemoteSockets {
    /// Readable whenever one of them has something for its transport. Unset: there are none, or the
    /// system gave no descriptor, and sleeps are short.
    epoll: OnceLock<OwnedFd>,
    sets: Mutex<Vec<SocketSet>>,
    /// There are sockets.
    used: AtomicBool,
    watched: AtomicBool,
}

impl RemoteSockets {
    /// No sockets yet.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            epoll: OnceLock::new(),
            sets: Mutex::default(),
            used: AtomicBool::new(false),
            watched: AtomicBool::new(false),
        })
    }

    fn sets(&self) -> MutexGuard<'_, Vec<SocketSet>> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a descriptor that is readable when its transport has something to do.
    fn watch(&self, fd: impl AsFd) {
        if self.epoll.get().is_none()
            && let Ok(made) = epoll::create(epoll::CreateFlags::CLOEXEC)
        {
            let _ = self.epoll.set(made);
        }
        if let Some(epoll) = self.epoll.get() {
            let nothing = EventData::new_u64(0);
            // A transport that is not in it is looked at after a short sleep.
            let _ = epoll::add(epoll, fd, nothing, EventFlags::IN);
        }
    }

    /// Adds the sockets of a transport.
    fn add(&self, set: SocketSet) {
        self.watch(set.epoll());
        self.sets().push(set);
        self.used.store(true, Ordering::SeqCst);
    }

    /// Removes the sockets of a transport.
    fn remove(&self, set: &SocketSet) {
        if let Some(epoll) = self.epoll.get() {
            let _ = epoll::delete(epoll, set.epoll());
        }
        self.sets().retain(|other| !other.is(set));
    }

    /// The epoll for a watching thread.
    pub(super) fn epoll(&self) -> Option<&OwnedFd> {
        self.epoll.get()
    }

    /// Sets whether somebody wakes the sleeper when one is ready.
    pub(super) fn set_watched(&self, watched: bool) {
        self.watched.store(watched, Ordering::SeqCst);
    }

    /// Returns how long a sleep may last.
    pub(super) fn limit(&self, asked: Option<Duration>) -> Option<Duration> {
        if !self.used.load(Ordering::SeqCst) {
            return asked;
        }
        let own = self.limit_if(self.watched.load(Ordering::SeqCst));
        asked.into_iter().chain(own).min()
    }

    /// Returns how long the sleep of somebody may last who is `watched` for, or is not.
    pub(super) fn limit_if(&self, watched: bool) -> Option<Duration> {
        let sets = self.sets();
        let own = sets.iter().filter_map(|set| set.limit_if(watched)).min();
        let unwatched = !watched && !sets.is_empty();
        own.into_iter()
            .chain(unwatched.then_some(MULTI_SLEEP))
            .min()
    }
}

/// The transport that reaches one peer.
enum Route<'a> {
    Tcp(&'a mut TcpTransport),
    Ethernet(&'a mut EthernetTransport),
}

/// Asks the transport of a route.
macro_rules! by {
    ($route:expr, $transport:ident => $what:expr) => {
        match $route {
            Route::Tcp($transport) => $what,
            Route::Ethernet($transport) => $what,
        }
    };
}

/// The transports of a rank to other hosts. See the module's documentation.
pub(super) struct RemoteTransports {
    home: Option<TcpTransport>,
    /// To the peers of other hosts that it reaches, before `home`.
    ethernet: Option<EthernetTransport>,
    /// Polls of Ethernet alone until the next poll of `home`, which costs a system call.
    home_in: u32,
    /// In rising order of their peers' numbers.
    bridges: Vec<Bridge>,
    sockets: Arc<RemoteSockets>,
    /// Memory for a frame that came by TCP.
    frame: Vec<u8>,
}

impl MultiTransport {
    /// Connects this rank to processes of another world, whose numbers are higher than those of
    /// all peers before. `world` is the number of peers of the own world.
    ///
    /// # Errors
    /// `Misuse` where all packets go through modules, which reach the own world only.
    pub fn add_bridge(&mut self, world: u32, bridge: Bridge) -> Result<(), Error> {
        match &self.others {
            OtherPeers::Modules(_) => {
                return Err(Error::Misuse(
                    "ranks with transport modules do not reach other worlds",
                ));
            }
            OtherPeers::None => self.open_remotes(None, vec![true; world as usize]),
            OtherPeers::Tcp(_) => {}
        }
        if let Some(remote) = self.remote_mut() {
            remote.enter().add_bridge(bridge);
        }
        Ok(())
    }

    /// Takes out the bridge whose first peer is `first`. Whoever drops it waits until what is under
    /// way has reached the other hosts.
    pub fn remove_bridge(&mut self, first: Peer) -> Option<Bridge> {
        self.remote_mut()?.enter().remove_bridge(first)
    }

    /// Takes out all bridges. Whoever drops them waits until what is under way has reached the
    /// other hosts.
    pub fn take_bridges(&mut self) -> Vec<Bridge> {
        match self.remote_mut() {
            Some(remote) => remote.enter().take_bridges(),
            None => Vec::new(),
        }
    }

    /// The peers of other hosts and worlds that something is still on its way to.
    pub fn owed(&self) -> Vec<Peer> {
        match &self.others {
            OtherPeers::None => Vec::new(),
            OtherPeers::Tcp(remote) => lock(&remote.tcp).owed(),
            OtherPeers::Modules(modules) => {
                let remotes = modules.tcp.as_deref().map(lock);
                remotes.map_or(Vec::new(), |remotes| remotes.owed())
            }
        }
    }
}

/// The transport to the other hosts of the job, while the lock on all transports is held.
pub struct HomeTcp<'a>(MutexGuard<'a, RemoteTransports>);

impl<'a> HomeTcp<'a> {
    /// `None`: the job has one host.
    pub(super) fn of(remotes: MutexGuard<'a, RemoteTransports>) -> Option<Self> {
        remotes.home.is_some().then_some(Self(remotes))
    }
}

impl std::ops::Deref for HomeTcp<'_> {
    type Target = TcpTransport;

    fn deref(&self) -> &TcpTransport {
        self.0.home.as_ref().expect("checked when it was made")
    }
}

impl std::ops::DerefMut for HomeTcp<'_> {
    fn deref_mut(&mut self) -> &mut TcpTransport {
        self.0.home.as_mut().expect("checked when it was made")
    }
}

/// Sink that translates the numbers of a bridge's processes.
struct BridgeSink<'a, S> {
    sink: &'a mut S,
    first: Peer,
    count: u32,
    offset: u32,
}

impl<S: PollSink> BridgeSink<'_, S> {
    /// Returns the engine's number; `None`: a process of the own side, which never sends here.
    fn outer(&self, inner: Peer) -> Option<Peer> {
        let at = inner.checked_sub(self.offset)?;
        (at < self.count).then(|| self.first + at)
    }

    fn translate(&self, error: Error) -> Error {
        match error {
            Error::Peer { peer, what } => Error::Peer {
                peer: self.outer(peer).unwrap_or(peer),
                what,
            },
            Error::PeerMemory { peer } => Error::PeerMemory {
                peer: self.outer(peer).unwrap_or(peer),
            },
            other => other,
        }
    }
}

impl<S: PollSink> PollSink for BridgeSink<'_, S> {
    fn on_packet(&mut self, peer: Peer, header: PacketHeader, payload: UserMem, len: usize) {
        if let Some(peer) = self.outer(peer) {
            self.sink.on_packet(peer, header, payload, len);
        }
    }

    fn fragment_target(&mut self, peer: Peer, offset: u64, len: usize) -> Option<UserMem> {
        let peer = self.outer(peer)?;
        self.sink.fragment_target(peer, offset, len)
    }

    fn fragment_written(&mut self, peer: Peer, len: usize) {
        if let Some(peer) = self.outer(peer) {
            self.sink.fragment_written(peer, len);
        }
    }

    fn on_exposed(&mut self, token: BulkToken, descriptor: Option<RegionDescriptor>) {
        self.sink.on_exposed(token, descriptor);
    }

    fn on_revoked(&mut self, token: BulkToken) {
        self.sink.on_revoked(token);
    }

    fn on_bulk_done(&mut self, token: BulkToken, result: Result<(), Error>) {
        let result = result.map_err(|error| self.translate(error));
        self.sink.on_bulk_done(token, result);
    }

    fn on_peer_gone(&mut self, peer: Peer) {
        if let Some(peer) = self.outer(peer) {
            self.sink.on_peer_gone(peer);
        }
    }

    fn on_peer_lost(&mut self, peer: Peer, why: &'static str) {
        if let Some(peer) = self.outer(peer) {
            self.sink.on_peer_lost(peer, why);
        }
    }

    fn on_peer_left(&mut self, peer: Peer) {
        if let Some(peer) = self.outer(peer) {
            self.sink.on_peer_left(peer);
        }
    }

    fn on_peer_unreachable(&mut self, shortage: UnreachableCause) {
        if let Some(peer) = self.outer(shortage.peer) {
            self.sink
                .on_peer_unreachable(UnreachableCause { peer, ..shortage });
        }
    }
}

impl RemoteTransports {
    /// The transports of a rank that has this one to the other hosts of its job, if any.
    pub(super) fn new(home: Option<TcpTransport>, sockets: Arc<RemoteSockets>) -> Self {
        if let Some(home) = &home {
            sockets.add(home.sockets());
        }
        Self {
            home,
            ethernet: None,
            home_in: 0,
            bridges: Vec::new(),
            sockets,
            frame: Vec::new(),
        }
    }

    /// Gives TCP the frames that the Ethernet network does not pass.
    #[inline]
    fn carry_frames(&mut self) {
        let ethernet = self.ethernet.as_mut();
        if let (Some(ethernet), Some(home)) = (ethernet, &mut self.home)
            && ethernet.by_tcp().is_some()
        {
            carry_frames(ethernet, home);
        }
    }

    /// Sets the transport for the peers that it reaches.
    pub(super) fn set_ethernet(&mut self, ethernet: EthernetTransport) {
        self.sockets.watch(ethernet.watched().epoll());
        self.ethernet = Some(ethernet);
    }

    /// Returns up to which length the system or the peer takes in a message to this peer (`None`:
    /// to any) while this rank does not poll.
    pub(super) fn unattended_max(&self, peer: Option<Peer>) -> u64 {
        let by_ethernet = self.ethernet.as_ref().is_some_and(|ethernet| {
            peer.is_none_or(|peer| self.is_of_job(peer) && ethernet.reaches(peer))
        });
        let most = if by_ethernet {
            TCP_EAGER_MAX
        } else {
            TCP_FRAGMENTED_MAX
        };
        most as u64
    }

    /// Returns whether a peer is of this rank's own world.
    fn is_of_job(&self, peer: Peer) -> bool {
        self.bridges
            .first()
            .is_none_or(|bridge| peer < bridge.first)
    }

    /// Adds a bridge, whose peers have higher numbers than all before.
    pub(super) fn add_bridge(&mut self, bridge: Bridge) {
        self.sockets.add(bridge.tcp.sockets());
        self.bridges.push(bridge);
    }

    /// Takes out the bridge with these peers. Whoever drops it waits for what is under way.
    pub(super) fn remove_bridge(&mut self, first: Peer) -> Option<Bridge> {
        let at = self
            .bridges
            .iter()
            .position(|bridge| bridge.first == first)?;
        let bridge = self.bridges.remove(at);
        self.sockets.remove(&bridge.tcp.sockets());
        Some(bridge)
    }

    /// Takes out all bridges.
    pub(super) fn take_bridges(&mut self) -> Vec<Bridge> {
        let bridges = std::mem::take(&mut self.bridges);
        for bridge in &bridges {
            self.sockets.remove(&bridge.tcp.sockets());
        }
        bridges
    }

    /// Returns the transport that reaches a peer, and the peer's number in it.
    #[inline]
    fn route(&mut self, peer: Peer) -> Option<(Route<'_>, Peer)> {
        let after = self.bridges.partition_point(|bridge| bridge.first <= peer);
        match after.checked_sub(1) {
            None => {
                let ethernet = self.ethernet.as_mut();
                match ethernet.filter(|ethernet| ethernet.reaches(peer)) {
                    Some(ethernet) => Some((Route::Ethernet(ethernet), peer)),
                    None => self.home.as_mut().map(|home| (Route::Tcp(home), peer)),
                }
            }
            Some(at) => {
                let bridge = &mut self.bridges[at];
                let inner = bridge.inner(peer)?;
                Some((Route::Tcp(&mut bridge.tcp), inner))
            }
        }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut TcpTransport> {
        let bridges = self.bridges.iter_mut().map(|bridge| &mut bridge.tcp);
        self.home.iter_mut().chain(bridges)
    }

    pub(super) fn poll(&mut self, budget: u32, sink: &mut impl PollSink) -> u32 {
        let mut told = 0;
        match (&mut self.ethernet, &mut self.home) {
            (None, Some(home)) => told = home.poll(budget, sink),
            (Some(ethernet), Some(home)) => {
                told = ethernet.poll(budget, sink);
                if self.home_in == 0 {
                    let mut sink = FrameSink {
                        sink: &mut *sink,
                        ethernet: &mut *ethernet,
                        frame: &mut self.frame,
                    };
                    told += home.poll(budget.saturating_sub(told), &mut sink);
                    self.home_in = match ethernet.uses_tcp() {
                        true => 1,
                        false => MULTI_TCP_EVERY_MAX,
                    };
                }
                self.home_in -= 1;
            }
            (Some(ethernet), None) => told = ethernet.poll(budget, sink),
            (None, None) => {}
        }
        self.carry_frames();
        for bridge in &mut self.bridges {
            let mut sink = BridgeSink {
                sink: &mut *sink,
                first: bridge.first,
                count: bridge.count,
                offset: bridge.offset,
            };
            told += bridge.tcp.poll(budget.saturating_sub(told), &mut sink);
        }
        told
    }

    pub(super) fn capabilities(&self, peer: Peer) -> Option<PeerCapabilities> {
        let after = self.bridges.partition_point(|bridge| bridge.first <= peer);
        match after.checked_sub(1) {
            None => {
                let ethernet = self.ethernet.as_ref();
                match ethernet.filter(|ethernet| ethernet.reaches(peer)) {
                    Some(ethernet) => ethernet.capabilities(peer),
                    None => self.home.as_ref()?.capabilities(peer),
                }
            }
            Some(at) => {
                let bridge = &self.bridges[at];
                bridge.tcp.capabilities(bridge.inner(peer)?)
            }
        }
    }

    pub(super) fn claim(
        &mut self,
        peer: Peer,
        len: usize,
        class: PacketClass,
    ) -> Result<PacketBuffer, ClaimError> {
        let (route, inner) = self.route(peer).ok_or(ClaimError::Gone)?;
        by!(route, transport => transport.claim(inner, len, class))
            .map(|room| PacketBuffer { peer, ..room })
    }

    pub(super) fn commit(&mut self, room: PacketBuffer, header: &PacketHeader) {
        if let Some((route, peer)) = self.route(room.peer) {
            by!(route, transport => transport.commit(PacketBuffer { peer, ..room }, header));
        }
        self.carry_frames();
    }

    pub(super) fn abandon(&mut self, room: PacketBuffer) {
        if let Some((route, peer)) = self.route(room.peer) {
            by!(route, transport => transport.abandon(PacketBuffer { peer, ..room }));
        }
    }

    pub(super) fn send_inline(
        &mut self,
        peer: Peer,
        header: &PacketHeader,
        bytes: UserMem,
    ) -> Result<(), ClaimError> {
        let (route, peer) = self.route(peer).ok_or(ClaimError::Gone)?;
        let result = by!(route, transport => transport.send_inline(peer, header, bytes));
        self.carry_frames();
        result
    }

    pub(super) fn choose_rendezvous(
        &mut self,
        token: BulkToken,
        peer: Peer,
        len: u64,
    ) -> RendezvousMode {
        match self.route(peer) {
            Some((route, peer)) => {
                by!(route, transport => transport.choose_rendezvous(token, peer, len))
            }
            None => RendezvousMode::Data,
        }
    }

    pub(super) fn peer_lost(&mut self, peer: Peer) {
        if let Some((route, peer)) = self.route(peer) {
            by!(route, transport => transport.peer_lost(peer));
        }
    }

    pub(super) fn wake_peer(&mut self, peer: Peer) {
        if let Some((route, peer)) = self.route(peer) {
            by!(route, transport => transport.wake_peer(peer));
        }
        self.carry_frames();
    }

    pub(super) fn wake_progress(&mut self, peer: Peer, need: WakeReason) {
        if let Some((route, peer)) = self.route(peer) {
            by!(route, transport => transport.wake_progress(peer, need));
        }
    }

    pub(super) fn fragmentation(&mut self, peer: Peer, len: usize) -> Fragmentation {
        match self.route(peer) {
            Some((route, peer)) => by!(route, transport => transport.fragmentation(peer, len)),
            None => Fragmentation::None,
        }
    }

    pub(super) fn send_fragments(
        &mut self,
        pieces: &Fragments,
        mem: UserMem,
    ) -> Result<bool, ClaimError> {
        let (route, peer) = self.route(pieces.peer).ok_or(ClaimError::Gone)?;
        by!(route, transport => transport.send_fragments(&Fragments { peer, ..*pieces }, mem))
    }

    pub(super) fn expose(&mut self, token: BulkToken, peer: Peer, data: &Data) -> ExposeResult {
        match self.route(peer) {
            Some((route, peer)) => by!(route, transport => transport.expose(token, peer, data)),
            None => ExposeResult::Unable,
        }
    }

    /// Withdraws a region. A transport that does not know it has nothing to end.
    pub(super) fn revoke(&mut self, token: BulkToken) -> BulkStatus {
        let mut status = BulkStatus::Done;
        for tcp in self.all() {
            if tcp.revoke(token) == BulkStatus::Pending {
                status = BulkStatus::Pending;
            }
        }
        if let Some(ethernet) = &mut self.ethernet {
            // It holds nothing of a region beyond the call that sends of it.
            ethernet.revoke(token);
        }
        status
    }

    pub(super) fn read(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        let (route, peer) = self.route(bulk.peer).ok_or_else(|| gone(bulk.peer))?;
        let result = by!(route, transport => transport.read(BulkTransfer { peer, ..bulk }));
        self.carry_frames();
        result
    }

    pub(super) fn write(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        let (route, peer) = self.route(bulk.peer).ok_or_else(|| gone(bulk.peer))?;
        by!(route, transport => transport.write(BulkTransfer { peer, ..bulk }))
    }

    pub(super) fn share_region(
        &mut self,
        token: BulkToken,
        peer: Peer,
        data: &Data,
        way: RendezvousMode,
    ) -> Option<RegionDescriptor> {
        let (route, peer) = self.route(peer)?;
        by!(route, transport => transport.share_region(token, peer, data, way))
    }

    pub(super) fn write_part(&mut self, bulk: BulkTransfer<'_>) -> Result<PartWritten, Error> {
        let (route, peer) = self.route(bulk.peer).ok_or_else(|| gone(bulk.peer))?;
        by!(route, transport => transport.write_part(BulkTransfer { peer, ..bulk }))
    }

    pub(super) fn write_early(
        &mut self,
        bulk: BulkTransfer<'_>,
    ) -> Result<Option<PartWritten>, Error> {
        let (route, peer) = self.route(bulk.peer).ok_or_else(|| gone(bulk.peer))?;
        by!(route, transport => transport.write_early(BulkTransfer { peer, ..bulk }))
    }

    pub(super) fn offload(
        &mut self,
        bulk: BulkTransfer<'_>,
        what: OffloadKind,
    ) -> Result<OffloadResult, Error> {
        let (route, peer) = self.route(bulk.peer).ok_or_else(|| gone(bulk.peer))?;
        by!(route, transport => transport.offload(BulkTransfer { peer, ..bulk }, what))
    }

    pub(super) fn arm(&mut self) {
        if let Some(ethernet) = &mut self.ethernet {
            ethernet.arm();
        }
        self.carry_frames();
        for tcp in self.all() {
            tcp.arm();
        }
    }

    pub(super) fn disarm(&mut self) {
        for tcp in self.all() {
            tcp.disarm();
        }
    }

    pub(super) fn before_sleep(&mut self) {
        if let Some(ethernet) = &mut self.ethernet {
            ethernet.before_sleep();
        }
        self.carry_frames();
        for tcp in self.all() {
            tcp.before_sleep();
        }
    }

    /// Something lies here that came, of which no socket will tell.
    pub(super) fn has_taken(&mut self) -> bool {
        let ethernet = self.ethernet.as_ref();
        ethernet.is_some_and(EthernetTransport::has_taken) || self.all().any(|tcp| tcp.has_taken())
    }

    pub(super) fn be_patient(&mut self, patient: bool) {
        for tcp in self.all() {
            tcp.be_patient(patient);
        }
    }

    pub(super) fn yield_to_small(&mut self, yields: bool) {
        for tcp in self.all() {
            tcp.yield_to_small(yields);
        }
    }

    pub(super) fn drive(&mut self) {
        for tcp in self.all() {
            tcp.drive();
        }
    }

    pub(super) fn gather_nothing(&mut self) {
        for tcp in self.all() {
            tcp.gather_nothing();
        }
    }

    /// Returns whether something is kept and nobody has been asked to look after it; asks once.
    #[inline]
    pub(super) fn wants_naps(&mut self) -> bool {
        let mut wants = false;
        for tcp in self.all() {
            wants |= tcp.wants_naps();
        }
        if let Some(ethernet) = &mut self.ethernet {
            wants |= ethernet.wants_naps();
        }
        wants
    }

    /// Returns whether there is room since the last nap that somebody may sleep for.
    pub(super) fn makes_room(&mut self) -> bool {
        let mut room = false;
        for tcp in self.all() {
            room |= tcp.makes_room();
        }
        room
    }

    /// What was kept leaves. Returns how long the next nap is.
    pub(super) fn nap(&mut self) -> Option<Duration> {
        let mut next = None::<Duration>;
        if let Some(ethernet) = &mut self.ethernet {
            next = ethernet.nap();
        }
        self.carry_frames();
        for tcp in self.all() {
            next = next.into_iter().chain(tcp.nap()).min();
        }
        next
    }

    /// The peers that something is still on its way to.
    pub(super) fn owed(&self) -> Vec<Peer> {
        let mut owed = self.home.as_ref().map_or_else(Vec::new, TcpTransport::owed);
        owed.extend(self.ethernet.iter().flat_map(EthernetTransport::owed));
        for bridge in &self.bridges {
            let of_bridge = bridge.tcp.owed().into_iter();
            let outer = of_bridge.filter_map(|peer| peer.checked_sub(bridge.offset));
            owed.extend(outer.map(|at| bridge.first + at));
        }
        owed
    }
}

fn gone(peer: Peer) -> Error {
    Error::Peer {
        peer,
        what: "the connection to its world was closed",
    }
}
