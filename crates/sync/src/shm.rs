//! Shared segments: memory that other processes may write at any time, and views of it.
//!
//! Owns the mapping (a sealed memfd, or anonymous memory for ranks as threads) and the only ways to touch it: atomics
//! at checked offsets, and copies in and out. Contents are hostile: no reference to plain bytes is ever formed, only
//! to atomics, which permit concurrent writes. A mapping lives as long as any view of it. Bounded by the segment's
//! length, which the seals fix, so a peer cannot make an access fault by truncating the file.

use crate::user::UserMem;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The seals that make a segment safe to map: its size is fixed and the seals themselves are final.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// What a process may do with a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads only; a store faults.
    Read,
    /// Loads and stores.
    ReadWrite,
}

#[derive(Debug)]
struct Mapping {
    base: *mut u8,
    len: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are what mmap returned, and the last view is gone.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// A view of a shared segment, or of a part of it.
#[derive(Clone, Debug)]
pub struct Shm {
    base: *mut u8,
    len: usize,
    keep: Arc<Mapping>,
}

// SAFETY: the memory is only reached through atomics and through copies whose races the protocols above exclude or
// whose result they validate; the mapping itself is immutable.
unsafe impl Send for Shm {}
// SAFETY: as above.
unsafe impl Sync for Shm {}

impl Shm {
    /// Makes a sealed memfd of `len` zero bytes and maps it. The name is only seen in `/proc`.
    pub fn create(name: &std::ffi::CStr, len: usize) -> Result<(OwnedFd, Self)> {
        // SAFETY: a valid C string; the flags are constants.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: `fd` was just made and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: plain system calls on a descriptor we own.
        unsafe {
            if libc::ftruncate(fd.as_raw_fd(), len as libc::off_t) != 0 || libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) != 0 {
                return Err(Error::last_os_error());
            }
        }
        let shm = Self::map(std::os::fd::AsFd::as_fd(&fd), Access::ReadWrite)?;
        Ok((fd, shm))
    }

    /// Maps a segment made by somebody else, whole. Refuses one whose size could still change.
    pub fn map(fd: BorrowedFd<'_>, access: Access) -> Result<Self> {
        // SAFETY: a plain system call; `stat` is written by the kernel.
        let (seals, size) = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(fd.as_raw_fd(), &mut stat) != 0 {
                return Err(Error::last_os_error());
            }
            (libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS), stat.st_size)
        };
        if seals < 0 || seals & SEALS != SEALS {
            return Err(Error::new(ErrorKind::PermissionDenied, "the segment is not sealed against a change of size"));
        }
        let len = usize::try_from(size).ok().filter(|len| *len > 0);
        let len = len.ok_or_else(|| Error::new(ErrorKind::InvalidData, "the segment is empty"))?;
        let prot = match access {
            Access::Read => libc::PROT_READ,
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        Self::mmap(len, prot, libc::MAP_SHARED, fd.as_raw_fd())
    }

    /// Zeroed memory shared among the threads of this process, laid out as a segment would be.
    pub fn anonymous(len: usize) -> Result<Self> {
        Self::mmap(len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)
    }

    fn mmap(len: usize, prot: i32, flags: i32, fd: i32) -> Result<Self> {
        // SAFETY: a fresh mapping at an address the kernel chooses touches no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let base = base.cast::<u8>();
        Ok(Self { base, len, keep: Arc::new(Mapping { base, len }) })
    }

    /// Length of this view in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the view holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part `[offset, offset + len)` of this view; it keeps the whole mapping alive.
    pub fn part(&self, offset: usize, len: usize) -> Result<Self> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Error::new(ErrorKind::InvalidInput, "the part reaches beyond the segment"));
        }
        Ok(Self { base: self.base.wrapping_add(offset), len, keep: self.keep.clone() })
    }

    #[inline(always)]
    pub(crate) fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset <= self.len && len <= self.len - offset, "access beyond the shared segment");
        self.base.wrapping_add(offset)
    }

    /// The 32-bit word at `offset` (a multiple of 4).
    #[inline(always)]
    pub fn u32_at(&self, offset: usize) -> &AtomicU32 {
        let word = self.at(offset, 4);
        assert!(word as usize % 4 == 0, "unaligned shared word");
        // SAFETY: in bounds, aligned, mapped as long as `self`; an atomic allows writes by others.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    /// The 64-bit word at `offset` (a multiple of 8).
    #[inline(always)]
    pub fn u64_at(&self, offset: usize) -> &AtomicU64 {
        let word = self.at(offset, 8);
        assert!(word as usize % 8 == 0, "unaligned shared word");
        // SAFETY: as in `u32_at`.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }

    /// Copies `dst.len()` bytes at `offset` out of the segment. They may be torn if a peer writes meanwhile: validate.
    #[inline]
    pub fn read(&self, offset: usize, dst: &mut [u8]) {
        let src = self.at(offset, dst.len());
        // SAFETY: in bounds on the segment's side by `at`; the slice is ours. Any byte values are valid.
        unsafe { crate::copy::copy(src, dst.as_mut_ptr(), dst.len()) }
    }

    /// Copies `src` into the segment at `offset`.
    #[inline]
    pub fn write(&self, offset: usize, src: &[u8]) {
        let dst = self.at(offset, src.len());
        // SAFETY: as in `read`.
        unsafe { crate::copy::copy(src.as_ptr(), dst, src.len()) }
    }

    /// The bytes `[offset, offset + len)` as a raw view for copies to and from user memory. The view does not keep the
    /// mapping alive: use it while `self` lives.
    #[inline]
    pub fn mem(&self, offset: usize, len: usize) -> UserMem {
        // SAFETY: in bounds and mapped while `self` lives, which the caller keeps.
        unsafe { UserMem::new(self.at(offset, len)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_of_one_segment_see_the_same_bytes() {
        let (fd, a) = Shm::create(c"test", 4096).unwrap();
        let b = Shm::map(fd.as_fd(), Access::Read).unwrap();
        a.write(100, b"hello");
        a.u32_at(64).store(7, Ordering::Release);
        let mut bytes = [0; 5];
        b.read(100, &mut bytes);
        assert_eq!((&bytes, b.u32_at(64).load(Ordering::Acquire)), (b"hello", 7));
        assert!(a.part(4000, 97).is_err());
    }

    #[test]
    fn an_unsealed_segment_is_refused() {
        // SAFETY: a fresh descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"loose".as_ptr(), libc::MFD_ALLOW_SEALING)) };
        // SAFETY: a plain system call.
        assert_eq!(unsafe { libc::ftruncate(fd.as_raw_fd(), 4096) }, 0);
        assert_eq!(Shm::map(fd.as_fd(), Access::ReadWrite).unwrap_err().kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    #[should_panic(expected = "beyond the shared segment")]
    fn a_word_beyond_the_end_is_never_formed() {
        Shm::anonymous(4096).unwrap().u32_at(4096);
    }
}
