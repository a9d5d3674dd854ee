//! Exported entry points. Each passes the caller's return address to its wrapper and jumps there.
//!
//! The return address travels in the first floating-point register, which no MPI function uses for
//! an argument. The wrapper gets one more parameter at the price of one instruction; arguments,
//! stack and return address stay untouched. A wrapper stores the address in a word of the thread
//! (`thread_words`, [`CallSite::note`]); a fast path that needs no call site skips this. A body
//! reads the word once, early ([`call_site`]), because a callback that calls MPI overwrites it.

use crate::thread_words;
use std::sync::atomic::AtomicU64;

/// The whole body of a naked exported function: passes the return address on and jumps to the
/// wrapper.
#[macro_export]
#[cfg(target_arch = "x86_64")]
macro_rules! entry_point {
    ($wrapper:path) => {
        std::arch::naked_asm!(
            "movsd xmm0, qword ptr [rsp]",
            "jmp {wrapper}",
            wrapper = sym $wrapper,
        )
    };
}

/// The whole body of a naked exported function: passes the return address on and jumps to the
/// wrapper.
#[macro_export]
#[cfg(target_arch = "aarch64")]
macro_rules! entry_point {
    ($wrapper:path) => {
        std::arch::naked_asm!(
            "fmov d0, x30",
            "b {wrapper}",
            wrapper = sym $wrapper,
        )
    };
}

/// A return address as an entry point passes it: its bits in a floating-point register. No code
/// computes with the floating-point value.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct CallSite(f64);

impl CallSite {
    /// The address.
    #[inline(always)]
    pub(crate) fn address(self) -> u64 {
        self.0.to_bits()
    }

    /// Stores the address in a word of a send or receive channel, directly from the floating-point
    /// register. One thread of this process at a time writes the word. Through
    /// [`CallSite::address`] the compiler would first move the value into another register.
    #[inline(always)]
    pub(crate) fn store(self, word: &AtomicU64) {
        // SAFETY: eight bytes that are aligned and may be written. Volatile because other processes
        // read it: whole, on every machine that this library is for.
        unsafe { word.as_ptr().cast::<f64>().write_volatile(self.0) }
    }

    /// Makes it this thread's [`call_site`].
    #[inline(always)]
    pub(crate) fn note(self) {
        thread_words::write_call_site(self.0);
    }
}

/// Returns the return address of the latest MPI call that this thread entered; 0 before the first
/// call.
#[inline(always)]
pub(crate) fn call_site() -> u64 {
    thread_words::read::<{ thread_words::CALL_SITE }>().addr() as u64
}
