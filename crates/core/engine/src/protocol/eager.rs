//! Eager sends: the envelope leaves with its whole payload, inline, in a packet or in fragments.
//!
//! Called by sends and by passes of progress, once the window let the envelope leave.

use crate::api::TypeDigest;
use crate::copy::{CopyTarget, copy_out};
use crate::engine::Engine;
use crate::limits::FRAGMENTED_MAX;
use crate::requests::{OpState, Operation};
use crate::schedule::priority::{Priority, PriorityTable};
use crate::transport::{
    ClaimError, Fragmentation, PacketClass, PacketHeader, PacketKind, Transport,
};

/// Bytes that an eager envelope puts in front of its payload.
pub(crate) fn prefix(operation: &Operation) -> usize {
    // The name that its receiver sends back once it matched.
    if operation.synchronous { 8 } else { 0 }
}

/// Returns whether a message may go in fragments. The header of the first fragment has no room for
/// a type digest, and a message of low priority goes by rendezvous.
pub(crate) fn may_flow(operation: &Operation, priorities: &PriorityTable) -> bool {
    operation.origin.digest == TypeDigest::NONE && priorities.of(operation.context) != Priority::Low
}

impl<R: Transport> Engine<R> {
    /// Sends the envelope of a send with its payload.
    pub(crate) fn send_eager(&mut self, index: u32, flags: u8) -> Result<bool, ClaimError> {
        let name = self.core.wire_name(index);
        let operation = self.core.requests.at(index);
        let len = operation.data.len as usize;
        let prefix = prefix(operation);
        let header = PacketHeader {
            kind: if operation.synchronous {
                PacketKind::EagerSync
            } else {
                PacketKind::Eager
            } as u8,
            flags,
            shard: operation.origin.digest.0,
            len: (len + prefix) as u32,
            context: operation.context,
            source: operation.source,
            tag: operation.tag,
            sequence: operation.sequence,
        };
        if prefix == 0 && len <= self.limits.inline_max && operation.data.layout.is_none() {
            self.transport
                .send_inline(operation.peer, &header, operation.data.mem)?;
        } else if prefix == 0
            && flags == 0
            && may_flow(operation, self.core.send_order.priorities())
            && len as u64 <= FRAGMENTED_MAX
            && let Fragmentation::Fragments(first, piece) =
                self.transport.fragmentation(operation.peer, len)
        {
            let (peer, data) = (operation.peer, operation.data.clone());
            self.send_fragments(peer, header, &data, (first, piece))?;
        } else {
            let room = self
                .transport
                .claim(operation.peer, len + prefix, PacketClass::Data)?;
            if prefix != 0 {
                room.mem.write(0, &name.to_le_bytes());
            }
            let target = CopyTarget::room(&room, prefix);
            copy_out(&operation.data, 0, target, len, &mut self.core.bounce);
            self.transport.commit(room, &header);
        }
        if prefix == 0 {
            self.core.complete(index, None);
        } else {
            self.core.requests.at(index).state = OpState::Active;
        }
        Ok(true)
    }
}
