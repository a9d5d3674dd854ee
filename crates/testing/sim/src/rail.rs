//! The rail of a simulated rank: the engine's packets over reliability links over the ways of the
//! simulated medium.

use crate::copies::Copy;
use crate::fabric::SimFabric;
use crate::lines::Lines;
use crate::regions::Want;
use garonne_engine::api::{Error, Peer};
use garonne_engine::limits::CONTROL_PAYLOAD_MAX;
use garonne_engine::protocol::offload::{Lift, Lifted, Load};
use garonne_engine::reliable::Packet;
use garonne_engine::transport::{
    Bulk, Class, Descriptor, Ending, Exposing, Fetch, Flowing, Handover, Header, Kind, Limits,
    Pieces, Rail, Reach, Refusal, Room, Sink, Step, Token, WakeSource,
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
const FLOW_MAX: usize = 900;
/// Polls in vain after which a rank lets others run.
const POLLS_IN_VAIN: u32 = 3;

/// Bytes of one read by asking, so that long messages are several.
const CHUNK: u64 = 6000;
/// Bytes that one side takes at most of data that both fill.
const PART: u64 = 400;

/// Whether ranks reach each other's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Only packets go between them.
    Apart,
    /// They ask for what others expose, piece by piece over all ways, or for packets, as chance has
    /// it.
    Asked,
    /// They read and write what others expose; how, and whether others seem to look for messages,
    /// is left to chance.
    Reached,
}

/// One simulated rank's end of the fabric.
#[derive(Debug)]
pub struct SimRail {
    me: Peer,
    memory: Memory,
    fabric: Arc<SimFabric>,
    lines: Lines,
    claimed: HashMap<u64, Scratch>,
    next_token: u64,
    /// Pieces of messages for which there is room, whatever else waits.
    promised: usize,
    in_vain: u32,
}

impl SimRail {
    /// The rail of rank `me`.
    pub fn new(fabric: Arc<SimFabric>, me: Peer, memory: Memory) -> Self {
        Self {
            me,
            memory,
            lines: Lines::new(fabric.clone(), me),
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
        self.lines.is_settled()
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
    fn lease(&self, bulk: &Bulk<'_>, want: Want) -> Result<Option<Copy>, Error> {
        let (peer, cookie) = (bulk.peer, bulk.descriptor.cookie);
        let permit = self
            .fabric
            .regions(|regions| regions.lease(self.me, peer, cookie, want))?;
        Ok(permit.map(|permit| Copy {
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
    fn transfer(&mut self, bulk: &Bulk<'_>, want: Want) -> Result<Option<Step>, Error> {
        let Some(mut copy) = self.lease(bulk, want)? else {
            return Ok(None);
        };
        copy.carry().map(|()| Some(copy.step()))
    }

    /// Delivers a packet of which `done` bytes were delivered. What belongs to a message in pieces
    /// comes part by part, as chance has it, by way of the engine's memory or not, and the rest
    /// perhaps only with another poll: then `false`.
    fn deliver(&mut self, from: Peer, packet: Packet, done: usize, sink: &mut impl Sink) -> bool {
        let (header, rest) = (packet.header, &packet.payload[done..]);
        let begins = header.kind == Kind::Head as u8 && done == 0;
        let is_piece = header.kind == Kind::Head as u8 || header.kind == Kind::Tail as u8;
        let len = match is_piece {
            true if rest.len() > 1 => 1 + self.fabric.draw(rest.len() as u64) as usize,
            _ => rest.len(),
        };
        let first = if header.kind == Kind::Tail as u8 {
            header.sequence as usize
        } else {
            0
        };
        let at = first + done;
        let room = match is_piece && !begins && self.fabric.draw(2) == 0 {
            true => sink.place(from, at as u64, len),
            false => None,
        };
        if let Some(room) = room {
            room.write(0, &rest[..len]);
            sink.placed(from, len);
        } else {
            let header = match is_piece {
                true if begins => Header {
                    len: len as u32,
                    ..header
                },
                true => Pieces::tail(at, len),
                false => header,
            };
            let scratch = Scratch::new(len);
            let mem = scratch.as_ref().map_or(UserMem::null(), Scratch::mem);
            mem.write(0, &rest[..len]);
            sink.packet(from, header, mem, len);
        }
        if len == rest.len() {
            return true;
        }
        self.lines.came.push_front((from, packet, done + len));
        self.fabric.draw(2) == 0
    }
}

impl Rail for SimRail {
    fn limits(&self) -> Limits {
        Limits {
            inline_max: 32,
            packet_max: PACKET_MAX,
            control_max: CONTROL_PAYLOAD_MAX,
            ordered: true,
        }
    }

    fn reach(&self, peer: Peer) -> Option<Reach> {
        if !self.lines.reaches(peer) {
            return None;
        }
        Some(Reach {
            eager_max: EAGER_MAX,
            flow_max: FLOW_MAX,
            can_read: self.memory != Memory::Apart,
            can_write: self.memory == Memory::Reached,
            pipeline_chunk: PACKET_MAX,
            read_chunk: match self.memory {
                Memory::Asked => CHUNK,
                Memory::Apart | Memory::Reached => u64::MAX,
            },
        })
    }

    fn flow(&mut self, peer: Peer, len: usize) -> Flowing {
        let Some(link) = self.lines.link(peer) else {
            return Flowing::No;
        };
        let room = link.has_room(Class::Data);
        // Not always: engines must do without.
        if len > FLOW_MAX || self.fabric.draw(4) != 0 {
            return Flowing::No;
        }
        if !room {
            return Flowing::Soon;
        }
        let pieces = 1 + self.fabric.draw(4) as usize;
        self.promised = pieces + 1;
        let piece = len.div_ceil(pieces).max(1);
        Flowing::Pieces(1 + self.fabric.draw(piece as u64) as usize, piece)
    }

    fn claim(&mut self, peer: Peer, len: usize, class: Class) -> Result<Room, Refusal> {
        let promised = class == Class::Data && self.promised > 0;
        self.promised -= usize::from(promised);
        let link = self.lines.link(peer).ok_or(Refusal::Gone)?;
        if !promised && !link.has_room(class) {
            return Err(Refusal::Full);
        }
        let scratch = Scratch::new(len).ok_or(Refusal::Full)?;
        let room = Room {
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

    fn commit(&mut self, room: Room, header: &Header) {
        let mut payload = vec![0; header.len as usize];
        room.mem.read(0, &mut payload);
        self.claimed.remove(&room.token);
        let packet = Packet {
            header: *header,
            payload,
        };
        self.lines.send(room.peer, packet);
    }

    fn abandon(&mut self, room: Room) {
        self.claimed.remove(&room.token);
    }

    fn send_inline(&mut self, peer: Peer, header: &Header, bytes: UserMem) -> Result<(), Refusal> {
        let room = self.claim(peer, header.len as usize, Class::Data)?;
        room.mem.copy_from(0, bytes, 0, header.len as usize);
        self.commit(room, header);
        Ok(())
    }

    fn poll(&mut self, budget: u32, sink: &mut impl Sink) -> u32 {
        if self.lines.dawdles() {
            return self.found(0);
        }
        let mut told = 0;
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
        if self.memory == Memory::Reached {
            for token in self.fabric.regions(|regions| regions.drained(self.me)) {
                sink.revoked(token);
                told += 1;
            }
        }
        told += self.lines.keep_time(sink);
        self.found(told)
    }

    fn expose(&mut self, token: Token, peer: Peer, data: &Data) -> Exposing {
        if self.memory == Memory::Apart {
            return Exposing::Unable;
        }
        let cookie = self
            .fabric
            .regions(|regions| regions.expose(self.me, token, peer, data));
        Descriptor::new(cookie, &[]).map_or(Exposing::Unable, Exposing::Ready)
    }

    fn revoke(&mut self, token: Token) -> Ending {
        self.fabric
            .regions(|regions| regions.revoke(self.me, token))
    }

    fn read(&mut self, bulk: Bulk<'_>) -> Result<Ending, Error> {
        if self.memory == Memory::Asked {
            if !self.lines.reaches(bulk.peer) {
                return Err(Error::Peer {
                    peer: bulk.peer,
                    what: "died before its memory was used",
                });
            }
            self.lines.read(&bulk);
            return Ok(Ending::Later);
        }
        self.transfer(&bulk, Want::Bytes(bulk.offset, bulk.len))
            .map(|_| Ending::Now)
    }

    fn write(&mut self, _bulk: Bulk<'_>) -> Result<Ending, Error> {
        Err(Error::Misuse("the simulated medium writes by parts only"))
    }

    fn fetch(&mut self, _token: Token, _peer: Peer, _len: u64) -> Fetch {
        match self.memory {
            Memory::Apart => Fetch::Packets,
            Memory::Asked if self.fabric.draw(3) == 0 => Fetch::Packets,
            Memory::Asked => Fetch::Read,
            Memory::Reached => {
                let ways = [
                    Fetch::Read,
                    Fetch::Push,
                    Fetch::Share,
                    Fetch::Late,
                    Fetch::Packets,
                ];
                ways[self.fabric.draw(ways.len() as u64) as usize]
            }
        }
    }

    fn share(&mut self, token: Token, peer: Peer, data: &Data, _way: Fetch) -> Option<Descriptor> {
        // Not always: engines must do without.
        if self.memory != Memory::Reached || self.fabric.draw(8) == 0 {
            return None;
        }
        match self.expose(token, peer, data) {
            Exposing::Ready(descriptor) => Some(descriptor),
            Exposing::Later | Exposing::Unable => None,
        }
    }

    fn take_part(&mut self, token: Token, len: u64) -> Result<Option<(u64, u64)>, Error> {
        Ok(self
            .fabric
            .regions(|regions| regions.take_front(self.me, token, len, PART)))
    }

    fn push_part(&mut self, bulk: Bulk<'_>) -> Result<Step, Error> {
        let step = self.transfer(&bulk, Want::Back(bulk.len, PART))?;
        Ok(step.unwrap_or(Step {
            bytes: 0,
            last: true,
        }))
    }

    fn withdraw(&mut self, token: Token) -> Handover {
        self.fabric
            .regions(|regions| regions.withdraw(self.me, token))
    }

    fn write_ahead(&mut self, bulk: Bulk<'_>) -> Result<Option<Step>, Error> {
        let cookie = bulk.descriptor.cookie;
        if !self.fabric.regions(|regions| regions.is_there(cookie)) {
            return Ok(None);
        }
        match self.transfer(&bulk, Want::Back(bulk.len, PART)) {
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

    fn lift(&mut self, bulk: Bulk<'_>, what: Lift) -> Result<Lifted, Error> {
        // Not always: engines must do without.
        if self.memory != Memory::Reached || self.fabric.draw(4) == 0 {
            return Ok(Lifted::Unable);
        }
        let want = match what {
            Lift::Read => Want::Bytes(bulk.offset, bulk.len),
            Lift::Part | Lift::Ahead => Want::Back(bulk.len, PART),
        };
        let copy = match self.lease(&bulk, want) {
            Ok(Some(copy)) => copy,
            Ok(None) => return Ok(Lifted::Nothing),
            Err(_) if what == Lift::Ahead => return Ok(Lifted::Nothing),
            Err(error) => return Err(error),
        };
        if what == Lift::Ahead {
            self.fabric
                .regions(|regions| regions.begun(bulk.descriptor.cookie));
        }
        Ok(Lifted::Load(copy.step(), Box::new(copy)))
    }

    fn looks(&self, _peer: Peer) -> bool {
        self.memory != Memory::Reached || self.fabric.draw(2) == 0
    }

    fn arm(&mut self) -> u32 {
        self.fabric.word(self.me)
    }

    fn disarm(&mut self) {}

    fn wake_source(&self) -> Arc<dyn WakeSource> {
        Arc::new(Bed {
            me: self.me,
            fabric: self.fabric.clone(),
        })
    }

    fn ring(&mut self, peer: Peer) {
        self.fabric.wake(peer);
    }
}

/// Where a simulated rank sleeps: it gives the baton away.
#[derive(Debug)]
struct Bed {
    me: Peer,
    fabric: Arc<SimFabric>,
}

impl WakeSource for Bed {
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
