//! Words that each thread has: the site of its latest MPI call, where it records its latest call,
//! and the context of its rank.
//!
//! The words are adjacent and thread-local with the initial-exec model. An access takes one
//! instruction, after one that finds the place of the words. The compiler shares that one among the
//! accesses of a function. No access calls the loader. Modules that own a word read and write it
//! through [`read`] and [`write`].

use crate::rank_context::ONLY;
use std::arch::{asm, global_asm};

/// Offset of the return address of the latest MPI call; at first 0.
pub(crate) const CALL_SITE: usize = 0;
/// Offset of the address of the words in which the thread records its latest call.
pub(crate) const LAST_CALL: usize = 8;
/// Offset of the address of the rank's context; at first that of the process's only rank.
pub(crate) const CONTEXT: usize = 16;

global_asm!(
    ".pushsection .bss.garonne_unclaimed_last_call,\"aw\",@nobits",
    ".globl garonne_unclaimed_last_call",
    ".hidden garonne_unclaimed_last_call",
    ".type garonne_unclaimed_last_call, %object",
    ".size garonne_unclaimed_last_call, 16",
    ".p2align 6",
    "garonne_unclaimed_last_call:",
    ".zero 64",
    ".popsection",
    ".pushsection .tdata.garonne_thread_words,\"awT\",@progbits",
    ".globl garonne_thread_words",
    ".hidden garonne_thread_words",
    ".type garonne_thread_words, %object",
    ".size garonne_thread_words, 24",
    ".p2align 3",
    "garonne_thread_words:",
    ".quad 0",
    ".quad garonne_unclaimed_last_call",
    ".quad {only}",
    ".popsection",
    only = sym ONLY,
);

/// Returns where the words lie: behind the thread pointer on x86-64, in memory on aarch64. Constant
/// for a thread.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn place() -> usize {
    let place;
    // SAFETY: reads a word that the loader fills in once, before any code of the library runs.
    unsafe {
        asm!(
            "mov {place}, qword ptr [rip + garonne_thread_words@GOTTPOFF]",
            place = out(reg) place,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    place
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn place() -> usize {
    let place;
    // SAFETY: reads the thread pointer, and a word that the loader fills in once, before any code
    // of the library runs.
    unsafe {
        asm!(
            "adrp {place}, :gottprel:garonne_thread_words",
            "ldr {place}, [{place}, :gottprel_lo12:garonne_thread_words]",
            "mrs {base}, tpidr_el0",
            "add {place}, {base}, {place}",
            place = out(reg) place,
            base = out(reg) _,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    place
}

/// Reads the word at `OFFSET` of the calling thread.
#[inline(always)]
pub(crate) fn read<const OFFSET: usize>() -> *const () {
    const { assert!(OFFSET <= CONTEXT && OFFSET.is_multiple_of(8)) };
    let word;
    // SAFETY: reads a word of this thread's, defined above. Only `write` changes it, which the
    // compiler takes for a write to memory.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!(
            "mov {word}, qword ptr fs:[{place} + {offset}]",
            word = out(reg) word,
            place = in(reg) place(),
            offset = const OFFSET,
            options(pure, readonly, nostack, preserves_flags),
        );
        #[cfg(target_arch = "aarch64")]
        asm!(
            "ldr {word}, [{place}, {offset}]",
            word = out(reg) word,
            place = in(reg) place(),
            offset = const OFFSET,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    word
}

/// Writes the word at `OFFSET` of the calling thread.
#[inline(always)]
pub(crate) fn write<const OFFSET: usize>(word: *const ()) {
    const { assert!(OFFSET <= CONTEXT && OFFSET.is_multiple_of(8)) };
    // SAFETY: writes a word of this thread's, defined above.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!(
            "mov qword ptr fs:[{place} + {offset}], {word}",
            word = in(reg) word,
            place = in(reg) place(),
            offset = const OFFSET,
            options(nostack, preserves_flags),
        );
        #[cfg(target_arch = "aarch64")]
        asm!(
            "str {word}, [{place}, {offset}]",
            word = in(reg) word,
            place = in(reg) place(),
            offset = const OFFSET,
            options(nostack, preserves_flags),
        );
    }
}

/// Writes the call site directly from the floating-point register in which it came.
#[inline(always)]
pub(crate) fn write_call_site(site: f64) {
    // SAFETY: writes a word of this thread's, defined above.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!(
            "movsd qword ptr fs:[{place} + {offset}], {site}",
            site = in(xmm_reg) site,
            place = in(reg) place(),
            offset = const CALL_SITE,
            options(nostack, preserves_flags),
        );
        #[cfg(target_arch = "aarch64")]
        asm!(
            "str {site:d}, [{place}, {offset}]",
            site = in(vreg) site,
            place = in(reg) place(),
            offset = const CALL_SITE,
            options(nostack, preserves_flags),
        );
    }
}
