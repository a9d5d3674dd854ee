//! Reads thread-local words of this library with the initial-exec model: two instructions, and no
//! call into the loader.
//!
//! The module that owns a word defines it by `global_asm` and writes it itself.

/// Reads this thread's instance of the eight-byte word `$name` into a register.
#[cfg(target_arch = "x86_64")]
macro_rules! tls_word {
    ($name:literal) => {{
        let word;
        // SAFETY: reads an eight-byte word that this library defines by that name for each thread.
        unsafe {
            std::arch::asm!(
                concat!("mov {word}, qword ptr [rip + ", $name, "@GOTTPOFF]"),
                "mov {word}, qword ptr fs:[{word}]",
                word = out(reg) word,
                options(nostack, readonly, preserves_flags),
            );
        }
        word
    }};
}

/// Reads this thread's instance of the eight-byte word `$name` into a register.
#[cfg(target_arch = "aarch64")]
macro_rules! tls_word {
    ($name:literal) => {{
        let word;
        // SAFETY: reads an eight-byte word that this library defines by that name for each thread.
        unsafe {
            std::arch::asm!(
                concat!("adrp {word}, :gottprel:", $name),
                concat!("ldr {word}, [{word}, :gottprel_lo12:", $name, "]"),
                "mrs {base}, tpidr_el0",
                "ldr {word}, [{base}, {word}]",
                word = out(reg) word,
                base = out(reg) _,
                options(nostack, readonly, preserves_flags),
            );
        }
        word
    }};
}

pub(crate) use tls_word;
