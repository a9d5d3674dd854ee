//! The origin's side of one-sided communication: accesses that are not over, and flushes.
//!
//! An access that the transport cannot carry out itself leaves in packets, in the order in which
//! accesses of its target were started. Bounded by the operations that the program leaves pending.

use crate::api::{Error, Peer};
use crate::copy::{BounceBuffer, CopyTarget, copy_in, copy_out};
use crate::limits::{ACCESSES_IN_FLIGHT, FETCHED_MAX, PIECES_PER_PASS};
use crate::protocol::one_sided::wire::{
    AccessFailure, AccessPrefix, AtomicPrefix, FLAG_ANSWER, FLAG_FETCH, header, position_of,
};
use crate::requests::{Operation, RequestTable, to_wire};
use crate::transport::{
    ClaimError, PacketClass, PacketHeader, PacketKind, Transport, TransportLimits, WakeReason,
};
use garonne_sync::user::{AtomicOp, UserMem};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Action of an access at its target.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AccessKind {
    /// Writes the operation's data.
    Put,
    /// Fills the operation's data.
    Get,
    /// Updates elements by the operation's data.
    Atomic {
        atomic: AtomicPrefix,
        /// Memory for the elements' old values, which is contiguous.
        result: Option<UserMem>,
    },
    /// Carried out by the transport, which tells its end.
    Direct,
}

/// An access that is not over. The request table has its local data and its peer.
#[derive(Debug)]
struct Access {
    /// Place among all accesses and flushes of the target.
    sequence: u64,
    kind: AccessKind,
    /// Region, first byte and length.
    target: AccessPrefix,
    /// Bytes that left.
    sent: u64,
    /// Packets that the target has to answer, or ends that the transport has to tell.
    due: u32,
    /// The first failure that an answer told.
    error: Option<Error>,
}

/// A flush that is not over.
#[derive(Debug)]
struct Flush {
    sequence: u64,
    index: u32,
    /// The transport has not told the end of its part.
    direct: bool,
}

/// Accesses of one target.
#[derive(Debug, Default)]
struct TargetAccesses {
    next: u64,
    /// Sequences of accesses that are not over.
    open: BTreeSet<u64>,
    flushes: VecDeque<Flush>,
    /// Accesses that have not left, or not all of them; by their slots.
    queue: VecDeque<u32>,
    /// Answers due.
    in_flight: u32,
    /// The first failure since the last flush.
    error: Option<Error>,
}

/// Operations that end now, with their errors.
pub(crate) type Ended = Vec<(u32, Option<Error>)>;

/// Accesses and flushes of this process that are not over.
///
/// Owned by the core. The program's calls `start` accesses and `flush`; the engine's pass calls
/// `send`; packets come to `on_data` and `on_done`, the transport's word to `direct_done`.
#[derive(Debug, Default)]
pub(crate) struct AccessOrigin {
    accesses: BTreeMap<u32, Access>,
    targets: BTreeMap<Peer, TargetAccesses>,
    /// Peers that ended their communication in good order.
    left: BTreeSet<Peer>,
}

/// The error of an access whose target answers no more.
const LEFT: Error = Error::Misuse("its process has ended MPI, and answers no access any more");

impl AccessOrigin {
    /// Begins an access in slot `index`. One that is not the transport's waits to be sent.
    pub(crate) fn start(&mut self, index: u32, peer: Peer, kind: AccessKind, target: AccessPrefix) {
        let entry = self.targets.entry(peer).or_default();
        let sequence = entry.next;
        entry.next += 1;
        entry.open.insert(sequence);
        if !matches!(kind, AccessKind::Direct) {
            entry.queue.push_back(index);
        }
        self.accesses.insert(
            index,
            Access {
                sequence,
                kind,
                target,
                sent: 0,
                due: 0,
                error: None,
            },
        );
    }

    /// Begins an access in slot `index` that the transport carries out, and of which it tells `due`
    /// ends.
    pub(crate) fn start_direct(
        &mut self,
        index: u32,
        peer: Peer,
        target: AccessPrefix,
        due: u32,
        error: Option<Error>,
    ) {
        self.start(index, peer, AccessKind::Direct, target);
        if let Some(access) = self.accesses.get_mut(&index) {
            (access.due, access.error) = (due, error);
        }
    }

    /// Notes the failure of an access that was over at once, for the next flush.
    pub(crate) fn note_failure(&mut self, peer: Peer, error: &Error) {
        let entry = self.targets.entry(peer).or_default();
        entry.error.get_or_insert_with(|| error.clone());
    }

    /// Begins a flush in slot `index`: of all accesses of `peer` that were started, and of what the
    /// transport tells if it is `direct`. Returns what ends now.
    pub(crate) fn flush(&mut self, index: u32, peer: Peer, direct: bool) -> Ended {
        let entry = self.targets.entry(peer).or_default();
        let sequence = entry.next;
        entry.next += 1;
        entry.flushes.push_back(Flush {
            sequence,
            index,
            direct,
        });
        self.flushed(peer)
    }

    /// Takes out the flushes of `peer` that are over.
    fn flushed(&mut self, peer: Peer) -> Ended {
        let mut ended = Ended::new();
        let Some(entry) = self.targets.get_mut(&peer) else {
            return ended;
        };
        while let Some(first) = entry.flushes.front() {
            let waits = entry
                .open
                .first()
                .is_some_and(|open| *open < first.sequence);
            if waits || first.direct {
                break;
            }
            ended.push((first.index, entry.error.take()));
            entry.flushes.pop_front();
        }
        ended
    }

    /// Returns whether no access and no flush is open.
    pub(crate) fn is_idle(&self) -> bool {
        self.accesses.is_empty() && self.targets.values().all(|entry| entry.flushes.is_empty())
    }

    /// Forgets everything about a peer that is gone, but what the transport carries out. All its
    /// operations end elsewhere.
    pub(crate) fn drop_peer(&mut self, peer: Peer, requests: &RequestTable) {
        self.targets.remove(&peer);
        self.accesses.retain(|index, access| {
            matches!(access.kind, AccessKind::Direct) || requests.peek(*index).peer != peer
        });
    }

    /// Returns the peers whose answers accesses wait for.
    pub(crate) fn awaited_peers(&self) -> impl Iterator<Item = Peer> {
        let awaited = self
            .targets
            .iter()
            .filter(|(_, entry)| !entry.open.is_empty());
        awaited.map(|(peer, _)| *peer)
    }

    /// Refuses an access to a peer that answers none any more.
    pub(crate) fn check_peer(&self, peer: Peer) -> Result<(), Error> {
        match self.left.contains(&peer) {
            true => Err(LEFT),
            false => Ok(()),
        }
    }

    /// A peer answers no access any more. Returns those that wait for it, but for what the
    /// transport carries out, and flushes.
    pub(crate) fn peer_left(&mut self, peer: Peer, requests: &RequestTable) -> Ended {
        let waits = |(index, access): (&u32, &Access)| {
            let carried_out = matches!(access.kind, AccessKind::Direct);
            (!carried_out && requests.peek(*index).peer == peer).then_some(*index)
        };
        let unanswered: Vec<u32> = self.accesses.iter().filter_map(waits).collect();
        if let Some(entry) = self.targets.get_mut(&peer) {
            entry.queue.clear();
            entry.in_flight = 0;
        }
        self.left.insert(peer);
        let ended = unanswered
            .into_iter()
            .map(|index| self.over(index, peer, Some(LEFT)));
        ended.flatten().collect()
    }

    /// An access is over. Returns what ends now: itself, and flushes.
    fn over(&mut self, index: u32, peer: Peer, error: Option<Error>) -> Ended {
        if let Some(access) = self.accesses.remove(&index)
            && let Some(entry) = self.targets.get_mut(&peer)
        {
            entry.open.remove(&access.sequence);
            if let Some(error) = &error {
                entry.error.get_or_insert_with(|| error.clone());
            }
        }
        let mut ended = vec![(index, error)];
        ended.extend(self.flushed(peer));
        ended
    }

    /// The transport tells an end of an access or flush. Returns what ends if this was the last;
    /// `None`: more will be told.
    pub(crate) fn direct_done(
        &mut self,
        index: u32,
        peer: Peer,
        result: Result<(), Error>,
    ) -> Option<Ended> {
        if let Some(access) = self.accesses.get_mut(&index) {
            access.due = access.due.saturating_sub(1);
            if let Err(error) = result {
                access.error.get_or_insert(error);
            }
            if access.due > 0 {
                return None;
            }
            let error = access.error.take();
            return Some(self.over(index, peer, error));
        }
        if let Some(entry) = self.targets.get_mut(&peer)
            && let Some(flush) = entry.flushes.iter_mut().find(|flush| flush.index == index)
        {
            flush.direct = false;
            if let Err(error) = result {
                entry.error.get_or_insert(error);
            }
        }
        Some(self.flushed(peer))
    }

    /// Bytes of a read arrived for the operation in slot `index`. `None`: the peer broke the
    /// format.
    pub(crate) fn on_data(
        &mut self,
        index: u32,
        operation: &mut Operation,
        header: &PacketHeader,
        (payload, len): (UserMem, usize),
        bounce: &mut BounceBuffer,
    ) -> Option<Ended> {
        let access = self.accesses.get_mut(&index)?;
        let from = position_of(header);
        let end = from.checked_add(len as u64)?;
        if !matches!(access.kind, AccessKind::Get) || access.due == 0 || end > access.target.total {
            return None;
        }
        copy_in(&operation.data, from, payload, len, bounce);
        operation.moved += len as u64;
        if operation.moved < access.target.total {
            return Some(Ended::new());
        }
        let peer = operation.peer;
        self.answered(peer);
        Some(self.over(index, peer, None))
    }

    /// A target says that a part of the access in slot `index` is over. `None`: it broke the
    /// format.
    pub(crate) fn on_done(
        &mut self,
        index: u32,
        peer: Peer,
        header: &PacketHeader,
        (payload, len): (UserMem, usize),
    ) -> Option<Ended> {
        let result = AccessFailure::from_flags(header.flags)?;
        let access = self.accesses.get_mut(&index)?;
        if access.due == 0 || matches!(access.kind, AccessKind::Direct) {
            return None;
        }
        match (result, access.kind) {
            (Err(failure), _) => {
                access.error.get_or_insert_with(|| failure_text(failure));
            }
            (Ok(()), AccessKind::Put) => {}
            (Ok(()), AccessKind::Atomic { result: None, .. }) => {}
            (
                Ok(()),
                AccessKind::Atomic {
                    result: Some(result),
                    ..
                },
            ) => {
                let from = position_of(header);
                let end = from.checked_add(len as u64)?;
                if len > FETCHED_MAX || end > access.target.total {
                    return None;
                }
                result.copy_from(from as isize, payload, 0, len);
            }
            (Ok(()), AccessKind::Get | AccessKind::Direct) => return None,
        }
        access.due -= 1;
        let over = access.due == 0 && access.sent == access.target.total;
        let error = access.error.clone();
        self.answered(peer);
        Some(match over {
            true => self.over(index, peer, error),
            false => Ended::new(),
        })
    }

    /// One answer fewer is due.
    fn answered(&mut self, peer: Peer) {
        if let Some(entry) = self.targets.get_mut(&peer) {
            entry.in_flight -= 1;
        }
    }

    /// Returns the peers to which accesses wait to be sent.
    pub(crate) fn waiting_peers(&self) -> Vec<Peer> {
        self.targets
            .iter()
            .filter(|(_, entry)| !entry.queue.is_empty() && entry.in_flight < ACCESSES_IN_FLIGHT)
            .map(|(peer, _)| *peer)
            .collect()
    }

    /// Sends packets of accesses to `peer`, the oldest first, as far as there is room and as many
    /// answers may be due. Returns whether any left, and whether more could leave with the next
    /// pass.
    pub(crate) fn send<R: Transport>(
        &mut self,
        peer: Peer,
        transport: &mut R,
        limits: &TransportLimits,
        requests: &RequestTable,
        bounce: &mut BounceBuffer,
    ) -> Result<(bool, bool), ClaimError> {
        let Self {
            accesses, targets, ..
        } = self;
        let Some(entry) = targets.get_mut(&peer) else {
            return Ok((false, false));
        };
        let (mut moved, mut pieces) = (false, 0);
        let more = loop {
            let Some(&index) = entry.queue.front() else {
                break false;
            };
            let Some(access) = accesses.get_mut(&index) else {
                entry.queue.pop_front();
                continue;
            };
            if entry.in_flight >= ACCESSES_IN_FLIGHT {
                break false;
            }
            if pieces == PIECES_PER_PASS * 4 {
                break true;
            }
            let name = to_wire(requests.name(index));
            let sending = AccessPacket { peer, name };
            let sent = sending.send(access, requests.peek(index), transport, limits, bounce);
            match sent {
                Ok(answer) => {
                    access.due += u32::from(answer);
                    entry.in_flight += u32::from(answer);
                    (moved, pieces) = (true, pieces + 1);
                    if access.sent == access.target.total {
                        entry.queue.pop_front();
                    }
                }
                Err(ClaimError::Full) => break true,
                Err(gone) => return Err(gone),
            }
        };
        if moved {
            transport.wake_progress(peer, WakeReason::Answer);
        }
        Ok((moved, more))
    }
}

/// The next packet of an access.
struct AccessPacket {
    peer: Peer,
    name: u64,
}

impl AccessPacket {
    /// Sends it. Returns whether the target answers it.
    fn send<R: Transport>(
        &self,
        access: &mut Access,
        operation: &Operation,
        transport: &mut R,
        limits: &TransportLimits,
        bounce: &mut BounceBuffer,
    ) -> Result<bool, ClaimError> {
        let left = access.target.total - access.sent;
        let (kind, prefix, most, fetch) = match &access.kind {
            AccessKind::Put => (
                PacketKind::Put,
                0,
                limits.packet_max - AccessPrefix::BYTES,
                false,
            ),
            AccessKind::Get => (PacketKind::Get, 0, 0, false),
            AccessKind::Atomic { atomic, result } => {
                let prefix = AtomicPrefix::BYTES;
                let room = match result {
                    Some(_) => FETCHED_MAX,
                    None => limits.packet_max - AccessPrefix::BYTES - prefix,
                };
                let size = atomic.kind.size();
                (
                    PacketKind::Atomic,
                    prefix,
                    room / size * size,
                    result.is_some(),
                )
            }
            // The transport carries it out: there is nothing to send.
            AccessKind::Direct => return Ok(false),
        };
        let len = left.min(most as u64) as usize;
        let begin = AccessPrefix::BYTES + prefix;
        let room = transport.claim(self.peer, begin + len, PacketClass::Data)?;
        room.mem.write(0, &access.target.encode());
        match &access.kind {
            AccessKind::Atomic { atomic, .. } => {
                room.mem
                    .write(AccessPrefix::BYTES as isize, &atomic.encode());
                if atomic.op == Some(AtomicOp::NoOp) {
                    // Operands that nobody uses may lie nowhere.
                    for at in 0..len {
                        room.mem.write_array((begin + at) as isize, [0]);
                    }
                } else {
                    let target = CopyTarget::room(&room, begin);
                    copy_out(&operation.data, access.sent, target, len, bounce);
                }
            }
            AccessKind::Put => {
                let target = CopyTarget::room(&room, begin);
                copy_out(&operation.data, access.sent, target, len, bounce);
            }
            AccessKind::Get | AccessKind::Direct => {}
        }
        let last = kind == PacketKind::Get || len as u64 == left;
        // Where packets overtake each other, the last one says nothing of the others.
        let answer = last || fetch || !limits.ordered;
        let mut flags = if answer { FLAG_ANSWER } else { 0 };
        if fetch {
            flags |= FLAG_FETCH;
        }
        let header = header(kind, flags, self.name, access.sent, begin + len);
        transport.commit(room, &header);
        access.sent += if kind == PacketKind::Get {
            left
        } else {
            len as u64
        };
        Ok(answer)
    }
}

/// The error of an access that its target refused.
pub(crate) fn failure_text(failure: AccessFailure) -> Error {
    Error::Misuse(match failure {
        AccessFailure::Stale => "the key is stale: its region was deregistered",
        AccessFailure::Denied => "the region gives no right to this access",
        AccessFailure::Bounds => "the access reaches beyond the region",
        AccessFailure::Misaligned => "the elements are not naturally aligned",
    })
}
