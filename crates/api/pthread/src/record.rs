//! What this library knows of each thread, and where the thread runs.

use crate::real;
use garonne_fiber::{Parker, ParkingLot, PosixThread};
use libc::{c_int, pthread_t};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whoever waits at addresses of the program.
pub(crate) static LOT: ParkingLot = ParkingLot::new();

/// Threads of the program by their names, for those that are meant by others. `None`: the thread
/// was cancelled before it could say its name.
static THREADS: Mutex<BTreeMap<pthread_t, Option<Arc<Addressee>>>> = Mutex::new(BTreeMap::new());

/// The process came out of a `fork`: all threads are the kernel's.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// What others may do with a thread.
#[derive(Debug)]
pub(crate) struct Addressee {
    pub(crate) parker: Arc<Parker>,
    /// The thread is to stay the kernel's from its next call on.
    stays_bound: AtomicBool,
}

impl Addressee {
    /// The thread is to stay the kernel's.
    pub(crate) fn keep_bound(&self) {
        if !self.stays_bound.swap(true, Ordering::Relaxed) {
            STAYED_BOUND.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A thread, as it sees itself.
#[derive(Debug)]
pub(crate) struct ThreadRecord {
    /// `None`: the kernel's thread runs it, always.
    posix: Option<PosixThread>,
    pub(crate) addressee: Arc<Addressee>,
    /// The kernel's number of the thread.
    pub(crate) tid: c_int,
    /// Times that the thread has let others run.
    yields: Cell<u32>,
}

/// One of so many yields lets the kernel's threads run too: what a fiber waits for may
/// be the main thread, or one that is in the kernel.
const YIELDS_PER_KERNEL_YIELD: u32 = 16;

thread_local! {
    static RECORD: Cell<*const ThreadRecord> = const { Cell::new(std::ptr::null()) };
    /// The thread is making its record.
    static IS_STARTING: Cell<bool> = const { Cell::new(false) };
}

/// Counts of the process, for its report.
pub(crate) static UNBOUND_THREADS: AtomicU64 = AtomicU64::new(0);
pub(crate) static BOUND_THREADS: AtomicU64 = AtomicU64::new(0);
static STAYED_BOUND: AtomicU64 = AtomicU64::new(0);

/// Threads that were fibers and then stayed the kernel's.
pub(crate) fn stayed_bound() -> u64 {
    STAYED_BOUND.load(Ordering::Relaxed)
}

/// Tells whether threads are the kernel's alone.
#[inline]
pub(crate) fn is_off() -> bool {
    IS_FORKED.load(Ordering::Relaxed)
}

/// The caller is the only thread of a new process.
pub(crate) fn forked() {
    IS_FORKED.store(true, Ordering::Relaxed);
}

/// Ends the wait at an address that began first.
pub(crate) fn wake_one(address: usize) {
    LOT.unpark_one(address);
}

impl ThreadRecord {
    /// Makes the calling thread's record.
    pub(crate) fn new(posix: Option<PosixThread>) -> Self {
        let parker = Parker::new(posix.as_ref());
        Self {
            posix,
            addressee: Arc::new(Addressee {
                parker,
                stays_bound: AtomicBool::new(false),
            }),
            // SAFETY: has no precondition; the thread is bound.
            tid: unsafe { real::gettid() },
            yields: Cell::new(0),
        }
    }

    pub(crate) fn parker(&self) -> &Arc<Parker> {
        &self.addressee.parker
    }

    /// Tells whether a worker runs the thread.
    #[inline]
    pub(crate) fn is_unbound(&self) -> bool {
        self.posix.as_ref().is_some_and(PosixThread::is_unbound)
    }

    /// The thread goes on as a fiber, unless it is to stay the kernel's.
    pub(crate) fn unbind(&self) -> bool {
        if is_off() || self.addressee.stays_bound.load(Ordering::Relaxed) {
            return false;
        }
        self.posix.as_ref().is_some_and(PosixThread::unbind)
    }

    /// The thread goes on as the kernel's.
    pub(crate) fn bind(&self) -> bool {
        self.posix.as_ref().is_some_and(PosixThread::bind)
    }

    /// Others run first, where workers run the thread. `false`: the kernel's threads are to run,
    /// since no fiber is ready or fibers have gone first a few times.
    pub(crate) fn yield_now(&self) -> bool {
        let yields = self.yields.get().wrapping_add(1);
        self.yields.set(yields);
        let has_switched = self.posix.as_ref().is_some_and(PosixThread::yield_now);
        has_switched && !yields.is_multiple_of(YIELDS_PER_KERNEL_YIELD)
    }

    /// The thread goes on as the kernel's, for ever, since it does what only that can do.
    pub(crate) fn stay_bound(&self) {
        if self.posix.is_some() {
            self.addressee.keep_bound();
        }
        self.bind();
    }

    /// The thread ends as the kernel's.
    pub(crate) fn end(&self) {
        self.addressee.stays_bound.store(true, Ordering::Relaxed);
        self.bind();
    }

    pub(crate) fn signal_mask(&self) -> Option<u64> {
        let posix = self.posix.as_ref().filter(|_| self.is_unbound());
        posix.map(PosixThread::signal_mask)
    }
}

/// The calling thread's record; `None` while it is being made.
#[inline]
pub(crate) fn own() -> Option<&'static ThreadRecord> {
    let record = RECORD.try_with(Cell::get).unwrap_or(std::ptr::null());
    // SAFETY: the thread's last act is to take its record away.
    match unsafe { record.as_ref() } {
        Some(record) => Some(record),
        None => first(),
    }
}

/// The calling thread's record, if it has a start function that this library calls.
#[inline]
pub(crate) fn unbound() -> Option<&'static ThreadRecord> {
    let record = RECORD.try_with(Cell::get).unwrap_or(std::ptr::null());
    // SAFETY: as above.
    unsafe { record.as_ref() }.filter(|record| record.is_unbound())
}

/// Makes the record of a thread that this library did not start: the kernel runs it.
#[cold]
fn first() -> Option<&'static ThreadRecord> {
    if IS_STARTING.try_with(|is| is.replace(true)).unwrap_or(true) {
        return None;
    }
    // Kept for ever: the main thread's, and those of the runtime's threads, which never end.
    let record = Box::leak(Box::new(ThreadRecord::new(None)));
    set_own(record);
    let _ = IS_STARTING.try_with(|is| is.set(false));
    Some(record)
}

pub(crate) fn set_own(record: *const ThreadRecord) {
    let _ = RECORD.try_with(|own| own.set(record));
}

fn threads() -> MutexGuard<'static, BTreeMap<pthread_t, Option<Arc<Addressee>>>> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Others may mean the calling thread from now on.
pub(crate) fn register(record: &ThreadRecord) {
    // SAFETY: has no precondition.
    let name = unsafe { libc::pthread_self() };
    let early = threads().insert(name, Some(record.addressee.clone()));
    if let Some(None) = early {
        record.parker().interrupt();
    }
}

/// Nobody means the calling thread any more.
pub(crate) fn unregister() {
    // SAFETY: has no precondition.
    let name = unsafe { libc::pthread_self() };
    threads().remove(&name);
}

/// The thread of this name, if it has not ended.
pub(crate) fn addressee(thread: pthread_t) -> Option<Arc<Addressee>> {
    threads().get(&thread).cloned().flatten()
}

/// Ends the wait of a thread that was cancelled, now or when it first waits.
pub(crate) fn interrupt(thread: pthread_t) {
    let addressee = threads().entry(thread).or_insert(None).clone();
    if let Some(addressee) = addressee {
        addressee.parker.interrupt();
    }
}

/// While this lives the calling thread is the kernel's.
#[derive(Debug)]
pub(crate) struct Bound(Option<&'static ThreadRecord>);

impl Bound {
    pub(crate) fn new() -> Self {
        Self(unbound().filter(|record| record.bind()))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(record) = self.0 {
            record.unbind();
        }
    }
}

/// Acts on a cancellation that somebody asked of the calling thread, if there is one.
#[inline]
pub(crate) fn cancellation_point() {
    if let Some(record) = own().filter(|record| record.parker().is_interrupted()) {
        act_on_cancellation(record);
    }
}

#[cold]
pub(crate) fn act_on_cancellation(record: &ThreadRecord) {
    let was_unbound = record.bind();
    // SAFETY: has no precondition. It may unwind the caller's stack.
    unsafe { real::pthread_testcancel() };
    if crate::thread::may_be_cancelled() {
        // It was meant for another thread, which had this name before.
        record.parker().clear_interrupt();
    }
    if was_unbound {
        record.unbind();
    }
}
