//! Barriers, critical regions, `ordered`, `single`, atomics.

use garonne_openmp::{current, lock};
use std::ffi::c_void;
use std::sync::atomic::AtomicU32;

static CRITICAL: AtomicU32 = AtomicU32::new(0);
static ATOMIC: AtomicU32 = AtomicU32::new(0);

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_barrier() {
    current().barrier(false);
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_barrier_cancel() -> bool {
    current().barrier(true)
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_critical_start() {
    lock::lock(&CRITICAL);
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_critical_end() {
    lock::unlock(&CRITICAL);
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_atomic_start() {
    lock::lock(&ATOMIC);
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_atomic_end() {
    lock::unlock(&ATOMIC);
}

/// The lock in the pointer that the compiler keeps for a name: its first word, 0 in the beginning.
unsafe fn named<'a>(pointer: *mut *mut c_void) -> &'a AtomicU32 {
    // SAFETY: the compiler's pointer is static, aligned, and used by these calls alone.
    unsafe { AtomicU32::from_ptr(pointer.cast()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_critical_name_start(pointer: *mut *mut c_void) {
    // SAFETY: as there.
    lock::lock(unsafe { named(pointer) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_critical_name_end(pointer: *mut *mut c_void) {
    // SAFETY: as there.
    lock::unlock(unsafe { named(pointer) });
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_ordered_start() {
    current().ordered();
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_ordered_end() {}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_single_start() -> bool {
    current().single()
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_single_copy_start() -> *mut c_void {
    let thread = current();
    if thread.single() {
        return std::ptr::null_mut();
    }
    thread.barrier(false);
    thread.copied() as *mut c_void
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_single_copy_end(data: *mut c_void) {
    let thread = current();
    thread.set_copied(data as usize);
    thread.barrier(false);
}

/// What an error directive says.
unsafe fn error_directive(message: *const u8, length: usize) -> String {
    let encountered = "error directive encountered";
    if message.is_null() {
        return encountered.into();
    }
    let length = match length {
        // SAFETY: without a length the text ends with a zero.
        usize::MAX => unsafe { libc::strlen(message.cast()) },
        length => length,
    };
    // SAFETY: the compiler passes a text of that length.
    let text = unsafe { std::slice::from_raw_parts(message, length) };
    format!("{encountered}: {}", String::from_utf8_lossy(text))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_warning(message: *const u8, length: usize) {
    // SAFETY: as there.
    crate::tell(&unsafe { error_directive(message, length) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_error(message: *const u8, length: usize) {
    // SAFETY: as there.
    let text = unsafe { error_directive(message, length) };
    crate::fatal(&format!("fatal error: {text}"));
}
