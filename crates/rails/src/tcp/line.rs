//! Making a connection to a peer: socket, addresses in turn, the calling side of the handshake. Never blocks.
//!
//! Owned by the rail, one per peer and stream that this side opens. Time is an argument.

use crate::limits::{TCP_AGENT_SEGMENT, TCP_PROBE_AFTER_S, TCP_PROBE_EVERY_S, TCP_PROBES};
use crate::sys;
use crate::tcp::channel::{self, Channel, Io, Then};
use crate::tcp::frame::{OPENING_MAX, Stream};
use crate::tcp::handshake::{Answered, Caller, Fault, House};
use crate::tcp::trusted::AGENTS;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The host answers that nobody listens.
    Refused,
    /// No answer, no way, or no resources for an attempt.
    Unreachable,
    /// It was accepted and then cut.
    Cut,
    /// The handshake failed.
    Fault(Fault),
}

/// An attempt under way.
#[derive(Debug)]
pub(crate) struct Line {
    socket: OwnedFd,
    caller: Option<Caller>,
    /// The call, until it has left.
    call: Vec<u8>,
    came: Vec<u8>,
    begun: Instant,
    /// When the connection stood and the call left.
    called: Option<Instant>,
}

/// How far an attempt is.
#[derive(Debug)]
pub(crate) enum Step {
    Wait(Line),
    /// Connected and proved; the other side's next expected number.
    Open(Channel, u32),
    Failed(Failure),
}

/// Options of every connection, either side's.
pub(crate) fn prepare(socket: &OwnedFd) -> Result<(), Errno> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(TCP_PROBE_AFTER_S))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(TCP_PROBE_EVERY_S))?;
    sockopt::set_tcp_keepcnt(socket, TCP_PROBES)?;
    Ok(())
}

/// A socket that is about to be connected, or is.
pub(crate) fn connect(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    connect_with(address, None)
}

/// The same; `longest`: how many bytes a packet on it has at most, in either direction.
fn connect_with(address: &SocketAddr, longest: Option<u32>) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    prepare(&socket)?;
    if let Some(longest) = longest {
        sys::limit_segments(socket.as_fd(), longest);
    }
    match rustix::net::connect(&socket, address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(error) => Err(error),
    }
}

impl Line {
    /// Begins to connect.
    pub(crate) fn begin(
        house: &House,
        (address, to, stream): (SocketAddr, (u32, u32), Stream),
        now: Instant,
    ) -> Result<Self, Failure> {
        let longest = (house.me.world == AGENTS).then_some(TCP_AGENT_SEGMENT);
        let socket = connect_with(&address, longest).map_err(|errno| match errno {
            Errno::CONNREFUSED => Failure::Refused,
            _ => Failure::Unreachable,
        })?;
        let (caller, call) = Caller::call(house, to, stream).map_err(|_| Failure::Unreachable)?;
        Ok(Self {
            socket,
            caller: Some(caller),
            call,
            came: Vec::new(),
            begun: now,
            called: None,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    /// Since when the other side has the call.
    pub(crate) fn called(&self) -> Option<Instant> {
        self.called
    }

    /// Goes on after the socket became ready. `expected`: this side's next number.
    pub(crate) fn step(mut self, expected: u32, now: Instant) -> Step {
        if self.called.is_none() {
            match sockopt::socket_error(&self.socket) {
                Ok(Ok(())) => {}
                Ok(Err(Errno::CONNREFUSED)) => return Step::Failed(Failure::Refused),
                _ => return Step::Failed(Failure::Unreachable),
            }
            match channel::send(&self.socket, &self.call, Then::Nothing) {
                // A new connection takes the call at once; one that does not is not worth keeping.
                Io::Moved(moved) if moved == self.call.len() => self.called = Some(now),
                Io::Later => return Step::Wait(self),
                _ => return Step::Failed(Failure::Cut),
            }
        }
        loop {
            let had = self.came.len();
            self.came.resize(OPENING_MAX, 0);
            let got = channel::recv(&self.socket, &mut self.came[had..]);
            self.came
                .truncate(had + if let Io::Moved(moved) = got { moved } else { 0 });
            match got {
                Io::Moved(_) => {}
                Io::Later => return Step::Wait(self),
                Io::Over => return Step::Failed(Failure::Cut),
            }
            let Some(caller) = self.caller.take() else {
                return Step::Failed(Failure::Cut);
            };
            match caller.answered(&self.came, expected) {
                Err(fault) => return Step::Failed(Failure::Fault(fault)),
                Ok(Answered::More(caller)) => self.caller = Some(caller),
                Ok(Answered::Done {
                    expected,
                    terms,
                    consumed,
                    proof,
                }) => {
                    let sent = channel::send(&self.socket, &proof, Then::Nothing);
                    if sent != Io::Moved(proof.len()) {
                        return Step::Failed(Failure::Cut);
                    }
                    let ahead = self.came.split_off(consumed);
                    let channel = Channel::new(self.socket, terms, ahead);
                    return Step::Open(channel, expected);
                }
            }
        }
    }
}
