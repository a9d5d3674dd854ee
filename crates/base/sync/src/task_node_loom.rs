//! Loom models of tasks in queues: two runners, a runner and a canceller, a submitter and a poller
//! that goes to sleep.

use crate::idle_set::{AtomicBitmap, IdleSet};
use crate::task_node::{Cancellation, RunOutcome, TaskNode, TaskState};
use crate::task_slots::TaskQueues;
use loom::sync::atomic::{AtomicU32, Ordering};
use std::pin::Pin;
use std::sync::Arc;

type Racky = Arc<TaskQueues<()>>;

fn racks() -> Racky {
    Arc::new(TaskQueues::new(&[64]).unwrap())
}

/// TaskWork that counts its runs with a plain load and store, so that two at once are seen as a
/// lost count, and asks to be run again until `until`.
fn counting(racks: &Racky, until: u32) -> Pin<Arc<TaskNode<Counter, ()>>> {
    let work = Counter {
        runs: loom::cell::Cell::new(0),
        until,
    };
    Arc::pin(TaskNode::new(racks, 0, work))
}

struct Counter {
    runs: loom::cell::Cell<u32>,
    until: u32,
}

// SAFETY: a task is run by one thread at a time, which is what loom checks here: its cell reports
// any overlap.
unsafe impl Sync for Counter {}

impl crate::task_node::TaskWork<()> for Counter {
    fn run(&self, (): &()) -> RunOutcome {
        self.runs.set(self.runs.get() + 1);
        if self.runs.get() < self.until {
            RunOutcome::Again
        } else {
            RunOutcome::Done
        }
    }
}

#[test]
fn of_two_runners_one_runs_a_task_at_a_time() {
    loom::model(|| {
        let racks = racks();
        let task = counting(&racks, 2);
        task.as_ref().put(0).unwrap();
        let other = racks.clone();
        let thread = loom::thread::spawn(move || other.run(0, 0, &()).settled);
        let mine = racks.run(0, 0, &()).settled;
        let mut settled = mine + thread.join().unwrap();
        settled += racks.run(0, 0, &()).settled;
        settled += racks.run(0, 0, &()).settled;
        assert_eq!(settled, 1);
        assert_eq!(task.life(), TaskState::Done);
        assert_eq!(task.work().runs.get(), 2);
    });
}

#[test]
fn a_withdrawn_task_was_run_or_never_will_be_and_its_slot_is_free() {
    loom::model(|| {
        let racks = racks();
        let task = counting(&racks, 1);
        task.as_ref().put(0).unwrap();
        let other = racks.clone();
        let thread = loom::thread::spawn(move || {
            other.run(0, 0, &());
        });
        let Cancellation::Settled(life) = task.withdraw() else {
            panic!("not called from its run");
        };
        let runs = task.work().runs.get();
        assert_eq!(runs, u32::from(life == TaskState::Done));
        // The memory goes while the runner may still be on its way out.
        drop(task);
        thread.join().unwrap();
        assert!(!racks.any_ready(0));
        let next = counting(&racks, 1);
        next.as_ref().put(0).unwrap();
        assert_eq!(racks.run(0, 0, &()).settled, 1);
    });
}

#[test]
fn a_task_that_repeats_can_be_withdrawn_from_under_its_runner() {
    loom::model(|| {
        let racks = racks();
        let task = counting(&racks, 9);
        task.as_ref().put(0).unwrap();
        let other = racks.clone();
        let thread = loom::thread::spawn(move || {
            other.run(0, 0, &());
        });
        assert_eq!(task.withdraw(), Cancellation::Settled(TaskState::Cancelled));
        let runs = task.work().runs.get();
        assert!(runs <= 1);
        thread.join().unwrap();
        assert!(racks.run(0, 0, &()).is_empty());
        assert_eq!(task.work().runs.get(), runs);
    });
}

/// A slot stays its task's until the canceller has let go: it may be about to claim it.
#[test]
fn a_withdrawer_takes_nobody_elses_task() {
    loom::model(|| {
        let racks = racks();
        let (first, second) = (counting(&racks, 1), counting(&racks, 1));
        first.as_ref().put(0).unwrap();
        let (theirs, next) = (racks.clone(), second.clone());
        let thread = loom::thread::spawn(move || {
            theirs.run(0, 0, &());
            next.as_ref().put(0).unwrap();
        });
        first.withdraw();
        thread.join().unwrap();
        assert_eq!(second.life(), TaskState::Pending);
        assert_eq!(racks.run(0, 0, &()).settled, 1);
        assert_eq!(second.life(), TaskState::Done);
    });
}

#[test]
fn a_shared_task_outlives_its_owner_until_its_run_is_over() {
    loom::model(|| {
        let racks = racks();
        let ran = Arc::new(AtomicU32::new(0));
        let count = ran.clone();
        let task = Arc::new(TaskNode::new(&racks, 0, move |(): &()| {
            count.fetch_add(1, Ordering::Relaxed);
            RunOutcome::Done
        }));
        task.enqueue_shared(0).unwrap();
        let other = racks.clone();
        let thread = loom::thread::spawn(move || {
            other.run(0, 0, &());
        });
        drop(task);
        thread.join().unwrap();
        racks.run(0, 0, &());
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        assert_eq!(Arc::strong_count(&ran), 1, "the rack let go of it");
    });
}

#[test]
fn a_poke_is_followed_by_a_whole_run() {
    loom::model(|| {
        let racks = racks();
        let news = Arc::new(AtomicU32::new(0));
        let seen = Arc::new(AtomicU32::new(0));
        let (from, to) = (news.clone(), seen.clone());
        let task = Arc::new(TaskNode::new(&racks, 0, move |(): &()| {
            to.store(from.load(Ordering::Acquire), Ordering::Release);
            RunOutcome::Done
        }));
        task.enqueue_shared(0).unwrap();
        let other = racks.clone();
        let thread = loom::thread::spawn(move || {
            other.run(0, 0, &());
        });
        news.store(1, Ordering::Release);
        task.poke(0).unwrap();
        thread.join().unwrap();
        racks.run(0, 0, &());
        assert_eq!(seen.load(Ordering::Acquire), 1);
    });
}

#[test]
fn work_left_for_a_poller_that_goes_to_sleep_is_found_by_it_or_somebody_is_called() {
    loom::model(|| {
        let racks = racks();
        let roster = Arc::new(IdleSet::new(1));
        roster.enter(0);
        let task = counting(&racks, 1);
        let (their_racks, their_idle_set) = (racks.clone(), roster.clone());
        let poller = loom::thread::spawn(move || {
            their_idle_set.leave(0);
            their_racks.any_ready(0)
        });
        task.as_ref().put(0).unwrap();
        let trusted = roster.meets(&[1]);
        let found = poller.join().unwrap();
        assert!(found || !trusted, "the work would lie there");
        racks.run(0, 0, &());
    });
}

/// The protocol of `garonne_progress`'s workers: off the idle set, on the list of sleepers, one
/// more look, sleep; and of its submitters: put, look for pollers, call a sleeper.
#[test]
fn a_worker_that_falls_asleep_finds_the_work_or_is_called() {
    loom::model(|| {
        let racks = racks();
        let shared = Arc::new((IdleSet::new(1), AtomicBitmap::new(1)));
        shared.0.enter(0);
        let task = counting(&racks, 1);
        let (their_racks, theirs) = (racks.clone(), shared.clone());
        let worker = loom::thread::spawn(move || {
            theirs.0.leave(0);
            theirs.1.set(0);
            their_racks.any_ready(0)
        });
        task.as_ref().put(0).unwrap();
        let trusts = shared.0.meets(&[1]);
        let called = !trusts && shared.1.word(0) & 1 != 0 && shared.1.clear(0);
        let found = worker.join().unwrap();
        assert!(found || called, "asleep beside its work");
        racks.run(0, 0, &());
    });
}

/// Both find the LIFO slot free; one of them has to go beside it.
#[test]
fn of_two_that_put_at_once_both_are_found() {
    loom::model(|| {
        let racks = racks();
        let (first, second) = (counting(&racks, 1), counting(&racks, 1));
        let theirs = second.clone();
        let thread = loom::thread::spawn(move || {
            theirs.as_ref().put(0).unwrap();
        });
        first.as_ref().put(0).unwrap();
        thread.join().unwrap();
        assert_eq!(racks.run(0, 0, &()).settled, 2);
        assert!(!racks.any_ready(0));
        assert_eq!(
            (first.life(), second.life()),
            (TaskState::Done, TaskState::Done)
        );
    });
}

/// The canceller may have seen the slot that the task did not get.
#[test]
fn a_task_that_went_beside_the_lifo_slot_can_be_withdrawn_meanwhile() {
    loom::model(|| {
        let racks = racks();
        let (first, second) = (counting(&racks, 1), counting(&racks, 1));
        let theirs = second.clone();
        let putter = loom::thread::spawn(move || {
            theirs.as_ref().put(0).unwrap();
        });
        let its = second.clone();
        let withdrawer = loom::thread::spawn(move || {
            its.withdraw();
        });
        first.as_ref().put(0).unwrap();
        putter.join().unwrap();
        withdrawer.join().unwrap();
        let runs = racks.run(0, 0, &()).settled;
        assert_eq!(runs, 1 + u32::from(second.life() == TaskState::Done));
        assert!(!racks.any_ready(0));
        let next = counting(&racks, 1);
        next.as_ref().put(0).unwrap();
        assert_eq!(racks.run(0, 0, &()).settled, 1);
    });
}

#[test]
fn a_task_that_leaves_the_lifo_slot_to_repeat_can_be_withdrawn_while_others_come() {
    loom::model(|| {
        let racks = racks();
        let (repeats, next) = (counting(&racks, 9), counting(&racks, 1));
        repeats.as_ref().put(0).unwrap();
        let theirs = racks.clone();
        let runner = loom::thread::spawn(move || {
            theirs.run(0, 0, &());
        });
        next.as_ref().put(0).unwrap();
        assert_eq!(
            repeats.withdraw(),
            Cancellation::Settled(TaskState::Cancelled)
        );
        runner.join().unwrap();
        racks.run(0, 0, &());
        assert_eq!(next.life(), TaskState::Done);
        assert!(!racks.any_ready(0));
    });
}

#[test]
fn a_queue_with_waiting_tasks_is_found_through_the_marks() {
    loom::model(|| {
        let racks = racks();
        let first = counting(&racks, 1);
        first.as_ref().put(0).unwrap();
        racks.run(0, 0, &());
        let other = racks.clone();
        let thread = loom::thread::spawn(move || other.for_each_nonempty(|_| {}));
        let second = counting(&racks, 1);
        second.as_ref().put(0).unwrap();
        thread.join().unwrap();
        let mut found = 0;
        racks.for_each_nonempty(|_| found += 1);
        assert_eq!(found, 1);
        racks.run(0, 0, &());
    });
}
