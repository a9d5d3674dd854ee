//! Deadlines of the C library on the scheduler's clock.

use libc::{c_int, timespec};

const NS: u64 = 1_000_000_000;

/// A time in ns; `None`: it is no time.
pub(crate) fn nanoseconds(time: &timespec) -> Option<u64> {
    let fraction = u64::try_from(time.tv_nsec).ok().filter(|ns| *ns < NS)?;
    // Before the epoch: long ago.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Some(seconds.saturating_mul(NS).saturating_add(fraction))
}

/// What a clock shows, in ns.
pub(crate) fn now(clock: c_int) -> Option<u64> {
    let mut time = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is written there.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (result == 0).then(|| nanoseconds(&time)).flatten()
}

/// The scheduler's time when this clock shows `time`; `None`: an argument is wrong.
///
/// # Safety
/// `time` points to a time.
pub(crate) unsafe fn deadline(clock: c_int, time: *const timespec) -> Option<u64> {
    // SAFETY: the caller says so.
    let end = nanoseconds(unsafe { time.as_ref() }?)?;
    let left = end.saturating_sub(now(clock)?);
    Some(garonne_fiber::now().saturating_add(left))
}
