//! Fetching announced messages: by reading, by letting the sender write, or by both at once;
//! packets are the pump's.
//!
//! Called by the pump on both sides, and by the dispatch of packets. Each pass does one bulk
//! operation per message, so that others get their turn. A receive whose data the sender may write
//! ends when the rail says that nobody writes any more.

use crate::api::{Error, Peer};
use crate::core::Core;
use crate::engine::Engine;
use crate::protocol::wire::{FLAG_FAILED, FLAG_UNCALLED, Rtr, RtrFin};
use crate::requests::{OpFlag, OpSide, OpState, from_wire};
use crate::transport::{BulkStatus, PacketHeader, PacketKind, RendezvousMode, Transport};
use garonne_sync::user::Data;

/// What a message that is fetched does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextTransfer {
    /// Nothing: it is somebody else's turn.
    Idle,
    /// Something else than a read was done.
    Moved,
    /// It reads so many bytes, from there on.
    Read(u64, u64),
}

impl Core {
    /// The rail is to hear of the end of a fetch.
    #[cold]
    pub(crate) fn fetch_is_over(&mut self, index: u32, worked: bool) {
        let operation = self.requests.at(index);
        let chosen = !operation.marked(OpFlag::Unasked);
        operation.unmark(OpFlag::Unasked);
        if operation.fetching.take().is_some() && chosen {
            let name = self.wire_name(index);
            self.fetched.push((name, worked));
            self.pending = true;
        }
    }

    /// A send may write to its receiver's memory.
    pub(crate) fn may_push(&mut self, peer: Peer, push: Rtr) -> Option<()> {
        let Some(index) = self.requests.find(from_wire(push.send)) else {
            return Some(());
        };
        let operation = self.requests.at(index);
        // Each time is answered, and a receiver has no second one.
        let again = operation.marked(OpFlag::Lent);
        if operation.side != OpSide::Send
            || operation.peer != peer
            || operation.state != OpState::Active
            || again
        {
            return None;
        }
        operation.mark(OpFlag::Lent);
        operation.remote = push.recv;
        operation.moved = 0;
        operation.region = Some(Box::new(push.region));
        if !self.pushes.contains(&index) {
            self.pushes.push_back(index);
        }
        self.pending = true;
        Some(())
    }

    /// The sender wrote what it could take of a receive, or (`worked` is false) cannot write there.
    pub(crate) fn pushed(&mut self, peer: Peer, pushed: &RtrFin, worked: bool) -> Option<()> {
        let Some(index) = self.requests.find(from_wire(pushed.recv)) else {
            return Some(());
        };
        let operation = self.requests.at(index);
        if operation.side != OpSide::Recv || operation.peer != peer {
            return None;
        }
        // A receive that took to packets meanwhile needs none of it.
        let shared = matches!(
            operation.fetching,
            Some(RendezvousMode::Push | RendezvousMode::Share)
        );
        if operation.state != OpState::Active || !shared {
            return Some(());
        }
        if !worked {
            self.fetch_is_over(index, false);
            self.ask_for_packets(index);
            return Some(());
        }
        operation.moved = operation
            .moved
            .checked_add(pushed.bytes)
            .filter(|&moved| moved <= operation.total)?;
        if operation.moved >= operation.total {
            // Whoever wrote all of it knows that its send is over.
            let needs_word = pushed.bytes < operation.total;
            self.fetch_ended(index, needs_word);
        }
        Some(())
    }

    /// All bytes of an announced message are here.
    pub(crate) fn fetch_ended(&mut self, index: u32, needs_word: bool) {
        let operation = self.requests.peek(index);
        let (peer, send) = (operation.peer, operation.remote);
        if needs_word {
            self.finish(peer, send);
        }
        self.end(index, None);
    }

    /// A bulk read moved bytes, or failed: then packets must do.
    pub(crate) fn bulk_moved(&mut self, index: u32, result: Result<(), Error>) {
        let operation = self.requests.at(index);
        if operation.state != OpState::Active || operation.side != OpSide::Recv {
            return;
        }
        match result {
            Ok(()) if operation.moved >= operation.total => self.fetch_ended(index, true),
            Ok(()) => self.pull_on(index),
            Err(error @ (Error::Peer { .. } | Error::PeerMemory { .. })) => {
                self.end(index, Some(error))
            }
            Err(_) => {
                self.fetch_is_over(index, false);
                self.ask_for_packets(index);
            }
        }
    }
}

impl<R: Transport> Engine<R> {
    /// One bulk read for every message that is fetched.
    pub(crate) fn pump_pulls(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..self.core.pulls.len() {
            let Some(index) = self.core.pulls.pop_front() else {
                break;
            };
            moved |= match self.pull_turn(index) {
                NextTransfer::Idle => false,
                NextTransfer::Moved => true,
                NextTransfer::Read(from, len) => self.pull_parts(index, from, len),
            };
        }
        moved
    }

    /// What a message that is fetched does next.
    pub(crate) fn pull_turn(&mut self, index: u32) -> NextTransfer {
        let operation = self.core.requests.peek(index);
        let (readable, offered) = (
            operation.region.is_some(),
            operation.marked(OpFlag::Announced),
        );
        let goes_on = operation.state == OpState::Active && !operation.marked(OpFlag::Ending);
        if !goes_on || operation.side != OpSide::Recv || !readable && !offered {
            return NextTransfer::Idle;
        }
        let known = operation.fetching;
        let way = match known {
            Some(way) => way,
            // Its sender writes it and will say so; what it has not taken yet, this side takes.
            None if !self.withdraw(index) => {
                if !readable {
                    return NextTransfer::Idle;
                }
                self.fetch_unasked(index)
            }
            None if !readable => {
                self.core.ask_for_packets(index);
                return NextTransfer::Idle;
            }
            None => self.begin_fetch(index),
        };
        match way {
            RendezvousMode::Read => {
                let operation = self.core.requests.peek(index);
                let chunk = self
                    .rail
                    .reach(operation.peer)
                    .map_or(0, |reach| reach.read_chunk);
                let (from, total) = (operation.moved, operation.total);
                if from >= total {
                    // All is asked for, and the rail tells when it is there.
                    return NextTransfer::Idle;
                }
                NextTransfer::Read(from, (total - from).min(chunk.max(1)))
            }
            RendezvousMode::Share | RendezvousMode::Late => self.next_part(index),
            RendezvousMode::Push | RendezvousMode::Packets => NextTransfer::Moved,
        }
    }

    /// Decides how a message is fetched, and tells its sender if it has a part in it.
    fn begin_fetch(&mut self, index: u32) -> RendezvousMode {
        let token = self.core.wire_name(index);
        let operation = self.core.requests.at(index);
        let (peer, total) = (operation.peer, operation.total);
        let mut way = self.rail.fetch(token, peer, total);
        way = match way {
            RendezvousMode::Late if self.share_with_sender(index, way, FLAG_UNCALLED) => {
                RendezvousMode::Share
            }
            RendezvousMode::Push | RendezvousMode::Share
                if self.share_with_sender(index, way, 0) =>
            {
                way
            }
            RendezvousMode::Push | RendezvousMode::Share | RendezvousMode::Late => {
                RendezvousMode::Read
            }
            RendezvousMode::Read | RendezvousMode::Packets => way,
        };
        self.core.requests.at(index).fetching = Some(way);
        if way == RendezvousMode::Packets {
            self.core.ask_for_packets(index);
        }
        way
    }

    /// A message is fetched by both sides, without the rail's having been asked.
    pub(crate) fn fetch_unasked(&mut self, index: u32) -> RendezvousMode {
        let operation = self.core.requests.at(index);
        operation.fetching = Some(RendezvousMode::Share);
        operation.mark(OpFlag::Unasked);
        RendezvousMode::Share
    }

    /// Lets the sender of an announced message write to its receive. `false`: that cannot be.
    pub(crate) fn share_with_sender(&mut self, index: u32, way: RendezvousMode, flags: u8) -> bool {
        let token = self.core.wire_name(index);
        let operation = self.core.requests.at(index);
        let peer = operation.peer;
        // The data may be longer than the message.
        let data = Data {
            len: operation.total,
            ..operation.data.clone()
        };
        let Some(region) = self.rail.share(token, peer, &data, way) else {
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
        self.core.tell(peer, header, push.encode());
        // At once: the sender works while this side does its part, or something else.
        self.flush();
        true
    }

    /// The next part of a message that its sender writes at the same time.
    fn next_part(&mut self, index: u32) -> NextTransfer {
        let token = self.core.wire_name(index);
        let total = self.core.requests.peek(index).total;
        match self.rail.take_part(token, total) {
            Ok(Some((from, len))) => NextTransfer::Read(from, len),
            // The sender's word will tell when its parts are done.
            Ok(None) => NextTransfer::Idle,
            Err(error) => {
                self.core.bulk_moved(index, Err(error));
                NextTransfer::Moved
            }
        }
    }

    /// Reads a part, and further ones of a message that is shared: all of what one read would be,
    /// so that as many calls end it.
    fn pull_parts(&mut self, index: u32, from: u64, len: u64) -> bool {
        let mut moved = self.pull(index, from, len);
        let operation = self.core.requests.peek(index);
        let most = self
            .rail
            .reach(operation.peer)
            .map_or(0, |reach| reach.read_chunk);
        let mut done = len;
        while done < most && self.core.pulls.back() == Some(&index) {
            if self.core.requests.peek(index).fetching != Some(RendezvousMode::Share) {
                break;
            }
            self.core.pulls.pop_back();
            let NextTransfer::Read(from, len) = self.pull_turn(index) else {
                break;
            };
            moved |= self.pull(index, from, len);
            done += len;
        }
        moved
    }

    /// Reads some bytes of a message from its sender's region.
    pub(crate) fn pull(&mut self, index: u32, from: u64, len: u64) -> bool {
        let watch = self.core.stopwatch();
        let token = self.core.wire_name(index);
        let operation = self.core.requests.at(index);
        let Some(region) = operation.region.as_deref() else {
            return false;
        };
        let result = self.rail.read(operation.bulk(token, region, from, len));
        let operation = self.core.requests.at(index);
        if result == Ok(BulkStatus::Now) {
            watch.moved(token, operation.peer, len);
        }
        match result {
            Ok(BulkStatus::Now) => {
                operation.moved += len;
                self.core.bulk_moved(index, Ok(()));
            }
            Ok(BulkStatus::Later) => {
                operation.moved += len;
                // Until its end is told the rail may write there, whatever becomes of the
                // operation.
                operation.flights += 1;
            }
            Err(error) => self.core.bulk_moved(index, Err(error)),
        }
        true
    }

    /// One part of every message that this side may write to its receiver's memory.
    pub(crate) fn pump_pushes(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..self.core.pushes.len() {
            let Some(index) = self.core.pushes.pop_front() else {
                break;
            };
            let watch = self.core.stopwatch();
            let token = self.core.wire_name(index);
            let operation = self.core.requests.at(index);
            let (OpState::Active, OpSide::Send, Some(region), false) = (
                operation.state,
                operation.side,
                operation.region.as_deref(),
                operation.marked(OpFlag::Ending),
            ) else {
                continue;
            };
            moved = true;
            let result = self
                .rail
                .push_part(operation.bulk(token, region, 0, operation.data.len));
            let operation = self.core.requests.at(index);
            if let Ok(step) = &result {
                operation.moved += step.bytes;
                watch.moved(token, operation.peer, step.bytes);
                if !step.last {
                    self.core.pushes.push_back(index);
                    self.core.pending = true;
                    continue;
                }
                if operation.flights > 0 {
                    // The last copy to land tells.
                    continue;
                }
            }
            self.end_push(index, result.is_ok());
        }
        moved
    }

    /// Tells the receiver what was written to its memory.
    pub(crate) fn end_push(&mut self, index: u32, worked: bool) {
        if self.core.requests.peek(index).marked(OpFlag::Ahead) {
            return self.end_ahead(index, worked);
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
                .tell(peer, header, RtrFin { recv, bytes }.encode());
        }
        if whole {
            self.core.end(index, None);
        }
    }
}
