//! Handles, logicals, error codes and counts that begin with 1.

use crate::family::{Family, HandleKind};
use std::ffi::c_int;
use std::mem::MaybeUninit;

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
pub struct Handles {
    /// Used up to `count`, if that is at most `INLINE`.
    inline: [MaybeUninit<usize>; INLINE],
    /// Used if there are more.
    heap: Vec<usize>,
    count: usize,
}

impl Handles {
    /// Reads so many handles.
    ///
    /// # Safety
    /// The array has so many elements.
    #[inline(always)]
    pub unsafe fn read<F: Family>(kind: HandleKind, from: *const c_int, count: i64) -> Self {
        let mut handles = Self {
            inline: [const { MaybeUninit::uninit() }; INLINE],
            heap: Vec::new(),
            count: usize::try_from(count).unwrap_or(0),
        };
        if handles.count <= INLINE {
            for (at, handle) in handles.inline.iter_mut().enumerate().take(handles.count) {
                // SAFETY: as the caller says.
                handle.write(unsafe { widen::<F>(kind, from.add(at)) });
            }
        } else {
            // SAFETY: as the caller says.
            let widened = (0..handles.count).map(|at| unsafe { widen::<F>(kind, from.add(at)) });
            handles.heap = widened.collect();
        }
        handles
    }

    /// Returns the address of the C handles.
    #[inline(always)]
    pub fn as_mut_ptr(&mut self) -> *mut usize {
        match self.count <= INLINE {
            true => self.inline.as_mut_ptr().cast(),
            false => self.heap.as_mut_ptr(),
        }
    }

    /// Stores the handles in Fortran's array.
    ///
    /// # Safety
    /// The array has as many elements as were read.
    #[inline(always)]
    pub unsafe fn write<F: Family>(&self, kind: HandleKind, to: *mut c_int) {
        let handles: *const usize = match self.count <= INLINE {
            true => self.inline.as_ptr().cast(),
            false => self.heap.as_ptr(),
        };
        for at in 0..self.count {
            // SAFETY: as the caller says, and so many handles were read.
            unsafe { narrow::<F>(kind, to.add(at), *handles.add(at)) }
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
