//! A [`Host`] over a real engine: the engine behind a lock, steppers, and waiting.
//!
//! Owned by the process (or thread, or simulated rank) that is the rank; shared by its threads. One thread polls for all: a waiter
//! that finds another polling sleeps until that one sees something happen or leaves. The poller spins by its budget, then
//! arms the rail, polls once more and sleeps on the rail's wake source. Bounded by the engine.

use crate::host::{Host, Stepper};
use crate::surroundings::{Patience, Surroundings};
use garonne_engine::api::{Error, Message, Origin, Pattern, Peer, Recv, Request, Send, Started, Status};
use garonne_engine::event::Waiting;
use garonne_engine::rail::{Rail, WakeSource};
use garonne_engine::shard::{Shard, Small};
use garonne_sync::shm::Segment;
use garonne_sync::user::Data;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

/// See the module's paragraph.
pub struct EngineHost<R, S> {
    me: Peer,
    world: u32,
    shard: Mutex<Shard<R>>,
    surroundings: S,
    source: Arc<dyn WakeSource>,
    steppers: Mutex<Vec<Arc<dyn Stepper>>>,
    /// Attached and not yet among `steppers`: attaching must not wait for a stepper that runs.
    newcomers: Mutex<Vec<Arc<dyn Stepper>>>,
    stepping: AtomicU32,
    /// Somebody is the poller.
    polling: AtomicBool,
    /// Changes whenever something happened that a waiter may wait for.
    happened: AtomicU64,
    /// The engine's completions when the steppers last ran.
    stepped_at: AtomicU64,
    /// Threads asleep because another polls.
    asleep: AtomicU32,
    door: Mutex<()>,
    bell: Condvar,
}

impl<R: Rail + std::marker::Send, S: Surroundings> EngineHost<R, S> {
    /// Makes a rank of `shard`, process `me` of `world`.
    pub fn new(mut shard: Shard<R>, me: Peer, world: u32, surroundings: S) -> Self {
        let source = shard.rail().wake_source();
        Self {
            me,
            world,
            shard: Mutex::new(shard),
            surroundings,
            source,
            steppers: Mutex::new(Vec::new()),
            newcomers: Mutex::new(Vec::new()),
            stepping: AtomicU32::new(0),
            polling: AtomicBool::new(false),
            happened: AtomicU64::new(0),
            stepped_at: AtomicU64::new(0),
            asleep: AtomicU32::new(0),
            door: Mutex::new(()),
            bell: Condvar::new(),
        }
    }

    fn enter(&self) -> MutexGuard<'_, Shard<R>> {
        // A panic inside the engine is a bug of ours; its state is still the best there is for ending the job in order.
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f` on the engine and tells waiters if that completed something.
    fn with<T>(&self, f: impl FnOnce(&mut Shard<R>) -> T) -> T {
        let mut shard = self.enter();
        let before = shard.completions();
        let result = f(&mut shard);
        let changed = shard.completions() != before;
        drop(shard);
        if changed {
            self.announce();
        }
        result
    }

    /// Something happened: threads asleep ask again.
    fn announce(&self) {
        self.happened.fetch_add(1, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) != 0 {
            drop(self.door.lock());
            self.bell.notify_all();
        }
    }

    /// Sends a small contiguous message the shortest way; `false`: use `send`.
    #[inline]
    pub fn send_small(&self, small: &Small) -> bool {
        match self.shard.try_lock() {
            Ok(mut shard) => shard.send_small(small),
            Err(_) => false,
        }
    }

    /// What the engine waits for, and whether it is idle, for publishing.
    pub fn waiting(&self) -> Waiting {
        self.enter().waiting()
    }

    /// Packets are queued that found no room yet.
    pub fn has_work(&self) -> bool {
        self.enter().has_work()
    }

    /// Calls `f` on the engine, for inspection.
    pub fn inspect<T>(&self, f: impl FnOnce(&mut Shard<R>) -> T) -> T {
        self.with(f)
    }

    /// Runs the steppers if something happened since they last ran. `true` if any finished or something happened meanwhile.
    fn step(&self, completions: u64) -> bool {
        if self.stepping.load(Ordering::Acquire) == 0 || self.stepped_at.swap(completions, Ordering::AcqRel) == completions {
            return false;
        }
        self.run_steppers()
    }

    fn run_steppers(&self) -> bool {
        let Ok(mut steppers) = self.steppers.try_lock() else {
            // Whoever runs them may have passed the one that this news is for.
            self.stepped_at.store(u64::MAX, Ordering::Release);
            return false;
        };
        let before = steppers.len();
        loop {
            steppers.extend(self.newcomers.lock().unwrap_or_else(PoisonError::into_inner).drain(..));
            steppers.retain(|stepper| !stepper.step(self));
            if self.newcomers.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
                break;
            }
        }
        self.stepping.store(steppers.len() as u32, Ordering::Release);
        let fewer = steppers.len() < before;
        drop(steppers);
        if fewer {
            self.announce();
        }
        fewer
    }

    /// The poller's turn: until `done`, or until nothing happens for longer than the patience lasts.
    fn poll_until(&self, done: &mut dyn FnMut() -> bool, patience: Patience) {
        let mut idle = 0;
        loop {
            if done() {
                return;
            }
            if self.progress() {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle <= patience.spins {
                std::hint::spin_loop();
            } else if idle <= patience.spins.saturating_add(patience.yields) {
                self.surroundings.give_way();
            } else {
                self.park(done);
                // Unless this brought something, the next look is followed by sleep at once.
            }
        }
    }

    /// Arm, look once more, sleep.
    fn park(&self, done: &mut dyn FnMut() -> bool) {
        let happened = self.happened.load(Ordering::SeqCst);
        let ticket = self.enter().rail().arm();
        let moved = self.progress();
        if !moved && !done() && self.happened.load(Ordering::SeqCst) == happened {
            let work = self.enter().has_work();
            // Queued work that found no room is tried again soon even if nobody rings.
            let limit = if work { self.surroundings.retry() } else { None };
            self.surroundings.parked(true);
            self.source.sleep(ticket, limit);
            self.surroundings.parked(false);
        }
        self.enter().rail().disarm();
    }

    /// Another thread polls: sleeps until it sees something or leaves.
    fn follow(&self, seen: u64) {
        let guard = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.fetch_add(1, Ordering::SeqCst);
        if self.happened.load(Ordering::SeqCst) == seen && self.polling.load(Ordering::SeqCst) {
            drop(self.bell.wait(guard));
        } else {
            drop(guard);
        }
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<R: Rail + std::marker::Send, S: Surroundings> Host for EngineHost<R, S> {
    fn me(&self) -> Peer {
        self.me
    }

    fn world_size(&self) -> u32 {
        self.world
    }

    fn send(&self, send: Send) -> Result<Started, Error> {
        self.with(|shard| shard.send(send))
    }

    #[inline]
    fn send_small(&self, small: &Small) -> bool {
        EngineHost::send_small(self, small)
    }

    fn recv(&self, recv: Recv) -> Result<Started, Error> {
        self.with(|shard| shard.recv(recv))
    }

    fn probe(&self, pattern: Pattern) -> Result<Option<Status>, Error> {
        self.progress();
        self.with(|shard| shard.probe(pattern))
    }

    fn mprobe(&self, pattern: Pattern) -> Result<Option<(Message, Status)>, Error> {
        self.progress();
        self.with(|shard| shard.mprobe(pattern))
    }

    fn mrecv(&self, message: Message, data: Data, origin: Origin) -> Result<Started, Error> {
        self.with(|shard| shard.mrecv(message, data, origin))
    }

    fn cancel(&self, request: Request) -> Result<(), Error> {
        self.with(|shard| shard.cancel(request))
    }

    fn peek(&self, request: Request) -> Result<Option<Status>, Error> {
        self.enter().peek(request)
    }

    fn take(&self, request: Request) -> Result<Option<Status>, Error> {
        self.enter().take(request)
    }

    fn abandon(&self, request: Request) -> Result<(), Error> {
        self.enter().abandon(request)
    }

    fn progress(&self) -> bool {
        let mut shard = match self.shard.try_lock() {
            Ok(shard) => shard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Whoever holds it makes progress.
            Err(TryLockError::WouldBlock) => return false,
        };
        let before = shard.completions();
        let moved = shard.progress();
        let after = shard.completions();
        drop(shard);
        if before != after {
            self.announce();
        }
        self.step(after) || moved
    }

    fn wait_until(&self, done: &mut dyn FnMut() -> bool) {
        loop {
            let seen = self.happened.load(Ordering::SeqCst);
            if done() {
                return;
            }
            if self.polling.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                self.poll_until(done, self.surroundings.patience());
                self.polling.store(false, Ordering::SeqCst);
                // A follower takes over.
                self.announce();
                return;
            }
            self.follow(seen);
        }
    }

    fn wake(&self) {
        self.announce();
        self.source.wake();
    }

    fn attach(&self, stepper: Arc<dyn Stepper>) {
        self.newcomers.lock().unwrap_or_else(PoisonError::into_inner).push(stepper);
        self.stepping.fetch_add(1, Ordering::AcqRel);
        self.stepped_at.store(u64::MAX, Ordering::Release);
        self.run_steppers();
    }

    fn commons(&self, owner: Peer) -> Option<Segment> {
        self.enter().rail().commons(owner)
    }

    fn spins(&self) -> u32 {
        self.surroundings.patience().spins
    }

    fn doorbell(&self, peer: Peer) -> Option<Segment> {
        self.enter().rail().doorbell(peer)
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        self.surroundings.abort(code, message)
    }

    fn wtime(&self) -> f64 {
        self.surroundings.seconds()
    }
}
