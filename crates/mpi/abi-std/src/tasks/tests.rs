//! Tests that a C program cannot arrange: no thread but the one in a lengthy run would run the task
//! that waits behind it; two ranks in one process.

use super::*;
use garonne_progress::tasks::{AnyTask, TaskSettings};
use garonne_rank::Rank;
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
    let bound = CFunction::new(first as TaskFn, (&raw mut behind).cast());
    let task = Arc::new(tasks.task(&how, CTaskWork::new(bound)).unwrap());
    tasks.submit_shared(&task).unwrap();
    assert_eq!(tasks.worker_counts().started, 0);
    poller.turn();
    // It answers that it is to run again if anything went wrong.
    assert_eq!(task.life(), TaskState::Done);
    assert_eq!(tasks.worker_counts().started, 1);
}

/// A place where a task notes the rank that runs it.
struct Seen(AtomicPtr<RankContext>);

impl Seen {
    fn none() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    fn note(&self) {
        let rank = std::ptr::from_ref(RankContext::current()).cast_mut();
        self.0.store(rank, Ordering::Relaxed);
    }

    #[track_caller]
    fn is(&self, rank: &RankContext) {
        assert!(std::ptr::eq(self.0.load(Ordering::Relaxed), rank));
    }
}

unsafe extern "C" fn note_rank(seen: *mut c_void, _: *const CRunInfo) -> c_int {
    // SAFETY: the test's, which outlives its tasks.
    unsafe { &*seen.cast::<Seen>() }.note();
    0
}

unsafe extern "C" fn note_rank_of_event(seen: *mut c_void, _: u32, at: *const CRunInfo) -> c_int {
    // SAFETY: as of `note_rank`.
    unsafe { note_rank(seen, at) };
    1
}

unsafe extern "C" fn note_rank_of_call(seen: *mut c_void) -> *mut c_void {
    // SAFETY: as of `note_rank`.
    unsafe { note_rank(seen, std::ptr::null()) };
    seen
}

fn state_of(seen: &Seen) -> *mut c_void {
    std::ptr::from_ref(seen).cast_mut().cast()
}

#[test]
fn functions_of_two_ranks_run_in_the_context_of_the_rank_that_submitted_them() {
    let tasks: *const Tasks = &Tasks::new(TaskSettings::here()).unwrap();
    let only = RankContext::current();
    let ranks = Rank::world_of_threads(2).unwrap().into_iter();
    let ranks: Vec<_> = (11..)
        .zip(ranks)
        .map(|(number, rank)| RankContext::for_rank(number, rank))
        .collect();
    // One task, made by a thread of the process's only rank, is submitted by each rank in turn.
    let seen = Seen::none();
    let mut task = CTask { opaque: [0; 20] };
    let task = &raw mut task;
    let how = std::ptr::null();
    // SAFETY: task and state outlive its runs; the handle is open.
    let code = unsafe { garonne_task_init(task, tasks, how, Some(note_rank), state_of(&seen)) };
    assert_eq!(code, OK);
    for rank in [ranks[0], ranks[1], ranks[0]] {
        // SAFETY: as above.
        assert_eq!(rank.run(|| unsafe { garonne_task_submit(task) }), OK);
        // Whoever waits runs the task, unless a worker does: neither is of the submitter's rank.
        // SAFETY: as above.
        let state = unsafe { garonne_task_wait(task) };
        assert_eq!(state, state_number(TaskState::Done));
        seen.is(rank);
        assert!(std::ptr::eq(RankContext::current(), only));
    }
    // SAFETY: as above.
    assert_eq!(unsafe { garonne_task_destroy(task) }, OK);
    for rank in &ranks {
        // The library's threads for events and for calls that may block.
        let (of_event, of_call) = (Seen::none(), Seen::none());
        let (mut watch, mut call) = (std::ptr::null_mut(), std::ptr::null_mut());
        rank.run(|| {
            let function = Some(note_rank_of_event as EventFn);
            let state = state_of(&of_event);
            // SAFETY: the state outlives the watch.
            let code = unsafe { garonne_on_alarm(tasks, 1, 0, how, function, state, &mut watch) };
            assert_eq!(code, OK);
            let function = Some(note_rank_of_call as BlockingFn);
            // SAFETY: the state outlives the call.
            let code = unsafe { garonne_blocking(tasks, function, state_of(&of_call), &mut call) };
            assert_eq!(code, OK);
        });
        // SAFETY: from `garonne_blocking`.
        assert_eq!(unsafe { garonne_call_wait(call, std::ptr::null_mut()) }, OK);
        of_call.is(rank);
        let begun = Instant::now();
        while of_event.0.load(Ordering::Relaxed).is_null() && begun.elapsed() < LONG {
            std::thread::yield_now();
        }
        // SAFETY: from `garonne_on_alarm`.
        unsafe { garonne_watch_end(watch) };
        of_event.is(rank);
    }
}
