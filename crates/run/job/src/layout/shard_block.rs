//! Blocks of a rank's further shards, behind the rank blocks: each has the doorbell of who waits
//! there, and what was sent.

use super::{HEADER_BYTES, RANK_BLOCK_LEN, RankBlock, WorldShape};
use garonne_sync::shm::Segment;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a card: two cache lines, one for others to write and one for the rank.
pub const SHARD_CARD_BYTES: usize = 128;

const BELL: usize = 0;
const TALLY: usize = 64;
const TALLY_BYTES: usize = 24;
const COUNTERS: usize = 88;

/// The card of one rank in one of its further shards.
#[derive(Clone, Debug)]
pub struct ShardBlock {
    at: Segment,
}

/// Messages that a rank has sent, in all its shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentTotals {
    /// Messages sent so far.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages that came and that nobody has asked for yet.
    pub unexpected: u64,
}

impl ShardBlock {
    /// Returns the offset of a shard's block. `shard` counts from 1; the number of shards gives the
    /// end of the area.
    pub(super) fn offset(shape: &WorldShape, shard: u32, rank: u32) -> u64 {
        let before = u64::from(shard.saturating_sub(1)) * u64::from(shape.size) + u64::from(rank);
        (HEADER_BYTES + shape.size as usize * RANK_BLOCK_LEN) as u64
            + before * SHARD_CARD_BYTES as u64
    }

    /// The card of `rank` in a further shard; `None`: there is no such shard, or no such rank.
    pub fn of(board: &Segment, shape: &WorldShape, shard: u32, rank: u32) -> Option<Self> {
        let there_is = (1..shape.shards).contains(&shard) && rank < shape.size;
        there_is.then(|| Self {
            at: board.part(Self::offset(shape, shard, rank) as usize, SHARD_CARD_BYTES),
        })
    }

    /// The word that a thread sleeps on that waits in this shard.
    pub fn doorbell(&self) -> &AtomicU32 {
        self.at.atomic_u32(BELL)
    }

    /// Returns the doorbell as a segment of its own.
    pub fn bell(&self) -> Segment {
        self.at.part(BELL, 4)
    }

    /// Publishes the address of this shard's counters in the rank's memory.
    pub fn set_counters(&self, address: u64) {
        self.at.atomic_u64(COUNTERS).store(address, Relaxed);
    }

    /// The words of messages and bytes sent and messages kept, for the engine of this shard to
    /// write.
    pub fn sent_totals(&self) -> Segment {
        self.at.part(TALLY, TALLY_BYTES)
    }
}

/// Returns the addresses of the counters of all shards of `rank` that publish them.
pub fn counters(board: &Segment, shape: &WorldShape, rank: u32) -> Vec<u64> {
    let further = (1..shape.shards).filter_map(|shard| ShardBlock::of(board, shape, shard, rank));
    let further = further.map(|card| card.at.atomic_u64(COUNTERS).load(Relaxed));
    let all = std::iter::once(RankBlock::of(board, rank).counters()).chain(further);
    all.filter(|address| *address != 0).collect()
}

/// Returns what `rank` has published as sent so far; counters read from its memory are fresher.
pub fn tally(board: &Segment, shape: &WorldShape, rank: u32) -> SentTotals {
    let further = (1..shape.shards).filter_map(|shard| ShardBlock::of(board, shape, shard, rank));
    let words = std::iter::once(RankBlock::of(board, rank).sent_totals())
        .chain(further.map(|card| card.sent_totals()));
    words.fold(SentTotals::default(), |sum, words| {
        let word = |index: usize| words.atomic_u64(8 * index).load(Relaxed);
        SentTotals {
            messages: sum.messages.wrapping_add(word(0)),
            bytes: sum.bytes.wrapping_add(word(1)),
            unexpected: sum.unexpected.wrapping_add(word(2)),
        }
    })
}
