//! Functions that Open MPI's libraries for Fortran and C++ call: how callbacks of these
//! languages are called.

#![allow(non_snake_case, reason = "the names are those of Open MPI")]

use crate::handles::{OpenMpi, fortran_cell};
use crate::wrappers::{native_errhandler, native_op};
use garonne_bodies::abi::convert::{Buf, CallSite};
use garonne_bodies::callback_conventions::{
    ErrhandlerConvention, ReductionConvention, set_errhandler, set_reduction,
};

/// Says that the function of an operation takes integers for handles.
pub extern "C-unwind" fn wrap_garonne_openmpi_op_takes_fortran_handles(op: usize, _: CallSite) {
    set_reduction(native_op(op), ReductionConvention::Handles(fortran_cell));
}

/// Says that the function of an error handler takes integers for handles.
pub extern "C-unwind" fn wrap_garonne_openmpi_errhandler_takes_fortran_handles(
    errhandler: usize,
    _: CallSite,
) {
    let convention = ErrhandlerConvention::Handles(fortran_cell);
    set_errhandler::<OpenMpi>(native_errhandler(errhandler), convention);
}

/// Says that the function with which an operation was made calls this function of C++.
pub extern "C-unwind" fn wrap_ompi_op_set_cxx_callback(op: usize, function: Buf, _: CallSite) {
    set_reduction(native_op(op), ReductionConvention::Calls(function.addr()));
}
