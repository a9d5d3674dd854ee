//! Procedures that the modules `mpi` and `mpi_f08` refer to: sizes of variables, comparisons of
//! handles, conversions of statuses.

use garonne_fortran::handles::set_ierror;
use std::ffi::{c_int, c_void};
use std::ptr::copy_nonoverlapping;

/// Bytes of a status.
const STATUS_BYTES: usize = 32;

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

/// Returns whether two handles are equal, for the operators of `mpi_f08`.
pub(crate) unsafe extern "C" fn are_equal(lhs: *const c_int, rhs: *const c_int) -> c_int {
    // SAFETY: the arguments of the operator.
    unsafe { c_int::from(*lhs == *rhs) }
}

/// Returns whether two handles differ.
pub(crate) unsafe extern "C" fn are_different(lhs: *const c_int, rhs: *const c_int) -> c_int {
    // SAFETY: the arguments of the operator.
    unsafe { c_int::from(*lhs != *rhs) }
}
