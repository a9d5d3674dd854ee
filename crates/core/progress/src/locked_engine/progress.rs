//! A progress pass: poll the transport once, let the engine handle what came, and run the steppers
//! that are affected.
//!
//! Part of `locked_engine`. Any thread may make a pass. A pass that finds the lock taken does
//! nothing under [`LockPolicy::IfFree`], because the lock's holder may not be polling. A thread
//! that is about to sleep therefore uses [`LockPolicy::Wait`].

use super::steppers::{StepContext, StepperRun};
use super::{LockedEngine, ProgressCaller};
use crate::environment::Environment;
use crate::messaging::Messaging;
use garonne_engine::transport::Transport;

/// Behaviour of a look that finds the engine taken.
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
        let Some(mut shard) = self.lock.try_lock_unshared() else {
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
        self.lock.yield_to_waiting();
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
    #[inline]
    pub(super) fn step(&self, completions: u64, by: ProgressCaller) -> bool {
        self.steppers.step(completions, by, self)
    }
}

impl<R: Transport + std::marker::Send, S: Environment> StepContext for LockedEngine<R, S> {
    fn with_rank(&self, f: impl FnOnce(&dyn Messaging)) {
        match self.sharded_engine() {
            Some(rank) => f(&*rank),
            None => f(self),
        }
    }

    fn note_run(&self, run: &StepperRun) {
        self.count_interest(-(run.finished() as i32));
        if run.is_news() {
            self.announce(|awaited| run.is_news_for(awaited));
        }
    }
}
