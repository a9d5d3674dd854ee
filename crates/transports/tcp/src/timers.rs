//! When a TCP transport has something to do next: calls that are due, hosts that may have fallen
//! silent.
//!
//! Owned by the transport. Time is an argument, but for the processor time of the process.

use crate::epoll_wake::EpollWake;
use garonne_transport::limits::{TCP_SILENCE_CHECK, TCP_SUSPENDED_FROM};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that a process has had of its processors since a moment.
#[derive(Debug)]
struct ProcessorTime(Duration);

impl ProcessorTime {
    fn begin() -> Self {
        Self(Self::now())
    }

    fn now() -> Duration {
        Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
    }

    fn elapsed(&self) -> Duration {
        Self::now().saturating_sub(self.0)
    }
}

/// Deadlines of a transport.
///
/// Owned by the transport. [`Timers::remind`] sets a deadline. A look asks [`Timers::away`] first,
/// and where [`Timers::is_due`] calls [`Timers::begin`], does what is due, sets deadlines anew, and
/// calls [`Timers::end`].
pub(crate) struct Timers {
    /// Woken by the earliest deadline.
    wake: Arc<EpollWake>,
    deadline: Option<Instant>,
    /// Since the clock was last asked.
    worked: ProcessorTime,
    /// The last look for silent hosts.
    listened: Instant,
    /// Something left since the kernel said last that all that had left was confirmed.
    unconfirmed: bool,
}

impl Timers {
    /// Returns timers of which none is set.
    pub(crate) fn new(wake: Arc<EpollWake>) -> Self {
        Self {
            wake,
            deadline: None,
            worked: ProcessorTime::begin(),
            listened: Instant::now(),
            unconfirmed: false,
        }
    }

    /// Something is to be done at this time.
    pub(crate) fn remind(&mut self, at: Instant) {
        if self.deadline.is_none_or(|deadline| at < deadline) {
            self.deadline = Some(at);
            // The owner may be about to sleep.
            self.wake.set_deadline(self.deadline);
        }
    }

    /// Returns whether anything is to be done at any time.
    pub(crate) fn is_set(&self) -> bool {
        self.deadline.is_some()
    }

    /// Returns whether something is to be done now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Returns for how long this process was kept from doing what is due, perhaps together with all
    /// others. `None`: it was not, or it computed, and could have looked.
    pub(crate) fn away(&self, now: Instant) -> Option<Duration> {
        let time = now.saturating_duration_since(self.deadline?);
        (time >= TCP_SUSPENDED_FROM && self.worked.elapsed() <= time / 2).then_some(time)
    }

    /// Returns what is due is done from now on, and no deadline is set. Returns whether hosts are
    /// to be looked at for silence.
    pub(crate) fn begin(&mut self, now: Instant) -> bool {
        self.deadline = None;
        self.wake.set_deadline(None);
        let listen = now >= self.listened + TCP_SILENCE_CHECK;
        if listen {
            self.listened = now;
        }
        listen
    }

    /// What was due is done.
    pub(crate) fn end(&mut self) {
        self.worked = ProcessorTime::begin();
    }

    /// Something leaves, and its arrival is to be confirmed.
    #[inline]
    pub(crate) fn expect_confirmation(&mut self) {
        self.unconfirmed = true;
    }

    /// Notes whether the kernel knows of something that was not confirmed.
    pub(crate) fn set_unconfirmed(&mut self, unconfirmed: bool) {
        self.unconfirmed = unconfirmed;
    }

    /// Returns whether something that left may not have been confirmed.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.unconfirmed
    }
}
