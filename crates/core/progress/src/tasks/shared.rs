//! The tasks that the libraries of this process share, and the keypoints at which the rank's own
//! threads run them.
//!
//! A thread that waits in MPI and finds nothing to do passes a keypoint before it sleeps. So does a
//! rank's progress thread where its cores are used by nobody else. Where the process has no tasks,
//! that is one load. Neither thread holds a lock of the engine meanwhile. A task may wait in MPI in
//! its turn; tasks within tasks are not run there.

use crate::limits::WAITER_SLEEP;
use crate::tasks::{Error, Keypoint, SchedulerOwner, TaskSettings, Tasks};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

static SHARED: Mutex<Weak<SchedulerOwner>> = Mutex::new(Weak::new());
/// There may be some. Written with the lock held.
static THERE: AtomicBool = AtomicBool::new(false);

fn lock() -> MutexGuard<'static, Weak<SchedulerOwner>> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tasks that the libraries of this process share, made when first asked for and ended when
/// nobody has them any longer. In a forked child it stays an error, as everything is there.
pub fn shared() -> Result<Tasks, Error> {
    let mut shared = lock();
    if let Some(owner) = shared.upgrade() {
        owner.0.alive()?;
        return Ok(Tasks(owner));
    }
    let tasks = Tasks::new(TaskSettings::here())?;
    *shared = std::sync::Arc::downgrade(&tasks.0);
    THERE.store(true, Ordering::Relaxed);
    Ok(tasks)
}

/// Result of a keypoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeypointOutcome {
    /// Nothing was to do.
    Nothing,
    /// Tasks were finished.
    Finished,
    /// There is something to do again after this time, if nobody else does it.
    Later(Duration),
}

/// Runs what waits in the shared tasks on the way from this core to the machine.
#[inline]
pub(crate) fn pass(keypoint: Keypoint) -> KeypointOutcome {
    match THERE.load(Ordering::Relaxed) {
        false => KeypointOutcome::Nothing,
        true => pass_there(keypoint),
    }
}

/// A keypoint of a user-level scheduler of this process: runs what waits in the shared tasks on the
/// way from this core to the machine. Returns whether tasks were finished. One load where there are
/// none.
#[inline]
pub fn at_keypoint(keypoint: Keypoint) -> bool {
    pass(keypoint) == KeypointOutcome::Finished
}

#[cold]
#[inline(never)]
fn pass_there(keypoint: Keypoint) -> KeypointOutcome {
    thread_local!(static PASSING: Cell<bool> = const { Cell::new(false) });
    let tasks = {
        let shared = lock();
        let Some(owner) = shared.upgrade() else {
            THERE.store(false, Ordering::Relaxed);
            return KeypointOutcome::Nothing;
        };
        Tasks(owner)
    };
    let scheduler = tasks.scheduler();
    if PASSING.get() || scheduler.alive().is_err() {
        return KeypointOutcome::Nothing;
    }
    PASSING.set(true);
    let tally = scheduler.pass(keypoint);
    PASSING.set(false);
    if tally.settled > 0 {
        return KeypointOutcome::Finished;
    }
    // Where the system refuses workers those who wait do all the work.
    match tally.rerun > 0 || tasks.worker_counts().refused > 0 {
        true => KeypointOutcome::Later(WAITER_SLEEP),
        false => KeypointOutcome::Nothing,
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::tasks::{Place, RunContext, RunOutcome, TaskOptions, TaskState};
    use std::sync::Arc;

    #[test]
    fn a_keypoint_runs_what_is_shared_but_nothing_within_a_task_and_nothing_after_the_end() {
        assert_eq!(pass(Keypoint::Wait), KeypointOutcome::Nothing);
        let tasks = shared().unwrap();
        let task = |work: Box<dyn Fn(&RunContext) -> RunOutcome + Send + Sync>| {
            Arc::new(tasks.task(&TaskOptions::at(Place::Machine), work).unwrap())
        };
        // Those who submit see somebody who polls, so no worker is called and all is left to the
        // keypoint.
        let poller = tasks.poller(Keypoint::Forced);
        let inner = task(Box::new(|_| RunOutcome::Done));
        let its = (tasks.clone(), inner.clone());
        let outer = task(Box::new(move |at| {
            assert_eq!(at.keypoint, Keypoint::Wait);
            its.0.submit_shared(&its.1).unwrap();
            assert_eq!(pass(Keypoint::Wait), KeypointOutcome::Nothing);
            assert_eq!(its.1.life(), TaskState::Pending);
            RunOutcome::Done
        }));
        tasks.submit_shared(&outer).unwrap();
        assert_eq!(pass(Keypoint::Wait), KeypointOutcome::Finished);
        assert_eq!(outer.life(), TaskState::Done);
        while inner.life() == TaskState::Pending {
            pass(Keypoint::Wait);
        }
        assert_eq!(inner.life(), TaskState::Done);
        drop(poller);
        drop((outer, inner, tasks));
        pass(Keypoint::Wait);
        assert!(!THERE.load(Ordering::Relaxed));
    }
}
