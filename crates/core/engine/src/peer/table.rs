//! The peers of an engine: who may be named, and the state of each that was ever spoken to.
//!
//! A peer is named by a number. The table grows: peers of another world, or of a job that was
//! connected later, get the numbers after those that are known. Memory is touched for peers that
//! were spoken to only, so a world of a million costs what its neighbours cost.

use crate::api::Peer;
use crate::faults::Faults;
use crate::observe::counters::ExportedCounters;
use crate::peer::credits::CreditQuotas;
use crate::peer::state::PeerState;
use crate::transport::PeerCapabilities;
use std::ops::{Index, IndexMut, Range};

/// The peers of one engine, itself among them.
///
/// Owned by the core. `open` makes the state of a peer at its first packet; from then on its index,
/// which `find` gives, names the state. States are never removed: a peer that is gone is marked.
#[derive(Debug)]
pub(crate) struct PeerTable {
    /// By peer: the number of its state, counted from 1; 0 is none. Zeros that were never written
    /// cost no memory, and most peers are never spoken to.
    slots: Vec<u32>,
    states: Vec<PeerState>,
    /// Peers of the engine's own world, which come first.
    world: Peer,
    any_lost: bool,
    /// Lost peers that the transport was not told of yet.
    lost: Vec<Peer>,
    stale_capabilities: bool,
    /// Tells other processes where to read what the states have counted.
    counters: ExportedCounters,
    /// Contexts that are broken, most of them since a peer is lost.
    pub faults: Faults,
}

impl PeerTable {
    /// A table of `count` peers, none of them spoken to.
    pub(crate) fn new(count: u32, quotas: &CreditQuotas) -> Self {
        Self {
            slots: vec![0; count as usize],
            states: Vec::new(),
            world: count,
            any_lost: false,
            faults: Faults::default(),
            lost: Vec::new(),
            stale_capabilities: false,
            counters: ExportedCounters::new(quotas),
        }
    }

    /// Adds `count` peers, and returns their numbers. `None`: more than numbers can name. The table
    /// of numbers is copied, 4 bytes for each peer that is known.
    pub(crate) fn add(&mut self, count: u32) -> Option<Range<Peer>> {
        let first = self.slots.len() as u32;
        let end = first.checked_add(count)?;
        self.slots.resize(end as usize, 0);
        Some(first..end)
    }

    /// Returns whether there is a peer of this number.
    #[inline(always)]
    pub(crate) fn has(&self, peer: Peer) -> bool {
        (peer as usize) < self.slots.len()
    }

    /// Returns whether a peer is of another world.
    pub(crate) fn is_of_other_world(&self, peer: Peer) -> bool {
        peer >= self.world && self.has(peer)
    }

    /// Returns the index of the state of `peer`, if there is one.
    #[inline]
    pub(crate) fn find(&self, peer: Peer) -> Option<u32> {
        self.slots.get(peer as usize)?.checked_sub(1)
    }

    /// Makes the state of a peer that the table has, and returns its index.
    pub(crate) fn open(
        &mut self,
        peer: Peer,
        capabilities: PeerCapabilities,
        quotas: &CreditQuotas,
    ) -> u32 {
        let granted = match peer < self.world {
            true => *quotas,
            false => CreditQuotas::BETWEEN_WORLDS,
        };
        let index = self.states.len() as u32;
        self.counters.hide();
        self.states
            .push(PeerState::new(peer, capabilities, (granted, quotas)));
        self.counters.show(&self.states);
        self.slots[peer as usize] = index + 1;
        index
    }

    /// Returns a state beside the counters that readers outside see.
    #[inline(always)]
    pub(crate) fn with_counters(&mut self, index: u32) -> (&mut PeerState, &mut ExportedCounters) {
        (&mut self.states[index as usize], &mut self.counters)
    }

    /// Tells readers outside of the slot batch that the state has now, or that it has none.
    pub(crate) fn note_batch(&mut self, index: u32) {
        let batch = self.states[index as usize].batch.as_deref();
        self.counters.note_run(index, batch);
    }

    /// Returns the fixed address of the counters that other processes may read.
    pub(crate) fn counters_address(&self) -> usize {
        self.counters.address()
    }

    /// Returns the number of states.
    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    /// Returns all states, by index.
    pub(crate) fn states(&self) -> &[PeerState] {
        &self.states
    }

    /// Returns all states, by index.
    pub(crate) fn states_mut(&mut self) -> &mut [PeerState] {
        &mut self.states
    }

    /// Remembers that nothing passes between here and `peer` any more.
    pub(crate) fn push_lost(&mut self, peer: Peer) {
        self.any_lost = true;
        self.lost.push(peer);
    }

    /// Has receives ask what is lost: a context is broken.
    pub(crate) fn set_any_lost(&mut self) {
        self.any_lost = true;
    }

    /// Returns whether any peer is lost: who wants to receive must ask which.
    #[inline(always)]
    pub(crate) fn any_lost(&self) -> bool {
        self.any_lost
    }

    /// Takes the lost peers that the transport was not told of yet.
    pub(crate) fn take_lost(&mut self) -> Vec<Peer> {
        std::mem::take(&mut self.lost)
    }

    /// A peer was heard of whose capabilities the transport was not asked for.
    pub(crate) fn mark_stale(&mut self) {
        self.stale_capabilities = true;
    }

    /// Returns whether the transport is to be asked for capabilities, once.
    pub(crate) fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.stale_capabilities)
    }
}

impl Index<usize> for PeerTable {
    type Output = PeerState;

    #[inline(always)]
    fn index(&self, index: usize) -> &PeerState {
        &self.states[index]
    }
}

impl IndexMut<usize> for PeerTable {
    #[inline(always)]
    fn index_mut(&mut self, index: usize) -> &mut PeerState {
        &mut self.states[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_of_another_world_get_the_numbers_after_those_that_are_known() {
        let quotas = CreditQuotas::for_world(2);
        let mut peers = PeerTable::new(2, &quotas);
        let capabilities = crate::protocol::dispatch::UNKNOWN;
        assert_eq!(peers.open(1, capabilities, &quotas), 0);
        assert_eq!(peers.add(1000), Some(2..1002));
        assert!(peers.has(1001) && !peers.has(1002));
        assert_eq!(peers.open(1001, capabilities, &quotas), 1);
        assert_eq!(peers.find(1001), Some(1));
        assert_eq!((peers[0].peer, peers[1].peer), (1, 1001));
        assert_eq!(peers[0].quotas, quotas);
        assert_eq!(peers[1].quotas, CreditQuotas::BETWEEN_WORLDS);
        assert_eq!(peers[1].sent(&quotas), (0, 0), "nothing was sent");
        assert_eq!(peers.find(500), None, "nobody spoke to it");
        assert_eq!(peers.add(u32::MAX), None);
    }
}
