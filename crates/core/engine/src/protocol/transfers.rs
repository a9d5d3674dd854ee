//! Transfers of large data that go on, in the order in which each gets its next turn.
//!
//! Three kinds: receives that read their sender's region, sends that write to their receiver's
//! memory, and sends that were cleared to send packets. Operations are named by their index in the
//! request table. Bounded by the operations that the program leaves pending.

use crate::api::Peer;
use std::collections::{BTreeMap, VecDeque};

/// The transfers of one engine that go on, and what is to be told or taken back after them.
///
/// Owned by the core. Protocols queue an operation when its next part may move; the engine's pass
/// takes it out, moves a part, and queues it again if there is more.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    /// Receives that read their sender's region.
    pub reads: TurnQueue,
    /// Sends that may write to their receivers' memory.
    pub writes: TurnQueue,
    /// Sends that were cleared to send by packets.
    pub packets: PacketSends,
    finished: Vec<(u64, bool)>,
    revokes: Vec<u32>,
}

impl Transfers {
    /// Tells the transport later that the receive `name` is fetched, and whether the chosen way
    /// worked: the transport learns from it.
    pub(crate) fn push_finished(&mut self, name: u64, worked: bool) {
        self.finished.push((name, worked));
    }

    /// Takes what the transport is to be told.
    pub(crate) fn take_finished(&mut self) -> Vec<(u64, bool)> {
        std::mem::take(&mut self.finished)
    }

    /// Has the region of an operation revoked later.
    pub(crate) fn push_revoke(&mut self, index: u32) {
        self.revokes.push(index);
    }

    /// Takes an operation whose region is to be revoked.
    pub(crate) fn pop_revoke(&mut self) -> Option<u32> {
        self.revokes.pop()
    }
}

/// Operations that get turns, the next one first.
#[derive(Debug, Default)]
pub(crate) struct TurnQueue(VecDeque<u32>);

impl TurnQueue {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of operations.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn contains(&self, index: u32) -> bool {
        self.0.contains(&index)
    }

    /// Appends an operation.
    pub(crate) fn push(&mut self, index: u32) {
        self.0.push_back(index);
    }

    /// Appends an operation that is not in the queue yet.
    pub(crate) fn push_once(&mut self, index: u32) {
        if !self.0.contains(&index) {
            self.0.push_back(index);
        }
    }

    /// Gives an operation the next turn.
    pub(crate) fn push_first(&mut self, index: u32) {
        self.0.push_front(index);
    }

    /// Returns the operation whose turn is next.
    pub(crate) fn first(&self) -> Option<u32> {
        self.0.front().copied()
    }

    /// Takes the operation whose turn is next.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        self.0.pop_front()
    }

    /// Takes this operation out if it is the last.
    pub(crate) fn pop_last(&mut self, index: u32) -> bool {
        let last = self.0.back() == Some(&index);
        if last {
            self.0.pop_back();
        }
        last
    }

    /// Takes an operation out, wherever it is.
    pub(crate) fn remove(&mut self, index: u32) {
        self.0.retain(|&other| other != index);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + use<'_> {
        self.0.iter().copied()
    }
}

/// Sends that were cleared to send by packets, by peer, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct PacketSends {
    /// No queue is empty.
    queues: BTreeMap<Peer, VecDeque<u32>>,
}

impl PacketSends {
    /// Appends a send to those to `peer`.
    pub(crate) fn push(&mut self, peer: Peer, index: u32) {
        self.queues.entry(peer).or_default().push_back(index);
    }

    /// Returns the first peer from this one on to which there are sends.
    pub(crate) fn next_peer(&self, from: Peer) -> Option<Peer> {
        self.queues.range(from..).next().map(|(&peer, _)| peer)
    }

    /// Returns the send at a place among those to `peer`.
    pub(crate) fn get(&self, peer: Peer, place: usize) -> Option<u32> {
        self.queues.get(&peer)?.get(place).copied()
    }

    /// Takes the send at a place among those to `peer` out.
    pub(crate) fn remove(&mut self, peer: Peer, place: usize) {
        if let Some(queue) = self.queues.get_mut(&peer) {
            queue.remove(place);
            if queue.is_empty() {
                self.queues.remove(&peer);
            }
        }
    }

    /// Takes a send out, wherever it is.
    pub(crate) fn forget(&mut self, index: u32) {
        self.queues.retain(|_, queue| {
            queue.retain(|&other| other != index);
            !queue.is_empty()
        });
    }

    /// Returns whether there are sends to `peer`.
    pub(crate) fn has(&self, peer: Peer) -> bool {
        self.queues.contains_key(&peer)
    }

    /// Drops the sends to a peer that is gone.
    pub(crate) fn drop_peer(&mut self, peer: Peer) {
        self.queues.remove(&peer);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + use<'_> {
        self.queues.values().flatten().copied()
    }
}
