//! The descriptors of an endpoint with an event queue, in one epoll that programs may poll.

use garonne_transport::timer_fd::TimerFd;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Name of the bell and the timer among the descriptors.
const OWN: u64 = u64::MAX;
/// Name of everything that belongs to connections that come to be.
pub(crate) const SETUPS: u64 = u64::MAX - 1;

/// Epoll over everything from which something may come. Readable when something has, when the bell
/// rings, or when the timer runs off.
#[derive(Debug)]
pub(crate) struct PollSet {
    epoll: OwnedFd,
    bell: OwnedFd,
    timer: TimerFd,
    rings: AtomicBool,
}

impl PollSet {
    pub(crate) fn new() -> io::Result<Self> {
        let set = Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            timer: TimerFd::new()?,
            rings: AtomicBool::new(false),
        };
        set.add(set.bell.as_fd(), OWN)?;
        set.add(set.timer.fd(), OWN)?;
        Ok(set)
    }

    /// Watches a descriptor. Its end ends that, too, if nobody else has it.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, name: u64) -> io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            fd,
            EventData::new_u64(name),
            EventFlags::IN | EventFlags::RDHUP,
        )?)
    }

    /// Calls `found` with the name of each descriptor that has something.
    pub(crate) fn ready(&self, mut found: impl FnMut(u64)) {
        let mut events = Vec::with_capacity(64);
        let now = Timespec::default();
        let buffer = rustix::buffer::spare_capacity(&mut events);
        // Interrupted, or no memory: the next look finds it.
        let _ = epoll::wait(&self.epoll, buffer, Some(&now));
        for event in events {
            let name = event.data.u64();
            if name != OWN {
                found(name);
            }
        }
    }

    /// Sleeps until something has come, or the time is over.
    pub(crate) fn sleep(&self, limit: Option<Duration>) -> io::Result<()> {
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs().min(i64::MAX as u64) as _,
            tv_nsec: limit.subsec_nanos().into(),
        });
        let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets whether the set is readable although no descriptor has anything.
    pub(crate) fn ring(&self, on: bool) {
        if self.rings.swap(on, Ordering::SeqCst) == on {
            return;
        }
        // Neither can fail on an eventfd of this state.
        let _ = match on {
            true => rustix::io::write(&self.bell, &1u64.to_ne_bytes()).map(drop),
            false => rustix::io::read(&self.bell, &mut [0; 8]).map(drop),
        };
    }

    /// Makes the set readable after this time; `None`: never.
    pub(crate) fn set_timer(&self, after: Option<Duration>) {
        self.timer.set(after);
    }
}

impl AsFd for PollSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
