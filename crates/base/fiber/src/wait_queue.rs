//! Who waits for something: fibers and threads, in the order in which they came.
//!
//! Every primitive has a queue. A waiter joins it under the primitive's own lock; whoever causes
//! the event takes the waiter out, which then belongs to that event. A waiter whose time is over
//! takes itself out; if it is no longer there, its event has come.

use crate::context::{self, Fiber};
use crate::scheduler::Scheduler;
use garonne_sync::mutex::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::Duration;

/// A waiter's word: nobody has ended the wait.
const WAITING: u32 = 0;
/// A waiter's word: the event has come.
const WOKEN: u32 = 1;

/// A thread that runs no fiber and waits.
#[derive(Debug)]
pub(crate) struct WaitingThread {
    signal: AtomicU32,
    thread: Thread,
}

/// A fiber or a thread that waits. It waits for one thing at a time.
#[derive(Clone, Debug)]
pub(crate) enum WaitHandle {
    /// A fiber; its worker goes on with others.
    Fiber(Arc<Fiber>),
    /// A thread, which sleeps.
    Thread(Arc<WaitingThread>),
}

impl WaitHandle {
    /// Whoever calls this, about to wait.
    pub(crate) fn current() -> Self {
        match context::current() {
            Some(fiber) => {
                fiber.signal.store(WAITING, Ordering::Relaxed);
                Self::Fiber(fiber)
            }
            None => Self::Thread(Arc::new(WaitingThread {
                signal: AtomicU32::new(WAITING),
                thread: std::thread::current(),
            })),
        }
    }

    fn signal(&self) -> &AtomicU32 {
        match self {
            Self::Fiber(fiber) => &fiber.signal,
            Self::Thread(thread) => &thread.signal,
        }
    }

    fn is_woken(&self) -> bool {
        // SYNC(fiber-event): pairs with `wake`.
        self.signal().load(Ordering::Acquire) == WOKEN
    }

    /// Ends the wait.
    pub(crate) fn wake(&self) {
        // SYNC(fiber-event)
        self.signal().store(WOKEN, Ordering::Release);
        self.unpark();
    }

    /// Makes the waiter look at its word and the clock.
    pub(crate) fn unpark(&self) {
        match self {
            Self::Fiber(fiber) => fiber.unpark(),
            Self::Thread(thread) => thread.thread.unpark(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self.signal(), other.signal())
    }

    /// Waits until woken.
    pub(crate) fn wait(&self) {
        while !self.is_woken() {
            match self {
                Self::Fiber(fiber) => fiber.park(),
                Self::Thread(_) => std::thread::park(),
            }
        }
    }

    /// Waits until woken (`true`) or until the clock shows `deadline`.
    pub(crate) fn wait_until(&self, scheduler: &Scheduler, deadline: u64) -> bool {
        match self {
            Self::Fiber(fiber) => {
                let timer = scheduler.timers.add(deadline, self.clone());
                while !self.is_woken() && scheduler.now() < deadline {
                    fiber.park();
                }
                scheduler.timers.remove(timer);
            }
            Self::Thread(_) => {
                while !self.is_woken() {
                    let left = deadline.saturating_sub(scheduler.now());
                    if left == 0 {
                        break;
                    }
                    std::thread::park_timeout(Duration::from_nanos(left));
                }
            }
        }
        self.is_woken()
    }
}

/// See the module's paragraph.
#[derive(Debug)]
pub(crate) struct WaitQueue(Mutex<VecDeque<WaitHandle>>);

impl WaitQueue {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// Joins the queue unless `is_free`, which is asked under the queue's lock.
    pub(crate) fn join_unless(&self, is_free: impl FnOnce() -> bool) -> Option<WaitHandle> {
        let mut queue = lock(&self.0);
        if is_free() {
            return None;
        }
        let waiter = WaitHandle::current();
        queue.push_back(waiter.clone());
        Some(waiter)
    }

    /// Joins the queue unless `is_last`, which takes all others out instead.
    pub(crate) fn join_unless_taking(
        &self,
        is_last: impl FnOnce() -> bool,
        others: &mut VecDeque<WaitHandle>,
    ) -> Option<WaitHandle> {
        let mut queue = lock(&self.0);
        if is_last() {
            *others = std::mem::take(&mut *queue);
            return None;
        }
        let waiter = WaitHandle::current();
        queue.push_back(waiter.clone());
        Some(waiter)
    }

    /// Takes the first waiter out. `otherwise` runs under the lock if there is none.
    pub(crate) fn take_first(
        &self,
        otherwise: impl FnOnce(),
        remaining: impl FnOnce(bool),
    ) -> Option<WaitHandle> {
        let mut queue = lock(&self.0);
        let first = queue.pop_front();
        match first {
            Some(_) => remaining(!queue.is_empty()),
            None => otherwise(),
        }
        first
    }

    /// Takes all waiters out. `change` runs under the lock.
    pub(crate) fn take_all(&self, change: impl FnOnce()) -> VecDeque<WaitHandle> {
        let mut queue = lock(&self.0);
        change();
        std::mem::take(&mut *queue)
    }

    /// Takes a waiter out whose time is over; `false`: its event has come.
    pub(crate) fn withdraw(&self, waiter: &WaitHandle) -> bool {
        let mut queue = lock(&self.0);
        let at = queue.iter().position(|other| other.is(waiter));
        at.and_then(|at| queue.remove(at)).is_some()
    }

    /// Waits in the queue until woken or until `deadline` has passed; `false`: the latter.
    pub(crate) fn wait_in(&self, waiter: &WaitHandle, deadline: Option<u64>) -> bool {
        let Some(deadline) = deadline else {
            waiter.wait();
            return true;
        };
        let scheduler = crate::runtime::scheduler();
        if waiter.wait_until(&scheduler, deadline) || !self.withdraw(waiter) {
            // Whoever took the waiter out wakes it, if it has not yet.
            waiter.wait();
            return true;
        }
        false
    }

    /// Waits until whoever works on the queue has left it. For memory that is freed by somebody
    /// who was woken, or went ahead, through it.
    pub(crate) fn await_last_use(&self) {
        drop(lock(&self.0));
    }

    /// Sets a flag for ever and wakes all.
    pub(crate) fn close(&self, flag: &AtomicBool) {
        let waiters = self.take_all(|| flag.store(true, Ordering::Release));
        waiters.iter().for_each(WaitHandle::wake);
    }

    /// Waits until the flag is set.
    pub(crate) fn wait_for(&self, flag: &AtomicBool, deadline: Option<u64>) -> bool {
        if flag.load(Ordering::Acquire) {
            return true;
        }
        match self.join_unless(|| flag.load(Ordering::Relaxed)) {
            Some(waiter) => self.wait_in(&waiter, deadline),
            None => true,
        }
    }
}
