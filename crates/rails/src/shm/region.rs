//! Regions: memory that a peer may read or write by descriptor until it is revoked.
//!
//! The owner keeps a table in its inbox; an entry's state word holds generation, a closed bit and the number of leases.
//! A user takes a lease, moves bytes (by `process_vm_readv`/`writev`, or plainly within one process), checks that
//! the owner lives and the generation stands, and only then counts them. Revoking closes the entry; the memory is the
//! owner's again when no lease is left or their holder is dead. Protects against error, not malice: one user's processes
//! can read each other anyway. Bounded by the table, and by the blocks a list may have.

use crate::limits::{READ_CHUNK, REGION_BLOCK_MIN, REGION_BLOCKS_MAX, REGIONS};
use crate::shm::layout::{self, REGION_BYTES, REGION_TABLE};
use crate::shm::peers::{Neighbours, Process};
use crate::sys::{self, BLOCKS_PER_CALL, Block, Way};
use garonne_engine::api::{Error, Peer};
use garonne_engine::rail::{Bulk, Descriptor, Ending, Exposing, Sink, Token};
use garonne_sync::doorbell::Doorbell;
use garonne_sync::shm::Segment;
use garonne_sync::user::Data;
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Set in a state word once the region is being revoked.
const CLOSED: u64 = 1 << 31;
/// The leases of a state word.
const LEASES: u64 = CLOSED - 1;

/// A region that this rank has exposed.
#[derive(Debug)]
struct Exposed {
    token: Token,
    peer: Peer,
    closing: bool,
    /// The blocks of data that is not contiguous; the descriptor carries their address.
    _blocks: Option<Box<[Block]>>,
}

/// What can be done to one peer's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Means {
    pub(crate) can_read: bool,
    pub(crate) can_write: bool,
    pub(crate) read_chunk: u64,
}

/// A peer's memory as probed.
#[derive(Debug)]
struct Reached {
    inbox: Segment,
    /// `None`: a thread of this process.
    process: Option<(u32, OwnedFd)>,
    means: Means,
}

/// What is known of a peer's memory.
#[derive(Debug, Default)]
enum Probe {
    /// Not tried, or the peer had not started.
    #[default]
    Open,
    Denied,
    Works(Box<Reached>),
}

/// The regions of one rank, and its ways to those of others.
pub(crate) struct Regions {
    own: Segment,
    exposed: Vec<Option<Exposed>>,
    closing: usize,
    probes: RefCell<Vec<Probe>>,
    /// The block list of the last region used, which is read in several chunks as a rule.
    list: Option<(Peer, u64, Vec<Block>)>,
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

    /// What can be done to `peer`'s memory; probes at first use.
    pub(crate) fn means(&self, neighbours: &dyn Neighbours, peer: Peer) -> Means {
        self.probe(neighbours, peer);
        match self.probes.borrow().get(peer as usize) {
            Some(Probe::Works(reached)) => reached.means,
            _ => Means {
                can_read: false,
                can_write: false,
                read_chunk: READ_CHUNK,
            },
        }
    }

    fn probe(&self, neighbours: &dyn Neighbours, peer: Peer) {
        let mut probes = self.probes.borrow_mut();
        if probes.len() <= peer as usize {
            probes.resize_with(peer as usize + 1, Probe::default);
        }
        if matches!(probes[peer as usize], Probe::Open) {
            probes[peer as usize] = probe(neighbours, peer);
        }
    }

    pub(crate) fn expose(&mut self, token: Token, peer: Peer, data: &Data) -> Exposing {
        let index = match self.exposed.iter().position(Option::is_none) {
            Some(index) => index,
            None if self.exposed.len() < REGIONS => {
                self.exposed.push(None);
                self.exposed.len() - 1
            }
            None => return Exposing::Unable,
        };
        let mut blob = [0; 16];
        let blocks = match &data.layout {
            None => {
                blob[..8].copy_from_slice(&(data.mem.addr(0) as u64).to_le_bytes());
                None
            }
            Some(_) => {
                let Some(blocks) = blocks(data, 0, data.len, REGION_BLOCKS_MAX)
                    .filter(|blocks| worthwhile(blocks, data.len))
                else {
                    return Exposing::Unable;
                };
                let blocks = blocks.into_boxed_slice();
                blob[..8].copy_from_slice(&(blocks.as_ptr().expose_provenance() as u64).to_le_bytes());
                blob[8..].copy_from_slice(&(blocks.len() as u64).to_le_bytes());
                Some(blocks)
            }
        };
        let state = Self::state(&self.own, index);
        let generation = ((state.load(Ordering::Relaxed) >> 32) as u32)
            .wrapping_add(1)
            .max(1);
        let cookie = index as u64 | u64::from(generation) << 32;
        let Some(descriptor) = Descriptor::new(cookie, &blob) else {
            return Exposing::Unable;
        };
        // Release: the data is in place for whoever takes a lease. SYNC(region-open).
        state.store(u64::from(generation) << 32, Ordering::Release);
        self.exposed[index] = Some(Exposed {
            token,
            peer,
            closing: false,
            _blocks: blocks,
        });
        Exposing::Ready(descriptor)
    }

    pub(crate) fn revoke(&mut self, token: Token) -> Ending {
        let found = self
            .exposed
            .iter_mut()
            .enumerate()
            .find(|(_, entry)| entry.as_ref().is_some_and(|entry| entry.token == token));
        let Some((index, Some(entry))) = found else {
            return Ending::Now;
        };
        // Acquire: bytes written by finished leases are ours to see. SYNC(region-lease).
        let before = Self::state(&self.own, index).fetch_or(CLOSED, Ordering::AcqRel);
        if before & LEASES == 0 {
            self.exposed[index] = None;
            return Ending::Now;
        }
        entry.closing = true;
        self.closing += 1;
        Ending::Later
    }

    /// Whether revocations wait for leases.
    #[inline(always)]
    pub(crate) fn busy(&self) -> bool {
        self.closing > 0
    }

    pub(crate) fn poll(&mut self, sink: &mut impl Sink) -> u32 {
        let mut told = 0;
        for index in 0..self.exposed.len() {
            let Some(entry) = self.exposed[index].as_ref().filter(|entry| entry.closing) else {
                continue;
            };
            // SYNC(region-lease).
            if Self::state(&self.own, index).load(Ordering::Acquire) & LEASES == 0 {
                sink.revoked(entry.token);
                self.exposed[index] = None;
                self.closing -= 1;
                told += 1;
            }
        }
        told
    }

    /// The peer is dead: its leases count as returned.
    pub(crate) fn peer_gone(&mut self, peer: Peer) {
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
            *probe = Probe::Denied;
        }
    }

    /// Withdraws everything at once; for the end of the rail.
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
        neighbours: &dyn Neighbours,
        bulk: Bulk<'_>,
        way: Way,
    ) -> Result<Ending, Error> {
        self.probe(neighbours, bulk.peer);
        let probes = self.probes.borrow();
        let Some(Probe::Works(reached)) = probes.get(bulk.peer as usize) else {
            return Err(Error::Peer {
                peer: bulk.peer,
                what: "its memory cannot be reached from here",
            });
        };
        let lease = Lease::take(&reached.inbox, &bulk)?;
        let result = copy_blocks(reached, &bulk, way, &mut self.list);
        let checked = result.and_then(|()| lease.check(reached, bulk.peer));
        if lease.give_back()
            && let Some(bell) = neighbours.doorbell(bulk.peer)
        {
            Doorbell::new(bell.atomic_u32(0)).ring_fenced();
        }
        checked.map(|()| Ending::Now)
    }
}

/// A lease on a peer's region.
struct Lease<'a> {
    state: &'a AtomicU64,
    generation: u64,
}

impl<'a> Lease<'a> {
    fn take(inbox: &'a Segment, bulk: &Bulk<'_>) -> Result<Self, Error> {
        let (index, generation) = (
            (bulk.descriptor.cookie as u32) as usize,
            bulk.descriptor.cookie >> 32,
        );
        if index >= REGIONS {
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
            match state.compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(Self { state, generation }),
                Err(now) => word = now,
            }
        }
    }

    /// After the bytes moved: whether they were the owner's to give, from a process that was the owner. Where the number of
    /// a process stays its own even after its death, bytes that moved at all moved from or to it.
    fn check(&self, reached: &Reached, peer: Peer) -> Result<(), Error> {
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
                .is_some_and(|(_, pidfd)| !sys::is_alive(pidfd))
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
        // Release: our accesses are done before the owner counts the lease as gone. SYNC(region-lease).
        let before = self.state.fetch_sub(1, Ordering::Release);
        before & CLOSED != 0 && before & LEASES == 1
    }
}

/// Finds out whether and how `peer`'s memory can be reached, by reading a word whose value the peer told.
fn probe(neighbours: &dyn Neighbours, peer: Peer) -> Probe {
    let inbox = match neighbours.process(peer) {
        Process::Unreachable => return Probe::Open,
        _ => match neighbours.map_inbox(peer) {
            Ok(inbox) if inbox.len() >= REGION_TABLE + REGIONS * REGION_BYTES => inbox,
            _ => return Probe::Denied,
        },
    };
    // SYNC(region-probe).
    let addr = inbox.atomic_u64(layout::PROBE_ADDR).load(Ordering::Acquire) as usize;
    if addr == 0 {
        return Probe::Open;
    }
    let (process, can_write) = match neighbours.process(peer) {
        Process::Same => (None, true),
        Process::Other { pid, kept } => {
            // The descriptor comes first: if the process lives after a read, the number meant it during the read.
            let Ok(pidfd) = sys::pidfd(pid) else {
                return Probe::Denied;
            };
            let expected = inbox.atomic_u64(layout::PROBE_VALUE).load(Ordering::Relaxed);
            if sys::read_word(pid, addr).ok() != Some(expected) {
                return Probe::Denied;
            }
            (Some((pid, pidfd)), kept)
        }
        Process::Unreachable => return Probe::Open,
    };
    let means = Means {
        can_read: true,
        can_write,
        read_chunk: READ_CHUNK,
    };
    Probe::Works(Box::new(Reached {
        inbox,
        process,
        means,
    }))
}

/// The blocks of `[from, from + len)` of data, if they are at most `max`.
fn blocks(data: &Data, from: u64, len: u64, max: usize) -> Option<Vec<Block>> {
    match &data.layout {
        None => Some(vec![Block {
            addr: data.mem.addr(from as isize),
            len: len as usize,
        }]),
        Some(layout) => {
            let mut offsets = Vec::new();
            let covered = layout.blocks(from, len, max, &mut offsets);
            let block = |&(offset, len): &(isize, usize)| Block {
                addr: data.mem.addr(offset),
                len,
            };
            (covered == len && offsets.len() <= max).then(|| offsets.iter().map(block).collect())
        }
    }
}

fn worthwhile(blocks: &[Block], len: u64) -> bool {
    len / blocks.len().max(1) as u64 >= REGION_BLOCK_MIN
}

/// A walk over blocks that remembers where it is.
struct Walk<'a> {
    blocks: &'a [Block],
    index: usize,
    within: usize,
}

impl<'a> Walk<'a> {
    fn new(blocks: &'a [Block], skip: u64) -> Self {
        let mut walk = Self {
            blocks,
            index: 0,
            within: 0,
        };
        walk.advance(skip);
        walk
    }

    fn advance(&mut self, mut len: u64) {
        while let Some(block) = self.blocks.get(self.index) {
            let rest = (block.len - self.within) as u64;
            if len < rest {
                self.within += len as usize;
                return;
            }
            len -= rest;
            self.index += 1;
            self.within = 0;
        }
    }

    /// Up to a call's worth of blocks from here, of at most `len` bytes. Returns their bytes.
    fn gather(&self, mut len: u64, out: &mut Vec<Block>) -> u64 {
        out.clear();
        let asked = len;
        for (i, block) in self.blocks[self.index..].iter().take(BLOCKS_PER_CALL).enumerate() {
            let skip = if i == 0 { self.within } else { 0 };
            let take = ((block.len - skip) as u64).min(len);
            if take > 0 {
                out.push(Block {
                    addr: block.addr.wrapping_add(skip),
                    len: take as usize,
                });
            }
            len -= take;
            if len == 0 {
                break;
            }
        }
        asked - len
    }
}

fn copy_blocks(
    reached: &Reached,
    bulk: &Bulk<'_>,
    way: Way,
    list: &mut Option<(Peer, u64, Vec<Block>)>,
) -> Result<(), Error> {
    let damaged = Error::Peer {
        peer: bulk.peer,
        what: "its descriptor does not describe the region",
    };
    let blob: [u8; 16] = bulk.descriptor.blob().try_into().map_err(|_| damaged.clone())?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| blob[at + i]));
    let (addr, count) = (word(0) as usize, word(8) as usize);
    let single = [Block {
        addr: addr.wrapping_add(bulk.offset as usize),
        len: bulk.len as usize,
    }];
    let mut remote = if count == 0 {
        Walk::new(&single, 0)
    } else {
        if count > REGION_BLOCKS_MAX {
            return Err(damaged);
        }
        let known = list
            .as_ref()
            .is_some_and(|(peer, cookie, _)| (*peer, *cookie) == (bulk.peer, bulk.descriptor.cookie));
        if !known {
            let mut blocks = vec![Block::default(); count];
            match &reached.process {
                None => sys::own_blocks(addr, &mut blocks),
                Some((pid, _)) => {
                    sys::read_blocks(*pid, addr, &mut blocks).map_err(|error| refused(bulk.peer, &error))?
                }
            }
            *list = Some((bulk.peer, bulk.descriptor.cookie, blocks));
        }
        match list {
            Some((_, _, blocks)) => Walk::new(blocks, bulk.offset),
            None => return Err(damaged),
        }
    };
    let local_blocks = blocks(bulk.local, bulk.local_offset, bulk.len, usize::MAX).ok_or(damaged.clone())?;
    let mut local = Walk::new(&local_blocks, 0);
    let (mut here, mut there) = (Vec::new(), Vec::new());
    let mut left = bulk.len;
    while left > 0 {
        let room = local.gather(left, &mut here);
        let ready = remote.gather(room, &mut there);
        if ready == 0 {
            return Err(damaged);
        }
        if ready < room {
            local.gather(ready, &mut here);
        }
        let moved = match &reached.process {
            None => within(&here, &there, way),
            Some((pid, _)) => sys::move_between(*pid, way, &here, &there)
                .map_err(|error| refused(bulk.peer, &error))? as u64,
        };
        if moved == 0 {
            return Err(damaged);
        }
        local.advance(moved);
        remote.advance(moved);
        left = left.saturating_sub(moved);
    }
    Ok(())
}

fn refused(peer: Peer, error: &std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ESRCH) => Error::Peer {
            peer,
            what: "died before its memory was read",
        },
        Some(libc::EFAULT) => Error::Peer {
            peer,
            what: "exposed memory that is not mapped (a buffer was freed, or lies on a device)",
        },
        errno => Error::System {
            what: "moving data between processes",
            errno: errno.unwrap_or(0),
        },
    }
}

/// Copies between blocks of this process. Both lists hold the same number of bytes.
fn within(here: &[Block], there: &[Block], way: Way) -> u64 {
    let (mut local, mut remote) = (Walk::new(here, 0), Walk::new(there, 0));
    let mut moved = 0;
    while let (Some(a), Some(b)) = (local.blocks.get(local.index), remote.blocks.get(remote.index)) {
        let (at, from) = (a.addr + local.within, b.addr + remote.within);
        let len = (a.len - local.within).min(b.len - remote.within);
        match way {
            Way::Read => sys::copy_within(from, at, len),
            Way::Write => sys::copy_within(at, from, len),
        }
        local.advance(len as u64);
        remote.advance(len as u64);
        moved += len as u64;
    }
    moved
}
