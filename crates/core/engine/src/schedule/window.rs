//! Windows: the sends that wait for credits or room, by peer.
//!
//! A blocked send is in three lists of its peer: by (context, tag), by context, and in the whole
//! window. So the oldest one that a pattern accepts is found in constant time. A send that its
//! receiver pulled has left these lists and waits to leave outside the credits. The peer is told
//! when credits begin and cease to keep sends back (`Blocked`).

use crate::api::{ContextId, Peer};
use crate::core::Core;
use crate::key_map::{KeyedQueues, TableKey};
use crate::limits::ORDER_LOOK_AHEAD;
use crate::observe::events::EventKind;
use crate::protocol::wire::ControlPayload;
use crate::requests::OpState;
use crate::schedule::order::WindowEntry;
use crate::transport::{PacketHeader, PacketKind};
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
    pub(crate) fn activate(&mut self, peer_index: u32) {
        self.active.push(peer_index);
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

impl Core {
    /// A send joins the window of its peer state.
    pub(crate) fn join_window(&mut self, peer_index: u32, index: u32) {
        let operation = self.requests.at(index);
        operation.state = OpState::InWindow;
        let (context, peer, tag, len) = (
            operation.context,
            operation.peer,
            operation.tag,
            operation.data.len,
        );
        self.windows.push(index, context, peer, tag);
        self.note(EventKind::Blocked, peer, context, tag, len);
        let entry = &mut self.peers[peer_index as usize];
        entry.close_batch();
        entry.window_len += 1;
        if entry.window_len == 1 {
            self.windows.activate(peer_index);
            self.has_work = true;
        }
        if entry.probe_missed {
            entry.epoch = entry.epoch.wrapping_add(1);
            entry.probe_missed = false;
            self.send_blocked(peer_index, true);
        }
    }

    /// Takes a blocked send out of its window's lists.
    pub(crate) fn unlink(&mut self, peer_index: u32, index: u32) {
        self.windows.remove(index);
        self.peers[peer_index as usize].window_len -= 1;
    }

    /// A blocked send ends without being sent.
    pub(crate) fn leave_unsent(&mut self, index: u32) {
        self.windows.forget_pulled(index);
        let peer = self.requests.peek(index).peer;
        if let Some(peer_index) = self.peer_index(peer)
            && self.windows.contains(index)
        {
            self.unlink(peer_index, index);
        }
    }

    /// The head of a window left it.
    pub(crate) fn left_window(&mut self, peer_index: u32, index: u32) {
        if self.windows.contains(index) {
            self.unlink(peer_index, index);
        }
    }

    /// The oldest send in a window.
    pub(crate) fn window_head(&self, peer_index: u32) -> Option<u32> {
        self.windows.head(self.peers[peer_index as usize].peer)
    }

    /// The oldest sends in a window, as many as plans look at, and what a plan needs of them.
    pub(crate) fn window_view(&self, peer_index: u32) -> (Vec<u32>, Vec<WindowEntry>) {
        let (mut indices, mut chunks) = (Vec::new(), Vec::new());
        let sends = self.windows.iter(self.peers[peer_index as usize].peer);
        for index in sends.take(ORDER_LOOK_AHEAD) {
            let operation = self.requests.peek(index);
            indices.push(index);
            chunks.push(WindowEntry {
                context: operation.context,
                tag: operation.tag,
                len: operation.data.len,
                priority: self.send_order.priorities().of(operation.context),
            });
        }
        (indices, chunks)
    }

    /// Returns whether a send is in a window.
    pub(crate) fn is_in_window(&self, index: u32) -> bool {
        self.windows.contains(index)
    }

    /// Tells the peer whether credits keep envelopes back, when that changed. `true`: the window is
    /// not empty.
    pub(crate) fn update_blocked(&mut self, peer_index: u32) -> bool {
        let entry = &self.peers[peer_index as usize];
        let (held, told, without) = (
            entry.window_len != 0,
            entry.blocked_told,
            entry.envelopes == 0,
        );
        if held && without && !told {
            self.send_blocked(peer_index, true);
        } else if !held && told {
            self.send_blocked(peer_index, false);
        }
        held
    }

    fn send_blocked(&mut self, peer_index: u32, held: bool) {
        let entry = &mut self.peers[peer_index as usize];
        entry.blocked_told = held;
        let header = PacketHeader {
            kind: PacketKind::Blocked as u8,
            context: u32::from(held),
            sequence: entry.epoch,
            ..PacketHeader::default()
        };
        let peer = entry.peer;
        self.queue_control(peer, header, ControlPayload::new());
    }
}
