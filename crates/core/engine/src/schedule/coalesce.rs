//! Coalescing of small messages: each leaves at once, or several in one write.
//!
//! On a transport where every write is a system call, a message may be kept until the rank polls
//! again, which it does as soon as it waits for anything. Whatever else it sends meanwhile leaves
//! in the same write. What is kept is bounded in bytes; whoever executes the decision bounds it in
//! time. A message whose rank does not poll leaves without it, overdue. Pure functions of what is
//! kept and of what happened to what was kept before.

use crate::limits::{
    COALESCE_BACKOFF_FIRST, COALESCE_BACKOFF_MAX, COALESCE_BYTES, COALESCE_EACH_MAX,
    COALESCE_FORGIVES_AFTER, COALESCE_SERIES,
};

/// Which decisions are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CoalescePolicy {
    /// Every message leaves at once.
    Immediate,
    /// The first message leaves at once; those that follow before the rank looks leave together.
    Aggregate,
    /// Messages between two polls leave together.
    Hold,
    /// Learns the length of bursts: the last message of a burst takes all before it along, and
    /// nothing waits for a poll. Acts as `Aggregate` otherwise, and as `Immediate` for a while
    /// after a message was overdue.
    #[default]
    Adaptive,
}

impl CoalescePolicy {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::Immediate, Self::Aggregate, Self::Hold, Self::Adaptive];

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Immediate => "each at once",
            Self::Aggregate => "those behind the first together, at the next look",
            Self::Hold => "all together, at the next look",
            Self::Adaptive => "together as learned: with the last of a series",
        }
    }
}

/// History of the messages to one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendHistory {
    /// Messages since the rank looked last.
    since_look: u32,
    /// Length of the last burst between two polls, and number of bursts in a row of that length.
    length: u32,
    alike: u32,
    /// Messages that are still to leave at once.
    backoff: u32,
    /// Length of the last backoff.
    penalty: u32,
    /// Looks since then that came in time for what was kept.
    in_time: u32,
}

impl SendHistory {
    /// A message was sent.
    pub fn sent(&mut self) {
        self.since_look = self.since_look.saturating_add(1);
        self.backoff = self.backoff.saturating_sub(1);
    }

    /// Returns whether nothing was sent since the last poll.
    pub fn is_fresh(&self) -> bool {
        self.since_look == 0
    }

    /// Messages since the rank looked last.
    pub fn since_look(&self) -> u32 {
        self.since_look
    }

    /// Length of the last burst between two polls, and number of bursts in a row of that length.
    pub fn series(&self) -> (u32, u32) {
        (self.length, self.alike)
    }

    /// Messages that are still to leave at once, since one was overdue.
    pub fn backoff(&self) -> u32 {
        self.backoff
    }

    /// The rank looks at its transports; `kept`: something was kept until now.
    pub fn looked(&mut self, kept: bool) {
        let sent = std::mem::take(&mut self.since_look);
        if sent == 0 {
            return;
        }
        self.alike = if sent == self.length {
            self.alike.saturating_add(1)
        } else {
            1
        };
        self.length = sent;
        if kept && self.penalty > 0 {
            self.in_time += 1;
            if self.in_time >= COALESCE_FORGIVES_AFTER {
                self.penalty = 0;
            }
        }
    }

    /// Records that unexpected messages left because their time was over.
    pub fn overdue(&mut self) {
        self.penalty = (self.penalty * 2).clamp(COALESCE_BACKOFF_FIRST, COALESCE_BACKOFF_MAX);
        self.backoff = self.penalty;
        (self.alike, self.in_time) = (0, 0);
    }

    /// Returns whether more messages are expected after the next one before the rank polls; `None`:
    /// unknown.
    fn expects_more(&self) -> Option<bool> {
        let known = self.alike >= COALESCE_SERIES && self.since_look < self.length;
        known.then(|| self.since_look + 1 < self.length)
    }
}

/// A message that is sent now, and what it would leave with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoalesceCandidate {
    /// Length of the message in bytes.
    pub len: usize,
    /// The receiver answers at once, or somebody waits for the message already.
    pub urgent: bool,
    /// Bytes that are kept, it included.
    pub kept: usize,
}

impl CoalesceCandidate {
    /// Returns whether the message leaves now, whatever a strategy says.
    pub fn must_leave(&self) -> bool {
        self.urgent || self.len > COALESCE_EACH_MAX || self.kept >= COALESCE_BYTES
    }
}

/// Returns whether the message may wait for the rank's next poll. Otherwise it leaves with all kept
/// messages.
pub fn may_wait(
    leaving: CoalescePolicy,
    candidate: &CoalesceCandidate,
    history: &SendHistory,
) -> bool {
    if candidate.must_leave() {
        return false;
    }
    let first = history.since_look == 0;
    match leaving {
        CoalescePolicy::Immediate => false,
        CoalescePolicy::Aggregate => !first,
        CoalescePolicy::Hold => true,
        CoalescePolicy::Adaptive => history
            .expects_more()
            .unwrap_or(!first && history.backoff == 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A rank's sends between two polls.
    #[derive(Clone, Copy, Debug)]
    struct SendRound {
        messages: u32,
        len: usize,
        /// Nanoseconds of computing between the last message and the look.
        computes: u64,
    }

    const WRITE: u64 = 4_000;
    const COPY: u64 = 60;
    const OVERDUE: u64 = 500_000;
    const TRIP: u64 = 3_000;

    /// Returns the cost of one round: processor time, and time until the receiver has the last
    /// message.
    fn round(leaving: CoalescePolicy, round: &SendRound, history: &mut SendHistory) -> u64 {
        let (mut now, mut kept, mut arrived) = (0, 0, 0);
        for _ in 0..round.messages {
            now += COPY;
            let candidate = CoalesceCandidate {
                len: round.len,
                urgent: false,
                kept: kept + round.len,
            };
            let waits = may_wait(leaving, &candidate, history);
            history.sent();
            kept += round.len;
            if !waits {
                (now, kept) = (now + WRITE, 0);
                arrived = now + TRIP;
            }
        }
        if kept > 0 && round.computes > OVERDUE {
            history.overdue();
            arrived = now + OVERDUE + WRITE + TRIP;
            (now, kept) = (now + WRITE, 0);
        }
        now += round.computes;
        if kept > 0 {
            now += WRITE;
            arrived = now + TRIP;
        }
        history.looked(kept > 0);
        now + arrived
    }

    fn total(leaving: CoalescePolicy, rounds: impl Iterator<Item = SendRound>) -> u64 {
        let mut history = SendHistory::default();
        rounds.map(|each| round(leaving, &each, &mut history)).sum()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_adaptive_one_is_never_worse_than_another_by_more_than_a_twentieth(
            messages in 1u32..80, len in 1usize..COALESCE_EACH_MAX, computes in prop::sample::select(vec![0u64, 200, 5_000, 100_000, 600_000, 5_000_000]),
        ) {
            // A program does the same for long; what it pays to learn that counts, too.
            let rounds = || std::iter::repeat_n(SendRound { messages, len, computes }, 2_000);
            let adaptive = total(CoalescePolicy::Adaptive, rounds());
            for other in CoalescePolicy::ALL {
                let theirs = total(other, rounds());
                prop_assert!(adaptive as f64 <= theirs as f64 * 1.05, "{adaptive} after {theirs} of {other:?}");
            }
        }

        #[test]
        fn what_is_kept_is_bounded(
            leaving in prop::sample::select(CoalescePolicy::ALL.to_vec()), lens in prop::collection::vec((1usize..3 * COALESCE_EACH_MAX, any::<bool>(), 0u8..20), 1..200),
        ) {
            let (mut history, mut kept) = (SendHistory::default(), 0);
            for (len, urgent, then) in lens {
                let waits = may_wait(leaving, &CoalesceCandidate { len, urgent, kept: kept + len }, &history);
                prop_assert!(!(waits && urgent), "urgent messages do not wait");
                history.sent();
                kept = if waits { kept + len } else { 0 };
                prop_assert!(kept < COALESCE_BYTES);
                match then {
                    0 => (history.overdue(), kept = 0).1,
                    1..4 => (history.looked(kept > 0), kept = 0).1,
                    _ => {}
                }
            }
        }
    }

    fn decide(history: &mut SendHistory) -> bool {
        let candidate = CoalesceCandidate {
            len: 8,
            urgent: false,
            kept: 8,
        };
        let waits = may_wait(CoalescePolicy::Adaptive, &candidate, history);
        history.sent();
        waits
    }

    #[test]
    fn a_message_alone_leaves_at_once() {
        let mut history = SendHistory::default();
        for _ in 0..100 {
            assert!(!decide(&mut history));
            history.looked(false);
        }
        assert!(!decide(&mut history));
        assert!(
            decide(&mut history),
            "a second one before the next look is the beginning of a series"
        );
    }

    #[test]
    fn the_last_of_a_series_takes_those_before_it_along() {
        let mut history = SendHistory::default();
        for _ in 0..COALESCE_SERIES {
            assert_eq!(
                [(); 4].map(|()| decide(&mut history)),
                [false, true, true, true]
            );
            history.looked(true);
        }
        for _ in 0..10 {
            assert_eq!(
                [(); 4].map(|()| decide(&mut history)),
                [true, true, true, false]
            );
            history.looked(false);
        }
        assert_eq!(
            [(); 6].map(|()| decide(&mut history)),
            [true, true, true, false, true, true],
            "longer than expected"
        );
        history.looked(true);
        assert_eq!(
            [(); 4].map(|()| decide(&mut history)),
            [false, true, true, true],
            "nothing is expected any more"
        );
    }

    #[test]
    fn who_computes_after_sending_is_not_waited_for_again_and_again() {
        let mut history = SendHistory::default();
        let (mut overdue, mut turn, rounds) = (0, 0, 10_000);
        for _ in 0..rounds {
            // Of no one length.
            let length = 2 + turn % 3;
            turn += 1;
            for number in 1..=length {
                if decide(&mut history) && number == length {
                    history.overdue();
                    overdue += 1;
                }
            }
            history.looked(false);
        }
        assert!(overdue < 20, "{overdue} of {rounds}");
    }
}
