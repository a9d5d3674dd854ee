//! Large data between ranks of one host that use a connection beside shared memory: who copies.
//!
//! Owned by the transport; asked by the transport that has both (`multi`). The paths of such a
//! pair have one more way, the memory, which is there always; so that nobody takes a call, or that
//! the other side breaks the format, ends the connection and nothing else, and it is tried again as
//! long as there is something to read.

use crate::peer_table::PeerTable;
use garonne_engine::api::Peer;
use garonne_engine::transport::RegionDescriptor;
use garonne_sync::user::Data;
use std::collections::VecDeque;

/// Something that is to be copied from a peer's memory.
#[derive(Debug)]
pub struct PendingReads {
    /// The peer whose memory it is.
    pub peer: Peer,
    /// The right to that memory.
    pub region: RegionDescriptor,
    /// The first byte there.
    pub offset: u64,
    /// Place where it goes, from which byte on.
    pub local: (Data, u64),
    /// Bytes to copy.
    pub len: u64,
}

/// Peers of this host from which something is read, in turn.
///
/// Owned by the transport. [`IntraNodeReads::add`] notes a read; [`IntraNodeReads::next`] says what
/// is to be copied next, until nothing is wanted from any of them.
#[derive(Debug, Default)]
pub(crate) struct IntraNodeReads {
    turn: VecDeque<Peer>,
}

impl IntraNodeReads {
    /// Notes that something is read from a peer. Returns whether nothing was before.
    pub(crate) fn add(&mut self, peer: Peer) -> bool {
        let is_new = !self.turn.contains(&peer);
        if is_new {
            self.turn.push_back(peer);
        }
        is_new
    }

    /// Returns whether nothing is read from any peer of this host.
    pub(crate) fn is_empty(&self) -> bool {
        self.turn.is_empty()
    }

    /// Returns what is to be copied next; peers take turns.
    pub(crate) fn next(&mut self, peers: &PeerTable) -> Option<PendingReads> {
        for _ in 0..self.turn.len() {
            let peer = self.turn.pop_front()?;
            let remote = peers.get(peer);
            let Some(remote) = remote.filter(|remote| remote.paths.is_wanted()) else {
                continue;
            };
            self.turn.push_back(peer);
            if let Some((region, offset, local, len)) = remote.paths.next_copy() {
                return Some(PendingReads {
                    peer,
                    region,
                    offset,
                    local,
                    len,
                });
            }
        }
        None
    }
}
