//! Starting threads of the ordinary class on behalf of idle-class workers: the event thread starts
//! them. A thread inherits the class of the one that starts it, and leaving the idle class needs a
//! right that few programs have.
//!
//! The requester waits for the new thread. If it does not come within [`START_WAITS`], the
//! requester starts the thread itself. All other threads start theirs themselves.

use crate::facade::{AtomicU32, Mutex, Ordering, lock, thread_local};
use crate::limits::START_WAITS;
use crate::tasks::Scheduler;
use garonne_sync::futex::{self, Wake};
use std::cell::RefCell;
use std::sync::{Arc, Weak};

thread_local! {
    /// Whose worker of the idle class this thread is.
    static WORKS_FOR: RefCell<Weak<Scheduler>> = const { RefCell::new(Weak::new()) };
}

/// Order that the event thread carries out for another thread.
pub(crate) trait ThreadOrder: std::fmt::Debug + Send + Sync {
    fn carry_out(&self);
}

struct StartOrder<F, T> {
    /// Taken by whoever does it.
    start: Mutex<Option<F>>,
    made: Mutex<Option<T>>,
    /// 1: it is made. SYNC(start-made).
    over: AtomicU32,
}

impl<F, T> std::fmt::Debug for StartOrder<F, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StartOrder").finish_non_exhaustive()
    }
}

impl<F: FnOnce() -> T + Send, T: Send> ThreadOrder for StartOrder<F, T> {
    fn carry_out(&self) {
        let start = lock(&self.start).take();
        if let Some(start) = start {
            *lock(&self.made) = Some(start());
            // Release: SYNC(start-made).
            self.over.store(1, Ordering::Release);
            futex::wake(&self.over, 1);
        }
    }
}

/// The calling thread is a worker of the idle class from now on.
pub(super) fn set_worker_scheduler(scheduler: &Arc<Scheduler>) {
    WORKS_FOR.with(|its| *its.borrow_mut() = Arc::downgrade(scheduler));
}

/// Has `start` start a thread of the ordinary class.
pub(crate) fn spawn_ordinary<T: Send + 'static>(start: impl FnOnce() -> T + Send + 'static) -> T {
    let scheduler = WORKS_FOR.with(|its| its.borrow().upgrade());
    let Some(reactor) = scheduler
        .as_ref()
        .and_then(|scheduler| scheduler.running_reactor())
    else {
        return start();
    };
    let order = Arc::new(StartOrder {
        start: Mutex::new(Some(start)),
        made: Mutex::new(None),
        over: AtomicU32::new(0),
    });
    reactor.submit_order(order.clone());
    // Acquire: SYNC(start-made).
    while order.over.load(Ordering::Acquire) == 0 {
        if futex::wait(&order.over, 0, Some(START_WAITS)) == Wake::Timeout {
            let start = lock(&order.start).take();
            if let Some(start) = start {
                return start();
            }
        }
    }
    let made = lock(&order.made).take();
    made.expect("what is over was made")
}
