//! A turn of the helper: what it does when it was called, looks by itself, or is awake, until
//! nothing moves or somebody of the rank is there.
//!
//! Part of `locked_engine`. What is lent to it, and when, is in `async_progress`; how it is called
//! in `progress_wakeup`; when it stays awake in `progress_spin`. A turn ends with the words armed
//! for what is open still, if anything is; that changes the word, so that there is another turn,
//! which sees what came meanwhile.

use super::progress::LockPolicy;
use super::progress_wakeup::WakeupWords;
use super::{LockedEngine, ProgressCaller};
use crate::environment::{Environment, ProgressThreadEvent};
use crate::limits::{GRACES_BEFORE_REST, HELPER_SPINS, PUT_OFF_MOST};
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
        self.words.call().rouse();
    }

    fn turn(&self) -> WorkerAction {
        self.host
            .upgrade()
            .map_or(WorkerAction::Leave, |host| host.take_turn())
    }

    fn looks_on(&self, seen: u32) -> bool {
        let host = self.host.upgrade();
        host.is_some_and(|host| host.keep_vigil(self.words.call(), seen))
    }

    fn retires(&self) -> bool {
        self.host
            .upgrade()
            .is_none_or(|host| host.lending.door.gate.retire() || host.goes_though_lent())
    }

    fn rest(&self) -> Duration {
        self.rest
    }

    fn look(&self) {
        // Who is in MPI does all that itself.
        if let Some(host) = self.host.upgrade()
            && host.lending.door.gate.is_lent()
            && host.work(ProgressCaller::Program) != WorkerAction::Sleep
        {
            // What is left wants somebody who looks again soon.
            self.rouse();
        }
    }
}

impl<R: Transport + Send, S: Environment> LockedEngine<R, S> {
    /// The helper was called, or looks by itself.
    pub(super) fn take_turn(&self) -> WorkerAction {
        match self.surroundings.takeover_delay() {
            None => {
                self.step_aside();
                self.begin_vigil(self.lending.words.get());
                self.work(ProgressCaller::Helper)
            }
            Some(grace) => self.work_late(grace),
        }
    }

    /// As `work`, but what was lent since the last look is left to the program until the next.
    fn work_late(&self, grace: Duration) -> WorkerAction {
        self.lending.lendings.rise();
        let times = self.lending.lendings.times();
        if self.lending.known.swap(times, Ordering::Relaxed) != times {
            self.lending.vain.store(0, Ordering::Relaxed);
            // A program may leave more and more open and never come back.
            if self.lending.put_off.fetch_add(1, Ordering::Relaxed) < PUT_OFF_MOST {
                return WorkerAction::Nap(grace);
            }
        }
        self.lending.put_off.store(0, Ordering::Relaxed);
        let next = match self.lending.door.gate.is_kept() {
            false => self.work(ProgressCaller::Helper),
            true if self.lending.vain.fetch_add(1, Ordering::Relaxed) < GRACES_BEFORE_REST => {
                WorkerAction::Nap(grace)
            }
            true => WorkerAction::Sleep,
        };
        // By then the rail wants to be looked at; what is lent before is to be looked after sooner.
        let is_long = next == WorkerAction::Sleep
            || matches!(next, WorkerAction::Nap(limit) if limit > grace);
        match is_long && !self.lending.lendings.rest(times) {
            true => WorkerAction::Nap(grace),
            false => next,
        }
    }

    /// A turn at the engine, by the helper or by a thread of the program in its place.
    pub(super) fn work(&self, by: ProgressCaller) -> WorkerAction {
        let Some(inside) = self.lending.door.gate.enter() else {
            return WorkerAction::Sleep;
        };
        let mut limit = None;
        loop {
            self.surroundings
                .note_progress_thread(ProgressThreadEvent::Called);
            let awake = by == ProgressCaller::Helper && self.lending.vigils.kept.is_kept();
            let moved = if awake {
                self.work_awake(&inside)
            } else {
                self.work_inside(&inside)
            };
            if moved > 0 {
                self.surroundings
                    .note_progress_thread(ProgressThreadEvent::Worked);
            }
            self.surroundings
                .note_progress_thread(ProgressThreadEvent::Leaves);
            if self.is_attended(&inside) {
                self.hand_back();
                return WorkerAction::Sleep;
            }
            if awake && self.lending.vigils.kept.is_kept() {
                // It looks on at the gate, or, at what was left open meanwhile, inside.
                self.lending.door.all_over.store(true, Ordering::SeqCst);
                if self.still_open().is_none() {
                    return WorkerAction::Sleep;
                }
                self.lending.door.all_over.store(false, Ordering::SeqCst);
                continue;
            }
            let open = self.still_open();
            match (open, self.lending.words.get()) {
                // The word changes if it was not armed: then there is another turn, which sees what
                // came meanwhile.
                (Some(what), Some(words)) => {
                    self.arm(words.call(), what);
                    limit = self.have_rung(&mut self.enter(), what);
                }
                _ => self.lending.door.all_over.store(true, Ordering::SeqCst),
            }
            if self.is_attended(&inside) {
                // Whoever came meanwhile does the work. If it is gone again when this is looked at
                // once more, what it armed may be what was disarmed here.
                self.polls_itself();
            } else if open == self.still_open() {
                break;
            }
            // What was left open meanwhile may have been armed for more than what this armed for
            // afterwards.
        }
        let work = self.enter().has_work() || self.has_work_beside();
        let retry = self.surroundings.retry_interval().filter(|_| work);
        let limit = retry.into_iter().chain(limit).min();
        limit.map_or(WorkerAction::Sleep, WorkerAction::Nap)
    }

    /// Hands are lent, for the program took nothing back where it found everything done. The helper
    /// goes all the same if nothing is open any more; while something is it stays, since peers may
    /// call.
    fn goes_though_lent(&self) -> bool {
        let gate = &self.lending.door.gate;
        let Some(inside) = gate.enter() else {
            return false;
        };
        if self.is_attended(&inside) || self.still_open().is_some() {
            return false;
        }
        // Who left something open before this said that, or finds the helper gone. It is outside by
        // then: no look at the engine.
        inside.abandon(|| self.is_any_noted())
    }

    /// A poller may have gone to sleep while the helper was at the engine: what is left to do is
    /// its work.
    fn hand_back(&self) {
        if self.enter().has_work() {
            self.stir();
        }
    }

    /// Somebody of the rank waits or is about to: the work is theirs.
    pub(super) fn is_attended(&self, inside: &ProgressThreadGuard<'_>) -> bool {
        inside.recalled() || self.seats.has_leader()
    }

    /// Advances what is open until nothing moves. Returns how often something did.
    fn work_inside(&self, inside: &ProgressThreadGuard<'_>) -> u32 {
        let (mut moved, mut idle) = (0u32, 0);
        let most = match self.surroundings.spin_budget().spins {
            // What this spins, the program's thread does not compute.
            _ if self.surroundings.takeover_delay().is_some() => 0,
            _ if sys::cpu() == self.lending.cpu.load(Ordering::Relaxed) => 0,
            spins => spins.min(HELPER_SPINS),
        };
        let patient = most == 0;
        if self.lending.afar.load(Ordering::SeqCst)
            && self.lending.patient.load(Ordering::SeqCst) != patient
        {
            self.be_patient(patient);
            // Who came meanwhile has asked before that was said.
            if self.is_attended(inside) {
                self.be_patient(false);
            }
        }
        let mut spins = 0;
        while idle <= spins && !self.is_attended(inside) {
            if self.advance(ProgressCaller::Helper, LockPolicy::Surely)
                || self.look_beside(ProgressCaller::Helper)
            {
                (moved, idle, spins) = (moved.saturating_add(1), 0, 0);
                continue;
            }
            if idle == 0 {
                // Bytes that are on their way come sooner than it would wake.
                spins = self.enter().transfer_polls().min(most);
            }
            idle += 1;
            std::hint::spin_loop();
        }
        moved
    }
}
