//! Lending hands: what the program leaves open while it computes, a helper advances: a worker on
//! call (`tasks::progress_worker`), whose task is a turn at the engine.
//!
//! Part of `locked_engine`. A call that returns with an operation open that needs hands (a large
//! message, a collective) says so with `leave_pending` or `attach_stepper`. From then on the engine's lock is
//! a real one, the gate is lent, and peers call the helper when what they send needs an answer. A
//! thread that waits takes all that back before it polls, so that nobody is called in vain and its
//! locks cost nothing again. With several threads in MPI the locks are real anyway, and the poller
//! only takes back the call. Nothing here is paid by a program that leaves nothing open, or only
//! small messages.
//!
//! Where no core is to spare ([`Environment::grace`]) a helper that is called takes its core from
//! a rank that computes, for what the rank would do itself soon. There nobody calls it at first: it
//! looks by itself, and acts on what the program has left alone for longer. From then on, until the
//! program comes back, it is called.

use super::open_operations::OpenOperations;
use super::progress::LockPolicy;
use super::progress_spin::SpinControl;
use super::progress_turn::EngineDuty;
use super::progress_wakeup::WakeupWords;
use super::{LockedEngine, ProgressCaller, lock};
use crate::backoff::Backoff;
use crate::call_site_profile::{AGAIN, CallSiteProfile, ProfileTime};
use crate::environment::Environment;
use crate::limits::{HANDED_OVER_FROM, LOOKS_SOON, WORTH, WORTH_AWAKE};
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

/// There is no helper and never will be.
pub(super) const OFF: u8 = 0;
/// A helper can be started.
const READY: u8 = 1;
/// There is one.
pub(super) const RUNNING: u8 = 2;

pub(super) type WorkerMaker = Box<dyn Fn() -> Result<Tasks, tasks::Error> + Send + Sync>;

/// Operations of another shard, and its host.
pub(super) type ShardOperations<R, S> = (Arc<LockedEngine<R, S>>, OpenOperations);

/// See the module's paragraph.
pub(super) struct AsyncProgress<R, S> {
    /// With lines of their own: a helper may look at them all the time.
    pub door: CachePadded<OwnershipState>,
    pub(super) vigils: CachePadded<SpinControl>,
    /// Operations left open that need hands.
    pub(super) open: Mutex<OpenOperations>,
    /// Those of further shards, by host: a rank has one helper.
    pub(super) open_beside: Mutex<Vec<ShardOperations<R, S>>>,
    /// A thread left something open while another polled.
    relied_on: AtomicBool,
    /// Something was left open, and when somebody last looked was not over.
    pub(super) any_open: Arc<CachePadded<AtomicBool>>,
    /// Of which some may need hands for which no peer can call.
    pub(super) afar: AtomicBool,
    /// The rail was told that whoever polls takes its time from the program.
    pub(super) patient: AtomicBool,
    /// The rail rings for these since the words were armed last.
    pub(super) rings: AtomicBool,
    pub(super) lendings: ReleaseCounter,
    /// How many of those the helper knew when it last looked by itself, the looks in a row at which
    /// there were more, and those with nothing lent.
    pub(super) known: AtomicU32,
    pub(super) put_off: AtomicU32,
    pub(super) vain: AtomicU32,
    pub(super) habit: CallSiteProfile,
    /// The processor that the program's thread was on when it lent.
    pub(super) cpu: AtomicU32,
    /// Where the helper may live.
    pub(super) cores: OnceLock<WorkerCores>,
    /// Whether lending paid: a helper that lost its core while it had a transfer in hand made a
    /// thread of the program wait for it.
    trust: Backoff,
    /// When a thread that came back found the helper inside.
    hindered: Mutex<Option<Instant>>,
    /// What moments are told from.
    epoch: Instant,
    pub(super) phase: AtomicU8,
    pub(super) words: OnceLock<WakeupWords>,
    pub(super) maker: OnceLock<WorkerMaker>,
    /// The queue of the turns, and the worker that takes them.
    pub(super) tasks: Mutex<Option<Tasks>>,
    /// One thread promised to be alone: its locks may be elided whenever the gate is kept.
    pub promise: Mutex<Option<SingleThreaded>>,
}

/// What lender and helper both write with each lending.
pub(super) struct OwnershipState {
    pub gate: ProgressOwner,
    /// The helper found nothing open any more.
    pub(super) all_over: AtomicBool,
}

impl<R, S> AsyncProgress<R, S> {
    pub(super) fn new() -> Self {
        Self {
            door: CachePadded(OwnershipState {
                gate: ProgressOwner::new(),
                all_over: AtomicBool::new(false),
            }),
            vigils: CachePadded(SpinControl::new()),
            open: Mutex::default(),
            open_beside: Mutex::default(),
            relied_on: AtomicBool::new(false),
            any_open: Arc::new(CachePadded(AtomicBool::new(false))),
            afar: AtomicBool::new(false),
            patient: AtomicBool::new(false),
            rings: AtomicBool::new(false),
            lendings: ReleaseCounter::new(),
            known: AtomicU32::new(0),
            put_off: AtomicU32::new(0),
            vain: AtomicU32::new(0),
            habit: CallSiteProfile::default(),
            cpu: AtomicU32::new(u32::MAX),
            cores: OnceLock::new(),
            trust: Backoff::default(),
            hindered: Mutex::default(),
            epoch: Instant::now(),
            phase: AtomicU8::new(OFF),
            words: OnceLock::new(),
            maker: OnceLock::new(),
            tasks: Mutex::default(),
            promise: Mutex::default(),
        }
    }

    /// Whether something may be open that needs hands.
    #[inline]
    pub(super) fn is_any_open(&self) -> bool {
        self.any_open.load(Ordering::Relaxed)
    }

    /// Whether a helper found nothing open any more, since hands were last lent.
    #[inline]
    pub(super) fn is_all_over(&self) -> bool {
        self.door.all_over.load(Ordering::SeqCst)
    }

    /// The time since this was made.
    #[inline]
    pub(super) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// The poller of several threads leaves: whether another relied on it to lend what that left
    /// open.
    pub(super) fn was_relied_on(&self) -> bool {
        self.relied_on.load(Ordering::SeqCst) && self.relied_on.swap(false, Ordering::SeqCst)
    }
}

impl<R: Transport + Send + 'static, S: Environment + 'static> LockedEngine<R, S> {
    /// From now on what the program leaves open is advanced by a thread of its own, on `cpus`, or
    /// where the calling thread may run now. It is started when first needed. Does nothing where
    /// the rail has no way to call it.
    pub fn lend_hands(self: &Arc<Self>, cpus: Option<CpuSet>) {
        let Some(memory) = self.enter().rail().hands(self.me) else {
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
        let _ = self.lending.cores.set(cores.clone());
        let maker = move || {
            let turns = EngineDuty {
                host: host.clone(),
                words: its_words.clone(),
                rest,
            };
            Tasks::on_call(cores.clone(), turns)
        };
        if self.lending.words.set(words).is_ok() && self.lending.maker.set(Box::new(maker)).is_ok()
        {
            self.lending.phase.store(READY, Ordering::Release);
        }
    }
}

impl<R: Transport + Send, S: Environment> LockedEngine<R, S> {
    /// Ends the helper, until something is left open again. Called by a thread that is in MPI, the
    /// last one.
    pub fn keep_hands(&self) {
        while !self.take_back() {
            std::thread::yield_now();
        }
        let tasks = lock(&self.lending.tasks).take();
        if let Some(tasks) = tasks {
            tasks.stop();
            // It may have been awake.
            self.lending.vigils.kept.end();
            self.lending.phase.store(READY, Ordering::Release);
        }
        lock(&self.lending.open).clear();
        lock(&self.lending.open_beside).clear();
        self.lending.any_open.store(false, Ordering::SeqCst);
    }

    /// The program goes on with this operation open.
    #[cold]
    #[inline(never)]
    pub(super) fn left_open(&self, request: Request) {
        if self.lending.phase.load(Ordering::Acquire) == OFF {
            return;
        }
        let mut open = lock(&self.lending.open);
        let shard = self.enter();
        let Some(site) = shard.open_site(request) else {
            return;
        };
        let first = open.add(request, |request| shard.is_complete(request));
        let alone = first && self.stepping.load(Ordering::Acquire) == 0;
        if shard.wants_calls(request) {
            self.lending.afar.store(true, Ordering::SeqCst);
        }
        drop((shard, open));
        self.left(site, WakeupScope::Answers, alone);
    }

    /// The program goes on while `open` steppers do, of which the last was made at `site`.
    #[cold]
    #[inline(never)]
    pub(super) fn left_stepping(&self, site: u64, open: u32) {
        if self.lending.phase.load(Ordering::Acquire) != OFF {
            let alone = open == 1 && !self.is_request_open();
            self.left(site, WakeupScope::Everything, alone);
        }
    }

    /// Something is open. `alone`: nothing else is.
    pub(super) fn left(&self, site: u64, what: WakeupScope, alone: bool) {
        if !self.lending.any_open.load(Ordering::SeqCst) {
            self.lending.any_open.store(true, Ordering::SeqCst);
        }
        let now = self.moment();
        let pays = self.lending.habit.leave(site, now, alone);
        self.lending.vigils.note_left(now.at);
        // Once lent, more that is open costs next to nothing.
        let lends = pays || self.lending.door.gate.is_lent() || self.surroundings.releases_always();
        if lends {
            self.lending.vigils.note_lent(now.at);
            // To one that is awake that takes no time.
            if !self.lend(what) {
                self.lending.habit.go(self.moment());
            }
        }
    }

    fn moment(&self) -> ProfileTime {
        match self.surroundings.takeover_delay() {
            None => ProfileTime {
                at: self.lending.now(),
                worth: if self.lending.vigils.are_near() {
                    WORTH_AWAKE
                } else {
                    WORTH
                },
            },
            Some(grace) => ProfileTime {
                at: sys::coarse_time(),
                // Whatever the helper had to do counts.
                worth: grace,
            },
        }
    }

    /// The program waits for something: how long it was away is learned from.
    #[inline]
    pub(super) fn come_back(&self) {
        if self.lending.habit.is_away() {
            self.lending.habit.back(self.moment());
        }
    }

    /// A helper was inside when the wait began, and may have left.
    #[cold]
    #[inline(never)]
    pub(super) fn take_back_late(&self) {
        if self.take_back()
            && let Some(since) = lock(&self.lending.hindered).take()
        {
            self.lending.trust.came(since);
        }
    }

    /// The rank's only thread waits, and left something open before.
    #[cold]
    #[inline(never)]
    pub(super) fn take_back_from_away(&self) {
        self.come_back();
        if !self.lending.door.gate.is_kept() && !self.take_back() {
            *lock(&self.lending.hindered) = Some(Instant::now());
        }
    }

    /// Lets the helper in, and has peers call it, unless (`true`) it is awake and sees that itself.
    pub(super) fn lend(&self, what: WakeupScope) -> bool {
        let kept = self.lending.door.gate.is_kept();
        if kept && self.lending.trust.begin().is_none() && !self.surroundings.releases_always() {
            return false;
        }
        let Some(words) = self.words() else {
            return false;
        };
        let call = words.call();
        if self.shared.load(Ordering::Relaxed) {
            // The poller looks at this after it has ceased to be one.
            self.lending.relied_on.store(true, Ordering::SeqCst);
            if self.seats.has_leader() {
                return false;
            }
        } else if kept {
            // Small messages take the lock from now on, as everything does.
            self.enter().allow_runs(false);
            self.shard.share();
        }
        // What the helper looks at all the time is written only if it changes.
        let cpu = sys::cpu();
        if self.lending.cpu.load(Ordering::Relaxed) != cpu {
            self.lending.cpu.store(cpu, Ordering::Relaxed);
        }
        if self.lending.is_all_over() {
            self.lending.door.all_over.store(false, Ordering::SeqCst);
        }
        while !self.lending.door.gate.lend() {
            // It has gone since it was asked for.
            if self.words().is_none() {
                self.take_back();
                return false;
            }
        }
        if self.surroundings.takeover_delay().is_some() {
            // One that looks already will see this, too.
            if self.lending.lendings.count() {
                call.rouse();
            }
            return false;
        }
        if self.lending.vigils.see() {
            return true;
        }
        if self.lending.vigils.are_to_begin() {
            call.rouse();
        }
        let known = call.is_armed() && what == WakeupScope::Answers;
        if !known {
            self.arm(call, what);
        }
        let mut shard = self.enter();
        // Who sleeps does not know by when it has to look.
        let soon = self
            .have_rung(&mut shard, what)
            .is_some_and(|limit| limit < LOOKS_SOON);
        // What came before that called nobody.
        if known && !soon && !shard.has_work() {
            self.leave(shard, false);
            return false;
        }
        let before = shard.completions();
        let looked = shard.look();
        let (after, work) = (shard.completions(), shard.has_work());
        self.leave(shard, after != before);
        // News that were taken here come to nobody else.
        let told = self.step_if_few(after);
        if work && looked.bytes < HANDED_OVER_FROM {
            self.advance(ProgressCaller::Program, LockPolicy::IfFree);
        }
        // What came there before the words were armed called nobody either.
        let more = self.look_lent_beside();
        if looked.more || soon || more || !told {
            call.ring(WakeupScope::Answers);
        } else {
            self.hand_over();
        }
        false
    }

    /// A thread of the program may be about to go away from work that is left: the helper is
    /// called, if nobody else sees to it.
    #[inline]
    pub(super) fn hand_over(&self) {
        if self.lending.door.gate.is_lent() && !self.seats.has_leader() {
            self.hand_over_lent();
        }
    }

    #[cold]
    #[inline(never)]
    fn hand_over_lent(&self) {
        if self.enter().has_work()
            && let Some(words) = self.lending.words.get()
        {
            // One that is at work looks again when it has armed this.
            words.call().ring(WakeupScope::Answers);
        }
    }

    /// Keeps the helper out: the caller does its work itself. `false`: it is inside and was asked
    /// to leave; until it does, both are at the engine.
    #[cold]
    #[inline(never)]
    pub(super) fn take_back(&self) -> bool {
        let kept = self.lending.door.gate.take_back();
        self.polls_itself();
        if kept
            && !self.shared.load(Ordering::Relaxed)
            && !self.is_watched()
            && let Some(promise) = *lock(&self.lending.promise)
        {
            self.shard.elide(promise);
            self.enter().allow_runs(true);
        }
        kept
    }

    /// Of several threads one polls now: no need to call the helper.
    #[cold]
    #[inline(never)]
    pub(super) fn polls_itself(&self) {
        if let Some(words) = self.lending.words.get() {
            words.call().disarm();
        }
        if self.lending.patient.load(Ordering::SeqCst) {
            self.be_patient(false);
        }
    }

    /// A thread has waited and goes back to the program: what is still open is lent again.
    #[cold]
    #[inline(never)]
    pub(super) fn lend_again(&self) {
        // It was inside all the time, and in nobody's way.
        *lock(&self.lending.hindered) = None;
        if let Some(what) = self.still_open() {
            return self.left(AGAIN, what, false);
        }
        self.lending.any_open.store(false, Ordering::SeqCst);
        if !self.lending.door.gate.is_kept() && !self.take_back() {
            // The next call tries again.
            self.lending.door.all_over.store(true, Ordering::SeqCst);
        }
        // Another thread may have left something open at this moment, before that was said.
        if self.shared.load(Ordering::Relaxed)
            && let Some(what) = self.still_open()
        {
            self.left(AGAIN, what, false);
        }
    }

    /// The lock is a real one because hands are lent. `true`: not any more, since nothing is open
    /// now.
    #[cold]
    #[inline(never)]
    pub(super) fn nothing_lent(&self) -> bool {
        if self.shared.load(Ordering::Relaxed) || !self.lending.door.all_over.load(Ordering::SeqCst)
        {
            return false;
        }
        if self.still_open().is_some() {
            // The helper found that before this thread left something open, and said it afterwards.
            self.lending.door.all_over.store(false, Ordering::SeqCst);
            return false;
        }
        self.take_back()
    }

    /// Hands are lent to a helper that is neither awake nor called by anybody, and no thread polls
    /// in its place.
    pub(super) fn is_helper_uncalled(&self) -> bool {
        let lending = &self.lending;
        let is_armed = || {
            lending
                .words
                .get()
                .is_some_and(|words| words.call().is_armed())
        };
        // The role of the caller before the looks at the helper: a vigil that ends meanwhile finds
        // nobody there. SYNC(hands-vigil).
        !lending.door.gate.is_kept()
            && self.surroundings.takeover_delay().is_none()
            && !self.seats.has_leader()
            && !lending.vigils.kept.is_kept()
            && !is_armed()
    }

    /// Whether something was noted as open, and not found to be over. Asks no engine.
    pub(super) fn is_any_noted(&self) -> bool {
        self.stepping.load(Ordering::SeqCst) > 0
            || !lock(&self.lending.open).is_empty()
            || !lock(&self.lending.open_beside).is_empty()
    }

    fn is_request_open(&self) -> bool {
        let mut open = lock(&self.lending.open);
        if !open.is_empty() {
            let shard = self.enter();
            if !open.goes_on(|request| shard.is_complete(request))
                && self.lending.afar.load(Ordering::SeqCst)
            {
                self.lending.afar.store(false, Ordering::SeqCst);
            }
        }
        let here = !open.is_empty();
        drop(open);
        here || self.is_request_open_beside()
    }

    /// For what the helper is to be called, if for anything.
    pub(super) fn still_open(&self) -> Option<WakeupScope> {
        let any = self.is_request_open();
        match self.stepping.load(Ordering::SeqCst) {
            0 => any.then_some(WakeupScope::Answers),
            _ => Some(WakeupScope::Everything),
        }
    }
}
