//! `garonne_wrapper`: finds the wrapper of a function by its name.
//!
//! A wrapper has the C prototype of its function and one more argument, the caller's call site in
//! the first floating-point register. Libraries of other languages above this one call wrappers in
//! place of the exported functions, so that errors name a line of the program and not of the
//! library between. The entry points themselves do the same.

use garonne_bodies::abi::{MPI_Status, StandardAbi};
use garonne_bodies::wrappers::*;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null;

include!(concat!(env!("OUT_DIR"), "/wrapper_lookup.rs"));

/// Returns the wrapper of a function; null if there is no function of that name.
#[unsafe(no_mangle)]
extern "C" fn garonne_wrapper(name: *const c_char) -> *const c_void {
    if name.is_null() {
        return null();
    }
    // SAFETY: the caller passes a string that ends with a zero.
    let name = unsafe { CStr::from_ptr(name) };
    wrapper_of(name.to_bytes()).unwrap_or(null())
}
