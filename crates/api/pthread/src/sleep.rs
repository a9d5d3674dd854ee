//! Sleeps, and calls that let others run.

use crate::record::{self, Bound};
use crate::{real, time};
use garonne_fiber::{ParkOutcome, Parker};
use libc::{c_int, c_uint, timespec};
use std::sync::Arc;

/// Waits until the scheduler's clock shows `end`.
fn sleep_until(parker: &Arc<Parker>, end: u64) {
    // Nobody wakes an address that is the waiter's own.
    let place = (Arc::as_ptr(parker) as usize, 0);
    let mut may_interrupt = true;
    loop {
        let outcome = record::LOT.park(parker, place, Some(end), may_interrupt, || true, || {});
        match (outcome, record::own()) {
            (ParkOutcome::Interrupted, Some(own)) => {
                record::act_on_cancellation(own);
                may_interrupt = false;
            }
            (ParkOutcome::TimedOut, _) => return,
            _ => (),
        }
    }
}

fn sleep_for(nanoseconds: u64) -> bool {
    record::cancellation_point();
    let Some(own) = record::unbound() else {
        return false;
    };
    let end = garonne_fiber::now().saturating_add(nanoseconds);
    sleep_until(own.parker(), end);
    true
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_nanosleep(
    length: *const timespec,
    left: *mut timespec,
) -> c_int {
    // SAFETY: the program passes a time.
    let wanted = unsafe { length.as_ref() }.filter(|length| length.tv_sec >= 0);
    match wanted.and_then(time::nanoseconds) {
        Some(wanted) if sleep_for(wanted) => 0,
        // SAFETY: as above.
        _ => unsafe { real::nanosleep(length, left) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_clock_nanosleep(
    clock: c_int,
    flags: c_int,
    length: *const timespec,
    left: *mut timespec,
) -> c_int {
    let is_known = clock == libc::CLOCK_REALTIME || clock == libc::CLOCK_MONOTONIC;
    // SAFETY: the program passes a time.
    let wanted = unsafe { length.as_ref() }.filter(|length| is_known && length.tv_sec >= 0);
    let wanted = wanted.and_then(time::nanoseconds);
    let wanted = match flags {
        0 => wanted,
        libc::TIMER_ABSTIME => wanted.and_then(|end| Some(end.saturating_sub(time::now(clock)?))),
        _ => None,
    };
    match wanted {
        Some(wanted) if sleep_for(wanted) => 0,
        _ => {
            let _bound = Bound::new();
            // SAFETY: as above.
            unsafe { real::clock_nanosleep(clock, flags, length, left) }
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_usleep(microseconds: c_uint) -> c_int {
    let wanted = u64::from(microseconds) * 1000;
    if sleep_for(wanted) {
        return 0;
    }
    let length = timespec {
        tv_sec: (wanted / 1_000_000_000) as libc::time_t,
        tv_nsec: (wanted % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the time lives.
    unsafe { real::nanosleep(&raw const length, std::ptr::null_mut()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_sleep(seconds: c_uint) -> c_uint {
    if sleep_for(u64::from(seconds) * 1_000_000_000) {
        return 0;
    }
    let mut left = timespec {
        tv_sec: seconds as libc::time_t,
        tv_nsec: 0,
    };
    // SAFETY: the time lives.
    match unsafe { real::nanosleep(&raw const left, &raw mut left) } {
        0 => 0,
        _ => left.tv_sec as c_uint + c_uint::from(left.tv_nsec >= 500_000_000),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_sched_yield() -> c_int {
    match record::unbound() {
        Some(own) if own.yield_now() => 0,
        // SAFETY: has no precondition.
        _ => unsafe { real::sched_yield() },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_yield() -> c_int {
    // SAFETY: has no precondition.
    unsafe { garonne_sched_yield() }
}
