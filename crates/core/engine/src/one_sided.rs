//! One-sided communication: reads, writes and atomic updates of memory that its owner registered.
//!
//! [`Engine::one_sided`] lends the calls. An access uses the transport's power where it reaches the
//! region ([`crate::transport::RegisteredMemory`]), and packets that the target's engine carries
//! out elsewhere. Offsets count from the region's first byte.
//!
//! Order: accesses of one origin at one target may overtake each other, except atomic accesses
//! through one [`RemoteRegion`] where the transport keeps packets in order. A flush ends after all
//! earlier accesses.

use crate::api::{CallOrigin, Error, Pattern, Peer, StartOutcome, Status};
use crate::copy::copy_between;
use crate::engine::Engine;
use crate::protocol::one_sided::origin::{AccessKind, failure_text};
pub use crate::protocol::one_sided::wire::RegionKey;
use crate::protocol::one_sided::wire::{AccessFailure, AccessPrefix, AtomicPrefix};
use crate::requests::{NewOperation, OpSide, OpState};
pub use crate::transport::{AccessRights, RegionMemory};
use crate::transport::{AtomicAccess, BulkStatus, Transport};
pub use garonne_sync::user::{AtomicOp, AtomicType};
use garonne_sync::user::{Data, UserMem};

/// A region of a peer, opened for access from here.
///
/// Made by [`OneSided::open_region`]; a plain value that needs no end. Accesses to a region that
/// its owner deregistered end with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRegion {
    peer: Peer,
    key: RegionKey,
    /// Rights that the transport uses by itself.
    direct: AccessRights,
}

impl RemoteRegion {
    /// Returns the owner of the region.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns the length of the region in bytes.
    pub fn region_len(&self) -> u64 {
        self.key.len
    }

    /// Returns the rights that the transport uses without the target's engine.
    pub fn direct_rights(&self) -> AccessRights {
        self.direct
    }

    fn prefix(&self, offset: u64, total: u64) -> AccessPrefix {
        AccessPrefix {
            cookie: self.key.cookie,
            start: offset,
            total,
        }
    }
}

/// An update of consecutive elements of a region, one atomic step for each.
#[derive(Clone, Debug)]
pub struct AtomicArgs {
    /// Offset of the first element.
    pub offset: u64,
    /// Type of the elements.
    pub kind: AtomicType,
    /// Combination of each element with its operand.
    pub op: AtomicOp,
    /// The operands, one for each element. Only its length counts for [`AtomicOp::NoOp`].
    pub operands: Data,
    /// Contiguous memory for the elements' old values; `None`: they are not wanted. Valid until
    /// completion.
    pub result: Option<UserMem>,
}

/// A compare-and-swap of one element of a region.
#[derive(Clone, Copy, Debug)]
pub struct SwapArgs {
    /// Offset of the element.
    pub offset: u64,
    /// Type of the element; bits are compared.
    pub kind: AtomicType,
    /// Low bytes: the element's value that is replaced.
    pub compare: u64,
    /// Memory of the new value, valid until completion.
    pub value: UserMem,
    /// Memory for the element's old value, valid until completion.
    pub result: UserMem,
}

/// One-sided calls of an engine.
///
/// Lent by [`Engine::one_sided`]. A target registers a region and sends the key to its peers by any
/// means. They open it, access it, and flush. What a call answers with
/// [`StartOutcome::Pending`] ends like a message: [`Engine::is_complete`], [`Engine::take`]. An
/// access is over when it is done at the target.
#[derive(Debug)]
pub struct OneSided<'a, R> {
    engine: &'a mut Engine<R>,
    origin: CallOrigin,
}

impl<R: Transport> Engine<R> {
    /// Lends the one-sided calls.
    pub fn one_sided(&mut self) -> OneSided<'_, R> {
        OneSided {
            engine: self,
            origin: CallOrigin::default(),
        }
    }
}

impl<R: Transport> OneSided<'_, R> {
    /// Notes the program's call for which operations are started, for reports.
    pub fn with_origin(mut self, origin: CallOrigin) -> Self {
        self.origin = origin;
        self
    }

    /// Opens memory of this process to all peers, until
    /// [`deregister_region`](Self::deregister_region).
    ///
    /// # Errors
    /// `Resource` when more regions than can be numbered were registered.
    pub fn register_region(&mut self, region: RegionMemory) -> Result<RegionKey, Error> {
        let Engine {
            core, transport, ..
        } = &mut *self.engine;
        let descriptor = transport
            .registered_memory()
            .and_then(|power| power.register(&region));
        core.one_sided
            .target
            .register(region, descriptor)
            .ok_or(Error::Resource("no numbers are left for regions"))
    }

    /// Closes a region of this process. Requests that come later are refused at once. The memory
    /// may be freed when the operation is complete.
    ///
    /// # Errors
    /// `Misuse` for a stale key, `Resource` when no memory is left.
    pub fn deregister_region(&mut self, key: &RegionKey) -> Result<StartOutcome, Error> {
        let index = self.open(self.engine.core.me, Data::empty())?;
        let Engine {
            core, transport, ..
        } = &mut *self.engine;
        let Some(descriptor) = core.one_sided.target.deregister(key) else {
            core.requests.close(index);
            return Err(failure_text(AccessFailure::Stale));
        };
        let token = core.wire_name(index);
        let closing = match (descriptor, transport.registered_memory()) {
            (Some(descriptor), Some(power)) => power.deregister(token, &descriptor),
            _ => BulkStatus::Done,
        };
        if closing == BulkStatus::Done {
            core.complete(index, None);
        }
        Ok(self.engine.start_outcome(index))
    }

    /// Opens a region whose key came from `peer`.
    ///
    /// # Errors
    /// `Misuse` for a peer outside the world, `Peer` for one that is gone.
    pub fn open_region(&mut self, peer: Peer, key: &RegionKey) -> Result<RemoteRegion, Error> {
        let Engine {
            core, transport, ..
        } = &mut *self.engine;
        let mut direct = AccessRights::NONE;
        if peer != core.me {
            if !core.peers.has(peer) {
                return Err(Error::Misuse("the target is not a process of this job"));
            }
            if let (Some(descriptor), Some(power)) =
                (&key.descriptor, transport.registered_memory())
            {
                direct = power.direct_rights(peer, descriptor).both(key.rights);
            }
            self.engine.ensure_peer(peer)?;
        }
        Ok(RemoteRegion {
            peer,
            key: *key,
            direct,
        })
    }

    /// Starts to fill `data` from a region.
    ///
    /// # Errors
    /// `Misuse` for an access that the key does not allow, `Peer` for a target that is gone,
    /// `Resource`.
    pub fn get(
        &mut self,
        region: &RemoteRegion,
        offset: u64,
        data: Data,
    ) -> Result<StartOutcome, Error> {
        self.transfer(region, offset, data, AccessKind::Get)
    }

    /// Starts to write `data` to a region.
    ///
    /// # Errors
    /// As for `get`.
    pub fn put(
        &mut self,
        region: &RemoteRegion,
        offset: u64,
        data: Data,
    ) -> Result<StartOutcome, Error> {
        self.transfer(region, offset, data, AccessKind::Put)
    }

    /// Starts to update elements of a region, and to fetch their old values if they are wanted.
    ///
    /// # Errors
    /// As for `get`; `Misuse` for an operation that is not defined for the type, and for elements
    /// that are not naturally aligned.
    pub fn atomic(
        &mut self,
        region: &RemoteRegion,
        args: AtomicArgs,
    ) -> Result<StartOutcome, Error> {
        if !args.op.is_defined(args.kind) {
            return Err(Error::Misuse("the operation is not defined for the type"));
        }
        if !args.operands.len.is_multiple_of(args.kind.size() as u64) {
            return Err(Error::Misuse("the operands are not whole elements"));
        }
        let atomic = AtomicPrefix {
            kind: args.kind,
            op: Some(args.op),
            compare: 0,
        };
        self.update(region, args.offset, args.operands, atomic, args.result)
    }

    /// Starts to replace an element of a region if it equals a value, and to fetch its old value.
    ///
    /// # Errors
    /// As for `atomic`.
    pub fn compare_and_swap(
        &mut self,
        region: &RemoteRegion,
        args: SwapArgs,
    ) -> Result<StartOutcome, Error> {
        let atomic = AtomicPrefix {
            kind: args.kind,
            op: None,
            compare: args.compare,
        };
        let value = Data::contiguous(args.value, args.kind.size() as u64);
        self.update(region, args.offset, value, atomic, Some(args.result))
    }

    /// Starts a flush: complete when all accesses that this process started at `peer` before are
    /// done there. The status has the first error of those that ended since the last flush.
    ///
    /// # Errors
    /// `Peer` for a target that is gone, `Misuse`, `Resource`.
    pub fn flush(&mut self, peer: Peer) -> Result<StartOutcome, Error> {
        if !self.engine.core.peers.has(peer) {
            return Err(Error::Misuse("the target is not a process of this job"));
        }
        if peer != self.engine.core.me {
            self.engine.ensure_peer(peer)?;
        }
        let index = self.open(peer, Data::empty())?;
        let token = self.engine.core.wire_name(index);
        let told = match self.engine.transport.registered_memory() {
            Some(power) => power.flush(token, peer),
            None => Ok(BulkStatus::Done),
        };
        let core = &mut self.engine.core;
        let direct = told == Ok(BulkStatus::Pending);
        if direct {
            core.requests.at(index).copies += 1;
        }
        if let Err(error) = told {
            core.one_sided.origin.note_failure(peer, &error);
        }
        let ended = core.one_sided.origin.flush(index, peer, direct);
        core.end_accesses(ended);
        Ok(self.engine.start_outcome(index))
    }

    /// Opens a one-sided operation.
    fn open(&mut self, peer: Peer, data: Data) -> Result<u32, Error> {
        let requests = &mut self.engine.core.requests;
        let index = requests.open(NewOperation {
            side: OpSide::Access,
            state: OpState::Active,
            pattern: Pattern {
                context: 0,
                source: None,
                tag: None,
            },
            data,
            origin: self.origin,
        })?;
        let operation = requests.at(index);
        operation.peer = peer;
        operation.source = peer;
        operation.tag = 0;
        operation.remote = 0;
        Ok(index)
    }

    /// Checks what the key says before anything else happens.
    fn check(
        &self,
        region: &RemoteRegion,
        (offset, len): (u64, u64),
        right: AccessRights,
    ) -> Result<(), Error> {
        if !region.key.rights.contains(right) {
            return Err(failure_text(AccessFailure::Denied));
        }
        let end = offset.checked_add(len);
        if end.is_none_or(|end| end > region.key.len) {
            return Err(failure_text(AccessFailure::Bounds));
        }
        self.engine.core.one_sided.origin.check_peer(region.peer)
    }

    /// A read or a write.
    fn transfer(
        &mut self,
        region: &RemoteRegion,
        offset: u64,
        data: Data,
        kind: AccessKind,
    ) -> Result<StartOutcome, Error> {
        let reads = matches!(kind, AccessKind::Get);
        let right = match reads {
            true => AccessRights::READ,
            false => AccessRights::WRITE,
        };
        let len = data.len;
        self.check(region, (offset, len), right)?;
        let target = region.prefix(offset, len);
        if region.peer == self.engine.core.me {
            let core = &mut self.engine.core;
            let memory = core
                .one_sided
                .target
                .find(&target, right)
                .map_err(failure_text)?;
            let there = Data::contiguous(memory.mem.offset(offset as isize), len);
            match reads {
                true => copy_between(&there, &data, len, &mut core.bounce),
                false => copy_between(&data, &there, len, &mut core.bounce),
            }
            return Ok(done(len, None));
        }
        self.engine.ensure_peer(region.peer)?;
        if len == 0 {
            return Ok(done(0, None));
        }
        let index = self.open(region.peer, data)?;
        let (Some(descriptor), true) = (&region.key.descriptor, region.direct.contains(right))
        else {
            return self.request(index, kind, target);
        };
        let Engine {
            core, transport, ..
        } = &mut *self.engine;
        let token = core.wire_name(index);
        let bulk = crate::transport::BulkTransfer {
            token,
            peer: region.peer,
            descriptor,
            offset,
            local: &core.requests.peek(index).data,
            local_offset: 0,
            len,
        };
        let Some(power) = transport.registered_memory() else {
            return self.request(index, kind, target);
        };
        if power.prefers_request(region.peer, descriptor, len) {
            return self.request(index, kind, target);
        }
        let told = match reads {
            true => power.get(bulk),
            false => power.put(bulk),
        };
        match told {
            // The transport cannot do it any more.
            Err(Error::Resource(_)) => self.request(index, kind, target),
            Ok(status) => {
                let due = u32::from(status == BulkStatus::Pending);
                self.direct(index, target, due, None)
            }
            Err(error) => self.direct(index, target, 0, Some(error)),
        }
    }

    /// An update of elements.
    fn update(
        &mut self,
        region: &RemoteRegion,
        offset: u64,
        operands: Data,
        atomic: AtomicPrefix,
        result: Option<UserMem>,
    ) -> Result<StartOutcome, Error> {
        let len = operands.len;
        self.check(region, (offset, len), AccessRights::ATOMIC)?;
        let target = region.prefix(offset, len);
        if region.peer == self.engine.core.me {
            let memory = self
                .engine
                .core
                .one_sided
                .target
                .find(&target, AccessRights::ATOMIC)
                .map_err(failure_text)?;
            let each = elements(&operands, &atomic);
            for (at, operand) in each {
                let old = atomic
                    .update(operand)
                    .apply(memory.mem, (offset + at) as isize, atomic.kind)
                    .ok_or(failure_text(AccessFailure::Misaligned))?;
                if let Some(result) = result {
                    result.write(at as isize, &old.to_le_bytes()[..atomic.kind.size()]);
                }
            }
            return Ok(done(len, None));
        }
        self.engine.ensure_peer(region.peer)?;
        if len == 0 {
            return Ok(done(0, None));
        }
        let index = self.open(region.peer, operands)?;
        let kind = AccessKind::Atomic { atomic, result };
        let (Some(descriptor), true) = (
            &region.key.descriptor,
            region.direct.contains(AccessRights::ATOMIC),
        ) else {
            return self.request(index, kind, target);
        };
        let Engine {
            core, transport, ..
        } = &mut *self.engine;
        let token = core.wire_name(index);
        let Some(power) = transport.registered_memory() else {
            return self.request(index, kind, target);
        };
        let (mut due, mut failure) = (0, None);
        let operands = core.requests.peek(index).data.clone();
        for (at, operand) in elements(&operands, &atomic) {
            let told = power.fetch_atomic(AtomicAccess {
                token,
                peer: region.peer,
                descriptor,
                offset: offset + at,
                kind: atomic.kind,
                update: atomic.update(operand),
                result: result.map(|result| result.offset(at as isize)),
            });
            match told {
                Ok(BulkStatus::Done) => {}
                Ok(BulkStatus::Pending) => due += 1,
                Err(Error::Resource(_)) if at == 0 => return self.request(index, kind, target),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        self.direct(index, target, due, failure)
    }

    /// Sends an access to the target's engine.
    fn request(
        &mut self,
        index: u32,
        kind: AccessKind,
        target: AccessPrefix,
    ) -> Result<StartOutcome, Error> {
        let core = &mut self.engine.core;
        let peer = core.requests.peek(index).peer;
        core.one_sided.origin.start(index, peer, kind, target);
        self.send_to(peer);
        Ok(self.engine.start_outcome(index))
    }

    /// Notes how far the transport came with an access: ends that it has yet to tell, and a
    /// failure.
    fn direct(
        &mut self,
        index: u32,
        target: AccessPrefix,
        due: u32,
        failure: Option<Error>,
    ) -> Result<StartOutcome, Error> {
        let core = &mut self.engine.core;
        let operation = core.requests.at(index);
        let peer = operation.peer;
        if due > 0 {
            operation.copies += 1;
            let origin = &mut core.one_sided.origin;
            origin.start_direct(index, peer, target, due, failure);
        } else {
            if let Some(error) = &failure {
                core.one_sided.origin.note_failure(peer, error);
            }
            core.complete(index, failure);
        }
        Ok(self.engine.start_outcome(index))
    }

    /// Sends what waits for one target. Returns whether anything left.
    fn send_to(&mut self, peer: Peer) -> bool {
        let Engine {
            core,
            transport,
            limits,
        } = &mut *self.engine;
        let origin = &mut core.one_sided.origin;
        match origin.send(peer, transport, limits, &core.requests, &mut core.bounce) {
            Ok((moved, more)) => {
                core.has_work |= more;
                moved
            }
            Err(_) => {
                self.peer_gone(peer);
                false
            }
        }
    }

    fn peer_gone(&mut self, peer: Peer) {
        if let Some(peer_index) = self.engine.core.peer_index(peer) {
            self.engine.peer_unusable(peer_index);
        }
    }

    /// Sends accesses and answers that wait. Returns whether anything left.
    pub(crate) fn progress(&mut self) -> bool {
        let mut moved = false;
        for peer in self.engine.core.one_sided.origin.waiting_peers() {
            moved |= self.send_to(peer);
        }
        let Engine {
            core,
            transport,
            limits,
        } = &mut *self.engine;
        if core.one_sided.target.is_idle() {
            return moved;
        }
        let sent = core.one_sided.target.send(transport, limits.packet_max);
        core.has_work |= sent.more;
        for peer in sent.gone {
            self.peer_gone(peer);
        }
        moved | sent.moved
    }
}

/// The outcome of an operation that is over when its call returns.
fn done(len: u64, error: Option<Error>) -> StartOutcome {
    StartOutcome::Done(Status {
        source: 0,
        tag: 0,
        len,
        cancelled: false,
        error,
    })
}

/// The elements of an update: offset and operand of each.
fn elements(operands: &Data, atomic: &AtomicPrefix) -> impl Iterator<Item = (u64, u64)> + use<> {
    let (operands, size) = (operands.clone(), atomic.kind.size());
    let unused = atomic.op == Some(AtomicOp::NoOp);
    (0..operands.len).step_by(size).map(move |at| {
        let mut bytes = [0; 8];
        if !unused {
            operands.pack(at, &mut bytes[..size]);
        }
        (at, u64::from_le_bytes(bytes))
    })
}
