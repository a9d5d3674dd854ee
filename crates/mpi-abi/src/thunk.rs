//! Exported entry points: each notes where the program called from and jumps to its wrapper.
//!
//! The note goes into a thread-local word of this library with the initial-exec model, so it costs three instructions
//! and needs no extra parameter; arguments, stack and the return address stay untouched for the wrapper. The word is
//! read once, early in a call ([`call_site`]): a callback that itself calls MPI overwrites it.

use std::arch::{asm, global_asm};

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
macro_rules! thunk {
    ($wrapper:path) => {
        std::arch::naked_asm!(
            // At the entry of a function only rax (beyond its low byte, which variadic calls use) and r11 are free;
            // no wrapper is variadic, so rax is free too.
            "mov rax, qword ptr [rip + garonne_call_site@GOTTPOFF]",
            "mov r11, qword ptr [rsp]",
            "mov qword ptr fs:[rax], r11",
            "jmp {wrapper}",
            wrapper = sym $wrapper,
        )
    };
}

/// The whole body of a naked exported function.
#[cfg(target_arch = "aarch64")]
macro_rules! thunk {
    ($wrapper:path) => {
        std::arch::naked_asm!(
            // x16 and x17 are free between a call and its target (they are the linker's scratch registers).
            "adrp x16, :gottprel:garonne_call_site",
            "ldr x16, [x16, :gottprel_lo12:garonne_call_site]",
            "mrs x17, tpidr_el0",
            "str x30, [x17, x16]",
            "b {wrapper}",
            wrapper = sym $wrapper,
        )
    };
}

pub(crate) use thunk;

/// The return address of the latest MPI call that this thread entered; 0 before the first.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn call_site() -> u64 {
    let site: u64;
    // SAFETY: reads this thread's instance of the eight-byte word defined above.
    unsafe {
        asm!(
            "mov {site}, qword ptr [rip + garonne_call_site@GOTTPOFF]",
            "mov {site}, qword ptr fs:[{site}]",
            site = out(reg) site,
            options(nostack, readonly, preserves_flags),
        );
    }
    site
}

/// The return address of the latest MPI call that this thread entered; 0 before the first.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn call_site() -> u64 {
    let site: u64;
    // SAFETY: reads this thread's instance of the eight-byte word defined above.
    unsafe {
        asm!(
            "adrp {site}, :gottprel:garonne_call_site",
            "ldr {site}, [{site}, :gottprel_lo12:garonne_call_site]",
            "mrs {base}, tpidr_el0",
            "ldr {site}, [{base}, {site}]",
            site = out(reg) site,
            base = out(reg) _,
            options(nostack, readonly, preserves_flags),
        );
    }
    site
}
