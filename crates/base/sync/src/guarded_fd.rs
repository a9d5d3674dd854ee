//! A descriptor that a library keeps in a process whose program may close any descriptor.
//!
//! Programs that start others close all descriptors from 3 on, and later open files of their own
//! under the same numbers. [`GuardedFd`] remembers which file its number meant. It neither uses nor
//! closes another file.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Device and inode of what a descriptor refers to.
type Identity = (u64, u64);

/// A descriptor with the identity of its file. Owned by whoever keeps it; asked before each use.
#[derive(Debug)]
pub struct GuardedFd {
    fd: ManuallyDrop<OwnedFd>,
    identity: Option<Identity>,
}

impl GuardedFd {
    /// Keeps a descriptor that is open now.
    pub fn new(fd: OwnedFd) -> Self {
        let identity = identity(fd.as_fd());
        Self {
            fd: ManuallyDrop::new(fd),
            identity,
        }
    }

    /// The descriptor; `None` once the program has closed it, whatever has its number now.
    pub fn get(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.as_fd();
        (self.identity.is_some() && identity(fd) == self.identity).then_some(fd)
    }
}

impl Drop for GuardedFd {
    fn drop(&mut self) {
        if self.get().is_some() {
            // SAFETY: the descriptor is still the one that was kept, and is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

fn identity(fd: BorrowedFd<'_>) -> Option<Identity> {
    // SAFETY: all zeroes is a valid value of this plain C structure.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is a valid place to write to; a closed number yields an error.
    let failed = unsafe { libc::fstat(fd.as_raw_fd(), &mut stat) } != 0;
    (!failed).then_some((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::IntoRawFd;

    #[test]
    fn a_number_that_means_another_file_is_neither_used_nor_closed() {
        let kept = GuardedFd::new(File::open("/proc/self/exe").unwrap().into());
        let number = kept.get().unwrap().as_raw_fd();
        let other = File::open("/dev/null").unwrap().into_raw_fd();
        // SAFETY: both numbers are open; what `number` meant is closed, as a program may do.
        assert!(unsafe { libc::dup2(other, number) } == number);
        assert!(kept.get().is_none());
        drop(kept);
        // SAFETY: plain system calls on numbers of this test.
        assert!(unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 && libc::close(number) == 0 });
        // SAFETY: as above.
        unsafe { libc::close(other) };
    }

    #[test]
    fn a_descriptor_that_is_still_there_is_closed_at_the_end() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let kept = GuardedFd::new(theirs.into());
        assert!(kept.get().is_some());
        drop(kept);
        let mut byte = [0; 1];
        assert_eq!(std::io::Read::read(&mut &ours, &mut byte).unwrap(), 0);
    }
}
