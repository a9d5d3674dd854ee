//! The workers: where they may live, who sleeps, how they are called, started and ended.
//!
//! At most one worker per home; one is started when a submission finds nobody awake and nobody asleep who could come. Shared by all threads; the lock is only taken
//! to start and to end threads. A thread that the system refuses is asked for again after [`START_AGAIN`], not at every submission.

use crate::limits::{STACK, START_AGAIN, STOP_LIMIT};
use crate::sys;
use crate::tasks::on_call::Turns;
use crate::tasks::scheduler::Scheduler;
use crate::tasks::{Task, on_call, worker};
use garonne_sync::futex;
use garonne_sync::pad::CachePadded;
use garonne_sync::roster::Bits;
use garonne_topology::machine::allowed;
use garonne_topology::{CpuSet, Tree, quota};
use std::ffi::CString;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How the kernel treats workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// They run where nobody else wants to.
    #[default]
    Idle,
    /// As all other threads, for cores that are set apart for them.
    Ordinary,
}

/// See [`offer`].
static OFFERED: OnceLock<CpuSet> = OnceLock::new();

/// Cores beside this process's own that its workers may use: the spare cores of a bound rank's NUMA node. Counts for tasks that are made afterwards; a second offer does not.
pub fn offer(cpus: CpuSet) {
    let _ = OFFERED.set(cpus);
}

/// What tasks run on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The machine whose areas get queues.
    pub tree: Tree,
    /// Where a worker may live, one each.
    pub homes: Vec<CpuSet>,
    /// What the kernel thinks of workers.
    pub class: Class,
    /// Looks for work of a worker or waiter before it sleeps; 0 where more threads than cores want to run.
    pub spins: u32,
}

impl Settings {
    /// For this process: a worker may live on each core that it may use, and on those that it was offered ([`offer`]), as far as its quota of processor time goes.
    pub fn here() -> Self {
        let tree = match OFFERED.get() {
            Some(cpus) => Tree::over(&allowed().union(cpus)),
            None => Tree::discover(),
        };
        let cores = tree.cores();
        let granted = quota::cpu_milli().map_or(cores, |milli| (milli as usize).div_ceil(1000));
        let homes = tree.areas()[..cores].iter().map(|core| core.cpus.clone());
        Self {
            homes: homes.take(granted.max(1)).collect(),
            tree,
            class: Class::Idle,
            spins: crate::limits::WORKER_SPINS,
        }
    }
}

/// How many workers there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Started so far.
    pub started: usize,
    /// Asleep now.
    pub asleep: usize,
    /// Times that the system refused one.
    pub refused: u32,
}

#[derive(Debug)]
pub(crate) struct WorkerPool {
    pub(crate) homes: Vec<Arc<Home>>,
    /// Homes that a worker of an area can have, as a bitmap over `homes`, by area.
    reach: Vec<Box<[u64]>>,
    /// Workers asleep that may be called. Whoever clears a bit wakes its worker. SYNC(rack-poller).
    sleepers: Bits,
    started: Bits,
    class: Class,
    hands: Mutex<Hands>,
    refused: AtomicU32,
}

/// Where a worker lives, and its thread if it has one.
pub(crate) struct Home {
    pub(crate) cpus: CpuSet,
    /// The core that it starts on.
    pub(crate) core: usize,
    number: usize,
    /// Changes when the worker is woken, unless it is on call.
    word: CachePadded<AtomicU32>,
    turns: OnceLock<Arc<Task<Turns>>>,
    scheduler: OnceLock<Weak<Scheduler>>,
    thread: Mutex<Option<sys::Started>>,
    /// Not zero: its thread works no more.
    left: AtomicU32,
}

impl std::fmt::Debug for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Home")
            .field("cpus", &self.cpus)
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

/// Why a worker on call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All are told to leave.
    Told,
    /// It was not needed; another may be there already.
    Retired,
}

#[derive(Debug, Default)]
struct Hands {
    refused_at: Option<Instant>,
    over: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Home {
    fn new(core: usize, cpus: &CpuSet, number: usize) -> Self {
        Self {
            core,
            cpus: cpus.clone(),
            number,
            word: CachePadded(AtomicU32::new(0)),
            turns: OnceLock::new(),
            scheduler: OnceLock::new(),
            thread: Mutex::new(None),
            left: AtomicU32::new(0),
        }
    }

    /// Its worker is called for this task from now on.
    pub(crate) fn put_on_call(&self, task: Arc<Task<Turns>>) {
        let _ = self.turns.set(task);
    }

    fn wake(&self) {
        match self.turns.get() {
            Some(task) => task.work().get().rouse(),
            None => {
                self.word.fetch_add(1, Ordering::SeqCst);
                futex::wake(&self.word, 1);
            }
        }
    }

    /// The worker goes if `may` says so: nobody waits for it, and another can be started at once.
    pub(crate) fn retires(&self, scheduler: &Scheduler, may: impl FnOnce() -> bool) -> bool {
        let pool = &scheduler.pool;
        // Between them nobody starts one.
        let hands = lock(&pool.hands);
        if hands.over || !may() {
            return false;
        }
        pool.started.clear(self.number);
        if let Some(thread) = lock(&self.thread).take() {
            thread.detach();
        }
        true
    }

    /// Waits for the thread until `deadline`. It was told to leave.
    fn end(&self, deadline: Instant) {
        let Some(thread) = lock(&self.thread).take() else {
            return;
        };
        // A task of a worker may be the one that ends everything.
        while !thread.is_me() && self.left.load(Ordering::Acquire) == 0 {
            let Some(limit) = deadline.checked_duration_since(Instant::now()) else {
                break;
            };
            futex::wait(&self.left, 0, Some(limit));
        }
        // Acquire: its work is done. SYNC(worker-left).
        match self.left.load(Ordering::Acquire) {
            0 => thread.detach(),
            _ => thread.join(),
        }
    }
}

impl sys::Work for Home {
    fn work(self: Arc<Self>) {
        if let Some(scheduler) = self.scheduler.get().and_then(Weak::upgrade) {
            match self.turns.get() {
                Some(task) => {
                    sys::name_thread(c"garonne-hands");
                    // Elsewhere it is as right, only slower.
                    let _ = sys::bind(&self.cpus);
                    if on_call::attend(&scheduler, &self, task) == End::Retired {
                        return;
                    }
                }
                None => {
                    if let Ok(name) = CString::new(format!("garonne-task-{}", self.number)) {
                        sys::name_thread(&name);
                    }
                    if scheduler.pool.class == Class::Idle {
                        sys::enter_idle_class();
                    }
                    worker::work(&scheduler, self.number);
                }
            }
        }
        // Release: SYNC(worker-left).
        self.left.store(1, Ordering::Release);
        futex::wake(&self.left, u32::MAX);
    }
}

impl WorkerPool {
    pub(crate) fn new(tree: &Tree, homes: &[CpuSet], class: Class) -> Self {
        let homes = homes.iter().filter_map(|cpus| {
            let core = cpus.iter().find_map(|cpu| tree.core_of(cpu))?;
            Some((core, cpus))
        });
        let homes: Vec<Arc<Home>> = homes
            .enumerate()
            .map(|(number, (core, cpus))| Arc::new(Home::new(core, cpus, number)))
            .collect();
        let words = homes.len().div_ceil(64);
        let reach = tree.areas().iter().map(|area| {
            let mut mask = vec![0u64; words].into_boxed_slice();
            for (index, home) in homes.iter().enumerate() {
                if home.cpus.meets(&area.cpus) {
                    mask[index / 64] |= 1 << (index % 64);
                }
            }
            mask
        });
        Self {
            reach: reach.collect(),
            sleepers: Bits::new(homes.len()),
            started: Bits::new(homes.len()),
            class,
            hands: Mutex::default(),
            refused: AtomicU32::new(0),
            homes,
        }
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// Wakes a worker for a queue, the nearest to `here` that there is. If none sleeps, the home of one that is to be started. Takes no lock.
    pub(crate) fn call(&self, tree: &Tree, area: usize, here: usize) -> Option<usize> {
        for near in tree.path(here) {
            for word in 0..self.reach[area].len() {
                loop {
                    let able = self.sleepers.word(word) & self.reach[near][word] & self.reach[area][word];
                    if able == 0 {
                        break;
                    }
                    let home = word * 64 + able.trailing_zeros() as usize;
                    if self.sleepers.clear(home) {
                        self.wake(home);
                        return None;
                    }
                }
            }
        }
        for near in tree.path(here) {
            for word in 0..self.reach[area].len() {
                let new = !self.started.word(word) & self.reach[near][word] & self.reach[area][word];
                if new != 0 {
                    return Some(word * 64 + new.trailing_zeros() as usize);
                }
            }
        }
        // All are awake: one of them looks once more before it sleeps.
        None
    }

    fn wake(&self, home: usize) {
        self.homes[home].wake();
    }

    /// As `try_start`, unless the system refused one just now.
    pub(crate) fn start(&self, scheduler: &Arc<Scheduler>, home: usize) {
        if lock(&self.hands)
            .refused_at
            .is_none_or(|at| at.elapsed() >= START_AGAIN)
        {
            // It is counted, and asked for again later.
            let _ = self.try_start(scheduler, home);
        }
    }

    /// Starts the worker of a home, unless it was started.
    pub(crate) fn try_start(&self, scheduler: &Arc<Scheduler>, home: usize) -> io::Result<()> {
        let mut hands = lock(&self.hands);
        if hands.over || !self.started.set(home) {
            return Ok(());
        }
        let home = &self.homes[home];
        let _ = home.scheduler.set(Arc::downgrade(scheduler));
        home.left.store(0, Ordering::Relaxed);
        // Held until it is known which thread it is: one that leaves at once waits for that.
        let mut thread = lock(&home.thread);
        match sys::start(home, STACK) {
            Ok(started) => *thread = Some(started),
            Err(error) => {
                self.started.clear(home.number);
                hands.refused_at = Some(Instant::now());
                self.refused.fetch_add(1, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(())
    }

    /// A worker is about to sleep. It looks for work once more, then calls `sleep` with what is returned here, or `awake`.
    pub(crate) fn drowsy(&self, home: usize) -> u32 {
        let seen = self.homes[home].word.load(Ordering::SeqCst);
        self.sleepers.set(home);
        seen
    }

    /// Sleeps until called or until `limit`. `true`: called.
    pub(crate) fn sleep(&self, home: usize, seen: u32, limit: Option<Duration>) -> bool {
        futex::wait(&self.homes[home].word, seen, limit);
        self.awake(home);
        self.homes[home].word.load(Ordering::SeqCst) != seen
    }

    /// The worker is awake, whoever woke it.
    pub(crate) fn awake(&self, home: usize) {
        self.sleepers.clear(home);
    }

    pub(crate) fn worker_counts(&self) -> WorkerCounts {
        let count = |bits: &Bits| {
            let words = 0..self.homes.len().div_ceil(64);
            words.map(|word| bits.word(word).count_ones() as usize).sum()
        };
        WorkerCounts {
            started: count(&self.started),
            asleep: count(&self.sleepers),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Wakes all so that they leave, and waits a moment for them.
    pub(crate) fn stop(&self) {
        lock(&self.hands).over = true;
        self.homes.iter().for_each(|home| home.wake());
        let deadline = Instant::now() + STOP_LIMIT;
        self.homes.iter().for_each(|home| home.end(deadline));
    }
}

/// Joins threads that end by themselves; after `limit` they are left to it.
pub(crate) fn leave(threads: Vec<JoinHandle<()>>, limit: Duration) {
    let deadline = Instant::now() + limit;
    for thread in threads {
        // A task of a worker may be the one that ends everything.
        let own = thread.thread().id() == std::thread::current().id();
        while !own && !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(100));
        }
        if !own && thread.is_finished() {
            let _ = thread.join();
        }
    }
}
