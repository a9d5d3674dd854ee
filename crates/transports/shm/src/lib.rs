//! The shared-memory transport: packets through the mailbox and the lanes of each rank's inbox,
//! large data by reading the peer's memory, wake-ups through doorbells.
//!
//! A [`ShmTransport`] is one rank's transport and belongs to its engine. What surrounds it (where
//! inboxes lie, who the peers are) comes from a [`NodePeers`]: the agent's segments for processes,
//! plain memory for threads. Inboxes of peers are mapped at the first packet to them. Peers are
//! named by their index in the job's world; one writer per rank.
//!
//! Order: records of one peer are delivered in the order of their claims, also when it changes
//! between mailbox and lane (`inbox` says how). Bounded by the sizes in `limits`; no room is
//! `ClaimError::Full`, and the reader rings whoever found none.

#![deny(unsafe_code)]

pub mod cost_model;
mod doorbell_wake;
#[cfg(test)]
mod fuzz_seeds;
mod inbox;
mod iovec;
pub mod layout;
mod local_ranks;
mod peers;
pub mod protocol_tuner;
pub mod protocol_tuners;
mod region;
mod sys;
mod transfer;
mod unreachable_peers;

#[cfg(any(test, fuzzing))]
pub use iovec::read_anything;
pub use layout::inbox_bytes;
pub use local_ranks::LocalRanks;
pub use peers::{NodePeers, PeerProcess, ThreadPeers};
pub use protocol_tuner::TunerReport;
pub use unreachable_peers::refuse;

use doorbell_wake::DoorbellWake;
use garonne_engine::api::{Error, Peer, UnreachableCause};
use garonne_engine::limits::CONTROL_PAYLOAD_MAX;
use garonne_engine::protocol::offload::{OffloadKind, OffloadResult};
use garonne_engine::transport::{
    AccessRights, AsyncProgress, AtomicAccess, BulkStatus, BulkToken, BulkTransfer, ClaimError,
    ExposeResult, FastPath, Fragmentation, FragmentedSends, NodeMemory, PacketAcceptor,
    PacketBuffer, PacketClass, PacketHeader, PartWritten, PeekResult, PeerCapabilities, PollSink,
    RegionDescriptor, RegionMemory, RegisteredMemory, RemoteMemory, RendezvousMode, SharedCopy,
    Transport, TransportLimits, WakeReason, WakeSource, WithdrawResult,
};
use garonne_sync::copy::StoreKind;
use garonne_sync::doorbell::{ArmTicket, Doorbell};
use garonne_sync::mailbox::{ClaimedRecord, INLINE_MAX as SLOT_MAX, RecordClass, UNIT};
use garonne_sync::progress_owner::WakeupScope;
use garonne_sync::shm::{Segment, SharedWord};
use garonne_sync::slot_batch::SlotBatch;
use garonne_sync::user::{Data, UserMem};
use garonne_transport::limits::{
    COLL_HEAP_ALIGN, EAGER_MAX, FRAGMENT_MIN, FRAGMENTS_FROM, FRAGMENTS_MAX, INLINE_MAX,
    LOCAL_RANKS_MAX, PACKET_MAX, SENDER_POLL_BYTES, SENDER_POLLS, SENDER_POLLS_MAX, SHARE_MIN,
    TUNER_UNTRIED_MAX,
};
use inbox::Inbox;
use peers::Sender;
use protocol_tuners::ProtocolTuners;
use region::{Regions, RegisteredAccess};
use std::sync::Arc;
use std::time::Instant;
use unreachable_peers::UnreachablePeers;

/// One rank's shared-memory transport.
pub struct ShmTransport {
    /// Local number of this rank, by which peers' inboxes name their writers.
    me: u16,
    /// The ranks of this host.
    local: LocalRanks,
    node_peers: Arc<dyn NodePeers>,
    /// By peer; `None`: not talked to yet.
    outs: Vec<Option<Box<Sender>>>,
    /// By peer.
    gone: Vec<bool>,
    any_gone: bool,
    /// Peers that live and to which no way leads, or none from them.
    unreached: UnreachablePeers,
    inbox: Inbox,
    bell: SharedWord,
    wake: Arc<DoorbellWake>,
    armed: Option<ArmTicket>,
    claims: Vec<Option<LentRoom>>,
    regions: Regions,
    tuners: ProtocolTuners,
    /// Peers of which the engine is not told yet that they are gone or unreached.
    untold: Vec<Peer>,
    /// The memory for collectives, once somebody asked.
    commons: Option<Option<Segment>>,
}

/// A claim that is out: where it was made.
#[derive(Clone, Copy, Debug)]
struct LentRoom {
    claimed: ClaimedRecord,
    lane: bool,
    stores: StoreKind,
    /// When it was made, if the copy into it is measured.
    began: Option<Instant>,
}

impl std::fmt::Debug for ShmTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShmTransport")
            .field("me", &self.me())
            .field("peers", &self.outs.len())
            .finish_non_exhaustive()
    }
}

impl ShmTransport {
    /// The rank that it belongs to.
    pub fn me(&self) -> Peer {
        self.node_peers.me()
    }

    /// The transport of the rank that `node_peers` is about. One per rank and job: it is the only
    /// reader of its inbox.
    pub fn new(node_peers: Arc<dyn NodePeers>) -> Result<Self, Error> {
        let (me, size) = (node_peers.me(), node_peers.size());
        let local = node_peers.local_ranks();
        let number = local.number(me).filter(|_| me < size);
        let Some(number) = number.filter(|_| local.count() <= LOCAL_RANKS_MAX) else {
            return Err(Error::Resource(
                "more ranks on this node than the shared-memory transport can name",
            ));
        };
        let own = node_peers.own_inbox();
        let bell = node_peers
            .doorbell(me)
            .ok_or(Error::Misuse("a rank without a doorbell"))?;
        garonne_sync::futex::barrier_register();
        let inbox = Inbox::new(&own, local.clone())?;
        Ok(Self {
            me: number,
            local,
            outs: bytemuck::zeroed_vec(size as usize),
            gone: vec![false; size as usize],
            any_gone: false,
            unreached: UnreachablePeers::new(own.clone()),
            inbox,
            wake: Arc::new(DoorbellWake::new(bell.clone(), own.clone())),
            bell: bell.word(0),
            armed: None,
            claims: Vec::new(),
            regions: Regions::new(own),
            tuners: ProtocolTuners::new(size),
            untold: Vec::new(),
            commons: None,
            node_peers,
        })
    }

    /// Begins with what was measured on this machine before; the transport corrects it by what it
    /// sees.
    pub fn begin_with(&mut self, costs: &crate::cost_model::CostModel) {
        self.tuners.seed(costs);
    }

    /// The address of the table of paces that `protocol_tuners::read_shown` reads; it stays as long
    /// as the transport lives.
    pub fn tuners_at(&self) -> usize {
        self.tuners.shown_at()
    }

    /// Returns the times measured of messages of `len` bytes from `peer`, for reports.
    pub fn known_costs(&self, peer: Peer, len: u64) -> Option<TunerReport> {
        self.tuners.of(peer).map(|tuner| tuner.known(len))
    }

    /// A message is fetched by this transport and another at once, which says nothing of its own
    /// ways. How to fetch it.
    pub fn fetch_beside(&mut self) -> RendezvousMode {
        self.tuners.begin_unmeasured();
        RendezvousMode::Read
    }

    /// The registered regions, for one call.
    fn registered(&mut self) -> RegisteredAccess<'_> {
        let commons = self
            .commons
            .get_or_insert_with(|| self.node_peers.commons())
            .as_ref();
        RegisteredAccess {
            regions: &mut self.regions,
            node_peers: &*self.node_peers,
            commons,
        }
    }

    /// Told by the host that a peer died: nothing is sent to it any more, its unfinished records
    /// are passed over, its leases count as returned. The next poll tells the engine.
    pub fn peer_gone(&mut self, peer: Peer) {
        if let Some(gone) = self.gone.get_mut(peer as usize)
            && !std::mem::replace(gone, true)
        {
            self.any_gone = true;
            self.untold.push(peer);
        }
    }

    /// Returns whether the sender of a message looks, so that it can do its part of a fetch. One
    /// that just announced it may be about to.
    fn has_progress_thread(&self, peer: Peer, len: u64) -> bool {
        let reads = self
            .known_costs(peer, len)
            .is_some_and(|known| known.preferred == RendezvousMode::Read);
        let looks = || self.regions.looks(&*self.node_peers, peer);
        let least = if reads { 1 } else { SENDER_POLLS };
        let waits = (len / SENDER_POLL_BYTES).clamp(least, SENDER_POLLS_MAX);
        (0..waits).any(|_| {
            std::hint::spin_loop();
            looks()
        })
    }

    /// Returns whether a thread of a peer sleeps in a call, so that a packet wakes it.
    fn sleeps(&self, peer: Peer) -> bool {
        let bell = self.node_peers.doorbell(peer);
        bell.is_some_and(|bell| Doorbell::new(bell.atomic_u32(0)).is_armed())
    }

    #[inline(always)]
    fn out(&mut self, peer: Peer) -> Result<&mut Sender, ClaimError> {
        // The borrow checker wants the common path to look twice; the second look is free.
        if !matches!(self.outs.get(peer as usize), Some(Some(_))) {
            self.open(peer)?;
        }
        match &mut self.outs[peer as usize] {
            Some(out) => Ok(out),
            None => Err(ClaimError::Gone),
        }
    }

    #[cold]
    #[inline(never)]
    fn open(&mut self, peer: Peer) -> Result<(), ClaimError> {
        if self.gone.get(peer as usize).is_none_or(|gone| *gone) {
            return Err(ClaimError::Gone);
        }
        let out = self.unreached.open(&*self.node_peers, self.me, peer)?;
        self.outs[peer as usize] = Some(Box::new(out));
        Ok(())
    }

    /// A small record by whatever way there is.
    #[inline(never)]
    fn send_small(
        &mut self,
        peer: Peer,
        header: [u64; 3],
        (bytes, len): (UserMem, usize),
    ) -> Result<(), ClaimError> {
        let out = self.out(peer)?;
        match out.producer().send(header, bytes, len, StoreKind::Cached) {
            Ok(()) => {
                out.bell().ring();
                Ok(())
            }
            Err(_) => Err(self.full(peer)),
        }
    }

    /// A peer whose ring has no room: it may sleep on a full inbox.
    #[cold]
    #[inline(never)]
    fn full(&mut self, peer: Peer) -> ClaimError {
        if self.gone.get(peer as usize).is_none_or(|gone| *gone) {
            return ClaimError::Gone;
        }
        if let Some(Some(out)) = self.outs.get(peer as usize) {
            out.bell().ring_fenced();
            out.nudge(WakeupScope::Transfers);
        }
        ClaimError::Full
    }

    /// Wakes the writers that found no room here.
    #[cold]
    #[inline(never)]
    fn ring_starving(&mut self) {
        for peer in self.local.iter() {
            if peer != self.node_peers.me() {
                peers::wake(&*self.node_peers, peer, WakeupScope::Transfers);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_gone(&mut self, sink: &mut impl PollSink) -> u32 {
        let untold = std::mem::take(&mut self.untold);
        for peer in &untold {
            if !self.gone[*peer as usize] {
                // It lives, and its leases are its own affair.
                if let Some(shortage) = self.unreached.of(*peer) {
                    sink.on_peer_unreachable(shortage.clone());
                }
                continue;
            }
            // Everything it published before it died is delivered first.
            self.outs[*peer as usize] = None;
            self.regions.peer_gone(*peer);
            sink.on_peer_gone(*peer);
        }
        untold.len() as u32
    }
}

impl Transport for ShmTransport {
    fn limits(&self) -> TransportLimits {
        TransportLimits {
            inline_max: INLINE_MAX,
            packet_max: PACKET_MAX,
            control_max: CONTROL_PAYLOAD_MAX,
            ordered: true,
        }
    }

    fn capabilities(&self, peer: Peer) -> Option<PeerCapabilities> {
        if self.gone.get(peer as usize).is_none_or(|gone| *gone) {
            return None;
        }
        let means = self.regions.means(&*self.node_peers, peer);
        Some(PeerCapabilities {
            eager_max: EAGER_MAX,
            fragmented_max: EAGER_MAX,
            can_read: means.can_read,
            can_write: means.can_write,
            pipeline_chunk: PACKET_MAX,
            read_chunk: means.read_chunk,
        })
    }

    #[cold]
    fn unreachable_cause(&self, peer: Peer) -> Option<UnreachableCause> {
        self.unreached.of(peer).cloned()
    }

    #[inline]
    fn claim(
        &mut self,
        peer: Peer,
        len: usize,
        class: PacketClass,
    ) -> Result<PacketBuffer, ClaimError> {
        if len > PACKET_MAX {
            return Err(ClaimError::Full);
        }
        let priority = match class {
            PacketClass::Data => RecordClass::Data,
            PacketClass::Control => RecordClass::Control,
        };
        let out = self.out(peer)?;
        let lane = out.uses_lane();
        // Asked once: the grant may change between two looks.
        let Ok(claimed) = out.producer_of(lane).claim(len, priority) else {
            return Err(self.full(peer));
        };
        let (stores, began) = out.stores_for(lane, len);
        let lent = Some(LentRoom {
            claimed,
            lane,
            stores,
            began,
        });
        let token = match self.claims.iter().position(Option::is_none) {
            Some(free) => {
                self.claims[free] = lent;
                free
            }
            None => {
                self.claims.push(lent);
                self.claims.len() - 1
            }
        };
        Ok(PacketBuffer {
            mem: claimed.mem,
            len: claimed.len,
            peer,
            token: token as u64,
            stores,
        })
    }

    #[inline]
    fn commit(&mut self, room: PacketBuffer, header: &PacketHeader) {
        let lent = self
            .claims
            .get_mut(room.token as usize)
            .and_then(Option::take);
        if let (Some(lent), Some(Some(out))) = (lent, self.outs.get_mut(room.peer as usize)) {
            out.producer_of(lent.lane)
                .commit(lent.claimed, header.to_words(), lent.stores);
            out.bell().ring();
            if let Some(began) = lent.began {
                out.took(lent.stores, header.len as usize, began);
            }
        }
    }

    fn abandon(&mut self, room: PacketBuffer) {
        let lent = self
            .claims
            .get_mut(room.token as usize)
            .and_then(Option::take);
        if let (Some(lent), Some(Some(out))) = (lent, self.outs.get_mut(room.peer as usize)) {
            out.producer_of(lent.lane).abandon(lent.claimed);
        }
    }

    fn send_inline(
        &mut self,
        peer: Peer,
        header: &PacketHeader,
        bytes: UserMem,
    ) -> Result<(), ClaimError> {
        if self.try_send_inline(peer, *header, bytes) {
            return Ok(());
        }
        self.send_small(peer, header.to_words(), (bytes, header.len as usize))
    }

    #[inline]
    fn poll(&mut self, budget: u32, sink: &mut impl PollSink) -> u32 {
        let mut told = self.inbox.poll(budget, sink);
        if self.inbox.take_starving() {
            self.ring_starving();
        }
        if self.regions.busy() {
            told += self.regions.poll(sink);
        }
        if self.any_gone && self.inbox.skip_gone(&self.gone) {
            told += self.inbox.poll(budget, sink);
        }
        if !self.untold.is_empty() {
            told += self.tell_gone(sink);
        }
        if told > 0 {
            self.wake.moved();
        }
        told
    }

    fn choose_rendezvous(&mut self, token: BulkToken, peer: Peer, len: u64) -> RendezvousMode {
        let means = self.regions.means(&*self.node_peers, peer);
        let can_be_called = !means.can_read || self.has_progress_thread(peer, len);
        if !can_be_called && means.can_write && len >= SHARE_MIN && !self.sleeps(peer) {
            // It computes, and does its part if it comes back before this side is through. That
            // says nothing of the way.
            self.tuners.begin_unmeasured();
            return RendezvousMode::ShareLater;
        }
        if can_be_called && len <= TUNER_UNTRIED_MAX && !self.inbox.is_worn_in(peer) {
            // The system's pages for the lane take many times what the bytes do. They come once,
            // and then packets are measured as they will be.
            self.tuners.begin_unmeasured();
            return RendezvousMode::Data;
        }
        self.tuners.begin(token, peer, len, |way| match way {
            RendezvousMode::Read => means.can_read,
            // The peer has to write here; whether it can shows when it tries.
            RendezvousMode::Write | RendezvousMode::Share | RendezvousMode::ShareLater => {
                means.can_read && means.can_write && can_be_called
            }
            RendezvousMode::Data => can_be_called,
        })
    }

    fn peer_lost(&mut self, peer: Peer) {
        if self.node_peers.is_gone(peer) {
            self.peer_gone(peer);
        }
    }

    fn rendezvous_done(&mut self, token: BulkToken, worked: bool) {
        self.tuners.end(token, worked);
    }

    fn arm(&mut self) -> u32 {
        if self.wake.is_quiet() {
            let local = self.local.clone();
            for peer in local.iter() {
                if self.node_peers.is_gone(peer) {
                    self.peer_gone(peer);
                }
            }
        }
        let armed = Doorbell::new(&self.bell).arm();
        // After arming: who says it later rings. What is found here is told by the poll before the
        // sleep.
        self.untold.extend(self.unreached.found(&*self.node_peers));
        self.wake.armed();
        self.armed = Some(armed);
        armed.ticket()
    }

    fn disarm(&mut self) {
        if let Some(armed) = self.armed.take() {
            Doorbell::new(&self.bell).disarm(armed);
        }
    }

    fn wake_source(&self) -> Arc<dyn WakeSource> {
        self.wake.clone()
    }

    fn wake_peer(&mut self, peer: Peer) {
        if let Some(bell) = self.node_peers.doorbell(peer) {
            Doorbell::new(bell.atomic_u32(0)).ring_fenced();
        }
    }
}

impl FastPath for ShmTransport {
    fn slot_batch(&mut self, peer: Peer) -> Option<Arc<SlotBatch>> {
        self.outs.get_mut(peer as usize)?.as_mut()?.run()
    }

    fn open_slot_batch(&mut self, peer: Peer, records: u32) -> u32 {
        match self.outs.get_mut(peer as usize) {
            Some(Some(out)) => out.open_run(records),
            _ => 0,
        }
    }

    #[inline(always)]
    fn try_send_inline(&mut self, peer: Peer, header: PacketHeader, bytes: UserMem) -> bool {
        let len = header.len as usize;
        match self.outs.get_mut(peer as usize) {
            Some(Some(out)) if len <= SLOT_MAX => out.send_inline(header.to_words(), bytes, len),
            Some(Some(out)) => out.send_beside(header.to_words(), bytes, len),
            _ => false,
        }
    }

    #[inline(always)]
    fn try_take_ready<A: PacketAcceptor>(&mut self, accept: A) -> PeekResult<A::Taken> {
        let found = self.inbox.take_ready(accept);
        if let PeekResult::Taken(_) = found {
            self.wake.moved();
            if self.inbox.is_starving() {
                self.inbox.take_starving();
                self.ring_starving();
            }
        }
        found
    }

    #[inline(always)]
    fn poll_one(&mut self, sink: &mut impl PollSink) -> bool {
        if !self.inbox.take_one(sink) {
            return false;
        }
        if self.inbox.take_starving() {
            self.ring_starving();
        }
        self.wake.moved();
        true
    }

    #[inline(always)]
    fn is_idle(&self) -> bool {
        self.inbox.is_empty() && !self.any_gone && !self.regions.busy() && self.untold.is_empty()
    }
}

impl FragmentedSends for ShmTransport {
    fn fragmentation(&mut self, peer: Peer, len: usize) -> Fragmentation {
        if len < FRAGMENTS_FROM {
            return Fragmentation::None;
        }
        let piece = (len / FRAGMENTS_MAX).max(FRAGMENT_MIN.min(len / 2));
        let piece = piece.next_multiple_of(UNIT).min(PACKET_MAX);
        let Ok(out) = self.out(peer) else {
            return Fragmentation::None;
        };
        // A mailbox has other writers, who may take the room between two pieces.
        match out.uses_lane() && out.producer_of(true).has_room(len.div_ceil(piece), piece) {
            true => Fragmentation::Fragments(piece, piece),
            false => Fragmentation::None,
        }
    }
}

impl RemoteMemory for ShmTransport {
    fn expose(&mut self, token: BulkToken, peer: Peer, data: &Data) -> ExposeResult {
        self.regions.expose(token, peer, data)
    }

    fn revoke(&mut self, token: BulkToken) -> BulkStatus {
        self.regions.revoke(token)
    }

    fn read(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        self.regions.transfer(
            &*self.node_peers,
            bulk,
            garonne_transport::iovec::CopyDirection::Read,
        )
    }

    fn write(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        self.regions.transfer(
            &*self.node_peers,
            bulk,
            garonne_transport::iovec::CopyDirection::Write,
        )
    }

    fn registered_memory(&mut self) -> Option<&mut dyn RegisteredMemory> {
        Some(self)
    }
}

impl RegisteredMemory for ShmTransport {
    fn register(&mut self, region: &RegionMemory) -> Option<RegionDescriptor> {
        self.registered().register(region)
    }

    fn deregister(&mut self, token: BulkToken, descriptor: &RegionDescriptor) -> BulkStatus {
        self.registered().deregister(token, descriptor)
    }

    fn direct_rights(&mut self, peer: Peer, descriptor: &RegionDescriptor) -> AccessRights {
        self.registered().direct_rights(peer, descriptor)
    }

    fn prefers_request(&mut self, peer: Peer, descriptor: &RegionDescriptor, len: u64) -> bool {
        self.registered().prefers_request(peer, descriptor, len)
    }

    fn get(&mut self, transfer: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        let way = garonne_transport::iovec::CopyDirection::Read;
        self.registered().transfer(transfer, way)
    }

    fn put(&mut self, transfer: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        let way = garonne_transport::iovec::CopyDirection::Write;
        self.registered().transfer(transfer, way)
    }

    fn fetch_atomic(&mut self, access: AtomicAccess<'_>) -> Result<BulkStatus, Error> {
        self.registered().fetch_atomic(access)
    }

    fn flush(&mut self, _token: BulkToken, _peer: Peer) -> Result<BulkStatus, Error> {
        // Every access is over when its call returns.
        Ok(BulkStatus::Done)
    }
}

impl SharedCopy for ShmTransport {
    fn share_region(
        &mut self,
        token: BulkToken,
        peer: Peer,
        data: &Data,
        way: RendezvousMode,
    ) -> Option<RegionDescriptor> {
        self.regions.share(token, peer, data, way)
    }

    fn take_part(&mut self, token: BulkToken, len: u64) -> Result<Option<(u64, u64)>, Error> {
        self.regions.take_part(token, len)
    }

    fn write_part(&mut self, bulk: BulkTransfer<'_>) -> Result<PartWritten, Error> {
        self.regions.push(&*self.node_peers, bulk)
    }

    fn withdraw_region(&mut self, token: BulkToken) -> WithdrawResult {
        self.regions.withdraw(token)
    }

    fn write_early(&mut self, bulk: BulkTransfer<'_>) -> Result<Option<PartWritten>, Error> {
        self.regions.write_ahead(&*self.node_peers, bulk)
    }

    fn offload(
        &mut self,
        bulk: BulkTransfer<'_>,
        what: OffloadKind,
    ) -> Result<OffloadResult, Error> {
        self.regions.lift(&self.node_peers, bulk, what)
    }

    fn is_polling(&self, peer: Peer) -> bool {
        self.regions.looks(&*self.node_peers, peer)
    }
}

impl AsyncProgress for ShmTransport {
    fn wake_progress(&mut self, peer: Peer, need: WakeReason) {
        if let Some(Some(out)) = self.outs.get(peer as usize) {
            out.nudge(match need {
                WakeReason::Answer => WakeupScope::Transfers,
                WakeReason::Look => WakeupScope::Everything,
            });
        }
    }

    fn progress_words(&mut self, peer: Peer) -> Option<Segment> {
        self.node_peers.progress_words(peer)
    }
}

impl NodeMemory for ShmTransport {
    fn coll_heap(&mut self, owner: Peer) -> Option<Segment> {
        let all = self
            .commons
            .get_or_insert_with(|| self.node_peers.commons())
            .as_ref()?;
        let ranks = self.local.count().max(1) as usize;
        let share = all.len() / ranks / COLL_HEAP_ALIGN * COLL_HEAP_ALIGN;
        let owner = usize::from(self.local.number(owner).filter(|_| share > 0)?);
        Some(all.part(owner * share, share))
    }

    fn doorbell(&mut self, peer: Peer) -> Option<Segment> {
        self.node_peers.doorbell(peer)
    }
}

impl Drop for ShmTransport {
    fn drop(&mut self) {
        // Regions still exposed point to memory that may now go: nobody may start to read them.
        self.regions.close_all();
    }
}
