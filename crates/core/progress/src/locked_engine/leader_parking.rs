//! How a leader parks for threads of its rank that come and go: it sleeps on the doorbell and
//! leaves its leadership there.
//!
//! Part of `locked_engine`. A leader may wake a thread that then gets the leader's very core. The
//! leader is in that thread's way, and each message would cost a switch there and back. So the
//! leader parks at once, on the doorbell and in its wait slot. A thread that begins to wait
//! meanwhile takes the leadership ([`LockedEngine::relieve_parked_leader`]). When that thread
//! leaves, it returns the leadership ([`LockedEngine::leave_leadership_on_bell`]): it arms the
//! doorbell, polls once more, and wakes nobody. Peers ring only if no thread came.
//!
//! `garonne_sync::waiters` explains why no leadership is lost. Neither side may have seen what a
//! peer wrote without a fence. So a nap is as short as the first nap of any sleeper, and the parked
//! leader polls after each nap in which nobody relieved it.

use super::progress::LockPolicy;
use super::{LockedEngine, ProgressCaller};
use crate::environment::Environment;
use crate::limits::{HANDOVER_POLLS, SLEEPS_IN_VAIN, STEP_ASIDE_SLEEP};
use crate::messaging::WaitTarget;
use garonne_engine::transport::Transport;
use garonne_sync::deferred_wake::{self, DeferredWakes};
use garonne_sync::waiter;
use garonne_sync::waiters::{WaitSlot, WakeReason};
use std::sync::atomic::{AtomicU32, Ordering};

/// The outcome of a leader's try to park.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParkOutcome {
    /// The thread leads, still or again.
    Leads,
    /// What it waits for has come, and it has leadership.
    Done,
    /// Another has leadership.
    Follows,
}

/// History of a leader's parks in one wait.
#[derive(Debug, Default)]
pub(super) struct ParkHistory {
    /// The thread parked when it last stepped aside, and may do so again.
    parked_last: bool,
    /// Since somebody came in its place.
    unrelieved: u32,
}

impl ParkHistory {
    /// Returns whether it lies down again after so many looks that brought nothing.
    pub(super) fn goes_on(&self, idle: u32) -> bool {
        self.parked_last && idle > 0
    }
}

impl<R: Transport + Send, S: Environment> LockedEngine<R, S> {
    /// Takes the leadership of a thread that sleeps on the doorbell, which nobody has to ring from
    /// now on.
    #[inline]
    pub(super) fn relieve_parked_leader(&self) -> bool {
        if !self.waiters.relieve_parked_leader(waiter::current_id()) {
            return false;
        }
        self.leader.count_relief();
        self.note_awake();
        true
    }

    /// Who has leadership does not sleep any more, nor is about to.
    fn note_awake(&self) {
        self.leader.set_sleeps(false);
        self.lock_engine().transport().disarm();
    }

    /// The leader leaves its leadership to the thread that sleeps on the doorbell. `false`: nobody
    /// does, or there is work that somebody has to see to; the caller has leadership still.
    #[inline]
    pub(super) fn leave_leadership_on_bell(&self) -> bool {
        self.waiters.has_bell_sleeper() && self.try_leave_on_bell()
    }

    fn try_leave_on_bell(&self) -> bool {
        let (Some(bell), false) = (self.wake_source.bell(), self.serves_other_shards()) else {
            return false;
        };
        for _ in 0..HANDOVER_POLLS {
            let seen = self.waiters.event_count();
            let ticket = self.lock_engine().transport().arm();
            if self.look_for_losses() || self.advance(ProgressCaller::Program, LockPolicy::Wait) {
                continue;
            }
            self.poll_predicates();
            if self.retry_limit().is_some() {
                break;
            }
            self.leader.set_sleeps(true);
            if self.waiters.event_count() != seen {
                continue;
            }
            if !self.waiters.leave_leadership_on_bell(waiter::current_id()) {
                break;
            }
            // Who lies there may have been rung for while leadership was not there, and sleep on.
            if bell.load(Ordering::SeqCst) == ticket
                || !self.waiters.relieve_parked_leader(waiter::current_id())
            {
                return true;
            }
        }
        self.note_awake();
        false
    }

    /// The leader is in the way of threads that it called: it lies down, unless there is something
    /// to do. They wake (`wakes`) when that is seen.
    pub(super) fn park_leader(
        &self,
        awaits: &dyn Fn() -> WaitTarget,
        done: &mut dyn FnMut() -> bool,
        naps: &mut ParkHistory,
        wakes: Option<DeferredWakes>,
    ) -> ParkOutcome {
        naps.parked_last = false;
        if self.waiters.has_bell_sleeper() {
            return if self.leave_leadership_on_bell() {
                ParkOutcome::Follows
            } else {
                ParkOutcome::Leads
            };
        }
        let (Some(bell), false) = (self.wake_source.bell(), self.must_serve_other_shards()) else {
            return ParkOutcome::Leads;
        };
        let happened = self.waiters.event_count();
        let Some(mut slot) = self.waiters.take_slot(waiter::current_id()) else {
            return ParkOutcome::Leads;
        };
        let ticket = self.lock_engine().transport().arm();
        let losses = self.look_for_losses();
        let moved = self.advance(ProgressCaller::Program, LockPolicy::Wait) || losses;
        self.poll_predicates();
        let over = !moved && done();
        if moved || over || self.retry_limit().is_some() {
            self.lock_engine().transport().disarm();
            naps.parked_last = true;
            return if over {
                ParkOutcome::Done
            } else {
                ParkOutcome::Leads
            };
        }
        let reliefs = self.leader.reliefs();
        self.leader.set_sleeps(true);
        if !slot.park_on_bell(awaits().encode(), happened) {
            self.note_awake();
            naps.parked_last = true;
            return ParkOutcome::Leads;
        }
        drop(wakes);
        self.surroundings.note_sleep(true);
        let called = self.sleep_on_bell(&mut slot, bell, ticket);
        self.surroundings.note_sleep(false);
        if called == WakeReason::Recheck {
            return ParkOutcome::Follows;
        }
        self.note_awake();
        let relieved = self.leader.reliefs() != reliefs;
        naps.unrelieved = if relieved { 0 } else { naps.unrelieved + 1 };
        naps.parked_last = naps.unrelieved < SLEEPS_IN_VAIN;
        ParkOutcome::Leads
    }

    /// Another thread polls, and is blocked in a receive of the pattern that the caller's has, so
    /// that it gets the next message: the caller parks on the doorbell, where that one leaves its
    /// role when it goes, and finds it when it comes back, and nobody is woken. `None`: another
    /// lies there, or nobody came and went for a while; the caller had better sit. `seen`: as
    /// [`WaitSlot::wait`] wants it.
    pub(super) fn park_behind_leader(
        &self,
        awaits: &dyn Fn() -> WaitTarget,
        seen: u64,
    ) -> Option<WakeReason> {
        let bell = self.wake_source.bell()?;
        if self.waiters.has_bell_sleeper() || self.must_serve_other_shards() {
            return None;
        }
        let WaitTarget::Receive(name, _) = awaits() else {
            return None;
        };
        if !self.lock_engine().block_in_receive(name, false) {
            return None;
        }
        let mut slot = self.waiters.take_slot(waiter::current_id())?;
        let reliefs = self.leader.reliefs();
        let ticket = bell.load(Ordering::SeqCst);
        let called = match slot.park_on_bell_behind_leader(awaits().encode(), seen) {
            Ok(()) => self.sleep_on_bell(&mut slot, bell, ticket),
            Err(called) => called,
        };
        if called == WakeReason::Lead {
            self.note_awake();
        }
        let in_vain = called == WakeReason::Recheck && self.leader.reliefs() == reliefs;
        (!in_vain).then_some(called)
    }

    /// Lies on the bell, whose word was `ticket`, until it is rung and nobody polls, or the wait
    /// slot is called, or nobody comes any more.
    fn sleep_on_bell(
        &self,
        slot: &mut WaitSlot<'_>,
        bell: &AtomicU32,
        mut ticket: u32,
    ) -> WakeReason {
        let (mut naps, mut reliefs) = (0, self.leader.reliefs());
        while !slot.is_woken() {
            let begun = bell.load(Ordering::SeqCst);
            if begun != ticket && slot.has_leadership() {
                break;
            }
            ticket = begun;
            deferred_wake::flush();
            self.wake_source
                .sleep_among(ticket, Some(STEP_ASIDE_SLEEP), &[slot.futex_word()]);
            if bell.load(Ordering::SeqCst) != ticket {
                continue;
            }
            // The time is over, or it is called.
            let now = self.leader.reliefs();
            naps = if now == reliefs { naps + 1 } else { 0 };
            reliefs = now;
            if naps > 0 && (slot.has_leadership() || naps >= SLEEPS_IN_VAIN) {
                break;
            }
        }
        slot.unpark()
    }
}
