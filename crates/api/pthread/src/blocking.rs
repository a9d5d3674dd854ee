//! Calls that may block in the kernel: the kernel's thread makes those that would.
//!
//! A call on a file that is ready is made by the worker. Otherwise the thread goes on as the
//! kernel's until the call returns, and its worker runs others.

use crate::real;
use crate::record::{self, Bound};
use libc::{c_int, c_uint, c_void, nfds_t, size_t, ssize_t};

/// Tells whether a call on the file returns at once.
fn is_ready(file: c_int, events: libc::c_short) -> bool {
    let mut wanted = libc::pollfd {
        fd: file,
        events,
        revents: 0,
    };
    // SAFETY: has no precondition but a place of its own.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    // SAFETY: one description.
    let ready = unsafe { real::poll(&raw mut wanted, 1, 0) };
    *errno = before;
    ready != 0
}

/// While the value lives the thread may block: it is the kernel's, unless the file is ready.
fn unless_ready(file: c_int, events: libc::c_short) -> Option<Bound> {
    record::cancellation_point();
    let is_fiber = record::unbound().is_some();
    (is_fiber && !is_ready(file, events)).then(Bound::new)
}

fn always() -> Bound {
    record::cancellation_point();
    Bound::new()
}

macro_rules! blocking {
    ($(fn $name:ident = $entry:ident($($argument:ident: $type:ty),*) -> $result:ty, $guard:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $entry($($argument: $type),*) -> $result {
            let _guard = $guard;
            // SAFETY: the program's own arguments.
            unsafe { real::$name($($argument),*) }
        }
    )*};
}

const IN: libc::c_short = libc::POLLIN;
const OUT: libc::c_short = libc::POLLOUT;

blocking! {
    fn read = garonne_read(file: c_int, bytes: *mut c_void, count: size_t) -> ssize_t, unless_ready(file, IN);
    fn readv = garonne_readv(file: c_int, parts: *const c_void, count: c_int) -> ssize_t, unless_ready(file, IN);
    fn write = garonne_write(file: c_int, bytes: *const c_void, count: size_t) -> ssize_t, unless_ready(file, OUT);
    fn writev = garonne_writev(file: c_int, parts: *const c_void, count: c_int) -> ssize_t, unless_ready(file, OUT);
    fn recv = garonne_recv(file: c_int, bytes: *mut c_void, count: size_t, flags: c_int) -> ssize_t, unless_ready(file, IN);
    fn recvfrom = garonne_recvfrom(file: c_int, bytes: *mut c_void, count: size_t, flags: c_int, from: *mut c_void, length: *mut c_void) -> ssize_t, unless_ready(file, IN);
    fn recvmsg = garonne_recvmsg(file: c_int, message: *mut c_void, flags: c_int) -> ssize_t, unless_ready(file, IN);
    fn send = garonne_send(file: c_int, bytes: *const c_void, count: size_t, flags: c_int) -> ssize_t, unless_ready(file, OUT);
    fn sendto = garonne_sendto(file: c_int, bytes: *const c_void, count: size_t, flags: c_int, to: *const c_void, length: c_uint) -> ssize_t, unless_ready(file, OUT);
    fn sendmsg = garonne_sendmsg(file: c_int, message: *const c_void, flags: c_int) -> ssize_t, unless_ready(file, OUT);
    fn accept = garonne_accept(file: c_int, from: *mut c_void, length: *mut c_void) -> c_int, unless_ready(file, IN);
    fn accept4 = garonne_accept4(file: c_int, from: *mut c_void, length: *mut c_void, flags: c_int) -> c_int, unless_ready(file, IN);
    fn connect = garonne_connect(file: c_int, to: *const c_void, length: c_uint) -> c_int, always();
    fn poll = garonne_poll(files: *mut libc::pollfd, count: nfds_t, timeout: c_int) -> c_int, (timeout != 0).then(always);
    fn ppoll = garonne_ppoll(files: *mut libc::pollfd, count: nfds_t, time: *const libc::timespec, mask: *const c_void) -> c_int, always();
    fn select = garonne_select(count: c_int, read: *mut c_void, write: *mut c_void, except: *mut c_void, time: *mut libc::timeval) -> c_int, always();
    fn pselect = garonne_pselect(count: c_int, read: *mut c_void, write: *mut c_void, except: *mut c_void, time: *const libc::timespec, mask: *const c_void) -> c_int, always();
    fn epoll_wait = garonne_epoll_wait(epoll: c_int, events: *mut c_void, count: c_int, timeout: c_int) -> c_int, (timeout != 0).then(always);
    fn epoll_pwait = garonne_epoll_pwait(epoll: c_int, events: *mut c_void, count: c_int, timeout: c_int, mask: *const c_void) -> c_int, always();
    fn flock = garonne_flock(file: c_int, operation: c_int) -> c_int, always();
    fn fsync = garonne_fsync(file: c_int) -> c_int, always();
    fn fdatasync = garonne_fdatasync(file: c_int) -> c_int, always();
    fn waitpid = garonne_waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int, always();
    fn wait4 = garonne_wait4(process: c_int, status: *mut c_int, options: c_int, usage: *mut c_void) -> c_int, always();
}
