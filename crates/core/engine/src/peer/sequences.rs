//! Sequences of a rank: how envelopes are numbered between it and one peer in one context.
//!
//! Owned by the core. A sequence begins with the first envelope in either direction, on both sides
//! with number 0. It ends when both have freed its communicator: each side forgets it alone, and no
//! other communicator gets the context before. Whoever frees a communicator has received all that
//! was sent to it there, unless a program leaves messages lying. Such a sequence, or one that
//! begins with a message that comes still later, is left behind. Bounded by the contexts of living
//! communicators and the peers spoken to in each.

use crate::api::{ContextId, Peer};
use crate::core::Core;
use crate::engine::Engine;
use crate::fast::send_channel::SendChannel;
use crate::key_map::{KeyMap, TableKey};
use crate::peer::reorder::Reorder;
use crate::protocol::remote_window::{ProbeAsker, RemoteWindow};
use crate::transport::Transport;
use garonne_sync::post_mortem::PostMortemArc;
use std::collections::BTreeSet;
use std::ops::Range;

/// The numbering of envelopes of one context between this rank and one peer.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    /// Next number to send, while there is no send channel.
    tx: u64,
    /// the fast path of this sequence's small messages, which then numbers all.
    pub channel: Option<PostMortemArc<SendChannel>>,
    /// Numbers below were given while there was a send channel that is gone: what was sent under
    /// them is not known any more.
    pub unlogged_below: u64,
    /// Next number to enter the matcher.
    pub next_rx: u64,
    /// Present only while something is out of sequence.
    pub reorder: Option<Box<Reorder>>,
}

impl Sequence {
    /// The next number to send.
    #[inline(always)]
    pub(crate) fn next_tx(&self) -> u64 {
        self.channel.as_ref().map_or(self.tx, |track| track.next())
    }

    /// Ends the send channel, and returns it.
    pub(crate) fn end_channel(&mut self) -> Option<PostMortemArc<SendChannel>> {
        let track = self.channel.take()?;
        (self.tx, self.unlogged_below) = (track.next(), track.next());
        Some(track)
    }

    /// Counts a sent message with this tag that did not take the send channel.
    #[inline(always)]
    pub(crate) fn count_tx(&mut self, tag: i32) {
        match &self.channel {
            Some(track) => track.count(tag),
            None => self.tx += 1,
        }
    }
}

/// The key of the sequence between this rank and `peer` in `context`.
#[inline]
pub(crate) fn stream_key(context: ContextId, peer: Peer) -> TableKey {
    TableKey(u64::from(context) << 32 | u64::from(peer), 0)
}

/// The first words of the keys of all sequences in these contexts.
pub(crate) fn stream_keys(contexts: &Range<ContextId>) -> Range<u64> {
    let first = |context| stream_key(context, 0).0;
    first(contexts.start)..first(contexts.end)
}

/// The full number of which `sequence` is the low half, the one nearest to `near`.
#[inline]
pub(crate) fn widen(near: u64, sequence: u32) -> u64 {
    near.wrapping_add_signed(i64::from(sequence.wrapping_sub(near as u32) as i32))
}

/// Table of the sequences of a rank, by context and peer.
#[derive(Debug)]
pub(crate) struct Sequences {
    map: KeyMap<Sequence>,
    /// First words of their keys (the second is 0): those of a context lie together.
    keys: BTreeSet<u64>,
}

impl Sequences {
    pub(crate) fn new() -> Self {
        Self {
            map: KeyMap::new(),
            keys: BTreeSet::new(),
        }
    }

    /// Returns the index of the sequence with this key; valid until the sequence is forgotten.
    #[inline]
    pub(crate) fn find(&self, key: TableKey) -> Option<u32> {
        self.map.find(key)
    }

    /// Returns the index of the sequence with this key, and creates the sequence if there was none.
    #[inline]
    pub(crate) fn find_or_insert(&mut self, key: TableKey) -> u32 {
        match self.map.find(key) {
            Some(at) => at,
            None => self.begin(key),
        }
    }

    #[cold]
    fn begin(&mut self, key: TableKey) -> u32 {
        self.keys.insert(key.0);
        self.map.find_or_insert(key)
    }

    #[inline]
    pub(crate) fn get(&self, at: u32) -> &Sequence {
        self.map.get(at)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: u32) -> &mut Sequence {
        self.map.get_mut(at)
    }

    /// Forgets those in these contexts, of which no send channel is left, but for what is out of
    /// sequence.
    fn forget(&mut self, contexts: &Range<ContextId>) {
        let keys: Vec<u64> = self.keys.range(stream_keys(contexts)).copied().collect();
        for key in keys {
            let found = self.map.find(TableKey(key, 0));
            if let Some(at) = found.filter(|&at| self.map.get(at).reorder.is_none()) {
                self.map.remove(at);
                self.keys.remove(&key);
            }
        }
    }
}

impl RemoteWindow {
    /// Forgets the probes in these contexts. Returns whether the next probe may be sent.
    fn forget(&mut self, contexts: &Range<ContextId>) -> bool {
        self.probes
            .retain(|question| !contexts.contains(&question.context));
        self.misses
            .retain(|(context, _)| !contexts.contains(context));
        self.hits
            .retain(|(_, held)| !contexts.contains(&held.context));
        let Some(question) = &mut self.in_flight else {
            return false;
        };
        if !contexts.contains(&question.context) {
            return false;
        }
        // The peer answers in any case.
        question.asker = ProbeAsker::Nobody;
        let is_answered = self.hit.take().is_some();
        if is_answered {
            self.in_flight = None;
        }
        is_answered
    }
}

impl Core {
    fn forget(&mut self, contexts: &Range<ContextId>) {
        // They name sequences.
        self.settle_recv_channels();
        self.end_send_channels(contexts);
        self.routes.forget(contexts);
        self.sequences.forget(contexts);
        self.early_rtr.forget_contexts(contexts);
        for peer_index in 0..self.peers.len() as u32 {
            if self.peers[peer_index as usize]
                .remote_window
                .forget(contexts)
            {
                self.send_next_probe(peer_index);
            }
        }
    }
}

impl<R: Transport> Engine<R> {
    /// The communicator of these contexts is gone, here and soon on all its members, with all
    /// operations on it: its sequences and their send channels end. Whoever still has one of those
    /// must not use it again.
    pub fn forget(&mut self, contexts: &Range<ContextId>) {
        self.core.forget(contexts);
    }

    /// Sequences that are known: for those who count what is left behind.
    pub fn streams(&self) -> usize {
        self.core.sequences.map.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_the_wrap_of_their_low_half() {
        let near = (7u64 << 32) - 2;
        assert_eq!(widen(near, 3), (7 << 32) + 3);
        assert_eq!(widen((7 << 32) + 1, u32::MAX), (7 << 32) - 1);
        assert_eq!(widen(0, 5), 5);
    }
}
