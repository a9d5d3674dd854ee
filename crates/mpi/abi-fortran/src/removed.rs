//! The routines that MPI 3.0 removed and programs still call: `MPI_ADDRESS` and others, whose
//! addresses are `INTEGER`s. They are reached by `mpif.h` and without an interface.

use crate::calls::{Function, own};
use crate::handles::{Handles, narrow, set_ierror, widen};
use crate::sentinels;
use smallvec::SmallVec;
use std::ffi::{c_int, c_void};
use std::mem::transmute;

/// Class of the error that an argument is wrong.
const MPI_ERR_ARG: c_int = 13;

/// Returns a number of the C library as an `INTEGER`; `None`: it does not fit.
fn as_integer(value: isize) -> Option<c_int> {
    c_int::try_from(value).ok()
}

/// Defines a routine under both its names.
macro_rules! routines {
    ($($name:ident $profiled:ident ($($argument:ident: $type:ty),*) $body:block)*) => {
        $(
            /// See the module's description.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) $body

            /// See the module's description.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $profiled($($argument: $type),*) {
                // SAFETY: the same arguments.
                unsafe { $name($($argument),*) }
            }
        )*
    };
}

type GetAddress = unsafe extern "C" fn(*mut c_void, *mut isize) -> c_int;
type OneHandle = unsafe extern "C" fn(usize, *mut usize) -> c_int;
type SetHandle = unsafe extern "C" fn(usize, usize) -> c_int;
type Create = unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int;
type TypeExtent = unsafe extern "C" fn(usize, *mut isize, *mut isize) -> c_int;
type Hindexed = unsafe extern "C" fn(c_int, *const c_int, *const isize, usize, *mut usize) -> c_int;
type Hvector = unsafe extern "C" fn(c_int, c_int, isize, usize, *mut usize) -> c_int;
type Struct =
    unsafe extern "C" fn(c_int, *const c_int, *const isize, *mut usize, *mut usize) -> c_int;

/// Stores a number of the C library, or says that it does not fit.
///
/// # Safety
/// The addresses are those of `INTEGER`s; `ierror` may be null.
unsafe fn give(code: c_int, value: isize, to: *mut c_int, ierror: *mut c_int) {
    // SAFETY: as the caller says.
    unsafe {
        match as_integer(value) {
            Some(value) if code == 0 => {
                *to = value;
                set_ierror(ierror, 0);
            }
            _ => set_ierror(ierror, if code == 0 { MPI_ERR_ARG } else { code }),
        }
    }
}

/// Returns lower bound and extent of a type.
fn extent(datatype: usize) -> (c_int, isize, isize) {
    let (mut lower, mut extent) = (0, 0);
    // SAFETY: the function has this type, and checks the handle.
    let code = unsafe {
        let call = transmute::<Function, TypeExtent>(own(c"MPI_Type_get_extent"));
        call(datatype, &raw mut lower, &raw mut extent)
    };
    (code, lower, extent)
}

/// Returns so many displacements.
///
/// # Safety
/// The array has so many elements.
unsafe fn displacements(from: *const c_int, count: c_int) -> SmallVec<[isize; 16]> {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: as the caller says.
    (0..count)
        .map(|at| unsafe { *from.add(at) as isize })
        .collect()
}

routines! {
    mpi_address_ pmpi_address_ (location: *mut c_void, address: *mut c_int, ierror: *mut c_int) {
        // SAFETY: the arguments of the routine.
        unsafe {
            let call = transmute::<Function, GetAddress>(own(c"MPI_Get_address"));
            let mut value = 0;
            let code = call(sentinels::buffer(location), &raw mut value);
            give(code, value, address, ierror);
        }
    }
    mpi_errhandler_create_ pmpi_errhandler_create_
    (function: *mut c_void, errhandler: *mut c_int, ierror: *mut c_int) {
        // SAFETY: the arguments of the routine.
        unsafe {
            let call = transmute::<Function, Create>(own(c"MPI_Comm_create_errhandler"));
            let mut handle = 0;
            let code = call(function, &raw mut handle);
            narrow(errhandler, handle);
            set_ierror(ierror, code);
        }
    }
    mpi_errhandler_get_ pmpi_errhandler_get_
    (comm: *const c_int, errhandler: *mut c_int, ierror: *mut c_int) {
        // SAFETY: the arguments of the routine.
        unsafe {
            let call = transmute::<Function, OneHandle>(own(c"MPI_Comm_get_errhandler"));
            let mut handle = 0;
            let code = call(widen(comm), &raw mut handle);
            narrow(errhandler, handle);
            set_ierror(ierror, code);
        }
    }
    mpi_errhandler_set_ pmpi_errhandler_set_
    (comm: *const c_int, errhandler: *const c_int, ierror: *mut c_int) {
        // SAFETY: the arguments of the routine.
        unsafe {
            let call = transmute::<Function, SetHandle>(own(c"MPI_Comm_set_errhandler"));
            set_ierror(ierror, call(widen(comm), widen(errhandler)));
        }
    }
    mpi_type_extent_ pmpi_type_extent_
    (datatype: *const c_int, to: *mut c_int, ierror: *mut c_int) {
        // SAFETY: the arguments of the routine.
        unsafe {
            let (code, _, extent) = extent(widen(datatype));
            give(code, extent, to, ierror);
        }
    }
    mpi_type_lb_ pmpi_type_lb_ (datatype: *const c_int, to: *mut c_int, ierror: *mut c_int) {
        // SAFETY: the arguments of the routine.
        unsafe {
            let (code, lower, _) = extent(widen(datatype));
            give(code, lower, to, ierror);
        }
    }
    mpi_type_ub_ pmpi_type_ub_ (datatype: *const c_int, to: *mut c_int, ierror: *mut c_int) {
        // SAFETY: the arguments of the routine.
        unsafe {
            let (code, lower, extent) = extent(widen(datatype));
            give(code, lower + extent, to, ierror);
        }
    }
    mpi_type_hindexed_ pmpi_type_hindexed_
    (count: *const c_int, lengths: *const c_int, places: *const c_int, old: *const c_int,
     new: *mut c_int, ierror: *mut c_int) {
        // SAFETY: the arguments of the routine.
        unsafe {
            let call = transmute::<Function, Hindexed>(own(c"MPI_Type_create_hindexed"));
            let places = displacements(places, *count);
            let mut handle = widen(new);
            let code = call(*count, lengths, places.as_ptr(), widen(old), &raw mut handle);
            narrow(new, handle);
            set_ierror(ierror, code);
        }
    }
    mpi_type_hvector_ pmpi_type_hvector_
    (count: *const c_int, length: *const c_int, stride: *const c_int, old: *const c_int,
     new: *mut c_int, ierror: *mut c_int) {
        // SAFETY: the arguments of the routine.
        unsafe {
            let call = transmute::<Function, Hvector>(own(c"MPI_Type_create_hvector"));
            let mut handle = widen(new);
            let code = call(*count, *length, *stride as isize, widen(old), &raw mut handle);
            narrow(new, handle);
            set_ierror(ierror, code);
        }
    }
    mpi_type_struct_ pmpi_type_struct_
    (count: *const c_int, lengths: *const c_int, places: *const c_int, types: *const c_int,
     new: *mut c_int, ierror: *mut c_int) {
        // SAFETY: the arguments of the routine.
        unsafe {
            let call = transmute::<Function, Struct>(own(c"MPI_Type_create_struct"));
            let places = displacements(places, *count);
            let mut types = Handles::read(types, (*count).into());
            let mut handle = widen(new);
            let code =
                call(*count, lengths, places.as_ptr(), types.as_mut_ptr(), &raw mut handle);
            narrow(new, handle);
            set_ierror(ierror, code);
        }
    }
}
