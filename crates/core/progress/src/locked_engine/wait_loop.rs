//! How the leader waits: it spins for its budget or yields its core, for longer where that pays,
//! runs tasks of its process, arms the transport's doorbell, polls once more, and sleeps.
//!
//! Part of `locked_engine`, whose documentation says what a wait promises. `wait_phases` has the
//! phases of a wait and a table of their transitions; this module does what they ask for.
//! `multi_wait` describes how several threads share the waiting.

use super::leader_parking::{ParkHistory, ParkOutcome};
use super::multi_wait::CoreYield;
use super::other_shards::CoveredShard;
use super::wait_phases::{Phase, PhaseActions, TasksOutcome, WaitPhases};
use super::{LockedEngine, ProgressCaller};
use crate::backoff::Backoff;
use crate::environment::{Environment, SpinBudget, YieldOutcome};
use crate::limits::{
    PARKS_BEFORE_TELLING, PARKS_PER_PUBLICATION, POLLS_AFTER_PACKET, SPIN_ON_POLLS,
    YIELD_LOCK_SPINS_MAX,
};
use crate::messaging::{WaitTarget, Waiting};
use crate::tasks::{self, Keypoint, KeypointOutcome};
use garonne_engine::transport::Transport;
use garonne_sync::deferred_wake::{self, DeferredWakes};
use garonne_sync::waiter::{self, WaiterHandle};
use garonne_sync::waiters::Waiters;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The pause of a leader between two polls where several threads use the engine: longer each time
/// while they lock it between polls. The engine's lines then stay with them and are not fetched
/// from core to core with each call. A poll that brings something is followed by some at once.
#[derive(Debug, Default)]
struct PollBackoff {
    /// Number of times that it had been taken after the last look.
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
                false => (2 * self.spins + 1).min(YIELD_LOCK_SPINS_MAX),
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
            (true, true) => POLLS_AFTER_PACKET,
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
    fn is_due(&mut self, slots: &Waiters) -> bool {
        // Before asking: SYNC(seats-news).
        let before = std::mem::replace(&mut self.seen, slots.event_count());
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

/// Knowledge of the leaders of one engine from earlier waits. The locked engine owns it.
#[derive(Debug, Default)]
pub(super) struct WaitHistory {
    /// Whether spinning or yielding beyond the budget pays.
    extended: Backoff,
    /// Sleeps so far (modulo 2^32).
    parks: AtomicU32,
}

/// The wait of one leader, or, not `AMONG` others, of a rank's only thread. The waiting thread owns
/// it, on its stack: [`LeaderWait::new`], then [`LeaderWait::run`].
pub(super) struct LeaderWait<'a, R, S, const AMONG: bool> {
    engine: &'a LockedEngine<R, S>,
    /// Tells whether the own event has come.
    done: &'a mut dyn FnMut() -> bool,
    /// The target, if leadership may be given up to another waiter before it has come.
    awaits: Option<&'a dyn Fn() -> WaitTarget>,
    budget: SpinBudget,
    /// A waiter that shares its thread with others.
    logical: Option<WaiterHandle>,
    done_policy: DonePolicy,
    poll_backoff: PollBackoff,
    core_yield: CoreYield,
    park_history: ParkHistory,
    /// Wake-ups that wait until it is known whether the leader parks.
    wakes: Option<DeferredWakes>,
    /// Since when it spins or yields beyond the budget.
    extended_since: Option<Instant>,
    /// Yielding beyond the budget was considered in this row of passes.
    extension_asked: bool,
    /// Peers were told that the leader polls all the time.
    polling_told: bool,
    /// The wait was published as a long one.
    published: bool,
}

impl<'a, R: Transport + Send, S: Environment, const AMONG: bool> LeaderWait<'a, R, S, AMONG> {
    /// A wait of the calling thread's waiter until `done`.
    #[inline]
    pub(super) fn new(
        engine: &'a LockedEngine<R, S>,
        done: &'a mut dyn FnMut() -> bool,
        awaits: Option<&'a dyn Fn() -> WaitTarget>,
    ) -> Self {
        Self {
            engine,
            done,
            awaits,
            budget: engine.surroundings.spin_budget(),
            logical: AMONG.then(waiter::current).filter(WaiterHandle::is_logical),
            done_policy: DonePolicy::default(),
            poll_backoff: PollBackoff::new(engine.lock.acquisitions()),
            core_yield: CoreYield::new(&engine.waiters),
            park_history: ParkHistory::default(),
            wakes: None,
            extended_since: None,
            extension_asked: false,
            polling_told: false,
            published: false,
        }
    }

    /// Waits. `true`: the event has come, and the caller leads still; `false`: another waiter leads
    /// now, and the event may not have come.
    #[inline]
    pub(super) fn run(mut self) -> bool {
        let (mut phases, mut phase) = (WaitPhases::new(self.budget), Phase::CheckEvent);
        let done = loop {
            phase = phases.step(phase, &mut self);
            match phase {
                Phase::Done => break true,
                Phase::Follows => break false,
                _ => {}
            }
        };
        if let Some(begun) = self.extended_since {
            self.engine.wait_history.extended.came(begun);
        }
        self.stop_polling();
        self.withdraw_long_wait();
        done
    }

    /// Tells peers that the leader does not poll all the time any more, if they were told that.
    #[inline]
    fn stop_polling(&mut self) {
        if std::mem::take(&mut self.polling_told) {
            self.engine.wake_source.stop_polling();
        }
    }

    /// Takes back what was published about a long wait, if it was.
    #[inline]
    fn withdraw_long_wait(&mut self) {
        if std::mem::take(&mut self.published) {
            self.engine.surroundings.note_long_wait(None);
        }
    }

    /// Sleeps on the doorbell, and on those of the shards that are covered meanwhile.
    fn sleep(&self, ticket: u32, limit: Option<Duration>, covered: &[CoveredShard<R, S>]) {
        deferred_wake::flush();
        waiter::current().begins_sleep();
        if covered.is_empty() {
            return self.engine.wake_source.sleep(ticket, limit);
        }
        let bells: Vec<_> = covered
            .iter()
            .filter_map(|other| other.bell().map(|bell| (bell, other.ticket)))
            .collect();
        self.engine.wake_source.sleep_among(ticket, limit, &bells);
    }
}

impl<R: Transport + Send, S: Environment, const AMONG: bool> PhaseActions
    for LeaderWait<'_, R, S, AMONG>
{
    #[inline]
    fn check_event(&mut self) -> bool {
        if AMONG {
            self.poll_backoff.begin(self.engine.lock.acquisitions());
        }
        if !AMONG || self.done_policy.is_due(&self.engine.waiters) {
            if (self.done)() {
                return true;
            }
            self.done_policy.note_not_done(self.awaits);
        }
        false
    }

    #[inline]
    fn serve_others(&mut self, idle: u32) -> bool {
        if !AMONG {
            return false;
        }
        let engine = self.engine;
        engine.poll_predicates();
        let woken = self.core_yield.calls(&engine.waiters);
        if self.awaits.is_some()
            && self.logical.is_none()
            && (engine.blocks_woken_thread(woken)
                || engine.only_serves_others(&self.core_yield, woken)
                || self.park_history.goes_on(idle))
            && !self.published
        {
            return true;
        }
        drop(self.wakes.take());
        engine.yield_to_woken(&mut self.core_yield, woken);
        false
    }

    fn park_on_bell(&mut self) -> ParkOutcome {
        self.stop_polling();
        self.extended_since = None;
        let Some(awaits) = self.awaits else {
            return ParkOutcome::Leads;
        };
        let (history, wakes) = (&mut self.park_history, self.wakes.take());
        let outcome = self.engine.park_leader(awaits, self.done, history, wakes);
        if outcome == ParkOutcome::Leads {
            self.done_policy.again();
        }
        outcome
    }

    #[inline]
    fn poll(&mut self) -> bool {
        if AMONG {
            // Whom it calls would find it polling, and park, before it stands aside.
            let defers = self.awaits.is_some() && self.engine.leader.is_core_contended();
            self.wakes = defers.then(DeferredWakes::new);
            self.poll_backoff.wait();
        }
        let moved = self.engine.progress();
        if AMONG {
            self.poll_backoff
                .end(self.engine.lock.acquisitions(), moved);
        }
        if moved {
            self.done_policy.again();
            self.extension_asked = false;
            self.withdraw_long_wait();
            if let Some(begun) = self.extended_since.take() {
                self.engine.wait_history.extended.came(begun);
            }
        } else {
            self.wakes = None;
        }
        moved
    }

    #[inline]
    fn poll_elsewhere(&mut self, idle: u32) -> bool {
        if !AMONG {
            return false;
        }
        let came = self.engine.poll_other_shards_after(idle)
            || self.logical.as_ref().is_some_and(WaiterHandle::yield_now);
        if came {
            self.done_policy.again();
        }
        came
    }

    #[inline]
    fn begin_idle(&mut self) {
        // Where ranks exceed cores, who looks may not be running.
        if self.budget.spins > 0 {
            self.polling_told = true;
            self.engine.wake_source.start_polling();
        }
        if !self
            .engine
            .async_progress
            .ownership
            .owner
            .is_held_by_program()
            && !self.engine.lock.is_shared()
        {
            self.engine.reclaim_late();
        }
    }

    fn spin_on(&mut self) -> u32 {
        self.extended_since = self.engine.wait_history.extended.begin();
        let more = if self.extended_since.is_some() {
            SPIN_ON_POLLS
        } else {
            0
        };
        self.engine.lock_engine().transfer_polls().max(more)
    }

    #[inline]
    fn spin(&mut self) {
        std::hint::spin_loop();
    }

    fn yield_core(&mut self) -> YieldOutcome {
        self.engine.surroundings.yield_core()
    }

    fn yields_on(&mut self) -> bool {
        let most = self.engine.surroundings.extended_yield();
        if most.is_zero() {
            return false;
        }
        if !std::mem::replace(&mut self.extension_asked, true) {
            self.extended_since = self.engine.wait_history.extended.begin();
        }
        self.extended_since
            .is_some_and(|begun| begun.elapsed() < most)
    }

    fn run_tasks(&mut self, parks: u32) -> TasksOutcome {
        if self.extended_since.take().is_some() {
            self.engine.wait_history.extended.failed();
        }
        // Other threads may have begun to wait meanwhile.
        if parks >= PARKS_BEFORE_TELLING && (!self.published || AMONG) {
            let surroundings = &self.engine.surroundings;
            surroundings.note_long_wait(Some(&self.engine.waiting()));
            self.published = true;
        }
        self.stop_polling();
        match tasks::pass(Keypoint::Wait) {
            KeypointOutcome::Nothing => TasksOutcome::None(None),
            KeypointOutcome::Later(limit) => TasksOutcome::None(Some(limit)),
            KeypointOutcome::Finished => {
                self.done_policy.again();
                TasksOutcome::Ran
            }
        }
    }

    fn hand_over(&mut self) -> bool {
        AMONG && self.awaits.is_some() && self.engine.leave_leadership_on_bell()
    }

    /// Arms the doorbell, polls once more, sleeps.
    fn park(&mut self, limit: Option<Duration>, parks: u32) -> bool {
        let engine = self.engine;
        self.done_policy.again();
        let happened = engine.waiters.event_count();
        let covered = if AMONG {
            engine.cover_other_shards()
        } else {
            Vec::new()
        };
        let ticket = engine.lock_engine().transport().arm();
        let mut moved = engine.progress_surely();
        // Armed before: whoever tells of a death or an end later rings.
        moved |= engine.look_for_losses();
        for other in &covered {
            moved |= other.look();
        }
        let shard_limit = if AMONG {
            engine.multi_shard_sleep_limit(parks)
        } else {
            None
        };
        // After the first: most sleeps are short.
        moved |=
            parks > 0 && shard_limit.is_some() && engine.poll_other_shards(ProgressCaller::Program);
        let over = !moved && (self.done)();
        if AMONG && !over {
            engine.poll_predicates();
        }
        if !moved && !over {
            let before = engine.wait_history.parks.fetch_add(1, Ordering::Relaxed);
            if before.is_multiple_of(PARKS_PER_PUBLICATION) {
                engine.lock_engine().publish_tally();
            }
            let retry = engine.retry_limit();
            let others = covered.iter().filter_map(CoveredShard::sleep_limit);
            let limits = retry.into_iter().chain(limit).chain(shard_limit);
            let limit = limits.chain(others).min();
            engine.leader.set_sleeps(true);
            let quiet = covered.iter().all(CoveredShard::begin_sleep);
            if engine.waiters.event_count() == happened && quiet {
                engine.surroundings.note_sleep(true);
                self.sleep(ticket, limit, &covered);
                engine.surroundings.note_sleep(false);
            }
            engine.leader.set_sleeps(false);
        }
        engine.lock_engine().transport().disarm();
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns that a leader waits before each of its looks, given how often others took the engine
    /// before it and whether it brought something.
    fn waits(rounds: &[(u32, bool)]) -> Vec<u32> {
        let (mut turns, mut backoff) = (0u32, PollBackoff::new(0));
        let round = |(others, moved): &(u32, bool)| {
            turns += others;
            backoff.begin(turns);
            let waited = if backoff.waits { backoff.spins } else { 0 };
            turns += 1;
            backoff.end(turns, *moved);
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
        assert_eq!(busy[9], YIELD_LOCK_SPINS_MAX);
        let calmer = [[(1, false); 6].as_slice(), &[(0, false); 7]].concat();
        assert_eq!(waits(&calmer)[6..], [31, 15, 7, 3, 1, 0, 0]);
    }

    #[test]
    fn looks_that_bring_something_follow_each_other_at_once() {
        let row = POLLS_AFTER_PACKET as usize;
        let rounds = [
            [(1, false); 6].as_slice(),
            &[(1, true); 40],
            &[(1, false), (1, false)],
        ]
        .concat();
        let waited = waits(&rounds);
        assert_eq!(waited[6], YIELD_LOCK_SPINS_MAX);
        assert!(waited[7..7 + row].iter().all(|spins| *spins == 0));
        assert_eq!(waited[7 + row], YIELD_LOCK_SPINS_MAX);
        assert_eq!(
            waited.last(),
            Some(&YIELD_LOCK_SPINS_MAX),
            "what brought nothing ends the row"
        );
    }
}
