//! What a thread does before it parks: with a core of its own it spins on its wait slot for a
//! while, else it yields its core some times and checks again.
//!
//! Part of `locked_engine`. Where a few threads of a rank share a core, yielding lets the leader
//! run, and nobody has to sleep and be woken. Among many threads, yielding only goes round among
//! the waiters. Then they park at once, as they do where yielding failed too often.

use crate::backoff::Backoff;
use crate::environment::SpinBudget;
use crate::limits::{YIELDING_WAITERS_MAX, YIELDS_BEFORE_PARK};
use std::sync::atomic::{AtomicU32, Ordering};

/// The state that the waiting threads of one locked engine share.
#[derive(Debug, Default)]
pub(super) struct YieldBeforePark {
    /// Threads that found another polling and wait still. Relaxed everywhere: it only says about
    /// how many.
    waiting: AtomicU32,
    /// Whether giving way pays.
    backoff: Backoff,
    /// Number of times that it helped since a leader left.
    helped: AtomicU32,
}

impl YieldBeforePark {
    /// The leader leaves: what it waited for has come.
    #[inline]
    pub(super) fn note_leader_left(&self) {
        self.helped.store(0, Ordering::Relaxed);
    }

    /// What a lingering thread waited for has come. Of a leader whose own does not come it is
    /// better served if that one steps aside, which it does for those that sit.
    fn note_helped(&self) {
        if self.helped.fetch_add(1, Ordering::Relaxed) < YIELDING_WAITERS_MAX {
            self.backoff.eased();
        } else {
            self.backoff.failed();
        }
    }

    /// Returns whether all that wait have a core each, with the one that polls.
    #[inline]
    pub(super) fn has_cores_for_all(&self, patience: SpinBudget) -> bool {
        patience.spinners > 1 && self.waiting.load(Ordering::Relaxed) < patience.spinners
    }

    /// A thread begins to wait.
    pub(super) fn begin_wait(&self, patience: SpinBudget) -> PreParkWait<'_> {
        PreParkWait {
            shared: self,
            patience,
            looks: 0,
            joined: false,
            yields: false,
            times: 0,
        }
    }
}

/// The part of one thread's wait before it parks.
#[derive(Debug)]
pub(super) struct PreParkWait<'a> {
    shared: &'a YieldBeforePark,
    patience: SpinBudget,
    /// Number of times that it looks whether it is called before it sleeps.
    looks: u32,
    /// The thread is counted among those that wait.
    joined: bool,
    yields: bool,
    times: u32,
}

impl PreParkWait<'_> {
    /// Returns whether the core is given away once more before the thread is parked down. Asked
    /// when another polls.
    #[inline]
    pub(super) fn goes_on(&mut self) -> bool {
        self.join();
        if self.yields && self.times == YIELDS_BEFORE_PARK {
            self.yields = false;
            self.shared.backoff.failed();
        }
        self.times += 1;
        self.yields
    }

    /// The thread is among those that wait from now on.
    fn join(&mut self) {
        if !std::mem::replace(&mut self.joined, true) {
            let others = self.shared.waiting.fetch_add(1, Ordering::Relaxed);
            if others.saturating_add(2) <= self.patience.spinners {
                self.looks = self.patience.spins;
            }
            self.yields = self.looks == 0
                && others < YIELDING_WAITERS_MAX
                && self.shared.backoff.begin().is_some();
        }
    }

    /// Returns whether it has no core of its own. Asked when another polls.
    pub(super) fn has_no_own_core(&mut self) -> bool {
        self.join();
        self.looks == 0
    }

    /// Returns how often it looks before it sleeps, as it stands when it is parked down.
    #[inline]
    pub(super) fn looks(&self) -> u32 {
        self.looks
    }

    /// What it waits for has come: if it lingers still, it need not park.
    #[inline]
    pub(super) fn succeed(&mut self) {
        if std::mem::take(&mut self.yields) {
            self.shared.note_helped();
        }
    }

    /// Ends the yielding because the thread leads, which says nothing about its success.
    #[inline]
    pub(super) fn stop(&mut self) {
        self.yields = false;
    }
}

impl Drop for PreParkWait<'_> {
    fn drop(&mut self) {
        if self.joined {
            self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_CORE: SpinBudget = SpinBudget {
        spins: 10,
        yields: 0,
        spinners: 1,
    };

    /// Returns how often one gives way that waits in vain.
    fn in_vain(wait: &mut PreParkWait<'_>) -> u32 {
        std::iter::from_fn(|| wait.goes_on().then_some(())).count() as u32
    }

    #[test]
    fn few_linger_and_what_was_in_vain_is_left_out() {
        let yield_before_park = YieldBeforePark::default();
        let (mut first, mut second) = (
            yield_before_park.begin_wait(ONE_CORE),
            yield_before_park.begin_wait(ONE_CORE),
        );
        assert_eq!(in_vain(&mut first), YIELDS_BEFORE_PARK);
        assert_eq!(in_vain(&mut second), 0, "the first was in vain");
        drop((first, second));
        let helped = |yield_before_park: &YieldBeforePark| {
            let mut wait = yield_before_park.begin_wait(ONE_CORE);
            let lingers = wait.goes_on();
            wait.succeed();
            lingers
        };
        (0..2 * YIELDING_WAITERS_MAX).for_each(|_| {
            yield_before_park.note_leader_left();
            assert!(helped(&yield_before_park), "it pays");
        });
        assert!((1..YIELDING_WAITERS_MAX).all(|_| helped(&yield_before_park)));
        assert!(
            helped(&yield_before_park) && !helped(&yield_before_park),
            "the same thread polled all the while"
        );
        yield_before_park.note_leader_left();
        assert!(helped(&yield_before_park));
        let mut crowd: Vec<_> = (0..YIELDING_WAITERS_MAX)
            .map(|_| yield_before_park.begin_wait(ONE_CORE))
            .collect();
        crowd.iter_mut().for_each(|wait| {
            wait.goes_on();
        });
        assert!(
            !yield_before_park.begin_wait(ONE_CORE).goes_on(),
            "many wait"
        );
        drop(crowd);
        assert_eq!(yield_before_park.waiting.load(Ordering::Relaxed), 0);
        let mut polls = yield_before_park.begin_wait(ONE_CORE);
        polls.stop();
        polls.succeed();
        assert_eq!(polls.times, 0);
    }

    #[test]
    fn as_many_look_as_have_a_core_beside_the_poller() {
        let yield_before_park = YieldBeforePark::default();
        let four = SpinBudget {
            spinners: 4,
            ..ONE_CORE
        };
        let mut waits: Vec<_> = (0..4).map(|_| yield_before_park.begin_wait(four)).collect();
        assert!(
            yield_before_park.has_cores_for_all(four)
                && !yield_before_park.has_cores_for_all(ONE_CORE)
        );
        let looks: Vec<_> = waits
            .iter_mut()
            .map(|wait| (wait.goes_on(), wait.looks()))
            .collect();
        assert_eq!(looks[..3], [(false, 10); 3]);
        assert_eq!(looks[3].1, 0);
        assert!(!yield_before_park.has_cores_for_all(four));
        waits.pop();
        assert!(yield_before_park.has_cores_for_all(four));
    }
}
