//! What an engine's host offers to collectives of one node: its rail's shared memory and regions,
//! and a place to say what is met.

use super::{LockedEngine, lock};
use crate::environment::Environment;
use crate::messaging::NodeShared;
use garonne_engine::api::{Context, Error, Peer};
use garonne_engine::observe::events::Meeting;
use garonne_engine::protocol::offload::{Lift, Lifted};
use garonne_engine::transport::{Bulk, Descriptor, Exposing, Rail, Token};
use garonne_sync::shm::Segment;
use garonne_sync::user::Data;

impl<R: Rail + Send, S: Environment> NodeShared for LockedEngine<R, S> {
    fn commons(&self, owner: Peer) -> Option<Segment> {
        self.enter().rail().commons(owner)
    }

    fn spins(&self) -> u32 {
        self.surroundings.patience().spins
    }

    fn doorbell(&self, peer: Peer) -> Option<Segment> {
        self.enter().rail().doorbell(peer)
    }

    fn hands(&self, peer: Peer) -> Option<Segment> {
        self.enter().rail().hands(peer)
    }

    fn can_fetch(&self, peer: Peer) -> bool {
        self.enter()
            .rail()
            .reach(peer)
            .is_some_and(|reach| reach.can_read)
    }

    fn lend(&self, name: Token, data: &Data) -> Option<Descriptor> {
        // The peer of a region only says whose death ends it early; this one's users meet before it
        // ends.
        match self.enter().rail().expose(name, self.me, data) {
            Exposing::Ready(descriptor) => Some(descriptor),
            Exposing::Later | Exposing::Unable => None,
        }
    }

    fn withdraw(&self, name: Token) {
        self.enter().rail().revoke(name);
    }

    fn fetch(&self, bulk: Bulk<'_>) -> Result<(), Error> {
        let mut shard = self.enter();
        let lifted = if shard.is_alone() {
            Lifted::Unable
        } else {
            shard.rail().lift(bulk, Lift::Read)?
        };
        match lifted {
            Lifted::Load(_, mut load) => {
                // Other threads need the engine meanwhile.
                drop(shard);
                load.carry()
            }
            Lifted::Unable | Lifted::Nothing => shard.rail().read(bulk).map(drop),
        }
    }

    fn meets(&self, _context: Context, meeting: Option<Meeting>) {
        lock(&self.meetings).set(meeting);
    }
}
