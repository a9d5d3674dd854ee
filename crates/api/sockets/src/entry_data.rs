//! Entry points that move bytes.

use crate::transfer::{Parts, fail};
use crate::{real, table};
use libc::{
    c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t,
    timespec,
};

/// Parts that a call may have.
const PARTS_MAX: usize = libc::UIO_MAXIOV as usize;

fn one(bytes: *mut c_void, count: size_t) -> [iovec; 1] {
    [iovec {
        iov_base: bytes,
        iov_len: count.min(isize::MAX as usize),
    }]
}

/// The program's list of parts. `None`: it is too long.
unsafe fn list<'a>(parts: *const iovec, count: usize) -> Option<Parts<'a>> {
    if count > PARTS_MAX {
        return None;
    }
    if count == 0 {
        return Parts::new(&[]);
    }
    // SAFETY: the program says that so many are there.
    Parts::new(unsafe { std::slice::from_raw_parts(parts, count) })
}

macro_rules! receive {
    ($file:expr, $bytes:expr, $count:expr, $flags:expr, $real:expr) => {
        match table::connection($file) {
            Some(connection) => match Parts::new(&one($bytes, $count)) {
                Some(parts) => connection.receive($file, parts, $flags),
                None => fail(libc::EINVAL),
            },
            // SAFETY: the program's own arguments.
            None => unsafe { $real },
        }
    };
}

macro_rules! send {
    ($file:expr, $bytes:expr, $count:expr, $flags:expr, $real:expr) => {
        match table::connection($file) {
            Some(connection) => match Parts::new(&one($bytes.cast_mut(), $count)) {
                Some(parts) => connection.send($file, parts, $flags),
                None => fail(libc::EINVAL),
            },
            // SAFETY: the program's own arguments.
            None => unsafe { $real },
        }
    };
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_read(
    file: c_int,
    bytes: *mut c_void,
    count: size_t,
) -> ssize_t {
    receive!(file, bytes, count, 0, real::read(file, bytes, count))
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne___read_chk(
    file: c_int,
    bytes: *mut c_void,
    count: size_t,
    room: size_t,
) -> ssize_t {
    overflow_check(count, room);
    receive!(file, bytes, count, 0, real::read(file, bytes, count))
}

/// Ends the process as the fortified functions do when a count exceeds the buffer.
fn overflow_check(count: size_t, room: size_t) {
    if count > room {
        let text = "*** buffer overflow detected ***: terminated\n";
        // SAFETY: the bytes live for ever; the process ends as the C library would end it.
        unsafe {
            libc::syscall(libc::SYS_write, 2, text.as_ptr(), text.len());
            libc::abort();
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_recv(
    socket: c_int,
    bytes: *mut c_void,
    count: size_t,
    flags: c_int,
) -> ssize_t {
    receive!(
        socket,
        bytes,
        count,
        flags,
        real::recv(socket, bytes, count, flags)
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne___recv_chk(
    socket: c_int,
    bytes: *mut c_void,
    count: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    overflow_check(count, room);
    receive!(
        socket,
        bytes,
        count,
        flags,
        real::recv(socket, bytes, count, flags)
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_recvfrom(
    socket: c_int,
    bytes: *mut c_void,
    count: size_t,
    flags: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    if table::is_virtual(socket) && !from.is_null() && !length.is_null() {
        // SAFETY: the program's place; a stream has no address to tell.
        unsafe { *length = 0 };
    }
    receive!(
        socket,
        bytes,
        count,
        flags,
        real::recvfrom(socket, bytes, count, flags, from, length)
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne___recvfrom_chk(
    socket: c_int,
    bytes: *mut c_void,
    count: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    overflow_check(count, room);
    // SAFETY: the program's own arguments.
    unsafe { garonne_recvfrom(socket, bytes, count, flags, from, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_write(
    file: c_int,
    bytes: *const c_void,
    count: size_t,
) -> ssize_t {
    send!(file, bytes, count, 0, real::write(file, bytes, count))
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_send(
    socket: c_int,
    bytes: *const c_void,
    count: size_t,
    flags: c_int,
) -> ssize_t {
    send!(
        socket,
        bytes,
        count,
        flags,
        real::send(socket, bytes, count, flags)
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_sendto(
    socket: c_int,
    bytes: *const c_void,
    count: size_t,
    flags: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    send!(
        socket,
        bytes,
        count,
        flags,
        real::sendto(socket, bytes, count, flags, to, length)
    )
}

macro_rules! vector {
    ($name:ident, $method:ident, $real:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            file: c_int,
            parts: *const iovec,
            count: c_int,
        ) -> ssize_t {
            let Some(connection) = table::connection(file) else {
                // SAFETY: the program's own arguments.
                return unsafe { $real(file, parts, count) };
            };
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            // SAFETY: as above.
            match unsafe { list(parts, count) } {
                Some(parts) => connection.$method(file, parts, 0),
                None => fail(libc::EINVAL),
            }
        }
    };
}

vector!(garonne_readv, receive, real::readv);
vector!(garonne_writev, send, real::writev);

macro_rules! vector2 {
    ($name:ident, $method:ident, $real:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            file: c_int,
            parts: *const iovec,
            count: c_int,
            offset: off_t,
            flags: c_int,
        ) -> ssize_t {
            let Some(connection) = table::connection(file) else {
                // SAFETY: the program's own arguments.
                return unsafe { $real(file, parts, count, offset, flags) };
            };
            if offset != -1 {
                return fail(libc::ESPIPE);
            }
            let waits = match flags & libc::RWF_NOWAIT {
                0 => 0,
                _ => libc::MSG_DONTWAIT,
            };
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            // SAFETY: as above.
            match unsafe { list(parts, count) } {
                Some(parts) => connection.$method(file, parts, waits),
                None => fail(libc::EINVAL),
            }
        }
    };
}

vector2!(garonne_preadv2, receive, real::preadv2);
vector2!(garonne_pwritev2, send, real::pwritev2);

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_recvmsg(
    socket: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    let Some(connection) = table::connection(socket) else {
        // SAFETY: the program's own arguments.
        return unsafe { real::recvmsg(socket, message, flags) };
    };
    // SAFETY: as above.
    let message = unsafe { &mut *message };
    // SAFETY: as above.
    let Some(parts) = (unsafe { list(message.msg_iov, message.msg_iovlen) }) else {
        return fail(libc::EMSGSIZE);
    };
    let received = connection.receive(socket, parts, flags);
    if received >= 0 {
        message.msg_namelen = 0;
        message.msg_controllen = 0;
        message.msg_flags = 0;
    }
    received
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_sendmsg(
    socket: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    let Some(connection) = table::connection(socket) else {
        // SAFETY: the program's own arguments.
        if unsafe { crate::entry_descriptors::passes_virtual(message) } {
            return fail(libc::EOPNOTSUPP);
        }
        // SAFETY: as above.
        return unsafe { real::sendmsg(socket, message, flags) };
    };
    // SAFETY: as above.
    let message = unsafe { &*message };
    // SAFETY: as above.
    match unsafe { list(message.msg_iov, message.msg_iovlen) } {
        Some(parts) => connection.send(socket, parts, flags),
        None => fail(libc::EMSGSIZE),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_recvmmsg(
    socket: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    time: *mut timespec,
) -> c_int {
    if !table::is_virtual(socket) || count == 0 {
        // SAFETY: the program's own arguments.
        return unsafe { real::recvmmsg(socket, messages, count, flags, time) };
    }
    // One message is a legal answer whatever was asked.
    // SAFETY: as above.
    unsafe {
        let received = garonne_recvmsg(
            socket,
            &raw mut (*messages).msg_hdr,
            flags & !libc::MSG_WAITFORONE,
        );
        if received < 0 {
            return -1;
        }
        (*messages).msg_len = received as c_uint;
    }
    1
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_sendmmsg(
    socket: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if !table::is_virtual(socket) || count == 0 {
        // SAFETY: the program's own arguments.
        return unsafe { real::sendmmsg(socket, messages, count, flags) };
    }
    // SAFETY: as above.
    unsafe {
        let sent = garonne_sendmsg(socket, &raw const (*messages).msg_hdr, flags);
        if sent < 0 {
            return -1;
        }
        (*messages).msg_len = sent as c_uint;
    }
    1
}

/// Bytes of a file that are read at a time.
const FILE_STEP: usize = 64 << 10;

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    let Some(connection) = table::connection(to) else {
        // SAFETY: the program's own arguments.
        return unsafe { real::sendfile(to, from, offset, count) };
    };
    // SAFETY: as above.
    let begin = match unsafe { offset.as_ref() } {
        Some(offset) => *offset,
        // SAFETY: a plain call on a descriptor.
        None => match unsafe { libc::lseek(from, 0, libc::SEEK_CUR) } {
            -1 => return fail(libc::EINVAL),
            at => at,
        },
    };
    let mut bytes = vec![0_u8; count.min(FILE_STEP)];
    let mut done = 0;
    while done < count {
        let piece = bytes.len().min(count - done);
        let at = begin + done as off_t;
        // SAFETY: a place to write to.
        let read = unsafe { real::pread(from, bytes.as_mut_ptr().cast(), piece, at) };
        if read <= 0 {
            if read < 0 && done == 0 {
                return -1;
            }
            break;
        }
        let part = one(bytes.as_mut_ptr().cast(), read as usize);
        let sent = match Parts::new(&part) {
            Some(parts) => connection.send(to, parts, 0),
            None => fail(libc::EINVAL),
        };
        if sent < 0 {
            if done == 0 {
                return -1;
            }
            break;
        }
        done += sent as usize;
        if sent < read {
            break;
        }
    }
    let end = begin + done as off_t;
    // SAFETY: the program's own place, or a plain call on a descriptor.
    unsafe {
        match offset.is_null() {
            false => *offset = end,
            true => _ = libc::lseek(from, end, libc::SEEK_SET),
        }
    }
    done as ssize_t
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe { garonne_sendfile(to, from, offset, count) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_splice(
    from: c_int,
    from_offset: *mut i64,
    to: c_int,
    to_offset: *mut i64,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    if table::is_virtual(from) || table::is_virtual(to) {
        return fail(libc::EINVAL);
    }
    // SAFETY: the program's own arguments.
    unsafe { real::splice(from, from_offset, to, to_offset, count, flags) }
}
