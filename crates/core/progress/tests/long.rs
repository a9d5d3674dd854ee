//! Runs that take long on the thread for events: whatever else that thread does goes on. Each waits
//! for what only others can do meanwhile.

mod support;

use garonne_progress::events::WatchAction;
use garonne_progress::tasks::{
    Keypoint, Place, RunContext, RunOutcome, Task, TaskOptions, TaskSettings, TaskState, Tasks,
    Urgency,
};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use support::{alone, settings};

/// Longer than a test machine keeps anybody waiting.
const LONG: Duration = Duration::from_secs(60);

fn urgent() -> TaskOptions {
    TaskOptions {
        urgency: Urgency::Now,
        ..TaskOptions::at(Place::Machine)
    }
}

/// One test at a time: some look at the threads of the process.
fn exclusively(test: impl FnOnce()) {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    test();
    drop(guard);
}

/// What has happened so far.
#[derive(Clone, Default)]
struct Count(Arc<AtomicU32>);

impl Count {
    fn add(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn now(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns whether it comes so far.
    fn comes_to(&self, least: u32) -> bool {
        let begun = Instant::now();
        while self.now() < least && begun.elapsed() < LONG {
            std::thread::sleep(Duration::from_micros(100));
        }
        self.now() >= least
    }
}

type Boxed = Box<dyn Fn(&RunContext) -> RunOutcome + Send + Sync>;

fn submit(
    tasks: &Tasks,
    how: &TaskOptions,
    work: impl Fn(&RunContext) -> RunOutcome + Send + Sync + 'static,
) -> Arc<Task<Boxed>> {
    let task = Arc::new(tasks.task(how, Box::new(work) as Boxed).unwrap());
    tasks.submit_shared(&task).unwrap();
    task
}

#[derive(Clone, Copy, PartialEq)]
enum Says {
    Lengthy,
    Nothing,
}

/// A run that is not over until `others` is five, and what becomes of it.
fn submit_long(
    tasks: &Tasks,
    how: &TaskOptions,
    says: Says,
    (begun, others): (&Count, &Count),
) -> Arc<Task<Boxed>> {
    let (its, begun, others) = (tasks.clone(), begun.clone(), others.clone());
    submit(tasks, how, move |at| {
        let lengthy = (says == Says::Lengthy).then(|| its.lengthy(at));
        begun.add();
        let over = others.comes_to(5);
        drop(lengthy);
        assert!(over && at.keypoint == Keypoint::Timer);
        RunOutcome::Done
    })
}

/// Adds three beats of an alarm, one task that is wanted now, and one that can wait.
fn all_else(tasks: &Tasks, others: &Count) {
    let beats = Count::default();
    let tell = others.clone();
    let period = Some(Duration::from_millis(1));
    let alarm = tasks.on_alarm((Duration::ZERO, period), &urgent(), move |_| {
        tell.add();
        match beats.add() {
            3 => WatchAction::Stop,
            _ => WatchAction::Keep,
        }
    });
    let each = [urgent(), TaskOptions::at(Place::Machine)].map(|how| {
        let tell = others.clone();
        submit(tasks, &how, move |_| {
            tell.add();
            RunOutcome::Done
        })
    });
    assert!(others.comes_to(5));
    drop((alarm, each));
}

/// All else goes on beside a long run that was submitted so. `meanwhile` is asked when it has
/// begun.
fn goes_on_beside(settings: fn() -> TaskSettings, how: &TaskOptions, meanwhile: fn(&Tasks)) {
    exclusively(|| {
        for says in [Says::Lengthy, Says::Nothing] {
            let tasks = Tasks::new(settings()).unwrap();
            let (begun, others) = (Count::default(), Count::default());
            let long = submit_long(&tasks, how, says, (&begun, &others));
            assert!(begun.comes_to(1));
            meanwhile(&tasks);
            all_else(&tasks, &others);
            assert!(long.wait(Some(LONG)));
            assert_eq!(long.life(), TaskState::Done);
        }
    });
}

#[test]
fn beside_a_long_run_that_was_wanted_now_alarms_ring_and_tasks_are_run_by_workers_that_start_then()
{
    goes_on_beside(settings, &urgent(), |tasks| {
        assert_eq!(tasks.worker_counts().started, 0);
    });
}

#[test]
fn beside_a_long_run_that_the_timer_began_it_runs_others() {
    goes_on_beside(alone, &TaskOptions::at(Place::Machine), |_| {});
}

#[test]
fn long_runs_one_behind_the_other_in_a_queue_go_on_at_once() {
    exclusively(|| {
        let tasks = Tasks::new(settings()).unwrap();
        let begun = Count::default();
        let all = [(); 6].map(|()| {
            let (its, begun) = (tasks.clone(), begun.clone());
            submit(&tasks, &urgent(), move |at| {
                let lengthy = its.lengthy(at);
                begun.add();
                // Not before all have.
                assert!(begun.comes_to(6));
                drop(lengthy);
                RunOutcome::Done
            })
        });
        assert!(begun.comes_to(6));
        for task in all {
            assert!(task.wait(Some(LONG)));
            assert_eq!(task.life(), TaskState::Done);
        }
    });
}

#[test]
fn the_timer_begins_a_few_long_runs_at_once_and_the_rest_when_those_are_over() {
    exclusively(|| {
        let tasks = Tasks::new(alone()).unwrap();
        let (begun, over) = (Count::default(), Count::default());
        let all = [(); 9].map(|()| {
            let (its, begun, over) = (tasks.clone(), begun.clone(), over.clone());
            submit(&tasks, &TaskOptions::at(Place::Machine), move |at| {
                let lengthy = its.lengthy(at);
                begun.add();
                assert!(over.comes_to(1));
                drop(lengthy);
                RunOutcome::Done
            })
        });
        let few = garonne_progress::limits::LONG_AT_TIMER;
        assert!(begun.comes_to(few));
        let beats = Count::default();
        let tell = beats.clone();
        let period = Some(Duration::from_millis(1));
        let alarm = tasks.on_alarm((Duration::ZERO, period), &urgent(), move |_| {
            tell.add();
            WatchAction::Keep
        });
        assert!(beats.comes_to(100));
        assert_eq!(begun.now(), few);
        over.add();
        for task in all {
            assert!(task.wait(Some(LONG)));
            assert_eq!(task.life(), TaskState::Done);
        }
        drop(alarm);
    });
}

fn threads_for_events() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let name = |dir: std::fs::DirEntry| std::fs::read_to_string(dir.path().join("comm"));
    let names = threads.filter_map(|dir| name(dir).ok());
    names
        .filter(|name| name.starts_with("garonne-events"))
        .count()
}

#[test]
fn after_long_runs_one_thread_waits_for_events_and_one_stands_in_and_all_end_with_the_last_handle()
{
    exclusively(|| {
        let tasks = Tasks::new(alone()).unwrap();
        let (begun, over) = (Count::default(), Count::default());
        let all = [(); 5].map(|()| {
            let (its, begun, over) = (tasks.clone(), begun.clone(), over.clone());
            submit(&tasks, &urgent(), move |at| {
                let lengthy = its.lengthy(at);
                begun.add();
                assert!(over.comes_to(1));
                drop(lengthy);
                RunOutcome::Done
            })
        });
        assert!(begun.comes_to(5));
        assert!(threads_for_events() >= 6);
        over.add();
        for task in all {
            assert!(task.wait(Some(LONG)));
        }
        // Some are on their way yet.
        while threads_for_events() > 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(tasks);
        while threads_for_events() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn when_as_many_take_long_as_may_and_others_end_events_go_on() {
    exclusively(|| {
        let tasks = Tasks::new(alone()).unwrap();
        let bound = garonne_progress::limits::LONG_RUNS;
        let (begun, over) = (Count::default(), Count::default());
        let beats = Count::default();
        let tell = beats.clone();
        let period = Some(Duration::from_millis(1));
        let alarm = tasks.on_alarm((Duration::ZERO, period), &urgent(), move |_| {
            tell.add();
            WatchAction::Keep
        });
        assert!(beats.comes_to(10));
        let all: Vec<_> = (0..bound + 1)
            .map(|_| {
                let (its, begun, over) = (tasks.clone(), begun.clone(), over.clone());
                submit(&tasks, &urgent(), move |at| {
                    let lengthy = its.lengthy(at);
                    let own = begun.add();
                    assert!(over.comes_to(if own <= bound { 1 } else { 2 }));
                    drop(lengthy);
                    RunOutcome::Done
                })
            })
            .collect();
        assert!(begun.comes_to(bound + 1), "{}", begun.now());
        // All but the last end.
        over.add();
        let begun_at = Instant::now();
        while threads_for_events() > 4 && begun_at.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = beats.now();
        assert!(
            beats.comes_to(before + 10),
            "one long run goes on, and no alarm rings"
        );
        over.add();
        for task in all {
            assert!(task.wait(Some(LONG)));
        }
        drop(alarm);
    });
}
