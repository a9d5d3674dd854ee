//! The C functions behind the routines: found when they are first called.
//!
//! Garonne's C library tells the wrapper of a function (`garonne_wrapper`), which takes the call
//! site as a last argument. That wrapper is called where the public function is the library's own,
//! so that errors name a line of the Fortran program. Where a tool stands in front, or another MPI
//! is loaded, the public function is called; to that the last argument does no harm.

use crate::routines::NAMES;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The caller's return address, as entry points pass it: its bits in a floating-point register. No
/// code computes with the value.
pub(crate) type Site = f64;

/// `MPI_X` for each routine, once it was called.
static PUBLIC: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(null_mut()) }; NAMES.len()];
/// `PMPI_X`.
static PROFILED: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(null_mut()) }; NAMES.len()];

/// A C function of which nothing but its address is known.
pub(crate) type Function = unsafe extern "C" fn();

/// `garonne_wrapper` of the C library: the wrapper of a function, or null.
type WrapperLookup = unsafe extern "C" fn(*const c_char) -> *mut c_void;

/// Returns the function of a routine. `TOOLS`: a tool may stand in front.
#[inline(always)]
pub(crate) fn function<const TOOLS: bool>(index: usize) -> Function {
    let table = if TOOLS { &PUBLIC } else { &PROFILED };
    let known = table[index].load(Ordering::Relaxed);
    let function = if known.is_null() {
        find::<TOOLS>(index)
    } else {
        known
    };
    // SAFETY: the address of a function.
    unsafe { transmute::<*mut c_void, Function>(function) }
}

#[cold]
#[inline(never)]
fn find<const TOOLS: bool>(index: usize) -> *mut c_void {
    let name = NAMES[index];
    let found = if TOOLS { public(name) } else { profiled(name) };
    let table = if TOOLS { &PUBLIC } else { &PROFILED };
    table[index].store(found, Ordering::Relaxed);
    found
}

fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: a string that ends with a zero.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Returns where the object begins that has an address; null: there is none.
fn object_of(address: *const c_void) -> *mut c_void {
    // SAFETY: zeros are a value of this type, and the function fills it in.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        match libc::dladdr(address, &raw mut found) {
            0 => null_mut(),
            _ => found.dli_fbase,
        }
    }
}

/// Returns the wrapper of a function, and the library that has it.
fn wrapper(name: &CStr) -> Option<(*mut c_void, *mut c_void)> {
    let lookup = symbol(c"garonne_wrapper");
    if lookup.is_null() {
        return None;
    }
    let library = object_of(lookup);
    // SAFETY: the function of this name has this type, and takes a string that ends with a zero.
    let wrapper = unsafe { transmute::<*mut c_void, WrapperLookup>(lookup)(name.as_ptr()) };
    (!wrapper.is_null()).then_some((wrapper, library))
}

fn public(name: &CStr) -> *mut c_void {
    let public = symbol(name);
    if public.is_null() {
        return missing as *mut c_void;
    }
    match wrapper(name) {
        Some((wrapper, library)) if object_of(public) == library => wrapper,
        _ => public,
    }
}

fn profiled(name: &CStr) -> *mut c_void {
    if let Some((wrapper, _)) = wrapper(name) {
        return wrapper;
    }
    let mut profiled = b"P".to_vec();
    profiled.extend_from_slice(name.to_bytes_with_nul());
    let found = CStr::from_bytes_with_nul(&profiled).map_or(null_mut(), symbol);
    if found.is_null() {
        missing as *mut c_void
    } else {
        found
    }
}

/// Class of the error that a function is not there.
const MPI_ERR_UNSUPPORTED_OPERATION: c_int = 55;

/// Stands for a C function that the loaded MPI does not have.
extern "C" fn missing() -> c_int {
    MPI_ERR_UNSUPPORTED_OPERATION
}

/// Returns the C function of this name. One that no routine has stands for a missing function.
#[cold]
pub(crate) fn named<const TOOLS: bool>(name: &CStr) -> Function {
    match NAMES.iter().position(|known| *known == name) {
        Some(index) => function::<TOOLS>(index),
        // SAFETY: a function of no arguments.
        None => unsafe { transmute::<extern "C" fn() -> c_int, Function>(missing) },
    }
}

/// Returns the C function of this name for calls of the glue itself, which no tool is to see.
pub(crate) fn own(name: &CStr) -> Function {
    named::<false>(name)
}
