//! Progress: moves what is queued (control packets, windows, region reads, data packets,
//! revocations).
//!
//! Everything here needs the transport. Each pass is bounded (packets per peer, one bulk read per
//! message), so that a caller who only wants to look gets its turn. What does not fit stays queued
//! and sets `has_work`.

use crate::api::{Error, Peer};
use crate::copy::{CopyTarget, copy_out};
use crate::engine::Engine;
use crate::limits::{
    BYTES_PER_POLL, CAPABILITIES_FROM, EARLY_RTR_FROM, FRAGMENTED_MAX, PENDING_SCAN_MAX, PIECE_MIN,
    PIECES_AT_LEAST, PIECES_PER_PASS, TRANSFER_BYTES_MAX,
};
use crate::peer::sequences::stream_key;
use crate::peer::state::GONE;
use crate::protocol::eager::{may_flow, prefix};
use crate::protocol::select::{self, SendStep, WindowHead};
use crate::protocol::wire::FLAG_TAKEN;
use crate::requests::{OpFlag, OpSide, OpState, Operation};
use crate::transport::{
    BulkStatus, ClaimError, Fragmentation, PacketClass, PacketHeader, PacketKind, PeerCapabilities,
    Transport, WakeReason, need_of,
};

/// Treatment of long copies in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyPolicy {
    /// Long copies are carried out.
    Now,
    /// Long copies are left to [`Engine::take_copy_job`].
    Offloaded,
}

/// Outcome of sending an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EmitResult {
    Sent,
    /// No room on the transport, or the region is not ready.
    Later,
    Gone,
}

impl<R: Transport> Engine<R> {
    /// Numbers a send's envelope and sends it, or lets it join the window.
    pub(crate) fn submit(&mut self, index: u32) {
        let operation = self.core.requests.peek(index);
        let (context, peer, tag) = (operation.context, operation.peer, operation.tag);
        let stream = self
            .core
            .sequences
            .find_or_insert(stream_key(context, peer));
        let stream = self.core.sequences.get_mut(stream);
        let sequence = stream.next_tx() as u32;
        stream.count_tx(tag);
        self.core.requests.at(index).sequence = sequence;
        let Some(peer_index) = self.core.peer_index(peer) else {
            return;
        };
        if self.core.peers[peer_index as usize].window_len != 0
            || !self.send_from_window(peer_index, index)
        {
            self.core.join_window(peer_index, index);
        }
    }

    /// Polls that what is on its way may take, of this rank's largest messages in transfer: while
    /// the partner moves bytes it says nothing, and who sleeps meanwhile is woken too late. Asked
    /// before a sleep only.
    pub fn transfer_polls(&self) -> u32 {
        let moving = |operation: &Operation| match operation.side {
            OpSide::Send | OpSide::Access => operation.data.len,
            OpSide::Recv => operation.total,
        };
        let active = self
            .core
            .requests
            .iter()
            .take(PENDING_SCAN_MAX)
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

    /// Asks the transport again for its capabilities, which may change (a peer starts later), for
    /// long messages.
    fn refresh_reach(&mut self, peer_index: u32, index: u32) {
        let operation = self.core.requests.peek(index);
        if operation.data.len >= CAPABILITIES_FROM
            && let Some(reach) = self.transport.capabilities(operation.peer)
        {
            self.core.peers[peer_index as usize].capabilities = reach;
        }
    }

    /// Asks the strategy about the next envelope of a window and does it. `false`: it has to wait.
    pub(crate) fn send_from_window(&mut self, peer_index: u32, index: u32) -> bool {
        self.refresh_reach(peer_index, index);
        let entry = &mut self.core.peers[peer_index as usize];
        entry.close_batch();
        let PeerCapabilities {
            eager_max,
            fragmented_max: flow_max,
            ..
        } = entry.capabilities;
        let operation = self.core.requests.peek(index);
        let len = operation.data.len;
        let mut eager_max = self.packet_max(eager_max, operation);
        // What is longer than a packet travels with its envelope where there is room for all of its
        // pieces now.
        let pieces = prefix(operation) == 0
            && may_flow(operation, self.core.send_order.priorities())
            && len <= (flow_max as u64).min(FRAGMENTED_MAX);
        if self.uses_early_write(operation.peer, operation.context, operation.tag, len) {
            eager_max = eager_max.min(EARLY_RTR_FROM.into());
        } else if len > eager_max && pieces {
            let entry = &self.core.peers[peer_index as usize];
            let granted = entry.envelopes > 0 && entry.payload >= len;
            match self.transport.fragmentation(operation.peer, len as usize) {
                Fragmentation::Fragments(..) => eager_max = len,
                Fragmentation::Later if granted => {
                    self.core.has_work = true;
                    return false;
                }
                _ => {}
            }
        }
        let entry = &self.core.peers[peer_index as usize];
        let view = WindowHead {
            envelopes: entry.envelopes,
            payload: entry.payload,
            eager_max,
            len,
        };
        let step = select::next(&view);
        let payload = match step {
            SendStep::Wait => return false,
            SendStep::Eager => operation.data.len,
            SendStep::Rts => 0,
        };
        match self.send_envelope(index, step, 0) {
            EmitResult::Sent => {
                let entry = &mut self.core.peers[peer_index as usize];
                entry.envelopes -= 1;
                entry.payload -= payload;
                entry.announced += view.len - payload;
                true
            }
            EmitResult::Later => {
                self.core.has_work = true;
                false
            }
            EmitResult::Gone => {
                self.peer_unusable(peer_index);
                true
            }
        }
    }

    /// Sends the envelope of a send, with its payload or as a request to send.
    fn send_envelope(&mut self, index: u32, step: SendStep, flags: u8) -> EmitResult {
        let operation = self.core.requests.peek(index);
        let (peer, synchronous) = (operation.peer, operation.synchronous);
        let result = match step {
            SendStep::Eager => self.send_eager(index, flags),
            _ => self.send_rts(index, flags),
        };
        match result {
            Ok(true) => {
                // Who was offered the receiver's memory needs nothing of it.
                let announced = step != SendStep::Eager && !self.core.will_write(index);
                let answer = announced || synchronous;
                self.transport.wake_progress(
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

    /// Makes one pass over everything that is queued. Returns whether anything moved.
    pub(crate) fn progress_queued(&mut self) -> bool {
        self.progress_pass(CopyPolicy::Now)
    }

    /// Makes one pass, with long copies or without.
    #[cold]
    #[inline(never)]
    pub(crate) fn progress_pass(&mut self, copies: CopyPolicy) -> bool {
        self.core.has_work = false;
        for peer in self.core.peers.take_lost() {
            self.transport.peer_lost(peer);
        }
        self.refresh_capabilities();
        self.withdraw_blocked_offers();
        self.core.settle_probe_hits();
        let mut moved = self.flush_control();
        moved |= self.progress_pulled();
        moved |= self.progress_windows();
        if copies == CopyPolicy::Now {
            moved |= self.progress_reads();
            moved |= self.progress_rtr_sends();
            moved |= self.progress_early_writes();
        } else {
            self.core.has_work |= self.core.has_copies();
        }
        moved |= self.progress_data(copies);
        moved |= self.one_sided().progress();
        moved |= self.progress_revokes();
        moved |= self.flush_control();
        for (token, worked) in self.core.transfers.take_finished() {
            self.transport.rendezvous_done(token, worked);
        }
        moved
    }

    /// The transport says that a peer is gone, or that no way leads to it.
    #[cold]
    pub(crate) fn peer_unusable(&mut self, peer_index: u32) {
        match self
            .transport
            .unreachable_cause(self.core.peers[peer_index as usize].peer)
        {
            Some(shortage) => self
                .core
                .fail_peer_with(peer_index, Error::Unreached(Box::new(shortage))),
            None => self.core.fail_peer(peer_index, GONE),
        }
    }

    /// Tells the sender of an unexpected message at once that it was received, and returns its
    /// credits: the call is over, and whoever polls next may do so much later.
    #[inline]
    pub(crate) fn flush_answers(&mut self) {
        if !self.core.control.is_empty() {
            self.flush_control();
        }
    }

    /// Sends control packets, in order per peer.
    pub(crate) fn flush_control(&mut self) -> bool {
        let mut moved = false;
        let mut full: Vec<Peer> = Vec::new();
        for _ in 0..self.core.control.len() {
            let Some(control) = self.core.control.pop() else {
                break;
            };
            let claimed = if full.contains(&control.peer) {
                Err(ClaimError::Full)
            } else {
                self.transport
                    .claim(control.peer, control.bytes.len, PacketClass::Control)
            };
            match claimed {
                Ok(room) => {
                    room.mem.write(0, &control.bytes.bytes[..control.bytes.len]);
                    self.transport.commit(room, &control.header);
                    self.core.control_left(control.peer, &control.header);
                    if let Some(need) = need_of(&control.header) {
                        self.transport.wake_progress(control.peer, need);
                    }
                    moved = true;
                }
                Err(ClaimError::Full) => {
                    full.push(control.peer);
                    self.core.control.push(control);
                    self.core.has_work = true;
                }
                Err(ClaimError::Gone) => {
                    if let Some(peer_index) = self.core.peer_index(control.peer) {
                        self.peer_unusable(peer_index);
                        return true;
                    }
                }
            }
        }
        moved
    }

    /// Sends envelopes that receivers took out of sequence: they need no credits.
    fn progress_pulled(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..self.core.windows.pulled_len() {
            let Some(index) = self.core.windows.pop_pulled() else {
                break;
            };
            let operation = self.core.requests.peek(index);
            if operation.state != OpState::InWindow {
                continue;
            }
            let Some(peer_index) = self.core.peer_index(operation.peer) else {
                continue;
            };
            let eager_max = self.packet_max(
                self.core.peers[peer_index as usize].capabilities.eager_max,
                operation,
            );
            let step = if operation.data.len <= eager_max {
                SendStep::Eager
            } else {
                SendStep::Rts
            };
            match self.send_envelope(index, step, FLAG_TAKEN) {
                EmitResult::Sent => moved = true,
                EmitResult::Later => {
                    self.core.windows.push_pulled(index);
                    self.core.has_work = true;
                }
                EmitResult::Gone => self.peer_unusable(peer_index),
            }
        }
        moved
    }

    /// A few pieces of the messages that were cleared to be sent by packets.
    fn progress_data(&mut self, copies: CopyPolicy) -> bool {
        let (mut moved, mut next) = (false, 0);
        while let Some(peer) = self.core.transfers.packets.next_peer(next) {
            next = peer + 1;
            match self.send_data_to(peer, copies) {
                Ok(sent) => moved |= sent,
                Err(_) => {
                    if let Some(peer_index) = self.core.peer_index(peer) {
                        self.peer_unusable(peer_index);
                    }
                }
            }
        }
        moved
    }

    /// Sends data packets to one peer, oldest send first, until there is no room. Later sends would
    /// ask in vain, and there may be thousands.
    fn send_data_to(&mut self, peer: Peer, copies: CopyPolicy) -> Result<bool, ClaimError> {
        let (mut moved, mut full, mut place) = (false, false, 0);
        while !full && let Some(index) = self.core.transfers.packets.get(peer, place) {
            let operation = self.core.requests.peek(index);
            // One that ended while the peer had no room may have left its place to another.
            let goes_on = operation.state == OpState::Active
                && operation.side == OpSide::Send
                && operation.peer == peer
                && operation.has(OpFlag::DataRequested);
            if goes_on {
                let (sent, refused) = self.send_data_of(index, copies)?;
                (moved, full) = (moved | sent, refused);
            }
            let operation = self.core.requests.peek(index);
            if goes_on && operation.moved < operation.data.len {
                place += 1;
                continue;
            }
            self.core.transfers.packets.remove(peer, place);
            if goes_on {
                self.core.end_operation(index, None);
            }
        }
        self.core.has_work |= self.core.transfers.packets.has(peer);
        Ok(moved)
    }

    /// Sends pieces of one message until the pass's share or the room is used up: whether any left,
    /// and whether there was no room.
    fn send_data_of(&mut self, index: u32, copies: CopyPolicy) -> Result<(bool, bool), ClaimError> {
        let peer = self.core.requests.peek(index).peer;
        let chunk = self
            .transport
            .capabilities(peer)
            .map_or(4096, |reach| reach.pipeline_chunk)
            .clamp(1, self.limits.packet_max) as u64;
        // Where there are few, the first and the last piece are copied by one side alone.
        let chunk = (self.core.requests.peek(index).data.len / PIECES_AT_LEAST)
            .clamp(chunk.min(PIECE_MIN), chunk);
        let (watch, before) = (self.core.stopwatch(), self.core.requests.peek(index).moved);
        let (mut moved, mut full) = (false, false);
        let most = match copies {
            CopyPolicy::Now => PIECES_PER_PASS,
            CopyPolicy::Offloaded => 1,
        };
        for _ in 0..most {
            let operation = self.core.requests.at(index);
            let from = operation.moved;
            let len = (operation.data.len - from).min(chunk) as usize;
            if len == 0 {
                break;
            }
            let room = match self.transport.claim(peer, len, PacketClass::Data) {
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
            self.transport.commit(room, &header);
            operation.moved += len as u64;
            moved = true;
        }
        if moved {
            let bytes = self.core.requests.peek(index).moved - before;
            watch.moved(self.core.wire_name(index), peer, bytes);
            self.transport.wake_progress(peer, WakeReason::Answer);
        }
        Ok((moved, full))
    }

    /// Withdraws regions whose operations ended; the operations complete when nobody can touch the
    /// memory any more.
    fn progress_revokes(&mut self) -> bool {
        let mut moved = false;
        while let Some(index) = self.core.transfers.pop_revoke() {
            // A peer that repeats itself must not end an operation twice.
            if !self.core.requests.peek(index).exposed {
                continue;
            }
            let token = self.core.wire_name(index);
            if self.transport.revoke(token) == BulkStatus::Done {
                self.core.unexposed(index);
            }
            moved = true;
        }
        moved
    }
}
