//! Calls that wait at a host between for the call of the one whom they call. Pure: places are its
//! owner's, time is an argument.
//!
//! Two calls belong together if each calls the other's caller, in the same world and on the same
//! stream. A call like one that waits takes that one's part: whoever calls again has given up the
//! first. Bounded by its owner's places, of which each has one call at most.

use crate::frame::StreamNumber;
use crate::relay_protocol::RelayHandshake;
use garonne_transport::limits::RELAY_HALF_LIMIT;
use std::collections::HashMap;
use std::time::Instant;

/// Rank and incarnation.
type PairKey = (u32, u32);

/// Identity of a call: the pair that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PendingCall {
    world: u32,
    from: PairKey,
    to: PairKey,
    stream: u8,
}

impl PendingCall {
    /// `None`: it calls its own rank.
    pub(crate) fn of(call: &RelayHandshake) -> Option<Self> {
        let RelayHandshake {
            from, to, stream, ..
        } = *call;
        (from.rank != to.0).then_some(Self {
            world: from.world,
            from: (from.rank, from.incarnation),
            to,
            stream: StreamNumber::code(stream),
        })
    }

    /// Returns the key of the call for which this one waits.
    fn turned(self) -> Self {
        Self {
            from: self.to,
            to: self.from,
            ..self
        }
    }

    /// Returns whether this call stands of two that belong together, and the other's caller is the
    /// called one: as between ranks that call each other at once (T7).
    pub(crate) fn stands(&self) -> bool {
        self.from.0 < self.to.0
    }
}

/// Result of a call's search for its counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairResult {
    /// Nobody: it waits. The call at this place, if any, was its caller's, who has given it up.
    Waits(Option<usize>),
    /// The one at this place, which waits no more.
    With(usize),
}

/// Calls that wait for the call of the other side. Owned by the relay.
#[derive(Debug, Default)]
pub(crate) struct PendingPairs(HashMap<PendingCall, (usize, Instant)>);

impl PendingPairs {
    /// A call comes, and is at this place.
    pub(crate) fn come(&mut self, pair: PendingCall, place: usize, now: Instant) -> PairResult {
        match self.0.remove(&pair.turned()) {
            Some((other, _)) => PairResult::With(other),
            None => PairResult::Waits(self.0.insert(pair, (place, now)).map(|(before, _)| before)),
        }
    }

    /// The place of the call that has waited for the longest, of all but this one's, and gives way
    /// to others; it waits no more. Its caller calls again.
    pub(crate) fn give_way(&mut self, to: Option<&PendingCall>) -> Option<usize> {
        let others = self.0.iter().filter(|(pair, _)| Some(*pair) != to);
        let (oldest, _) = others.min_by_key(|(_, (_, since))| *since)?;
        let oldest = *oldest;
        self.0.remove(&oldest).map(|(place, _)| place)
    }

    /// The call at this place is over.
    pub(crate) fn leave(&mut self, pair: &PendingCall, place: usize) {
        if self.0.get(pair).is_some_and(|(at, _)| *at == place) {
            self.0.remove(pair);
        }
    }

    /// Places of those that have waited as long as one may; they do no more.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<usize> {
        let late = self
            .0
            .extract_if(|_, (_, since)| now >= *since + RELAY_HALF_LIMIT);
        late.map(|(_, (place, _))| place).collect()
    }

    /// When the next one will have.
    pub(crate) fn due(&self) -> Option<Instant> {
        let since = self.0.values().map(|(_, since)| *since).min();
        since.map(|since| since + RELAY_HALF_LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::ProcessId;
    use proptest::prelude::*;
    use std::time::Duration;

    fn call(from: u32, to: u32, stream: StreamNumber) -> PendingCall {
        let process = ProcessId {
            job: [0; 16],
            world: 0,
            rank: from,
            incarnation: 0,
        };
        let passing = RelayHandshake {
            from: process,
            to: (to, 0),
            stream,
            consumed: 0,
        };
        PendingCall::of(&passing).unwrap()
    }

    #[test]
    fn two_that_call_each_other_meet_on_the_same_stream_alone_and_once() {
        let (mut halves, now) = (PendingPairs::default(), Instant::now());
        assert_eq!(
            halves.come(call(1, 2, StreamNumber::Small), 0, now),
            PairResult::Waits(None)
        );
        assert_eq!(
            halves.come(call(2, 1, StreamNumber::Bulk(0)), 1, now),
            PairResult::Waits(None)
        );
        assert_eq!(
            halves.come(call(2, 3, StreamNumber::Small), 2, now),
            PairResult::Waits(None)
        );
        assert_eq!(
            halves.come(call(2, 1, StreamNumber::Small), 3, now),
            PairResult::With(0)
        );
        assert_eq!(
            halves.come(call(2, 1, StreamNumber::Small), 4, now),
            PairResult::Waits(None)
        );
        assert_eq!(
            halves.come(call(1, 2, StreamNumber::Bulk(0)), 5, now),
            PairResult::With(1)
        );
    }

    #[test]
    fn another_world_or_incarnation_is_somebody_else() {
        let (mut halves, now) = (PendingPairs::default(), Instant::now());
        let (one, other) = (
            call(1, 2, StreamNumber::Small),
            call(2, 1, StreamNumber::Small),
        );
        halves.come(one, 0, now);
        for odd in [
            PendingCall { world: 1, ..other },
            PendingCall {
                from: (2, 1),
                ..other
            },
            PendingCall {
                to: (1, 1),
                ..other
            },
        ] {
            assert!(
                matches!(halves.come(odd, 1, now), PairResult::Waits(_)),
                "{odd:?}"
            );
        }
        assert_eq!(halves.come(other, 2, now), PairResult::With(0));
    }

    #[test]
    fn who_calls_again_has_given_up_the_call_before() {
        let (mut halves, now) = (PendingPairs::default(), Instant::now());
        let one = call(1, 2, StreamNumber::Small);
        halves.come(one, 0, now);
        assert_eq!(halves.come(one, 1, now), PairResult::Waits(Some(0)));
        // That the first ends says nothing of the second.
        halves.leave(&one, 0);
        assert_eq!(
            halves.come(call(2, 1, StreamNumber::Small), 2, now),
            PairResult::With(1)
        );
    }

    #[test]
    fn nobody_waits_longer_than_one_may() {
        let (mut halves, begun) = (PendingPairs::default(), Instant::now());
        let later = begun + Duration::from_secs(1);
        halves.come(call(1, 2, StreamNumber::Small), 7, begun);
        halves.come(call(3, 2, StreamNumber::Small), 8, later);
        assert_eq!(halves.due(), Some(begun + RELAY_HALF_LIMIT));
        assert_eq!(halves.overdue(begun + RELAY_HALF_LIMIT), [7]);
        assert_eq!(halves.due(), Some(later + RELAY_HALF_LIMIT));
        assert_eq!(halves.overdue(later + RELAY_HALF_LIMIT), [8]);
        assert_eq!(halves.due(), None);
    }

    #[test]
    fn who_has_waited_for_the_longest_gives_way_and_nobody_to_itself() {
        let (mut halves, now) = (PendingPairs::default(), Instant::now());
        let calls = [1, 2, 3].map(|from| call(from, 0, StreamNumber::Small));
        for (one, age) in calls.into_iter().zip([2, 3, 1]) {
            halves.come(one, age, now - Duration::from_secs(age as u64));
        }
        assert_eq!(halves.give_way(Some(&calls[1])), Some(2));
        assert_eq!(halves.give_way(None), Some(3));
        assert_eq!(halves.give_way(Some(&calls[2])), None);
        assert_eq!(halves.come(calls[2].turned(), 9, now), PairResult::With(1));
        assert_eq!(halves.give_way(None), None);
    }

    #[test]
    fn of_two_that_meet_exactly_one_stands() {
        let one = call(1, 2, StreamNumber::Small);
        assert!(one.stands() && !one.turned().stands());
    }

    proptest! {
        /// Whatever comes and goes: nobody is met twice, nobody who has gone is met, and those who
        /// wait are never more than those who have come.
        #[test]
        fn whoever_is_met_waits_at_that_place(steps in prop::collection::vec((0u32..4, 0u32..4, any::<bool>()), 0..60)) {
            let (mut halves, now) = (PendingPairs::default(), Instant::now());
            let mut waiting = HashMap::new();
            for (place, (from, to, leaves)) in steps.into_iter().enumerate().filter(|(_, (from, to, _))| from != to) {
                let pair = call(from, to, StreamNumber::Small);
                if leaves {
                    if let Some(place) = waiting.remove(&pair) {
                        halves.leave(&pair, place);
                    }
                    continue;
                }
                match halves.come(pair, place, now) {
                    PairResult::With(other) => prop_assert_eq!(waiting.remove(&pair.turned()), Some(other)),
                    PairResult::Waits(before) => prop_assert_eq!(waiting.insert(pair, place), before),
                }
                prop_assert_eq!(halves.0.len(), waiting.len());
            }
        }
    }
}
