//! Early RTR: receives that offer their memory, so that the sender writes the message there while
//! the receiver computes.
//!
//! A receive of a large message from one named sender with one tag offers its memory (`EarlyRtr`).
//! It does so only if no wildcard receive posted before may take its message. The offer says which
//! envelope it is for: of those with its tag, from a sequence number on, the one after `skip`
//! others. The sender knows what it sent from its event log and send logs, so no message pays for
//! that.
//!
//! Envelopes travel and match as ever. An offer only says where bytes may go, and the sender uses
//! it after its envelope left. The transport hands memory over once. If the receiver looks for the
//! message meanwhile, it takes parts of what the sender began to write. A receiver that would
//! rather read, or cancels, withdraws the offer before. So a sender may forget offers as it likes.
//! Wrong offers are withdrawn: whenever a receive leaves its place without a message, and when
//! windows are probed. Bounded by [`EARLY_OFFERS_MAX`] offers of all peers together.

use crate::api::{ContextId, Pattern, Peer, Request};
use crate::core::Core;
use crate::engine::Engine;
use crate::limits::{
    EARLY_LOG, EARLY_OFFERS_MAX, EARLY_OFFERS_SENT, EARLY_RTR_FROM, EARLY_RTR_TO, EARLY_SKIP_MAX,
};
use crate::matching::matcher::pattern_key;
use crate::peer::sequences::{stream_key, widen};
use crate::protocol::wire::{EarlyFin, EarlyRtr, FLAG_FAILED, FLAG_PART};
use crate::requests::{OpFlag, OpSide, OpState, from_wire};
use crate::transport::{PacketHeader, PacketKind, RendezvousMode, Transport, WithdrawResult};
use std::collections::VecDeque;
use std::ops::Range;

/// A peer's receive that may be written when its message is sent.
#[derive(Clone, Copy, Debug)]
struct ReceivedOffer {
    peer: Peer,
    context: u32,
    tag: i32,
    /// Number of the first envelope to the peer in this context that counts …
    from: u64,
    /// … the one with this tag that comes after so many others with it.
    skip: u32,
    expect: EarlyRtr,
}

/// Position of the envelope that an offer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfferTarget {
    /// Not sent yet.
    Future,
    /// The envelope was sent with this number.
    Sent(u64),
    /// The envelope is not known any more.
    Lost,
}

/// A send whose message may be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarlyWrite {
    pub send: Request,
    pub expect: EarlyRtr,
}

/// Offers of receives, in both directions. Owned by the core; bounded by [`EARLY_OFFERS_MAX`].
#[derive(Debug, Default)]
pub(crate) struct EarlyRtrState {
    received_offers: VecDeque<ReceivedOffer>,
    /// Sends announced to their receivers lately.
    recent_rts: VecDeque<Request>,
    writes: VecDeque<EarlyWrite>,
    /// Slots of the receives of this rank whose memory is offered.
    offered_receives: Vec<u32>,
    /// Peers that began to hold envelopes back: offers to them are withdrawn.
    pub newly_blocked: Vec<Peer>,
}

impl EarlyRtrState {
    /// Returns whether a peer offered a receive for messages of this context and tag.
    #[inline]
    fn has_offer(&self, peer: Peer, context: u32, tag: i32) -> bool {
        let envelope = (peer, context, tag);
        let offers = || {
            self.received_offers
                .iter()
                .map(|wanted| (wanted.peer, wanted.context, wanted.tag))
        };
        !self.received_offers.is_empty() && offers().any(|offer| offer == envelope)
    }

    /// A message is still to be written.
    pub(crate) fn requeue_write(&mut self, write: EarlyWrite) {
        self.writes.push_front(write);
    }

    /// Messages are to be written.
    pub(crate) fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Nothing that a peer offered is of use any more.
    pub(crate) fn forget_peer(&mut self, peer: Peer) {
        self.received_offers.retain(|wanted| wanted.peer != peer);
    }

    /// Nothing is sent in these contexts any more.
    pub(crate) fn forget_contexts(&mut self, contexts: &Range<ContextId>) {
        self.received_offers
            .retain(|wanted| !contexts.contains(&wanted.context));
    }
}

impl Core {
    /// Bytes of messages that are to be written.
    pub(crate) fn early_write_bytes(&self) -> u64 {
        let sends = self.early_rtr.writes.iter();
        let known = sends.filter_map(|write| self.requests.find(write.send));
        known
            .map(|index| self.requests.peek(index).data.len)
            .fold(0, u64::saturating_add)
    }
}

/// Adds to a list of hints, over the oldest.
fn push_bounded<T>(list: &mut VecDeque<T>, item: T) {
    if list.len() >= EARLY_OFFERS_MAX {
        list.pop_front();
    }
    list.push_back(item);
}

impl Core {
    // The sender's side.

    /// A peer offers a receive's memory. `None`: it broke the format.
    pub(crate) fn on_early_rtr(
        &mut self,
        peer_index: u32,
        header: &PacketHeader,
        expect: EarlyRtr,
    ) -> Option<()> {
        let peer = self.peers[peer_index as usize].peer;
        let stream = self.sequences.find(stream_key(header.context, peer));
        let next = stream.map_or(0, |at| self.sequences.get(at).next_tx());
        let mut wanted = ReceivedOffer {
            peer,
            context: header.context,
            tag: header.tag,
            from: widen(next, header.sequence),
            skip: expect.skip,
            expect,
        };
        // Nobody has seen what was not sent, unless it was before this side freed the communicator
        // and forgot the sequence.
        if wanted.from > next {
            return (next == 0).then_some(());
        }
        if self.locate_target(&mut wanted, next) != OfferTarget::Lost
            && self.try_begin_write(&wanted, next).is_none()
        {
            push_bounded(&mut self.early_rtr.received_offers, wanted);
        }
        Some(())
    }

    /// Looks for the envelope that an offer is for, among what was sent. `next` is the number of
    /// the next one.
    fn locate_target(&self, wanted: &mut ReceivedOffer, next: u64) -> OfferTarget {
        let sent = next - wanted.from;
        if sent > EARLY_LOG {
            return OfferTarget::Lost;
        }
        let (peer, context) = (wanted.peer, wanted.context);
        let stream = self.sequences.find(stream_key(context, peer));
        let stream = stream.map(|at| self.sequences.get(at));
        if stream.is_some_and(|stream| wanted.from < stream.unlogged_below) {
            return OfferTarget::Lost;
        }
        let track = stream.and_then(|stream| stream.channel.as_deref());
        // A sequence that has a send channel has them in its send log, each by its number; others
        // among the events, one for each number.
        let tags = || {
            let numbers = wanted.from..next;
            let followed = track.map(|track| numbers.rev().map_while(|number| track.tag(number)));
            let listed = track.is_none().then(|| self.events.tags(peer, context));
            let tags = followed
                .into_iter()
                .flatten()
                .chain(listed.into_iter().flatten());
            tags.take(sent as usize)
        };
        if tags().count() as u64 != sent {
            return OfferTarget::Lost;
        }
        let hits = tags().filter(|tag| *tag == wanted.tag).count();
        let Some(newer) = hits.checked_sub(wanted.skip as usize + 1) else {
            wanted.skip -= hits as u32;
            wanted.from = next;
            return OfferTarget::Future;
        };
        let back = tags()
            .enumerate()
            .filter(|(_, tag)| *tag == wanted.tag)
            .nth(newer)
            .map(|(back, _)| back as u64);
        back.map_or(OfferTarget::Lost, |back| OfferTarget::Sent(next - 1 - back))
    }

    /// If an offer's envelope was sent: begins the write if that can be, and says that the offer is
    /// spent. `None`: keep it.
    fn try_begin_write(&mut self, wanted: &ReceivedOffer, next: u64) -> Option<()> {
        let number = match self.locate_target(&mut wanted.clone(), next) {
            OfferTarget::Future => return None,
            OfferTarget::Lost => return Some(()),
            OfferTarget::Sent(number) => number,
        };
        let send = self.early_rtr.recent_rts.iter().copied().find(|send| {
            self.requests.find(*send).is_some_and(|index| {
                let operation = self.requests.peek(index);
                (operation.peer, operation.context, operation.sequence)
                    == (wanted.peer, wanted.context, number as u32)
                    && operation.side == OpSide::Send
                    && operation.state == OpState::Active
            })
        });
        let Some(send) = send else {
            // It may wait in the window.
            let held = self
                .peer_index(wanted.peer)
                .is_some_and(|peer_index| self.peers[peer_index as usize].window_len != 0);
            return if held { None } else { Some(()) };
        };
        let len = self.requests.peek(send.index).data.len;
        // What is too long is its receiver's error, found the usual way.
        if len <= wanted.expect.room.min(EARLY_RTR_TO) {
            self.early_rtr.writes.push_back(EarlyWrite {
                send,
                expect: wanted.expect,
            });
            self.has_work = true;
        }
        Some(())
    }

    /// Returns whether a send's message will be written to its receiver's early offer.
    pub(crate) fn will_write(&self, index: u32) -> bool {
        let send = self.requests.name(index);
        self.early_rtr.writes.iter().any(|write| write.send == send)
    }

    /// A send was announced to its receiver.
    pub(crate) fn on_rts_sent(&mut self, index: u32) {
        let send = self.requests.name(index);
        push_bounded(&mut self.early_rtr.recent_rts, send);
        if self.early_rtr.received_offers.is_empty() {
            return;
        }
        let operation = self.requests.peek(index);
        let (peer, context, tag) = (operation.peer, operation.context, operation.tag);
        let stream = self.sequences.find_or_insert(stream_key(context, peer));
        let next = self.sequences.get(stream).next_tx();
        for _ in 0..self.early_rtr.received_offers.len() {
            let Some(mut wanted) = self.early_rtr.received_offers.pop_front() else {
                break;
            };
            let same = (wanted.peer, wanted.context, wanted.tag) == (peer, context, tag);
            // The numbers are brought up to date while the events still reach back that far.
            if !same
                || self.locate_target(&mut wanted, next) != OfferTarget::Lost
                    && self.try_begin_write(&wanted, next).is_none()
            {
                self.early_rtr.received_offers.push_back(wanted);
            }
        }
    }

    // The receiver's side.

    /// Returns how many envelopes of its tag go to other receives before one goes to this receive,
    /// which was just posted. `None`: unknown.
    fn posted_before(&self, pattern: &Pattern, receive: u32) -> Option<u32> {
        self.matcher.ahead_of(pattern, receive, EARLY_SKIP_MAX)
    }

    /// A receive's memory is not offered any more.
    pub(crate) fn offer_withdrawn(&mut self, index: u32) {
        let operation = self.requests.at(index);
        if operation.has(OpFlag::EarlyRtrSent) {
            operation.clear(OpFlag::EarlyRtrSent);
            self.early_rtr
                .offered_receives
                .retain(|&offered| offered != index);
        }
    }

    /// The sender of an announced receive wrote its message. `None`: it broke the format.
    pub(crate) fn on_early_fin(
        &mut self,
        peer: Peer,
        written: &EarlyFin,
        worked: bool,
    ) -> Option<()> {
        let Some(index) = self.requests.find(from_wire(written.recv)) else {
            return Some(());
        };
        let operation = self.requests.at(index);
        let expects = (operation.side, operation.peer) == (OpSide::Recv, peer);
        let failed = operation.state == OpState::Complete || operation.error.is_some();
        if expects && (operation.has(OpFlag::DataRequested) || failed) {
            // It comes anew, or the message met it and was not what it waits for, which its sender
            // could not know.
            return Some(());
        }
        let known = expects
            && (operation.state, operation.remote) == (OpState::Active, written.send)
            && operation.has(OpFlag::EarlyRtrSent);
        if !known {
            return None;
        }
        let joined = operation.mode == Some(RendezvousMode::Share);
        if worked {
            operation.moved = operation
                .moved
                .checked_add(written.bytes)
                .filter(|&moved| moved <= operation.total)?;
        }
        let (whole, total) = (operation.moved >= operation.total, operation.total);
        if worked && !whole && !joined {
            return None;
        }
        self.offer_withdrawn(index);
        if !worked {
            self.rendezvous_over(index, false);
            self.send_cts(index);
        } else if whole {
            self.requests.at(index).region = None;
            // Whoever wrote all of it knows that its send is over.
            self.rendezvous_ended(index, written.bytes < total);
        }
        Some(())
    }
}

impl<R: Transport> Engine<R> {
    /// Returns whether a message is better written to its receiver's memory than sent with its
    /// envelope: the receiver offered its memory, and computes.
    #[inline]
    pub(crate) fn uses_early_write(&self, peer: Peer, context: u32, tag: i32, len: u64) -> bool {
        len > EARLY_RTR_FROM.into()
            && self.core.early_rtr.has_offer(peer, context, tag)
            && !self.transport.is_polling(peer)
    }

    /// Offers the memory of a receive to the sender of its message, if that can be, also when the
    /// message was announced already. For receives whose callers go on without waiting; what is at
    /// once waited for is better fetched.
    pub fn offer_early(&mut self, request: Request) {
        if let Some(index) = self.core.requests.find(request) {
            self.offer_early_slot(index);
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn offer_early_slot(&mut self, index: u32) {
        match self.core.requests.peek(index).state {
            OpState::Posted => drop(self.try_offer_early(index)),
            OpState::Active => self.share_transfer(index),
            _ => {}
        }
    }

    /// Lets the sender write a rendezvous message that met its receive when that was posted.
    /// Whoever of both has hands moves it.
    fn share_transfer(&mut self, index: u32) {
        let operation = self.core.requests.peek(index);
        let fits = operation.side == OpSide::Recv
            && operation.region.is_some()
            && operation.mode.is_none()
            && operation.flags & !(OpFlag::Traced as u16 | OpFlag::WaitedFor as u16) == 0;
        let peer = operation.peer;
        if !fits
            || !self
                .transport
                .capabilities(peer)
                .is_some_and(|reach| reach.can_write)
        {
            return;
        }
        if self.send_rtr(index, RendezvousMode::ShareLater, 0) {
            self.share_unasked(index);
        }
    }

    fn try_offer_early(&mut self, index: u32) -> Option<()> {
        // The offer counts from the next envelope on: sequences must know all that was taken.
        self.core.settle_recv_channels();
        if !self.core.control.is_empty() {
            self.flush_control();
        }
        let operation = self.core.requests.peek(index);
        let pattern = operation.pattern;
        let (source, tag) = (pattern.source?, pattern.tag?);
        let fits =
            operation.state == OpState::Posted && !operation.exposed && source.peer != self.core.me;
        // Nor is anything added to what found no room.
        let room = self.core.early_rtr.offered_receives.len() < EARLY_OFFERS_SENT
            && self.core.control.is_empty();
        if !fits || !self.limits.ordered || !room {
            return None;
        }
        let len = operation.data.len;
        let reach = self.transport.capabilities(source.peer)?;
        if len <= (reach.eager_max as u64).min(EARLY_RTR_FROM.into()) || !reach.can_write {
            return None;
        }
        let peer_index = match self.core.peer_index(source.peer) {
            Some(peer_index) => peer_index,
            None => self.core.open_peer(source.peer, reach),
        };
        let entry = &self.core.peers[peer_index as usize];
        if entry.gone || entry.remote_window.blocked {
            return None;
        }
        let stream = self
            .core
            .sequences
            .find_or_insert(stream_key(pattern.context, source.peer));
        let stream = self.core.sequences.get(stream);
        if stream.reorder.is_some() {
            return None;
        }
        let sequence = stream.next_rx as u32;
        let skip = self.core.posted_before(&pattern, index)?;
        let token = self.core.wire_name(index);
        let operation = self.core.requests.at(index);
        let region = self.transport.share_region(
            token,
            source.peer,
            &operation.data,
            RendezvousMode::ShareLater,
        )?;
        operation.exposed = true;
        operation.set(OpFlag::EarlyRtrSent);
        self.core.early_rtr.offered_receives.push(index);
        let header = PacketHeader {
            kind: PacketKind::EarlyRtr as u8,
            context: pattern.context,
            tag,
            sequence,
            ..PacketHeader::default()
        };
        let expect = EarlyRtr {
            recv: token,
            room: len,
            skip,
            region,
        };
        self.core
            .queue_control(source.peer, header, expect.encode());
        // At once: the caller leaves.
        self.flush_control();
        Some(())
    }

    /// Takes the memory of an announced receive back. `false`: its sender was quicker.
    pub(crate) fn withdraw_offer(&mut self, index: u32) -> bool {
        if !self.core.requests.peek(index).has(OpFlag::EarlyRtrSent) {
            return true;
        }
        let token = self.core.wire_name(index);
        match self.transport.withdraw_region(token) {
            WithdrawResult::InUse => false,
            WithdrawResult::Withdrawn => {
                self.core.requests.at(index).exposed = false;
                self.core.offer_withdrawn(index);
                true
            }
        }
    }

    /// Before a posted receive ends without a message: withdraws what counts on its taking one, and
    /// what it offered itself. `false`: a sender already writes for one of these, so a message for
    /// this receive is on its way.
    pub(crate) fn withdraw_posted(&mut self, index: u32) -> bool {
        // Later ones first: as long as this one is posted, they are right.
        self.offers_after(index)
            .into_iter()
            .all(|receive| self.withdraw_offer(receive))
            && self.withdraw_offer(index)
    }

    /// The receives that are offered among those posted after this one with the same pattern, the
    /// oldest first. Only what is offered is looked at: many more may be posted.
    fn offers_after(&self, index: u32) -> Vec<u32> {
        let core = &self.core;
        let (pattern, age) = (core.requests.peek(index).pattern, core.matcher.order(index));
        let counts_on = |&offered: &u32| {
            let operation = core.requests.peek(offered);
            operation.state == OpState::Posted
                && core.matcher.order(offered) > age
                && pattern_key(&operation.pattern) == pattern_key(&pattern)
        };
        let mut after: Vec<u32> = core
            .early_rtr
            .offered_receives
            .iter()
            .copied()
            .filter(counts_on)
            .collect();
        after.sort_unstable_by_key(|&offered| core.matcher.order(offered));
        after
    }

    /// Withdraws all offers to peers whose windows may give messages away out of sequence.
    pub(crate) fn withdraw_blocked_offers(&mut self) {
        let doubtful = std::mem::take(&mut self.core.early_rtr.newly_blocked);
        for index in self.core.early_rtr.offered_receives.clone() {
            let operation = self.core.requests.peek(index);
            let source = operation.pattern.source.map(|source| source.peer);
            if operation.state == OpState::Posted
                && source.is_some_and(|source| doubtful.contains(&source))
            {
                self.withdraw_offer(index);
            }
        }
    }

    /// Writes messages that their receivers offered memory for and do not look for.
    pub(crate) fn progress_early_writes(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..self.core.early_rtr.writes.len() {
            let Some(write) = self.core.early_rtr.writes.pop_front() else {
                break;
            };
            let Some(index) = self.core.requests.find(write.send) else {
                continue;
            };
            let operation = self.core.requests.peek(index);
            if operation.state != OpState::Active || operation.region.is_some() {
                continue;
            }
            if self.transport.is_polling(operation.peer) {
                // It takes the message itself, or looks away again.
                self.core.early_rtr.writes.push_back(write);
                self.core.has_work = true;
            } else if let Some(written) = self.start_early_write(index, &write.expect) {
                self.send_early_fin(index, write.expect.recv, written);
                moved = true;
            }
        }
        moved
    }

    /// The next message that is to be written ahead, if its receiver does not look for it: its slot
    /// and where it goes.
    pub(crate) fn next_write(&mut self) -> Option<(u32, EarlyRtr)> {
        for _ in 0..self.core.early_rtr.writes.len() {
            let write = self.core.early_rtr.writes.pop_front()?;
            let Some(index) = self.core.requests.find(write.send) else {
                continue;
            };
            let operation = self.core.requests.peek(index);
            if operation.state != OpState::Active
                || operation.region.is_some()
                || operation.has(OpFlag::Ending)
            {
                continue;
            }
            if !self.transport.is_polling(operation.peer) {
                return Some((index, write.expect));
            }
            self.core.early_rtr.writes.push_back(write);
            self.core.has_work = true;
        }
        None
    }

    /// Writes a message as far as its receiver does not: who begins does not leave it waiting for
    /// the rest. `None`: the offer was withdrawn; else how many bytes, if that worked.
    fn start_early_write(&mut self, index: u32, expect: &EarlyRtr) -> Option<Option<u64>> {
        let watch = self.core.stopwatch();
        let token = self.core.wire_name(index);
        let operation = self.core.requests.peek(index);
        let len = operation.data.len;
        let bulk = || operation.bulk(token, &expect.region, 0, len);
        let mut step = match self.transport.write_early(bulk()) {
            Ok(step) => step?,
            Err(_) => return Some(None),
        };
        let mut written = step.bytes;
        while !step.last {
            step = match self.transport.write_part(bulk()) {
                Ok(step) => step,
                Err(_) => return Some(None),
            };
            written += step.bytes;
        }
        watch.moved(token, operation.peer, written);
        Some(Some(written))
    }

    /// A message that was written part by part is written, or could not be.
    pub(crate) fn end_early_write(&mut self, index: u32, worked: bool) {
        let operation = self.core.requests.at(index);
        operation.clear(OpFlag::EarlyWrite);
        operation.region = None;
        let (recv, moved) = (operation.remote, operation.moved);
        self.send_early_fin(index, recv, worked.then_some(moved));
    }

    /// Tells the receiver how the writing of its message ended. A send of which its receiver took a
    /// part ends with its word.
    fn send_early_fin(&mut self, index: u32, recv: u64, bytes: Option<u64>) {
        let operation = self.core.requests.peek(index);
        let (peer, len) = (operation.peer, operation.data.len);
        let header = PacketHeader {
            kind: PacketKind::EarlyFin as u8,
            flags: match bytes {
                None => FLAG_FAILED,
                Some(bytes) if bytes < len => FLAG_PART,
                Some(_) => 0,
            },
            ..PacketHeader::default()
        };
        let written = EarlyFin {
            recv,
            send: self.core.wire_name(index),
            bytes: bytes.unwrap_or(0),
        };
        self.core.queue_control(peer, header, written.encode());
        if bytes == Some(len) {
            self.core.end_operation(index, None);
        }
    }
}
