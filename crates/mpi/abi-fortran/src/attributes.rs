//! Values of attributes, and the copy and delete functions of attribute keys.
//!
//! The value that Fortran sets is a number. C gets the address of a number for it, as the standard
//! says, and Fortran gets the number back ([`stored`], [`loaded`]). Numbers live as long as the
//! process, each once, because a C program may keep the address.

use crate::predefined;
use crate::sentinels::address;
use std::collections::{HashMap, HashSet};
use std::ffi::{c_int, c_void};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Numbers that Fortran programs have set, and their addresses.
#[derive(Default)]
struct Numbers {
    by_value: HashMap<isize, usize>,
    addresses: HashSet<usize>,
}

static NUMBERS: LazyLock<Mutex<Numbers>> = LazyLock::new(Mutex::default);

/// Returns what C keeps for a number that Fortran sets: the address of a copy.
pub(crate) fn stored(value: isize) -> *mut c_void {
    let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(address) = numbers.by_value.get(&value) {
        return *address as *mut c_void;
    }
    let address = Box::into_raw(Box::new(value)) as usize;
    numbers.by_value.insert(value, address);
    numbers.addresses.insert(address);
    address as *mut c_void
}

/// Returns the number that Fortran gets for what C keeps: the one that Fortran set, or the address
/// that C set.
fn loaded(kept: isize) -> isize {
    let numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    match numbers.addresses.contains(&(kept as usize)) {
        // SAFETY: the address of a number that lives as long as the process.
        true => unsafe { *(kept as *const isize) },
        false => kept,
    }
}

/// Keys of communicators whose values C gives as addresses of ints.
const COMM_KEYS: std::ops::RangeInclusive<c_int> = 501..=507;
/// Keys of windows: the base, and those whose values C gives as addresses.
const WIN_DISP_UNIT: c_int = 602;
const WIN_SIZE: c_int = 603;
const WIN_CREATE_FLAVOR: c_int = 604;
const WIN_MODEL: c_int = 605;

/// Returns what a predefined key means in Fortran: the number at C's address.
///
/// # Safety
/// The value is what the C library gave for this key.
unsafe fn number(keyval: c_int, value: isize) -> isize {
    match keyval {
        // SAFETY: the address of an int.
        _ if COMM_KEYS.contains(&keyval) && value != 0 => unsafe {
            *(value as *const c_int) as isize
        },
        // SAFETY: as above.
        WIN_DISP_UNIT | WIN_CREATE_FLAVOR | WIN_MODEL if value != 0 => unsafe {
            *(value as *const c_int) as isize
        },
        // SAFETY: the address of an address-sized number.
        WIN_SIZE if value != 0 => unsafe { *(value as *const isize) },
        _ => loaded(value),
    }
}

/// Gives the value of an attribute its meaning in Fortran.
///
/// # Safety
/// The addresses are those of the routine's arguments.
pub(crate) unsafe fn value(
    code: c_int,
    flag: *const c_void,
    keyval: *const c_int,
    value: *mut isize,
) {
    // SAFETY: as the caller says.
    unsafe {
        if code == 0 && *flag.cast::<c_int>() != 0 {
            *value = number(*keyval, *value);
        }
    }
}

/// Gives the value of an attribute its meaning in the routines of MPI-1, whose values are
/// `INTEGER`s.
///
/// # Safety
/// The addresses are those of the routine's arguments.
pub(crate) unsafe fn old_value(
    code: c_int,
    flag: *const c_void,
    keyval: *const c_int,
    value: isize,
    to: *mut c_int,
) {
    // SAFETY: as the caller says.
    unsafe {
        if code == 0 && *flag.cast::<c_int>() != 0 {
            *to = number(*keyval, value) as c_int;
        }
    }
}

/// Copy function of Fortran. An address-sized number is an `INTEGER` in MPI-1's form.
type Copy = unsafe extern "C" fn(
    *const c_int,
    *const c_int,
    *const c_void,
    *const c_void,
    *mut c_void,
    *mut c_int,
    *mut c_int,
);
/// Delete function of Fortran.
type Delete =
    unsafe extern "C" fn(*const c_int, *const c_int, *const c_void, *const c_void, *mut c_int);

/// Copy and delete functions as the C library calls them.
pub(crate) type CCopy =
    unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
/// See [`CCopy`].
pub(crate) type CDelete = unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void) -> c_int;

/// The Fortran functions of an attribute key: C's extra state. Lives as long as the process, since
/// an attribute may outlive its key.
pub(crate) struct KeyFunctions {
    copy: Option<Copy>,
    delete: Option<Delete>,
    extra_state: isize,
    /// MPI-1's form: numbers are `INTEGER`s.
    is_old: bool,
}

/// What is passed to C for a copy function: one of C's own, by its value, or ours.
const C_NULL: usize = 0;
const C_DUP: usize = 1;

/// Returns the functions and the extra state that C gets for Fortran's.
pub(crate) fn for_c(
    copy: *mut c_void,
    delete: *mut c_void,
    extra_state: isize,
    is_old: bool,
) -> (usize, usize, *mut c_void) {
    let is_one_of = |function: *mut c_void, known: &[usize]| known.contains(&(function as usize));
    let null_copy = [
        address!(predefined::mpi_comm_null_copy_fn_),
        address!(predefined::mpi_type_null_copy_fn_),
        address!(predefined::mpi_win_null_copy_fn_),
        address!(predefined::mpi_null_copy_fn_),
    ];
    let dup = [
        address!(predefined::mpi_comm_dup_fn_),
        address!(predefined::mpi_type_dup_fn_),
        address!(predefined::mpi_win_dup_fn_),
        address!(predefined::mpi_dup_fn_),
    ];
    let null_delete = [
        address!(predefined::mpi_comm_null_delete_fn_),
        address!(predefined::mpi_type_null_delete_fn_),
        address!(predefined::mpi_win_null_delete_fn_),
        address!(predefined::mpi_null_delete_fn_),
    ];
    let mut functions = KeyFunctions {
        copy: None,
        delete: None,
        extra_state,
        is_old,
    };
    let for_copy = match () {
        () if copy.is_null() || is_one_of(copy, &null_copy) => C_NULL,
        () if is_one_of(copy, &dup) => C_DUP,
        () => {
            // SAFETY: a copy function of the program.
            functions.copy = Some(unsafe { std::mem::transmute::<*mut c_void, Copy>(copy) });
            call_copy as CCopy as usize
        }
    };
    let for_delete = match () {
        () if delete.is_null() || is_one_of(delete, &null_delete) => C_NULL,
        () => {
            // SAFETY: a delete function of the program.
            functions.delete = Some(unsafe { std::mem::transmute::<*mut c_void, Delete>(delete) });
            call_delete as CDelete as usize
        }
    };
    let state = Box::into_raw(Box::new(functions)).cast();
    (for_copy, for_delete, state)
}

/// Calls a copy function of Fortran.
unsafe extern "C" fn call_copy(
    object: usize,
    keyval: c_int,
    state: *mut c_void,
    value: *mut c_void,
    copied: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the state that was given with this function.
    let functions = unsafe { &*state.cast::<KeyFunctions>() };
    let Some(copy) = functions.copy else { return 0 };
    let object = object as c_int;
    let (mut is_copied, mut code) = (0, 0);
    let (extra, value) = (functions.extra_state, loaded(value as isize));
    let mut out: isize = 0;
    // SAFETY: the arguments of a copy function. In MPI-1's form the lower halves are read and
    // written, on machines where these come first.
    unsafe {
        copy(
            &raw const object,
            &raw const keyval,
            (&raw const extra).cast(),
            (&raw const value).cast(),
            (&raw mut out).cast(),
            &raw mut is_copied,
            &raw mut code,
        );
        *flag = is_copied & 1;
        if *flag != 0 {
            let out = if functions.is_old {
                out as c_int as isize
            } else {
                out
            };
            *copied.cast::<*mut c_void>() = stored(out);
        }
    }
    code
}

/// Calls a delete function of Fortran.
unsafe extern "C" fn call_delete(
    object: usize,
    keyval: c_int,
    value: *mut c_void,
    state: *mut c_void,
) -> c_int {
    // SAFETY: the state that was given with this function.
    let functions = unsafe { &*state.cast::<KeyFunctions>() };
    let Some(delete) = functions.delete else {
        return 0;
    };
    let object = object as c_int;
    let mut code = 0;
    let (extra, value) = (functions.extra_state, loaded(value as isize));
    // SAFETY: the arguments of a delete function.
    unsafe {
        delete(
            &raw const object,
            &raw const keyval,
            (&raw const value).cast(),
            (&raw const extra).cast(),
            &raw mut code,
        );
    }
    code
}
