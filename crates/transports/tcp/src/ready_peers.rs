//! Peers from which something may be taken, and those to which an acknowledgement is owed.
//!
//! Owned by the transport. What finds a peer's socket ready marks the peer; a poll takes all that
//! are marked in one turn, so that each is served once before any is served again.

use garonne_engine::api::Peer;

/// Peers that a poll has something to do for.
///
/// Owned by the transport. [`ReadyPeers::mark`] adds a peer; a poll calls
/// [`ReadyPeers::begin_turn`], serves those, and calls [`ReadyPeers::end_turn`]. Peers that are
/// marked meanwhile wait for the next turn.
#[derive(Debug, Default)]
pub(crate) struct ReadyPeers {
    ready: Vec<Peer>,
    /// Empty list of the last turn, kept for its memory.
    spare: Vec<Peer>,
    /// Peers whose acknowledgement was put off.
    owed: Vec<Peer>,
}

impl ReadyPeers {
    /// Notes that something may be taken from a peer.
    #[inline]
    pub(crate) fn mark(&mut self, peer: Peer) {
        if !self.ready.contains(&peer) {
            self.ready.push(peer);
        }
    }

    /// Returns whether no peer is marked.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Returns the peers whose turn it is; none is marked any more.
    pub(crate) fn begin_turn(&mut self) -> Vec<Peer> {
        std::mem::replace(&mut self.ready, std::mem::take(&mut self.spare))
    }

    /// Ends the turn of these peers.
    pub(crate) fn end_turn(&mut self, mut served: Vec<Peer>) {
        served.clear();
        self.spare = served;
    }

    /// Puts the acknowledgement of what came from a peer off, to a poll that finds nothing.
    pub(crate) fn owe(&mut self, peer: Peer) {
        if !self.owed.contains(&peer) {
            self.owed.push(peer);
        }
    }

    /// Returns whether an acknowledgement was put off.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Returns the next peer to which an acknowledgement is owed; it is not any more.
    pub(crate) fn next_owed(&mut self) -> Option<Peer> {
        self.owed.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_marked_in_a_turn_waits_for_the_next() {
        let mut ready = ReadyPeers::default();
        ready.mark(3);
        ready.mark(1);
        ready.mark(3);
        let turn = ready.begin_turn();
        assert_eq!(turn, [3, 1]);
        ready.mark(1);
        ready.end_turn(turn);
        assert_eq!(ready.begin_turn(), [1]);
        assert!(ready.is_empty());
    }
}
