//! Sequences of a rank: how envelopes are numbered between it and one peer in one context.
//!
//! Owned by the core. A sequence begins with the first envelope in either direction, on both sides
//! with number 0. It ends when both have freed its communicator: each side forgets it alone, and no
//! other communicator gets the context before. Whoever frees a communicator has received all that
//! was sent to it there, unless a program leaves messages lying. Such a sequence, or one that
//! begins with a message that comes still later, is left behind. Bounded by the contexts of living
//! communicators and the peers spoken to in each.

use crate::api::ContextId;
use crate::core::Core;
use crate::engine::Engine;
use crate::key_map::{KeyMap, TableKey};
use crate::peer::state::{ProbeAsker, RemoteWindow, Sequence, stream_keys};
use crate::transport::Transport;
use std::collections::BTreeSet;
use std::ops::Range;

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
        for gate in 0..self.peers.len() as u32 {
            if self.peers[gate as usize].remote_window.forget(contexts) {
                self.send_next_probe(gate);
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
