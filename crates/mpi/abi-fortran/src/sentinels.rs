//! Variables that are known by their addresses: `MPI_BOTTOM`, `MPI_IN_PLACE` and others.
//!
//! `mpif.h` has them in common blocks, under the names and in the order of MPICH's. The modules
//! have them as variables with a name of the linker. The loader gives program and library one copy
//! of each, so addresses are read through the table of the loader (the GOT), never directly: the
//! copy is that of the program.

use garonne_fortran::address;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// Size of a status in `INTEGER`s.
const STATUS: usize = 8;

/// Defines variables that Fortran programs refer to.
macro_rules! variables {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr;)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals, reason = "the name is that of the linker")]
            pub static mut $name: $type = $value;
        )*
    };
}

variables! {
    /// `mpif.h`: bottom, in place, status to ignore.
    mpipriv1_: [c_int; 2 + STATUS] = [0; 2 + STATUS];
    /// `mpif.h`: statuses to ignore, error codes to ignore.
    mpipriv2_: [c_int; STATUS + 1] = [0; STATUS + 1];
    /// `mpif.h`: no arguments for many commands, no arguments for one.
    mpiprivc_: [u8; 2] = [0; 2];
    /// `mpif.h`: no weights.
    mpifcmb5_: [c_int; 1] = [0];
    /// `mpif.h`: weights that are empty.
    mpifcmb9_: [c_int; 1] = [0];
    /// `mpif.h`: a buffer that the library makes.
    mpifcmba_: [c_int; 1] = [0];
    /// Modules.
    garonne_fortran_bottom: c_int = 0;
    /// Modules.
    garonne_fortran_in_place: c_int = 0;
    /// Modules.
    garonne_fortran_buffer_automatic: c_int = 0;
    /// Modules.
    garonne_fortran_errcodes_ignore: [c_int; 1] = [0];
    /// Modules.
    garonne_fortran_unweighted: [c_int; 1] = [0];
    /// Modules.
    garonne_fortran_weights_empty: [c_int; 1] = [0];
    /// Modules.
    garonne_fortran_argv_null: [u8; 1] = [0];
    /// Modules.
    garonne_fortran_argvs_null: [u8; 1] = [0];
    /// Module `mpi`.
    garonne_fortran_status_ignore: [c_int; STATUS] = [0; STATUS];
    /// Module `mpi`.
    garonne_fortran_statuses_ignore: [c_int; STATUS] = [0; STATUS];
    /// Module `mpi_f08`.
    garonne_fortran_f08_status_ignore: [c_int; STATUS] = [0; STATUS];
    /// Module `mpi_f08`.
    garonne_fortran_f08_statuses_ignore: [c_int; STATUS] = [0; STATUS];
}

/// Bytes of an `INTEGER`.
const INTEGER: usize = size_of::<c_int>();

/// `MPI_IN_PLACE` of C.
pub(crate) const IN_PLACE: usize = 1;
/// `MPI_BUFFER_AUTOMATIC` of C.
const BUFFER_AUTOMATIC: *mut c_void = std::ptr::without_provenance_mut(2);
/// `MPI_UNWEIGHTED` of C.
const UNWEIGHTED: *mut c_void = std::ptr::without_provenance_mut(10);
/// `MPI_WEIGHTS_EMPTY` of C.
const WEIGHTS_EMPTY: *mut c_void = std::ptr::without_provenance_mut(11);

/// Returns C's address of a buffer.
#[inline]
pub(crate) fn buffer(at: *mut c_void) -> *mut c_void {
    let place = at as usize;
    let in_block = place.wrapping_sub(address!(mpipriv1_));
    if in_block < 2 * INTEGER {
        return if in_block < INTEGER {
            null_mut()
        } else {
            std::ptr::without_provenance_mut(IN_PLACE)
        };
    }
    if place == address!(garonne_fortran_in_place) {
        return std::ptr::without_provenance_mut(IN_PLACE);
    }
    if place == address!(garonne_fortran_bottom) {
        return null_mut();
    }
    if place == address!(garonne_fortran_buffer_automatic) || place == address!(mpifcmba_) {
        return BUFFER_AUTOMATIC;
    }
    at
}

/// Returns whether a status is one to ignore, whichever.
fn is_ignored(place: usize) -> bool {
    place == address!(mpipriv1_) + 2 * INTEGER
        || place == address!(mpipriv2_)
        || place == address!(garonne_fortran_status_ignore)
        || place == address!(garonne_fortran_statuses_ignore)
        || place == address!(garonne_fortran_f08_status_ignore)
        || place == address!(garonne_fortran_f08_statuses_ignore)
}

/// Returns C's address of a status or of an array of statuses.
#[inline]
pub(crate) fn status(at: *mut c_void) -> *mut c_void {
    if is_ignored(at as usize) {
        null_mut()
    } else {
        at
    }
}

/// Returns C's address of error codes.
pub(crate) fn error_codes(at: *mut c_void) -> *mut c_void {
    let place = at as usize;
    let is_ignored = place == address!(mpipriv2_) + STATUS * INTEGER
        || place == address!(garonne_fortran_errcodes_ignore);
    if is_ignored { null_mut() } else { at }
}

/// Returns C's address of weights.
pub(crate) fn weights(at: *mut c_void) -> *mut c_void {
    let place = at as usize;
    if place == address!(mpifcmb5_) || place == address!(garonne_fortran_unweighted) {
        return UNWEIGHTED;
    }
    if place == address!(mpifcmb9_) || place == address!(garonne_fortran_weights_empty) {
        return WEIGHTS_EMPTY;
    }
    at
}

/// Returns whether an argument stands for no arguments of a command.
pub(crate) fn is_argv_null(at: *const u8) -> bool {
    let place = at as usize;
    place == address!(mpiprivc_) + 1 || place == address!(garonne_fortran_argv_null)
}

/// Returns whether an argument stands for no arguments of many commands.
pub(crate) fn is_argvs_null(at: *const u8) -> bool {
    let place = at as usize;
    place == address!(mpiprivc_) || place == address!(garonne_fortran_argvs_null)
}
