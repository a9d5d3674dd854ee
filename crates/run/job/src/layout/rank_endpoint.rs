//! Table of all ranks of the job: the host of each, its port, and whether it ended on another host.
//!
//! A rank block is touched only for the ranks of its host. So a host holds [`BYTES`] for each rank
//! of other hosts, and nothing else. The agent writes the table before the first rank registers.

use super::last_calls;
use super::{Acquire, Relaxed, Release, WorldShape};
use garonne_sync::shm::Segment;

/// Bytes of a rank's entry: node (32 bits), port (16), and 1 once it ended well elsewhere, 2 once
/// it died elsewhere (16).
pub const BYTES: usize = 8;

const ENDED: u32 = 1 << 16;
const DIED: u32 = 1 << 17;

/// Returns the offset of a rank's entry. The entry behind the last one gives the end of the table.
pub(super) fn offset(shape: &WorldShape, rank: u32) -> u64 {
    last_calls::offset(shape, last_calls::LAST_CALL_SLOTS, 0) + u64::from(rank) * BYTES as u64
}

/// A rank's entry in the table.
#[derive(Clone, Debug)]
pub struct RankEndpoint {
    at: Segment,
}

impl RankEndpoint {
    /// Returns the entry of `rank`, which is below the world's size.
    pub fn of(board: &Segment, shape: &WorldShape, rank: u32) -> Self {
        Self {
            at: board.part(offset(shape, rank) as usize, BYTES),
        }
    }

    /// Returns the node that the rank is on.
    pub fn node(&self) -> u32 {
        self.at.atomic_u32(0).load(Relaxed)
    }

    /// Returns the port at which ranks of other nodes reach it; 0: there are none.
    pub fn port(&self) -> u16 {
        self.at.atomic_u32(4).load(Relaxed) as u16
    }

    /// Publishes node and port. Called by the agent before a rank registers.
    pub fn set(&self, node: u32, port: u16) {
        self.at.atomic_u32(0).store(node, Relaxed);
        self.at.atomic_u32(4).store(port.into(), Relaxed);
    }

    /// Returns whether the rank, of another host, has ended well.
    pub fn has_ended(&self) -> bool {
        self.at.atomic_u32(4).load(Acquire) & ENDED != 0
    }

    /// Shows that the rank, of another host, has ended well. Called by the agent.
    pub fn set_ended(&self) {
        self.at.atomic_u32(4).fetch_or(ENDED, Release);
    }

    /// Returns whether the rank, of another host, has died.
    pub fn has_died(&self) -> bool {
        self.at.atomic_u32(4).load(Acquire) & DIED != 0
    }

    /// Shows that the rank, of another host, has died. Called by the agent.
    pub fn set_died(&self) {
        self.at.atomic_u32(4).fetch_or(DIED, Release);
    }
}

/// Returns whether `rank` runs on the host of this memory.
pub fn is_local(board: &Segment, shape: &WorldShape, rank: u32) -> bool {
    shape.nodes < 2 || RankEndpoint::of(board, shape, rank).node() == shape.node
}

/// Returns the ranks that run on the host of this memory, in order.
pub fn local_ranks<'a>(
    board: &'a Segment,
    shape: &'a WorldShape,
) -> impl Iterator<Item = u32> + 'a {
    (0..shape.size).filter(|rank| is_local(board, shape, *rank))
}
