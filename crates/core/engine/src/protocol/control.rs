//! Control packets that wait for room: credits, answers to probes, CTS, FIN and the like.
//!
//! A packet is queued by whichever protocol owes it, and leaves in a pass of the engine, in order
//! per peer. Packets for a peer that looks at nothing any more are deferred, so that they are no
//! work. Bounded by what protocols owe: each answers one packet with at most one.

use crate::api::Peer;
use crate::limits::OUTBOX;
use crate::protocol::wire::ControlPayload;
use crate::transport::{PacketHeader, PacketKind};
use std::collections::VecDeque;

/// A control packet that waits for room.
#[derive(Debug)]
pub(crate) struct ControlPacket {
    pub peer: Peer,
    pub header: PacketHeader,
    pub bytes: ControlPayload,
}

/// The control packets of one engine that have not left yet.
///
/// Owned by the core. Protocols call `push`; the engine's pass takes packets with `pop` and gives
/// back with `push` those that found no room.
#[derive(Debug)]
pub(crate) struct ControlQueues {
    outbox: VecDeque<ControlPacket>,
    /// Packets for peers that look at nothing any more, until this rank is in use again.
    deferred: VecDeque<ControlPacket>,
}

impl ControlQueues {
    pub(crate) fn new() -> Self {
        Self {
            outbox: VecDeque::with_capacity(OUTBOX),
            deferred: VecDeque::new(),
        }
    }

    /// Returns whether no packet waits to leave; deferred ones do not.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Returns the number of packets that wait to leave.
    pub(crate) fn len(&self) -> usize {
        self.outbox.len()
    }

    /// Appends a packet.
    pub(crate) fn push(&mut self, packet: ControlPacket) {
        self.outbox.push_back(packet);
    }

    /// Takes the oldest packet.
    pub(crate) fn pop(&mut self) -> Option<ControlPacket> {
        self.outbox.pop_front()
    }

    /// Defers the packets for peers that `left`.
    pub(crate) fn defer(&mut self, left: impl Fn(Peer) -> bool) {
        for packet in std::mem::take(&mut self.outbox) {
            let queue = if left(packet.peer) {
                &mut self.deferred
            } else {
                &mut self.outbox
            };
            queue.push_back(packet);
        }
    }

    /// Queues the deferred packets again, before all others. `true`: there were some.
    pub(crate) fn resume(&mut self) -> bool {
        let some = !self.deferred.is_empty();
        while let Some(packet) = self.deferred.pop_back() {
            self.outbox.push_front(packet);
        }
        some
    }

    /// Drops all packets for a peer that is gone.
    pub(crate) fn drop_peer(&mut self, peer: Peer) {
        self.outbox.retain(|packet| packet.peer != peer);
        self.deferred.retain(|packet| packet.peer != peer);
    }

    /// Returns the credit packet for `peer` that waits to leave, for more credits to go with it.
    pub(crate) fn unsent_credit(&mut self, peer: Peer) -> Option<&mut PacketHeader> {
        self.outbox
            .iter_mut()
            .find(|packet| packet.peer == peer && packet.header.kind == PacketKind::Credit as u8)
            .map(|packet| &mut packet.header)
    }

    /// Returns whether a packet of one of these kinds for `peer` waits or is deferred.
    pub(crate) fn owes(&self, peer: Peer, kinds: &[PacketKind]) -> bool {
        let is_one = |header: &PacketHeader| kinds.iter().any(|kind| *kind as u8 == header.kind);
        self.outbox
            .iter()
            .chain(&self.deferred)
            .any(|packet| packet.peer == peer && is_one(&packet.header))
    }
}
