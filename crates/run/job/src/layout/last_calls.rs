//! What the board has of the MPI calls that threads of a rank entered last: a place for each of
//! some threads, behind the cards of further shards.
//!
//! Every call of every thread stores there, so places are apart from each other and from all that
//! others look at: a line that two cores write costs more than a small message.

use super::shard_block::ShardBlock;
use super::{Relaxed, WorldShape};
use garonne_sync::shm::Segment;
use std::sync::atomic::AtomicU64;

/// Places of a rank. The first is that of the thread that initialised MPI; further threads go round
/// in the others.
pub const LAST_CALL_SLOTS: u32 = 16;

/// Bytes of a place: two cache lines, since neighbours are fetched in pairs.
pub(super) const PLACE_BYTES: usize = 128;

/// The site of the latest call entered; and [`named_call`] of the latest one that said its name,
/// too. Stored at every entry and never cleared while its thread lives. They outlive the process,
/// which may have been killed inside.
pub type LastCall = [AtomicU64; 2];

/// Returns the offset of a slot. The slot behind the last one gives the end of the area.
pub(super) fn offset(shape: &WorldShape, place: u32, rank: u32) -> u64 {
    let before = u64::from(place) * u64::from(shape.size) + u64::from(rank);
    let begin = ShardBlock::offset(shape, shape.shards, 0).next_multiple_of(PLACE_BYTES as u64);
    begin + before * PLACE_BYTES as u64
}

/// The place of a thread of `rank`: the first has its own for ever, all others go round in the
/// rest.
pub fn call_slot<'a>(
    board: &'a Segment,
    shape: &WorldShape,
    thread: u32,
    rank: u32,
) -> &'a LastCall {
    let place = match thread.checked_sub(1) {
        Some(further) => 1 + further % (LAST_CALL_SLOTS - 1),
        None => 0,
    };
    board.atomic_u64s(offset(shape, place, rank) as usize)
}

/// A call by its number and the low 48 bits of its site.
#[inline]
pub fn named_call(site: u64, call: u16) -> u64 {
    u64::from(call) << 48 | site & SITE_BITS
}

const SITE_BITS: u64 = (1 << 48) - 1;

/// The latest calls of the threads of `rank`, each place once: the site, and the number of the call
/// if it said it.
pub fn latest_call(board: &Segment, shape: &WorldShape, rank: u32) -> Vec<(u64, Option<u16>)> {
    let mut calls = Vec::new();
    for index in 0..LAST_CALL_SLOTS {
        let [site, named] = call_slot(board, shape, index, rank)
            .each_ref()
            .map(|word| word.load(Relaxed));
        let same = named & SITE_BITS == site & SITE_BITS;
        let call = (site, same.then_some((named >> 48) as u16));
        if site != 0 && !calls.contains(&call) {
            calls.push(call);
        }
    }
    calls
}
