//! Ways for large data by further networks: when they are opened, what is asked for on them, when they are left alone.
//!
//! Part of [`TcpRail`]; called from its polls and its looks. That such a way fails says nothing of the peer.

use crate::limits::TCP_FURTHER_AGAIN;
use crate::tcp::TcpRail;
use crate::tcp::fabric::ways::STREAM as FABRIC_STREAM;
use crate::tcp::frame::Stream;
use crate::tcp::line::Failure;
use garonne_engine::api::Peer;
use garonne_engine::limits::SPLIT_WAYS;
use std::net::SocketAddr;
use std::time::Instant;

impl TcpRail {
    /// What is to be read and nobody is asked for is asked for, and ways are opened that are worth it.
    pub(super) fn spread(&mut self, peer: Peer) {
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        if !remote.paths.is_wanted() {
            return;
        }
        let consult = self.gathering.splits.as_deref();
        let mut asked = remote.paths.spread(consult.map(|loaded| (loaded, peer)));
        if let Some(ended) = remote.paths.refused_whole() {
            self.tell_of(peer, ended);
        }
        while asked != 0 {
            self.flush(peer, Stream::Bulk(asked.trailing_zeros() as u8));
            asked &= asked - 1;
        }
    }

    /// Leaves the networks that are to be left alone, and may use all others again. What every pair needs is opened anew if there is another network; what was under way is sent
    /// and asked for again there.
    pub(super) fn leave_drained(&mut self) {
        for peer in self.open.clone() {
            let Some(Some(remote)) = self.remotes.get(peer as usize) else {
                continue;
            };
            for stream in remote.streams() {
                let Some(ends) = self.ends(peer, stream) else {
                    continue;
                };
                let drained = self.is_drained(ends);
                let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
                    break;
                };
                match stream {
                    Stream::Bulk(path @ 1..) => remote.paths.set_drained(path, drained),
                    _ if drained
                        && self
                            .hosts
                            .addresses(peer)
                            .first()
                            .is_some_and(|first| !self.hosts.is_drained(first.ip())) =>
                    {
                        remote.calls(stream).start_over();
                        self.broke(peer, stream);
                    }
                    _ => {}
                }
            }
            self.spread(peer);
        }
    }

    /// Whether a connection between these ends is on a network that is to be left alone.
    pub(super) fn is_drained(&self, (own, other): (SocketAddr, SocketAddr)) -> bool {
        self.hosts.is_drained(own.ip()) || self.hosts.is_drained(other.ip())
    }

    /// Looks for ways that bring nothing while others could.
    pub(super) fn listen(&mut self, peer: Peer) {
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        let had_fabric = remote.fd(FABRIC_STREAM).is_some();
        let silent = remote.paths.listen();
        if had_fabric && remote.fd(FABRIC_STREAM).is_none() {
            // Given up.
            self.broke(peer, FABRIC_STREAM);
        }
        self.listen_to_fabric(peer);
        if silent {
            self.spread(peer);
        }
    }

    /// Opens the ways that large data to read are worth.
    pub(super) fn widen(&mut self, peer: Peer) {
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        if remote.fd(Stream::Bulk(0)).is_none() {
            self.want(peer, Stream::Bulk(0));
        }
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        if !remote.paths.is_much() {
            return;
        }
        self.want_fabric(peer);
        let networks = self.hosts.networks(peer);
        // The network that every pair's connection takes counts once.
        let first = self.ends(peer, Stream::Bulk(0)).map(|(_, other)| other.ip());
        for (network, path) in networks.iter().zip(1..SPLIT_WAYS as u8) {
            let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
                return;
            };
            if first.is_some_and(|first| first != network.ip()) && !self.hosts.is_drained(network.ip()) {
                remote.paths.expect_several();
                self.want(peer, Stream::Bulk(path));
            }
        }
    }

    /// The call by a further network failed: that says nothing of the peer, and it is tried again later as long as there is much to move.
    pub(super) fn failed_further(&mut self, peer: Peer, stream: Stream, failure: &Failure, now: Instant) {
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        let calls = remote.calls(stream);
        let _ = calls.failed(failure, now);
        calls.put_off(now + TCP_FURTHER_AGAIN);
        self.remind(now + TCP_FURTHER_AGAIN);
    }
}
