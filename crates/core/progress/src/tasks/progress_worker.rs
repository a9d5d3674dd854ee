//! Workers on demand: threads of the ordinary class that sleep on a word which others change, for
//! example another process. A rank's engine is advanced by one.
//!
//! The work of such a thread is one task, a [`WorkerDuty`]. Whoever sees the word change submits
//! it, and the thread runs it at its keypoint like any other task: one thread at a time, cancelled
//! at the end of all. Idle-class workers do not run it, because it holds locks. A worker of that
//! class could be preempted with the engine's lock held, and would hold up every thread of its
//! rank.
//!
//! So the duty has queues of its own, of one area, with this thread as the only worker. They need
//! no discovery of the machine (a tenth of a millisecond for each CPU) and no timer, since the
//! kernel gives an ordinary thread a core. Where the worker's cores are used by nobody else, the
//! worker passes the keypoint of the process's shared tasks, too. The worker costs nothing while
//! nobody wakes it, and ends when its duty allows that.

use crate::facade::{AtomicU32, Mutex, Ordering, lock};
use crate::limits::REST_TIMES;
use crate::sys;
use crate::tasks::scheduler::Scheduler;
use crate::tasks::worker_pool::{WorkerEnd, WorkerHome};
use crate::tasks::{
    self, Error, Keypoint, Place, RunContext, RunOutcome, Task, TaskOptions, TaskSettings,
    TaskWork, Tasks, WorkerClass,
};
use garonne_sync::futex::{self, Wake};
use garonne_topology::{CpuSet, Tree, machine};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Next step of a worker after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerAction {
    /// Sleep until called.
    Sleep,
    /// Take another turn after this time even if nobody calls.
    Nap(Duration),
    /// There will be no more to do.
    Leave,
}

/// Duty for which a worker is called.
pub(crate) trait WorkerDuty: Send + Sync + 'static {
    /// Changes with each call.
    fn word(&self) -> &AtomicU32;

    /// Wakes the worker whatever it waits for.
    fn rouse(&self);

    /// Runs one turn: the worker has begun, was woken, or its nap is over. Must not block.
    fn turn(&self) -> WorkerAction;

    /// The worker has nothing to do and is about to sleep; its word was `seen` before its last
    /// turn. It may look for a while instead. `true`: there is another turn to take.
    fn looks_on(&self, seen: u32) -> bool;

    /// Nobody called for a long time. `true`: the worker may go. Asked by the worker alone.
    fn retires(&self) -> bool;

    /// Returns how long the worker sleeps before it asks that.
    fn rest(&self) -> Duration;

    /// A thread of the program passes a keypoint: it does what a turn would do. The worker may be
    /// at it.
    fn look(&self);
}

/// A duty, and the forks that lie before its process: to a child it is nobody's.
type DutyEntry = (Weak<dyn WorkerDuty>, u32);

/// Duties for which there may be workers.
static DUTIES: std::sync::Mutex<Vec<DutyEntry>> = std::sync::Mutex::new(Vec::new());
/// There are some.
static ANY: AtomicBool = AtomicBool::new(false);

fn duties() -> std::sync::MutexGuard<'static, Vec<DutyEntry>> {
    DUTIES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A keypoint of the program's: a thread that has the time does what workers on demand would have
/// to be called for. One load where there are none.
#[inline]
pub(super) fn look() {
    if ANY.load(Ordering::Relaxed) {
        run_all_duties();
    }
}

#[cold]
#[inline(never)]
fn run_all_duties() {
    let known = |at| duties().get(at).cloned();
    let mut at = 0;
    while let Some((duty, forks)) = known(at) {
        at += 1;
        if forks == sys::forks_now()
            && let Some(duty) = duty.upgrade()
        {
            // Outside of the lock: it may end everything.
            duty.look();
        }
    }
}

/// Place where a worker on demand lives.
#[derive(Clone, Debug)]
pub(crate) struct WorkerCores {
    cpus: CpuSet,
    /// The CPUs are used by nobody else.
    exclusive: bool,
}

impl WorkerCores {
    /// The given CPUs, or those on which the calling thread may run now. A caller that binds itself
    /// later leaves the others to the worker.
    pub(crate) fn of(cpus: Option<CpuSet>) -> Self {
        let allowed = machine::allowed();
        let exclusive = cpus.as_ref().is_some_and(|cpus| !cpus.meets(&allowed));
        Self {
            cpus: cpus.unwrap_or(allowed),
            exclusive,
        }
    }

    /// Returns where a worker that is on this processor could be instead; `None`: nowhere, or it is
    /// not one of these.
    pub(crate) fn without(&self, cpu: u32) -> Option<CpuSet> {
        let others: CpuSet = self.cpus.iter().filter(|other| *other != cpu).collect();
        (self.cpus.contains(cpu) && !others.is_empty()).then_some(others)
    }
}

/// A duty as a task's work.
pub(crate) struct DutyTask {
    duty: Arc<dyn WorkerDuty>,
    /// What the last turn said.
    next: Mutex<WorkerAction>,
    /// The worker's cores are used by nobody else.
    exclusive: bool,
    checker: Option<sys::RaceChecker>,
}

impl TaskWork<RunContext> for DutyTask {
    fn run(&self, _: &RunContext) -> RunOutcome {
        sys::RaceChecker::looks_away(self.checker, || {
            let next = sys::while_nobody_forks(|| self.duty.turn());
            *lock(&self.next) = next;
        });
        RunOutcome::Done
    }
}

impl DutyTask {
    /// The word that the worker sleeps on.
    pub(crate) fn word(&self) -> &AtomicU32 {
        self.duty.word()
    }

    /// See [`WorkerDuty::rouse`].
    pub(crate) fn rouse(&self) {
        self.duty.rouse();
    }

    fn next(&self) -> WorkerAction {
        *lock(&self.next)
    }
}

impl Tasks {
    /// Queues for one duty, whose worker lives on those cores. It is there after [`Tasks::hire`].
    pub(crate) fn on_call(cores: WorkerCores, duty: impl WorkerDuty) -> Result<Self, Error> {
        let WorkerCores { cpus, exclusive } = cores;
        let tasks = Self::new(TaskSettings {
            tree: Tree::new(&cpus.iter().take(1).collect(), []),
            homes: vec![cpus],
            class: WorkerClass::Ordinary,
            spins: 0,
        })?;
        let duty: Arc<dyn WorkerDuty> = Arc::new(duty);
        {
            let mut duties = duties();
            duties.retain(|(duty, _)| duty.strong_count() > 0);
            duties.push((Arc::downgrade(&duty), sys::forks()));
            ANY.store(true, Ordering::Relaxed);
        }
        let turns = DutyTask {
            duty,
            next: Mutex::new(WorkerAction::Sleep),
            exclusive,
            checker: sys::RaceChecker::find(),
        };
        let manner = tasks.resolve_options(&TaskOptions::at(Place::Machine))?;
        let task = Arc::new(tasks.place(manner, turns, false));
        let pool = &tasks.scheduler().pool;
        let home = pool.homes.first();
        home.ok_or(Error::Misuse("a worker on call has no CPU"))?
            .put_on_call(task);
        Ok(tasks)
    }

    /// Starts the worker on demand, unless it is there.
    pub(crate) fn hire(&self) -> Result<(), Error> {
        let scheduler = self.scheduler();
        scheduler.alive()?;
        let started = scheduler.pool.try_start(scheduler, 0);
        started.map_err(|error| {
            Error::System("cannot start a thread", error.raw_os_error().unwrap_or(0))
        })
    }
}

/// The life of a worker on demand. Returns when all are to leave, or when nobody needs it any
/// longer.
pub(super) fn attend(
    scheduler: &Arc<Scheduler>,
    home: &WorkerHome,
    task: &Arc<Task<DutyTask>>,
) -> WorkerEnd {
    let turns = task.work().get();
    let word = turns.word();
    let (mut before, mut rest) = (None, turns.duty.rest());
    loop {
        // Before the turn: whoever calls or arms during it changes the word, and there is another.
        let seen = word.load(Ordering::SeqCst);
        if scheduler.stopping() {
            return WorkerEnd::Told;
        }
        // Who was called while it woke from a long sleep is not idle.
        let next = if before == Some(seen) {
            rest = rest.saturating_mul(2).min(turns.duty.rest() * REST_TIMES);
            if sys::while_nobody_forks(|| home.retires(scheduler, || turns.duty.retires())) {
                return WorkerEnd::Retired;
            }
            WorkerAction::Sleep
        } else {
            rest = turns.duty.rest();
            advance(scheduler, task);
            turns.next()
        };
        let limit = match next {
            WorkerAction::Sleep => rest,
            WorkerAction::Nap(limit) => limit,
            WorkerAction::Leave if home.retires(scheduler, || true) => return WorkerEnd::Retired,
            WorkerAction::Leave => return WorkerEnd::Told,
        };
        if turns.duty.looks_on(seen) {
            before = None;
            continue;
        }
        let slept = futex::wait(word, seen, Some(limit));
        before = (next == WorkerAction::Sleep && slept == Wake::Timeout).then_some(seen);
    }
}

/// The worker's keypoint.
fn advance(scheduler: &Arc<Scheduler>, task: &Arc<Task<DutyTask>>) {
    // Its queue has room for more than one.
    let _ = task.poke(scheduler.tree.root());
    let at = RunContext {
        core: 0,
        keypoint: Keypoint::Idle,
        polls: false,
    };
    scheduler.walk(&at, scheduler.next_round());
    if task.work().get().exclusive {
        tasks::pass(Keypoint::Idle);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_worker_leaves_a_processor_for_the_others_of_its_own_if_there_are_any() {
        let set = |cpus: &[u32]| cpus.iter().copied().collect::<CpuSet>();
        let cores = |cpus: &[u32]| WorkerCores {
            cpus: set(cpus),
            exclusive: false,
        };
        assert_eq!(cores(&[2, 5, 70]).without(5), Some(set(&[2, 70])));
        assert_eq!(cores(&[2, 5, 70]).without(4), None);
        assert_eq!(cores(&[5]).without(5), None);
        assert_eq!(cores(&[]).without(0), None);
    }

    struct Bell {
        word: Arc<AtomicU32>,
        turn: Box<dyn Fn() -> WorkerAction + Send + Sync>,
        retires: Box<dyn Fn() -> bool + Send + Sync>,
    }

    impl WorkerDuty for Bell {
        fn word(&self) -> &AtomicU32 {
            &self.word
        }

        fn rouse(&self) {
            call(&self.word);
        }

        fn turn(&self) -> WorkerAction {
            (self.turn)()
        }

        fn retires(&self) -> bool {
            (self.retires)()
        }

        fn rest(&self) -> Duration {
            Duration::from_millis(100)
        }

        fn look(&self) {}

        fn looks_on(&self, _: u32) -> bool {
            false
        }
    }

    fn call(word: &AtomicU32) {
        word.fetch_add(1, Ordering::SeqCst);
        futex::wake(word, u32::MAX);
    }

    fn hired(
        turn: impl Fn() -> WorkerAction + Send + Sync + 'static,
        retires: impl Fn() -> bool + Send + Sync + 'static,
    ) -> (Tasks, Arc<AtomicU32>) {
        let word = Arc::new(AtomicU32::new(0));
        let bell = Bell {
            word: word.clone(),
            turn: Box::new(turn),
            retires: Box::new(retires),
        };
        let tasks = Tasks::on_call(WorkerCores::of(None), bell).unwrap();
        tasks.hire().unwrap();
        (tasks, word)
    }

    fn is_deserted(tasks: &Tasks) -> bool {
        tasks.worker_counts().started == 0
    }

    #[test]
    fn a_worker_takes_a_turn_when_it_starts_and_one_for_each_call_and_ends_when_told() {
        let (sender, turns) = mpsc::channel();
        let turn = move || {
            sender.send(()).unwrap();
            WorkerAction::Sleep
        };
        let (tasks, word) = hired(turn, || false);
        turns.recv().unwrap();
        for _ in 0..3 {
            call(&word);
            turns.recv().unwrap();
        }
        tasks.stop();
        drop(tasks);
        assert!(
            turns.iter().count() < 8,
            "it only looks when something changed"
        );
    }

    #[test]
    fn a_worker_that_has_no_more_to_do_leaves_and_another_can_be_hired() {
        let (sender, turns) = mpsc::channel();
        let turn = move || {
            sender.send(()).unwrap();
            WorkerAction::Leave
        };
        let (tasks, _) = hired(turn, || false);
        for _ in 0..3 {
            turns.recv().unwrap();
            while !is_deserted(&tasks) {
                std::thread::yield_now();
            }
            tasks.hire().unwrap();
        }
        turns.recv().unwrap();
    }

    #[test]
    fn a_worker_that_nobody_calls_is_asked_whether_it_may_go_and_one_that_sleeps_is_not() {
        let naps = Arc::new(AtomicU32::new(0));
        let its = naps.clone();
        let turn = move || match its.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => WorkerAction::Nap(Duration::from_millis(1)),
            _ => WorkerAction::Sleep,
        };
        let seen = naps.clone();
        let (tasks, _) = hired(turn, move || seen.load(Ordering::Relaxed) == 3);
        while !is_deserted(&tasks) {
            std::thread::yield_now();
        }
        assert_eq!(naps.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_turn_that_ends_everything_ends_its_own_worker_too() {
        let own: Arc<Mutex<Option<Tasks>>> = Arc::default();
        let its = own.clone();
        let (sender, gone) = mpsc::channel();
        let turn = move || {
            let Some(tasks) = its.lock().unwrap().take() else {
                return WorkerAction::Nap(Duration::from_millis(1));
            };
            drop(tasks);
            sender.send(()).unwrap();
            WorkerAction::Sleep
        };
        let (tasks, _) = hired(turn, || false);
        *own.lock().unwrap() = Some(tasks);
        gone.recv().unwrap();
        assert!(
            gone.recv().is_err(),
            "the worker has gone, and what it was called for with it"
        );
    }
}
