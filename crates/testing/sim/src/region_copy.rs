//! Copies between simulated ranks' memories, each under a lease on the region of one of them.
//!
//! Made by a rank's transport, carried out by it or by whoever took the copy out of the engine;
//! around its bytes any other rank may run. Dropping one gives the lease back.

use crate::fabric::SimFabric;
use crate::regions::{RegionAccess, RegionLease};
use garonne_engine::api::{Error, Peer};
use garonne_engine::protocol::offload::DetachedCopy;
use garonne_engine::transport::PartWritten;
use garonne_sync::user::Data;
use std::sync::Arc;

/// A copy under a lease.
pub(crate) struct RegionCopy {
    pub me: Peer,
    pub peer: Peer,
    pub cookie: u64,
    pub fabric: Arc<SimFabric>,
    pub local: Data,
    pub local_offset: u64,
    pub want: RegionAccess,
    pub permit: RegionLease,
}

impl RegionCopy {
    /// Returns the bytes that the copy moves.
    pub(crate) fn step(&self) -> PartWritten {
        PartWritten {
            bytes: self.permit.len,
            last: self.permit.last,
        }
    }
}

impl DetachedCopy for RegionCopy {
    fn run(&mut self) -> Result<(), Error> {
        let permit = &self.permit;
        self.fabric.perhaps_pause(self.me);
        let there = self.fabric.regions(|regions| regions.is_there(self.cookie));
        if there {
            let mut bytes = vec![0; permit.len as usize];
            match self.want {
                RegionAccess::Bytes(..) => {
                    permit.data.pack(permit.from, &mut bytes);
                    self.local.unpack(self.local_offset, &bytes);
                }
                RegionAccess::Back(..) => {
                    self.local.pack(permit.from, &mut bytes);
                    permit.data.unpack(permit.from, &bytes);
                }
            }
        }
        self.fabric.perhaps_pause(self.me);
        if there {
            return Ok(());
        }
        Err(Error::Peer {
            peer: self.peer,
            what: "died while its memory was used",
        })
    }
}

impl Drop for RegionCopy {
    fn drop(&mut self) {
        // A rank that dies keeps its lease until its death is heard.
        if std::thread::panicking() {
            return;
        }
        if let Some(owner) = self
            .fabric
            .regions(|regions| regions.give_back(self.cookie))
        {
            self.fabric.wake(owner);
        }
    }
}
