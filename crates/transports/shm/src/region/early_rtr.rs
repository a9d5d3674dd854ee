//! Regions announced ahead: a receiver offers its data to the sender of a message that is still to
//! come.
//!
//! Part of the regions. The data is a shared region of which the owner takes nothing as long as it
//! is offered, and all of it or nothing when it withdraws (`CopySplit::withdraw_region`). So
//! exactly one of both sides gets it, whatever each knows of the other; a writer whose offer was
//! withdrawn, revoked or given to somebody else finds that out before it moves a byte. Bounded by
//! the region table.

use super::{ExposedRegion, Lease, Regions, RemoteAccessCheck, give_back, hear_of_death};
use crate::layout;
use crate::peers::NodePeers;
use garonne_engine::api::{Error, Peer};
use garonne_engine::transport::{BulkToken, BulkTransfer, PartWritten, WithdrawResult};
use garonne_transport::limits::REGIONS;
use std::sync::atomic::Ordering;

/// No operation of an engine has this name.
const NOBODY: BulkToken = BulkToken::MAX;

impl Regions {
    /// Takes data back that was offered ahead. If its peer was quicker it stays exposed.
    pub(crate) fn withdraw(&mut self, token: BulkToken) -> WithdrawResult {
        let found = self
            .exposed
            .iter()
            .position(|entry| entry.as_ref().is_some_and(|entry| entry.token == token));
        let Some(index) = found else {
            return WithdrawResult::Withdrawn;
        };
        if !Self::division(&self.own, index).withdraw() {
            return WithdrawResult::InUse;
        }
        if self.revoke(token) == garonne_engine::transport::BulkStatus::Pending
            && let Some(ExposedRegion { token, .. }) = &mut self.exposed[index]
        {
            // A peer that looks in vain holds a lease for a moment; nobody waits for that.
            *token = NOBODY;
        }
        WithdrawResult::Withdrawn
    }

    /// Takes the first part of data that a peer offered ahead, and writes it. `None`: it is not to
    /// be had any more.
    pub(crate) fn write_ahead(
        &mut self,
        node_peers: &dyn NodePeers,
        bulk: BulkTransfer<'_>,
    ) -> Result<Option<PartWritten>, Error> {
        let peer = bulk.peer;
        self.probe(node_peers, peer);
        let probes = self.probes.borrow();
        let reached = match probes.get(peer as usize) {
            Some(RemoteAccessCheck::Works(reached)) if reached.means.can_write => reached,
            _ => return Ok(None),
        };
        // That it was revoked says nothing against the peer.
        if (bulk.descriptor.cookie as u32) as usize >= REGIONS {
            return Ok(None);
        }
        let reached = reached.clone();
        drop(probes);
        let Ok(lease) = Lease::take(&reached.inbox, &bulk) else {
            return Ok(None);
        };
        let step = super::push_part(&reached, &lease, &bulk, &mut self.list);
        give_back(lease, node_peers, peer);
        self.hear(peer, &step);
        match step {
            Ok(PartWritten { bytes: 0, .. }) => Ok(None),
            Ok(step) => Ok(Some(step)),
            Err(error) => Err(hear_of_death(&reached, node_peers, peer, error)),
        }
    }

    /// Returns whether `peer` says that it looks for messages just now. A hint. Without its memory
    /// nothing depends on it.
    pub(crate) fn looks(&self, node_peers: &dyn NodePeers, peer: Peer) -> bool {
        self.probe(node_peers, peer);
        match self.probes.borrow().get(peer as usize) {
            // Relaxed: a stale answer costs time only.
            Some(RemoteAccessCheck::Works(reached)) => {
                reached
                    .inbox
                    .atomic_u32(layout::LOOKING)
                    .load(Ordering::Relaxed)
                    != 0
            }
            _ => true,
        }
    }
}
