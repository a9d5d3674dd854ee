//! Transports of a kind that is known only while the program runs.
//!
//! The engine is generic over its [`Transport`], so that its calls are inlined. [`DynTransport`] is
//! the face of a transport that needs no type parameter, and a `Box<dyn DynTransport>` is a
//! [`Transport`] again. Optional powers are asked for; one that is missing answers as the traits'
//! defaults do. Used at the border of modules ([`crate::module`]) and in tests; a call costs two
//! indirect jumps.

use garonne_engine::api::{Error, Peer, UnreachableCause};
use garonne_engine::protocol::offload::{OffloadKind, OffloadResult};
use garonne_engine::transport::{
    AsyncProgress, BulkStatus, BulkToken, BulkTransfer, ClaimError, ExposeResult, FastPath,
    Fragmentation, FragmentedSends, Fragments, NodeMemory, PacketAcceptor, PacketBuffer,
    PacketClass, PacketHeader, PartWritten, PeekResult, PeekedPacket, PeerCapabilities, PollSink,
    RegionDescriptor, RegisteredMemory, RemoteMemory, RendezvousMode, SharedCopy, Transport,
    TransportLimits, WakeReason, WakeSource, WithdrawResult,
};
use garonne_sync::shm::Segment;
use garonne_sync::slot_batch::SlotBatch;
use garonne_sync::user::{Data, UserMem};
use std::sync::Arc;
use std::time::Duration;

/// Shortest ways for small packets, without type parameters: see [`FastPath`].
pub trait DynFastPath {
    /// See [`FastPath::slot_batch`].
    fn slot_batch(&mut self, peer: Peer) -> Option<Arc<SlotBatch>>;

    /// See [`FastPath::open_slot_batch`].
    fn open_slot_batch(&mut self, peer: Peer, records: u32) -> u32;

    /// See [`FastPath::try_send_inline`].
    fn try_send_inline(&mut self, peer: Peer, header: PacketHeader, bytes: UserMem) -> bool;

    /// Shows the next packet to `accept`, which says whether it took what the packet carries; see
    /// [`FastPath::try_take_ready`].
    fn try_take_ready(&mut self, accept: &mut dyn FnMut(&PeekedPacket) -> bool) -> PeekResult<()>;

    /// See [`FastPath::poll_one`].
    fn poll_one(&mut self, sink: &mut dyn PollSink) -> bool;

    /// See [`FastPath::is_idle`].
    fn is_idle(&self) -> bool;
}

/// Optional powers of a transport: each is there or is not, for as long as the transport lives.
pub trait OptionalPowers {
    /// Returns the shortest ways for small packets.
    fn fast_path(&self) -> Option<&dyn DynFastPath> {
        None
    }

    /// Returns the shortest ways for small packets, to be used.
    fn fast_path_mut(&mut self) -> Option<&mut dyn DynFastPath> {
        None
    }

    /// Returns the power to send messages in fragments.
    fn fragmented_sends(&mut self) -> Option<&mut dyn FragmentedSends> {
        None
    }

    /// Returns the power to read and write regions of peers.
    fn remote_memory(&mut self) -> Option<&mut dyn RemoteMemory> {
        None
    }

    /// Returns the power to share copies with peers.
    fn shared_copy(&self) -> Option<&dyn SharedCopy> {
        None
    }

    /// Returns the power to share copies with peers, to be used.
    fn shared_copy_mut(&mut self) -> Option<&mut dyn SharedCopy> {
        None
    }

    /// Returns the power to wake progress threads of peers.
    fn async_progress(&self) -> Option<&dyn AsyncProgress> {
        None
    }

    /// Returns the power to wake progress threads of peers, to be used.
    fn async_progress_mut(&mut self) -> Option<&mut dyn AsyncProgress> {
        None
    }

    /// Returns the memory of the ranks of this node.
    fn node_memory(&mut self) -> Option<&mut dyn NodeMemory> {
        None
    }
}

/// A transport without type parameters.
///
/// Owned as `Box<dyn DynTransport>` by an engine, for which it is a [`Transport`], or by another
/// transport that wraps it. Calls come in the order that [`Transport`] describes, and each method
/// here is the one of that name there. Made from any transport by [`boxed`], or implemented by
/// itself together with the powers that it has.
pub trait DynTransport: OptionalPowers + Send {
    /// See [`Transport::limits`].
    fn limits(&self) -> TransportLimits;

    /// See [`Transport::capabilities`].
    fn capabilities(&self, peer: Peer) -> Option<PeerCapabilities>;

    /// See [`Transport::unreachable_cause`].
    fn unreachable_cause(&self, peer: Peer) -> Option<UnreachableCause>;

    /// See [`Transport::claim`].
    fn claim(
        &mut self,
        peer: Peer,
        len: usize,
        class: PacketClass,
    ) -> Result<PacketBuffer, ClaimError>;

    /// See [`Transport::commit`].
    fn commit(&mut self, room: PacketBuffer, header: &PacketHeader);

    /// See [`Transport::abandon`].
    fn abandon(&mut self, room: PacketBuffer);

    /// See [`Transport::send_inline`].
    fn send_inline(
        &mut self,
        peer: Peer,
        header: &PacketHeader,
        bytes: UserMem,
    ) -> Result<(), ClaimError>;

    /// See [`Transport::poll`].
    fn poll(&mut self, budget: u32, sink: &mut dyn PollSink) -> u32;

    /// See [`Transport::choose_rendezvous`].
    fn choose_rendezvous(&mut self, token: BulkToken, peer: Peer, len: u64) -> RendezvousMode;

    /// See [`Transport::rendezvous_done`].
    fn rendezvous_done(&mut self, token: BulkToken, worked: bool);

    /// See [`Transport::peer_lost`].
    fn peer_lost(&mut self, peer: Peer);

    /// See [`Transport::arm`].
    fn arm(&mut self) -> u32;

    /// See [`Transport::disarm`].
    fn disarm(&mut self);

    /// See [`Transport::wake_source`].
    fn wake_source(&self) -> Arc<dyn WakeSource>;

    /// See [`Transport::wake_peer`].
    fn wake_peer(&mut self, peer: Peer);
}

/// Returns a transport as one without type parameters; it has all powers that the transport has.
pub fn boxed<T: Transport + Send + 'static>(transport: T) -> Box<dyn DynTransport> {
    Box::new(Erased(transport))
}

/// A transport of a known kind behind the face without type parameters.
struct Erased<T>(T);

/// Sink of which the kind is not known, for transports that want one of a known kind.
struct SinkRef<'a>(&'a mut dyn PollSink);

impl PollSink for SinkRef<'_> {
    fn on_packet(&mut self, peer: Peer, header: PacketHeader, payload: UserMem, len: usize) {
        self.0.on_packet(peer, header, payload, len);
    }
    fn fragment_target(&mut self, peer: Peer, offset: u64, len: usize) -> Option<UserMem> {
        self.0.fragment_target(peer, offset, len)
    }
    fn fragment_written(&mut self, peer: Peer, len: usize) {
        self.0.fragment_written(peer, len);
    }
    fn on_exposed(&mut self, token: BulkToken, descriptor: Option<RegionDescriptor>) {
        self.0.on_exposed(token, descriptor);
    }
    fn on_revoked(&mut self, token: BulkToken) {
        self.0.on_revoked(token);
    }
    fn on_bulk_done(&mut self, token: BulkToken, result: Result<(), Error>) {
        self.0.on_bulk_done(token, result);
    }
    fn on_peer_gone(&mut self, peer: Peer) {
        self.0.on_peer_gone(peer);
    }
    fn on_peer_lost(&mut self, peer: Peer, why: &'static str) {
        self.0.on_peer_lost(peer, why);
    }
    fn on_peer_left(&mut self, peer: Peer) {
        self.0.on_peer_left(peer);
    }
    fn on_peer_unreachable(&mut self, shortage: UnreachableCause) {
        self.0.on_peer_unreachable(shortage);
    }
}

/// Acceptor of which the kind is not known, for transports that want one of a known kind.
struct AcceptorRef<'a>(&'a mut dyn FnMut(&PeekedPacket) -> bool);

impl PacketAcceptor for AcceptorRef<'_> {
    type Taken = ();

    fn accept(self, peeked: &PeekedPacket) -> Option<()> {
        (self.0)(peeked).then_some(())
    }
}

impl<T: Transport> DynFastPath for Erased<T> {
    fn slot_batch(&mut self, peer: Peer) -> Option<Arc<SlotBatch>> {
        self.0.slot_batch(peer)
    }

    fn open_slot_batch(&mut self, peer: Peer, records: u32) -> u32 {
        self.0.open_slot_batch(peer, records)
    }

    fn try_send_inline(&mut self, peer: Peer, header: PacketHeader, bytes: UserMem) -> bool {
        self.0.try_send_inline(peer, header, bytes)
    }

    fn try_take_ready(&mut self, accept: &mut dyn FnMut(&PeekedPacket) -> bool) -> PeekResult<()> {
        self.0.try_take_ready(AcceptorRef(accept))
    }

    fn poll_one(&mut self, sink: &mut dyn PollSink) -> bool {
        self.0.poll_one(&mut SinkRef(sink))
    }

    fn is_idle(&self) -> bool {
        self.0.is_idle()
    }
}

impl<T: Transport> OptionalPowers for Erased<T> {
    fn fast_path(&self) -> Option<&dyn DynFastPath> {
        Some(self)
    }

    fn fast_path_mut(&mut self) -> Option<&mut dyn DynFastPath> {
        Some(self)
    }

    fn fragmented_sends(&mut self) -> Option<&mut dyn FragmentedSends> {
        Some(&mut self.0)
    }

    fn remote_memory(&mut self) -> Option<&mut dyn RemoteMemory> {
        Some(&mut self.0)
    }

    fn shared_copy(&self) -> Option<&dyn SharedCopy> {
        Some(&self.0)
    }

    fn shared_copy_mut(&mut self) -> Option<&mut dyn SharedCopy> {
        Some(&mut self.0)
    }

    fn async_progress(&self) -> Option<&dyn AsyncProgress> {
        Some(&self.0)
    }

    fn async_progress_mut(&mut self) -> Option<&mut dyn AsyncProgress> {
        Some(&mut self.0)
    }

    fn node_memory(&mut self) -> Option<&mut dyn NodeMemory> {
        Some(&mut self.0)
    }
}

impl<T: Transport + Send> DynTransport for Erased<T> {
    fn limits(&self) -> TransportLimits {
        self.0.limits()
    }

    fn capabilities(&self, peer: Peer) -> Option<PeerCapabilities> {
        self.0.capabilities(peer)
    }

    fn unreachable_cause(&self, peer: Peer) -> Option<UnreachableCause> {
        self.0.unreachable_cause(peer)
    }

    fn claim(
        &mut self,
        peer: Peer,
        len: usize,
        class: PacketClass,
    ) -> Result<PacketBuffer, ClaimError> {
        self.0.claim(peer, len, class)
    }

    fn commit(&mut self, room: PacketBuffer, header: &PacketHeader) {
        self.0.commit(room, header);
    }

    fn abandon(&mut self, room: PacketBuffer) {
        self.0.abandon(room);
    }

    fn send_inline(
        &mut self,
        peer: Peer,
        header: &PacketHeader,
        bytes: UserMem,
    ) -> Result<(), ClaimError> {
        self.0.send_inline(peer, header, bytes)
    }

    fn poll(&mut self, budget: u32, sink: &mut dyn PollSink) -> u32 {
        self.0.poll(budget, &mut SinkRef(sink))
    }

    fn choose_rendezvous(&mut self, token: BulkToken, peer: Peer, len: u64) -> RendezvousMode {
        self.0.choose_rendezvous(token, peer, len)
    }

    fn rendezvous_done(&mut self, token: BulkToken, worked: bool) {
        self.0.rendezvous_done(token, worked);
    }

    fn peer_lost(&mut self, peer: Peer) {
        self.0.peer_lost(peer);
    }

    fn arm(&mut self) -> u32 {
        self.0.arm()
    }

    fn disarm(&mut self) {
        self.0.disarm();
    }

    fn wake_source(&self) -> Arc<dyn WakeSource> {
        self.0.wake_source()
    }

    fn wake_peer(&mut self, peer: Peer) {
        self.0.wake_peer(peer);
    }
}

impl Transport for Box<dyn DynTransport> {
    fn limits(&self) -> TransportLimits {
        (**self).limits()
    }

    fn capabilities(&self, peer: Peer) -> Option<PeerCapabilities> {
        (**self).capabilities(peer)
    }

    fn unreachable_cause(&self, peer: Peer) -> Option<UnreachableCause> {
        (**self).unreachable_cause(peer)
    }

    fn claim(
        &mut self,
        peer: Peer,
        len: usize,
        class: PacketClass,
    ) -> Result<PacketBuffer, ClaimError> {
        (**self).claim(peer, len, class)
    }

    fn commit(&mut self, room: PacketBuffer, header: &PacketHeader) {
        (**self).commit(room, header);
    }

    fn abandon(&mut self, room: PacketBuffer) {
        (**self).abandon(room);
    }

    fn send_inline(
        &mut self,
        peer: Peer,
        header: &PacketHeader,
        bytes: UserMem,
    ) -> Result<(), ClaimError> {
        (**self).send_inline(peer, header, bytes)
    }

    fn poll(&mut self, budget: u32, sink: &mut impl PollSink) -> u32 {
        (**self).poll(budget, sink)
    }

    fn choose_rendezvous(&mut self, token: BulkToken, peer: Peer, len: u64) -> RendezvousMode {
        (**self).choose_rendezvous(token, peer, len)
    }

    fn rendezvous_done(&mut self, token: BulkToken, worked: bool) {
        (**self).rendezvous_done(token, worked);
    }

    fn peer_lost(&mut self, peer: Peer) {
        (**self).peer_lost(peer);
    }

    fn arm(&mut self) -> u32 {
        (**self).arm()
    }

    fn disarm(&mut self) {
        (**self).disarm();
    }

    fn wake_source(&self) -> Arc<dyn WakeSource> {
        (**self).wake_source()
    }

    fn wake_peer(&mut self, peer: Peer) {
        (**self).wake_peer(peer);
    }
}

impl FastPath for Box<dyn DynTransport> {
    fn slot_batch(&mut self, peer: Peer) -> Option<Arc<SlotBatch>> {
        self.fast_path_mut()?.slot_batch(peer)
    }

    fn open_slot_batch(&mut self, peer: Peer, records: u32) -> u32 {
        self.fast_path_mut()
            .map_or(0, |fast| fast.open_slot_batch(peer, records))
    }

    fn try_send_inline(&mut self, peer: Peer, header: PacketHeader, bytes: UserMem) -> bool {
        self.fast_path_mut()
            .is_some_and(|fast| fast.try_send_inline(peer, header, bytes))
    }

    fn try_take_ready<A: PacketAcceptor>(&mut self, accept: A) -> PeekResult<A::Taken> {
        let Some(fast) = self.fast_path_mut() else {
            return PeekResult::Unknown;
        };
        let (mut accept, mut taken) = (Some(accept), None);
        let result = fast.try_take_ready(&mut |peeked| {
            if let Some(accept) = accept.take() {
                taken = accept.accept(peeked);
            }
            taken.is_some()
        });
        match (result, taken) {
            (PeekResult::Unknown, _) => PeekResult::Unknown,
            (PeekResult::Taken(()), Some(taken)) => PeekResult::Taken(taken),
            (PeekResult::Taken(()) | PeekResult::Refused, _) => PeekResult::Refused,
        }
    }

    fn poll_one(&mut self, sink: &mut impl PollSink) -> bool {
        self.fast_path_mut().is_some_and(|fast| fast.poll_one(sink))
    }

    fn is_idle(&self) -> bool {
        self.fast_path().is_some_and(DynFastPath::is_idle)
    }
}

impl FragmentedSends for Box<dyn DynTransport> {
    fn fragmentation(&mut self, peer: Peer, len: usize) -> Fragmentation {
        let sends = self.fragmented_sends();
        sends.map_or(Fragmentation::None, |sends| sends.fragmentation(peer, len))
    }

    fn send_fragments(&mut self, pieces: &Fragments, mem: UserMem) -> Result<bool, ClaimError> {
        let sends = self.fragmented_sends();
        sends.map_or(Ok(false), |sends| sends.send_fragments(pieces, mem))
    }
}

/// Error of transports that have no such power.
const NO_REGIONS: Error = Error::Misuse("this transport reads and writes no regions");

impl RemoteMemory for Box<dyn DynTransport> {
    fn expose(&mut self, token: BulkToken, peer: Peer, data: &Data) -> ExposeResult {
        let memory = self.remote_memory();
        memory.map_or(ExposeResult::Unable, |memory| {
            memory.expose(token, peer, data)
        })
    }

    fn revoke(&mut self, token: BulkToken) -> BulkStatus {
        let memory = self.remote_memory();
        memory.map_or(BulkStatus::Done, |memory| memory.revoke(token))
    }

    fn read(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        self.remote_memory().ok_or(NO_REGIONS)?.read(bulk)
    }

    fn write(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        self.remote_memory().ok_or(NO_REGIONS)?.write(bulk)
    }

    fn registered_memory(&mut self) -> Option<&mut dyn RegisteredMemory> {
        self.remote_memory()?.registered_memory()
    }
}

impl SharedCopy for Box<dyn DynTransport> {
    fn share_region(
        &mut self,
        token: BulkToken,
        peer: Peer,
        data: &Data,
        way: RendezvousMode,
    ) -> Option<RegionDescriptor> {
        self.shared_copy_mut()?.share_region(token, peer, data, way)
    }

    fn take_part(&mut self, token: BulkToken, len: u64) -> Result<Option<(u64, u64)>, Error> {
        let copy = self.shared_copy_mut();
        copy.map_or(Ok(None), |copy| copy.take_part(token, len))
    }

    fn write_part(&mut self, bulk: BulkTransfer<'_>) -> Result<PartWritten, Error> {
        self.shared_copy_mut().ok_or(NO_REGIONS)?.write_part(bulk)
    }

    fn withdraw_region(&mut self, token: BulkToken) -> WithdrawResult {
        let copy = self.shared_copy_mut();
        copy.map_or(WithdrawResult::Withdrawn, |copy| {
            copy.withdraw_region(token)
        })
    }

    fn write_early(&mut self, bulk: BulkTransfer<'_>) -> Result<Option<PartWritten>, Error> {
        let copy = self.shared_copy_mut();
        copy.map_or(Ok(None), |copy| copy.write_early(bulk))
    }

    fn offload(
        &mut self,
        bulk: BulkTransfer<'_>,
        what: OffloadKind,
    ) -> Result<OffloadResult, Error> {
        let copy = self.shared_copy_mut();
        copy.map_or(Ok(OffloadResult::Unable), |copy| copy.offload(bulk, what))
    }

    fn is_polling(&self, peer: Peer) -> bool {
        self.shared_copy().is_none_or(|copy| copy.is_polling(peer))
    }
}

impl AsyncProgress for Box<dyn DynTransport> {
    fn wake_progress(&mut self, peer: Peer, need: WakeReason) {
        if let Some(progress) = self.async_progress_mut() {
            progress.wake_progress(peer, need);
        }
    }

    fn progress_words(&mut self, peer: Peer) -> Option<Segment> {
        self.async_progress_mut()?.progress_words(peer)
    }

    fn needs_polling(&self, peer: Option<Peer>, len: u64) -> bool {
        self.async_progress()
            .is_some_and(|progress| progress.needs_polling(peer, len))
    }

    fn poll_in_background(&mut self, patient: bool) {
        if let Some(progress) = self.async_progress_mut() {
            progress.poll_in_background(patient);
        }
    }

    fn yield_to_small(&mut self, yields: bool) {
        if let Some(progress) = self.async_progress_mut() {
            progress.yield_to_small(yields);
        }
    }

    fn arm_progress(&mut self) -> Option<Duration> {
        self.async_progress_mut()?.arm_progress()
    }
}

impl NodeMemory for Box<dyn DynTransport> {
    fn coll_heap(&mut self, owner: Peer) -> Option<Segment> {
        self.node_memory()?.coll_heap(owner)
    }

    fn doorbell(&mut self, peer: Peer) -> Option<Segment> {
        self.node_memory()?.doorbell(peer)
    }
}
