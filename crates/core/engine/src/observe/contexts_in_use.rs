//! Which contexts have operations that are alive.

use crate::api::Context;
use crate::engine::Shard;
use crate::requests::State;
use crate::transport::Rail;
use std::collections::HashSet;

/// Contexts in which operations are alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// Each once.
    pub contexts: HashSet<Context>,
    /// Places that were looked at to find that out: what the question costs.
    pub looked_at: usize,
}

impl InUse {
    /// These and those of `other`.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.contexts.extend(other.contexts);
        self.looked_at += other.looked_at;
        self
    }
}

impl<R: Rail> Shard<R> {
    /// The contexts in which operations are alive. Looks at all places for operations, if there is
    /// one.
    pub fn contexts_in_use(&self) -> InUse {
        if self.core.requests.alive() == 0 {
            return InUse::default();
        }
        let (mut contexts, mut last) = (HashSet::new(), None);
        for (_, operation) in self.core.requests.iter() {
            if operation.state != State::Free && last != Some(operation.context) {
                last = Some(operation.context);
                contexts.insert(operation.context);
            }
        }
        InUse {
            contexts,
            looked_at: self.core.requests.places(),
        }
    }
}
