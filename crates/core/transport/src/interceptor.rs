//! A transport that wraps another one and sees what goes through it: packets that leave and arrive,
//! claims, polls.
//!
//! [`Intercepted`] passes everything on; what becomes of packets its [`Interceptor`] says. Small
//! packets take no shorter way past it, so it costs them that. Regions are passed on unseen.

use garonne_engine::api::{Error, Peer, UnreachableCause};
use garonne_engine::protocol::offload::{OffloadKind, OffloadResult};
use garonne_engine::transport::{
    AsyncProgress, BulkStatus, BulkToken, BulkTransfer, ClaimError, ExposeResult, FastPath,
    Fragmentation, FragmentedSends, NodeMemory, PacketBuffer, PacketClass, PacketHeader,
    PartWritten, PeerCapabilities, PollSink, RegionDescriptor, RegisteredMemory, RemoteMemory,
    RendezvousMode, SharedCopy, Transport, TransportLimits, WakeReason, WakeSource, WithdrawResult,
};
use garonne_sync::shm::Segment;
use garonne_sync::user::{Data, UserMem};
use std::sync::Arc;
use std::time::Duration;

/// Sees what goes through a transport, and may change it.
///
/// Owned by an [`Intercepted`], which calls it for each claim, packet and poll, in the order in
/// which they happen.
pub trait Interceptor: Send {
    /// Returns whether claims may be refused although there is room.
    fn refuses_room(&self) -> bool {
        false
    }

    /// Decides whether room is lent for a packet, or the engine is told that there is none.
    fn on_claim(&mut self, peer: Peer, len: usize, class: PacketClass) -> bool {
        let _ = (peer, len, class);
        true
    }

    /// A packet is about to leave, with a header that may be changed. Decides whether it does.
    fn on_send(&mut self, peer: Peer, header: &mut PacketHeader) -> bool {
        let _ = (peer, header);
        true
    }

    /// Decides whether a poll looks at the transport. Not asked where the owner is about to sleep.
    fn on_poll(&mut self) -> bool {
        true
    }

    /// A packet arrived, and goes to the engine.
    fn on_receive(&mut self, peer: Peer, header: &PacketHeader) {
        let _ = (peer, header);
    }

    /// The transport says that a peer is gone.
    fn on_peer_gone(&mut self, peer: Peer) {
        let _ = peer;
    }
}

/// A transport through which an interceptor sees.
///
/// Owned like the transport that it wraps, and called in the same order.
#[derive(Debug)]
pub struct Intercepted<T, I> {
    inner: T,
    interceptor: I,
    /// The owner is about to sleep: its next poll finds whatever there is.
    armed: bool,
}

impl<T: Transport, I: Interceptor> Intercepted<T, I> {
    /// Wraps a transport.
    pub fn new(inner: T, interceptor: I) -> Self {
        Self {
            inner,
            interceptor,
            armed: false,
        }
    }

    /// Returns what sees through the transport.
    pub fn interceptor(&self) -> &I {
        &self.interceptor
    }
}

/// Sink that shows to an interceptor what goes to the engine.
struct SeenSink<'a, S, I> {
    sink: &'a mut S,
    interceptor: &'a mut I,
}

impl<S: PollSink, I: Interceptor> PollSink for SeenSink<'_, S, I> {
    fn on_packet(&mut self, peer: Peer, header: PacketHeader, payload: UserMem, len: usize) {
        self.interceptor.on_receive(peer, &header);
        self.sink.on_packet(peer, header, payload, len);
    }
    fn fragment_target(&mut self, peer: Peer, offset: u64, len: usize) -> Option<UserMem> {
        self.sink.fragment_target(peer, offset, len)
    }
    fn fragment_written(&mut self, peer: Peer, len: usize) {
        self.sink.fragment_written(peer, len);
    }
    fn on_exposed(&mut self, token: BulkToken, descriptor: Option<RegionDescriptor>) {
        self.sink.on_exposed(token, descriptor);
    }
    fn on_revoked(&mut self, token: BulkToken) {
        self.sink.on_revoked(token);
    }
    fn on_bulk_done(&mut self, token: BulkToken, result: Result<(), Error>) {
        self.sink.on_bulk_done(token, result);
    }
    fn on_peer_gone(&mut self, peer: Peer) {
        self.interceptor.on_peer_gone(peer);
        self.sink.on_peer_gone(peer);
    }
    fn on_peer_lost(&mut self, peer: Peer, why: &'static str) {
        self.interceptor.on_peer_gone(peer);
        self.sink.on_peer_lost(peer, why);
    }
    fn on_peer_left(&mut self, peer: Peer) {
        self.sink.on_peer_left(peer);
    }
    fn on_peer_unreachable(&mut self, shortage: UnreachableCause) {
        self.interceptor.on_peer_gone(shortage.peer);
        self.sink.on_peer_unreachable(shortage);
    }
}

impl<T: Transport, I: Interceptor> Transport for Intercepted<T, I> {
    fn limits(&self) -> TransportLimits {
        self.inner.limits()
    }

    fn capabilities(&self, peer: Peer) -> Option<PeerCapabilities> {
        self.inner.capabilities(peer)
    }

    fn unreachable_cause(&self, peer: Peer) -> Option<UnreachableCause> {
        self.inner.unreachable_cause(peer)
    }

    fn claim(
        &mut self,
        peer: Peer,
        len: usize,
        class: PacketClass,
    ) -> Result<PacketBuffer, ClaimError> {
        let room = self.inner.claim(peer, len, class)?;
        // A peer that is gone is told as such, whatever the interceptor says.
        if self.interceptor.on_claim(peer, len, class) {
            return Ok(room);
        }
        self.inner.abandon(room);
        Err(ClaimError::Full)
    }

    fn commit(&mut self, room: PacketBuffer, header: &PacketHeader) {
        let mut header = *header;
        match self.interceptor.on_send(room.peer, &mut header) {
            true => self.inner.commit(room, &header),
            false => self.inner.abandon(room),
        }
    }

    fn abandon(&mut self, room: PacketBuffer) {
        self.inner.abandon(room);
    }

    fn send_inline(
        &mut self,
        peer: Peer,
        header: &PacketHeader,
        bytes: UserMem,
    ) -> Result<(), ClaimError> {
        let len = header.len as usize;
        let room = self.claim(peer, len, PacketClass::Data)?;
        room.mem.copy_from(0, bytes, 0, len);
        self.commit(room, header);
        Ok(())
    }

    fn poll(&mut self, budget: u32, sink: &mut impl PollSink) -> u32 {
        if !std::mem::take(&mut self.armed) && !self.interceptor.on_poll() {
            return 0;
        }
        let mut seen = SeenSink {
            sink,
            interceptor: &mut self.interceptor,
        };
        self.inner.poll(budget, &mut seen)
    }

    fn choose_rendezvous(&mut self, token: BulkToken, peer: Peer, len: u64) -> RendezvousMode {
        self.inner.choose_rendezvous(token, peer, len)
    }

    fn rendezvous_done(&mut self, token: BulkToken, worked: bool) {
        self.inner.rendezvous_done(token, worked);
    }

    fn peer_lost(&mut self, peer: Peer) {
        self.inner.peer_lost(peer);
    }

    fn arm(&mut self) -> u32 {
        self.armed = true;
        self.inner.arm()
    }

    fn disarm(&mut self) {
        self.armed = false;
        self.inner.disarm();
    }

    fn wake_source(&self) -> Arc<dyn WakeSource> {
        self.inner.wake_source()
    }

    fn wake_peer(&mut self, peer: Peer) {
        self.inner.wake_peer(peer);
    }
}

/// The general way is the only one that an interceptor sees.
impl<T: Transport, I: Interceptor> FastPath for Intercepted<T, I> {
    fn is_idle(&self) -> bool {
        self.inner.is_idle()
    }
}

impl<T: Transport, I: Interceptor> FragmentedSends for Intercepted<T, I> {
    fn fragmentation(&mut self, peer: Peer, len: usize) -> Fragmentation {
        // Fragments are promised room.
        match self.interceptor.refuses_room() {
            true => Fragmentation::None,
            false => self.inner.fragmentation(peer, len),
        }
    }
}

impl<T: Transport, I: Interceptor> RemoteMemory for Intercepted<T, I> {
    fn expose(&mut self, token: BulkToken, peer: Peer, data: &Data) -> ExposeResult {
        self.inner.expose(token, peer, data)
    }

    fn revoke(&mut self, token: BulkToken) -> BulkStatus {
        self.inner.revoke(token)
    }

    fn read(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        self.inner.read(bulk)
    }

    fn write(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        self.inner.write(bulk)
    }

    fn registered_memory(&mut self) -> Option<&mut dyn RegisteredMemory> {
        self.inner.registered_memory()
    }
}

impl<T: Transport, I: Interceptor> SharedCopy for Intercepted<T, I> {
    fn share_region(
        &mut self,
        token: BulkToken,
        peer: Peer,
        data: &Data,
        way: RendezvousMode,
    ) -> Option<RegionDescriptor> {
        self.inner.share_region(token, peer, data, way)
    }

    fn take_part(&mut self, token: BulkToken, len: u64) -> Result<Option<(u64, u64)>, Error> {
        self.inner.take_part(token, len)
    }

    fn write_part(&mut self, bulk: BulkTransfer<'_>) -> Result<PartWritten, Error> {
        self.inner.write_part(bulk)
    }

    fn withdraw_region(&mut self, token: BulkToken) -> WithdrawResult {
        self.inner.withdraw_region(token)
    }

    fn write_early(&mut self, bulk: BulkTransfer<'_>) -> Result<Option<PartWritten>, Error> {
        self.inner.write_early(bulk)
    }

    fn offload(
        &mut self,
        bulk: BulkTransfer<'_>,
        what: OffloadKind,
    ) -> Result<OffloadResult, Error> {
        self.inner.offload(bulk, what)
    }

    fn is_polling(&self, peer: Peer) -> bool {
        self.inner.is_polling(peer)
    }
}

impl<T: Transport, I: Interceptor> AsyncProgress for Intercepted<T, I> {
    fn wake_progress(&mut self, peer: Peer, need: WakeReason) {
        self.inner.wake_progress(peer, need);
    }

    fn progress_words(&mut self, peer: Peer) -> Option<Segment> {
        self.inner.progress_words(peer)
    }

    fn needs_polling(&self, peer: Option<Peer>, len: u64) -> bool {
        self.inner.needs_polling(peer, len)
    }

    fn poll_in_background(&mut self, patient: bool) {
        self.inner.poll_in_background(patient);
    }

    fn yield_to_small(&mut self, yields: bool) {
        self.inner.yield_to_small(yields);
    }

    fn arm_progress(&mut self) -> Option<Duration> {
        self.inner.arm_progress()
    }
}

impl<T: Transport, I: Interceptor> NodeMemory for Intercepted<T, I> {
    fn coll_heap(&mut self, owner: Peer) -> Option<Segment> {
        self.inner.coll_heap(owner)
    }

    fn doorbell(&mut self, peer: Peer) -> Option<Segment> {
        self.inner.doorbell(peer)
    }
}
