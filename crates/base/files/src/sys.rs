//! System calls whose arguments are addresses of user memory, and locks of open files.

use crate::LockKind;
use crate::limits::CALL_BUFFERS_MAX;
use crate::looped::LockCall;
use garonne_sync::user::Packed;
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the file to memory.
    Read,
    /// From memory to the file.
    Write,
}

/// Moves bytes between a file and buffers, once.
pub fn transfer(
    fd: BorrowedFd<'_>,
    direction: Direction,
    offset: u64,
    buffers: &[Packed],
) -> Result<usize, Errno> {
    let (fd, offset) = (fd.as_raw_fd(), offset as libc::off_t);
    let address = |buffer: &Packed| buffer.mem().addr(0) as *mut libc::c_void;
    let moved = match (direction, buffers) {
        // SAFETY: whoever made the view of the buffer promised that its bytes may be written until
        // the call ends; the kernel checks the addresses itself.
        (Direction::Read, [one]) => unsafe { libc::pread(fd, address(one), one.len(), offset) },
        // SAFETY: as above, for reading.
        (Direction::Write, [one]) => unsafe { libc::pwrite(fd, address(one), one.len(), offset) },
        (_, several) => {
            let mut list = [libc::iovec {
                iov_base: std::ptr::null_mut(),
                iov_len: 0,
            }; CALL_BUFFERS_MAX];
            let used = several.len().min(list.len());
            for (entry, buffer) in list.iter_mut().zip(several) {
                entry.iov_base = address(buffer);
                entry.iov_len = buffer.len();
            }
            let (first, used) = (list.as_ptr(), used as libc::c_int);
            match direction {
                // SAFETY: the list has so many entries, each as above.
                Direction::Read => unsafe { libc::preadv(fd, first, used, offset) },
                // SAFETY: the list has so many entries, each as above.
                Direction::Write => unsafe { libc::pwritev(fd, first, used, offset) },
            }
        }
    };
    usize::try_from(moved).map_err(|_| last_errno())
}

/// Takes or returns the lock of a range, for the open file rather than for the process.
pub fn lock(fd: BorrowedFd<'_>, range: Range<u64>, call: LockCall) -> Result<(), Errno> {
    let of_kind = |kind| match kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
    };
    let (command, kind) = match call {
        LockCall::Try(kind) => (libc::F_OFD_SETLK, of_kind(kind)),
        LockCall::Wait(kind) => (libc::F_OFD_SETLKW, of_kind(kind)),
        LockCall::Unlock => (libc::F_OFD_SETLK, libc::F_UNLCK),
    };
    // A length of zero reaches to the end of all files, as a range up to the last offset does.
    let len = match range.end > crate::limits::OFFSET_MAX {
        true => 0,
        false => range.end - range.start,
    };
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: range.start as libc::off_t,
        l_len: len as libc::off_t,
        l_pid: 0,
    };
    // SAFETY: the call reads the structure, which lives until it returns.
    match unsafe { libc::fcntl(fd.as_raw_fd(), command, &lock) } {
        -1 => Err(last_errno()),
        _ => Ok(()),
    }
}

fn last_errno() -> Errno {
    let number = std::io::Error::last_os_error().raw_os_error();
    number.map_or(Errno::IO, Errno::from_raw_os_error)
}
