//! Values of attributes, and the copy and delete functions of attribute keys.
//!
//! The value that Fortran sets is a number. C gets the address of a number for it, as the standard
//! says, and Fortran gets the number back ([`stored`], [`loaded`]). Numbers live as long as the
//! process, each once, because a C program may keep the address.

use crate::family::{Family, HandleKind, PredefinedFunction};
use std::collections::{HashMap, HashSet};
use std::ffi::{c_int, c_void};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Numbers that Fortran programs have set, and their addresses.
#[derive(Default)]
struct StoredNumbers {
    by_value: HashMap<isize, usize>,
    addresses: HashSet<usize>,
}

static NUMBERS: LazyLock<Mutex<StoredNumbers>> = LazyLock::new(Mutex::default);

/// Returns what C keeps for a number that Fortran sets: the address of a copy.
pub fn stored(value: isize) -> *mut c_void {
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
    number_at(kept as usize).unwrap_or(kept)
}

/// Returns the number that Fortran has set, if what C keeps is the address of one.
pub fn number_at(kept: usize) -> Option<isize> {
    let numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_number = numbers.addresses.contains(&kept);
    // SAFETY: the address of a number that lives as long as the process.
    is_number.then(|| unsafe { *(kept as *const isize) })
}

/// Returns what a predefined key means in Fortran: the number at C's address.
///
/// # Safety
/// The value is what the C library gave for this key.
unsafe fn number<F: Family>(keyval: c_int, value: isize) -> isize {
    let numbers = F::NUMBERS;
    if value == 0 {
        return 0;
    }
    // SAFETY: the address of an int, or of a number of an address's width.
    unsafe {
        match keyval {
            _ if numbers.comm_keys.contains(&keyval) => *(value as *const c_int) as isize,
            _ if numbers.win_keys.contains(&keyval) => *(value as *const c_int) as isize,
            _ if keyval == numbers.win_size => *(value as *const isize),
            _ => loaded(value),
        }
    }
}

/// Gives the value of an attribute its meaning in Fortran.
///
/// # Safety
/// The addresses are those of the routine's arguments.
pub unsafe fn value<F: Family>(
    code: c_int,
    flag: *const c_void,
    keyval: *const c_int,
    value: *mut isize,
) {
    // SAFETY: as the caller says.
    unsafe {
        if code == 0 && *flag.cast::<c_int>() != 0 {
            *value = number::<F>(*keyval, *value);
        }
    }
}

/// Gives the value of an attribute its meaning in the routines of MPI-1, whose values are
/// `INTEGER`s.
///
/// # Safety
/// The addresses are those of the routine's arguments.
pub unsafe fn old_value<F: Family>(
    code: c_int,
    flag: *const c_void,
    keyval: *const c_int,
    value: isize,
    to: *mut c_int,
) {
    // SAFETY: as the caller says.
    unsafe {
        if code == 0 && *flag.cast::<c_int>() != 0 {
            *to = number::<F>(*keyval, value) as c_int;
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

/// Copy function as the C library calls it.
type CCopy =
    unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
/// Delete function as the C library calls it.
type CDelete = unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void) -> c_int;

/// What happens to a value when its object is duplicated.
enum OnCopy {
    /// The value is not copied.
    Nothing,
    /// The copy has the value, too.
    Duplicate,
    /// The program's function decides.
    Call(Copy),
}

/// The Fortran functions of an attribute key: C's extra state. Lives as long as the process, since
/// an attribute may outlive its key.
struct KeyFunctions {
    /// Kind of the objects that have the attribute.
    kind: HandleKind,
    copy: OnCopy,
    delete: Option<Delete>,
    extra_state: isize,
    /// MPI-1's form: numbers are `INTEGER`s.
    is_old: bool,
}

/// Returns the functions and the extra state that C gets for Fortran's.
pub fn for_c<F: Family>(
    kind: HandleKind,
    copy: *mut c_void,
    delete: *mut c_void,
    extra_state: isize,
    is_old: bool,
) -> (usize, usize, *mut c_void) {
    let copy = match F::predefined_function(copy as usize) {
        _ if copy.is_null() => OnCopy::Nothing,
        Some(PredefinedFunction::NullCopy) => OnCopy::Nothing,
        Some(PredefinedFunction::Duplicate) => OnCopy::Duplicate,
        // SAFETY: a copy function of the program.
        _ => OnCopy::Call(unsafe { std::mem::transmute::<*mut c_void, Copy>(copy) }),
    };
    let is_null = delete.is_null()
        || F::predefined_function(delete as usize) == Some(PredefinedFunction::NullDelete);
    // SAFETY: a delete function of the program.
    let delete = (!is_null).then(|| unsafe { std::mem::transmute::<*mut c_void, Delete>(delete) });
    let state = Box::into_raw(Box::new(KeyFunctions {
        kind,
        copy,
        delete,
        extra_state,
        is_old,
    }));
    let (copy, delete) = (call_copy::<F> as CCopy, call_delete::<F> as CDelete);
    (copy as usize, delete as usize, state.cast())
}

/// Copies an attribute as the program has said.
unsafe extern "C" fn call_copy<F: Family>(
    object: usize,
    keyval: c_int,
    state: *mut c_void,
    value: *mut c_void,
    copied: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the state that was given with this function.
    let functions = unsafe { &*state.cast::<KeyFunctions>() };
    let copied = copied.cast::<*mut c_void>();
    // SAFETY: the places that C gives a copy function.
    let copy = unsafe {
        *flag = c_int::from(matches!(functions.copy, OnCopy::Duplicate));
        match functions.copy {
            OnCopy::Nothing => return 0,
            OnCopy::Duplicate => {
                *copied = value;
                return 0;
            }
            OnCopy::Call(copy) => copy,
        }
    };
    let object = F::from_c(functions.kind, object);
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
            *copied = stored(out);
        }
    }
    code
}

/// Calls the delete function of Fortran, if there is one.
unsafe extern "C" fn call_delete<F: Family>(
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
    let object = F::from_c(functions.kind, object);
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
