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
//! for that.

#![deny(unsafe_code)]

mod intra_node_paths;
mod socket_watcher;

use garonne_engine::api::{Error, Peer, UnreachableCause};
use garonne_engine::protocol::offload::{OffloadKind, OffloadResult};
use garonne_engine::transport::{
    AsyncProgress, BulkStatus, BulkToken, BulkTransfer, ClaimError, ExposeResult, FastPath,
    Fragmentation, FragmentedSends, Fragments, NodeMemory, PacketAcceptor, PacketBuffer,
    PacketClass, PacketHeader, PartWritten, PeekResult, PeerCapabilities, PollSink,
    RegionDescriptor, RegisteredMemory, RemoteMemory, RendezvousMode, SharedCopy, Transport,
    TransportLimits, WakeReason, WakeSource, WithdrawResult,
};
use garonne_shm::ShmTransport;
use garonne_sync::progress_owner::{ProgressWakeup, WakeupScope};
use garonne_sync::shm::{Segment, SharedWord};
use garonne_sync::slot_batch::SlotBatch;
use garonne_sync::user::{Data, UserMem};
use garonne_tcp::{SocketSet, TcpTransport};
use garonne_transport::limits::{MULTI_TCP_EVERY_MAX, TCP_FRAGMENTED_MAX};
use socket_watcher::{Doorbells, SocketWatcher};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Shared memory to the peers of this host and TCP to all others, as one transport. Owned by a
/// rank's engine.
pub struct MultiTransport {
    shm: ShmTransport,
    far: Option<Box<RemotePart>>,
}

/// The way to other nodes.
struct RemotePart {
    /// Ends before what it looks at.
    watcher: Option<SocketWatcher>,
    /// Processors that it lives on; none: those of the thread that starts it.
    watcher_cpus: Vec<u32>,
    /// The words by which this rank's progress thread is called.
    hands: Option<(SharedWord, SharedWord)>,
    tcp: Arc<Mutex<TcpTransport>>,
    /// By peer: it is on this node.
    near: Vec<bool>,
    wake: Arc<MultiWake>,
    /// Polls of shared memory between two of TCP, and how many are left.
    tcp_every: u32,
    tcp_in: u32,
    /// The former at most: none where nobody else is on this node.
    tcp_every_max: u32,
    /// By peer: large data go by both transports; empty: to nobody.
    beside: Vec<bool>,
    /// Some are being read so.
    copies: bool,
}

impl std::fmt::Debug for MultiTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MultiTransport")
            .field("shm", &self.shm)
            .field("far", &self.far.is_some())
            .finish_non_exhaustive()
    }
}

/// The doorbell, with the time at which sockets need their rank.
struct MultiWake {
    bell: Arc<dyn WakeSource>,
    sockets: SocketSet,
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

fn lock(tcp: &Mutex<TcpTransport>) -> MutexGuard<'_, TcpTransport> {
    tcp.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock(tcp: &Mutex<TcpTransport>) -> Option<MutexGuard<'_, TcpTransport>> {
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

    /// Something goes or came by TCP: answers are looked for soon.
    #[inline]
    fn moves(&mut self) {
        (self.tcp_every, self.tcp_in) = (1, 0);
    }

    /// The transport, for something that goes by it.
    #[inline]
    fn enter(&mut self) -> MutexGuard<'_, TcpTransport> {
        self.moves();
        lock(&self.tcp)
    }

    /// Has the transport send something; the watcher looks after what is kept of it.
    #[inline]
    fn send<T>(&mut self, how: impl FnOnce(&mut TcpTransport) -> T) -> T {
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
            // Without the thread nothing may be kept.
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
                hands: self.hands.clone(),
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

    /// Has the watcher ring for what becomes ready, if there can be one.
    fn watch(&mut self) -> bool {
        // The caller's last poll looks at the sockets, too; what becomes ready after it rings the
        // bell that is armed already.
        self.moves();
        let sockets = self.wake.sockets.clone();
        self.watcher().is_some_and(|watcher| watcher.arm(&sockets))
    }
}

impl MultiTransport {
    /// The transport of a rank whose peers are all on its node.
    pub fn of_node(shm: ShmTransport) -> Self {
        Self { shm, far: None }
    }

    /// The transport of a rank that reaches the peers that are `near` by shared memory and the
    /// others by TCP. Both transports name peers by their index in the job's world.
    pub fn new(mut shm: ShmTransport, tcp: TcpTransport, near: Vec<bool>) -> Self {
        let wake = Arc::new(MultiWake {
            bell: shm.wake_source(),
            sockets: tcp.sockets(),
        });
        let hands = shm.progress_words(shm.me());
        let alone = near.iter().filter(|near| **near).count() <= 1;
        let far = RemotePart {
            watcher: None,
            watcher_cpus: Vec::new(),
            hands: hands.map(|hands| (hands.word(0), hands.word(4))),
            tcp: Arc::new(Mutex::new(tcp)),
            near,
            wake,
            tcp_every: 1,
            tcp_in: 0,
            tcp_every_max: if alone { 0 } else { MULTI_TCP_EVERY_MAX },
            beside: Vec::new(),
            copies: false,
        };
        Self {
            shm,
            far: Some(Box::new(far)),
        }
    }

    /// From now on large data to and from these peers, by index, of this node go by TCP as well, of
    /// which both sides know. Not the rank itself.
    pub fn join(&mut self, beside: Vec<bool>) {
        if let Some(far) = &mut self.far {
            lock(&far.tcp).set_beside(beside.clone());
            far.beside = beside;
        }
    }

    /// Keeps the thread that watches the sockets on these processors; it is
    /// started when first needed.
    pub fn watch_from(&mut self, cpus: impl IntoIterator<Item = u32>) {
        if let Some(far) = &mut self.far {
            far.watcher_cpus = cpus.into_iter().collect();
        }
    }

    /// The part for the node.
    pub fn shm(&mut self) -> &mut ShmTransport {
        &mut self.shm
    }

    /// The part for other hosts.
    pub fn tcp(&mut self) -> Option<MutexGuard<'_, TcpTransport>> {
        self.far.as_ref().map(|far| lock(&far.tcp))
    }

    #[inline(always)]
    fn is_near(&self, peer: Peer) -> bool {
        self.far.as_ref().is_none_or(|far| far.is_near(peer))
    }
}

/// Asks the transport of a peer.
macro_rules! of {
    ($self:ident, $peer:expr, $rail:ident => $what:expr) => {
        match &mut $self.far {
            Some(far) if !far.is_near($peer) => {
                let $rail = &mut *far.enter();
                $what
            }
            _ => {
                let $rail = &mut $self.shm;
                $what
            }
        }
    };
}

impl Transport for MultiTransport {
    fn limits(&self) -> TransportLimits {
        let near = self.shm.limits();
        let Some(far) = self.far.as_ref().map(|far| lock(&far.tcp).limits()) else {
            return near;
        };
        TransportLimits {
            inline_max: near.inline_max.min(far.inline_max),
            packet_max: near.packet_max.min(far.packet_max),
            control_max: near.control_max.min(far.control_max),
            ordered: near.ordered && far.ordered,
        }
    }

    fn capabilities(&self, peer: Peer) -> Option<PeerCapabilities> {
        let Some(far) = self.far.as_ref().filter(|far| !far.is_near(peer)) else {
            let reach = self.shm.capabilities(peer)?;
            // What goes by both is read at once; it is cut here.
            let both = self.far.as_ref().is_some_and(|far| far.has_both(peer));
            return Some(PeerCapabilities {
                read_chunk: if both { u64::MAX } else { reach.read_chunk },
                ..reach
            });
        };
        let most = self.limits().packet_max;
        let reach = lock(&far.tcp).capabilities(peer)?;
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
        of!(self, peer, rail => rail.claim(peer, len, class))
    }

    #[inline]
    fn commit(&mut self, room: PacketBuffer, header: &PacketHeader) {
        match &mut self.far {
            Some(far) if !far.is_near(room.peer) => far.send(|tcp| tcp.commit(room, header)),
            _ => self.shm.commit(room, header),
        }
    }

    fn abandon(&mut self, room: PacketBuffer) {
        of!(self, room.peer, rail => rail.abandon(room));
    }

    fn send_inline(
        &mut self,
        peer: Peer,
        header: &PacketHeader,
        bytes: UserMem,
    ) -> Result<(), ClaimError> {
        match &mut self.far {
            Some(far) if !far.is_near(peer) => far.send(|tcp| tcp.send_inline(peer, header, bytes)),
            _ => self.shm.send_inline(peer, header, bytes),
        }
    }

    #[inline]
    fn poll(&mut self, budget: u32, sink: &mut impl PollSink) -> u32 {
        let Some(far) = &mut self.far else {
            return self.shm.poll(budget, sink);
        };
        if far.tcp_in > 0 && !far.copies {
            far.tcp_in -= 1;
            return self.shm.poll(budget, sink);
        }
        // First, or much traffic of the node would leave it no budget; and not in every poll, or
        // the other way round.
        let (mut told, copies) = (far.poll(budget, sink), far.copies);
        if copies {
            told += self.copy_some();
        }
        if told > 0 && !copies && self.shm.is_idle() {
            return told;
        }
        told + self.shm.poll(budget.saturating_sub(told), sink)
    }

    fn choose_rendezvous(&mut self, token: BulkToken, peer: Peer, len: u64) -> RendezvousMode {
        if self.far.as_ref().is_some_and(|far| far.joins(peer, len)) {
            return self.shm.fetch_beside();
        }
        of!(self, peer, rail => rail.choose_rendezvous(token, peer, len))
    }

    fn rendezvous_done(&mut self, token: BulkToken, worked: bool) {
        // Only shared memory learns from it.
        self.shm.rendezvous_done(token, worked);
    }

    fn unreachable_cause(&self, peer: Peer) -> Option<UnreachableCause> {
        // The way to other nodes knows no such thing.
        self.shm.unreachable_cause(peer)
    }

    fn peer_lost(&mut self, peer: Peer) {
        // What is read of a peer of this node ends by itself: its memory is always there, or known
        // not to be.
        of!(self, peer, rail => rail.peer_lost(peer));
    }

    fn arm(&mut self) -> u32 {
        let ticket = self.shm.arm();
        if let Some(far) = &mut self.far {
            far.arm();
        }
        ticket
    }

    fn disarm(&mut self) {
        self.shm.disarm();
        if let Some(far) = &mut self.far {
            lock(&far.tcp).disarm();
        }
    }

    fn wake_source(&self) -> Arc<dyn WakeSource> {
        match &self.far {
            Some(far) => far.wake.clone(),
            None => self.shm.wake_source(),
        }
    }

    fn wake_peer(&mut self, peer: Peer) {
        of!(self, peer, rail => rail.wake_peer(peer));
    }
}

impl FastPath for MultiTransport {
    fn slot_batch(&mut self, peer: Peer) -> Option<Arc<SlotBatch>> {
        if self.is_near(peer) {
            self.shm.slot_batch(peer)
        } else {
            None
        }
    }

    #[inline]
    fn open_slot_batch(&mut self, peer: Peer, records: u32) -> u32 {
        if self.is_near(peer) {
            self.shm.open_slot_batch(peer, records)
        } else {
            0
        }
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
        // Of sockets nobody knows without asking the system.
        self.far.is_none() && self.shm.is_idle()
    }
}

impl FragmentedSends for MultiTransport {
    fn fragmentation(&mut self, peer: Peer, len: usize) -> Fragmentation {
        of!(self, peer, rail => rail.fragmentation(peer, len))
    }

    fn send_fragments(&mut self, pieces: &Fragments, mem: UserMem) -> Result<bool, ClaimError> {
        match &mut self.far {
            Some(far) if !far.is_near(pieces.peer) => {
                far.send(|tcp| tcp.send_fragments(pieces, mem))
            }
            _ => self.shm.send_fragments(pieces, mem),
        }
    }
}

impl RemoteMemory for MultiTransport {
    fn expose(&mut self, token: BulkToken, peer: Peer, data: &Data) -> ExposeResult {
        match &mut self.far {
            Some(far) if far.joins(peer, data.len) => {
                far.expose_to_both(&mut self.shm, (token, peer, data))
            }
            _ => of!(self, peer, rail => rail.expose(token, peer, data)),
        }
    }

    fn revoke(&mut self, token: BulkToken) -> BulkStatus {
        // Tokens are unique among both, and a transport that does not know one has nothing to end.
        if let Some(far) = &mut self.far
            && lock(&far.tcp).revoke(token) == BulkStatus::Pending
        {
            return BulkStatus::Pending;
        }
        self.shm.revoke(token)
    }

    fn read(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        match &mut self.far {
            Some(far)
                if far.has_both(bulk.peer)
                    && let Some(names) = intra_node_paths::split(bulk.descriptor) =>
            {
                far.read_by_both(&bulk, names)
            }
            _ => of!(self, bulk.peer, rail => rail.read(bulk)),
        }
    }

    fn write(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        of!(self, bulk.peer, rail => rail.write(bulk))
    }

    fn registered_memory(&mut self) -> Option<&mut dyn RegisteredMemory> {
        // It gives no rights to regions of peers of other nodes, whose engines carry accesses out.
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
        // Of what goes by both nobody takes parts by himself.
        if self
            .far
            .as_ref()
            .is_some_and(|far| far.joins(peer, data.len))
        {
            return None;
        }
        of!(self, peer, rail => rail.share_region(token, peer, data, way))
    }

    fn take_part(&mut self, token: BulkToken, len: u64) -> Result<Option<(u64, u64)>, Error> {
        self.shm.take_part(token, len)
    }

    fn write_part(&mut self, bulk: BulkTransfer<'_>) -> Result<PartWritten, Error> {
        of!(self, bulk.peer, rail => rail.write_part(bulk))
    }

    fn withdraw_region(&mut self, token: BulkToken) -> WithdrawResult {
        // Only data of the node's peers was offered.
        self.shm.withdraw_region(token)
    }

    fn write_early(&mut self, bulk: BulkTransfer<'_>) -> Result<Option<PartWritten>, Error> {
        of!(self, bulk.peer, rail => rail.write_early(bulk))
    }

    fn offload(
        &mut self,
        bulk: BulkTransfer<'_>,
        what: OffloadKind,
    ) -> Result<OffloadResult, Error> {
        if what == OffloadKind::Read
            && self.far.is_some()
            && intra_node_paths::split(bulk.descriptor).is_some()
        {
            return Ok(OffloadResult::Unable);
        }
        of!(self, bulk.peer, rail => rail.offload(bulk, what))
    }

    fn is_polling(&self, peer: Peer) -> bool {
        !self.is_near(peer) || self.shm.is_polling(peer)
    }
}

impl AsyncProgress for MultiTransport {
    fn wake_progress(&mut self, peer: Peer, need: WakeReason) {
        of!(self, peer, rail => rail.wake_progress(peer, need));
    }

    fn progress_words(&mut self, peer: Peer) -> Option<Segment> {
        if self.is_near(peer) {
            self.shm.progress_words(peer)
        } else {
            None
        }
    }

    fn needs_polling(&self, peer: Option<Peer>, len: u64) -> bool {
        // What is shorter the system takes in by itself, and reading it is the program's own work.
        let far = |far: &RemotePart| {
            len > TCP_FRAGMENTED_MAX as u64 && peer.is_none_or(|peer| !far.is_near(peer))
        };
        self.far.as_deref().is_some_and(far)
    }

    fn poll_in_background(&mut self, patient: bool) {
        if let Some(far) = &self.far {
            lock(&far.tcp).be_patient(patient);
        }
    }

    fn yield_to_small(&mut self, yields: bool) {
        if let Some(far) = &self.far {
            lock(&far.tcp).yield_to_small(yields);
        }
    }

    fn arm_progress(&mut self) -> Option<Duration> {
        let far = self.far.as_mut()?;
        // What is kept stays kept: that the rank does not look is seen to already.
        let mut tcp = lock(&far.tcp);
        tcp.before_sleep();
        // A poll takes more from a socket than it tells.
        let taken = tcp.has_taken();
        drop(tcp);
        let watched = far.watch();
        if taken && let Some((word, all)) = &far.hands {
            ProgressWakeup::new(word, all).ring(WakeupScope::Transfers);
        }
        far.wake.sockets.limit_if(watched)
    }
}

impl NodeMemory for MultiTransport {
    fn coll_heap(&mut self, owner: Peer) -> Option<Segment> {
        if self.is_near(owner) {
            self.shm.coll_heap(owner)
        } else {
            None
        }
    }

    fn doorbell(&mut self, peer: Peer) -> Option<Segment> {
        if self.is_near(peer) {
            self.shm.doorbell(peer)
        } else {
            None
        }
    }
}
