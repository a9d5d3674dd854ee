//! Signal masks of new threads, and results of system calls. The only unsafe code of this crate.

#![allow(unsafe_code)]

/// Returns the number of bytes that a system call moved, or its error.
///
/// # Errors
/// The call's, as the thread's `errno` has it, if what the call returned is negative.
pub fn moved(returned: impl TryInto<usize>) -> std::io::Result<usize> {
    returned
        .try_into()
        .map_err(|_| std::io::Error::last_os_error())
}

/// Starts a thread that takes no signals of the program: they are blocked in the calling thread
/// while `start` runs, which a new thread inherits.
pub fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both sets have room; the calls only read and write them and this thread's mask.
    let changed = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let started = start();
    if changed {
        // SAFETY: `before` was filled by the call that succeeded.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    started
}
