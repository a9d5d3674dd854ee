//! Where a rank sleeps that waits for frames: on its driver, on a timer, and on a descriptor by
//! which others wake it, all in one epoll.

use garonne_engine::api::Error;
use garonne_engine::transport::WakeSource;
use garonne_transport::timer_fd::TimerFd;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Wakes a rank that waits for frames. Shared between the transport and its wakers.
#[derive(Debug)]
pub struct EthernetWake {
    epoll: OwnedFd,
    bell: OwnedFd,
    timer: TimerFd,
    word: AtomicU32,
}

impl EthernetWake {
    /// Watches the descriptor of a driver.
    ///
    /// # Errors
    /// The system has no descriptors.
    pub(crate) fn new(driver: Option<BorrowedFd<'_>>) -> Result<Self, Error> {
        let failed = |errno: Errno| Error::System {
            what: "cannot watch the Ethernet transport's descriptors",
            errno: errno.raw_os_error(),
        };
        let make = || {
            let wake = Self {
                epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
                bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
                timer: TimerFd::new()?,
                word: AtomicU32::new(0),
            };
            let (data, flags) = (EventData::new_u64(0), EventFlags::IN);
            epoll::add(&wake.epoll, &wake.bell, data, flags)?;
            epoll::add(&wake.epoll, wake.timer.fd(), data, flags)?;
            if let Some(driver) = driver {
                epoll::add(&wake.epoll, driver, data, flags)?;
            }
            Ok(wake)
        };
        make().map_err(failed)
    }

    /// Is readable when frames have come, or something is due.
    pub fn epoll(&self) -> &OwnedFd {
        &self.epoll
    }

    pub(crate) fn word(&self) -> u32 {
        self.word.load(Ordering::SeqCst)
    }

    /// The bell was heard.
    pub(crate) fn hush(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// Rings once after so long; `None`: not at all.
    pub(crate) fn set_timer(&self, wait: Option<Duration>) {
        self.timer.set(wait);
    }
}

impl WakeSource for EthernetWake {
    fn sleep(&self, ticket: u32, limit: Option<Duration>) {
        if self.word() != ticket {
            return;
        }
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs().min(i64::MAX as u64) as _,
            tv_nsec: limit.subsec_nanos().into(),
        });
        let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
        let _ = poll(&mut fds, limit.as_ref());
    }

    fn wake(&self) {
        self.word.fetch_add(1, Ordering::SeqCst);
        // Refused only when the count is full: then it rings already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}
