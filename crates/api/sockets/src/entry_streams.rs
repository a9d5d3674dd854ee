//! Streams of the C library over virtual sockets: `fdopen`. The C library's own would read and
//! write the descriptor behind this library's back.

use crate::entry_data::{garonne_read, garonne_write};
use crate::entry_descriptors::garonne_close;
use crate::{real, table};
use libc::{c_char, c_int, c_void, size_t, ssize_t};

type Read = unsafe extern "C-unwind" fn(*mut c_void, *mut c_char, size_t) -> ssize_t;
type Write = unsafe extern "C-unwind" fn(*mut c_void, *const c_char, size_t) -> ssize_t;
type Seek = unsafe extern "C-unwind" fn(*mut c_void, *mut i64, c_int) -> c_int;
type Close = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

/// What a stream calls, as the C library lays it out.
#[repr(C)]
struct Functions {
    read: Option<Read>,
    write: Option<Write>,
    seek: Option<Seek>,
    close: Option<Close>,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut c_void;
}

/// A stream's cookie is the descriptor's number.
fn number(cookie: *mut c_void) -> c_int {
    cookie as usize as c_int
}

unsafe extern "C-unwind" fn read(
    cookie: *mut c_void,
    bytes: *mut c_char,
    count: size_t,
) -> ssize_t {
    // SAFETY: the C library's own arguments.
    unsafe { garonne_read(number(cookie), bytes.cast(), count) }
}

unsafe extern "C-unwind" fn write(
    cookie: *mut c_void,
    bytes: *const c_char,
    count: size_t,
) -> ssize_t {
    let mut done = 0;
    while done < count {
        // SAFETY: as above.
        let sent = unsafe { garonne_write(number(cookie), bytes.add(done).cast(), count - done) };
        if sent <= 0 {
            break;
        }
        done += sent as usize;
    }
    // A stream takes 0 for an error.
    done as ssize_t
}

unsafe extern "C-unwind" fn close(cookie: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { garonne_close(number(cookie)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_fdopen(file: c_int, mode: *const c_char) -> *mut c_void {
    if !table::is_virtual(file) {
        // SAFETY: the program's own arguments.
        return unsafe { real::fdopen(file, mode) };
    }
    let functions = Functions {
        read: Some(read),
        write: Some(write),
        seek: None,
        close: Some(close),
    };
    // SAFETY: the program's own mode; the functions live as long as the process.
    unsafe { fopencookie(file as usize as *mut c_void, mode, functions) }
}
