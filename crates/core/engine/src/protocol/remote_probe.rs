//! Windows that credits closed, and the queries that reach into them: a legal program never waits
//! for a credit.
//!
//! A sender without envelope credits holds its envelopes and says so once (`Blocked`). A receiver
//! with an unsatisfied receive or probe then asks, one question per peer at a time and oldest
//! posting first (`Probe`); the sender offers the first held envelope that matches (`ProbeHit`) or
//! says `ProbeMiss`. The receiver takes an offer (`Pull`), and that envelope travels at once,
//! outside the credits, to the receive it was taken for. Whenever an envelope joins a window in
//! which a question found nothing, the window's epoch changes and the receiver starts its questions
//! again; answers to questions of an older epoch say so. Since all older receives were answered
//! "nothing" in the same epoch, an offer never jumps over the receive that posting order entitles
//! to it. Bounded by the sends and receives that the two programs leave pending.

use crate::api::{Message, Pattern, Peer, Status, TypeDigest};
use crate::core::{Core, IncomingPayload};
use crate::key_map::TableKey;
use crate::limits::ORDER_LOOK_AHEAD;
use crate::matching::matcher::Envelope;
use crate::matching::unexpected::{MessageInfo, UnexpectedBody};
use crate::observe::events::EventKind;
use crate::peer::state::{
    BlockedEnvelope, ProbeAsker, RemoteProbe, ReservedFor, stream_key, widen,
};
use crate::protocol::wire::{ControlPayload, FLAG_ANY_TAG, FLAG_STALE, ProbeHit};
use crate::requests::OpState;
use crate::schedule::order::WindowEntry;
use crate::transport::{PacketHeader, PacketKind};

/// Links of a held send: by (context, tag), by context, and in the whole window.
const LINKS: u32 = 3;
/// Second word of a key: any tag.
const ANY_TAG: u64 = 1 << 32;
/// Second word of a key: the whole window of a peer.
const WHOLE: u64 = 2 << 32;
/// Patterns of probes remembered as denied per epoch; a probe beyond them asks again.
const DENIED_MAX: usize = 64;

fn tag_key(context: u32, peer: Peer, tag: Option<i32>) -> TableKey {
    TableKey(
        u64::from(context) << 32 | u64::from(peer),
        tag.map_or(ANY_TAG, |tag| u64::from(tag as u32)),
    )
}

fn whole_key(peer: Peer) -> TableKey {
    TableKey(u64::from(peer), WHOLE)
}

impl Core {
    // The sender's side.

    /// A send joins the window of its gate.
    pub(crate) fn hold(&mut self, gate: u32, index: u32) {
        let operation = self.requests.at(index);
        operation.state = OpState::Held;
        let (context, peer, tag, len) = (
            operation.context,
            operation.peer,
            operation.tag,
            operation.data.len,
        );
        self.window
            .push(tag_key(context, peer, Some(tag)), index * LINKS);
        self.window
            .push(tag_key(context, peer, None), index * LINKS + 1);
        self.window.push(whole_key(peer), index * LINKS + 2);
        self.note(EventKind::Hold, peer, context, tag, len);
        let entry = &mut self.gates[gate as usize];
        entry.settle();
        entry.held += 1;
        if entry.held == 1 {
            self.blocked.push(gate);
            self.pending = true;
        }
        if entry.denied {
            entry.epoch = entry.epoch.wrapping_add(1);
            entry.denied = false;
            self.tell_held(gate, true);
        }
    }

    /// Takes a held send out of its window's lists.
    fn unlink(&mut self, gate: u32, index: u32) {
        for link in 0..LINKS {
            self.window.remove(index * LINKS + link);
        }
        self.gates[gate as usize].held -= 1;
    }

    /// A held send ends without being sent.
    pub(crate) fn unhold(&mut self, index: u32) {
        self.taken.retain(|&taken| taken != index);
        let peer = self.requests.peek(index).peer;
        if let Some(gate) = self.gate(peer)
            && self.window.linked(index * LINKS)
        {
            self.unlink(gate, index);
        }
    }

    /// The head of a window left it.
    pub(crate) fn left_window(&mut self, gate: u32, index: u32) {
        if self.window.linked(index * LINKS) {
            self.unlink(gate, index);
        }
    }

    /// The oldest send in a window.
    pub(crate) fn window_head(&self, gate: u32) -> Option<u32> {
        self.window
            .head(whole_key(self.gates[gate as usize].peer))
            .map(|link| link / LINKS)
    }

    /// The oldest sends in a window, as many as plans look at, and what a plan needs of them.
    pub(crate) fn window_view(&self, gate: u32) -> (Vec<u32>, Vec<WindowEntry>) {
        let (mut indices, mut chunks) = (Vec::new(), Vec::new());
        let mut at = self.window.head(whole_key(self.gates[gate as usize].peer));
        while let Some(link) = at.filter(|_| indices.len() < ORDER_LOOK_AHEAD) {
            let operation = self.requests.peek(link / LINKS);
            indices.push(link / LINKS);
            chunks.push(WindowEntry {
                context: operation.context,
                tag: operation.tag,
                len: operation.data.len,
                priority: self.priorities.of(operation.context),
            });
            at = self.window.next(link);
        }
        (indices, chunks)
    }

    /// Whether a send is in a window.
    pub(crate) fn is_held(&self, index: u32) -> bool {
        self.window.linked(index * LINKS)
    }

    /// Tells the peer whether credits keep envelopes back, when that changed. `true`: the window is
    /// not empty.
    pub(crate) fn tell_window(&mut self, gate: u32) -> bool {
        let entry = &self.gates[gate as usize];
        let (held, told, without) = (entry.held != 0, entry.told, entry.envelopes == 0);
        if held && without && !told {
            self.tell_held(gate, true);
        } else if !held && told {
            self.tell_held(gate, false);
        }
        held
    }

    fn tell_held(&mut self, gate: u32, held: bool) {
        let entry = &mut self.gates[gate as usize];
        entry.told = held;
        let header = PacketHeader {
            kind: PacketKind::Blocked as u8,
            context: u32::from(held),
            sequence: entry.epoch,
            ..PacketHeader::default()
        };
        let peer = entry.peer;
        self.tell(peer, header, ControlPayload::new());
    }

    /// A receiver looks into this window.
    fn query(&mut self, gate: u32, header: &PacketHeader) {
        let entry = &mut self.gates[gate as usize];
        let peer = entry.peer;
        if header.sequence != entry.epoch {
            let answer = PacketHeader {
                kind: PacketKind::ProbeMiss as u8,
                flags: FLAG_STALE,
                sequence: entry.epoch,
                ..PacketHeader::default()
            };
            return self.tell(peer, answer, ControlPayload::new());
        }
        let epoch = entry.epoch;
        let tag = if header.flags & FLAG_ANY_TAG == 0 {
            Some(header.tag)
        } else {
            None
        };
        let Some(link) = self.window.head(tag_key(header.context, peer, tag)) else {
            entry.denied = true;
            let answer = PacketHeader {
                kind: PacketKind::ProbeMiss as u8,
                sequence: epoch,
                ..PacketHeader::default()
            };
            return self.tell(peer, answer, ControlPayload::new());
        };
        let first = self
            .window
            .head(tag_key(header.context, peer, None))
            .unwrap_or(link);
        let sent_before = self.requests.peek(first / LINKS).sequence;
        let operation = self.requests.peek(link / LINKS);
        let offer = ProbeHit {
            len: operation.data.len,
            sent_before,
            epoch,
        };
        let answer = PacketHeader {
            kind: PacketKind::ProbeHit as u8,
            context: operation.context,
            source: operation.source,
            tag: operation.tag,
            sequence: operation.sequence,
            ..PacketHeader::default()
        };
        self.tell(peer, answer, offer.encode());
    }

    /// A receiver takes a held envelope. One that is no longer held is on its way already.
    fn take_held(&mut self, gate: u32, header: &PacketHeader) {
        let peer = self.gates[gate as usize].peer;
        let mut at = self
            .window
            .head(tag_key(header.context, peer, Some(header.tag)));
        while let Some(link) = at {
            let index = link / LINKS;
            if self.requests.peek(index).sequence == header.sequence {
                self.unlink(gate, index);
                self.taken.push_back(index);
                self.pending = true;
                return;
            }
            at = self.window.next(link);
        }
    }

    // The receiver's side.

    /// Dispatch of the five kinds that concern windows. `None`: the peer broke the format.
    pub(crate) fn about_window(
        &mut self,
        gate: u32,
        kind: PacketKind,
        header: &PacketHeader,
        bytes: &ControlPayload,
    ) -> Option<()> {
        match kind {
            PacketKind::Blocked => self.peer_holds(gate, header.context != 0, header.sequence),
            // One question at a time: whoever asks the next one has read the answer to the last.
            PacketKind::Probe
                if self.owes_answer(
                    self.gates[gate as usize].peer,
                    &[PacketKind::ProbeHit, PacketKind::ProbeMiss],
                ) =>
            {
                return None;
            }
            PacketKind::Probe => self.query(gate, header),
            PacketKind::Pull => self.take_held(gate, header),
            PacketKind::ProbeHit => {
                let offer = ProbeHit::decode(bytes)?;
                let question = self.gates[gate as usize].asking.asked.as_ref()?;
                if question.context != header.context
                    || question.tag.is_some_and(|tag| tag != header.tag)
                {
                    return None;
                }
                if question.asker == ProbeAsker::Nobody {
                    self.gates[gate as usize].asking.asked = None;
                    self.ask_next(gate);
                    return Some(());
                }
                let peer = self.gates[gate as usize].peer;
                let at = self
                    .streams
                    .find_or_insert(stream_key(header.context, peer));
                let next = self.streams.get(at).next_rx;
                let held = BlockedEnvelope {
                    context: header.context,
                    source: header.source,
                    tag: header.tag,
                    sequence: widen(next, header.sequence),
                    len: offer.len,
                };
                self.gates[gate as usize].asking.offer =
                    Some((held, widen(next, offer.sent_before)));
                self.pending = true;
            }
            PacketKind::ProbeMiss => {
                let asking = &mut self.gates[gate as usize].asking;
                let question = asking.asked.take()?;
                if header.flags & FLAG_STALE != 0 {
                    self.ask_again(gate, header.sequence);
                } else {
                    if question.asker == ProbeAsker::Probe && asking.denied.len() < DENIED_MAX {
                        asking.denied.push((question.context, question.tag));
                    }
                    self.ask_next(gate);
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// A peer says whether it holds envelopes back.
    fn peer_holds(&mut self, gate: u32, held: bool, epoch: u32) {
        let asking = &mut self.gates[gate as usize].asking;
        self.holders = self.holders - u32::from(asking.held) + u32::from(held);
        asking.held = held;
        if held {
            let peer = self.gates[gate as usize].peer;
            self.ahead.doubtful.push(peer);
            self.pending = true;
            self.return_credits(gate);
            self.ask_again(gate, epoch);
        } else {
            asking.queue.clear();
            asking.offers.clear();
        }
    }

    /// Starts the questions to a window from the oldest posted receive.
    fn ask_again(&mut self, gate: u32, epoch: u32) {
        let peer = self.gates[gate as usize].peer;
        let mut posted = self.requests.select(|operation| {
            operation.state == OpState::Posted
                && operation
                    .pattern
                    .source
                    .is_none_or(|source| source.peer == peer)
        });
        posted.sort_by_key(|&receive| self.matcher.order(receive));
        let questions = posted
            .into_iter()
            .map(|receive| self.question(receive))
            .collect();
        let asking = &mut self.gates[gate as usize].asking;
        asking.epoch = epoch;
        asking.denied.clear();
        asking.queue = questions;
        self.completions += 1;
        self.ask_next(gate);
    }

    fn question(&self, receive: u32) -> RemoteProbe {
        let operation = self.requests.peek(receive);
        let asker = ProbeAsker::Receive(receive, operation.generation);
        RemoteProbe {
            asker,
            context: operation.pattern.context,
            tag: operation.pattern.tag,
        }
    }

    /// A receive was posted: windows that may hold its message are asked.
    #[inline]
    pub(crate) fn ask_for(&mut self, receive: u32) {
        if self.holders != 0 {
            self.ask_holders(receive);
        }
    }

    #[cold]
    fn ask_holders(&mut self, receive: u32) {
        let question = self.question(receive);
        let pattern = self.requests.peek(receive).pattern;
        for gate in self.holding(&pattern) {
            let asking = &mut self.gates[gate as usize].asking;
            // What a probe was offered before may be this receive's, which is asked for first.
            asking.offers.retain(|(_, held)| {
                held.context != pattern.context || pattern.tag.is_some_and(|tag| tag != held.tag)
            });
            asking.queue.push_back(question);
            self.ask_next(gate);
        }
    }

    /// Gates whose peer holds envelopes back and may satisfy `pattern`.
    fn holding(&self, pattern: &Pattern) -> Vec<u32> {
        let accepts = |peer| pattern.source.is_none_or(|source| source.peer == peer);
        let gates = self.gates.iter().enumerate();
        gates
            .filter(|(_, gate)| gate.asking.held && !gate.gone && accepts(gate.peer))
            .map(|(gate, _)| gate as u32)
            .collect()
    }

    /// Sends the next question that still matters.
    pub(crate) fn ask_next(&mut self, gate: u32) {
        let asking = &mut self.gates[gate as usize].asking;
        if asking.asked.is_some() || !asking.held {
            return;
        }
        while let Some(question) = asking.queue.pop_front() {
            if let ProbeAsker::Receive(receive, generation) = question.asker {
                let operation = self.requests.peek(receive);
                if operation.generation != generation || operation.state != OpState::Posted {
                    continue;
                }
            }
            asking.asked = Some(question);
            let header = PacketHeader {
                kind: PacketKind::Probe as u8,
                flags: if question.tag.is_none() {
                    FLAG_ANY_TAG
                } else {
                    0
                },
                context: question.context,
                tag: question.tag.unwrap_or(0),
                sequence: asking.epoch,
                ..PacketHeader::default()
            };
            let peer = self.gates[gate as usize].peer;
            return self.tell(peer, header, ControlPayload::new());
        }
    }

    /// Decides on offers whose earlier envelopes have all arrived.
    pub(crate) fn settle_offers(&mut self) {
        if self.holders == 0 {
            return;
        }
        for gate in 0..self.gates.len() as u32 {
            let entry = &self.gates[gate as usize];
            let Some((held, sent_before)) = entry.asking.offer else {
                continue;
            };
            let at = self
                .streams
                .find_or_insert(stream_key(held.context, entry.peer));
            if self.streams.get(at).next_rx < sent_before {
                // Those before it may come the shortest way, which looks after nothing else.
                self.pending = true;
                continue;
            }
            let asking = &mut self.gates[gate as usize].asking;
            asking.offer = None;
            if let Some(question) = asking.asked.take() {
                self.settle(gate, question, held);
            }
            self.ask_next(gate);
        }
    }

    fn settle(&mut self, gate: u32, question: RemoteProbe, held: BlockedEnvelope) {
        let fresh = self.still_held(gate, &held);
        let asking = &mut self.gates[gate as usize].asking;
        match question.asker {
            // Its offers are not kept.
            ProbeAsker::Nobody => {}
            _ if !fresh => asking.queue.push_front(question),
            ProbeAsker::Probe => {
                asking.offers.push((question.tag, held));
                self.completions += 1;
            }
            ProbeAsker::Receive(receive, generation) => {
                let operation = self.requests.at(receive);
                if operation.generation != generation || operation.state != OpState::Posted {
                    return;
                }
                operation.state = OpState::Bound;
                operation.peer = self.gates[gate as usize].peer;
                let pattern = operation.pattern;
                self.matcher.withdraw(&pattern, receive);
                self.bind(gate, &held, ReservedFor::Receive(receive));
            }
        }
    }

    /// Whether an offered envelope neither arrived nor was taken meanwhile.
    fn still_held(&mut self, gate: u32, held: &BlockedEnvelope) -> bool {
        let peer = self.gates[gate as usize].peer;
        let at = self.streams.find_or_insert(stream_key(held.context, peer));
        let stream = self.streams.get(at);
        let odd = stream.odd.as_deref();
        held.sequence >= stream.next_rx
            && odd.is_none_or(|odd| {
                !odd.bound.contains_key(&held.sequence)
                    && !odd.finished(held.sequence)
                    && !odd.early.contains_key(&held.sequence)
            })
    }

    /// Whether a posted receive waits for an offered envelope.
    fn is_wanted(&self, gate: u32, held: &BlockedEnvelope) -> bool {
        self.matcher.is_wanted(&Envelope {
            context: held.context,
            peer: self.gates[gate as usize].peer,
            tag: held.tag,
        })
    }

    /// Takes an offered envelope for `bound`.
    fn bind(&mut self, gate: u32, held: &BlockedEnvelope, bound: ReservedFor) {
        let peer = self.gates[gate as usize].peer;
        let at = self.streams.find_or_insert(stream_key(held.context, peer));
        self.streams
            .get_mut(at)
            .odd
            .get_or_insert_default()
            .bound
            .insert(held.sequence, bound);
        let header = PacketHeader {
            kind: PacketKind::Pull as u8,
            context: held.context,
            tag: held.tag,
            sequence: held.sequence as u32,
            ..PacketHeader::default()
        };
        self.tell(peer, header, ControlPayload::new());
    }

    /// The offer that answers a probe, from a window that may satisfy it; windows not asked yet are
    /// asked.
    fn offered(&mut self, pattern: &Pattern) -> Option<(u32, usize)> {
        if self.holders == 0 {
            return None;
        }
        for gate in self.holding(pattern) {
            let offers = std::mem::take(&mut self.gates[gate as usize].asking.offers);
            // A receive that was posted while a probe's question was on its way comes first.
            let fresh: Vec<_> = offers
                .into_iter()
                .filter(|(_, held)| self.still_held(gate, held) && !self.is_wanted(gate, held))
                .collect();
            let asking = &mut self.gates[gate as usize].asking;
            asking.offers = fresh;
            let wanted = (pattern.context, pattern.tag);
            if let Some(at) = asking
                .offers
                .iter()
                .position(|(tag, held)| (held.context, *tag) == wanted)
            {
                return Some((gate, at));
            }
            let same = |question: &RemoteProbe| {
                question.asker == ProbeAsker::Probe && (question.context, question.tag) == wanted
            };
            let known = asking.denied.contains(&wanted)
                || asking.asked.iter().any(same)
                || asking.queue.iter().any(same);
            if !known {
                asking.queue.push_back(RemoteProbe {
                    asker: ProbeAsker::Probe,
                    context: pattern.context,
                    tag: pattern.tag,
                });
                self.ask_next(gate);
            }
        }
        None
    }

    /// What a probe may report from peers' windows.
    pub(crate) fn probe_windows(&mut self, pattern: &Pattern) -> Option<Status> {
        let (gate, at) = self.offered(pattern)?;
        let (_, held) = self.gates[gate as usize].asking.offers[at];
        Some(Status {
            source: held.source,
            tag: held.tag,
            len: held.len,
            cancelled: false,
            error: None,
        })
    }

    /// Takes a message out of a peer's window for a matched probe.
    pub(crate) fn take_from_windows(&mut self, pattern: &Pattern) -> Option<(Message, Status)> {
        let (gate, at) = self.offered(pattern)?;
        let (_, held) = self.gates[gate as usize].asking.offers.swap_remove(at);
        let meta = MessageInfo {
            context: held.context,
            peer: self.gates[gate as usize].peer,
            source: held.source,
            tag: held.tag,
            sequence: held.sequence as u32,
            len: held.len,
            waiting: None,
            credited: false,
            mark: TypeDigest::NONE,
        };
        let item = self.store.insert(meta, UnexpectedBody::Coming);
        let message = self.store.take(item);
        self.bind(gate, &held, ReservedFor::Message(item));
        let status = Status {
            source: held.source,
            tag: held.tag,
            len: held.len,
            cancelled: false,
            error: None,
        };
        Some((message, status))
    }

    /// Receives a message that a matched probe took, arrived or not.
    pub(crate) fn receive_taken(&mut self, receive: u32, item: u32) {
        if matches!(self.store.get(item).body, UnexpectedBody::Coming) {
            let peer = self.store.get(item).meta.peer;
            let operation = self.requests.at(receive);
            operation.state = OpState::Bound;
            operation.peer = peer;
            self.store.await_for(item, receive);
        } else {
            self.hand_over(receive, item);
        }
    }

    /// The envelope of a message that a matched probe took arrived.
    pub(crate) fn fill_message(
        &mut self,
        item: u32,
        mut meta: MessageInfo,
        incoming: IncomingPayload,
    ) {
        meta.credited = false;
        if let UnexpectedBody::Awaited(receive) = self.store.get(item).body {
            self.store.remove(item);
            return self.fulfil(receive, meta, incoming);
        }
        match self.bodied(&meta, incoming) {
            Ok(body) => self.store.fill(item, meta, body),
            Err(_) => {
                if let Some(gate) = self.gate(meta.peer) {
                    self.lose(gate, "its message could not be kept for want of memory");
                }
            }
        }
    }
}
