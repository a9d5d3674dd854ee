//! Views of shared memory: a mapping of a sealed memory file (or of anonymous memory) that peers
//! may write at any time.
//!
//! Owns the only place where such memory is mapped and unmapped. A [`Segment`] hands out raw
//! pointers and references to atomics at checked offsets, and copies bytes in and out; it never
//! forms a Rust reference to anything else, since a peer may change every byte between two reads.
//! Whoever reads a value copies it out first and validates it then. Bounds are asserted: offsets
//! come from our own layouts, and a value read from the segment must be masked or checked before it
//! is used as one.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Access that a mapping allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapAccess {
    /// Loads only; a store faults.
    Read,
    /// Loads and stores.
    ReadWrite,
}

impl MapAccess {
    fn protection(self) -> libc::c_int {
        match self {
            MapAccess::Read => libc::PROT_READ,
            MapAccess::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

/// The smallest page that systems have: every mapping begins at a multiple of it.
const PAGE_MIN: usize = 4096;

/// One mapping; unmapped when the last segment over it is dropped.
#[derive(Debug)]
struct Mapping {
    base: *mut u8,
    len: usize,
}

// SAFETY: the mapping is only an address range; all access goes through atomics or raw copies that
// assume other writers.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `Segment::map_raw` and no segment refers to it any more.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// A range of shared memory. Clones and [`Segment::part`]s share the mapping and keep it alive.
#[derive(Clone, Debug)]
pub struct Segment {
    mapping: Arc<Mapping>,
    offset: usize,
    len: usize,
}

impl Segment {
    /// Maps `len` bytes of `file` from `offset` (a multiple of the page size). The caller has
    /// verified that the file cannot shrink (its seals), else a later access can fault.
    pub fn map(
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        access: MapAccess,
    ) -> io::Result<Self> {
        let offset =
            i64::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        Self::map_raw(file.as_raw_fd(), offset, len, access, libc::MAP_SHARED)
    }

    /// Maps `len` bytes of `file` from its beginning, at an address that is a multiple of `align`,
    /// a power of two. As [`Segment::map`] else. Addresses for `len + align` bytes are needed for
    /// a moment.
    ///
    /// # Errors
    /// The system has no room.
    pub fn map_aligned(
        file: BorrowedFd<'_>,
        (len, align): (usize, usize),
        access: MapAccess,
    ) -> io::Result<Self> {
        if align <= PAGE_MIN {
            return Self::map(file, 0, len, access);
        }
        let no_room = || io::Error::from_raw_os_error(libc::ENOMEM);
        let whole = len.checked_add(align).ok_or_else(no_room)?;
        let room = Self::map_raw(
            -1,
            0,
            whole,
            access,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        )?;
        let start = room.mapping.base.addr();
        let skipped = start.next_multiple_of(align) - start;
        let base = room.mapping.base.wrapping_add(skipped);
        let prot = access.protection();
        let fixed = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: replaces a part of `room`, which nobody else knows of.
        let mapped = unsafe { libc::mmap(base.cast(), len, prot, fixed, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let end = skipped + len.next_multiple_of(PAGE_MIN);
        let room = std::mem::ManuallyDrop::new(room);
        for (at, len) in [(0, skipped), (end, whole.saturating_sub(end))] {
            let unused = room.mapping.base.wrapping_add(at);
            // SAFETY: the rest of `room`, which is not dropped. A part that the system cannot unmap
            // stays, unused.
            let _ = unsafe { len > 0 && libc::munmap(unused.cast(), len) == 0 };
        }
        Ok(Self {
            mapping: Arc::new(Mapping { base, len }),
            offset: 0,
            len,
        })
    }

    /// Maps `len` bytes of the same file from `offset` behind this segment's beginning, without a
    /// descriptor of the file. Both are multiples of the page size, and the segment is one that
    /// [`Segment::map`] gave. Addresses for `offset + len` bytes are needed for a moment.
    ///
    /// # Errors
    /// The system has no room, or the segment does not begin on a page.
    pub fn map_beyond(&self, offset: u64, len: usize) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let skipped = usize::try_from(offset).map_err(|_| invalid())?;
        let whole = skipped.checked_add(len).ok_or_else(invalid)?;
        if len == 0 || self.offset != 0 {
            return Err(invalid());
        }
        // SAFETY: with an old length of 0 the kernel leaves the shared mapping as it is and maps
        // the file once more, at an address of its choice.
        let base =
            unsafe { libc::mremap(self.mapping.base.cast(), 0, whole, libc::MREMAP_MAYMOVE) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: within the mapping that was just made, and nobody knows of it.
        let _ = unsafe { skipped == 0 || libc::munmap(base, skipped) == 0 };
        Ok(Self {
            mapping: Arc::new(Mapping {
                base: base.cast::<u8>().wrapping_add(skipped),
                len,
            }),
            offset: 0,
            len,
        })
    }

    /// Zeroed memory that is shared with nobody but children that fork: a world of one, and tests.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        Self::map_raw(
            -1,
            0,
            len,
            MapAccess::ReadWrite,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        )
    }

    fn map_raw(
        fd: i32,
        offset: i64,
        len: usize,
        access: MapAccess,
        flags: i32,
    ) -> io::Result<Self> {
        if len == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let prot = access.protection();
        // SAFETY: a fresh mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                prot,
                flags | libc::MAP_NORESERVE,
                fd,
                offset,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            mapping: Arc::new(Mapping {
                base: base.cast(),
                len,
            }),
            offset: 0,
            len,
        })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether it holds no bytes (a part may).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The `len` bytes at `offset` as a segment of their own.
    pub fn part(&self, offset: usize, len: usize) -> Self {
        self.check(offset, len, 1);
        Self {
            mapping: self.mapping.clone(),
            offset: self.offset + offset,
            len,
        }
    }

    #[inline(always)]
    fn check(&self, offset: usize, len: usize, align: usize) {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len)
                && (self.offset + offset).is_multiple_of(align),
            "shared segment: {len} bytes at {offset} (alignment {align}) are not within its {} bytes",
            self.len
        );
    }

    /// Address of the `len` bytes at `offset`, valid while a segment over this mapping lives.
    #[inline(always)]
    pub fn ptr(&self, offset: usize, len: usize) -> *mut u8 {
        self.check(offset, len, 1);
        self.mapping.base.wrapping_add(self.offset + offset)
    }

    /// The 32-bit atomic at `offset` (a multiple of 4).
    #[inline(always)]
    pub fn atomic_u32(&self, offset: usize) -> &AtomicU32 {
        self.check(offset, 4, 4);
        // SAFETY: in bounds and aligned by the check, mapped as long as `self` lives, and atomics
        // tolerate other writers.
        unsafe { AtomicU32::from_ptr(self.mapping.base.wrapping_add(self.offset + offset).cast()) }
    }

    /// The word at `offset` (a multiple of 4), to keep.
    pub fn word(&self, offset: usize) -> SharedWord {
        SharedWord {
            at: self.atomic_u32(offset),
            _keep: self.clone(),
        }
    }

    /// The 64-bit atomic at `offset` (a multiple of 8).
    #[inline(always)]
    pub fn atomic_u64(&self, offset: usize) -> &AtomicU64 {
        self.check(offset, 8, 8);
        // SAFETY: as in `atomic_u32`.
        unsafe { AtomicU64::from_ptr(self.mapping.base.wrapping_add(self.offset + offset).cast()) }
    }

    /// The `N` 64-bit atomics from `offset` (a multiple of 8) on.
    pub fn atomic_u64s<const N: usize>(&self, offset: usize) -> &[AtomicU64; N] {
        self.check(offset, 8 * N, 8);
        // SAFETY: as in `atomic_u32`, for each of them; an atomic is laid out as its number.
        unsafe { &*self.mapping.base.wrapping_add(self.offset + offset).cast() }
    }

    /// Copies `dst.len()` bytes at `offset` out. Bytes that a peer writes meanwhile may come out in
    /// any mixture.
    pub fn read(&self, offset: usize, dst: &mut [u8]) {
        let src = self.ptr(offset, dst.len());
        // SAFETY: the source is mapped (checked); `dst` is exclusively ours and outside the
        // mapping.
        unsafe { crate::copy::copy(src, dst.as_mut_ptr(), dst.len()) }
    }

    /// Copies `src` in at `offset`.
    pub fn write(&self, offset: usize, src: &[u8]) {
        let dst = self.ptr(offset, src.len());
        // SAFETY: the destination is mapped (checked); `src` is an ordinary slice outside the
        // mapping.
        unsafe { crate::copy::copy(src.as_ptr(), dst, src.len()) }
    }

    /// The `len` bytes at `offset` as a raw view for copies to and from user memory. The view does
    /// not keep the mapping alive: use it while a segment over it lives.
    #[inline]
    pub fn mem(&self, offset: usize, len: usize) -> crate::user::UserMem {
        // SAFETY: in bounds (checked) and mapped while a segment over it lives, which the caller
        // keeps.
        unsafe { crate::user::UserMem::new(self.ptr(offset, len)) }
    }
}

/// A 32-bit word of a segment, found and checked once: for words that are looked at with every
/// message.
#[derive(Clone, Debug)]
pub struct SharedWord {
    at: *const AtomicU32,
    _keep: Segment,
}

// SAFETY: the pointer leads into the mapping that `_keep` holds, which is not bound to a thread.
unsafe impl Send for SharedWord {}
// SAFETY: as above; only an atomic is reached through it.
unsafe impl Sync for SharedWord {}

impl std::ops::Deref for SharedWord {
    type Target = AtomicU32;

    #[inline(always)]
    fn deref(&self) -> &AtomicU32 {
        // SAFETY: `Segment::word` checked bounds and alignment; the mapping lives as long as
        // `self`.
        unsafe { &*self.at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn parts_and_clones_see_the_same_bytes() {
        let whole = Segment::anonymous(8192).unwrap();
        let part = whole.part(4096, 64);
        part.atomic_u32(8).store(7, Ordering::Relaxed);
        drop(part);
        let mut bytes = [0; 4];
        whole.read(4104, &mut bytes);
        assert_eq!(u32::from_ne_bytes(bytes), 7);
    }

    #[test]
    #[should_panic(expected = "are not within")]
    fn an_offset_beyond_the_end_is_refused() {
        Segment::anonymous(4096)
            .unwrap()
            .part(64, 64)
            .atomic_u32(64);
    }
}
