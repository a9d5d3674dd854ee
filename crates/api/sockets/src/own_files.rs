//! Descriptors that the library keeps in the program's process: at high numbers, so that the
//! program's own are what they were, and not closed by it.

use crate::limits::{DESCRIPTORS, OWN_SHARE};
use crate::{real, table};
use std::os::fd::{AsRawFd, OwnedFd};

/// First number of the library's own descriptors.
fn first() -> Option<i32> {
    // SAFETY: all zeroes is a valid value of this plain C structure.
    let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: a place to write to.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return None;
    }
    let count = usize::try_from(limit.rlim_cur).unwrap_or(DESCRIPTORS);
    i32::try_from(count.min(DESCRIPTORS) / OWN_SHARE).ok()
}

/// Keeps a file open, at a number of the library's own. `None`: there is none left.
pub(crate) fn keep(file: &impl AsRawFd) -> Option<OwnFile> {
    let first = first()?;
    let file = file.as_raw_fd();
    // SAFETY: a plain call on a descriptor.
    let own = unsafe { real::fcntl(file, libc::F_DUPFD_CLOEXEC, first as libc::c_ulong) };
    if own < 0 {
        return None;
    }
    if !table::insert_own(own) {
        // SAFETY: the descriptor was just made and nobody else has it.
        unsafe { real::close(own) };
        return None;
    }
    Some(OwnFile(own))
}

/// Keeps a file under a number of the library's own instead of its old one.
pub(crate) fn move_up(file: OwnedFd) -> Option<OwnFile> {
    keep(&file)
}

/// A descriptor of the library's own. Closed when dropped.
#[derive(Debug)]
pub(crate) struct OwnFile(i32);

impl OwnFile {
    /// Gives the number away; [`close`] is due then.
    pub(crate) fn into_number(self) -> i32 {
        let number = self.0;
        std::mem::forget(self);
        number
    }
}

impl AsRawFd for OwnFile {
    fn as_raw_fd(&self) -> i32 {
        self.0
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// Closes a descriptor of the library's own.
pub(crate) fn close(number: i32) {
    if table::is_own(number) {
        table::remove(number);
        // SAFETY: nobody uses the descriptor any more.
        unsafe { real::close(number) };
    }
}
