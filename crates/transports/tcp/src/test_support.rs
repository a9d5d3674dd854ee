//! What tests of several modules surround a transport with.

use crate::{HandshakeError, PeerDirectory, connector};
use garonne_engine::api::Peer;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Addresses of the ranks of a test, and what transports say of them.
pub(crate) struct TestDirectory {
    /// Addresses of each rank, in the order in which to try.
    pub(crate) addresses: Vec<Vec<SocketAddr>>,
    /// Comes before all others.
    pub(crate) first: Option<SocketAddr>,
    pub(crate) incarnation: fn(Peer) -> u32,
    /// How many networks two of them have in common.
    pub(crate) networks: AtomicUsize,
    /// The network of the first address of all is left alone, if that is not 0.
    pub(crate) drained: AtomicU32,
    /// Others may be where no call gets in.
    pub(crate) hidden: bool,
    /// Peers that were asked for their call.
    pub(crate) asked: Mutex<Vec<(Peer, bool)>>,
    pub(crate) refused: Mutex<Vec<(Peer, HandshakeError)>>,
}

impl TestDirectory {
    /// Each at one address.
    pub(crate) fn at<const RANKS: usize>(addresses: [SocketAddr; RANKS]) -> Self {
        Self::at_some(addresses.map(|address| vec![address]).to_vec())
    }

    pub(crate) fn at_some(addresses: Vec<Vec<SocketAddr>>) -> Self {
        Self {
            addresses,
            first: None,
            incarnation: |_| 0,
            networks: AtomicUsize::new(0),
            drained: AtomicU32::new(0),
            hidden: false,
            asked: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    fn in_order(&self, peer: Peer) -> Vec<SocketAddr> {
        let mut addresses = self.addresses[peer as usize].clone();
        addresses.sort_by_key(|address| self.is_drained(address.ip()));
        addresses
    }
}

impl PeerDirectory for TestDirectory {
    fn size(&self) -> u32 {
        self.addresses.len() as u32
    }
    fn incarnation(&self, peer: Peer) -> u32 {
        (self.incarnation)(peer)
    }
    fn addresses(&self, peer: Peer) -> Vec<SocketAddr> {
        self.first.into_iter().chain(self.in_order(peer)).collect()
    }
    fn networks(&self, peer: Peer) -> Vec<SocketAddr> {
        let addresses = self.in_order(peer).into_iter().cycle();
        addresses
            .take(self.networks.load(Ordering::Relaxed))
            .collect()
    }
    fn drained(&self) -> u32 {
        self.drained.load(Ordering::Relaxed)
    }
    fn is_drained(&self, address: IpAddr) -> bool {
        self.drained() > 0 && address == self.addresses[0][0].ip()
    }
    fn is_gone(&self, _peer: Peer) -> bool {
        false
    }
    fn ask(&self, peer: Peer, bulk: bool) {
        self.asked.lock().unwrap().push((peer, bulk));
    }
    fn may_be_hidden(&self, _peer: Peer) -> bool {
        self.hidden
    }
    fn refused(&self, peer: Peer, fault: &HandshakeError) {
        self.refused.lock().unwrap().push((peer, fault.clone()));
    }
}

/// A port where calls come to nothing, and nobody says so: its queue is full, and the kernel drops
/// whatever comes.
pub(crate) struct ClosedPort {
    pub(crate) at: SocketAddr,
    _listener: OwnedFd,
    _fill: Vec<OwnedFd>,
}

impl ClosedPort {
    pub(crate) fn new() -> Self {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let flags = SocketFlags::CLOEXEC;
        let listener =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&listener, &any).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let at = SocketAddr::try_from(rustix::net::getsockname(&listener).unwrap()).unwrap();
        let fill = (0..4).map(|_| connector::connect(&at).unwrap()).collect();
        Self {
            at,
            _listener: listener,
            _fill: fill,
        }
    }
}
