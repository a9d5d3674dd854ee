//! What the TCP transport does when time has passed, and before its owner sleeps: calls that are
//! due, hosts that have fallen silent.
//!
//! Part of [`TcpTransport`]; called from its looks at the sockets alone. Nothing here delivers to
//! the engine.

use crate::TcpTransport;
use crate::bulk::BulkConnection;
use crate::frame::StreamNumber;
use crate::packet_stream::SendResult;
use crate::peer::ConnectAttempts;
use crate::sys;
use garonne_engine::api::Peer;
use garonne_transport::limits::{TCP_AWAY, TCP_SILENCE_LOOK, TCP_SILENCE_MAX};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Time that a process has had of its processors since a moment.
#[derive(Debug)]
pub(super) struct TimerResult(Duration);

impl TimerResult {
    pub(super) fn begin() -> Self {
        Self(Self::now())
    }

    fn now() -> Duration {
        Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
    }

    fn elapsed(&self) -> Duration {
        Self::now().saturating_sub(self.0)
    }
}

impl TcpTransport {
    /// To be called before anything else is done in a look: what is due for long could not be done,
    /// by this side and perhaps by all, who may have been stopped together.
    pub(super) fn come_back(&mut self, now: Instant) {
        let Some(time) = self.deadline.map(|due| now.saturating_duration_since(due)) else {
            return;
        };
        // Who computes could have looked.
        if time < TCP_AWAY || self.worked.elapsed() > time / 2 {
            return;
        }
        for peer in &self.open {
            let Some(Some(remote)) = self.remotes.get_mut(*peer as usize) else {
                continue;
            };
            for stream in remote.streams() {
                remote.calls(stream).away(time, now);
            }
        }
    }

    /// Does what is due by the clock.
    pub(super) fn keep_time(&mut self, now: Instant) {
        self.deadline = None;
        self.wake.set_deadline(None);
        if let Some(at) = self.door.keep_time(now) {
            self.remind(at);
        }
        let listen = now >= self.listened + TCP_SILENCE_LOOK;
        if listen {
            self.listened = now;
        }
        let mut unconfirmed = false;
        for peer in self.open.clone() {
            if listen {
                self.listen(peer);
            }
            let Some(Some(remote)) = self.remotes.get(peer as usize) else {
                continue;
            };
            for stream in remote.streams() {
                let silence = if listen {
                    self.silence(peer, stream)
                } else {
                    None
                };
                unconfirmed |= silence.is_some();
                if silence.is_some_and(|silence| silence > TCP_SILENCE_MAX) {
                    self.cut_short(peer, stream);
                    self.fell_silent(peer, stream, now);
                }
                let Some(Some(remote)) = self.remotes.get(peer as usize) else {
                    break;
                };
                let calls = remote.call_of(stream);
                match calls.and_then(ConnectAttempts::due) {
                    Some(due) if due > now => self.remind(due),
                    Some(_) => match calls.and_then(|calls| calls.late(now)) {
                        Some(failure) => self.failed(peer, stream, failure, now),
                        None if calls.is_some_and(ConnectAttempts::is_out) => {
                            self.ask(peer, stream, now)
                        }
                        None => self.call(peer, stream, now),
                    },
                    None => {}
                }
            }
        }
        if listen {
            self.unconfirmed = unconfirmed;
        }
        self.listen_again(now);
        self.worked = TimerResult::begin();
    }

    /// While bytes are under way, the hosts they go to are listened for. Of what needs no answer of
    /// the peer's, such as acknowledgements, the kernel alone knows whether it arrived; as long as
    /// it has not, the kernel does not probe, and tries for a quarter of an hour.
    fn listen_again(&mut self, now: Instant) {
        let waiting = |peer: &Peer| {
            self.remotes[*peer as usize]
                .as_ref()
                .is_some_and(|remote| remote.is_waiting())
        };
        if self.unconfirmed || self.open.iter().any(waiting) {
            self.remind(now + TCP_SILENCE_LOOK);
        }
    }

    /// Cuts a connection short: bytes in its socket are not sent any more when it is closed: the
    /// end of the connection would stand behind it, and the peer would never hear of that where
    /// only long packets are lost.
    pub(super) fn cut_short(&self, peer: Peer, stream: StreamNumber) {
        let remote = self.remotes[peer as usize].as_ref();
        if let Some(socket) = remote.and_then(|remote| remote.fd(stream)) {
            let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
        }
    }

    /// For how long a peer's host has not confirmed what is under way on a stream; `None`: nothing
    /// is.
    fn silence(&self, peer: Peer, stream: StreamNumber) -> Option<Duration> {
        let remote = self.remotes[peer as usize].as_ref()?;
        sys::unanswered(remote.fd(stream)?)
    }

    /// Sockets that hold little of large data, since somebody polled who would have filled them
    /// again, take what they have room for.
    fn fill_sockets(&mut self) {
        for at in 0..self.open.len() {
            let peer = self.open[at];
            let Some(Some(remote)) = self.remotes.get(peer as usize) else {
                continue;
            };
            for path in remote.paths.numbers() {
                let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
                    break;
                };
                if remote
                    .paths
                    .at(path)
                    .bulk
                    .socket_mut()
                    .is_some_and(BulkConnection::is_left)
                {
                    self.flush(peer, StreamNumber::Bulk(path));
                }
            }
        }
    }

    /// Last words before the owner sleeps: acknowledgements that are owed, deaths that the host
    /// knows of, the time to wake up.
    pub fn before_sleep(&mut self) {
        for at in 0..self.open.len() {
            let peer = self.open[at];
            if self.hosts.is_gone(peer) {
                self.peer_gone(peer);
            }
            if let Some(remote) = &mut self.remotes[peer as usize]
                && remote.link.owes()
            {
                self.unconfirmed = true;
                if remote.link.acknowledge() == SendResult::Over {
                    self.mark_ready(peer);
                }
            }
        }
        self.fill_sockets();
        self.watch_fabrics();
        self.listen_again(Instant::now());
        self.must_look = true;
    }
}
