//! Common blocks of `mpif.h` whose addresses mean something: `MPI_BOTTOM`, `MPI_IN_PLACE` and
//! others.
//!
//! The program defines the blocks, too. The loader gives program and library one copy of each, so
//! addresses are read through the table of the loader (the GOT), never directly.

use garonne_fortran::address;
use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};

/// Size of a status in `INTEGER`s.
const STATUS: usize = 6;

/// Defines common blocks.
macro_rules! blocks {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr;)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals, reason = "the name is that of the linker")]
            pub static mut $name: $type = $value;
        )*
    };
}

blocks! {
    /// `MPI_BOTTOM`.
    mpi_fortran_bottom_: c_int = 0;
    /// `MPI_IN_PLACE`.
    mpi_fortran_in_place_: c_int = 0;
    /// `MPI_ARGV_NULL`.
    mpi_fortran_argv_null_: u8 = 0;
    /// `MPI_ARGVS_NULL`.
    mpi_fortran_argvs_null_: u8 = 0;
    /// `MPI_ERRCODES_IGNORE`.
    mpi_fortran_errcodes_ignore_: c_int = 0;
    /// `MPI_STATUS_IGNORE`.
    mpi_fortran_status_ignore_: [c_int; STATUS] = [0; STATUS];
    /// `MPI_STATUSES_IGNORE`.
    mpi_fortran_statuses_ignore_: [c_int; STATUS] = [0; STATUS];
    /// `MPI_UNWEIGHTED`.
    mpi_fortran_unweighted_: c_int = 0;
    /// `MPI_WEIGHTS_EMPTY`.
    mpi_fortran_weights_empty_: c_int = 0;
}

/// `MPI_IN_PLACE` of C.
pub(crate) const IN_PLACE: usize = 1;
/// `MPI_UNWEIGHTED` of C.
const UNWEIGHTED: usize = 2;
/// `MPI_WEIGHTS_EMPTY` of C.
const WEIGHTS_EMPTY: usize = 3;

/// Returns C's address of a buffer.
#[inline]
pub(crate) fn buffer(at: *mut c_void) -> *mut c_void {
    match at as usize {
        place if place == address!(mpi_fortran_in_place_) => without_provenance_mut(IN_PLACE),
        place if place == address!(mpi_fortran_bottom_) => null_mut(),
        _ => at,
    }
}

/// Returns C's address of a status or of an array of statuses.
#[inline]
pub(crate) fn status(at: *mut c_void) -> *mut c_void {
    let place = at as usize;
    let is_ignored = place == address!(mpi_fortran_status_ignore_)
        || place == address!(mpi_fortran_statuses_ignore_);
    if is_ignored { null_mut() } else { at }
}

/// Returns C's address of error codes.
pub(crate) fn error_codes(at: *mut c_void) -> *mut c_void {
    let is_ignored = at as usize == address!(mpi_fortran_errcodes_ignore_);
    if is_ignored { null_mut() } else { at }
}

/// Returns C's address of weights.
pub(crate) fn weights(at: *mut c_void) -> *mut c_void {
    match at as usize {
        place if place == address!(mpi_fortran_unweighted_) => without_provenance_mut(UNWEIGHTED),
        place if place == address!(mpi_fortran_weights_empty_) => {
            without_provenance_mut(WEIGHTS_EMPTY)
        }
        _ => at,
    }
}

/// Returns whether an argument stands for no arguments of a command.
pub(crate) fn is_argv_null(at: *const u8) -> bool {
    at as usize == address!(mpi_fortran_argv_null_)
}

/// Returns whether an argument stands for no arguments of many commands.
pub(crate) fn is_argvs_null(at: *const u8) -> bool {
    at as usize == address!(mpi_fortran_argvs_null_)
}
