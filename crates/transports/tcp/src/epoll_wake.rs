//! Where a rank with sockets sleeps: on all of them at once, and on a descriptor by which others
//! wake it.
//!
//! The transport's sockets are in one epoll, level-triggered, so that whatever became ready before
//! the sleep ends it; nothing can be missed between the last poll and the sleep. The word counts
//! wake-ups from other threads. Shared by all threads of the rank.

use garonne_engine::api::Error;
use garonne_engine::transport::WakeSource;
use garonne_transport::limits::MULTI_SLEEP;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wakes a rank that sleeps in the transport's epoll. Shared between the transport and its wakers.
#[derive(Debug)]
pub(crate) struct EpollWake {
    pub(crate) epoll: OwnedFd,
    bell: OwnedFd,
    word: AtomicU32,
    /// When the transport has something to do by itself.
    deadline: Mutex<Option<Instant>>,
}

impl EpollWake {
    pub(crate) fn new() -> Result<Self, Error> {
        let failed = |what| {
            move |errno: rustix::io::Errno| Error::System {
                what,
                errno: errno.raw_os_error(),
            }
        };
        use rustix::event::epoll;
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)
                .map_err(failed("cannot make an epoll"))?,
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(failed("cannot make an eventfd"))?,
            word: AtomicU32::new(0),
            deadline: Mutex::new(None),
        })
    }

    pub(crate) fn word(&self) -> u32 {
        self.word.load(Ordering::SeqCst)
    }

    pub(crate) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// The bell was heard.
    pub(crate) fn hush(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    pub(crate) fn set_deadline(&self, at: Option<Instant>) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// Returns how long a sleep may last.
    pub(crate) fn limit(&self, asked: Option<Duration>) -> Option<Duration> {
        let at = *self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        let own = at.map(|at| at.saturating_duration_since(Instant::now()));
        match (asked, own) {
            (Some(asked), Some(own)) => Some(asked.min(own)),
            (asked, own) => asked.or(own),
        }
    }
}

/// The sockets of a transport, for whoever sleeps elsewhere and has them watched.
#[derive(Clone, Debug)]
pub struct SocketSet {
    pub(super) wake: Arc<EpollWake>,
    watched: Arc<AtomicBool>,
}

impl SocketSet {
    pub(super) fn new(wake: Arc<EpollWake>) -> Self {
        Self {
            wake,
            watched: Arc::default(),
        }
    }

    /// Is readable whenever one of them has something for its transport.
    pub fn epoll(&self) -> &OwnedFd {
        &self.wake.epoll
    }

    /// Returns whether both are the sockets of one transport.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.wake, &other.wake)
    }

    /// Sets whether somebody wakes the sleeper when one is ready.
    pub fn set_watched(&self, watched: bool) {
        self.watched.store(watched, Ordering::SeqCst);
    }

    /// Returns how long a sleep may last.
    pub fn limit(&self, asked: Option<Duration>) -> Option<Duration> {
        let limit = self.wake.limit(asked);
        limit
            .into_iter()
            .chain(self.limit_if(self.watched.load(Ordering::SeqCst)))
            .min()
    }

    /// Returns how long the sleep of somebody may last who is `watched` for, or is not.
    pub fn limit_if(&self, watched: bool) -> Option<Duration> {
        let nap = (!watched).then_some(MULTI_SLEEP);
        self.wake.limit(nap)
    }
}

impl WakeSource for EpollWake {
    fn sleep(&self, ticket: u32, limit: Option<Duration>) {
        if self.word() != ticket {
            return;
        }
        let limit = self.limit(limit).map(|limit| Timespec {
            tv_sec: limit.as_secs().min(i64::MAX as u64) as _,
            tv_nsec: limit.subsec_nanos().into(),
        });
        // The bell is among the sockets, so a wake-up since the look at the word ends this at once.
        let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
        let _ = poll(&mut fds, limit.as_ref());
    }

    fn wake(&self) {
        self.word.fetch_add(1, Ordering::SeqCst);
        // Refused only when the count is full: then it rings already.
        let _ = rustix::io::write(self.bell.as_fd(), &1u64.to_ne_bytes());
    }
}
