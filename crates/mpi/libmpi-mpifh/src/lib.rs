//! `libmpi_mpifh.so.40`: the Fortran routines of Open MPI's ABI.
//!
//! Owns the symbols that programs built with Open MPI's `mpif.h`, `mpi` and `mpi_f08` refer to: one
//! function for each routine under each name that a compiler may make of it, those that Open MPI's
//! module libraries call, and the common blocks of special addresses.
//!
//! A routine converts its arguments and calls `MPI_X` of `libmpi.so.40`, with that ABI's handles
//! and numbers. So tools for Open MPI that replace `MPI_X` see the calls of Fortran programs.
//! `PMPI_X` of Fortran calls `PMPI_X` of C. The conversions are those of `garonne-fortran`.
//!
//! Errors: every routine reports C's error code in `ierror`, if it is there.

#![allow(
    unsafe_code,
    reason = "arguments of Fortran are addresses: the caller vouches for them"
)]
#![allow(
    clippy::too_many_arguments,
    reason = "routines take the arguments of the standard"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the functions are called by Fortran, as the standard says"
)]

mod family;
mod handles;
mod sentinels;

/// Generated routines and their exported symbols.
mod routines {
    #![allow(
        non_upper_case_globals,
        non_snake_case,
        reason = "names contain those of the standard"
    )]
    #![allow(
        clippy::borrow_as_ptr,
        clippy::unnecessary_cast,
        clippy::ref_as_ptr,
        reason = "arguments of all kinds are converted by one rule"
    )]

    use crate::family::OpenMpi as F;
    use crate::sentinels::SENTINELS;
    use garonne_fortran::calls::{self, Site};
    use garonne_fortran::family::{Family, HandleKind, PredefinedFunction, is_in_place};
    use garonne_fortran::handles::{self, Handles, logical, narrow, set_ierror, widen};
    use garonne_fortran::handles::{count_from_one, count_from_one_some};
    use garonne_fortran::strings::{StringIn, StringOut};
    use garonne_fortran::{
        address, attributes, bound_entry_point, entry_point, peers, predefined, removed, special,
    };
    use std::ffi::{CStr, c_int, c_void};
    use std::mem::transmute;
    use std::ptr::null_mut;

    include!(concat!(env!("OUT_DIR"), "/glue.rs"));
}
