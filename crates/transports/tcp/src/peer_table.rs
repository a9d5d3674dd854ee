//! The ranks that a TCP transport speaks to: records of those it has met, and which are gone.
//!
//! Owned by the transport. A record is made when a peer is first spoken to or calls, and ends when
//! the peer counts as gone; a peer that is gone stays so. Bounded by the world's size.

use crate::peer::TcpPeer;
use garonne_engine::api::Peer;

/// Records of all peers, by rank.
///
/// Owned by the transport. [`PeerTable::meet`] makes a record, [`PeerTable::get`] and
/// [`PeerTable::get_mut`] find it, and [`PeerTable::lose`] ends it for good. A poll takes the
/// record of one peer out with [`PeerTable::take`] and puts it back with [`PeerTable::put_back`],
/// since it needs the other parts too.
#[derive(Debug)]
pub(crate) struct PeerTable {
    /// By rank; `None`: not spoken to yet, gone, or taken out.
    records: Vec<Option<Box<TcpPeer>>>,
    /// Ranks that have a record.
    met: Vec<Peer>,
    gone: Vec<bool>,
}

impl PeerTable {
    /// Returns the table of a world of so many ranks, of which none was met.
    pub(crate) fn new(world: u32) -> Self {
        Self {
            records: bytemuck::zeroed_vec(world as usize),
            met: Vec::new(),
            gone: vec![false; world as usize],
        }
    }

    /// Returns a peer's record, if it has one.
    #[inline]
    pub(crate) fn get(&self, peer: Peer) -> Option<&TcpPeer> {
        self.records.get(peer as usize)?.as_deref()
    }

    /// Returns a peer's record, to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, peer: Peer) -> Option<&mut TcpPeer> {
        self.records.get_mut(peer as usize)?.as_deref_mut()
    }

    /// Returns a peer's record and makes one if it has none. `None`: the peer is gone, or not of
    /// this world.
    #[inline]
    pub(crate) fn meet(&mut self, peer: Peer) -> Option<&mut TcpPeer> {
        if self.is_gone(peer) {
            return None;
        }
        let slot = self.records.get_mut(peer as usize)?;
        if slot.is_none() {
            self.met.push(peer);
        }
        Some(slot.get_or_insert_with(Default::default))
    }

    /// Returns whether a peer counts as gone, as all do that are not of this world.
    #[inline]
    pub(crate) fn is_gone(&self, peer: Peer) -> bool {
        self.gone.get(peer as usize).is_none_or(|gone| *gone)
    }

    /// Returns the peers that have a record, in the order in which they were met.
    #[inline]
    pub(crate) fn met(&self) -> &[Peer] {
        &self.met
    }

    /// Takes a peer's record out for the time of a poll.
    #[inline]
    pub(crate) fn take(&mut self, peer: Peer) -> Option<Box<TcpPeer>> {
        self.records.get_mut(peer as usize)?.take()
    }

    /// Puts a record back that was taken out.
    #[inline]
    pub(crate) fn put_back(&mut self, peer: Peer, record: Box<TcpPeer>) {
        if let Some(slot) = self.records.get_mut(peer as usize) {
            *slot = Some(record);
        }
    }

    /// Counts a peer as gone. Returns `None` if it did before, and otherwise its record, if it has
    /// one.
    pub(crate) fn lose(&mut self, peer: Peer) -> Option<Option<Box<TcpPeer>>> {
        if self.is_gone(peer) {
            return None;
        }
        self.gone[peer as usize] = true;
        let record = self.records[peer as usize].take();
        if record.is_some() {
            self.met.retain(|met| *met != peer);
        }
        Some(record)
    }

    /// Drops all records, and with them their connections, without a word to anybody.
    pub(crate) fn clear(&mut self) {
        for peer in std::mem::take(&mut self.met) {
            self.records[peer as usize] = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_met_once_and_lost_once() {
        let mut peers = PeerTable::new(3);
        assert!(peers.get(1).is_none() && !peers.is_gone(1));
        assert!(peers.meet(1).is_some() && peers.meet(1).is_some());
        assert_eq!(peers.met(), [1]);
        let record = peers.take(1).unwrap();
        assert!(peers.get(1).is_none());
        peers.put_back(1, record);
        assert!(peers.get_mut(1).is_some());
        assert!(peers.lose(1).unwrap().is_some());
        assert!(peers.lose(1).is_none() && peers.is_gone(1) && peers.meet(1).is_none());
        assert!(peers.met().is_empty());
        assert!(peers.lose(2).unwrap().is_none(), "it was never met");
    }

    #[test]
    fn ranks_beyond_the_world_are_gone() {
        let mut peers = PeerTable::new(1);
        assert!(peers.is_gone(1) && peers.meet(1).is_none());
        assert!(peers.lose(1).is_none() && peers.take(1).is_none());
    }
}
