//! The transport of a rank: shared memory to the peers of its node, and TCP to the others, if the
//! job has any.
//!
//! Implements the engine's `Transport` by asking the transport of each peer; which one that is was
//! said when it was made and does not change. A rank sleeps on its doorbell, as with shared memory
//! alone; a thread of its own, started at the first sleep, watches the sockets and rings that
//! doorbell when one is ready, once for each time the rank arms. The same thread sees to it that
//! messages which are kept for others to leave with them leave in time, so TCP's part is behind a
//! lock; nobody else ever takes it. While nothing comes by TCP its sockets, which cost a system
//! call, are looked at ever more seldom between looks at shared memory. In a job of one node there
//! is no second part, and what that costs is one comparison where a peer is named. Large data
//! between ranks of one host may also go by both at once (`intra_node_paths`), where somebody asks
//! for that. Where the job loads transport modules, all packets and regions go through them
//! ([`MultiTransport::through_modules`]), at the price of an indirect call each.

#![deny(unsafe_code)]

mod frames_by_tcp;
mod intra_node_paths;
mod remotes;
mod socket_watcher;

pub use remotes::{Bridge, HomeTcp};

use garonne_engine::api::{Error, Peer, UnreachableCause};
use garonne_engine::protocol::offload::{OffloadKind, OffloadResult};
use garonne_engine::transport::{
    AsyncProgress, BulkStatus, BulkToken, BulkTransfer, ClaimError, ExposeResult, FastPath,
    Fragmentation, FragmentedSends, Fragments, NodeMemory, PacketAcceptor, PacketBuffer,
    PacketClass, PacketHeader, PartWritten, PeekResult, PeerCapabilities, PollSink,
    RegionDescriptor, RegisteredMemory, RemoteMemory, RendezvousMode, SharedCopy, Transport,
    TransportLimits, WakeReason, WakeSource, WithdrawResult,
};
use garonne_ethernet::EthernetTransport;
use garonne_shm::{ShmTransport, ThreadPeers};
use garonne_sync::progress_owner::{ProgressWakeup, WakeupScope};
use garonne_sync::shm::{Segment, SharedWord};
use garonne_sync::slot_batch::SlotBatch;
use garonne_sync::user::{Data, UserMem};
use garonne_tcp::TcpTransport;
use garonne_transport::dynamic::{DynTransport, boxed};
use garonne_transport::limits::{MULTI_TCP_EVERY_MAX, TCP_INLINE_MAX, TCP_PACKET_MAX};
use remotes::{RemoteSockets, RemoteTransports};
use socket_watcher::{Doorbells, SocketWatcher};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Shared memory to the peers of this host and TCP to all others, as one transport.
///
/// Owned by a rank's engine. Made by [`MultiTransport::of_node`] or [`MultiTransport::new`]; then
/// [`MultiTransport::join`] and [`MultiTransport::watch_from`] may change it, and
/// [`MultiTransport::through_modules`] may put modules around it.
pub struct MultiTransport {
    shm: ShmTransport,
    others: OtherPeers,
    /// Doorbell of the rank, with the times at which sockets need it.
    wake: Arc<MultiWake>,
}

/// Transport to the peers that `MultiTransport::shm` does not reach.
enum OtherPeers {
    /// There are none.
    None,
    /// Peers of other nodes.
    Tcp(Box<RemotePart>),
    /// All peers: modules are around the transports that reach them, and `shm` reaches nobody.
    Modules(Box<ModulePart>),
}

/// Transport modules around all transports of the rank.
struct ModulePart {
    outermost: Box<dyn DynTransport>,
    /// Transport to other nodes, which the modules wrap.
    tcp: Option<Arc<Mutex<RemoteTransports>>>,
}

/// TCP to the peers of other nodes, and the thread that watches its sockets.
///
/// Owned by a [`MultiTransport`], which asks [`RemotePart::is_near`] before each use.
struct RemotePart {
    /// Thread that watches the sockets; started at the first sleep, dropped before the sockets.
    watcher: Option<SocketWatcher>,
    /// Processors of the watching thread; none: those of the thread that starts it.
    watcher_cpus: Vec<u32>,
    /// Words that wake the progress thread of this rank.
    progress_words: Option<(SharedWord, SharedWord)>,
    tcp: Arc<Mutex<RemoteTransports>>,
    /// By peer: whether shared memory reaches the peer.
    near: Vec<bool>,
    wake: Arc<MultiWake>,
    /// Polls of shared memory between two polls of TCP.
    tcp_every: u32,
    /// Polls of shared memory until the next poll of TCP.
    tcp_in: u32,
    /// Upper limit of `tcp_every`; 0 where no other rank is on this node.
    tcp_every_max: u32,
    /// By peer: whether large data go by both transports; empty: to no peer.
    both: Vec<bool>,
    /// Whether some data are being read by both transports.
    copies: bool,
}

impl std::fmt::Debug for MultiTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MultiTransport")
            .field("shm", &self.shm)
            .field("others", &std::mem::discriminant(&self.others))
            .finish_non_exhaustive()
    }
}

/// The doorbell, with the time at which sockets need their rank.
struct MultiWake {
    bell: Arc<dyn WakeSource>,
    sockets: Arc<RemoteSockets>,
}

impl WakeSource for MultiWake {
    fn sleep(&self, ticket: u32, limit: Option<Duration>) {
        self.bell.sleep(ticket, self.sockets.limit(limit));
    }

    fn bell(&self) -> Option<&AtomicU32> {
        self.bell.bell()
    }

    fn sleep_among(&self, ticket: u32, limit: Option<Duration>, others: &[(&AtomicU32, u32)]) {
        self.bell
            .sleep_among(ticket, self.sockets.limit(limit), others);
    }

    fn wake(&self) {
        self.bell.wake();
    }

    fn start_polling(&self) {
        self.bell.start_polling();
    }

    fn stop_polling(&self) {
        self.bell.stop_polling();
    }
}

fn lock(tcp: &Mutex<RemoteTransports>) -> MutexGuard<'_, RemoteTransports> {
    tcp.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock(tcp: &Mutex<RemoteTransports>) -> Option<MutexGuard<'_, RemoteTransports>> {
    match tcp.try_lock() {
        Ok(tcp) => Some(tcp),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl RemotePart {
    #[inline(always)]
    fn is_near(&self, peer: Peer) -> bool {
        self.near.get(peer as usize).copied().unwrap_or(false)
    }

    /// Notes that a packet goes or came by TCP, so that the next poll looks at TCP for answers.
    #[inline]
    fn moves(&mut self) {
        (self.tcp_every, self.tcp_in) = (1, 0);
    }

    /// Locks TCP for an operation with a peer.
    #[inline]
    fn enter(&mut self) -> MutexGuard<'_, RemoteTransports> {
        self.moves();
        lock(&self.tcp)
    }

    /// Has TCP send something. The watcher sends what TCP keeps back for a later packet.
    #[inline]
    fn send<T>(&mut self, how: impl FnOnce(&mut RemoteTransports) -> T) -> T {
        let mut tcp = self.enter();
        let result = how(&mut tcp);
        let wants = tcp.wants_naps();
        drop(tcp);
        if wants {
            self.call_watcher();
        }
        result
    }

    #[cold]
    fn call_watcher(&mut self) {
        match self.watcher() {
            Some(watcher) => watcher.nap(),
            // Without the watching thread TCP must keep nothing back.
            None => {
                let mut tcp = lock(&self.tcp);
                tcp.gather_nothing();
                tcp.drive();
            }
        }
    }

    fn watcher(&mut self) -> Option<&SocketWatcher> {
        if self.watcher.is_none() {
            let bells = Doorbells {
                rank: self.wake.bell.clone(),
                progress_words: self.progress_words.clone(),
            };
            self.watcher =
                SocketWatcher::start(&self.wake.sockets, (bells, &self.watcher_cpus), &self.tcp)
                    .ok();
        }
        self.watcher.as_ref()
    }

    #[inline(never)]
    fn poll(&mut self, budget: u32, sink: &mut impl PollSink) -> u32 {
        let told = lock(&self.tcp).poll(budget, sink);
        let every = if told > 0 { 1 } else { self.tcp_every * 2 };
        self.tcp_every = every.min(self.tcp_every_max);
        self.tcp_in = self.tcp_every;
        told
    }

    fn arm(&mut self) {
        lock(&self.tcp).arm();
        let watched = self.watch();
        self.wake.sockets.set_watched(watched);
    }

    /// Has the watcher ring the doorbell when a socket becomes ready. Returns whether there is a
    /// watcher.
    fn watch(&mut self) -> bool {
        // The caller polls the sockets once more. A socket that becomes ready after that poll rings
        // the doorbell, which is armed already.
        self.moves();
        let sockets = self.wake.sockets.clone();
        self.watcher().is_some_and(|watcher| watcher.arm(&sockets))
    }
}

impl MultiTransport {
    /// The transport of a rank whose peers are all on its node.
    pub fn of_node(shm: ShmTransport) -> Self {
        Self::of(shm, OtherPeers::None, RemoteSockets::new())
    }

    /// Returns a transport whose packets and regions go through modules. `wrap` is given this
    /// transport, and returns the outermost module around it.
    ///
    /// # Errors
    /// The reason of `wrap`, or that there is no memory.
    pub fn through_modules(
        self,
        wrap: impl FnOnce(Box<dyn DynTransport>) -> Result<Box<dyn DynTransport>, String>,
    ) -> Result<Self, String> {
        // Fast paths look into shared memory without asking where a peer is. They find the inbox of
        // a world of one, to which nobody sends.
        let unused = ThreadPeers::new(1).ok().and_then(|mut peers| peers.pop());
        let unused = unused.ok_or("no memory for an inbox")?;
        let shm = ShmTransport::new(Arc::new(unused)).map_err(|error| format!("{error:?}"))?;
        let tcp = self.remote().map(|remote| remote.tcp.clone());
        let outermost = wrap(boxed(self))?;
        let modules = OtherPeers::Modules(Box::new(ModulePart { outermost, tcp }));
        Ok(Self::of(shm, modules, RemoteSockets::new()))
    }

    /// The transport of a rank that reaches the peers that are `near` by shared memory and the
    /// others by TCP. Both transports name peers by their index in the job's world.
    pub fn new(shm: ShmTransport, tcp: TcpTransport, near: Vec<bool>) -> Self {
        let mut transport = Self::of_node(shm);
        transport.open_remotes(Some(tcp), near);
        transport
    }

    fn of(shm: ShmTransport, others: OtherPeers, sockets: Arc<RemoteSockets>) -> Self {
        let wake = Arc::new(MultiWake {
            bell: shm.wake_source(),
            sockets,
        });
        Self { shm, others, wake }
    }

    /// From now on peers that are not `near` are reached by TCP.
    fn open_remotes(&mut self, home: Option<TcpTransport>, near: Vec<bool>) {
        let words = self.shm.progress_words(self.shm.me());
        let alone = near.iter().filter(|near| **near).count() <= 1;
        let remotes = RemoteTransports::new(home, self.wake.sockets.clone());
        let remote = RemotePart {
            watcher: None,
            watcher_cpus: Vec::new(),
            progress_words: words.map(|words| (words.word(0), words.word(4))),
            tcp: Arc::new(Mutex::new(remotes)),
            near,
            wake: self.wake.clone(),
            tcp_every: 1,
            tcp_in: 0,
            tcp_every_max: if alone { 0 } else { MULTI_TCP_EVERY_MAX },
            both: Vec::new(),
            copies: false,
        };
        self.others = OtherPeers::Tcp(Box::new(remote));
    }

    /// Has large data to and from some peers of this node go by both transports from now on. `both`
    /// says by index for which peers; both sides say the same, and none names itself.
    pub fn join(&mut self, both: Vec<bool>) {
        if let Some(remote) = self.remote_mut() {
            HomeTcp::of(lock(&remote.tcp))
                .into_iter()
                .for_each(|mut home| home.set_beside(both.clone()));
            remote.both = both;
        }
    }

    /// Has packets and large data to the peers that `ethernet` reaches go through it from now on,
    /// instead of TCP. To be called before anything is sent.
    pub fn add_ethernet(&mut self, ethernet: EthernetTransport) {
        if let Some(remote) = self.remote_mut() {
            remote.enter().set_ethernet(ethernet);
        }
    }

    /// Keeps the thread that watches the sockets on these processors; it is
    /// started when first needed.
    pub fn watch_from(&mut self, cpus: impl IntoIterator<Item = u32>) {
        if let Some(remote) = self.remote_mut() {
            remote.watcher_cpus = cpus.into_iter().collect();
        }
    }

    /// The part for the node.
    pub fn shm(&mut self) -> &mut ShmTransport {
        &mut self.shm
    }

    /// The part for other hosts.
    pub fn tcp(&mut self) -> Option<HomeTcp<'_>> {
        match &self.others {
            OtherPeers::None => None,
            OtherPeers::Tcp(remote) => HomeTcp::of(lock(&remote.tcp)),
            OtherPeers::Modules(modules) => modules.tcp.as_deref().map(lock).and_then(HomeTcp::of),
        }
    }

    #[inline(always)]
    fn remote(&self) -> Option<&RemotePart> {
        match &self.others {
            OtherPeers::Tcp(remote) => Some(remote),
            OtherPeers::None | OtherPeers::Modules(_) => None,
        }
    }

    #[inline(always)]
    fn remote_mut(&mut self) -> Option<&mut RemotePart> {
        match &mut self.others {
            OtherPeers::Tcp(remote) => Some(remote),
            OtherPeers::None | OtherPeers::Modules(_) => None,
        }
    }

    /// Returns whether `shm` reaches this peer.
    #[inline(always)]
    fn is_near(&self, peer: Peer) -> bool {
        match &self.others {
            OtherPeers::None => true,
            OtherPeers::Tcp(remote) => remote.is_near(peer),
            OtherPeers::Modules(_) => false,
        }
    }
}

/// Asks the transport of a peer.
macro_rules! of {
    ($self:ident, $peer:expr, $transport:ident => $what:expr) => {
        match &mut $self.others {
            OtherPeers::Tcp(remote) if !remote.is_near($peer) => {
                let $transport = &mut *remote.enter();
                $what
            }
            OtherPeers::Modules(modules) => {
                let $transport = &mut modules.outermost;
                $what
            }
            OtherPeers::None | OtherPeers::Tcp(_) => {
                let $transport = &mut $self.shm;
                $what
            }
        }
    };
}

/// Returns what the modules answer, where there are any.
macro_rules! ask_modules {
    ($self:ident, $modules:ident => $what:expr) => {
        if let OtherPeers::Modules(part) = &$self.others {
            let $modules = &part.outermost;
            return $what;
        }
    };
    (mut $self:ident, $modules:ident => $what:expr) => {
        if let OtherPeers::Modules(part) = &mut $self.others {
            let $modules = &mut part.outermost;
            return $what;
        }
    };
}

impl Transport for MultiTransport {
    fn limits(&self) -> TransportLimits {
        ask_modules!(self, modules => modules.limits());
        let shm = self.shm.limits();
        // Also without peers of other hosts: there may be some of other worlds later.
        TransportLimits {
            inline_max: shm.inline_max.min(TCP_INLINE_MAX),
            packet_max: shm.packet_max.min(TCP_PACKET_MAX),
            control_max: shm.control_max,
            ordered: shm.ordered,
        }
    }

    fn capabilities(&self, peer: Peer) -> Option<PeerCapabilities> {
        ask_modules!(self, modules => modules.capabilities(peer));
        let Some(remote) = self.remote().filter(|remote| !remote.is_near(peer)) else {
            let reach = self.shm.capabilities(peer)?;
            // What goes by both is read at once; it is cut here.
            let both = self.remote().is_some_and(|remote| remote.has_both(peer));
            return Some(PeerCapabilities {
                read_chunk: if both { u64::MAX } else { reach.read_chunk },
                ..reach
            });
        };
        let most = self.limits().packet_max;
        let reach = lock(&remote.tcp).capabilities(peer)?;
        Some(PeerCapabilities {
            eager_max: reach.eager_max.min(most),
            pipeline_chunk: reach.pipeline_chunk.min(most),
            ..reach
        })
    }

    #[inline]
    fn claim(
        &mut self,
        peer: Peer,
        len: usize,
        class: PacketClass,
    ) -> Result<PacketBuffer, ClaimError> {
        of!(self, peer, transport => transport.claim(peer, len, class))
    }

    #[inline]
    fn commit(&mut self, room: PacketBuffer, header: &PacketHeader) {
        match &mut self.others {
            OtherPeers::Tcp(remote) if !remote.is_near(room.peer) => {
                remote.send(|tcp| tcp.commit(room, header));
            }
            OtherPeers::Modules(modules) => modules.outermost.commit(room, header),
            OtherPeers::None | OtherPeers::Tcp(_) => self.shm.commit(room, header),
        }
    }

    fn abandon(&mut self, room: PacketBuffer) {
        of!(self, room.peer, transport => transport.abandon(room));
    }

    fn send_inline(
        &mut self,
        peer: Peer,
        header: &PacketHeader,
        bytes: UserMem,
    ) -> Result<(), ClaimError> {
        match &mut self.others {
            OtherPeers::Tcp(remote) if !remote.is_near(peer) => {
                remote.send(|tcp| tcp.send_inline(peer, header, bytes))
            }
            OtherPeers::Modules(modules) => modules.outermost.send_inline(peer, header, bytes),
            OtherPeers::None | OtherPeers::Tcp(_) => self.shm.send_inline(peer, header, bytes),
        }
    }

    #[inline]
    fn poll(&mut self, budget: u32, sink: &mut impl PollSink) -> u32 {
        let remote = match &mut self.others {
            OtherPeers::None => return self.shm.poll(budget, sink),
            OtherPeers::Modules(modules) => return modules.outermost.poll(budget, sink),
            OtherPeers::Tcp(remote) => remote,
        };
        if remote.tcp_in > 0 && !remote.copies {
            remote.tcp_in -= 1;
            return self.shm.poll(budget, sink);
        }
        // TCP is polled first, since much traffic of the node would leave it no budget. It is not
        // polled each time, since a poll of sockets costs a system call.
        let (mut told, copies) = (remote.poll(budget, sink), remote.copies);
        if copies {
            told += self.copy_some();
        }
        if told > 0 && !copies && self.shm.is_idle() {
            return told;
        }
        told + self.shm.poll(budget.saturating_sub(told), sink)
    }

    fn choose_rendezvous(&mut self, token: BulkToken, peer: Peer, len: u64) -> RendezvousMode {
        if self.remote().is_some_and(|remote| remote.joins(peer, len)) {
            return self.shm.fetch_beside();
        }
        of!(self, peer, transport => transport.choose_rendezvous(token, peer, len))
    }

    fn rendezvous_done(&mut self, token: BulkToken, worked: bool) {
        ask_modules!(mut self, modules => modules.rendezvous_done(token, worked));
        // Only shared memory learns from it.
        self.shm.rendezvous_done(token, worked);
    }

    fn unreachable_cause(&self, peer: Peer) -> Option<UnreachableCause> {
        ask_modules!(self, modules => modules.unreachable_cause(peer));
        // The way to other nodes knows no such thing.
        self.shm.unreachable_cause(peer)
    }

    fn peer_lost(&mut self, peer: Peer) {
        // Reads of a peer of this node end by themselves: its memory is there, or known to be gone.
        of!(self, peer, transport => transport.peer_lost(peer));
    }

    fn arm(&mut self) -> u32 {
        ask_modules!(mut self, modules => modules.arm());
        let ticket = self.shm.arm();
        if let Some(remote) = self.remote_mut() {
            remote.arm();
        }
        ticket
    }

    fn disarm(&mut self) {
        ask_modules!(mut self, modules => modules.disarm());
        self.shm.disarm();
        if let Some(remote) = self.remote() {
            lock(&remote.tcp).disarm();
        }
    }

    fn wake_source(&self) -> Arc<dyn WakeSource> {
        match &self.others {
            OtherPeers::None | OtherPeers::Tcp(_) => self.wake.clone(),
            OtherPeers::Modules(modules) => modules.outermost.wake_source(),
        }
    }

    fn wake_peer(&mut self, peer: Peer) {
        of!(self, peer, transport => transport.wake_peer(peer));
    }
}

impl FastPath for MultiTransport {
    fn slot_batch(&mut self, peer: Peer) -> Option<Arc<SlotBatch>> {
        ask_modules!(mut self, modules => modules.slot_batch(peer));
        if self.is_near(peer) {
            self.shm.slot_batch(peer)
        } else {
            None
        }
    }

    #[inline]
    fn open_slot_batch(&mut self, peer: Peer, records: u32) -> u32 {
        if self.is_near(peer) {
            return self.shm.open_slot_batch(peer, records);
        }
        ask_modules!(mut self, modules => modules.open_slot_batch(peer, records));
        0
    }

    #[inline(always)]
    fn try_send_inline(&mut self, peer: Peer, header: PacketHeader, bytes: UserMem) -> bool {
        self.is_near(peer) && self.shm.try_send_inline(peer, header, bytes)
    }

    #[inline(always)]
    fn try_take_ready<A: PacketAcceptor>(&mut self, accept: A) -> PeekResult<A::Taken> {
        self.shm.try_take_ready(accept)
    }

    #[inline(always)]
    fn poll_one(&mut self, sink: &mut impl PollSink) -> bool {
        self.shm.poll_one(sink)
    }

    #[inline]
    fn is_idle(&self) -> bool {
        match &self.others {
            OtherPeers::None => self.shm.is_idle(),
            // Only a system call tells what sockets have.
            OtherPeers::Tcp(_) => false,
            OtherPeers::Modules(modules) => modules.outermost.is_idle(),
        }
    }
}

impl FragmentedSends for MultiTransport {
    fn fragmentation(&mut self, peer: Peer, len: usize) -> Fragmentation {
        of!(self, peer, transport => transport.fragmentation(peer, len))
    }

    fn send_fragments(&mut self, pieces: &Fragments, mem: UserMem) -> Result<bool, ClaimError> {
        match &mut self.others {
            OtherPeers::Tcp(remote) if !remote.is_near(pieces.peer) => {
                remote.send(|tcp| tcp.send_fragments(pieces, mem))
            }
            OtherPeers::Modules(modules) => modules.outermost.send_fragments(pieces, mem),
            OtherPeers::None | OtherPeers::Tcp(_) => self.shm.send_fragments(pieces, mem),
        }
    }
}

impl RemoteMemory for MultiTransport {
    fn expose(&mut self, token: BulkToken, peer: Peer, data: &Data) -> ExposeResult {
        match &mut self.others {
            OtherPeers::Tcp(remote) if remote.joins(peer, data.len) => {
                remote.expose_to_both(&mut self.shm, (token, peer, data))
            }
            _ => of!(self, peer, transport => transport.expose(token, peer, data)),
        }
    }

    fn revoke(&mut self, token: BulkToken) -> BulkStatus {
        ask_modules!(mut self, modules => modules.revoke(token));
        // A token is known to one of the transports or to both. A transport that does not know it
        // has nothing to end.
        if let Some(remote) = self.remote()
            && lock(&remote.tcp).revoke(token) == BulkStatus::Pending
        {
            return BulkStatus::Pending;
        }
        self.shm.revoke(token)
    }

    fn read(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        match &mut self.others {
            OtherPeers::Tcp(remote)
                if remote.has_both(bulk.peer)
                    && let Some(names) = intra_node_paths::split(bulk.descriptor) =>
            {
                remote.read_by_both(&bulk, names)
            }
            _ => of!(self, bulk.peer, transport => transport.read(bulk)),
        }
    }

    fn write(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        of!(self, bulk.peer, transport => transport.write(bulk))
    }

    fn registered_memory(&mut self) -> Option<&mut dyn RegisteredMemory> {
        ask_modules!(mut self, modules => modules.registered_memory());
        // Shared memory gives no access to regions of other nodes. The engines of those peers carry
        // out accesses.
        self.shm.registered_memory()
    }
}

impl SharedCopy for MultiTransport {
    fn share_region(
        &mut self,
        token: BulkToken,
        peer: Peer,
        data: &Data,
        way: RendezvousMode,
    ) -> Option<RegionDescriptor> {
        // Data that go by both transports are not shared: neither side takes parts of them.
        if self
            .remote()
            .is_some_and(|remote| remote.joins(peer, data.len))
        {
            return None;
        }
        of!(self, peer, transport => transport.share_region(token, peer, data, way))
    }

    fn take_part(&mut self, token: BulkToken, len: u64) -> Result<Option<(u64, u64)>, Error> {
        ask_modules!(mut self, modules => modules.take_part(token, len));
        self.shm.take_part(token, len)
    }

    fn write_part(&mut self, bulk: BulkTransfer<'_>) -> Result<PartWritten, Error> {
        of!(self, bulk.peer, transport => transport.write_part(bulk))
    }

    fn withdraw_region(&mut self, token: BulkToken) -> WithdrawResult {
        ask_modules!(mut self, modules => modules.withdraw_region(token));
        // Only peers of this node were offered memory.
        self.shm.withdraw_region(token)
    }

    fn write_early(&mut self, bulk: BulkTransfer<'_>) -> Result<Option<PartWritten>, Error> {
        of!(self, bulk.peer, transport => transport.write_early(bulk))
    }

    fn offload(
        &mut self,
        bulk: BulkTransfer<'_>,
        what: OffloadKind,
    ) -> Result<OffloadResult, Error> {
        if what == OffloadKind::Read
            && self.remote().is_some()
            && intra_node_paths::split(bulk.descriptor).is_some()
        {
            return Ok(OffloadResult::Unable);
        }
        of!(self, bulk.peer, transport => transport.offload(bulk, what))
    }

    fn is_polling(&self, peer: Peer) -> bool {
        ask_modules!(self, modules => modules.is_polling(peer));
        !self.is_near(peer) || self.shm.is_polling(peer)
    }
}

impl AsyncProgress for MultiTransport {
    fn wake_progress(&mut self, peer: Peer, need: WakeReason) {
        of!(self, peer, transport => transport.wake_progress(peer, need));
    }

    fn progress_words(&mut self, peer: Peer) -> Option<Segment> {
        ask_modules!(mut self, modules => modules.progress_words(peer));
        if self.is_near(peer) {
            self.shm.progress_words(peer)
        } else {
            None
        }
    }

    fn needs_polling(&self, peer: Option<Peer>, len: u64) -> bool {
        ask_modules!(self, modules => modules.needs_polling(peer, len));
        // The system takes in shorter messages without this rank.
        self.remote().is_some_and(|remote| {
            let is_remote = peer.is_none_or(|peer| !remote.is_near(peer));
            is_remote && len > lock(&remote.tcp).unattended_max(peer)
        })
    }

    fn poll_in_background(&mut self, patient: bool) {
        ask_modules!(mut self, modules => modules.poll_in_background(patient));
        if let Some(remote) = self.remote() {
            lock(&remote.tcp).be_patient(patient);
        }
    }

    fn yield_to_small(&mut self, yields: bool) {
        ask_modules!(mut self, modules => modules.yield_to_small(yields));
        if let Some(remote) = self.remote() {
            lock(&remote.tcp).yield_to_small(yields);
        }
    }

    fn arm_progress(&mut self) -> Option<Duration> {
        ask_modules!(mut self, modules => modules.arm_progress());
        let remote = self.remote_mut()?;
        // TCP keeps back what it kept back: the watcher sees to it while the rank does not poll.
        let mut tcp = lock(&remote.tcp);
        tcp.before_sleep();
        // A poll may have read more from a socket than it delivered.
        let taken = tcp.has_taken();
        drop(tcp);
        let watched = remote.watch();
        if taken && let Some((word, all)) = &remote.progress_words {
            ProgressWakeup::new(word, all).ring(WakeupScope::Transfers);
        }
        remote.wake.sockets.limit_if(watched)
    }
}

impl NodeMemory for MultiTransport {
    fn coll_heap(&mut self, owner: Peer) -> Option<Segment> {
        ask_modules!(mut self, modules => modules.coll_heap(owner));
        if self.is_near(owner) {
            self.shm.coll_heap(owner)
        } else {
            None
        }
    }

    fn doorbell(&mut self, peer: Peer) -> Option<Segment> {
        ask_modules!(mut self, modules => modules.doorbell(peer));
        if self.is_near(peer) {
            self.shm.doorbell(peer)
        } else {
            None
        }
    }
}
