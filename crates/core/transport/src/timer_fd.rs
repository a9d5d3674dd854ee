//! A clock among descriptors: readable when a time has come.
//!
//! Used by what sleeps in an epoll and has something to do by itself. Setting it anew hushes it.

use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A kernel timer as a descriptor, so that an epoll can wait for it.
#[derive(Debug)]
pub struct TimerFd(OwnedFd);

impl TimerFd {
    /// A timer that is not set.
    ///
    /// # Errors
    /// The system has no descriptors.
    pub fn new() -> Result<Self, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).map(Self)
    }

    /// The descriptor to wait for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Rings once after so long; `None`: not at all. Returns whether the kernel could do that.
    pub fn set(&self, wait: Option<Duration>) -> bool {
        // No time at all would stop it.
        let value = |wait: Duration| Timespec {
            tv_sec: wait.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: i64::from(wait.subsec_nanos().max(1)),
        };
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: wait.map_or(Timespec::default(), value),
        };
        rustix::time::timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once).is_ok()
    }
}
