//! The listening port: strangers come in, prove who they are, or leave.
//!
//! Owned by the rail. Strangers are bounded in number, bytes and time, and the kernel's queue before them too: a flood costs the job no more than the turns
//! of [`TCP_ACCEPTS_PER_POLL`]. Who has shown the secret stays when room is needed, for a while; a replayed call shows it, too, but gets no further.

use crate::limits::{
    TCP_ACCEPTS_PER_POLL, TCP_BACKLOG, TCP_PROOF_STAYS, TCP_STRANGER_LIMIT, TCP_STRANGERS_MAX,
};
use crate::tcp::channel::{self, Channel, Io, Then};
use crate::tcp::frame::{OPENING_MAX, Process, Reason, Stream};
use crate::tcp::handshake::{Callee, Fault, Heard, House};
use crate::tcp::line::prepare;
use garonne_engine::api::Error;
use rustix::net::SocketFlags;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// A listening socket for a rank, on an address of which the port may be 0.
///
/// # Errors
/// The address cannot be listened on.
pub fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    let failed = |errno: rustix::io::Errno| Error::System {
        what: "cannot listen for ranks of other hosts",
        errno: errno.raw_os_error(),
    };
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None).map_err(failed)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true).map_err(failed)?;
    rustix::net::bind(&socket, &address).map_err(failed)?;
    rustix::net::listen(&socket, TCP_BACKLOG).map_err(failed)?;
    Ok(TcpListener::from(socket))
}

#[derive(Debug)]
struct Stranger {
    socket: OwnedFd,
    came: Vec<u8>,
    /// It has shown the secret and was answered.
    callee: Option<Box<Callee>>,
    since: Instant,
}

/// Who has proved itself.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub(crate) from: Process,
    pub(crate) stream: Stream,
    pub(crate) channel: Channel,
    /// The number it expects next.
    pub(crate) expected: u32,
}

/// What became of a stranger at a look.
#[derive(Debug)]
enum Next {
    Stays,
    /// For what is wrong with it, if it said enough.
    Leaves(Option<Fault>),
    Proved(u32, usize),
}

/// See the module's paragraph.
#[derive(Debug)]
pub(crate) struct Door {
    listener: OwnedFd,
    strangers: Vec<Option<Stranger>>,
    /// The last that was sent away for what it said.
    turned_away: Option<(IpAddr, Fault)>,
}

impl Door {
    pub(crate) fn new(listener: OwnedFd) -> Self {
        Self {
            listener,
            strangers: (0..TCP_STRANGERS_MAX).map(|_| None).collect(),
            turned_away: None,
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Lets some in. Returns the places they took, to be watched.
    pub(crate) fn open(&mut self, now: Instant, watch: &mut dyn FnMut(usize, BorrowedFd<'_>) -> bool) {
        for _ in 0..TCP_ACCEPTS_PER_POLL {
            // Those who wait in the kernel's queue are heard when one of those in here has gone on.
            let Some(place) = self.place(now) else {
                return;
            };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Ok(socket) = rustix::net::accept_with(&self.listener, flags) else {
                return;
            };
            self.strangers[place] = None;
            if watch(place, socket.as_fd()) {
                self.strangers[place] = Some(Stranger {
                    socket,
                    came: Vec::new(),
                    callee: None,
                    since: now,
                });
            }
        }
    }

    /// A free place; if there is none, that of the oldest who has shown nothing, or else of the oldest who has shown the secret, and had the time to prove it.
    fn place(&self, now: Instant) -> Option<usize> {
        let standing = |place: &usize| {
            self.strangers[*place]
                .as_ref()
                .map(|stranger| (stranger.callee.is_some(), stranger.since))
        };
        let place = (0..self.strangers.len()).min_by_key(standing)?;
        match standing(&place) {
            Some((true, since)) if now < since + TCP_PROOF_STAYS => None,
            _ => Some(place),
        }
    }

    /// Looks at one whose socket is ready.
    pub(crate) fn look(
        &mut self,
        place: usize,
        house: &House,
        admit: impl FnOnce(&Process, Stream) -> Result<u32, Reason>,
    ) -> Option<Newcomer> {
        let stranger = self.strangers.get_mut(place)?.as_mut()?;
        match stranger.look(house, admit) {
            Next::Stays => None,
            Next::Leaves(fault) => {
                let from = rustix::net::getpeername(&stranger.socket).ok().flatten();
                let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                if let (Some(fault), Some(from)) = (fault, from) {
                    self.turned_away = Some((from.ip().to_canonical(), fault));
                }
                self.strangers[place] = None;
                None
            }
            Next::Proved(expected, consumed) => {
                let mut stranger = self.strangers[place].take()?;
                let callee = *stranger.callee.take()?;
                let (from, stream) = (callee.from, callee.stream);
                prepare(&stranger.socket).ok()?;
                let ahead = stranger.came.split_off(consumed);
                Some(Newcomer {
                    from,
                    stream,
                    channel: Channel::new(stranger.socket, callee.seal(), ahead),
                    expected,
                })
            }
        }
    }

    /// Who was sent away last since this was last asked, and why: for messages to people.
    pub(crate) fn turned_away(&mut self) -> Option<(IpAddr, Fault)> {
        self.turned_away.take()
    }

    /// Who took too long leaves. When the next one will have.
    pub(crate) fn keep_time(&mut self, now: Instant) -> Option<Instant> {
        for stranger in &mut self.strangers {
            stranger.take_if(|stranger| now >= stranger.since + TCP_STRANGER_LIMIT);
        }
        let since = self
            .strangers
            .iter()
            .flatten()
            .map(|stranger| stranger.since)
            .min();
        since.map(|since| since + TCP_STRANGER_LIMIT)
    }
}

impl Stranger {
    fn look(&mut self, house: &House, admit: impl FnOnce(&Process, Stream) -> Result<u32, Reason>) -> Next {
        let had = self.came.len();
        if had < 2 * OPENING_MAX {
            self.came.resize(2 * OPENING_MAX, 0);
            let got = channel::recv(&self.socket, &mut self.came[had..]);
            self.came
                .truncate(had + if let Io::Moved(moved) = got { moved } else { 0 });
            match got {
                Io::Moved(_) => {}
                Io::Later => return Next::Stays,
                Io::Over => return Next::Leaves(None),
            }
        }
        if self.callee.is_none() {
            match Callee::hear(house, &self.came, admit) {
                Ok(Heard::More) => return Next::Stays,
                Ok(Heard::Refused(fault, bytes)) => {
                    channel::send(&self.socket, &bytes, Then::Nothing);
                    return Next::Leaves(Some(fault));
                }
                Ok(Heard::Answered {
                    callee,
                    answer,
                    consumed,
                }) => {
                    if channel::send(&self.socket, &answer, Then::Nothing) != Io::Moved(answer.len()) {
                        return Next::Leaves(None);
                    }
                    self.came.drain(..consumed);
                    self.callee = Some(callee);
                }
                Err(fault) => return Next::Leaves(Some(fault)),
            }
        }
        match self.callee.as_mut().map(|callee| callee.proved(&self.came)) {
            Some(Ok(None)) => Next::Stays,
            Some(Ok(Some((expected, consumed)))) => Next::Proved(expected, consumed),
            _ => Next::Leaves(None),
        }
    }
}
