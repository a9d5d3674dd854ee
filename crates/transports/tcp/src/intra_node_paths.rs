//! Large data between ranks of one host that use a connection beside shared memory: who copies, and
//! what becomes of a connection that fails.
//!
//! Part of [`TcpTransport`]; called by the transport that has both (`multi`). The paths of such a
//! pair have one more way, the memory, which is there always; so that nobody takes a call, or that
//! the other side breaks the format, ends the connection and nothing else, and it is tried again as
//! long as there is something to read.

use crate::connector::ConnectFailure;
use crate::frame::{MEMORY, ReadRequest, StreamNumber};
use crate::{LOST, TcpTransport};
use garonne_engine::api::{Error, Peer};
use garonne_engine::transport::{BulkStatus, BulkTransfer, RegionDescriptor};
use garonne_sync::user::Data;
use std::time::Instant;

/// Something that is to be copied from a peer's memory.
#[derive(Debug)]
pub struct PendingReads {
    /// The peer whose memory it is.
    pub peer: Peer,
    /// The right to that memory.
    pub region: RegionDescriptor,
    /// The first byte there.
    pub offset: u64,
    /// Where it goes, from which byte on.
    pub local: (Data, u64),
    /// Bytes to copy.
    pub len: u64,
}

impl TcpTransport {
    /// Peers, by index, whose memory this rank reaches, and to whom only large data go by this
    /// transport.
    pub fn set_beside(&mut self, beside: Vec<bool>) {
        self.beside = beside;
    }

    /// Returns whether the transport is one of two to this peer.
    pub(super) fn is_beside(&self, peer: Peer) -> bool {
        self.beside.get(peer as usize).copied().unwrap_or(false)
    }

    /// Reads a region of such a peer: what `memory` names is the same as what the read names.
    pub fn read_beside(
        &mut self,
        bulk: &BulkTransfer<'_>,
        memory: RegionDescriptor,
    ) -> Result<BulkStatus, Error> {
        let peer = bulk.peer;
        let gone = |_| Error::Peer { peer, what: LOST };
        let remote = self.remote(peer).map_err(gone)?;
        let ask = ReadRequest {
            cookie: bulk.descriptor.cookie,
            offset: bulk.offset,
            len: bulk.len,
        };
        let local = (bulk.local.clone(), bulk.local_offset);
        remote.paths.read_by_both((bulk.token, ask), memory, local);
        let is_much = remote.paths.is_much();
        if !self.copying.contains(&peer) {
            self.copying.push_back(peer);
            self.shown.opened_once(peer, StreamNumber::Bulk(MEMORY));
        }
        if is_much {
            self.want(peer, StreamNumber::Bulk(0));
        }
        self.spread(peer);
        Ok(BulkStatus::Pending)
    }

    /// Returns whether anything is read from such peers.
    pub fn reads_beside(&self) -> bool {
        !self.copying.is_empty()
    }

    /// Returns what is to be copied next; peers take turns.
    pub fn next_copy(&mut self) -> Option<PendingReads> {
        for _ in 0..self.copying.len() {
            let peer = self.copying.pop_front()?;
            let remote = self.remotes.get(peer as usize).and_then(Option::as_ref);
            let Some(remote) = remote.filter(|remote| remote.paths.is_wanted()) else {
                continue;
            };
            self.copying.push_back(peer);
            if let Some((region, offset, local, len)) = remote.paths.next_copy() {
                return Some(PendingReads {
                    peer,
                    region,
                    offset,
                    local,
                    len,
                });
            }
        }
        None
    }

    /// Records how many bytes of the last [`TcpTransport::next_copy`] of this peer were copied, or
    /// that they cannot be.
    pub fn copied(&mut self, peer: Peer, result: Result<u64, Error>) {
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        match result {
            Ok(len) => {
                if let Some(ended) = remote.paths.copied(len) {
                    self.tell_of(peer, ended);
                }
            }
            Err(error) => {
                let token = remote.paths.fail_copy();
                self.done.extend(token.map(|token| (token, Err(error))));
            }
        }
        self.show_ways(peer);
        self.spread(peer);
    }

    fn show_ways(&mut self, peer: Peer) {
        let Some(Some(remote)) = self.remotes.get(peer as usize) else {
            return;
        };
        for path in [0, MEMORY] {
            self.shown
                .moved(peer, StreamNumber::Bulk(path), remote.paths.brought(path));
        }
    }

    /// Returns whether a call to such a peer is of no use any more: nothing is read from it.
    pub(super) fn is_idle_beside(&self, peer: Peer, stream: StreamNumber) -> bool {
        let remote = self.remotes.get(peer as usize).and_then(Option::as_ref);
        self.is_beside(peer) && remote.is_none_or(|remote| !remote.is_wanted(stream))
    }

    /// The connections with such a peer are of no use: they end, and the next read tries again.
    pub(super) fn part(&mut self, peer: Peer) {
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        remote.link.cut();
        remote.paths.cut(0);
        let now = Instant::now();
        for stream in [StreamNumber::Small, StreamNumber::Bulk(0)] {
            self.shown.closed(peer, stream);
        }
        self.failed_further(peer, StreamNumber::Bulk(0), &ConnectFailure::Cut, now);
        self.spread(peer);
    }
}
