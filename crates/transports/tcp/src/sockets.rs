//! The epoll of a TCP transport: which descriptors are watched, for what, and how their events are
//! told apart.
//!
//! Owned by the transport. Sockets never block; a rank sleeps in the same epoll
//! ([`EpollWake`]).

use crate::epoll_wake::EpollWake;
use crate::frame::StreamNumber;
use garonne_engine::api::{Error, Peer};
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Events taken from the kernel at once; the rest stays with it.
pub(crate) const EVENTS: usize = 32;

/// Passes over the ready descriptors: callers that are being proved first, then the listener, then
/// peers.
pub(crate) const TURNS: u8 = 3;

/// Socket that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EpollTarget {
    /// The listener: somebody calls.
    Listener,
    /// The bell by which threads of this process wake the rank.
    Bell,
    /// A caller that has not proved itself, by its place.
    Unauthenticated(usize),
    /// A connection of a peer, or a call to it.
    Peer(Peer, StreamNumber),
}

impl EpollTarget {
    /// Returns the mark by which events of this descriptor are known.
    pub(crate) fn data(self) -> EventData {
        EventData::new_u64(match self {
            Self::Listener => 0,
            Self::Bell => 1,
            Self::Unauthenticated(place) => 2 | (place as u64) << 8,
            Self::Peer(peer, stream) => (3 + u64::from(stream.code())) | (u64::from(peer) << 8),
        })
    }

    /// Returns whose turn is first; below [`TURNS`].
    pub(crate) fn turn(self) -> u8 {
        match self {
            Self::Unauthenticated(_) => 0,
            Self::Listener => 1,
            Self::Bell | Self::Peer(..) => 2,
        }
    }

    /// Returns the descriptor that an event is about.
    pub(crate) fn from_data(data: EventData) -> Self {
        let (kind, index) = (data.u64() & 0xff, data.u64() >> 8);
        match kind {
            0 => Self::Listener,
            1 => Self::Bell,
            2 => Self::Unauthenticated(index as usize),
            _ => {
                let stream = StreamNumber::from_code((kind - 3) as u8);
                Self::Peer(index as Peer, stream.unwrap_or(StreamNumber::Small))
            }
        }
    }
}

/// Watches the descriptors of a transport.
///
/// Owned by the transport. [`Sockets::watch`] adds a descriptor, [`Sockets::change`] says for what
/// it is watched from then on; the kernel forgets it when it is closed. A look calls
/// [`Sockets::begin_look`], then [`Sockets::wait`]. Whoever leaves work to the next look calls
/// [`Sockets::look_again`].
pub(crate) struct Sockets {
    wake: Arc<EpollWake>,
    /// The next poll looks at all descriptors, whatever else it finds.
    must_look: bool,
}

impl Sockets {
    /// Returns a watcher of the transport's own descriptors: its bell and its listener.
    ///
    /// # Errors
    /// The kernel has no room for them.
    pub(crate) fn new(wake: Arc<EpollWake>, listener: BorrowedFd<'_>) -> Result<Self, Error> {
        let failed = |errno: rustix::io::Errno| Error::System {
            what: "cannot watch the transport's descriptors",
            errno: errno.raw_os_error(),
        };
        let data = EpollTarget::Listener.data();
        epoll::add(&wake.epoll, listener, data, EventFlags::IN).map_err(failed)?;
        let data = EpollTarget::Bell.data();
        epoll::add(&wake.epoll, wake.bell(), data, EventFlags::IN).map_err(failed)?;
        Ok(Self {
            wake,
            must_look: true,
        })
    }

    /// Returns the object on which the rank sleeps.
    pub(crate) fn wake(&self) -> &Arc<EpollWake> {
        &self.wake
    }

    /// Watches one more descriptor. `false`: the kernel has no room for it.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>, target: EpollTarget, flags: EventFlags) -> bool {
        epoll::add(&self.wake.epoll, fd, target.data(), flags).is_ok()
    }

    /// Changes what a descriptor stands for and is watched for. `false`: it was not watched.
    pub(crate) fn change(
        &self,
        fd: BorrowedFd<'_>,
        target: EpollTarget,
        flags: EventFlags,
    ) -> bool {
        epoll::modify(&self.wake.epoll, fd, target.data(), flags).is_ok()
    }

    /// Has the next poll look at all descriptors.
    #[inline]
    pub(crate) fn look_again(&mut self) {
        self.must_look = true;
    }

    /// Returns whether the next poll has to look at all descriptors.
    #[inline]
    pub(crate) fn must_look(&self) -> bool {
        self.must_look
    }

    /// A look begins: what asked for it is seen to.
    pub(crate) fn begin_look(&mut self) {
        self.must_look = false;
    }

    /// Returns what is ready now; `None`: that cannot be said, and is asked again.
    pub(crate) fn wait<'a>(
        &mut self,
        room: &'a mut [MaybeUninit<Event>; EVENTS],
    ) -> Option<&'a [Event]> {
        let now_or_never = Timespec::default();
        match epoll::wait(&self.wake.epoll, room, Some(&now_or_never)) {
            Ok((events, _)) => Some(events),
            Err(_) => {
                self.must_look = true;
                None
            }
        }
    }
}
