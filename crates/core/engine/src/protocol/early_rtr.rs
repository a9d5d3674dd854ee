//! Receives announced ahead, so that the sender of the message writes it where it belongs while its
//! receiver computes.
//!
//! A receive of a large message from one named sender with one tag offers its memory (`EarlyRtr`),
//! if nothing posted before it with a wildcard may take its message. The offer says which envelope
//! it is for: of those with its tag, from a sequence number on, the one after `skip` others. The
//! sender knows what it sent from its events and trails, so no message pays for that. Envelopes
//! travel and match as ever; an offer only says where bytes may go, and the sender that uses it
//! does so after its envelope left. The rail hands memory over once: of what a sender began to
//! write the receiver takes parts like any other that is shared, if it comes to look for the
//! message meanwhile; a receiver that would rather fetch, or cancels, withdraws it before. So a
//! sender may forget offers as it likes, and those that became wrong are withdrawn: whenever a
//! receive leaves its place without a message, and when windows are queried. Bounded by `AHEAD_MAX`
//! offers of all peers together.

use crate::api::{ContextId, Pattern, Peer, Request};
use crate::core::Core;
use crate::engine::Engine;
use crate::limits::{AHEAD_FROM, AHEAD_LOG, AHEAD_MAX, AHEAD_OFFERS, AHEAD_SKIP_MAX, AHEAD_TO};
use crate::matching::matcher::pattern_key;
use crate::peer::state::{stream_key, widen};
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
    /// Of the envelopes to the peer in this context from this number on …
    from: u64,
    /// … the one with this tag that comes after so many others with it.
    skip: u32,
    expect: EarlyRtr,
}

/// Where the envelope is that an offer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfferTarget {
    /// Not sent yet.
    Future,
    /// It had this number.
    Sent(u64),
    /// It is not known any more.
    Lost,
}

/// A send whose message may be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarlyWrite {
    pub send: Request,
    pub expect: EarlyRtr,
}

/// What an engine knows of offers. See the module's paragraph.
#[derive(Debug, Default)]
pub(crate) struct EarlyRtrState {
    wanted: VecDeque<ReceivedOffer>,
    /// Sends announced to their receivers lately.
    announced: VecDeque<Request>,
    writes: VecDeque<EarlyWrite>,
    /// Slots of the receives of this rank whose memory is offered.
    offered: Vec<u32>,
    /// Peers that began to hold envelopes back: offers to them are withdrawn.
    pub doubtful: Vec<Peer>,
}

impl EarlyRtrState {
    /// Whether a peer offered a receive that messages of this context and tag go to.
    #[inline]
    fn wants(&self, peer: Peer, context: u32, tag: i32) -> bool {
        let envelope = (peer, context, tag);
        let offers = || {
            self.wanted
                .iter()
                .map(|wanted| (wanted.peer, wanted.context, wanted.tag))
        };
        !self.wanted.is_empty() && offers().any(|offer| offer == envelope)
    }

    /// A message is still to be written.
    pub(crate) fn write_again(&mut self, write: EarlyWrite) {
        self.writes.push_front(write);
    }

    /// Messages are to be written.
    pub(crate) fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Nothing that a peer offered is of use any more.
    pub(crate) fn forget(&mut self, peer: Peer) {
        self.wanted.retain(|wanted| wanted.peer != peer);
    }

    /// Nothing is sent in these contexts any more.
    pub(crate) fn forget_contexts(&mut self, contexts: &Range<ContextId>) {
        self.wanted
            .retain(|wanted| !contexts.contains(&wanted.context));
    }
}

impl Core {
    /// Bytes of messages that are to be written.
    pub(crate) fn bytes_ahead(&self) -> u64 {
        let sends = self.ahead.writes.iter();
        let known = sends.filter_map(|write| self.requests.find(write.send));
        known
            .map(|index| self.requests.peek(index).data.len)
            .fold(0, u64::saturating_add)
    }
}

/// Adds to a list of hints, over the oldest.
fn remember<T>(list: &mut VecDeque<T>, item: T) {
    if list.len() >= AHEAD_MAX {
        list.pop_front();
    }
    list.push_back(item);
}

impl Core {
    // The sender's side.

    /// A peer offers a receive's memory. `None`: it broke the format.
    pub(crate) fn expect(
        &mut self,
        gate: u32,
        header: &PacketHeader,
        expect: EarlyRtr,
    ) -> Option<()> {
        let peer = self.gates[gate as usize].peer;
        let stream = self.streams.find(stream_key(header.context, peer));
        let next = stream.map_or(0, |at| self.streams.get(at).next_tx());
        let mut wanted = ReceivedOffer {
            peer,
            context: header.context,
            tag: header.tag,
            from: widen(next, header.sequence),
            skip: expect.skip,
            expect,
        };
        // Nobody has seen what was not sent, unless it was before this side freed the communicator
        // and forgot the stream.
        if wanted.from > next {
            return (next == 0).then_some(());
        }
        if self.aim(&mut wanted, next) != OfferTarget::Lost && self.hit(&wanted, next).is_none() {
            remember(&mut self.ahead.wanted, wanted);
        }
        Some(())
    }

    /// Looks for the envelope that an offer is for, among what was sent. `next` is the number of
    /// the next one.
    fn aim(&self, wanted: &mut ReceivedOffer, next: u64) -> OfferTarget {
        let sent = next - wanted.from;
        if sent > AHEAD_LOG {
            return OfferTarget::Lost;
        }
        let (peer, context) = (wanted.peer, wanted.context);
        let stream = self.streams.find(stream_key(context, peer));
        let stream = stream.map(|at| self.streams.get(at));
        if stream.is_some_and(|stream| wanted.from < stream.forgotten) {
            return OfferTarget::Lost;
        }
        let track = stream.and_then(|stream| stream.track.as_deref());
        // A stream that has a track has them in its trail, each by its number; others among the
        // events, one for each number.
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
    fn hit(&mut self, wanted: &ReceivedOffer, next: u64) -> Option<()> {
        let number = match self.aim(&mut wanted.clone(), next) {
            OfferTarget::Future => return None,
            OfferTarget::Lost => return Some(()),
            OfferTarget::Sent(number) => number,
        };
        let send = self.ahead.announced.iter().copied().find(|send| {
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
                .gate(wanted.peer)
                .is_some_and(|gate| self.gates[gate as usize].held != 0);
            return if held { None } else { Some(()) };
        };
        let len = self.requests.peek(send.index).data.len;
        // What is too long is its receiver's error, found the usual way.
        if len <= wanted.expect.room.min(AHEAD_TO) {
            self.ahead.writes.push_back(EarlyWrite {
                send,
                expect: wanted.expect,
            });
            self.pending = true;
        }
        Some(())
    }

    /// Whether a send's message is to be written where its receiver offered.
    pub(crate) fn will_write(&self, index: u32) -> bool {
        let send = self.requests.name(index);
        self.ahead.writes.iter().any(|write| write.send == send)
    }

    /// A send was announced to its receiver.
    pub(crate) fn announced(&mut self, index: u32) {
        let send = self.requests.name(index);
        remember(&mut self.ahead.announced, send);
        if self.ahead.wanted.is_empty() {
            return;
        }
        let operation = self.requests.peek(index);
        let (peer, context, tag) = (operation.peer, operation.context, operation.tag);
        let stream = self.streams.find_or_insert(stream_key(context, peer));
        let next = self.streams.get(stream).next_tx();
        for _ in 0..self.ahead.wanted.len() {
            let Some(mut wanted) = self.ahead.wanted.pop_front() else {
                break;
            };
            let same = (wanted.peer, wanted.context, wanted.tag) == (peer, context, tag);
            // The numbers are brought up to date while the events still reach back that far.
            if !same
                || self.aim(&mut wanted, next) != OfferTarget::Lost
                    && self.hit(&wanted, next).is_none()
            {
                self.ahead.wanted.push_back(wanted);
            }
        }
    }

    // The receiver's side.

    /// How many envelopes of its tag go to other receives before the next goes to this one, which
    /// was just posted. `None`: that cannot be said.
    fn place_of(&self, pattern: &Pattern, receive: u32) -> Option<u32> {
        self.matcher.ahead_of(pattern, receive, AHEAD_SKIP_MAX)
    }

    /// A receive's memory is not offered any more.
    pub(crate) fn withdrawn(&mut self, index: u32) {
        let operation = self.requests.at(index);
        if operation.marked(OpFlag::Announced) {
            operation.unmark(OpFlag::Announced);
            self.ahead.offered.retain(|&offered| offered != index);
        }
    }

    /// The sender of an announced receive wrote its message. `None`: it broke the format.
    pub(crate) fn written(&mut self, peer: Peer, written: &EarlyFin, worked: bool) -> Option<()> {
        let Some(index) = self.requests.find(from_wire(written.recv)) else {
            return Some(());
        };
        let operation = self.requests.at(index);
        let expects = (operation.side, operation.peer) == (OpSide::Recv, peer);
        let failed = operation.state == OpState::Complete || operation.error.is_some();
        if expects && (operation.marked(OpFlag::Packets) || failed) {
            // It comes anew, or the message met it and was not what it waits for, which its sender
            // could not know.
            return Some(());
        }
        let known = expects
            && (operation.state, operation.remote) == (OpState::Active, written.send)
            && operation.marked(OpFlag::Announced);
        if !known {
            return None;
        }
        let joined = operation.fetching == Some(RendezvousMode::Share);
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
        self.withdrawn(index);
        if !worked {
            self.fetch_is_over(index, false);
            self.ask_for_packets(index);
        } else if whole {
            self.requests.at(index).region = None;
            // Whoever wrote all of it knows that its send is over.
            self.fetch_ended(index, written.bytes < total);
        }
        Some(())
    }
}

impl<R: Transport> Engine<R> {
    /// Whether a message is better written where it belongs than sent with its envelope: its
    /// receiver offered that, and computes.
    #[inline]
    pub(crate) fn goes_ahead(&self, peer: Peer, context: u32, tag: i32, len: u64) -> bool {
        len > AHEAD_FROM.into()
            && self.core.ahead.wants(peer, context, tag)
            && !self.rail.looks(peer)
    }

    /// Offers the memory of a receive to the sender of its message, if that can be, also when the
    /// message was announced already. For receives whose callers go on without waiting; what is at
    /// once waited for is better fetched.
    pub fn announce(&mut self, request: Request) {
        if let Some(index) = self.core.requests.find(request) {
            self.announce_slot(index);
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn announce_slot(&mut self, index: u32) {
        match self.core.requests.peek(index).state {
            OpState::Posted => drop(self.try_announce(index)),
            OpState::Active => self.fetch_by_both(index),
            _ => {}
        }
    }

    /// Lets the sender write an announced message that met its receive when that was posted.
    /// Whoever of both has hands moves it.
    fn fetch_by_both(&mut self, index: u32) {
        let operation = self.core.requests.peek(index);
        let fits = operation.side == OpSide::Recv
            && operation.region.is_some()
            && operation.fetching.is_none()
            && operation.marks & !(OpFlag::Watched as u16 | OpFlag::Awaited as u16) == 0;
        let peer = operation.peer;
        if !fits || !self.rail.reach(peer).is_some_and(|reach| reach.can_write) {
            return;
        }
        if self.share_with_sender(index, RendezvousMode::Late, 0) {
            self.fetch_unasked(index);
        }
    }

    fn try_announce(&mut self, index: u32) -> Option<()> {
        // The offer counts from the next envelope on: streams must know all that was taken.
        self.core.settle_inlets();
        if !self.core.outbox.is_empty() {
            self.flush();
        }
        let operation = self.core.requests.peek(index);
        let pattern = operation.pattern;
        let (source, tag) = (pattern.source?, pattern.tag?);
        let fits =
            operation.state == OpState::Posted && !operation.exposed && source.peer != self.core.me;
        // Nor is anything added to what found no room.
        let room = self.core.ahead.offered.len() < AHEAD_OFFERS && self.core.outbox.is_empty();
        if !fits || !self.limits.ordered || !room {
            return None;
        }
        let len = operation.data.len;
        let reach = self.rail.reach(source.peer)?;
        if len <= (reach.eager_max as u64).min(AHEAD_FROM.into()) || !reach.can_write {
            return None;
        }
        let gate = match self.core.gate(source.peer) {
            Some(gate) => gate,
            None => self.core.open_gate(source.peer, reach),
        };
        let entry = &self.core.gates[gate as usize];
        if entry.gone || entry.asking.held {
            return None;
        }
        let stream = self
            .core
            .streams
            .find_or_insert(stream_key(pattern.context, source.peer));
        let stream = self.core.streams.get(stream);
        if stream.odd.is_some() {
            return None;
        }
        let sequence = stream.next_rx as u32;
        let skip = self.core.place_of(&pattern, index)?;
        let token = self.core.wire_name(index);
        let operation = self.core.requests.at(index);
        let region = self
            .rail
            .share(token, source.peer, &operation.data, RendezvousMode::Late)?;
        operation.exposed = true;
        operation.mark(OpFlag::Announced);
        self.core.ahead.offered.push(index);
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
        self.core.tell(source.peer, header, expect.encode());
        // At once: the caller leaves.
        self.flush();
        Some(())
    }

    /// Takes the memory of an announced receive back. `false`: its sender was quicker.
    pub(crate) fn withdraw(&mut self, index: u32) -> bool {
        if !self.core.requests.peek(index).marked(OpFlag::Announced) {
            return true;
        }
        let token = self.core.wire_name(index);
        match self.rail.withdraw(token) {
            WithdrawResult::Theirs => false,
            WithdrawResult::Mine => {
                self.core.requests.at(index).exposed = false;
                self.core.withdrawn(index);
                true
            }
        }
    }

    /// Before a posted receive ends without a message: withdraws what counts on its taking one, and
    /// what it offered itself. `false`: a sender already writes for one of these, so a message for
    /// this receive is on its way.
    pub(crate) fn withdraw_from(&mut self, index: u32) -> bool {
        // Later ones first: as long as this one is posted, they are right.
        self.offers_after(index)
            .into_iter()
            .all(|receive| self.withdraw(receive))
            && self.withdraw(index)
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
            .ahead
            .offered
            .iter()
            .copied()
            .filter(counts_on)
            .collect();
        after.sort_unstable_by_key(|&offered| core.matcher.order(offered));
        after
    }

    /// Withdraws all offers to peers whose windows may give messages away out of sequence.
    pub(crate) fn withdraw_doubtful(&mut self) {
        let doubtful = std::mem::take(&mut self.core.ahead.doubtful);
        for index in self.core.ahead.offered.clone() {
            let operation = self.core.requests.peek(index);
            let source = operation.pattern.source.map(|source| source.peer);
            if operation.state == OpState::Posted
                && source.is_some_and(|source| doubtful.contains(&source))
            {
                self.withdraw(index);
            }
        }
    }

    /// Writes messages that their receivers offered memory for and do not look for.
    pub(crate) fn pump_writes(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..self.core.ahead.writes.len() {
            let Some(write) = self.core.ahead.writes.pop_front() else {
                break;
            };
            let Some(index) = self.core.requests.find(write.send) else {
                continue;
            };
            let operation = self.core.requests.peek(index);
            if operation.state != OpState::Active || operation.region.is_some() {
                continue;
            }
            if self.rail.looks(operation.peer) {
                // It takes the message itself, or looks away again.
                self.core.ahead.writes.push_back(write);
                self.core.pending = true;
            } else if let Some(written) = self.write(index, &write.expect) {
                self.end_write(index, write.expect.recv, written);
                moved = true;
            }
        }
        moved
    }

    /// The next message that is to be written ahead, if its receiver does not look for it: its slot
    /// and where it goes.
    pub(crate) fn next_write(&mut self) -> Option<(u32, EarlyRtr)> {
        for _ in 0..self.core.ahead.writes.len() {
            let write = self.core.ahead.writes.pop_front()?;
            let Some(index) = self.core.requests.find(write.send) else {
                continue;
            };
            let operation = self.core.requests.peek(index);
            if operation.state != OpState::Active
                || operation.region.is_some()
                || operation.marked(OpFlag::Ending)
            {
                continue;
            }
            if !self.rail.looks(operation.peer) {
                return Some((index, write.expect));
            }
            self.core.ahead.writes.push_back(write);
            self.core.pending = true;
        }
        None
    }

    /// Writes a message as far as its receiver does not: who begins does not leave it waiting for
    /// the rest. `None`: the offer was withdrawn; else how many bytes, if that worked.
    fn write(&mut self, index: u32, expect: &EarlyRtr) -> Option<Option<u64>> {
        let watch = self.core.stopwatch();
        let token = self.core.wire_name(index);
        let operation = self.core.requests.peek(index);
        let len = operation.data.len;
        let bulk = || operation.bulk(token, &expect.region, 0, len);
        let mut step = match self.rail.write_ahead(bulk()) {
            Ok(step) => step?,
            Err(_) => return Some(None),
        };
        let mut written = step.bytes;
        while !step.last {
            step = match self.rail.push_part(bulk()) {
                Ok(step) => step,
                Err(_) => return Some(None),
            };
            written += step.bytes;
        }
        watch.moved(token, operation.peer, written);
        Some(Some(written))
    }

    /// A message that was written part by part is written, or could not be.
    pub(crate) fn end_ahead(&mut self, index: u32, worked: bool) {
        let operation = self.core.requests.at(index);
        operation.unmark(OpFlag::Ahead);
        operation.region = None;
        let (recv, moved) = (operation.remote, operation.moved);
        self.end_write(index, recv, worked.then_some(moved));
    }

    /// Tells the receiver how the writing of its message ended. A send of which its receiver took a
    /// part ends with its word.
    fn end_write(&mut self, index: u32, recv: u64, bytes: Option<u64>) {
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
        self.core.tell(peer, header, written.encode());
        if bytes == Some(len) {
            self.core.end(index, None);
        }
    }
}
