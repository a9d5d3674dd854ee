//! What the event thread sleeps in: one epoll with an eventfd by which other threads wake it, the
//! timer, the alarms, and the watched descriptors. Its standby sleeps on a guard timer, which is
//! set while the leader is within a run.

use crate::tasks::Error;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Tokens below this are the kernel's own descriptors'.
pub(super) const FIRST_SOURCE: u64 = 16;
const BELL: u64 = 0;
const TIMER: u64 = 1;
const ALARM: u64 = 2;

/// Events taken at once: enough for a busy moment, the rest stays where it is.
const EVENTS_AT_ONCE: usize = 64;

/// Event for which the poller woke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolledEvent {
    /// Somebody rang.
    Bell,
    /// The timer's time is over.
    Timer,
    /// An alarm's time is over.
    Alarm,
    /// A descriptor is as asked.
    Source(u64),
}

/// The epoll of the event thread, with the descriptors that belong to it.
#[derive(Debug)]
pub(super) struct EventPoller {
    epoll: OwnedFd,
    bell: OwnedFd,
    timer: OwnedFd,
    alarm: OwnedFd,
    guard: OwnedFd,
}

fn failed(what: &'static str) -> impl Fn(rustix::io::Errno) -> Error {
    move |errno| Error::System(what, errno.raw_os_error())
}

impl EventPoller {
    pub(super) fn new() -> Result<Self, Error> {
        let timer = || {
            timerfd_create(
                TimerfdClockId::Monotonic,
                TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
            )
            .map_err(failed("cannot make a timer"))
        };
        let kernel = Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)
                .map_err(failed("cannot make an epoll"))?,
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(failed("cannot make an eventfd"))?,
            timer: timer()?,
            alarm: timer()?,
            guard: timer()?,
        };
        for (fd, token) in [
            (&kernel.bell, BELL),
            (&kernel.timer, TIMER),
            (&kernel.alarm, ALARM),
        ] {
            kernel.watch(fd.as_fd(), token, EventFlags::IN)?;
        }
        Ok(kernel)
    }

    /// Wakes the thread.
    pub(super) fn ring(&self) {
        // Refused only when the count is full: then it rings already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Sets the timer, once.
    pub(super) fn set_timer(&self, after: Duration) {
        set(&self.timer, after);
    }

    /// Sets the next alarm.
    pub(super) fn set_alarm(&self, after: Duration) {
        set(&self.alarm, after);
    }

    /// Has the standby woken after this time.
    pub(super) fn set_guard(&self, after: Duration) {
        set(&self.guard, after);
    }

    /// Lets it sleep.
    pub(super) fn clear_guard(&self) {
        set_to(&self.guard, Duration::ZERO);
    }

    /// Sleeps until the guard's time is over, or for so long. `false`: for so long, or no sleep can
    /// be had.
    pub(super) fn wait_guard(&self, limit: Duration) -> bool {
        let limit = timespec(limit);
        loop {
            let guard = PollFd::new(&self.guard, PollFlags::IN);
            // No signal comes here.
            if !poll(&mut [guard], Some(&limit)).is_ok_and(|ready| ready > 0) {
                return false;
            }
            let mut count = [0u8; 8];
            if rustix::io::read(&self.guard, &mut count).is_ok() {
                return true;
            }
        }
    }

    /// Watches a descriptor.
    pub(super) fn watch(
        &self,
        fd: BorrowedFd<'_>,
        token: u64,
        flags: EventFlags,
    ) -> Result<(), Error> {
        epoll::add(&self.epoll, fd, EventData::new_u64(token), flags)
            .map_err(failed("cannot watch this descriptor"))
    }

    /// Watches one again that is watched once.
    pub(super) fn rearm(&self, fd: BorrowedFd<'_>, token: u64, flags: EventFlags) {
        // It was added before, and only `forget_contexts` removes it.
        let _ = epoll::modify(&self.epoll, fd, EventData::new_u64(token), flags);
    }

    /// Ends that.
    pub(super) fn forget(&self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Sleeps until there are news, and takes them.
    pub(super) fn wait(&self, news: &mut Vec<PolledEvent>) {
        let mut events = [const { MaybeUninit::uninit() }; EVENTS_AT_ONCE];
        news.clear();
        // A signal cannot come here, and the descriptor is ours.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events[..], None) else {
            return;
        };
        news.extend(events.iter().map(|event| match event.data.u64() {
            BELL => drained(&self.bell, PolledEvent::Bell),
            TIMER => drained(&self.timer, PolledEvent::Timer),
            ALARM => drained(&self.alarm, PolledEvent::Alarm),
            id => PolledEvent::Source(id),
        }));
    }
}

fn drained(fd: &OwnedFd, news: PolledEvent) -> PolledEvent {
    let mut count = [0u8; 8];
    let _ = rustix::io::read(fd, &mut count);
    news
}

/// Sets a timer once; a time of zero would switch it off.
fn set(timer: &OwnedFd, after: Duration) {
    set_to(timer, after.max(Duration::from_nanos(1)));
}

fn set_to(timer: &OwnedFd, after: Duration) {
    let once = Itimerspec {
        it_interval: timespec(Duration::ZERO),
        it_value: timespec(after),
    };
    // The descriptor and the value are valid.
    let _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &once);
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: time.subsec_nanos().into(),
    }
}
