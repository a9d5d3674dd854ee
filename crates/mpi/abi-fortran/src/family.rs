//! The standard ABI, as the conversions of `garonne-fortran` see it.

use crate::routines::{NAMES, predefined_function};
use crate::sentinels::{self, SENTINELS};
use garonne_fortran::calls::{Functions, symbol};
use garonne_fortran::family::{Family, HandleKind, Numbers, PredefinedFunction};
use garonne_fortran::sentinels::Sentinels;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;

/// `MPI_X` for each routine, once it was called.
static PUBLIC: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(null_mut()) }; NAMES.len()];
/// `PMPI_X`.
static PROFILED: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(null_mut()) }; NAMES.len()];

/// Name of the C library's function that finds wrappers.
const LOOKUP: &CStr = c"garonne_wrapper";

static FUNCTIONS: Functions = Functions {
    names: &NAMES,
    public: &PUBLIC,
    profiled: &PROFILED,
    wrapper,
    own_symbol: LOOKUP,
};

/// Returns the wrapper of a C function; null if another MPI is loaded.
fn wrapper(name: &CStr) -> *mut c_void {
    type Lookup = unsafe extern "C" fn(*const c_char) -> *mut c_void;
    let lookup = symbol(LOOKUP);
    match lookup.is_null() {
        true => null_mut(),
        // SAFETY: the function of this name has this type, and takes a string that ends with a
        // zero.
        false => unsafe { transmute::<*mut c_void, Lookup>(lookup)(name.as_ptr()) },
    }
}

/// The standard ABI of MPI 5: a Fortran handle has the value of the C handle's word.
#[derive(Clone, Copy)]
pub(crate) struct Standard;

impl Family for Standard {
    const NUMBERS: Numbers = Numbers {
        err_arg: 13,
        err_in_status: 19,
        err_unsupported_operation: 55,
        cart: 211,
        graph: 212,
        dist_graph: 213,
        comm_keys: &[501, 502, 503, 504, 505, 506, 507],
        win_keys: &[602, 604, 605],
        win_size: 603,
    };
    const IN_PLACE: usize = sentinels::IN_PLACE;

    #[inline(always)]
    fn functions() -> &'static Functions {
        &FUNCTIONS
    }

    #[inline(always)]
    fn to_c(_: HandleKind, handle: c_int) -> usize {
        handle as u32 as usize
    }

    #[inline(always)]
    fn from_c(_: HandleKind, handle: usize) -> c_int {
        handle as u32 as c_int
    }

    #[inline(always)]
    fn sentinels() -> &'static Sentinels {
        &SENTINELS
    }

    fn predefined_function(address: usize) -> Option<PredefinedFunction> {
        predefined_function(address)
    }

    /// Does nothing: the address of a C handle is that of a Fortran handle, too, since the word
    /// fits into an `INTEGER`.
    fn takes_fortran_handles(_: HandleKind, _: usize) {}
}
