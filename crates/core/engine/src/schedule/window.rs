//! Windows: the sends that wait for credits or room, by peer.
//!
//! A blocked send is in three lists of its peer: by (context, tag), by context, and in the whole
//! window. So the oldest one that a pattern accepts is found in constant time. A send that its
//! receiver pulled has left these lists and waits to leave outside the credits.

use crate::api::{ContextId, Peer};
use crate::key_map::{KeyedQueues, TableKey};
use std::collections::VecDeque;

/// Links of a blocked send: by (context, tag), by context, and in the whole window.
const LINKS: u32 = 3;
/// Second word of a key: any tag.
const ANY_TAG: u64 = 1 << 32;
/// Second word of a key: the whole window of a peer.
const WHOLE: u64 = 2 << 32;

fn tag_key(context: ContextId, peer: Peer, tag: Option<i32>) -> TableKey {
    TableKey(
        u64::from(context) << 32 | u64::from(peer),
        tag.map_or(ANY_TAG, |tag| u64::from(tag as u32)),
    )
}

fn whole_key(peer: Peer) -> TableKey {
    TableKey(u64::from(peer), WHOLE)
}

/// The windows of one engine, to all its peers.
///
/// Owned by the core. A send joins with `push` and leaves with `remove`, or with `pull` for a
/// receiver that asked for it. Sends are named by their index in the request table. Bounded by the
/// sends that the program leaves pending.
#[derive(Debug)]
pub(crate) struct SendWindows {
    queues: KeyedQueues,
    /// Peer states whose window may move.
    active: Vec<u32>,
    /// Sends that receivers took out of windows, in the order in which they asked.
    pulled: VecDeque<u32>,
}

impl SendWindows {
    pub(crate) fn new() -> Self {
        Self {
            queues: KeyedQueues::new(),
            active: Vec::new(),
            pulled: VecDeque::new(),
        }
    }

    /// Returns whether no send is in any window.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Appends a send to its peer's window.
    pub(crate) fn push(&mut self, index: u32, context: ContextId, peer: Peer, tag: i32) {
        self.queues
            .push(tag_key(context, peer, Some(tag)), index * LINKS);
        self.queues
            .push(tag_key(context, peer, None), index * LINKS + 1);
        self.queues.push(whole_key(peer), index * LINKS + 2);
    }

    /// Takes a send out of its window, which it must be in.
    pub(crate) fn remove(&mut self, index: u32) {
        for link in 0..LINKS {
            self.queues.remove(index * LINKS + link);
        }
    }

    /// Returns whether a send is in a window.
    pub(crate) fn contains(&self, index: u32) -> bool {
        self.queues.linked(index * LINKS)
    }

    /// Returns the oldest send to `peer`.
    pub(crate) fn head(&self, peer: Peer) -> Option<u32> {
        self.queues.head(whole_key(peer)).map(|link| link / LINKS)
    }

    /// Returns the sends to `peer`, the oldest first.
    pub(crate) fn iter(&self, peer: Peer) -> impl Iterator<Item = u32> + use<'_> {
        self.from(self.queues.head(whole_key(peer)))
    }

    /// Returns the sends to `peer` in a context, of one tag or of any, the oldest first.
    pub(crate) fn matching(
        &self,
        context: ContextId,
        peer: Peer,
        tag: Option<i32>,
    ) -> impl Iterator<Item = u32> + use<'_> {
        self.from(self.queues.head(tag_key(context, peer, tag)))
    }

    fn from(&self, first: Option<u32>) -> impl Iterator<Item = u32> + use<'_> {
        std::iter::successors(first, |&link| self.queues.next(link)).map(|link| link / LINKS)
    }

    /// A peer state whose window got its first send is looked at from now on.
    pub(crate) fn activate(&mut self, gate: u32) {
        self.active.push(gate);
    }

    /// Returns the `at`-th peer state that is looked at.
    pub(crate) fn active(&self, at: usize) -> Option<u32> {
        self.active.get(at).copied()
    }

    /// The `at`-th peer state is not looked at any more; another takes its place.
    pub(crate) fn deactivate(&mut self, at: usize) {
        self.active.swap_remove(at);
    }

    /// A receiver pulled this send, which has left its window.
    pub(crate) fn push_pulled(&mut self, index: u32) {
        self.pulled.push_back(index);
    }

    /// Takes the pulled send that waits longest.
    pub(crate) fn pop_pulled(&mut self) -> Option<u32> {
        self.pulled.pop_front()
    }

    /// Returns the number of pulled sends that wait.
    pub(crate) fn pulled_len(&self) -> usize {
        self.pulled.len()
    }

    /// Forgets a pulled send that ends without being sent.
    pub(crate) fn forget_pulled(&mut self, index: u32) {
        self.pulled.retain(|&pulled| pulled != index);
    }
}
