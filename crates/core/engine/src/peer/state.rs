//! A gate: the engine's connection to one peer engine. Credits in both directions and the state of
//! the sender's window.
//!
//! Owned by the engine's core; opened when the peer is first spoken to or heard of. Also home of
//! the per-context streams that number envelopes. Bounded by the peers spoken to and the contexts
//! used with them.

use crate::api::{ContextId, Error, Peer};
use crate::fast::send_channel::{RUN_PAYLOAD_MAX, SendChannel};
use crate::key_map::TableKey;
use crate::limits::{
    ENVELOPES_MAX, ENVELOPES_MIN, ENVELOPES_TOTAL, PAYLOAD_CREDIT_MAX, PAYLOAD_CREDIT_MIN,
    PAYLOAD_TOTAL,
};
use crate::protocol::fragments::FragmentedMessage;
use crate::schedule::plan::CachedPlan;
use crate::transport::PeerCapabilities;
use garonne_sync::post_mortem::PostMortemArc;
use garonne_sync::slot_batch::SlotBatch;
use std::collections::{BTreeMap, VecDeque};
use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;

/// What is said of a peer whose end gave no other reason.
pub(crate) const GONE: &str = "it died or cut the connection";

/// What every engine of a job grants its peers; both sides compute it from the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditQuotas {
    /// Envelopes that a peer may have sent and that were not matched.
    pub envelopes: u32,
    /// Payload bytes in them.
    pub payload: u64,
}

impl CreditQuotas {
    /// The quotas of a job of `world` processes.
    pub fn for_world(world: u32) -> Self {
        let share = PAYLOAD_TOTAL / u64::from(world.max(1));
        Self {
            envelopes: (ENVELOPES_TOTAL / world.max(1)).clamp(ENVELOPES_MIN, ENVELOPES_MAX),
            payload: share.clamp(PAYLOAD_CREDIT_MIN, PAYLOAD_CREDIT_MAX),
        }
    }
}

/// A receive or probe that asks the peer's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeAsker {
    /// The receive of this slot and generation.
    Receive(u32, u32),
    /// A probe.
    Probe,
    /// A receive or probe of a communicator that was freed before the answer came.
    Nobody,
}

/// One question to a peer's window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteProbe {
    pub asker: ProbeAsker,
    pub context: ContextId,
    pub tag: Option<i32>,
}

/// A peer's answer that probes may use: this envelope is held there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockedEnvelope {
    pub context: ContextId,
    pub source: u32,
    pub tag: i32,
    pub sequence: u64,
    pub len: u64,
}

/// The receiving side's view of a peer's window.
#[derive(Debug, Default)]
pub(crate) struct RemoteWindow {
    /// The peer holds envelopes back, as far as known.
    pub held: bool,
    /// Its window's epoch, as far as known.
    pub epoch: u32,
    /// Questions of this pass, oldest posting first.
    pub queue: VecDeque<RemoteProbe>,
    /// The one that is on its way.
    pub asked: Option<RemoteProbe>,
    /// An offer that waits for envelopes sent before it.
    pub offer: Option<(BlockedEnvelope, u64)>,
    /// Probes answered in this epoch with "nothing".
    pub denied: Vec<(ContextId, Option<i32>)>,
    /// What probes were offered and nobody took yet, with the tag they asked for.
    pub offers: Vec<(Option<i32>, BlockedEnvelope)>,
}

/// What of a gate says how much was sent through it, as it is at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CreditWords {
    gone: bool,
    envelopes: u32,
    payload: u64,
    pub granted: u32,
    returned_envelopes: u64,
    returned_payload: u64,
    announced: u64,
    owed_envelopes: u32,
    outstanding: u32,
}

/// Where these words lie in a gate, in their order.
pub(crate) const PLACES: [usize; 9] = [
    offset_of!(PeerState, gone),
    offset_of!(PeerState, envelopes),
    offset_of!(PeerState, payload),
    offset_of!(PeerState, granted),
    offset_of!(PeerState, returned_envelopes),
    offset_of!(PeerState, returned_payload),
    offset_of!(PeerState, announced),
    offset_of!(PeerState, owed_envelopes),
    offset_of!(PeerState, outstanding),
];

impl CreditWords {
    /// Reads it from the bytes of a gate in another process, where its words lie at `places`.
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
            granted: short(3)?,
            returned_envelopes: long(4)?,
            returned_payload: long(5)?,
            announced: long(6)?,
            owed_envelopes: short(7)?,
            outstanding: short(8)?,
        })
    }

    /// Messages and bytes sent, where of the run that is open so many records and bytes are used.
    pub fn sent(&self, used: (u32, u64), quotas: &CreditQuotas) -> (u64, u64) {
        if self.gone {
            return (0, 0);
        }
        let (envelopes, payload) = self.spare(used);
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

    /// What the run was granted and did not use.
    fn spare(&self, (records, bytes): (u32, u64)) -> (u32, u64) {
        let payload = u64::from(self.granted) * RUN_PAYLOAD_MAX as u64;
        match self.granted {
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

/// See the module's paragraph.
#[derive(Debug)]
pub(crate) struct PeerState {
    pub peer: Peer,
    pub reach: PeerCapabilities,
    pub gone: bool,
    /// Why it is, then.
    pub why: Option<Box<Error>>,
    /// Envelopes and payload that may still be sent.
    pub envelopes: u32,
    pub payload: u64,
    /// The rail's shortest way to the peer, once it was asked for, and the records it was opened
    /// for: their envelopes, and as much payload as they can carry, are not counted above until
    /// [`PeerState::settle`].
    pub run: Option<Arc<SlotBatch>>,
    granted: u32,
    /// Sends in the window.
    pub held: u32,
    /// Messages that overtook the oldest of the window.
    pub overtaken: u32,
    /// The plan of a strategy that was loaded, for as long as nothing moves.
    pub planned: Option<Box<CachedPlan>>,
    /// Changes when an envelope joins a window that a query found without a match.
    pub epoch: u32,
    /// Such a query was answered in this epoch.
    pub denied: bool,
    /// The peer was told that envelopes are held.
    pub told: bool,
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
    pub asking: RemoteWindow,
    /// The message of the peer that is coming in, piece by piece.
    pub flow: Option<FragmentedMessage>,
}

impl PeerState {
    /// What whoever wants something of a peer that is gone is told.
    #[cold]
    pub(crate) fn ended(&self) -> Error {
        self.why.as_deref().cloned().unwrap_or(Error::Peer {
            peer: self.peer,
            what: GONE,
        })
    }

    /// Messages and bytes sent through it, as far as it lives.
    pub(crate) fn sent(&self, quotas: &CreditQuotas) -> (u64, u64) {
        self.credit().sent(self.used(), quotas)
    }

    fn credit(&self) -> CreditWords {
        CreditWords {
            gone: self.gone,
            envelopes: self.envelopes,
            payload: self.payload,
            granted: self.granted,
            returned_envelopes: self.returned_envelopes,
            returned_payload: self.returned_payload,
            announced: self.announced,
            owed_envelopes: self.owed_envelopes,
            outstanding: self.outstanding,
        }
    }

    /// Records and payload of the run that is open.
    fn used(&self) -> (u32, u64) {
        self.run.as_ref().map_or((0, 0), |run| run.used())
    }

    /// Ends the run and takes back what it did not use. To be done before the credits are looked at
    /// for anything else, and before anything that small messages must not overtake.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if self.granted != 0 {
            self.end_run();
        }
    }

    #[inline(never)]
    fn end_run(&mut self) {
        if let Some(run) = &self.run {
            run.close();
        }
        let (envelopes, payload) = self.credit().spare(self.used());
        self.envelopes += envelopes;
        self.payload += payload;
        self.granted = 0;
    }

    /// The records that a run may be opened for; the gate is settled.
    pub(crate) fn grantable(&self) -> u32 {
        let by_payload = self.payload / RUN_PAYLOAD_MAX as u64;
        self.envelopes
            .min(by_payload.min(u64::from(u32::MAX)) as u32)
    }

    /// The run was opened for so many records.
    pub(crate) fn grant(&mut self, records: u32) {
        self.granted = records;
        self.envelopes -= records;
        self.payload -= u64::from(records) * RUN_PAYLOAD_MAX as u64;
    }

    /// Whether the peer may send one envelope more: it is alive and has credit for it.
    #[inline]
    pub(crate) fn may_send(&self, quotas: &CreditQuotas) -> bool {
        !self.gone && self.outstanding < quotas.envelopes
    }

    /// The envelopes of up to `each` bytes that the peer may have sent, until credits are to be
    /// returned: at least one, if it may send one.
    pub(crate) fn takeable(&self, quotas: &CreditQuotas, each: u64) -> u32 {
        let sent = quotas.envelopes - self.outstanding.min(quotas.envelopes);
        let envelopes = (quotas.envelopes / 2)
            .saturating_sub(self.owed_envelopes)
            .max(1);
        let payload = ((quotas.payload / 2).saturating_sub(self.owed_payload) / each).max(1);
        sent.min(envelopes)
            .min(payload.min(u64::from(u32::MAX)) as u32)
    }

    /// So many envelopes of the peer's came and were received. `true`: it is time to return their
    /// credits.
    pub(crate) fn took(&mut self, envelopes: u32, payload: u64, quotas: &CreditQuotas) -> bool {
        self.outstanding += envelopes;
        self.owe_all(envelopes, payload, quotas)
    }

    /// Owes the peer one envelope's credit and `payload` bytes of credit more. `true`: it is time
    /// to return them.
    #[inline(always)]
    pub(crate) fn owe(&mut self, payload: u64, quotas: &CreditQuotas) -> bool {
        self.owe_all(1, payload, quotas)
    }

    #[inline(always)]
    fn owe_all(&mut self, envelopes: u32, payload: u64, quotas: &CreditQuotas) -> bool {
        self.owed_envelopes += envelopes;
        self.owed_payload += payload;
        self.owed_envelopes * 2 >= quotas.envelopes
            || self.owed_payload * 2 >= quotas.payload
            || self.asking.held
    }

    /// One more envelope came, with so many bytes of payload; whether the peer had no credit left
    /// for either.
    #[inline]
    pub(crate) fn overdrawn(&mut self, payload: u64, quotas: &CreditQuotas) -> bool {
        self.outstanding += 1;
        self.unreceived += payload;
        let payload = self.unreceived + self.owed_payload + self.returning;
        self.outstanding > quotas.envelopes || payload > quotas.payload
    }

    /// What is owed is to be returned: envelopes and payload. `None`: nothing.
    pub(crate) fn pay(&mut self) -> Option<(u32, u64)> {
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
    pub(crate) fn paid(&mut self, envelopes: u32, payload: u64) {
        self.outstanding = self.outstanding.saturating_sub(envelopes);
        self.returning = self.returning.saturating_sub(payload);
    }

    /// So many bytes of payload, of an envelope that was counted when it came, are kept for nobody
    /// any more.
    #[inline(always)]
    pub(crate) fn received(&mut self, payload: u64) {
        debug_assert!(payload <= self.unreceived, "it was counted when it came");
        self.unreceived = self.unreceived.saturating_sub(payload);
    }

    pub(crate) fn new(peer: Peer, reach: PeerCapabilities, quotas: CreditQuotas) -> Self {
        Self {
            peer,
            reach,
            gone: false,
            why: None,
            envelopes: quotas.envelopes,
            payload: quotas.payload,
            run: None,
            granted: 0,
            held: 0,
            overtaken: 0,
            planned: None,
            epoch: 0,
            denied: false,
            told: false,
            owed_envelopes: 0,
            owed_payload: 0,
            outstanding: 0,
            unreceived: 0,
            returning: 0,
            returned_envelopes: 0,
            returned_payload: 0,
            announced: 0,
            asking: RemoteWindow::default(),
            flow: None,
        }
    }
}

/// The numbering of envelopes of one context between this rank and one peer.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    /// Next number to send, while there is no track.
    tx: u64,
    /// The shortest way of this stream's small messages, which then numbers all.
    pub track: Option<PostMortemArc<SendChannel>>,
    /// Numbers below were given while there was a track that is gone: what was sent under them is
    /// not known any more.
    pub forgotten: u64,
    /// Next number to enter the matcher.
    pub next_rx: u64,
    /// Present only while something is out of sequence.
    pub odd: Option<Box<Reorder>>,
}

impl Sequence {
    /// The next number to send.
    #[inline(always)]
    pub(crate) fn next_tx(&self) -> u64 {
        self.track.as_ref().map_or(self.tx, |track| track.next())
    }

    /// Its track is of no use any more.
    pub(crate) fn end_track(&mut self) -> Option<PostMortemArc<SendChannel>> {
        let track = self.track.take()?;
        (self.tx, self.forgotten) = (track.next(), track.next());
        Some(track)
    }

    /// That number was sent, with this tag, but not on the track.
    #[inline(always)]
    pub(crate) fn count_tx(&mut self, tag: i32) {
        match &self.track {
            Some(track) => track.count(tag),
            None => self.tx += 1,
        }
    }
}

/// What is out of sequence in a stream.
#[derive(Debug, Default)]
pub(crate) struct Reorder {
    /// Envelopes that arrived early, by number: slots of the store.
    pub early: BTreeMap<u64, u32>,
    /// Numbers taken by a query whose envelope is on its way: the receive's slot and generation, or
    /// a taken probe's message.
    pub bound: BTreeMap<u64, ReservedFor>,
    /// Numbers that already were delivered out of sequence, as ranges start to end (exclusive).
    pub done: BTreeMap<u64, u64>,
}

/// Who gets an envelope that was taken out of sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReservedFor {
    /// The receive in this slot.
    Receive(u32),
    /// The message in this slot of the store, taken by a matched probe.
    Message(u32),
}

impl Reorder {
    /// Nothing is out of sequence any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.early.is_empty() && self.bound.is_empty() && self.done.is_empty()
    }

    /// Notes that `number` was delivered, joining neighbouring ranges.
    pub(crate) fn finish(&mut self, number: u64) {
        let mut end = number + 1;
        if let Some(next) = self.done.remove(&end) {
            end = next;
        }
        if let Some((_, last)) = self.done.range_mut(..number).next_back()
            && *last == number
        {
            *last = end;
            return;
        }
        self.done.insert(number, end);
    }

    /// Whether `number` was delivered out of sequence.
    pub(crate) fn finished(&self, number: u64) -> bool {
        self.done
            .range(..=number)
            .next_back()
            .is_some_and(|(_, end)| number < *end)
    }
}

/// The key of the stream between this rank and `peer` in `context`.
#[inline]
pub(crate) fn stream_key(context: ContextId, peer: Peer) -> TableKey {
    TableKey(u64::from(context) << 32 | u64::from(peer), 0)
}

/// The first words of the keys of all streams in these contexts.
pub(crate) fn stream_keys(contexts: &Range<ContextId>) -> Range<u64> {
    let first = |context| stream_key(context, 0).0;
    first(contexts.start)..first(contexts.end)
}

/// The full number of which `sequence` is the low half, the one nearest to `near`.
#[inline]
pub(crate) fn widen(near: u64, sequence: u32) -> u64 {
    near.wrapping_add_signed(i64::from(sequence.wrapping_sub(near as u32) as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_the_wrap_of_their_low_half() {
        let near = (7u64 << 32) - 2;
        assert_eq!(widen(near, 3), (7 << 32) + 3);
        assert_eq!(widen((7 << 32) + 1, u32::MAX), (7 << 32) - 1);
        assert_eq!(widen(0, 5), 5);
    }

    #[test]
    fn a_peer_overdraws_payload_that_was_neither_received_nor_returned() {
        let quotas = CreditQuotas {
            envelopes: 10,
            payload: 100,
        };
        let reach = PeerCapabilities {
            eager_max: 100,
            flow_max: 0,
            can_read: false,
            can_write: false,
            pipeline_chunk: 100,
            read_chunk: 100,
        };
        let mut gate = PeerState::new(1, reach, quotas);
        assert!(!gate.overdrawn(60, &quotas));
        assert!(!gate.overdrawn(40, &quotas), "all of it is its own");
        gate.received(60);
        gate.owe(60, &quotas);
        assert!(
            !gate.overdrawn(0, &quotas),
            "an announcement brings nothing"
        );
        assert!(
            gate.overdrawn(1, &quotas),
            "the peer does not know yet that it may"
        );
        (gate.owed_envelopes, gate.owed_payload) = (0, 0);
        assert!(!gate.overdrawn(59, &quotas));
        assert!(gate.overdrawn(1, &quotas));
    }

    #[test]
    fn delivered_numbers_join_into_ranges() {
        let mut odd = Reorder::default();
        for number in [5, 7, 6, 1, 9, 8] {
            odd.finish(number);
        }
        assert_eq!(odd.done, BTreeMap::from([(1, 2), (5, 10)]));
        assert!(odd.finished(9) && !odd.finished(10) && !odd.finished(4));
    }
}
