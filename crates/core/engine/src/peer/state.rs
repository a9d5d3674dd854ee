//! State of the engine towards one peer engine: credits in both directions, and the sender's
//! window.
//!
//! Owned by the core; opened when the peer is first spoken to or heard of. Bounded by the peers
//! spoken to and the contexts used with them.

use crate::api::{Error, Peer};
use crate::fast::send_channel::RUN_PAYLOAD_MAX;
use crate::peer::credits::CreditQuotas;
use crate::protocol::fragments::FragmentedMessage;
use crate::protocol::remote_window::RemoteWindow;
use crate::schedule::plan::CachedPlan;
use crate::transport::PeerCapabilities;
use garonne_sync::slot_batch::SlotBatch;
use std::mem::offset_of;
use std::sync::Arc;

/// Error text for a lost peer whose end gave no other reason.
pub(crate) const GONE: &str = "it died or cut the connection";
/// Cause of a loss, where a process of another world has left in good order.
pub(crate) const DISCONNECTED: &str = "it has disconnected";

/// Snapshot of the words of a peer state that say how much was sent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CreditWords {
    gone: bool,
    envelopes: u32,
    payload: u64,
    pub batched: u32,
    returned_envelopes: u64,
    returned_payload: u64,
    announced: u64,
    owed_envelopes: u32,
    outstanding: u32,
}

/// Offsets of the words of [`CreditWords`] in a peer state, in the same order.
pub(crate) const PLACES: [usize; 9] = [
    offset_of!(PeerState, gone),
    offset_of!(PeerState, envelopes),
    offset_of!(PeerState, payload),
    offset_of!(PeerState, batched),
    offset_of!(PeerState, returned_envelopes),
    offset_of!(PeerState, returned_payload),
    offset_of!(PeerState, announced),
    offset_of!(PeerState, owed_envelopes),
    offset_of!(PeerState, outstanding),
];

impl CreditWords {
    /// Reads it from the bytes of a peer state in another process, where its words lie at `places`.
    pub fn of(bytes: &[u8], places: &[u64]) -> Option<Self> {
        let long = |word: usize| {
            let at = usize::try_from(*places.get(word)?).ok()?;
            Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
        };
        let short = |word: usize| {
            let at = usize::try_from(*places.get(word)?).ok()?;
            Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
        };
        let gone = *bytes.get(usize::try_from(*places.first()?).ok()?)?;
        Some(Self {
            gone: gone != 0,
            envelopes: short(1)?,
            payload: long(2)?,
            batched: short(3)?,
            returned_envelopes: long(4)?,
            returned_payload: long(5)?,
            announced: long(6)?,
            owed_envelopes: short(7)?,
            outstanding: short(8)?,
        })
    }

    /// Messages and bytes sent, where of the slot batch that is open so many records and bytes are
    /// used.
    pub fn sent(&self, used: (u32, u64), quotas: &CreditQuotas) -> (u64, u64) {
        if self.gone {
            return (0, 0);
        }
        let (envelopes, payload) = self.unused(used);
        let envelopes = self
            .envelopes
            .saturating_add(envelopes)
            .min(quotas.envelopes);
        let payload = self.payload.saturating_add(payload).min(quotas.payload);
        (
            self.returned_envelopes
                .wrapping_add(u64::from(quotas.envelopes - envelopes)),
            self.returned_payload
                .wrapping_add(self.announced)
                .wrapping_add(quotas.payload - payload),
        )
    }

    /// Returns the credits of the slot batch that it did not use.
    fn unused(&self, (records, bytes): (u32, u64)) -> (u32, u64) {
        let payload = u64::from(self.batched) * RUN_PAYLOAD_MAX as u64;
        match self.batched {
            0 => (0, 0),
            granted => (
                granted.saturating_sub(records),
                payload.saturating_sub(bytes),
            ),
        }
    }

    /// Changes with messages that are received.
    pub fn received(&self) -> u64 {
        u64::from(self.owed_envelopes) + u64::from(self.outstanding)
    }
}

/// State of the engine towards one peer: capabilities, credits in both directions, and windows.
///
/// Owned by the core, which opens it at the first contact and keeps it for the engine's life.
#[derive(Debug)]
pub(crate) struct PeerState {
    pub peer: Peer,
    pub capabilities: PeerCapabilities,
    /// Credits that each side grants to the other.
    pub quotas: CreditQuotas,
    pub gone: bool,
    /// Why it is, then.
    pub cause: Option<Box<Error>>,
    /// Envelopes and payload that may still be sent.
    pub envelopes: u32,
    pub payload: u64,
    /// The transport's fast path to the peer, once it was asked for, and the records it was opened
    /// for: their envelopes, and as much payload as they can carry, are not counted above until
    /// [`PeerState::close_batch`].
    pub batch: Option<Arc<SlotBatch>>,
    batched: u32,
    /// Sends in the window.
    pub window_len: u32,
    /// Messages that overtook the oldest of the window.
    pub overtaken: u32,
    /// The plan of a strategy that was loaded, for as long as nothing moves.
    pub cached_plan: Option<Box<CachedPlan>>,
    /// Changes when an envelope joins a window that a query found without a match.
    pub epoch: u32,
    /// A probe in this epoch was answered with a miss.
    pub probe_missed: bool,
    /// The peer was told that envelopes are held.
    pub blocked_told: bool,
    /// Credits to return.
    pub owed_envelopes: u32,
    pub owed_payload: u64,
    /// Envelopes of the peer that count against its quota, to find one that overdraws.
    pub outstanding: u32,
    /// Payload bytes in those that no receive took: with the bytes that are owed, or wait to leave,
    /// they count against its quota. What is received at once is never among them.
    unreceived: u64,
    /// Payload bytes whose credit waits to leave.
    returning: u64,
    /// Credits that came back so far, and bytes announced: with what is left of the quotas they
    /// tell what was sent, without a count on the way of each message.
    pub returned_envelopes: u64,
    pub returned_payload: u64,
    pub announced: u64,
    pub remote_window: RemoteWindow,
    /// The message of the peer that is coming in, in fragments.
    pub fragmented: Option<FragmentedMessage>,
}

impl PeerState {
    /// Returns whether the peer is gone, and not in good order: who leaves so has done its part in
    /// the collectives of others.
    pub(crate) fn was_lost(&self) -> bool {
        let has_left = matches!(self.cause.as_deref(), Some(Error::Peer { what, .. }) if *what == DISCONNECTED);
        self.gone && !has_left
    }

    /// Returns the error for operations with a peer that is gone.
    #[cold]
    pub(crate) fn failure(&self) -> Error {
        self.cause.as_deref().cloned().unwrap_or(Error::Peer {
            peer: self.peer,
            what: GONE,
        })
    }

    /// Messages and bytes sent through it, as far as it lives.
    pub(crate) fn sent(&self, quotas: &CreditQuotas) -> (u64, u64) {
        self.credit().sent(self.batch_used(), quotas)
    }

    fn credit(&self) -> CreditWords {
        CreditWords {
            gone: self.gone,
            envelopes: self.envelopes,
            payload: self.payload,
            batched: self.batched,
            returned_envelopes: self.returned_envelopes,
            returned_payload: self.returned_payload,
            announced: self.announced,
            owed_envelopes: self.owed_envelopes,
            outstanding: self.outstanding,
        }
    }

    /// Records and payload of the slot batch that is open.
    fn batch_used(&self) -> (u32, u64) {
        self.batch.as_ref().map_or((0, 0), |run| run.used())
    }

    /// Ends the slot batch and takes back what it did not use. To be done before the credits are
    /// looked at for anything else, and before anything that small messages must not overtake.
    #[inline]
    pub(crate) fn close_batch(&mut self) {
        if self.batched != 0 {
            self.close_open_batch();
        }
    }

    #[inline(never)]
    fn close_open_batch(&mut self) {
        if let Some(run) = &self.batch {
            run.close();
        }
        let (envelopes, payload) = self.credit().unused(self.batch_used());
        self.envelopes += envelopes;
        self.payload += payload;
        self.batched = 0;
    }

    /// The records that a slot batch may be opened for; the peer state is settled.
    pub(crate) fn batchable(&self) -> u32 {
        let by_payload = self.payload / RUN_PAYLOAD_MAX as u64;
        self.envelopes
            .min(by_payload.min(u64::from(u32::MAX)) as u32)
    }

    /// The slot batch was opened for so many records.
    pub(crate) fn batch_opened(&mut self, records: u32) {
        self.batched = records;
        self.envelopes -= records;
        self.payload -= u64::from(records) * RUN_PAYLOAD_MAX as u64;
    }

    /// Returns whether the peer may send one envelope more: the peer is alive and has credit.
    #[inline]
    pub(crate) fn may_send(&self) -> bool {
        !self.gone && self.outstanding < self.quotas.envelopes
    }

    /// The envelopes of up to `each` bytes that the peer may have sent, until credits are to be
    /// returned: at least one, if it may send one.
    pub(crate) fn receivable(&self, each: u64) -> u32 {
        let quotas = &self.quotas;
        let sent = quotas.envelopes - self.outstanding.min(quotas.envelopes);
        let envelopes = (quotas.envelopes / 2)
            .saturating_sub(self.owed_envelopes)
            .max(1);
        let payload = ((quotas.payload / 2).saturating_sub(self.owed_payload) / each).max(1);
        sent.min(envelopes)
            .min(payload.min(u64::from(u32::MAX)) as u32)
    }

    /// Counts envelopes of the peer that came and were received. Returns true when it is time to
    /// return their credits.
    pub(crate) fn receive_batch(&mut self, envelopes: u32, payload: u64) -> bool {
        self.outstanding += envelopes;
        self.owe_all(envelopes, payload)
    }

    /// Owes the peer one envelope's credit and `payload` bytes of credit more. `true`: it is time
    /// to return them.
    #[inline(always)]
    pub(crate) fn owe(&mut self, payload: u64) -> bool {
        self.owe_all(1, payload)
    }

    #[inline(always)]
    fn owe_all(&mut self, envelopes: u32, payload: u64) -> bool {
        self.owed_envelopes += envelopes;
        self.owed_payload += payload;
        self.owed_envelopes * 2 >= self.quotas.envelopes
            || self.owed_payload * 2 >= self.quotas.payload
            || self.remote_window.blocked
    }

    /// Counts one more envelope with its payload. Returns whether the peer had no credit left for
    /// either.
    #[inline]
    pub(crate) fn overdrawn(&mut self, payload: u64) -> bool {
        self.outstanding += 1;
        self.unreceived += payload;
        let payload = self.unreceived + self.owed_payload + self.returning;
        self.outstanding > self.quotas.envelopes || payload > self.quotas.payload
    }

    /// Takes the credits to return: envelopes and payload. `None`: nothing is owed.
    pub(crate) fn take_owed(&mut self) -> Option<(u32, u64)> {
        if self.owed_envelopes == 0 {
            return None;
        }
        let owed = (self.owed_envelopes, self.owed_payload);
        (self.owed_envelopes, self.owed_payload) = (0, 0);
        self.returning += owed.1;
        Some(owed)
    }

    /// Credit left for the peer, which may use it from now on. Until then it cannot have known, so
    /// that one that reads nothing cannot go on, and what is to be answered to its envelopes is
    /// bounded by its quota.
    pub(crate) fn credits_left(&mut self, envelopes: u32, payload: u64) {
        self.outstanding = self.outstanding.saturating_sub(envelopes);
        self.returning = self.returning.saturating_sub(payload);
    }

    /// Counts payload of an earlier envelope as received, so that it is unexpected no more.
    #[inline(always)]
    pub(crate) fn received(&mut self, payload: u64) {
        debug_assert!(payload <= self.unreceived, "it was counted when it came");
        self.unreceived = self.unreceived.saturating_sub(payload);
    }

    /// The state of a peer that was not spoken to. Readers outside know `usual` quotas only: what
    /// this peer has less counts as returned before the first message.
    pub(crate) fn new(
        peer: Peer,
        reach: PeerCapabilities,
        (quotas, usual): (CreditQuotas, &CreditQuotas),
    ) -> Self {
        let less = usual.envelopes.saturating_sub(quotas.envelopes);
        let less_payload = usual.payload.saturating_sub(quotas.payload);
        Self {
            peer,
            capabilities: reach,
            quotas,
            gone: false,
            cause: None,
            envelopes: quotas.envelopes,
            payload: quotas.payload,
            batch: None,
            batched: 0,
            window_len: 0,
            overtaken: 0,
            cached_plan: None,
            epoch: 0,
            probe_missed: false,
            blocked_told: false,
            owed_envelopes: 0,
            owed_payload: 0,
            outstanding: 0,
            unreceived: 0,
            returning: 0,
            returned_envelopes: u64::from(less).wrapping_neg(),
            returned_payload: less_payload.wrapping_neg(),
            announced: 0,
            remote_window: RemoteWindow::default(),
            fragmented: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_overdraws_payload_that_was_neither_received_nor_returned() {
        let quotas = CreditQuotas {
            envelopes: 10,
            payload: 100,
        };
        let reach = PeerCapabilities {
            eager_max: 100,
            fragmented_max: 0,
            can_read: false,
            can_write: false,
            pipeline_chunk: 100,
            read_chunk: 100,
        };
        let mut peer_state = PeerState::new(1, reach, (quotas, &quotas));
        assert!(!peer_state.overdrawn(60));
        assert!(!peer_state.overdrawn(40), "all of it is its own");
        peer_state.received(60);
        peer_state.owe(60);
        assert!(!peer_state.overdrawn(0), "an announcement brings nothing");
        assert!(
            peer_state.overdrawn(1),
            "the peer does not know yet that it may"
        );
        (peer_state.owed_envelopes, peer_state.owed_payload) = (0, 0);
        assert!(!peer_state.overdrawn(59));
        assert!(peer_state.overdrawn(1));
    }
}
