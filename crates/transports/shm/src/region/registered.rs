//! Registered regions: memory open to all ranks of the node until it is deregistered.
//!
//! An entry of the owner's table stands for one, too. Its lease bits are not a count: each of the
//! first [`LEASE_RANKS`] ranks has one of its own, so that the owner gives back that of a rank
//! which died. Bytes move plainly where both sides map the memory (threads of a process, the node's
//! memory for collectives), and elements are updated there; between processes by the system calls
//! that regions use. Whatever else is asked for is left to the owner's engine.

use super::{CLOSED, ExposedRegion, LEASES, PeerRegion, Regions, RemoteAccessCheck};
use crate::iovec::RegionLocation;
use crate::layout::{REGION_BYTES, REGION_TABLE};
use crate::peers::{NodePeers, wake};
use crate::sys;
use crate::transfer::copy_blocks;
use garonne_engine::api::{Error, Peer};
use garonne_engine::transport::{
    AccessRights, AtomicAccess, BulkStatus, BulkToken, BulkTransfer, RegionDescriptor, RegionMemory,
};
use garonne_sync::progress_owner::WakeupScope;
use garonne_sync::shm::Segment;
use garonne_sync::user::{Packed, UserMem};
use garonne_transport::iovec::CopyDirection;
use garonne_transport::limits::{REGIONS, REQUEST_BELOW};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ranks that have a lease bit of their own; accesses of the others go to the owner's engine.
const LEASE_RANKS: u32 = LEASES.count_ones();
/// Entries of the table that may be registered regions: messages need the others.
const REGISTERED_MAX: usize = REGIONS / 2;

const STALE: Error = Error::Misuse("the key is stale: its region was deregistered");

/// Place where a registered region lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At this address of its owner.
    Address(usize),
    /// At this offset of the memory that all ranks of the node share.
    Commons(usize),
}

/// Place of a registered region, as its descriptor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RegisteredPlace {
    place: Place,
    len: u64,
    rights: AccessRights,
}

impl RegisteredPlace {
    const BYTES: usize = 18;

    fn descriptor(&self, cookie: u64) -> Option<RegionDescriptor> {
        let mut bytes = [0; Self::BYTES];
        let (kind, at) = match self.place {
            Place::Address(addr) => (0, addr),
            Place::Commons(offset) => (1, offset),
        };
        bytes[..8].copy_from_slice(&(at as u64).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_le_bytes());
        (bytes[16], bytes[17]) = (self.rights.bits(), kind);
        RegionDescriptor::new(cookie, &bytes)
    }

    /// Reads the bytes of a descriptor. `None`: they are none of a registered region.
    fn read(blob: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = blob.try_into().ok()?;
        let word = |at: usize| Some(u64::from_le_bytes(*bytes[at..].first_chunk()?));
        let at = usize::try_from(word(0)?).ok()?;
        Some(Self {
            place: match bytes[17] {
                0 => Place::Address(at),
                1 => Place::Commons(at),
                _ => return None,
            },
            len: word(8)?,
            rights: AccessRights::from_bits(bytes[16])?,
        })
    }

    fn check(&self, (offset, len): (u64, u64), right: AccessRights) -> Result<(), Error> {
        if !self.rights.contains(right) {
            return Err(Error::Misuse("the region gives no right to this access"));
        }
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Error::Misuse("the access reaches beyond the region")),
        }
    }
}

/// The lease bit of a rank on a region of the table at `inbox`.
struct RankLease<'a> {
    state: &'a AtomicU64,
    bit: u64,
}

impl<'a> RankLease<'a> {
    fn take(inbox: &'a Segment, cookie: u64, me: Peer) -> Result<Self, Error> {
        let (index, generation) = (cookie as u32 as usize, cookie >> 32);
        if index >= REGIONS || generation == 0 || me >= LEASE_RANKS {
            return Err(STALE);
        }
        let (state, bit) = (Regions::state(inbox, index), 1 << me);
        let mut word = state.load(Ordering::Relaxed);
        loop {
            if word >> 32 != generation || word & CLOSED != 0 {
                return Err(STALE);
            }
            // Acquire: the data as the owner left it when it opened the region. SYNC(region-open).
            match state.compare_exchange_weak(
                word,
                word | bit,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(Self { state, bit }),
                Err(now) => word = now,
            }
        }
    }

    /// Gives the bit back. `true`: the owner waits for this.
    fn give_back(self) -> bool {
        // Release: our accesses are done before the owner counts the lease as gone.
        // SYNC(region-lease).
        let before = self.state.fetch_and(!self.bit, Ordering::Release);
        before & CLOSED != 0 && before & LEASES == self.bit
    }
}

/// The registered regions of a rank and its ways to those of others, lent for one call.
pub(crate) struct RegisteredAccess<'a> {
    pub regions: &'a mut Regions,
    pub node_peers: &'a dyn NodePeers,
    /// The memory that all ranks of the node share.
    pub commons: Option<&'a Segment>,
}

impl RegisteredAccess<'_> {
    pub(crate) fn register(&mut self, region: &RegionMemory) -> Option<RegionDescriptor> {
        let regions = &mut *self.regions;
        let registered = regions.exposed.iter().flatten();
        if registered.filter(|entry| entry.is_registered()).count() >= REGISTERED_MAX {
            return None;
        }
        let index = regions.free_entry()?;
        let addr = region.mem.addr(0);
        let within = |commons: &&Segment| {
            let base = commons.ptr(0, 0).addr();
            let from = addr.checked_sub(base)?;
            let end = from.checked_add(usize::try_from(region.len).ok()?)?;
            (end <= commons.len()).then_some(Place::Commons(from))
        };
        let place = RegisteredPlace {
            place: self
                .commons
                .as_ref()
                .and_then(within)
                .unwrap_or(Place::Address(addr)),
            len: region.len,
            rights: region.rights,
        };
        let cookie = regions.next_cookie(index);
        let descriptor = place.descriptor(cookie)?;
        regions.open_entry(index, cookie, ExposedRegion::registered());
        Some(descriptor)
    }

    pub(crate) fn deregister(
        &mut self,
        token: BulkToken,
        descriptor: &RegionDescriptor,
    ) -> BulkStatus {
        let index = descriptor.cookie as u32 as usize;
        let regions = &mut *self.regions;
        let Some(Some(entry)) = regions.exposed.get_mut(index) else {
            return BulkStatus::Done;
        };
        let state = Regions::state(&regions.own, index);
        let same = state.load(Ordering::Relaxed) >> 32 == descriptor.cookie >> 32;
        if !entry.is_registered() || entry.closing || !same {
            return BulkStatus::Done;
        }
        // Acquire: bytes written by finished leases are ours to see. SYNC(region-lease).
        if state.fetch_or(CLOSED, Ordering::AcqRel) & LEASES == 0 {
            regions.exposed[index] = None;
            return BulkStatus::Done;
        }
        (entry.token, entry.closing) = (token, true);
        regions.closing += 1;
        BulkStatus::Pending
    }

    /// Returns the rights that this rank can use by itself.
    pub(crate) fn direct_rights(&self, peer: Peer, descriptor: &RegionDescriptor) -> AccessRights {
        let Some(place) = RegisteredPlace::read(descriptor.blob()) else {
            return AccessRights::NONE;
        };
        let Some(reached) = self.reached(peer) else {
            return AccessRights::NONE;
        };
        if self.node_peers.me() >= LEASE_RANKS {
            return AccessRights::NONE;
        }
        if self.mapped(&reached, &place).is_some() {
            return AccessRights::ALL;
        }
        match (place.place, reached.means.can_write) {
            (Place::Commons(_), _) => AccessRights::NONE,
            (Place::Address(_), true) => AccessRights::READ.with(AccessRights::WRITE),
            (Place::Address(_), false) if reached.means.can_read => AccessRights::READ,
            (Place::Address(_), false) => AccessRights::NONE,
        }
    }

    /// Returns whether a request serves better: the owner looks for packets, which takes less time
    /// than a system call.
    pub(crate) fn prefers_request(
        &self,
        peer: Peer,
        descriptor: &RegionDescriptor,
        len: u64,
    ) -> bool {
        let mapped = || {
            let place = RegisteredPlace::read(descriptor.blob())?;
            self.mapped(&*self.reached(peer)?, &place)
        };
        len < REQUEST_BELOW && mapped().is_none() && self.regions.looks(self.node_peers, peer)
    }

    fn reached(&self, peer: Peer) -> Option<Arc<PeerRegion>> {
        self.regions.probe(self.node_peers, peer);
        match self.regions.probes.borrow().get(peer as usize) {
            Some(RemoteAccessCheck::Works(reached)) => Some(reached.clone()),
            _ => None,
        }
    }

    /// The region's first byte, if this process maps all of it.
    fn mapped(&self, reached: &PeerRegion, place: &RegisteredPlace) -> Option<UserMem> {
        match place.place {
            Place::Address(addr) => reached.process.is_none().then(|| sys::own_memory(addr)),
            Place::Commons(offset) => {
                let commons = self.commons?;
                let len = usize::try_from(place.len).ok()?;
                let end = offset.checked_add(len)?;
                (end <= commons.len()).then(|| commons.mem(offset, len))
            }
        }
    }

    /// Checks an access, and carries it out under a lease.
    fn access<T>(
        &mut self,
        peer: Peer,
        descriptor: &RegionDescriptor,
        span: (u64, u64),
        right: AccessRights,
        carry_out: impl FnOnce(&mut Self, &PeerRegion, &RegisteredPlace) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let place = RegisteredPlace::read(descriptor.blob()).ok_or(STALE)?;
        place.check(span, right)?;
        let reached = self
            .reached(peer)
            .ok_or(Error::Resource("a peer's memory cannot be reached"))?;
        let lease = RankLease::take(&reached.inbox, descriptor.cookie, self.node_peers.me())?;
        let done = carry_out(self, &reached, &place);
        // Who lives gives back what it took itself.
        if lease.give_back() {
            wake(self.node_peers, peer, WakeupScope::Everything);
        }
        let dead = reached
            .process
            .as_ref()
            .is_some_and(|process| !reached.means.can_write && !process.is_alive());
        if dead {
            let what = "died while its memory was used";
            return Err(Error::Peer { peer, what });
        }
        self.regions.hear(peer, &done);
        match done {
            // The system refuses such calls from now on: the owner's engine does it.
            Err(Error::System { errno, .. }) if errno != libc::EFAULT => {
                Err(Error::Resource("the system bars a peer's memory"))
            }
            done => done,
        }
    }

    pub(crate) fn transfer(
        &mut self,
        bulk: BulkTransfer<'_>,
        way: CopyDirection,
    ) -> Result<BulkStatus, Error> {
        let right = match way {
            CopyDirection::Read => AccessRights::READ,
            CopyDirection::Write => AccessRights::WRITE,
        };
        let span = (bulk.offset, bulk.len);
        self.access(
            bulk.peer,
            bulk.descriptor,
            span,
            right,
            |access, reached, place| {
                if let Some(mem) = access.mapped(reached, place) {
                    let there = Packed::new(mem.offset(bulk.offset as isize), bulk.len as usize);
                    match way {
                        CopyDirection::Read => bulk.local.unpack_from(bulk.local_offset, there),
                        CopyDirection::Write => bulk.local.pack_to(bulk.local_offset, there),
                    }
                    return Ok(BulkStatus::Done);
                }
                let Place::Address(addr) = place.place else {
                    return Err(Error::Resource("the node's memory is not mapped here"));
                };
                let descriptor = RegionLocation::One(addr)
                    .descriptor(bulk.descriptor.cookie)
                    .ok_or(STALE)?;
                let plain = BulkTransfer {
                    descriptor: &descriptor,
                    ..bulk
                };
                copy_blocks(reached.pid(), &plain, way, &mut access.regions.list)?;
                Ok(BulkStatus::Done)
            },
        )
    }

    pub(crate) fn fetch_atomic(&mut self, atomic: AtomicAccess<'_>) -> Result<BulkStatus, Error> {
        let span = (atomic.offset, atomic.kind.size() as u64);
        let right = AccessRights::ATOMIC;
        let AtomicAccess {
            peer, descriptor, ..
        } = atomic;
        self.access(peer, descriptor, span, right, |access, reached, place| {
            let mem = access
                .mapped(reached, place)
                .ok_or(Error::Resource("the region is not mapped here"))?;
            let old = atomic
                .update
                .apply(mem, atomic.offset as isize, atomic.kind)
                .ok_or(Error::Misuse("the elements are not naturally aligned"))?;
            if let Some(result) = atomic.result {
                result.write(0, &old.to_le_bytes()[..atomic.kind.size()]);
            }
            Ok(BulkStatus::Done)
        })
    }
}

/// A rank died: its leases on registered regions of `own` count as returned.
pub(crate) fn forget_leases(own: &Segment, exposed: &[Option<ExposedRegion>], peer: Peer) {
    const { assert!(REGION_TABLE.is_multiple_of(8) && REGION_BYTES.is_multiple_of(8)) };
    if peer >= LEASE_RANKS {
        return;
    }
    for (index, entry) in exposed.iter().enumerate() {
        if entry.as_ref().is_some_and(ExposedRegion::is_registered) {
            Regions::state(own, index).fetch_and(!(1 << peer), Ordering::AcqRel);
        }
    }
}

/// Reads any bytes as those of a descriptor; what is understood is written as it was read.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_registered(bytes: &[u8]) {
    if let Some(place) = RegisteredPlace::read(bytes) {
        let again = place.descriptor(7);
        assert!(again.is_some_and(|descriptor| descriptor.blob() == bytes));
        let end = place.check((u64::MAX, 1), AccessRights::NONE);
        assert!(end.is_err(), "an offset that overflows is refused");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_survive_their_way_and_others_are_refused() {
        for place in [Place::Address(0x7f00_1234_5678), Place::Commons(4096)] {
            let place = RegisteredPlace {
                place,
                len: 1 << 33,
                rights: AccessRights::READ,
            };
            let descriptor = place.descriptor(1 << 32 | 5).unwrap();
            assert_eq!(RegisteredPlace::read(descriptor.blob()), Some(place));
            let blob = descriptor.blob();
            assert_eq!(RegisteredPlace::read(&blob[1..]), None);
            let mut wrong = blob.to_vec();
            wrong[17] = 2;
            assert_eq!(RegisteredPlace::read(&wrong), None);
        }
    }

    #[test]
    fn a_lease_is_of_one_rank_and_keeps_a_closing_region_until_it_or_its_rank_is_over() {
        let inbox = Segment::anonymous(REGION_TABLE + REGIONS * REGION_BYTES).unwrap();
        let state = Regions::state(&inbox, 3);
        state.store(7 << 32, Ordering::Relaxed);
        let cookie = 7 << 32 | 3;
        let (first, second) = (
            RankLease::take(&inbox, cookie, 0).unwrap(),
            RankLease::take(&inbox, cookie, 30).unwrap(),
        );
        assert!(RankLease::take(&inbox, cookie, LEASE_RANKS).is_err());
        assert!(RankLease::take(&inbox, cookie ^ 1 << 32, 1).is_err());
        state.fetch_or(CLOSED, Ordering::AcqRel);
        assert!(RankLease::take(&inbox, cookie, 1).is_err());
        assert!(!first.give_back(), "another is left");
        let exposed = [None, None, None, Some(ExposedRegion::registered())];
        forget_leases(&inbox, &exposed, 30);
        assert_eq!(state.load(Ordering::Relaxed) & LEASES, 0);
        let _ = second;
    }
}
