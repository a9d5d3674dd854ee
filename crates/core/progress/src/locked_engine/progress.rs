//! A progress pass: poll the transport once, let the engine handle what came, and run the steppers
//! that are affected.
//!
//! Part of `locked_engine`. Any thread may make a pass. One thread at a time runs the steppers, and
//! events that reach another thread meanwhile are not lost. A pass that finds the lock taken does
//! nothing under [`LockPolicy::IfFree`], because the lock's holder may not be polling. A thread
//! that is about to sleep therefore uses [`LockPolicy::Wait`].

use super::{LockedEngine, ProgressCaller, lock};
use crate::environment::Environment;
use crate::limits::{ENDED_KNOWN, OPEN_FEW};
use crate::messaging::{Messaging, Stepper, WaitKey};
use garonne_engine::transport::Transport;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a look does that finds the engine taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockPolicy {
    /// Skip the pass: for threads that poll again before they sleep.
    IfFree,
    /// Wait for the lock: for the poll between arming the doorbell and sleeping. Nobody rings for
    /// what came before the bell was armed.
    Wait,
}

impl<R: Transport + std::marker::Send, S: Environment> LockedEngine<R, S> {
    /// Polls once, advances the engine and the steppers. `true` if anything moved.
    pub(super) fn advance(&self, by: ProgressCaller, look: LockPolicy) -> bool {
        let Some(mut shard) = self.shard.try_lock_unshared() else {
            return self.advance_shared(by, look);
        };
        let moved = shard.progress();
        let after = shard.completions();
        drop(shard);
        self.step(after, by) || moved
    }

    /// Polls once, after whoever has the engine just now. `true` if anything moved.
    pub(crate) fn progress_surely(&self) -> bool {
        self.advance(ProgressCaller::Program, LockPolicy::Wait)
    }

    /// Makes a progress pass where several threads share the engine. The lock is held for moments
    /// only, and not while bytes of large messages move.
    #[inline(never)]
    fn advance_shared(&self, by: ProgressCaller, look: LockPolicy) -> bool {
        self.yield_to_lock_waiters();
        let mut shard = match (self.try_lock_to_poll(), look) {
            (Some(shard), _) => shard,
            (None, LockPolicy::Wait) => self.lock_engine(),
            (None, LockPolicy::IfFree) => return false,
        };
        let before = shard.completions();
        let mut moved = shard.progress_briefly();
        let mut next = shard.take_copy_job();
        let (mut after, mut work) = (shard.completions(), shard.has_work());
        self.unlock(shard, after != before);
        while let Some(mut flight) = next.take() {
            moved = true;
            flight.run();
            let goes_on = flight.must_continue();
            let mut shard = self.lock_engine();
            let before = shard.completions();
            shard.finish_copy_job(flight);
            if goes_on {
                next = shard.take_copy_job();
            }
            (after, work) = (shard.completions(), shard.has_work());
            self.unlock(shard, after != before);
        }
        if moved && work {
            // Whoever sleeps did so before there was this work.
            self.count_event_and_wake();
        }
        let moved = self.step(after, by) || moved;
        if moved && by == ProgressCaller::Program {
            self.wake_worker_for_work();
        }
        moved
    }

    /// Runs the steppers if something happened since they last ran, or if one looks at memory.
    /// `true` if any finished or something happened meanwhile.
    pub(super) fn step(&self, completions: u64, by: ProgressCaller) -> bool {
        if self.open_steppers.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let old = self.stepped_completions.swap(completions, Ordering::AcqRel) == completions;
        if old && self.memory_steppers.load(Ordering::SeqCst) == 0 {
            return false;
        }
        self.run_steppers(by)
    }

    /// Runs the steppers on behalf of a caller that left another one open. Among many they are run
    /// a few times only while their number grows; else starting them all would cost the square of
    /// it. `false`: they are yet to be run.
    pub(super) fn step_unless_many(&self, completions: u64) -> bool {
        let open = self.open_steppers.load(Ordering::SeqCst) as usize;
        if open < OPEN_FEW || open.is_power_of_two() {
            self.step(completions, ProgressCaller::Program);
            return true;
        }
        self.memory_steppers.load(Ordering::SeqCst) == 0
            && self.stepped_completions.load(Ordering::Acquire) == completions
    }

    /// Runs the steppers; whoever finds another thread at it leaves them to that one, which then
    /// runs them once more. `true` if any finished.
    pub(super) fn run_steppers(&self, by: ProgressCaller) -> bool {
        let mut finished = false;
        self.steppers
            .attend(|steppers| finished |= self.run_all(steppers, by));
        finished
    }

    /// Steps those that were just attached, and nobody else: what these wait for has not changed by
    /// that, and what a first step brings about for others is counted among the completions, by
    /// which the next look tells them. Whoever finds another thread at it leaves all to that one.
    pub(super) fn step_new(&self, by: ProgressCaller) {
        let Some(mut steppers) = self.steppers.begin() else {
            return;
        };
        let run = self.step_newcomers(steppers.value(), by, StepperRun::default());
        self.account_run(run);
        // News that came to another thread meanwhile are for all.
        if steppers.end() {
            self.run_steppers(by);
        }
    }

    /// One run of all steppers, and of those that come meanwhile.
    fn run_all(&self, steppers: &mut Vec<Arc<dyn Stepper>>, by: ProgressCaller) -> bool {
        let mut run = StepperRun::default();
        let whole = self.sharded_engine();
        let host: &dyn Messaging = whole.as_deref().map_or(self, |whole| whole);
        steppers.retain(|stepper| self.goes_on(stepper, (host, by), &mut run));
        let run = self.step_newcomers(steppers, by, run);
        self.account_run(run)
    }

    /// Takes in those that were attached, and those that come while they are stepped.
    fn step_newcomers(
        &self,
        steppers: &mut Vec<Arc<dyn Stepper>>,
        by: ProgressCaller,
        mut run: StepperRun,
    ) -> StepperRun {
        let whole = self.sharded_engine();
        let host: &dyn Messaging = whole.as_deref().map_or(self, |whole| whole);
        // Not kept locked: a step may attach.
        let next = || lock(&self.new_steppers).pop_front();
        while let Some(stepper) = next() {
            if self.goes_on(&stepper, (host, by), &mut run) {
                steppers.push(stepper);
            }
        }
        run
    }

    /// Steps one, if whoever runs it may. `false`: it is over.
    fn goes_on(
        &self,
        stepper: &Arc<dyn Stepper>,
        (host, by): (&dyn Messaging, ProgressCaller),
        run: &mut StepperRun,
    ) -> bool {
        if by == ProgressCaller::Helper && stepper.runs_user_code() {
            run.left = true;
            return true;
        }
        let over = stepper.step(host);
        if over {
            run.end(stepper);
            if stepper.polls_memory() {
                self.memory_steppers.fetch_sub(1, Ordering::SeqCst);
            }
            if stepper.has_messages() {
                self.messaging_steppers.fetch_sub(1, Ordering::SeqCst);
            }
        }
        !over
    }

    /// Tells what came of a run. `true`: some are over.
    fn account_run(&self, run: StepperRun) -> bool {
        let StepperRun { finished, left, .. } = run;
        self.open_steppers.fetch_sub(finished, Ordering::SeqCst);
        self.count_interest(-(finished as i32));
        if left {
            // The news are still to be told to those, by a thread of the program.
            self.stepped_completions.store(u64::MAX, Ordering::Release);
        }
        if finished > 0 || left {
            self.announce(|awaited| run.is_news_for(awaited));
        }
        finished > 0
    }
}

/// What came of stepping.
#[derive(Default)]
struct StepperRun {
    /// Steppers that are over.
    finished: u32,
    /// The first of them.
    ended: [Option<Arc<dyn Stepper>>; ENDED_KNOWN],
    /// Some were left to a thread of the program.
    left: bool,
}

impl StepperRun {
    fn end(&mut self, stepper: &Arc<dyn Stepper>) {
        if let Some(place) = self.ended.get_mut(self.finished as usize) {
            *place = Some(stepper.clone());
        }
        self.finished += 1;
    }

    /// Whether who waits for this is to ask again, or to step what was left.
    fn is_news_for(&self, awaited: WaitKey) -> bool {
        let all = self.left || self.finished as usize > ENDED_KNOWN;
        let mut ended = self.ended.iter().flatten();
        match awaited {
            WaitKey::Stepper(_) => {
                all || ended.any(|stepper| WaitKey::stepper_end(stepper) == awaited)
            }
            WaitKey::AnyOf(current_waiter) => {
                let is_its = |stepper: &Arc<dyn Stepper>| {
                    stepper
                        .current_waiter()
                        .is_some_and(|noted| noted.is_registered_by(current_waiter))
                };
                all || ended.any(is_its)
            }
            _ => false,
        }
    }
}
