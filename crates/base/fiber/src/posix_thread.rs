//! Threads of the C library that run as fibers, on their own stacks and with their own control
//! blocks.

use crate::borrowed_stack::{self, BorrowedStack, SleepStack};
use crate::context::{self, Fiber, Runnable, SwitchRequest};
use crate::{Identity, SpawnError, runtime};
use std::sync::Arc;

/// A thread of the C library, which its own kernel thread runs (it is bound), or workers as a fiber
/// (it is unbound).
///
/// Owned by the thread itself, which alone may change where it runs. Begins bound, and is bound
/// when it is dropped.
#[derive(Debug)]
pub struct PosixThread(Arc<Fiber>);

impl PosixThread {
    /// The calling thread, bound.
    ///
    /// # Errors
    /// The process may use no CPU.
    pub fn of_caller(sleep_stack: SleepStack) -> Result<Self, SpawnError> {
        let scheduler = runtime::scheduler();
        runtime::ready(&scheduler)?;
        let stack = BorrowedStack::of_caller(sleep_stack);
        scheduler.fiber_started();
        let identity = Identity::of_caller();
        Ok(Self(Fiber::of_thread(scheduler, stack, identity)))
    }

    /// Tells whether the thread that this is calls.
    fn is_caller(&self) -> bool {
        self.0.identity().is_some_and(Identity::is_caller)
    }

    /// Tells whether a worker runs the calling thread, which this is.
    pub fn is_unbound(&self) -> bool {
        is_run_by_worker(&self.0)
    }

    /// Signals that the thread blocks while it is unbound, as the kernel counts them.
    pub fn signal_mask(&self) -> u64 {
        self.0
            .context
            .borrowed()
            .map_or(0, BorrowedStack::signal_mask)
    }

    /// The calling thread, which this is, goes on as a fiber. `false`: it is one already, or this
    /// is another thread.
    pub fn unbind(&self) -> bool {
        let Some(stack) = self.0.context.borrowed() else {
            return false;
        };
        if self.is_unbound() || !self.is_caller() {
            return false;
        }
        context::keeping_errno(|| {
            let ready = Runnable::of_thread(self.0.clone());
            stack.leave(|| self.0.scheduler.queue(ready));
        });
        true
    }

    /// Lets other fibers run, where the calling thread is unbound. `false`: none is ready, or the
    /// thread is bound.
    pub fn yield_now(&self) -> bool {
        let may_switch = self.is_unbound() && !borrowed_stack::is_in_handler();
        if !may_switch || !self.0.scheduler.has_any() {
            return false;
        }
        self.0.yield_now();
        true
    }

    /// The calling thread, which this is, goes on as its kernel thread. `false`: it does already,
    /// or it runs a signal handler, which stays where it is.
    pub fn bind(&self) -> bool {
        bind(&self.0)
    }

    pub(crate) fn fiber(&self) -> &Arc<Fiber> {
        &self.0
    }
}

impl Drop for PosixThread {
    fn drop(&mut self) {
        self.0.scheduler.fiber_ended(None);
    }
}

fn is_run_by_worker(thread: &Fiber) -> bool {
    context::with_current(|fiber| fiber.is_some_and(|fiber| std::ptr::eq(fiber, thread)))
}

/// The calling thread, which this is, goes on as its kernel thread. `false`: it does already.
pub(crate) fn bind(thread: &Fiber) -> bool {
    let Some(stack) = thread
        .context
        .borrowed()
        .filter(|_| is_run_by_worker(thread) && !borrowed_stack::is_in_handler())
    else {
        return false;
    };
    thread.context.suspend(SwitchRequest::Bind);
    stack.came_home();
    runtime::forget_worker();
    true
}
