//! Making a connection to a peer: socket, addresses in turn, the calling side of the handshake.
//! Never blocks.
//!
//! Owned by the transport, one per peer and stream that this side opens. Time is an argument. Where
//! a host between answers that has this side's call and the peer's, and so neither of the two
//! called ones, it makes this side the called one: the attempt goes on as an unauthenticated
//! caller's (`unauthenticated`) that nobody but the peer can be.

use crate::agent_channel::AGENTS;
use crate::connection::{self, AfterRead, Connection, IoResult};
use crate::frame::{ASKED, OPENING_MAX, ProcessId, RejectReason, StreamNumber};
use crate::handshake::{HandshakeError, Initiator, InitiatorStep, LocalIdentity};
use crate::relay_protocol;
use crate::sys;
use crate::unauthenticated::{HandshakeProgress, Unauthenticated};
use garonne_transport::limits::{
    RELAY_HALF_LIMIT, TCP_CONNECT_LIMIT, TCP_PROBE_AFTER_S, TCP_PROBE_EVERY_S, TCP_PROBES,
    TCP_SEGMENT,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Way in which an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConnectFailure {
    /// The host answers that nobody listens.
    Refused,
    /// No answer, no way, or no resources for an attempt.
    Unreachable,
    /// The call was accepted, and closed before it had left: by one who has no place for more
    /// callers, as a rule. That says nothing of who is there.
    Unheard,
    /// The call was accepted and then cut, behind it.
    Cut,
    /// A host between kept it, and the one called did not come there, or not in time.
    Alone,
    /// The handshake failed.
    Fault(HandshakeError),
}

/// An attempt under way.
#[derive(Debug)]
pub(crate) struct Connector {
    side: ConnectRole,
    identity: LocalIdentity,
    to: (u32, u32),
    stream: StreamNumber,
    begun: Instant,
    /// When the connection stood and the call left.
    called: Option<Instant>,
    /// A host between has said that it keeps the call.
    kept: bool,
}

#[derive(Debug)]
enum ConnectRole {
    Calling(ConnectAttempt),
    /// By a host between.
    Called(Unauthenticated),
}

#[derive(Debug)]
struct ConnectAttempt {
    socket: OwnedFd,
    caller: Option<Initiator>,
    /// The call, until it has left.
    call: Vec<u8>,
    came: Vec<u8>,
}

/// Stage of an attempt.
#[derive(Debug)]
pub(crate) enum ConnectStep {
    Wait(Connector),
    /// Connected and proved; the other side's next expected number.
    Open(Connection, u32),
    Failed(ConnectFailure),
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

/// Connects with segments of bounded length; `longest`: how many bytes a packet on it has at most,
/// in either direction.
pub(crate) fn connect_with(address: &SocketAddr, longest: Option<u32>) -> Result<OwnedFd, Errno> {
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

impl Connector {
    /// Begins to connect.
    pub(crate) fn begin(
        identity: &LocalIdentity,
        whom: (SocketAddr, (u32, u32), StreamNumber),
        now: Instant,
    ) -> Result<Self, ConnectFailure> {
        let longest = (identity.me.world == AGENTS).then_some(TCP_SEGMENT);
        Self::begin_with(identity, whom, longest, now)
    }

    /// Begins a call with segments of bounded length; `longest`: bytes of a segment at most, either
    /// side's.
    pub(crate) fn begin_with(
        identity: &LocalIdentity,
        (address, to, stream): (SocketAddr, (u32, u32), StreamNumber),
        longest: Option<u32>,
        now: Instant,
    ) -> Result<Self, ConnectFailure> {
        let socket = connect_with(&address, longest).map_err(|errno| match errno {
            Errno::CONNREFUSED => ConnectFailure::Refused,
            _ => ConnectFailure::Unreachable,
        })?;
        let (caller, call) =
            Initiator::call(identity, to, stream).map_err(|_| ConnectFailure::Unreachable)?;
        Ok(Self {
            side: ConnectRole::Calling(ConnectAttempt {
                socket,
                caller: Some(caller),
                call,
                came: Vec::new(),
            }),
            identity: identity.clone(),
            to,
            stream,
            begun: now,
            called: None,
            kept: false,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match &self.side {
            ConnectRole::Calling(calling) => calling.socket.as_fd(),
            ConnectRole::Called(peer) => peer.socket().as_fd(),
        }
    }

    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    /// Since when the other side has the call.
    pub(crate) fn called(&self) -> Option<Instant> {
        self.called
    }

    /// Since when it waits for what the peer says: to this side's call, or to this side's answer.
    pub(crate) fn waits_since(&self) -> Option<Instant> {
        match &self.side {
            ConnectRole::Calling(_) => self.called,
            ConnectRole::Called(peer) => Some(peer.since()),
        }
    }

    /// Returns whether a host between keeps the call, and the one called is to be told.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept && matches!(self.side, ConnectRole::Calling(_))
    }

    /// When it has lasted as long as it may, and what it is then. `None`: whoever has the call
    /// answers when it looks, and that its host lives the kernel finds out.
    pub(crate) fn limit(&self) -> Option<(Instant, ConnectFailure)> {
        match &self.side {
            ConnectRole::Called(peer) => {
                Some((peer.since() + RELAY_HALF_LIMIT, ConnectFailure::Alone))
            }
            ConnectRole::Calling(_) if self.called.is_some() => None,
            ConnectRole::Calling(_) => {
                Some((self.begun + TCP_CONNECT_LIMIT, ConnectFailure::Unreachable))
            }
        }
    }

    /// Goes on after the socket became ready. `expected`: this side's next number.
    pub(crate) fn step(mut self, expected: u32, now: Instant) -> ConnectStep {
        let calling = match self.side {
            ConnectRole::Calling(calling) => calling,
            ConnectRole::Called(mut peer) => {
                let next = peer.look(&self.identity, admit((self.to, self.stream), expected));
                self.side = ConnectRole::Called(peer);
                return self.be_called(next);
            }
        };
        let mut calling = calling;
        if self.called.is_none() {
            match calling.leave() {
                Ok(true) => self.called = Some(now),
                Ok(false) => {
                    self.side = ConnectRole::Calling(calling);
                    return ConnectStep::Wait(self);
                }
                Err(failure) => return ConnectStep::Failed(failure),
            }
        }
        loop {
            match connection::recv_onto(&calling.socket, &mut calling.came, OPENING_MAX) {
                IoResult::Moved(_) => {}
                IoResult::Later => {
                    self.side = ConnectRole::Calling(calling);
                    return ConnectStep::Wait(self);
                }
                IoResult::Over if self.kept => return ConnectStep::Failed(ConnectFailure::Alone),
                IoResult::Over => return ConnectStep::Failed(ConnectFailure::Cut),
            }
            match calling.hear_between(&self.identity, &mut self.kept) {
                Ok(false) => {}
                Ok(true) => {
                    let mut peer = Unauthenticated::new(calling.socket, calling.came, now);
                    let next = peer.hear(&self.identity, admit((self.to, self.stream), expected));
                    self.side = ConnectRole::Called(peer);
                    return self.be_called(next);
                }
                Err(fault) => return ConnectStep::Failed(ConnectFailure::Fault(fault)),
            }
            let Some(caller) = calling.caller.take() else {
                return ConnectStep::Failed(ConnectFailure::Cut);
            };
            match caller.answered(&calling.came, expected) {
                Err(fault) => return ConnectStep::Failed(ConnectFailure::Fault(fault)),
                Ok(InitiatorStep::More(caller)) => calling.caller = Some(caller),
                Ok(InitiatorStep::Done {
                    expected,
                    terms,
                    consumed,
                    proof,
                }) => {
                    let sent = connection::send(&calling.socket, &proof, AfterRead::Nothing);
                    if sent != IoResult::Moved(proof.len()) {
                        return ConnectStep::Failed(ConnectFailure::Cut);
                    }
                    let ahead = calling.came.split_off(consumed);
                    let channel = Connection::new(calling.socket, terms, ahead);
                    return ConnectStep::Open(channel, expected);
                }
            }
        }
    }

    fn be_called(self, next: HandshakeProgress) -> ConnectStep {
        match (self.side, next) {
            (side, HandshakeProgress::Stays) => ConnectStep::Wait(Self { side, ..self }),
            (_, HandshakeProgress::Leaves(Some(fault))) => {
                ConnectStep::Failed(ConnectFailure::Fault(fault))
            }
            (ConnectRole::Called(peer), HandshakeProgress::Proved(proof)) => {
                match peer.admitted(proof) {
                    Some(newcomer) => ConnectStep::Open(newcomer.channel, newcomer.expected),
                    None => ConnectStep::Failed(ConnectFailure::Alone),
                }
            }
            _ => ConnectStep::Failed(ConnectFailure::Alone),
        }
    }
}

impl ConnectAttempt {
    /// Has the call leave, once the connection stands. Whether it has.
    fn leave(&self) -> Result<bool, ConnectFailure> {
        match sockopt::socket_error(&self.socket) {
            Ok(Ok(())) => {}
            Ok(Err(Errno::CONNREFUSED)) => return Err(ConnectFailure::Refused),
            _ => return Err(ConnectFailure::Unreachable),
        }
        if connection::is_closed(&self.socket) {
            return Err(ConnectFailure::Unheard);
        }
        match connection::send(&self.socket, &self.call, AfterRead::Nothing) {
            // A new connection takes the call at once; one that does not is not worth keeping.
            IoResult::Moved(moved) if moved == self.call.len() => Ok(true),
            IoResult::Later => Ok(false),
            _ => Err(ConnectFailure::Unheard),
        }
    }

    /// Takes what a host between says, if it does. Whether this side is the called one from now on.
    fn hear_between(
        &mut self,
        identity: &LocalIdentity,
        kept: &mut bool,
    ) -> Result<bool, HandshakeError> {
        if matches!(identity.me.world, AGENTS | ASKED) {
            return Ok(false);
        }
        while let Some((reason, consumed)) = relay_protocol::heard(&self.came) {
            self.came.drain(..consumed);
            match reason {
                RejectReason::Turn => return Ok(true),
                // Once; who says it again and again says nothing.
                _ if *kept => return Err(HandshakeError::Garbage),
                _ => *kept = true,
            }
        }
        Ok(false)
    }
}

/// Nobody but the one that was called is let in, on the stream for which it was.
fn admit(
    ((rank, incarnation), stream): ((u32, u32), StreamNumber),
    expected: u32,
) -> impl FnOnce(&ProcessId, StreamNumber) -> Result<u32, RejectReason> {
    move |from, wanted| {
        let is_it = (from.rank, from.incarnation) == (rank, incarnation) && from.world != ASKED;
        match is_it && wanted == stream {
            true => Ok(expected),
            false => Err(RejectReason::Other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::Secret;

    #[test]
    fn who_is_cut_off_before_its_call_has_left_was_not_heard() {
        let listener = crate::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let me = ProcessId {
            job: [1; 16],
            world: 0,
            rank: 0,
            incarnation: 0,
        };
        let identity = LocalIdentity::new(Secret::generate().unwrap(), me, false);
        let (address, now) = (listener.local_addr().unwrap(), Instant::now());
        let begin =
            || Connector::begin(&identity, (address, (1, 0), StreamNumber::Small), now).unwrap();
        let unheard = begin();
        rustix::net::shutdown(unheard.fd(), rustix::net::Shutdown::Write).unwrap();
        let ConnectStep::Failed(failure) = unheard.step(0, now) else {
            panic!("it was heard")
        };
        assert_eq!(failure, ConnectFailure::Unheard);
        let ConnectStep::Wait(heard) = begin().step(0, now) else {
            panic!("nobody has answered")
        };
        // By the other side, which has no place for it.
        let unheard = begin();
        let [_first, theirs, last] = [(); 3].map(|()| listener.accept().unwrap().0);
        drop(last);
        let ConnectStep::Failed(failure) = unheard.step(0, now) else {
            panic!("it was heard")
        };
        assert_eq!(failure, ConnectFailure::Unheard);
        drop(theirs);
        let ConnectStep::Failed(failure) = heard.step(0, now) else {
            panic!("it was cut")
        };
        assert_eq!(failure, ConnectFailure::Cut);
    }
}
