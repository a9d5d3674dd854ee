//! The eager prefix of large data on a pair with a single path: what leaves, and comes, before
//! anybody asks for it.
//!
//! Part of [`Multipath`]; the bytes are `bulk::eager_prefix`'s.

use super::{Multipath, ReadResult};
use crate::bulk::eager_prefix::PrefixTarget;
use crate::bulk::{BulkConnection, RequestedRange};
use crate::frame::ReadRequest;
use garonne_engine::transport::BulkToken;
use garonne_sync::user::Data;

impl Multipath {
    /// Starts a read of which `ahead` bytes come unasked, as the region's announcement says. How it
    /// ended, if all of it is here.
    pub(crate) fn read_advanced(
        &mut self,
        (token, ask, ahead): (BulkToken, ReadRequest, u64),
        local: (Data, u64),
    ) -> Option<ReadResult> {
        let first = ReadRequest { len: ahead, ..ask };
        let piece = RequestedRange {
            whole: self.next_key,
            at: 0,
            len: ahead,
        };
        self.read(token, ask, local.clone());
        let bound = match self.at(0).bulk.socket_mut() {
            Some(bulk) => bulk.bind(piece, first, local),
            None => PrefixTarget::No,
        };
        let whole = self
            .wholes
            .last_mut()
            .filter(|_| bound != PrefixTarget::No)?;
        whole.left = vec![(ahead, ask.len - ahead)];
        whole.left.retain(|(_, len)| *len > 0);
        whole.asked = 1;
        (bound == PrefixTarget::Here)
            .then(|| self.ended(0, piece, false))
            .flatten()
    }

    /// Has the first bytes of a region leave before anybody asks for them, where the pair has one
    /// way: how many.
    pub(crate) fn advance(&mut self, cookie: u64, data: &Data) -> u64 {
        let bulk = match &mut self.paths[..] {
            [only] if !self.several => only.bulk.socket_mut(),
            _ => None,
        };
        bulk.map_or(0, |bulk| bulk.advance(cookie, data))
    }

    /// Returns whether something of that has not been tried to send; it has after this.
    pub(crate) fn takes_advance(&mut self) -> bool {
        let first = self
            .paths
            .first_mut()
            .and_then(|path| path.bulk.socket_mut());
        first.is_some_and(BulkConnection::takes_advance)
    }

    /// Sockets tell of whatever there is.
    pub(crate) fn hurry(&mut self) {
        let sockets = self
            .paths
            .iter_mut()
            .filter_map(|path| path.bulk.socket_mut());
        sockets.for_each(BulkConnection::hurry);
    }
}
