//! Messages that come in piece by piece right behind their envelope, so that the receiver copies
//! while the sender still does.
//!
//! The pieces of one message follow each other without another message of its peer between: the
//! sender makes sure of the room for all of them first. Head first, which holds the envelope and
//! the beginning; the rest goes to the receive it matched, or to a buffer of the store until the
//! message is whole or a receive for it is posted. Only then an unmatched one enters the matcher,
//! so nothing ever sees half a message. Bounded by one flow per gate, its length and the gate's
//! credits.

use crate::api::{Pattern, Peer, TypeDigest};
use crate::copy::{CopyTarget, copy_in, copy_out};
use crate::core::{Core, IncomingPayload, misfit};
use crate::engine::Engine;
use crate::fast::recv::{FastSend, header_of, sent};
use crate::limits::FLOW_MAX;
use crate::matching::matcher::Envelope;
use crate::matching::unexpected::{MessageInfo, UnexpectedBody};
use crate::peer::routes::PeerRoute;
use crate::peer::state::stream_key;
use crate::protocol::packet::{Fragments, total};
use crate::requests::OpState;
use crate::transport::{ClaimError, Fragmentation, PacketClass, PacketHeader, Transport};
use garonne_sync::user::{Data, Scratch, UserMem};

/// Where the pieces of a flow go.
#[derive(Debug)]
enum FragmentTarget {
    /// The receive in this slot, which is active and stays so until the flow or its peer ends.
    Receive(u32),
    /// Nobody asked for it yet.
    Kept(Scratch),
    /// The quick receive that runs; there is none but while it does.
    Caught(UserMem),
}

/// See the module's paragraph.
#[derive(Debug)]
pub(crate) struct FragmentedMessage {
    header: PacketHeader,
    meta: MessageInfo,
    /// Bytes here.
    got: u64,
    target: FragmentTarget,
    /// No receive that is posted is for it: it has been its turn since it began.
    in_turn: bool,
}

const _: () = assert!(FLOW_MAX < 1 << 24, "what a head can tell");

fn envelope(meta: &MessageInfo) -> Envelope {
    Envelope {
        context: meta.context,
        peer: meta.peer,
        tag: meta.tag,
    }
}

impl Core {
    /// The beginning of a message. `None`: the peer broke the format.
    pub(crate) fn head(
        &mut self,
        gate: u32,
        mut header: PacketHeader,
        mut meta: MessageInfo,
        payload: UserMem,
    ) -> Option<()> {
        let first = meta.len as usize;
        meta.len = total(&header);
        (header.flags, header.shard, meta.mark) = (0, 0, TypeDigest::NONE);
        let sane = first > 0 && meta.len > first as u64 && meta.len <= FLOW_MAX;
        if !sane || self.gates[gate as usize].flow.is_some() {
            return None;
        }
        self.count(gate, &header, meta.len)?;
        let in_turn = self.has_turn(&header, &meta);
        let wanted = if in_turn {
            self.wanted(gate, &meta)
        } else {
            None
        };
        let target = match wanted {
            Some(receive) => FragmentTarget::Receive(receive),
            None if in_turn && self.expected.accepts(&meta, &self.events) => {
                FragmentTarget::Caught(self.expected.flows())
            }
            None => match self.store.buffer(meta.len as usize) {
                Ok(buffer) => {
                    self.flows += 1;
                    FragmentTarget::Kept(buffer)
                }
                Err(_) => {
                    self.lose(gate, "its message could not be kept for want of memory");
                    return Some(());
                }
            },
        };
        let mut flow = FragmentedMessage {
            header,
            meta,
            got: 0,
            target,
            in_turn,
        };
        self.take_piece(&mut flow, payload, first);
        self.gates[gate as usize].flow = Some(flow);
        Some(())
    }

    /// The receive for a message that begins to come and whose turn it is, if one is posted. Then
    /// the message counts as matched.
    fn wanted(&mut self, gate: u32, meta: &MessageInfo) -> Option<u32> {
        let receive = self.matcher.arrive(&envelope(meta))?;
        self.begin_flow(gate, receive, meta);
        Some(receive)
    }

    /// Whether an envelope is the next of its stream.
    fn has_turn(&mut self, header: &PacketHeader, meta: &MessageInfo) -> bool {
        let at = self
            .streams
            .find_or_insert(stream_key(meta.context, meta.peer));
        let stream = self.streams.get(at);
        stream.odd.is_none() && header.sequence == stream.next_rx as u32
    }

    /// A message whose turn it was is matched.
    fn count_flow(&mut self, gate: u32, meta: &MessageInfo) {
        let at = self
            .streams
            .find_or_insert(stream_key(meta.context, meta.peer));
        self.streams.get_mut(at).next_rx += 1;
        self.release_credits(gate, meta.len);
    }

    /// A message whose turn it is goes to this receive.
    fn begin_flow(&mut self, gate: u32, receive: u32, meta: &MessageInfo) {
        self.count_flow(gate, meta);
        // A message that is too long is an error only when all of it is here.
        let _ = self.met(receive, meta);
        self.requests.at(receive).state = OpState::Active;
    }

    /// Copies a piece to where the flow goes.
    fn take_piece(&mut self, flow: &mut FragmentedMessage, payload: UserMem, len: usize) {
        match &flow.target {
            FragmentTarget::Kept(buffer) => {
                buffer.mem().copy_from(flow.got as isize, payload, 0, len)
            }
            FragmentTarget::Caught(mem) => mem.copy_from(flow.got as isize, payload, 0, len),
            FragmentTarget::Receive(receive) => {
                let operation = self.requests.at(*receive);
                let fits = operation.data.len.saturating_sub(flow.got).min(len as u64) as usize;
                if operation.data.layout.is_none() {
                    operation
                        .data
                        .mem
                        .copy_from(flow.got as isize, payload, 0, fits);
                } else {
                    copy_in(&operation.data, flow.got, payload, fits, &mut self.bounce);
                }
                operation.moved = flow.got + len as u64;
            }
        }
        flow.got += len as u64;
    }

    /// The next piece of the message that comes from this gate's peer. `None`: the peer broke the
    /// format.
    pub(crate) fn tail(
        &mut self,
        gate: u32,
        header: &PacketHeader,
        payload: UserMem,
        len: usize,
    ) -> Option<()> {
        let mut flow = self.gates[gate as usize].flow.take()?;
        let end = flow.got + len as u64;
        let fits = len > 0 && u64::from(header.sequence) == flow.got && end <= flow.meta.len;
        if fits {
            self.take_piece(&mut flow, payload, len);
        }
        self.go_on(gate, flow);
        fits.then_some(())
    }

    /// Where `len` bytes of the message that comes from this gate's peer go from `offset` on, if
    /// that is what comes next and they lie in a row there. Valid until anything else happens to
    /// the flow.
    pub(crate) fn flow_room(&self, gate: u32, offset: u64, len: usize) -> Option<UserMem> {
        let flow = self.gates[gate as usize].flow.as_ref()?;
        let end = offset + len as u64;
        if flow.got != offset || end > flow.meta.len {
            return None;
        }
        let mem = match &flow.target {
            FragmentTarget::Kept(buffer) => buffer.mem(),
            FragmentTarget::Caught(mem) => *mem,
            FragmentTarget::Receive(receive) => {
                let operation = self.requests.peek(*receive);
                if operation.data.layout.is_some() || end > operation.data.len {
                    return None;
                }
                operation.data.mem
            }
        };
        Some(mem.offset(offset as isize))
    }

    /// So many bytes were put where [`Core::flow_room`] said.
    pub(crate) fn flow_placed(&mut self, gate: u32, len: usize) {
        let Some(mut flow) = self.gates[gate as usize].flow.take() else {
            return;
        };
        flow.got += len as u64;
        if let FragmentTarget::Receive(receive) = flow.target {
            self.requests.at(receive).moved = flow.got;
        }
        self.go_on(gate, flow);
    }

    /// A piece came: the rest is waited for, or the message is whole.
    fn go_on(&mut self, gate: u32, flow: FragmentedMessage) {
        if flow.got < flow.meta.len {
            self.gates[gate as usize].flow = Some(flow);
            return;
        }
        match flow.target {
            FragmentTarget::Receive(receive) => {
                let operation = self.requests.peek(receive);
                let (room, origin) = (operation.data.len, operation.origin);
                let error = misfit(&flow.meta, room, origin);
                self.end(receive, error);
            }
            FragmentTarget::Caught(_) => {
                self.count_flow(gate, &flow.meta);
                self.expected.flowed(&flow.meta);
            }
            FragmentTarget::Kept(buffer) => {
                self.flows -= 1;
                self.envelope(
                    gate,
                    &flow.header,
                    flow.meta,
                    IncomingPayload::Whole(UnexpectedBody::Buffer(buffer)),
                );
            }
        }
    }

    /// The gate from which a message comes that a new receive would match and that nothing comes
    /// before.
    #[cold]
    pub(crate) fn flow_for(&mut self, pattern: &Pattern) -> Option<u32> {
        let matches = |meta: &MessageInfo| {
            meta.context == pattern.context
                && pattern.source.is_none_or(|source| source.peer == meta.peer)
                && pattern.tag.is_none_or(|tag| tag == meta.tag)
        };
        for at in 0..self.gates.len() {
            let kept = |flow: &&FragmentedMessage| {
                matches!(flow.target, FragmentTarget::Kept(_)) && matches(&flow.meta)
            };
            let Some(flow) = self.gates[at].flow.as_ref().filter(kept) else {
                continue;
            };
            let (header, meta, in_turn) = (flow.header, flow.meta, flow.in_turn);
            if in_turn && self.has_turn(&header, &meta) {
                return Some(at as u32);
            }
        }
        // Those that are out of turn go to the oldest receive when all of them is here, and this
        // one is before all that are to come.
        for gate in &mut self.gates {
            if let Some(flow) = gate.flow.as_mut().filter(|flow| matches(&flow.meta)) {
                flow.in_turn = false;
            }
        }
        None
    }

    /// Gives the message that comes from this gate's peer to the receive in slot `receive`.
    pub(crate) fn adopt_flow(&mut self, gate: u32, receive: u32) {
        let Some(mut flow) = self.gates[gate as usize].flow.take() else {
            return;
        };
        let got = flow.got as usize;
        if let FragmentTarget::Kept(buffer) =
            std::mem::replace(&mut flow.target, FragmentTarget::Receive(receive))
        {
            self.flows -= 1;
            self.begin_flow(gate, receive, &flow.meta);
            flow.got = 0;
            self.take_piece(&mut flow, buffer.mem(), got);
            self.store.recycle(UnexpectedBody::Buffer(buffer));
        }
        self.gates[gate as usize].flow = Some(flow);
    }

    /// The quick receive gave up: what came of its message goes on like that of one that nobody
    /// asked for.
    #[cold]
    pub(crate) fn keep_caught_flow(&mut self) {
        for gate in 0..self.gates.len() {
            let Some(flow) = &mut self.gates[gate].flow else {
                continue;
            };
            let FragmentTarget::Caught(mem) = flow.target else {
                continue;
            };
            match self.store.buffer(flow.meta.len as usize) {
                Ok(buffer) => {
                    buffer.mem().copy_from(0, mem, 0, flow.got as usize);
                    flow.target = FragmentTarget::Kept(buffer);
                    self.flows += 1;
                }
                Err(_) => self.lose(
                    gate as u32,
                    "its message could not be kept for want of memory",
                ),
            }
        }
    }

    /// The peer of a gate is gone: what came of its message belongs to nobody. Its receive ends
    /// with those of the peer.
    pub(crate) fn drop_flow(&mut self, gate: u32) {
        if let Some(flow) = self.gates[gate as usize].flow.take()
            && let FragmentTarget::Kept(buffer) = flow.target
        {
            self.flows -= 1;
            self.store.recycle(UnexpectedBody::Buffer(buffer));
        }
    }
}

impl<R: Transport> Engine<R> {
    /// Sends a message that is not small but travels with its envelope, if there is room for all of
    /// it.
    #[inline(never)]
    pub(crate) fn send_medium(&mut self, medium: FastSend, route: PeerRoute) -> bool {
        let Some(reach) = self.rail.reach(medium.peer) else {
            return false;
        };
        let gate = &mut self.core.gates[route.gate as usize];
        gate.reach = reach;
        gate.settle();
        if self.goes_ahead(medium.peer, medium.context, medium.tag, medium.len as u64) {
            return false;
        }
        let gate = &mut self.core.gates[route.gate as usize];
        if medium.len > reach.eager_max.max(reach.flow_max)
            || gate.held != 0
            || gate.envelopes == 0
            || gate.payload < medium.len as u64
        {
            return false;
        }
        let header = header_of(&medium, self.core.streams.get(route.stream));
        let data = Data::contiguous(medium.mem, medium.len as u64);
        // The header of a message in pieces has no room for a mark.
        let pieces = match medium.origin.mark {
            TypeDigest::NONE if medium.len <= reach.flow_max => {
                self.rail.flow(medium.peer, medium.len)
            }
            _ => Fragmentation::No,
        };
        let left = match pieces {
            Fragmentation::Pieces(first, piece) => {
                self.emit_flow(medium.peer, header, &data, (first, piece))
            }
            _ if medium.len > self.limits.packet_max.min(reach.eager_max) => return false,
            _ => self
                .rail
                .claim(medium.peer, medium.len, PacketClass::Data)
                .map(|room| {
                    copy_out(
                        &data,
                        0,
                        CopyTarget::room(&room, 0),
                        medium.len,
                        &mut self.core.bounce,
                    );
                    self.rail.commit(room, &header);
                }),
        };
        let core = &mut self.core;
        match left {
            Err(ClaimError::Full) => return false,
            Err(ClaimError::Gone) => {
                self.give_up(route.gate);
                return false;
            }
            Ok(()) => {}
        }
        core.streams.get_mut(route.stream).count_tx(medium.tag);
        let gate = &mut core.gates[route.gate as usize];
        gate.envelopes -= 1;
        gate.payload -= medium.len as u64;
        core.events.push(sent(&medium));
        true
    }

    /// Sends an envelope with its payload in pieces. The rail said that there is room for all of
    /// them: where it then has none, its peer tampered with what both share, and counts as gone.
    pub(crate) fn emit_flow(
        &mut self,
        peer: Peer,
        envelope: PacketHeader,
        data: &Data,
        (first, piece): (usize, usize),
    ) -> Result<(), ClaimError> {
        let pieces = Fragments {
            peer,
            envelope,
            total: data.len as usize,
            first,
            piece,
        };
        if data.layout.is_none() && self.rail.send_pieces(&pieces, data.mem)? {
            return Ok(());
        }
        for (header, at, len) in pieces.packets() {
            let room = match self.rail.claim(peer, len, PacketClass::Data) {
                Err(ClaimError::Full) if at > 0 => return Err(ClaimError::Gone),
                claimed => claimed?,
            };
            copy_out(
                data,
                at as u64,
                CopyTarget::room(&room, 0),
                len,
                &mut self.core.bounce,
            );
            self.rail.commit(room, &header);
        }
        Ok(())
    }
}
