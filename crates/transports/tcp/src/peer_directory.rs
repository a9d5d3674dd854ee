//! What surrounds a rank's rail: who the others are, where they listen, which networks may be used.
//! Given by whoever makes the rail.

use crate::{HandshakeError, OfiSetting};
use garonne_engine::api::Peer;
use std::net::{IpAddr, SocketAddr};

/// Who the ranks are and where they listen. Peers are indices in the job's world.
pub trait PeerDirectory: Send + Sync {
    /// Ranks of the world.
    fn size(&self) -> u32;
    /// How many processes had this peer's index before; asked when it is first spoken to.
    fn incarnation(&self, peer: Peer) -> u32;
    /// Where it listens, in the order in which to try; none: this rail does not reach it.
    fn addresses(&self, peer: Peer) -> Vec<SocketAddr>;
    /// Where it listens on each network that this host is on as well, in an order that both hosts
    /// find: ways for large data beside those of [`PeerDirectory::addresses`]. Fewer than two: there are no
    /// others.
    fn networks(&self, _peer: Peer) -> Vec<SocketAddr> {
        Vec::new()
    }
    /// Changes whenever [`PeerDirectory::is_drained`] says something else.
    fn drained(&self) -> u32 {
        0
    }
    /// Whether that address is on a network that is to be left alone. [`PeerDirectory::addresses`] gives
    /// such ones last; where [`PeerDirectory::may_be_led`] they are called when others have led nowhere for
    /// some time.
    fn is_drained(&self, _address: IpAddr) -> bool {
        false
    }
    /// What large data get by the interface of this address, of what the best interface gives to
    /// this process: 0, it is to be left to others as long as there is another.
    fn share(&self, _own: IpAddr) -> f64 {
        1.0
    }
    /// What the network between these addresses gave when it was measured before: bytes in a
    /// microsecond, and microseconds of a round trip. `None`: it was not.
    fn tuned(&self, _own: IpAddr, _other: IpAddr) -> Option<(f64, f64)> {
        None
    }
    /// Which networks of libfabric large data may use.
    fn fabrics(&self) -> OfiSetting {
        OfiSetting::Off
    }
    /// Whether it is known to have ended without finishing properly.
    fn is_gone(&self, peer: Peer) -> bool;
    /// Asks a peer that this side does not reach for its call, by another way than this rail.
    fn ask(&self, _peer: Peer, _bulk: bool) {}
    /// Whether it may live although nobody answers at its addresses: then only [`PeerDirectory::is_gone`]
    /// says that it does not.
    fn may_be_hidden(&self, _peer: Peer) -> bool {
        false
    }
    /// Whether others look for a way to it when it is asked for its call: then addresses that
    /// refuse may not be all.
    fn may_be_led(&self, _peer: Peer) -> bool {
        false
    }
    /// It does not reach this side, nor this side it. May be told again and again.
    fn cannot_reach(&self, _peer: Peer) {}
    /// It counts as gone since the two found that they cannot have a connection.
    fn refused(&self, _peer: Peer, _fault: &HandshakeError) {}
}
