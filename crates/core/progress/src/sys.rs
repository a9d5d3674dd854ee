//! System calls and C library functions without a safe form elsewhere: the idle class, binding a
//! thread, its CPU, blocked signals around a thread's start, threads that leave nothing behind, and
//! the detection of a forked child. `tasks` and `events` call them.

use crate::limits::{FORK_LOOKS, FORK_WAITS};
use garonne_topology::CpuSet;
use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

thread_local! {
    /// This thread has entered the idle class, or is as nice as can be.
    static PUT_ASIDE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the kernel may put the calling thread aside for long at any instruction: a
/// worker's, or one that its program has put into the idle class.
pub(crate) fn is_of_idle_class() -> bool {
    // SAFETY: 0 names the calling thread.
    PUT_ASIDE.get()
        || unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK == libc::SCHED_IDLE
}

/// Puts the calling thread into the class that runs only where nobody else wants to; where that is
/// refused, it is made as nice as can be.
pub(crate) fn enter_idle_class() {
    PUT_ASIDE.set(true);
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 names the calling thread; the parameter outlives the call.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &none) } != 0 {
        // SAFETY: no memory is passed; on Linux 0 names the calling thread.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
    }
}

/// Lets the calling thread run on these CPUs only. Those that it may not use are left out by the
/// kernel.
pub(crate) fn bind(cpus: &CpuSet) -> io::Result<()> {
    let words = cpus.words();
    // SAFETY: the mask is as long as said; 0 names the calling thread.
    let rc =
        unsafe { libc::sched_setaffinity(0, std::mem::size_of_val(words), words.as_ptr().cast()) };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The CPU that the calling thread is on now.
#[inline]
pub(crate) fn cpu() -> u32 {
    // SAFETY: no arguments; fails only on kernels without the call, with -1.
    u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// Returns how often others got the core of the calling thread while it could have gone on.
pub(crate) fn times_put_aside() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: written by the call, and zeros are usage, too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nivcsw
}

/// Time since any fixed point, to some milliseconds, for a fifth of what exact time costs.
pub(crate) fn coarse_time() -> Duration {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: written by the call, and zero is a time, too.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, time.as_mut_ptr());
        time.assume_init()
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Calls `f` with all signals of the calling thread blocked, so that a thread that it starts never
/// takes one.
pub(crate) fn without_signals<T>(f: impl FnOnce() -> T) -> T {
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are initialised by the calls that are given them.
    unsafe {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = f();
    // SAFETY: written by the first call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}

/// Work of a thread of [`start`].
pub(crate) trait ThreadMain: Send + Sync + 'static {
    /// All of it.
    fn work(self: Arc<Self>);
}

/// A thread that was started and is neither joined nor left to itself yet.
#[derive(Debug)]
pub(crate) struct ThreadHandle(libc::pthread_t);

/// Starts a thread that does `work`, takes no signals, and has a stack of this size, or of the
/// usual one where the program's thread-local data need more. Other than with the standard
/// library's threads, nothing is allocated that only the new thread's stack knows of: checkers of
/// leaks do not see that stack in a forked child.
pub(crate) fn start<W: ThreadMain>(work: &Arc<W>, stack: usize) -> io::Result<ThreadHandle> {
    extern "C" fn run<W: ThreadMain>(work: *mut libc::c_void) -> *mut libc::c_void {
        BUSY.fetch_sub(1, Ordering::SeqCst);
        // SAFETY: the count that `start` gave away for this thread alone.
        let work = unsafe { Arc::from_raw(work.cast_const().cast::<W>()) };
        // A panic has been told of; the thread ends.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work.work()));
        std::ptr::null_mut()
    }
    watch_forks();
    // Until it has begun.
    BUSY.fetch_add(1, Ordering::SeqCst);
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    let mut create = |stack: Option<usize>| {
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let its = Arc::into_raw(work.clone());
        // SAFETY: the attributes are initialised first and destroyed last; the argument is a count
        // of its own, which the thread takes over.
        unsafe {
            libc::pthread_attr_init(attributes.as_mut_ptr());
            if let Some(stack) = stack {
                libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack);
            }
            let argument = its.cast_mut().cast();
            let error =
                libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run::<W>, argument);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            if error != 0 {
                drop(Arc::from_raw(its));
            }
            error
        }
    };
    let error = without_signals(|| match create(Some(stack)) {
        libc::EINVAL => create(None),
        error => error,
    });
    match error {
        // SAFETY: written by the call that succeeded.
        0 => Ok(ThreadHandle(unsafe { thread.assume_init() })),
        error => {
            BUSY.fetch_sub(1, Ordering::SeqCst);
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

impl ThreadHandle {
    /// Waits for its end.
    pub(crate) fn join(self) {
        // SAFETY: it was neither joined nor detached, which this value's being there says.
        unsafe { libc::pthread_join(self.0, std::ptr::null_mut()) };
    }

    /// Returns whether it is the calling thread.
    pub(crate) fn is_me(&self) -> bool {
        // SAFETY: it was neither joined nor detached, which this value's being there says.
        unsafe { libc::pthread_equal(self.0, libc::pthread_self()) != 0 }
    }

    /// Nobody waits for it.
    pub(crate) fn detach(self) {
        // SAFETY: it was neither joined nor detached, which this value's being there says.
        unsafe { libc::pthread_detach(self.0) };
    }
}

/// A checker of races that may be in this process. It cannot see the locks of a library that is
/// built without it, and would call the memory that passes from thread to thread under them a race.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RaceChecker {
    begin: extern "C" fn(),
    end: extern "C" fn(),
}

impl RaceChecker {
    /// The one that is there. The answer no allocates for the calling thread, so a thread of the
    /// library's own is told by the one that starts it.
    pub(crate) fn find() -> Option<Self> {
        let [begin, end] =
            [c"__tsan_ignore_thread_begin", c"__tsan_ignore_thread_end"].map(|name| {
                // SAFETY: the name ends with a zero; functions of these names, if there are any,
                // are the thread sanitizer's, without arguments.
                unsafe {
                    let function = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
                    std::mem::transmute::<*mut libc::c_void, Option<extern "C" fn()>>(function)
                }
            });
        // One without the other would be an error at the thread's end.
        Some(Self {
            begin: begin?,
            end: end?,
        })
    }

    /// Calls `f` while it leaves the calling thread alone.
    pub(crate) fn looks_away(checker: Option<Self>, f: impl FnOnce()) {
        if let Some(checker) = checker {
            (checker.begin)();
        }
        f();
        if let Some(checker) = checker {
            (checker.end)();
        }
    }
}

/// Names the calling thread, for those who look.
pub(crate) fn name_thread(name: &std::ffi::CStr) {
    // SAFETY: the name ends with a zero and is copied; one that is too long is refused.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
}

/// How many forks lie between the first call of [`forks`] and this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Threads of [`start`] that are on their way into their work, or within [`while_nobody_forks`].
static BUSY: AtomicU32 = AtomicU32::new(0);
/// Threads that are about to fork.
static FORKING: AtomicU32 = AtomicU32::new(0);

extern "C" fn before_fork() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    let mut waited = Duration::ZERO;
    while BUSY.load(Ordering::SeqCst) > 0 && waited < FORK_WAITS {
        std::thread::sleep(FORK_LOOKS);
        waited += FORK_LOOKS;
    }
}

extern "C" fn after_fork() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

extern "C" fn after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    FORKING.store(0, Ordering::SeqCst);
    BUSY.store(0, Ordering::SeqCst);
}

/// Does something at a moment in which no thread forks, and has forks wait for it: a forked child
/// finds no lock held by a thread that it does not have, neither ours nor those of allocators and
/// checkers of memory.
pub(crate) fn while_nobody_forks<T>(f: impl FnOnce() -> T) -> T {
    BUSY.fetch_add(1, Ordering::SeqCst);
    while FORKING.load(Ordering::SeqCst) > 0 {
        BUSY.fetch_sub(1, Ordering::SeqCst);
        std::thread::sleep(FORK_LOOKS);
        BUSY.fetch_add(1, Ordering::SeqCst);
    }
    let result = f();
    BUSY.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Returns whether a thread that is about to fork waits for what goes on within
/// [`while_nobody_forks`].
#[inline]
pub(crate) fn is_fork_held_up() -> bool {
    FORKING.load(Ordering::Relaxed) > 0
}

fn watch_forks() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the functions live as long as the process, and only touch atomics and sleep.
        unsafe {
            libc::pthread_atfork(
                Some(before_fork),
                Some(after_fork),
                Some(after_fork_in_child),
            )
        };
    });
}

/// Changes in a forked child: its threads are gone. One load after the first call.
pub(crate) fn forks() -> u32 {
    watch_forks();
    FORKS.load(Ordering::Relaxed)
}

/// Returns [`forks`] for callers that have called it before.
#[inline]
pub(crate) fn forks_now() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Returns whether a program may watch this signal: there is such a one, the C library does not
/// keep it for itself, and the kernel tells of it.
pub(crate) fn is_told_of(signal: i32) -> bool {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is initialised first; a number that is no signal of the program's is refused
    // by sigaddset.
    let known = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal) == 0
    };
    known && ![libc::SIGKILL, libc::SIGSTOP].contains(&signal)
}

/// Returns whether the kernel keeps each one of a signal that comes several times, and not one of
/// them.
pub(crate) fn is_queued(signal: i32) -> bool {
    signal >= libc::SIGRTMIN()
}

/// A descriptor from which these signals are read; the calling thread blocks them from now on.
pub(crate) fn signal_descriptor(signals: &[i32]) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is initialised first; a signal number out of range is refused by sigaddset.
    // The descriptor is new and nobody else's.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            if libc::sigaddset(set.as_mut_ptr(), *signal) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        Ok(std::os::fd::OwnedFd::from_raw_fd(fd))
    }
}

/// The numbers of the signals that wait in such a descriptor.
pub(crate) fn read_signals(fd: std::os::fd::BorrowedFd<'_>, mut each: impl FnMut(i32)) {
    const SIZE: usize = size_of::<libc::signalfd_siginfo>();
    let mut record = [0u8; SIZE];
    while rustix::io::read(fd, &mut record).is_ok_and(|read| read == SIZE) {
        // The number is the first word of a record.
        each(i32::from_ne_bytes([
            record[0], record[1], record[2], record[3],
        ]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_is_told_from_its_parent() {
        let here = forks();
        // SAFETY: the child only loads an atomic and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: leaves at once, without handlers.
            unsafe { libc::_exit(i32::from(forks_now() == here)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
        assert_eq!(forks_now(), here);
    }

    #[test]
    fn threads_started_without_signals_take_none_and_the_starter_does_again() {
        let blocked = || {
            let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = text
                .lines()
                .find(|line| line.starts_with("SigBlk:"))
                .unwrap();
            u64::from_str_radix(line["SigBlk:".len()..].trim(), 16).unwrap()
        };
        let before = blocked();
        let inside = without_signals(|| std::thread::spawn(blocked))
            .join()
            .unwrap();
        // All that can be blocked: not SIGKILL and SIGSTOP, and not the two that the C library
        // keeps.
        assert_eq!(
            !inside & ((1 << 31) - 1),
            1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1)
        );
        assert_eq!(blocked(), before);
    }
}
