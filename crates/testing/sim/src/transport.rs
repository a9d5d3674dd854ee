//! The transport of a simulated rank: the engine's packets over reliability links over the ways of
//! the simulated medium.

use crate::fabric::SimFabric;
use crate::links::PeerLinks;
use crate::region_copy::RegionCopy;
use crate::regions::RegionAccess;
use crate::registered::AccessQueue;
use garonne_engine::api::{Error, Peer};
use garonne_engine::limits::CONTROL_PAYLOAD_MAX;
use garonne_engine::protocol::offload::{DetachedCopy, OffloadKind, OffloadResult};
use garonne_engine::reliable::Packet;
use garonne_engine::transport::{
    AsyncProgress, BulkStatus, BulkToken, BulkTransfer, ClaimError, ExposeResult, FastPath,
    Fragmentation, FragmentedSends, Fragments, NodeMemory, PacketBuffer, PacketClass, PacketHeader,
    PacketKind, PartWritten, PeerCapabilities, PollSink, RegionDescriptor, RegisteredMemory,
    RemoteMemory, RendezvousMode, SharedCopy, Transport, TransportLimits, WakeSource,
    WithdrawResult,
};
use garonne_sync::copy::StoreKind;
use garonne_sync::user::{Data, Scratch, UserMem};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Largest payload of a packet: small, so that messages of a few kilobytes already come in pieces.
const PACKET_MAX: usize = 1024;
/// Largest payload that travels with its envelope.
const EAGER_MAX: usize = 256;
/// Largest payload that may follow it in pieces.
const FRAGMENTED_LEN_MAX: usize = 900;
/// Polls in vain after which a rank lets others run.
const POLLS_IN_VAIN: u32 = 3;

/// Bytes of one read by asking, so that long messages are several.
const CHUNK: u64 = 6000;
/// Bytes that one side takes at most of data that both fill.
const PART: u64 = 400;

/// Access of ranks to each other's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryAccess {
    /// Only packets go between them.
    Apart,
    /// Reads are requested piece by piece over all paths, or data come in packets, at random.
    Asked,
    /// Regions are read and written directly. The mode, and whether peers seem to poll, is random.
    Reached,
}

/// A simulated rank's end of the fabric.
#[derive(Debug)]
pub struct SimTransport {
    me: Peer,
    memory: MemoryAccess,
    fabric: Arc<SimFabric>,
    lines: PeerLinks,
    claimed: HashMap<u64, Scratch>,
    next_token: u64,
    accesses: AccessQueue,
    /// Pieces of messages for which there is room, whatever else waits.
    promised: usize,
    in_vain: u32,
}

impl SimTransport {
    /// The transport of rank `me`.
    pub fn new(fabric: Arc<SimFabric>, me: Peer, memory: MemoryAccess) -> Self {
        Self {
            me,
            memory,
            lines: PeerLinks::new(fabric.clone(), me),
            accesses: AccessQueue::new(me, fabric.clone()),
            fabric,
            claimed: HashMap::new(),
            next_token: 0,
            promised: 0,
            in_vain: 0,
        }
    }

    /// The rank computes: others run, and nothing is polled.
    pub fn rest(&self) {
        self.fabric.pause(self.me);
    }

    /// Virtual time.
    pub fn now_ns(&self) -> u64 {
        self.fabric.now_ns()
    }

    /// Every packet sent was acknowledged or its peer is gone, and nothing came that may have to be
    /// answered.
    pub fn is_settled(&self) -> bool {
        self.lines.is_settled() && self.accesses.is_empty()
    }

    /// Lets others run if this rank polled in vain for a while.
    fn found(&mut self, told: u32) -> u32 {
        self.in_vain = if told == 0 { self.in_vain + 1 } else { 0 };
        if self.in_vain > POLLS_IN_VAIN {
            self.in_vain = 0;
            self.fabric.pause(self.me);
        }
        told
    }

    /// Takes a lease on a peer's region. `None`: nothing is left of it.
    fn lease(
        &self,
        bulk: &BulkTransfer<'_>,
        want: RegionAccess,
    ) -> Result<Option<RegionCopy>, Error> {
        let (peer, cookie) = (bulk.peer, bulk.descriptor.cookie);
        let permit = self
            .fabric
            .regions(|regions| regions.lease(self.me, peer, cookie, want))?;
        Ok(permit.map(|permit| RegionCopy {
            me: self.me,
            peer,
            cookie,
            fabric: self.fabric.clone(),
            local: bulk.local.clone(),
            local_offset: bulk.local_offset,
            want,
            permit,
        }))
    }

    /// Takes a lease on a peer's region, lets others run, and moves the bytes if the region's owner
    /// still lives.
    fn transfer(
        &mut self,
        bulk: &BulkTransfer<'_>,
        want: RegionAccess,
    ) -> Result<Option<PartWritten>, Error> {
        let Some(mut copy) = self.lease(bulk, want)? else {
            return Ok(None);
        };
        copy.run().map(|()| Some(copy.step()))
    }

    /// Delivers a packet of which `done` bytes were delivered. What belongs to a message in pieces
    /// comes part by part, as chance has it, by way of the engine's memory or not, and the rest
    /// perhaps only with another poll: then `false`.
    fn deliver(
        &mut self,
        from: Peer,
        packet: Packet,
        done: usize,
        sink: &mut impl PollSink,
    ) -> bool {
        let (header, rest) = (packet.header, &packet.payload[done..]);
        let begins = header.kind == PacketKind::FragFirst as u8 && done == 0;
        let is_piece =
            header.kind == PacketKind::FragFirst as u8 || header.kind == PacketKind::FragNext as u8;
        let len = match is_piece {
            true if rest.len() > 1 => 1 + self.fabric.draw(rest.len() as u64) as usize,
            _ => rest.len(),
        };
        let first = if header.kind == PacketKind::FragNext as u8 {
            header.sequence as usize
        } else {
            0
        };
        let at = first + done;
        let room = match is_piece && !begins && self.fabric.draw(2) == 0 {
            true => sink.fragment_target(from, at as u64, len),
            false => None,
        };
        if let Some(room) = room {
            room.write(0, &rest[..len]);
            sink.fragment_written(from, len);
        } else {
            let header = match is_piece {
                true if begins => PacketHeader {
                    len: len as u32,
                    ..header
                },
                true => Fragments::tail(at, len),
                false => header,
            };
            let scratch = Scratch::new(len);
            let mem = scratch.as_ref().map_or(UserMem::null(), Scratch::mem);
            mem.write(0, &rest[..len]);
            sink.on_packet(from, header, mem, len);
        }
        if len == rest.len() {
            return true;
        }
        self.lines.came.push_front((from, packet, done + len));
        self.fabric.draw(2) == 0
    }
}

impl Transport for SimTransport {
    fn limits(&self) -> TransportLimits {
        TransportLimits {
            inline_max: 32,
            packet_max: PACKET_MAX,
            control_max: CONTROL_PAYLOAD_MAX,
            ordered: true,
        }
    }

    fn capabilities(&self, peer: Peer) -> Option<PeerCapabilities> {
        if !self.lines.reaches(peer) {
            return None;
        }
        Some(PeerCapabilities {
            eager_max: EAGER_MAX,
            fragmented_max: FRAGMENTED_LEN_MAX,
            can_read: self.memory != MemoryAccess::Apart,
            can_write: self.memory == MemoryAccess::Reached,
            pipeline_chunk: PACKET_MAX,
            read_chunk: match self.memory {
                MemoryAccess::Asked => CHUNK,
                MemoryAccess::Apart | MemoryAccess::Reached => u64::MAX,
            },
        })
    }

    fn claim(
        &mut self,
        peer: Peer,
        len: usize,
        class: PacketClass,
    ) -> Result<PacketBuffer, ClaimError> {
        let promised = class == PacketClass::Data && self.promised > 0;
        self.promised -= usize::from(promised);
        let link = self.lines.link(peer).ok_or(ClaimError::Gone)?;
        if !promised && !link.has_room(class) {
            return Err(ClaimError::Full);
        }
        let scratch = Scratch::new(len).ok_or(ClaimError::Full)?;
        let room = PacketBuffer {
            mem: scratch.mem(),
            len,
            peer,
            token: self.next_token,
            stores: StoreKind::Cached,
        };
        self.claimed.insert(self.next_token, scratch);
        self.next_token += 1;
        Ok(room)
    }

    fn commit(&mut self, room: PacketBuffer, header: &PacketHeader) {
        let mut payload = vec![0; header.len as usize];
        room.mem.read(0, &mut payload);
        self.claimed.remove(&room.token);
        let packet = Packet {
            header: *header,
            payload,
        };
        self.lines.send(room.peer, packet);
    }

    fn abandon(&mut self, room: PacketBuffer) {
        self.claimed.remove(&room.token);
    }

    fn send_inline(
        &mut self,
        peer: Peer,
        header: &PacketHeader,
        bytes: UserMem,
    ) -> Result<(), ClaimError> {
        let room = self.claim(peer, header.len as usize, PacketClass::Data)?;
        room.mem.copy_from(0, bytes, 0, header.len as usize);
        self.commit(room, header);
        Ok(())
    }

    fn poll(&mut self, budget: u32, sink: &mut impl PollSink) -> u32 {
        let mut told = self.accesses.poll(sink);
        if self.lines.dawdles() {
            return self.found(told);
        }
        while told < budget {
            if let Some((from, packet, done)) = self.lines.came.pop_front() {
                told += 1;
                if !self.deliver(from, packet, done, sink) {
                    break;
                }
                continue;
            }
            match self.lines.look(sink) {
                None => break,
                Some(count) => told += count,
            }
        }
        told += self.lines.tell(sink);
        if self.memory == MemoryAccess::Reached {
            for token in self.fabric.regions(|regions| regions.drained(self.me)) {
                sink.on_revoked(token);
                told += 1;
            }
        }
        told += self.lines.keep_time(sink);
        self.found(told)
    }

    fn choose_rendezvous(&mut self, _token: BulkToken, _peer: Peer, _len: u64) -> RendezvousMode {
        match self.memory {
            MemoryAccess::Apart => RendezvousMode::Data,
            MemoryAccess::Asked if self.fabric.draw(3) == 0 => RendezvousMode::Data,
            MemoryAccess::Asked => RendezvousMode::Read,
            MemoryAccess::Reached => {
                let ways = [
                    RendezvousMode::Read,
                    RendezvousMode::Write,
                    RendezvousMode::Share,
                    RendezvousMode::ShareLater,
                    RendezvousMode::Data,
                ];
                ways[self.fabric.draw(ways.len() as u64) as usize]
            }
        }
    }

    fn arm(&mut self) -> u32 {
        self.accesses.armed = true;
        self.fabric.word(self.me)
    }

    fn disarm(&mut self) {
        self.accesses.armed = false;
    }

    fn wake_source(&self) -> Arc<dyn WakeSource> {
        Arc::new(SimWakeSource {
            me: self.me,
            fabric: self.fabric.clone(),
        })
    }

    fn wake_peer(&mut self, peer: Peer) {
        self.fabric.wake(peer);
    }
}

impl FastPath for SimTransport {}

impl FragmentedSends for SimTransport {
    fn fragmentation(&mut self, peer: Peer, len: usize) -> Fragmentation {
        let Some(link) = self.lines.link(peer) else {
            return Fragmentation::None;
        };
        let room = link.has_room(PacketClass::Data);
        // Not always: engines must do without.
        if len > FRAGMENTED_LEN_MAX || self.fabric.draw(4) != 0 {
            return Fragmentation::None;
        }
        if !room {
            return Fragmentation::Later;
        }
        let pieces = 1 + self.fabric.draw(4) as usize;
        self.promised = pieces + 1;
        let piece = len.div_ceil(pieces).max(1);
        Fragmentation::Fragments(1 + self.fabric.draw(piece as u64) as usize, piece)
    }
}

impl RemoteMemory for SimTransport {
    fn expose(&mut self, token: BulkToken, peer: Peer, data: &Data) -> ExposeResult {
        if self.memory == MemoryAccess::Apart {
            return ExposeResult::Unable;
        }
        let cookie = self
            .fabric
            .regions(|regions| regions.expose(self.me, token, peer, data));
        RegionDescriptor::new(cookie, &[]).map_or(ExposeResult::Unable, ExposeResult::Ready)
    }

    fn revoke(&mut self, token: BulkToken) -> BulkStatus {
        self.fabric
            .regions(|regions| regions.revoke(self.me, token))
    }

    fn read(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        if self.memory == MemoryAccess::Asked {
            if !self.lines.reaches(bulk.peer) {
                return Err(Error::Peer {
                    peer: bulk.peer,
                    what: "died before its memory was used",
                });
            }
            self.lines.read(&bulk);
            return Ok(BulkStatus::Pending);
        }
        self.transfer(&bulk, RegionAccess::Bytes(bulk.offset, bulk.len))
            .map(|_| BulkStatus::Done)
    }

    fn write(&mut self, _bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        Err(Error::Misuse("the simulated medium writes by parts only"))
    }

    fn registered_memory(&mut self) -> Option<&mut dyn RegisteredMemory> {
        (self.memory == MemoryAccess::Reached).then_some(&mut self.accesses)
    }
}

impl SharedCopy for SimTransport {
    fn share_region(
        &mut self,
        token: BulkToken,
        peer: Peer,
        data: &Data,
        _way: RendezvousMode,
    ) -> Option<RegionDescriptor> {
        // Not always: engines must do without.
        if self.memory != MemoryAccess::Reached || self.fabric.draw(8) == 0 {
            return None;
        }
        match self.expose(token, peer, data) {
            ExposeResult::Ready(descriptor) => Some(descriptor),
            ExposeResult::Pending | ExposeResult::Unable => None,
        }
    }

    fn take_part(&mut self, token: BulkToken, len: u64) -> Result<Option<(u64, u64)>, Error> {
        Ok(self
            .fabric
            .regions(|regions| regions.take_front(self.me, token, len, PART)))
    }

    fn write_part(&mut self, bulk: BulkTransfer<'_>) -> Result<PartWritten, Error> {
        let step = self.transfer(&bulk, RegionAccess::Back(bulk.len, PART))?;
        Ok(step.unwrap_or(PartWritten {
            bytes: 0,
            last: true,
        }))
    }

    fn withdraw_region(&mut self, token: BulkToken) -> WithdrawResult {
        self.fabric
            .regions(|regions| regions.withdraw(self.me, token))
    }

    fn write_early(&mut self, bulk: BulkTransfer<'_>) -> Result<Option<PartWritten>, Error> {
        let cookie = bulk.descriptor.cookie;
        if !self.fabric.regions(|regions| regions.is_there(cookie)) {
            return Ok(None);
        }
        match self.transfer(&bulk, RegionAccess::Back(bulk.len, PART)) {
            Err(Error::Peer {
                what: "the region was revoked",
                ..
            }) => Ok(None),
            Ok(Some(step)) => {
                self.fabric.regions(|regions| regions.begun(cookie));
                Ok(Some(step))
            }
            step => step,
        }
    }

    fn offload(
        &mut self,
        bulk: BulkTransfer<'_>,
        what: OffloadKind,
    ) -> Result<OffloadResult, Error> {
        // Not always: engines must do without.
        if self.memory != MemoryAccess::Reached || self.fabric.draw(4) == 0 {
            return Ok(OffloadResult::Unable);
        }
        let want = match what {
            OffloadKind::Read => RegionAccess::Bytes(bulk.offset, bulk.len),
            OffloadKind::Part | OffloadKind::Ahead => RegionAccess::Back(bulk.len, PART),
        };
        let copy = match self.lease(&bulk, want) {
            Ok(Some(copy)) => copy,
            Ok(None) => return Ok(OffloadResult::Nothing),
            Err(_) if what == OffloadKind::Ahead => return Ok(OffloadResult::Nothing),
            Err(error) => return Err(error),
        };
        if what == OffloadKind::Ahead {
            self.fabric
                .regions(|regions| regions.begun(bulk.descriptor.cookie));
        }
        Ok(OffloadResult::Copy(copy.step(), Box::new(copy)))
    }

    fn is_polling(&self, _peer: Peer) -> bool {
        self.memory != MemoryAccess::Reached || self.fabric.draw(2) == 0
    }
}

impl AsyncProgress for SimTransport {}

impl NodeMemory for SimTransport {}

/// Wake source of a simulated rank: sleeping gives the baton away.
#[derive(Debug)]
struct SimWakeSource {
    me: Peer,
    fabric: Arc<SimFabric>,
}

impl WakeSource for SimWakeSource {
    fn sleep(&self, ticket: u32, limit: Option<Duration>) {
        if let Some(limit) = limit {
            self.fabric
                .wake_at(self.me, self.fabric.now_ns() + limit.as_nanos() as u64);
        }
        self.fabric.sleep(self.me, ticket);
    }

    fn wake(&self) {
        self.fabric.wake(self.me);
    }
}
