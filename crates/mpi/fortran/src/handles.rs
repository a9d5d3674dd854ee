//! Handles, logicals, error codes and counts that begin with 1.

use crate::family::{Family, HandleKind};
use smallvec::SmallVec;
use std::ffi::c_int;

/// `MPI_UNDEFINED`.
const UNDEFINED: c_int = -32766;

/// Handles of an array that need no heap.
const INLINE: usize = 32;

/// Returns the C handle of a Fortran handle.
///
/// # Safety
/// The address is that of an `INTEGER`.
#[inline(always)]
pub unsafe fn widen<F: Family>(kind: HandleKind, handle: *const c_int) -> usize {
    // SAFETY: as the caller says.
    F::to_c(kind, unsafe { *handle })
}

/// Stores a C handle as a Fortran handle.
///
/// # Safety
/// The address is that of an `INTEGER`.
#[inline(always)]
pub unsafe fn narrow<F: Family>(kind: HandleKind, to: *mut c_int, handle: usize) {
    // SAFETY: as the caller says.
    unsafe { *to = F::from_c(kind, handle) }
}

/// Returns a logical as C has it.
///
/// # Safety
/// The address is that of a `LOGICAL`.
#[inline(always)]
pub unsafe fn logical(value: *const c_int) -> c_int {
    // SAFETY: as the caller says.
    unsafe { *value & 1 }
}

/// Stores the error code, if the program asked for it.
///
/// # Safety
/// The address is null, or that of an `INTEGER`.
#[inline(always)]
pub unsafe fn set_ierror(ierror: *mut c_int, code: c_int) {
    if !ierror.is_null() {
        // SAFETY: as the caller says.
        unsafe { *ierror = code }
    }
}

/// An array of C handles for an array of Fortran handles.
pub struct Handles(SmallVec<[usize; INLINE]>);

impl Handles {
    /// Reads so many handles.
    ///
    /// # Safety
    /// The array has so many elements.
    #[inline]
    pub unsafe fn read<F: Family>(kind: HandleKind, from: *const c_int, count: i64) -> Self {
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: as the caller says.
        Self(
            (0..count)
                .map(|at| unsafe { widen::<F>(kind, from.add(at)) })
                .collect(),
        )
    }

    /// Returns the address of the C handles.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut usize {
        self.0.as_mut_ptr()
    }

    /// Stores the handles in Fortran's array.
    ///
    /// # Safety
    /// The array has as many elements as were read.
    #[inline]
    pub unsafe fn write<F: Family>(&self, kind: HandleKind, to: *mut c_int) {
        for (at, handle) in self.0.iter().enumerate() {
            // SAFETY: as the caller says.
            unsafe { narrow::<F>(kind, to.add(at), *handle) }
        }
    }
}

/// Makes an index count from 1, after a call that succeeded.
///
/// # Safety
/// The address is that of an `INTEGER`.
#[inline]
pub unsafe fn count_from_one(code: c_int, index: *mut c_int) {
    // SAFETY: as the caller says.
    unsafe {
        if code == 0 && *index != UNDEFINED {
            *index += 1;
        }
    }
}

/// Makes the indices of completed requests count from 1. Errors of single requests leave the
/// indices valid.
///
/// # Safety
/// The array has as many elements as its count says, if that is not `MPI_UNDEFINED`.
pub unsafe fn count_from_one_some<F: Family>(
    code: c_int,
    count: *const libc::c_void,
    to: *mut c_int,
) {
    // SAFETY: as the caller says.
    let count = unsafe { *count.cast::<c_int>() };
    if code != 0 && code != F::NUMBERS.err_in_status {
        return;
    }
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: as the caller says.
        unsafe { *to.add(at) += 1 }
    }
}
