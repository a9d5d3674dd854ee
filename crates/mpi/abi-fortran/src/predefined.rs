//! What Fortran has and C has not: predefined functions of attributes as procedures, sizes of
//! variables, comparisons of handles, conversions of statuses, `MPI_F_sync_reg`.

use crate::handles::set_ierror;
use std::ffi::{c_int, c_void};
use std::ptr::copy_nonoverlapping;

/// Bytes of a status.
const STATUS_BYTES: usize = 32;

/// Copy functions that copy nothing.
macro_rules! null_copies {
    ($($name:ident)*) => {
        $(
            /// Says that the attribute is not copied.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
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
        )*
    };
}

null_copies! { mpi_comm_null_copy_fn_ mpi_type_null_copy_fn_ mpi_win_null_copy_fn_ }

/// Copy functions that copy the value, of this type.
macro_rules! duplicates {
    ($($name:ident $number:ty;)*) => {
        $(
            /// Copies the attribute's value.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                _object: *const c_int,
                _keyval: *const c_int,
                _extra_state: *const c_void,
                value: *const $number,
                copied: *mut $number,
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
        )*
    };
}

duplicates! {
    mpi_comm_dup_fn_ isize;
    mpi_type_dup_fn_ isize;
    mpi_win_dup_fn_ isize;
    mpi_dup_fn_ c_int;
}

null_copies! { mpi_null_copy_fn_ }

/// Delete functions that do nothing.
macro_rules! null_deletes {
    ($($name:ident)*) => {
        $(
            /// Does nothing.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                _object: *const c_int,
                _keyval: *const c_int,
                _value: *const c_void,
                _extra_state: *const c_void,
                ierror: *mut c_int,
            ) {
                // SAFETY: the arguments of a delete function.
                unsafe { set_ierror(ierror, 0) }
            }
        )*
    };
}

null_deletes! {
    mpi_comm_null_delete_fn_ mpi_type_null_delete_fn_ mpi_win_null_delete_fn_ mpi_null_delete_fn_
}

/// Class of the error that something is not supported.
const MPI_ERR_UNSUPPORTED_OPERATION: c_int = 55;

/// Conversions of which only the address means something: that nothing is converted.
macro_rules! null_conversions {
    ($($name:ident)*) => {
        $(
            /// Refuses: only its address means something.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                _userbuf: *mut c_void,
                _datatype: *const c_int,
                _count: *const c_void,
                _filebuf: *mut c_void,
                _position: *const i64,
                _extra_state: *const isize,
                ierror: *mut c_int,
            ) {
                // SAFETY: the arguments of a conversion function.
                unsafe { set_ierror(ierror, MPI_ERR_UNSUPPORTED_OPERATION) }
            }
        )*
    };
}

null_conversions! { mpi_conversion_fn_null_ mpi_conversion_fn_null_c_ }

/// `MPI_Sizeof` for variables of so many bytes.
macro_rules! sizes {
    ($($name:ident $bytes:literal;)*) => {
        $(
            /// Stores the size of a variable.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                _variable: *const c_void,
                size: *mut c_int,
                ierror: *mut c_int,
            ) {
                // SAFETY: the arguments of the routine.
                unsafe {
                    *size = $bytes;
                    set_ierror(ierror, 0);
                }
            }
        )*
    };
}

sizes! {
    garonne_sizeof_1 1;
    garonne_sizeof_2 2;
    garonne_sizeof_4 4;
    garonne_sizeof_8 8;
    garonne_sizeof_16 16;
}

/// `MPI_Status_f2f08` and `MPI_Status_f082f`: both forms have the same layout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_copy_status(from: *const u8, to: *mut u8, ierror: *mut c_int) {
    // SAFETY: the arguments of the routine.
    unsafe {
        copy_nonoverlapping(from, to, STATUS_BYTES);
        set_ierror(ierror, 0);
    }
}

/// Comparisons of handles in `mpi_f08`.
macro_rules! comparisons {
    ($($equal:ident $different:ident)*) => {
        $(
            /// Returns whether two handles are equal.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $equal(lhs: *const c_int, rhs: *const c_int) -> c_int {
                // SAFETY: the arguments of the operator.
                unsafe { c_int::from(*lhs == *rhs) }
            }

            /// Returns whether two handles differ.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $different(lhs: *const c_int, rhs: *const c_int) -> c_int {
                // SAFETY: the arguments of the operator.
                unsafe { c_int::from(*lhs != *rhs) }
            }
        )*
    };
}

comparisons! {
    garonne_comm_eq_ garonne_comm_ne_
    garonne_datatype_eq_ garonne_datatype_ne_
    garonne_errhandler_eq_ garonne_errhandler_ne_
    garonne_file_eq_ garonne_file_ne_
    garonne_group_eq_ garonne_group_ne_
    garonne_info_eq_ garonne_info_ne_
    garonne_message_eq_ garonne_message_ne_
    garonne_op_eq_ garonne_op_ne_
    garonne_request_eq_ garonne_request_ne_
    garonne_session_eq_ garonne_session_ne_
    garonne_win_eq_ garonne_win_ne_
}

/// `MPI_F_sync_reg`: that the compiler does not see into it is all it does.
macro_rules! sync_reg {
    ($($name:ident)*) => {
        $(
            /// Does nothing that a compiler could see.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(_buf: *mut c_void) {}
        )*
    };
}

sync_reg! { mpi_f_sync_reg_ pmpi_f_sync_reg_ mpi_f_sync_reg_f08ts pmpi_f_sync_reg_f08ts }
