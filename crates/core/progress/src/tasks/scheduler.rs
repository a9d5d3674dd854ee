//! The scheduler of tasks: the queues of a machine and the threads that serve them.
//! [`super::Tasks`] is a handle on it.
//!
//! Submitters, waiters, workers and the timer share the scheduler. There is one queue per area of
//! the tree, numbered alike, for tasks that can wait, and one for urgent tasks
//! ([`urgent`](super::urgent)). Nothing here blocks but `wait_for`. Nothing allocates after `new`
//! but the start of a thread and the first urgent task.

use crate::events::blocking::BlockingPool;
use crate::events::reactor::Reactor;
use crate::events::word_watch::WordWatcher;
use crate::facade::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, fence, lock};
use crate::limits::{BACKLOG, CORE_TASKS, CPU_CHECK_TURNS, SHARED_TASKS, WAITER_SLEEP};
use crate::sys;
use crate::tasks::event_requests::EventRequests;
use crate::tasks::place::ResolvedPlace;
use crate::tasks::queue_watchers::{PathPolling, QueueWatchers};
use crate::tasks::urgent::UrgentQueues;
use crate::tasks::worker_pool::{TaskSettings, WorkerPool};
use crate::tasks::{Error, Keypoint, RunContext, Urgency};
use garonne_sync::idle_set::IdleSet;
use garonne_sync::pad::CachePadded;
use garonne_sync::task_node::Enqueued;
use garonne_sync::task_slots::{RunTally, TaskQueues};
use garonne_topology::Tree;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Patience of tasks that a thread leaves without knowing theirs: they are looked at at once.
const UNKNOWN_PATIENCE: u32 = 1;

/// The queues of a machine, the idle set of its cores, the worker pool and the event thread.
/// [`super::Tasks`] owns it. A submitter enqueues and then calls `ring`; a poller calls `poll` at
/// each turn; a thread that passes a keypoint calls `pass`; `stop` ends all threads.
#[derive(Debug)]
pub(crate) struct Scheduler {
    pub(crate) tree: Tree,
    /// What can wait for an idle core.
    pub(crate) queues: Arc<TaskQueues<RunContext>>,
    pub(crate) urgent: UrgentQueues,
    /// Areas from each core to the machine.
    pub(super) paths: Vec<Box<[u32]>>,
    /// Cores of each area, as a bitmap.
    masks: Vec<Box<[u64]>>,
    /// Cores at which somebody polls.
    idle_cores: IdleSet,
    /// Who looks at shared queues.
    pub(super) watchers: QueueWatchers,
    pub(crate) pool: WorkerPool,
    settled: Box<[CachePadded<AtomicU64>]>,
    rounds: AtomicU32,
    spins: u32,
    stopping: AtomicBool,
    /// Workers of the idle class that poll.
    pub(crate) idle_class_pollers: AtomicU32,
    forks: u32,
    /// Read without a lock, so that a signal handler may submit.
    reactor: OnceLock<Arc<Reactor>>,
    /// Held by whoever starts threads while there is no reactor to do it, and while all ends.
    pub(super) starting: Mutex<()>,
    /// What is wanted of the reactor.
    pub(crate) event_requests: EventRequests,
    pub(crate) words: Arc<WordWatcher>,
    pub(crate) blockers: Arc<BlockingPool>,
    /// True if the timer runs, so that not every submission has to ask.
    pub(crate) timer_runs: AtomicBool,
}

impl Scheduler {
    pub(crate) fn new(settings: TaskSettings) -> Result<Self, Error> {
        let tree = settings.tree;
        let areas = tree.areas();
        let room: Vec<usize> = (0..areas.len())
            .map(|area| {
                if area < tree.cores() {
                    CORE_TASKS
                } else {
                    SHARED_TASKS
                }
            })
            .collect();
        let urgent = UrgentQueues::new(&room);
        let racks = TaskQueues::new(&room)
            .ok_or(Error::Resource("the machine has too many areas for queues"))?;
        let paths: Vec<Box<[u32]>> = (0..tree.cores())
            .map(|core| tree.path(core).map(|area| area as u32).collect())
            .collect();
        let words = tree.cores().div_ceil(64);
        let mut masks = vec![vec![0u64; words].into_boxed_slice(); areas.len()];
        for (core, path) in paths.iter().enumerate() {
            for area in path {
                masks[*area as usize][core / 64] |= 1 << (core % 64);
            }
        }
        let pool = WorkerPool::new(&tree, &settings.homes, settings.class);
        Ok(Self {
            queues: Arc::new(racks),
            urgent,
            idle_cores: IdleSet::new(tree.cores()),
            watchers: QueueWatchers::new(areas.len()),
            event_requests: EventRequests::new(areas.len(), pool.homes.len()),
            pool,
            settled: (0..tree.cores())
                .map(|_| CachePadded(AtomicU64::new(0)))
                .collect(),
            rounds: AtomicU32::new(0),
            spins: settings.spins,
            stopping: AtomicBool::new(false),
            idle_class_pollers: AtomicU32::new(0),
            forks: sys::forks(),
            reactor: OnceLock::new(),
            starting: Mutex::new(()),
            words: Arc::new(WordWatcher::new()),
            blockers: Arc::default(),
            timer_runs: AtomicBool::new(false),
            tree,
            paths,
            masks,
        })
    }

    /// Returns whether this is a forked child's copy: none of its threads is here, and what they
    /// held stays held.
    #[inline]
    pub(crate) fn is_of_parent(&self) -> bool {
        sys::forks_now() != self.forks
    }

    /// Returns whether this process is the one that made it, and it was not ended.
    #[inline]
    pub(crate) fn alive(&self) -> Result<(), Error> {
        if self.is_of_parent() {
            return Err(Error::Misuse(
                "tasks of the parent are not the forked child's to use",
            ));
        }
        if self.stopping() {
            return Err(Error::Misuse("these tasks were ended"));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn spins(&self) -> u32 {
        self.spins
    }

    /// The core that the caller is on.
    #[inline]
    pub(crate) fn current_core(&self) -> usize {
        self.tree.core_of(sys::cpu()).unwrap_or(0)
    }

    /// The queue of a place, for the calling thread at this moment.
    #[inline]
    pub(crate) fn area(&self, spot: ResolvedPlace) -> usize {
        match spot {
            ResolvedPlace::Area(area) => area as usize,
            ResolvedPlace::Caller(kind) => self.tree.around(self.current_core(), kind),
            ResolvedPlace::NearCaller => self.tree.shared(self.current_core()),
            ResolvedPlace::Nearest => self.tree.root(),
        }
    }

    /// The core nearest to the caller at which somebody polls, the caller's own aside: an idle one.
    pub(crate) fn nearest_idle(&self) -> Option<usize> {
        let here = self.current_core();
        self.paths[here].iter().skip(1).find_map(|area| {
            let masks = self.masks[*area as usize].iter().enumerate();
            masks
                .filter(|(_, mask)| **mask != 0)
                .find_map(|(index, mask)| {
                    let own = if index == here / 64 {
                        1 << (here % 64)
                    } else {
                        0
                    };
                    let idle = self.idle_cores.word(index) & mask & !own;
                    (idle != 0).then(|| index * 64 + idle.trailing_zeros() as usize)
                })
        })
    }

    /// Returns whether somebody polls who would find a task of this queue.
    #[inline]
    pub(crate) fn has_poller(&self, area: usize) -> bool {
        self.idle_cores.meets(&self.masks[area])
    }

    /// Cores of an area at which somebody polls.
    pub(super) fn pollers(&self, area: usize) -> u32 {
        let masks = self.masks[area].iter().enumerate();
        masks
            .map(|(index, mask)| (self.idle_cores.word(index) & mask).count_ones())
            .sum()
    }

    /// A poller of a core leaves, or is busy for a while. It looks at its queues afterwards.
    fn leave(&self, core: usize) {
        self.watchers.resign(&self.paths[core], core);
        self.idle_cores.leave(core);
    }

    /// A task was put into a queue: sees to it that somebody runs it.
    #[inline]
    pub(crate) fn ring(self: &Arc<Self>, area: usize, put: Enqueued, urgency: Urgency) {
        if urgency == Urgency::Idle && put.ready_before < BACKLOG && self.has_poller(area) {
            // A thread of the idle class may have been put aside while it polled.
            if self.idle_class_pollers.load(Ordering::Relaxed) > 0
                && !self.timer_runs.load(Ordering::Relaxed)
            {
                self.time();
            }
            return;
        }
        self.call(area, urgency);
    }

    /// Has the timer look after what waits.
    #[cold]
    #[inline(never)]
    fn time(self: &Arc<Self>) {
        if self.timer_runs.swap(true, Ordering::SeqCst) {
            return;
        }
        match self.running_reactor() {
            Some(reactor) => reactor.tick(crate::limits::TICK),
            None => {
                self.event_requests.time();
                self.serve_requests();
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn call(self: &Arc<Self>, area: usize, urgency: Urgency) {
        if urgency == Urgency::Now {
            self.event_requests.run(area);
            // Without that thread the task waits for whoever comes.
            if self.serve_requests() {
                return;
            }
        }
        if let Some(home) = self.pool.call(&self.tree, area, self.current_core())
            && self.event_requests.start(home)
        {
            // A thread has the class of the one that starts it. So that no worker's task starts the
            // one of the ordinary class, that is there before any worker.
            if self.running_reactor().is_none() && !self.timer_runs.swap(true, Ordering::SeqCst) {
                self.event_requests.time();
            }
            self.serve_requests();
        }
        // Whoever was called may not get a core.
        self.time();
    }

    /// Sees to it that what is wished for is done. By the reactor; where there is none, by whoever
    /// starts threads. A caller that finds somebody at that leaves the wish to them: it may be a
    /// signal handler, and have interrupted them. `false`: the system refuses.
    pub(super) fn serve_requests(self: &Arc<Self>) -> bool {
        loop {
            if let Some(reactor) = self.running_reactor() {
                reactor.ring();
                return true;
            }
            // After the wish; those who hold the lock look at the wishes when they have let go.
            // SYNC(wishes-starting).
            fence(Ordering::SeqCst);
            let Ok(starting) = self.starting.try_lock() else {
                return true;
            };
            if self.alive().is_err() {
                return false;
            }
            let refused =
                self.event_requests.needs_event_thread() && self.start_reactor().is_none();
            self.event_requests
                .take_starts(|home| self.pool.start(self, home));
            drop(starting);
            // SYNC(wishes-starting).
            fence(Ordering::SeqCst);
            let more = self.event_requests.needs_worker_start()
                || !refused && self.event_requests.needs_event_thread();
            if !more {
                return !refused;
            }
        }
    }

    /// What waits on the way from `core` is somebody else's from now on. What asks to be run again
    /// has this patience, in microseconds.
    fn hand_over(self: &Arc<Self>, core: usize, patience_us: u32) {
        for area in &self.paths[core] {
            let area = *area as usize;
            if self.queues.any_ready(area) {
                self.ring(area, Enqueued { ready_before: 0 }, Urgency::Idle);
            }
        }
        self.hand_over_urgent(&self.paths[core], patience_us);
    }

    /// The thread of the timer and of events if it runs. Takes no lock.
    pub(super) fn running_reactor(&self) -> Option<&Arc<Reactor>> {
        self.reactor.get().filter(|_| !self.stopping())
    }

    /// The thread of the timer and of events, started when first wanted. `None`: the system refuses
    /// a thread or descriptors, or it is over. Takes no lock once it runs.
    pub(crate) fn reactor(self: &Arc<Self>) -> Option<&Arc<Reactor>> {
        if let Some(reactor) = self.running_reactor() {
            return Some(reactor);
        }
        let starting = lock(&self.starting);
        if self.alive().is_ok() {
            self.start_reactor();
        }
        drop(starting);
        // What others wished for meanwhile. SYNC(wishes-starting).
        fence(Ordering::SeqCst);
        self.running_reactor().inspect(|reactor| reactor.ring())
    }

    /// Called with the lock for starting held.
    fn start_reactor(self: &Arc<Self>) -> Option<&Arc<Reactor>> {
        if self.reactor.get().is_none() {
            let started = Reactor::start(self);
            self.urgent.note_refusal(started.is_err());
            let _ = self.reactor.set(started.ok()?);
        }
        self.reactor.get()
    }

    /// A number that differs from walk to walk, for walks that are not a poller's.
    pub(crate) fn next_round(&self) -> u32 {
        self.rounds.fetch_add(1, Ordering::Relaxed)
    }

    /// Algorithm 1: runs what waits in the queues from the core's to the machine's.
    #[inline]
    pub(crate) fn walk(&self, at: &RunContext, round: u32) -> RunTally {
        let mut tally = self.walk_urgent(at, round);
        for area in &self.paths[at.core] {
            tally.add(self.queues.run(*area as usize, round, at));
        }
        tally
    }

    /// One walk by somebody who goes away again. What wants to be run again is somebody else's
    /// then: a worker that looked meanwhile saw nothing.
    pub(crate) fn pass(self: &Arc<Self>, keypoint: Keypoint) -> RunTally {
        let at = RunContext {
            core: self.current_core(),
            keypoint,
            polls: false,
        };
        let tally = self.walk(&at, self.next_round());
        self.count(at.core, tally.settled);
        if tally.rerun > 0 {
            self.hand_over(at.core, tally.patience_us);
        }
        tally
    }

    /// Runs one queue on behalf of a thread that leaves again.
    pub(crate) fn serve(self: &Arc<Self>, area: usize, at: &RunContext) -> RunTally {
        let tally = self.queues.run(area, self.next_round(), at);
        self.count(at.core, tally.settled);
        if tally.rerun > 0 {
            self.ring(area, Enqueued { ready_before: 0 }, Urgency::Idle);
        }
        tally
    }

    #[inline]
    pub(crate) fn count(&self, core: usize, settled: u32) {
        if settled > 0 {
            self.settled[core].fetch_add(u64::from(settled), Ordering::Relaxed);
        }
    }

    pub(crate) fn settled(&self) -> Vec<u64> {
        let counts = self.settled.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Waits for `done`: polls, then sleeps by `sleep`, which is given a limit.
    pub(crate) fn wait_for(
        self: &Arc<Self>,
        done: &dyn Fn() -> bool,
        sleep: &dyn Fn(Option<Duration>),
    ) {
        let (mut poller, mut idle) = (Poller::new(self, self.current_core(), Keypoint::Wait), 0);
        while !done() && idle <= self.spins {
            idle = if poller.turn().settled > 0 {
                0
            } else {
                idle + 1
            };
            std::hint::spin_loop();
        }
        drop(poller);
        // A child of fork has no workers, and never will have.
        while !done() && self.alive().is_ok() {
            // The limit is for a system that refuses workers: then waiters do all the work.
            sleep(Some(WAITER_SLEEP));
            if !done() {
                self.pass(Keypoint::Wait);
            }
        }
    }

    /// See [`super::Tasks::stop`].
    pub(crate) fn stop(&self) {
        if self.stopping.swap(true, Ordering::AcqRel) || self.is_of_parent() {
            return;
        }
        // One that starts is there afterwards, and no other starts.
        drop(lock(&self.starting));
        if let Some(reactor) = self.reactor.get() {
            reactor.stop();
        }
        self.words.stop();
        self.blockers.stop();
        self.pool.stop();
        self.queues.clear();
        self.urgent.clear();
    }
}

/// A thread that polls. Its submissions' counterpart: while it lives, tasks on the way from its
/// core to the machine wake nobody else.
#[derive(Debug)]
pub struct Poller<'a> {
    scheduler: &'a Arc<Scheduler>,
    at: RunContext,
    round: u32,
    looks: PathPolling,
    /// Tasks settled and not counted yet: counting costs as much as a look.
    settled: u32,
    /// The poller belongs to a worker, which has its own way of going to sleep.
    quiet: bool,
    fixed: bool,
}

impl<'a> Poller<'a> {
    pub(crate) fn new(scheduler: &'a Arc<Scheduler>, core: usize, keypoint: Keypoint) -> Self {
        scheduler.idle_cores.enter(core);
        Self {
            scheduler,
            at: RunContext {
                core,
                keypoint,
                polls: true,
            },
            round: core as u32,
            looks: PathPolling::new(),
            settled: 0,
            quiet: false,
            fixed: false,
        }
    }

    /// Makes the poller serve this core wherever its thread is.
    pub(crate) fn fixed(mut self) -> Self {
        self.fixed = true;
        self
    }

    pub(crate) fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Runs what waits, each task once. A queue that other cores share is mostly left to the one of
    /// them that watches it.
    #[inline]
    pub fn turn(&mut self) -> RunTally {
        self.round = self.round.wrapping_add(1);
        if self.round.is_multiple_of(CPU_CHECK_TURNS) {
            self.count();
            if !self.fixed {
                self.follow();
            }
            self.scheduler.settle_in(self.at.core, &mut self.looks);
        }
        let tally = self.scheduler.poll(&self.at, self.round, &mut self.looks);
        self.settled = self.settled.saturating_add(tally.settled);
        tally
    }

    fn count(&mut self) {
        self.scheduler
            .count(self.at.core, std::mem::take(&mut self.settled));
    }

    /// Queues that it looked at in the last turn, as bits: the lowest its core's, the next that of
    /// the area around that, and so on.
    pub fn looked(&self) -> u32 {
        self.looks.last
    }

    /// The core that it polls for.
    pub fn core(&self) -> usize {
        self.at.core
    }

    /// The kernel may have moved the thread.
    fn follow(&mut self) {
        let core = self.scheduler.current_core();
        if core != self.at.core {
            self.scheduler.idle_cores.enter(core);
            let before = std::mem::replace(&mut self.at.core, core);
            self.looks = PathPolling::new();
            self.scheduler.leave(before);
            self.scheduler.hand_over(before, UNKNOWN_PATIENCE);
        }
    }
}

impl Drop for Poller<'_> {
    fn drop(&mut self) {
        let core = self.at.core;
        self.count();
        self.scheduler.leave(core);
        if self.quiet {
            return;
        }
        // What was given to this very core because it was idle is done before the core computes
        // again.
        if self.scheduler.queues.any_ready(core) {
            self.scheduler.serve(core, &self.at);
        }
        self.scheduler.hand_over(core, UNKNOWN_PATIENCE);
    }
}

/// A thread that polled, or waited for events, and is busy for a while. See
/// [`super::Tasks::lengthy`].
#[derive(Debug)]
pub struct LongRun<'a> {
    scheduler: &'a Arc<Scheduler>,
    /// Place where it is to be enrolled again.
    core: Option<usize>,
}

impl<'a> LongRun<'a> {
    pub(crate) fn new(scheduler: &'a Arc<Scheduler>, at: &RunContext) -> Self {
        if at.polls {
            scheduler.leave(at.core);
        }
        if let Some(reactor) = scheduler.running_reactor() {
            reactor.note_long_run();
        }
        scheduler.hand_over(at.core, UNKNOWN_PATIENCE);
        Self {
            scheduler,
            core: at.polls.then_some(at.core),
        }
    }
}

impl Drop for LongRun<'_> {
    fn drop(&mut self) {
        if let Some(core) = self.core {
            self.scheduler.idle_cores.enter(core);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::tasks::{Place, RunOutcome, TaskOptions, Tasks};
    use std::sync::mpsc::channel;

    #[test]
    fn a_submission_that_interrupts_the_start_of_threads_leaves_its_wish_to_whoever_starts_them() {
        for urgency in [Urgency::Now, Urgency::Idle] {
            let tasks = Tasks::new(TaskSettings::here()).unwrap();
            let how = TaskOptions {
                urgency,
                ..TaskOptions::at(Place::Machine)
            };
            let task = Arc::new(tasks.task(&how, |_: &RunContext| RunOutcome::Done).unwrap());
            let scheduler = tasks.scheduler();
            // As a signal handler finds it that interrupts the start: on the very thread that holds
            // the lock.
            let starting = lock(&scheduler.starting);
            tasks.submit_shared(&task).unwrap();
            drop(starting);
            assert!(scheduler.reactor().is_some());
            assert!(task.wait(Some(Duration::from_secs(20))), "{urgency:?}");
        }
    }

    #[test]
    fn a_submission_takes_no_lock_once_the_reactor_runs() {
        let tasks = Tasks::new(TaskSettings::here()).unwrap();
        let scheduler = tasks.scheduler();
        assert!(scheduler.reactor().is_some());
        let (tell, told) = channel();
        for urgency in [Urgency::Now, Urgency::Idle] {
            let (its, tell) = (tasks.clone(), tell.clone());
            let _held = scheduler.starting.lock().unwrap();
            let submitter = std::thread::spawn(move || {
                let how = TaskOptions {
                    urgency,
                    ..TaskOptions::at(Place::Machine)
                };
                let task = its.task(
                    &how,
                    Box::new(|_: &RunContext| RunOutcome::Done)
                        as Box<dyn Fn(&RunContext) -> RunOutcome + Send + Sync>,
                );
                let task = Arc::new(task.unwrap());
                its.submit_shared(&task).unwrap();
                tell.send(()).unwrap();
                task
            });
            assert_eq!(
                told.recv_timeout(Duration::from_secs(20)),
                Ok(()),
                "{urgency:?}"
            );
            drop(_held);
            tasks.wait(&submitter.join().unwrap());
        }
    }
}
