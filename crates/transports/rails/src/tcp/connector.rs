//! Making a connection to a peer: socket, addresses in turn, the calling side of the handshake.
//! Never blocks.
//!
//! Owned by the rail, one per peer and stream that this side opens. Time is an argument. Where a
//! host between answers that has this side's call and the peer's, and so neither of the two called
//! ones, it makes this side the called one: the attempt goes on as a stranger's (`unauthenticated`) that
//! nobody but the peer can be.

use crate::limits::{
    RELAY_HALF_LIMIT, TCP_CONNECT_LIMIT, TCP_PROBE_AFTER_S, TCP_PROBE_EVERY_S, TCP_PROBES,
    TCP_SEGMENT,
};
use crate::sys;
use crate::tcp::agent_channel::AGENTS;
use crate::tcp::connection::{self, Channel, Io, Then};
use crate::tcp::frame::{ASKED, OPENING_MAX, Process, Reason, Stream};
use crate::tcp::handshake::{Answered, Caller, Fault, House};
use crate::tcp::relay_protocol;
use crate::tcp::unauthenticated::{Next, Stranger};
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
    /// It was accepted, and closed before the call had left: by one who has no place for more
    /// callers, as a rule. That says nothing of who is there.
    Unheard,
    /// It was accepted and then cut, behind the call.
    Cut,
    /// A host between kept it, and the one called did not come there, or not in time.
    Alone,
    /// The handshake failed.
    Fault(Fault),
}

/// An attempt under way.
#[derive(Debug)]
pub(crate) struct Line {
    side: Side,
    house: House,
    to: (u32, u32),
    stream: Stream,
    begun: Instant,
    /// When the connection stood and the call left.
    called: Option<Instant>,
    /// A host between has said that it keeps the call.
    kept: bool,
}

#[derive(Debug)]
enum Side {
    Calling(Calling),
    /// By a host between.
    Called(Stranger),
}

#[derive(Debug)]
struct Calling {
    socket: OwnedFd,
    caller: Option<Caller>,
    /// The call, until it has left.
    call: Vec<u8>,
    came: Vec<u8>,
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

impl Line {
    /// Begins to connect.
    pub(crate) fn begin(
        house: &House,
        whom: (SocketAddr, (u32, u32), Stream),
        now: Instant,
    ) -> Result<Self, Failure> {
        let longest = (house.me.world == AGENTS).then_some(TCP_SEGMENT);
        Self::begin_with(house, whom, longest, now)
    }

    /// The same; `longest`: bytes of a segment at most, either side's.
    pub(crate) fn begin_with(
        house: &House,
        (address, to, stream): (SocketAddr, (u32, u32), Stream),
        longest: Option<u32>,
        now: Instant,
    ) -> Result<Self, Failure> {
        let socket = connect_with(&address, longest).map_err(|errno| match errno {
            Errno::CONNREFUSED => Failure::Refused,
            _ => Failure::Unreachable,
        })?;
        let (caller, call) = Caller::call(house, to, stream).map_err(|_| Failure::Unreachable)?;
        Ok(Self {
            side: Side::Calling(Calling {
                socket,
                caller: Some(caller),
                call,
                came: Vec::new(),
            }),
            house: house.clone(),
            to,
            stream,
            begun: now,
            called: None,
            kept: false,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match &self.side {
            Side::Calling(calling) => calling.socket.as_fd(),
            Side::Called(peer) => peer.socket().as_fd(),
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
            Side::Calling(_) => self.called,
            Side::Called(peer) => Some(peer.since()),
        }
    }

    /// Whether a host between keeps the call, and the one called is to be told.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept && matches!(self.side, Side::Calling(_))
    }

    /// When it has lasted as long as it may, and what it is then. `None`: whoever has the call
    /// answers when it looks, and that its host lives the kernel finds out.
    pub(crate) fn limit(&self) -> Option<(Instant, Failure)> {
        match &self.side {
            Side::Called(peer) => Some((peer.since() + RELAY_HALF_LIMIT, Failure::Alone)),
            Side::Calling(_) if self.called.is_some() => None,
            Side::Calling(_) => Some((self.begun + TCP_CONNECT_LIMIT, Failure::Unreachable)),
        }
    }

    /// Goes on after the socket became ready. `expected`: this side's next number.
    pub(crate) fn step(mut self, expected: u32, now: Instant) -> Step {
        let calling = match self.side {
            Side::Calling(calling) => calling,
            Side::Called(mut peer) => {
                let next = peer.look(&self.house, admit((self.to, self.stream), expected));
                self.side = Side::Called(peer);
                return self.be_called(next);
            }
        };
        let mut calling = calling;
        if self.called.is_none() {
            match calling.leave() {
                Ok(true) => self.called = Some(now),
                Ok(false) => {
                    self.side = Side::Calling(calling);
                    return Step::Wait(self);
                }
                Err(failure) => return Step::Failed(failure),
            }
        }
        loop {
            match connection::recv_onto(&calling.socket, &mut calling.came, OPENING_MAX) {
                Io::Moved(_) => {}
                Io::Later => {
                    self.side = Side::Calling(calling);
                    return Step::Wait(self);
                }
                Io::Over if self.kept => return Step::Failed(Failure::Alone),
                Io::Over => return Step::Failed(Failure::Cut),
            }
            match calling.hear_between(&self.house, &mut self.kept) {
                Ok(false) => {}
                Ok(true) => {
                    let mut peer = Stranger::new(calling.socket, calling.came, now);
                    let next = peer.hear(&self.house, admit((self.to, self.stream), expected));
                    self.side = Side::Called(peer);
                    return self.be_called(next);
                }
                Err(fault) => return Step::Failed(Failure::Fault(fault)),
            }
            let Some(caller) = calling.caller.take() else {
                return Step::Failed(Failure::Cut);
            };
            match caller.answered(&calling.came, expected) {
                Err(fault) => return Step::Failed(Failure::Fault(fault)),
                Ok(Answered::More(caller)) => calling.caller = Some(caller),
                Ok(Answered::Done {
                    expected,
                    terms,
                    consumed,
                    proof,
                }) => {
                    let sent = connection::send(&calling.socket, &proof, Then::Nothing);
                    if sent != Io::Moved(proof.len()) {
                        return Step::Failed(Failure::Cut);
                    }
                    let ahead = calling.came.split_off(consumed);
                    let channel = Channel::new(calling.socket, terms, ahead);
                    return Step::Open(channel, expected);
                }
            }
        }
    }

    fn be_called(self, next: Next) -> Step {
        match (self.side, next) {
            (side, Next::Stays) => Step::Wait(Self { side, ..self }),
            (_, Next::Leaves(Some(fault))) => Step::Failed(Failure::Fault(fault)),
            (Side::Called(peer), Next::Proved(proof)) => match peer.admitted(proof) {
                Some(newcomer) => Step::Open(newcomer.channel, newcomer.expected),
                None => Step::Failed(Failure::Alone),
            },
            _ => Step::Failed(Failure::Alone),
        }
    }
}

impl Calling {
    /// Has the call leave, once the connection stands. Whether it has.
    fn leave(&self) -> Result<bool, Failure> {
        match sockopt::socket_error(&self.socket) {
            Ok(Ok(())) => {}
            Ok(Err(Errno::CONNREFUSED)) => return Err(Failure::Refused),
            _ => return Err(Failure::Unreachable),
        }
        if connection::is_closed(&self.socket) {
            return Err(Failure::Unheard);
        }
        match connection::send(&self.socket, &self.call, Then::Nothing) {
            // A new connection takes the call at once; one that does not is not worth keeping.
            Io::Moved(moved) if moved == self.call.len() => Ok(true),
            Io::Later => Ok(false),
            _ => Err(Failure::Unheard),
        }
    }

    /// Takes what a host between says, if it does. Whether this side is the called one from now on.
    fn hear_between(&mut self, house: &House, kept: &mut bool) -> Result<bool, Fault> {
        if matches!(house.me.world, AGENTS | ASKED) {
            return Ok(false);
        }
        while let Some((reason, consumed)) = relay_protocol::heard(&self.came) {
            self.came.drain(..consumed);
            match reason {
                Reason::Turn => return Ok(true),
                // Once; who says it again and again says nothing.
                _ if *kept => return Err(Fault::Garbage),
                _ => *kept = true,
            }
        }
        Ok(false)
    }
}

/// Nobody but the one that was called is let in, on the stream for which it was.
fn admit(
    ((rank, incarnation), stream): ((u32, u32), Stream),
    expected: u32,
) -> impl FnOnce(&Process, Stream) -> Result<u32, Reason> {
    move |from, wanted| {
        let is_it = (from.rank, from.incarnation) == (rank, incarnation) && from.world != ASKED;
        match is_it && wanted == stream {
            true => Ok(expected),
            false => Err(Reason::Other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::handshake::Secret;

    #[test]
    fn who_is_cut_off_before_its_call_has_left_was_not_heard() {
        let listener = crate::tcp::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let me = Process {
            job: [1; 16],
            world: 0,
            rank: 0,
            incarnation: 0,
        };
        let house = House::new(Secret::generate().unwrap(), me, false);
        let (address, now) = (listener.local_addr().unwrap(), Instant::now());
        let begin = || Line::begin(&house, (address, (1, 0), Stream::Small), now).unwrap();
        let unheard = begin();
        rustix::net::shutdown(unheard.fd(), rustix::net::Shutdown::Write).unwrap();
        let Step::Failed(failure) = unheard.step(0, now) else {
            panic!("it was heard")
        };
        assert_eq!(failure, Failure::Unheard);
        let Step::Wait(heard) = begin().step(0, now) else {
            panic!("nobody has answered")
        };
        // By the other side, which has no place for it.
        let unheard = begin();
        let [_first, theirs, last] = [(); 3].map(|()| listener.accept().unwrap().0);
        drop(last);
        let Step::Failed(failure) = unheard.step(0, now) else {
            panic!("it was heard")
        };
        assert_eq!(failure, Failure::Unheard);
        drop(theirs);
        let Step::Failed(failure) = heard.step(0, now) else {
            panic!("it was cut")
        };
        assert_eq!(failure, Failure::Cut);
    }
}
