//! Which contexts have operations that are alive.

use crate::api::ContextId;
use crate::engine::Engine;
use crate::requests::OpState;
use crate::transport::Transport;
use std::collections::HashSet;

/// Contexts in which operations are alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContextsInUse {
    /// Each once.
    pub contexts: HashSet<ContextId>,
    /// Places that were looked at to find that out: what the question costs.
    pub looked_at: usize,
}

impl ContextsInUse {
    /// Adds the contexts of `other`.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.contexts.extend(other.contexts);
        self.looked_at += other.looked_at;
        self
    }
}

impl<R: Transport> Engine<R> {
    /// The contexts in which operations are alive. Looks at all places for operations, if there is
    /// one.
    pub fn contexts_in_use(&self) -> ContextsInUse {
        if self.core.requests.alive() == 0 {
            return ContextsInUse::default();
        }
        let (mut contexts, mut last) = (HashSet::new(), None);
        for (_, operation) in self.core.requests.iter() {
            if operation.state != OpState::Free && last != Some(operation.context) {
                last = Some(operation.context);
                contexts.insert(operation.context);
            }
        }
        ContextsInUse {
            contexts,
            looked_at: self.core.requests.places(),
        }
    }
}
