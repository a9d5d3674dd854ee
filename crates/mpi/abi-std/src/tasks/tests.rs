//! Tests that a C program cannot arrange: no thread but the one in a lengthy run would run the task
//! that waits behind it.

use super::*;
use garonne_progress::tasks::{AnyTask, TaskSettings};
use std::time::Instant;

/// Longer than a test machine keeps anybody waiting.
const LONG: Duration = Duration::from_secs(60);

/// State of the first task's run: the second task, for which the run waits.
struct Behind {
    tasks: Tasks,
    second: Arc<AnyTask>,
}

unsafe extern "C" fn first(behind: *mut c_void, at: *const CRunInfo) -> c_int {
    // SAFETY: the test's, which outlives its poller's turns.
    let Behind { tasks, second } = unsafe { &*behind.cast::<Behind>() };
    let submitted = tasks.submit_shared(second);
    // SAFETY: the handle is open, and `at` is what the run was given.
    let said = [(); 2].map(|()| unsafe { garonne_lengthy(tasks, at) });
    let begun = Instant::now();
    while second.life() == TaskState::Pending && begun.elapsed() < LONG {
        std::thread::yield_now();
    }
    c_int::from(submitted.is_err() || said != [OK; 2] || second.life() != TaskState::Done)
}

#[test]
fn what_waits_behind_a_lengthy_run_is_handed_to_a_worker() {
    let tasks = Tasks::new(TaskSettings::here()).unwrap();
    let how = TaskOptions::at(Place::Machine);
    let second: Box<dyn Fn(&RunContext) -> RunOutcome + Send + Sync> =
        Box::new(|_| RunOutcome::Done);
    let mut behind = Behind {
        second: Arc::new(tasks.task(&how, second).unwrap()),
        tasks: tasks.clone(),
    };
    // Those who submit see somebody who polls, so no worker is called unless that one is lengthy.
    let mut poller = tasks.poller_at(0, Keypoint::Idle).unwrap();
    let bound = CFunction {
        function: first as TaskFn,
        state: (&raw mut behind).cast(),
    };
    let task = Arc::new(tasks.task(&how, bound).unwrap());
    tasks.submit_shared(&task).unwrap();
    assert_eq!(tasks.worker_counts().started, 0);
    poller.turn();
    // It answers that it is to run again if anything went wrong.
    assert_eq!(task.life(), TaskState::Done);
    assert_eq!(tasks.worker_counts().started, 1);
}
