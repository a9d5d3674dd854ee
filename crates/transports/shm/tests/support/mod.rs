//! Ranks in threads whose memory is reached as these tests want it.

use garonne_engine::api::{Error, Peer};
use garonne_shm::{NodePeers, PeerProcess, ThreadPeers};
use garonne_sync::shm::Segment;
use std::cell::Cell;

thread_local! {
    /// Number of times that the calling thread asked whether a peer is gone.
    pub static ASKED: Cell<u32> = const { Cell::new(0) };
}

/// Threads' inboxes and doorbells, but every peer's memory is reached as that of this process.
pub struct ReachedAs(pub ThreadPeers, pub PeerProcess);

impl NodePeers for ReachedAs {
    fn me(&self) -> Peer {
        self.0.me()
    }
    fn size(&self) -> u32 {
        self.0.size()
    }
    fn own_inbox(&self) -> Segment {
        self.0.own_inbox()
    }
    fn map_inbox(&self, peer: Peer) -> Result<Segment, Error> {
        self.0.map_inbox(peer)
    }
    fn doorbell(&self, peer: Peer) -> Option<Segment> {
        self.0.doorbell(peer)
    }
    fn process(&self, _peer: Peer) -> PeerProcess {
        self.1
    }
    fn commons(&self) -> Option<Segment> {
        None
    }
    fn is_gone(&self, _peer: Peer) -> bool {
        ASKED.set(ASKED.get() + 1);
        false
    }
}
