//! The rail of a simulated rank: the engine's packets over reliability links over the simulated medium.

use crate::fabric::{Arrival, SimFabric};
use garonne_engine::api::{Error, Peer};
use garonne_engine::limits::CONTROL_PAYLOAD_MAX;
use garonne_engine::rail::{
    Bulk, Class, Ending, Exposing, Header, Limits, Rail, Reach, Refusal, Room, Sink, Token, WakeSource,
};
use garonne_engine::reliable::{Frame, Link, Packet};
use garonne_sync::user::{Data, Scratch, UserMem};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Largest payload of a packet: small, so that messages of a few kilobytes already come in pieces.
const PACKET_MAX: usize = 1024;
/// Largest payload that travels with its envelope.
const EAGER_MAX: usize = 256;
/// Polls in vain after which a rank lets others run.
const POLLS_IN_VAIN: u32 = 3;

/// One simulated rank's end of the fabric.
#[derive(Debug)]
pub struct SimRail {
    me: Peer,
    fabric: Arc<SimFabric>,
    links: Vec<Option<Link>>,
    /// Peers whose links may have something due.
    active: BTreeSet<Peer>,
    claimed: HashMap<u64, Scratch>,
    next_token: u64,
    in_vain: u32,
    /// When the fabric will wake this rank next, as far as asked.
    alarm_ns: Option<u64>,
}

impl SimRail {
    /// The rail of rank `me`.
    pub fn new(fabric: Arc<SimFabric>, me: Peer) -> Self {
        let links = (0..fabric.world()).map(|_| Some(Link::default())).collect();
        Self {
            me,
            fabric,
            links,
            active: BTreeSet::new(),
            claimed: HashMap::new(),
            next_token: 0,
            in_vain: 0,
            alarm_ns: None,
        }
    }

    /// Every packet sent was acknowledged or its peer is gone.
    pub fn is_settled(&self) -> bool {
        self.links.iter().flatten().all(Link::is_settled)
    }

    fn lose(&mut self, peer: Peer, sink: &mut impl Sink) -> u32 {
        match self.links[peer as usize].take() {
            Some(_) => {
                sink.gone(peer);
                1
            }
            None => 0,
        }
    }

    /// Transmits acknowledgements and repeats that are due, and asks to be woken for the next.
    fn keep_time(&mut self, sink: &mut impl Sink) -> u32 {
        let now_ns = self.fabric.now_ns();
        let mut told = 0;
        let mut frames: Vec<Frame> = Vec::new();
        let mut deadline_ns: Option<u64> = None;
        for peer in self.active.clone() {
            let Some(link) = &mut self.links[peer as usize] else {
                self.active.remove(&peer);
                continue;
            };
            if link.due(now_ns, &mut frames).is_err() {
                told += self.lose(peer, sink);
                continue;
            }
            match link.deadline_ns() {
                None => drop(self.active.remove(&peer)),
                Some(at_ns) => deadline_ns = Some(deadline_ns.map_or(at_ns, |other| other.min(at_ns))),
            }
            frames
                .drain(..)
                .for_each(|frame| self.fabric.transmit(self.me, peer, frame));
        }
        if let Some(at_ns) = deadline_ns
            && self
                .alarm_ns
                .is_none_or(|alarm_ns| alarm_ns <= now_ns || at_ns < alarm_ns)
        {
            self.fabric.wake_at(self.me, at_ns);
            self.alarm_ns = Some(at_ns);
        }
        told
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
        self.links.get(peer as usize)?.as_ref()?;
        Some(Reach {
            eager_max: EAGER_MAX,
            can_read: false,
            can_write: false,
            pipeline_chunk: PACKET_MAX,
            read_chunk: u64::MAX,
        })
    }

    fn claim(&mut self, peer: Peer, len: usize, class: Class) -> Result<Room, Refusal> {
        let link = self
            .links
            .get(peer as usize)
            .and_then(Option::as_ref)
            .ok_or(Refusal::Gone)?;
        if !link.has_room(class) {
            return Err(Refusal::Full);
        }
        let scratch = Scratch::new(len).ok_or(Refusal::Full)?;
        let room = Room {
            mem: scratch.mem(),
            len,
            peer,
            token: self.next_token,
        };
        self.claimed.insert(self.next_token, scratch);
        self.next_token += 1;
        Ok(room)
    }

    fn commit(&mut self, room: Room, header: &Header) {
        let mut payload = vec![0; header.len as usize];
        room.mem.read(0, &mut payload);
        self.claimed.remove(&room.token);
        if let Some(Some(link)) = self.links.get_mut(room.peer as usize) {
            self.active.insert(room.peer);
            let frame = link.send(
                Packet {
                    header: *header,
                    payload,
                },
                self.fabric.now_ns(),
            );
            self.fabric.transmit(self.me, room.peer, frame);
        }
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
        let mut told = 0;
        let mut packets = Vec::new();
        while told < budget {
            match self.fabric.arrival(self.me) {
                None => break,
                Some(Arrival::Gone(peer)) => told += self.lose(peer, sink),
                Some(Arrival::Frame(from, frame)) => {
                    let Some(link) = &mut self.links[from as usize] else {
                        continue;
                    };
                    link.receive(frame, &mut packets);
                    self.active.insert(from);
                    for mut packet in packets.drain(..) {
                        let len = packet.payload.len();
                        let scratch = Scratch::new(len);
                        let mem = scratch.as_ref().map_or(UserMem::null(), Scratch::mem);
                        mem.write(0, &packet.payload);
                        packet.payload.clear();
                        sink.packet(from, packet.header, mem, len);
                        told += 1;
                    }
                }
            }
        }
        told += self.keep_time(sink);
        self.in_vain = if told == 0 { self.in_vain + 1 } else { 0 };
        if self.in_vain > POLLS_IN_VAIN {
            self.in_vain = 0;
            self.fabric.pause(self.me);
        }
        told
    }

    fn expose(&mut self, _token: Token, _peer: Peer, _data: &Data) -> Exposing {
        Exposing::Unable
    }

    fn revoke(&mut self, _token: Token) -> Ending {
        Ending::Now
    }

    fn read(&mut self, _bulk: Bulk<'_>) -> Result<Ending, Error> {
        Err(Error::Misuse("the simulated medium has no regions"))
    }

    fn write(&mut self, _bulk: Bulk<'_>) -> Result<Ending, Error> {
        Err(Error::Misuse("the simulated medium has no regions"))
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
