//! A turn of the progress thread: what it does when it was woken, polls by itself, or spins, until
//! nothing moves or a thread of the program is there.
//!
//! Part of `locked_engine`. `async_progress` says what the thread gets and when; `progress_wakeup`
//! how it is woken; `progress_spin` when it stays awake. A turn ends with the wake-up words armed
//! for what is still open. Arming changes the word, so another turn follows, which sees what came
//! meanwhile.

use super::progress::LockPolicy;
use super::progress_wakeup::WakeupWords;
use super::{LockedEngine, ProgressCaller};
use crate::environment::{Environment, ProgressThreadEvent};
use crate::limits::{GRACES_BEFORE_REST, GRACES_DEFERRED_MAX, HELPER_SPINS};
use crate::sys;
use crate::tasks::{WorkerAction, WorkerDuty};
use garonne_engine::transport::Transport;
use garonne_sync::progress_owner::ProgressThreadGuard;
use std::sync::Weak;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A host's progress as what a worker on call does.
pub(super) struct EngineDuty<R, S> {
    pub(super) host: Weak<LockedEngine<R, S>>,
    pub(super) words: WakeupWords,
    pub(super) rest: Duration,
}

impl<R: Transport + Send + 'static, S: Environment + 'static> WorkerDuty for EngineDuty<R, S> {
    fn word(&self) -> &AtomicU32 {
        self.words.call().word()
    }

    fn rouse(&self) {
        self.words.call().wake_always();
    }

    fn turn(&self) -> WorkerAction {
        self.host
            .upgrade()
            .map_or(WorkerAction::Leave, |host| host.run_worker_turn())
    }

    fn looks_on(&self, seen: u32) -> bool {
        let host = self.host.upgrade();
        host.is_some_and(|host| host.spin_before_sleep(self.words.call(), seen))
    }

    fn retires(&self) -> bool {
        self.host.upgrade().is_none_or(|host| {
            host.async_progress.ownership.owner.retire() || host.retire_while_released()
        })
    }

    fn rest(&self) -> Duration {
        self.rest
    }

    fn look(&self) {
        // Who is in MPI does all that itself.
        if let Some(host) = self.host.upgrade()
            && host.async_progress.ownership.owner.is_released()
            && host.work(ProgressCaller::Program) != WorkerAction::Sleep
        {
            // What is left wants somebody who looks again soon.
            self.rouse();
        }
    }
}

impl<R: Transport + Send, S: Environment> LockedEngine<R, S> {
    /// The progress thread was called, or looks by itself.
    pub(super) fn run_worker_turn(&self) -> WorkerAction {
        match self.surroundings.takeover_delay() {
            None => {
                self.leave_program_core();
                self.begin_spin(self.async_progress.wakeup_words.get());
                self.work(ProgressCaller::Helper)
            }
            Some(grace) => self.work_after_delay(grace),
        }
    }

    /// Works as [`Self::work`] does, but leaves to the program what was released since the last
    /// poll, until the next.
    fn work_after_delay(&self, grace: Duration) -> WorkerAction {
        self.async_progress.release_counter.resume_polling();
        let times = self.async_progress.release_counter.times();
        if self
            .async_progress
            .releases_seen
            .swap(times, Ordering::Relaxed)
            != times
        {
            self.async_progress.idle_rounds.store(0, Ordering::Relaxed);
            // A program may leave more and more open and never come back.
            if self
                .async_progress
                .postponed
                .fetch_add(1, Ordering::Relaxed)
                < GRACES_DEFERRED_MAX
            {
                return WorkerAction::Nap(grace);
            }
        }
        self.async_progress.postponed.store(0, Ordering::Relaxed);
        let next = match self.async_progress.ownership.owner.is_held_by_program() {
            false => self.work(ProgressCaller::Helper),
            true if self
                .async_progress
                .idle_rounds
                .fetch_add(1, Ordering::Relaxed)
                < GRACES_BEFORE_REST =>
            {
                WorkerAction::Nap(grace)
            }
            true => WorkerAction::Sleep,
        };
        // By then the transport wants to be looked at; what is lent before is to be looked after
        // sooner.
        let is_long = next == WorkerAction::Sleep
            || matches!(next, WorkerAction::Nap(limit) if limit > grace);
        match is_long && !self.async_progress.release_counter.rest(times) {
            true => WorkerAction::Nap(grace),
            false => next,
        }
    }

    /// A turn at the engine, by the progress thread or by a thread of the program in its place.
    pub(super) fn work(&self, by: ProgressCaller) -> WorkerAction {
        let Some(inside) = self.async_progress.ownership.owner.enter() else {
            return WorkerAction::Sleep;
        };
        let mut limit = None;
        loop {
            self.surroundings
                .note_progress_thread(ProgressThreadEvent::Called);
            let awake = by == ProgressCaller::Helper && self.async_progress.spin.flag.is_spinning();
            let moved = if awake {
                self.progress_spinning(&inside)
            } else {
                self.progress_until_idle(&inside)
            };
            if moved > 0 {
                self.surroundings
                    .note_progress_thread(ProgressThreadEvent::Worked);
            }
            self.surroundings
                .note_progress_thread(ProgressThreadEvent::Leaves);
            if self.is_program_present(&inside) {
                self.return_work();
                return WorkerAction::Sleep;
            }
            if awake && self.async_progress.spin.flag.is_spinning() {
                // It looks on at the gate, or, at what was left open meanwhile, inside.
                self.async_progress
                    .ownership
                    .nothing_left
                    .store(true, Ordering::SeqCst);
                if self.open_scope().is_none() {
                    return WorkerAction::Sleep;
                }
                self.async_progress
                    .ownership
                    .nothing_left
                    .store(false, Ordering::SeqCst);
                continue;
            }
            let open = self.open_scope();
            match (open, self.async_progress.wakeup_words.get()) {
                // The word changes if it was not armed: then there is another turn, which sees what
                // came meanwhile.
                (Some(what), Some(words)) => {
                    self.arm_wakeup(words.call(), what);
                    limit = self.arm_transport_wakeup(&mut self.lock_engine(), what);
                }
                _ => self
                    .async_progress
                    .ownership
                    .nothing_left
                    .store(true, Ordering::SeqCst),
            }
            if self.is_program_present(&inside) {
                // Whoever came meanwhile does the work. If it is gone again when this is looked at
                // once more, what it armed may be what was disarmed here.
                self.disarm_wakeup();
            } else if open == self.open_scope() {
                break;
            }
            // What was left open meanwhile may have been armed for more than what this armed for
            // afterwards.
        }
        let work = self.lock_engine().has_work() || self.other_shards_have_work();
        let retry = self.surroundings.retry_interval().filter(|_| work);
        let limit = retry.into_iter().chain(limit).min();
        limit.map_or(WorkerAction::Sleep, WorkerAction::Nap)
    }

    /// Ownership is released, for the program took nothing back where it found everything done. The
    /// progress thread goes all the same if nothing is open any more; while something is it stays,
    /// since peers may call.
    fn retire_while_released(&self) -> bool {
        let gate = &self.async_progress.ownership.owner;
        let Some(inside) = gate.enter() else {
            return false;
        };
        if self.is_program_present(&inside) || self.open_scope().is_some() {
            return false;
        }
        // Who left something open before this said that, or finds the progress thread gone. It is
        // outside by then: no look at the engine.
        inside.abandon(|| self.is_anything_noted())
    }

    /// A leader may have gone to sleep while the progress thread was at the engine: what is left to
    /// do is its work.
    fn return_work(&self) {
        if self.lock_engine().has_work() {
            self.count_event_and_wake();
        }
    }

    /// Somebody of the rank waits or is about to: the work is theirs.
    pub(super) fn is_program_present(&self, inside: &ProgressThreadGuard<'_>) -> bool {
        inside.is_recalled() || self.waiters.has_leader()
    }

    /// Advances what is open until nothing moves. Returns how often something did.
    fn progress_until_idle(&self, inside: &ProgressThreadGuard<'_>) -> u32 {
        let (mut moved, mut idle) = (0u32, 0);
        let most = match self.surroundings.spin_budget().spins {
            // What this spins, the program's thread does not compute.
            _ if self.surroundings.takeover_delay().is_some() => 0,
            _ if sys::cpu() == self.async_progress.program_cpu.load(Ordering::Relaxed) => 0,
            spins => spins.min(HELPER_SPINS),
        };
        let patient = most == 0;
        if self
            .async_progress
            .needs_transport_wakeup
            .load(Ordering::SeqCst)
            && self.async_progress.transport_patient.load(Ordering::SeqCst) != patient
        {
            self.set_patient(patient);
            // Who came meanwhile has asked before that was said.
            if self.is_program_present(inside) {
                self.set_patient(false);
            }
        }
        let mut spins = 0;
        while idle <= spins && !self.is_program_present(inside) {
            if self.advance(ProgressCaller::Helper, LockPolicy::Wait)
                || self.poll_other_shards(ProgressCaller::Helper)
            {
                (moved, idle, spins) = (moved.saturating_add(1), 0, 0);
                continue;
            }
            if idle == 0 {
                // Bytes that are on their way come sooner than it would wake.
                spins = self.lock_engine().transfer_polls().min(most);
            }
            idle += 1;
            std::hint::spin_loop();
        }
        moved
    }
}
