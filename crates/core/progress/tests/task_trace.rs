//! Runs of tasks as who traces hears of them. One test: the listener is the process's.

use garonne_progress::tasks::{
    AnyTask, Keypoint, Place, RunContext, RunOutcome, RunWatcher, TaskOptions, TaskSettings, Tasks,
    watch_runs,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

const TASKS: u64 = 40;

/// A clock that goes on by one with each look, and what was told.
#[derive(Debug, Default)]
struct Listener {
    clock: AtomicU64,
    told: Mutex<Vec<(ThreadId, u64, RunOutcome)>>,
}

impl RunWatcher for Listener {
    fn moment(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn ran(&self, since: u64, step: RunOutcome) {
        self.told
            .lock()
            .unwrap()
            .push((std::thread::current().id(), since, step));
    }
}

#[test]
fn each_run_is_told_by_the_thread_that_ran_it_while_somebody_listens() {
    let tasks = Tasks::new(TaskSettings::here()).unwrap();
    let runs = Arc::new(Mutex::new(Vec::new()));
    let run = |runs: &Arc<Mutex<Vec<ThreadId>>>| {
        let (runs, again) = (runs.clone(), AtomicU64::new(0));
        let work: Box<dyn Fn(&RunContext) -> RunOutcome + Send + Sync> = Box::new(move |_| {
            runs.lock().unwrap().push(std::thread::current().id());
            match again.fetch_add(1, Ordering::Relaxed) % 2 {
                0 => RunOutcome::Again,
                _ => RunOutcome::Done,
            }
        });
        Arc::new(tasks.task(&TaskOptions::at(Place::Machine), work).unwrap())
    };
    let carry_out = |task: &Arc<AnyTask>| {
        tasks.submit_shared(task).unwrap();
        tasks.wait(task);
    };
    let unheard = Arc::new(Mutex::new(Vec::new()));
    carry_out(&run(&unheard));
    let listener = Arc::new(Listener::default());
    watch_runs(Some(listener.clone()));
    (0..TASKS).for_each(|_| carry_out(&run(&runs)));
    watch_runs(None);
    carry_out(&run(&unheard));
    tasks.schedule(Keypoint::Forced);
    let told = listener.told.lock().unwrap();
    let threads: Vec<ThreadId> = told.iter().map(|(thread, _, _)| *thread).collect();
    assert_eq!(threads, *runs.lock().unwrap());
    for (run, (_, since, step)) in (0..).zip(told.iter()) {
        let wanted = if run % 2 == 0 {
            RunOutcome::Again
        } else {
            RunOutcome::Done
        };
        assert_eq!(
            (*since, *step),
            (run, wanted),
            "each begins where the clock was"
        );
    }
    assert_eq!(told.len() as u64, 2 * TASKS);
}
