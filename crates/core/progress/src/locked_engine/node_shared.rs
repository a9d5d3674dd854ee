//! What a locked engine offers to collectives of one node: the transport's shared memory and
//! regions, and notes of waits that the engine does not know.

use super::{LockedEngine, lock};
use crate::environment::Environment;
use crate::messaging::{NodeShared, RegionCall, RegionMessaging};
use garonne_engine::api::{ContextId, Error, Peer, StartOutcome};
use garonne_engine::observe::events::ExternalWait;
use garonne_engine::one_sided::{RegionKey, RegionMemory};
use garonne_engine::protocol::offload::{OffloadKind, OffloadResult};
use garonne_engine::transport::{
    BulkToken, BulkTransfer, ExposeResult, RegionDescriptor, Transport,
};
use garonne_sync::shm::Segment;
use garonne_sync::user::Data;

impl<R: Transport + Send, S: Environment> NodeShared for LockedEngine<R, S> {
    fn coll_heap(&self, owner: Peer) -> Option<Segment> {
        self.lock_engine().transport().coll_heap(owner)
    }

    fn memory_spins(&self) -> u32 {
        self.surroundings.spin_budget().spins
    }

    fn doorbell(&self, peer: Peer) -> Option<Segment> {
        self.lock_engine().transport().doorbell(peer)
    }

    fn progress_wakeup_words(&self, peer: Peer) -> Option<Segment> {
        self.lock_engine().transport().progress_words(peer)
    }

    fn can_read(&self, peer: Peer) -> bool {
        self.lock_engine()
            .transport()
            .capabilities(peer)
            .is_some_and(|reach| reach.can_read)
    }

    fn expose(&self, name: BulkToken, data: &Data) -> Option<RegionDescriptor> {
        // The peer of a region only says whose death ends it early; this one's users meet before it
        // ends.
        match self.lock_engine().transport().expose(name, self.me, data) {
            ExposeResult::Ready(descriptor) => Some(descriptor),
            ExposeResult::Pending | ExposeResult::Unable => None,
        }
    }

    fn revoke(&self, name: BulkToken) {
        self.lock_engine().transport().revoke(name);
    }

    fn read_exposed(&self, bulk: BulkTransfer<'_>) -> Result<(), Error> {
        let mut shard = self.lock_engine();
        let lifted = if shard.is_alone() {
            OffloadResult::Unable
        } else {
            shard.transport().offload(bulk, OffloadKind::Read)?
        };
        match lifted {
            OffloadResult::Copy(_, mut load) => {
                // Other threads need the engine meanwhile.
                drop(shard);
                load.run()
            }
            OffloadResult::Unable | OffloadResult::Nothing => {
                shard.transport().read(bulk).map(drop)
            }
        }
    }

    fn note_external_wait(&self, _context: ContextId, meeting: Option<ExternalWait>) {
        lock(&self.external_waits).set(meeting);
    }
}

impl<R: Transport + Send, S: Environment> RegionMessaging for LockedEngine<R, S> {
    fn register_region(&self, memory: RegionMemory) -> Result<RegionKey, Error> {
        self.with(|engine| engine.one_sided().register_region(memory))
    }

    fn deregister_region(&self, key: &RegionKey) -> Result<StartOutcome, Error> {
        self.with(|engine| engine.one_sided().deregister_region(key))
    }

    fn access_region(
        &self,
        peer: Peer,
        key: &RegionKey,
        call: RegionCall,
    ) -> Result<StartOutcome, Error> {
        self.with(|engine| {
            let mut calls = engine.one_sided();
            let region = calls.open_region(peer, key)?;
            match call {
                RegionCall::Get { offset, data } => calls.get(&region, offset, data),
                RegionCall::Put { offset, data } => calls.put(&region, offset, data),
                RegionCall::Atomic(args) => calls.atomic(&region, args),
                RegionCall::Swap(args) => calls.compare_and_swap(&region, args),
            }
        })
    }
}
