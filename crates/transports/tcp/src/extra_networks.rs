//! Ways for large data by further networks: when they are opened, what is asked for on them, when
//! they are left alone.
//!
//! Part of [`TcpTransport`]; called from its polls and its looks. That such a way fails says
//! nothing of the peer.

use crate::TcpTransport;
use crate::connector::ConnectFailure;
use crate::frame::StreamNumber;
use crate::ofi_path::ofi_paths::STREAM as FABRIC_STREAM;
use garonne_engine::api::Peer;
use garonne_engine::limits::STRIPE_RAILS;
use garonne_transport::limits::TCP_FURTHER_AGAIN;
use std::net::SocketAddr;
use std::time::Instant;

impl TcpTransport {
    /// Asks for what is to be read and nobody is asked for, and opens the ways that are
    /// it.
    pub(super) fn spread(&mut self, peer: Peer) {
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        if !remote.paths.is_wanted() {
            return;
        }
        let splitting = self.gathering.splitting;
        let consult = self
            .gathering
            .splits
            .as_deref()
            .map(|loaded| (loaded, peer));
        let mut asked = remote.paths.spread((splitting, consult));
        if let Some(ended) = remote.paths.refused_whole() {
            self.tell_of(peer, ended);
        }
        while asked != 0 {
            self.flush(peer, StreamNumber::Bulk(asked.trailing_zeros() as u8));
            asked &= asked - 1;
        }
    }

    /// Leaves the networks that are to be left alone, and may use all others again. What every pair
    /// needs is opened anew if there is another network; what was under way is sent and asked for
    /// again there.
    pub(super) fn leave_drained(&mut self) {
        for peer in self.open.clone() {
            let Some(Some(remote)) = self.remotes.get(peer as usize) else {
                continue;
            };
            for stream in remote.streams() {
                self.leave_drained_by(peer, stream);
            }
            self.spread(peer);
        }
    }

    /// Leaves the network of this stream if it is to be left alone; what every pair needs, only if
    /// there is another.
    pub(super) fn leave_drained_by(&mut self, peer: Peer, stream: StreamNumber) {
        let drained = self.ends(peer, stream).map(|ends| self.is_drained(ends));
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        let Some(drained) = drained else {
            // The address that was to be called next may be another's place by now, and those to be
            // left alone come last.
            return remote.calls(stream).start_over();
        };
        if let StreamNumber::Bulk(path @ 1..) = stream {
            return remote.paths.set_drained(path, drained);
        }
        let addresses = self.hosts.addresses(peer);
        let has_other = |first: &SocketAddr| !self.hosts.is_drained(first.ip());
        if drained && addresses.first().is_some_and(has_other) {
            remote.calls(stream).start_over();
            self.broke(peer, stream);
        }
    }

    /// Returns whether a connection between these ends is on a network that is to be left alone.
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
        if remote.fd(StreamNumber::Bulk(0)).is_none() {
            self.want(peer, StreamNumber::Bulk(0));
        }
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        if !remote.paths.is_much() {
            return;
        }
        // The network that every pair's connection takes counts once.
        let is_open = remote.fd(StreamNumber::Bulk(0)).is_some();
        let first = remote.calls(StreamNumber::Bulk(0)).met.filter(|_| is_open);
        self.want_fabric(peer);
        let networks = self.hosts.networks(peer);
        for (network, path) in networks.iter().zip(1..STRIPE_RAILS as u8) {
            let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
                return;
            };
            if first.is_some_and(|first| first != network.ip())
                && !self.hosts.is_drained(network.ip())
            {
                remote.paths.expect_several();
                self.want(peer, StreamNumber::Bulk(path));
            }
        }
    }

    /// The call by a further network failed: that says nothing of the peer, and it is tried again
    /// later as long as there is much to move.
    pub(super) fn failed_further(
        &mut self,
        peer: Peer,
        stream: StreamNumber,
        failure: &ConnectFailure,
        now: Instant,
    ) {
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        let calls = remote.calls(stream);
        let _ = calls.failed(failure, now);
        calls.put_off(now + TCP_FURTHER_AGAIN);
        self.remind(now + TCP_FURTHER_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::TestDirectory;
    use crate::{LocalIdentity, ProcessId, Secret, listen};
    use garonne_engine::transport::{PacketClass, Transport};
    use garonne_transport::conformance::{RecordedEvents, send};
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    const NETWORKS: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)),
    ];

    /// Longer than any delay of a machine with too much to do.
    const LOOKS: usize = 50_000;

    /// Two transports, each with what it knows of networks.
    fn pair() -> [(TcpTransport, Arc<TestDirectory>); 2] {
        let secret = Secret::generate().unwrap();
        let listeners = [0, 1].map(|_| listen((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap());
        let ports = [0, 1].map(|rank: usize| listeners[rank].local_addr().unwrap().port());
        let mut rails = (0..).zip(listeners).map(|(rank, listener)| {
            let addresses =
                ports.map(|port| NETWORKS.map(|network| (network, port).into()).to_vec());
            let book = Arc::new(TestDirectory {
                incarnation: |peer| peer,
                networks: AtomicUsize::new(NETWORKS.len()),
                ..TestDirectory::at_some(addresses.to_vec())
            });
            let me = ProcessId {
                job: [1; 16],
                world: 0,
                rank,
                incarnation: rank,
            };
            let house = LocalIdentity::new(secret.clone(), me, false);
            (
                TcpTransport::new(house, book.clone(), listener).unwrap(),
                book,
            )
        });
        [(); 2].map(|()| rails.next().unwrap())
    }

    fn step(rail: &mut TcpTransport, told: &mut RecordedEvents) {
        rail.poll(16, told);
        std::thread::sleep(Duration::from_micros(100));
    }

    #[test]
    fn a_call_that_was_under_way_when_its_network_was_drained_ends_on_another() {
        let [(mut caller, known), (mut called, known_there)] = pair();
        let (mut told, mut heard) = (RecordedEvents::default(), RecordedEvents::default());
        send(&mut caller, 1, b"word", 0, PacketClass::Data).unwrap();
        // It is taken by the other's system, and the other does not look.
        let is_taken = |rail: &TcpTransport| {
            let calls = rail.remotes[1]
                .as_ref()
                .and_then(|remote| remote.call_of(StreamNumber::Small));
            calls.is_some_and(|calls| calls.stands(Instant::now()))
        };
        for _ in 0..LOOKS {
            if is_taken(&caller) {
                break;
            }
            step(&mut caller, &mut told);
        }
        assert!(is_taken(&caller));
        known.drained.store(1, Ordering::Relaxed);
        known_there.drained.store(1, Ordering::Relaxed);
        let has_left = |rail: &TcpTransport| {
            rail.ends(1, StreamNumber::Small)
                .is_some_and(|ends| !rail.is_drained(ends))
        };
        for _ in 0..LOOKS {
            step(&mut caller, &mut told);
            step(&mut called, &mut heard);
            if has_left(&caller) && !heard.packets.is_empty() {
                break;
            }
        }
        assert!(
            has_left(&caller),
            "{:?}",
            caller.ends(1, StreamNumber::Small)
        );
        assert_eq!(heard.packets.len(), 1);
    }

    #[test]
    fn who_sees_a_connection_end_before_it_hears_that_its_network_is_drained_makes_it_anew_on_another()
     {
        let [(mut late, hears), (mut early, knows)] = pair();
        let (mut told, mut heard) = (RecordedEvents::default(), RecordedEvents::default());
        send(&mut late, 1, b"word", 0, PacketClass::Data).unwrap();
        while heard.packets.is_empty() {
            step(&mut late, &mut told);
            step(&mut early, &mut heard);
        }
        let ends = |rail: &TcpTransport, peer| rail.ends(peer, StreamNumber::Small);
        assert!(ends(&late, 1).is_some_and(|(_, other)| other.ip() == NETWORKS[0]));
        knows.drained.store(1, Ordering::Relaxed);
        while ends(&early, 0).is_some() {
            step(&mut early, &mut heard);
        }
        while ends(&late, 1).is_some() {
            step(&mut late, &mut told);
        }
        hears.drained.store(1, Ordering::Relaxed);
        while ends(&late, 1).is_none() || ends(&early, 0).is_none() {
            step(&mut late, &mut told);
            step(&mut early, &mut heard);
        }
        let (_, other) = ends(&late, 1).unwrap();
        assert_eq!(other.ip(), NETWORKS[1]);
    }
}
