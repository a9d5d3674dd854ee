//! Lines out of all caches: the one operation of this crate that needs unsafe code.

use crate::loops::Line;

/// Writes these lines back and removes them from all caches. Returns whether the processor can do
/// that for a program.
pub fn flush(lines: &[Line]) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        for line in lines {
            // SAFETY: the address is that of a line that is borrowed, and flushing a line changes
            // no bytes. Every processor of this architecture has the instruction.
            unsafe { std::arch::x86_64::_mm_clflush(std::ptr::from_ref(line).cast()) };
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        true
    }
    #[cfg(target_arch = "aarch64")]
    {
        for line in lines {
            // SAFETY: as above; Linux lets programs use this instruction (SCTLR_EL1.UCI).
            unsafe {
                std::arch::asm!("dc civac, {}", in(reg) std::ptr::from_ref(line), options(nostack, preserves_flags));
            }
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        true
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = lines;
        false
    }
}
