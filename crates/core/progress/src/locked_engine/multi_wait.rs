//! How several threads of a rank wait: one leads and polls for all, the others park in wait slots.
//!
//! Part of `locked_engine`. A parked thread has stored a key for its event. The leader, or
//! whichever thread causes the event, wakes that thread and no other. A thread that waits for
//! memory that other processes write registers a predicate; the leader polls it whenever it checks
//! its own condition, and again between arming the doorbell and sleeping. A leader that leaves
//! passes leadership to a parked thread. With one thread in MPI none of this is used.
//! `garonne_sync::waiters` explains why no wake-up is lost.

use super::LockedEngine;
use super::wait_loop::LeaderWait;
use crate::environment::{Environment, YieldOutcome};
use crate::limits::{
    CROWDED_CALLS, LEADER_YIELD_FIRST, LEADER_YIELD_LAST, NO_SLOT_SLEEP, SERVED_BEFORE_ASIDE,
    UNPOSTED_LEN_MAX, UNPOSTED_POLLS, UNPOSTED_TURNS,
};
use crate::messaging::WaitTarget;
use garonne_engine::fast::recv::{FastRecv, ReceivedMessage};
use garonne_engine::observe::completion_events;
use garonne_engine::transport::Transport;
use garonne_sync::deferred_wake::DeferredWakes;
use garonne_sync::waiter;
use garonne_sync::waiters::{Waiters, WakeReason};

/// The leadership, held by a thread. Dropping it passes leadership on.
pub(super) struct Leadership<'a>(pub(super) &'a Waiters);

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        self.0.pass_leadership();
    }
}

/// No word of a pattern: the wait is none of a receive's.
pub(super) const NO_PATTERN: u64 = u64::MAX;

/// The result of looking for a message with the engine locked.
enum CatchAttempt {
    Received(ReceivedMessage),
    /// The message may come yet.
    NotYet,
    /// The message must take the general path.
    Unsuited,
}

impl<R: Transport + Send, S: Environment> LockedEngine<R, S> {
    /// The wait of one of several threads.
    #[inline(never)]
    pub(super) fn wait_shared(
        &self,
        awaits: &dyn Fn() -> WaitTarget,
        done: &mut dyn FnMut() -> bool,
    ) {
        let (who, mut slot, mut patient) = (waiter::current(), None, true);
        // Whoever shares its thread with other waiters parks at once, and lets those run.
        let (logical, mut lies) = (who.is_logical(), !who.is_logical());
        let mut lingering = self
            .yield_before_park
            .begin_wait(self.surroundings.spin_budget());
        loop {
            // Before asking: SYNC(seats-news).
            let seen = self.waiters.event_count();
            if done() {
                return lingering.succeed();
            }
            self.note_return();
            let begins = self.waiters.try_lead(who.id()) || patient && self.relieve_parked_leader();
            if !begins && self.waiters.is_led_by(who.id()) {
                // A callback of the program's waits while its thread polls: nobody else would.
                LeaderWait::<_, _, true>::new(self, done, None).run();
                return;
            }
            if begins {
                slot = None;
                lingering.stop();
            } else if lies && self.competes_with_leader(awaits) && lingering.has_no_own_core() {
                slot = None;
                lingering.stop();
                self.delegate_open_shards();
                match self.park_behind_leader(awaits, seen) {
                    Some(WakeReason::Lead) => {}
                    Some(WakeReason::Recheck) => continue,
                    None => {
                        lies = false;
                        continue;
                    }
                }
            } else if !logical && lingering.goes_on() {
                self.surroundings.yield_core();
                continue;
            } else {
                self.delegate_open_shards();
                if slot.is_none() {
                    slot = self.waiters.take_slot(who.clone());
                }
                let looks = lingering.looks();
                match slot
                    .as_mut()
                    .map(|slot| slot.wait(awaits().encode(), seen, looks))
                {
                    Some(WakeReason::Lead) => {
                        slot = None;
                        if looks == 0 && !logical {
                            // Whoever left goes on, perhaps on this very core.
                            self.surroundings.yield_core();
                        }
                    }
                    Some(WakeReason::Recheck) => {
                        patient = true;
                        continue;
                    }
                    None => {
                        if !who.yield_now() {
                            std::thread::sleep(NO_SLOT_SLEEP);
                        }
                        continue;
                    }
                }
            }
            if self.lead(done, Some(awaits)) {
                return;
            }
            // It looked for as long as its patience lasts: who sleeps on the doorbell sleeps as
            // well as it would.
            patient = false;
        }
    }

    /// Waits, as one of several threads, for memory that other processes write.
    #[inline(never)]
    pub(super) fn wait_for_memory_shared(&self, come: &mut (dyn FnMut() -> bool + Send)) {
        if come() {
            return;
        }
        if self.waiters.try_lead(waiter::current_id()) {
            self.note_return();
            // Nobody else could look for it.
            self.lead(&mut || come(), None);
            return;
        }
        self.polled_predicates.register(come, |lent| {
            self.wait_shared(&|| WaitTarget::Memory(lent.id()), &mut || lent.poll());
        });
    }

    /// The wait of the leader. `false`: another thread leads now, and the caller's event may not
    /// have come.
    fn lead(
        &self,
        done: &mut dyn FnMut() -> bool,
        awaits: Option<&dyn Fn() -> WaitTarget>,
    ) -> bool {
        let role = Leadership(&self.waiters);
        if !self.async_progress.ownership.owner.is_held_by_program() {
            self.disarm_wakeup();
        }
        self.note_leader_pattern(awaits);
        let over = LeaderWait::<_, _, true>::new(self, done, awaits).run();
        if over {
            self.yield_before_park.note_leader_left();
        }
        if !over {
            // It is another thread's already.
            std::mem::forget(role);
            return false;
        }
        self.resign(role);
        true
    }

    /// Notes that the caller leads. If it is blocked in a receive, the next message may be its own,
    /// though the bell sleeper is blocked in one of the same pattern, since nobody has to be woken
    /// then.
    fn note_leader_pattern(&self, awaits: Option<&dyn Fn() -> WaitTarget>) {
        let Some(WaitTarget::Receive(name, pattern)) = awaits.map(|awaits| awaits()) else {
            return self.leader.set_pattern(NO_PATTERN);
        };
        self.leader
            .set_pattern(completion_events::pattern_hash(&pattern));
        if self.waiters.has_bell_sleeper() {
            self.lock_engine().block_in_receive(name, true);
        }
    }

    /// Tells whether the caller is blocked in a receive of the leader's pattern. The next message
    /// is the leader's then, and the caller had better sleep.
    fn competes_with_leader(&self, awaits: &dyn Fn() -> WaitTarget) -> bool {
        self.leader.is_blocked_in_receive(|served| {
            matches!(awaits(), WaitTarget::Receive(_, pattern) if completion_events::pattern_hash(&pattern) == served)
        })
    }

    /// Ends the caller's leadership, which goes to the bell sleeper, or to a parked thread, if
    /// there is one.
    fn resign(&self, role: Leadership<'_>) {
        if self.leave_leadership_on_bell() {
            return std::mem::forget(role);
        }
        drop(role);
        self.note_leader_left();
        self.release_first_again();
        // Asked again: another thread may have left something open meanwhile, and trusted the
        // leader.
        if !self.async_progress.ownership.owner.is_held_by_program()
            || self.async_progress.take_leader_relied_on()
            || self.async_progress.is_any_open()
        {
            self.release_again();
        }
    }

    /// Receives a message that comes soon and nothing was posted for, as the leader of all; `None`:
    /// nothing was received, take the general way, which posts the receive first. Only where nobody
    /// polls or who does sleeps on the doorbell, and nobody has parked since the last time, to whom
    /// the role would go after each message. What others wait for beside messages is looked after
    /// where leadership is laid back; where nobody sleeps on the doorbell there must be no such
    /// thing. And only for messages that come whole: what began to come into the memory of a
    /// receive that is not posted would go to another that is posted meanwhile.
    #[inline(never)]
    pub(super) fn fast_recv_shared(&self, catch: &FastRecv) -> Option<ReceivedMessage> {
        if catch.room > UNPOSTED_LEN_MAX || self.has_other_duties() {
            return None;
        }
        if !self
            .leader
            .has_nobody_parked_since(self.waiters.parked_count())
        {
            return None;
        }
        if !self.waiters.try_lead(waiter::current_id()) && !self.relieve_parked_leader() {
            return None;
        }
        let role = Leadership(&self.waiters);
        let mut turns = 0..UNPOSTED_TURNS;
        let caught = loop {
            match turns.next().map(|_| self.try_fast_recv(catch)) {
                Some(CatchAttempt::Received(caught)) => break Some(caught),
                Some(CatchAttempt::NotYet) => self.lock.yield_to_waiting(),
                Some(CatchAttempt::Unsuited) | None => break None,
            }
        };
        if caught.is_some() {
            self.leader
                .set_pattern(completion_events::pattern_hash(&catch.pattern()));
        }
        self.resign(role);
        caught
    }

    /// Returns whether who waits here has to look after anything but messages of this shard, and
    /// what the one sees to that sleeps on the doorbell.
    fn has_other_duties(&self) -> bool {
        self.surroundings.spin_budget().spins == 0
            || self.is_traced()
            || !self.waiters.has_bell_sleeper()
                && (self.is_anything_open() || !self.polled_predicates.is_empty())
            || self.must_serve_other_shards()
            || self.is_first_busy()
    }

    /// Tells whether there are open steppers, operations that may need asynchronous progress, or
    /// released ownership.
    pub(super) fn is_anything_open(&self) -> bool {
        self.steppers.is_any_open_hint()
            || self.async_progress.is_any_open()
            || !self.async_progress.ownership.owner.is_held_by_program()
    }

    /// Looks for it some times with the engine in hand, which others then may have.
    fn try_fast_recv(&self, catch: &FastRecv) -> CatchAttempt {
        let mut shard = self.lock_engine();
        let before = shard.completions();
        let turn = match shard.recv_blocking_fast(catch, UNPOSTED_POLLS) {
            Some(caught) => CatchAttempt::Received(caught),
            None if shard.can_recv_fast(catch) => CatchAttempt::NotYet,
            None => CatchAttempt::Unsuited,
        };
        // Work that is left is seen to by who polls next.
        let changed = shard.completions() != before;
        self.unlock(shard, changed);
        turn
    }

    /// Polls the predicates of threads that wait for memory, and wakes those for which it has
    /// changed.
    #[inline]
    pub(super) fn poll_predicates(&self) {
        if self.polled_predicates.is_empty() {
            return;
        }
        // They want the lock of the looks at once.
        let _wakes = DeferredWakes::new();
        self.polled_predicates.poll_all(|id| {
            let word = WaitTarget::Memory(id).encode();
            self.waiters.notify(|awaited| awaited == word);
        });
    }

    /// Yields the leader's core where another thread of its rank may need it. `calls`: threads that
    /// the leader woke since the last call.
    #[inline]
    pub(super) fn yield_to_woken(&self, core_yield: &mut CoreYield, calls: u32) {
        let sat = std::mem::replace(&mut core_yield.parked, self.waiters.parked_count());
        let calls = if calls > 0
            && self
                .yield_before_park
                .has_cores_for_all(self.surroundings.spin_budget())
        {
            // Nobody needs this core.
            self.leader.set_core_contended(false);
            0
        } else {
            calls
        };
        if calls > 0 {
            (core_yield.interval, core_yield.remaining) = (LEADER_YIELD_FIRST, 0);
        }
        if core_yield.remaining > 0 {
            core_yield.remaining -= 1;
            return;
        }
        let given = self.surroundings.yield_core();
        if calls > 0 {
            // One that needs little time has parked since, perhaps before the core was given
            // away: who is woken may get it at once.
            let taken = given == YieldOutcome::Taken || self.waiters.parked_count() != sat;
            self.leader.set_core_contended(taken);
        }
        core_yield.interval = match given {
            YieldOutcome::Taken => LEADER_YIELD_FIRST,
            YieldOutcome::Unused => (core_yield.interval * 2).min(LEADER_YIELD_LAST),
        };
        core_yield.remaining = core_yield.interval;
    }

    /// Returns whether the leader, where each that waits has a core, has called others again and
    /// again while nothing came of its own: the one that was called now polls sooner for itself
    /// than it is called.
    #[inline]
    pub(super) fn only_serves_others(&self, core_yield: &CoreYield, calls: u32) -> bool {
        calls == 1
            && core_yield.served >= SERVED_BEFORE_ASIDE
            && self
                .yield_before_park
                .has_cores_for_all(self.surroundings.spin_budget())
    }

    /// Returns whether the one thread that was called, of so many, wants this very core, as far as
    /// that is known: now and then it is asked anew. Of several most would find leadership taken,
    /// and sit down again.
    #[inline]
    pub(super) fn blocks_woken_thread(&self, calls: u32) -> bool {
        calls == 1
            && self.leader.is_core_contended()
            && !self
                .yield_before_park
                .has_cores_for_all(self.surroundings.spin_budget())
            && !self.waiters.notified_count().is_multiple_of(CROWDED_CALLS)
    }
}

/// The rhythm in which the leader yields its core to threads of its rank that it woke, or that
/// passed leadership and go on: after each wake-up, and then ever more rarely while nobody takes
/// the core.
pub(super) struct CoreYield {
    /// Who was called so far.
    notified: u32,
    /// How many of those since it began.
    served: u32,
    /// Who parked before the last look.
    parked: u32,
    /// Looks between two times.
    interval: u32,
    /// Looks until the next time.
    remaining: u32,
}

impl CoreYield {
    /// For a leader that begins now.
    pub(super) fn new(slots: &Waiters) -> Self {
        Self {
            notified: slots.notified_count(),
            served: 0,
            parked: slots.parked_count(),
            interval: LEADER_YIELD_FIRST,
            remaining: LEADER_YIELD_FIRST,
        }
    }

    /// Returns how many were called since this was last asked.
    #[inline]
    pub(super) fn calls(&mut self, slots: &Waiters) -> u32 {
        let called = slots.notified_count();
        let calls = called.wrapping_sub(std::mem::replace(&mut self.notified, called));
        self.served = self.served.saturating_add(calls);
        calls
    }
}
