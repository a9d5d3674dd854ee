//! The streams of a rank: how envelopes are numbered between it and one peer in one context.
//!
//! Owned by the core. A stream begins with the first envelope in either direction, on both sides
//! with number 0, and goes when both have freed its communicator: each forgets it by itself, and no
//! other communicator gets the context before. Whoever frees one has received all that was sent to
//! it there, unless a program leaves messages lying; such a stream, or one that begins with a
//! message that comes still later, is left behind. Bounded by the contexts of living communicators
//! and the peers spoken to in each.

use crate::api::ContextId;
use crate::core::Core;
use crate::engine::Engine;
use crate::key_map::{KeyMap, TableKey};
use crate::peer::state::{ProbeAsker, RemoteWindow, Sequence, stream_keys};
use crate::transport::Transport;
use std::collections::BTreeSet;
use std::ops::Range;

/// See the module's paragraph.
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

    /// Where the stream of this key lies, until it is forgotten.
    #[inline]
    pub(crate) fn find(&self, key: TableKey) -> Option<u32> {
        self.map.find(key)
    }

    /// The same; it begins if there was none.
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

    /// Forgets those in these contexts, of which no track is left, but for what is out of sequence.
    fn forget(&mut self, contexts: &Range<ContextId>) {
        let keys: Vec<u64> = self.keys.range(stream_keys(contexts)).copied().collect();
        for key in keys {
            let found = self.map.find(TableKey(key, 0));
            if let Some(at) = found.filter(|&at| self.map.get(at).odd.is_none()) {
                self.map.remove(at);
                self.keys.remove(&key);
            }
        }
    }
}

impl RemoteWindow {
    /// What was asked for in these contexts is of no use any more. `true`: another question may
    /// follow.
    fn forget(&mut self, contexts: &Range<ContextId>) -> bool {
        self.queue
            .retain(|question| !contexts.contains(&question.context));
        self.denied
            .retain(|(context, _)| !contexts.contains(context));
        self.offers
            .retain(|(_, held)| !contexts.contains(&held.context));
        let Some(question) = &mut self.asked else {
            return false;
        };
        if !contexts.contains(&question.context) {
            return false;
        }
        // The peer answers in any case.
        question.asker = ProbeAsker::Nobody;
        let is_answered = self.offer.take().is_some();
        if is_answered {
            self.asked = None;
        }
        is_answered
    }
}

impl Core {
    fn forget(&mut self, contexts: &Range<ContextId>) {
        // They name streams.
        self.settle_inlets();
        self.end_tracks(contexts);
        self.routes.forget(contexts);
        self.streams.forget(contexts);
        self.ahead.forget_contexts(contexts);
        for gate in 0..self.gates.len() as u32 {
            if self.gates[gate as usize].asking.forget(contexts) {
                self.ask_next(gate);
            }
        }
    }
}

impl<R: Transport> Engine<R> {
    /// The communicator of these contexts is gone, here and soon on all its members, with all
    /// operations on it: its streams and their tracks end. Whoever still has one of those must not
    /// use it again.
    pub fn forget(&mut self, contexts: &Range<ContextId>) {
        self.core.forget(contexts);
    }

    /// Streams that are known: for those who count what is left behind.
    pub fn streams(&self) -> usize {
        self.core.streams.map.len()
    }
}
