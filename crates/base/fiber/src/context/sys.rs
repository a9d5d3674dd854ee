//! Switching between stacks, and which fiber a thread runs at the moment.

use super::{Fiber, STACKS};
use crate::borrowed_stack::BorrowedStack;
use crate::stack::StackMemory;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::{Cell, UnsafeCell};
use std::sync::Arc;

/// What a fiber asks of its worker when it leaves its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwitchRequest {
    /// Run others first.
    Yield,
    /// Run it when somebody unparks it.
    Park,
    /// End the fiber here, in the middle of its start function.
    Exit,
    /// Let the kernel thread of a thread of the C library run it.
    Bind,
}

type FiberCoroutine = Coroutine<(), SwitchRequest, (), StackMemory>;

/// Stack and registers of a fiber that does not run.
pub(crate) struct Context {
    coroutine: UnsafeCell<Option<FiberCoroutine>>,
    yielder: Cell<*const Yielder<(), SwitchRequest>>,
    /// The stack in place of a coroutine's, for a thread of the C library.
    borrowed: Option<BorrowedStack>,
}

// SAFETY: `coroutine` is touched by whoever has the fiber's only `Runnable` (`super::Runnable`),
// `yielder` by the code of the fiber alone. What the fiber has on its stack goes to other threads
// with it: that is what a fiber is; start functions are `Send`.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

impl Context {
    pub(super) fn new(stack: StackMemory, body: Box<dyn FnOnce() + Send>) -> Self {
        let coroutine =
            Coroutine::with_stack(stack, move |yielder: &Yielder<(), SwitchRequest>, ()| {
                if let Some(fiber) = current() {
                    fiber.context.yielder.set(yielder);
                }
                body();
            });
        Self {
            coroutine: UnsafeCell::new(Some(coroutine)),
            yielder: Cell::new(std::ptr::null()),
            borrowed: None,
        }
    }

    /// The context of a thread of the C library.
    pub(super) fn on_borrowed(stack: BorrowedStack) -> Self {
        Self {
            coroutine: UnsafeCell::new(None),
            yielder: Cell::new(std::ptr::null()),
            borrowed: Some(stack),
        }
    }

    /// The stack of a thread of the C library.
    #[inline]
    pub(crate) fn borrowed(&self) -> Option<&BorrowedStack> {
        self.borrowed.as_ref()
    }

    /// Runs the fiber until it leaves its stack; `None`: it has ended. Called through the fiber's
    /// `Runnable` only.
    #[inline]
    pub(super) fn resume(&self) -> Option<SwitchRequest> {
        if let Some(stack) = &self.borrowed {
            return Some(stack.resume());
        }
        // SAFETY: the caller has the fiber's only `Runnable`, so nobody else is here.
        let coroutine = unsafe { &mut *self.coroutine.get() };
        match coroutine.as_mut()?.resume(()) {
            CoroutineResult::Yield(request) => Some(request),
            CoroutineResult::Return(()) => None,
        }
    }

    /// Leaves the stack. Called by the fiber's own code only.
    #[inline]
    pub(crate) fn suspend(&self, request: SwitchRequest) {
        if let Some(stack) = &self.borrowed {
            return keeping_errno(|| stack.suspend(request));
        }
        let yielder = self.yielder.get();
        assert!(!yielder.is_null(), "a fiber suspends itself while it runs");
        let error_number = exchange_errno(None);
        // SAFETY: the yielder lives as long as the coroutine's function, which calls this.
        unsafe { (*yielder).suspend(request) };
        exchange_errno(Some(error_number));
    }

    /// Drops the start function of a fiber that never ran. Called through the fiber's `Runnable`
    /// only.
    pub(super) fn drop_function(&self) {
        // SAFETY: the caller has the fiber's only `Runnable`, so nobody else is here.
        let coroutine = unsafe { &mut *self.coroutine.get() };
        if let Some(coroutine) = coroutine.as_mut().filter(|coroutine| !coroutine.started()) {
            coroutine.force_unwind();
        }
    }

    /// Takes the stack of a fiber that has ended. Called through the fiber's `Runnable` only.
    pub(super) fn take_stack(&self) -> Option<StackMemory> {
        // SAFETY: the caller has the fiber's only `Runnable`, so nobody else is here.
        let mut coroutine = unsafe { &mut *self.coroutine.get() }.take()?;
        if !coroutine.done() {
            // SAFETY: the fiber asked for its end by `SwitchRequest::Exit`, whose caller vouches
            // that nothing on its stack needs to be dropped, as for `pthread_exit`.
            unsafe { coroutine.force_reset() };
        }
        Some(coroutine.into_stack())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // A fiber that never came to its end keeps its stack: others may point to what is on it.
        if let Some(coroutine) = self.coroutine.get_mut().take() {
            std::mem::forget(coroutine);
        }
    }
}

/// Time of so many switches to a stack and back, by themselves.
pub(crate) fn bare_switches(stack: StackMemory, count: u32) -> std::time::Duration {
    let body = |yielder: &Yielder<bool, ()>, mut goes_on: bool| {
        while goes_on {
            goes_on = yielder.suspend(());
        }
    };
    let mut coroutine = Coroutine::with_stack(stack, body);
    coroutine.resume(true);
    let watch = crate::measure::CpuWatch::start();
    (0..count / 2).for_each(|_| _ = coroutine.resume(true));
    let time = watch.stop();
    coroutine.resume(false);
    STACKS.give_back(coroutine.into_stack());
    time
}

thread_local! {
    static CURRENT: Cell<*const Fiber> = const { Cell::new(std::ptr::null()) };
}

// These functions are not inlined: a fiber that went on in another thread would read the word of
// the thread that it came from.

#[inline(never)]
fn current_pointer() -> *const Fiber {
    CURRENT.try_with(Cell::get).unwrap_or(std::ptr::null())
}

/// Reads the calling thread's `errno`, and sets it: a fiber takes it along.
#[inline(never)]
fn exchange_errno(next: Option<libc::c_int>) -> libc::c_int {
    // SAFETY: the C library's word of the calling thread.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    if let Some(next) = next {
        *errno = next;
    }
    before
}

/// Calls `body`, which leaves `errno` as it was.
pub(crate) fn keeping_errno<R>(body: impl FnOnce() -> R) -> R {
    let error_number = exchange_errno(None);
    let result = body();
    exchange_errno(Some(error_number));
    result
}

/// Address of a word that the calling thread has for itself.
#[inline(never)]
pub(crate) fn address_of_thread() -> usize {
    CURRENT
        .try_with(|current| std::ptr::from_ref(current) as usize)
        .unwrap_or(1)
}

/// Sets the fiber that the calling thread runs; returns the one before.
#[inline(never)]
fn set_current(fiber: *const Fiber) -> *const Fiber {
    CURRENT
        .try_with(|current| current.replace(fiber))
        .unwrap_or(std::ptr::null())
}

/// Runs `body` as this fiber's worker.
pub(super) fn as_current<R>(fiber: &Arc<Fiber>, body: impl FnOnce() -> R) -> R {
    struct Restore(*const Fiber);
    impl Drop for Restore {
        fn drop(&mut self) {
            set_current(self.0);
        }
    }
    let _restore = Restore(set_current(Arc::as_ptr(fiber)));
    body()
}

/// Returns the fiber that calls this; `None` on a thread that runs none.
pub(crate) fn current() -> Option<Arc<Fiber>> {
    let fiber = current_pointer();
    if fiber.is_null() {
        return None;
    }
    // SAFETY: `as_current` holds the `Arc` while the pointer is set.
    unsafe {
        Arc::increment_strong_count(fiber);
        Some(Arc::from_raw(fiber))
    }
}

/// Calls `body` on the stack of the worker that runs the calling fiber, which may be larger than
/// the fiber's. On a thread that runs no fiber it only calls it.
///
/// `body` must not suspend the fiber: with its worker's stack occupied it could not come back. So
/// waits of this crate inside it panic.
pub fn on_worker_stack<R>(body: impl FnOnce() -> R + Send) -> R {
    let Some(fiber) = current() else {
        return body();
    };
    let yielder = fiber.context.yielder.replace(std::ptr::null());
    if yielder.is_null() {
        return body();
    }
    struct Restore<'a>(&'a Context, *const Yielder<(), SwitchRequest>);
    impl Drop for Restore<'_> {
        fn drop(&mut self) {
            self.0.yielder.set(self.1);
        }
    }
    let _restore = Restore(&fiber.context, yielder);
    // SAFETY: the yielder lives as long as the coroutine's function, which calls this. While the
    // word is null the fiber does not suspend itself, so the worker's stack stays as it is.
    unsafe { (*yielder).on_parent_stack(body) }
}

/// Calls `body` with the fiber that calls this, without counting a reference.
#[inline]
pub(crate) fn with_current<R>(body: impl FnOnce(Option<&Fiber>) -> R) -> R {
    // SAFETY: the worker that runs the fiber holds an `Arc` of it, on whichever thread it goes on.
    body(unsafe { current_pointer().as_ref() })
}
