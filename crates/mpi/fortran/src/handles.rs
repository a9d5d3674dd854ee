//! Handles, logicals, error codes and counts that begin with 1.

use crate::family::{Family, HandleKind};
use std::ffi::c_int;
use std::mem::MaybeUninit;

/// `MPI_UNDEFINED`.
const UNDEFINED: c_int = -32766;

/// Handles of an array that need no heap.
const INLINE: usize = 128;

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

/// Room for an array of C handles, which need no heap if they are few.
pub type Room = [MaybeUninit<usize>; INLINE];

/// Returns room for handles. The caller has it apart from [`Handles`], which would be copied with
/// it.
#[inline(always)]
pub fn room() -> Room {
    [const { MaybeUninit::uninit() }; INLINE]
}

/// An array of C handles for an array of Fortran handles.
pub struct Handles {
    /// Where the handles lie: in the caller's room, or in `heap`.
    at: *mut usize,
    count: usize,
    /// Used if there are more handles than the caller has room for.
    heap: Vec<usize>,
}

impl Handles {
    /// Reads so many handles. `room` outlives what is returned.
    ///
    /// # Safety
    /// The array has so many elements.
    #[inline(always)]
    pub unsafe fn read<F: Family>(
        kind: HandleKind,
        from: *const c_int,
        count: i64,
        room: &mut Room,
    ) -> Self {
        let mut handles = Self {
            at: room.as_mut_ptr().cast(),
            count: usize::try_from(count).unwrap_or(0),
            heap: Vec::new(),
        };
        if handles.count > INLINE {
            handles.heap = Vec::with_capacity(handles.count);
            handles.at = handles.heap.as_mut_ptr();
        }
        for at in 0..handles.count {
            // SAFETY: as the caller says, and there is room for so many.
            unsafe { *handles.at.add(at) = widen::<F>(kind, from.add(at)) }
        }
        handles
    }

    /// Returns the address of the C handles.
    #[inline(always)]
    pub fn as_mut_ptr(&mut self) -> *mut usize {
        self.at
    }

    /// Stores the handles in Fortran's array.
    ///
    /// # Safety
    /// The array has as many elements as were read.
    #[inline(always)]
    pub unsafe fn write<F: Family>(&self, kind: HandleKind, to: *mut c_int) {
        for at in 0..self.count {
            // SAFETY: as the caller says, and so many handles were read.
            unsafe { narrow::<F>(kind, to.add(at), *self.at.add(at)) }
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
