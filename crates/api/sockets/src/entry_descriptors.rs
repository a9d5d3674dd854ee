//! Entry points that copy, close, watch and ask descriptors.

use crate::transfer::{errno, fail};
use crate::{mailbox, real, spare, table};
use libc::{c_int, c_uint, c_ulong, c_void, msghdr};
use std::sync::atomic::Ordering;

/// A program that replaces this one could do nothing with a virtual socket.
const CLOSED_AT_EXEC: c_ulong = libc::FD_CLOEXEC as c_ulong;

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_close(file: c_int) -> c_int {
    if table::is_own(file) {
        return fail(libc::EBADF) as c_int;
    }
    forget(file);
    // SAFETY: the program's own arguments.
    unsafe { real::close(file) }
}

/// A descriptor is about to be closed or replaced.
fn forget(file: c_int) {
    if table::is_virtual(file) && !table::is_borrowed() {
        if let Some(connection) = table::connection(file)
            && connection.resets.load(Ordering::Relaxed)
        {
            connection.marks().resets.store(1, Ordering::Relaxed);
        }
        table::remove(file);
    } else if table::is_noted(file) && !table::is_borrowed() {
        let before = errno();
        table::remove(file);
        mailbox::close(file);
        fail(before);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_close_range(
    first: c_uint,
    last: c_uint,
    flags: c_int,
) -> c_int {
    let only_marks = flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0;
    let end = last.min(crate::limits::DESCRIPTORS as c_uint - 1);
    let mut begin = first;
    for file in first..=end {
        let number = file as c_int;
        if table::is_own(number) {
            if begin < file {
                // SAFETY: a plain call with numbers.
                unsafe { real::close_range(begin, file - 1, flags) };
            }
            begin = file + 1;
        } else if !only_marks {
            forget(number);
        }
    }
    if begin > last {
        return 0;
    }
    // SAFETY: a plain call with numbers.
    unsafe { real::close_range(begin, last, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_closefrom(first: c_int) {
    // SAFETY: a plain call with numbers.
    unsafe { garonne_close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// A descriptor of the program got another number as well.
fn copied(from: c_int, to: c_int) {
    if to < 0 {
        return;
    }
    if table::is_virtual(from) {
        // SAFETY: a plain call on a descriptor.
        unsafe { real::fcntl(to, libc::F_SETFD, CLOSED_AT_EXEC) };
    }
    if table::is_borrowed() {
        return;
    }
    match table::connection(from) {
        Some(connection) => {
            connection.insert_as(to);
        }
        None => {
            table::unset_fresh(from);
            let before = errno();
            mailbox::copy(from, to);
            fail(before);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_dup(file: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    let copy = unsafe { real::dup(file) };
    copied(file, copy);
    copy
}

fn dup_to(from: c_int, to: c_int, copy: impl FnOnce() -> c_int) -> c_int {
    if table::is_own(to) {
        return fail(libc::EBADF) as c_int;
    }
    // SAFETY: a plain call on a descriptor.
    if from != to && to >= 0 && unsafe { real::fcntl(from, libc::F_GETFD, 0) } >= 0 {
        forget(to);
    }
    let outcome = copy();
    if from != to {
        copied(from, outcome);
    }
    outcome
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_dup2(from: c_int, to: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    dup_to(from, to, || unsafe { real::dup2(from, to) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    dup_to(from, to, || unsafe { real::dup3(from, to, flags) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_fcntl(
    file: c_int,
    command: c_int,
    argument: c_ulong,
) -> c_int {
    let argument = match command {
        libc::F_SETFD if table::is_virtual(file) => argument | CLOSED_AT_EXEC,
        _ => argument,
    };
    // SAFETY: the program's own arguments.
    let outcome = unsafe { real::fcntl(file, command, argument) };
    if command == libc::F_DUPFD || command == libc::F_DUPFD_CLOEXEC {
        copied(file, outcome);
    }
    if command == libc::F_SETOWN && outcome == 0 {
        table::unset_fresh(file);
    }
    outcome
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_fcntl64(
    file: c_int,
    command: c_int,
    argument: c_ulong,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { garonne_fcntl(file, command, argument) }
}

/// Requests that concern the descriptor, whatever it is.
const OF_DESCRIPTORS: [c_ulong; 3] = [libc::FIONBIO, libc::FIOASYNC, libc::FIOCLEX];

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_ioctl(
    file: c_int,
    request: c_ulong,
    argument: c_ulong,
) -> c_int {
    let Some(connection) = table::connection(file) else {
        // SAFETY: the program's own arguments.
        return unsafe { real::ioctl(file, request, argument) };
    };
    let answer = match request {
        libc::FIONREAD => connection.readable(),
        libc::TIOCOUTQ => connection.unread(),
        libc::FIONCLEX => return 0,
        _ => {
            let asked = match OF_DESCRIPTORS.contains(&request) {
                true => file,
                false => spare::answers_for(connection.tcp()),
            };
            // SAFETY: the program's own arguments.
            return unsafe { real::ioctl(asked, request, argument) };
        }
    };
    if argument == 0 {
        return fail(libc::EFAULT) as c_int;
    }
    // SAFETY: the program's place for a number.
    unsafe { *(argument as *mut c_int) = answer as c_int };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_posix_spawn_file_actions_adddup2(
    actions: *mut c_void,
    from: c_int,
    to: c_int,
) -> c_int {
    if table::is_virtual(from) {
        return libc::EBADF;
    }
    // SAFETY: the program's own arguments.
    unsafe { real::posix_spawn_file_actions_adddup2(actions, from, to) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_epoll_ctl(
    epoll: c_int,
    operation: c_int,
    file: c_int,
    event: *mut c_void,
) -> c_int {
    if operation == libc::EPOLL_CTL_ADD && !mailbox::is_listener(file) {
        table::unset_fresh(file);
    }
    // SAFETY: the program's own arguments.
    unsafe { real::epoll_ctl(epoll, operation, file, event) }
}

/// Tells whether a message would pass a virtual socket to another process. Listening sockets that
/// it passes take no more offers.
pub(crate) unsafe fn passes_virtual(message: *const msghdr) -> bool {
    // SAFETY: the program's own message; its headers are walked as the C library does.
    unsafe {
        if message.is_null() || (*message).msg_controllen == 0 {
            return false;
        }
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let length =
                    ((*header).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let numbers = libc::CMSG_DATA(header).cast::<c_int>();
                for at in 0..length / size_of::<c_int>() {
                    let file = numbers.add(at).read_unaligned();
                    if table::is_virtual(file) {
                        return true;
                    }
                    table::unset_fresh(file);
                    mailbox::retire(file);
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    false
}
