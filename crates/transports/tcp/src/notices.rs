//! Notices that the engine is still to be given: reads that ended, peers that are gone, regions
//! that were withdrawn.
//!
//! Owned by the transport. Whatever finds such an end notes it here, and the next poll delivers it.

use garonne_engine::api::{Error, Peer};
use garonne_engine::transport::{BulkToken, PollSink};

/// Something that the engine is still to be told, but for reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingNotice {
    /// A peer counts as gone, and why.
    Gone(Peer, &'static str),
    /// A peer has left in good order.
    Left(Peer),
    /// A region that was to be withdrawn is.
    Revoked(BulkToken),
}

/// Notices for the engine, in the order in which they came up.
///
/// Owned by the transport. [`PendingNotices::deliver`] empties it: reads first, since an engine
/// that hears of a peer's end waits for no read of it any more.
#[derive(Debug, Default)]
pub(crate) struct PendingNotices {
    reads: Vec<(BulkToken, Result<(), Error>)>,
    others: Vec<PendingNotice>,
}

impl PendingNotices {
    /// Notes that a read ended.
    pub(crate) fn read_ended(&mut self, token: BulkToken, result: Result<(), Error>) {
        self.reads.push((token, result));
    }

    /// Notes that reads of a peer ended, since the peer is as described.
    pub(crate) fn reads_failed(&mut self, peer: Peer, reads: Vec<BulkToken>, what: &'static str) {
        let failed = |token| (token, Err(Error::Peer { peer, what }));
        self.reads.extend(reads.into_iter().map(failed));
    }

    /// Notes that a peer counts as gone, and why.
    pub(crate) fn peer_gone(&mut self, peer: Peer, why: &'static str) {
        self.others.push(PendingNotice::Gone(peer, why));
    }

    /// Notes that a peer has left in good order.
    pub(crate) fn peer_left(&mut self, peer: Peer) {
        self.others.push(PendingNotice::Left(peer));
    }

    /// Notes that a region which was to be withdrawn is.
    pub(crate) fn revoked(&mut self, token: BulkToken) {
        self.others.push(PendingNotice::Revoked(token));
    }

    /// Returns the number of reads whose end was noted.
    #[inline]
    pub(crate) fn reads(&self) -> usize {
        self.reads.len()
    }

    /// Returns whether there is nothing to tell.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.others.is_empty()
    }

    /// Gives all notices to the engine. Returns their number.
    pub(crate) fn deliver(&mut self, sink: &mut impl PollSink) -> u32 {
        let mut told = 0;
        for (token, result) in self.reads.drain(..) {
            sink.on_bulk_done(token, result);
            told += 1;
        }
        for notice in self.others.drain(..) {
            match notice {
                PendingNotice::Gone(peer, why) => sink.on_peer_lost(peer, why),
                PendingNotice::Left(peer) => sink.on_peer_left(peer),
                PendingNotice::Revoked(token) => sink.on_revoked(token),
            }
            told += 1;
        }
        told
    }
}
