//! Ranks of a job that reach each other by TCP on this host.

use garonne_engine::api::Peer;
use garonne_engine::transport::{PacketClass, Transport};
use garonne_tcp::{
    LocalIdentity, OfiSetting, PeerDirectory, ProcessId, Secret, TcpTransport, listen,
};
use garonne_transport::conformance::{RecordedEvents, send};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Place where everybody listens: by the first network, and by further ones, if there are any.
pub struct Book(pub Vec<Vec<SocketAddr>>, pub Vec<Vec<SocketAddr>>);

impl PeerDirectory for Book {
    fn size(&self) -> u32 {
        self.0.len() as u32
    }
    fn incarnation(&self, peer: Peer) -> u32 {
        1000 + peer
    }
    fn addresses(&self, peer: Peer) -> Vec<SocketAddr> {
        self.0[peer as usize].clone()
    }
    fn networks(&self, peer: Peer) -> Vec<SocketAddr> {
        self.1.get(peer as usize).cloned().unwrap_or_default()
    }
    fn is_gone(&self, _peer: Peer) -> bool {
        false
    }
}

/// A directory with a way by libfabric.
pub struct WithFabrics(pub Book, pub OfiSetting);

impl PeerDirectory for WithFabrics {
    fn size(&self) -> u32 {
        self.0.size()
    }
    fn incarnation(&self, peer: Peer) -> u32 {
        self.0.incarnation(peer)
    }
    fn addresses(&self, peer: Peer) -> Vec<SocketAddr> {
        self.0.addresses(peer)
    }
    fn networks(&self, peer: Peer) -> Vec<SocketAddr> {
        self.0.networks(peer)
    }
    fn is_gone(&self, peer: Peer) -> bool {
        self.0.is_gone(peer)
    }
    fn fabrics(&self) -> OfiSetting {
        self.1.clone()
    }
}

pub const JOB: [u8; 16] = *b"a job of a test!";

/// Returns the identity that rank `me` brings to handshakes.
pub fn identity(secret: &Secret, me: Peer, sealed: bool) -> LocalIdentity {
    let process = ProcessId {
        job: JOB,
        world: 0,
        rank: me,
        incarnation: 1000 + me,
    };
    LocalIdentity::new(secret.clone(), process, sealed)
}

/// A listener on loopback and its address.
pub fn port() -> (TcpListener, SocketAddr) {
    let listener = listen(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// `count` ranks that reach each other; `between(from, to, address)` may put something before an
/// address.
pub fn ranks_with(
    count: u32,
    sealed: bool,
    mut between: impl FnMut(Peer, Peer, SocketAddr) -> SocketAddr,
) -> Vec<TcpTransport> {
    let secret = Secret::generate().unwrap();
    let (listeners, addresses): (Vec<_>, Vec<_>) = (0..count).map(|_| port()).unzip();
    let mut transports = Vec::new();
    for (me, listener) in (0..count).zip(listeners) {
        let directory = (0..count)
            .zip(&addresses)
            .map(|(to, address)| vec![between(me, to, *address)])
            .collect();
        transports.push(
            TcpTransport::new(
                identity(&secret, me, sealed),
                Arc::new(Book(directory, Vec::new())),
                listener,
            )
            .unwrap(),
        );
    }
    transports
}

/// Returns ranks that reach each other straight.
pub fn ranks(count: u32, sealed: bool) -> Vec<TcpTransport> {
    ranks_with(count, sealed, |_, _, address| address)
}

/// Longer than any delay of an overloaded machine: what has not come by then will not come.
pub const SURELY_LOST: Duration = Duration::from_secs(30);
/// What a kept message is given to arrive although it must not.
pub const GRACE: Duration = Duration::from_millis(20);

/// The two ranks, once they have a connection.
pub fn connected<R: Transport>(transports: Vec<R>) -> (R, R) {
    let mut transports = transports.into_iter();
    let (mut one, mut two) = (transports.next().unwrap(), transports.next().unwrap());
    send(&mut one, 1, b"hello", 0, PacketClass::Data).unwrap();
    let (mut told, begun) = (RecordedEvents::default(), Instant::now());
    while told.packets.is_empty() {
        one.poll(8, &mut RecordedEvents::default());
        two.poll(8, &mut told);
        assert!(begun.elapsed() < SURELY_LOST, "no connection");
    }
    (one, two)
}

/// Everything that comes within `time`, or the first `count`.
pub fn take(transport: &mut impl Transport, count: usize, time: Duration) -> Vec<Vec<u8>> {
    let (mut told, begun) = (RecordedEvents::default(), Instant::now());
    while told.packets.len() < count && begun.elapsed() < time {
        transport.poll(64, &mut told);
    }
    told.packets
        .into_iter()
        .map(|(_, _, payload)| payload)
        .collect()
}

/// Payloads of eight bytes that say their number.
pub fn numbered(count: u8) -> Vec<Vec<u8>> {
    (0..count).map(|number| vec![number; 8]).collect()
}
