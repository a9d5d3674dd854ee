//! Task nodes in task slots, with real threads: what may be put where, what withdrawing and
//! dropping mean, and a crowd doing all at once.

use garonne_sync::task_node::{
    Cancellation, EnqueueError, Enqueued, RunOutcome, TaskNode, TaskState,
};
use garonne_sync::task_slots::{RunTally, TaskQueues};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::time::Duration;

fn racks(sizes: &[usize]) -> Arc<TaskQueues<u32>> {
    Arc::new(TaskQueues::new(sizes).unwrap())
}

#[test]
fn a_task_is_run_with_the_runners_context_and_can_be_put_again() {
    let racks = racks(&[64]);
    let sum = Arc::new(AtomicU32::new(0));
    let total = sum.clone();
    let task = pin!(TaskNode::new(&racks, 0, move |context: &u32| {
        total.fetch_add(*context, Ordering::Relaxed);
        RunOutcome::Done
    }));
    let task = task.as_ref();
    assert_eq!(task.life(), TaskState::New);
    for context in [3, 4] {
        assert_eq!(task.put(0).unwrap().ready_before, 0);
        assert_eq!(task.put(0), Err(EnqueueError::Pending));
        assert_eq!(racks.run(0, 0, &context).settled, 1);
        assert_eq!(task.life(), TaskState::Done);
    }
    assert_eq!(sum.load(Ordering::Relaxed), 7);
    assert!(racks.run(0, 0, &1).is_empty());
}

#[test]
fn a_repeating_task_gets_one_turn_a_walk_until_it_is_done_and_tells_its_patience() {
    let racks = racks(&[64]);
    let runs = AtomicU32::new(0);
    let task = pin!(TaskNode::new(&racks, 70, move |_: &u32| {
        if runs.fetch_add(1, Ordering::Relaxed) < 2 {
            RunOutcome::Again
        } else {
            RunOutcome::Done
        }
    }));
    task.as_ref().put(0).unwrap();
    let again = RunTally {
        settled: 0,
        rerun: 1,
        patience_us: 70,
    };
    assert_eq!(racks.run(0, 0, &0), again);
    assert_eq!(racks.run(0, 1, &0), again);
    assert_eq!(racks.run(0, 2, &0).settled, 1);
}

#[test]
fn a_full_queue_refuses_and_takes_again_when_one_is_settled() {
    let racks = racks(&[64]);
    let make = || Arc::new(TaskNode::new(&racks, 0, |_: &u32| RunOutcome::Done));
    // One in the post.
    let tasks: Vec<_> = (0..65).map(|_| make()).collect();
    tasks
        .iter()
        .for_each(|task| assert!(task.enqueue_shared(0).is_ok()));
    let late = make();
    assert_eq!(late.enqueue_shared(0), Err(EnqueueError::Full));
    assert_eq!(late.enqueue_shared(1), Err(EnqueueError::Nowhere));
    assert_eq!((late.life(), Arc::strong_count(&late)), (TaskState::New, 1));
    assert_eq!(
        tasks[40].withdraw(),
        Cancellation::Settled(TaskState::Cancelled)
    );
    assert!(late.enqueue_shared(0).is_ok());
    assert_eq!(racks.run(0, 63, &0).settled, 65);
    assert_eq!(late.life(), TaskState::Done);
}

#[test]
fn a_task_that_repeats_leaves_the_lifo_slot_to_those_that_come() {
    let racks = racks(&[64]);
    let rounds = AtomicU32::new(0);
    let repeats = Arc::new(TaskNode::new(&racks, 0, move |_: &u32| {
        match rounds.fetch_add(1, Ordering::Relaxed) {
            3 => RunOutcome::Done,
            _ => RunOutcome::Again,
        }
    }));
    let once = || Arc::new(TaskNode::new(&racks, 0, |_: &u32| RunOutcome::Done));
    let put = |before: u32| {
        Ok(Enqueued {
            ready_before: before,
        })
    };
    assert_eq!(repeats.enqueue_shared(0), put(0));
    assert_eq!(racks.run(0, 0, &0).rerun, 1);
    // The one is in the post, the other beside the first.
    let (posted, beside) = (once(), once());
    assert_eq!(
        (posted.enqueue_shared(0), beside.enqueue_shared(0)),
        (put(0), put(1))
    );
    let all = racks.run(0, 1, &0);
    assert_eq!((all.settled, all.rerun), (2, 1));
    assert_eq!(
        repeats.withdraw(),
        Cancellation::Settled(TaskState::Cancelled)
    );
    assert!(!racks.any_ready(0));
    assert_eq!(racks.run(0, 2, &0), RunTally::default());
}

#[test]
fn a_task_can_be_taken_back_from_the_lifo_slot_and_put_again() {
    let racks = racks(&[64]);
    let task = Arc::new(TaskNode::new(&racks, 0, |_: &u32| RunOutcome::Done));
    for _ in 0..3 {
        task.enqueue_shared(0).unwrap();
        assert_eq!(task.withdraw(), Cancellation::Settled(TaskState::Cancelled));
        assert!(!racks.any_ready(0));
    }
    task.enqueue_shared(0).unwrap();
    racks.clear();
    assert_eq!(
        (task.life(), Arc::strong_count(&task)),
        (TaskState::Cancelled, 1)
    );
    task.enqueue_shared(0).unwrap();
    assert_eq!(racks.run(0, 0, &0).settled, 1);
}

#[test]
fn racks_beyond_their_limits_are_refused() {
    assert!(TaskQueues::<u32>::new(&[0]).is_none() && TaskQueues::<u32>::new(&[513]).is_none());
    assert!(TaskQueues::<u32>::new(&vec![1; 65_537]).is_none());
}

#[test]
fn a_dropped_task_is_not_run() {
    let racks = racks(&[64]);
    let ran = Arc::new(AtomicBool::new(false));
    {
        let flag = ran.clone();
        let task = pin!(TaskNode::new(&racks, 0, move |_: &u32| {
            flag.store(true, Ordering::Relaxed);
            RunOutcome::Done
        }));
        task.as_ref().put(0).unwrap();
    }
    assert!(racks.run(0, 0, &0).is_empty());
    assert!(!ran.load(Ordering::Relaxed));
}

#[test]
fn the_drop_of_a_task_waits_for_its_run() {
    let racks = racks(&[64]);
    let (inside, over) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
    let (arrived, ended) = (inside.clone(), over.clone());
    let task = Box::pin(TaskNode::new(&racks, 0, move |_: &u32| {
        arrived.wait();
        std::thread::sleep(Duration::from_millis(5));
        ended.store(true, Ordering::Release);
        RunOutcome::Again
    }));
    task.as_ref().put(0).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| racks.run(0, 0, &0));
        inside.wait();
        drop(task);
        assert!(over.load(Ordering::Acquire));
    });
    assert!(racks.run(0, 0, &0).is_empty());
}

#[test]
fn a_panic_fails_the_task_and_spares_the_runner() {
    let racks = racks(&[64]);
    let task = Arc::new(TaskNode::new(&racks, 0, |_: &u32| -> RunOutcome {
        std::panic::resume_unwind(Box::new(()))
    }));
    task.enqueue_shared(0).unwrap();
    assert_eq!(racks.run(0, 0, &0).settled, 1);
    assert_eq!(task.life(), TaskState::Failed);
    assert!(task.wait(None));
}

#[test]
fn a_task_that_withdraws_itself_is_not_run_again() {
    let racks = racks(&[64]);
    let own = Arc::new(OnceLock::<
        std::sync::Weak<dyn Fn() -> Cancellation + Send + Sync>,
    >::new());
    let within = own.clone();
    let task = Arc::new(TaskNode::new(&racks, 0, move |_: &u32| {
        let withdraw = within.get().and_then(std::sync::Weak::upgrade).unwrap();
        assert_eq!(withdraw(), Cancellation::AfterThisRun);
        RunOutcome::Again
    }));
    let same = Arc::downgrade(&task);
    let withdraw: Arc<dyn Fn() -> Cancellation + Send + Sync> =
        Arc::new(move || same.upgrade().unwrap().withdraw());
    own.set(Arc::downgrade(&withdraw)).unwrap();
    task.enqueue_shared(0).unwrap();
    assert_eq!(racks.run(0, 0, &0).settled, 1);
    assert_eq!(task.life(), TaskState::Cancelled);
}

#[test]
fn the_last_owner_may_let_go_in_the_run_of_a_shared_task() {
    let racks = racks(&[64]);
    type Slot = Mutex<Option<Arc<dyn Send + Sync>>>;
    let slot: Arc<Slot> = Arc::default();
    let emptied = slot.clone();
    let task = Arc::new(TaskNode::new(&racks, 0, move |_: &u32| {
        emptied.lock().unwrap().take();
        RunOutcome::Done
    }));
    task.enqueue_shared(0).unwrap();
    *slot.lock().unwrap() = Some(task);
    assert_eq!(racks.run(0, 0, &0).settled, 1);
    assert_eq!(Arc::strong_count(&slot), 1);
}

#[test]
fn a_waiter_sleeps_until_the_task_is_settled_or_its_time_is_over() {
    let racks = racks(&[64]);
    let task = Arc::new(TaskNode::new(&racks, 0, |_: &u32| RunOutcome::Done));
    task.enqueue_shared(0).unwrap();
    assert!(!task.wait(Some(Duration::from_millis(1))));
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(task.wait(None)));
        std::thread::sleep(Duration::from_millis(2));
        racks.run(0, 0, &0);
    });
}

#[test]
fn clearing_withdraws_what_waits_and_lets_go_of_it() {
    let racks = racks(&[64, 64]);
    let task = Arc::new(TaskNode::new(&racks, 0, |_: &u32| RunOutcome::Done));
    task.enqueue_shared(1).unwrap();
    racks.clear();
    assert_eq!(
        (task.life(), Arc::strong_count(&task)),
        (TaskState::Cancelled, 1)
    );
    assert!(task.enqueue_shared(1).is_ok());
    racks.clear();
}

/// Everything at once: every count must add up whoever gets in whose way.
#[test]
fn a_crowd_of_submitters_runners_and_withdrawers_loses_and_doubles_nothing() {
    const ROUNDS: u32 = 3_000;
    let racks = racks(&[64, 64]);
    let (runs, done) = (Arc::new(AtomicU32::new(0)), AtomicU32::new(0));
    let stop = AtomicBool::new(false);
    let own = &|seed: u32| {
        let mut random = seed.wrapping_mul(2_654_435_761);
        for _ in 0..ROUNDS {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (count, repeats) = (runs.clone(), random >> 28 & 3);
            let left = AtomicU32::new(repeats);
            let task = Arc::pin(TaskNode::new(&racks, 0, move |_: &u32| {
                if left.load(Ordering::Relaxed) == 0 {
                    count.fetch_add(1, Ordering::Relaxed);
                    return RunOutcome::Done;
                }
                // Not an atomic decrement: only one runs it at a time.
                left.store(left.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
                RunOutcome::Again
            }));
            task.as_ref().put((random >> 20 & 1) as usize).unwrap();
            if random >> 16 & 1 == 0 {
                assert!(task.wait(None));
            }
            let life = Pin::as_ref(&task).withdraw();
            match life {
                Cancellation::Settled(TaskState::Done) => done.fetch_add(1, Ordering::Relaxed),
                other => {
                    assert_eq!(other, Cancellation::Settled(TaskState::Cancelled));
                    0
                }
            };
        }
    };
    std::thread::scope(|scope| {
        for runner in 0..2u32 {
            let (racks, stop) = (&racks, &stop);
            scope.spawn(move || {
                let mut round = runner;
                while !stop.load(Ordering::Relaxed) {
                    round = round.wrapping_add(1);
                    let mut tally = racks.run(0, round, &runner);
                    tally.add(racks.run(1, round, &runner));
                    if tally.is_empty() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let owners: Vec<_> = (1..4).map(|seed| scope.spawn(move || own(seed))).collect();
        let ends: Vec<_> = owners.into_iter().map(|owner| owner.join()).collect();
        stop.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
    });
    assert_eq!(runs.load(Ordering::Relaxed), done.load(Ordering::Relaxed));
    assert!(done.load(Ordering::Relaxed) > 0);
    assert!(!racks.any_ready(0) && !racks.any_ready(1));
}
