//! What only the kernel's thread can do: signals, numbers and classes of threads, new processes.

use crate::real;
use crate::record::{self, Bound};
use libc::{c_char, c_int, c_long, c_uint, c_void, pthread_t, size_t, timespec};

macro_rules! bound {
    ($(fn $name:ident = $entry:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $entry($($argument: $type),*) -> $result {
            record::cancellation_point();
            let _bound = Bound::new();
            // SAFETY: the program's own arguments.
            unsafe { real::$name($($argument),*) }
        }
    )*};
}

// Masks, pending signals, the name and the stack of handlers belong to the kernel's thread. While
// workers run the thread it takes no signals.
bound! {
    fn pthread_sigmask = garonne_pthread_sigmask(how: c_int, set: *const c_void, old: *mut c_void) -> c_int;
    fn sigprocmask = garonne_sigprocmask(how: c_int, set: *const c_void, old: *mut c_void) -> c_int;
    fn sigaltstack = garonne_sigaltstack(stack: *const c_void, old: *mut c_void) -> c_int;
    fn sigwait = garonne_sigwait(set: *const c_void, signal: *mut c_int) -> c_int;
    fn sigwaitinfo = garonne_sigwaitinfo(set: *const c_void, info: *mut c_void) -> c_int;
    fn sigtimedwait = garonne_sigtimedwait(set: *const c_void, info: *mut c_void, time: *const timespec) -> c_int;
    fn sigsuspend = garonne_sigsuspend(set: *const c_void) -> c_int;
    fn pause = garonne_pause() -> c_int;
    fn raise = garonne_raise(signal: c_int) -> c_int;
    fn pthread_setname_np = garonne_pthread_setname_np(thread: pthread_t, name: *const c_char) -> c_int;
    fn pthread_getname_np = garonne_pthread_getname_np(thread: pthread_t, name: *mut c_char, size: size_t) -> c_int;
    fn prctl = garonne_prctl(option: c_int, a: c_long, b: c_long, c: c_long, d: c_long) -> c_int;
    fn sched_getaffinity = garonne_sched_getaffinity(process: c_int, size: size_t, cpus: *mut c_void) -> c_int;
    fn sched_getscheduler = garonne_sched_getscheduler(process: c_int) -> c_int;
    fn sched_getparam = garonne_sched_getparam(process: c_int, parameters: *mut c_void) -> c_int;
    fn getrusage = garonne_getrusage(whose: c_int, usage: *mut c_void) -> c_int;
    fn getpriority = garonne_getpriority(which: c_int, whose: c_uint) -> c_int;
    fn setpriority = garonne_setpriority(which: c_int, whose: c_uint, priority: c_int) -> c_int;
}

// A new process or program has the signal mask and the CPUs of whoever makes it.
bound! {
    fn posix_spawn = garonne_posix_spawn(process: *mut c_int, path: *const c_char, actions: *const c_void, attr: *const c_void, words: *const c_void, environment: *const c_void) -> c_int;
    fn posix_spawnp = garonne_posix_spawnp(process: *mut c_int, path: *const c_char, actions: *const c_void, attr: *const c_void, words: *const c_void, environment: *const c_void) -> c_int;
    fn system = garonne_system(command: *const c_char) -> c_int;
    fn popen = garonne_popen(command: *const c_char, mode: *const c_char) -> *mut c_void;
    fn pclose = garonne_pclose(stream: *mut c_void) -> c_int;
    fn execve = garonne_execve(path: *const c_char, words: *const c_void, environment: *const c_void) -> c_int;
    fn execv = garonne_execv(path: *const c_char, words: *const c_void) -> c_int;
    fn execvp = garonne_execvp(path: *const c_char, words: *const c_void) -> c_int;
    fn execvpe = garonne_execvpe(path: *const c_char, words: *const c_void, environment: *const c_void) -> c_int;
}

macro_rules! kept {
    ($(fn $name:ident = $entry:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $entry($($argument: $type),*) -> $result {
            if let Some(own) = record::unbound() {
                own.stay_bound();
            }
            // SAFETY: the program's own arguments.
            unsafe { real::$name($($argument),*) }
        }
    )*};
}

// What these change belongs to the kernel's thread from then on.
kept! {
    fn unshare = garonne_unshare(flags: c_int) -> c_int;
    fn setns = garonne_setns(file: c_int, kind: c_int) -> c_int;
    fn setfsuid = garonne_setfsuid(user: c_uint) -> c_int;
    fn setfsgid = garonne_setfsgid(group: c_uint) -> c_int;
}

/// The thread that this means is the kernel's from its next call on.
fn keep_bound(thread: pthread_t) {
    // SAFETY: has no precondition.
    if unsafe { libc::pthread_self() } == thread {
        if let Some(own) = record::own() {
            own.stay_bound();
        }
    } else if let Some(addressee) = record::addressee(thread) {
        addressee.keep_bound();
        addressee.parker.bind();
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_kill(thread: pthread_t, signal: c_int) -> c_int {
    if signal != 0 && !record::is_off() {
        keep_bound(thread);
    }
    // SAFETY: the program's own arguments.
    unsafe { real::pthread_kill(thread, signal) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_sigqueue(
    thread: pthread_t,
    signal: c_int,
    value: *mut c_void,
) -> c_int {
    if signal != 0 && !record::is_off() {
        keep_bound(thread);
    }
    // SAFETY: the program's own arguments.
    unsafe { real::pthread_sigqueue(thread, signal, value) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_setaffinity_np(
    thread: pthread_t,
    size: size_t,
    cpus: *const c_void,
) -> c_int {
    if !record::is_off() {
        keep_bound(thread);
    }
    // SAFETY: the program's own arguments.
    unsafe { real::pthread_setaffinity_np(thread, size, cpus) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_sched_setaffinity(
    process: c_int,
    size: size_t,
    cpus: *const c_void,
) -> c_int {
    if let Some(own) = record::unbound() {
        own.stay_bound();
    }
    // SAFETY: the program's own arguments.
    unsafe { real::sched_setaffinity(process, size, cpus) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_setschedparam(
    thread: pthread_t,
    policy: c_int,
    parameters: *const c_void,
) -> c_int {
    if policy != libc::SCHED_OTHER && !record::is_off() {
        keep_bound(thread);
    }
    // SAFETY: the program's own arguments.
    unsafe { real::pthread_setschedparam(thread, policy, parameters) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_sched_setscheduler(
    process: c_int,
    policy: c_int,
    parameters: *const c_void,
) -> c_int {
    if let Some(own) = record::unbound().filter(|_| policy != libc::SCHED_OTHER) {
        own.stay_bound();
    }
    // SAFETY: the program's own arguments.
    unsafe { real::sched_setscheduler(process, policy, parameters) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_gettid() -> c_int {
    match record::unbound() {
        Some(own) => own.tid,
        // SAFETY: has no precondition.
        None => unsafe { real::gettid() },
    }
}

/// Calls of the kernel that a worker may make in a thread's place.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let own = record::unbound();
    if let Some(own) = own.filter(|_| number == libc::SYS_gettid) {
        return c_long::from(own.tid);
    }
    let is_wake = number == libc::SYS_futex && matches!(b & 0x7f, 1 | 5 | 10);
    let is_plain = matches!(number, libc::SYS_getrandom | libc::SYS_membarrier);
    let _bound = (own.is_some() && !is_wake && !is_plain).then(Bound::new);
    // SAFETY: the program's own arguments; the C library's function takes as many as it needs.
    unsafe { real::syscall(number, a, b, c, d, e, f) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_fork() -> c_int {
    let bound = Bound::new();
    let stopped = crate::allocator::stop();
    // SAFETY: has no precondition.
    let process = unsafe { real::fork() };
    drop(stopped);
    if process == 0 {
        record::forked();
        // The child's thread is the kernel's for ever.
        std::mem::forget(bound);
    }
    process
}

/// A new process with memory of its own: the parent's stack is a fiber's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_vfork() -> c_int {
    // SAFETY: has no precondition.
    unsafe { garonne_fork() }
}
