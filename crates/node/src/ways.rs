//! Ways of a job's ranks through hosts between, as a table in the board of each node.
//!
//! The node's agent adds to it, ranks and tools read it at any time: the number of entries is stored behind them, and what is in is never changed. Bounded by [`WAYS_MAX`].

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use garonne_sync::shm::Segment;

use crate::layout;
use crate::limits::WAYS_MAX;
use crate::orders::Way;

/// Bytes of an entry: where it leads, through which node, at which port.
const ENTRY: usize = 12;
/// Bytes of the table: its length, and its entries.
pub const BYTES: usize = 4 + WAYS_MAX * ENTRY;

fn len(board: &Segment) -> &AtomicU32 {
    board.atomic_u32(layout::WAYS)
}

fn entry(board: &Segment, at: usize) -> [&AtomicU32; 3] {
    [0, 4, 8].map(|word| board.atomic_u32(layout::WAYS + 4 + at * ENTRY + word))
}

/// What is in the table now.
pub fn read(board: &Segment) -> Vec<Way> {
    // SYNC(ways): the entries before the number were stored before it.
    let len = (len(board).load(Acquire) as usize).min(WAYS_MAX);
    let way = |at| {
        let [to, via, port] = entry(board, at).map(|word| word.load(Relaxed));
        Way {
            to,
            via,
            port: port as u16,
        }
    };
    (0..len).map(way).collect()
}

/// Adds a way, unless the table is full. Only the node's agent does.
pub(crate) fn add(board: &Segment, way: Way) {
    let at = len(board).load(Relaxed) as usize;
    if at >= WAYS_MAX {
        return;
    }
    for (word, value) in entry(board, at)
        .into_iter()
        .zip([way.to, way.via, way.port.into()])
    {
        word.store(value, Relaxed);
    }
    len(board).store(at as u32 + 1, Release);
}
