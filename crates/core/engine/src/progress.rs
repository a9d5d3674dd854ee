//! Moving what is queued: control packets, windows, reads of regions, streams of pieces,
//! revocations.
//!
//! The second half of a shard: everything here needs the rail. Each pass is bounded (pieces per
//! peer, one bulk read per message), so that a caller who only wants to look gets its turn. What
//! does not fit now stays queued and sets `pending`.

use crate::api::{Error, Peer, TypeDigest};
use crate::copy::{CopyTarget, copy_out};
use crate::engine::Engine;
use crate::limits::{
    AHEAD_FROM, ASK_FROM, BYTES_PER_POLL, FLOW_MAX, PIECE_MIN, PIECES_AT_LEAST, PIECES_PER_PASS,
    TRANSFER_BYTES_MAX, WAITING_LOOK,
};
use crate::peer::state::{GONE, stream_key};
use crate::protocol::select::{self, SendStep, WindowHead};
use crate::protocol::wire::{FLAG_REGION, FLAG_TAKEN, Rts};
use crate::requests::{OpFlag, OpSide, OpState, Operation};
use crate::schedule::priority::{Priority, PriorityTable};
use crate::transport::{
    BulkStatus, ClaimError, ExposeResult, Fragmentation, PacketClass, PacketHeader, PacketKind,
    PeerCapabilities, Transport, WakeReason, need_of,
};

/// How far a region is exposed, kept in a send's `remote` until the receiver's name takes its
/// place; 0: the rail was not asked.
pub(crate) mod exposure {
    /// The rail answered; the operation's region says how.
    pub const ANSWERED: u64 = 1;
    /// The rail will answer.
    pub const ASKED: u64 = 2;
}

/// What a pass does about long copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyPolicy {
    /// It carries them out.
    Now,
    /// They are left to [`Engine::lift`].
    Lifted,
}

/// Whether an envelope left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EmitResult {
    Sent,
    /// No room on the rail, or the region is not ready.
    Later,
    Gone,
}

/// Bytes that an eager envelope puts in front of its payload.
fn prefix(operation: &Operation) -> usize {
    // The name that its receiver sends back once it matched.
    if operation.synchronous { 8 } else { 0 }
}

/// Whether a message may go in pieces: the header of the first has no room for a mark, and one that
/// is to stand in nobody's way is announced.
fn may_flow(operation: &Operation, priorities: &PriorityTable) -> bool {
    operation.origin.mark == TypeDigest::NONE && priorities.of(operation.context) != Priority::Low
}

impl<R: Transport> Engine<R> {
    /// Numbers a send's envelope and sends it, or lets it join the window.
    pub(crate) fn submit(&mut self, index: u32) {
        let operation = self.core.requests.peek(index);
        let (context, peer, tag) = (operation.context, operation.peer, operation.tag);
        let stream = self.core.streams.find_or_insert(stream_key(context, peer));
        let stream = self.core.streams.get_mut(stream);
        let sequence = stream.next_tx() as u32;
        stream.count_tx(tag);
        self.core.requests.at(index).sequence = sequence;
        let Some(gate) = self.core.gate(peer) else {
            return;
        };
        if self.core.gates[gate as usize].held != 0 || !self.send_from_window(gate, index) {
            self.core.hold(gate, index);
        }
    }

    /// Polls that what is on its way may take, of this rank's largest messages in transfer: while
    /// the partner moves bytes it says nothing, and who sleeps meanwhile is woken too late. Asked
    /// before a sleep only.
    pub fn transfer_polls(&self) -> u32 {
        let moving = |operation: &Operation| match operation.side {
            OpSide::Send => operation.data.len,
            OpSide::Recv => operation.total,
        };
        let active = self
            .core
            .requests
            .iter()
            .take(WAITING_LOOK)
            .filter(|(_, operation)| operation.state == OpState::Active);
        let bytes = active
            .map(|(_, operation)| moving(operation))
            .max()
            .unwrap_or(0);
        (bytes.min(TRANSFER_BYTES_MAX) / BYTES_PER_POLL) as u32
    }

    /// The longest message that one packet carries with this operation's envelope, if at most so
    /// many bytes travel so.
    fn packet_max(&self, eager_max: usize, operation: &Operation) -> u64 {
        eager_max.min(self.limits.packet_max - prefix(operation)) as u64
    }

    /// What a rail can do may change (a peer starts later): asked again where it matters.
    fn look_again(&mut self, gate: u32, index: u32) {
        let operation = self.core.requests.peek(index);
        if operation.data.len >= ASK_FROM
            && let Some(reach) = self.rail.reach(operation.peer)
        {
            self.core.gates[gate as usize].reach = reach;
        }
    }

    /// Asks the strategy about the next envelope of a window and does it. `false`: it has to wait.
    pub(crate) fn send_from_window(&mut self, gate: u32, index: u32) -> bool {
        self.look_again(gate, index);
        let entry = &mut self.core.gates[gate as usize];
        entry.settle();
        let PeerCapabilities {
            eager_max,
            flow_max,
            ..
        } = entry.reach;
        let operation = self.core.requests.peek(index);
        let len = operation.data.len;
        let mut eager_max = self.packet_max(eager_max, operation);
        // What is longer than a packet travels with its envelope where there is room for all of its
        // pieces now.
        let pieces = prefix(operation) == 0
            && may_flow(operation, &self.core.priorities)
            && len <= (flow_max as u64).min(FLOW_MAX);
        if self.goes_ahead(operation.peer, operation.context, operation.tag, len) {
            eager_max = eager_max.min(AHEAD_FROM.into());
        } else if len > eager_max && pieces {
            let entry = &self.core.gates[gate as usize];
            let granted = entry.envelopes > 0 && entry.payload >= len;
            match self.rail.flow(operation.peer, len as usize) {
                Fragmentation::Pieces(..) => eager_max = len,
                Fragmentation::Soon if granted => {
                    self.core.pending = true;
                    return false;
                }
                _ => {}
            }
        }
        let entry = &self.core.gates[gate as usize];
        let view = WindowHead {
            envelopes: entry.envelopes,
            payload: entry.payload,
            eager_max,
            len,
        };
        let step = select::next(&view);
        let payload = match step {
            SendStep::Hold => return false,
            SendStep::Eager => operation.data.len,
            SendStep::Announce => 0,
        };
        match self.emit(index, step, 0) {
            EmitResult::Sent => {
                let entry = &mut self.core.gates[gate as usize];
                entry.envelopes -= 1;
                entry.payload -= payload;
                entry.announced += view.len - payload;
                true
            }
            EmitResult::Later => {
                self.core.pending = true;
                false
            }
            EmitResult::Gone => {
                self.give_up(gate);
                true
            }
        }
    }

    /// Sends the envelope of a send, with its payload or as an announcement.
    fn emit(&mut self, index: u32, step: SendStep, flags: u8) -> EmitResult {
        let operation = self.core.requests.peek(index);
        let (peer, synchronous) = (operation.peer, operation.synchronous);
        let result = match step {
            SendStep::Eager => self.emit_eager(index, flags),
            _ => self.emit_announcement(index, flags),
        };
        match result {
            Ok(true) => {
                // Who was offered the receiver's memory needs nothing of it.
                let announced = step != SendStep::Eager && !self.core.will_write(index);
                let answer = announced || synchronous;
                self.rail.nudge(
                    peer,
                    if answer {
                        WakeReason::Answer
                    } else {
                        WakeReason::Look
                    },
                );
                EmitResult::Sent
            }
            Ok(false) | Err(ClaimError::Full) => EmitResult::Later,
            Err(ClaimError::Gone) => EmitResult::Gone,
        }
    }

    fn emit_eager(&mut self, index: u32, flags: u8) -> Result<bool, ClaimError> {
        let name = self.core.wire_name(index);
        let operation = self.core.requests.at(index);
        let len = operation.data.len as usize;
        let prefix = prefix(operation);
        let header = PacketHeader {
            kind: if operation.synchronous {
                PacketKind::EagerSync
            } else {
                PacketKind::Eager
            } as u8,
            flags,
            shard: operation.origin.mark.0,
            len: (len + prefix) as u32,
            context: operation.context,
            source: operation.source,
            tag: operation.tag,
            sequence: operation.sequence,
        };
        if prefix == 0 && len <= self.limits.inline_max && operation.data.layout.is_none() {
            self.rail
                .send_inline(operation.peer, &header, operation.data.mem)?;
        } else if prefix == 0
            && flags == 0
            && may_flow(operation, &self.core.priorities)
            && len as u64 <= FLOW_MAX
            && let Fragmentation::Pieces(first, piece) = self.rail.flow(operation.peer, len)
        {
            let (peer, data) = (operation.peer, operation.data.clone());
            self.emit_flow(peer, header, &data, (first, piece))?;
        } else {
            let room = self
                .rail
                .claim(operation.peer, len + prefix, PacketClass::Data)?;
            if prefix != 0 {
                room.mem.write(0, &name.to_le_bytes());
            }
            let target = CopyTarget::room(&room, prefix);
            copy_out(&operation.data, 0, target, len, &mut self.core.bounce);
            self.rail.commit(room, &header);
        }
        if prefix == 0 {
            self.core.complete(index, None);
        } else {
            self.core.requests.at(index).state = OpState::Active;
        }
        Ok(true)
    }

    /// `Ok(false)`: the region is not ready.
    fn emit_announcement(&mut self, index: u32, flags: u8) -> Result<bool, ClaimError> {
        if !self.expose(index) {
            return Ok(false);
        }
        let send = self.core.wire_name(index);
        let operation = self.core.requests.at(index);
        let region = operation.region.as_deref().copied();
        let announce = Rts {
            total: operation.data.len,
            send,
            region,
        };
        let bytes = announce.encode();
        let header = PacketHeader {
            kind: PacketKind::Rts as u8,
            flags: flags | if region.is_some() { FLAG_REGION } else { 0 },
            shard: operation.origin.mark.0,
            len: bytes.len as u32,
            context: operation.context,
            source: operation.source,
            tag: operation.tag,
            sequence: operation.sequence,
        };
        let room = self
            .rail
            .claim(operation.peer, bytes.len, PacketClass::Data)?;
        room.mem.write(0, &bytes.bytes[..bytes.len]);
        self.rail.commit(room, &header);
        let operation = self.core.requests.at(index);
        operation.state = OpState::Active;
        operation.region = None;
        self.core.announced(index);
        Ok(true)
    }

    /// Exposes a send's data if reading it may pay. `false`: the rail has not answered yet.
    fn expose(&mut self, index: u32) -> bool {
        let token = self.core.wire_name(index);
        let operation = self.core.requests.at(index);
        if operation.remote == exposure::ASKED {
            return false;
        }
        if operation.remote == exposure::ANSWERED {
            return true;
        }
        // Whether reading beats packets is for the receiving side to say: it is the one that has
        // measured both.
        let readable = self
            .rail
            .reach(operation.peer)
            .is_some_and(|reach| reach.can_read);
        operation.remote = exposure::ANSWERED;
        if readable {
            match self.rail.expose(token, operation.peer, &operation.data) {
                ExposeResult::Ready(descriptor) => {
                    operation.exposed = true;
                    operation.region = Some(Box::new(descriptor));
                }
                ExposeResult::Later => {
                    operation.remote = exposure::ASKED;
                    return false;
                }
                ExposeResult::Unable => {}
            }
        }
        true
    }

    /// One pass over everything that is queued. `true` if anything moved.
    pub(crate) fn pump(&mut self) -> bool {
        self.pass(CopyPolicy::Now)
    }

    /// One pass, with long copies or without.
    #[cold]
    #[inline(never)]
    pub(crate) fn pass(&mut self, copies: CopyPolicy) -> bool {
        self.core.pending = false;
        for peer in std::mem::take(&mut self.core.lost) {
            self.rail.lost(peer);
        }
        self.refresh();
        self.withdraw_doubtful();
        self.core.settle_offers();
        let mut moved = self.flush();
        moved |= self.pump_taken();
        moved |= self.pump_windows();
        if copies == CopyPolicy::Now {
            moved |= self.pump_pulls();
            moved |= self.pump_pushes();
            moved |= self.pump_writes();
        } else {
            self.core.pending |= self.core.has_copies();
        }
        moved |= self.pump_pieces(copies);
        moved |= self.pump_revokes();
        moved |= self.flush();
        for (token, worked) in std::mem::take(&mut self.core.fetched) {
            self.rail.fetched(token, worked);
        }
        moved
    }

    /// The rail says that a peer is gone, or that no way leads to it.
    #[cold]
    pub(crate) fn give_up(&mut self, gate: u32) {
        match self.rail.unreached(self.core.gates[gate as usize].peer) {
            Some(shortage) => self.core.part(gate, Error::Unreached(Box::new(shortage))),
            None => self.core.lose(gate, GONE),
        }
    }

    /// Tells the sender of a kept message at once that it was received, and returns its credits:
    /// the call is over, and whoever polls next may do so much later.
    #[inline]
    pub(crate) fn answer(&mut self) {
        if !self.core.outbox.is_empty() {
            self.flush();
        }
    }

    /// Sends control packets, in order per peer.
    pub(crate) fn flush(&mut self) -> bool {
        let mut moved = false;
        let mut full: Vec<Peer> = Vec::new();
        for _ in 0..self.core.outbox.len() {
            let Some(control) = self.core.outbox.pop_front() else {
                break;
            };
            let claimed = if full.contains(&control.peer) {
                Err(ClaimError::Full)
            } else {
                self.rail
                    .claim(control.peer, control.bytes.len, PacketClass::Control)
            };
            match claimed {
                Ok(room) => {
                    room.mem.write(0, &control.bytes.bytes[..control.bytes.len]);
                    self.rail.commit(room, &control.header);
                    self.core.told(control.peer, &control.header);
                    if let Some(need) = need_of(&control.header) {
                        self.rail.nudge(control.peer, need);
                    }
                    moved = true;
                }
                Err(ClaimError::Full) => {
                    full.push(control.peer);
                    self.core.outbox.push_back(control);
                    self.core.pending = true;
                }
                Err(ClaimError::Gone) => {
                    if let Some(gate) = self.core.gate(control.peer) {
                        self.give_up(gate);
                        return true;
                    }
                }
            }
        }
        moved
    }

    /// Sends envelopes that receivers took out of sequence: they need no credits.
    fn pump_taken(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..self.core.taken.len() {
            let Some(index) = self.core.taken.pop_front() else {
                break;
            };
            let operation = self.core.requests.peek(index);
            if operation.state != OpState::Held {
                continue;
            }
            let Some(gate) = self.core.gate(operation.peer) else {
                continue;
            };
            let eager_max =
                self.packet_max(self.core.gates[gate as usize].reach.eager_max, operation);
            let step = if operation.data.len <= eager_max {
                SendStep::Eager
            } else {
                SendStep::Announce
            };
            match self.emit(index, step, FLAG_TAKEN) {
                EmitResult::Sent => moved = true,
                EmitResult::Later => {
                    self.core.taken.push_back(index);
                    self.core.pending = true;
                }
                EmitResult::Gone => self.give_up(gate),
            }
        }
        moved
    }

    /// A few pieces of the messages that were cleared to be sent by packets.
    fn pump_pieces(&mut self, copies: CopyPolicy) -> bool {
        let (mut moved, mut next) = (false, 0);
        while let Some((&peer, _)) = self.core.streams_out.range(next..).next() {
            next = peer + 1;
            match self.pieces_for(peer, copies) {
                Ok(sent) => moved |= sent,
                Err(_) => {
                    if let Some(gate) = self.core.gate(peer) {
                        self.give_up(gate);
                    }
                }
            }
        }
        moved
    }

    /// Those of one peer, the oldest first, until it has no room: all behind would ask in vain, and
    /// there may be thousands.
    fn pieces_for(&mut self, peer: Peer, copies: CopyPolicy) -> Result<bool, ClaimError> {
        let (mut moved, mut full, mut place) = (false, false, 0);
        while !full
            && let Some(&index) = self
                .core
                .streams_out
                .get(&peer)
                .and_then(|queue| queue.get(place))
        {
            let operation = self.core.requests.peek(index);
            // One that ended while the peer had no room may have left its place to another.
            let goes_on = operation.state == OpState::Active
                && operation.side == OpSide::Send
                && operation.peer == peer
                && operation.marked(OpFlag::Packets);
            if goes_on {
                let (sent, refused) = self.pieces_of(index, copies)?;
                (moved, full) = (moved | sent, refused);
            }
            let operation = self.core.requests.peek(index);
            if goes_on && operation.moved < operation.data.len {
                place += 1;
                continue;
            }
            if let Some(queue) = self.core.streams_out.get_mut(&peer) {
                queue.remove(place);
                if queue.is_empty() {
                    self.core.streams_out.remove(&peer);
                }
            }
            if goes_on {
                self.core.end(index, None);
            }
        }
        self.core.pending |= self.core.streams_out.contains_key(&peer);
        Ok(moved)
    }

    /// Sends pieces of one message until the pass's share or the room is used up: whether any left,
    /// and whether there was no room.
    fn pieces_of(&mut self, index: u32, copies: CopyPolicy) -> Result<(bool, bool), ClaimError> {
        let peer = self.core.requests.peek(index).peer;
        let chunk = self
            .rail
            .reach(peer)
            .map_or(4096, |reach| reach.pipeline_chunk)
            .clamp(1, self.limits.packet_max) as u64;
        // Where there are few, the first and the last piece are copied by one side alone.
        let chunk = (self.core.requests.peek(index).data.len / PIECES_AT_LEAST)
            .clamp(chunk.min(PIECE_MIN), chunk);
        let (watch, before) = (self.core.stopwatch(), self.core.requests.peek(index).moved);
        let (mut moved, mut full) = (false, false);
        let most = match copies {
            CopyPolicy::Now => PIECES_PER_PASS,
            CopyPolicy::Lifted => 1,
        };
        for _ in 0..most {
            let operation = self.core.requests.at(index);
            let from = operation.moved;
            let len = (operation.data.len - from).min(chunk) as usize;
            if len == 0 {
                break;
            }
            let room = match self.rail.claim(peer, len, PacketClass::Data) {
                Ok(room) => room,
                Err(ClaimError::Full) => {
                    full = true;
                    break;
                }
                Err(refusal) => return Err(refusal),
            };
            copy_out(
                &operation.data,
                from,
                CopyTarget::room(&room, 0),
                len,
                &mut self.core.bounce,
            );
            let header = PacketHeader {
                kind: PacketKind::Data as u8,
                flags: 0,
                shard: 0,
                len: len as u32,
                context: operation.remote as u32,
                source: (operation.remote >> 32) as u32,
                tag: from as u32 as i32,
                sequence: (from >> 32) as u32,
            };
            self.rail.commit(room, &header);
            operation.moved += len as u64;
            moved = true;
        }
        if moved {
            let bytes = self.core.requests.peek(index).moved - before;
            watch.moved(self.core.wire_name(index), peer, bytes);
            self.rail.nudge(peer, WakeReason::Answer);
        }
        Ok((moved, full))
    }

    /// Withdraws regions whose operations ended; the operations complete when nobody can touch the
    /// memory any more.
    fn pump_revokes(&mut self) -> bool {
        let mut moved = false;
        while let Some(index) = self.core.revokes.pop() {
            // A peer that repeats itself must not end an operation twice.
            if !self.core.requests.peek(index).exposed {
                continue;
            }
            let token = self.core.wire_name(index);
            if self.rail.revoke(token) == BulkStatus::Now {
                self.core.unexposed(index);
            }
            moved = true;
        }
        moved
    }
}
