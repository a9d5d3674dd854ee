//! One connection that a host between passes on, or is about to.
//!
//! Owned by the relay. Moves a bounded number of bytes at a time, and never blocks.

use super::pending_pairs::PendingCall;
use super::{CalledAddresses, RelayDirection};
use crate::blackhole_detector::ShortLivedConnections;
use crate::connection::{self, AfterRead, IoResult};
use crate::connector;
use crate::frame::{OPENING_MAX, RejectReason};
use crate::handshake::Secret;
use crate::relay_protocol::{self, RelayHandshake};
use crate::sys;
use garonne_transport::limits::{
    RELAY_BUFFER, RELAY_BUFFERS_PER_TURN, RELAY_HALF_LIMIT, TCP_CARRIED, TCP_CONNECT_LIMIT,
    TCP_SILENCE_MAX,
};
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, sockopt};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// One direction of a passage.
#[derive(Debug)]
pub(super) struct RelayBuffer {
    buffer: Vec<u8>,
    at: usize,
    len: usize,
    /// Nothing more comes.
    ended: bool,
    /// The end was passed on.
    closed: bool,
}

impl RelayBuffer {
    fn new(ahead: &[u8]) -> Self {
        let mut buffer = vec![0; RELAY_BUFFER];
        buffer[..ahead.len()].copy_from_slice(ahead);
        Self {
            buffer,
            at: 0,
            len: ahead.len(),
            ended: false,
            closed: false,
        }
    }

    fn holds(&self) -> bool {
        self.at < self.len
    }

    /// Moves what can be moved, a buffer at most. Whether anything was; an error: the passage is
    /// over.
    fn flow(&mut self, from: &OwnedFd, to: &OwnedFd) -> Result<bool, Errno> {
        let mut moved = false;
        if !self.holds() && !self.ended {
            match rustix::net::recv(from, &mut self.buffer[..], rustix::net::RecvFlags::DONTWAIT) {
                Ok((0, _)) => self.ended = true,
                Ok((got, _)) => (self.at, self.len, moved) = (0, got, true),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        while self.holds() {
            match connection::send(to, &self.buffer[self.at..self.len], AfterRead::Nothing) {
                IoResult::Moved(sent) => (self.at, moved) = (self.at + sent, true),
                IoResult::Later => break,
                IoResult::Over => return Err(Errno::PIPE),
            }
        }
        if self.ended && !self.holds() && !self.closed {
            self.closed = true;
            rustix::net::shutdown(to, Shutdown::Write)?;
        }
        Ok(moved)
    }
}

/// A call whose caller is to be met here by the one called.
#[derive(Debug)]
pub(super) struct RelayedSide {
    pub(super) pair: PendingCall,
    caller: OwnedFd,
    /// The call, and nothing else.
    came: Vec<u8>,
}

impl RelayedSide {
    /// Returns whether its caller still waits: it says nothing before it is answered.
    pub(super) fn is_there(&self) -> bool {
        connection::recv(&self.caller, &mut [0; 1]) == IoResult::Later
    }

    /// Tells the caller that it is kept. Whether it could be told.
    pub(super) fn tell(&self) -> bool {
        let word = relay_protocol::word(RejectReason::Waits);
        connection::send(&self.caller, &word, AfterRead::Nothing) == IoResult::Moved(word.len())
    }

    /// Joins two that call each other, of which this one has come later: the one whose call does
    /// not stand is told that it is the called one, and gets the other's call. The other one is
    /// told that it is kept, whoever was here before it: whether the one that it meets is the one
    /// called it knows when it is answered, and until then it goes on asking for that one's call.
    /// `None`: it has hung up.
    pub(super) fn join(self, other: Self) -> Option<RelayedConnection> {
        if self.pair.stands() && !self.tell() {
            return None;
        }
        let (caller, called) = match self.pair.stands() {
            true => (self, other),
            false => (other, self),
        };
        let ahead = [relay_protocol::word(RejectReason::Turn), caller.came].concat();
        Some(RelayedConnection::Flowing {
            ends: [caller.caller, called.caller],
            lanes: Box::new([RelayBuffer::new(&ahead), RelayBuffer::new(&[])]),
            doubted: false,
        })
    }
}

/// Returns the host of an address, as far as it says so: of IPv6 a host has as many as it likes in
/// its network of 64 bits.
pub(super) fn side_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => Ipv6Addr::from_bits(six.to_bits() >> 64 << 64).into(),
        four => four,
    }
}

/// A caller that has not said yet whom it calls.
#[derive(Debug)]
pub(super) struct UnreadCall {
    caller: OwnedFd,
    came: Vec<u8>,
    /// Since when it is here, and from which side it has called ([`side_of`]), if the kernel still
    /// knows.
    pub(super) since: Instant,
    pub(super) from: Option<IpAddr>,
}

impl UnreadCall {
    pub(super) fn new(caller: OwnedFd, now: Instant) -> Self {
        let from = rustix::net::getpeername(&caller).ok().flatten();
        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
        Self {
            caller,
            came: Vec::new(),
            since: now,
            from: from.map(|from| side_of(from.ip())),
        }
    }
}

#[derive(Debug)]
pub(super) enum RelayedConnection {
    /// Has not said whom it calls.
    Hearing(UnreadCall),
    /// Is to be met here.
    Waiting(RelayedSide),
    /// The one called is being reached, at all these addresses at once, and at others if they fail.
    Calling {
        caller: OwnedFd,
        came: Vec<u8>,
        called: Vec<OwnedFd>,
        fallback: Vec<SocketAddr>,
    },
    /// From the caller to the called, and back.
    Flowing {
        ends: [OwnedFd; 2],
        lanes: Box<[RelayBuffer; 2]>,
        /// At the last look one of its hosts seemed to be gone.
        doubted: bool,
    },
}

impl RelayedConnection {
    fn begin(
        caller: OwnedFd,
        came: Vec<u8>,
        CalledAddresses {
            preferred,
            fallback,
        }: CalledAddresses,
        brief: &ShortLivedConnections,
    ) -> Option<Self> {
        // The caller waits as long as one call may take: the others need a part of that.
        let limit = match fallback.is_empty() {
            true => TCP_CONNECT_LIMIT,
            false => TCP_CONNECT_LIMIT / 2,
        };
        let connect = |address: &SocketAddr| {
            let called = connector::connect_with(address, brief.longest_to(address.ip())).ok()?;
            let _ = sockopt::set_tcp_user_timeout(&called, limit.as_millis() as u32);
            Some(called)
        };
        let called: Vec<OwnedFd> = preferred.iter().filter_map(connect).collect();
        match (called.is_empty(), fallback.is_empty()) {
            (true, true) => None,
            (true, false) => Self::begin(caller, came, fallback.into(), brief),
            (false, _) => Some(Self::Calling {
                caller,
                came,
                called,
                fallback,
            }),
        }
    }

    /// Goes on with reaching the one called: who takes the call first has it, and the others are
    /// let go. A caller that has hung up needs nobody any more.
    fn reach(
        (caller, came): (OwnedFd, Vec<u8>),
        mut called: Vec<OwnedFd>,
        fallback: Vec<SocketAddr>,
        brief: &ShortLivedConnections,
    ) -> Option<Self> {
        if has_hung_up(&caller) {
            return None;
        }
        called.retain(|called| matches!(sockopt::socket_error(called), Ok(Ok(()))));
        match called
            .iter()
            .position(|called| rustix::net::getpeername(called).is_ok())
        {
            Some(first) => {
                let called = called.swap_remove(first);
                let _ = sockopt::set_tcp_user_timeout(&called, 0);
                let lanes = Box::new([RelayBuffer::new(&came), RelayBuffer::new(&[])]);
                let ends = [caller, called];
                let doubted = false;
                Some(Self::Flowing {
                    ends,
                    lanes,
                    doubted,
                })
            }
            None if called.is_empty() => Self::begin(caller, came, fallback.into(), brief),
            None => Some(Self::Calling {
                caller,
                came,
                called,
                fallback,
            }),
        }
    }

    /// The call is whole: it goes where `lead` says.
    fn lead(
        (caller, came): (OwnedFd, Vec<u8>),
        call: &RelayHandshake,
        (lead, brief): (&dyn Fn(u32, u32) -> RelayDirection, &ShortLivedConnections),
    ) -> Option<Self> {
        match lead(call.from.rank, call.to.0) {
            RelayDirection::To(addresses) => Self::begin(caller, came, addresses, brief),
            // Who says more than its call before it is answered is none of ours.
            RelayDirection::Meeting => {
                (came.len() == call.consumed).then_some(Self::Waiting(RelayedSide {
                    pair: PendingCall::of(call)?,
                    caller,
                    came,
                }))
            }
        }
    }

    /// Goes on; gives what it is afterwards, unless it is over, and whether there is more to do at
    /// once.
    pub(super) fn look(
        self,
        (secret, job, brief): (&Secret, [u8; 16], &ShortLivedConnections),
        lead: &dyn Fn(u32, u32) -> RelayDirection,
    ) -> (Option<Self>, bool) {
        match self {
            Self::Hearing(mut unheard) => {
                match connection::recv_onto(&unheard.caller, &mut unheard.came, OPENING_MAX) {
                    IoResult::Moved(_) => {}
                    IoResult::Later => return (Some(Self::Hearing(unheard)), false),
                    IoResult::Over => return (None, false),
                }
                match relay_protocol::read(secret, job, &unheard.came) {
                    Ok(None) => (Some(Self::Hearing(unheard)), false),
                    Ok(Some(call)) => (
                        Self::lead((unheard.caller, unheard.came), &call, (lead, brief)),
                        true,
                    ),
                    Err(_) => (None, false),
                }
            }
            Self::Waiting(half) => (half.is_there().then_some(Self::Waiting(half)), false),
            Self::Calling {
                caller,
                came,
                called,
                fallback,
            } => {
                let reached = Self::reach((caller, came), called, fallback, brief);
                let flows = reached.as_ref().is_some_and(Self::flows);
                (reached, flows)
            }
            Self::Flowing {
                ends,
                mut lanes,
                doubted,
            } => {
                let mut more = false;
                for _ in 0..RELAY_BUFFERS_PER_TURN {
                    let [there, back] = &mut *lanes;
                    let moved = there
                        .flow(&ends[0], &ends[1])
                        .and_then(|moved| Ok(moved | back.flow(&ends[1], &ends[0])?));
                    match moved {
                        Ok(moved) => more = moved,
                        Err(_) => return (None, false),
                    }
                    if !more {
                        break;
                    }
                }
                if lanes.iter().all(|lane| lane.closed) {
                    return (None, false);
                }
                let flowing = Self::Flowing {
                    ends,
                    lanes,
                    doubted,
                };
                (Some(flowing), more)
            }
        }
    }

    /// Returns the caller, if that has not said whom it calls.
    pub(super) fn unheard(&self) -> Option<&UnreadCall> {
        match self {
            Self::Hearing(unheard) => Some(unheard),
            _ => None,
        }
    }

    /// Returns whether bytes may be under way by it.
    pub(super) fn flows(&self) -> bool {
        matches!(self, Self::Flowing { .. })
    }

    /// Returns whether the one called is being reached.
    #[cfg(test)]
    pub(super) fn calls(&self) -> bool {
        matches!(self, Self::Calling { .. })
    }

    /// Returns whether something may keep it waiting in vain, and whether that is so: who has not
    /// said whom it calls had the time to, or the host at one of its ends confirms nothing of what
    /// is under way there, and counts as gone. What lies there is not sent any more then.
    pub(super) fn listen(&mut self, now: Instant) -> (bool, bool) {
        if let Some(unheard) = self.unheard() {
            return (true, now >= unheard.since + RELAY_HALF_LIMIT);
        }
        let Self::Flowing { ends, doubted, .. } = self else {
            return (false, false);
        };
        let silent = |end: &OwnedFd| sys::unanswered(end.as_fd());
        let waits = ends.iter().any(|end| silent(end).is_some());
        let gone = |end: &&OwnedFd| silent(end).is_some_and(|silence| silence > TCP_SILENCE_MAX);
        let gone = ends.iter().any(|end| gone(&end));
        // What has just been sent after a long silence is not confirmed yet.
        let over = gone && *doubted;
        *doubted = gone;
        if over {
            // The one at the other end is to know how it ended, too (`blackhole_detector`).
            for end in ends {
                let _ = sockopt::set_socket_linger(end, Some(Duration::ZERO));
            }
        }
        (waits, over)
    }

    /// The address of the called one whose host confirms nothing, if it did not carry long packets
    /// before.
    pub(super) fn silent_called(&self) -> Option<IpAddr> {
        let Self::Flowing {
            ends: [_, called], ..
        } = self
        else {
            return None;
        };
        sys::unanswered(called.as_fd()).filter(|silence| *silence > TCP_SILENCE_MAX)?;
        sys::carried(called.as_fd()).filter(|[confirmed, _]| *confirmed < TCP_CARRIED)?;
        let at = rustix::net::getpeername(called).ok()??;
        Some(SocketAddr::try_from(at).ok()?.ip())
    }

    /// Returns the sockets, and what to watch them for; nothing: not at all.
    pub(super) fn watched(&self) -> Vec<(BorrowedFd<'_>, EventFlags)> {
        match self {
            Self::Hearing(UnreadCall { caller, .. })
            | Self::Waiting(RelayedSide { caller, .. }) => {
                vec![(caller.as_fd(), EventFlags::IN)]
            }
            Self::Calling { caller, called, .. } => {
                let called = called
                    .iter()
                    .map(|called| (called.as_fd(), EventFlags::OUT));
                called
                    .chain([(caller.as_fd(), EventFlags::RDHUP)])
                    .collect()
            }
            Self::Flowing { ends, lanes, .. } => {
                let end = |end: usize| {
                    let (from, to) = (&lanes[end], &lanes[1 - end]);
                    let mut flags = EventFlags::empty();
                    flags.set(EventFlags::IN, !from.ended && !from.holds());
                    flags.set(EventFlags::OUT, to.holds());
                    (ends[end].as_fd(), flags)
                };
                vec![end(0), end(1)]
            }
        }
    }
}

/// Returns whether a caller that waits for the one called has closed its end: it says nothing
/// before it is answered, and so will say nothing.
fn has_hung_up(caller: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(caller, PollFlags::RDHUP)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
