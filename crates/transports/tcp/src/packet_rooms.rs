//! Memory for packets that leave: rooms that the engine fills, and blocks of which the peers' logs
//! are made.
//!
//! Owned by the transport. A room is a block of its own until its packet is committed; then it
//! becomes part of the peer's log, or goes back.

use crate::replay_log::{BEFORE, LogBlocks};
use garonne_engine::api::Peer;
use garonne_engine::transport::PacketBuffer;
use garonne_sync::copy::StoreKind;
use garonne_sync::user::Scratch;

/// Rooms that are lent to the engine, and the blocks from which they come.
///
/// Owned by the transport. [`PacketRooms::lend`] gives a room out; [`PacketRooms::redeem`] takes it
/// back, by its token, when its packet is committed or abandoned.
#[derive(Debug, Default)]
pub(crate) struct PacketRooms {
    blocks: LogBlocks,
    /// By token; `None`: not lent.
    lent: Vec<Option<Scratch>>,
}

impl PacketRooms {
    /// Returns the blocks, for the logs of peers.
    #[inline]
    pub(crate) fn blocks(&mut self) -> &mut LogBlocks {
        &mut self.blocks
    }

    /// Lends room for `len` bytes to `peer`; `None`: there is no memory.
    pub(crate) fn lend(&mut self, peer: Peer, len: usize) -> Option<PacketBuffer> {
        let room = self.blocks.take()?;
        let mem = room.mem().offset(BEFORE as isize);
        let free = match self.lent.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.lent.push(None);
                self.lent.len() - 1
            }
        };
        self.lent[free] = Some(room);
        Some(PacketBuffer {
            mem,
            len,
            peer,
            token: free as u64,
            stores: StoreKind::Cached,
        })
    }

    /// Returns the block of a room that was lent.
    pub(crate) fn redeem(&mut self, token: u64) -> Option<Scratch> {
        self.lent.get_mut(token as usize).and_then(Option::take)
    }

    /// Gives a block back that no log needs.
    pub(crate) fn give(&mut self, block: Scratch) {
        self.blocks.give(block);
    }
}
