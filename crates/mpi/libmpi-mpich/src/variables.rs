//! Exported variables, under the names and with the sizes that MPICH's library has.
//!
//! A program that is not position-independent has copies of these, which its loader fills in. So no
//! code of ours may read them here.

#![allow(
    non_upper_case_globals,
    reason = "names that programs and Fortran libraries refer to"
)]

use std::sync::atomic::{AtomicI32, AtomicPtr};

/// A status of Fortran: five integers.
pub type FortranStatus = [AtomicI32; 5];

/// `MPI_UNWEIGHTED`, a pointer that programs compare and pass on.
#[unsafe(no_mangle)]
pub static MPI_UNWEIGHTED: usize = 10;
/// `MPI_WEIGHTS_EMPTY`, a pointer that programs compare and pass on.
#[unsafe(no_mangle)]
pub static MPI_WEIGHTS_EMPTY: usize = 11;
/// `MPI_UNWEIGHTED`, for the modules of Fortran.
#[unsafe(no_mangle)]
pub static MPIR_C_MPI_UNWEIGHTED: usize = 10;
/// `MPI_WEIGHTS_EMPTY`, for the modules of Fortran.
#[unsafe(no_mangle)]
pub static MPIR_C_MPI_WEIGHTS_EMPTY: usize = 11;
/// `MPI_T_PVAR_ALL_HANDLES`, a handle.
#[unsafe(no_mangle)]
pub static MPI_T_PVAR_ALL_HANDLES: usize = 1;

/// Address of `MPI_STATUS_IGNORE` of `mpif.h`, which MPICH's Fortran library sets.
#[unsafe(no_mangle)]
pub static MPI_F_STATUS_IGNORE: AtomicPtr<FortranStatus> = AtomicPtr::new(std::ptr::null_mut());
/// Address of `MPI_STATUSES_IGNORE` of `mpif.h`, which MPICH's Fortran library sets.
#[unsafe(no_mangle)]
pub static MPI_F_STATUSES_IGNORE: AtomicPtr<FortranStatus> = AtomicPtr::new(std::ptr::null_mut());

/// `MPI_STATUS_IGNORE` of `mpi_f08`, known by its address.
#[unsafe(no_mangle)]
pub static MPIR_F08_MPI_STATUS_IGNORE_OBJ: FortranStatus = [const { AtomicI32::new(0) }; 5];
/// `MPI_STATUSES_IGNORE` of `mpi_f08`, known by its address.
#[unsafe(no_mangle)]
pub static MPIR_F08_MPI_STATUSES_IGNORE_OBJ: FortranStatus = [const { AtomicI32::new(0) }; 5];
/// `MPI_BOTTOM` of `mpi_f08`, known by its address.
#[unsafe(no_mangle)]
pub static MPIR_F08_MPI_BOTTOM: AtomicI32 = AtomicI32::new(0);
/// `MPI_IN_PLACE` of `mpi_f08`, known by its address.
#[unsafe(no_mangle)]
pub static MPIR_F08_MPI_IN_PLACE: AtomicI32 = AtomicI32::new(0);

/// Address of `MPI_STATUS_IGNORE` of `mpi_f08`.
#[unsafe(no_mangle)]
pub static MPI_F08_STATUS_IGNORE: AtomicPtr<FortranStatus> =
    AtomicPtr::new((&raw const MPIR_F08_MPI_STATUS_IGNORE_OBJ).cast_mut());
/// Address of `MPI_STATUSES_IGNORE` of `mpi_f08`.
#[unsafe(no_mangle)]
pub static MPI_F08_STATUSES_IGNORE: AtomicPtr<FortranStatus> =
    AtomicPtr::new((&raw const MPIR_F08_MPI_STATUSES_IGNORE_OBJ).cast_mut());

/// Shows that the library is Garonne's, and which one.
#[unsafe(no_mangle)]
pub static garonne_libmpi_mpich: u32 = 12;
/// Text that MPICH's `mpichversion` copies and prints.
#[unsafe(no_mangle)]
pub static MPII_Version_ABI: [u8; 7] = *b"12:2:0\0";
/// Text that MPICH's `mpichversion` copies and prints.
#[unsafe(no_mangle)]
pub static MPII_Version_CC: [u8; 1] = *b"\0";
/// Text that MPICH's `mpichversion` copies and prints.
#[unsafe(no_mangle)]
pub static MPII_Version_CXX: [u8; 1] = *b"\0";
/// Text that MPICH's `mpichversion` copies and prints.
#[unsafe(no_mangle)]
pub static MPII_Version_F77: [u8; 1] = *b"\0";
/// Text that MPICH's `mpichversion` copies and prints.
#[unsafe(no_mangle)]
pub static MPII_Version_FC: [u8; 1] = *b"\0";
/// Text that MPICH's `mpichversion` copies and prints.
#[unsafe(no_mangle)]
pub static MPII_Version_configure: [u8; 1] = *b"\0";
/// Text that MPICH's `mpichversion` copies and prints.
#[unsafe(no_mangle)]
pub static MPII_Version_custom: [u8; 1] = *b"\0";
/// Text that MPICH's `mpichversion` copies and prints.
#[unsafe(no_mangle)]
pub static MPII_Version_date: [u8; 1] = *b"\0";
/// Text that MPICH's `mpichversion` copies and prints.
#[unsafe(no_mangle)]
pub static MPII_Version_device: [u8; 8] = *b"garonne\0";
/// Text that MPICH's `mpichversion` copies and prints.
#[unsafe(no_mangle)]
pub static MPII_Version_string: [u8; 6] = *b"4.0.2\0";
