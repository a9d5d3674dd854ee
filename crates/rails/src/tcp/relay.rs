//! Connections between ranks whose hosts have no network in common, passed on by a third host that reaches both.
//!
//! Owned by an agent of that host. Whoever calls makes the same call as at the rank itself; it shows the job's secret, so strangers get no further, and names the rank, whose
//! addresses are called in turn. From then on bytes are moved both ways as they come, a buffer at a time in each direction: the ranks prove themselves to each other,
//! and replay what a broken passage has lost, as on any connection. Never blocks; a [`Relay::turn`] moves a bounded number of bytes.

use crate::limits::{
    RELAY_BUFFER, RELAY_BUFFERS_PER_TURN, RELAY_PASSAGES_MAX, TCP_ACCEPTS_PER_POLL, TCP_CONNECT_LIMIT,
};
use crate::tcp::channel::{self, Io, Then};
use crate::tcp::frame::OPENING_MAX;
use crate::tcp::handshake::{self, Secret};
use crate::tcp::line::{self, prepare};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, sockopt};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const LISTENER: u64 = u64::MAX;
const EVENTS: usize = 32;

/// A try to reach an address, which says nothing there.
#[derive(Debug)]
pub struct Probe {
    socket: OwnedFd,
}

impl Probe {
    /// Begins; `None`: there is no way there.
    pub fn begin(address: SocketAddr) -> Option<Self> {
        let socket = line::connect(&address).ok()?;
        Some(Self { socket })
    }

    /// Ready for writing when it is decided.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether somebody listens there; asked when it is decided.
    pub fn is_taken(&self) -> bool {
        matches!(sockopt::socket_error(&self.socket), Ok(Ok(())))
            && rustix::net::getpeername(&self.socket).is_ok()
    }
}

/// One direction of a passage.
#[derive(Debug)]
struct Lane {
    buffer: Vec<u8>,
    at: usize,
    len: usize,
    /// Nothing more comes.
    ended: bool,
    /// That was passed on.
    closed: bool,
}

impl Lane {
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

    /// Moves what can be moved, a buffer at most. Whether anything was; an error: the passage is over.
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
            match channel::send(to, &self.buffer[self.at..self.len], Then::Nothing) {
                Io::Moved(sent) => (self.at, moved) = (self.at + sent, true),
                Io::Later => break,
                Io::Over => return Err(Errno::PIPE),
            }
        }
        if self.ended && !self.holds() && !self.closed {
            self.closed = true;
            rustix::net::shutdown(to, Shutdown::Write)?;
        }
        Ok(moved)
    }
}

#[derive(Debug)]
enum Passage {
    /// Has not said whom it calls.
    Hearing { caller: OwnedFd, came: Vec<u8> },
    /// The one called is being reached, at the last address of `left` if not at this one.
    Calling {
        caller: OwnedFd,
        came: Vec<u8>,
        called: OwnedFd,
        left: Vec<SocketAddr>,
    },
    /// From the caller to the called, and back.
    Flowing {
        ends: [OwnedFd; 2],
        lanes: Box<[Lane; 2]>,
    },
}

impl Passage {
    fn begin(caller: OwnedFd, came: Vec<u8>, mut left: Vec<SocketAddr>) -> Option<Self> {
        while let Some(address) = left.pop() {
            let Ok(called) = line::connect(&address) else {
                continue;
            };
            let _ = sockopt::set_tcp_user_timeout(&called, TCP_CONNECT_LIMIT.as_millis() as u32);
            return Some(Self::Calling {
                caller,
                came,
                called,
                left,
            });
        }
        None
    }

    /// Goes on; gives what it is afterwards, unless it is over, and whether there is more to do at once.
    fn look(
        self,
        (secret, job): (&Secret, [u8; 16]),
        addresses: &dyn Fn(u32) -> Vec<SocketAddr>,
    ) -> (Option<Self>, bool) {
        match self {
            Self::Hearing { caller, mut came } => {
                let had = came.len();
                came.resize(OPENING_MAX, 0);
                let got = channel::recv(&caller, &mut came[had..]);
                match got {
                    Io::Moved(got) => came.truncate(had + got),
                    Io::Later => {
                        came.truncate(had);
                        return (Some(Self::Hearing { caller, came }), false);
                    }
                    Io::Over => return (None, false),
                }
                match handshake::called(secret, job, &came) {
                    Ok(None) => (Some(Self::Hearing { caller, came }), false),
                    Ok(Some(rank)) => {
                        let mut left = addresses(rank);
                        left.reverse();
                        (Self::begin(caller, came, left), true)
                    }
                    Err(_) => (None, false),
                }
            }
            Self::Calling {
                caller,
                came,
                called,
                left,
            } => match sockopt::socket_error(&called) {
                Ok(Ok(())) if rustix::net::getpeername(&called).is_ok() => {
                    let _ = sockopt::set_tcp_user_timeout(&called, 0);
                    let lanes = Box::new([Lane::new(&came), Lane::new(&[])]);
                    let ends = [caller, called];
                    (Some(Self::Flowing { ends, lanes }), true)
                }
                Ok(Ok(())) => (
                    Some(Self::Calling {
                        caller,
                        came,
                        called,
                        left,
                    }),
                    false,
                ),
                _ => (Self::begin(caller, came, left), false),
            },
            Self::Flowing { ends, mut lanes } => {
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
                (Some(Self::Flowing { ends, lanes }), more)
            }
        }
    }

    /// Its sockets, and what to watch them for; nothing: not at all.
    fn watched(&self) -> [Option<(BorrowedFd<'_>, EventFlags)>; 2] {
        match self {
            Self::Hearing { caller, .. } => [Some((caller.as_fd(), EventFlags::IN)), None],
            Self::Calling { caller, called, .. } => [
                Some((caller.as_fd(), EventFlags::empty())),
                Some((called.as_fd(), EventFlags::OUT)),
            ],
            Self::Flowing { ends, lanes } => [0, 1].map(|end: usize| {
                let (from, to) = (&lanes[end], &lanes[1 - end]);
                let mut flags = EventFlags::empty();
                flags.set(EventFlags::IN, !from.ended && !from.holds());
                flags.set(EventFlags::OUT, to.holds());
                Some((ends[end].as_fd(), flags))
            }),
        }
    }
}

/// See the module's paragraph.
#[derive(Debug)]
pub struct Relay {
    epoll: OwnedFd,
    listener: OwnedFd,
    secret: Secret,
    job: [u8; 16],
    passages: Vec<Option<Passage>>,
    /// How many passages there have been.
    begun: u64,
}

impl Relay {
    /// Takes calls at `listener`, which does not block, from ranks of this job.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new(listener: TcpListener, secret: Secret, job: [u8; 16]) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let listener = OwnedFd::from(listener);
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        Ok(Self {
            epoll,
            listener,
            secret,
            job,
            passages: Vec::new(),
            begun: 0,
        })
    }

    /// Readable when [`Relay::turn`] has something to do.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Whether [`Relay::fd`] is readable.
    #[cfg(any(test, fuzzing))]
    fn is_called(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// How many passages there are, and how many there have been.
    pub fn passages(&self) -> (usize, u64) {
        (self.passages.iter().flatten().count(), self.begun)
    }

    /// Does what is to be done, as far as a turn goes; `addresses` are those of a rank, in the order in which to try them. What is left makes [`Relay::fd`] readable.
    pub fn turn(&mut self, addresses: &dyn Fn(u32) -> Vec<SocketAddr>) {
        let mut events = Vec::with_capacity(EVENTS);
        let now_or_never = Timespec::default();
        let spare = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&self.epoll, spare, Some(&now_or_never)).is_err() {
            return;
        }
        for event in events {
            match event.data.u64() {
                LISTENER => self.open(),
                place => self.look(place as usize, addresses),
            }
        }
    }

    fn open(&mut self) {
        for _ in 0..TCP_ACCEPTS_PER_POLL {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Ok(caller) = rustix::net::accept_with(&self.listener, flags) else {
                return;
            };
            if prepare(&caller).is_err() {
                continue;
            }
            let Some(place) = self.place() else { return };
            let passage = Passage::Hearing {
                caller,
                came: Vec::new(),
            };
            self.begun += 1;
            self.keep(place, None, passage);
        }
    }

    /// A free place; if there is none, that of one who has not said whom it calls. None: all are in use, and the caller finds nobody.
    fn place(&mut self) -> Option<usize> {
        if let Some(free) = self.passages.iter().position(Option::is_none) {
            return Some(free);
        }
        if self.passages.len() < RELAY_PASSAGES_MAX {
            self.passages.push(None);
            return Some(self.passages.len() - 1);
        }
        let mute = |passage: &Option<Passage>| matches!(passage, Some(Passage::Hearing { .. }));
        let place = self.passages.iter().position(mute)?;
        self.passages[place] = None;
        Some(place)
    }

    fn look(&mut self, place: usize, addresses: &dyn Fn(u32) -> Vec<SocketAddr>) {
        let Some(passage) = self.passages.get_mut(place).and_then(Option::take) else {
            return;
        };
        let (mut passage, mut more) = (Some(passage), true);
        // What a step has brought about the next one uses: a connection of the same host stands at once.
        for _ in 0..3 {
            let Some(now) = passage.take().filter(|_| more) else {
                break;
            };
            (passage, more) = now.look((&self.secret, self.job), addresses);
            if !more {
                break;
            }
        }
        if let Some(passage) = passage {
            self.keep(place, Some(()), passage);
        }
    }

    /// Watches a passage's sockets for what it waits for now. `known`: they may be watched already.
    fn keep(&mut self, place: usize, known: Option<()>, passage: Passage) {
        let data = EventData::new_u64(place as u64);
        for (socket, flags) in passage.watched().into_iter().flatten() {
            if flags.is_empty() {
                // The kernel tells of ends and failures of all that it knows, again and again.
                let _ = epoll::delete(&self.epoll, socket);
                continue;
            }
            let modified = known.is_some() && epoll::modify(&self.epoll, socket, data, flags).is_ok();
            if !modified && epoll::add(&self.epoll, socket, data, flags).is_err() {
                return;
            }
        }
        self.passages[place] = Some(passage);
    }
}

#[cfg(any(test, fuzzing))]
pub(crate) mod hostile;
#[cfg(test)]
mod tests;
