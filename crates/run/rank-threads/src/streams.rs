//! Streams of the C library that all ranks of a process share.

use std::ffi::{c_int, c_void};

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
}

/// Kind of buffer of `setvbuf`: none.
const IONBF: c_int = 2;

/// Standard output and error output.
pub(crate) fn standard() -> [*mut libc::FILE; 2] {
    // SAFETY: variables of the C library that are set before `main`, and stay.
    unsafe { [stdout, stderr] }
}

/// Has a stream pass everything on at once: to the descriptor of the thread that writes.
pub(crate) fn keep_nothing_back(stream: *mut libc::FILE) {
    #[cfg(not(test))]
    crate::of_rank::real_setvbuf(stream, IONBF);
    #[cfg(test)]
    let _ = (stream, IONBF);
}

/// Writes out what a stream keeps.
pub(crate) fn flush(stream: usize) {
    let stream = std::ptr::with_exposed_provenance_mut::<c_void>(stream);
    #[cfg(not(test))]
    crate::of_rank::real_fflush(stream.cast());
    #[cfg(test)]
    let _ = stream;
}
