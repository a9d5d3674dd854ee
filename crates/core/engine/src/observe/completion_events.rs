//! What came about in an engine since its host last told those who wait, for waiters that do not
//! wait for the end of one operation: which messages are kept for whoever asks, and who waited for
//! an operation that is over, among others.
//!
//! Owned by the core, which notes it; the host reads and forgets it with the engine in hand, and
//! tells it to threads that sleep. Nobody else needs it, so a rank of one thread never forgets it.
//! Bounded by `NEWS_MAX` entries of each kind: beyond, everything counts as having come about, and
//! who waits for something else asks once in vain.

use crate::api::{Pattern, Request};
use crate::engine::Engine;
use crate::key_map::digest;
use crate::limits::NEWS_MAX;
use crate::matching::matcher::{Envelope, KINDS, pattern_key};
use crate::requests::OpFlag;
use crate::transport::Transport;

/// Bits of what [`word`] gives.
pub const WORD_BITS: u32 = 56;

/// A pattern as one word. Different ones may have the same.
pub fn word(pattern: &Pattern) -> u64 {
    digest(pattern_key(pattern).0, u64::BITS - WORD_BITS)
}

/// See the module's paragraph.
#[derive(Debug, Default)]
pub(crate) struct CompletionEvents {
    /// Messages that are kept, by the words of the patterns that accept them.
    kept: Vec<[u64; KINDS]>,
    /// Any message may have come, or have become impossible.
    any_kept: bool,
    /// Who waited for operations that are over.
    ended: Vec<u32>,
    any_ended: bool,
}

impl CompletionEvents {
    /// A message is kept.
    #[inline]
    pub(crate) fn keep(&mut self, envelope: &Envelope) {
        if self.kept.len() == NEWS_MAX {
            self.any_kept = true;
        }
        if !self.any_kept {
            let word = |kind| digest(envelope.key(kind), u64::BITS - WORD_BITS);
            self.kept.push(std::array::from_fn(word));
        }
    }

    /// Whoever looks for a message is to look again.
    pub(crate) fn keep_any(&mut self) {
        self.any_kept = true;
    }

    /// An operation is over that `waiter` waits for.
    pub(crate) fn end(&mut self, waiter: u32) {
        if self.ended.len() == NEWS_MAX {
            self.any_ended = true;
        }
        if !self.any_ended && self.ended.last() != Some(&waiter) {
            self.ended.push(waiter);
        }
    }

    /// Whether a message may have come that a pattern of this word accepts.
    #[inline]
    pub(crate) fn has_kept(&self, word: u64) -> bool {
        self.any_kept || self.kept.iter().any(|words| words.contains(&word))
    }

    /// Whether an operation may be over that `waiter` waited for.
    #[inline]
    pub(crate) fn has_ended(&self, waiter: u32) -> bool {
        self.any_ended || self.ended.contains(&waiter)
    }

    /// All has been told.
    #[inline]
    pub(crate) fn forget(&mut self) {
        self.kept.clear();
        self.ended.clear();
        (self.any_kept, self.any_ended) = (false, false);
    }
}

impl<R: Transport> Engine<R> {
    /// Whether, since [`Engine::forget_news`], a message may have come that a pattern of this word
    /// ([`word`]) accepts, or its sender may be gone.
    #[inline]
    pub fn has_kept(&self, word: u64) -> bool {
        // What peers hold back is asked for by those who look for it, after anything that may have
        // changed the answer.
        self.core.holders != 0 || self.core.news.has_kept(word)
    }

    /// `waiter`, a number that the caller has chosen, waits for one of these operations from now on
    /// until they are over, and nobody else does. Of their generations the low bits count. `false`:
    /// one of them is over already.
    pub fn await_any(&mut self, names: impl IntoIterator<Item = Request>, waiter: u32) -> bool {
        let mut all = true;
        for name in names {
            let goes_on = self.plain_ended_at(name).is_none();
            if goes_on {
                let operation = self.core.requests.at(name.index);
                operation.mark(OpFlag::Awaited);
                operation.waiter = waiter;
            }
            all &= goes_on;
        }
        all
    }

    /// Whether, since [`Engine::forget_news`], an operation may have ended that this one waited
    /// for.
    #[inline]
    pub fn has_ended_for(&self, waiter: u32) -> bool {
        self.core.news.has_ended(waiter)
    }

    /// All that is news for those who wait has been told to them.
    #[inline]
    pub fn forget_news(&mut self) {
        self.core.news.forget();
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
        news.keep(&envelope(5));
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
                news.has_kept(word(&pattern(peer, tag))),
                due,
                "{peer:?} {tag:?}"
            );
        }
        let elsewhere = Pattern {
            context: 4,
            ..pattern(None, None)
        };
        assert!(!news.has_kept(word(&elsewhere)));
        news.forget();
        assert!(!news.has_kept(word(&pattern(None, None))));
    }

    #[test]
    fn what_nobody_tells_is_bounded_and_news_for_all() {
        let mut news = CompletionEvents::default();
        (0..2 * NEWS_MAX).for_each(|tag| news.keep(&envelope(tag as i32)));
        (1..2 * NEWS_MAX).for_each(|waiter| news.end(waiter as u32));
        assert!(news.kept.len() <= NEWS_MAX && news.ended.len() <= NEWS_MAX);
        assert!(news.has_kept(word(&pattern(Some(9), Some(9)))) && news.has_ended(0));
        news.forget();
        news.end(7);
        assert!(news.has_ended(7) && !news.has_ended(8) && !news.has_kept(0));
        news.keep_any();
        assert!(news.has_kept(0));
    }
}
