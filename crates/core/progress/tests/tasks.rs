//! Tasks with real workers: who runs what, when threads exist, and what ends them.

mod support;

use garonne_progress::tasks::{
    Error, Keypoint, Place, RunContext, RunOutcome, Task, TaskOptions, TaskSettings, TaskState,
    Tasks, Urgency, WorkerClass,
};
use garonne_topology::{CpuSet, Kind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use support::{alone, settings};

fn own_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let name = |dir: std::fs::DirEntry| std::fs::read_to_string(dir.path().join("comm"));
    tasks
        .filter_map(|dir| name(dir).ok())
        .filter(|name| name.starts_with("garonne-"))
        .count()
}

/// Tests of this file that look at the process's threads do not run at once with others that make
/// some.
static THREADS: Mutex<()> = Mutex::new(());

fn exclusively<T>(f: impl FnOnce() -> T) -> T {
    let guard = THREADS
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let result = f();
    drop(guard);
    result
}

type Boxed = Box<dyn Fn(&RunContext) -> RunOutcome + Send + Sync>;

#[test]
fn threads_begin_with_the_first_submission_that_needs_one_and_end_with_the_last_handle() {
    exclusively(|| {
        // Those of an earlier test may still be on their way.
        while own_threads() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let tasks = Tasks::new(settings()).unwrap();
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        let work = move |at: &RunContext| {
            let _ = tell.lock().unwrap().send(at.keypoint);
            RunOutcome::Done
        };
        let task = Arc::new(tasks.task(&TaskOptions::at(Place::Machine), work).unwrap());
        assert_eq!((own_threads(), tasks.worker_counts().started), (0, 0));
        tasks.submit_shared(&task).unwrap();
        assert!(matches!(
            told.recv().unwrap(),
            Keypoint::Idle | Keypoint::Timer
        ));
        assert!(task.wait(None));
        assert!(tasks.worker_counts().started >= 1);
        let other = tasks.clone();
        drop(tasks);
        assert!(own_threads() > 0);
        drop(other);
        // Those that could not be waited for are on their way.
        while own_threads() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn a_waiter_runs_what_it_waits_for_without_any_worker() {
    exclusively(|| {
        let tasks = Tasks::new(alone()).unwrap();
        let runs = Arc::new(AtomicU32::new(0));
        let count = runs.clone();
        let task = tasks.task(
            &TaskOptions::at(Place::Machine),
            move |_: &RunContext| match count.fetch_add(1, Ordering::Relaxed) {
                3 => RunOutcome::Done,
                _ => RunOutcome::Again,
            },
        );
        let task = pin!(task.unwrap());
        let poller = tasks.poller(Keypoint::Wait);
        tasks.submit(task.as_ref()).unwrap();
        assert_eq!(tasks.wait(&task), TaskState::Done);
        drop(poller);
        assert_eq!(runs.load(Ordering::Relaxed), 4);
        assert_eq!(tasks.settled().iter().sum::<u64>(), 1);
        assert_eq!(tasks.worker_counts().started, 0);
    });
}

#[test]
fn a_task_that_nobody_comes_for_is_run_by_the_timer() {
    exclusively(|| {
        let tasks = Tasks::new(alone()).unwrap();
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        let work = move |at: &RunContext| {
            let _ = tell.lock().unwrap().send(at.keypoint);
            RunOutcome::Done
        };
        let task = Arc::new(tasks.task(&TaskOptions::at(Place::Machine), work).unwrap());
        tasks.submit_shared(&task).unwrap();
        assert_eq!(told.recv().unwrap(), Keypoint::Timer);
    });
}

#[test]
fn a_task_that_is_wanted_now_is_run_by_a_thread_woken_for_it() {
    exclusively(|| {
        let tasks = Tasks::new(alone()).unwrap();
        let how = TaskOptions {
            urgency: Urgency::Now,
            ..TaskOptions::at(Place::Machine)
        };
        // This thread polls, and yet does not come to it.
        let poller = tasks.poller(Keypoint::Wait);
        let task = Arc::new(tasks.task(&how, |_: &RunContext| RunOutcome::Done).unwrap());
        for _ in 0..3 {
            tasks.submit_shared(&task).unwrap();
            assert!(task.wait(None));
        }
        drop(poller);
    });
}

#[test]
fn a_task_is_run_while_every_core_computes() {
    exclusively(|| {
        for class in [WorkerClass::Idle, WorkerClass::Ordinary] {
            let tasks = Tasks::new(TaskSettings {
                class,
                ..settings()
            })
            .unwrap();
            let task = Arc::new(
                tasks
                    .task(&TaskOptions::at(Place::Machine), |_: &RunContext| {
                        RunOutcome::Done
                    })
                    .unwrap(),
            );
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for _ in 0..tasks.tree().cores() {
                    scope.spawn(|| {
                        while !over.load(Ordering::Relaxed) {
                            std::hint::spin_loop();
                        }
                    });
                }
                for _ in 0..3 {
                    tasks.submit_shared(&task).unwrap();
                    assert!(task.wait(None));
                }
                over.store(true, Ordering::Relaxed);
            });
        }
    });
}

/// Returns how often the library's threads were put on a core so far.
fn switches() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let count = |dir: std::fs::DirEntry| {
        let status = std::fs::read_to_string(dir.path().join("status")).ok()?;
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        field("Name:")?.starts_with("garonne-").then_some(())?;
        field("voluntary_ctxt_switches:")?.parse::<u64>().ok()
    };
    tasks.filter_map(count).sum()
}

#[test]
fn threads_with_nothing_to_do_are_not_woken() {
    exclusively(|| {
        let tasks = Tasks::new(settings()).unwrap();
        let task = Arc::new(
            tasks
                .task(&TaskOptions::at(Place::Machine), |_: &RunContext| {
                    RunOutcome::Done
                })
                .unwrap(),
        );
        tasks.submit_shared(&task).unwrap();
        assert!(task.wait(None));
        // The timer's last looks come first; one that went on for ever would never let a while pass
        // without.
        loop {
            let before = switches();
            std::thread::sleep(Duration::from_millis(150));
            if switches() == before {
                break;
            }
        }
        assert!(own_threads() > 0);
    });
}

#[test]
fn a_task_of_a_core_is_only_run_on_that_core() {
    exclusively(|| {
        let tasks = Tasks::new(settings()).unwrap();
        let tree = tasks.tree().clone();
        for core in 0..tree.cores() {
            let cpu = tree.areas()[core].cpus.first().unwrap();
            let ran_on = Arc::new(AtomicU32::new(u32::MAX));
            let note = ran_on.clone();
            let work = move |_: &RunContext| {
                note.store(current_cpu(), Ordering::Relaxed);
                RunOutcome::Done
            };
            let task = Arc::new(
                tasks
                    .task(&TaskOptions::at(Place::Core(cpu)), work)
                    .unwrap(),
            );
            tasks.submit_shared(&task).unwrap();
            assert!(task.wait(None));
            let cpu = ran_on.load(Ordering::Relaxed);
            assert!(
                tree.areas()[core].cpus.contains(cpu),
                "core {core} ran on CPU {cpu}"
            );
        }
    });
}

fn current_cpu() -> u32 {
    rustix::thread::sched_getcpu() as u32
}

#[test]
fn a_task_that_repeats_is_looked_at_by_a_sleeping_worker_until_it_succeeds() {
    exclusively(|| {
        let tasks = Tasks::new(settings()).unwrap();
        let ready = Arc::new(AtomicBool::new(false));
        let look = ready.clone();
        let how = TaskOptions {
            patience: Some(Duration::from_millis(1)),
            ..TaskOptions::at(Place::NearCaller)
        };
        let work = move |_: &RunContext| {
            if look.load(Ordering::Acquire) {
                RunOutcome::Done
            } else {
                RunOutcome::Again
            }
        };
        let task = Arc::new(tasks.task(&how, work).unwrap());
        tasks.submit_shared(&task).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(task.life(), TaskState::Pending);
        ready.store(true, Ordering::Release);
        assert!(task.wait(None));
    });
}

#[test]
fn a_task_that_waits_for_itself_is_told_that_it_is_pending() {
    exclusively(|| {
        let tasks = Tasks::new(settings()).unwrap();
        let (tell, told) = channel();
        let itself = Arc::new_cyclic(|itself: &Weak<Task<Boxed>>| {
            let (itself, tell, its) = (itself.clone(), Mutex::new(tell), tasks.clone());
            let work = move |_: &RunContext| {
                if let Some(task) = itself.upgrade() {
                    tell.lock().unwrap().send(its.wait(&task)).unwrap();
                }
                RunOutcome::Done
            };
            tasks
                .task(&TaskOptions::at(Place::Machine), Box::new(work) as _)
                .unwrap()
        });
        tasks.submit_shared(&itself).unwrap();
        assert_eq!(
            told.recv_timeout(Duration::from_secs(20)),
            Ok(TaskState::Pending)
        );
        assert_eq!(tasks.wait(&itself), TaskState::Done);
    });
}

#[test]
fn dropping_a_submitted_task_takes_it_back() {
    exclusively(|| {
        let tasks = Tasks::new(settings()).unwrap();
        for place in [
            Place::Machine,
            Place::NearCaller,
            Place::Nearest,
            Place::Caller(Kind::Numa),
        ] {
            for _ in 0..50 {
                let alive = Arc::new(AtomicBool::new(true));
                let seen = alive.clone();
                let work = move |_: &RunContext| {
                    assert!(seen.load(Ordering::Acquire));
                    RunOutcome::Again
                };
                let task = pin!(tasks.task(&TaskOptions::at(place.clone()), work).unwrap());
                tasks.submit(task.as_ref()).unwrap();
                task.withdraw();
                assert_eq!(task.life(), TaskState::Cancelled);
                alive.store(false, Ordering::Release);
            }
        }
    });
}

#[test]
fn without_an_idle_core_a_task_for_the_nearest_one_waits_for_the_whole_machine() {
    exclusively(|| {
        let tasks = Tasks::new(alone()).unwrap();
        let task = Arc::new(
            tasks
                .task(&TaskOptions::at(Place::Nearest), |_: &RunContext| {
                    RunOutcome::Done
                })
                .unwrap(),
        );
        // Only the caller's own core polls, which is where the caller is about to compute.
        let poller = tasks.poller(Keypoint::Wait);
        tasks.submit_shared(&task).unwrap();
        assert_eq!(tasks.schedule(Keypoint::Forced).settled, 1);
        drop(poller);
        assert_eq!(task.life(), TaskState::Done);
    });
}

#[test]
fn what_was_ended_and_what_belongs_elsewhere_is_refused() {
    exclusively(|| {
        let (tasks, others) = (Tasks::new(alone()).unwrap(), Tasks::new(alone()).unwrap());
        let task = Arc::new(
            tasks
                .task(&TaskOptions::at(Place::Machine), |_: &RunContext| {
                    RunOutcome::Done
                })
                .unwrap(),
        );
        assert!(matches!(others.submit_shared(&task), Err(Error::Misuse(_))));
        assert!(matches!(others.poke(&task), Err(Error::Misuse(_))));
        let poller = tasks.poller(Keypoint::Wait);
        tasks.submit_shared(&task).unwrap();
        assert!(matches!(tasks.submit_shared(&task), Err(Error::Misuse(_))));
        tasks.stop();
        assert_eq!(task.life(), TaskState::Cancelled);
        assert!(matches!(tasks.submit_shared(&task), Err(Error::Misuse(_))));
        drop(poller);
    });
}

#[test]
fn a_full_place_is_a_resource_error_until_somebody_runs_it() {
    exclusively(|| {
        let tasks = Tasks::new(alone()).unwrap();
        let poller = tasks.poller(Keypoint::Wait);
        let make = || {
            Arc::new(
                tasks
                    .task(&TaskOptions::at(Place::Machine), |_: &RunContext| {
                        RunOutcome::Done
                    })
                    .unwrap(),
            )
        };
        // One in the post.
        let many: Vec<_> = (0..513).map(|_| make()).collect();
        let mut refused = 0;
        for task in &many {
            tasks.submit_shared(task).unwrap();
        }
        let late = make();
        if let Err(error) = tasks.submit_shared(&late) {
            assert!(matches!(error, Error::Resource(_)), "{error}");
            refused += 1;
        }
        // The timer may have been quicker with some.
        assert!(refused == 1 || many.iter().any(|task| task.life() == TaskState::Done));
        tasks.schedule(Keypoint::Forced);
        drop(poller);
        many.iter().for_each(|task| assert!(task.wait(None)));
    });
}

#[test]
fn a_home_outside_the_machine_is_left_out() {
    let tasks = Tasks::new(TaskSettings {
        homes: vec![CpuSet::parse("4000").unwrap()],
        ..settings()
    });
    assert_eq!(tasks.unwrap().worker_counts().started, 0);
}

#[test]
fn many_submitters_and_many_kinds_of_places_lose_no_task() {
    exclusively(|| {
        let tasks = Tasks::new(TaskSettings {
            class: WorkerClass::Ordinary,
            ..settings()
        })
        .unwrap();
        let total = Arc::new(AtomicU32::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let (tasks, total) = (&tasks, &total);
                scope.spawn(move || {
                    let places = [
                        Place::Machine,
                        Place::NearCaller,
                        Place::Nearest,
                        Place::Caller(Kind::Core),
                    ];
                    for round in 0..300u32 {
                        let count = total.clone();
                        let place = places[((thread + round) % 4) as usize].clone();
                        let work = move |_: &RunContext| {
                            count.fetch_add(1, Ordering::Relaxed);
                            RunOutcome::Done
                        };
                        let task = pin!(tasks.task(&TaskOptions::at(place), work).unwrap());
                        tasks.submit(task.as_ref()).unwrap();
                        assert_eq!(tasks.wait(&task), TaskState::Done);
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 1200);
        // A runner counts after the task is settled.
        while tasks.settled().iter().sum::<u64>() < 1200 {
            std::thread::yield_now();
        }
        assert_eq!(tasks.settled().iter().sum::<u64>(), 1200);
    });
}
