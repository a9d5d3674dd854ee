//! Memory that a rank exposed to peers: what each may read, and what a device still holds of it
//! after its owner wanted it back.
//!
//! Owned by the transport. A request of a peer finds its region by cookie. Bounded by
//! [`TCP_REGIONS`].

use crate::frame::ReadRequest;
use crate::notices::PendingNotices;
use garonne_engine::api::Peer;
use garonne_engine::transport::BulkToken;
use garonne_sync::user::Data;
use garonne_transport::limits::TCP_REGIONS;
use std::collections::HashMap;

/// Memory that one peer may read.
#[derive(Debug)]
struct ExposedData {
    token: BulkToken,
    peer: Peer,
    data: Data,
}

/// A region that is to be withdrawn and of which something is lent to a device.
#[derive(Debug)]
struct RecalledRegion {
    peer: Peer,
    cookie: u64,
    token: BulkToken,
}

/// Regions of a rank's memory that peers may read.
///
/// Owned by the transport. The owner of a region takes a cookie with [`ExposedRegions::reserve`],
/// exposes data under it with [`ExposedRegions::expose`], and withdraws it with
/// [`ExposedRegions::withdraw`]. Where a device holds some of it, [`ExposedRegions::recall`]
/// follows, and [`ExposedRegions::settle`] tells when nothing is held any more.
#[derive(Debug)]
pub(crate) struct ExposedRegions {
    by_cookie: HashMap<u64, ExposedData>,
    next_cookie: u64,
    recalled: Vec<RecalledRegion>,
}

impl Default for ExposedRegions {
    fn default() -> Self {
        Self {
            by_cookie: HashMap::new(),
            next_cookie: 1,
            recalled: Vec::new(),
        }
    }
}

impl ExposedRegions {
    /// Returns the cookie of the next region; `None`: there are too many.
    pub(crate) fn reserve(&mut self) -> Option<u64> {
        if self.by_cookie.len() >= TCP_REGIONS {
            return None;
        }
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        Some(cookie)
    }

    /// Lets a peer read data under a cookie that was reserved.
    pub(crate) fn expose(&mut self, cookie: u64, token: BulkToken, peer: Peer, data: Data) {
        self.by_cookie
            .insert(cookie, ExposedData { token, peer, data });
    }

    /// Returns the data that a peer asks for, if it is its own and the range lies within.
    pub(crate) fn requested(&self, peer: Peer, ask: &ReadRequest) -> Option<&Data> {
        let region = self.by_cookie.get(&ask.cookie)?;
        let end = ask.offset.checked_add(ask.len)?;
        let is_allowed = region.peer == peer && ask.len > 0 && end <= region.data.len;
        is_allowed.then_some(&region.data)
    }

    /// Ends a region. Returns its cookie and its peer, if there is such a region.
    pub(crate) fn withdraw(&mut self, token: BulkToken) -> Option<(u64, Peer)> {
        let mut regions = self.by_cookie.iter();
        let (cookie, region) = regions.find(|(_, region)| region.token == token)?;
        let found = (*cookie, region.peer);
        self.by_cookie.remove(&found.0);
        Some(found)
    }

    /// Notes that the owner of a withdrawn region waits for what a device holds of it.
    pub(crate) fn recall(&mut self, peer: Peer, cookie: u64, token: BulkToken) {
        self.recalled.push(RecalledRegion {
            peer,
            cookie,
            token,
        });
    }

    /// Returns whether a device holds something that its owner wants back.
    #[inline]
    pub(crate) fn has_recalled(&self) -> bool {
        !self.recalled.is_empty()
    }

    /// Tells of recalled regions of which nothing is held any more; `lends` says what is.
    pub(crate) fn settle(
        &mut self,
        notices: &mut PendingNotices,
        lends: impl Fn(Peer, u64) -> bool,
    ) {
        self.recalled.retain(|region| {
            let lends = lends(region.peer, region.cookie);
            if !lends {
                notices.revoked(region.token);
            }
            lends
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_read_by_its_peer_alone_and_within_its_bounds() {
        let mut regions = ExposedRegions::default();
        let cookie = regions.reserve().unwrap();
        let data = Data {
            len: 100,
            ..Data::empty()
        };
        regions.expose(cookie, 7, 1, data);
        let ask = |cookie, offset, len| ReadRequest {
            cookie,
            offset,
            len,
        };
        assert!(regions.requested(1, &ask(cookie, 0, 100)).is_some());
        for (peer, ask) in [
            (2, ask(cookie, 0, 100)),
            (1, ask(cookie + 1, 0, 100)),
            (1, ask(cookie, 0, 0)),
            (1, ask(cookie, 1, 100)),
            (1, ask(cookie, u64::MAX, 2)),
        ] {
            assert!(regions.requested(peer, &ask).is_none(), "{peer} {ask:?}");
        }
        assert_eq!(regions.withdraw(7), Some((cookie, 1)));
        assert_eq!(regions.withdraw(7), None);
        assert!(regions.requested(1, &ask(cookie, 0, 100)).is_none());
    }
}
