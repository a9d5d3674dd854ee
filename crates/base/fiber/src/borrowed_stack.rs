//! The stack of a thread of the C library, which workers run as a fiber.
//!
//! The kernel thread either runs its stack itself (it is at home), or sleeps on a small stack of
//! its own (it is away) while workers run the borrowed one. So frames, bounds and everything that
//! the C library put on the stack stay where they were.

mod sys;

use crate::context::SwitchRequest;
use crate::limits::SLEEP_STACK;
use rustix::thread::futex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The kernel thread runs its stack, or is about to leave it.
const HOME: u32 = 0;
/// The kernel thread sleeps.
const AWAY: u32 = 1;
/// The kernel thread is to run its stack.
const CALLED: u32 = 2;

/// Requests of a fiber, as they lie in a word.
const REQUESTS: [SwitchRequest; 4] = [
    SwitchRequest::Yield,
    SwitchRequest::Park,
    SwitchRequest::Exit,
    SwitchRequest::Bind,
];

/// Looks for a kernel thread that is about to leave, before the worker gives its CPU away.
const LOOKS_FOR_LEAVE: u32 = 200;

/// See the module's paragraph. Words other than `home` are touched by whoever has the right to run
/// the stack.
#[derive(Debug)]
pub(crate) struct BorrowedStack {
    /// Stack pointer of the thread while nobody runs it; 0 while a worker does.
    thread: AtomicUsize,
    /// Stack pointer of the worker that runs it.
    worker: AtomicUsize,
    /// What the thread asked of the worker, as an index of [`REQUESTS`].
    request: AtomicUsize,
    /// Where the kernel thread is: `HOME`, `AWAY` or `CALLED`.
    home: AtomicU32,
    /// Signals that the thread blocks.
    mask: AtomicU64,
    sleep_stack: SleepStack,
}

/// Where a kernel thread sleeps while workers run its stack.
#[derive(Debug)]
pub struct SleepStack(Box<[u8]>);

impl SleepStack {
    /// A stack of [`SLEEP_STACK`] bytes. `None`: there is no memory.
    pub fn new() -> Option<Self> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(SLEEP_STACK).ok()?;
        bytes.resize(SLEEP_STACK, 0);
        Some(Self(bytes.into()))
    }
}

/// Tells whether the calling worker runs a signal handler. What a handler left on the kernel thread
/// does not go with a fiber, so nobody suspends one there.
pub(crate) fn is_in_handler() -> bool {
    sys::is_in_handler()
}

impl BorrowedStack {
    /// The stack of the calling thread.
    pub(crate) fn of_caller(sleep_stack: SleepStack) -> Self {
        Self {
            thread: AtomicUsize::new(0),
            worker: AtomicUsize::new(0),
            request: AtomicUsize::new(0),
            home: AtomicU32::new(HOME),
            mask: AtomicU64::new(0),
            sleep_stack,
        }
    }

    /// Signals that the thread blocks while workers run it.
    pub(crate) fn signal_mask(&self) -> u64 {
        self.mask.load(Ordering::Relaxed)
    }

    /// The kernel thread, which calls this, leaves its stack. Returns on a worker. `publish` gives
    /// the stack to workers, who wait until it has been left.
    pub(crate) fn leave(&self, publish: impl FnOnce()) {
        let mask = sys::set_signal_mask(sys::BLOCKED_ASLEEP);
        self.mask.store(mask, Ordering::Relaxed);
        publish();
        self.leave_kernel_thread();
    }

    /// The kernel thread has its stack again: it takes the signals that the program wants.
    pub(crate) fn came_home(&self) {
        sys::set_signal_mask(self.mask.load(Ordering::Relaxed));
    }

    /// Wakes the kernel thread, which runs its stack from then on. Called by the worker that ran
    /// it.
    pub(crate) fn call_kernel_thread(&self) {
        // SYNC(kernel-thread-called): the stack is written before; the kernel thread reads it.
        self.home.store(CALLED, Ordering::Release);
        // Of this process alone, as the sleep is.
        let _ = futex::wake(&self.home, futex::Flags::PRIVATE, 1);
    }

    /// Waits until the kernel thread, which has published the stack, sleeps.
    #[inline]
    pub(crate) fn await_leave(&self) {
        let mut looks = 0u32;
        // SYNC(kernel-thread-away): pairs with the store of `AWAY`, after the stack is saved.
        while self.home.load(Ordering::Acquire) != AWAY {
            looks += 1;
            if looks.is_multiple_of(LOOKS_FOR_LEAVE) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }

    #[inline]
    pub(crate) fn resume(&self) -> SwitchRequest {
        self.switch_to();
        REQUESTS[self.request.load(Ordering::Relaxed)]
    }

    #[inline]
    pub(crate) fn suspend(&self, request: SwitchRequest) {
        let number = REQUESTS.iter().position(|known| *known == request);
        self.request.store(number.unwrap_or(0), Ordering::Relaxed);
        self.switch_back();
    }
}
