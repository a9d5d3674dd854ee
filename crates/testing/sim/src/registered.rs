//! Registered memory of ranks of one process: regions open to all, accessed as a network's hardware
//! does it, without the target's engine.
//!
//! A fabric owns the [`RegisteredRegions`]. Each simulated rank's transport has an [`AccessQueue`]
//! of those that end only with a later poll, as chance has it. A region is looked up when its bytes
//! move, so one that was deregistered, or whose owner died meanwhile, is not touched.

use crate::fabric::SimFabric;
use garonne_engine::api::{Error, Peer};
use garonne_engine::transport::{
    AccessRights, AtomicAccess, AtomicUpdate, BulkStatus, BulkToken, BulkTransfer, PollSink,
    RegionDescriptor, RegionMemory, RegisteredMemory,
};
use garonne_sync::user::{AtomicType, Data, UserMem};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Registered regions of all ranks of a world.
#[derive(Debug, Default)]
pub(crate) struct RegisteredRegions {
    by_cookie: BTreeMap<u64, (Peer, RegionMemory)>,
    next: u64,
}

impl RegisteredRegions {
    pub(crate) fn register(
        &mut self,
        owner: Peer,
        region: &RegionMemory,
    ) -> Option<RegionDescriptor> {
        self.next += 1;
        self.by_cookie.insert(self.next, (owner, *region));
        RegionDescriptor::new(self.next, &[])
    }

    pub(crate) fn deregister(&mut self, owner: Peer, descriptor: &RegionDescriptor) {
        let cookie = descriptor.cookie;
        if self
            .by_cookie
            .get(&cookie)
            .is_some_and(|(of, _)| *of == owner)
        {
            self.by_cookie.remove(&cookie);
        }
    }

    /// A process died, and its memory with it.
    pub(crate) fn died(&mut self, owner: Peer) {
        self.by_cookie.retain(|_, (of, _)| *of != owner);
    }

    /// Returns the place of an access, if it is allowed.
    fn find(
        &self,
        owner: Peer,
        cookie: u64,
        (offset, len): (u64, u64),
        right: AccessRights,
    ) -> Result<UserMem, Error> {
        let region = match self.by_cookie.get(&cookie) {
            Some((of, region)) if *of == owner => region,
            _ => return Err(Error::Misuse("the region was deregistered")),
        };
        if !region.rights.contains(right) || !region.holds(offset, len) {
            return Err(Error::Misuse("the region does not allow this access"));
        }
        Ok(region.mem.offset(offset as isize))
    }

    pub(crate) fn carry_out(&self, access: &Access) -> Result<(), Error> {
        let Access { peer, cookie, .. } = *access;
        match &access.effect {
            Effect::Get(local, local_offset, offset, len) => {
                let mem = self.find(peer, cookie, (*offset, *len), AccessRights::READ)?;
                local.unpack_from(*local_offset, packed(mem, *len));
            }
            Effect::Put(local, local_offset, offset, len) => {
                let mem = self.find(peer, cookie, (*offset, *len), AccessRights::WRITE)?;
                local.pack_to(*local_offset, packed(mem, *len));
            }
            Effect::Atomic {
                offset,
                kind,
                update,
                result,
            } => {
                let span = (*offset, kind.size() as u64);
                let mem = self.find(peer, cookie, span, AccessRights::ATOMIC)?;
                let old = update
                    .apply(mem, 0, *kind)
                    .ok_or(Error::Misuse("the element is misaligned"))?;
                if let Some(result) = result {
                    result.write(0, &old.to_le_bytes()[..kind.size()]);
                }
            }
            Effect::Flush => {}
        }
        Ok(())
    }
}

fn packed(mem: UserMem, len: u64) -> garonne_sync::user::Packed {
    garonne_sync::user::Packed::new(mem, len as usize)
}

/// An access that its origin asked for.
#[derive(Debug)]
pub(crate) struct Access {
    token: BulkToken,
    peer: Peer,
    cookie: u64,
    effect: Effect,
}

#[derive(Debug)]
enum Effect {
    /// Local data, first byte there, offset in the region, length.
    Get(Data, u64, u64, u64),
    /// Local data, first byte there, offset in the region, length.
    Put(Data, u64, u64, u64),
    Atomic {
        offset: u64,
        kind: AtomicType,
        update: AtomicUpdate,
        result: Option<UserMem>,
    },
    Flush,
}

impl Access {
    pub(crate) fn get(transfer: &BulkTransfer<'_>) -> Self {
        Self::moving(transfer, Effect::Get)
    }

    pub(crate) fn put(transfer: &BulkTransfer<'_>) -> Self {
        Self::moving(transfer, Effect::Put)
    }

    fn moving(
        transfer: &BulkTransfer<'_>,
        effect: impl FnOnce(Data, u64, u64, u64) -> Effect,
    ) -> Self {
        Self {
            token: transfer.token,
            peer: transfer.peer,
            cookie: transfer.descriptor.cookie,
            effect: effect(
                transfer.local.clone(),
                transfer.local_offset,
                transfer.offset,
                transfer.len,
            ),
        }
    }

    pub(crate) fn atomic(access: &AtomicAccess<'_>) -> Self {
        Self {
            token: access.token,
            peer: access.peer,
            cookie: access.descriptor.cookie,
            effect: Effect::Atomic {
                offset: access.offset,
                kind: access.kind,
                update: access.update,
                result: access.result,
            },
        }
    }
}

/// Accesses of one rank that end with a later poll, the oldest first.
#[derive(Debug)]
pub(crate) struct AccessQueue {
    me: Peer,
    fabric: Arc<SimFabric>,
    waiting: VecDeque<Access>,
    /// The rank is about to sleep, and nothing would wake it for what waits.
    pub armed: bool,
}

impl AccessQueue {
    pub(crate) fn new(me: Peer, fabric: Arc<SimFabric>) -> Self {
        Self {
            me,
            fabric,
            waiting: VecDeque::new(),
            armed: false,
        }
    }

    /// Carries an access out, now or with a later poll.
    fn start(&mut self, access: Access) -> Result<BulkStatus, Error> {
        self.fabric.perhaps_pause(self.me);
        // Atomic operations keep their order.
        let is_atomic = |access: &Access| matches!(access.effect, Effect::Atomic { .. });
        let must_wait = is_atomic(&access)
            && self
                .waiting
                .iter()
                .any(|other| is_atomic(other) && other.peer == access.peer);
        if must_wait || self.fabric.draw(2) == 0 {
            self.waiting.push_back(access);
            return Ok(BulkStatus::Pending);
        }
        self.fabric
            .registered(|regions| regions.carry_out(&access))
            .map(|()| BulkStatus::Done)
    }

    /// Carries some of the waiting accesses out, or all before the rank sleeps. Returns how many.
    pub(crate) fn poll(&mut self, sink: &mut impl PollSink) -> u32 {
        let mut told = 0;
        while !self.waiting.is_empty() && (self.armed || self.fabric.draw(3) != 0) {
            self.fabric.perhaps_pause(self.me);
            if let Some(access) = self.waiting.pop_front() {
                let result = self.fabric.registered(|regions| regions.carry_out(&access));
                sink.on_bulk_done(access.token, result);
                told += 1;
            }
        }
        told
    }

    /// Returns whether accesses wait.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl RegisteredMemory for AccessQueue {
    fn register(&mut self, region: &RegionMemory) -> Option<RegionDescriptor> {
        self.fabric
            .registered(|regions| regions.register(self.me, region))
    }

    fn deregister(&mut self, _token: BulkToken, descriptor: &RegionDescriptor) -> BulkStatus {
        self.fabric
            .registered(|regions| regions.deregister(self.me, descriptor));
        BulkStatus::Done
    }

    fn direct_rights(&mut self, _peer: Peer, _descriptor: &RegionDescriptor) -> AccessRights {
        // Any: engines must do what is left.
        AccessRights::from_bits(self.fabric.draw(8) as u8).unwrap_or_default()
    }

    fn get(&mut self, transfer: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        self.start(Access::get(&transfer))
    }

    fn put(&mut self, transfer: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        self.start(Access::put(&transfer))
    }

    fn fetch_atomic(&mut self, access: AtomicAccess<'_>) -> Result<BulkStatus, Error> {
        self.start(Access::atomic(&access))
    }

    fn flush(&mut self, token: BulkToken, peer: Peer) -> Result<BulkStatus, Error> {
        if !self.waiting.iter().any(|access| access.peer == peer) {
            return Ok(BulkStatus::Done);
        }
        self.waiting.push_back(Access {
            token,
            peer,
            cookie: 0,
            effect: Effect::Flush,
        });
        Ok(BulkStatus::Pending)
    }
}
