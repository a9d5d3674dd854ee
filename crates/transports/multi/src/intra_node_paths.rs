//! Large data by shared memory and TCP at once, between ranks of one host, where that was asked
//! for.
//!
//! Part of [`MultiTransport`]. Whoever exposes enough for two ways exposes it to both transports
//! and adds the name that TCP has for it to the descriptor of shared memory. The receiver hands the
//! read to TCP's paths, which cut it into pieces for the connection and for the memory; what falls
//! to the memory is copied here, a chunk in each poll. Everything else between such ranks goes by
//! shared memory alone, as without this.

use crate::{HomeTcp, MultiTransport, OtherPeers, RemotePart, lock};
use garonne_engine::api::{Error, Peer};
use garonne_engine::transport::{
    BulkStatus, BulkToken, BulkTransfer, ExposeResult, RegionDescriptor, RemoteMemory,
};
use garonne_shm::ShmTransport;
use garonne_sync::user::Data;
use garonne_transport::limits::{READ_CHUNK, TCP_MULTIPATH_MIN};

/// Bytes of TCP's name for a region behind those of shared memory, which are a multiple of eight.
const NAME: usize = 7;

/// Both names of a region in one. `None`: there is no room.
fn join(memory: &RegionDescriptor, cookie: u64) -> Option<RegionDescriptor> {
    let name = cookie.to_le_bytes();
    let (name, rest) = name.split_at(NAME);
    let fits = rest.iter().all(|byte| *byte == 0);
    fits.then(|| RegionDescriptor::new(memory.cookie, &[memory.blob(), name].concat()))?
}

/// The names of a region that both transports may read: shared memory's, and TCP's. `None`: only
/// one may.
pub(super) fn split(descriptor: &RegionDescriptor) -> Option<(RegionDescriptor, u64)> {
    let blob = descriptor.blob();
    if blob.len() % 8 != NAME {
        return None;
    }
    let (memory, name) = blob.split_at(blob.len() - NAME);
    let mut cookie = [0; 8];
    cookie[..NAME].copy_from_slice(name);
    Some((
        RegionDescriptor::new(descriptor.cookie, memory)?,
        u64::from_le_bytes(cookie),
    ))
}

impl RemotePart {
    /// Returns whether so much goes to and from this peer by both transports.
    #[inline]
    pub(super) fn joins(&self, peer: Peer, len: u64) -> bool {
        len >= TCP_MULTIPATH_MIN && self.has_both(peer)
    }

    /// Returns whether both transports reach this peer.
    #[inline]
    pub(super) fn has_both(&self, peer: Peer) -> bool {
        self.both.get(peer as usize).copied().unwrap_or(false)
    }

    /// Exposes data to a peer by both transports, or by shared memory alone if TCP has no room.
    pub(super) fn expose_to_both(
        &mut self,
        shm: &mut ShmTransport,
        (token, peer, data): (BulkToken, Peer, &Data),
    ) -> ExposeResult {
        let ExposeResult::Ready(memory) = shm.expose(token, peer, data) else {
            return ExposeResult::Unable;
        };
        let both = match self.enter().expose(token, peer, data) {
            ExposeResult::Ready(descriptor) => join(&memory, descriptor.cookie),
            ExposeResult::Pending | ExposeResult::Unable => None,
        };
        ExposeResult::Ready(both.unwrap_or(memory))
    }

    /// Begins to read a region that both transports may read.
    pub(super) fn read_by_both(
        &mut self,
        bulk: &BulkTransfer<'_>,
        (memory, cookie): (RegionDescriptor, u64),
    ) -> Result<BulkStatus, Error> {
        let descriptor = RegionDescriptor { cookie, ..memory };
        let named = BulkTransfer {
            descriptor: &descriptor,
            ..*bulk
        };
        self.copies = true;
        match HomeTcp::of(self.enter()) {
            Some(mut home) => home.read_beside(&named, memory),
            None => Err(Error::Misuse("data by both transports without TCP")),
        }
    }
}

impl MultiTransport {
    /// Copies the next chunk that falls to shared memory, if any does.
    #[cold]
    #[inline(never)]
    pub(super) fn copy_some(&mut self) -> u32 {
        let OtherPeers::Tcp(remote) = &mut self.others else {
            return 0;
        };
        let due = HomeTcp::of(remote.enter()).and_then(|mut home| home.next_copy());
        let Some(due) = due else {
            let home = HomeTcp::of(lock(&remote.tcp));
            let reads = home.is_some_and(|home| home.reads_beside());
            remote.copies = reads;
            return 0;
        };
        let len = due.len.min(READ_CHUNK);
        let bulk = BulkTransfer {
            token: 0,
            peer: due.peer,
            descriptor: &due.region,
            offset: due.offset,
            local: &due.local.0,
            local_offset: due.local.1,
            len,
        };
        let result = self.shm.read(bulk).map(|_| len);
        if let Some(mut home) = HomeTcp::of(lock(&remote.tcp)) {
            home.copied(due.peer, result);
        }
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_were_joined_come_apart_and_others_are_left_alone() {
        for blob in [&[7u8; 8][..], &[1; 16], &[2; 32]] {
            let memory = RegionDescriptor::new(u64::MAX, blob).unwrap();
            assert_eq!(split(&memory), None);
            for cookie in [0, 1, (1 << 56) - 1] {
                let both = join(&memory, cookie).unwrap();
                assert_eq!(split(&both), Some((memory, cookie)));
            }
            assert_eq!(join(&memory, 1 << 56), None);
        }
    }
}
