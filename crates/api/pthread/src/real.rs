//! The C library's own functions, which this library's names hide.
//!
//! Each has the name `__wrap_NAME`: the linker sends this library's own calls of `NAME` there too,
//! so that the runtime below never meets the entry points.

use libc::{c_char, c_int, c_long, c_uint, c_void, nfds_t, pthread_t, size_t, ssize_t};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Start function of a thread.
pub(crate) type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// Finds a function in the libraries after this one.
#[cold]
fn resolve(place: &AtomicUsize, name: &'static str) -> usize {
    // SAFETY: the name ends with 0; nothing is called yet.
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast::<c_char>()) } as usize;
    if address == 0 {
        eprintln!(
            "garonne: the C library has no {}",
            name.trim_end_matches('\0')
        );
        std::process::abort();
    }
    place.store(address, Ordering::Relaxed);
    address
}

macro_rules! real {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        #[unsafe(export_name = concat!("__wrap_", stringify!($name)))]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) $(-> $result)? {
            static ADDRESS: AtomicUsize = AtomicUsize::new(0);
            let address = match ADDRESS.load(Ordering::Relaxed) {
                0 => resolve(&ADDRESS, concat!(stringify!($name), "\0")),
                known => known,
            };
            type Function = unsafe extern "C-unwind" fn($($type),*) $(-> $result)?;
            // SAFETY: the C library's function of this name has this signature.
            let function = unsafe { std::mem::transmute::<usize, Function>(address) };
            // SAFETY: as the caller says.
            unsafe { function($($argument),*) }
        }
    )*};
}

real! {
    fn pthread_create(thread: *mut pthread_t, attr: *const c_void, start: Start, argument: *mut c_void) -> c_int;
    fn pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int;
    fn pthread_timedjoin_np(thread: pthread_t, result: *mut *mut c_void, time: *const libc::timespec) -> c_int;
    fn pthread_clockjoin_np(thread: pthread_t, result: *mut *mut c_void, clock: c_int, time: *const libc::timespec) -> c_int;
    fn pthread_cancel(thread: pthread_t) -> c_int;
    fn pthread_testcancel();
    fn pthread_kill(thread: pthread_t, signal: c_int) -> c_int;
    fn pthread_sigqueue(thread: pthread_t, signal: c_int, value: *mut c_void) -> c_int;
    fn raise(signal: c_int) -> c_int;
    fn prctl(option: c_int, a: c_long, b: c_long, c: c_long, d: c_long) -> c_int;
    fn pthread_setname_np(thread: pthread_t, name: *const c_char) -> c_int;
    fn pthread_getname_np(thread: pthread_t, name: *mut c_char, size: size_t) -> c_int;
    fn pthread_mutex_lock(mutex: *mut c_void) -> c_int;
    fn pthread_mutex_trylock(mutex: *mut c_void) -> c_int;
    fn pthread_mutex_timedlock(mutex: *mut c_void, time: *const libc::timespec) -> c_int;
    fn pthread_mutex_clocklock(mutex: *mut c_void, clock: c_int, time: *const libc::timespec) -> c_int;
    fn pthread_mutex_unlock(mutex: *mut c_void) -> c_int;
    fn pthread_cond_wait(cond: *mut c_void, mutex: *mut c_void) -> c_int;
    fn pthread_cond_timedwait(cond: *mut c_void, mutex: *mut c_void, time: *const libc::timespec) -> c_int;
    fn pthread_cond_clockwait(cond: *mut c_void, mutex: *mut c_void, clock: c_int, time: *const libc::timespec) -> c_int;
    fn pthread_cond_signal(cond: *mut c_void) -> c_int;
    fn pthread_cond_broadcast(cond: *mut c_void) -> c_int;
    fn pthread_rwlock_rdlock(lock: *mut c_void) -> c_int;
    fn pthread_rwlock_tryrdlock(lock: *mut c_void) -> c_int;
    fn pthread_rwlock_timedrdlock(lock: *mut c_void, time: *const libc::timespec) -> c_int;
    fn pthread_rwlock_clockrdlock(lock: *mut c_void, clock: c_int, time: *const libc::timespec) -> c_int;
    fn pthread_rwlock_wrlock(lock: *mut c_void) -> c_int;
    fn pthread_rwlock_trywrlock(lock: *mut c_void) -> c_int;
    fn pthread_rwlock_timedwrlock(lock: *mut c_void, time: *const libc::timespec) -> c_int;
    fn pthread_rwlock_clockwrlock(lock: *mut c_void, clock: c_int, time: *const libc::timespec) -> c_int;
    fn pthread_rwlock_unlock(lock: *mut c_void) -> c_int;
    fn pthread_barrier_wait(barrier: *mut c_void) -> c_int;
    fn pthread_barrier_destroy(barrier: *mut c_void) -> c_int;
    fn pthread_spin_lock(lock: *mut c_int) -> c_int;
    fn pthread_spin_trylock(lock: *mut c_int) -> c_int;
    fn sem_wait(semaphore: *mut c_void) -> c_int;
    fn sem_trywait(semaphore: *mut c_void) -> c_int;
    fn sem_timedwait(semaphore: *mut c_void, time: *const libc::timespec) -> c_int;
    fn sem_clockwait(semaphore: *mut c_void, clock: c_int, time: *const libc::timespec) -> c_int;
    fn sem_post(semaphore: *mut c_void) -> c_int;
    fn pthread_sigmask(how: c_int, set: *const c_void, old: *mut c_void) -> c_int;
    fn sigprocmask(how: c_int, set: *const c_void, old: *mut c_void) -> c_int;
    fn sigaltstack(stack: *const c_void, old: *mut c_void) -> c_int;
    fn sigwait(set: *const c_void, signal: *mut c_int) -> c_int;
    fn sigwaitinfo(set: *const c_void, info: *mut c_void) -> c_int;
    fn sigtimedwait(set: *const c_void, info: *mut c_void, time: *const libc::timespec) -> c_int;
    fn sigsuspend(set: *const c_void) -> c_int;
    fn pause() -> c_int;
    fn sched_yield() -> c_int;
    fn nanosleep(time: *const libc::timespec, left: *mut libc::timespec) -> c_int;
    fn clock_nanosleep(clock: c_int, flags: c_int, time: *const libc::timespec, left: *mut libc::timespec) -> c_int;
    fn gettid() -> c_int;
    fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long;
    fn fork() -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn wait4(process: c_int, status: *mut c_int, options: c_int, usage: *mut c_void) -> c_int;
    fn read(file: c_int, bytes: *mut c_void, count: size_t) -> ssize_t;
    fn write(file: c_int, bytes: *const c_void, count: size_t) -> ssize_t;
    fn readv(file: c_int, parts: *const c_void, count: c_int) -> ssize_t;
    fn writev(file: c_int, parts: *const c_void, count: c_int) -> ssize_t;
    fn recv(socket: c_int, bytes: *mut c_void, count: size_t, flags: c_int) -> ssize_t;
    fn send(socket: c_int, bytes: *const c_void, count: size_t, flags: c_int) -> ssize_t;
    fn recvfrom(socket: c_int, bytes: *mut c_void, count: size_t, flags: c_int, from: *mut c_void, length: *mut c_void) -> ssize_t;
    fn sendto(socket: c_int, bytes: *const c_void, count: size_t, flags: c_int, to: *const c_void, length: c_uint) -> ssize_t;
    fn recvmsg(socket: c_int, message: *mut c_void, flags: c_int) -> ssize_t;
    fn sendmsg(socket: c_int, message: *const c_void, flags: c_int) -> ssize_t;
    fn accept(socket: c_int, from: *mut c_void, length: *mut c_void) -> c_int;
    fn accept4(socket: c_int, from: *mut c_void, length: *mut c_void, flags: c_int) -> c_int;
    fn connect(socket: c_int, to: *const c_void, length: c_uint) -> c_int;
    fn poll(files: *mut libc::pollfd, count: nfds_t, timeout: c_int) -> c_int;
    fn ppoll(files: *mut libc::pollfd, count: nfds_t, time: *const libc::timespec, mask: *const c_void) -> c_int;
    fn select(count: c_int, read: *mut c_void, write: *mut c_void, except: *mut c_void, time: *mut libc::timeval) -> c_int;
    fn pselect(count: c_int, read: *mut c_void, write: *mut c_void, except: *mut c_void, time: *const libc::timespec, mask: *const c_void) -> c_int;
    fn epoll_wait(epoll: c_int, events: *mut c_void, count: c_int, timeout: c_int) -> c_int;
    fn epoll_pwait(epoll: c_int, events: *mut c_void, count: c_int, timeout: c_int, mask: *const c_void) -> c_int;
    fn fsync(file: c_int) -> c_int;
    fn fdatasync(file: c_int) -> c_int;
    fn flock(file: c_int, operation: c_int) -> c_int;
    fn pthread_setaffinity_np(thread: pthread_t, size: size_t, cpus: *const c_void) -> c_int;
    fn sched_setaffinity(process: c_int, size: size_t, cpus: *const c_void) -> c_int;
    fn pthread_setschedparam(thread: pthread_t, policy: c_int, parameters: *const c_void) -> c_int;
    fn sched_setscheduler(process: c_int, policy: c_int, parameters: *const c_void) -> c_int;
    fn sched_getaffinity(process: c_int, size: size_t, cpus: *mut c_void) -> c_int;
    fn sched_getscheduler(process: c_int) -> c_int;
    fn sched_getparam(process: c_int, parameters: *mut c_void) -> c_int;
    fn getrusage(whose: c_int, usage: *mut c_void) -> c_int;
    fn getpriority(which: c_int, whose: c_uint) -> c_int;
    fn setpriority(which: c_int, whose: c_uint, priority: c_int) -> c_int;
    fn unshare(flags: c_int) -> c_int;
    fn setns(file: c_int, kind: c_int) -> c_int;
    fn setfsuid(user: c_uint) -> c_int;
    fn setfsgid(group: c_uint) -> c_int;
    fn posix_spawn(process: *mut c_int, path: *const c_char, actions: *const c_void, attr: *const c_void, words: *const c_void, environment: *const c_void) -> c_int;
    fn posix_spawnp(process: *mut c_int, path: *const c_char, actions: *const c_void, attr: *const c_void, words: *const c_void, environment: *const c_void) -> c_int;
    fn system(command: *const c_char) -> c_int;
    fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void;
    fn pclose(stream: *mut c_void) -> c_int;
    fn execve(path: *const c_char, words: *const c_void, environment: *const c_void) -> c_int;
    fn execv(path: *const c_char, words: *const c_void) -> c_int;
    fn execvp(path: *const c_char, words: *const c_void) -> c_int;
    fn execvpe(path: *const c_char, words: *const c_void, environment: *const c_void) -> c_int;
    fn pthread_exit(result: *mut c_void);
}
