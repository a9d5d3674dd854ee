//! Asynchronous progress: what the program leaves open while it computes, a progress thread
//! advances. The thread is a worker on demand (`tasks::progress_worker`), and its task is a turn at
//! the engine.
//!
//! Part of `locked_engine`. A call that returns with an operation open that needs help (a large
//! message, a collective) says so by `leave_pending` or `attach_stepper`. From then on the engine's
//! lock is a real one, ownership is released ([`ProgressOwner`]), and peers wake the progress
//! thread when what they send needs an answer. A thread that waits reclaims ownership before it
//! polls. So nobody is woken for nothing, and its locks cost nothing again. With several threads in
//! MPI the locks are real anyway, and the leader only disarms the wake-up. A program that leaves
//! nothing open, or only small messages, pays nothing.
//!
//! Where no core is idle ([`Environment::takeover_delay`]) a progress thread takes its core from a
//! rank that computes, for work that the rank would do itself soon. There peers do not wake it at
//! first. It polls by itself, and acts on what the program has left alone for longer than the
//! delay. From then on, until the program comes back, peers wake it.

use super::open_operations::OpenOperations;
use super::progress::LockPolicy;
use super::progress_spin::SpinControl;
use super::progress_turn::EngineDuty;
use super::progress_wakeup::WakeupWords;
use super::{LockedEngine, ProgressCaller, lock};
use crate::backoff::Backoff;
use crate::call_site_profile::{CallSiteProfile, ProfileTime, REOPENED_SITE};
use crate::environment::Environment;
use crate::limits::{HANDED_OVER_FROM, POLL_DUE_SOON, RELEASE_WORTH, RELEASE_WORTH_AWAKE};
use crate::sys;
use crate::tasks::{self, Tasks, WorkerCores};
use garonne_engine::api::Request;
use garonne_engine::transport::Transport;
use garonne_sync::pad::CachePadded;
use garonne_sync::progress_owner::{ProgressOwner, ReleaseCounter, WakeupScope};
use garonne_sync::try_lock::SingleThreaded;
use garonne_topology::CpuSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// There is no progress thread and never will be.
pub(super) const OFF: u8 = 0;
/// A progress thread can be started.
const READY: u8 = 1;
/// There is one.
pub(super) const RUNNING: u8 = 2;

pub(super) type WorkerMaker = Box<dyn Fn() -> Result<Tasks, tasks::Error> + Send + Sync>;

/// Operations of another shard, and its host.
pub(super) type ShardOperations<R, S> = (Arc<LockedEngine<R, S>>, OpenOperations);

/// The state of asynchronous progress of one locked engine: ownership, open operations, wake-up
/// words and the worker. Threads of the program release and reclaim; the worker runs turns
/// (`progress_turn`).
pub(super) struct AsyncProgress<R, S> {
    /// With lines of their own: a progress thread may look at them all the time.
    pub ownership: CachePadded<OwnershipState>,
    pub(super) spin: CachePadded<SpinControl>,
    /// Operations left open that need asynchronous progress.
    pub(super) open_operations: Mutex<OpenOperations>,
    /// Open operations of further shards, by locked engine: a rank has one progress thread.
    pub(super) open_in_other_shards: Mutex<Vec<ShardOperations<R, S>>>,
    /// A thread left something open while another polled.
    leader_relied_on: AtomicBool,
    /// Something was left open, and when somebody last looked was not over.
    pub(super) any_open: Arc<CachePadded<AtomicBool>>,
    /// Some open operations may need progress for which no peer can ring.
    pub(super) needs_transport_wakeup: AtomicBool,
    /// The transport was told that whoever polls takes its time from the program.
    pub(super) transport_patient: AtomicBool,
    /// The transport rings for these since the words were armed last.
    pub(super) transport_armed: AtomicBool,
    pub(super) release_counter: ReleaseCounter,
    /// How many of those the progress thread knew when it last looked by itself, the looks in a row
    /// at which there were more, and those with nothing lent.
    pub(super) releases_seen: AtomicU32,
    pub(super) postponed: AtomicU32,
    pub(super) idle_rounds: AtomicU32,
    pub(super) call_sites: CallSiteProfile,
    /// The processor that the program's thread was on when it lent.
    pub(super) program_cpu: AtomicU32,
    /// Place where the progress thread may live.
    pub(super) cores: OnceLock<WorkerCores>,
    /// Whether lending paid: a progress thread that lost its core while it had a transfer in hand
    /// made a thread of the program wait for it.
    release_backoff: Backoff,
    /// When a thread that came back found the progress thread inside.
    reclaim_delayed_at: Mutex<Option<Instant>>,
    /// What moments are told from.
    epoch: Instant,
    pub(super) phase: AtomicU8,
    pub(super) wakeup_words: OnceLock<WakeupWords>,
    pub(super) worker_maker: OnceLock<WorkerMaker>,
    /// The queue of the turns, and the worker that takes them.
    pub(super) tasks: Mutex<Option<Tasks>>,
    /// One thread promised to be alone: its locks may be elided whenever the gate is kept.
    pub promise: Mutex<Option<SingleThreaded>>,
}

/// Words that the releasing thread and the progress thread write with each release.
pub(super) struct OwnershipState {
    pub owner: ProgressOwner,
    /// The progress thread found nothing open any more.
    pub(super) nothing_left: AtomicBool,
}

impl<R, S> AsyncProgress<R, S> {
    pub(super) fn new() -> Self {
        Self {
            ownership: CachePadded(OwnershipState {
                owner: ProgressOwner::new(),
                nothing_left: AtomicBool::new(false),
            }),
            spin: CachePadded(SpinControl::new()),
            open_operations: Mutex::default(),
            open_in_other_shards: Mutex::default(),
            leader_relied_on: AtomicBool::new(false),
            any_open: Arc::new(CachePadded(AtomicBool::new(false))),
            needs_transport_wakeup: AtomicBool::new(false),
            transport_patient: AtomicBool::new(false),
            transport_armed: AtomicBool::new(false),
            release_counter: ReleaseCounter::new(),
            releases_seen: AtomicU32::new(0),
            postponed: AtomicU32::new(0),
            idle_rounds: AtomicU32::new(0),
            call_sites: CallSiteProfile::default(),
            program_cpu: AtomicU32::new(u32::MAX),
            cores: OnceLock::new(),
            release_backoff: Backoff::default(),
            reclaim_delayed_at: Mutex::default(),
            epoch: Instant::now(),
            phase: AtomicU8::new(OFF),
            wakeup_words: OnceLock::new(),
            worker_maker: OnceLock::new(),
            tasks: Mutex::default(),
            promise: Mutex::default(),
        }
    }

    /// Returns whether something may be open that needs asynchronous progress.
    #[inline]
    pub(super) fn is_any_open(&self) -> bool {
        self.any_open.load(Ordering::Relaxed)
    }

    /// Returns whether a progress thread found nothing open any more, since ownership was last
    /// released.
    #[inline]
    pub(super) fn is_nothing_left(&self) -> bool {
        self.ownership.nothing_left.load(Ordering::SeqCst)
    }

    /// The time since this was made.
    #[inline]
    pub(super) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// The leader of several threads leaves: whether another relied on it to lend what that left
    /// open.
    pub(super) fn take_leader_relied_on(&self) -> bool {
        self.leader_relied_on.load(Ordering::SeqCst)
            && self.leader_relied_on.swap(false, Ordering::SeqCst)
    }
}

impl<R: Transport + Send + 'static, S: Environment + 'static> LockedEngine<R, S> {
    /// From now on what the program leaves open is advanced by a thread of its own, on `cpus`, or
    /// where the calling thread may run now. It is started when first needed. Does nothing where
    /// the transport has no way to call it.
    pub fn enable_async_progress(self: &Arc<Self>, cpus: Option<CpuSet>) {
        let Some(memory) = self.lock_engine().transport().progress_words(self.me) else {
            return;
        };
        let words = WakeupWords {
            word: memory.word(0),
            all: memory.word(4),
        };
        let (host, its_words, rest) = (
            Arc::downgrade(self),
            words.clone(),
            self.surroundings.progress_thread_rest(),
        );
        let cores = WorkerCores::of(cpus);
        let _ = self.async_progress.cores.set(cores.clone());
        let maker = move || {
            let turns = EngineDuty {
                host: host.clone(),
                words: its_words.clone(),
                rest,
            };
            Tasks::on_call(cores.clone(), turns)
        };
        if self.async_progress.wakeup_words.set(words).is_ok()
            && self
                .async_progress
                .worker_maker
                .set(Box::new(maker))
                .is_ok()
        {
            self.async_progress.phase.store(READY, Ordering::Release);
        }
    }
}

impl<R: Transport + Send, S: Environment> LockedEngine<R, S> {
    /// Ends the progress thread, until something is left open again. Called by a thread that is in
    /// MPI, the last one.
    pub fn stop_async_progress(&self) {
        while !self.reclaim_progress() {
            std::thread::yield_now();
        }
        let tasks = lock(&self.async_progress.tasks).take();
        if let Some(tasks) = tasks {
            tasks.stop();
            // It may have been awake.
            self.async_progress.spin.flag.end();
            self.async_progress.phase.store(READY, Ordering::Release);
        }
        lock(&self.async_progress.open_operations).clear();
        lock(&self.async_progress.open_in_other_shards).clear();
        self.async_progress.any_open.store(false, Ordering::SeqCst);
    }

    /// The program goes on with this operation open.
    #[cold]
    #[inline(never)]
    pub(super) fn leave_request_open(&self, request: Request) {
        if self.async_progress.phase.load(Ordering::Acquire) == OFF {
            return;
        }
        let mut open = lock(&self.async_progress.open_operations);
        let shard = self.lock_engine();
        let Some(site) = shard.pending_call_site(request) else {
            return;
        };
        let first = open.add(request, |request| shard.is_complete(request));
        let alone = first && self.steppers.open() == 0;
        if shard.needs_polling(request) {
            self.async_progress
                .needs_transport_wakeup
                .store(true, Ordering::SeqCst);
        }
        drop((shard, open));
        self.left(site, WakeupScope::Transfers, alone);
    }

    /// The program goes on while `open` steppers do, of which the last was made at `site`.
    #[cold]
    #[inline(never)]
    pub(super) fn leave_steppers_open(&self, site: u64, open: u32) {
        if self.async_progress.phase.load(Ordering::Acquire) != OFF {
            let alone = open == 1 && !self.is_request_open();
            self.left(site, WakeupScope::Everything, alone);
        }
    }

    /// Something is open. `alone`: nothing else is.
    pub(super) fn left(&self, site: u64, what: WakeupScope, alone: bool) {
        if !self.async_progress.any_open.load(Ordering::SeqCst) {
            self.async_progress.any_open.store(true, Ordering::SeqCst);
        }
        let now = self.moment();
        let pays = self.async_progress.call_sites.leave(site, now, alone);
        self.async_progress.spin.note_open(now.at);
        // Once lent, more that is open costs next to nothing.
        let lends =
            pays || self.async_progress.ownership.owner.is_released() || self.must_release();
        if lends {
            self.async_progress.spin.note_release(now.at);
            // To one that is awake that takes no time.
            if !self.release_progress(what) {
                self.async_progress.call_sites.go(self.moment());
            }
        }
    }

    /// Returns whether ownership is released whatever it costs.
    fn must_release(&self) -> bool {
        self.steppers.serve_peers() || self.surroundings.releases_always()
    }

    fn moment(&self) -> ProfileTime {
        match self.surroundings.takeover_delay() {
            None => ProfileTime {
                at: self.async_progress.now(),
                worth: if self.async_progress.spin.is_worker_near() {
                    RELEASE_WORTH_AWAKE
                } else {
                    RELEASE_WORTH
                },
            },
            Some(grace) => ProfileTime {
                at: sys::coarse_time(),
                // Whatever the progress thread had to do counts.
                worth: grace,
            },
        }
    }

    /// The program waits for something: how long it was away is learned from.
    #[inline]
    pub(super) fn note_return(&self) {
        if self.async_progress.call_sites.is_program_away() {
            self.async_progress.call_sites.back(self.moment());
        }
    }

    /// A progress thread was inside when the wait began, and may have left.
    #[cold]
    #[inline(never)]
    pub(super) fn reclaim_late(&self) {
        if self.reclaim_progress()
            && let Some(since) = lock(&self.async_progress.reclaim_delayed_at).take()
        {
            self.async_progress.release_backoff.came(since);
        }
    }

    /// The rank's only thread waits, and left something open before.
    #[cold]
    #[inline(never)]
    pub(super) fn reclaim_on_return(&self) {
        self.note_return();
        if !self.async_progress.ownership.owner.is_held_by_program() && !self.reclaim_progress() {
            *lock(&self.async_progress.reclaim_delayed_at) = Some(Instant::now());
        }
    }

    /// Lets the progress thread in, and has peers call it, unless (`true`) it is awake and sees
    /// that itself.
    pub(super) fn release_progress(&self, what: WakeupScope) -> bool {
        let kept = self.async_progress.ownership.owner.is_held_by_program();
        if kept && self.async_progress.release_backoff.begin().is_none() && !self.must_release() {
            return false;
        }
        let Some(words) = self.wakeup_words() else {
            return false;
        };
        let call = words.call();
        if self.lock.is_shared() {
            // The leader looks at this after it has ceased to be one.
            self.async_progress
                .leader_relied_on
                .store(true, Ordering::SeqCst);
            if self.waiters.has_leader() {
                return false;
            }
        } else if kept {
            // Small messages take the lock from now on, as everything does.
            self.lock_engine().allow_slot_batches(false);
            self.lock.share();
        }
        // What the progress thread looks at all the time is written only if it changes.
        let cpu = sys::cpu();
        if self.async_progress.program_cpu.load(Ordering::Relaxed) != cpu {
            self.async_progress
                .program_cpu
                .store(cpu, Ordering::Relaxed);
        }
        if self.async_progress.is_nothing_left() {
            self.async_progress
                .ownership
                .nothing_left
                .store(false, Ordering::SeqCst);
        }
        while !self.async_progress.ownership.owner.release() {
            // It has gone since it was asked for.
            if self.wakeup_words().is_none() {
                self.reclaim_progress();
                return false;
            }
        }
        if self.surroundings.takeover_delay().is_some() {
            // One that looks already will see this, too.
            if self.async_progress.release_counter.count() {
                call.wake_always();
            }
            return false;
        }
        if self.async_progress.spin.see() {
            return true;
        }
        if self.async_progress.spin.should_wake_worker() {
            call.wake_always();
        }
        let known = call.is_armed() && what == WakeupScope::Transfers;
        if !known {
            self.arm_wakeup(call, what);
        }
        let mut shard = self.lock_engine();
        // Who sleeps does not know by when it has to look.
        let soon = self
            .arm_transport_wakeup(&mut shard, what)
            .is_some_and(|limit| limit < POLL_DUE_SOON);
        // What came before that called nobody.
        if known && !soon && !shard.has_work() {
            self.unlock(shard, false);
            return false;
        }
        let before = shard.completions();
        let looked = shard.poll_only();
        let (after, work) = (shard.completions(), shard.has_work());
        self.unlock(shard, after != before);
        // News that were taken here come to nobody else.
        let told = self.steppers.step_unless_many(after, self);
        if work && looked.bytes < HANDED_OVER_FROM {
            self.advance(ProgressCaller::Program, LockPolicy::IfFree);
        }
        // What came there before the words were armed called nobody either.
        let more = self.poll_released_shards();
        if looked.more || soon || more || !told {
            call.ring(WakeupScope::Transfers);
        } else {
            self.wake_worker_for_work();
        }
        false
    }

    /// A thread of the program may be about to go away from work that is left: the progress thread
    /// is called, if nobody else sees to it.
    #[inline]
    pub(super) fn wake_worker_for_work(&self) {
        if self.async_progress.ownership.owner.is_released() && !self.waiters.has_leader() {
            self.wake_worker_if_work();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_worker_if_work(&self) {
        if self.lock_engine().has_work()
            && let Some(words) = self.async_progress.wakeup_words.get()
        {
            // One that is at work looks again when it has armed this.
            words.call().ring(WakeupScope::Transfers);
        }
    }

    /// Keeps the progress thread out: the caller does its work itself. `false`: it is inside and
    /// was asked to leave; until it does, both are at the engine.
    #[cold]
    #[inline(never)]
    pub(super) fn reclaim_progress(&self) -> bool {
        let kept = self.async_progress.ownership.owner.reclaim();
        self.disarm_wakeup();
        if kept
            && !self.lock.is_shared()
            && !self.is_traced()
            && let Some(promise) = *lock(&self.async_progress.promise)
        {
            self.lock.elide(promise);
            self.lock_engine().allow_slot_batches(true);
        }
        kept
    }

    /// Disarms the wake-up words: a thread leads now, so nobody needs to wake the progress thread.
    #[cold]
    #[inline(never)]
    pub(super) fn disarm_wakeup(&self) {
        if let Some(words) = self.async_progress.wakeup_words.get() {
            words.call().disarm();
        }
        if self.async_progress.transport_patient.load(Ordering::SeqCst) {
            self.set_patient(false);
        }
    }

    /// A thread has waited and goes back to the program: what is still open is lent again.
    #[cold]
    #[inline(never)]
    pub(super) fn release_again(&self) {
        // It was inside all the time, and in nobody's way.
        *lock(&self.async_progress.reclaim_delayed_at) = None;
        if let Some(what) = self.open_scope() {
            return self.left(REOPENED_SITE, what, false);
        }
        self.async_progress.any_open.store(false, Ordering::SeqCst);
        if !self.async_progress.ownership.owner.is_held_by_program() && !self.reclaim_progress() {
            // The next call tries again.
            self.async_progress
                .ownership
                .nothing_left
                .store(true, Ordering::SeqCst);
        }
        // Another thread may have left something open at this moment, before that was said.
        if self.lock.is_shared()
            && let Some(what) = self.open_scope()
        {
            self.left(REOPENED_SITE, what, false);
        }
    }

    /// The lock is a real one because ownership is released. `true`: not any more, since nothing is
    /// open now.
    #[cold]
    #[inline(never)]
    pub(super) fn reclaim_if_nothing_open(&self) -> bool {
        if self.lock.is_shared()
            || !self
                .async_progress
                .ownership
                .nothing_left
                .load(Ordering::SeqCst)
        {
            return false;
        }
        if self.open_scope().is_some() {
            // The progress thread found that before this thread left something open, and said it
            // afterwards.
            self.async_progress
                .ownership
                .nothing_left
                .store(false, Ordering::SeqCst);
            return false;
        }
        self.reclaim_progress()
    }

    /// Ownership is released to a progress thread that is neither awake nor called by anybody, and
    /// no thread polls in its place.
    pub(super) fn is_worker_unreachable(&self) -> bool {
        let lending = &self.async_progress;
        let is_armed = || {
            lending
                .wakeup_words
                .get()
                .is_some_and(|words| words.call().is_armed())
        };
        // The role of the caller before the looks at the progress thread: a spin that ends
        // meanwhile finds nobody there. SYNC(hands-vigil).
        !lending.ownership.owner.is_held_by_program()
            && self.surroundings.takeover_delay().is_none()
            && !self.waiters.has_leader()
            && !lending.spin.flag.is_spinning()
            && !is_armed()
    }

    /// Returns whether something was noted as open, and not found to be over. Asks no engine.
    pub(super) fn is_anything_noted(&self) -> bool {
        self.steppers.open() > 0
            || !lock(&self.async_progress.open_operations).is_empty()
            || !lock(&self.async_progress.open_in_other_shards).is_empty()
    }

    fn is_request_open(&self) -> bool {
        let mut open = lock(&self.async_progress.open_operations);
        if !open.is_empty() {
            let shard = self.lock_engine();
            if !open.goes_on(|request| shard.is_complete(request))
                && self
                    .async_progress
                    .needs_transport_wakeup
                    .load(Ordering::SeqCst)
            {
                self.async_progress
                    .needs_transport_wakeup
                    .store(false, Ordering::SeqCst);
            }
        }
        let here = !open.is_empty();
        drop(open);
        here || self.is_request_open_in_other_shards()
    }

    /// For what the progress thread is to be called, if for anything.
    pub(super) fn open_scope(&self) -> Option<WakeupScope> {
        let any = self.is_request_open();
        match self.steppers.open() {
            0 => any.then_some(WakeupScope::Transfers),
            _ => Some(WakeupScope::Everything),
        }
    }
}
