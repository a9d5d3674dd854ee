//! What the library says at the program's end, if it was asked.

use crate::record::{BOUND_THREADS, UNBOUND_THREADS, is_off};
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// Where the report goes: programs may close their error output before they end.
static OUTPUT: OnceLock<libc::c_int> = OnceLock::new();

fn say(text: &str) {
    if let Some(output) = OUTPUT.get() {
        // SAFETY: the bytes are live; nothing can be done where writing fails.
        unsafe { libc::write(*output, text.as_ptr().cast(), text.len()) };
    }
}

extern "C" fn at_end() {
    if is_off() {
        return;
    }
    let fibers = UNBOUND_THREADS.load(Ordering::Relaxed);
    let bound = BOUND_THREADS.load(Ordering::Relaxed);
    if fibers + bound == 0 {
        return say("garonne: the program started no POSIX thread by pthread_create\n");
    }
    let stayed = crate::record::stayed_bound();
    let mut text = String::new();
    let _ = writeln!(
        text,
        "garonne: {fibers} threads ran as fibers over {} workers; the main thread and {} others \
         stayed the kernel's ({stayed} after calls that need it: signals to one thread, affinity, \
         real-time classes, robust mutexes)",
        garonne_fiber::workers(),
        bound + stayed,
    );
    say(&text);
}

/// Runs when the library is loaded.
extern "C" fn on_load() {
    crate::layout::require_known();
    // The main thread may be cancelled, too.
    if let Some(own) = crate::record::own() {
        crate::record::register(own);
    }
    if std::env::var_os("GARONNE_THREADS_REPORT").is_some() {
        // SAFETY: has no precondition.
        let output = unsafe { libc::fcntl(2, libc::F_DUPFD_CLOEXEC, 3) };
        if OUTPUT.set(output).is_ok() {
            // SAFETY: the function lives as long as the process.
            unsafe { libc::atexit(at_end) };
        }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;
