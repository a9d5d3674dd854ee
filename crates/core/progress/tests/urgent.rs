//! What is wanted now is run by threads of the ordinary class: a worker of the idle class, which
//! the kernel may put aside in the midst of it, never takes it. Asserted on the class of the thread
//! that ran it.

mod support;

use garonne_progress::events::{FutexWord, Interest, WatchAction};
use garonne_progress::tasks::{
    Keypoint, Place, RunContext, RunOutcome, Task, TaskOptions, TaskSettings, TaskState, Tasks,
    Urgency, WorkerClass,
};
use garonne_sync::futex;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{alone, settings};

/// The number of the idle class among the kernel's.
const SCHED_IDLE: u32 = 5;

fn is_idle_class_here() -> bool {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // The fields behind the name, of which the state is the third of all.
    let fields = stat.rsplit(')').next().unwrap();
    fields
        .split_whitespace()
        .nth(41 - 3)
        .unwrap()
        .parse::<u32>()
        .unwrap()
        == SCHED_IDLE
}

fn urgent(place: Place) -> TaskOptions {
    TaskOptions {
        urgency: Urgency::Now,
        ..TaskOptions::at(place)
    }
}

/// Workers of the idle class that poll for ever.
fn awake() -> TaskSettings {
    TaskSettings {
        spins: u32::MAX,
        ..TaskSettings::here()
    }
}

type Boxed = Box<dyn Fn(&RunContext) -> RunOutcome + Send + Sync>;

fn task(
    tasks: &Tasks,
    how: &TaskOptions,
    work: impl Fn(&RunContext) -> RunOutcome + Send + Sync + 'static,
) -> Arc<Task<Boxed>> {
    Arc::new(tasks.task(how, Box::new(work) as Boxed).unwrap())
}

/// Has a worker of the idle class run something; it polls ever after.
fn call_a_worker(tasks: &Tasks) {
    let by_worker = Arc::new(AtomicBool::new(false));
    while !by_worker.load(Ordering::Relaxed) {
        let its = by_worker.clone();
        let first = task(tasks, &TaskOptions::at(Place::Machine), move |at| {
            its.fetch_or(at.keypoint == Keypoint::Idle, Ordering::Relaxed);
            RunOutcome::Done
        });
        tasks.submit_shared(&first).unwrap();
        assert!(first.wait(None));
    }
}

/// A sender that several threads may hold, of classes of threads.
fn line() -> (impl Fn() + Clone + Send + Sync, Receiver<bool>) {
    let (tell, told): (Sender<bool>, _) = channel();
    let tell = Arc::new(Mutex::new(tell));
    let tells = move || tell.lock().unwrap().send(is_idle_class_here()).unwrap();
    (tells, told)
}

fn places() -> [Place; 4] {
    [
        Place::Machine,
        Place::NearCaller,
        Place::Nearest,
        Place::Caller(garonne_topology::Kind::Core),
    ]
}

#[test]
fn a_task_that_is_wanted_now_is_never_run_by_a_worker_of_the_idle_class_that_polls_beside() {
    let tasks = Tasks::new(awake()).unwrap();
    call_a_worker(&tasks);
    let (tell, told) = line();
    for round in 0..50 {
        for place in places() {
            let tell = tell.clone();
            let one = task(&tasks, &urgent(place), move |_| {
                tell();
                RunOutcome::Done
            });
            tasks.submit_shared(&one).unwrap();
            // In half of the rounds this thread, which is of the ordinary class, may run it.
            if round % 2 == 0 {
                assert!(one.wait(None));
            } else {
                assert_eq!(tasks.wait(&one), TaskState::Done);
            }
            assert!(!told.recv().unwrap());
        }
    }
}

#[test]
fn while_every_core_computes_neither() {
    let tasks = Tasks::new(awake()).unwrap();
    call_a_worker(&tasks);
    let (tell, told) = line();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..tasks.tree().cores() {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        for place in places().into_iter().cycle().take(40) {
            let tell = tell.clone();
            let one = task(&tasks, &urgent(place), move |_| {
                tell();
                RunOutcome::Done
            });
            tasks.submit_shared(&one).unwrap();
            assert!(one.wait(None));
            assert!(!told.recv().unwrap());
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn an_action_that_is_wanted_now_neither_whatever_it_is_called_for() {
    let tasks = Tasks::new(awake()).unwrap();
    call_a_worker(&tasks);
    let how = urgent(Place::Machine);
    let (tell, told) = line();
    let expect = |times| (0..times).for_each(|_| assert!(!told.recv().unwrap()));

    let tells = tell.clone();
    let period = Some(Duration::from_millis(1));
    let alarm = tasks.on_alarm((Duration::ZERO, period), &how, move |_| {
        tells();
        WatchAction::Keep
    });
    expect(50);
    drop(alarm);
    while told.try_recv().is_ok() {}

    let (mut here, there) = UnixStream::pair().unwrap();
    let (watched, tells) = (there.try_clone().unwrap(), tell.clone());
    let descriptor = tasks.on_descriptor((&watched, Interest::Readable), &how, move |_| {
        (&there).read_exact(&mut [0]).unwrap();
        tells();
        WatchAction::Keep
    });
    for _ in 0..50 {
        here.write_all(&[1]).unwrap();
        expect(1);
    }
    drop(descriptor);

    let (word, tells) = (Arc::new(AtomicU32::new(0)), tell.clone());
    let watched: Arc<dyn FutexWord> = word.clone();
    let on_word = tasks.on_word((watched, 0), &how, move |_, _| {
        tells();
        WatchAction::Keep
    });
    for value in 1..50 {
        word.store(value, Ordering::Release);
        futex::wake(&word, u32::MAX);
        expect(1);
    }
    drop(on_word);

    let call = tasks.blocking(|| ()).unwrap();
    let completion = tasks.on_completion(&call, &how, move |_| tell());
    expect(1);
    drop(completion);
}

#[test]
fn a_task_that_is_wanted_now_and_repeats_is_looked_at_by_the_thread_for_events_until_it_succeeds() {
    for settings in [alone(), settings(), awake()] {
        let tasks = Tasks::new(settings).unwrap();
        let runs = Arc::new(AtomicU32::new(0));
        let its = runs.clone();
        let one = task(&tasks, &urgent(Place::Machine), move |at| {
            assert!(at.keypoint == Keypoint::Timer && !is_idle_class_here());
            match its.fetch_add(1, Ordering::Relaxed) {
                9 => RunOutcome::Done,
                _ => RunOutcome::Again,
            }
        });
        tasks.submit_shared(&one).unwrap();
        assert!(one.wait(None));
        assert_eq!(
            (one.life(), runs.load(Ordering::Relaxed)),
            (TaskState::Done, 10)
        );
    }
}

#[test]
fn what_a_waiter_has_run_in_vain_and_leaves_is_looked_at_by_the_thread_for_events() {
    let tasks = Tasks::new(alone()).unwrap();
    let (ready, waited) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (its_ready, its_waited) = (ready.clone(), waited.clone());
    let one = task(&tasks, &urgent(Place::Machine), move |at| {
        its_waited.fetch_or(at.keypoint == Keypoint::Forced, Ordering::Relaxed);
        match its_ready.load(Ordering::Acquire) {
            true => RunOutcome::Done,
            false => RunOutcome::Again,
        }
    });
    tasks.submit_shared(&one).unwrap();
    while !waited.load(Ordering::Relaxed) {
        tasks.schedule(Keypoint::Forced);
    }
    ready.store(true, Ordering::Release);
    assert!(one.wait(None));
}

#[test]
fn workers_of_the_ordinary_class_may_take_what_is_wanted_now() {
    let tasks = Tasks::new(TaskSettings {
        class: WorkerClass::Ordinary,
        ..awake()
    })
    .unwrap();
    call_a_worker(&tasks);
    let by_worker = Arc::new(AtomicBool::new(false));
    while !by_worker.load(Ordering::Relaxed) {
        let its = by_worker.clone();
        let one = task(&tasks, &urgent(Place::Machine), move |at| {
            its.fetch_or(at.keypoint == Keypoint::Idle, Ordering::Relaxed);
            RunOutcome::Done
        });
        tasks.submit_shared(&one).unwrap();
        assert!(one.wait(None));
    }
}

fn classes_of_own_threads() -> Vec<(String, bool)> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let stats =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    let class = |stat: String| {
        let (begin, fields) = stat.rsplit_once(')').unwrap();
        let policy = fields
            .split_whitespace()
            .nth(41 - 3)
            .unwrap()
            .parse::<u32>()
            .unwrap();
        (
            begin.split_once('(').unwrap().1.to_owned(),
            policy == SCHED_IDLE,
        )
    };
    stats.map(class).collect()
}

#[test]
fn threads_that_a_task_of_a_worker_asks_for_are_not_of_the_idle_class() {
    let tasks = Tasks::new(awake()).unwrap();
    call_a_worker(&tasks);
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let (its, others) = (tasks.clone(), Tasks::new(alone()).unwrap());
    let word: Arc<dyn FutexWord> = Arc::new(AtomicU32::new(0));
    let work = move |at: &RunContext| {
        if at.keypoint != Keypoint::Idle {
            return RunOutcome::Again;
        }
        assert!(is_idle_class_here());
        let call = its.blocking(is_idle_class_here).unwrap();
        let how = urgent(Place::Machine);
        let on_word = its
            .on_word((word.clone(), 0), &how, |_, _| WatchAction::Keep)
            .unwrap();
        // Its own thread for events.
        let alarm = others
            .on_alarm((Duration::ZERO, None), &how, |_| WatchAction::Stop)
            .unwrap();
        tell.lock().unwrap().send((call, on_word, alarm)).unwrap();
        RunOutcome::Done
    };
    let asks = task(&tasks, &TaskOptions::at(Place::Machine), work);
    tasks.submit_shared(&asks).unwrap();
    let (call, on_word, alarm) = told.recv().unwrap();
    assert_eq!(call.wait(), Some(false));
    for (name, idles) in classes_of_own_threads() {
        let is_worker = name.starts_with("garonne-task-");
        assert!(
            !idles || is_worker || !name.starts_with("garonne-"),
            "{name}"
        );
    }
    drop((on_word, alarm));
}
