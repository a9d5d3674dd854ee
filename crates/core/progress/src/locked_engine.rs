//! A rank's engine behind a lock: [`LockedEngine`] implements [`Messaging`], runs steppers, and
//! waits.
//!
//! The process (or thread, or simulated rank) that is the rank owns the locked engine; its threads
//! share it. A thread that finds the lock taken tries again after as long as a few operations take.
//!
//! One thread per rank polls: the leader. The others park in wait slots. A slot names the event
//! that its owner waits for. Whoever causes that event wakes that slot and no other. When the
//! leader's own event arrives, it passes leadership to the thread that parked last. The leader
//! spins for its budget, then arms the transport's doorbell, polls once more and sleeps on it.
//! While a process has one thread in MPI, none of this costs an atomic read-modify-write. Bounded
//! by the engine and the wait slots.
//!
//! | module | what it owns |
//! |---|---|
//! | `engine_lock` | the engine, and who waits for its lock |
//! | `steppers` | steppers, from when they are attached until they are over |
//! | `leader_state` | hints that leader and followers leave each other |
//! | `progress` | one progress pass: poll the transport, advance the engine, run steppers |
//! | `wait_phases` | the phases of a wait, and which follows which |
//! | `wait_loop` | how the leader waits: spin, yield, run tasks, sleep |
//! | `multi_wait` | how several threads wait; who leads |
//! | `yield_before_park` | what a thread does before it parks |
//! | `leader_parking` | a leader that parks |
//! | `async_progress` | progress while the program computes: ownership, open operations |
//! | `progress_turn` | what the progress thread does when it was woken |
//! | `progress_wakeup` | how the progress thread is woken |
//! | `progress_spin` | how long the progress thread stays awake |
//! | `other_shards` | polling shards of the rank in which nobody waits |

mod async_progress;
mod engine_lock;
mod external_waits;
mod leader_parking;
mod leader_state;
mod multi_wait;
mod node_shared;
mod open_operations;
pub(crate) mod other_shards;
mod progress;
mod progress_spin;
mod progress_turn;
mod progress_wakeup;
mod steppers;
mod tracing;
mod wait_loop;
mod wait_phases;
mod yield_before_park;

use crate::environment::{CommunicatorInfo, Environment, PeerFate, PossibleSenders};
use crate::facade::lock;
use crate::limits::ANY_OF_FEW;
use crate::messaging::{
    AnyOfWaiter, BackgroundWork, CommunicatorSupport, Diagnosis, FastMessaging, Messaging, Stepper,
    WaitKey, WaitTarget, Waiting, current_waiter,
};
use async_progress::AsyncProgress;
use engine_lock::{EngineGuard, EngineLock};
use external_waits::ExternalWaits;
use garonne_engine::api::{
    CallOrigin, ContextId, Error, Message, Pattern, Peer, RecvArgs, Request, SendArgs,
    StartOutcome, Status,
};
use garonne_engine::engine::Engine;
use garonne_engine::fast::recv::{FastRecv, PlainRecvStatus, ReceivedMessage};
use garonne_engine::fast::send::FastSend;
use garonne_engine::fast::send_channel::SendChannel;
use garonne_engine::faults::ContextMembers;
use garonne_engine::observe::contexts_in_use::ContextsInUse;
use garonne_engine::observe::events::{PendingOperation, PendingReport, SentMessage};
use garonne_engine::observe::tracer::OperationTracer;
use garonne_engine::schedule::priority::Priority;
use garonne_engine::transport::{Transport, WakeSource};
use garonne_sync::polled_predicates::PolledPredicates;
use garonne_sync::post_mortem::PostMortemArc;
use garonne_sync::try_lock::SingleThreaded;
use garonne_sync::user::Data;
use garonne_sync::waiters::Waiters;
use leader_state::LeaderState;
use other_shards::ShardLinks;
use progress::LockPolicy;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use steppers::Steppers;
use tracing::TraceSwitch;
use wait_loop::{LeaderWait, WaitHistory};
use yield_before_park::YieldBeforePark;

/// A rank's engine, or one shard of it, behind its lock, with the threads that wait for it. The
/// rank owns it and its threads share it. Order of calls: [`LockedEngine::new`]; then `elide` if
/// one thread at a time is in MPI, or `share` before more come; then the methods of [`Messaging`]
/// from any thread; at the end `stop_async_progress`.
pub struct LockedEngine<R, S> {
    me: Peer,
    world: u32,
    lock: EngineLock<R>,
    surroundings: S,
    wake_source: Arc<dyn WakeSource>,
    steppers: Steppers,
    /// Leadership and wait slots of the rank's threads.
    waiters: Waiters,
    /// Predicates of threads that wait for memory which other processes write.
    polled_predicates: PolledPredicates,
    leader: LeaderState,
    wait_history: WaitHistory,
    /// Yielding of threads that are about to park.
    yield_before_park: YieldBeforePark,
    /// Waits of the MPI layer that the engine does not know.
    external_waits: Mutex<ExternalWaits>,
    async_progress: AsyncProgress<R, S>,
    trace_switch: TraceSwitch,
    /// Polls of several threads that brought nothing.
    unused_polls: AtomicU32,
    /// Polls of test calls that brought nothing, where there are several shards.
    unused_tests: AtomicU32,
    /// Deaths that the engine was told of ([`Environment::deaths`]).
    deaths_seen: AtomicU32,
    /// Links to the rank's other shards, if there are several.
    shard_links: OnceLock<ShardLinks<R, S>>,
}

/// Caller that advances the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgressCaller {
    /// A thread of the program, inside MPI.
    Program,
    /// A thread of the library, which runs no code of the program's.
    Helper,
}

impl<R: Transport + std::marker::Send, S: Environment> LockedEngine<R, S> {
    /// Makes a rank of `shard`, process `me` of `world`.
    pub fn new(mut shard: Engine<R>, me: Peer, world: u32, surroundings: S) -> Self {
        let wake_source = shard.transport().wake_source();
        Self {
            me,
            world,
            lock: EngineLock::new(shard),
            surroundings,
            wake_source,
            steppers: Steppers::new(),
            waiters: Waiters::default(),
            polled_predicates: PolledPredicates::default(),
            leader: LeaderState::new(),
            wait_history: WaitHistory::default(),
            yield_before_park: YieldBeforePark::default(),
            external_waits: Mutex::default(),
            async_progress: AsyncProgress::new(),
            trace_switch: TraceSwitch::default(),
            unused_polls: AtomicU32::new(0),
            unused_tests: AtomicU32::new(0),
            deaths_seen: AtomicU32::new(0),
            shard_links: OnceLock::new(),
        }
    }

    /// One thread at a time is in MPI (thread levels below `MPI_THREAD_MULTIPLE`): locks cost
    /// nothing from now on.
    pub fn elide(&self, promise: SingleThreaded) {
        *lock(&self.async_progress.promise) = Some(promise);
        self.lock.elide(promise);
        self.lock.set_shared(false);
        self.lock_engine().allow_slot_batches(true);
    }

    /// Several threads may be in MPI from now on. Called while still one is.
    pub fn share(&self) {
        self.lock_engine().allow_slot_batches(false);
        self.lock.share();
        self.lock.set_shared(true);
    }

    /// The wait of a rank's only thread.
    #[inline]
    fn wait_unshared(&self, done: &mut dyn FnMut() -> bool) {
        let open = self.async_progress.is_any_open();
        if open {
            self.reclaim_on_return();
        }
        LeaderWait::<_, _, false>::new(self, done, None).run();
        if open {
            self.release_again();
        }
    }

    /// Returns how long to sleep at most: queued work that found no room is tried again even if
    /// nobody rings.
    fn retry_limit(&self) -> Option<Duration> {
        let work = self.lock_engine().has_work();
        if work {
            self.surroundings.retry_interval()
        } else {
            None
        }
    }

    /// Tells whether a thread that is woken may get the core of the one that wakes it: a progress
    /// thread, or any where ranks exceed cores.
    #[inline]
    fn may_lose_core(&self) -> bool {
        !self.async_progress.ownership.owner.is_held_by_program()
            || self.surroundings.spin_budget().spins == 0
    }

    /// Takes the engine if it is free.
    #[inline]
    fn try_lock(&self) -> Option<EngineGuard<'_, R>> {
        self.lock.try_lock(|| self.may_lose_core())
    }

    /// Takes the engine if it is free, for a thread that polls again and again.
    #[inline]
    fn try_lock_to_poll(&self) -> Option<EngineGuard<'_, R>> {
        self.lock.try_lock_to_poll(|| self.may_lose_core())
    }

    /// Takes the engine. Waits for a holder, which never blocks.
    #[inline]
    fn lock_engine(&self) -> EngineGuard<'_, R> {
        self.lock.lock(|| self.may_lose_core())
    }

    /// Something happened in the engine: those ask again whose operations are over, or whose
    /// messages have come, and those who wait for anything. They wake when it is free.
    fn tell(&self, held: &mut EngineGuard<'_, R>) {
        held.defer_wakes();
        let shard = &mut **held;
        self.waiters
            .notify(|awaited| match WaitKey::decode(awaited) {
                WaitKey::Anything => true,
                WaitKey::Operation(request) => shard.plain_ended_at(request).is_some(),
                WaitKey::AnyOf(current_waiter) => shard.may_have_completed_for(current_waiter),
                WaitKey::Message(word) => shard.message_may_have_come(word),
                WaitKey::Stepper(_) | WaitKey::Signal(_) | WaitKey::Memory(_) => false,
            });
        self.notify_any_shard_waiters(shard);
        // Who is about to sit has asked before and sees that there was news, or will ask with the
        // engine in hand.
        shard.clear_completion_events();
    }

    /// Gives the engine back, and tells waiters if something completed.
    #[inline]
    fn unlock_after(&self, shard: EngineGuard<'_, R>, before: u64) {
        // Work that an operation left queued is news, too: whoever sleeps in the leader's place has
        // to see to it.
        let changed = shard.completions() != before || shard.has_work();
        self.unlock(shard, changed);
    }

    #[inline]
    fn unlock(&self, shard: EngineGuard<'_, R>, changed: bool) {
        if !shard.is_alone() {
            self.unlock_shared(shard, changed);
        }
    }

    #[inline(never)]
    fn unlock_shared(&self, mut shard: EngineGuard<'_, R>, changed: bool) {
        if changed {
            self.tell(&mut shard);
        }
        let work = shard.has_work();
        drop(shard);
        if changed {
            self.wake_leader_unless_notified(work || self.has_steppers_with_messages());
            self.notify_first_shard();
        }
    }

    /// Calls `f` on the engine and tells waiters if that completed something.
    #[inline]
    fn with<T>(&self, f: impl FnOnce(&mut Engine<R>) -> T) -> T {
        let mut shard = self.lock_engine();
        let before = shard.completions();
        let result = f(&mut shard);
        self.unlock_after(shard, before);
        result
    }

    /// Counts an event, and wakes the leader so that it polls once more before it sleeps.
    fn count_event_and_wake(&self) {
        self.waiters.count_event();
        self.rouse();
    }

    /// Wakes the leader if it sleeps or is about to. The caller has counted an event before.
    fn rouse(&self) {
        if self.leader.sleeps() {
            self.wake_source.wake();
        }
    }

    /// Notifies of an event outside the engine: threads that wait for anything, and threads whose
    /// target is due.
    fn announce(&self, is_due: impl Fn(WaitKey) -> bool) {
        self.waiters.notify(|awaited| {
            let awaited = WaitKey::decode(awaited);
            awaited == WaitKey::Anything || is_due(awaited)
        });
        self.wake_leader_unless_notified(self.steppers.open() > 0);
    }

    /// Wakes the leader if it sleeps or is about to, after all parked threads were notified. A
    /// leader parked on the doorbell was one of those, and is woken only for `work`.
    fn wake_leader_unless_notified(&self, work: bool) {
        if work || !self.waiters.is_leader_on_bell() {
            self.rouse();
        }
    }

    /// Sends a small contiguous message the shortest way; `false`: use `send`.
    #[inline(always)]
    pub fn send_small(&self, small: &FastSend) -> bool {
        if let Some(mut shard) = self.lock.try_lock_unshared() {
            return shard.send_small(small);
        }
        self.fast_send_shared(*small)
    }

    /// Receives a message that lies ready, the shortest way; `None`: nothing happened, use
    /// `fast_recv` or `recv`.
    #[inline(always)]
    pub fn take_now(
        &self,
        catch: &FastRecv,
        site: impl FnOnce(&AtomicU64),
    ) -> Option<ReceivedMessage> {
        self.lock.try_lock_unshared()?.try_recv_now(catch, site)
    }

    /// Posts a receive that has a name afterwards, by the fast path; `None`: use `post_plain_recv`
    /// or `recv`.
    #[inline(always)]
    pub fn post_now(&self, catch: &FastRecv, site: impl FnOnce(&AtomicU64)) -> Option<Request> {
        self.lock.try_lock_unshared()?.post_now(catch, site)
    }

    /// Returns whether one thread at a time is in MPI.
    pub fn is_alone(&self) -> bool {
        !self.lock.is_shared()
    }

    /// The track of a stream that small messages took before, while one thread at a time is in MPI.
    /// It is of use until [`CommunicatorSupport::forget_contexts`] is told of its context.
    #[cold]
    pub fn track(&self, context: ContextId, peer: Peer) -> Option<PostMortemArc<SendChannel>> {
        self.lock.try_lock_unshared()?.send_channel(context, peer)
    }

    #[inline(never)]
    fn fast_recv_released(&self, catch: FastRecv) -> Option<ReceivedMessage> {
        if self.lock.is_shared() {
            return self.fast_recv_shared(&catch);
        }
        if self.is_traced() {
            return None;
        }
        self.reclaim_if_nothing_open();
        if self.async_progress.ownership.owner.is_entered_by_thread() {
            // It is not kept waiting for as long as this looks.
            return None;
        }
        let mut shard = self.try_lock()?;
        shard.recv_blocking_fast(&catch, self.surroundings.spin_budget().spins)
    }

    #[inline(never)]
    fn post_plain_recv_shared(&self, catch: FastRecv) -> Option<Request> {
        self.reclaim_if_nothing_open();
        if self.is_traced() {
            return None;
        }
        self.note_open_in_shard();
        self.with(|shard| shard.post_plain(&catch))
    }

    /// Calls `f` on the engine to end plain receives, several of them under one lock; it starts and
    /// completes nothing.
    #[inline(always)]
    pub fn ending<T>(&self, f: impl FnOnce(&mut Engine<R>) -> T) -> T {
        match self.lock.try_lock_unshared() {
            Some(mut shard) => f(&mut shard),
            None => f(&mut self.lock_engine()),
        }
    }

    #[inline(never)]
    fn fast_send_shared(&self, small: FastSend) -> bool {
        self.reclaim_if_nothing_open();
        if self.is_traced() {
            return false;
        }
        let mut shard = self.lock_engine();
        // It completes nothing that anybody waits for: there is nothing to announce.
        shard.send_small(&small)
    }

    /// Returns what the engine waits for, and whether it is idle, for publishing.
    pub fn waiting(&self) -> PendingReport {
        let shard = self.lock_engine();
        shard.publish_tally();
        let mut waiting = shard.waiting();
        drop(shard);
        waiting.threads = self.lock.is_shared();
        lock(&self.external_waits).tell(&mut waiting);
        waiting
    }

    /// Packets are queued that found no room yet.
    pub fn has_work(&self) -> bool {
        self.lock_engine().has_work()
    }

    /// Threads that were woken where they sat, or spared that, because of news for them, ever
    /// (modulo 2^32): for inspection.
    pub fn wake_count(&self) -> u32 {
        self.waiters.notified_count()
    }

    /// Tells the engine of processes that have died since this was last called. Returns whether
    /// there are any.
    #[inline]
    fn look_for_deaths(&self) -> bool {
        let deaths = self.surroundings.deaths();
        deaths != self.deaths_seen.load(Ordering::Relaxed) && self.take_deaths(deaths)
    }

    #[cold]
    #[inline(never)]
    fn take_deaths(&self, deaths: u32) -> bool {
        let died = |peer: &Peer| self.surroundings.fate(*peer) == PeerFate::Died;
        let dead: Vec<Peer> = (0..self.world_size()).filter(died).collect();
        self.with(|shard| dead.iter().for_each(|peer| shard.peer_died(*peer)));
        // Afterwards: another thread that looks meanwhile does it once more, which changes nothing.
        self.deaths_seen.store(deaths, Ordering::Relaxed);
        self.wake();
        true
    }

    /// Looks before a sleep for processes that will not answer any more. Returns whether something
    /// ended because of them.
    fn look_for_losses(&self) -> bool {
        self.look_for_deaths() | self.look_for_left()
    }

    /// Ends accesses whose targets are known to have left. Returns whether there were any. Where
    /// there are none nobody is told of work that waits: the caller is about to sleep.
    fn look_for_left(&self) -> bool {
        let mut shard = self.lock_engine();
        let before = shard.completions();
        if !shard.end_unanswered(|peer| self.surroundings.fate(peer) == PeerFate::Left) {
            return false;
        }
        self.unlock_after(shard, before);
        self.wake();
        true
    }

    /// Calls `f` on the engine, for inspection.
    pub fn inspect<T>(&self, f: impl FnOnce(&mut Engine<R>) -> T) -> T {
        self.with(f)
    }
}

impl<R: Transport + std::marker::Send, S: Environment> Messaging for LockedEngine<R, S> {
    fn me(&self) -> Peer {
        self.me
    }

    fn world_size(&self) -> u32 {
        self.world
    }

    fn send(&self, send: SendArgs) -> Result<StartOutcome, Error> {
        self.note_open_in_shard();
        self.with(|shard| shard.send(send))
    }

    fn recv(&self, recv: RecvArgs) -> Result<StartOutcome, Error> {
        self.note_open_in_shard();
        self.with(|shard| shard.recv(recv))
    }

    fn probe(&self, pattern: Pattern) -> Result<Option<Status>, Error> {
        self.progress();
        self.look_for_deaths();
        let found = self.with(|shard| shard.probe(pattern))?;
        if found.is_none() {
            self.note_unused_test();
        }
        Ok(found)
    }

    fn mprobe(&self, pattern: Pattern) -> Result<Option<(Message, Status)>, Error> {
        self.progress();
        self.look_for_deaths();
        let found = self.with(|shard| shard.mprobe(pattern))?;
        if found.is_none() {
            self.note_unused_test();
        }
        Ok(found)
    }

    fn mrecv(
        &self,
        message: Message,
        data: Data,
        origin: CallOrigin,
    ) -> Result<StartOutcome, Error> {
        self.note_open_in_shard();
        self.with(|shard| shard.mrecv(message, data, origin))
    }

    fn cancel(&self, request: Request) -> Result<(), Error> {
        self.with(|shard| shard.cancel(request))
    }

    fn peek(&self, request: Request) -> Result<Option<Status>, Error> {
        self.lock_engine().peek(request)
    }

    fn take(&self, request: Request) -> Result<Option<Status>, Error> {
        self.lock_engine().take(request)
    }

    fn abandon(&self, request: Request) -> Result<(), Error> {
        self.lock_engine().abandon(request)
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        self.surroundings.abort(code, message)
    }

    fn wtime(&self) -> f64 {
        self.surroundings.wtime()
    }
}

impl<R: Transport + std::marker::Send, S: Environment> FastMessaging for LockedEngine<R, S> {
    #[inline(always)]
    fn send_small(&self, small: &FastSend) -> bool {
        LockedEngine::send_small(self, small)
    }

    #[inline(always)]
    fn fast_recv(&self, catch: &FastRecv) -> Option<ReceivedMessage> {
        match self.lock.try_lock_unshared() {
            Some(mut shard) => {
                shard.recv_blocking_fast(catch, self.surroundings.spin_budget().spins)
            }
            None => self.fast_recv_released(*catch),
        }
    }

    #[inline(always)]
    fn post_plain_recv(&self, catch: &FastRecv) -> Option<Request> {
        match self.lock.try_lock_unshared() {
            Some(mut shard) => shard.post_plain(catch),
            None => self.post_plain_recv_shared(*catch),
        }
    }

    #[inline(always)]
    fn test_plain_recv(&self, name: Request) -> PlainRecvStatus {
        self.ending(|shard| shard.take_plain(name))
    }

    #[inline]
    fn plain_recv_completed_at(&self, name: Request) -> Option<u64> {
        match self.lock.try_lock_unshared() {
            Some(shard) => shard.plain_ended_at(name),
            None => self.lock_engine().plain_ended_at(name),
        }
    }

    fn full_request(&self, name: Request) -> Option<(Request, ContextId)> {
        self.lock_engine().full_name(name)
    }

    fn offer_early_rtr(&self, name: Request) {
        self.with(|shard| shard.offer_early(name));
    }
}

impl<R: Transport + std::marker::Send, S: Environment> Waiting for LockedEngine<R, S> {
    fn completed_at(&self, request: Request) -> Option<u64> {
        self.lock_engine().completion_number(request)
    }

    fn completions(&self, _context: ContextId) -> u64 {
        self.lock_engine().completions()
    }

    fn progress(&self) -> bool {
        self.advance(ProgressCaller::Program, LockPolicy::IfFree)
    }

    #[inline(never)]
    fn yield_core(&self, _context: ContextId) -> bool {
        let spins = self.surroundings.spin_budget().spins;
        // With a core for every rank only threads of this rank can lack one, and then one look in
        // as many as a waiter spins gives way.
        let looks = || {
            self.unused_polls
                .fetch_add(1, Ordering::Relaxed)
                .wrapping_add(1)
        };
        let due = spins == 0 || self.lock.is_shared() && looks().is_multiple_of(spins);
        if due {
            self.surroundings.yield_core();
        }
        due
    }

    fn progress_for_test(&self) -> bool {
        self.progress()
            || (self.yield_core(0) && self.progress())
            || self.look_for_deaths()
            || self.note_unused_test()
    }

    #[inline]
    fn wait_until(&self, done: &mut dyn FnMut() -> bool) {
        if !self.lock.is_shared() {
            return self.wait_unshared(done);
        }
        self.wait_shared(&|| WaitTarget::Anything, done);
    }

    #[inline]
    fn wait_for(&self, awaits: &dyn Fn() -> WaitTarget, done: &mut dyn FnMut() -> bool) {
        if !self.lock.is_shared() {
            return self.wait_unshared(done);
        }
        self.wait_shared(awaits, done);
    }

    fn register_any_of(&self, parts: &mut dyn Iterator<Item = WaitTarget>) -> WaitTarget {
        if !self.lock.is_shared() {
            return WaitTarget::Anything;
        }
        // Before the engine is in hand: what gives the names may have locks whose holders ask the
        // engine.
        let mut known = SmallVec::<[Request; ANY_OF_FEW]>::new();
        for part in parts {
            match part {
                WaitTarget::Operation(name) => known.push(name),
                WaitTarget::Stepper(_) | WaitTarget::Signal(_) => {}
                _ => return WaitTarget::Anything,
            }
        }
        let waiter = current_waiter();
        if !known.is_empty() {
            // Who finds one over already is about to ask.
            self.lock_engine().await_completion_of_any(known, waiter);
        }
        WaitTarget::AnyOf(waiter)
    }

    fn signal(&self, awaits: WaitTarget, waiter: &AnyOfWaiter) {
        let word = awaits.encode();
        self.announce(|awaited| match awaited {
            WaitKey::AnyOf(number) => waiter.is_registered_by(number),
            awaited => awaited == WaitKey::decode(word),
        });
    }

    #[inline]
    fn wait_for_memory(&self, come: &mut (dyn FnMut() -> bool + std::marker::Send)) {
        if !self.lock.is_shared() {
            return self.wait_unshared(&mut || come());
        }
        self.wait_for_memory_shared(come);
    }

    fn is_single_threaded(&self) -> bool {
        !self.lock.is_shared()
    }

    fn wake(&self) {
        self.announce(|_| false);
        self.wake_source.wake();
    }
}

impl<R: Transport + std::marker::Send, S: Environment> BackgroundWork for LockedEngine<R, S> {
    fn attach_stepper(&self, stepper: Arc<dyn Stepper>) {
        let site = stepper.call_site();
        self.attach_awaited_stepper(stepper);
        let open = self.steppers.open();
        if open > 0 {
            self.leave_steppers_open(site, open);
        }
    }

    fn attach_awaited_stepper(&self, stepper: Arc<dyn Stepper>) {
        // Before anybody can finish it.
        self.steppers.count(&*stepper);
        self.count_interest(1);
        self.note_open_in_shard();
        self.steppers.enqueue(stepper);
        self.steppers.step_new(ProgressCaller::Program, self);
    }

    fn leave_pending(&self, request: Request) {
        self.leave_request_open(request);
    }
}

impl<R: Transport + std::marker::Send, S: Environment> CommunicatorSupport for LockedEngine<R, S> {
    fn publish_communicator(&self, number: u32, known: &CommunicatorInfo<'_>) {
        self.surroundings.publish_communicator(number, known);
    }

    fn forget_contexts(&self, contexts: Range<ContextId>) {
        self.with(|shard| {
            shard.forget(&contexts);
            shard.forget_faults(&contexts);
        });
    }

    fn prioritise(&self, contexts: Range<ContextId>, priority: Priority) -> Result<(), Error> {
        self.with(|shard| shard.set_priority(contexts, priority));
        Ok(())
    }

    fn watch_context(&self, contexts: Range<ContextId>, members: Arc<dyn ContextMembers>) {
        self.with(|shard| shard.watch_context(contexts, members));
    }

    fn revoke_contexts(
        &self,
        contexts: Range<ContextId>,
        members: &dyn ContextMembers,
    ) -> Result<(), Error> {
        self.with(|shard| shard.revoke_contexts(contexts, members));
        Ok(())
    }

    fn is_revoked(&self, first: ContextId) -> bool {
        self.lock_engine().is_revoked(first)
    }

    fn lost_peers(&self) -> Vec<Peer> {
        self.lock_engine().lost_peers()
    }

    fn acknowledge_losses(&self, first: ContextId) {
        self.look_for_deaths();
        self.with(|shard| shard.acknowledge_losses(first));
    }

    fn contexts_in_use(&self) -> ContextsInUse {
        self.lock_engine().contexts_in_use()
    }
}

impl<R: Transport + std::marker::Send, S: Environment> Diagnosis for LockedEngine<R, S> {
    fn pending(&self, name: Request) -> Option<PendingOperation> {
        self.lock_engine().pending(name)
    }

    #[inline]
    fn tracer(&self) -> Option<Arc<dyn OperationTracer>> {
        self.current_tracer()
    }

    fn process_of(&self, peer: Peer) -> Option<u32> {
        self.surroundings.process_of(peer)
    }

    fn possible_senders(&self, sent: &SentMessage) -> Option<PossibleSenders> {
        self.surroundings.possible_senders(sent)
    }
}
