//! Credits that peers' messages have used, and their return.
//!
//! Part of the core; the counts are in the peer states. Credit counts as returned when the packet
//! that returns it has left: the peer cannot have known of it before.

use crate::api::Peer;
use crate::core::{Core, IncomingPayload};
use crate::key_map::NONE;
use crate::limits::{
    ENVELOPES_MAX, ENVELOPES_MIN, ENVELOPES_TOTAL, PAYLOAD_BETWEEN_WORLDS, PAYLOAD_CREDIT_MAX,
    PAYLOAD_CREDIT_MIN, PAYLOAD_TOTAL,
};
use crate::matching::unexpected::{MessageInfo, UnexpectedBody};
use crate::protocol::wire::ControlPayload;
use crate::transport::{PacketHeader, PacketKind};

/// Credits that an engine grants to a peer. Both sides compute them from the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditQuotas {
    /// Envelopes that a peer may have sent and that were not matched.
    pub envelopes: u32,
    /// Payload bytes in them.
    pub payload: u64,
}

impl CreditQuotas {
    /// The quotas of a job of `world` processes.
    pub fn for_world(world: u32) -> Self {
        let share = PAYLOAD_TOTAL / u64::from(world.max(1));
        Self {
            envelopes: (ENVELOPES_TOTAL / world.max(1)).clamp(ENVELOPES_MIN, ENVELOPES_MAX),
            payload: share.clamp(PAYLOAD_CREDIT_MIN, PAYLOAD_CREDIT_MAX),
        }
    }

    /// The quotas between processes of different worlds, of which neither knows how many peers the
    /// other one has.
    pub const BETWEEN_WORLDS: Self = Self {
        envelopes: ENVELOPES_MIN,
        payload: PAYLOAD_BETWEEN_WORLDS,
    };
}

impl Core {
    /// Returns the credits of an envelope that left the unexpected store or never entered it.
    #[inline]
    pub(crate) fn release(&mut self, peer_index: u32, incoming: &IncomingPayload, len: u64) {
        let payload = if matches!(
            incoming,
            IncomingPayload::Payload(_) | IncomingPayload::Buffered(_)
        ) {
            len
        } else {
            0
        };
        self.release_credits(peer_index, payload);
    }

    /// Returns one envelope's credit and `payload` bytes of credit.
    #[inline(always)]
    pub(crate) fn release_credits(&mut self, peer_index: u32, payload: u64) {
        if peer_index == NONE {
            return;
        }
        let entry = &mut self.peers[peer_index as usize];
        entry.received(payload);
        if entry.owe(payload) {
            self.return_credits(peer_index);
        }
    }

    /// Sends back the credits that are owed to a peer.
    #[cold]
    pub(crate) fn return_credits(&mut self, peer_index: u32) {
        let peer_state = &mut self.peers[peer_index as usize];
        let Some((envelopes, payload)) = peer_state.take_owed() else {
            return;
        };
        let header = PacketHeader {
            kind: PacketKind::Credit as u8,
            context: envelopes,
            source: payload as u32,
            ..PacketHeader::default()
        };
        let peer = peer_state.peer;
        self.publish_tally();
        // Credits that found no room yet take these along: a peer that reads nothing is owed one
        // packet, however many messages come.
        match self.control.unsent_credit(peer) {
            Some(unsent) => {
                unsent.context += header.context;
                unsent.source += header.source;
            }
            None => self.queue_control(peer, header, ControlPayload::new()),
        }
    }

    /// Returns the credits of a message that leaves the store.
    pub(crate) fn release_unexpected(&mut self, meta: &MessageInfo, body: &UnexpectedBody) {
        let payload = if matches!(body, UnexpectedBody::Inline(_) | UnexpectedBody::Buffer(_)) {
            meta.len
        } else {
            0
        };
        if meta.peer == self.me {
            self.unexpected.self_credit += payload;
        } else if meta.credited
            && let Some(peer_index) = self.peer_index(meta.peer)
        {
            self.release_credits(peer_index, payload);
        }
    }

    /// A control packet left.
    pub(crate) fn control_left(&mut self, peer: Peer, header: &PacketHeader) {
        if header.kind == PacketKind::Credit as u8
            && let Some(peer_index) = self.peer_index(peer)
        {
            self.peers[peer_index as usize].credits_left(header.context, header.source.into());
        }
    }

    /// Returns whether an answer of one of these kinds to a peer is still queued.
    pub(crate) fn owes_answer(&self, peer: Peer, kinds: &[PacketKind]) -> bool {
        self.control.owes(peer, kinds)
    }
}
