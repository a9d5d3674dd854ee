//! Priorities of communicators: whose messages go before others' where something has to wait.
//!
//! Kept by the shard for the contexts that have another than the usual one, mostly none; asked only
//! about what waits in windows and what is longer than a packet. Bounded by the communicators that
//! have a hint; a look takes the logarithm of their number.

use crate::api::ContextId;
use std::ops::Range;

/// Before those below it; the usual one is in the middle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Leaves before others.
    High,
    /// Small messages before large ones.
    #[default]
    Normal,
    /// Leaves after others; what is longer than a packet is announced, so that it stands in
    /// nobody's way.
    Low,
}

impl Priority {
    /// The one of this name in hints.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "high" => Some(Self::High),
            "normal" => Some(Self::Normal),
            "low" => Some(Self::Low),
            _ => None,
        }
    }
}

/// The contexts whose priority is not the usual one, in ascending order.
#[derive(Debug, Default)]
pub(crate) struct PriorityTable(Vec<(Range<ContextId>, Priority)>);

impl PriorityTable {
    /// From now on these contexts have this priority. They are as many and the same as ever they
    /// are named with.
    pub fn set(&mut self, contexts: Range<ContextId>, priority: Priority) {
        let at = self
            .0
            .partition_point(|(known, _)| known.start < contexts.start);
        let is_known = self.0.get(at).is_some_and(|(known, _)| *known == contexts);
        match (is_known, priority != Priority::default()) {
            (true, true) => self.0[at].1 = priority,
            (true, false) => drop(self.0.remove(at)),
            (false, true) => self.0.insert(at, (contexts, priority)),
            (false, false) => {}
        }
    }

    /// Returns whether a communicator has low priority.
    pub fn any_low(&self) -> bool {
        self.0
            .iter()
            .any(|(_, priority)| *priority == Priority::Low)
    }

    /// Returns whether all communicators have the usual priority.
    pub fn are_usual(&self) -> bool {
        self.0.is_empty()
    }

    pub fn of(&self, context: ContextId) -> Priority {
        let after = self
            .0
            .partition_point(|(contexts, _)| contexts.start <= context);
        let found = self.0[..after]
            .last()
            .filter(|(contexts, _)| contexts.contains(&context));
        found.map_or_else(Priority::default, |(_, priority)| *priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_have_what_was_said_last_of_them() {
        let mut known = PriorityTable::default();
        assert!(known.are_usual());
        known.set(16..24, Priority::Low);
        known.set(8..16, Priority::High);
        known.set(32..40, Priority::High);
        known.set(32..40, Priority::Normal);
        let seen = [7, 8, 15, 16, 23, 24].map(|context| known.of(context));
        use Priority::{High, Low, Normal};
        assert_eq!(seen, [Normal, High, High, Low, Low, Normal]);
        known.set(8..16, Priority::Low);
        assert_eq!(known.of(9), Low);
        known.set(8..16, Priority::Normal);
        assert!(known.any_low());
        known.set(16..24, Priority::Normal);
        assert!(known.are_usual() && !known.any_low());
        for priority in ["high", "normal", "low"] {
            assert!(Priority::named(priority).is_some());
        }
        assert_eq!(Priority::named("urgent"), None);
    }
}
