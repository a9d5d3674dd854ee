//! `libmpifort_abi.so.1`: MPI for Fortran, over the C functions of the MPI 5 standard ABI.
//!
//! Owns the symbols that `mpif.h` and the modules `mpi` and `mpi_f08` refer to: one function for
//! each routine, generated from the table of C functions and `abi/fortran.txt`, and the variables
//! that are known by their addresses, such as `MPI_IN_PLACE`. No Fortran is compiled into it.
//!
//! A routine converts its arguments and calls `MPI_X`, so that tools that replace `MPI_X` see the
//! calls of Fortran programs; `PMPI_X` of Fortran calls `PMPI_X` of C. C functions are looked up
//! when they are first called ([`calls`]).
//!
//! A handle is an `INTEGER` in Fortran and has the value of the C handle's word. A logical that is
//! read is true if its lowest bit is set, and is written as 0 or 1: both are right for every
//! compiler.
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

/// The whole body of a naked exported function: passes the caller's return address on in the first
/// floating-point register, as the C library's entry points do, and jumps.
#[cfg(target_arch = "x86_64")]
macro_rules! entry_point {
    ($function:path) => {
        std::arch::naked_asm!(
            "movsd xmm0, qword ptr [rsp]",
            "jmp {function}",
            function = sym $function,
        )
    };
}

/// The whole body of a naked exported function.
#[cfg(target_arch = "aarch64")]
macro_rules! entry_point {
    ($function:path) => {
        std::arch::naked_asm!(
            "fmov d0, x30",
            "b {function}",
            function = sym $function,
        )
    };
}

mod attributes;
mod calls;
mod handles;
mod peers;
mod predefined;
mod removed;
mod sections;
mod sentinels;
mod special;
mod strings;

/// Generated routines and their exported symbols.
mod routines {
    #![allow(non_upper_case_globals, reason = "names contain those of the standard")]
    #![allow(
        clippy::borrow_as_ptr,
        clippy::unnecessary_cast,
        clippy::ref_as_ptr,
        reason = "arguments of all kinds are converted by one rule"
    )]

    use crate::calls::{self, Site};
    use crate::handles::{Handles, logical, narrow, set_ierror, widen};
    use crate::handles::{count_from_one, count_from_one_some};
    use crate::sections::{self, Descriptor, Lasting, Section};
    use crate::strings::{StringIn, StringOut};
    use crate::{attributes, peers, sentinels, special};
    use std::ffi::{CStr, c_int, c_void};
    use std::mem::transmute;
    use std::ptr::null_mut;

    include!(concat!(env!("OUT_DIR"), "/glue.rs"));
}
