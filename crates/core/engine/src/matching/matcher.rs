//! Matching in constant time, wildcards included: which receive gets which message.
//!
//! Owned by the engine's core, which feeds it envelopes in their sequence. Knows only numbers:
//! receives and messages are slots of their owners. Posted receives wait in the list of their own
//! pattern (exact, any source, any tag, or both) and a message looks at the heads of at most four
//! lists, where the oldest posting wins; messages that came too early stand in one list for each
//! kind of pattern that could find them. Bounded by the requests and the unexpected store.

use crate::api::{ContextId, Pattern, Peer};
use crate::key_map::{KeyedQueues, TableKey};

const ANY_PEER: u32 = u32::MAX;
const ANY_TAG: u64 = 1 << 32;

/// The part of a message that matching compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub context: ContextId,
    pub peer: Peer,
    pub tag: i32,
}

#[inline]
fn key(context: ContextId, peer: Peer, tag: u64) -> TableKey {
    TableKey(u64::from(context) << 32 | u64::from(peer), tag)
}

#[inline]
fn tag_word(tag: i32) -> u64 {
    u64::from(tag as u32)
}

/// From one posted receive to the next.
const ORDER_STEP: u64 = 2;
/// The receive is one that a thread is blocked in. Blocking receives of several threads are
/// concurrent: of two with one pattern either may have the message that comes first.
const OVERTAKEN: u64 = 1;

/// Kinds of pattern: with source and tag, any source, any tag, both.
pub(crate) const KINDS: usize = 4;

/// The list of a pattern, and its kind.
#[inline]
pub(crate) fn pattern_key(pattern: &Pattern) -> (TableKey, usize) {
    let peer = pattern.source.map_or(ANY_PEER, |source| source.peer);
    let tag = pattern.tag.map_or(ANY_TAG, tag_word);
    let kind = usize::from(pattern.source.is_none()) | usize::from(pattern.tag.is_none()) << 1;
    (key(pattern.context, peer, tag), kind)
}

impl Envelope {
    /// The four lists that may concern this message, by kind of pattern.
    #[inline]
    pub(crate) fn key(&self, kind: usize) -> TableKey {
        let peer = if kind & 1 == 0 { self.peer } else { ANY_PEER };
        let tag = if kind & 2 == 0 {
            tag_word(self.tag)
        } else {
            ANY_TAG
        };
        key(self.context, peer, tag)
    }
}

/// Returns whether `pattern` accepts the message, the rule that the lists implement.
#[cfg(test)]
fn accepts(pattern: &Pattern, envelope: &Envelope) -> bool {
    pattern.context == envelope.context
        && pattern
            .source
            .is_none_or(|source| source.peer == envelope.peer)
        && pattern.tag.is_none_or(|tag| tag == envelope.tag)
}

/// Posted receives and unexpected messages, matched in MPI's order.
///
/// Owned by the core. A receive first looks for a message with `find`; without one it is posted
/// with `post`. A message that arrives is matched with `arrive`; without a receive it is kept with
/// `keep`.
#[derive(Debug)]
pub(crate) struct Matcher {
    posted: KeyedQueues,
    /// Posting order, by receive slot, in steps of [`ORDER_STEP`]; with [`OVERTAKEN`], where
    /// another thread's receive may go before.
    order: Vec<u64>,
    next_order: u64,
    /// Receives posted, by kind of pattern; spares the look into lists that cannot hold anything.
    posted_of: [u32; KINDS],
    unexpected: KeyedQueues,
}

impl Matcher {
    pub(crate) fn new() -> Self {
        Self {
            posted: KeyedQueues::new(),
            order: Vec::new(),
            next_order: 0,
            posted_of: [0; KINDS],
            unexpected: KeyedQueues::new(),
        }
    }

    /// Posts the receive in slot `receive`.
    #[inline(always)]
    pub(crate) fn post(&mut self, pattern: &Pattern, receive: u32) {
        let (key, kind) = pattern_key(pattern);
        self.posted.push(key, receive);
        self.posted_of[kind] += 1;
        if receive as usize >= self.order.len() {
            self.order.resize(receive as usize + 1, 0);
        }
        self.order[receive as usize] = self.next_order;
        self.next_order += ORDER_STEP;
    }

    /// A thread is blocked in this posted receive: those that other threads block in need not wait
    /// for it.
    pub(crate) fn let_overtake(&mut self, receive: u32) {
        self.order[receive as usize] |= OVERTAKEN;
    }

    /// Returns whether a receive in which another thread blocks now may have the next message of
    /// this pattern, before the posted receives.
    pub(crate) fn may_overtake(&self, pattern: &Pattern) -> bool {
        let (key, kind) = pattern_key(pattern);
        let only = (0..KINDS).all(|other| other == kind || self.posted_of[other] == 0);
        only && self
            .posted
            .head(key)
            .is_some_and(|head| self.order[head as usize] & OVERTAKEN != 0)
    }

    /// Lets a posted receive, which a thread is blocked in, have the next message of its pattern,
    /// if it may.
    pub(crate) fn overtake(&mut self, pattern: &Pattern, receive: u32) {
        if !self.posted.linked(receive)
            || self.order[receive as usize] & OVERTAKEN == 0
            || !self.may_overtake(pattern)
        {
            return;
        }
        let key = pattern_key(pattern).0;
        if let Some(head) = self.posted.head(key).filter(|head| *head != receive) {
            self.posted.remove(receive);
            self.posted.push_front(key, receive);
            // Their order among each other is that of the list.
            self.order[receive as usize] = self.order[head as usize];
        }
    }

    /// Withdraws a posted receive.
    #[inline]
    pub(crate) fn withdraw(&mut self, pattern: &Pattern, receive: u32) {
        self.posted.remove(receive);
        self.posted_of[pattern_key(pattern).1] -= 1;
    }

    /// Returns the number of waiting receives of the same exact pattern that were posted before
    /// this one, the youngest. `None`: more than `most`, or a wildcard receive may take the
    /// message.
    pub(crate) fn ahead_of(&self, pattern: &Pattern, receive: u32, most: u32) -> Option<u32> {
        let envelope = Envelope {
            context: pattern.context,
            peer: pattern.source?.peer,
            tag: pattern.tag?,
        };
        let older = |kind: usize| {
            self.posted_of[kind] != 0 && self.posted.head(envelope.key(kind)).is_some()
        };
        if (1..4).any(older) {
            return None;
        }
        let mut at = self.posted.head(envelope.key(0));
        for before in 0..=most {
            if at? == receive {
                return Some(before);
            }
            at = self.posted.next(at?);
        }
        None
    }

    /// The age of a posted receive: smaller is older.
    pub(crate) fn order(&self, receive: u32) -> u64 {
        self.order[receive as usize]
    }

    /// Matches a message like [`Matcher::arrive`] while no wildcard is posted. `None`: a wildcard
    /// is posted, or no receive accepts the message.
    #[inline(always)]
    pub(crate) fn arrive_plainly(&mut self, envelope: &Envelope) -> Option<u32> {
        let [_, any_source, any_tag, both] = self.posted_of;
        if any_source | any_tag | both != 0 {
            return None;
        }
        let receive = self.posted.pop(envelope.key(0))?;
        self.posted_of[0] -= 1;
        Some(receive)
    }

    /// The receive that gets this message, taken off the posted ones.
    #[inline]
    pub(crate) fn arrive(&mut self, envelope: &Envelope) -> Option<u32> {
        if self.posted_len() == self.posted_of[0] {
            // No wildcards are posted.
            if self.posted_of[0] == 0 {
                return None;
            }
            let receive = self.posted.pop(envelope.key(0))?;
            self.posted_of[0] -= 1;
            return Some(receive);
        }
        let mut best = None;
        let mut best_kind = 0;
        for kind in 0..KINDS {
            if self.posted_of[kind] == 0 {
                continue;
            }
            if let Some(receive) = self.posted.head(envelope.key(kind))
                && best.is_none_or(|other: u32| {
                    self.order[receive as usize] < self.order[other as usize]
                })
            {
                best = Some(receive);
                best_kind = kind;
            }
        }
        let receive = best?;
        self.posted.remove(receive);
        self.posted_of[best_kind] -= 1;
        Some(receive)
    }

    /// Returns whether a posted receive waits for such a message.
    pub(crate) fn is_wanted(&self, envelope: &Envelope) -> bool {
        (0..KINDS)
            .any(|kind| self.posted_of[kind] != 0 && self.posted.head(envelope.key(kind)).is_some())
    }

    /// Keeps the message in slot `item` until a receive or probe finds it.
    pub(crate) fn keep(&mut self, envelope: &Envelope, item: u32) {
        for kind in 0..KINDS {
            self.unexpected
                .push(envelope.key(kind), item * 4 + kind as u32);
        }
    }

    /// The oldest unexpected message that `pattern` accepts.
    #[inline]
    pub(crate) fn find(&self, pattern: &Pattern) -> Option<u32> {
        if self.unexpected.is_empty() {
            return None;
        }
        self.unexpected
            .head(pattern_key(pattern).0)
            .map(|link| link / 4)
    }

    /// Takes an unexpected message out.
    pub(crate) fn drop_kept(&mut self, item: u32) {
        for kind in 0..KINDS as u32 {
            self.unexpected.remove(item * 4 + kind);
        }
    }

    /// Returns whether no receive is posted.
    #[inline(always)]
    pub(crate) fn nothing_posted(&self) -> bool {
        self.posted.is_empty()
    }

    /// Receives posted and not matched.
    #[inline]
    pub(crate) fn posted_len(&self) -> u32 {
        let [exact, any_source, any_tag, both] = self.posted_of;
        exact + any_source + any_tag + both
    }

    /// Nothing posted and nothing kept.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.posted.is_empty() && self.unexpected.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Source;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum MatchStep {
        Post(Pattern),
        Arrive(Envelope),
        Probe(Pattern),
        Withdraw(usize),
    }

    fn pattern() -> impl Strategy<Value = Pattern> {
        (
            0u32..2,
            proptest::option::of(0u32..3),
            proptest::option::of(0i32..3),
        )
            .prop_map(|(context, peer, tag)| Pattern {
                context,
                source: peer.map(|peer| Source { rank: peer, peer }),
                tag,
            })
    }

    fn step() -> impl Strategy<Value = MatchStep> {
        prop_oneof![
            4 => pattern().prop_map(MatchStep::Post),
            4 => (0u32..2, 0u32..3, 0i32..3).prop_map(|(context, peer, tag)| MatchStep::Arrive(Envelope { context, peer, tag })),
            1 => pattern().prop_map(MatchStep::Probe),
            1 => (0usize..8).prop_map(MatchStep::Withdraw),
        ]
    }

    fn from(peer: Option<Peer>, tag: Option<i32>) -> Pattern {
        Pattern {
            context: 1,
            source: peer.map(|peer| Source { rank: peer, peer }),
            tag,
        }
    }

    const MESSAGE: Envelope = Envelope {
        context: 1,
        peer: 2,
        tag: 3,
    };

    #[test]
    fn a_receive_that_a_thread_blocks_in_is_overtaken_by_that_of_another_and_by_no_other() {
        for pattern in [
            from(Some(2), Some(3)),
            from(None, Some(3)),
            from(Some(2), None),
            from(None, None),
        ] {
            let mut matcher = Matcher::new();
            (10..14).for_each(|receive| matcher.post(&pattern, receive));
            matcher.overtake(&pattern, 13);
            assert!(!matcher.may_overtake(&pattern), "nobody is said to block");
            assert_eq!(matcher.arrive(&MESSAGE), Some(10));
            matcher.let_overtake(13);
            matcher.overtake(&pattern, 13);
            assert_eq!(
                matcher.arrive(&MESSAGE),
                Some(11),
                "a program may have ordered these"
            );
            matcher.let_overtake(12);
            assert!(matcher.may_overtake(&pattern));
            matcher.overtake(&pattern, 13);
            matcher.overtake(&pattern, 13);
            assert_eq!(matcher.arrive(&MESSAGE), Some(13));
            assert_eq!(matcher.arrive(&MESSAGE), Some(12));
            matcher.overtake(&pattern, 13);
            assert!(matcher.nothing_posted() && matcher.posted_len() == 0);
        }
    }

    #[test]
    fn no_receive_of_another_pattern_is_overtaken() {
        let (one, any) = (from(Some(2), Some(3)), from(None, None));
        let mut matcher = Matcher::new();
        for (receive, pattern) in [(10, &one), (11, &any), (12, &one)] {
            matcher.post(pattern, receive);
            matcher.let_overtake(receive);
        }
        matcher.overtake(&one, 12);
        assert!(!matcher.may_overtake(&one) && !matcher.may_overtake(&any));
        for receive in 10..13 {
            assert_eq!(matcher.arrive(&MESSAGE), Some(receive));
        }
        // What was overtaken keeps its place among later ones.
        for (receive, pattern) in [(10, &any), (11, &any)] {
            matcher.post(pattern, receive);
            matcher.let_overtake(receive);
        }
        matcher.overtake(&any, 11);
        matcher.post(&one, 12);
        for receive in [11, 10, 12] {
            assert_eq!(matcher.arrive(&MESSAGE), Some(receive));
        }
    }

    proptest! {
        #[test]
        fn every_message_goes_where_a_search_in_posting_and_arrival_order_puts_it(steps in proptest::collection::vec(step(), 1..200)) {
            let mut matcher = Matcher::new();
            let mut posted: Vec<(u32, Pattern)> = Vec::new();
            let mut kept: Vec<(u32, Envelope)> = Vec::new();
            let mut next = 0u32;
            for step in steps {
                next += 1;
                match step {
                    MatchStep::Post(pattern) => {
                        let model = kept.iter().position(|(_, envelope)| accepts(&pattern, envelope));
                        let found = matcher.find(&pattern);
                        prop_assert_eq!(found, model.map(|at| kept[at].0));
                        match model {
                            Some(at) => matcher.drop_kept(kept.remove(at).0),
                            None => {
                                matcher.post(&pattern, next);
                                posted.push((next, pattern));
                            }
                        }
                    }
                    MatchStep::Arrive(envelope) => {
                        let model = posted.iter().position(|(_, pattern)| accepts(pattern, &envelope));
                        prop_assert_eq!(matcher.arrive(&envelope), model.map(|at| posted[at].0));
                        match model {
                            Some(at) => { posted.remove(at); }
                            None => {
                                matcher.keep(&envelope, next);
                                kept.push((next, envelope));
                            }
                        }
                    }
                    MatchStep::Probe(pattern) => {
                        let model = kept.iter().find(|(_, envelope)| accepts(&pattern, envelope)).map(|kept| kept.0);
                        prop_assert_eq!(matcher.find(&pattern), model);
                    }
                    MatchStep::Withdraw(at) => {
                        if at < posted.len() {
                            let (receive, pattern) = posted.remove(at);
                            matcher.withdraw(&pattern, receive);
                        }
                    }
                }
                prop_assert_eq!(matcher.posted_len() as usize, posted.len());
            }
        }
    }
}
