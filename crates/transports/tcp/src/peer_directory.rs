//! What surrounds a rank's transport: who the others are, where they listen, which networks may be
//! used. Given by whoever makes the transport.

use crate::{HandshakeError, OfiSetting};
use garonne_engine::api::Peer;
use std::net::{IpAddr, SocketAddr};

/// Directory of the ranks and of where they listen. Peers are indices in the job's world.
pub trait PeerDirectory: Send + Sync {
    /// Ranks of the world.
    fn size(&self) -> u32;
    /// Returns how many processes had this peer's index before; asked when it is first spoken to.
    fn incarnation(&self, peer: Peer) -> u32;
    /// Returns where it listens, in the order in which to try; none: this transport does not reach
    /// it.
    fn addresses(&self, peer: Peer) -> Vec<SocketAddr>;
    /// Returns where it listens on each network that this host is on as well, in an order that both
    /// hosts find: ways for large data beside those of [`PeerDirectory::addresses`]. Fewer than
    /// two: there are no others.
    fn networks(&self, _peer: Peer) -> Vec<SocketAddr> {
        Vec::new()
    }
    /// Changes whenever [`PeerDirectory::is_drained`] says something else.
    fn drained(&self) -> u32 {
        0
    }
    /// Returns whether that address is on a network that is to be left alone.
    /// [`PeerDirectory::addresses`] gives such ones last; where [`PeerDirectory::may_be_led`] they
    /// are called when others have led nowhere for some time.
    fn is_drained(&self, _address: IpAddr) -> bool {
        false
    }
    /// Returns the part of large data that the interface of this address gets, of what the best
    /// interface gives to this process: 0, it is to be left to others as long as there is another.
    fn share(&self, _own: IpAddr) -> f64 {
        1.0
    }
    /// Returns what the network between these addresses gave when it was measured before: bytes in
    /// a microsecond, and microseconds of a round trip. `None`: it was not.
    fn tuned(&self, _own: IpAddr, _other: IpAddr) -> Option<(f64, f64)> {
        None
    }
    /// Which networks of libfabric large data may use.
    fn fabrics(&self) -> OfiSetting {
        OfiSetting::Off
    }
    /// Returns whether the peer is known to have ended without finishing properly.
    fn is_gone(&self, peer: Peer) -> bool;
    /// Asks a peer that this side does not reach for its call, by another way than this transport.
    fn ask(&self, _peer: Peer, _bulk: bool) {}
    /// Returns whether the peer may live although nobody answers at its addresses: then only
    /// [`PeerDirectory::is_gone`] says that it does not.
    fn may_be_hidden(&self, _peer: Peer) -> bool {
        false
    }
    /// Returns whether others look for a way to the peer when it is asked for its call: then
    /// addresses that refuse may not be all.
    fn may_be_led(&self, _peer: Peer) -> bool {
        false
    }
    /// Notes that neither side reaches the other. May be told again and again.
    fn cannot_reach(&self, _peer: Peer) {}
    /// Notes that the peer counts as gone since the two found that they cannot have a connection.
    fn refused(&self, _peer: Peer, _fault: &HandshakeError) {}
}
