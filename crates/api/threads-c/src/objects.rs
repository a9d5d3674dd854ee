//! C objects that are a pointer, made when first used.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A C object: all zeros in the beginning.
#[repr(C)]
pub struct CObject(AtomicPtr<c_void>);

/// Returns the value of an object, which `make` makes if there is none yet.
///
/// # Safety
/// `object` is null or points to a C object whose values are `T`, while the result is used.
pub(crate) unsafe fn value<'a, T>(
    object: *const CObject,
    make: impl FnOnce() -> T,
) -> Result<&'a T, c_int> {
    // SAFETY: the caller says so.
    let object = unsafe { object.as_ref() }.ok_or(libc::EINVAL)?;
    let mut known = object.0.load(Ordering::Acquire);
    if known.is_null() {
        let fresh = Box::into_raw(Box::new(make())).cast::<c_void>();
        known = match object
            .0
            .compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => fresh,
            Err(other) => {
                // SAFETY: made just now, and nobody else has seen it.
                drop(unsafe { Box::from_raw(fresh.cast::<T>()) });
                other
            }
        };
    }
    // SAFETY: the pointer is that of a `Box<T>`, which lives until the object is destroyed.
    Ok(unsafe { &*known.cast::<T>() })
}

/// Begins an object anew with this value, whatever its memory holds.
///
/// # Safety
/// `object` is null or points to memory of a C object that nobody uses.
pub(crate) unsafe fn begin<T>(object: *mut CObject, value: T) -> c_int {
    let Some(object) = NonNull::new(object) else {
        return libc::EINVAL;
    };
    let value = Box::into_raw(Box::new(value)).cast::<c_void>();
    // SAFETY: the caller says that the memory is an object's, and unused.
    unsafe { object.write(CObject(AtomicPtr::new(value))) };
    0
}

/// Ends an object. `last_use` waits for callers that are about to leave it.
///
/// # Safety
/// `object` is null or points to a C object whose values are `T`, and that nobody uses any more.
pub(crate) unsafe fn end<T>(object: *mut CObject, last_use: impl FnOnce(&T)) -> c_int {
    // SAFETY: the caller says so.
    let Some(object) = (unsafe { object.as_ref() }) else {
        return libc::EINVAL;
    };
    let value = object
        .0
        .swap(std::ptr::null_mut(), Ordering::AcqRel)
        .cast::<T>();
    if let Some(value) = NonNull::new(value) {
        // SAFETY: the pointer is that of a `Box<T>`, and it was taken out of the object.
        let value = unsafe { Box::from_raw(value.as_ptr()) };
        last_use(&value);
    }
    0
}

/// The time that is left until this time of CLOCK_REALTIME.
///
/// # Safety
/// `end` is null or points to a time.
pub(crate) unsafe fn time_until(end: *const libc::timespec) -> Result<Duration, c_int> {
    // SAFETY: the caller says so.
    let end = unsafe { duration(end) }?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Ok(end.saturating_sub(now))
}

/// A time as a duration.
///
/// # Safety
/// `time` is null or points to a time.
pub(crate) unsafe fn duration(time: *const libc::timespec) -> Result<Duration, c_int> {
    // SAFETY: the caller says so.
    let time = unsafe { time.as_ref() }.ok_or(libc::EINVAL)?;
    if !(0..1_000_000_000).contains(&time.tv_nsec) {
        return Err(libc::EINVAL);
    }
    Ok(Duration::new(
        time.tv_sec.max(0) as u64,
        time.tv_nsec as u32,
    ))
}

/// The error number of a result.
pub(crate) fn code(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(0)
}
