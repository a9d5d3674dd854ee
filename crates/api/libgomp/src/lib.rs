//! `libgomp.so.1`: what GCC's compiled OpenMP code calls, onto [`garonne_openmp`].
//!
//! Signatures are those of GCC 12. Programs are trusted as with GCC's own library: pointers that
//! compiled code passes are valid.

#![allow(
    clippy::missing_safety_doc,
    reason = "compiled code calls the entry points; its pointers are valid"
)]
#![allow(
    missing_docs,
    reason = "names are those of the OpenMP API and of GCC's ABI"
)]

mod allocators;
mod api;
mod fortran;
mod locks;
mod loops;
mod mpi;
mod parallel;
mod refused;
mod sync;
mod target;
mod tasks;

use garonne_openmp::Code;
use std::ffi::c_void;

/// Compiled code with its argument.
pub(crate) type Outlined = unsafe extern "C" fn(*mut c_void);

/// Calls compiled code.
fn call(function: usize, argument: usize) {
    // SAFETY: `code` made the address of an `Outlined`.
    let function = unsafe { std::mem::transmute::<usize, Outlined>(function) };
    // SAFETY: the argument is the one that the compiled code passed with it.
    unsafe { function(argument as *mut c_void) };
}

pub(crate) fn code(function: Outlined, argument: *mut c_void) -> Code {
    Code {
        call,
        function: function as usize,
        argument: argument as usize,
    }
}

/// Ends the program with a message.
pub(crate) fn fatal(message: &str) -> ! {
    tell(message);
    std::process::exit(1)
}

/// A message as GCC's library prints it: an empty line, then the line.
pub(crate) fn tell(message: &str) {
    eprintln!("\nlibgomp: {message}");
}

/// Runs when the library is loaded.
extern "C" fn on_load() {
    extern "C" fn in_child() {
        garonne_openmp::forked();
    }
    // SAFETY: the handler only stores a flag.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    if let Ok(wish) = std::env::var("OMP_DISPLAY_ENV") {
        match wish.trim().to_ascii_lowercase().as_str() {
            "true" => api::display_environment(false),
            "verbose" => api::display_environment(true),
            _ => (),
        }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;
