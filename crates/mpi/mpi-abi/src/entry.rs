//! Exported entry points: each hands the place that the program called from to its wrapper, and
//! jumps there.
//!
//! The return address travels in the first floating-point register, which no function of the
//! standard uses for an argument: one more parameter for the wrapper at the price of one
//! instruction, while arguments, stack and the return address stay untouched. A wrapper notes it in
//! a thread-local word of this library with the initial-exec model ([`CallSite::note`]), unless it is
//! done without anybody asking. The word is read once, early in a call ([`call_site`]): a callback
//! that itself calls MPI overwrites it.

use crate::tls_word::tls_word;
use std::arch::{asm, global_asm};
use std::sync::atomic::AtomicU64;

global_asm!(
    ".pushsection .tbss.garonne_call_site,\"awT\",@nobits",
    ".globl garonne_call_site",
    ".hidden garonne_call_site",
    ".type garonne_call_site, %object",
    ".size garonne_call_site, 8",
    ".p2align 3",
    "garonne_call_site:",
    ".zero 8",
    ".popsection",
);

/// The whole body of a naked exported function.
#[cfg(target_arch = "x86_64")]
macro_rules! entry {
    ($wrapper:path) => {
        std::arch::naked_asm!(
            "movsd xmm0, qword ptr [rsp]",
            "jmp {wrapper}",
            wrapper = sym $wrapper,
        )
    };
}

/// The whole body of a naked exported function.
#[cfg(target_arch = "aarch64")]
macro_rules! entry {
    ($wrapper:path) => {
        std::arch::naked_asm!(
            "fmov d0, x30",
            "b {wrapper}",
            wrapper = sym $wrapper,
        )
    };
}

pub(crate) use entry;

/// A return address as a thunk passes it: its bits in a floating-point register. Nothing computes
/// with it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct CallSite(f64);

impl CallSite {
    /// The address.
    #[inline(always)]
    pub(crate) fn address(self) -> u64 {
        self.0.to_bits()
    }

    /// Stores the address in a word of a trail or an inlet, which one thread of this process at a
    /// time uses, from the register that it is in: what [`CallSite::address`] gives, the compiler moves
    /// into another one first.
    #[inline(always)]
    pub(crate) fn store(self, word: &AtomicU64) {
        // SAFETY: eight bytes that are aligned and may be written. Volatile because other processes
        // read it: whole, on every machine that this library is for.
        unsafe { word.as_ptr().cast::<f64>().write_volatile(self.0) }
    }

    /// Makes it this thread's [`call_site`].
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn note(self) {
        // SAFETY: writes this thread's instance of the eight-byte word defined above.
        unsafe {
            asm!(
                "mov {at}, qword ptr [rip + garonne_call_site@GOTTPOFF]",
                "movsd qword ptr fs:[{at}], {site}",
                at = out(reg) _,
                site = in(xmm_reg) self.0,
                options(nostack, preserves_flags),
            );
        }
    }

    /// Makes it this thread's [`call_site`].
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(crate) fn note(self) {
        // SAFETY: writes this thread's instance of the eight-byte word defined above.
        unsafe {
            asm!(
                "adrp {at}, :gottprel:garonne_call_site",
                "ldr {at}, [{at}, :gottprel_lo12:garonne_call_site]",
                "mrs {base}, tpidr_el0",
                "str {site:d}, [{base}, {at}]",
                at = out(reg) _,
                base = out(reg) _,
                site = in(vreg) self.0,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// The return address of the latest MPI call that this thread entered; 0 before the first.
#[inline(always)]
pub(crate) fn call_site() -> u64 {
    tls_word!("garonne_call_site")
}
