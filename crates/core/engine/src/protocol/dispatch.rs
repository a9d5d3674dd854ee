//! Packets in: validation of what peers send, and the dispatch to the core.
//!
//! Called by the transport's poll. Everything in a packet is a claim of its sender: lengths, names
//! and numbers are checked, and a peer that breaks the format is treated as gone, which bounds what
//! it can do to its own messages.

use crate::api::{Error, Peer, TypeDigest, UnreachableCause};
use crate::copy::copy_in_with;
use crate::core::{Core, IncomingPayload};
use crate::faults::ended_early;
use crate::key_map::NONE;
use crate::matching::unexpected::MessageInfo;
use crate::observe::events::EventKind;
use crate::peer::reorder::{Reorder, ReservedFor};
use crate::peer::sequences::{Sequence, stream_key, widen};
use crate::peer::state::{DISCONNECTED, GONE};
use crate::protocol::wire::{
    ControlPayload, Cts, EarlyFin, EarlyRtr, FLAG_FAILED, FLAG_TAKEN, Fin, Rtr, RtrFin, Rts,
};
use crate::requests::{OpFlag, OpSide, OpState, from_wire, to_wire};
use crate::transport::{
    BulkToken, PacketHeader, PacketKind, PeerCapabilities, PollSink, RegionDescriptor,
};
use garonne_sync::copy::stores_for_message;
use garonne_sync::user::UserMem;

/// Capabilities assumed of a peer until the transport was asked.
pub(crate) const UNKNOWN: PeerCapabilities = PeerCapabilities {
    eager_max: 0,
    fragmented_max: 0,
    can_read: false,
    can_write: false,
    pipeline_chunk: 4096,
    read_chunk: u64::MAX,
};

impl PollSink for Core {
    #[inline(always)]
    fn on_packet(&mut self, peer: Peer, header: PacketHeader, payload: UserMem, len: usize) {
        self.settle_recv_channels();
        let meta = MessageInfo {
            context: header.context,
            peer,
            source: header.source,
            tag: header.tag,
            sequence: header.sequence,
            len: len as u64,
            waiting: None,
            credited: true,
            // Not of a head, which says so.
            digest: TypeDigest(header.shard),
        };
        if !self.receive_expected_packet(&header, &meta, payload) {
            self.dispatch(header, meta, payload);
        }
    }

    fn fragment_target(&mut self, peer: Peer, offset: u64, len: usize) -> Option<UserMem> {
        let peer_index = self.peer_of_packet(peer)?;
        self.fragment_room(peer_index, offset, len)
    }

    fn fragment_written(&mut self, peer: Peer, len: usize) {
        if let Some(peer_index) = self.peer_of_packet(peer) {
            self.fragment_placed(peer_index, len);
        }
    }

    fn on_exposed(&mut self, token: BulkToken, descriptor: Option<RegionDescriptor>) {
        let Some(index) = self.requests.find(from_wire(token)) else {
            return;
        };
        let operation = self.requests.at(index);
        operation.exposed = descriptor.is_some();
        operation.region = descriptor.map(Box::new);
        operation.remote = 1;
        self.has_work = true;
    }

    fn on_revoked(&mut self, token: BulkToken) {
        let Some(index) = self.requests.find(from_wire(token)) else {
            return;
        };
        if self.requests.peek(index).side == OpSide::Access {
            // The end of a registered region.
            self.complete(index, None);
        } else {
            self.unexposed(index);
        }
    }

    fn on_bulk_done(&mut self, token: BulkToken, result: Result<(), Error>) {
        let Some(index) = self.requests.find(from_wire(token)) else {
            return;
        };
        if self.requests.peek(index).side == OpSide::Access {
            self.direct_access_done(index, result);
        } else if self.copy_is_over(index) {
            self.bulk_moved(index, result);
        }
    }

    fn on_peer_gone(&mut self, peer: Peer) {
        self.on_peer_lost(peer, GONE);
    }

    fn on_peer_lost(&mut self, peer: Peer, why: &'static str) {
        if let Some(peer_index) = self.peer_of_packet(peer) {
            self.fail_peer(peer_index, why);
        }
    }

    fn on_peer_left(&mut self, peer: Peer) {
        let ended = self.one_sided.origin.peer_left(peer, &self.requests);
        self.has_work |= !ended.is_empty();
        self.end_accesses(ended);
        if self.peers.is_of_other_world(peer) {
            // Nobody else says that it is waited for in vain.
            self.on_peer_lost(peer, DISCONNECTED);
        }
    }

    fn on_peer_unreachable(&mut self, shortage: UnreachableCause) {
        if let Some(peer_index) = self.peer_of_packet(shortage.peer) {
            self.fail_peer_with(peer_index, Error::Unreached(Box::new(shortage)));
        }
    }
}

impl Core {
    /// A packet of any kind.
    #[inline(never)]
    fn dispatch(&mut self, header: PacketHeader, meta: MessageInfo, payload: UserMem) {
        let Some(peer_index) = self.peer_of_packet(meta.peer) else {
            return;
        };
        if header.kind == PacketKind::Eager as u8
            && header.flags & FLAG_TAKEN == 0
            && !self.peers[peer_index as usize].overdrawn(meta.len)
        {
            self.on_envelope(peer_index, &header, meta, IncomingPayload::Payload(payload));
            return;
        }
        if self
            .dispatch_other(peer_index, header, meta, payload)
            .is_none()
        {
            self.note(
                EventKind::ProtocolError,
                meta.peer,
                header.context,
                header.tag,
                meta.len,
            );
            self.fail_peer(peer_index, "it sent a packet that breaks the format");
        }
    }

    /// The peer state of a peer that was heard of.
    #[inline]
    fn peer_of_packet(&mut self, peer: Peer) -> Option<u32> {
        match self.peer_index(peer) {
            Some(peer_index) => (!self.peers[peer_index as usize].gone).then_some(peer_index),
            None if self.peers.has(peer) => {
                self.peers.mark_stale();
                Some(self.open_peer(peer, UNKNOWN))
            }
            None => None,
        }
    }

    /// Every kind but the plain eager envelope. `None`: the peer broke the format.
    #[cold]
    #[inline(never)]
    fn dispatch_other(
        &mut self,
        peer_index: u32,
        header: PacketHeader,
        mut meta: MessageInfo,
        payload: UserMem,
    ) -> Option<()> {
        let kind = PacketKind::from_code(header.kind)?;
        let len = meta.len as usize;
        match kind {
            PacketKind::Eager if header.flags & FLAG_TAKEN == 0 => return None,
            PacketKind::Eager => {
                self.count_envelope(peer_index, &header, meta.len)?;
                self.on_envelope(peer_index, &header, meta, IncomingPayload::Payload(payload));
            }
            PacketKind::EagerSync => {
                let body = len.checked_sub(8)?;
                let mut name = [0; 8];
                payload.read(0, &mut name);
                meta.waiting = Some(u64::from_le_bytes(name));
                meta.len = body as u64;
                self.count_envelope(peer_index, &header, meta.len)?;
                self.on_envelope(
                    peer_index,
                    &header,
                    meta,
                    IncomingPayload::Payload(payload.offset(8)),
                );
            }
            PacketKind::Rts => {
                let announce = Rts::decode(&ControlPayload::copy(payload, len)?, header.flags)?;
                meta.len = announce.total;
                self.count_envelope(peer_index, &header, 0)?;
                self.on_envelope(peer_index, &header, meta, IncomingPayload::Rts(announce));
            }
            PacketKind::FragFirst => self.on_frag_first(peer_index, header, meta, payload)?,
            PacketKind::FragNext => self.on_frag_next(peer_index, &header, payload, len)?,
            PacketKind::Data => self.on_data(meta.peer, &header, payload, len)?,
            PacketKind::Cts => self.on_cts(
                meta.peer,
                Cts::decode(&ControlPayload::copy(payload, len)?)?,
            )?,
            PacketKind::Fin => {
                let finish = Fin::decode(&ControlPayload::copy(payload, len)?)?;
                // A send that ended meanwhile (abandoned by an error) is no fault of the peer's.
                if let Some(index) = self.requests.find(from_wire(finish.send)) {
                    let operation = self.requests.peek(index);
                    if operation.side != OpSide::Send || operation.peer != meta.peer {
                        return None;
                    }
                    match operation.state {
                        OpState::Active => self.end_operation(index, None),
                        _ if ended_early(operation) => {}
                        _ => return None,
                    }
                }
            }
            PacketKind::Rtr => self.on_rtr(
                meta.peer,
                Rtr::decode(&ControlPayload::copy(payload, len)?)?,
            )?,
            PacketKind::RtrFin => {
                let pushed = RtrFin::decode(&ControlPayload::copy(payload, len)?)?;
                self.on_rtr_fin(meta.peer, &pushed, header.flags & FLAG_FAILED == 0)?;
            }
            PacketKind::EarlyRtr => {
                let expect = EarlyRtr::decode(&ControlPayload::copy(payload, len)?)?;
                self.on_early_rtr(peer_index, &header, expect)?;
            }
            PacketKind::EarlyFin => {
                let written = EarlyFin::decode(&ControlPayload::copy(payload, len)?)?;
                self.on_early_fin(meta.peer, &written, header.flags & FLAG_FAILED == 0)?;
            }
            PacketKind::Revoked => self.on_revoked_context(header.context, header.source)?,
            PacketKind::Credit => self.on_credit(peer_index, header.context, header.source)?,
            PacketKind::Put
            | PacketKind::Get
            | PacketKind::Atomic
            | PacketKind::GetData
            | PacketKind::AccessDone => {
                self.on_one_sided(meta.peer, kind, &header, payload, len)?;
            }
            PacketKind::Blocked
            | PacketKind::Probe
            | PacketKind::ProbeHit
            | PacketKind::ProbeMiss
            | PacketKind::Pull => {
                self.on_window_packet(
                    peer_index,
                    kind,
                    &header,
                    &ControlPayload::copy(payload, len)?,
                )?;
            }
        }
        Some(())
    }

    /// Counts an envelope and the payload that it brings against its sender's quota unless this
    /// side took it out of sequence, as it then must have.
    pub(crate) fn count_envelope(
        &mut self,
        peer_index: u32,
        header: &PacketHeader,
        payload: u64,
    ) -> Option<()> {
        if header.flags & FLAG_TAKEN == 0 {
            let overdrawn = self.peers[peer_index as usize].overdrawn(payload);
            return (!overdrawn).then_some(());
        }
        let stream = self.sequences.find(stream_key(
            header.context,
            self.peers[peer_index as usize].peer,
        ))?;
        let stream = self.sequences.get(stream);
        let number = widen(stream.next_rx, header.sequence);
        stream
            .reorder
            .as_ref()
            .is_some_and(|odd| odd.reserved.contains_key(&number))
            .then_some(())
    }

    /// Credits came back.
    fn on_credit(&mut self, peer_index: u32, envelopes: u32, payload: u32) -> Option<()> {
        let entry = &mut self.peers[peer_index as usize];
        let quotas = entry.quotas;
        entry.envelopes = entry
            .envelopes
            .checked_add(envelopes)
            .filter(|&sum| sum <= quotas.envelopes)?;
        entry.payload = entry
            .payload
            .checked_add(u64::from(payload))
            .filter(|&sum| sum <= quotas.payload)?;
        entry.returned_envelopes = entry.returned_envelopes.wrapping_add(envelopes.into());
        entry.returned_payload = entry.returned_payload.wrapping_add(payload.into());
        self.publish_tally();
        self.has_work = true;
        Some(())
    }

    /// A piece of a message that this side asked for by packets.
    fn on_data(
        &mut self,
        peer: Peer,
        header: &PacketHeader,
        payload: UserMem,
        len: usize,
    ) -> Option<()> {
        let name = u64::from(header.context) | u64::from(header.source) << 32;
        let from = u64::from(header.tag as u32) | u64::from(header.sequence) << 32;
        let Some(index) = self.requests.find(from_wire(name)) else {
            return Some(());
        };
        let watch = self.stopwatch();
        let operation = self.requests.at(index);
        let fits = from
            .checked_add(len as u64)
            .is_some_and(|end| end <= operation.total.min(operation.data.len));
        if operation.peer == peer && ended_early(operation) {
            return Some(());
        }
        if operation.side != OpSide::Recv
            || operation.peer != peer
            || operation.state != OpState::Active
            || !fits
        {
            return None;
        }
        let stores = stores_for_message(operation.total);
        copy_in_with(
            stores,
            &operation.data,
            from,
            (payload, len),
            &mut self.bounce,
        );
        operation.moved += len as u64;
        let over = operation.moved >= operation.total;
        watch.moved(name, peer, len as u64);
        if over {
            // It may still be exposed from another way that failed.
            self.end_operation(index, None);
        }
        Some(())
    }

    /// A send may stream its message.
    fn on_cts(&mut self, peer: Peer, clear: Cts) -> Option<()> {
        let Some(index) = self.requests.find(from_wire(clear.send)) else {
            return Some(());
        };
        let operation = self.requests.at(index);
        if operation.peer == peer && ended_early(operation) {
            return Some(());
        }
        if operation.side != OpSide::Send
            || operation.peer != peer
            || operation.state != OpState::Active
        {
            return None;
        }
        operation.remote = clear.recv;
        operation.moved = 0;
        operation.region = None;
        self.transfers.writes.remove(index);
        // A peer that repeats itself must not have it twice among them.
        if !operation.has(OpFlag::DataRequested) {
            operation.set(OpFlag::DataRequested);
            self.transfers.packets.push(peer, index);
        }
        self.has_work = true;
        Some(())
    }

    /// An envelope that is early, late, or was taken by a query.
    #[cold]
    pub(crate) fn out_of_sequence(
        &mut self,
        peer_index: u32,
        at: u32,
        number: u64,
        flags: u8,
        meta: MessageInfo,
        incoming: IncomingPayload,
    ) {
        let stream = self.sequences.get_mut(at);
        let next = stream.next_rx;
        let odd = stream.reorder.get_or_insert_default();
        if let Some(bound) = odd.reserved.remove(&number) {
            odd.note_delivered(number);
            if flags & FLAG_TAKEN == 0 {
                // It was sent before its sender heard that it was taken: it used credits as any
                // other.
                self.release(peer_index, &incoming, meta.len);
            }
            self.deliver_reserved(bound, meta, incoming);
            self.deliver_early(at);
        } else if number == next {
            stream.next_rx += 1;
            self.deliver(peer_index, meta, incoming);
            self.deliver_early(at);
        } else if number > next && !odd.was_delivered(number) && !odd.early.contains_key(&number) {
            match self.own_body(&meta, incoming) {
                Ok(body) => {
                    let item = self.unexpected.insert(meta, body);
                    if let Some(odd) = &mut self.sequences.get_mut(at).reorder {
                        odd.early.insert(number, item);
                    }
                }
                Err(_) => self.fail_peer(
                    peer_index,
                    "its message could not be kept for want of memory",
                ),
            }
        } else {
            self.fail_peer(peer_index, "it sent an envelope twice");
        }
    }

    /// Lets everything enter whose turn has come.
    pub(crate) fn deliver_early(&mut self, at: u32) {
        loop {
            let stream: &mut Sequence = self.sequences.get_mut(at);
            let next = stream.next_rx;
            let Some(odd) = stream.reorder.as_deref_mut() else {
                return;
            };
            if let Some(end) = odd.delivered.remove(&next) {
                stream.next_rx = end;
            } else if let Some(item) = odd.early.remove(&next) {
                stream.next_rx += 1;
                self.enter_matcher(item);
            } else {
                if Reorder::is_empty(odd) {
                    stream.reorder = None;
                }
                return;
            }
        }
    }

    /// An envelope that was kept because it came early has its turn.
    fn enter_matcher(&mut self, item: u32) {
        let meta = self.unexpected.get(item).meta;
        let envelope = crate::matching::matcher::Envelope {
            context: meta.context,
            peer: meta.peer,
            tag: meta.tag,
        };
        match self.matcher.arrive(&envelope) {
            Some(receive) => self.deliver_unexpected(receive, item),
            None => self.publish_unexpected(&envelope, item),
        }
    }

    /// Gives an envelope that a query took to whom it was taken for.
    fn deliver_reserved(
        &mut self,
        bound: ReservedFor,
        meta: MessageInfo,
        incoming: IncomingPayload,
    ) {
        match bound {
            ReservedFor::Receive(receive) => self.deliver_to_receive(receive, meta, incoming),
            ReservedFor::Message(item) => self.fill_message(item, meta, incoming),
        }
    }

    /// The wire name of a living operation.
    pub(crate) fn wire_name(&self, index: u32) -> u64 {
        to_wire(self.requests.name(index))
    }
}

/// A peer state index for "this rank itself".
pub(crate) const SELF_PEER: u32 = NONE;
