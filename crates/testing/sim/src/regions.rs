//! Memory that simulated ranks expose to each other: what a transport with direct access does, one
//! step of a rank at a time.
//!
//! Owned by the fabric, used by the ranks' transports. Every access has a moment between its
//! permission and its bytes in which any other rank may run, revoke, withdraw or die; a rank that
//! dies there keeps its lease until its death is heard. Bounded by what ranks expose.

use garonne_engine::api::{Error, Peer};
use garonne_engine::transport::{BulkStatus, BulkToken, WithdrawResult};
use garonne_sync::user::Data;
use std::collections::BTreeMap;

/// An exposed region.
#[derive(Debug)]
struct Region {
    owner: Peer,
    token: BulkToken,
    /// Peer that may use the region; its death ends its leases.
    peer: Peer,
    data: Data,
    closed: bool,
    leases: u32,
    /// Bytes taken by the owner from the front and by the peer from the back.
    front: u64,
    back: u64,
    withdrawn: bool,
    /// The peer may write the region unasked.
    ahead: bool,
    /// The owner waits to hear that it is its own again.
    told: bool,
}

/// Lease of a part of a region.
#[derive(Clone, Debug)]
pub(crate) struct RegionLease {
    pub data: Data,
    pub from: u64,
    pub len: u64,
    /// Nothing is left to take.
    pub last: bool,
}

/// Regions of a run.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    by_cookie: BTreeMap<u64, Region>,
    next: u64,
    /// Messages that were begun to be written to data offered ahead.
    pub written: u64,
    /// Writes of which the owner took a part, too.
    pub joined: u64,
}

/// Requested access to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionAccess {
    /// Read of these bytes.
    Bytes(u64, u64),
    /// Up to so many from the back of a message of this length, to write.
    Back(u64, u64),
}

fn revoked(peer: Peer) -> Error {
    Error::Peer {
        peer,
        what: "the region was revoked",
    }
}

impl Regions {
    pub(crate) fn expose(&mut self, owner: Peer, token: BulkToken, peer: Peer, data: &Data) -> u64 {
        self.next += 1;
        let region = Region {
            owner,
            token,
            peer,
            data: data.clone(),
            closed: false,
            leases: 0,
            front: 0,
            back: 0,
            withdrawn: false,
            ahead: false,
            told: false,
        };
        self.by_cookie.insert(self.next, region);
        self.next
    }

    fn own(&mut self, owner: Peer, token: BulkToken) -> Option<(u64, &mut Region)> {
        self.by_cookie
            .iter_mut()
            .find(|(_, region)| (region.owner, region.token) == (owner, token))
            .map(|(cookie, region)| (*cookie, region))
    }

    pub(crate) fn revoke(&mut self, owner: Peer, token: BulkToken) -> BulkStatus {
        let Some((cookie, region)) = self.own(owner, token) else {
            return BulkStatus::Done;
        };
        region.closed = true;
        if region.leases > 0 {
            region.told = true;
            return BulkStatus::Pending;
        }
        self.by_cookie.remove(&cookie);
        BulkStatus::Done
    }

    pub(crate) fn withdraw(&mut self, owner: Peer, token: BulkToken) -> WithdrawResult {
        let Some((cookie, region)) = self.own(owner, token) else {
            return WithdrawResult::Withdrawn;
        };
        if region.back > 0 {
            return WithdrawResult::InUse;
        }
        (region.withdrawn, region.closed, region.token) = (true, true, BulkToken::MAX);
        if region.leases == 0 {
            self.by_cookie.remove(&cookie);
        }
        WithdrawResult::Withdrawn
    }

    /// The owner takes up to `part` bytes from the front of what it shares, of which `all` are to
    /// be filled.
    pub(crate) fn take_front(
        &mut self,
        owner: Peer,
        token: BulkToken,
        all: u64,
        part: u64,
    ) -> Option<(u64, u64)> {
        let (_, region) = self.own(owner, token)?;
        let from = region.front;
        let take = part.min(all - from - region.back);
        region.front += take;
        if take > 0 && std::mem::take(&mut region.ahead) {
            self.joined += 1;
        }
        (take > 0).then_some((from, take))
    }

    /// Takes a lease for `peer`; `Ok(None)`: nothing is left.
    pub(crate) fn lease(
        &mut self,
        user: Peer,
        owner: Peer,
        cookie: u64,
        want: RegionAccess,
    ) -> Result<Option<RegionLease>, Error> {
        let region = self.by_cookie.get_mut(&cookie).ok_or(revoked(owner))?;
        if region.closed || (region.owner, region.peer) != (owner, user) {
            return Err(revoked(owner));
        }
        let (from, len, last) = match want {
            RegionAccess::Bytes(from, len) => (from, len, true),
            RegionAccess::Back(all, part) => {
                let left = all.saturating_sub(region.front + region.back);
                let take = part.min(left);
                if take == 0 || region.withdrawn {
                    return Ok(None);
                }
                region.back += take;
                (all - region.back, take, take == left)
            }
        };
        region.leases += 1;
        let data = region.data.clone();
        Ok(Some(RegionLease {
            data,
            from,
            len,
            last,
        }))
    }

    /// A peer began to write data that was offered ahead.
    pub(crate) fn begun(&mut self, cookie: u64) {
        self.written += 1;
        if let Some(region) = self.by_cookie.get_mut(&cookie) {
            region.ahead = true;
        }
    }

    /// Returns whether the memory of a lease is still there: its owner may have died.
    pub(crate) fn is_there(&self, cookie: u64) -> bool {
        self.by_cookie.contains_key(&cookie)
    }

    /// Gives a lease back. The owner, if it waits for this.
    pub(crate) fn give_back(&mut self, cookie: u64) -> Option<Peer> {
        let region = self.by_cookie.get_mut(&cookie)?;
        region.leases -= 1;
        let owner = region.owner;
        if region.leases > 0 || !region.closed {
            return None;
        }
        if region.told {
            return Some(owner);
        }
        self.by_cookie.remove(&cookie);
        None
    }

    /// Regions of `owner` that it waited for and that nobody uses any more.
    pub(crate) fn drained(&mut self, owner: Peer) -> Vec<BulkToken> {
        let over = |region: &Region| region.owner == owner && region.told && region.leases == 0;
        let tokens = self
            .by_cookie
            .values()
            .filter(|region| over(region))
            .map(|region| region.token)
            .collect();
        self.by_cookie.retain(|_, region| !over(region));
        tokens
    }

    /// `owner` heard that `peer` is dead: its leases are over.
    pub(crate) fn peer_gone(&mut self, owner: Peer, peer: Peer) {
        for region in self.by_cookie.values_mut() {
            if (region.owner, region.peer) == (owner, peer) {
                region.leases = 0;
                region.closed = true;
            }
        }
        self.by_cookie.retain(|_, region| {
            (region.owner, region.peer) != (owner, peer)
                || region.told
                || region.token != BulkToken::MAX
        });
    }

    /// A process died, and its memory with it.
    pub(crate) fn died(&mut self, owner: Peer) {
        self.by_cookie.retain(|_, region| region.owner != owner);
    }
}
