//! What is ready when a listener has something to do: the listener while it is open to callers, and
//! otherwise a clock.
//!
//! Used by whoever takes calls, and cannot take all of them at any time: there is no place, or the
//! process has no more descriptors. Nobody is woken for those who wait in the kernel's queue then,
//! again and again, until there may be one.

use garonne_transport::limits::TCP_PROOF_STAYS;
use garonne_transport::timer_fd::TimerFd;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Gate that keeps connections waiting at a listener until a rank is ready for them. Shut and
/// opened by its owner.
#[derive(Debug)]
pub(crate) struct ListenerGate {
    /// None where the kernel had no descriptors for it: then the listener is open always.
    bolt: Option<GateHandle>,
}

#[derive(Debug)]
struct GateHandle {
    ready: OwnedFd,
    clock: TimerFd,
    shut: bool,
}

impl ListenerGate {
    pub(crate) fn new(listener: &OwnedFd) -> Self {
        Self {
            bolt: GateHandle::new(listener),
        }
    }

    /// Readable when somebody can come in, or may be tried to be let in again.
    pub(crate) fn fd<'a>(&'a self, listener: &'a OwnedFd) -> BorrowedFd<'a> {
        let ready = self.bolt.as_ref().map(|bolt| bolt.ready.as_fd());
        ready.unwrap_or(listener.as_fd())
    }

    /// Shuts the listener: a caller waits for so long, unless it is opened before. Where that
    /// cannot be done it stays open.
    pub(crate) fn shut(&mut self, listener: &OwnedFd, wait: Duration) {
        if let Some(bolt) = &mut self.bolt {
            bolt.shut = bolt.clock.set(Some(wait)) && bolt.watch(listener, EventFlags::empty());
        }
    }

    pub(crate) fn open(&mut self, listener: &OwnedFd) {
        if let Some(bolt) = self.bolt.as_mut().filter(|bolt| bolt.shut) {
            bolt.clock.set(None);
            bolt.shut = !bolt.watch(listener, EventFlags::IN);
        }
    }
}

impl GateHandle {
    fn new(listener: &OwnedFd) -> Option<Self> {
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC).ok()?;
        let clock = TimerFd::new().ok()?;
        epoll::add(&ready, listener, EventData::new_u64(0), EventFlags::IN).ok()?;
        epoll::add(&ready, clock.fd(), EventData::new_u64(1), EventFlags::IN).ok()?;
        Some(Self {
            ready,
            clock,
            shut: false,
        })
    }

    fn watch(&self, listener: &OwnedFd, flags: EventFlags) -> bool {
        epoll::modify(&self.ready, listener, EventData::new_u64(0), flags).is_ok()
    }
}

/// The next one who calls, for whom there is a place. None: nobody does, or there is nothing left
/// to take it with, and its latch is shut for a while.
pub(crate) fn accept(listener: &OwnedFd, latch: &mut ListenerGate) -> Option<OwnedFd> {
    latch.open(listener);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match rustix::net::accept_with(listener, flags) {
        Ok(socket) => Some(socket),
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => None,
        // The process or the system has no more descriptors or memory.
        Err(_) => {
            latch.shut(listener, TCP_PROOF_STAYS);
            None
        }
    }
}
