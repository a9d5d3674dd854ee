//! Memory of stacks: slabs without reserve, and guards in them.

use crate::limits::{GUARD_BYTES, SHIFT_LINES};
use corosensei::stack::{Stack, StackPointer};
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// `MADV_GUARD_INSTALL` of Linux 6.13.
const MADV_GUARD_INSTALL: libc::c_int = 102;

/// Maps so many bytes that take memory only where they are touched, one small page at a time.
pub(super) fn map_slab(bytes: usize) -> io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let slab = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        )
    };
    if slab == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping of just now. A huge page would make a stack of one page cost hundreds.
    unsafe { libc::madvise(slab, bytes, libc::MADV_NOHUGEPAGE) };
    Ok(slab as usize)
}

/// Set in tests: guards are those of kernels before 6.13.
const ENV_PROTECTED: &str = "GARONNE_TEST_PROTECTED_GUARDS";

/// Kinds of guards that the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GuardKind {
    /// Marks in page tables: the slab stays one mapping.
    Marked,
    /// Pages without access: each guard splits the mapping.
    Protected,
}

/// Makes the lowest bytes of a stack in a slab a guard.
pub(super) fn install_guard(limit: usize) -> io::Result<()> {
    static KIND: OnceLock<GuardKind> = OnceLock::new();
    let guard = limit as *mut libc::c_void;
    let kind = *KIND.get_or_init(|| {
        if std::env::var_os(ENV_PROTECTED).is_some() {
            return GuardKind::Protected;
        }
        // SAFETY: the range is a part of a slab that nobody uses yet.
        match unsafe { libc::madvise(guard, GUARD_BYTES, MADV_GUARD_INSTALL) } {
            0 => GuardKind::Marked,
            _ => GuardKind::Protected,
        }
    });
    // SAFETY: the range is a part of a slab that nobody uses yet.
    let refused = unsafe {
        match kind {
            GuardKind::Marked => libc::madvise(guard, GUARD_BYTES, MADV_GUARD_INSTALL),
            GuardKind::Protected => libc::mprotect(guard, GUARD_BYTES, libc::PROT_NONE),
        }
    };
    if refused == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The addresses of a stack in a slab, guard included. Whoever has the value owns the stack.
#[derive(Debug)]
pub(crate) struct StackMemory {
    limit: NonZeroUsize,
    bytes: usize,
}

impl StackMemory {
    /// Only [`super::StackPool`] makes them: once for each part of a slab.
    pub(super) fn new(limit: usize, bytes: usize) -> Option<Self> {
        Some(Self {
            limit: NonZeroUsize::new(limit)?,
            bytes,
        })
    }

    /// Bytes of the stack with its guard.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Lowest address: that of the guard.
    pub(crate) fn guard(&self) -> usize {
        self.limit.get()
    }

    /// Gives the pages back to the kernel. The guard stays.
    pub(super) fn release_pages(&self) {
        let usable = NonNull::new((self.limit.get() + GUARD_BYTES) as *mut libc::c_void);
        if let Some(usable) = usable {
            // SAFETY: the owner of the stack has the value, and no code runs on the stack.
            unsafe {
                libc::madvise(
                    usable.as_ptr(),
                    self.bytes - GUARD_BYTES,
                    libc::MADV_DONTNEED,
                )
            };
        }
    }
}

// SAFETY: the range lies within a slab that is never unmapped, has a guard at its lower end, and no
// other value names it (`StackMemory::new`). Sizes are multiples of pages, so both ends are
// aligned.
unsafe impl Stack for StackMemory {
    fn base(&self) -> StackPointer {
        let shift = (self.limit.get() >> 12) % SHIFT_LINES * 64;
        self.limit.saturating_add(self.bytes - shift)
    }

    fn limit(&self) -> StackPointer {
        self.limit
    }
}
