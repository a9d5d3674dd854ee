//! Regions: memory that a peer may read or write by descriptor until it is revoked.
//!
//! The owner keeps a table in its inbox; an entry's state word holds generation, a closed bit and
//! the number of leases. A region may be shared: then the entry also counts, in one word, the parts
//! that its owner and its peer have taken to fill, from both ends, so that none is filled twice and
//! none waits for a side that is busy. A user takes a lease, moves bytes (by
//! `process_vm_readv`/`writev`, or plainly within one process), checks that the owner lives and the
//! generation stands, and only then counts them. Revoking closes the entry; the memory is the
//! owner's again when no lease is left or their holder is dead. Protects against error, not malice:
//! one user's processes can read each other anyway. Bounded by the table, and by the blocks a list
//! may have.

mod early_rtr;
mod registered;
mod unlocked_copy;

pub(crate) use registered::RegisteredAccess;
#[cfg(any(test, fuzzing))]
pub(crate) use registered::read_registered;

use crate::iovec::{RegionLocation, blocks, worthwhile};
use crate::layout::{self, REGION_BYTES, REGION_TABLE};
use crate::peers::wake;
use crate::peers::{NodePeers, PeerProcess};
use crate::sys;
use crate::transfer::{PeerMemory, copy_blocks};
use garonne_engine::api::{Error, Peer};
use garonne_engine::transport::{
    BulkStatus, BulkToken, BulkTransfer, ExposeResult, PartWritten, PollSink, RegionDescriptor,
    RendezvousMode,
};
use garonne_sync::copy_split::{ChunkPolicy, CopySplit, CorruptSplit, PeerChunk, UNITS_MAX};
use garonne_sync::progress_owner::WakeupScope;
use garonne_sync::shm::Segment;
use garonne_sync::user::Data;
use garonne_transport::iovec::{CopyDirection, IoBlock};
use garonne_transport::limits::{
    PART_MIN, READ_CHUNK, REGION_BLOCKS_MAX, REGIONS, SHARE_PART_LEAST, SHARE_PART_MAX,
    VERDICT_WAIT,
};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Set in a state word once the region is being revoked.
const CLOSED: u64 = 1 << 31;
/// The leases of a state word.
const LEASES: u64 = CLOSED - 1;

/// Word of an entry: units taken by the owner (low half) and by the peer (high half).
const TAKEN: usize = 8;
/// Word of an entry: how many units are taken at a time ([`ChunkPolicy::to_word`]).
const PART: usize = 16;
/// Bytes of a unit: a page, so that no two sides write to one.
const PART_UNIT: u64 = 4096;

/// Owner's record of a shared region.
#[derive(Clone, Copy, Debug)]
struct SharedRegion {
    /// Units that this side took.
    taken: u32,
    /// Units of a part.
    portion: ChunkPolicy,
}

/// Units of `len` bytes.
fn units(len: u64) -> u32 {
    u32::try_from(len.div_ceil(PART_UNIT)).unwrap_or(u32::MAX)
}

/// A region that this rank has exposed.
#[derive(Debug)]
struct ExposedRegion {
    token: BulkToken,
    peer: Peer,
    closing: bool,
    shared: Option<SharedRegion>,
    /// The blocks of data that is not contiguous; the descriptor carries their address.
    _blocks: Option<Box<[IoBlock]>>,
}

impl ExposedRegion {
    /// The record of a region that is open to all peers. It gets its token when it is closed.
    fn registered() -> Self {
        Self {
            token: BulkToken::MAX,
            peer: Peer::MAX,
            closing: false,
            shared: None,
            _blocks: None,
        }
    }

    fn is_registered(&self) -> bool {
        self.peer == Peer::MAX
    }
}

/// Ways in which this process can reach one peer's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferContext {
    pub(crate) can_read: bool,
    pub(crate) can_write: bool,
    pub(crate) read_chunk: u64,
}

/// A peer's memory as probed.
#[derive(Debug)]
struct PeerRegion {
    inbox: Segment,
    /// `None`: a thread of this process.
    process: Option<sys::ProcessHandle>,
    means: TransferContext,
}

impl PeerRegion {
    fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(sys::ProcessHandle::pid)
    }
}

/// Result of the check whether a peer's memory can be reached.
#[derive(Debug, Default)]
enum RemoteAccessCheck {
    /// Not tried, or the peer had not started.
    #[default]
    Open,
    Denied,
    /// Reading worked, and the system does not let this process do it any more.
    Barred,
    Works(Arc<PeerRegion>),
}

/// The regions of one rank, and its ways to those of others.
pub(crate) struct Regions {
    own: Segment,
    exposed: Vec<Option<ExposedRegion>>,
    closing: usize,
    probes: RefCell<Vec<RemoteAccessCheck>>,
    /// The block list of the last region used, which is read in several chunks as a rule.
    list: Option<PeerMemory>,
    /// Peers read it to find out whether they can. Its address and value are in the inbox.
    _probe_word: Box<AtomicU64>,
}

impl Regions {
    pub(crate) fn new(own: Segment) -> Self {
        let word = Box::new(AtomicU64::new(0));
        let addr = (&raw const *word).expose_provenance();
        let value = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), addr) | 1;
        word.store(value, Ordering::Relaxed);
        own.atomic_u64(layout::PROBE_VALUE)
            .store(value, Ordering::Relaxed);
        // Release: who sees the address sees the value. SYNC(region-probe).
        own.atomic_u64(layout::PROBE_ADDR)
            .store(addr as u64, Ordering::Release);
        Self {
            own,
            exposed: Vec::new(),
            closing: 0,
            probes: RefCell::default(),
            list: None,
            _probe_word: word,
        }
    }

    fn state(inbox: &Segment, index: usize) -> &AtomicU64 {
        inbox.atomic_u64(REGION_TABLE + index * REGION_BYTES)
    }

    /// Returns how `peer`'s memory can be reached; probes at first use.
    pub(crate) fn means(&self, node_peers: &dyn NodePeers, peer: Peer) -> TransferContext {
        self.probe(node_peers, peer);
        match self.probes.borrow().get(peer as usize) {
            Some(RemoteAccessCheck::Works(reached)) => reached.means,
            _ => TransferContext {
                can_read: false,
                can_write: false,
                read_chunk: READ_CHUNK,
            },
        }
    }

    fn probe(&self, node_peers: &dyn NodePeers, peer: Peer) {
        let mut probes = self.probes.borrow_mut();
        if probes.len() <= peer as usize {
            probes.resize_with(peer as usize + 1, RemoteAccessCheck::default);
        }
        if matches!(probes[peer as usize], RemoteAccessCheck::Open) {
            probes[peer as usize] = probe(node_peers, peer);
        }
    }

    /// Returns a free entry of the table.
    fn free_entry(&mut self) -> Option<usize> {
        match self.exposed.iter().position(Option::is_none) {
            Some(index) => Some(index),
            None if self.exposed.len() < REGIONS => {
                self.exposed.push(None);
                Some(self.exposed.len() - 1)
            }
            None => None,
        }
    }

    /// Returns the cookie of the next region in a free entry.
    fn next_cookie(&self, index: usize) -> u64 {
        let state = Self::state(&self.own, index);
        let generation = ((state.load(Ordering::Relaxed) >> 32) as u32)
            .wrapping_add(1)
            .max(1);
        index as u64 | u64::from(generation) << 32
    }

    /// Opens a free entry for leases, with the cookie that `next_cookie` returned.
    fn open_entry(&mut self, index: usize, cookie: u64, region: ExposedRegion) {
        // Release: the data is in place for whoever takes a lease. SYNC(region-open).
        Self::state(&self.own, index).store(cookie >> 32 << 32, Ordering::Release);
        self.exposed[index] = Some(region);
    }

    pub(crate) fn expose(&mut self, token: BulkToken, peer: Peer, data: &Data) -> ExposeResult {
        let Some(index) = self.free_entry() else {
            return ExposeResult::Unable;
        };
        let (whereabouts, blocks) = match &data.layout {
            None => (RegionLocation::One(data.mem.addr(0)), None),
            Some(_) => {
                let Some(blocks) = blocks(data, 0, data.len, REGION_BLOCKS_MAX)
                    .filter(|blocks| worthwhile(blocks, data.len))
                else {
                    return ExposeResult::Unable;
                };
                match blocks[..] {
                    [first, second] => (RegionLocation::Two([first, second]), None),
                    _ => {
                        let blocks = blocks.into_boxed_slice();
                        let addr = blocks.as_ptr().expose_provenance();
                        (RegionLocation::List(addr, blocks.len()), Some(blocks))
                    }
                }
            }
        };
        let cookie = self.next_cookie(index);
        let Some(descriptor) = whereabouts.descriptor(cookie) else {
            return ExposeResult::Unable;
        };
        let region = ExposedRegion {
            token,
            peer,
            closing: false,
            shared: None,
            _blocks: blocks,
        };
        self.open_entry(index, cookie, region);
        ExposeResult::Ready(descriptor)
    }

    pub(crate) fn revoke(&mut self, token: BulkToken) -> BulkStatus {
        let found = self
            .exposed
            .iter_mut()
            .enumerate()
            .find(|(_, entry)| entry.as_ref().is_some_and(|entry| entry.token == token));
        let Some((index, Some(entry))) = found else {
            return BulkStatus::Done;
        };
        // Acquire: bytes written by finished leases are ours to see. SYNC(region-lease).
        let before = Self::state(&self.own, index).fetch_or(CLOSED, Ordering::AcqRel);
        if entry.closing {
            return BulkStatus::Pending;
        }
        if before & LEASES == 0 {
            self.exposed[index] = None;
            return BulkStatus::Done;
        }
        entry.closing = true;
        self.closing += 1;
        BulkStatus::Pending
    }

    fn word(inbox: &Segment, index: usize, at: usize) -> &AtomicU64 {
        inbox.atomic_u64(REGION_TABLE + index * REGION_BYTES + at)
    }

    /// Returns how the data of a region is divided.
    fn division(inbox: &Segment, index: usize) -> CopySplit<'_> {
        CopySplit::new(Self::word(inbox, index, TAKEN))
    }

    /// Exposes data that `peer` fills part by part, or both sides do.
    pub(crate) fn share(
        &mut self,
        token: BulkToken,
        peer: Peer,
        data: &Data,
        way: RendezvousMode,
    ) -> Option<RegionDescriptor> {
        if data.len > u64::from(UNITS_MAX) * PART_UNIT {
            return None;
        }
        let ExposeResult::Ready(descriptor) = self.expose(token, peer, data) else {
            return None;
        };
        let portion = match way {
            RendezvousMode::Share | RendezvousMode::ShareLater => ChunkPolicy {
                least: units((data.len / 2).clamp(PART_MIN, SHARE_PART_LEAST)) as u16,
                most: units(SHARE_PART_MAX) as u16,
                alone: units(if way == RendezvousMode::ShareLater {
                    READ_CHUNK
                } else {
                    SHARE_PART_MAX
                }) as u16,
            },
            _ => ChunkPolicy::fixed(units(READ_CHUNK) as u16),
        };
        let index = descriptor.cookie as u32 as usize;
        let shared = SharedRegion { taken: 0, portion };
        // The peer looks at them once it was told the descriptor, by a packet.
        Self::division(&self.own, index).clear();
        Self::word(&self.own, index, PART).store(portion.to_word(), Ordering::Relaxed);
        self.exposed[index].as_mut()?.shared = Some(shared);
        Some(descriptor)
    }

    /// Takes a part of shared data, of which `len` bytes are filled, from its front for this side.
    pub(crate) fn take_part(
        &mut self,
        token: BulkToken,
        len: u64,
    ) -> Result<Option<(u64, u64)>, Error> {
        let mut entries = self.exposed.iter_mut().enumerate();
        let found = entries.find_map(|(index, entry)| {
            let entry = entry.as_mut().filter(|entry| entry.token == token)?;
            Some((index, entry.peer, entry.shared.as_mut()?))
        });
        let Some((index, peer, shared)) = found else {
            return Ok(None);
        };
        let all = units(len);
        let take = Self::division(&self.own, index)
            .take_front(shared.taken, all, shared.portion)
            .map_err(|CorruptSplit| Error::Peer {
                peer,
                what: "it took more of a shared region than there is",
            })?;
        if take == 0 {
            return Ok(None);
        }
        let from = u64::from(shared.taken) * PART_UNIT;
        shared.taken += take;
        Ok(Some((from, (u64::from(take) * PART_UNIT).min(len - from))))
    }

    /// Takes a part of a region that a peer shares from its back, and writes it.
    pub(crate) fn push(
        &mut self,
        node_peers: &dyn NodePeers,
        bulk: BulkTransfer<'_>,
    ) -> Result<PartWritten, Error> {
        let peer = bulk.peer;
        self.probe(node_peers, peer);
        let probes = self.probes.borrow();
        let reached = match probes.get(peer as usize) {
            Some(RemoteAccessCheck::Works(reached)) if reached.means.can_write => reached,
            _ => return Err(Error::Resource("its memory cannot be written from here")),
        };
        let reached = reached.clone();
        drop(probes);
        let lease = Lease::take(&reached.inbox, &bulk)?;
        let step = push_part(&reached, &lease, &bulk, &mut self.list);
        give_back(lease, node_peers, peer);
        self.hear(peer, &step);
        step.map_err(|error| hear_of_death(&reached, node_peers, peer, error))
    }

    /// Returns whether revocations wait for leases.
    #[inline(always)]
    pub(crate) fn busy(&self) -> bool {
        self.closing > 0
    }

    pub(crate) fn poll(&mut self, sink: &mut impl PollSink) -> u32 {
        let mut told = 0;
        for index in 0..self.exposed.len() {
            let Some(entry) = self.exposed[index].as_ref().filter(|entry| entry.closing) else {
                continue;
            };
            // SYNC(region-lease).
            if Self::state(&self.own, index).load(Ordering::Acquire) & LEASES == 0 {
                sink.on_revoked(entry.token);
                self.exposed[index] = None;
                self.closing -= 1;
                told += 1;
            }
        }
        told
    }

    /// The peer is dead: its leases count as returned.
    pub(crate) fn peer_gone(&mut self, peer: Peer) {
        registered::forget_leases(&self.own, &self.exposed, peer);
        for (index, entry) in self.exposed.iter().enumerate() {
            if entry.as_ref().is_some_and(|entry| entry.peer == peer) {
                let state = Self::state(&self.own, index);
                state.store(
                    state.load(Ordering::Relaxed) & !LEASES | CLOSED,
                    Ordering::Release,
                );
            }
        }
        if let Some(probe) = self.probes.borrow_mut().get_mut(peer as usize) {
            *probe = RemoteAccessCheck::Denied;
        }
    }

    /// Withdraws everything at once; for the end of the transport.
    pub(crate) fn close_all(&mut self) {
        for index in 0..self.exposed.len() {
            Self::state(&self.own, index).fetch_or(CLOSED, Ordering::AcqRel);
        }
        self.own
            .atomic_u64(layout::PROBE_ADDR)
            .store(0, Ordering::Release);
    }

    /// Moves the bytes of one bulk operation, now.
    pub(crate) fn transfer(
        &mut self,
        node_peers: &dyn NodePeers,
        bulk: BulkTransfer<'_>,
        way: CopyDirection,
    ) -> Result<BulkStatus, Error> {
        self.probe(node_peers, bulk.peer);
        let probes = self.probes.borrow();
        let reached = match probes.get(bulk.peer as usize) {
            Some(RemoteAccessCheck::Works(reached)) => reached,
            Some(RemoteAccessCheck::Barred) => {
                return Err(Error::Resource("the system bars a peer's memory"));
            }
            _ => {
                return Err(Error::Peer {
                    peer: bulk.peer,
                    what: "its memory cannot be reached from here",
                });
            }
        };
        let reached = reached.clone();
        drop(probes);
        let lease = Lease::take(&reached.inbox, &bulk)?;
        let result = copy_blocks(reached.pid(), &bulk, way, &mut self.list);
        let checked = result.and_then(|()| lease.check(&reached, bulk.peer));
        give_back(lease, node_peers, bulk.peer);
        self.hear(bulk.peer, &checked);
        checked
            .map(|()| BulkStatus::Done)
            .map_err(|error| hear_of_death(&reached, node_peers, bulk.peer, error))
    }

    /// Where the system does not let this process into a peer's memory any more (capabilities were
    /// dropped, a filter came), nobody tries again: packets go on.
    fn hear<T>(&self, peer: Peer, result: &Result<T, Error>) {
        let Err(Error::System { errno, .. }) = result else {
            return;
        };
        if *errno != libc::EFAULT
            && let Some(probe) = self.probes.borrow_mut().get_mut(peer as usize)
        {
            *probe = RemoteAccessCheck::Barred;
        }
    }
}

/// Takes units from the back of a shared region of `all` units. `None`: none is left, or its owner
/// withdrew it.
fn take_back(inbox: &Segment, index: usize, all: u32) -> Option<PeerChunk> {
    let part = Regions::word(inbox, index, PART).load(Ordering::Relaxed);
    let portion = ChunkPolicy::from_word(part, (READ_CHUNK / PART_UNIT) as u16);
    Regions::division(inbox, index).take_back(all, portion)
}

/// Takes a part from the back of a leased region for `bulk`, which holds all of it: offset, length,
/// and whether nothing is left then.
fn take_part_back(reached: &PeerRegion, bulk: &BulkTransfer<'_>) -> Option<(u64, u64, bool)> {
    let (all, index) = (units(bulk.len), bulk.descriptor.cookie as u32 as usize);
    let PeerChunk { first, count, last } = take_back(&reached.inbox, index, all)?;
    let from = u64::from(first) * PART_UNIT;
    Some((
        from,
        (u64::from(count) * PART_UNIT).min(bulk.len - from),
        last,
    ))
}

/// Takes a part from the back of a leased region and writes it.
fn push_part(
    reached: &PeerRegion,
    lease: &Lease<'_>,
    bulk: &BulkTransfer<'_>,
    list: &mut Option<PeerMemory>,
) -> Result<PartWritten, Error> {
    let Some((from, len, last)) = take_part_back(reached, bulk) else {
        return Ok(PartWritten {
            bytes: 0,
            last: true,
        });
    };
    let part = BulkTransfer {
        offset: from,
        local_offset: from,
        len,
        ..*bulk
    };
    copy_blocks(reached.pid(), &part, CopyDirection::Write, list)?;
    lease.check(reached, bulk.peer)?;
    Ok(PartWritten {
        bytes: part.len,
        last,
    })
}

/// Memory that cannot be moved any more belongs to a process that dies, as a rule, and whoever
/// watches it is about to say so: let that be heard first, so that a job ends with the death and
/// not with what followed from it. The one place where a transport waits, for [`VERDICT_WAIT`] at
/// most.
#[cold]
fn hear_of_death(
    reached: &PeerRegion,
    node_peers: &dyn NodePeers,
    peer: Peer,
    error: Error,
) -> Error {
    if reached.process.is_some() && matches!(error, Error::Peer { .. } | Error::PeerMemory { .. }) {
        let until = Instant::now() + VERDICT_WAIT;
        while !node_peers.is_gone(peer) && Instant::now() < until {
            std::thread::sleep(VERDICT_WAIT / 100);
        }
        if node_peers.is_gone(peer) {
            let what = "died while its memory was used";
            return Error::Peer { peer, what };
        }
    }
    error
}

/// Gives a lease back, and wakes an owner that waits for it.
fn give_back(lease: Lease<'_>, node_peers: &dyn NodePeers, peer: Peer) {
    if lease.give_back() {
        wake(node_peers, peer, WakeupScope::Everything);
    }
}

/// A lease on a peer's region.
struct Lease<'a> {
    state: &'a AtomicU64,
    generation: u64,
}

impl<'a> Lease<'a> {
    fn take(inbox: &'a Segment, bulk: &BulkTransfer<'_>) -> Result<Self, Error> {
        let (index, generation) = (
            (bulk.descriptor.cookie as u32) as usize,
            bulk.descriptor.cookie >> 32,
        );
        // An entry that was never used says generation 0, and that it is open.
        if index >= REGIONS || generation == 0 {
            return Err(Error::Peer {
                peer: bulk.peer,
                what: "its descriptor names no region",
            });
        }
        let state = Regions::state(inbox, index);
        let mut word = state.load(Ordering::Relaxed);
        loop {
            if word >> 32 != generation || word & CLOSED != 0 {
                return Err(Error::Peer {
                    peer: bulk.peer,
                    what: "the region was revoked",
                });
            }
            if word & LEASES == LEASES {
                return Err(Error::Resource("too many leases on a region"));
            }
            // Acquire: the data as the owner left it when it opened the region. SYNC(region-open).
            match state.compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Ok(Self { state, generation }),
                Err(now) => word = now,
            }
        }
    }

    /// After the bytes moved: whether they were the owner's to give, from a process that was the
    /// owner. Where the number of a process stays its own even after its death, bytes that moved at
    /// all moved from or to it.
    fn check(&self, reached: &PeerRegion, peer: Peer) -> Result<(), Error> {
        if self.state.load(Ordering::Acquire) >> 32 != self.generation {
            return Err(Error::Peer {
                peer,
                what: "the region changed hands while it was read",
            });
        }
        if !reached.means.can_write
            && reached
                .process
                .as_ref()
                .is_some_and(|process| !process.is_alive())
        {
            return Err(Error::Peer {
                peer,
                what: "died while its memory was read",
            });
        }
        Ok(())
    }

    /// `true`: the owner waits for this.
    fn give_back(self) -> bool {
        // Release: our accesses are done before the owner counts the lease as gone.
        // SYNC(region-lease).
        let before = self.state.fetch_sub(1, Ordering::Release);
        before & CLOSED != 0 && before & LEASES == 1
    }
}

/// Finds out whether and how `peer`'s memory can be reached, by reading a word whose value the peer
/// told.
fn probe(node_peers: &dyn NodePeers, peer: Peer) -> RemoteAccessCheck {
    let inbox = match node_peers.process(peer) {
        PeerProcess::Unreachable => return RemoteAccessCheck::Open,
        _ => match node_peers.map_inbox(peer) {
            Ok(inbox) if inbox.len() >= REGION_TABLE + REGIONS * REGION_BYTES => inbox,
            _ => return RemoteAccessCheck::Denied,
        },
    };
    // SYNC(region-probe).
    let addr = inbox.atomic_u64(layout::PROBE_ADDR).load(Ordering::Acquire) as usize;
    if addr == 0 {
        return RemoteAccessCheck::Open;
    }
    let (process, can_write) = match node_peers.process(peer) {
        PeerProcess::Same => (None, true),
        PeerProcess::Other { pid, kept } => {
            // The descriptor comes first: if the process lives after a read, the number meant it
            // during the read.
            let Ok(process) = sys::ProcessHandle::new(pid) else {
                return RemoteAccessCheck::Denied;
            };
            let expected = inbox
                .atomic_u64(layout::PROBE_VALUE)
                .load(Ordering::Relaxed);
            if sys::read_word(pid, addr).ok() != Some(expected) {
                return RemoteAccessCheck::Denied;
            }
            (Some(process), kept)
        }
        PeerProcess::Unreachable => return RemoteAccessCheck::Open,
    };
    let means = TransferContext {
        can_read: true,
        can_write,
        read_chunk: READ_CHUNK,
    };
    RemoteAccessCheck::Works(Arc::new(PeerRegion {
        inbox,
        process,
        means,
    }))
}
