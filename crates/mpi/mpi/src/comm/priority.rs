//! Priorities of communicators (`garonne_engine::schedule::priority`), by a hint that any of their
//! processes may give at any time, each for what it sends.

use super::{Comm, CommInner, lock};
use crate::limits::CONTEXTS_PER_COMM;
use garonne_engine::api::{ContextId, in_shard, without_shard};
use garonne_engine::schedule::priority::Priority;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// The hint: `high`, `normal` or `low`.
pub(crate) const HINT: &str = "garonne_priority";

/// Returns whether a value of the hint means anything.
pub(crate) fn is_known(value: &str) -> bool {
    Priority::named(value).is_some()
}

impl Comm {
    /// Tells the engine what its hints say of its priority.
    pub(crate) fn prioritise(&self) {
        // Held until the engine knows: of two threads that set hints the last decides.
        let mut is_told = lock(&self.0.has_priority);
        let said = self.info().lookup(HINT);
        let priority = said
            .and_then(|name| Priority::named(&name))
            .unwrap_or_default();
        // Nobody is told of what has always been so.
        let is_unusual = priority != Priority::default();
        if *is_told || is_unusual {
            self.0.tell_priority(priority);
        }
        *is_told = is_unusual;
    }
}

impl CommInner {
    /// Contexts of the communicator, by shard; none before it is complete.
    fn contexts(&self) -> impl Iterator<Item = Range<ContextId>> {
        let context = self.context.load(Ordering::Relaxed);
        let shards = match (self.lease.get(), self.tag_shards.load(Ordering::Relaxed)) {
            (None, _) => 0,
            (_, 0) => 1,
            (_, shards) => shards,
        };
        (0..shards).map(move |shard| {
            let first = match shards {
                1 => context,
                _ => in_shard(shard as usize, without_shard(context)),
            };
            first..first + CONTEXTS_PER_COMM
        })
    }

    fn tell_priority(&self, priority: Priority) {
        for contexts in self.contexts() {
            // A hint that cannot be followed is none: what is wrong with a shard is told by
            // messages on it.
            let _ = self.process.host.prioritise(contexts, priority);
        }
    }

    /// Resets the priorities of the communicator's contexts, which another communicator may get
    /// soon.
    pub(super) fn forget_contexts(&self) {
        for contexts in self.contexts() {
            self.process.host.forget_contexts(contexts);
        }
        if *lock(&self.has_priority) {
            self.tell_priority(Priority::default());
        }
    }
}
