//! Messages of several packets that leave with their envelope: which do, and from where.
//!
//! Part of [`TcpTransport`]; the bytes are [`PacketStream`](super::packet_stream::PacketStream)'s.

use crate::TcpTransport;
use crate::frame::StreamNumber;
use garonne_engine::api::Peer;
use garonne_engine::limits::COALESCE_EACH_MAX;
use garonne_engine::transport::{ClaimError, Fragmentation, Fragments};
use garonne_sync::user::UserMem;
use garonne_transport::limits::{
    TCP_FLOW_HEAD, TCP_FLOW_MAX, TCP_INLINE_MAX, TCP_PACKED_MAX, TCP_PACKET_MAX,
};

impl TcpTransport {
    pub(super) fn flow_of(&mut self, peer: Peer, len: usize) -> Fragmentation {
        if len <= TCP_INLINE_MAX
            || len > TCP_FLOW_MAX
            || len <= COALESCE_EACH_MAX && self.may_wait(peer, len)
        {
            return Fragmentation::None;
        }
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return Fragmentation::None;
        };
        if !remote.link.is_up() {
            return Fragmentation::None;
        }
        let first = if len <= TCP_PACKED_MAX {
            len
        } else {
            TCP_FLOW_HEAD
        };
        // A block for each long packet, and one in case the first does not fit behind what was sent
        // before.
        if !self.blocks.keep(1 + (len - first).div_ceil(TCP_PACKET_MAX)) {
            return Fragmentation::None;
        }
        match remote.link.log.promise(first, len - first) {
            true => Fragmentation::Fragments(first, TCP_PACKET_MAX),
            false => Fragmentation::Later,
        }
    }

    pub(super) fn send_from(
        &mut self,
        pieces: &Fragments,
        mem: UserMem,
    ) -> Result<bool, ClaimError> {
        let peer = pieces.peer;
        if self.remote(peer)?.link.log.has_unsent() {
            self.flush(peer, StreamNumber::Small);
        }
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return Err(ClaimError::Gone);
        };
        let sent = remote.link.send_pieces(&mut self.blocks, pieces, mem);
        if let (true, Some((head, ..))) = (sent, pieces.packets().next()) {
            self.leaves_or_waits(peer, &head, false);
        }
        Ok(sent)
    }
}
