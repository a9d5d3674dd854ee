//! Intervals of time, and those that a thread spent inside MPI.

use crate::limits::{MOVES_KEPT, SPANS_KEPT};
use std::collections::VecDeque;

/// From `begin` to before `end`, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval {
    /// First moment of the interval.
    pub begin: u64,
    /// The first moment after it.
    pub end: u64,
}

impl Interval {
    /// Returns the interval between two moments in either order.
    pub fn new(begin: u64, end: u64) -> Self {
        Self {
            begin: begin.min(end),
            end: begin.max(end),
        }
    }

    /// Returns the length.
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.begin)
    }

    /// Returns whether it has none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the intersection of both.
    pub fn intersection(self, other: Self) -> Self {
        let begin = self.begin.max(other.begin);
        Self {
            begin,
            end: self.end.min(other.end).max(begin),
        }
    }
}

/// The time that is in any of these, each moment once. They become sorted and disjoint.
pub fn unite(spans: &mut Vec<Interval>) -> u64 {
    spans.retain(|span| !span.is_empty());
    spans.sort_unstable();
    let mut united: Vec<Interval> = Vec::with_capacity(spans.len());
    for span in spans.drain(..) {
        match united.last_mut() {
            Some(last) if span.begin <= last.end => last.end = last.end.max(span.end),
            _ => united.push(span),
        }
    }
    *spans = united;
    total(spans)
}

/// The length of disjoint spans.
pub fn total(spans: &[Interval]) -> u64 {
    spans
        .iter()
        .fold(0, |sum, span| sum.saturating_add(span.len()))
}

/// The time that two lists of sorted, disjoint spans have in common.
pub fn common(one: &[Interval], other: &[Interval]) -> u64 {
    let (mut a, mut b, mut sum) = (one.iter().peekable(), other.iter().peekable(), 0u64);
    while let (Some(first), Some(second)) = (a.peek(), b.peek()) {
        sum = first.intersection(**second).len().saturating_add(sum);
        if first.end <= second.end {
            a.next();
        } else {
            b.next();
        }
    }
    sum
}

/// Adds a span to a list that stays within bounds.
pub fn add(spans: &mut Vec<Interval>, span: Interval) {
    if spans.len() < MOVES_KEPT {
        spans.push(span);
    } else if let Some(last) = spans.last_mut() {
        *last = Interval::new(last.begin.min(span.begin), last.end.max(span.end));
    }
}

/// Intervals in which a thread was inside MPI, as far as operations may still need them.
#[derive(Clone, Debug, Default)]
pub struct MpiIntervals {
    past: VecDeque<Interval>,
    since: Option<u64>,
    depth: usize,
}

impl MpiIntervals {
    /// The thread enters a call, perhaps within another.
    pub fn enter(&mut self, at: u64) {
        if self.depth == 0 {
            self.since = Some(at);
        }
        self.depth += 1;
    }

    /// Notes that the thread leaves a call.
    pub fn leave(&mut self, at: u64) {
        self.depth = self.depth.saturating_sub(1);
        if self.depth == 0
            && let Some(since) = self.since.take()
        {
            if self.past.len() == SPANS_KEPT {
                self.past.pop_front();
            }
            self.past.push_back(Interval::new(since, at));
        }
    }

    /// Where it is was lost: it counts as outside.
    pub fn forget(&mut self) {
        (self.since, self.depth) = (None, 0);
    }

    /// Returns the thread's time inside MPI within `span`, sorted and disjoint.
    pub fn within(&self, span: Interval) -> Vec<Interval> {
        let from = self.past.partition_point(|past| past.end <= span.begin);
        let now = self.since.map(|since| Interval::new(since, u64::MAX));
        let parts = self.past.range(from..).copied().chain(now);
        parts
            .take_while(|part| part.begin < span.end)
            .map(|part| part.intersection(span))
            .filter(|part| !part.is_empty())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span(begin: u64, end: u64) -> Interval {
        Interval::new(begin, end)
    }

    #[test]
    fn a_call_within_a_call_is_inside_once() {
        let mut thread = MpiIntervals::default();
        for (at, enters) in [(1, true), (2, true), (4, false), (5, false), (7, true)] {
            if enters {
                thread.enter(at);
            } else {
                thread.leave(at);
            }
        }
        assert_eq!(thread.within(span(0, 10)), [span(1, 5), span(7, 10)]);
        assert_eq!(thread.within(span(3, 4)), [span(3, 4)]);
        assert_eq!(thread.within(span(5, 7)), []);
    }

    #[test]
    fn a_leave_without_an_entry_changes_nothing() {
        let mut thread = MpiIntervals::default();
        thread.leave(3);
        thread.enter(4);
        thread.forget();
        thread.leave(9);
        assert_eq!(thread.within(span(0, 10)), []);
    }

    proptest! {
        #[test]
        fn united_and_common_time_are_what_counting_each_moment_gives(
            one in prop::collection::vec((0u64..40, 0u64..40), 0..6), other in prop::collection::vec((0u64..40, 0u64..40), 0..6)
        ) {
            let spans = |list: &[(u64, u64)]| -> Vec<Interval> { list.iter().map(|&(a, b)| span(a, b)).collect() };
            let (mut one, mut other) = (spans(&one), spans(&other));
            let is_in = |list: &[Interval], at: u64| list.iter().any(|span| span.begin <= at && at < span.end);
            let each = (0..40).filter(|&at| is_in(&one, at)).count() as u64;
            let both = (0..40).filter(|&at| is_in(&one, at) && is_in(&other, at)).count() as u64;
            prop_assert_eq!(unite(&mut one), each);
            unite(&mut other);
            prop_assert_eq!(common(&one, &other), both);
        }
    }
}
