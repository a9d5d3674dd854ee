//! Operations that the program left open, and the test whether one of them is still pending.
//!
//! `async_progress` owns one list for each engine. The list is tested after each wait, so the test
//! costs the same however many operations are listed: one pending operation, at the end, answers
//! for all.

use crate::limits::OPEN_FEW;
use garonne_engine::api::Request;

/// The list of operations that the program left open, of one engine.
#[derive(Debug)]
pub(super) struct OpenOperations {
    operations: Vec<Request>,
    /// Length at which all that are over are taken out.
    sweep_at: usize,
}

impl Default for OpenOperations {
    fn default() -> Self {
        Self {
            operations: Vec::new(),
            sweep_at: OPEN_FEW,
        }
    }
}

impl OpenOperations {
    /// Notes an operation. `true`: no other goes on.
    pub(super) fn add(&mut self, operation: Request, is_over: impl Fn(Request) -> bool) -> bool {
        let alone = !self.goes_on(&is_over);
        if self.operations.len() >= self.sweep_at {
            self.operations.retain(|&operation| !is_over(operation));
            self.sweep_at = (2 * self.operations.len()).max(OPEN_FEW);
        }
        self.operations.push(operation);
        alone
    }

    /// Returns whether an operation goes on. What is over at the end of the list is forgotten.
    pub(super) fn goes_on(&mut self, is_over: impl Fn(Request) -> bool) -> bool {
        while self
            .operations
            .pop_if(|operation| is_over(*operation))
            .is_some()
        {}
        !self.operations.is_empty()
    }

    /// Returns whether nothing was noted that was not found to be over.
    pub(super) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.operations.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::collections::HashSet;

    fn operation(index: u32) -> Request {
        Request {
            index,
            generation: 0,
        }
    }

    /// Returns how often operations were asked after while `count` were left open and ended in
    /// turn, with a question after each.
    fn questions(count: u32) -> u64 {
        let (asked, over) = (Cell::new(0u64), Cell::new(0u32));
        let is_over = |operation: Request| {
            asked.set(asked.get() + 1);
            operation.index < over.get()
        };
        let mut open = OpenOperations::default();
        for index in 0..count {
            assert_eq!(open.add(operation(index), is_over), index == 0);
        }
        for ended in 1..=count {
            over.set(ended);
            assert_eq!(open.goes_on(is_over), ended < count);
        }
        asked.get()
    }

    #[test]
    fn a_question_costs_the_same_however_many_are_open() {
        for count in [10_000, 100_000] {
            let each = questions(count) as f64 / f64::from(count);
            assert!(
                each < 6.0,
                "{each} looks at an operation for each of {count}"
            );
        }
    }

    #[test]
    fn what_is_over_does_not_pile_up_behind_what_goes_on() {
        let mut open = OpenOperations::default();
        let over: HashSet<u32> = (1..100_000).collect();
        open.add(operation(0), |operation| over.contains(&operation.index));
        for index in 1..100_000 {
            assert!(!open.add(operation(index), |operation| {
                over.contains(&operation.index)
            }));
            assert!(open.operations.len() <= OPEN_FEW + 1);
        }
        assert!(open.goes_on(|operation| over.contains(&operation.index)));
        assert!(!open.goes_on(|_| true) && open.is_empty());
    }
}
