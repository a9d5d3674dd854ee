//! The workers: where they may run, who sleeps, how they are woken, started and ended.
//!
//! There is at most one worker per home. One is started when a submission finds nobody awake, and
//! nobody asleep who could come. All threads share the pool; its lock is only taken to start and to
//! end threads. A thread that the system refuses is asked for again after [`START_AGAIN`], not at
//! every submission.

use crate::facade::{AtomicU32, Mutex, Ordering, lock};
use crate::library_thread::LibraryThread;
use crate::limits::{START_AGAIN, STOP_LIMIT};
use crate::sys;
use crate::tasks::progress_worker::DutyTask;
use crate::tasks::scheduler::Scheduler;
use crate::tasks::{Task, progress_worker, thread_spawner, worker};
use garonne_sync::futex;
use garonne_sync::idle_set::AtomicBitmap;
use garonne_sync::pad::CachePadded;
use garonne_topology::machine::allowed;
use garonne_topology::{CpuSet, Tree, quota};
use std::ffi::CString;
use std::io;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Way in which the kernel treats workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkerClass {
    /// Workers run where no other thread wants to.
    #[default]
    Idle,
    /// Workers run like all other threads, on cores that are set apart for them.
    Ordinary,
}

/// See [`offer`].
static OFFERED: OnceLock<CpuSet> = OnceLock::new();

/// Cores beside this process's own that its workers may use: the spare cores of a bound rank's NUMA
/// node. Counts for tasks that are made afterwards; a second offer does not.
pub fn offer(cpus: CpuSet) {
    let _ = OFFERED.set(cpus);
}

/// Processors and limits with which tasks run.
#[derive(Clone, Debug)]
pub struct TaskSettings {
    /// The machine whose areas get queues.
    pub tree: Tree,
    /// Place where a worker may live, one each.
    pub homes: Vec<CpuSet>,
    /// What the kernel thinks of workers.
    pub class: WorkerClass,
    /// Looks for work of a worker or waiter before it sleeps; 0 where more threads than cores want
    /// to run.
    pub spins: u32,
}

impl TaskSettings {
    /// For this process: a worker may live on each core that it may use, and on those that it was
    /// offered ([`offer`]), as far as its quota of processor time goes.
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
            class: WorkerClass::Idle,
            spins: crate::limits::WORKER_SPINS,
        }
    }
}

/// Numbers of workers.
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
    pub(crate) homes: Vec<Arc<WorkerHome>>,
    /// Homes that a worker of an area can have, as a bitmap over `homes`, by area.
    reach: Vec<Box<[u64]>>,
    /// Workers asleep that may be called. Whoever clears a bit wakes its worker. SYNC(rack-poller).
    sleepers: AtomicBitmap,
    started: AtomicBitmap,
    class: WorkerClass,
    state: Mutex<PoolState>,
    refused: AtomicU32,
}

/// Place where a worker lives, and its thread if it has one.
pub(crate) struct WorkerHome {
    pub(crate) cpus: CpuSet,
    /// The core that it starts on.
    pub(crate) core: usize,
    number: usize,
    /// Changes when the worker is woken, unless it is on call.
    word: CachePadded<AtomicU32>,
    acquisitions: OnceLock<Arc<Task<DutyTask>>>,
    scheduler: OnceLock<Weak<Scheduler>>,
    thread: LibraryThread,
}

impl std::fmt::Debug for WorkerHome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerHome")
            .field("cpus", &self.cpus)
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

/// Why a worker on demand ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerEnd {
    /// All are told to leave.
    Told,
    /// The worker was not needed; another may exist already.
    Retired,
}

#[derive(Debug, Default)]
struct PoolState {
    refused_at: Option<Instant>,
    over: bool,
}

impl WorkerHome {
    fn new(core: usize, cpus: &CpuSet, number: usize) -> Self {
        Self {
            core,
            cpus: cpus.clone(),
            number,
            word: CachePadded(AtomicU32::new(0)),
            acquisitions: OnceLock::new(),
            scheduler: OnceLock::new(),
            thread: LibraryThread::default(),
        }
    }

    /// Makes this task the worker's duty from now on.
    pub(crate) fn put_on_call(&self, task: Arc<Task<DutyTask>>) {
        let _ = self.acquisitions.set(task);
    }

    fn wake(&self) {
        match self.acquisitions.get() {
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
        let state = lock(&pool.state);
        if state.over || !may() {
            return false;
        }
        pool.started.clear(self.number);
        self.thread.retires();
        true
    }
}

impl sys::ThreadMain for WorkerHome {
    fn work(self: Arc<Self>) {
        if let Some(scheduler) = self.scheduler.get().and_then(Weak::upgrade) {
            match self.acquisitions.get() {
                Some(task) => {
                    sys::name_thread(c"garonne-hands");
                    // Elsewhere it is as right, only slower.
                    let _ = sys::bind(&self.cpus);
                    if progress_worker::attend(&scheduler, &self, task) == WorkerEnd::Retired {
                        return;
                    }
                }
                None => {
                    if let Ok(name) = CString::new(format!("garonne-task-{}", self.number)) {
                        sys::name_thread(&name);
                    }
                    if scheduler.pool.class == WorkerClass::Idle {
                        thread_spawner::set_worker_scheduler(&scheduler);
                        sys::enter_idle_class();
                    }
                    worker::work(&scheduler, self.number);
                }
            }
        }
        self.thread.leaves();
    }
}

impl WorkerPool {
    pub(crate) fn new(tree: &Tree, homes: &[CpuSet], class: WorkerClass) -> Self {
        let homes = homes.iter().filter_map(|cpus| {
            let core = cpus.iter().find_map(|cpu| tree.core_of(cpu))?;
            Some((core, cpus))
        });
        let homes: Vec<Arc<WorkerHome>> = homes
            .enumerate()
            .map(|(number, (core, cpus))| Arc::new(WorkerHome::new(core, cpus, number)))
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
            sleepers: AtomicBitmap::new(homes.len()),
            started: AtomicBitmap::new(homes.len()),
            class,
            state: Mutex::default(),
            refused: AtomicU32::new(0),
            homes,
        }
    }

    pub(crate) fn class(&self) -> WorkerClass {
        self.class
    }

    /// Wakes a worker for a queue, the nearest to `here` that there is. If none sleeps, the home of
    /// one that is to be started. Takes no lock.
    pub(crate) fn call(&self, tree: &Tree, area: usize, here: usize) -> Option<usize> {
        for near in tree.path(here) {
            for word in 0..self.reach[area].len() {
                loop {
                    let able =
                        self.sleepers.word(word) & self.reach[near][word] & self.reach[area][word];
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
                let new =
                    !self.started.word(word) & self.reach[near][word] & self.reach[area][word];
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

    /// Starts the worker as `try_start` does, unless the system refused one just now.
    pub(crate) fn start(&self, scheduler: &Arc<Scheduler>, home: usize) {
        if lock(&self.state)
            .refused_at
            .is_none_or(|at| at.elapsed() >= START_AGAIN)
        {
            // It is counted, and asked for again later.
            let _ = self.try_start(scheduler, home);
        }
    }

    /// Starts the worker of a home, unless it was started.
    pub(crate) fn try_start(&self, scheduler: &Arc<Scheduler>, home: usize) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.over || !self.started.set(home) {
            return Ok(());
        }
        let home = &self.homes[home];
        let _ = home.scheduler.set(Arc::downgrade(scheduler));
        home.thread.start(home).inspect_err(|_| {
            self.started.clear(home.number);
            state.refused_at = Some(Instant::now());
            self.refused.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// A worker is about to sleep. It looks for work once more, then calls `sleep` with what is
    /// returned here, or `awake`.
    pub(crate) fn begin_sleep(&self, home: usize) -> u32 {
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
        let count = |bits: &AtomicBitmap| {
            let words = 0..self.homes.len().div_ceil(64);
            words
                .map(|word| bits.word(word).count_ones() as usize)
                .sum()
        };
        WorkerCounts {
            started: count(&self.started),
            asleep: count(&self.sleepers),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Wakes all so that they leave, and waits a moment for them.
    pub(crate) fn stop(&self) {
        lock(&self.state).over = true;
        self.homes.iter().for_each(|home| home.wake());
        let deadline = Instant::now() + STOP_LIMIT;
        self.homes.iter().for_each(|home| home.thread.end(deadline));
    }
}
