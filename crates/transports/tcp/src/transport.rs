//! The TCP transport as the engine sees it: packets, fragments, regions, polls.
//!
//! Part of [`TcpTransport`]. A packet is added to its peer's log, and leaves at once, later with
//! others, or when there is a connection; the parts of the transport say which.

use crate::LOST;
use crate::TcpTransport;
use crate::dispatch::StreamKind;
use crate::frame::{FrameKind, HEADER, ReadRequest, StreamNumber};
use crate::replay_log::BEFORE;
use garonne_engine::api::{Error, Peer};
use garonne_engine::limits::{COALESCE_EACH_MAX, CONTROL_PAYLOAD_MAX};
use garonne_engine::transport::{
    AsyncProgress, BulkStatus, BulkToken, BulkTransfer as BulkCopy, ClaimError, ExposeResult,
    FastPath, Fragmentation, FragmentedSends, Fragments, NodeMemory, PacketBuffer, PacketClass,
    PacketHeader, PeerCapabilities, PollSink, RegionDescriptor, RemoteMemory, SharedCopy,
    Transport, TransportLimits, WakeSource,
};
use garonne_sync::user::{Data, UserMem};
use garonne_transport::limits::{
    EAGER_PREFIX_MAX, TCP_EAGER_MAX, TCP_FIRST_FRAGMENT, TCP_FRAGMENTED_MAX, TCP_INLINE_MAX,
    TCP_PACKED_MAX, TCP_PACKET_MAX,
};
use std::sync::Arc;
use std::time::Instant;

/// Returns the number of bytes of a region that come before they are asked for, as its descriptor
/// says.
pub(crate) fn ahead_of(descriptor: &RegionDescriptor) -> Option<u64> {
    let ahead = u64::from_le_bytes(descriptor.blob().try_into().ok()?);
    (1..=EAGER_PREFIX_MAX).contains(&ahead).then_some(ahead)
}

impl TcpTransport {
    /// Sends a packet that was added to the log of a peer, unless it waits for others.
    #[inline]
    fn leaves(&mut self, peer: Peer, header: &PacketHeader) {
        self.ctx.priority.small(header);
        if self.coalescer.admit(&mut self.ctx.peers, peer, header) {
            self.depart(peer, header);
        }
    }

    /// Sends a packet that was added to the log of a peer, and what leaves unasked behind it.
    #[inline]
    fn depart(&mut self, peer: Peer, header: &PacketHeader) {
        self.added(peer);
        self.ctx.lead(peer, header);
        self.coalescer.note_unsent(&self.ctx.peers, peer);
    }

    /// Sends what was added to the log, or leaves it until there is a connection.
    #[inline]
    fn added(&mut self, peer: Peer) {
        let up = match self.ctx.peers.get(peer) {
            Some(remote) => remote.link.is_up(),
            None => return,
        };
        if up {
            self.ctx.flush(peer, StreamNumber::Small);
        } else {
            self.connections
                .want(&mut self.ctx, peer, StreamNumber::Small);
        }
    }

    /// Has the first bytes of a region that is about to be announced leave before they are asked
    /// for, where that is of use: how many.
    fn advance(&mut self, peer: Peer, cookie: u64, data: &Data) -> u64 {
        if data.len <= TCP_EAGER_MAX as u64 || self.connections.is_beside(peer) {
            return 0;
        }
        // Over several ways what is asked for goes where there is room; what is not cannot be moved
        // to another.
        if self.connections.may_have_several_paths(peer) {
            return 0;
        }
        match self.ctx.peers.get_mut(peer) {
            Some(remote) if remote.link.is_up() => remote.paths.advance(cookie, data),
            _ => 0,
        }
    }
}

impl Transport for TcpTransport {
    fn limits(&self) -> TransportLimits {
        TransportLimits {
            inline_max: TCP_INLINE_MAX,
            packet_max: TCP_PACKET_MAX,
            control_max: CONTROL_PAYLOAD_MAX,
            ordered: true,
        }
    }

    fn capabilities(&self, peer: Peer) -> Option<PeerCapabilities> {
        if self.ctx.peers.is_gone(peer) || peer == self.connections.rank() {
            return None;
        }
        Some(PeerCapabilities {
            eager_max: TCP_EAGER_MAX,
            fragmented_max: TCP_FRAGMENTED_MAX,
            can_read: true,
            can_write: false,
            pipeline_chunk: TCP_PACKET_MAX,
            read_chunk: u64::MAX,
        })
    }

    fn claim(
        &mut self,
        peer: Peer,
        len: usize,
        class: PacketClass,
    ) -> Result<PacketBuffer, ClaimError> {
        let remote = self.connections.remote(&mut self.ctx, peer)?;
        if len > TCP_PACKET_MAX || !remote.link.log.has_room(HEADER + len, class) {
            self.connections
                .want(&mut self.ctx, peer, StreamNumber::Small);
            return Err(ClaimError::Full);
        }
        self.ctx.rooms.lend(peer, len).ok_or(ClaimError::Full)
    }

    fn commit(&mut self, room: PacketBuffer, header: &PacketHeader) {
        let Some(block) = self.ctx.rooms.redeem(room.token) else {
            return;
        };
        let len = header.len as usize;
        let Some(remote) = self.ctx.peers.get_mut(room.peer) else {
            return self.ctx.rooms.give(block);
        };
        if len > TCP_PACKED_MAX {
            remote
                .link
                .send_block(self.ctx.rooms.blocks(), (block, len), header);
        } else {
            let payload = (block.mem().offset(BEFORE as isize), len);
            if remote
                .link
                .send_copy(self.ctx.rooms.blocks(), header, payload)
            {
                self.ctx.rooms.give(block);
            } else {
                // No memory for another block: this one serves.
                remote
                    .link
                    .send_block(self.ctx.rooms.blocks(), (block, len), header);
            }
        }
        self.leaves(room.peer, header);
    }

    fn abandon(&mut self, room: PacketBuffer) {
        if let Some(block) = self.ctx.rooms.redeem(room.token) {
            self.ctx.rooms.give(block);
        }
    }

    fn send_inline(
        &mut self,
        peer: Peer,
        header: &PacketHeader,
        bytes: UserMem,
    ) -> Result<(), ClaimError> {
        let remote = self.connections.remote(&mut self.ctx, peer)?;
        let len = header.len as usize;
        if !remote.link.log.has_room(HEADER + len, PacketClass::Data) {
            self.connections
                .want(&mut self.ctx, peer, StreamNumber::Small);
            return Err(ClaimError::Full);
        }
        let Some(remote) = self.ctx.peers.get_mut(peer) else {
            return Err(ClaimError::Gone);
        };
        if !remote
            .link
            .send_copy(self.ctx.rooms.blocks(), header, (bytes, len))
        {
            return Err(ClaimError::Full);
        }
        self.leaves(peer, header);
        Ok(())
    }

    fn poll(&mut self, budget: u32, sink: &mut impl PollSink) -> u32 {
        let mut told = 0;
        self.coalescer.release(&mut self.ctx);
        let mut is_due = true;
        self.pacing.begin();
        if let Some(active) = self.pacing.last_active()
            && self.ctx.ready.is_empty()
            && !self.brings_long(active)
        {
            told = self.take_from((active, StreamKind::Wanted), budget, sink);
            is_due = self.pacing.is_due(told, Instant::now);
        }
        if !self.pacing.has_put_bulk_off()
            && (self.ctx.sockets.must_look() || !self.ctx.ready.is_empty() || is_due)
        {
            self.connections.look(&mut self.ctx, &mut self.pacing);
            told += self.take_from_ready(budget.saturating_sub(told), sink);
        }
        if !self.ctx.notices.is_empty() {
            told += self.ctx.notices.deliver(sink);
        }
        if told == 0 && self.ctx.ready.owes() {
            self.acknowledge_late();
        }
        told.max(self.pacing.take_bulk_left().into())
    }

    fn peer_lost(&mut self, peer: Peer) {
        self.connections.lose(&mut self.ctx, peer);
    }

    fn arm(&mut self) -> u32 {
        let ticket = self.ctx.sockets.wake().word();
        self.coalescer.release(&mut self.ctx);
        self.connections.before_sleep(&mut self.ctx);
        ticket
    }

    fn disarm(&mut self) {}

    fn wake_source(&self) -> Arc<dyn WakeSource> {
        self.ctx.sockets.wake().clone()
    }

    fn wake_peer(&mut self, peer: Peer) {
        if self.connections.remote(&mut self.ctx, peer).is_err() {
            return;
        }
        if let Some(remote) = self.ctx.peers.get_mut(peer) {
            remote
                .link
                .send_word(self.ctx.rooms.blocks(), FrameKind::Ring);
            self.added(peer);
        }
    }
}

impl FastPath for TcpTransport {}

impl FragmentedSends for TcpTransport {
    fn fragmentation(&mut self, peer: Peer, len: usize) -> Fragmentation {
        if len <= TCP_INLINE_MAX || len > TCP_FRAGMENTED_MAX {
            return Fragmentation::None;
        }
        let Some(remote) = self.ctx.peers.get_mut(peer) else {
            return Fragmentation::None;
        };
        if len <= COALESCE_EACH_MAX && self.coalescer.may_wait(remote, len) {
            return Fragmentation::None;
        }
        if !remote.link.is_up() {
            return Fragmentation::None;
        }
        let first = if len <= TCP_PACKED_MAX {
            len
        } else {
            TCP_FIRST_FRAGMENT
        };
        // A block for each long packet, and one in case the first does not fit behind what was sent
        // before.
        if !self
            .ctx
            .rooms
            .blocks()
            .keep(1 + (len - first).div_ceil(TCP_PACKET_MAX))
        {
            return Fragmentation::None;
        }
        match remote.link.log.promise(first, len - first) {
            true => Fragmentation::Fragments(first, TCP_PACKET_MAX),
            false => Fragmentation::Later,
        }
    }

    fn send_fragments(&mut self, pieces: &Fragments, mem: UserMem) -> Result<bool, ClaimError> {
        let peer = pieces.peer;
        if self
            .connections
            .remote(&mut self.ctx, peer)?
            .link
            .log
            .has_unsent()
        {
            self.ctx.flush(peer, StreamNumber::Small);
        }
        let Some(remote) = self.ctx.peers.get_mut(peer) else {
            return Err(ClaimError::Gone);
        };
        let sent = remote
            .link
            .send_pieces(self.ctx.rooms.blocks(), pieces, mem);
        if let (true, Some((head, ..))) = (sent, pieces.packets().next()) {
            self.ctx.priority.small(&head);
            self.coalescer.pass(&mut self.ctx.peers, peer, &head);
            self.depart(peer, &head);
        }
        Ok(sent)
    }
}

impl RemoteMemory for TcpTransport {
    fn expose(&mut self, token: BulkToken, peer: Peer, data: &Data) -> ExposeResult {
        let Some(cookie) = self.ctx.regions.reserve() else {
            return ExposeResult::Unable;
        };
        let ahead = self.advance(peer, cookie, data);
        self.ctx.regions.expose(cookie, token, peer, data.clone());
        let blob = ahead.to_le_bytes();
        match RegionDescriptor::new(cookie, if ahead > 0 { &blob } else { &[] }) {
            Some(descriptor) => ExposeResult::Ready(descriptor),
            None => ExposeResult::Unable,
        }
    }

    fn revoke(&mut self, token: BulkToken) -> BulkStatus {
        if let Some((cookie, peer)) = self.ctx.regions.withdraw(token)
            && let Some(remote) = self.ctx.peers.get_mut(peer)
        {
            let over = remote.paths.revoke(cookie);
            let (lends, numbers) = (remote.paths.lends(cookie), remote.paths.numbers());
            for path in over {
                self.connections
                    .broke(&mut self.ctx, peer, StreamNumber::Bulk(path));
            }
            for path in numbers {
                self.ctx.flush(peer, StreamNumber::Bulk(path));
            }
            if lends {
                self.ctx.recall(peer, cookie, token);
                return BulkStatus::Pending;
            }
        }
        BulkStatus::Done
    }

    fn read(&mut self, bulk: BulkCopy<'_>) -> Result<BulkStatus, Error> {
        let peer = bulk.peer;
        if bulk
            .local_offset
            .checked_add(bulk.len)
            .is_none_or(|end| end > bulk.local.len)
        {
            return Err(Error::Misuse("a read beyond the end of its buffer"));
        }
        let gone = |_| Error::Peer { peer, what: LOST };
        let remote = self.connections.remote(&mut self.ctx, peer).map_err(gone)?;
        if bulk.len == 0 {
            return Ok(BulkStatus::Done);
        }
        let ask = ReadRequest {
            cookie: bulk.descriptor.cookie,
            offset: bulk.offset,
            len: bulk.len,
        };
        let local = (bulk.local.clone(), bulk.local_offset);
        match ahead_of(bulk.descriptor) {
            // Of a read that is shorter than what comes unasked nothing is taken from that.
            Some(ahead) if bulk.offset == 0 && ahead <= bulk.len => {
                self.ctx.read_unasked(peer, (bulk.token, ask, ahead), local);
            }
            _ => remote.paths.read(bulk.token, ask, local),
        }
        self.connections.widen(&mut self.ctx, peer);
        self.ctx.spread(peer);
        Ok(BulkStatus::Pending)
    }

    fn write(&mut self, _bulk: BulkCopy<'_>) -> Result<BulkStatus, Error> {
        Err(Error::Misuse(
            "regions of ranks on other hosts are not written",
        ))
    }
}

impl SharedCopy for TcpTransport {}

impl AsyncProgress for TcpTransport {
    fn yield_to_small(&mut self, yields: bool) {
        self.ctx.priority.yields(yields);
    }
}

impl NodeMemory for TcpTransport {}
