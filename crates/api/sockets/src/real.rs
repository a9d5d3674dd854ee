//! The C library's own functions, which this library's names hide.
//!
//! Each has the name `__wrap_NAME`: the linker sends this library's own calls of `NAME` there too.

use libc::{
    c_char, c_int, c_uint, c_ulong, c_void, iovec, mmsghdr, msghdr, off_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec,
};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Finds a function in the libraries after this one.
#[cold]
fn resolve(place: &AtomicUsize, name: &'static str) -> usize {
    // SAFETY: the name ends with 0; nothing is called yet.
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast::<c_char>()) } as usize;
    if address == 0 {
        let text = "garonne: the C library lacks a function that this program calls\n";
        // SAFETY: the bytes live for ever; the process cannot go on.
        unsafe {
            libc::syscall(libc::SYS_write, 2, text.as_ptr(), text.len());
            libc::_exit(127);
        }
    }
    place.store(address, Ordering::Relaxed);
    address
}

macro_rules! real {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        #[unsafe(export_name = concat!("__wrap_", stringify!($name)))]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            static ADDRESS: AtomicUsize = AtomicUsize::new(0);
            let address = match ADDRESS.load(Ordering::Relaxed) {
                0 => resolve(&ADDRESS, concat!(stringify!($name), "\0")),
                known => known,
            };
            type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
            // SAFETY: the C library's function of this name has this signature.
            let function = unsafe { std::mem::transmute::<usize, Function>(address) };
            // SAFETY: as the caller says.
            unsafe { function($($argument),*) }
        }
    )*};
}

real! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn listen(socket: c_int, backlog: c_int) -> c_int;
    fn connect(socket: c_int, to: *const sockaddr, length: socklen_t) -> c_int;
    fn accept(socket: c_int, from: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn accept4(socket: c_int, from: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    fn shutdown(socket: c_int, how: c_int) -> c_int;
    fn getsockname(socket: c_int, name: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn getpeername(socket: c_int, name: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn getsockopt(socket: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int;
    fn setsockopt(socket: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int;
    fn read(file: c_int, bytes: *mut c_void, count: size_t) -> ssize_t;
    fn write(file: c_int, bytes: *const c_void, count: size_t) -> ssize_t;
    fn readv(file: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn writev(file: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn preadv2(file: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn pwritev2(file: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn recv(socket: c_int, bytes: *mut c_void, count: size_t, flags: c_int) -> ssize_t;
    fn send(socket: c_int, bytes: *const c_void, count: size_t, flags: c_int) -> ssize_t;
    fn recvfrom(socket: c_int, bytes: *mut c_void, count: size_t, flags: c_int, from: *mut sockaddr, length: *mut socklen_t) -> ssize_t;
    fn sendto(socket: c_int, bytes: *const c_void, count: size_t, flags: c_int, to: *const sockaddr, length: socklen_t) -> ssize_t;
    fn recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    fn recvmmsg(socket: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, time: *mut timespec) -> c_int;
    fn sendmmsg(socket: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    fn splice(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, count: size_t, flags: c_uint) -> ssize_t;
    fn close(file: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn dup(file: c_int) -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
    fn fcntl(file: c_int, command: c_int, argument: c_ulong) -> c_int;
    fn ioctl(file: c_int, request: c_ulong, argument: c_ulong) -> c_int;
    fn epoll_ctl(epoll: c_int, operation: c_int, file: c_int, event: *mut c_void) -> c_int;
    fn posix_spawn_file_actions_adddup2(actions: *mut c_void, from: c_int, to: c_int) -> c_int;
    fn fdopen(file: c_int, mode: *const c_char) -> *mut c_void;
    fn execv(path: *const c_char, words: *const *const c_char) -> c_int;
    fn execve(path: *const c_char, words: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn execvp(path: *const c_char, words: *const *const c_char) -> c_int;
    fn execvpe(path: *const c_char, words: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn fexecve(file: c_int, words: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn posix_spawn(process: *mut c_int, path: *const c_char, actions: *const c_void, attr: *const c_void, words: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn posix_spawnp(process: *mut c_int, path: *const c_char, actions: *const c_void, attr: *const c_void, words: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn pread(file: c_int, bytes: *mut c_void, count: size_t, offset: off_t) -> ssize_t;
}
