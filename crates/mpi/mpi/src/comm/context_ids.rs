//! Which context numbers this process uses. One table per process; [`ContextLease`] gives a number
//! back when the last user of its communicator (a handle, a pending operation, a freed request) is
//! gone, which is what makes `MPI_Comm_free` deferred.

use crate::comm::shard::ShardRequest;
use crate::limits::{COMMS_MAX, CONTEXTS_PER_COMM};
use garonne_engine::api::{ContextId, SHARD_SHIFT};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of a communicator's block of contexts.
pub(crate) type ContextBlock = u32;

/// The block of `MPI_COMM_WORLD`.
pub(crate) const WORLD: ContextBlock = 0;
/// The block of `MPI_COMM_SELF`.
pub(crate) const SELF: ContextBlock = 1;
/// The block in which processes without a common communicator make one
/// (`MPI_Comm_create_from_group`).
pub(crate) const BOOTSTRAP: ContextBlock = 2;
const FIRST: ContextBlock = 3;
/// Blocks that fit a context, below the bits of its shard.
const BLOCKS: ContextBlock = (1 << SHARD_SHIFT) / CONTEXTS_PER_COMM;

/// Context of `MPI_Comm_create_group`, which a part of the members takes part in, counted from the
/// first one of a block.
pub(crate) const PARTIAL: u32 = 3;
/// Context of the leaders of `MPI_Intercomm_create`, who need none of the other members.
pub(crate) const LEADERS: u32 = 4;

/// Returns the first context of a communicator and those whose operations need all its members:
/// collectives and constructors.
pub(crate) fn watched(first: ContextId) -> Range<ContextId> {
    first..first + PARTIAL
}

/// First context of a block: point-to-point; the next ones are collectives and constructors.
pub(crate) fn base(block: ContextBlock) -> ContextId {
    block * CONTEXTS_PER_COMM
}

/// Blocks in use by this process.
#[derive(Debug)]
pub(crate) struct ContextIds(Mutex<BlockTable>);

#[derive(Debug)]
struct BlockTable {
    used: HashSet<ContextBlock>,
    /// Place where the search for a free one starts: ids are not reused soon, so that a stray
    /// message of an erroneous program meets nobody rather than the wrong one.
    next: ContextBlock,
}

impl ContextIds {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(BlockTable {
            used: HashSet::new(),
            next: FIRST,
        })))
    }

    fn table(&self) -> MutexGuard<'_, BlockTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a free block, at or after `floor` if possible; `None` when there are too many
    /// communicators.
    pub fn reserve(self: &Arc<Self>, floor: ContextBlock) -> Option<ContextLease> {
        let mut table = self.table();
        if table.used.len() >= COMMS_MAX as usize {
            return None;
        }
        let mut block = table.next.max(floor);
        loop {
            if block >= BLOCKS {
                block = FIRST;
            }
            if table.used.insert(block) {
                break;
            }
            block += 1;
        }
        table.next = block + 1;
        Some(ContextLease {
            block,
            want: ShardRequest::First,
            contexts: self.clone(),
        })
    }

    /// Reserves this block if it is free.
    pub fn reserve_exactly(self: &Arc<Self>, block: ContextBlock) -> Option<ContextLease> {
        let mut table = self.table();
        if block >= BLOCKS || !table.used.insert(block) {
            return None;
        }
        table.next = table.next.max(block + 1);
        Some(ContextLease {
            block,
            want: ShardRequest::First,
            contexts: self.clone(),
        })
    }
}

/// A block in use; free again when dropped.
#[derive(Debug)]
pub(crate) struct ContextLease {
    pub block: ContextBlock,
    /// Place where its processes agreed that their messages are.
    pub want: ShardRequest,
    contexts: Arc<ContextIds>,
}

impl ContextLease {
    /// Moves the lease to the shards that the communicator's processes agreed on.
    pub fn wanted(mut self, want: ShardRequest) -> Self {
        self.want = want;
        self
    }
}

impl Drop for ContextLease {
    fn drop(&mut self) {
        self.contexts.table().used.remove(&self.block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_free_again_only_when_its_lease_ends_and_not_reused_at_once() {
        let contexts = ContextIds::new();
        let a = contexts.reserve(0).unwrap();
        let (first, floor) = (a.block, a.block + 10);
        assert!(contexts.reserve_exactly(first).is_none());
        drop(a);
        assert_ne!(contexts.reserve(0).unwrap().block, first);
        assert!(contexts.reserve_exactly(first).is_some());
        assert_eq!(contexts.reserve(floor).unwrap().block, floor);
    }
}
