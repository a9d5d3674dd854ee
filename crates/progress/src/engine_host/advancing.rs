//! Advancing: one look at the rail, what the engine does with it, and the steppers that it is news for.
//!
//! Part of `engine_host`. Any thread may advance a host; one at a time runs the steppers, and news that come to another meanwhile are not lost. A look that finds the
//! engine taken is no look: its holder may look for other things, or for nothing. So whoever is to sleep afterwards looks [`Look::Surely`].

use super::{By, EngineHost, lock};
use crate::host::{Host, Stepper};
use crate::surroundings::Surroundings;
use garonne_engine::rail::Rail;
use std::sync::atomic::Ordering;
use std::sync::{Arc, TryLockError};

/// What a look does that finds the engine taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It is left out: for those who look again before they sleep.
    IfFree,
    /// It waits, for its turn: the look after arming a bell, before sleep. What came before the bell was armed nobody rings for.
    Surely,
}

impl<R: Rail + std::marker::Send, S: Surroundings> EngineHost<R, S> {
    /// Polls once, advances the engine and the steppers. `true` if anything moved.
    pub(super) fn advance(&self, by: By, look: Look) -> bool {
        let Some(mut shard) = self.shard.try_alone() else {
            return self.advance_shared(by, look);
        };
        let moved = shard.progress();
        let after = shard.completions();
        drop(shard);
        self.step(after, by) || moved
    }

    /// The same where several threads share the engine: it is held for moments only, and not while bytes of large messages move.
    #[inline(never)]
    fn advance_shared(&self, by: By, look: Look) -> bool {
        self.yield_engine();
        let mut shard = match (self.try_enter(), look) {
            (Some(mut shard), _) => {
                self.serve(&mut shard);
                shard
            }
            (None, Look::Surely) => self.enter(),
            (None, Look::IfFree) => return false,
        };
        let before = shard.completions();
        let mut moved = shard.progress_briefly();
        let mut next = shard.lift();
        let (mut after, mut work) = (shard.completions(), shard.has_work());
        self.leave(shard, after != before);
        while let Some(mut flight) = next.take() {
            moved = true;
            flight.carry();
            let goes_on = flight.goes_on();
            let mut shard = self.enter();
            let before = shard.completions();
            shard.land(flight);
            if goes_on {
                next = shard.lift();
            }
            (after, work) = (shard.completions(), shard.has_work());
            self.leave(shard, after != before);
        }
        if moved && work {
            // Whoever sleeps did so before there was this work.
            self.stir();
        }
        let moved = self.step(after, by) || moved;
        if moved && by == By::Program {
            self.hand_over();
        }
        moved
    }

    /// Runs the steppers if something happened since they last ran, or if one looks at memory. `true` if any finished or something happened meanwhile.
    pub(super) fn step(&self, completions: u64, by: By) -> bool {
        if self.stepping.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let old = self.stepped_at.swap(completions, Ordering::AcqRel) == completions;
        if old && self.looking.load(Ordering::SeqCst) == 0 {
            return false;
        }
        self.run_steppers(by)
    }

    /// Runs the steppers; whoever finds another thread at it leaves them to that one, which then runs them once more. `true` if any finished.
    pub(super) fn run_steppers(&self, by: By) -> bool {
        let mut finished = false;
        loop {
            let mut steppers = match self.steppers.try_lock() {
                Ok(steppers) => steppers,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    // Whoever runs them may have passed the one that this news is for, and looks at this after it has let go.
                    // SYNC(steppers-missed).
                    self.missed.store(true, Ordering::SeqCst);
                    match self.steppers.try_lock() {
                        Ok(steppers) => steppers,
                        Err(_) => return finished,
                    }
                }
            };
            self.missed.store(false, Ordering::SeqCst);
            finished |= self.run_all(&mut steppers, by);
            drop(steppers);
            // SYNC(steppers-missed).
            if !self.missed.load(Ordering::SeqCst) {
                return finished;
            }
        }
    }

    /// One run of all steppers, and of those that come meanwhile.
    fn run_all(&self, steppers: &mut Vec<Arc<dyn Stepper>>, by: By) -> bool {
        let (mut finished, mut left) = (0, false);
        let whole = self.whole();
        let host: &dyn Host = whole.as_deref().map_or(self, |whole| whole);
        loop {
            steppers.extend(lock(&self.newcomers).drain(..));
            steppers.retain(|stepper| {
                if by == By::Helper && stepper.runs_user_code() {
                    left = true;
                    return true;
                }
                let over = stepper.step(host);
                finished += u32::from(over);
                if over && stepper.looks_at_memory() {
                    self.looking.fetch_sub(1, Ordering::SeqCst);
                }
                !over
            });
            if lock(&self.newcomers).is_empty() {
                break;
            }
        }
        self.stepping.fetch_sub(finished, Ordering::SeqCst);
        self.count_interest(-(finished as i32));
        if left {
            // The news are still to be told to those, by a thread of the program.
            self.stepped_at.store(u64::MAX, Ordering::Release);
        }
        if finished > 0 || left {
            self.announce();
        }
        finished > 0
    }
}
