//! The target's side of one-sided communication: registered regions, requests of peers, answers.
//!
//! Requests are carried out as they arrive, under the engine's lock, so nothing of them is kept but
//! the answer. Bounded by the regions that the program registers and by
//! [`ACCESSES_IN_FLIGHT`] answers for each peer.

use crate::api::Peer;
use crate::limits::{ACCESSES_IN_FLIGHT, FETCHED_MAX, PIECES_PER_PASS};
use crate::protocol::one_sided::wire::{
    AccessFailure, AccessPrefix, AtomicPrefix, FLAG_ANSWER, FLAG_FETCH, RegionKey, header, name_of,
    position_of,
};
use crate::transport::{
    AccessRights, ClaimError, PacketClass, PacketHeader, PacketKind, RegionDescriptor,
    RegionMemory, Transport, WakeReason,
};
use garonne_sync::user::UserMem;
use std::collections::{BTreeMap, VecDeque};

/// A registered region, or the place of one that was.
#[derive(Debug, Default)]
struct RegionSlot {
    generation: u32,
    region: Option<Region>,
}

#[derive(Debug)]
struct Region {
    memory: RegionMemory,
    descriptor: Option<RegionDescriptor>,
}

/// Answer that the target owes to an origin.
#[derive(Debug)]
enum Answer {
    /// Word that a part of an access is over.
    Done {
        name: u64,
        position: u64,
        result: Result<FetchedValues, AccessFailure>,
    },
    /// The bytes of a `Get` from `sent` on.
    Data {
        name: u64,
        access: AccessPrefix,
        sent: u64,
    },
}

/// Old values of elements, on their way to who asked for them.
#[derive(Clone, Copy, Debug)]
struct FetchedValues {
    len: usize,
    bytes: [u8; FETCHED_MAX],
}

impl FetchedValues {
    const NONE: Self = Self {
        len: 0,
        bytes: [0; FETCHED_MAX],
    };
}

/// Outcome of sending answers.
#[derive(Debug, Default)]
pub(crate) struct AnswersSent {
    /// Anything left.
    pub moved: bool,
    /// Answers wait that could leave with the next pass.
    pub more: bool,
    /// Peers that the transport does not reach any more.
    pub gone: Vec<Peer>,
}

/// Regions of this process, and what it owes to the peers that access them.
///
/// Owned by the core. The program's calls `register` and `deregister`; packets come to
/// `on_request`; the engine's pass calls `send`.
#[derive(Debug, Default)]
pub(crate) struct AccessTarget {
    slots: Vec<RegionSlot>,
    free: Vec<u32>,
    answers: BTreeMap<Peer, VecDeque<Answer>>,
}

impl AccessTarget {
    /// Opens a region to all peers. `None`: too many were registered.
    pub(crate) fn register(
        &mut self,
        memory: RegionMemory,
        descriptor: Option<RegionDescriptor>,
    ) -> Option<RegionKey> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.slots.len()).ok()?;
                self.slots.push(RegionSlot::default());
                index
            }
        };
        let slot = self.slots.get_mut(index as usize)?;
        slot.region = Some(Region { memory, descriptor });
        Some(RegionKey {
            cookie: u64::from(index) | u64::from(slot.generation) << 32,
            len: memory.len,
            rights: memory.rights,
            descriptor,
        })
    }

    /// Closes a region: later requests are refused. Returns the transport's right to it, if it has
    /// one. `None`: the key is stale.
    pub(crate) fn deregister(&mut self, key: &RegionKey) -> Option<Option<RegionDescriptor>> {
        let index = key.cookie as u32;
        let slot = self.slots.get_mut(index as usize)?;
        if u64::from(slot.generation) != key.cookie >> 32 {
            return None;
        }
        let region = slot.region.take()?;
        // A place whose generations are used up would make stale keys valid again.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(index);
        }
        Some(region.descriptor)
    }

    /// Returns the region of an access if it gives the right and holds the access.
    pub(crate) fn find(
        &self,
        access: &AccessPrefix,
        right: AccessRights,
    ) -> Result<RegionMemory, AccessFailure> {
        let memory = self
            .slots
            .get(access.cookie as u32 as usize)
            .filter(|slot| u64::from(slot.generation) == access.cookie >> 32)
            .and_then(|slot| slot.region.as_ref())
            .map(|region| region.memory)
            .ok_or(AccessFailure::Stale)?;
        if !memory.rights.contains(right) {
            return Err(AccessFailure::Denied);
        }
        if !memory.holds(access.start, access.total) {
            return Err(AccessFailure::Bounds);
        }
        Ok(memory)
    }

    /// Returns whether nothing is owed.
    pub(crate) fn is_idle(&self) -> bool {
        self.answers.is_empty()
    }

    /// Forgets what was owed to a peer that is gone.
    pub(crate) fn drop_peer(&mut self, peer: Peer) {
        self.answers.remove(&peer);
    }

    /// Carries a peer's request out. `None`: the peer broke the format.
    pub(crate) fn on_request(
        &mut self,
        peer: Peer,
        kind: PacketKind,
        header: &PacketHeader,
        payload: UserMem,
        len: usize,
    ) -> Option<()> {
        let access = AccessPrefix::decode(payload, len)?;
        let (name, position) = (name_of(header), position_of(header));
        let rest = payload.offset(AccessPrefix::BYTES as isize);
        let len = len - AccessPrefix::BYTES;
        let result = match kind {
            PacketKind::Put => {
                fits(position, len, access.total)?;
                self.find(&access, AccessRights::WRITE).map(|region| {
                    let at = (access.start + position) as isize;
                    region.mem.copy_from(at, rest, 0, len);
                    FetchedValues::NONE
                })
            }
            PacketKind::Get => match self.find(&access, AccessRights::READ) {
                Ok(_) => {
                    let data = Answer::Data {
                        name,
                        access,
                        sent: 0,
                    };
                    return (len == 0).then_some(()).and_then(|()| self.owe(peer, data));
                }
                Err(failure) => Err(failure),
            },
            PacketKind::Atomic => {
                let atomic = AtomicPrefix::decode(rest, len)?;
                let operands = rest.offset(AtomicPrefix::BYTES as isize);
                let len = len - AtomicPrefix::BYTES;
                fits(position, len, access.total)?;
                let size = atomic.kind.size();
                let fetch = header.flags & FLAG_FETCH != 0;
                let whole = len.is_multiple_of(size) && position.is_multiple_of(size as u64);
                if !whole || fetch && len > FETCHED_MAX {
                    return None;
                }
                self.find(&access, AccessRights::ATOMIC).and_then(|region| {
                    let at = (access.start + position) as isize;
                    update(region.mem.offset(at), &atomic, operands, len, fetch)
                })
            }
            _ => return None,
        };
        if header.flags & FLAG_ANSWER == 0 && kind != PacketKind::Get {
            return Some(());
        }
        let done = Answer::Done {
            name,
            position,
            result,
        };
        self.owe(peer, done)
    }

    /// Queues an answer. `None`: the peer has more accesses in flight than it may have.
    fn owe(&mut self, peer: Peer, answer: Answer) -> Option<()> {
        let answers = self.answers.entry(peer).or_default();
        if answers.len() >= ACCESSES_IN_FLIGHT as usize {
            return None;
        }
        answers.push_back(answer);
        Some(())
    }

    /// Sends answers to all peers, as far as there is room.
    pub(crate) fn send(
        &mut self,
        transport: &mut impl Transport,
        packet_max: usize,
    ) -> AnswersSent {
        let mut outcome = AnswersSent::default();
        let peers: Vec<Peer> = self.answers.keys().copied().collect();
        for peer in peers {
            let Some(mut answers) = self.answers.remove(&peer) else {
                continue;
            };
            let sent = self.send_to(peer, &mut answers, transport, packet_max);
            match sent {
                Ok(moved) => {
                    if moved {
                        transport.wake_progress(peer, WakeReason::Answer);
                    }
                    outcome.moved |= moved;
                    if !answers.is_empty() {
                        outcome.more = true;
                        self.answers.insert(peer, answers);
                    }
                }
                Err(()) => outcome.gone.push(peer),
            }
        }
        outcome
    }

    /// Sends answers to one peer; each gets its turn. `Err`: the peer is gone.
    fn send_to(
        &self,
        peer: Peer,
        answers: &mut VecDeque<Answer>,
        transport: &mut impl Transport,
        packet_max: usize,
    ) -> Result<bool, ()> {
        let mut moved = false;
        for _ in 0..answers.len() {
            let Some(answer) = answers.pop_front() else {
                break;
            };
            match self.send_one(peer, answer, transport, packet_max) {
                (Ok(None), sent) => moved |= sent,
                (Ok(Some(rest)), sent) => {
                    moved |= sent;
                    answers.push_back(rest);
                }
                (Err((rest, ClaimError::Full)), sent) => {
                    answers.push_front(rest);
                    return Ok(moved | sent);
                }
                (Err((_, ClaimError::Gone)), _) => return Err(()),
            }
        }
        Ok(moved)
    }

    /// Sends one answer, or some of its data: what is left of it, and whether anything left.
    fn send_one(
        &self,
        peer: Peer,
        answer: Answer,
        transport: &mut impl Transport,
        packet_max: usize,
    ) -> (Result<Option<Answer>, (Answer, ClaimError)>, bool) {
        let (name, access, mut sent) = match answer {
            Answer::Done {
                name,
                position,
                result,
            } => {
                let (flags, values) = match &result {
                    Ok(values) => (0, *values),
                    Err(failure) => (*failure as u8, FetchedValues::NONE),
                };
                return match transport.claim(peer, values.len, PacketClass::Control) {
                    Ok(room) => {
                        room.mem.write(0, &values.bytes[..values.len]);
                        let kind = PacketKind::AccessDone;
                        transport.commit(room, &header(kind, flags, name, position, values.len));
                        (Ok(None), true)
                    }
                    Err(refusal) => (Err((answer, refusal)), false),
                };
            }
            Answer::Data { name, access, sent } => (name, access, sent),
        };
        let chunk = transport
            .capabilities(peer)
            .map_or(packet_max, |reach| reach.pipeline_chunk)
            .clamp(1, packet_max) as u64;
        let mut moved = false;
        for _ in 0..PIECES_PER_PASS {
            let len = (access.total - sent).min(chunk) as usize;
            if len == 0 {
                return (Ok(None), moved);
            }
            // The program may have closed the region meanwhile.
            let region = match self.find(&access, AccessRights::READ) {
                Ok(region) => region,
                Err(failure) => {
                    let done = Answer::Done {
                        name,
                        position: sent,
                        result: Err(failure),
                    };
                    return (Ok(Some(done)), moved);
                }
            };
            let room = match transport.claim(peer, len, PacketClass::Data) {
                Ok(room) => room,
                Err(refusal) => {
                    let rest = Answer::Data { name, access, sent };
                    return (Err((rest, refusal)), moved);
                }
            };
            room.mem
                .copy_from(0, region.mem, (access.start + sent) as isize, len);
            transport.commit(room, &header(PacketKind::GetData, 0, name, sent, len));
            sent += len as u64;
            moved = true;
        }
        let rest = (sent < access.total).then_some(Answer::Data { name, access, sent });
        (Ok(rest), moved)
    }
}

/// Checks that `len` bytes at `position` lie within an access of `total` bytes.
fn fits(position: u64, len: usize, total: u64) -> Option<()> {
    let end = position.checked_add(len as u64)?;
    (end <= total).then_some(())
}

/// Updates the elements at `mem` by `len` bytes of operands, one after the other.
fn update(
    mem: UserMem,
    atomic: &AtomicPrefix,
    operands: UserMem,
    len: usize,
    fetch: bool,
) -> Result<FetchedValues, AccessFailure> {
    let size = atomic.kind.size();
    let mut values = FetchedValues::NONE;
    for at in (0..len).step_by(size) {
        let mut operand = [0; 8];
        operands.read(at as isize, &mut operand[..size]);
        let old = atomic
            .update(u64::from_le_bytes(operand))
            .apply(mem, at as isize, atomic.kind)
            .ok_or(AccessFailure::Misaligned)?;
        if fetch {
            values.bytes[at..at + size].copy_from_slice(&old.to_le_bytes()[..size]);
            values.len = at + size;
        }
    }
    Ok(values)
}
