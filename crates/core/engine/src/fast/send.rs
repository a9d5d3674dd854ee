//! Fast path of sends: a small contiguous standard-mode send that nothing hinders.
//!
//! [`Engine::send_small`] tries, in this order, the send channel of the message's sequence, an
//! inline packet of the transport, and a packet with all fragments. If none can be used now it
//! reports failure without a change, and the caller starts a general send.

use crate::api::{CallOrigin, ContextId, Peer};
use crate::engine::Engine;
use crate::observe::events::{Event, EventKind};
use crate::peer::routes::PeerRoute;
use crate::peer::sequences::Sequence;
use crate::transport::{PacketHeader, PacketKind, Transport};
use garonne_sync::user::UserMem;

/// A small contiguous standard-mode send.
#[derive(Clone, Copy, Debug)]
pub struct FastSend {
    /// Context of the envelope.
    pub context: ContextId,
    /// The process it goes to.
    pub peer: Peer,
    /// The sender's rank in the communicator.
    pub source: u32,
    /// Tag, at least 0.
    pub tag: i32,
    /// The bytes.
    pub mem: UserMem,
    /// Number of bytes.
    pub len: usize,
    /// Call that started the operation.
    pub origin: CallOrigin,
}

/// The header of the next envelope of a sequence.
#[inline(always)]
pub(crate) fn header_of(small: &FastSend, stream: &Sequence) -> PacketHeader {
    PacketHeader {
        kind: PacketKind::Eager as u8,
        flags: 0,
        shard: small.origin.digest.0,
        len: small.len as u32,
        context: small.context,
        source: small.source,
        tag: small.tag,
        sequence: stream.next_tx() as u32,
    }
}

/// The event of a small message that left.
#[inline(always)]
pub(crate) fn send_event(small: &FastSend) -> Event {
    Event {
        len: small.len as u64,
        site: small.origin.site,
        peer: small.peer,
        context: small.context,
        tag: small.tag,
        call: small.origin.call,
        kind: EventKind::Send,
        datatype: small.origin.datatype,
    }
}

impl<R: Transport> Engine<R> {
    /// Sends a small message at once if nothing is in the way; `false`: nothing happened, take the
    /// general way.
    #[inline(always)]
    pub fn send_small(&mut self, small: &FastSend) -> bool {
        let core = &mut self.core;
        let Some(route) = core
            .known_route(small.context, small.peer)
            .or_else(|| core.learn_route(small.context, small.peer))
        else {
            return false;
        };
        if self.send_on_channel(small, route) {
            return true;
        }
        let core = &mut self.core;
        let peer_state = &mut core.peers[route.peer_index as usize];
        peer_state.close_batch();
        let fits =
            small.len <= self.limits.inline_max && small.len <= peer_state.capabilities.eager_max;
        // A peer that is gone has no credits.
        if !fits
            || peer_state.window_len != 0
            || peer_state.envelopes == 0
            || peer_state.payload < small.len as u64
        {
            return small.len > self.limits.inline_max && self.send_medium(*small, route);
        }
        let stream = core.sequences.get_mut(route.stream);
        let header = header_of(small, stream);
        if !self
            .transport
            .try_send_inline(small.peer, header, small.mem)
        {
            return self.send_small_slow(*small, route);
        }
        stream.count_tx(small.tag);
        peer_state.envelopes -= 1;
        peer_state.payload -= small.len as u64;
        core.events.push(send_event(small));
        true
    }

    /// Sends a small message by another way than the transport's shortest.
    #[inline(never)]
    fn send_small_slow(&mut self, small: FastSend, route: PeerRoute) -> bool {
        let core = &mut self.core;
        let stream = core.sequences.get_mut(route.stream);
        let header = header_of(&small, stream);
        if self
            .transport
            .send_inline(small.peer, &header, small.mem)
            .is_err()
        {
            return false;
        }
        stream.count_tx(small.tag);
        let peer_state = &mut core.peers[route.peer_index as usize];
        peer_state.envelopes -= 1;
        peer_state.payload -= small.len as u64;
        core.events.push(send_event(&small));
        true
    }
}
