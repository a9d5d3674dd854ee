//! Taking the engine and giving it back.
//!
//! Part of `engine_host`. Where one thread promised to be alone this costs a load and a store. Where several share the engine, a holder does little before it gives it back, wakes
//! nobody meanwhile (a woken thread may get the waker's core), and executes what those who came in vain left in the ring.

use super::{EngineHost, lock};
use crate::host::Awaited;
use crate::limits::COURTESY_SPINS;
use crate::surroundings::Surroundings;
use crate::ticket::{Operation, Ticket, pause, perform};
use garonne_engine::api::{Error, Started};
use garonne_engine::rail::Rail;
use garonne_engine::shard::Shard;
use garonne_sync::postponed::Postponed;
use garonne_sync::trylock::Guard;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The engine in a thread's hands.
pub(super) struct Held<'a, R> {
    // In this order: first it is free, then others wake.
    shard: Guard<'a, Shard<R>>,
    wakes: Option<Postponed>,
    /// No other thread can want it.
    alone: bool,
}

impl<R> Held<'_, R> {
    /// Whether no other thread can want the engine.
    pub(super) fn is_alone(&self) -> bool {
        self.alone
    }
}

impl<R> Deref for Held<'_, R> {
    type Target = Shard<R>;
    #[inline]
    fn deref(&self) -> &Shard<R> {
        &self.shard
    }
}

impl<R> DerefMut for Held<'_, R> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard<R> {
        &mut self.shard
    }
}

impl<R: Rail + Send, S: Surroundings> EngineHost<R, S> {
    /// Takes the engine if it is free.
    #[inline]
    pub(super) fn try_enter(&self) -> Option<Held<'_, R>> {
        match self.shard.try_alone() {
            Some(shard) => Some(Held {
                shard,
                wakes: None,
                alone: true,
            }),
            None => self.try_enter_shared(),
        }
    }

    /// The same of who tries again and again: it looks first, since a try takes the lock's line from its holder.
    #[inline]
    pub(super) fn try_enter_if_free(&self) -> Option<Held<'_, R>> {
        if self.shard.is_held() {
            return None;
        }
        self.try_enter()
    }

    #[inline]
    fn try_enter_shared(&self) -> Option<Held<'_, R>> {
        let wakes = self.is_crowded().then(Postponed::new);
        let shard = self.shard.try_lock()?;
        Some(Held {
            shard,
            wakes,
            alone: false,
        })
    }

    /// Whether a thread that is woken may get the core of the one that wakes it: a helper, or any where ranks exceed cores.
    #[inline]
    fn is_crowded(&self) -> bool {
        !self.lending.door.gate.is_kept() || self.surroundings.patience().spins == 0
    }

    /// Takes the engine, executing what others submitted first. Waits for a holder, which never blocks.
    #[inline]
    pub(super) fn enter(&self) -> Held<'_, R> {
        match self.try_enter() {
            Some(mut shard) => {
                self.serve(&mut shard);
                shard
            }
            None => self.enter_busy(),
        }
    }

    #[cold]
    #[inline(never)]
    fn enter_busy(&self) -> Held<'_, R> {
        let mut tries = 0u32;
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let mut shard = loop {
            if let Some(shard) = self.try_enter_if_free() {
                break shard;
            }
            pause(&mut tries);
        };
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        self.serve(&mut shard);
        shard
    }

    /// Leaves the engine for a moment to those who need it: for who only looks for news. A hint, and bounded: they may not be running.
    pub(super) fn yield_engine(&self) {
        for _ in 0..COURTESY_SPINS {
            if self.wanted.load(Ordering::Relaxed) == 0 {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Executes what other threads submitted.
    #[inline]
    pub(super) fn serve(&self, shard: &mut Held<'_, R>) {
        // With one thread in MPI there is nobody who could have submitted anything.
        if !shard.is_alone() && !self.submitted.is_empty() && self.serve_all(shard) {
            self.tell(shard);
            self.rouse();
        }
    }

    /// `true`: that is news for those who wait.
    #[cold]
    #[inline(never)]
    fn serve_all(&self, shard: &mut Shard<R>) -> bool {
        let before = shard.completions();
        while let Some(ticket) = self.submitted.pop() {
            let Some(operation) = lock(&ticket.operation).take() else {
                continue;
            };
            let result = perform(shard, operation);
            *lock(&ticket.result) = Some(result);
            // Release: the submitter sees the result. SYNC(ticket-done).
            ticket.done.store(true, Ordering::Release);
        }
        shard.completions() != before || shard.has_work()
    }

    /// Something happened in the engine: those ask again whose operations are over, or whose messages have come, and those who wait for anything. They wake when it is free.
    fn tell(&self, held: &mut Held<'_, R>) {
        let Held { shard, wakes, .. } = held;
        wakes.get_or_insert_with(Postponed::new);
        self.seats.tell(|awaited| match Awaited::decode(awaited) {
            Awaited::Anything => true,
            Awaited::Operation(request) => shard.plain_ended_at(request).is_some(),
            Awaited::AnyOf(waiter) => shard.has_ended_for(waiter),
            Awaited::Message(word) => shard.has_kept(word),
            Awaited::Stepper(_) | Awaited::Memory(_) => false,
        });
        // Who is about to sit has asked before and sees that there was news, or will ask with the engine in hand.
        shard.forget_news();
    }

    /// Gives the engine back, looks into the ring once more, and tells waiters if something completed.
    #[inline]
    pub(super) fn depart(&self, shard: Held<'_, R>, before: u64) {
        // Work that an operation left queued is news, too: whoever sleeps in the poller's place has to see to it.
        let changed = shard.completions() != before || shard.has_work();
        self.leave(shard, changed);
    }

    #[inline]
    pub(super) fn leave(&self, shard: Held<'_, R>, changed: bool) {
        if !shard.is_alone() {
            self.leave_shared(shard, changed);
        }
    }

    #[inline(never)]
    fn leave_shared(&self, mut shard: Held<'_, R>, mut changed: bool) {
        if changed {
            self.tell(&mut shard);
        }
        let mut work = shard.has_work();
        drop(shard);
        // A submitter whose try came before the lock was free also tries again itself; this only spares it the wait.
        while !self.submitted.is_empty()
            && let Some(mut shard) = self.try_enter()
        {
            if self.serve_all(&mut shard) {
                changed = true;
                self.tell(&mut shard);
            }
            work |= shard.has_work();
        }
        if changed {
            // Who lies on the bell has been told like all that sit, and need not get up for what is others'.
            if work || self.stepping.load(Ordering::SeqCst) > 0 || !self.seats.is_on_bell() {
                self.rouse();
            }
            self.tell_first();
        }
    }

    /// Starts an operation: at once if the engine is free, else by whoever holds it.
    #[inline]
    pub(super) fn start(&self, operation: Operation) -> Result<Started, Error> {
        self.leaves();
        match self.try_enter() {
            Some(mut shard) => {
                self.serve(&mut shard);
                let before = shard.completions();
                let result = perform(&mut shard, operation);
                self.depart(shard, before);
                result
            }
            None => self.submit(operation),
        }
    }

    #[cold]
    #[inline(never)]
    fn submit(&self, operation: Operation) -> Result<Started, Error> {
        let ticket = Arc::new(Ticket {
            operation: Mutex::new(Some(operation)),
            result: Mutex::new(None),
            done: AtomicBool::new(false),
        });
        let mut tries = 0u32;
        let mut pending = Some(ticket.clone());
        loop {
            if let Some(left) = pending.take() {
                pending = self.submitted.push(left).err();
            }
            // Acquire: the result is seen. SYNC(ticket-done).
            if ticket.done.load(Ordering::Acquire)
                && let Some(result) = lock(&ticket.result).take()
            {
                return result;
            }
            match self.try_enter_if_free() {
                Some(mut shard) => {
                    let changed = self.serve_all(&mut shard);
                    self.leave(shard, changed);
                }
                None => pause(&mut tries),
            }
        }
    }
}
