//! Calls that block, on threads of their own. Whatever they wait for, no worker, no event and no
//! other call waits with them.
//!
//! A thread is started when a call finds none idle, up to [`BLOCKERS`], and ends after
//! [`BLOCKER_IDLE`] without a call. Further calls wait in a queue of [`CALLS`]. Any thread may
//! submit a call. The result is a [`BlockingCall`], which can be waited for, tested, or tied to a
//! task.

use crate::facade::{AtomicU32, Condvar, Mutex, Ordering, lock};
use crate::limits::{BLOCKER_IDLE, BLOCKERS, CALLS, STACK};
use crate::sys;
use crate::tasks::{AnyTask, Error, Scheduler, spawn_ordinary};
use garonne_sync::futex;
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, Weak};

type Job = Box<dyn FnOnce() + Send>;

/// The threads and what waits for them. Shared by submitters and the threads themselves, which
/// outlive nobody: an idle one leaves.
#[derive(Default)]
pub(crate) struct BlockingPool {
    state: Mutex<BlockingState>,
    news: Condvar,
}

impl std::fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockingPool").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct BlockingState {
    calls: VecDeque<Job>,
    threads: usize,
    idle: usize,
    stopped: bool,
}

impl BlockingPool {
    /// Has `call` made by a thread of its own.
    pub(crate) fn submit(self: &Arc<Self>, call: Job) -> Result<(), Error> {
        let mut state = lock(&self.state);
        if state.stopped {
            return Err(Error::Misuse("these tasks were ended"));
        }
        if state.calls.len() >= CALLS {
            return Err(Error::Resource("too many blocking calls wait"));
        }
        if state.idle <= state.calls.len() && state.threads < BLOCKERS {
            match self.start() {
                Ok(()) => state.threads += 1,
                // One that exists comes to it later.
                Err(_) if state.threads == 0 => {
                    return Err(Error::Resource(
                        "the system gives no thread for a blocking call",
                    ));
                }
                Err(_) => {}
            }
        }
        state.calls.push_back(call);
        drop(state);
        self.news.notify_one();
        Ok(())
    }

    fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let its = self.clone();
        spawn_ordinary(|| {
            sys::without_signals(|| {
                std::thread::Builder::new()
                    .name(String::from("garonne-blocking"))
                    .stack_size(STACK)
                    .spawn(move || its.work())
            })
        })?;
        Ok(())
    }

    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(call) = state.calls.pop_front() {
                drop(state);
                call();
                state = lock(&self.state);
                continue;
            }
            if state.stopped {
                break;
            }
            state.idle += 1;
            let (back, waited) = self
                .news
                .wait_timeout(state, BLOCKER_IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            state = back;
            state.idle -= 1;
            if waited.timed_out() && state.calls.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }

    /// Calls that have not begun are not made; those that go on are left to their end.
    pub(crate) fn stop(&self) {
        let calls = {
            let mut state = lock(&self.state);
            state.stopped = true;
            std::mem::take(&mut state.calls)
        };
        self.news.notify_all();
        // Outside the lock: dropping a call ends it, which may poke tasks.
        drop(calls);
    }
}

/// A blocking call on its way. Clones are the same call.
#[derive(Debug)]
pub struct BlockingCall<T>(Arc<CallState<T>>);

impl<T> Clone for BlockingCall<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

#[derive(Debug)]
struct CallState<T> {
    /// 0: goes on; 1: over, or never made.
    stopped: AtomicU32,
    outcome: Mutex<CallOutcome<T>>,
    /// Forks before the process that makes the call.
    forks: u32,
}

#[derive(Debug)]
struct CallOutcome<T> {
    value: Option<T>,
    then: Vec<(Weak<Scheduler>, Arc<AnyTask>)>,
}

/// Ends the call however the thread leaves it: a panic, or never having begun.
struct CallEnd<T>(Arc<CallState<T>>);

impl<T> Drop for CallEnd<T> {
    fn drop(&mut self) {
        let then = {
            let mut outcome = lock(&self.0.outcome);
            // Release: the value is there. SYNC(call-over).
            self.0.stopped.store(1, Ordering::Release);
            std::mem::take(&mut outcome.then)
        };
        futex::wake(&self.0.stopped, u32::MAX);
        for (scheduler, task) in then {
            poke(&scheduler, &task);
        }
    }
}

fn poke(scheduler: &Weak<Scheduler>, task: &Arc<AnyTask>) {
    if let Some(scheduler) = scheduler.upgrade() {
        super::deliver(&scheduler, task);
    }
}

impl<T: Send + 'static> BlockingCall<T> {
    pub(crate) fn make(
        blockers: &Arc<BlockingPool>,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Self, Error> {
        let shared = Arc::new(CallState {
            stopped: AtomicU32::new(0),
            outcome: Mutex::new(CallOutcome {
                value: None,
                then: Vec::new(),
            }),
            forks: sys::forks(),
        });
        let ending = CallEnd(shared.clone());
        blockers.submit(Box::new(move || {
            let value = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
            if let Ok(value) = value {
                lock(&ending.0.outcome).value = Some(value);
            }
            drop(ending);
        }))?;
        Ok(Self(shared))
    }

    /// Returns whether it is over.
    pub fn is_over(&self) -> bool {
        // SYNC(call-over).
        self.0.stopped.load(Ordering::Acquire) == 1
    }

    /// Waits for its end and takes what it returned; `None` if that was taken before, if the call
    /// panicked, was never made because everything ended, or goes on in the parent of this forked
    /// child.
    pub fn wait(&self) -> Option<T> {
        while !self.is_over() {
            if sys::forks_now() != self.0.forks {
                return None;
            }
            futex::wait(&self.0.stopped, 0, None);
        }
        self.take()
    }

    /// Returns what it returned, once.
    pub fn take(&self) -> Option<T> {
        lock(&self.0.outcome).value.take()
    }

    /// Has `task` poked at its end, or now if it is over.
    pub(crate) fn then(&self, scheduler: Weak<Scheduler>, task: Arc<AnyTask>) {
        {
            let mut outcome = lock(&self.0.outcome);
            if !self.is_over() {
                outcome.then.push((scheduler, task));
                return;
            }
        }
        poke(&scheduler, &task);
    }
}
