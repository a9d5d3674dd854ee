//! Semaphores. Their words are the C library's own; only waits happen here.

use crate::record::{self, Bound, LOT};
use crate::{real, time};
use garonne_fiber::ParkOutcome;
use libc::{c_int, c_void, timespec};

/// Byte at which glibc keeps whether processes share a semaphore.
pub(crate) const SHARED_AT: usize = 8;

/// Tells whether processes may share a semaphore.
///
/// # Safety
/// `semaphore` points to a semaphore.
unsafe fn is_shared(semaphore: *mut c_void) -> bool {
    // SAFETY: the caller says so; the word never changes while the semaphore is used.
    unsafe { semaphore.byte_add(SHARED_AT).cast::<u32>().read() != 0 }
}

fn errno() -> *mut c_int {
    // SAFETY: has no precondition.
    unsafe { libc::__errno_location() }
}

fn fails(error: c_int) -> c_int {
    // SAFETY: the word is the thread's own.
    unsafe { *errno() = error };
    -1
}

unsafe fn wait_until(
    semaphore: *mut c_void,
    deadline: impl FnOnce() -> Option<Option<u64>>,
    with_kernel: impl FnOnce() -> c_int,
) -> c_int {
    record::cancellation_point();
    // SAFETY: the program passes a semaphore, here and below.
    if record::is_off() || unsafe { is_shared(semaphore) } {
        let _bound = Bound::new();
        return with_kernel();
    }
    // SAFETY: as above.
    let before = unsafe { *errno() };
    // SAFETY: as above.
    let take = || unsafe { real::sem_trywait(semaphore) == 0 };
    if take() {
        return 0;
    }
    let Some(deadline) = deadline() else {
        return fails(libc::EINVAL);
    };
    let Some(own) = record::own() else {
        return with_kernel();
    };
    let mut may_interrupt = true;
    loop {
        let place = (semaphore as usize, 0);
        let outcome = LOT.park(
            own.parker(),
            place,
            deadline,
            may_interrupt,
            || !take(),
            || {},
        );
        match outcome {
            ParkOutcome::TimedOut => return fails(libc::ETIMEDOUT),
            ParkOutcome::Interrupted => {
                record::act_on_cancellation(own);
                // The thread does not want to be cancelled now.
                may_interrupt = false;
            }
            ParkOutcome::Invalid => break,
            ParkOutcome::Woken if take() => break,
            ParkOutcome::Woken => (),
        }
    }
    // SAFETY: the word is the thread's own.
    unsafe { *errno() = before };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_sem_wait(semaphore: *mut c_void) -> c_int {
    // SAFETY: the program passes a semaphore.
    unsafe { wait_until(semaphore, || Some(None), || real::sem_wait(semaphore)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_sem_timedwait(
    semaphore: *mut c_void,
    end: *const timespec,
) -> c_int {
    // SAFETY: the program passes a semaphore and a time.
    unsafe {
        let deadline = || time::deadline(libc::CLOCK_REALTIME, end).map(Some);
        wait_until(semaphore, deadline, || real::sem_timedwait(semaphore, end))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_sem_clockwait(
    semaphore: *mut c_void,
    clock: c_int,
    end: *const timespec,
) -> c_int {
    // SAFETY: the program passes a semaphore and a time.
    unsafe {
        let deadline = || time::deadline(clock, end).map(Some);
        wait_until(semaphore, deadline, || {
            real::sem_clockwait(semaphore, clock, end)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_sem_post(semaphore: *mut c_void) -> c_int {
    // SAFETY: the program passes a semaphore.
    let shared = unsafe { is_shared(semaphore) };
    // SAFETY: as above.
    let result = unsafe { real::sem_post(semaphore) };
    if result == 0 && !shared && !record::is_off() {
        record::wake_one(semaphore as usize);
    }
    result
}
