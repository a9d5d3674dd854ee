//! Conditions. Who waits is known by the address of the condition alone.

use crate::mutex::{garonne_pthread_mutex_lock, garonne_pthread_mutex_unlock};
use crate::record::{self, Bound, LOT};
use crate::{real, time};
use garonne_fiber::ParkOutcome;
use libc::{c_int, c_void, timespec};

/// Byte at which glibc keeps a condition's attributes.
pub(crate) const ATTRIBUTES_AT: usize = 36;
pub(crate) const SHARED: u32 = 1;
pub(crate) const MONOTONIC: u32 = 2;

/// Attributes of a condition.
///
/// # Safety
/// `cond` points to a condition.
unsafe fn attributes(cond: *mut c_void) -> u32 {
    // SAFETY: the caller says so; the place is that of an aligned word.
    unsafe { std::ptr::read_volatile(cond.byte_add(ATTRIBUTES_AT).cast::<u32>()) }
}

unsafe fn wait_until(
    cond: *mut c_void,
    mutex: *mut c_void,
    deadline: Option<u64>,
    with_kernel: impl FnOnce() -> c_int,
) -> c_int {
    record::cancellation_point();
    // SAFETY: the program passes a condition.
    let is_shared = unsafe { attributes(cond) } & SHARED != 0;
    let own = record::own().filter(|_| !is_shared && !record::is_off());
    let Some(own) = own else {
        let _bound = Bound::new();
        return with_kernel();
    };
    let mut unlocked = 0;
    let unlock = || {
        // SAFETY: the program passes a mutex that it holds.
        unlocked = unsafe { garonne_pthread_mutex_unlock(mutex) };
    };
    let place = (cond as usize, 0);
    let outcome = LOT.park(own.parker(), place, deadline, true, || true, unlock);
    // SAFETY: as above.
    let locked = unsafe { garonne_pthread_mutex_lock(mutex) };
    match outcome {
        ParkOutcome::Interrupted => {
            record::act_on_cancellation(own);
            locked
        }
        _ if locked != 0 => locked,
        ParkOutcome::TimedOut => libc::ETIMEDOUT,
        _ => unlocked,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_cond_wait(
    cond: *mut c_void,
    mutex: *mut c_void,
) -> c_int {
    // SAFETY: the program passes a condition and a mutex.
    unsafe { wait_until(cond, mutex, None, || real::pthread_cond_wait(cond, mutex)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_cond_timedwait(
    cond: *mut c_void,
    mutex: *mut c_void,
    end: *const timespec,
) -> c_int {
    // SAFETY: the program passes a condition, a mutex and a time.
    unsafe {
        let clock = match attributes(cond) & MONOTONIC {
            0 => libc::CLOCK_REALTIME,
            _ => libc::CLOCK_MONOTONIC,
        };
        let Some(deadline) = time::deadline(clock, end) else {
            return libc::EINVAL;
        };
        let with_kernel = || real::pthread_cond_timedwait(cond, mutex, end);
        wait_until(cond, mutex, Some(deadline), with_kernel)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_cond_clockwait(
    cond: *mut c_void,
    mutex: *mut c_void,
    clock: c_int,
    end: *const timespec,
) -> c_int {
    // SAFETY: the program passes a condition, a mutex and a time.
    unsafe {
        let Some(deadline) = time::deadline(clock, end) else {
            return libc::EINVAL;
        };
        let with_kernel = || real::pthread_cond_clockwait(cond, mutex, clock, end);
        wait_until(cond, mutex, Some(deadline), with_kernel)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_cond_signal(cond: *mut c_void) -> c_int {
    // SAFETY: the program passes a condition.
    if record::is_off() || unsafe { attributes(cond) } & SHARED != 0 {
        // SAFETY: as above.
        return unsafe { real::pthread_cond_signal(cond) };
    }
    LOT.unpark_one(cond as usize);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_cond_broadcast(cond: *mut c_void) -> c_int {
    // SAFETY: the program passes a condition.
    if record::is_off() || unsafe { attributes(cond) } & SHARED != 0 {
        // SAFETY: as above.
        return unsafe { real::pthread_cond_broadcast(cond) };
    }
    LOT.unpark_all(cond as usize, None);
    0
}
