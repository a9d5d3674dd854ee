//! The listener: the port at which unauthenticated callers come in, prove who they are, or leave.
//!
//! Owned by the transport. Strangers are bounded in number, bytes and time, and the kernel's queue
//! before them too: a flood costs the job no more than the turns of [`TCP_ACCEPTS_PER_POLL`]. Who
//! has shown the secret stays when room is needed, for a while; a replayed call shows it, too, but
//! gets no further. While there is no place for those who wait in the kernel's queue, nobody is
//! woken for them.

use crate::connection;
use crate::connector::prepare;
use crate::frame::{ProcessId, RejectReason, StreamNumber};
use crate::handshake::{HandshakeError, LocalIdentity};
use crate::listener_gate::{ListenerGate, accept};
use crate::unauthenticated::{Authenticated, HandshakeProgress, Unauthenticated};
use garonne_engine::api::Error;
use garonne_transport::limits::{
    TCP_ACCEPTS_PER_POLL, TCP_AUTHENTICATION_LIMIT, TCP_BACKLOG, TCP_PROOF_STAYS,
    TCP_UNAUTHENTICATED_MAX,
};
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
    let socket =
        rustix::net::socket_with(family, SocketType::STREAM, flags, None).map_err(failed)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true).map_err(failed)?;
    rustix::net::bind(&socket, &address).map_err(failed)?;
    rustix::net::listen(&socket, TCP_BACKLOG).map_err(failed)?;
    Ok(TcpListener::from(socket))
}

/// Accepts connections and holds those whose peers have not proved themselves yet. Owned by the
/// transport.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: OwnedFd,
    latch: ListenerGate,
    strangers: Vec<Option<Unauthenticated>>,
    /// The last that was sent away for what it said.
    turned_away: Option<(IpAddr, HandshakeError)>,
}

impl Listener {
    pub(crate) fn new(listener: OwnedFd) -> Self {
        Self {
            latch: ListenerGate::new(&listener),
            listener,
            strangers: (0..TCP_UNAUTHENTICATED_MAX).map(|_| None).collect(),
            turned_away: None,
        }
    }

    /// Readable when somebody can come in.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.latch.fd(&self.listener)
    }

    /// A place is free.
    fn unlatch(&mut self) {
        self.latch.open(&self.listener);
    }

    /// Lets some in; each takes a place, whose socket is handed to `watch`.
    pub(crate) fn open(
        &mut self,
        now: Instant,
        watch: &mut dyn FnMut(usize, BorrowedFd<'_>) -> bool,
    ) {
        for _ in 0..TCP_ACCEPTS_PER_POLL {
            if self.open_to_one(now, watch).is_none() {
                return;
            }
        }
    }

    /// Accepts one connection, if one waits and there is a place for it: that.
    pub(crate) fn open_to_one(
        &mut self,
        now: Instant,
        watch: &mut dyn FnMut(usize, BorrowedFd<'_>) -> bool,
    ) -> Option<usize> {
        // Those who wait in the kernel's queue are heard when one of those in here has gone on.
        let place = match self.place(now) {
            Ok(place) => place,
            Err(free) => {
                let wait = free.saturating_duration_since(now);
                self.latch.shut(&self.listener, wait);
                return None;
            }
        };
        let socket = accept(&self.listener, &mut self.latch)?;
        self.strangers[place] = None;
        if watch(place, socket.as_fd()) {
            self.strangers[place] = Some(Unauthenticated::new(socket, Vec::new(), now));
        }
        Some(place)
    }

    /// Hands the sockets of all who are inside to `watch`, with their places: the owner is another
    /// from now on, and whoever nobody watches is never heard.
    pub(crate) fn hand_over(&mut self, watch: &mut dyn FnMut(usize, BorrowedFd<'_>) -> bool) {
        let mut left = false;
        for (place, stranger) in self.strangers.iter_mut().enumerate() {
            left |= stranger
                .take_if(|stranger| !watch(place, stranger.socket().as_fd()))
                .is_some();
        }
        if left {
            self.unlatch();
        }
    }

    /// A free place; if there is none, that of the oldest who has shown nothing, or else of the
    /// oldest who has shown the secret, and had the time to prove it. An error: when that will have
    /// had it.
    fn place(&self, now: Instant) -> Result<usize, Instant> {
        let standing = |place: &usize| {
            self.strangers[*place]
                .as_ref()
                .map(|stranger| (stranger.has_shown(), stranger.since()))
        };
        let place = (0..self.strangers.len()).min_by_key(standing).unwrap_or(0);
        match standing(&place) {
            Some((true, since)) if now < since + TCP_PROOF_STAYS => Err(since + TCP_PROOF_STAYS),
            _ => Ok(place),
        }
    }

    /// Looks at one whose socket is ready.
    pub(crate) fn look(
        &mut self,
        place: usize,
        identity: &LocalIdentity,
        admit: impl FnOnce(&ProcessId, StreamNumber) -> Result<u32, RejectReason>,
    ) -> Option<Authenticated> {
        let stranger = self.strangers.get_mut(place)?.as_mut()?;
        match stranger.look(identity, admit) {
            HandshakeProgress::Stays => None,
            HandshakeProgress::Leaves(fault) => {
                let from = rustix::net::getpeername(stranger.socket()).ok().flatten();
                let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                if let (Some(fault), Some(from)) = (fault, from) {
                    self.turned_away = Some((from.ip().to_canonical(), fault));
                }
                self.strangers[place] = None;
                self.unlatch();
                None
            }
            HandshakeProgress::Proved(proof) => {
                let stranger = self.strangers[place].take()?;
                self.unlatch();
                prepare(stranger.socket()).ok()?;
                stranger.admitted(proof)
            }
        }
    }

    /// Returns the address that was sent away last since this was last asked, and why: for messages
    /// to people.
    pub(crate) fn turned_away(&mut self) -> Option<(IpAddr, HandshakeError)> {
        self.turned_away.take()
    }

    /// Returns how many places are taken.
    #[cfg(test)]
    pub(crate) fn strangers_inside(&self) -> usize {
        self.strangers.iter().flatten().count()
    }

    /// Closes those that took too long, unless one has said something that nobody has looked at:
    /// the time may have been the owner's. When the next one will have.
    pub(crate) fn keep_time(&mut self, now: Instant) -> Option<Instant> {
        let mut left = false;
        for stranger in &mut self.strangers {
            left |= stranger
                .take_if(|stranger| {
                    now >= stranger.since() + TCP_AUTHENTICATION_LIMIT
                        && !connection::has_come(stranger.socket())
                })
                .is_some();
        }
        if left {
            self.unlatch();
        }
        let since = self
            .strangers
            .iter()
            .flatten()
            .map(Unauthenticated::since)
            .min();
        since.map(|since| since + TCP_AUTHENTICATION_LIMIT)
    }
}
