//! Random schedules of the whole: queues, idle set, workers and their sleep, the event thread,
//! workers on demand; with threads that submit, wait, cancel and end everything.
//!
//! The next thread is drawn at every atomic operation and lock. A sleep that only a wake-up ends,
//! and that nobody ends, shows as a schedule in which all threads are blocked. A failure names its
//! seed; `GARONNE_SEED=N` runs that one alone, `GARONNE_SEEDS=N` as many.

use crate::events::WatchAction as Then;
use crate::events::poller::TIMELESS;
use crate::facade::{AtomicU32, Ordering};
use crate::limits::STACK;
use crate::sys::{CPUS, is_of_idle_class};
use crate::tasks::{
    Cancellation, Keypoint, Place, RunContext, RunOutcome, Task, TaskOptions, TaskSettings,
    TaskState, Tasks, Urgency, WorkerAction, WorkerClass, WorkerCores, WorkerDuty,
};
use garonne_sync::futex;
use garonne_topology::{CpuSet, Kind, Tree};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::RandomScheduler;
use shuttle::thread::spawn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Schedules of each test if nothing else is said: some seconds.
const USUAL: u64 = 500;

/// Tests of this file set what the machine is like, one at a time.
static MACHINE: Mutex<()> = Mutex::new(());

pub(crate) fn schedules(timeless: bool, test: fn()) {
    let _machine = MACHINE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    TIMELESS.store(timeless, std::sync::atomic::Ordering::Relaxed);
    let said = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let seeds: Vec<u64> = match said("GARONNE_SEED") {
        Some(seed) => vec![seed],
        None => (1..=said("GARONNE_SEEDS").unwrap_or(USUAL)).collect(),
    };
    for seed in seeds {
        let run = || {
            let mut config = shuttle::Config::new();
            config.stack_size = STACK;
            shuttle::Runner::new(RandomScheduler::new_from_seed(seed, 1), config).run(test);
        };
        if let Err(failure) = std::panic::catch_unwind(run) {
            eprintln!("GARONNE_SEED={seed} does it again");
            std::panic::resume_unwind(failure);
        }
    }
}

fn draw(below: u32) -> u32 {
    thread_rng().gen_range(0..below)
}

/// Sleeps until a count has come so far.
fn comes(count: &AtomicU32, least: u32) {
    loop {
        let now = count.load(Ordering::SeqCst);
        if now >= least {
            return;
        }
        futex::wait(count, now, None);
    }
}

fn tell(count: &AtomicU32) {
    count.fetch_add(1, Ordering::SeqCst);
    futex::wake(count, u32::MAX);
}

fn machine() -> TaskSettings {
    let cpu = |cpu: u32| [cpu].into_iter().collect::<CpuSet>();
    TaskSettings {
        tree: Tree::regular(1, 1, 2, CPUS / 2),
        homes: (0..CPUS).map(cpu).collect(),
        class: [WorkerClass::Idle, WorkerClass::Ordinary][draw(2) as usize],
        spins: draw(3),
    }
}

fn how() -> TaskOptions {
    let place = match draw(6) {
        0 => Place::Machine,
        1 => Place::Core(draw(CPUS)),
        2 => Place::Around(Kind::Cache(3), draw(CPUS)),
        3 => Place::NearCaller,
        4 => Place::Caller(Kind::Core),
        _ => Place::Nearest,
    };
    TaskOptions {
        place,
        urgency: [Urgency::Idle, Urgency::Now][usize::from(draw(4) == 0)],
        patience: (draw(2) == 0).then_some(Duration::from_micros(7)),
    }
}

/// Takes this many runs, one at a time.
struct Runs {
    wanted: u32,
    done: AtomicU32,
    inside: AtomicU32,
}

impl Runs {
    fn new() -> Self {
        Self {
            wanted: 1 + draw(3),
            done: AtomicU32::new(0),
            inside: AtomicU32::new(0),
        }
    }

    fn run(&self) -> RunOutcome {
        assert_eq!(
            self.inside.swap(1, Ordering::SeqCst),
            0,
            "two threads run one task"
        );
        let done = self.done.fetch_add(1, Ordering::SeqCst) + 1;
        self.inside.store(0, Ordering::SeqCst);
        assert!(done <= self.wanted, "it was run after its end");
        match done == self.wanted {
            true => RunOutcome::Done,
            false => RunOutcome::Again,
        }
    }
}

type Some = Box<dyn Fn(&RunContext) -> RunOutcome + Send + Sync>;

fn task(tasks: &Tasks) -> (Arc<Task<Some>>, Arc<Runs>) {
    let runs = Arc::new(Runs::new());
    let its = runs.clone();
    let work: Some = Box::new(move |_| its.run());
    (Arc::new(tasks.task(&how(), work).unwrap()), runs)
}

fn submits(tasks: &Tasks) {
    let mut left = Vec::new();
    for _ in 0..1 + draw(3) {
        let (task, runs) = task(tasks);
        match draw(6) {
            // Its owner waits, and helps.
            0 => {
                tasks.submit_shared(&task).unwrap();
                assert_eq!(tasks.wait(&task), TaskState::Done);
                assert_eq!(runs.done.load(Ordering::SeqCst), runs.wanted);
            }
            1 => {
                tasks.submit_shared(&task).unwrap();
                let Cancellation::Settled(life) = task.withdraw() else {
                    panic!("this thread is not within its run");
                };
                let done = runs.done.load(Ordering::SeqCst);
                assert_eq!(life == TaskState::Done, done == runs.wanted);
                shuttle::thread::yield_now();
                assert_eq!(
                    runs.done.load(Ordering::SeqCst),
                    done,
                    "it was run after it was taken back"
                );
            }
            2 => {
                let its = Runs::new();
                let pinned = pin!(tasks.task(&how(), move |_: &RunContext| its.run()).unwrap());
                tasks.submit(pinned.as_ref()).unwrap();
                // Its drop takes it back.
            }
            3 => {
                tasks.submit_shared(&task).unwrap();
                let mut poller = tasks.poller(Keypoint::Wait);
                for _ in 0..draw(3) {
                    poller.turn();
                }
                left.push((task, runs));
            }
            // Somebody else runs it.
            _ => {
                tasks.submit_shared(&task).unwrap();
                left.push((task, runs));
            }
        }
    }
    for (task, runs) in left {
        assert!(task.wait(None));
        assert_eq!(task.life(), TaskState::Done);
        assert_eq!(runs.done.load(Ordering::SeqCst), runs.wanted);
    }
}

fn all_at_once() {
    let tasks = Tasks::new(machine()).unwrap();
    let submitters: Vec<_> = (0..2 + draw(2))
        .map(|_| {
            let tasks = tasks.clone();
            spawn(move || submits(&tasks))
        })
        .collect();
    submitters
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    // The last handle waits for all threads.
    drop(tasks);
}

#[test]
fn what_is_submitted_is_run_and_nobody_sleeps_over_it() {
    schedules(true, all_at_once);
}

#[test]
fn a_timer_beside_them_runs_nothing_twice() {
    schedules(false, all_at_once);
}

#[test]
fn what_is_wanted_now_and_repeats_is_never_left_to_workers_of_the_idle_class_nor_to_nobody() {
    schedules(true, || {
        let tasks = Tasks::new(TaskSettings {
            class: WorkerClass::Idle,
            ..machine()
        })
        .unwrap();
        let others: Vec<_> = (0..2)
            .map(|_| {
                let tasks = tasks.clone();
                spawn(move || {
                    let runs = Runs::new();
                    let how = TaskOptions {
                        urgency: Urgency::Now,
                        ..how()
                    };
                    let work: Some = Box::new(move |_| {
                        assert!(!is_of_idle_class());
                        runs.run()
                    });
                    let urgent = Arc::new(tasks.task(&how, work).unwrap());
                    // So that workers come.
                    let (idle, _) = task(&tasks);
                    tasks.submit_shared(&idle).unwrap();
                    tasks.submit_shared(&urgent).unwrap();
                    for _ in 0..draw(3) {
                        tasks.schedule(Keypoint::Switch);
                    }
                    assert!(urgent.wait(None) && idle.wait(None));
                    assert_eq!(urgent.life(), TaskState::Done);
                })
            })
            .collect();
        others.into_iter().for_each(|thread| thread.join().unwrap());
        drop(tasks);
    });
}

#[test]
fn an_end_while_others_submit_and_wait_leaves_nobody_asleep() {
    schedules(false, || {
        let tasks = Tasks::new(machine()).unwrap();
        let others: Vec<_> = (0..2)
            .map(|_| {
                let tasks = tasks.clone();
                spawn(move || {
                    for _ in 0..2 {
                        let (task, runs) = task(&tasks);
                        if tasks.submit_shared(&task).is_err() {
                            return;
                        }
                        if draw(2) == 0 {
                            let life = tasks.wait(&task);
                            let done = runs.done.load(Ordering::SeqCst) == runs.wanted;
                            // RunContext the end nobody waits for a run that goes on.
                            assert!(
                                life == TaskState::Pending || (life == TaskState::Done) == done,
                                "{life:?}"
                            );
                        }
                    }
                })
            })
            .collect();
        tasks.stop();
        others.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn events_that_come_while_their_action_runs_make_it_run_once_more() {
    schedules(true, || {
        let tasks = Tasks::new(machine()).unwrap();
        let (beats, pokes) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let its = beats.clone();
        let alarm = tasks.on_alarm(
            (Duration::ZERO, Some(Duration::from_nanos(1))),
            &how(),
            move |_| {
                tell(&its);
                match its.load(Ordering::SeqCst) {
                    3 => Then::Stop,
                    _ => Then::Keep,
                }
            },
        );
        let its = pokes.clone();
        let wanted = Arc::new(AtomicU32::new(0));
        let seen = wanted.clone();
        // Tells the last that was wanted before a run began.
        let work: Some = Box::new(move |_| {
            its.store(seen.load(Ordering::SeqCst), Ordering::SeqCst);
            futex::wake(&its, u32::MAX);
            RunOutcome::Done
        });
        let poked = Arc::new(tasks.task(&how(), work).unwrap());
        for round in 1..=3 {
            wanted.store(round, Ordering::SeqCst);
            tasks.poke(&poked).unwrap();
        }
        comes(&pokes, 3);
        comes(&beats, 3);
        drop(alarm);
        drop(tasks);
    });
}

#[test]
fn a_wish_that_comes_while_the_thread_for_events_starts_is_seen() {
    schedules(true, || {
        let tasks = Tasks::new(machine()).unwrap();
        let its = tasks.clone();
        let starter = spawn(move || assert!(its.scheduler().reactor().is_some()));
        let how = TaskOptions {
            urgency: Urgency::Now,
            ..TaskOptions::at(Place::Machine)
        };
        let task = Arc::new(tasks.task(&how, |_: &RunContext| RunOutcome::Done).unwrap());
        tasks.submit_shared(&task).unwrap();
        assert!(task.wait(None));
        starter.join().unwrap();
        drop(tasks);
    });
}

/// Beside a run on the event thread that waits for an alarm, a task that is urgent and one
/// that can wait.
fn a_long_run(says: bool) {
    let tasks = Tasks::new(machine()).unwrap();
    let (begun, others) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let now = TaskOptions {
        urgency: Urgency::Now,
        ..TaskOptions::at(Place::Machine)
    };
    let beat = others.clone();
    // The thread is there before the run.
    let alarm = tasks.on_alarm((Duration::ZERO, None), &now, move |_| {
        tell(&beat);
        Then::Stop
    });
    let (its, its_begun, its_others) = (tasks.clone(), begun.clone(), others.clone());
    let work: Some = Box::new(move |at| {
        let lengthy = says.then(|| its.lengthy(at));
        tell(&its_begun);
        comes(&its_others, 3);
        drop(lengthy);
        RunOutcome::Done
    });
    let long = Arc::new(tasks.task(&now, work).unwrap());
    tasks.submit_shared(&long).unwrap();
    if draw(2) == 0 {
        comes(&begun, 1);
    }
    let each = [now, TaskOptions::at(Place::Machine)].map(|how| {
        let tells = others.clone();
        let work: Some = Box::new(move |_| {
            tell(&tells);
            RunOutcome::Done
        });
        let task = Arc::new(tasks.task(&how, work).unwrap());
        tasks.submit_shared(&task).unwrap();
        task
    });
    assert!(long.wait(None));
    each.iter().for_each(|task| assert!(task.wait(None)));
    drop((alarm, each, long));
    drop(tasks);
}

#[test]
fn a_run_that_says_that_it_is_long_holds_up_nothing_else() {
    schedules(true, || a_long_run(true));
}

#[test]
fn a_run_that_is_long_and_does_not_say_so_holds_up_nothing_else_for_ever() {
    schedules(false, || a_long_run(false));
}

#[test]
fn an_end_while_others_stand_in_leaves_nobody_asleep() {
    schedules(false, || {
        let tasks = Tasks::new(machine()).unwrap();
        let now = TaskOptions {
            urgency: Urgency::Now,
            ..TaskOptions::at(Place::Machine)
        };
        for _ in 0..1 + draw(3) {
            let its = tasks.clone();
            let work: Some = Box::new(move |at| {
                let lengthy = (draw(2) == 0).then(|| its.lengthy(at));
                shuttle::thread::yield_now();
                drop(lengthy);
                RunOutcome::Done
            });
            let task = Arc::new(tasks.task(&now, work).unwrap());
            tasks.submit_shared(&task).unwrap();
            if draw(2) == 0 {
                task.wait(None);
            }
        }
        tasks.stop();
    });
}

const KEPT: u32 = 0;
const DESERTED: u32 = 1;
const LENT: u32 = 2;

/// A gate as `sync::progress_owner` has one, and how far the worker has come.
struct Called {
    word: AtomicU32,
    gate: AtomicU32,
    seen: AtomicU32,
}

impl WorkerDuty for Arc<Called> {
    fn word(&self) -> &AtomicU32 {
        &self.word
    }

    fn rouse(&self) {
        tell(&self.word);
    }

    fn turn(&self) -> WorkerAction {
        self.seen
            .store(self.word.load(Ordering::SeqCst), Ordering::SeqCst);
        futex::wake(&self.seen, u32::MAX);
        match draw(4) {
            0 => WorkerAction::Nap(Duration::from_micros(1)),
            _ => WorkerAction::Sleep,
        }
    }

    fn retires(&self) -> bool {
        let gate = &self.gate;
        gate.compare_exchange(KEPT, DESERTED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    fn rest(&self) -> Duration {
        Duration::from_micros(1)
    }

    fn look(&self) {}

    fn looks_on(&self, seen: u32) -> bool {
        self.word.load(Ordering::SeqCst) != seen || draw(4) == 0
    }
}

#[test]
fn a_worker_on_call_hears_every_call_and_may_go_only_while_nobody_calls() {
    schedules(true, || {
        let called = Arc::new(Called {
            word: AtomicU32::new(0),
            gate: AtomicU32::new(KEPT),
            seen: AtomicU32::new(0),
        });
        let tasks = Tasks::on_call(WorkerCores::of(None), called.clone()).unwrap();
        tasks.hire().unwrap();
        for _ in 0..3 {
            let gate = &called.gate;
            while gate.compare_exchange(KEPT, LENT, Ordering::SeqCst, Ordering::SeqCst)
                == Err(DESERTED)
            {
                // Before there is one that could retire.
                let _ = gate.compare_exchange(DESERTED, KEPT, Ordering::SeqCst, Ordering::SeqCst);
                tasks.hire().unwrap();
            }
            for _ in 0..1 + draw(2) {
                tell(&called.word);
                comes(&called.seen, called.word.load(Ordering::SeqCst));
            }
            called.gate.store(KEPT, Ordering::SeqCst);
        }
        drop(tasks);
    });
}
