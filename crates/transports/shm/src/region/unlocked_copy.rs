//! Copies that any thread carries out without the transport, under a lease that was taken with it.
//!
//! Part of the regions. A load keeps the peer's mapping and its lease, so that the transport may
//! meanwhile forget the peer; the lease goes back when the load is dropped, carried or not. What is
//! checked after the bytes moved is what every use of a region checks.

use super::{Lease, PeerRegion, Regions, RemoteAccessCheck, hear_of_death, take_part_back};
use crate::peers::NodePeers;
use crate::transfer::{PeerMemory, copy_blocks};
use garonne_engine::api::{Error, Peer};
use garonne_engine::protocol::offload::{DetachedCopy, OffloadKind, OffloadResult};
use garonne_engine::transport::{BulkToken, BulkTransfer, PartWritten, RegionDescriptor};
use garonne_sync::user::Data;
use garonne_transport::iovec::CopyDirection;
use std::sync::Arc;

/// One copy.
struct UnlockedCopy {
    node_peers: Arc<dyn NodePeers>,
    reached: Arc<PeerRegion>,
    /// Generation of the region, under which there is a lease.
    generation: u64,
    token: BulkToken,
    peer: Peer,
    descriptor: RegionDescriptor,
    local: Data,
    offset: u64,
    local_offset: u64,
    len: u64,
    way: CopyDirection,
    list: Option<PeerMemory>,
}

impl UnlockedCopy {
    fn lease(&self) -> Lease<'_> {
        Lease {
            state: Regions::state(&self.reached.inbox, self.descriptor.cookie as u32 as usize),
            generation: self.generation,
        }
    }
}

impl DetachedCopy for UnlockedCopy {
    fn run(&mut self) -> Result<(), Error> {
        let bulk = BulkTransfer {
            token: self.token,
            peer: self.peer,
            descriptor: &self.descriptor,
            offset: self.offset,
            local: &self.local,
            local_offset: self.local_offset,
            len: self.len,
        };
        copy_blocks(self.reached.pid(), &bulk, self.way, &mut self.list)
            .and_then(|()| self.lease().check(&self.reached, self.peer))
            .map_err(|error| hear_of_death(&self.reached, &*self.node_peers, self.peer, error))
    }
}

impl Drop for UnlockedCopy {
    fn drop(&mut self) {
        super::give_back(self.lease(), &*self.node_peers, self.peer);
    }
}

impl Regions {
    /// Takes a lease for a copy and, where the data is divided, the part that it moves.
    pub(crate) fn lift(
        &mut self,
        node_peers: &Arc<dyn NodePeers>,
        bulk: BulkTransfer<'_>,
        what: OffloadKind,
    ) -> Result<OffloadResult, Error> {
        let peer = bulk.peer;
        self.probe(&**node_peers, peer);
        let probes = self.probes.borrow();
        let usable = |reached: &&Arc<PeerRegion>| match what {
            OffloadKind::Read => reached.means.can_read,
            OffloadKind::Part | OffloadKind::Ahead => reached.means.can_write,
        };
        let reached = match probes.get(peer as usize) {
            Some(RemoteAccessCheck::Works(reached)) => Some(reached).filter(usable),
            _ => None,
        };
        let Some(reached) = reached else {
            return Ok(OffloadResult::Unable);
        };
        let lease = match (Lease::take(&reached.inbox, &bulk), what) {
            (Ok(lease), _) => lease,
            // That an offer was revoked says nothing against the peer.
            (Err(_), OffloadKind::Ahead) => return Ok(OffloadResult::Nothing),
            // Nor does this, of a reader that moved everything itself.
            (Err(error), _) => return Err(error),
        };
        let mut copy = UnlockedCopy {
            node_peers: node_peers.clone(),
            reached: reached.clone(),
            generation: lease.generation,
            token: bulk.token,
            peer,
            descriptor: *bulk.descriptor,
            local: bulk.local.clone(),
            offset: bulk.offset,
            local_offset: bulk.local_offset,
            len: bulk.len,
            way: CopyDirection::Read,
            list: self
                .list
                .take_if(|(of, cookie, _)| (*of, *cookie) == (peer, bulk.descriptor.cookie)),
        };
        let mut last = true;
        if what != OffloadKind::Read {
            // Dropping the copy gives the lease back.
            let Some((from, len, is_last)) = take_part_back(reached, &bulk) else {
                return Ok(OffloadResult::Nothing);
            };
            (copy.offset, copy.local_offset, copy.len, copy.way) =
                (from, from, len, CopyDirection::Write);
            last = is_last;
        }
        let step = PartWritten {
            bytes: copy.len,
            last,
        };
        Ok(OffloadResult::Copy(step, Box::new(copy)))
    }
}
