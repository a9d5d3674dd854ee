//! What the conversions need to know of an MPI library's ABI.

use crate::calls::Functions;
use crate::sentinels::Sentinels;
use std::ffi::{c_int, c_void};

/// Kinds of handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandleKind {
    /// `MPI_Comm`.
    Comm,
    /// `MPI_Datatype`.
    Datatype,
    /// `MPI_Errhandler`.
    Errhandler,
    /// `MPI_File`.
    File,
    /// `MPI_Group`.
    Group,
    /// `MPI_Info`.
    Info,
    /// `MPI_Message`.
    Message,
    /// `MPI_Op`.
    Op,
    /// `MPI_Request`.
    Request,
    /// `MPI_Session`.
    Session,
    /// `MPI_Win`.
    Win,
}

/// Copy, delete and conversion functions that the library has, by what they do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PredefinedFunction {
    /// Copies no attribute.
    NullCopy,
    /// Copies an attribute's value.
    Duplicate,
    /// Does nothing when an attribute is deleted.
    NullDelete,
    /// Says that a data representation needs no conversion.
    NullConversion,
}

/// Constants of C that the conversions look at.
#[derive(Debug)]
pub struct Numbers {
    /// `MPI_ERR_ARG`.
    pub err_arg: c_int,
    /// `MPI_ERR_IN_STATUS`.
    pub err_in_status: c_int,
    /// `MPI_ERR_UNSUPPORTED_OPERATION`.
    pub err_unsupported_operation: c_int,
    /// `MPI_CART`.
    pub cart: c_int,
    /// `MPI_GRAPH`.
    pub graph: c_int,
    /// `MPI_DIST_GRAPH`.
    pub dist_graph: c_int,
    /// Keys of communicators whose values C gives as addresses of ints.
    pub comm_keys: &'static [c_int],
    /// Keys of windows whose values C gives as addresses of ints.
    pub win_keys: &'static [c_int],
    /// `MPI_WIN_SIZE`, whose value C gives as the address of a number of an address's width.
    pub win_size: c_int,
}

/// The ABI of an MPI library as its Fortran programs see it, and the C library behind it.
///
/// Addresses that stand for something, such as that of `MPI_IN_PLACE`, are converted to those of C.
pub trait Family: Copy + 'static {
    /// Constants of C.
    const NUMBERS: Numbers;
    /// Address that stands for `MPI_IN_PLACE` in C.
    const IN_PLACE: usize;

    /// Returns the C functions.
    fn functions() -> &'static Functions;
    /// Returns the C handle of a Fortran handle.
    fn to_c(kind: HandleKind, handle: c_int) -> usize;
    /// Returns the Fortran handle of a C handle.
    fn from_c(kind: HandleKind, handle: usize) -> c_int;
    /// Returns the variables that are known by their addresses.
    fn sentinels() -> &'static Sentinels;
    /// Returns what the function at an address does, if it is one of the library's.
    fn predefined_function(address: usize) -> Option<PredefinedFunction>;
    /// Tells the C library that the function of an operation or of an error handler takes Fortran's
    /// handles. Called when the object was made.
    fn takes_fortran_handles(kind: HandleKind, handle: usize);

    /// Returns C's address of a buffer, of statuses, of weights or of error codes: another one if
    /// the address stands for something.
    #[inline(always)]
    fn c_address(at: *mut c_void) -> *mut c_void {
        Self::sentinels().c_address(at)
    }

    /// Returns whether strings stand for no arguments of a command, or of many commands.
    fn is_argv_null(at: *const u8) -> bool {
        Self::c_address(at.cast_mut().cast()).is_null()
    }
}

/// Returns whether a buffer is `MPI_IN_PLACE`.
pub fn is_in_place<F: Family>(at: *mut c_void) -> bool {
    F::c_address(at) as usize == F::IN_PLACE
}
