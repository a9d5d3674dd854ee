//! Starts, ends and cancellation of threads.

use crate::real::{self, Start};
use crate::record::{self, Bound, ThreadRecord};
use garonne_fiber::{PosixThread, SleepStack};
use libc::{c_int, c_void, pthread_t, timespec};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a new thread needs to know.
struct ThreadStart {
    start: Start,
    argument: *mut c_void,
    sleep_stack: SleepStack,
    /// Signals that the thread blocks.
    mask: u64,
}

/// Bytes that are there before a thread starts, for what the runtime itself may need.
const MEMORY_AHEAD: usize = 512 << 10;

/// Bytes that are there for each thread that has not begun: its record and places in queues.
const MEMORY_PER_THREAD: usize = 4 << 10;

/// Threads that have not begun.
static UNBEGUN: AtomicUsize = AtomicUsize::new(0);

/// Signals that the processor raises where the fault is: whoever runs the code takes them.
const RAISED_BY_CODE: [c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];

/// Signals that workers block.
fn blocked_by_workers() -> u64 {
    let raised = RAISED_BY_CODE.iter().map(|signal| 1u64 << (signal - 1));
    // The C library's call that changes the user of all threads waits for each.
    !(raised.fold(0, |set, one| set | one) | 1 << (33 - 1))
}

/// Sets the calling kernel thread's signal mask; returns the one before.
fn exchange_mask(mask: Option<u64>) -> u64 {
    let mut before = 0u64;
    let next = mask.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the words have the kernel's size of a set.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            next,
            &raw mut before,
            size_of::<u64>(),
        );
    }
    before
}

/// Calls `body`, in which the thread is not cancelled: some of the C library's functions that the
/// runtime calls are points of cancellation.
fn without_cancellation<R>(body: impl FnOnce() -> R) -> R {
    let mut before = 0;
    // SAFETY: the state before is written there.
    unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
    let result = body();
    // SAFETY: the second place may be null.
    unsafe { pthread_setcancelstate(before, std::ptr::null_mut()) };
    result
}

/// Tells whether the calling thread may be cancelled now.
pub(crate) fn may_be_cancelled() -> bool {
    let mut state = 0;
    // SAFETY: the state before is written there; it is set again at once.
    unsafe {
        pthread_setcancelstate(CANCEL_DISABLE, &raw mut state);
        pthread_setcancelstate(state, std::ptr::null_mut());
    }
    state != CANCEL_DISABLE
}

const CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Starts the workers, which take no signals that are meant for the program.
fn start_workers() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let mask = exchange_mask(Some(blocked_by_workers()));
        without_cancellation(garonne_fiber::start_workers);
        exchange_mask(Some(mask));
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_create(
    thread: *mut pthread_t,
    attr: *const c_void,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    if record::is_off() {
        // SAFETY: the program's own arguments.
        return unsafe { real::pthread_create(thread, attr, start, argument) };
    }
    let unbegun = UNBEGUN.fetch_add(1, Ordering::Relaxed) + 1;
    let has_memory = crate::allocator::reserve(MEMORY_AHEAD + unbegun * MEMORY_PER_THREAD);
    let Some(sleep_stack) = has_memory.then(SleepStack::new).flatten() else {
        UNBEGUN.fetch_sub(1, Ordering::Relaxed);
        return libc::EAGAIN;
    };
    start_workers();
    let mask = record::own().and_then(ThreadRecord::signal_mask);
    let own = Box::new(ThreadStart {
        start,
        argument,
        sleep_stack,
        mask: mask.unwrap_or_else(|| exchange_mask(None)),
    });
    let own = Box::into_raw(own);
    ALIVE.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the new thread takes the box.
    let result = unsafe { real::pthread_create(thread, attr, run, own.cast()) };
    if result != 0 {
        // SAFETY: nobody took it.
        drop(unsafe { Box::from_raw(own) });
        ALIVE.fetch_sub(1, Ordering::Relaxed);
        UNBEGUN.fetch_sub(1, Ordering::Relaxed);
    }
    result
}

/// The life of a thread that this library starts.
struct Life(Box<ThreadRecord>);

impl Life {
    fn new(sleep_stack: SleepStack) -> Self {
        // Without a worker nobody would run it.
        let posix =
            (garonne_fiber::worker_threads() > 0).then(|| PosixThread::of_caller(sleep_stack));
        let posix = posix.and_then(Result::ok);
        let record = Box::new(ThreadRecord::new(posix));
        record::set_own(&raw const *record);
        record::register(&record);
        Self(record)
    }
}

/// Threads of the program that have not ended, with the main thread: when none is left the process
/// ends, although the runtime's own threads never do.
static ALIVE: AtomicUsize = AtomicUsize::new(1);

/// A thread has ended. The last one ends the process, as the C library would.
fn thread_ended() {
    if ALIVE.fetch_sub(1, Ordering::AcqRel) == 1 && !record::is_off() {
        // SAFETY: has no precondition.
        unsafe { libc::exit(0) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_exit(result: *mut c_void) {
    // SAFETY: has no precondition.
    let is_main = unsafe { libc::getpid() == real::gettid() };
    if let Some(own) = record::unbound() {
        own.bind();
    } else if is_main && !record::is_off() {
        thread_ended();
    }
    // SAFETY: the program's own argument. It unwinds the caller's stack.
    unsafe { real::pthread_exit(result) };
}

impl Drop for Life {
    /// Also when the thread exits or is cancelled in the middle: the C library ends the kernel's
    /// thread.
    fn drop(&mut self) {
        self.0.end();
        record::unregister();
        record::set_own(std::ptr::null());
        thread_ended();
    }
}

unsafe extern "C-unwind" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: `garonne_pthread_create` made it for this thread.
    let start = unsafe { Box::from_raw(start.cast::<ThreadStart>()) };
    let ThreadStart {
        start,
        argument,
        sleep_stack,
        mask,
    } = *start;
    exchange_mask(Some(mask));
    let life = without_cancellation(|| {
        let life = Life::new(sleep_stack);
        let count = if life.0.unbind() {
            &record::UNBOUND_THREADS
        } else {
            &record::BOUND_THREADS
        };
        count.fetch_add(1, Ordering::Relaxed);
        UNBEGUN.fetch_sub(1, Ordering::Relaxed);
        life
    });
    // SAFETY: the program's own function and argument.
    let result = unsafe { start(argument) };
    drop(life);
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_join(
    thread: pthread_t,
    result: *mut *mut c_void,
) -> c_int {
    record::cancellation_point();
    let _bound = Bound::new();
    // SAFETY: the program's own arguments.
    unsafe { real::pthread_join(thread, result) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_timedjoin_np(
    thread: pthread_t,
    result: *mut *mut c_void,
    end: *const timespec,
) -> c_int {
    record::cancellation_point();
    let _bound = Bound::new();
    // SAFETY: the program's own arguments.
    unsafe { real::pthread_timedjoin_np(thread, result, end) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_clockjoin_np(
    thread: pthread_t,
    result: *mut *mut c_void,
    clock: c_int,
    end: *const timespec,
) -> c_int {
    record::cancellation_point();
    let _bound = Bound::new();
    // SAFETY: the program's own arguments.
    unsafe { real::pthread_clockjoin_np(thread, result, clock, end) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_cancel(thread: pthread_t) -> c_int {
    // SAFETY: the program's own argument.
    let own = unsafe { libc::pthread_self() } == thread;
    // A thread that cancels itself may end here: as the kernel's.
    let _bound = own.then(Bound::new);
    // SAFETY: as above.
    let result = unsafe { real::pthread_cancel(thread) };
    if result == 0 && !record::is_off() {
        record::interrupt(thread);
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_testcancel() {
    record::cancellation_point();
}
