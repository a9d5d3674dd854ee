//! Procedures that Fortran has and C has not: predefined functions of attributes and of data
//! representations, and `MPI_F_sync_reg`.

use crate::family::Family;
use crate::handles::set_ierror;
use std::ffi::{c_int, c_void};

/// Copy function that copies no attribute.
pub unsafe extern "C" fn null_copy(
    _object: *const c_int,
    _keyval: *const c_int,
    _extra_state: *const c_void,
    _value: *const c_void,
    _copied: *mut c_void,
    flag: *mut c_int,
    ierror: *mut c_int,
) {
    // SAFETY: the arguments of a copy function.
    unsafe {
        *flag = 0;
        set_ierror(ierror, 0);
    }
}

/// Copy function that copies a value of type `T`: an `INTEGER` in MPI-1's form, else a number of an
/// address's width.
pub unsafe extern "C" fn duplicate<T: Copy>(
    _object: *const c_int,
    _keyval: *const c_int,
    _extra_state: *const c_void,
    value: *const T,
    copied: *mut T,
    flag: *mut c_int,
    ierror: *mut c_int,
) {
    // SAFETY: the arguments of a copy function.
    unsafe {
        *copied = *value;
        *flag = 1;
        set_ierror(ierror, 0);
    }
}

/// Delete function that does nothing.
pub unsafe extern "C" fn null_delete(
    _object: *const c_int,
    _keyval: *const c_int,
    _value: *const c_void,
    _extra_state: *const c_void,
    ierror: *mut c_int,
) {
    // SAFETY: the arguments of a delete function.
    unsafe { set_ierror(ierror, 0) }
}

/// Conversion function of which only the address means something: that nothing is converted.
pub unsafe extern "C" fn null_conversion<F: Family>(
    _userbuf: *mut c_void,
    _datatype: *const c_int,
    _count: *const c_void,
    _filebuf: *mut c_void,
    _position: *const i64,
    _extra_state: *const isize,
    ierror: *mut c_int,
) {
    // SAFETY: the arguments of a conversion function.
    unsafe { set_ierror(ierror, F::NUMBERS.err_unsupported_operation) }
}

/// `MPI_F_sync_reg`: that the compiler does not see into it is all it does.
pub unsafe extern "C" fn sync_reg(_buf: *mut c_void) {}

/// `MPI_Sizeof` for variables of so many bytes.
pub unsafe extern "C" fn size_of_variable<const BYTES: c_int>(
    _variable: *const c_void,
    size: *mut c_int,
    ierror: *mut c_int,
) {
    // SAFETY: the arguments of the routine.
    unsafe {
        *size = BYTES;
        set_ierror(ierror, 0);
    }
}
