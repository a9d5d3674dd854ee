//! Memory that peers of a connection read and write: regions of an endpoint, and the accesses of
//! one connection.

use crate::error::{misuse, of_engine};
use crate::event::{ConnectionId, Event};
use crate::region::RegionKey;
use crate::sys::OwnedOperation;
use garonne_engine::api::{self, Peer};
use garonne_engine::one_sided::{self, AccessRights, AtomicArgs, RegionMemory};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_progress::messaging::{Messaging, RegionCall};
use garonne_sync::shm::Segment;
use garonne_sync::user::{AtomicOp, AtomicType, Data};
use std::collections::VecDeque;

/// Name of a region of one endpoint. Names are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(pub(crate) u64);

impl RegionId {
    /// The name as a number.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The name of this number, which [`RegionId::number`] gave.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// Rights of a peer in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionRights {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Reads, writes and atomic updates.
    All,
}

impl RegionRights {
    fn of_engine(self) -> AccessRights {
        match self {
            Self::Read => AccessRights::READ,
            Self::Write => AccessRights::WRITE,
            Self::All => AccessRights::ALL,
        }
    }
}

/// An access that goes on.
#[derive(Debug)]
struct OpenAccess {
    context: u64,
    /// Number that the peer is told when the access is done.
    notify: Option<u64>,
    kind: AccessKind,
    operation: OwnedOperation,
}

/// What an access does, as far as its end needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessKind {
    /// The bytes are given back, or were fetched.
    Transfer,
    /// The old value lies behind the operand.
    Update,
}

/// A region that the peer of a connection may access.
#[derive(Debug)]
struct ExposedRegion {
    region: RegionId,
    key: one_sided::RegionKey,
    /// Mapped for as long as the engine may touch it.
    memory: Segment,
    /// Under way since the region was withdrawn.
    closing: Option<OwnedOperation>,
}

/// Remote memory of one connection: what its peer may access here, and what this side accesses
/// there. The engine is dropped before it.
#[derive(Debug, Default)]
pub(crate) struct RemoteMemory {
    exposed: Vec<ExposedRegion>,
    accesses: Vec<OpenAccess>,
    /// Fences, each with the accesses before it that still go on.
    fences: VecDeque<(u64, usize)>,
}

impl RemoteMemory {
    /// Opens a region to the peer, and returns the key for it.
    pub(crate) fn expose(
        &mut self,
        host: &dyn Messaging,
        (region, memory): (RegionId, &Segment),
        rights: RegionRights,
    ) -> Result<RegionKey> {
        if self.exposed.iter().any(|one| one.region == region) {
            let text = "expose: the peer has a key of this region already; withdraw it first";
            return Err(misuse(text));
        }
        let key = host.register_region(RegionMemory {
            mem: memory.mem(0, memory.len()),
            len: memory.len() as u64,
            rights: rights.of_engine(),
        });
        let key = key.map_err(|error| of_engine("expose", error))?;
        self.exposed.push(ExposedRegion {
            region,
            key,
            memory: memory.clone(),
            closing: None,
        });
        Ok(RegionKey(key))
    }

    /// Begins to close a region to the peer.
    pub(crate) fn withdraw(&mut self, host: &dyn Messaging, region: RegionId) -> Result<()> {
        let mut exposed = self.exposed.iter_mut();
        let found = exposed.find(|one| one.region == region && one.closing.is_none());
        let found = found.ok_or_else(|| misuse("withdraw: the peer has no key of this region"))?;
        let deregister = |_: Data| host.deregister_region(&found.key);
        let closing = OwnedOperation::start(Vec::new(), deregister);
        found.closing = Some(closing.map_err(|error| of_engine("withdraw", error))?);
        Ok(())
    }

    /// Returns whether the peer may access this region.
    pub(crate) fn uses(&self, region: RegionId) -> bool {
        self.exposed.iter().any(|one| one.region == region)
    }

    /// Returns whether accesses or fences go on.
    pub(crate) fn is_busy(&self) -> bool {
        !self.accesses.is_empty() || !self.fences.is_empty()
    }

    /// Starts to write bytes to a region of the peer.
    pub(crate) fn put(
        &mut self,
        (host, peer): (&dyn Messaging, Peer),
        (key, offset): (&RegionKey, u64),
        bytes: Vec<u8>,
        (context, notify): (u64, Option<u64>),
    ) -> Result<()> {
        let put = |data| host.access_region(peer, &key.0, RegionCall::Put { offset, data });
        let operation = OwnedOperation::start(bytes, put);
        self.started("put", operation, (context, notify), AccessKind::Transfer)
    }

    /// Starts to read bytes from a region of the peer.
    pub(crate) fn get(
        &mut self,
        (host, peer): (&dyn Messaging, Peer),
        (key, offset, len): (&RegionKey, u64, usize),
        (context, notify): (u64, Option<u64>),
    ) -> Result<()> {
        if len as u64 > key.len() {
            return Err(misuse(format!(
                "get: {len} B of a region of {} B",
                key.len()
            )));
        }
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(len).is_err() {
            let text = format!("get: no memory for {len} B");
            return Err(Error::resource(codes::G0304, text));
        }
        bytes.resize(len, 0);
        let get = |data| host.access_region(peer, &key.0, RegionCall::Get { offset, data });
        let operation = OwnedOperation::start(bytes, get);
        self.started("get", operation, (context, notify), AccessKind::Transfer)
    }

    /// Starts to add to a word of a region of the peer, and to fetch its old value.
    pub(crate) fn fetch_add(
        &mut self,
        (host, peer): (&dyn Messaging, Peer),
        (key, offset): (&RegionKey, u64),
        value: u64,
        (context, notify): (u64, Option<u64>),
    ) -> Result<()> {
        let mut bytes = value.to_ne_bytes().to_vec();
        bytes.extend([0; 8]);
        let operation = OwnedOperation::start_at(bytes, |mem| {
            let args = AtomicArgs {
                offset,
                kind: AtomicType::U64,
                op: AtomicOp::Sum,
                operands: Data::contiguous(mem, 8),
                result: Some(mem.offset(8)),
            };
            host.access_region(peer, &key.0, RegionCall::Atomic(args))
        });
        self.started(
            "fetch_add",
            operation,
            (context, notify),
            AccessKind::Update,
        )
    }

    fn started(
        &mut self,
        what: &str,
        operation: std::result::Result<OwnedOperation, api::Error>,
        (context, notify): (u64, Option<u64>),
        kind: AccessKind,
    ) -> Result<()> {
        self.accesses.push(OpenAccess {
            context,
            notify,
            kind,
            operation: operation.map_err(|error| of_engine(what, error))?,
        });
        Ok(())
    }

    /// Starts a fence: over when all accesses that were started before are.
    pub(crate) fn fence(&mut self, context: u64) {
        self.fences.push_back((context, self.accesses.len()));
    }

    /// Tells of what is over. Returns the numbers that the peer is to be told.
    pub(crate) fn advance(
        &mut self,
        id: ConnectionId,
        host: &dyn Messaging,
        events: &mut VecDeque<Event>,
    ) -> Vec<u64> {
        let mut notices = Vec::new();
        let mut at = 0;
        while at < self.accesses.len() {
            if !self.accesses[at].operation.is_over(host) {
                at += 1;
                continue;
            }
            let mut access = self.accesses.remove(at);
            for (_, before) in &mut self.fences {
                *before -= usize::from(at < *before);
            }
            let ended = access.operation.wait(host, |_, _| {});
            if let (Ok(_), Some(number)) = (&ended, access.notify) {
                notices.push(number);
            }
            let mut bytes = access.operation.into_bytes();
            if access.kind == AccessKind::Update {
                bytes.drain(..bytes.len().min(8));
            }
            events.push_back(Event::AccessDone {
                connection: id,
                context: access.context,
                bytes,
                result: ended.map(drop).map_err(|error| of_engine("access", error)),
            });
        }
        self.end_fences(id, events);
        self.exposed.retain_mut(|one| {
            let over = one
                .closing
                .as_mut()
                .is_some_and(|closing| closing.is_over(host));
            if over {
                events.push_back(Event::Withdrawn {
                    connection: id,
                    region: one.region,
                });
            }
            !over
        });
        notices
    }

    fn end_fences(&mut self, id: ConnectionId, events: &mut VecDeque<Event>) {
        while let Some(&(context, 0)) = self.fences.front() {
            self.fences.pop_front();
            events.push_back(Event::AccessDone {
                connection: id,
                context,
                bytes: Vec::new(),
                result: Ok(()),
            });
        }
    }

    /// The connection is dropped, and its engine may go on: closes all regions to the peer. Memory
    /// that is still being accessed stays mapped for ever.
    pub(crate) fn abandon(&mut self, host: &dyn Messaging) {
        for mut one in self.exposed.drain(..) {
            let closing = one.closing.take();
            let closing = closing.or_else(|| {
                let deregister = |_: Data| host.deregister_region(&one.key);
                OwnedOperation::start(Vec::new(), deregister).ok()
            });
            let is_over = closing.is_some_and(|mut closing| closing.is_over(host));
            if !is_over {
                std::mem::forget(one.memory);
            }
        }
    }

    /// The connection is over: tells of all accesses that they failed.
    pub(crate) fn fail(&mut self, id: ConnectionId, events: &mut VecDeque<Event>) {
        let failed = |context| Event::AccessDone {
            connection: id,
            context,
            bytes: Vec::new(),
            result: Err(Error::peer(
                codes::G0403,
                "access: the connection ended before it was done",
            )),
        };
        events.extend(self.accesses.drain(..).map(|access| failed(access.context)));
        events.extend(self.fences.drain(..).map(|(context, _)| failed(context)));
    }
}
