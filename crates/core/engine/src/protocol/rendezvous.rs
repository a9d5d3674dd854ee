//! Rendezvous of large messages: requests to send, reading, letting the sender write, or both at
//! once; data packets are sent by `progress`.
//!
//! Called by passes of progress on both sides, and by the dispatch of packets. Each pass does one
//! bulk operation per message, so that others get their turn. A receive whose data the sender may
//! write ends when the transport says that nobody writes any more.

use crate::api::{Error, Peer};
use crate::core::Core;
use crate::engine::Engine;
use crate::faults::ended_early;
use crate::protocol::wire::{FLAG_FAILED, FLAG_REGION, FLAG_UNCALLED, Rtr, RtrFin, Rts};
use crate::requests::{OpFlag, OpSide, OpState, from_wire};
use crate::transport::{
    BulkStatus, ClaimError, ExposeResult, PacketClass, PacketHeader, PacketKind, RendezvousMode,
    Transport,
};
use garonne_sync::user::Data;

/// State of a region's exposure, kept in a send's `remote` until the receiver's name takes its
/// place. 0: the transport was not asked.
pub(crate) mod exposure {
    /// The transport answered; the operation's region says how.
    pub const ANSWERED: u64 = 1;
    /// The transport will answer.
    pub const ASKED: u64 = 2;
}

/// Next step of a rendezvous receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextTransfer {
    /// Nothing: it is somebody else's turn.
    Nothing,
    /// Something else than a read was done.
    Other,
    /// Read: first byte, and number of bytes.
    Read(u64, u64),
}

impl Core {
    /// The transport is to hear of the end of a fetch.
    #[cold]
    pub(crate) fn rendezvous_over(&mut self, index: u32, worked: bool) {
        let operation = self.requests.at(index);
        let chosen = !operation.has(OpFlag::ModeUnasked);
        operation.clear(OpFlag::ModeUnasked);
        if operation.mode.take().is_some() && chosen {
            let name = self.wire_name(index);
            self.transfers.push_finished(name, worked);
            self.has_work = true;
        }
    }

    /// A send may write to its receiver's memory.
    pub(crate) fn on_rtr(&mut self, peer: Peer, push: Rtr) -> Option<()> {
        let Some(index) = self.requests.find(from_wire(push.send)) else {
            return Some(());
        };
        let operation = self.requests.at(index);
        if operation.peer == peer && ended_early(operation) {
            return Some(());
        }
        // Each time is answered, and a receiver has no second one.
        let again = operation.has(OpFlag::RtrReceived);
        if operation.side != OpSide::Send
            || operation.peer != peer
            || operation.state != OpState::Active
            || again
        {
            return None;
        }
        operation.set(OpFlag::RtrReceived);
        operation.remote = push.recv;
        operation.moved = 0;
        operation.region = Some(Box::new(push.region));
        self.transfers.writes.push_once(index);
        self.has_work = true;
        Some(())
    }

    /// The sender wrote what it could take of a receive, or (`worked` is false) cannot write there.
    pub(crate) fn on_rtr_fin(&mut self, peer: Peer, pushed: &RtrFin, worked: bool) -> Option<()> {
        let Some(index) = self.requests.find(from_wire(pushed.recv)) else {
            return Some(());
        };
        let operation = self.requests.at(index);
        if operation.side != OpSide::Recv || operation.peer != peer {
            return None;
        }
        // A receive that took to packets meanwhile needs none of it.
        let shared = matches!(
            operation.mode,
            Some(RendezvousMode::Write | RendezvousMode::Share)
        );
        if operation.state != OpState::Active || !shared {
            return Some(());
        }
        if !worked {
            self.rendezvous_over(index, false);
            self.send_cts(index);
            return Some(());
        }
        operation.moved = operation
            .moved
            .checked_add(pushed.bytes)
            .filter(|&moved| moved <= operation.total)?;
        if operation.moved >= operation.total {
            // Whoever wrote all of it knows that its send is over.
            let needs_word = pushed.bytes < operation.total;
            self.rendezvous_ended(index, needs_word);
        }
        Some(())
    }

    /// Ends a rendezvous receive whose bytes are all here.
    pub(crate) fn rendezvous_ended(&mut self, index: u32, needs_word: bool) {
        let operation = self.requests.peek(index);
        let (peer, send) = (operation.peer, operation.remote);
        if needs_word {
            self.send_fin(peer, send);
        }
        self.end_operation(index, None);
    }

    /// A bulk read moved bytes, or failed: then packets must do.
    pub(crate) fn bulk_moved(&mut self, index: u32, result: Result<(), Error>) {
        let operation = self.requests.at(index);
        if operation.state != OpState::Active || operation.side != OpSide::Recv {
            return;
        }
        match result {
            Ok(()) if operation.moved >= operation.total => self.rendezvous_ended(index, true),
            Ok(()) => self.queue_read(index),
            Err(error @ (Error::Peer { .. } | Error::PeerMemory { .. })) => {
                self.end_operation(index, Some(error))
            }
            Err(_) => {
                self.rendezvous_over(index, false);
                self.send_cts(index);
            }
        }
    }
}

impl<R: Transport> Engine<R> {
    /// Sends the envelope of a send as a request to send. `Ok(false)`: the region is not ready.
    pub(crate) fn send_rts(&mut self, index: u32, flags: u8) -> Result<bool, ClaimError> {
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
            shard: operation.origin.digest.0,
            len: bytes.len as u32,
            context: operation.context,
            source: operation.source,
            tag: operation.tag,
            sequence: operation.sequence,
        };
        let room = self
            .transport
            .claim(operation.peer, bytes.len, PacketClass::Data)?;
        room.mem.write(0, &bytes.bytes[..bytes.len]);
        self.transport.commit(room, &header);
        let operation = self.core.requests.at(index);
        operation.state = OpState::Active;
        operation.region = None;
        self.core.on_rts_sent(index);
        Ok(true)
    }

    /// Exposes a send's data if reading it may pay. `false`: the transport has not answered yet.
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
            .transport
            .capabilities(operation.peer)
            .is_some_and(|reach| reach.can_read);
        operation.remote = exposure::ANSWERED;
        if readable {
            match self
                .transport
                .expose(token, operation.peer, &operation.data)
            {
                ExposeResult::Ready(descriptor) => {
                    operation.exposed = true;
                    operation.region = Some(Box::new(descriptor));
                }
                ExposeResult::Pending => {
                    operation.remote = exposure::ASKED;
                    return false;
                }
                ExposeResult::Unable => {}
            }
        }
        true
    }

    /// Does one bulk read for every rendezvous receive.
    pub(crate) fn progress_reads(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..self.core.transfers.reads.len() {
            let Some(index) = self.core.transfers.reads.pop() else {
                break;
            };
            moved |= match self.next_transfer(index) {
                NextTransfer::Nothing => false,
                NextTransfer::Other => true,
                NextTransfer::Read(from, len) => self.read_parts(index, from, len),
            };
        }
        moved
    }

    /// Next step of a rendezvous receive.
    pub(crate) fn next_transfer(&mut self, index: u32) -> NextTransfer {
        let operation = self.core.requests.peek(index);
        let (readable, offered) = (
            operation.region.is_some(),
            operation.has(OpFlag::EarlyRtrSent),
        );
        let goes_on = operation.state == OpState::Active && !operation.has(OpFlag::Ending);
        if !goes_on || operation.side != OpSide::Recv || !readable && !offered {
            return NextTransfer::Nothing;
        }
        let known = operation.mode;
        let way = match known {
            Some(way) => way,
            // Its sender writes it and will say so; what it has not taken yet, this side takes.
            None if !self.withdraw_offer(index) => {
                if !readable {
                    return NextTransfer::Nothing;
                }
                self.share_unasked(index)
            }
            None if !readable => {
                self.core.send_cts(index);
                return NextTransfer::Nothing;
            }
            None => self.choose_mode(index),
        };
        match way {
            RendezvousMode::Read => {
                let operation = self.core.requests.peek(index);
                let chunk = self
                    .transport
                    .capabilities(operation.peer)
                    .map_or(0, |reach| reach.read_chunk);
                let (from, total) = (operation.moved, operation.total);
                if from >= total {
                    // All is asked for, and the transport tells when it is there.
                    return NextTransfer::Nothing;
                }
                NextTransfer::Read(from, (total - from).min(chunk.max(1)))
            }
            RendezvousMode::Share | RendezvousMode::ShareLater => self.next_part(index),
            RendezvousMode::Write | RendezvousMode::Data => NextTransfer::Other,
        }
    }

    /// Decides how a message is fetched, and tells its sender if it has a part in it.
    fn choose_mode(&mut self, index: u32) -> RendezvousMode {
        let token = self.core.wire_name(index);
        let operation = self.core.requests.at(index);
        let (peer, total) = (operation.peer, operation.total);
        let mut way = self.transport.choose_rendezvous(token, peer, total);
        way = match way {
            RendezvousMode::ShareLater if self.send_rtr(index, way, FLAG_UNCALLED) => {
                RendezvousMode::Share
            }
            RendezvousMode::Write | RendezvousMode::Share if self.send_rtr(index, way, 0) => way,
            RendezvousMode::Write | RendezvousMode::Share | RendezvousMode::ShareLater => {
                RendezvousMode::Read
            }
            RendezvousMode::Read | RendezvousMode::Data => way,
        };
        self.core.requests.at(index).mode = Some(way);
        if way == RendezvousMode::Data {
            self.core.send_cts(index);
        }
        way
    }

    /// A message is fetched by both sides, without the transport's having been asked.
    pub(crate) fn share_unasked(&mut self, index: u32) -> RendezvousMode {
        let operation = self.core.requests.at(index);
        operation.mode = Some(RendezvousMode::Share);
        operation.set(OpFlag::ModeUnasked);
        RendezvousMode::Share
    }

    /// Lets the sender of a rendezvous message write to its receive. `false`: that cannot be.
    pub(crate) fn send_rtr(&mut self, index: u32, way: RendezvousMode, flags: u8) -> bool {
        let token = self.core.wire_name(index);
        let operation = self.core.requests.at(index);
        let peer = operation.peer;
        // The data may be longer than the message.
        let data = Data {
            len: operation.total,
            ..operation.data.clone()
        };
        let Some(region) = self.transport.share_region(token, peer, &data, way) else {
            return false;
        };
        operation.exposed = true;
        let push = Rtr {
            send: operation.remote,
            recv: token,
            region,
        };
        let header = PacketHeader {
            kind: PacketKind::Rtr as u8,
            flags,
            ..PacketHeader::default()
        };
        self.core.queue_control(peer, header, push.encode());
        // At once: the sender works while this side does its part, or something else.
        self.flush_control();
        true
    }

    /// The next part of a message that its sender writes at the same time.
    fn next_part(&mut self, index: u32) -> NextTransfer {
        let token = self.core.wire_name(index);
        let total = self.core.requests.peek(index).total;
        match self.transport.take_part(token, total) {
            Ok(Some((from, len))) => NextTransfer::Read(from, len),
            // The sender's word will tell when its parts are done.
            Ok(None) => NextTransfer::Nothing,
            Err(error) => {
                self.core.bulk_moved(index, Err(error));
                NextTransfer::Other
            }
        }
    }

    /// Reads a part, and further ones of a message that is shared: all of what one read would be,
    /// so that as many calls end it.
    fn read_parts(&mut self, index: u32, from: u64, len: u64) -> bool {
        let mut moved = self.read_region(index, from, len);
        let operation = self.core.requests.peek(index);
        let most = self
            .transport
            .capabilities(operation.peer)
            .map_or(0, |reach| reach.read_chunk);
        let mut done = len;
        while done < most && self.core.transfers.reads.pop_last(index) {
            if self.core.requests.peek(index).mode != Some(RendezvousMode::Share) {
                self.core.transfers.reads.push(index);
                break;
            }
            let NextTransfer::Read(from, len) = self.next_transfer(index) else {
                break;
            };
            moved |= self.read_region(index, from, len);
            done += len;
        }
        moved
    }

    /// Reads some bytes of a message from its sender's region.
    pub(crate) fn read_region(&mut self, index: u32, from: u64, len: u64) -> bool {
        let watch = self.core.stopwatch();
        let token = self.core.wire_name(index);
        let operation = self.core.requests.at(index);
        let Some(region) = operation.region.as_deref() else {
            return false;
        };
        let result = self
            .transport
            .read(operation.bulk(token, region, from, len));
        let operation = self.core.requests.at(index);
        if result == Ok(BulkStatus::Done) {
            watch.moved(token, operation.peer, len);
        }
        match result {
            Ok(BulkStatus::Done) => {
                operation.moved += len;
                self.core.bulk_moved(index, Ok(()));
            }
            Ok(BulkStatus::Pending) => {
                operation.moved += len;
                // Until its end is told the transport may write there, whatever becomes of the
                // operation.
                operation.copies += 1;
            }
            Err(error) => self.core.bulk_moved(index, Err(error)),
        }
        true
    }

    /// Writes one part of every message that this side may write to its receiver's memory.
    pub(crate) fn progress_rtr_sends(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..self.core.transfers.writes.len() {
            let Some(index) = self.core.transfers.writes.pop() else {
                break;
            };
            let watch = self.core.stopwatch();
            let token = self.core.wire_name(index);
            let operation = self.core.requests.at(index);
            let (OpState::Active, OpSide::Send, Some(region), false) = (
                operation.state,
                operation.side,
                operation.region.as_deref(),
                operation.has(OpFlag::Ending),
            ) else {
                continue;
            };
            moved = true;
            let result =
                self.transport
                    .write_part(operation.bulk(token, region, 0, operation.data.len));
            let operation = self.core.requests.at(index);
            if let Ok(step) = &result {
                operation.moved += step.bytes;
                watch.moved(token, operation.peer, step.bytes);
                if !step.last {
                    self.core.transfers.writes.push(index);
                    self.core.has_work = true;
                    continue;
                }
                if operation.copies > 0 {
                    // The last copy to land tells.
                    continue;
                }
            }
            self.end_rtr_send(index, result.is_ok());
        }
        moved
    }

    /// Tells the receiver what was written to its memory.
    pub(crate) fn end_rtr_send(&mut self, index: u32, worked: bool) {
        if self.core.requests.peek(index).has(OpFlag::EarlyWrite) {
            return self.end_early_write(index, worked);
        }
        let operation = self.core.requests.at(index);
        operation.region = None;
        let (peer, bytes, recv) = (operation.peer, operation.moved, operation.remote);
        let whole = worked && bytes >= operation.data.len;
        let header = PacketHeader {
            kind: PacketKind::RtrFin as u8,
            flags: if worked { 0 } else { FLAG_FAILED },
            ..PacketHeader::default()
        };
        if bytes > 0 || !worked {
            self.core
                .queue_control(peer, header, RtrFin { recv, bytes }.encode());
        }
        if whole {
            self.core.end_operation(index, None);
        }
    }
}
