//! The beginning of large data, which leaves before anybody asks for it.
//!
//! Part of [`BulkConnection`]. Who announces a region has its first bytes follow at once, on the
//! connection on which they would be asked for; the announcement says how many. So nobody waits for
//! a request, and who computes finds them in its system when it looks. A read that begins takes
//! them to where they belong, whether they are there or still to come. What comes before its read
//! waits in the socket for some looks, since its announcement may be on its way, and then in a
//! block of the rank's [`PrefixBuffer`]; where there is none it is dropped and asked for as ever,
//! and its sender is told, which sends nothing unasked for a while. Bounded by one region of each
//! side of a pair at a time, [`EAGER_PREFIX_MAX`] bytes of it, and [`EAGER_PREFIXES_KEPT`] blocks
//! of a rank.

use super::{BulkConnection, BulkEvent, BulkRead, DataOrigin, RequestedRange, SendState, stage};
use crate::frame::{ASK, FrameKind, ReadRequest, UNASKED};
use crate::replay_log::AckViolation;
use garonne_sync::user::{Data, Packed, Scratch, UserMem};
use garonne_transport::limits::{
    EAGER_PREFIX_MAX, EAGER_PREFIX_SKIPS, EAGER_PREFIX_SKIPS_MAX, EAGER_PREFIXES_KEPT,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number under which the beginning of this region comes.
fn number_of(cookie: u64) -> u32 {
    UNASKED | cookie as u32
}

/// Parts of this side's memory that leave unasked.
#[derive(Debug, Default)]
pub(super) struct EagerPrefixes {
    /// The region of which something leaves, until it is revoked or the connection is another.
    out: Option<u64>,
    /// The last region of which something ever left; 0: none.
    last: u64,
    /// The other side had no place for it.
    unkept: bool,
    /// Regions that wait to be asked for, since the other side had no place.
    passes: u32,
    /// And how many after it says so again.
    penalty: u32,
    /// Something of it has not been tried to send.
    fresh: bool,
}

/// Result of a read's search among what was sent unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrefixTarget {
    /// Nothing: all is to be asked for.
    No,
    /// The data are coming.
    Coming,
    /// The data are there.
    Here,
}

/// Blocks of a rank for what comes before it is read.
#[derive(Debug)]
pub(crate) struct PrefixBuffer(Mutex<PrefixPool>);

#[derive(Debug)]
struct PrefixPool {
    free: Vec<Scratch>,
    /// Blocks that may still be made.
    left: usize,
}

impl Default for PrefixBuffer {
    fn default() -> Self {
        Self(Mutex::new(PrefixPool {
            free: Vec::new(),
            left: EAGER_PREFIXES_KEPT,
        }))
    }
}

impl PrefixBuffer {
    fn pool(&self) -> MutexGuard<'_, PrefixPool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of [`EAGER_PREFIX_MAX`] bytes, if there is one.
    pub(crate) fn take(self: &Arc<Self>) -> Option<ReceivedPrefix> {
        let mut pool = self.pool();
        let block = match pool.free.pop() {
            Some(block) => block,
            None => {
                pool.left = pool.left.checked_sub(1)?;
                let made = Scratch::new(EAGER_PREFIX_MAX as usize);
                if made.is_none() {
                    pool.left += 1;
                }
                made?
            }
        };
        Some(ReceivedPrefix(Some(block), self.clone()))
    }
}

/// A block of a [`PrefixBuffer`], which goes back there.
#[derive(Debug)]
pub(crate) struct ReceivedPrefix(Option<Scratch>, Arc<PrefixBuffer>);

impl ReceivedPrefix {
    pub(super) fn mem(&self) -> UserMem {
        self.0.as_ref().map_or_else(UserMem::null, Scratch::mem)
    }
}

impl Drop for ReceivedPrefix {
    fn drop(&mut self) {
        self.1.pool().free.extend(self.0.take());
    }
}

impl BulkConnection {
    // The side whose memory it is.

    /// Has the first bytes of a region that is about to be announced leave unasked, if that can be:
    /// how many, or 0.
    pub(crate) fn advance(&mut self, cookie: u64, data: &Data) -> u64 {
        if self.channel.is_none() || self.advances.out.is_some() || self.has_to_send() {
            return 0;
        }
        if self.advances.passes > 0 {
            self.advances.passes -= 1;
            return 0;
        }
        let len = data.len.min(EAGER_PREFIX_MAX);
        (self.advances.out, self.advances.last) = (Some(cookie), cookie);
        self.advances.unkept = false;
        let ask = self.stage_advance(cookie, len);
        self.serve(number_of(cookie), &ask, data.clone());
        self.advances.fresh = true;
        len
    }

    /// Says that so many first bytes of a region come, or, of 0, that none of it and of those
    /// before it do.
    fn stage_advance(&mut self, cookie: u64, len: u64) -> ReadRequest {
        let ask = ReadRequest {
            cookie,
            offset: 0,
            len,
        };
        stage(
            &mut self.next,
            FrameKind::Advance,
            number_of(cookie),
            ASK as u32,
        );
        self.next.extend_from_slice(&ask.encode());
        ask
    }

    /// Has what was to leave unasked be asked for, since the connection is another. Sent again,
    /// on connections that break soon it would take all they carry. The other side is told on each
    /// connection, since nobody knows whether it heard of it on a former one.
    pub(super) fn end_advance(&mut self) {
        self.advances.out = None;
        if self.advances.last > 0 {
            self.stage_advance(self.advances.last, 0);
        }
    }

    /// Returns whether something of it has not been tried to send; it has after this.
    pub(crate) fn takes_advance(&mut self) -> bool {
        std::mem::take(&mut self.advances.fresh)
    }

    /// Lets nothing of this region leave unasked any more.
    pub(super) fn revoke_advance(&mut self, cookie: u64) {
        if self.advances.out.take_if(|out| *out == cookie).is_some() && !self.advances.unkept {
            self.advances.penalty = 0;
        }
    }

    /// The other side had no place for it.
    pub(super) fn was_unkept(&mut self) {
        let advances = &mut self.advances;
        advances.unkept = true;
        advances.penalty = (2 * advances.penalty).clamp(EAGER_PREFIX_SKIPS, EAGER_PREFIX_SKIPS_MAX);
        advances.passes = advances.penalty;
    }

    /// Requests of the other side that wait here.
    pub(super) fn asks_waiting(&self) -> usize {
        self.serving
            .iter()
            .filter(|serve| serve.number & UNASKED == 0)
            .count()
    }

    // The side that reads it.

    /// The beginning of a region comes unasked, or does not after all. What was to come so and has
    /// to be asked for is told.
    pub(super) fn advanced(
        &mut self,
        number: u32,
        ask: ReadRequest,
    ) -> Result<Option<BulkEvent>, AckViolation> {
        let sane = number == number_of(ask.cookie) && ask.offset == 0;
        if !sane || ask.len > EAGER_PREFIX_MAX {
            return Err(AckViolation);
        }
        if ask.len == 0 {
            self.latest = self.latest.max(ask.cookie);
            let never_comes = |read: &mut BulkRead| {
                read.origin == DataOrigin::Unasked(false) && read.ask.cookie <= ask.cookie
            };
            // What was given up is asked for already.
            let unsent = self
                .reads
                .extract_if(.., never_comes)
                .filter(BulkRead::is_wanted);
            return Ok(Some(BulkEvent::Unsent(
                unsent.map(|read| read.rest()).collect(),
            )));
        }
        // Its sender has withdrawn the former one, all of which came.
        if self
            .reads
            .iter()
            .any(|read| read.origin == DataOrigin::Unasked(true) && read.done < read.ask.len)
        {
            return Err(AckViolation);
        }
        self.reads
            .retain(|read| read.origin != DataOrigin::Unasked(true));
        if let Some(read) = self.reads.iter_mut().find(|read| read.number == number) {
            read.origin = DataOrigin::Unasked(true);
            self.latest = ask.cookie;
            return if read.ask == ask {
                Ok(None)
            } else {
                Err(AckViolation)
            };
        }
        self.latest = ask.cookie;
        // Its read may have begun when the connection was not known here, and have asked for it.
        let is_read = |read: &BulkRead| read.ask.cookie == ask.cookie;
        let goes = if self.reads.iter().any(is_read) {
            SendState::Nowhere
        } else {
            SendState::Parked(0)
        };
        self.reads.push(BulkRead {
            number,
            piece: RequestedRange::default(),
            ask,
            goes,
            done: 0,
            origin: DataOrigin::Unasked(true),
        });
        Ok(None)
    }

    /// A read begins whose first bytes its sender sends unasked: `ask` names them. If anything is
    /// found of them, they go to `local`, which is valid until it is told of or given back.
    pub(crate) fn bind(
        &mut self,
        piece: RequestedRange,
        ask: ReadRequest,
        local: (Data, u64),
    ) -> PrefixTarget {
        if self.channel.is_none() {
            return PrefixTarget::No;
        }
        let number = number_of(ask.cookie);
        let Some(at) = self.reads.iter().position(|read| read.number == number) else {
            // They come in the order of their cookies: this one was withdrawn.
            if ask.cookie <= self.latest {
                return PrefixTarget::No;
            }
            self.reads.push(BulkRead {
                number,
                piece,
                ask,
                goes: SendState::To(local.0, local.1),
                done: 0,
                origin: DataOrigin::Unasked(false),
            });
            return PrefixTarget::Coming;
        };
        let read = &mut self.reads[at];
        if read.ask != ask {
            return PrefixTarget::No;
        }
        match &read.goes {
            SendState::Parked(_) => {}
            SendState::Kept(kept) => {
                let (data, from) = &local;
                if data.layout.is_none() {
                    data.mem
                        .copy_from(*from as isize, kept.mem(), 0, read.done as usize);
                } else {
                    data.unpack_from(*from, Packed::new(kept.mem(), read.done as usize));
                }
            }
            SendState::To(..) | SendState::Nowhere => return PrefixTarget::No,
        }
        if read.done == read.ask.len {
            self.reads.remove(at);
            return PrefixTarget::Here;
        }
        (read.piece, read.goes) = (piece, SendState::To(local.0, local.1));
        PrefixTarget::Coming
    }

    /// Keeps what came of this number, for which there is no read; without a block it is
    /// dropped.
    pub(crate) fn keep(&mut self, number: u32, block: Option<ReceivedPrefix>) {
        if block.is_none() {
            stage(&mut self.next, FrameKind::Unkept, number, 0);
        }
        let waits = |read: &&mut BulkRead| {
            read.number == number && matches!(read.goes, SendState::Parked(_))
        };
        if let Some(read) = self.reads.iter_mut().find(waits) {
            read.goes = block.map_or(SendState::Nowhere, SendState::Kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameHeader, HEAD};
    use crate::hostile::HostilePeer;

    #[test]
    fn that_nothing_comes_unasked_is_told_on_each_connection_since_the_former_may_have_broken_before()
     {
        let mut bulk = BulkConnection::default();
        let memory = Scratch::new(100).unwrap();
        let data = Data::contiguous(memory.mem(), 100);
        let (channel, _first) = HostilePeer::new();
        bulk.adopt(channel);
        assert_eq!(bulk.advance(3, &data), 100);
        for _ in 0..3 {
            let (channel, other) = HostilePeer::new();
            bulk.adopt(channel);
            bulk.flush(usize::MAX);
            let head = FrameHeader {
                kind: FrameKind::Advance,
                number: number_of(3),
                len: ASK as u32,
                expected: 0,
            };
            let (cookie, offset, len) = (3, 0, 0);
            let word = [
                &head.encode()[..],
                &ReadRequest {
                    cookie,
                    offset,
                    len,
                }
                .encode(),
            ]
            .concat();
            assert_eq!(other.hears(), word);
        }
    }

    #[test]
    fn what_was_given_up_is_not_told_again_when_it_does_not_come_unasked() {
        let (mut bulk, (channel, other)) = (BulkConnection::default(), HostilePeer::new());
        bulk.adopt(channel);
        let memory = Scratch::new(100).unwrap();
        let local = (Data::contiguous(memory.mem(), 100), 0);
        let (whole, at, len) = (7, 0, 100);
        let (piece, cookie, offset) = (RequestedRange { whole, at, len }, 3, 0);
        assert_eq!(
            bulk.bind(
                piece,
                ReadRequest {
                    cookie,
                    offset,
                    len
                },
                local
            ),
            PrefixTarget::Coming
        );
        assert_eq!(bulk.give_up(), [piece]);
        let head = FrameHeader {
            kind: FrameKind::Advance,
            number: number_of(cookie),
            len: ASK as u32,
            expected: 0,
        };
        let (offset, len) = (0, 0);
        other.says(
            &[
                &head.encode()[..],
                &ReadRequest {
                    cookie,
                    offset,
                    len,
                }
                .encode(),
            ]
            .concat(),
        );
        let told: Vec<_> = (0..4)
            .filter_map(|_| bulk.fill(HEAD + ASK).unwrap().1)
            .collect();
        assert_eq!(told, [BulkEvent::Unsent(Vec::new())]);
        assert!(bulk.reads.is_empty());
    }
}
