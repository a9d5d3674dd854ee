//! The routines that MPI 3.0 removed and programs still call: `MPI_ADDRESS` and others, whose
//! addresses are `INTEGER`s. They are reached by `mpif.h` and without an interface.

use crate::calls::{Function, own};
use crate::family::{Family, HandleKind};
use crate::handles::{self, Handles, narrow, set_ierror, widen};
use smallvec::SmallVec;
use std::ffi::{c_int, c_void};
use std::mem::transmute;

/// Returns a number of the C library as an `INTEGER`; `None`: it does not fit.
fn as_integer(value: isize) -> Option<c_int> {
    c_int::try_from(value).ok()
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
unsafe fn give<F: Family>(code: c_int, value: isize, to: *mut c_int, ierror: *mut c_int) {
    // SAFETY: as the caller says.
    unsafe {
        match as_integer(value) {
            Some(value) if code == 0 => {
                *to = value;
                set_ierror(ierror, 0);
            }
            _ => set_ierror(ierror, if code == 0 { F::NUMBERS.err_arg } else { code }),
        }
    }
}

/// Returns lower bound and extent of a type.
fn extent<F: Family>(datatype: usize) -> (c_int, isize, isize) {
    let (mut lower, mut extent) = (0, 0);
    // SAFETY: the function has this type, and checks the handle.
    let code = unsafe {
        let call = transmute::<Function, TypeExtent>(own::<F>(c"MPI_Type_get_extent"));
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

/// `MPI_ADDRESS`.
pub unsafe extern "C" fn mpi_address<F: Family>(
    location: *mut c_void,
    address: *mut c_int,
    ierror: *mut c_int,
) {
    // SAFETY: the arguments of the routine.
    unsafe {
        let call = transmute::<Function, GetAddress>(own::<F>(c"MPI_Get_address"));
        let mut value = 0;
        let code = call(F::c_address(location), &raw mut value);
        give::<F>(code, value, address, ierror);
    }
}

/// `MPI_ERRHANDLER_CREATE`.
pub unsafe extern "C" fn mpi_errhandler_create<F: Family>(
    function: *mut c_void,
    errhandler: *mut c_int,
    ierror: *mut c_int,
) {
    // SAFETY: the arguments of the routine.
    unsafe {
        let call = transmute::<Function, Create>(own::<F>(c"MPI_Comm_create_errhandler"));
        let mut handle = 0;
        let code = call(function, &raw mut handle);
        if code == 0 {
            F::takes_fortran_handles(HandleKind::Errhandler, handle);
        }
        narrow::<F>(HandleKind::Errhandler, errhandler, handle);
        set_ierror(ierror, code);
    }
}

/// `MPI_ERRHANDLER_GET`.
pub unsafe extern "C" fn mpi_errhandler_get<F: Family>(
    comm: *const c_int,
    errhandler: *mut c_int,
    ierror: *mut c_int,
) {
    // SAFETY: the arguments of the routine.
    unsafe {
        let call = transmute::<Function, OneHandle>(own::<F>(c"MPI_Comm_get_errhandler"));
        let mut handle = 0;
        let code = call(widen::<F>(HandleKind::Comm, comm), &raw mut handle);
        narrow::<F>(HandleKind::Errhandler, errhandler, handle);
        set_ierror(ierror, code);
    }
}

/// `MPI_ERRHANDLER_SET`.
pub unsafe extern "C" fn mpi_errhandler_set<F: Family>(
    comm: *const c_int,
    errhandler: *const c_int,
    ierror: *mut c_int,
) {
    // SAFETY: the arguments of the routine.
    unsafe {
        let call = transmute::<Function, SetHandle>(own::<F>(c"MPI_Comm_set_errhandler"));
        set_ierror(
            ierror,
            call(
                widen::<F>(HandleKind::Comm, comm),
                widen::<F>(HandleKind::Errhandler, errhandler),
            ),
        );
    }
}

/// `MPI_TYPE_EXTENT`.
pub unsafe extern "C" fn mpi_type_extent<F: Family>(
    datatype: *const c_int,
    to: *mut c_int,
    ierror: *mut c_int,
) {
    // SAFETY: the arguments of the routine.
    unsafe {
        let (code, _, extent) = extent::<F>(widen::<F>(HandleKind::Datatype, datatype));
        give::<F>(code, extent, to, ierror);
    }
}

/// `MPI_TYPE_LB`.
pub unsafe extern "C" fn mpi_type_lb<F: Family>(
    datatype: *const c_int,
    to: *mut c_int,
    ierror: *mut c_int,
) {
    // SAFETY: the arguments of the routine.
    unsafe {
        let (code, lower, _) = extent::<F>(widen::<F>(HandleKind::Datatype, datatype));
        give::<F>(code, lower, to, ierror);
    }
}

/// `MPI_TYPE_UB`.
pub unsafe extern "C" fn mpi_type_ub<F: Family>(
    datatype: *const c_int,
    to: *mut c_int,
    ierror: *mut c_int,
) {
    // SAFETY: the arguments of the routine.
    unsafe {
        let (code, lower, extent) = extent::<F>(widen::<F>(HandleKind::Datatype, datatype));
        give::<F>(code, lower + extent, to, ierror);
    }
}

/// `MPI_TYPE_HINDEXED`.
pub unsafe extern "C" fn mpi_type_hindexed<F: Family>(
    count: *const c_int,
    lengths: *const c_int,
    places: *const c_int,
    old: *const c_int,
    new: *mut c_int,
    ierror: *mut c_int,
) {
    // SAFETY: the arguments of the routine.
    unsafe {
        let call = transmute::<Function, Hindexed>(own::<F>(c"MPI_Type_create_hindexed"));
        let places = displacements(places, *count);
        let mut handle = widen::<F>(HandleKind::Datatype, new);
        let code = call(
            *count,
            lengths,
            places.as_ptr(),
            widen::<F>(HandleKind::Datatype, old),
            &raw mut handle,
        );
        narrow::<F>(HandleKind::Datatype, new, handle);
        set_ierror(ierror, code);
    }
}

/// `MPI_TYPE_HVECTOR`.
pub unsafe extern "C" fn mpi_type_hvector<F: Family>(
    count: *const c_int,
    length: *const c_int,
    stride: *const c_int,
    old: *const c_int,
    new: *mut c_int,
    ierror: *mut c_int,
) {
    // SAFETY: the arguments of the routine.
    unsafe {
        let call = transmute::<Function, Hvector>(own::<F>(c"MPI_Type_create_hvector"));
        let mut handle = widen::<F>(HandleKind::Datatype, new);
        let code = call(
            *count,
            *length,
            *stride as isize,
            widen::<F>(HandleKind::Datatype, old),
            &raw mut handle,
        );
        narrow::<F>(HandleKind::Datatype, new, handle);
        set_ierror(ierror, code);
    }
}

/// `MPI_TYPE_STRUCT`.
pub unsafe extern "C" fn mpi_type_struct<F: Family>(
    count: *const c_int,
    lengths: *const c_int,
    places: *const c_int,
    types: *const c_int,
    new: *mut c_int,
    ierror: *mut c_int,
) {
    // SAFETY: the arguments of the routine.
    unsafe {
        let call = transmute::<Function, Struct>(own::<F>(c"MPI_Type_create_struct"));
        let places = displacements(places, *count);
        let mut room = handles::room();
        let mut types = Handles::read::<F>(HandleKind::Datatype, types, (*count).into(), &mut room);
        let mut handle = widen::<F>(HandleKind::Datatype, new);
        let code = call(
            *count,
            lengths,
            places.as_ptr(),
            types.as_mut_ptr(),
            &raw mut handle,
        );
        narrow::<F>(HandleKind::Datatype, new, handle);
        set_ierror(ierror, code);
    }
}
