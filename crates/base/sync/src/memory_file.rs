//! Memory files that processes of one host share without anybody's help: one makes the file, the
//! others open its descriptor through `/proc`.
//!
//! A file has a fixed size from the beginning (its seals), so that no mapping of it can fault
//! later. Whoever opens a file checks that.

use crate::shm::{MapAccess, Segment};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// A memory file that this process made, as long as others may open it.
///
/// Made by [`MemoryFile::create`]; the maker sends [`MemoryFile::holder`] and
/// [`MemoryFile::number`] to the others, which call [`open`]. Dropped when all have opened it;
/// mappings stay.
#[derive(Debug)]
pub struct MemoryFile(OwnedFd);

impl MemoryFile {
    /// Makes a zeroed file of `len` bytes, and maps it at an address that is a multiple of `align`,
    /// a power of two. Pages exist only once touched.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(len: usize, align: usize) -> Result<(Self, Segment)> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let new = |flags| {
            // SAFETY: the name is a string that lives for ever; the call only makes a descriptor.
            unsafe { libc::memfd_create(c"garonne-window".as_ptr(), flags) }
        };
        // Kernels before 6.3 do not know the flag that forbids execution.
        let fd = match new(flags | libc::MFD_NOEXEC_SEAL) {
            -1 => new(flags),
            fd => fd,
        };
        if fd < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(len as u64)?;
        // SAFETY: a plain system call with integer arguments on a descriptor of ours.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) } != 0 {
            return Err(Error::last_os_error());
        }
        let memory = Segment::map_aligned(file.as_fd(), (len, align), MapAccess::ReadWrite)?;
        Ok((Self(file.into()), memory))
    }

    /// Returns the number of the descriptor, for [`open`].
    pub fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Returns the number of the process, or of the calling thread where that has descriptors of
    /// its own, for [`open`]: a rank that is a thread has them. A thread's number is valid while
    /// the thread lives.
    pub fn holder(&self) -> u32 {
        let file_of = |task: &str| {
            let file = std::fs::metadata(format!("/proc/{task}/fd/{}", self.number())).ok()?;
            Some((file.dev(), file.ino()))
        };
        let own = file_of("thread-self");
        let thread = || {
            let path = std::fs::read_link("/proc/thread-self").ok()?;
            path.file_name()?.to_str()?.parse().ok()
        };
        match own.is_some() && own != file_of("self") {
            true => thread().unwrap_or_else(std::process::id),
            false => std::process::id(),
        }
    }
}

/// Maps the `len` bytes of the memory file that `holder`, a process or a thread, has open under
/// this number, at an address that is a multiple of `align`, a power of two.
///
/// # Errors
/// What the system says; `InvalidData` for a file that is not a memory file of this size.
pub fn open(holder: u32, number: i32, (len, align): (usize, usize)) -> Result<Segment> {
    let path = format!("/proc/{holder}/fd/{number}");
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    // SAFETY: a plain system call with integer arguments on a descriptor of ours.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & SEALS != SEALS || file.metadata()?.len() != len as u64 {
        return Err(ErrorKind::InvalidData.into());
    }
    Segment::map_aligned(file.as_fd(), (len, align), MapAccess::ReadWrite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_mapping_writes_another_reads_also_when_the_file_is_closed() {
        let (file, made) = MemoryFile::create(8192, 1).unwrap();
        let opened = open(file.holder(), file.number(), (8192, 1)).unwrap();
        drop(file);
        made.write(4090, b"between pages");
        let mut seen = [0; 13];
        opened.read(4090, &mut seen);
        assert_eq!(&seen, b"between pages");
    }

    #[test]
    fn mappings_begin_where_the_alignment_says() {
        for shift in [0, 12, 13, 21, 24] {
            let (len, align) = (12 << 10, 1 << shift);
            let (file, made) = MemoryFile::create(len, align).unwrap();
            let opened = open(file.holder(), file.number(), (len, align)).unwrap();
            for memory in [&made, &opened] {
                assert!(memory.ptr(0, 1).addr().is_multiple_of(align));
            }
            made.write(len - 4, b"last");
            let mut seen = [0; 4];
            opened.read(len - 4, &mut seen);
            assert_eq!(&seen, b"last");
        }
        assert!(MemoryFile::create(4096, 1 << 62).is_err());
    }

    #[test]
    fn a_thread_with_descriptors_of_its_own_is_the_holder_of_its_files() {
        let (file, _) = MemoryFile::create(4096, 1).unwrap();
        assert_eq!(file.holder(), std::process::id());
        drop(file);
        let (told, hear) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let holder = std::thread::spawn(move || {
            // SAFETY: gives this thread, which owns no descriptor yet, a table of its own.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
            let (file, made) = MemoryFile::create(4096, 1).unwrap();
            made.write(0, b"of a thread");
            told.send((file.holder(), file.number())).unwrap();
            let _ = wait.recv();
        });
        let (task, number) = hear.recv().unwrap();
        assert_ne!(task, std::process::id());
        let mut seen = [0; 11];
        open(task, number, (4096, 1)).unwrap().read(0, &mut seen);
        assert_eq!(&seen, b"of a thread");
        drop(done);
        holder.join().unwrap();
        assert!(open(task, number, (4096, 1)).is_err());
    }

    #[test]
    fn another_size_and_another_kind_of_file_are_refused() {
        let (file, _) = MemoryFile::create(4096, 1).unwrap();
        assert!(open(file.holder(), file.number(), (8192, 1)).is_err());
        let plain = File::open("/proc/self/exe").unwrap();
        assert!(open(std::process::id(), plain.as_raw_fd(), (4096, 1)).is_err());
    }
}
