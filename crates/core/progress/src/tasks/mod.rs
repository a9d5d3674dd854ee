//! Tasks: small units of progress work, bound to places in the machine, run by whoever has an idle
//! core (PIOMan, IEEE Cluster 2009).
//!
//! A [`Task`] is an object of its owner: what to do, where, and how long it may wait. Submitting a
//! task allocates nothing. Queues mirror the machine's tree: one per core, cache, NUMA node and
//! package, and one for the machine. A thread that passes a keypoint runs what waits on the path
//! from its core to the machine. That is the paper's Algorithm 1, with every task of a queue run in
//! turn, as the paper's text says and its figure does not.
//!
//! Keypoints are: a wait (also in MPI), an idle worker, the timer when all cores compute, a context
//! switch of a user-level scheduler, and an explicit call. Workers are threads of the idle class.
//! They are started when a submission finds nobody who would run it, never more than there are idle
//! cores, and sleep when there is nothing to do. A [`Tasks`] value owns all this and ends it when
//! dropped. In a forked child every call is refused.
//!
//! # The engine and tasks
//!
//! An engine's progress is a task, too. A worker on demand ([`progress_worker`]) runs it, in the
//! ordinary scheduling class, because the runner holds the engine's lock. A worker of the idle
//! class could be preempted with the lock held for as long as other threads want the cores, and
//! would hold up every thread of its rank. The worker's word lies in memory that peers write, and
//! only for what needs help. A thread that waits in MPI runs the shared tasks of its process before
//! it sleeps ([`shared`]). Tasks that want an engine advanced call `Messaging::progress`, which
//! only ever tries the lock.
//!
//! Copies of a large transfer could become tasks, outside of the lock: one per piece, at place
//! `Around(Numa, cpu of the buffer's core)`, claimed by an atomic counter in the transfer. But a
//! piece that an idle-class worker has begun cannot be taken from it. So only workers with a core
//! to themselves ([`WorkerClass::Ordinary`]) may have such tasks.

mod event_requests;
mod place;
mod progress_worker;
mod queue_watchers;
mod scheduler;
mod shared;
#[cfg(all(test, shuttle))]
pub(crate) mod shuttle_tests;
mod task_trace;
mod thread_spawner;
mod urgent;
mod worker;
mod worker_pool;

pub use garonne_sync::task_node::{Cancellation, RunOutcome, TaskState, TaskWork};
pub use garonne_sync::task_slots::RunTally;
pub use place::Place;
pub use scheduler::{LongRun, Poller};
pub use shared::{at_keypoint, shared};
pub use task_trace::{RunWatcher, watch_runs};
pub use worker_pool::{TaskSettings, WorkerClass, WorkerCounts, offer};

use place::ResolvedPlace;
pub(crate) use progress_worker::{WorkerAction, WorkerCores, WorkerDuty};
pub(crate) use scheduler::Scheduler;
pub(crate) use shared::{KeypointOutcome, pass};
pub(crate) use thread_spawner::{ThreadOrder, spawn_ordinary};
pub(crate) use worker::NapBackoff;

use garonne_sync::task_node::{EnqueueError, Enqueued, TaskNode};
use garonne_topology::Tree;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Why tasks run at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keypoint {
    /// A worker has nothing else to do.
    Idle,
    /// A thread waits.
    Wait,
    /// Nobody came for a while: all cores compute.
    Timer,
    /// A user-level scheduler switches between its threads.
    Switch,
    /// Somebody asked.
    Forced,
}

/// Facts that a task's run is told.
#[derive(Clone, Copy, Debug)]
pub struct RunContext {
    /// The core, as numbered by the tree of the machine.
    pub core: usize,
    /// Why it runs now.
    pub keypoint: Keypoint,
    /// The thread counts as one that polls.
    pub(crate) polls: bool,
}

/// Urgency of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgency {
    /// When a core of its place is idle. If none is for a millisecond or two, a thread of the
    /// ordinary class does it, once the kernel gives it a core: where all compute, that may take
    /// some milliseconds more.
    #[default]
    Idle,
    /// Now, even where a thread computes: a thread of the ordinary class is woken, and the kernel
    /// gives it a core. None of the idle class takes it, since that may be put aside in the midst
    /// of its run.
    Now,
}

/// Reason why a call about tasks failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The caller asked for what cannot be.
    Misuse(&'static str),
    /// A bound was reached.
    Resource(&'static str),
    /// The system refused, with this error number.
    System(&'static str, i32),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Misuse(what) | Self::Resource(what) => f.write_str(what),
            Self::System(what, errno) => {
                write!(f, "{what}: {}", std::io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<EnqueueError> for Error {
    fn from(refused: EnqueueError) -> Self {
        match refused {
            EnqueueError::Pending => Self::Misuse("the task is submitted already"),
            EnqueueError::Full => Self::Resource("the queue of this place is full"),
            EnqueueError::Nowhere => Self::Misuse("the task was made for another machine"),
        }
    }
}

/// Way in which a task is to be run.
#[derive(Clone, Debug)]
pub struct TaskOptions {
    /// Where.
    pub place: Place,
    /// How soon.
    pub urgency: Urgency,
    /// For a task that answers [`RunOutcome::Again`]: the longest time that it should wait between
    /// two runs when those find nothing. Idle workers then nap that long in between. `None`: up to
    /// [`crate::limits::WORKER_SLEEP_MAX`].
    pub patience: Option<Duration>,
}

impl TaskOptions {
    /// At a place, when a core there is idle.
    pub fn at(place: Place) -> Self {
        Self {
            place,
            urgency: Urgency::Idle,
            patience: None,
        }
    }
}

/// A [`TaskOptions`] on a known machine.
#[derive(Clone, Copy, Debug)]
pub struct ResolvedOptions {
    spot: ResolvedPlace,
    urgency: Urgency,
    patience_us: u32,
}

/// Work with its place.
#[derive(Debug)]
pub struct PlacedWork<W> {
    spot: ResolvedPlace,
    urgency: Urgency,
    /// True if its runs are told to those who trace.
    is_traced: bool,
    work: W,
}

impl<W: TaskWork<RunContext>> TaskWork<RunContext> for PlacedWork<W> {
    #[inline]
    fn run(&self, at: &RunContext) -> RunOutcome {
        if self.is_traced {
            return task_trace::run_traced(|| self.work.run(at));
        }
        self.work.run(at)
    }
}

impl<W> PlacedWork<W> {
    /// The work.
    pub fn get(&self) -> &W {
        &self.work
    }
}

/// A task: pinned and taken back when dropped, or in an `Arc` that its queue shares meanwhile.
pub type Task<W> = TaskNode<PlacedWork<W>, RunContext>;

/// A task whose work is some function.
pub type AnyTask = Task<Box<dyn Fn(&RunContext) -> RunOutcome + Send + Sync>>;

/// A handle on a scheduler: the queues of a machine, their workers and events. Clones are the same
/// scheduler, which ends with the last of them. Order of calls: [`Tasks::new`], [`Tasks::task`],
/// [`Tasks::submit`] or [`Tasks::submit_shared`], [`Tasks::wait`]; [`Tasks::stop`] ends all early.
#[derive(Clone, Debug)]
pub struct Tasks(Arc<SchedulerOwner>);

/// Ends the threads when the last handle goes.
#[derive(Debug)]
struct SchedulerOwner(Arc<Scheduler>);

impl Drop for SchedulerOwner {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// See [`Tasks::poke`].
pub(crate) fn poke<W: TaskWork<RunContext>>(
    scheduler: &Arc<Scheduler>,
    task: &Arc<Task<W>>,
) -> Result<(), Error> {
    scheduler.alive()?;
    if !scheduler.owns(task.racks()) {
        return Err(EnqueueError::Nowhere.into());
    }
    let placed = task.work();
    let area = scheduler.area(placed.spot);
    if let Some(put) = task.poke(area)? {
        scheduler.note_put(area);
        scheduler.ring(area, put, placed.urgency);
    }
    Ok(())
}

impl Tasks {
    /// Queues and workers as told. Starts no thread.
    pub fn new(settings: TaskSettings) -> Result<Self, Error> {
        Ok(Self(Arc::new(SchedulerOwner(Arc::new(Scheduler::new(
            settings,
        )?)))))
    }

    pub(crate) fn scheduler(&self) -> &Arc<Scheduler> {
        &self.0.0
    }

    /// The machine as its queues see it.
    pub fn tree(&self) -> &Tree {
        &self.scheduler().tree
    }

    /// Finds the place of tasks once for all that are made with it.
    pub fn resolve_options(&self, how: &TaskOptions) -> Result<ResolvedOptions, Error> {
        let us = how
            .patience
            .map_or(0, |patience| patience.as_micros().max(1));
        Ok(ResolvedOptions {
            spot: how.place.on(self.tree())?,
            urgency: how.urgency,
            patience_us: u32::try_from(us).unwrap_or(u32::MAX),
        })
    }

    /// A task that does `work`.
    pub fn task<W: TaskWork<RunContext>>(
        &self,
        how: &TaskOptions,
        work: W,
    ) -> Result<Task<W>, Error> {
        Ok(self.task_in(self.resolve_options(how)?, work))
    }

    /// Makes a task with options resolved before: for callers that make many.
    pub fn task_in<W: TaskWork<RunContext>>(&self, options: ResolvedOptions, work: W) -> Task<W> {
        self.place(options, work, true)
    }

    fn place<W: TaskWork<RunContext>>(
        &self,
        options: ResolvedOptions,
        work: W,
        is_traced: bool,
    ) -> Task<W> {
        let placed = PlacedWork {
            spot: options.spot,
            urgency: options.urgency,
            is_traced,
            work,
        };
        let scheduler = self.scheduler();
        let racks = match options.urgency {
            Urgency::Idle => &scheduler.queues,
            Urgency::Now => scheduler.urgent.racks(),
        };
        TaskNode::new(racks, options.patience_us, placed)
    }

    /// Submits a task that stays with its owner; its drop takes it back.
    pub fn submit<W: TaskWork<RunContext>>(&self, task: Pin<&Task<W>>) -> Result<(), Error> {
        self.send(task.get_ref(), |area| task.put(area))
    }

    /// Submits a task that its queue shares until it is settled.
    pub fn submit_shared<W: TaskWork<RunContext>>(&self, task: &Arc<Task<W>>) -> Result<(), Error> {
        self.send(task, |area| task.enqueue_shared(area))
    }

    /// Submits a task as `submit_shared` does. A task that is pending or runs at this moment is run
    /// once more.
    pub fn poke<W: TaskWork<RunContext>>(&self, task: &Arc<Task<W>>) -> Result<(), Error> {
        poke(self.scheduler(), task)
    }

    fn send<W: TaskWork<RunContext>>(
        &self,
        task: &Task<W>,
        put: impl Fn(usize) -> Result<Enqueued, EnqueueError>,
    ) -> Result<(), Error> {
        let scheduler = self.scheduler();
        scheduler.alive()?;
        if !scheduler.owns(task.racks()) {
            return Err(EnqueueError::Nowhere.into());
        }
        let placed = task.work();
        let nearest = match placed.spot {
            ResolvedPlace::Nearest => scheduler.nearest_idle(),
            _ => None,
        };
        if let Some(core) = nearest
            && placed.urgency == Urgency::Idle
        {
            put(core)?;
            // It was idle a moment ago. If it still is, it sees the task, at the latest when it
            // leaves.
            if scheduler.has_poller(core)
                || task.withdraw() != Cancellation::Settled(TaskState::Cancelled)
            {
                return Ok(());
            }
        }
        // Who polls there may be of the idle class, and not be the one that runs it.
        let area = nearest.unwrap_or_else(|| scheduler.area(placed.spot));
        let put = put(area)?;
        scheduler.note_put(area);
        scheduler.ring(area, put, placed.urgency);
        Ok(())
    }

    /// Waits until a task is settled: runs tasks meanwhile, then sleeps. Returns what became of it;
    /// in the task's own run, whose end cannot be waited for there, at once that it is pending; so
    /// in a forked child, where nobody runs what its parent submitted.
    pub fn wait<W: TaskWork<RunContext>>(&self, task: &Task<W>) -> TaskState {
        if task.runs_here() || self.scheduler().is_of_parent() {
            return task.life();
        }
        self.scheduler()
            .wait_for(&|| task.life() != TaskState::Pending, &|limit| {
                task.wait(limit);
            });
        task.life()
    }

    /// Returns whether they may be used: they were not ended, and are not those of a forked child's
    /// parent.
    pub fn check(&self) -> Result<(), Error> {
        self.scheduler().alive()
    }

    /// A keypoint: runs what waits on the way from this core to the machine, each task once, and
    /// advances what the ranks of this process have left open. Nothing in a forked child.
    pub fn schedule(&self, keypoint: Keypoint) -> RunTally {
        if self.scheduler().is_of_parent() {
            return RunTally::default();
        }
        let tally = self.scheduler().pass(keypoint);
        progress_worker::look();
        tally
    }

    /// The keypoint of a user-level scheduler: to be called at its context switches. One load per
    /// level when there is nothing to do.
    pub fn at_switch(&self) -> RunTally {
        self.schedule(Keypoint::Switch)
    }

    /// Says that this thread polls from now on until the poller is dropped: submissions that it
    /// will see wake nobody else.
    pub fn poller(&self, keypoint: Keypoint) -> Poller<'_> {
        let scheduler = self.scheduler();
        Poller::new(scheduler, scheduler.current_core(), keypoint)
    }

    /// To be held by a task that is about to take long (more than some microseconds): meanwhile its
    /// thread does not count as one that polls, and what waits is handed to others.
    pub fn lengthy(&self, at: &RunContext) -> LongRun<'_> {
        LongRun::new(self.scheduler(), at)
    }

    /// Tasks settled on each core so far; what a poller has settled since its last 64 turns may be
    /// missing.
    pub fn settled(&self) -> Vec<u64> {
        self.scheduler().settled()
    }

    /// Workers: started, asleep, refused by the system.
    pub fn worker_counts(&self) -> WorkerCounts {
        self.scheduler().pool.worker_counts()
    }

    /// Returns a poller for a core that the caller knows: a user-level scheduler's, or a simulated
    /// one. `None`: the machine has no such core.
    pub fn poller_at(&self, core: usize, keypoint: Keypoint) -> Option<Poller<'_>> {
        (core < self.tree().cores()).then(|| Poller::new(self.scheduler(), core, keypoint).fixed())
    }

    /// Ends the workers, withdraws what waits, refuses what is submitted from now on. Waits for
    /// workers for a moment only; one that is kept busy by a task goes when that ends.
    pub fn stop(&self) {
        self.scheduler().stop();
    }
}
