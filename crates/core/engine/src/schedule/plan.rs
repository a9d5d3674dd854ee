//! Windows: in which order their messages leave, and the sending of them.
//!
//! Part of the shard. An order is planned by the strategy that was loaded, if there is one, else by
//! the built-in one, and only where there is something to decide. However plans go, the oldest
//! message of a window is not overtaken for ever.

use crate::api::ContextId;
use crate::engine::Engine;
use crate::limits::ORDER_PATIENCE;
use crate::schedule::order::{self, OrderPolicy, WindowEntry};
use crate::schedule::plugin::{CheckedPlugin, WindowView};
use crate::schedule::priority::{Priority, PriorityTable};
use crate::transport::Transport;
use std::ops::Range;
use std::sync::Arc;

/// The last query about a window, and its answer. A transport without room repeats the same query
/// again and again.
#[derive(Debug)]
pub(crate) struct CachedPlan {
    credits: (u32, u64),
    chunks: Vec<WindowEntry>,
    order: Option<Vec<usize>>,
}

/// Rule by which the messages of windows leave in order.
///
/// Owned by the core; set once by the engine's owner, priorities also later, by communicator.
#[derive(Debug, Default)]
pub(crate) struct SendOrder {
    /// Strategy plugin that is asked first.
    plugin: Option<Arc<CheckedPlugin>>,
    /// Order where the plugin does not say.
    policy: OrderPolicy,
    priorities: PriorityTable,
}

impl SendOrder {
    /// Returns the priorities of contexts.
    #[inline]
    pub(crate) fn priorities(&self) -> &PriorityTable {
        &self.priorities
    }
}

impl<R: Transport> Engine<R> {
    /// From now on messages leave in this order, where no other strategy decides.
    pub fn set_order(&mut self, ordering: OrderPolicy) {
        self.core.send_order.policy = ordering;
    }

    /// From now on this strategy is asked in which order messages leave. The transport is told
    /// separately.
    pub fn set_plugin(&mut self, loaded: Arc<CheckedPlugin>) {
        self.core.send_order.plugin = loaded.decides().order.then_some(loaded);
    }

    /// From now on messages of these contexts have this priority.
    pub fn set_priority(&mut self, contexts: Range<ContextId>, priority: Priority) {
        self.core.send_order.priorities.set(contexts, priority);
        self.transport
            .yield_to_small(self.core.send_order.priorities.any_low());
    }

    pub(crate) fn progress_windows(&mut self) -> bool {
        let mut moved = false;
        let mut at = 0;
        while let Some(peer_index) = self.core.windows.active(at) {
            moved |= self.progress_window(peer_index);
            if self.core.update_blocked(peer_index) {
                at += 1;
            } else {
                self.core.windows.deactivate(at);
            }
        }
        moved
    }

    /// Sends from one window as its plan says, until something has to wait.
    fn progress_window(&mut self, peer_index: u32) -> bool {
        let mut moved = false;
        while let Some(head) = self.core.window_head(peer_index) {
            if self.head_goes_first(peer_index, head) {
                if !self.send_planned(peer_index, head) {
                    return moved;
                }
                moved = true;
                continue;
            }
            let (indices, chunks) = self.core.window_view(peer_index);
            for at in self.planned(peer_index, &chunks) {
                // The sends of a peer that was lost meanwhile have ended.
                if self.core.is_in_window(indices[at]) {
                    if !self.send_planned(peer_index, indices[at]) {
                        return moved;
                    }
                    moved = true;
                }
            }
        }
        moved
    }

    /// Returns whether the oldest message of a window leaves first, without a plan.
    fn head_goes_first(&mut self, peer_index: u32, head: u32) -> bool {
        let entry = &mut self.core.peers[peer_index as usize];
        if entry.window_len == 1 || entry.overtaken >= ORDER_PATIENCE {
            return true;
        }
        if self.core.send_order.plugin.is_some() {
            // Without credit nothing leaves, and nothing is asked.
            entry.close_batch();
            return entry.envelopes == 0;
        }
        let (head, priorities) = (
            self.core.requests.peek(head),
            self.core.send_order.priorities(),
        );
        let priority = priorities.of(head.context);
        let ordering = self.core.send_order.policy;
        ordering.leads(head.data.len, priority, priorities.are_usual())
    }

    fn planned(&mut self, peer_index: u32, chunks: &[WindowEntry]) -> Vec<usize> {
        if let Some(loaded) = &self.core.send_order.plugin {
            // Of one context there is one order only.
            if chunks
                .iter()
                .all(|chunk| chunk.context == chunks[0].context)
            {
                return (0..chunks.len()).collect();
            }
            let entry = &mut self.core.peers[peer_index as usize];
            let credits = (entry.envelopes, entry.payload);
            let is_same = |last: &CachedPlan| last.credits == credits && last.chunks == chunks;
            if !entry.cached_plan.as_deref().is_some_and(is_same) {
                let order = loaded.order(&WindowView {
                    peer: entry.peer,
                    envelopes: entry.envelopes,
                    payload: entry.payload,
                    chunks,
                });
                entry.cached_plan = Some(Box::new(CachedPlan {
                    credits,
                    chunks: chunks.to_vec(),
                    order,
                }));
            }
            if let Some(order) = entry
                .cached_plan
                .as_deref()
                .and_then(|last| last.order.clone())
            {
                return order;
            }
        }
        let order = order::plan(self.core.send_order.policy, chunks);
        assert!(
            order::check(chunks, &order),
            "a plan breaks the order of envelopes"
        );
        order
    }

    /// Sends an envelope of a window. `false`: it has to wait.
    fn send_planned(&mut self, peer_index: u32, index: u32) -> bool {
        let oldest = self.core.window_head(peer_index) == Some(index);
        let sent = self.send_from_window(peer_index, index);
        if sent {
            // A send that ended took its links with it; one that only was announced still has them.
            self.core.left_window(peer_index, index);
            let overtaken = &mut self.core.peers[peer_index as usize].overtaken;
            *overtaken = if oldest { 0 } else { *overtaken + 1 };
        }
        sent
    }
}
