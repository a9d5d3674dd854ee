//! The Ethernet transport as the engine sees it: packets, regions, polls. Part of
//! [`EthernetTransport`].

use crate::limits::FRAMES_PER_POLL;
use crate::{EthernetTransport, LOST};
use garonne_engine::api::{Error, Peer};
use garonne_engine::limits::CONTROL_PAYLOAD_MAX;
use garonne_engine::transport::{
    AsyncProgress, BulkStatus, BulkToken, BulkTransfer, ClaimError, ExposeResult, FastPath,
    FragmentedSends, NodeMemory, PacketBuffer, PacketClass, PacketHeader, PeerCapabilities,
    PollSink, RegionDescriptor, RemoteMemory, SharedCopy, Transport, TransportLimits, WakeSource,
};
use garonne_sync::copy::StoreKind;
use garonne_sync::user::{Data, Packed, Scratch, UserMem};
use garonne_transport::limits::{TCP_EAGER_MAX, TCP_INLINE_MAX, TCP_PACKET_MAX};
use std::sync::Arc;

impl EthernetTransport {
    /// Returns whether a packet with so much payload may be sent now.
    fn has_room(&mut self, peer: Peer, len: usize, class: PacketClass) -> Result<(), ClaimError> {
        let link = self.link(peer).ok_or(ClaimError::Gone)?;
        match len <= TCP_PACKET_MAX && link.has_room(class) {
            true => Ok(()),
            false => Err(ClaimError::Full),
        }
    }
}

impl Transport for EthernetTransport {
    fn limits(&self) -> TransportLimits {
        TransportLimits {
            inline_max: TCP_INLINE_MAX,
            packet_max: TCP_PACKET_MAX,
            control_max: CONTROL_PAYLOAD_MAX,
            ordered: true,
        }
    }

    fn capabilities(&self, peer: Peer) -> Option<PeerCapabilities> {
        let is_reached = self.reaches(peer) && !self.ended.contains(&peer);
        is_reached.then_some(PeerCapabilities {
            eager_max: TCP_EAGER_MAX,
            fragmented_max: 0,
            can_read: true,
            can_write: false,
            pipeline_chunk: TCP_EAGER_MAX,
            read_chunk: u64::MAX,
        })
    }

    fn claim(
        &mut self,
        peer: Peer,
        len: usize,
        class: PacketClass,
    ) -> Result<PacketBuffer, ClaimError> {
        self.has_room(peer, len, class)?;
        let room = Scratch::new(len).ok_or(ClaimError::Full)?;
        let mem = room.mem();
        let free = self.rooms.iter().position(Option::is_none);
        let token = free.unwrap_or(self.rooms.len());
        match self.rooms.get_mut(token) {
            Some(place) => *place = Some(room),
            None => self.rooms.push(Some(room)),
        }
        Ok(PacketBuffer {
            mem,
            len,
            peer,
            token: token as u64,
            stores: StoreKind::Cached,
        })
    }

    fn commit(&mut self, room: PacketBuffer, header: &PacketHeader) {
        let place = self.rooms.get_mut(room.token as usize);
        let Some(scratch) = place.and_then(Option::take) else {
            return;
        };
        let len = (header.len as usize).min(room.len);
        let header = *header;
        scratch
            .mem()
            .with(0, len, |bytes| self.send_packet(room.peer, &header, bytes));
    }

    fn abandon(&mut self, room: PacketBuffer) {
        if let Some(place) = self.rooms.get_mut(room.token as usize) {
            *place = None;
        }
    }

    fn send_inline(
        &mut self,
        peer: Peer,
        header: &PacketHeader,
        bytes: UserMem,
    ) -> Result<(), ClaimError> {
        let len = header.len as usize;
        self.has_room(peer, len, PacketClass::Data)?;
        let mut copy = [0; TCP_INLINE_MAX];
        let copy = copy.get_mut(..len).ok_or(ClaimError::Full)?;
        Packed::over(copy).mem().copy_from(0, bytes, 0, len);
        self.send_packet(peer, header, copy);
        Ok(())
    }

    fn poll(&mut self, budget: u32, sink: &mut impl PollSink) -> u32 {
        let mut told = self.give_taken(budget, sink);
        let mut came = 0;
        if told < budget {
            let most = budget.min(FRAMES_PER_POLL);
            came = self.take_in(most, &mut |peer, header, bytes| {
                sink.on_packet(peer, header, Packed::of(bytes).mem(), bytes.len());
                told += 1;
            });
        }
        // While more comes an acknowledgement waits for an answer that takes it along.
        if came == 0 || !self.active.is_empty() || !self.reads.is_empty() {
            self.keep_time(came == 0);
        }
        told + self.tell(sink)
    }

    fn peer_lost(&mut self, peer: Peer) {
        self.lose(peer, LOST);
    }

    fn arm(&mut self) -> u32 {
        self.wake.hush();
        let ticket = self.wake.word();
        self.before_sleep();
        ticket
    }

    fn disarm(&mut self) {}

    fn wake_source(&self) -> Arc<dyn WakeSource> {
        self.wake.clone()
    }

    fn wake_peer(&mut self, peer: Peer) {
        // An acknowledgement is a frame like any other: it wakes whoever sleeps.
        let Some(link) = self.link(peer) else {
            return;
        };
        link.link.owe_acknowledgement();
        self.active.insert(peer);
        self.keep_time(true);
    }
}

impl FastPath for EthernetTransport {}

impl FragmentedSends for EthernetTransport {}

impl RemoteMemory for EthernetTransport {
    fn expose(&mut self, token: BulkToken, peer: Peer, data: &Data) -> ExposeResult {
        let cookie = self.expose_region(token, peer, data);
        let descriptor = cookie.and_then(|cookie| RegionDescriptor::new(cookie, &[]));
        descriptor.map_or(ExposeResult::Unable, ExposeResult::Ready)
    }

    fn revoke(&mut self, token: BulkToken) -> BulkStatus {
        // Blocks were copied when they were asked for: nobody holds any of it.
        self.regions.retain(|_, region| region.token != token);
        BulkStatus::Done
    }

    fn read(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        let end = bulk.local_offset.checked_add(bulk.len);
        if end.is_none_or(|end| end > bulk.local.len) {
            return Err(Error::Misuse("a read beyond the end of its buffer"));
        }
        let peer = bulk.peer;
        if self.link(peer).is_none() {
            return Err(Error::Peer { peer, what: LOST });
        }
        if bulk.len == 0 {
            return Ok(BulkStatus::Done);
        }
        self.reads.begin(&bulk);
        self.active.insert(peer);
        self.keep_time(false);
        Ok(BulkStatus::Pending)
    }

    fn write(&mut self, _bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        Err(Error::Misuse(
            "regions of ranks on other hosts are not written",
        ))
    }
}

impl SharedCopy for EthernetTransport {}

impl AsyncProgress for EthernetTransport {}

impl NodeMemory for EthernetTransport {}
