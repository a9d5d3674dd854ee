//! Messages that arrive in fragments right behind their envelope, so that the receiver copies while
//! the sender still does.
//!
//! The fragments of one message follow each other, without another message of its peer between. The
//! sender first makes sure of the room for all of them. The first fragment holds the envelope and
//! the beginning. The rest goes to the receive it matched, or to a buffer until the message is
//! whole or a receive is posted. Only then an unmatched message enters the matcher, so nothing ever
//! sees half a message. Bounded by one fragmented message per peer, its length, and the peer's
//! credits.

use crate::api::{Pattern, Peer, TypeDigest};
use crate::copy::{CopyTarget, copy_in, copy_out};
use crate::core::{Core, IncomingPayload, mismatch};
use crate::engine::Engine;
use crate::fast::send::{FastSend, header_of, send_event};
use crate::limits::FRAGMENTED_MAX;
use crate::matching::matcher::Envelope;
use crate::matching::unexpected::{MessageInfo, UnexpectedBody};
use crate::peer::routes::PeerRoute;
use crate::peer::sequences::stream_key;
use crate::protocol::packet::{Fragments, total};
use crate::requests::OpState;
use crate::transport::{ClaimError, Fragmentation, PacketClass, PacketHeader, Transport};
use garonne_sync::user::{Data, Scratch, UserMem};

/// Destination of the fragments of a message.
#[derive(Debug)]
enum FragmentTarget {
    /// The receive in this slot, which is active and stays so until the fragmented message or its
    /// peer ends.
    Receive(u32),
    /// Nobody asked for it yet.
    Unexpected(Scratch),
    /// The quick receive that runs; there is none but while it does.
    Expected(UserMem),
}

/// A message that arrives in fragments, of which some are here.
///
/// Owned by the state of its sender. The first fragment creates it, each next one extends it, and
/// the last one delivers the message.
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

const _: () = assert!(FRAGMENTED_MAX < 1 << 24, "what a head can tell");

fn envelope(meta: &MessageInfo) -> Envelope {
    Envelope {
        context: meta.context,
        peer: meta.peer,
        tag: meta.tag,
    }
}

impl Core {
    /// The beginning of a message. `None`: the peer broke the format.
    pub(crate) fn on_frag_first(
        &mut self,
        peer_index: u32,
        mut header: PacketHeader,
        mut meta: MessageInfo,
        payload: UserMem,
    ) -> Option<()> {
        let first = meta.len as usize;
        meta.len = total(&header);
        (header.flags, header.shard, meta.digest) = (0, 0, TypeDigest::NONE);
        let sane = first > 0 && meta.len > first as u64 && meta.len <= FRAGMENTED_MAX;
        if !sane || self.peers[peer_index as usize].fragmented.is_some() {
            return None;
        }
        self.count_envelope(peer_index, &header, meta.len)?;
        let in_turn = self.is_next_in_sequence(&header, &meta);
        let wanted = if in_turn {
            self.match_first(peer_index, &meta)
        } else {
            None
        };
        let target = match wanted {
            Some(receive) => FragmentTarget::Receive(receive),
            None if in_turn && self.expected_recv.accepts(&meta, &self.events) => {
                FragmentTarget::Expected(self.expected_recv.take_fragments())
            }
            None => match self.unexpected.buffer(meta.len as usize) {
                Ok(buffer) => {
                    self.unmatched_fragmented += 1;
                    FragmentTarget::Unexpected(buffer)
                }
                Err(_) => {
                    self.fail_peer(
                        peer_index,
                        "its message could not be kept for want of memory",
                    );
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
        self.copy_fragment(&mut flow, payload, first);
        self.peers[peer_index as usize].fragmented = Some(flow);
        Some(())
    }

    /// The receive for a message that begins to come and whose turn it is, if one is posted. Then
    /// the message counts as matched.
    fn match_first(&mut self, peer_index: u32, meta: &MessageInfo) -> Option<u32> {
        let receive = self.matcher.arrive(&envelope(meta))?;
        self.begin_fragmented(peer_index, receive, meta);
        Some(receive)
    }

    /// Returns whether an envelope is the next of its sequence.
    fn is_next_in_sequence(&mut self, header: &PacketHeader, meta: &MessageInfo) -> bool {
        let at = self
            .sequences
            .find_or_insert(stream_key(meta.context, meta.peer));
        let stream = self.sequences.get(at);
        stream.reorder.is_none() && header.sequence == stream.next_rx as u32
    }

    /// A message whose turn it was is matched.
    fn count_fragmented(&mut self, peer_index: u32, meta: &MessageInfo) {
        let at = self
            .sequences
            .find_or_insert(stream_key(meta.context, meta.peer));
        self.sequences.get_mut(at).next_rx += 1;
        self.release_credits(peer_index, meta.len);
    }

    /// A message whose turn it is goes to this receive.
    fn begin_fragmented(&mut self, peer_index: u32, receive: u32, meta: &MessageInfo) {
        self.count_fragmented(peer_index, meta);
        // A message that is too long is an error only when all of it is here.
        let _ = self.note_match(receive, meta);
        self.requests.at(receive).state = OpState::Active;
    }

    /// Copies a fragment to where the fragmented message goes.
    fn copy_fragment(&mut self, flow: &mut FragmentedMessage, payload: UserMem, len: usize) {
        match &flow.target {
            FragmentTarget::Unexpected(buffer) => {
                buffer.mem().copy_from(flow.got as isize, payload, 0, len)
            }
            FragmentTarget::Expected(mem) => mem.copy_from(flow.got as isize, payload, 0, len),
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

    /// The next fragment of the message that comes from this peer. `None`: the peer broke the
    /// format.
    pub(crate) fn on_frag_next(
        &mut self,
        peer_index: u32,
        header: &PacketHeader,
        payload: UserMem,
        len: usize,
    ) -> Option<()> {
        let mut flow = self.peers[peer_index as usize].fragmented.take()?;
        let end = flow.got + len as u64;
        let fits = len > 0 && u64::from(header.sequence) == flow.got && end <= flow.meta.len;
        if fits {
            self.copy_fragment(&mut flow, payload, len);
        }
        self.advance_fragmented(peer_index, flow);
        fits.then_some(())
    }

    /// Returns where `len` bytes from `offset` on go of the message that this peer sends in
    /// fragments, if they come next and their destination is contiguous. Valid until anything else
    /// happens to the message.
    pub(crate) fn fragment_room(
        &self,
        peer_index: u32,
        offset: u64,
        len: usize,
    ) -> Option<UserMem> {
        let flow = self.peers[peer_index as usize].fragmented.as_ref()?;
        let end = offset + len as u64;
        if flow.got != offset || end > flow.meta.len {
            return None;
        }
        let mem = match &flow.target {
            FragmentTarget::Unexpected(buffer) => buffer.mem(),
            FragmentTarget::Expected(mem) => *mem,
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

    /// Counts bytes that were written where [`Core::fragment_room`] said.
    pub(crate) fn fragment_placed(&mut self, peer_index: u32, len: usize) {
        let Some(mut flow) = self.peers[peer_index as usize].fragmented.take() else {
            return;
        };
        flow.got += len as u64;
        if let FragmentTarget::Receive(receive) = flow.target {
            self.requests.at(receive).moved = flow.got;
        }
        self.advance_fragmented(peer_index, flow);
    }

    /// A fragment came: the rest is waited for, or the message is whole.
    fn advance_fragmented(&mut self, peer_index: u32, flow: FragmentedMessage) {
        if flow.got < flow.meta.len {
            self.peers[peer_index as usize].fragmented = Some(flow);
            return;
        }
        match flow.target {
            FragmentTarget::Receive(receive) => {
                let operation = self.requests.peek(receive);
                let (room, origin) = (operation.data.len, operation.origin);
                let error = mismatch(&flow.meta, room, origin);
                self.end_operation(receive, error);
            }
            FragmentTarget::Expected(_) => {
                self.count_fragmented(peer_index, &flow.meta);
                self.expected_recv.fragments_done(&flow.meta);
            }
            FragmentTarget::Unexpected(buffer) => {
                self.unmatched_fragmented -= 1;
                self.on_envelope(
                    peer_index,
                    &flow.header,
                    flow.meta,
                    IncomingPayload::Buffered(UnexpectedBody::Buffer(buffer)),
                );
            }
        }
    }

    /// The peer state from which a message comes that a new receive would match and that nothing
    /// comes before.
    #[cold]
    pub(crate) fn fragmented_for(&mut self, pattern: &Pattern) -> Option<u32> {
        let matches = |meta: &MessageInfo| {
            meta.context == pattern.context
                && pattern.source.is_none_or(|source| source.peer == meta.peer)
                && pattern.tag.is_none_or(|tag| tag == meta.tag)
        };
        for at in 0..self.peers.len() {
            let kept = |flow: &&FragmentedMessage| {
                matches!(flow.target, FragmentTarget::Unexpected(_)) && matches(&flow.meta)
            };
            let Some(flow) = self.peers[at].fragmented.as_ref().filter(kept) else {
                continue;
            };
            let (header, meta, in_turn) = (flow.header, flow.meta, flow.in_turn);
            if in_turn && self.is_next_in_sequence(&header, &meta) {
                return Some(at as u32);
            }
        }
        // Those that are out of turn go to the oldest receive when all of them is here, and this
        // one is before all that are to come.
        for peer_state in self.peers.states_mut() {
            if let Some(flow) = peer_state
                .fragmented
                .as_mut()
                .filter(|flow| matches(&flow.meta))
            {
                flow.in_turn = false;
            }
        }
        None
    }

    /// Gives the message that comes from this peer to the receive in slot `receive`.
    pub(crate) fn adopt_fragmented(&mut self, peer_index: u32, receive: u32) {
        let Some(mut flow) = self.peers[peer_index as usize].fragmented.take() else {
            return;
        };
        let got = flow.got as usize;
        if let FragmentTarget::Unexpected(buffer) =
            std::mem::replace(&mut flow.target, FragmentTarget::Receive(receive))
        {
            self.unmatched_fragmented -= 1;
            self.begin_fragmented(peer_index, receive, &flow.meta);
            flow.got = 0;
            self.copy_fragment(&mut flow, buffer.mem(), got);
            self.unexpected.recycle(UnexpectedBody::Buffer(buffer));
        }
        self.peers[peer_index as usize].fragmented = Some(flow);
    }

    /// The quick receive gave up: what came of its message goes on like that of one that nobody
    /// asked for.
    #[cold]
    pub(crate) fn keep_expected_fragments(&mut self) {
        for peer_index in 0..self.peers.len() {
            let Some(flow) = &mut self.peers[peer_index].fragmented else {
                continue;
            };
            let FragmentTarget::Expected(mem) = flow.target else {
                continue;
            };
            match self.unexpected.buffer(flow.meta.len as usize) {
                Ok(buffer) => {
                    buffer.mem().copy_from(0, mem, 0, flow.got as usize);
                    flow.target = FragmentTarget::Unexpected(buffer);
                    self.unmatched_fragmented += 1;
                }
                Err(_) => self.fail_peer(
                    peer_index as u32,
                    "its message could not be kept for want of memory",
                ),
            }
        }
    }

    /// The peer of a peer state is gone: what came of its message belongs to nobody. Its receive
    /// ends with those of the peer.
    pub(crate) fn drop_fragmented(&mut self, peer_index: u32) {
        if let Some(flow) = self.peers[peer_index as usize].fragmented.take()
            && let FragmentTarget::Unexpected(buffer) = flow.target
        {
            self.unmatched_fragmented -= 1;
            self.unexpected.recycle(UnexpectedBody::Buffer(buffer));
        }
    }
}

impl<R: Transport> Engine<R> {
    /// Sends a message that is not small but travels with its envelope, if there is room for all of
    /// it.
    #[inline(never)]
    pub(crate) fn send_medium(&mut self, medium: FastSend, route: PeerRoute) -> bool {
        let Some(reach) = self.transport.capabilities(medium.peer) else {
            return false;
        };
        let peer_state = &mut self.core.peers[route.peer_index as usize];
        peer_state.capabilities = reach;
        peer_state.close_batch();
        if self.uses_early_write(medium.peer, medium.context, medium.tag, medium.len as u64) {
            return false;
        }
        let peer_state = &mut self.core.peers[route.peer_index as usize];
        if medium.len > reach.eager_max.max(reach.fragmented_max)
            || peer_state.window_len != 0
            || peer_state.envelopes == 0
            || peer_state.payload < medium.len as u64
        {
            return false;
        }
        let header = header_of(&medium, self.core.sequences.get(route.stream));
        let data = Data::contiguous(medium.mem, medium.len as u64);
        // The header of a message in fragments has no room for a mark.
        let pieces = match medium.origin.digest {
            TypeDigest::NONE if medium.len <= reach.fragmented_max => {
                self.transport.fragmentation(medium.peer, medium.len)
            }
            _ => Fragmentation::None,
        };
        let left = match pieces {
            Fragmentation::Fragments(first, piece) => {
                self.send_fragments(medium.peer, header, &data, (first, piece))
            }
            _ if medium.len > self.limits.packet_max.min(reach.eager_max) => return false,
            _ => self
                .transport
                .claim(medium.peer, medium.len, PacketClass::Data)
                .map(|room| {
                    copy_out(
                        &data,
                        0,
                        CopyTarget::room(&room, 0),
                        medium.len,
                        &mut self.core.bounce,
                    );
                    self.transport.commit(room, &header);
                }),
        };
        let core = &mut self.core;
        match left {
            Err(ClaimError::Full) => return false,
            Err(ClaimError::Gone) => {
                self.peer_unusable(route.peer_index);
                return false;
            }
            Ok(()) => {}
        }
        core.sequences.get_mut(route.stream).count_tx(medium.tag);
        let peer_state = &mut core.peers[route.peer_index as usize];
        peer_state.envelopes -= 1;
        peer_state.payload -= medium.len as u64;
        core.events.push(send_event(&medium));
        true
    }

    /// Sends an envelope with its payload in fragments. The transport said that there is room for
    /// all of them: where it then has none, its peer tampered with what both share, and counts as
    /// gone.
    pub(crate) fn send_fragments(
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
        if data.layout.is_none() && self.transport.send_fragments(&pieces, data.mem)? {
            return Ok(());
        }
        for (header, at, len) in pieces.packets() {
            let room = match self.transport.claim(peer, len, PacketClass::Data) {
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
            self.transport.commit(room, &header);
        }
        Ok(())
    }
}
