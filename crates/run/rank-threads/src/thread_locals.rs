//! Thread-local variables of a program that was linked as an executable.
//!
//! Such a program finds them at fixed distances below the thread pointer, where the C library puts
//! those of the executable that was started. That is the shared process, which keeps this place
//! free (`link.sh`). So each thread of a rank has the program's variables there.

use crate::image::ThreadLocals;
use crate::limits::THREAD_LOCALS_MAX;

/// Returns an error if the variables of a program have no room.
pub(crate) fn check(variables: Option<&ThreadLocals>) -> Result<(), String> {
    let Some(variables) = variables else {
        return Ok(());
    };
    if cfg!(not(all(target_arch = "x86_64", not(test)))) {
        return Err("programs with thread-local variables cannot be ranks of one process on this architecture".into());
    }
    let bytes = variables.bytes.next_multiple_of(variables.align);
    if bytes > THREAD_LOCALS_MAX || variables.align > 64 {
        return Err(format!(
            "the program has {bytes} bytes of thread-local variables, aligned to {}; as one of several ranks of a process it may have {THREAD_LOCALS_MAX}, aligned to 64",
            variables.align
        ));
    }
    match is_kept_free() {
        true => Ok(()),
        false => Err(
            "this build of garonne-rank-threads keeps no place for thread-local variables".into(),
        ),
    }
}

/// Gives the calling thread the variables that a program begins with.
pub(crate) fn begin(variables: Option<&ThreadLocals>) {
    let Some(variables) = variables.filter(|variables| check(Some(variables)).is_ok()) else {
        return;
    };
    let bytes = variables.bytes.next_multiple_of(variables.align);
    let at = std::ptr::with_exposed_provenance_mut::<u8>(thread_pointer() - bytes);
    let given = variables.begin.len().min(variables.bytes);
    // SAFETY: `check` has found that so many bytes below the thread pointer are kept free in every
    // thread, and none but the calling one uses them.
    unsafe {
        std::ptr::copy_nonoverlapping(variables.begin.as_ptr(), at, given);
        std::ptr::write_bytes(at.add(given), 0, variables.bytes - given);
    }
}

#[cfg(all(target_arch = "x86_64", not(test)))]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads the word that the ABI has at the thread pointer: its own address.
    unsafe { std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly)) };
    pointer
}

#[cfg(not(all(target_arch = "x86_64", not(test))))]
fn thread_pointer() -> usize {
    0
}

/// Returns whether the place that `link.sh` keeps ends at the thread pointer.
#[cfg(all(target_arch = "x86_64", not(test)))]
fn is_kept_free() -> bool {
    let at: usize;
    // SAFETY: computes an address of this thread; the symbol is in every link of the executable.
    unsafe {
        std::arch::asm!(
            "mov {at}, fs:0",
            "lea {at}, [{at} + garonne_tls_reserve@tpoff]",
            at = out(reg) at,
            options(nostack, readonly)
        );
    }
    at + THREAD_LOCALS_MAX == thread_pointer()
}

#[cfg(not(all(target_arch = "x86_64", not(test))))]
fn is_kept_free() -> bool {
    false
}
