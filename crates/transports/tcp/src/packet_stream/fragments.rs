//! Messages of several packets that leave from user memory.

use super::PacketStream;
use crate::connection::{Connection, IoResult};
use crate::frame::{FrameKind, header_bytes};
use crate::replay_log::{BEFORE, LogBlocks};
use garonne_engine::transport::Fragments;
use garonne_sync::user::UserMem;
use garonne_transport::iovec::{CopyDirection, IoBlock};
use garonne_transport::limits::{TCP_FRAGMENTS_MAX, TCP_PACKED_MAX};

impl PacketStream {
    /// Adds the packets of a message whose bytes lie in user memory, and sends as much of them from
    /// there as the socket takes. They are copied for replay only then, while the other side takes
    /// them in. `false`: not now, and nothing happened.
    pub(crate) fn send_pieces(
        &mut self,
        blocks: &mut LogBlocks,
        pieces: &Fragments,
        mem: UserMem,
    ) -> bool {
        let ready = |channel: &&mut Connection| !channel.is_sealed();
        let Some(channel) = self.channel.as_mut().filter(ready) else {
            return false;
        };
        let count = pieces.count();
        if self.log.has_unsent() || count > TCP_FRAGMENTS_MAX {
            return false;
        }
        let mut out = [IoBlock::default(); 2 * TCP_FRAGMENTS_MAX];
        let mut rooms = [UserMem::null(); TCP_FRAGMENTS_MAX];
        if !blocks.keep(count) {
            return false;
        }
        for (at, (header, from, len)) in pieces.packets().enumerate() {
            let words = header_bytes(&header);
            let frame = if len > TCP_PACKED_MAX {
                let room = blocks.take();
                room.map(|room| self.log.add(blocks, (room, len), self.expected, &words))
            } else {
                let kind = (FrameKind::Packet, self.expected);
                self.log.append_room(blocks, kind, Some(&words), len)
            };
            // There is one: blocks were kept.
            let Some(frame) = frame else { break };
            rooms[at] = frame;
            out[2 * at] = IoBlock {
                addr: frame.addr(0),
                len: BEFORE,
            };
            out[2 * at + 1] = IoBlock {
                addr: mem.addr(from as isize),
                len,
            };
        }
        let moved = send_all(channel, &mut out[..2 * count]);
        for (room, (_, from, len)) in rooms.iter().zip(pieces.packets()) {
            room.copy_from(BEFORE as isize, mem, from as isize, len);
        }
        self.log.left_through(moved);
        self.owes_nothing_more(true);
        true
    }
}

/// Sends what a socket takes of these blocks: so many bytes. One that took a part may take more at
/// once; what it does not take leaves from the copy.
fn send_all(channel: &mut Connection, mut blocks: &mut [IoBlock]) -> usize {
    let mut moved = 0;
    while !blocks.is_empty()
        && let Some(IoResult::Moved(now)) = channel.move_blocks(CopyDirection::Write, blocks)
    {
        moved += now;
        blocks = behind(blocks, now);
    }
    moved
}

/// Returns what is left of these blocks when so many of their bytes have left.
fn behind(blocks: &mut [IoBlock], mut moved: usize) -> &mut [IoBlock] {
    let mut at = 0;
    while let Some(block) = blocks.get(at).filter(|block| block.len <= moved) {
        moved -= block.len;
        at += 1;
    }
    let rest = &mut blocks[at..];
    if let Some(first) = rest.first_mut() {
        first.addr += moved;
        first.len -= moved;
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_left_is_all_bytes_but_the_first(lens in prop::collection::vec(0usize..9, 1..9), moved in 0usize..80) {
            let mut at = 0;
            let mut blocks: Vec<IoBlock> = lens.iter().map(|len| {
                let block = IoBlock { addr: at, len: *len };
                // Apart, as a head and a user's bytes are.
                at += len + 100;
                block
            }).collect();
            let bytes = |blocks: &[IoBlock]| blocks.iter().flat_map(|block| block.addr..block.addr + block.len).collect::<Vec<_>>();
            let all = bytes(&blocks);
            let moved = moved.min(all.len());
            prop_assert_eq!(bytes(behind(&mut blocks, moved)), &all[moved..]);
        }
    }
}
