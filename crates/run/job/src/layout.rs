//! The shared memory of a world: one sealed memory file with a header, cards per rank, an area for
//! collectives and an inbox per rank and shard.
//!
//! Owns the byte layout (docs/reference/job.md, clauses B1 to B10, says the same in words) and the
//! views that read and write it. The agent makes the file and fills in the header; each rank writes
//! only its own card, the areas that the transports give it, and the doorbells of others.
//! Everything is zero at first, and zero is a valid state of every field, so a rank may write to a
//! peer that has not started. Sizes in the header are checked before anything is mapped.

mod active_strategy;
mod async_progress;
pub mod last_calls;
pub mod rank_endpoint;
mod shard_block;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

use garonne_engine::api::SHARDS_MAX;
use garonne_sync::shm::Segment;
use garonne_sync::trace_ring;

use crate::codes;
use crate::error::{Error, Result};
use crate::limits;
pub use active_strategy::ActiveStrategy;
pub use async_progress::AsyncProgressState;
pub use rank_endpoint::RankEndpoint;
pub use shard_block::{SentTotals, ShardBlock, counters, tally};

/// First eight bytes of the file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"GARONNEb");
/// Version of this layout, of the inboxes in it, and of what ranks put into each other's commons. A
/// library accepts exactly this one.
pub const FORMAT: u32 = 13;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 4096;
/// Bytes of a card: four cache lines (identity, doorbell, two for what the rank waits for).
pub const RANK_BLOCK_LEN: usize = 256;
/// Alignment of the card table's end, the collective area and each inbox.
pub const PART_ALIGN: u64 = 4096;

mod header {
    pub const MAGIC: usize = 0;
    pub const FORMAT: usize = 8;
    pub const SIZE: usize = 12;
    pub const JOB_LOW: usize = 16;
    pub const JOB_HIGH: usize = 24;
    pub const EPOCH: usize = 32;
    pub const CPUS_MILLI: usize = 36;
    pub const RAILS: usize = 40;
    pub const SHARDS: usize = 44;
    pub const COLL_OFFSET: usize = 48;
    pub const COLL_BYTES: usize = 56;
    pub const INBOX_OFFSET: usize = 64;
    pub const INBOX_BYTES: usize = 72;
    pub const ENDING: usize = 80;
    pub const BOUND: usize = 84;
    pub const TRACE_WORD: usize = 88;
    pub const FAULTS: usize = 92;
    pub const TRACE_UNTIL: usize = 96;
    pub const TRACE_OFFSET: usize = 104;
    pub const NODES: usize = 112;
    pub const NODE: usize = 116;
    pub const HOSTS_BYTES: usize = 120;
    pub const DRAINED: usize = 128;
    pub const WAYS: usize = 512;
    pub const ADDED: usize = 2560;
}

mod card {
    pub const PID: usize = 0;
    pub const INCARNATION: usize = 4;
    pub const STATE: usize = 8;
    pub const FLAGS: usize = 12;
    pub const CPU: usize = 16;
    pub const PID_SPACE: usize = 24;
    pub const STARTED_NS: usize = 32;
    pub const CRASH: usize = 44;
    pub const LINKS: usize = 48;
    pub const ANSWERS: usize = 56;
    pub const DOORBELL: usize = 64;
    pub const SLEEPERS: usize = 68;
    pub const HANDS: usize = 72;
    pub const DECISIONS: usize = 80;
    pub const ETHERNET: usize = 88;
    pub const WAIT_SEQ: usize = 128;
    pub const WAIT_CALL: usize = 132;
    pub const WAIT_PEER: usize = 136;
    pub const WAIT_TAG: usize = 140;
    pub const WAIT_COMM: usize = 144;
    pub const WAIT_BYTES: usize = 152;
    pub const WAIT_SINCE_NS: usize = 160;
    pub const WAIT_SITE: usize = 176;
    pub const SENT_MESSAGES: usize = 192;
    pub const EVENTS: usize = 216;
    pub const TUNERS: usize = 224;
    pub const BOOK: usize = 232;
    // Not beside the doorbell, at which peers look with each message.
    pub const HELPER: usize = 240;
    pub const HELPER_TURNS: usize = 244;
    pub const COUNTERS: usize = 248;
}

/// Offset in the board of the word that is not zero while somebody may be tracing the ranks. The
/// word has a cache line with nothing that changes otherwise.
pub const TRACE_WORD: usize = header::TRACE_WORD;
/// Offset in the board of the word that holds which transports the first rank uses
/// (`rank::bulk_transports`).
pub const RAILS: usize = header::RAILS;
/// Offset in the board of the table of disabled networks.
pub const DRAINED: usize = header::DRAINED;
/// Offset in the board of the table of relay routes (`relay_routes`).
pub const WAYS: usize = header::WAYS;
/// Offset in the board of the table of new addresses (`new_networks`).
pub const ADDED: usize = header::ADDED;
/// Bytes of what a rank says of its objects, in front of its journal: a length, and text.
pub const NOTES_BYTES: usize = 64 * 1024;
/// The journal of a rank.
pub const TRACE_RING: trace_ring::TraceRingLayout =
    trace_ring::TraceRingLayout::new(garonne_trace::limits::RECORDS);
/// Bytes of both.
pub const TRACE_BYTES: u64 = (NOTES_BYTES + TRACE_RING.bytes()) as u64;

/// Until when that word counts, CLOCK_MONOTONIC in nanoseconds.
pub fn trace_until(board: &Segment) -> &AtomicU64 {
    board.atomic_u64(header::TRACE_UNTIL)
}

/// Returns the offset of the doorbell word of `rank` in the board.
pub fn doorbell_offset(rank: u32) -> usize {
    HEADER_BYTES + rank as usize * RANK_BLOCK_LEN + card::DOORBELL
}

/// Returns the offset of the two words that call the progress thread of `rank`
/// (`garonne_sync::progress_owner`).
pub fn hands_offset(rank: u32) -> usize {
    HEADER_BYTES + rank as usize * RANK_BLOCK_LEN + card::HANDS
}

/// Identity of a job: random, the same on all its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JobId(pub u128);

impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", (self.0 >> 64) as u64 ^ self.0 as u64)
    }
}

/// Sizes and offsets of a world's memory, which the agent decides before the first rank joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorldShape {
    /// The job.
    pub job: JobId,
    /// Number of the world in its job: 0, or more when a script runs MPI programs one after the
    /// other.
    pub epoch: u32,
    /// Number of ranks.
    pub size: u32,
    /// Bytes of the collective area.
    pub coll_bytes: u64,
    /// Bytes of each inbox.
    pub inbox_bytes: u64,
    /// Shards that each rank may have, at least 1: as many inboxes.
    pub shards: u32,
    /// Processor time that the ranks may use together, in thousandths of a core (allowed CPUs,
    /// cgroup quota).
    pub cpus_milli: u32,
    /// Whether each rank is bound to its own core.
    pub bound: bool,
    /// Nodes of the job, at least 1. Each has a memory of its own with offsets for all ranks. It
    /// touches the parts of its own ranks, and the table of all ([`rank_endpoint`]).
    pub nodes: u32,
    /// Node of this memory.
    pub node: u32,
    /// Bytes of the table of hosts (`host_table`); 0 where there is one.
    pub hosts_bytes: u64,
}

impl WorldShape {
    fn aligned(bytes: u64) -> u64 {
        bytes.next_multiple_of(PART_ALIGN)
    }

    /// Offset of the collective area: after header, cards, the places of calls entered and the
    /// table of ranks.
    pub fn coll_offset(&self) -> u64 {
        Self::aligned(rank_endpoint::offset(self, self.size))
    }

    /// Offset of the inbox of `rank` in its first shard.
    pub fn inbox_offset(&self, rank: u32) -> u64 {
        self.shard_inbox_offset(0, rank)
    }

    /// Offset of the inbox of `rank` in a shard: after those of all ranks in the shards before it.
    pub fn shard_inbox_offset(&self, shard: u32, rank: u32) -> u64 {
        let before = u64::from(shard) * u64::from(self.size) + u64::from(rank);
        self.coll_offset()
            + Self::aligned(self.coll_bytes)
            + before * Self::aligned(self.inbox_bytes)
    }

    /// Offset of what `rank` records while it is traced: after all inboxes.
    pub fn trace_offset(&self, rank: u32) -> u64 {
        self.shard_inbox_offset(self.shards, 0) + u64::from(rank) * Self::aligned(TRACE_BYTES)
    }

    /// Offset of the table of hosts: after all that ranks record.
    pub fn hosts_offset(&self) -> u64 {
        self.trace_offset(self.size)
    }

    /// Bytes of the whole file.
    pub fn total(&self) -> u64 {
        self.hosts_offset() + Self::aligned(self.hosts_bytes)
    }

    fn check(&self) -> Result<()> {
        let sane = self.node < self.nodes
            && self.nodes as usize <= limits::HOSTS_MAX
            && (1..=limits::RANKS_MAX).contains(&self.size)
            && (1..=SHARDS_MAX as u32).contains(&self.shards)
            && self.coll_bytes <= limits::PART_BYTES_MAX
            && self.hosts_bytes <= limits::PART_BYTES_MAX
            && (1..=limits::PART_BYTES_MAX).contains(&self.inbox_bytes);
        if sane {
            Ok(())
        } else {
            Err(Error::peer(
                codes::G0301,
                "the header of the world's shared memory is damaged",
            ))
        }
    }

    /// Writes the header of a new world. `board` covers at least the header.
    pub fn publish(&self, board: &Segment) -> Result<()> {
        self.check()?;
        let word = |offset, value| board.atomic_u32(offset).store(value, Relaxed);
        let long = |offset, value| board.atomic_u64(offset).store(value, Relaxed);
        word(header::SIZE, self.size);
        long(header::JOB_LOW, self.job.0 as u64);
        long(header::JOB_HIGH, (self.job.0 >> 64) as u64);
        word(header::EPOCH, self.epoch);
        word(header::SHARDS, self.shards);
        word(header::CPUS_MILLI, self.cpus_milli);
        word(header::BOUND, self.bound.into());
        word(header::NODES, self.nodes);
        word(header::NODE, self.node);
        long(header::HOSTS_BYTES, self.hosts_bytes);
        long(header::COLL_OFFSET, self.coll_offset());
        long(header::COLL_BYTES, self.coll_bytes);
        long(header::INBOX_OFFSET, self.inbox_offset(0));
        long(header::INBOX_BYTES, self.inbox_bytes);
        long(header::TRACE_OFFSET, self.trace_offset(0));
        word(header::FORMAT, FORMAT);
        // SYNC(board-header): readers check the magic first (Acquire in `read`), then see the rest.
        board.atomic_u64(header::MAGIC).store(MAGIC, Release);
        Ok(())
    }

    /// Reads and checks the header; `file_len` is the size of the file that it lies in.
    pub fn read(board: &Segment, file_len: u64) -> Result<Self> {
        // SYNC(board-header)
        if board.len() < HEADER_BYTES || board.atomic_u64(header::MAGIC).load(Acquire) != MAGIC {
            return Err(Error::peer(
                codes::G0301,
                "the shared memory handed over is not a world of Garonne's",
            ));
        }
        let word = |offset| board.atomic_u32(offset).load(Relaxed);
        let long = |offset| board.atomic_u64(offset).load(Relaxed);
        let format = word(header::FORMAT);
        if format != FORMAT {
            let text = format!(
                "the agent's shared memory has format {format}, this library knows format {FORMAT}"
            );
            return Err(Error::peer(codes::G0203, text));
        }
        let shape = Self {
            job: JobId(
                u128::from(long(header::JOB_LOW)) | u128::from(long(header::JOB_HIGH)) << 64,
            ),
            epoch: word(header::EPOCH),
            size: word(header::SIZE),
            coll_bytes: long(header::COLL_BYTES),
            inbox_bytes: long(header::INBOX_BYTES),
            shards: word(header::SHARDS),
            cpus_milli: word(header::CPUS_MILLI),
            bound: word(header::BOUND) != 0,
            nodes: word(header::NODES),
            node: word(header::NODE),
            hosts_bytes: long(header::HOSTS_BYTES),
        };
        shape.check()?;
        let agrees = shape.total() <= file_len
            && long(header::COLL_OFFSET) == shape.coll_offset()
            && long(header::INBOX_OFFSET) == shape.inbox_offset(0)
            && long(header::TRACE_OFFSET) == shape.trace_offset(0);
        if !agrees {
            return Err(Error::peer(
                codes::G0301,
                "the header of the world's shared memory contradicts its size",
            ));
        }
        Ok(shape)
    }
}

/// State of a rank, as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankState {
    /// Not registered yet.
    Absent,
    /// Between MPI_Init and MPI_Finalize.
    Running,
    /// After MPI_Finalize.
    Finalized,
    /// The rank's process is gone.
    Gone,
}

impl RankState {
    /// Returns the number that stands for it.
    pub fn code(self) -> u32 {
        match self {
            RankState::Absent => 0,
            RankState::Running => 1,
            RankState::Finalized => 2,
            RankState::Gone => 3,
        }
    }

    /// Returns what a number stands for.
    pub fn from_code(code: u32) -> Self {
        match code {
            0 => RankState::Absent,
            1 => RankState::Running,
            2 => RankState::Finalized,
            _ => RankState::Gone,
        }
    }
}

/// The call in which a rank waits. Numbers that mean nothing for a call are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitInfo {
    /// Number of the MPI call (index in the table of the ABI's functions), 0: waits for nothing.
    pub call: u32,
    /// Rank of the peer in the communicator (or -1: any source, or all members of a collective; or
    /// [`LAGGARDS`]).
    pub peer: i32,
    /// Tag (or -2: any tag).
    pub tag: i32,
    /// Context of the messages: the communicator's, or that of its collectives, whose tags name
    /// kind and number.
    pub comm: u64,
    /// Bytes of the operation.
    pub bytes: u64,
    /// When the wait began, CLOCK_MONOTONIC in nanoseconds.
    pub since_ns: u64,
    /// Return address of the MPI call in the program.
    pub site: u64,
}

/// Peer of a collective: all members that are several collectives behind.
pub const LAGGARDS: i32 = -2;

/// A rank's card on the board.
#[derive(Clone, Debug)]
pub struct RankBlock {
    at: Segment,
}

impl RankBlock {
    /// The card of `rank` on a board that covers header and cards.
    pub fn of(board: &Segment, rank: u32) -> Self {
        Self {
            at: board.part(
                HEADER_BYTES + rank as usize * RANK_BLOCK_LEN,
                RANK_BLOCK_LEN,
            ),
        }
    }

    /// The word that a sleeping rank waits on (futex, shared). Who rings adds 1 and wakes.
    pub fn doorbell(&self) -> &AtomicU32 {
        self.at.atomic_u32(card::DOORBELL)
    }

    /// Number of threads that sleep, or are about to, on the doorbell: who rings wakes only if it
    /// is not zero.
    pub fn sleepers(&self) -> &AtomicU32 {
        self.at.atomic_u32(card::SLEEPERS)
    }

    /// Whether the rank's communication advances while it computes, and how often its progress
    /// thread was called and moved something.
    pub fn async_progress(&self) -> (AsyncProgressState, u32) {
        let turns = self.at.atomic_u32(card::HELPER_TURNS).load(Relaxed);
        let code = self.at.atomic_u32(card::HELPER).load(Relaxed);
        (AsyncProgressState::from_code(code), turns)
    }

    /// Tells it. Called by the rank.
    pub fn set_async_progress(&self, background: AsyncProgressState) {
        self.at
            .atomic_u32(card::HELPER)
            .store(background.code(), Relaxed);
    }

    /// The progress thread moved something. Called by it.
    pub fn count_helper_turn(&self) {
        let turns = self.at.atomic_u32(card::HELPER_TURNS);
        turns.store(turns.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Number of decisions of agreements that the agent has sent to the rank.
    pub fn decisions(&self) -> &AtomicU32 {
        self.at.atomic_u32(card::DECISIONS)
    }

    /// Process id as the rank itself sees it; 0 before it registered.
    pub fn pid(&self) -> u32 {
        // SYNC(card-pid): the rank stores it after its PID space.
        self.at.atomic_u32(card::PID).load(Acquire)
    }

    /// Identity of the PID namespace that `pid` is valid in; two ranks can name each other only if
    /// it is the same.
    pub fn pid_space(&self) -> u64 {
        self.at.atomic_u64(card::PID_SPACE).load(Relaxed)
    }

    /// Returns the number of this life of the rank: 0 for the first.
    pub fn incarnation(&self) -> u32 {
        self.at.atomic_u32(card::INCARNATION).load(Relaxed)
    }

    /// Returns the state of the rank.
    pub fn state(&self) -> RankState {
        RankState::from_code(self.at.atomic_u32(card::STATE).load(Acquire))
    }

    /// Whether the agent is the parent of the rank's process: a dead one then stays unreaped until
    /// the job ends, so its process id cannot be given to another.
    pub fn agent_is_parent(&self) -> bool {
        self.at.atomic_u32(card::FLAGS).load(Relaxed) & 1 != 0
    }

    /// The CPU that the agent bound the rank to.
    pub fn cpu(&self) -> Option<u32> {
        self.at.atomic_u32(card::CPU).load(Relaxed).checked_sub(1)
    }

    /// When the rank registered, CLOCK_MONOTONIC in nanoseconds.
    pub fn started_ns(&self) -> u64 {
        self.at.atomic_u64(card::STARTED_NS).load(Relaxed)
    }

    /// Publishes the value of `pid`.
    pub fn set_pid(&self, pid: u32, pid_space: u64, now_ns: u64) {
        self.at
            .atomic_u64(card::PID_SPACE)
            .store(pid_space, Relaxed);
        self.at.atomic_u64(card::STARTED_NS).store(now_ns, Relaxed);
        // SYNC(card-pid)
        self.at.atomic_u32(card::PID).store(pid, Release);
    }

    /// Publishes the value of `state`.
    pub fn set_state(&self, state: RankState) {
        self.at.atomic_u32(card::STATE).store(state.code(), Release);
    }

    /// Publishes the value of `place`.
    pub fn set_place(&self, cpu: Option<u32>, agent_is_parent: bool) {
        self.at
            .atomic_u32(card::CPU)
            .store(cpu.map_or(0, |cpu| cpu + 1), Relaxed);
        self.at
            .atomic_u32(card::FLAGS)
            .store(agent_is_parent.into(), Relaxed);
    }

    /// Whether the rank has crashed, and whether it may end (futex, shared; `crash`). The
    /// rank writes that it stands, the agent that it may end.
    pub fn crash(&self) -> &AtomicU32 {
        self.at.atomic_u32(card::CRASH)
    }

    /// Publishes what this rank waits for. Only the rank itself may call it, one thread at a time.
    pub fn publish_wait(&self, wait: &WaitInfo) {
        let seq = self.at.atomic_u32(card::WAIT_SEQ);
        let next = seq.load(Relaxed).wrapping_add(1) | 1;
        seq.store(next, Relaxed);
        // SYNC(card-wait): odd while the fields change; readers retry unless they see the same even
        // number around them.
        fence(Release);
        self.at
            .atomic_u32(card::WAIT_CALL)
            .store(wait.call, Relaxed);
        self.at
            .atomic_u32(card::WAIT_PEER)
            .store(wait.peer as u32, Relaxed);
        self.at
            .atomic_u32(card::WAIT_TAG)
            .store(wait.tag as u32, Relaxed);
        self.at
            .atomic_u64(card::WAIT_COMM)
            .store(wait.comm, Relaxed);
        self.at
            .atomic_u64(card::WAIT_BYTES)
            .store(wait.bytes, Relaxed);
        self.at
            .atomic_u64(card::WAIT_SINCE_NS)
            .store(wait.since_ns, Relaxed);
        self.at
            .atomic_u64(card::WAIT_SITE)
            .store(wait.site, Relaxed);
        seq.store(next.wrapping_add(1), Release);
    }

    /// Returns what the rank waits for: `None` if it kept changing while being read.
    pub fn wait(&self) -> Option<WaitInfo> {
        let seq = self.at.atomic_u32(card::WAIT_SEQ);
        for _ in 0..64 {
            // SYNC(card-wait)
            let before = seq.load(Acquire);
            let wait = WaitInfo {
                call: self.at.atomic_u32(card::WAIT_CALL).load(Relaxed),
                peer: self.at.atomic_u32(card::WAIT_PEER).load(Relaxed) as i32,
                tag: self.at.atomic_u32(card::WAIT_TAG).load(Relaxed) as i32,
                comm: self.at.atomic_u64(card::WAIT_COMM).load(Relaxed),
                bytes: self.at.atomic_u64(card::WAIT_BYTES).load(Relaxed),
                since_ns: self.at.atomic_u64(card::WAIT_SINCE_NS).load(Relaxed),
                site: self.at.atomic_u64(card::WAIT_SITE).load(Relaxed),
            };
            fence(Acquire);
            if before & 1 == 0 && seq.load(Relaxed) == before {
                return Some(wait);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Returns the address of the rank's event ring in its own memory; 0: not told.
    pub fn event_ring(&self) -> u64 {
        self.at.atomic_u64(card::EVENTS).load(Relaxed)
    }

    /// Publishes the value of `event_ring`.
    pub fn set_event_ring(&self, address: u64) {
        self.at.atomic_u64(card::EVENTS).store(address, Relaxed);
    }

    /// Returns the address of the rank's protocol tuner in its own memory; 0: not told.
    pub fn protocol_tuner(&self) -> u64 {
        self.at.atomic_u64(card::TUNERS).load(Relaxed)
    }

    /// Publishes the value of `protocol_tuner`.
    pub fn set_protocol_tuner(&self, address: u64) {
        self.at.atomic_u64(card::TUNERS).store(address, Relaxed);
    }

    /// Returns the address of the rank's table of connections to other hosts in its own memory; 0:
    /// not told, or there are none.
    pub fn remote_links(&self) -> u64 {
        self.at.atomic_u64(card::LINKS).load(Relaxed)
    }

    /// Publishes the value of `remote_links`.
    pub fn set_remote_links(&self, address: u64) {
        self.at.atomic_u64(card::LINKS).store(address, Relaxed);
    }

    /// Returns the address of the rank's table of Ethernet peers in its own memory; 0: not told, or
    /// there are none.
    pub fn ethernet_peers(&self) -> u64 {
        self.at.atomic_u64(card::ETHERNET).load(Relaxed)
    }

    /// Publishes the value of `ethernet_peers`.
    pub fn set_ethernet_peers(&self, address: u64) {
        self.at.atomic_u64(card::ETHERNET).store(address, Relaxed);
    }

    /// Returns the strategy that the rank follows; `None`: not told.
    pub fn strategy(&self) -> Option<ActiveStrategy> {
        ActiveStrategy::from_word(self.at.atomic_u64(card::ANSWERS).load(Relaxed))
    }

    /// Publishes the value of `strategy`.
    pub fn set_strategy(&self, followed: ActiveStrategy) {
        self.at
            .atomic_u64(card::ANSWERS)
            .store(followed.word(), Relaxed);
    }

    /// Returns the address of the rank's wait report ([`crate::wait_report`]) in its own memory; 0:
    /// not told.
    pub fn wait_report(&self) -> u64 {
        self.at.atomic_u64(card::BOOK).load(Relaxed)
    }

    /// Publishes the value of `wait_report`.
    pub fn set_wait_report(&self, address: u64) {
        self.at.atomic_u64(card::BOOK).store(address, Relaxed);
    }

    /// Returns the address of the first shard's counters in the rank's memory; 0: not told.
    fn counters(&self) -> u64 {
        self.at.atomic_u64(card::COUNTERS).load(Relaxed)
    }

    /// Publishes the value of `counters`.
    pub fn set_counters(&self, address: u64) {
        self.at.atomic_u64(card::COUNTERS).store(address, Relaxed);
    }

    /// The words of messages and bytes sent and messages kept, for the engine of the first shard to
    /// write ([`tally`] reads those of all).
    pub fn sent_totals(&self) -> Segment {
        self.at
            .part(card::SENT_MESSAGES, card::EVENTS - card::SENT_MESSAGES)
    }
}

/// Set by the agent once the job is ending: ranks then need not report failures that follow from
/// the first.
pub fn ending(board: &Segment) -> &AtomicU32 {
    board.atomic_u32(header::ENDING)
}

/// What is known of a job's deaths: a set lowest bit says that the job survives them, the others
/// count them.
pub fn faults(board: &Segment) -> &AtomicU32 {
    board.atomic_u32(header::FAULTS)
}

/// Bit of [`faults`] that says that the job survives the deaths of ranks.
pub const SURVIVES: u32 = 1;

/// What one death adds to [`faults`].
pub const ONE_DEATH: u32 = 2;

#[cfg(test)]
mod tests;
