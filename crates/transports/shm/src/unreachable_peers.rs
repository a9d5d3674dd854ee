//! Peers that live and to which no way leads from here, or none from them: inboxes that the system
//! had no room to map.
//!
//! Whoever finds no room for a peer's inbox says so in that inbox without mapping it ([`refuse`]),
//! and both take the other as one from which nothing comes. It stays so: numbers of envelopes and
//! credits would not fit together any more. Neither is dead, so leases of both go on until they are
//! given back.

use crate::layout::{self, card};
use crate::local_ranks::LocalRanks;
use crate::peers::{NodePeers, Sender, wake};
use garonne_engine::api::{Error, LackingSide, Peer, UnreachableCause};
use garonne_engine::transport::ClaimError;
use garonne_sync::progress_owner::WakeupScope;
use garonne_sync::shm::{Segment, SharedWord};
use std::sync::atomic::Ordering;

/// Tells a peer whose inbox this rank cannot map that nothing will come from it, and why.
#[cold]
pub fn refuse(node_peers: &dyn NodePeers, peer: Peer, errno: i32) {
    let Some(me) = node_peers.local_ranks().number(node_peers.me()) else {
        return;
    };
    let card = layout::card_at(me);
    // In this order: who sees the second word looks for the first.
    node_peers.write_unmapped(peer, card + card::REFUSED, errno.max(1) as u32);
    node_peers.write_unmapped(peer, layout::UNREACHED, 1);
    wake(node_peers, peer, WakeupScope::Transfers);
}

/// Table of the unreachable peers that one rank knows of, owned by its transport.
pub(super) struct UnreachablePeers {
    known: Vec<UnreachableCause>,
    own: Segment,
    /// Not 0: a peer has said so of itself.
    said: SharedWord,
}

impl UnreachablePeers {
    pub(super) fn new(own: Segment) -> Self {
        Self {
            known: Vec::new(),
            said: own.word(layout::UNREACHED),
            own,
        }
    }

    #[cold]
    pub(super) fn of(&self, peer: Peer) -> Option<&UnreachableCause> {
        self.known.iter().find(|shortage| shortage.peer == peer)
    }

    /// Opens the writing end to a peer. One that was refused once stays so.
    pub(super) fn open(
        &mut self,
        node_peers: &dyn NodePeers,
        me: u16,
        peer: Peer,
    ) -> Result<Sender, ClaimError> {
        if self.of(peer).is_some() {
            return Err(ClaimError::Gone);
        }
        Sender::open(node_peers, me, peer).map_err(|error| {
            if let Error::Unreached(shortage) = error {
                refuse(node_peers, peer, shortage.errno);
                self.known.push(*shortage);
            }
            ClaimError::Gone
        })
    }

    /// The peers that say that they have no way to here and were not known.
    #[inline(always)]
    pub(super) fn found(&mut self, node_peers: &dyn NodePeers) -> Vec<Peer> {
        match self.said.load(Ordering::Relaxed) {
            0 => Vec::new(),
            _ => self.find(node_peers.me(), &node_peers.local_ranks()),
        }
    }

    #[cold]
    #[inline(never)]
    fn find(&mut self, me: Peer, local: &LocalRanks) -> Vec<Peer> {
        let before = self.known.len();
        for (number, peer) in (0..=u16::MAX).zip(local.iter()) {
            let at = layout::card_at(number) + card::REFUSED;
            let errno = self.own.atomic_u32(at).load(Ordering::Relaxed);
            if peer != me && errno != 0 && self.of(peer).is_none() {
                self.known.push(UnreachableCause {
                    peer,
                    side: LackingSide::Peer,
                    bytes: self.own.len() as u64,
                    errno: errno as i32,
                    limit: None,
                });
            }
        }
        self.known[before..]
            .iter()
            .map(|shortage| shortage.peer)
            .collect()
    }
}
