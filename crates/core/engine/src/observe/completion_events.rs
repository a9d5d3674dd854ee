//! Completions and arrivals since the host last told its waiting threads.
//!
//! They serve waiters that do not wait for one operation: threads that look for a message, and
//! threads that wait for any of several operations. The core notes them. The host reads and clears
//! them under the engine's lock and tells sleeping threads. A rank of one thread never needs them,
//! and never clears them. Bounded by [`COMPLETION_EVENTS_MAX`] entries of each kind: beyond,
//! everything counts as having happened, and a waiter for something else asks once in vain.

use crate::api::{Pattern, Request};
use crate::engine::Engine;
use crate::key_map::digest;
use crate::limits::COMPLETION_EVENTS_MAX;
use crate::matching::matcher::{Envelope, KINDS, pattern_key};
use crate::requests::OpFlag;
use crate::transport::Transport;

/// Bits of what [`pattern_hash`] gives.
pub const PATTERN_HASH_BITS: u32 = 56;

/// A pattern as one word. Different ones may have the same.
pub fn pattern_hash(pattern: &Pattern) -> u64 {
    digest(pattern_key(pattern).0, u64::BITS - PATTERN_HASH_BITS)
}

/// Completions and arrivals that the host has not told its waiting threads yet.
#[derive(Debug, Default)]
pub(crate) struct CompletionEvents {
    /// Completions so far; changes tell waiters to look.
    count: u64,
    /// Messages that are kept, by the words of the patterns that accept them.
    kept: Vec<[u64; KINDS]>,
    /// Any message may have come, or have become impossible.
    any_kept: bool,
    /// Waiters of operations that completed.
    ended: Vec<u32>,
    any_ended: bool,
}

impl CompletionEvents {
    /// Counts one more completion, and returns its number.
    #[inline(always)]
    pub(crate) fn count_one(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Returns the number of completions so far.
    #[inline(always)]
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// A message is kept.
    #[inline]
    pub(crate) fn message_kept(&mut self, envelope: &Envelope) {
        if self.kept.len() == COMPLETION_EVENTS_MAX {
            self.any_kept = true;
        }
        if !self.any_kept {
            let word = |kind| digest(envelope.key(kind), u64::BITS - PATTERN_HASH_BITS);
            self.kept.push(std::array::from_fn(word));
        }
    }

    /// Makes every thread that looks for a message look again.
    pub(crate) fn any_message_kept(&mut self) {
        self.any_kept = true;
    }

    /// An operation is over that `waiter` waits for.
    pub(crate) fn operation_ended(&mut self, waiter: u32) {
        if self.ended.len() == COMPLETION_EVENTS_MAX {
            self.any_ended = true;
        }
        if !self.any_ended && self.ended.last() != Some(&waiter) {
            self.ended.push(waiter);
        }
    }

    /// Returns whether a message may have come that a pattern with this hash accepts.
    #[inline]
    pub(crate) fn has_kept(&self, word: u64) -> bool {
        self.any_kept || self.kept.iter().any(|words| words.contains(&word))
    }

    /// Returns whether an operation may have completed that `waiter` waits for.
    #[inline]
    pub(crate) fn has_ended(&self, waiter: u32) -> bool {
        self.any_ended || self.ended.contains(&waiter)
    }

    /// All has been told.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
        self.ended.clear();
        (self.any_kept, self.any_ended) = (false, false);
    }
}

impl<R: Transport> Engine<R> {
    /// Returns whether, since [`Engine::clear_completion_events`], a message may have come that a
    /// pattern of this word ([`pattern_hash`]) accepts, or its sender may be gone.
    #[inline]
    pub fn message_may_have_come(&self, word: u64) -> bool {
        // What peers hold back is asked for by those who look for it, after anything that may have
        // changed the answer.
        self.core.blocking_peers != 0 || self.core.completion_events.has_kept(word)
    }

    /// `waiter`, a number that the caller has chosen, waits for one of these operations from now on
    /// until they are over, and nobody else does. Of their generations the low bits count. `false`:
    /// one of them is over already.
    pub fn await_completion_of_any(
        &mut self,
        names: impl IntoIterator<Item = Request>,
        waiter: u32,
    ) -> bool {
        let mut all = true;
        for name in names {
            let goes_on = self.plain_ended_at(name).is_none();
            if goes_on {
                let operation = self.core.requests.at(name.index);
                operation.set(OpFlag::WaitedFor);
                operation.waiter = waiter;
            }
            all &= goes_on;
        }
        all
    }

    /// Returns whether, since [`Engine::clear_completion_events`], an operation may have ended that
    /// this one waited for.
    #[inline]
    pub fn may_have_completed_for(&self, waiter: u32) -> bool {
        self.core.completion_events.has_ended(waiter)
    }

    /// All that is news for those who wait has been told to them.
    #[inline]
    pub fn clear_completion_events(&mut self) {
        self.core.completion_events.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Source;

    fn envelope(tag: i32) -> Envelope {
        Envelope {
            context: 2,
            peer: 3,
            tag,
        }
    }

    fn pattern(peer: Option<u32>, tag: Option<i32>) -> Pattern {
        let source = peer.map(|peer| Source { rank: peer, peer });
        let context = 2;
        Pattern {
            context,
            source,
            tag,
        }
    }

    #[test]
    fn a_kept_message_is_news_for_the_patterns_that_accept_it_until_it_is_told() {
        let mut news = CompletionEvents::default();
        news.message_kept(&envelope(5));
        for (peer, tag, due) in [
            (Some(3), Some(5), true),
            (None, Some(5), true),
            (Some(3), None, true),
            (None, None, true),
            (Some(4), Some(5), false),
            (Some(3), Some(6), false),
            (Some(4), None, false),
            (None, Some(6), false),
        ] {
            assert_eq!(
                news.has_kept(pattern_hash(&pattern(peer, tag))),
                due,
                "{peer:?} {tag:?}"
            );
        }
        let elsewhere = Pattern {
            context: 4,
            ..pattern(None, None)
        };
        assert!(!news.has_kept(pattern_hash(&elsewhere)));
        news.clear();
        assert!(!news.has_kept(pattern_hash(&pattern(None, None))));
    }

    #[test]
    fn what_nobody_tells_is_bounded_and_news_for_all() {
        let mut news = CompletionEvents::default();
        (0..2 * COMPLETION_EVENTS_MAX).for_each(|tag| news.message_kept(&envelope(tag as i32)));
        (1..2 * COMPLETION_EVENTS_MAX).for_each(|waiter| news.operation_ended(waiter as u32));
        assert!(
            news.kept.len() <= COMPLETION_EVENTS_MAX && news.ended.len() <= COMPLETION_EVENTS_MAX
        );
        assert!(news.has_kept(pattern_hash(&pattern(Some(9), Some(9)))) && news.has_ended(0));
        news.clear();
        news.operation_ended(7);
        assert!(news.has_ended(7) && !news.has_ended(8) && !news.has_kept(0));
        news.any_message_kept();
        assert!(news.has_kept(0));
    }
}
