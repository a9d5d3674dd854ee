//! The C functions behind the routines: found when they are first called.
//!
//! A C library of Garonne tells the wrapper of a function, which takes the call site as a last
//! argument. That wrapper is called where the public function is the library's own, so that errors
//! name a line of the Fortran program. Where a tool stands in front, or another MPI is loaded, the
//! public function is called; to that the last argument does no harm.

use crate::family::Family;
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The caller's return address, as entry points pass it: its bits in a floating-point register. No
/// code computes with the value.
pub type Site = f64;

/// A C function of which nothing but its address is known.
pub type Function = unsafe extern "C" fn();

/// The C functions behind the routines of one library.
#[derive(Debug)]
pub struct Functions {
    /// Names, in the order of the library's routines.
    pub names: &'static [&'static CStr],
    /// `MPI_X` for each name, once it was called.
    pub public: &'static [AtomicPtr<c_void>],
    /// `PMPI_X` for each name, once it was called.
    pub profiled: &'static [AtomicPtr<c_void>],
    /// Returns the wrapper of a function of Garonne's C library; null if another MPI is loaded.
    pub wrapper: fn(&CStr) -> *mut c_void,
    /// A symbol of the object that has the public functions of Garonne's C library.
    pub own_symbol: &'static CStr,
}

/// Returns the function of a routine. `TOOLS`: a tool may stand in front.
#[inline(always)]
pub fn function<F: Family, const TOOLS: bool>(index: usize) -> Function {
    known::<F, TOOLS>(index).unwrap_or_else(|| {
        let found = find::<F, TOOLS>(index);
        // SAFETY: the address of a function.
        unsafe { transmute::<*mut c_void, Function>(found) }
    })
}

/// Returns the function of a routine that was called before. `TOOLS`: a tool may stand in front.
#[inline(always)]
pub fn known<F: Family, const TOOLS: bool>(index: usize) -> Option<Function> {
    let functions = F::functions();
    let table = if TOOLS {
        functions.public
    } else {
        functions.profiled
    };
    let known = table[index].load(Ordering::Relaxed);
    // SAFETY: the address of a function, or null.
    unsafe { transmute::<*mut c_void, Option<Function>>(known) }
}

#[cold]
#[inline(never)]
fn find<F: Family, const TOOLS: bool>(index: usize) -> *mut c_void {
    let functions = F::functions();
    let name = functions.names[index];
    let (found, table) = match TOOLS {
        true => (public(functions, name), functions.public),
        false => (profiled(functions, name), functions.profiled),
    };
    let found = match found.is_null() {
        true => missing::<F> as *mut c_void,
        false => found,
    };
    table[index].store(found, Ordering::Relaxed);
    found
}

/// Returns the address of a symbol, which the library or the program may have; null: there is none.
pub fn symbol(name: &CStr) -> *mut c_void {
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

fn public(functions: &Functions, name: &CStr) -> *mut c_void {
    let public = symbol(name);
    if public.is_null() {
        return public;
    }
    let wrapper = (functions.wrapper)(name);
    let own = symbol(functions.own_symbol);
    match wrapper.is_null() || own.is_null() || object_of(public) != object_of(own) {
        true => public,
        false => wrapper,
    }
}

fn profiled(functions: &Functions, name: &CStr) -> *mut c_void {
    let wrapper = (functions.wrapper)(name);
    if !wrapper.is_null() {
        return wrapper;
    }
    let mut profiled = b"P".to_vec();
    profiled.extend_from_slice(name.to_bytes_with_nul());
    CStr::from_bytes_with_nul(&profiled).map_or(null_mut(), symbol)
}

/// Stands for a C function that the loaded MPI does not have.
extern "C" fn missing<F: Family>() -> c_int {
    F::NUMBERS.err_unsupported_operation
}

/// Returns the C function of this name. One that no routine has stands for a missing function.
#[cold]
pub fn named<F: Family, const TOOLS: bool>(name: &CStr) -> Function {
    match F::functions().names.iter().position(|known| *known == name) {
        Some(index) => function::<F, TOOLS>(index),
        // SAFETY: a function of no arguments.
        None => unsafe { transmute::<extern "C" fn() -> c_int, Function>(missing::<F>) },
    }
}

/// Returns the C function of this name for calls of the glue itself, which no tool is to see.
pub fn own<F: Family>(name: &CStr) -> Function {
    named::<F, false>(name)
}
