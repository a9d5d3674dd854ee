//! How the leader waits: it spins for its budget or yields its core, for longer where that pays,
//! runs tasks of its process, arms the transport's doorbell, polls once more, and sleeps.
//!
//! Part of `locked_engine`, whose documentation says what a wait promises. `multi_wait` describes
//! how several threads share the waiting.

use super::leader_parking::{ParkHistory, ParkOutcome};
use super::multi_wait::CoreYield;
use super::other_shards::CoveredShard;
use super::progress::LockPolicy;
use super::{LockedEngine, ProgressCaller};
use crate::environment::{Environment, SpinBudget, YieldOutcome};
use crate::limits::{
    PARKS_BEFORE_TELLING, PARKS_PER_PUBLICATION, POLITE_ROW, POLITE_SPINS, SPIN_ON_POLLS,
    YIELDS_IN_VAIN,
};
use crate::messaging::{WaitTarget, Waiting};
use crate::tasks::{self, Keypoint, KeypointOutcome};
use garonne_engine::transport::Transport;
use garonne_sync::deferred_wake::{self, DeferredWakes};
use garonne_sync::waiter::{self, WaiterHandle};
use garonne_sync::waiters::Waiters;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The pause of a leader between two polls where several threads use the engine: longer each time
/// while they lock it between polls. The engine's lines then stay with them and are not fetched
/// from core to core with each call. A poll that brings something is followed by some at once.
#[derive(Debug, Default)]
struct PollBackoff {
    /// How often it had been taken after the last look.
    acquisitions: u32,
    spins: u32,
    /// Looks that follow at once.
    burst: u32,
    /// The next is not one of those.
    waits: bool,
}

impl PollBackoff {
    fn new(acquisitions: u32) -> Self {
        Self {
            acquisitions,
            ..Self::default()
        }
    }

    /// The leader begins another round, and has not taken the engine since its last look.
    #[inline]
    fn begin(&mut self, acquisitions: u32) {
        self.waits = self.burst == 0;
        self.burst = self.burst.saturating_sub(1);
        if self.waits {
            self.spins = match acquisitions == self.acquisitions {
                true => self.spins / 2,
                false => (2 * self.spins + 1).min(POLITE_SPINS),
            };
        }
    }

    /// Pauses before the next poll.
    #[inline]
    fn wait(&self) {
        if self.waits {
            (0..self.spins).for_each(|_| std::hint::spin_loop());
        }
    }

    /// Notes the end of a poll, and whether it brought something.
    #[inline]
    fn end(&mut self, acquisitions: u32, moved: bool) {
        self.acquisitions = acquisitions;
        self.burst = match (moved, self.waits) {
            (false, _) => 0,
            (true, true) => POLITE_ROW,
            (true, false) => self.burst,
        };
    }
}

/// The policy of a leader for checking its own condition: at each poll, or, for events that the
/// engine causes, only when the event count has changed. Whoever locks the engine counts such
/// events, as for parked threads.
#[derive(Debug, Default)]
struct DonePolicy {
    seen: u64,
    only_after_news: bool,
}

impl DonePolicy {
    #[inline]
    fn is_due(&mut self, seats: &Waiters) -> bool {
        // Before asking: SYNC(seats-news).
        let before = std::mem::replace(&mut self.seen, seats.event_count());
        !self.only_after_news || before != self.seen
    }

    /// Notes that the condition is not met.
    #[inline]
    fn note_not_done(&mut self, awaits: Option<&dyn Fn() -> WaitTarget>) {
        self.only_after_news = awaits.is_some_and(|awaits| match awaits() {
            WaitTarget::Operation(_)
            | WaitTarget::Receive(..)
            | WaitTarget::AnyOf(_)
            | WaitTarget::AnyAnywhere(_)
            | WaitTarget::Message(_)
            | WaitTarget::Signal(_) => true,
            WaitTarget::Anything | WaitTarget::Stepper(_) | WaitTarget::Memory(_) => false,
        });
    }

    /// The leader itself may have brought it.
    #[inline]
    fn again(&mut self) {
        self.only_after_news = false;
    }
}

impl<R: Transport + Send, S: Environment> LockedEngine<R, S> {
    /// The wait of a rank's only thread.
    #[inline]
    pub(super) fn wait_unshared(&self, done: &mut dyn FnMut() -> bool) {
        let open = self.async_progress.is_any_open();
        if open {
            self.reclaim_on_return();
        }
        self.wait_loop::<false>(done, self.surroundings.spin_budget(), None);
        if open {
            self.release_again();
        }
    }

    /// The wait loop of the leader, until `done`: `true`. `AMONG`: others may be parked and rely on
    /// it. `awaits`: the target, if the caller may give up leadership to another thread before
    /// that: `false`.
    pub(super) fn wait_loop<const AMONG: bool>(
        &self,
        done: &mut dyn FnMut() -> bool,
        patience: SpinBudget,
        awaits: Option<&dyn Fn() -> WaitTarget>,
    ) -> bool {
        let (mut idle, mut parks, mut spins, mut spinning_on) = (0u32, 0u32, patience.spins, None);
        let (mut looks, mut taken, mut tried, mut told) = (false, 0, false, false);
        let (mut courtesy, mut naps, mut wakes) =
            (CoreYield::new(&self.waiters), ParkHistory::default(), None);
        let (mut asking, mut manners) = (
            DonePolicy::default(),
            PollBackoff::new(self.lock.acquisitions()),
        );
        // Whoever shares its thread with other waiters.
        let who = AMONG.then(waiter::current).filter(WaiterHandle::is_logical);
        let over = loop {
            if AMONG {
                manners.begin(self.lock.acquisitions());
            }
            if !AMONG || asking.is_due(&self.waiters) {
                if done() {
                    break true;
                }
                asking.note_not_done(awaits);
            }
            if AMONG {
                self.poll_predicates();
                let calls = courtesy.calls(&self.waiters);
                if let Some(awaits) = awaits
                    && who.is_none()
                    && (self.blocks_woken_thread(calls)
                        || self.only_serves_others(&courtesy, calls)
                        || naps.goes_on(idle))
                    && !told
                {
                    if std::mem::take(&mut looks) {
                        self.wake_source.stop_polling();
                    }
                    spinning_on = None;
                    match self.park_leader(awaits, done, &mut naps, wakes.take()) {
                        ParkOutcome::Leads => {
                            asking.again();
                            idle = 0;
                        }
                        ParkOutcome::Done => break true,
                        ParkOutcome::Follows => break false,
                    }
                } else {
                    drop(wakes.take());
                    self.yield_to_woken(&mut courtesy, calls);
                }
                // Whom it calls would find it polling, and park, before it stands aside.
                wakes =
                    (awaits.is_some() && self.leader.is_core_contended()).then(DeferredWakes::new);
            }
            if AMONG {
                manners.wait();
            }
            let moved = self.progress();
            if AMONG {
                manners.end(self.lock.acquisitions(), moved);
            }
            if moved {
                asking.again();
                (idle, parks, spins, taken, tried) = (0, 0, patience.spins, 0, false);
                self.withdraw_long_wait(&mut told);
                if let Some(begun) = spinning_on.take() {
                    self.extended_spin.came(begun);
                }
                continue;
            }
            wakes = None;
            idle = idle.saturating_add(1);
            if AMONG && self.poll_other_shards_after(idle) {
                asking.again();
                idle = 0;
                continue;
            }
            if who.as_ref().is_some_and(WaiterHandle::yield_now) {
                asking.again();
                continue;
            }
            // Where ranks exceed cores, who looks may not be running.
            if idle == 1 && patience.spins > 0 {
                looks = true;
                self.wake_source.start_polling();
            }
            if idle == 1
                && !self.async_progress.ownership.owner.is_held_by_program()
                && !self.lock.is_shared()
            {
                self.reclaim_late();
            }
            if idle == patience.spins.saturating_add(1) && patience.spins > 0 {
                spinning_on = self.extended_spin.begin();
                let more = if spinning_on.is_some() {
                    SPIN_ON_POLLS
                } else {
                    0
                };
                spins = spins.saturating_add(self.lock_engine().transfer_polls().max(more));
            }
            if idle <= spins {
                std::hint::spin_loop();
            } else if taken < patience.yields && idle <= spins.saturating_add(YIELDS_IN_VAIN) {
                taken += u32::from(self.surroundings.yield_core() == YieldOutcome::Taken);
            } else if self.extends_yield(&mut spinning_on, &mut tried) {
                self.surroundings.yield_core();
            } else {
                if spinning_on.take().is_some() {
                    self.extended_spin.failed();
                }
                // Other threads may have begun to wait meanwhile.
                if parks >= PARKS_BEFORE_TELLING && (!told || AMONG) {
                    self.surroundings.note_long_wait(Some(&self.waiting()));
                    told = true;
                }
                if std::mem::take(&mut looks) {
                    self.wake_source.stop_polling();
                }
                let most = match tasks::pass(Keypoint::Wait) {
                    KeypointOutcome::Nothing => None,
                    // It may have taken long.
                    KeypointOutcome::Finished => {
                        asking.again();
                        continue;
                    }
                    KeypointOutcome::Later(limit) => Some(limit),
                };
                if AMONG && awaits.is_some() && self.leave_leadership_on_bell() {
                    break false;
                }
                // Unless this brings something, the next look is followed by sleep at once.
                if self.park::<AMONG>(done, most, parks) {
                    break true;
                }
                asking.again();
                parks = parks.saturating_add(1);
            }
        };
        if let Some(begun) = spinning_on {
            self.extended_spin.came(begun);
        }
        if looks {
            self.wake_source.stop_polling();
        }
        self.withdraw_long_wait(&mut told);
        over
    }

    /// Whether one that gave its core away as often as it is to goes on with that: since when it
    /// does is `begun`, and `tried` that it asked whether that pays.
    fn extends_yield(&self, begun: &mut Option<Instant>, tried: &mut bool) -> bool {
        let most = self.surroundings.extended_yield();
        if most.is_zero() {
            return false;
        }
        if !std::mem::replace(tried, true) {
            *begun = self.extended_spin.begin();
        }
        begun.is_some_and(|begun| begun.elapsed() < most)
    }

    /// Takes back what was told about a long wait, if it was.
    #[inline]
    fn withdraw_long_wait(&self, told: &mut bool) {
        if std::mem::take(told) {
            self.surroundings.note_long_wait(None);
        }
    }

    /// Arm, look once more, sleep, for `most` at most, after so many times before. Returns the
    /// answer of `done`, if it was asked.
    fn park<const AMONG: bool>(
        &self,
        done: &mut dyn FnMut() -> bool,
        most: Option<Duration>,
        parks: u32,
    ) -> bool {
        let happened = self.waiters.event_count();
        let beside = if AMONG {
            self.cover_other_shards()
        } else {
            Vec::new()
        };
        let ticket = self.lock_engine().rail().arm();
        let mut moved = self.advance(ProgressCaller::Program, LockPolicy::Wait);
        for other in &beside {
            moved |= other.look();
        }
        let nap = if AMONG {
            self.multi_shard_sleep_limit(parks)
        } else {
            None
        };
        // After the first: most sleeps are short.
        moved |= parks > 0 && nap.is_some() && self.poll_other_shards(ProgressCaller::Program);
        let over = !moved && done();
        if AMONG && !over {
            self.poll_predicates();
        }
        if !moved && !over {
            if self
                .parks
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(PARKS_PER_PUBLICATION)
            {
                self.lock_engine().publish_tally();
            }
            let retry = self.retry_limit();
            let others = beside.iter().filter_map(CoveredShard::sleep_limit);
            let limit = retry.into_iter().chain(most).chain(nap).chain(others).min();
            self.leader.set_sleeps(true);
            let quiet = beside.iter().all(CoveredShard::begin_sleep);
            if self.waiters.event_count() == happened && quiet {
                self.surroundings.note_sleep(true);
                self.sleep(ticket, limit, &beside);
                self.surroundings.note_sleep(false);
            }
            self.leader.set_sleeps(false);
        }
        self.lock_engine().rail().disarm();
        over
    }

    /// How long to sleep at most: queued work that found no room is tried again even if nobody
    /// rings.
    pub(super) fn retry_limit(&self) -> Option<Duration> {
        let work = self.lock_engine().has_work();
        if work {
            self.surroundings.retry_interval()
        } else {
            None
        }
    }

    /// Sleeps on the bell, and on those of the shards that are seen to meanwhile.
    fn sleep(&self, ticket: u32, limit: Option<Duration>, beside: &[CoveredShard<R, S>]) {
        deferred_wake::flush();
        if beside.is_empty() {
            return self.wake_source.sleep(ticket, limit);
        }
        let bells: Vec<_> = beside
            .iter()
            .filter_map(|other| other.bell().map(|bell| (bell, other.ticket)))
            .collect();
        self.wake_source.sleep_among(ticket, limit, &bells);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns that a leader waits before each of its looks, given how often others took the engine
    /// before it and whether it brought something.
    fn waits(rounds: &[(u32, bool)]) -> Vec<u32> {
        let (mut turns, mut manners) = (0u32, PollBackoff::new(0));
        let round = |(others, moved): &(u32, bool)| {
            turns += others;
            manners.begin(turns);
            let waited = if manners.waits { manners.spins } else { 0 };
            turns += 1;
            manners.end(turns, *moved);
            waited
        };
        rounds.iter().map(round).collect()
    }

    #[test]
    fn a_poller_leaves_the_engine_to_others_for_longer_while_they_take_it() {
        assert_eq!(waits(&[(0, false); 4]), [0; 4]);
        assert_eq!(
            waits(&[(0, true); 40]),
            [0; 40],
            "its own turns do not count"
        );
        let busy = waits(&[(1, false); 10]);
        assert_eq!(busy[..7], [1, 3, 7, 15, 31, 63, 64]);
        assert_eq!(busy[9], POLITE_SPINS);
        let calmer = [[(1, false); 6].as_slice(), &[(0, false); 7]].concat();
        assert_eq!(waits(&calmer)[6..], [31, 15, 7, 3, 1, 0, 0]);
    }

    #[test]
    fn looks_that_bring_something_follow_each_other_at_once() {
        let row = POLITE_ROW as usize;
        let rounds = [
            [(1, false); 6].as_slice(),
            &[(1, true); 40],
            &[(1, false), (1, false)],
        ]
        .concat();
        let waited = waits(&rounds);
        assert_eq!(waited[6], POLITE_SPINS);
        assert!(waited[7..7 + row].iter().all(|spins| *spins == 0));
        assert_eq!(waited[7 + row], POLITE_SPINS);
        assert_eq!(
            waited.last(),
            Some(&POLITE_SPINS),
            "what brought nothing ends the row"
        );
    }
}
