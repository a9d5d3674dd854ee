//! Large data whose beginning leaves with its announcement, and is read before it was asked for.
//!
//! Part of [`TcpTransport`]. How much of a region comes so its descriptor says; bytes and blocks
//! are `bulk::eager_prefix`'s.

use crate::TcpTransport;
use crate::frame::{ReadRequest, StreamNumber};
use garonne_engine::api::Peer;
use garonne_engine::transport::{BulkToken, PacketHeader, PacketKind, RegionDescriptor};
use garonne_sync::user::Data;
use garonne_transport::limits::{ADVANCE_MAX, TCP_EAGER_MAX};

/// Bytes that come of a region before they are asked for, as its descriptor says.
pub(super) fn ahead_of(descriptor: &RegionDescriptor) -> Option<u64> {
    let ahead = u64::from_le_bytes(descriptor.blob().try_into().ok()?);
    (1..=ADVANCE_MAX).contains(&ahead).then_some(ahead)
}

impl TcpTransport {
    /// Has the first bytes of a region that is about to be announced leave before they are asked
    /// for, where that is of use: how many.
    pub(super) fn advance(&mut self, peer: Peer, cookie: u64, data: &Data) -> u64 {
        if data.len <= TCP_EAGER_MAX as u64 || self.is_beside(peer) {
            return 0;
        }
        // Over several ways what is asked for goes where there is room; what is not cannot be moved
        // to another.
        if self.no_fabric.is_none() || self.hosts.networks(peer).len() > 1 {
            return 0;
        }
        match self.remotes.get_mut(peer as usize) {
            Some(Some(remote)) if remote.link.is_up() => remote.paths.advance(cookie, data),
            _ => 0,
        }
    }

    /// Sends what leaves unasked behind an announcement.
    #[inline]
    pub(super) fn lead(&mut self, peer: Peer, header: &PacketHeader) {
        if header.kind != PacketKind::Eager as u8
            && let Some(Some(remote)) = self.remotes.get_mut(peer as usize)
            && remote.paths.takes_advance()
        {
            // The sender may compute then, also right behind other large data.
            if let Some(bulk) = remote.paths.at(0).bulk.socket_mut() {
                bulk.nobody_polls();
            }
            self.flush_some(peer, StreamNumber::Bulk(0), ADVANCE_MAX as usize);
        }
    }

    /// Starts a read of which `ahead` bytes come unasked.
    pub(super) fn read_unasked(
        &mut self,
        peer: Peer,
        read: (BulkToken, ReadRequest, u64),
        local: (Data, u64),
    ) {
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        if let Some(ended) = remote.paths.read_advanced(read, local) {
            self.tell_of(peer, ended);
        }
        // It may be here, and was left in the socket.
        self.mark_ready(peer);
    }
}
