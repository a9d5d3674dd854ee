//! Windows that credits closed, and the probes that reach into them: a legal program never waits
//! for a credit.
//!
//! A sender without envelope credits blocks its envelopes in a window and says so once (`Blocked`).
//! A receiver with an unsatisfied receive or probe then probes the window: one probe per peer at a
//! time, oldest posting first (`Probe`). The sender answers with the first blocked envelope that
//! matches (`ProbeHit`), or `ProbeMiss`. The receiver pulls the envelope (`Pull`). That envelope
//! travels at once, outside the credits, to the receive it was pulled for.
//!
//! The window's epoch changes whenever an envelope joins a window in which a probe missed. The
//! receiver then starts its probes again; answers to probes of an older epoch say so. All older
//! receives missed in the same epoch, so a hit never jumps over the receive that posting order
//! entitles to it. Bounded by the sends and receives that the two programs leave pending.

use crate::api::{Message, Pattern, Status, TypeDigest};
use crate::core::{Core, IncomingPayload};
use crate::matching::matcher::Envelope;
use crate::matching::unexpected::{MessageInfo, UnexpectedBody};
use crate::peer::reorder::ReservedFor;
use crate::peer::sequences::{stream_key, widen};
use crate::protocol::remote_window::{BlockedEnvelope, ProbeAsker, RemoteProbe};
use crate::protocol::wire::{ControlPayload, FLAG_ANY_TAG, FLAG_STALE, ProbeHit};
use crate::requests::OpState;
use crate::transport::{PacketHeader, PacketKind};

/// Patterns of probes remembered as denied per epoch; a probe beyond them asks again.
const DENIED_MAX: usize = 64;

impl Core {
    // The sender's side: `schedule::window` owns what waits.

    /// A receiver looks into this window.
    fn on_probe(&mut self, peer_index: u32, header: &PacketHeader) {
        let entry = &mut self.peers[peer_index as usize];
        let peer = entry.peer;
        if header.sequence != entry.epoch {
            let answer = PacketHeader {
                kind: PacketKind::ProbeMiss as u8,
                flags: FLAG_STALE,
                sequence: entry.epoch,
                ..PacketHeader::default()
            };
            return self.queue_control(peer, answer, ControlPayload::new());
        }
        let epoch = entry.epoch;
        let tag = if header.flags & FLAG_ANY_TAG == 0 {
            Some(header.tag)
        } else {
            None
        };
        let Some(index) = self.windows.matching(header.context, peer, tag).next() else {
            entry.probe_missed = true;
            let answer = PacketHeader {
                kind: PacketKind::ProbeMiss as u8,
                sequence: epoch,
                ..PacketHeader::default()
            };
            return self.queue_control(peer, answer, ControlPayload::new());
        };
        let first = self.windows.matching(header.context, peer, None).next();
        let sent_before = self.requests.peek(first.unwrap_or(index)).sequence;
        let operation = self.requests.peek(index);
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
        self.queue_control(peer, answer, offer.encode());
    }

    /// A receiver takes a blocked envelope. One that is no longer held is on its way already.
    fn on_pull(&mut self, peer_index: u32, header: &PacketHeader) {
        let peer = self.peers[peer_index as usize].peer;
        let found = self
            .windows
            .matching(header.context, peer, Some(header.tag))
            .find(|&index| self.requests.peek(index).sequence == header.sequence);
        if let Some(index) = found {
            self.unlink(peer_index, index);
            self.windows.push_pulled(index);
            self.has_work = true;
        }
    }

    // The receiver's side.

    /// Dispatch of the five kinds that concern windows. `None`: the peer broke the format.
    pub(crate) fn on_window_packet(
        &mut self,
        peer_index: u32,
        kind: PacketKind,
        header: &PacketHeader,
        bytes: &ControlPayload,
    ) -> Option<()> {
        match kind {
            PacketKind::Blocked => {
                self.on_blocked(peer_index, header.context != 0, header.sequence)
            }
            // One question at a time: whoever asks the next one has read the answer to the last.
            PacketKind::Probe
                if self.owes_answer(
                    self.peers[peer_index as usize].peer,
                    &[PacketKind::ProbeHit, PacketKind::ProbeMiss],
                ) =>
            {
                return None;
            }
            PacketKind::Probe => self.on_probe(peer_index, header),
            PacketKind::Pull => self.on_pull(peer_index, header),
            PacketKind::ProbeHit => {
                let offer = ProbeHit::decode(bytes)?;
                let question = self.peers[peer_index as usize]
                    .remote_window
                    .in_flight
                    .as_ref()?;
                if question.context != header.context
                    || question.tag.is_some_and(|tag| tag != header.tag)
                {
                    return None;
                }
                if question.asker == ProbeAsker::Nobody {
                    self.peers[peer_index as usize].remote_window.in_flight = None;
                    self.send_next_probe(peer_index);
                    return Some(());
                }
                let peer = self.peers[peer_index as usize].peer;
                let at = self
                    .sequences
                    .find_or_insert(stream_key(header.context, peer));
                let next = self.sequences.get(at).next_rx;
                let held = BlockedEnvelope {
                    context: header.context,
                    source: header.source,
                    tag: header.tag,
                    sequence: widen(next, header.sequence),
                    len: offer.len,
                };
                self.peers[peer_index as usize].remote_window.hit =
                    Some((held, widen(next, offer.sent_before)));
                self.has_work = true;
            }
            PacketKind::ProbeMiss => {
                let asking = &mut self.peers[peer_index as usize].remote_window;
                let question = asking.in_flight.take()?;
                if header.flags & FLAG_STALE != 0 {
                    self.restart_probes(peer_index, header.sequence);
                } else {
                    if question.asker == ProbeAsker::Probe && asking.misses.len() < DENIED_MAX {
                        asking.misses.push((question.context, question.tag));
                    }
                    self.send_next_probe(peer_index);
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// A peer says whether it holds envelopes back.
    fn on_blocked(&mut self, peer_index: u32, held: bool, epoch: u32) {
        let asking = &mut self.peers[peer_index as usize].remote_window;
        self.blocking_peers = self.blocking_peers - u32::from(asking.blocked) + u32::from(held);
        asking.blocked = held;
        if held {
            let peer = self.peers[peer_index as usize].peer;
            self.early_rtr.newly_blocked.push(peer);
            self.has_work = true;
            self.return_credits(peer_index);
            self.restart_probes(peer_index, epoch);
        } else {
            asking.probes.clear();
            asking.hits.clear();
        }
    }

    /// Starts the questions to a window from the oldest posted receive.
    fn restart_probes(&mut self, peer_index: u32, epoch: u32) {
        let peer = self.peers[peer_index as usize].peer;
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
            .map(|receive| self.probe_for(receive))
            .collect();
        let asking = &mut self.peers[peer_index as usize].remote_window;
        asking.epoch = epoch;
        asking.misses.clear();
        asking.probes = questions;
        self.completion_events.count_one();
        self.send_next_probe(peer_index);
    }

    fn probe_for(&self, receive: u32) -> RemoteProbe {
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
    pub(crate) fn probe_windows_for(&mut self, receive: u32) {
        if self.blocking_peers != 0 {
            self.probe_blocking_peers(receive);
        }
    }

    #[cold]
    fn probe_blocking_peers(&mut self, receive: u32) {
        let question = self.probe_for(receive);
        let pattern = self.requests.peek(receive).pattern;
        for peer_index in self.peers_blocking(&pattern) {
            let asking = &mut self.peers[peer_index as usize].remote_window;
            // What a probe was offered before may be this receive's, which is asked for first.
            asking.hits.retain(|(_, held)| {
                held.context != pattern.context || pattern.tag.is_some_and(|tag| tag != held.tag)
            });
            asking.probes.push_back(question);
            self.send_next_probe(peer_index);
        }
    }

    /// Peer states whose peer holds envelopes back and may satisfy `pattern`.
    fn peers_blocking(&self, pattern: &Pattern) -> Vec<u32> {
        let accepts = |peer| pattern.source.is_none_or(|source| source.peer == peer);
        let peer_states = self.peers.states().iter().enumerate();
        peer_states
            .filter(|(_, peer_state)| {
                peer_state.remote_window.blocked && !peer_state.gone && accepts(peer_state.peer)
            })
            .map(|(peer_state, _)| peer_state as u32)
            .collect()
    }

    /// Sends the next question that still matters.
    pub(crate) fn send_next_probe(&mut self, peer_index: u32) {
        let asking = &mut self.peers[peer_index as usize].remote_window;
        if asking.in_flight.is_some() || !asking.blocked {
            return;
        }
        while let Some(question) = asking.probes.pop_front() {
            if let ProbeAsker::Receive(receive, generation) = question.asker {
                let operation = self.requests.peek(receive);
                if operation.generation != generation || operation.state != OpState::Posted {
                    continue;
                }
            }
            asking.in_flight = Some(question);
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
            let peer = self.peers[peer_index as usize].peer;
            return self.queue_control(peer, header, ControlPayload::new());
        }
    }

    /// Decides on offers whose earlier envelopes have all arrived.
    pub(crate) fn settle_probe_hits(&mut self) {
        if self.blocking_peers == 0 {
            return;
        }
        for peer_index in 0..self.peers.len() as u32 {
            let entry = &self.peers[peer_index as usize];
            let Some((held, sent_before)) = entry.remote_window.hit else {
                continue;
            };
            let at = self
                .sequences
                .find_or_insert(stream_key(held.context, entry.peer));
            if self.sequences.get(at).next_rx < sent_before {
                // Those before it may come the fast path, which looks after nothing else.
                self.has_work = true;
                continue;
            }
            let asking = &mut self.peers[peer_index as usize].remote_window;
            asking.hit = None;
            if let Some(question) = asking.in_flight.take() {
                self.settle_probe_hit(peer_index, question, held);
            }
            self.send_next_probe(peer_index);
        }
    }

    fn settle_probe_hit(&mut self, peer_index: u32, question: RemoteProbe, held: BlockedEnvelope) {
        let fresh = self.still_blocked(peer_index, &held);
        let asking = &mut self.peers[peer_index as usize].remote_window;
        match question.asker {
            // Its offers are not kept.
            ProbeAsker::Nobody => {}
            _ if !fresh => asking.probes.push_front(question),
            ProbeAsker::Probe => {
                asking.hits.push((question.tag, held));
                self.completion_events.count_one();
            }
            ProbeAsker::Receive(receive, generation) => {
                let operation = self.requests.at(receive);
                if operation.generation != generation || operation.state != OpState::Posted {
                    return;
                }
                operation.state = OpState::Pulling;
                operation.peer = self.peers[peer_index as usize].peer;
                let pattern = operation.pattern;
                self.matcher.withdraw(&pattern, receive);
                self.send_pull(peer_index, &held, ReservedFor::Receive(receive));
            }
        }
    }

    /// Returns whether a found envelope neither arrived nor was pulled meanwhile.
    fn still_blocked(&mut self, peer_index: u32, held: &BlockedEnvelope) -> bool {
        let peer = self.peers[peer_index as usize].peer;
        let at = self
            .sequences
            .find_or_insert(stream_key(held.context, peer));
        let stream = self.sequences.get(at);
        let odd = stream.reorder.as_deref();
        held.sequence >= stream.next_rx
            && odd.is_none_or(|odd| {
                !odd.reserved.contains_key(&held.sequence)
                    && !odd.was_delivered(held.sequence)
                    && !odd.early.contains_key(&held.sequence)
            })
    }

    /// Returns whether a posted receive waits for a found envelope.
    fn is_wanted(&self, peer_index: u32, held: &BlockedEnvelope) -> bool {
        self.matcher.is_wanted(&Envelope {
            context: held.context,
            peer: self.peers[peer_index as usize].peer,
            tag: held.tag,
        })
    }

    /// Takes an offered envelope for `bound`.
    fn send_pull(&mut self, peer_index: u32, held: &BlockedEnvelope, bound: ReservedFor) {
        let peer = self.peers[peer_index as usize].peer;
        let at = self
            .sequences
            .find_or_insert(stream_key(held.context, peer));
        self.sequences
            .get_mut(at)
            .reorder
            .get_or_insert_default()
            .reserved
            .insert(held.sequence, bound);
        let header = PacketHeader {
            kind: PacketKind::Pull as u8,
            context: held.context,
            tag: held.tag,
            sequence: held.sequence as u32,
            ..PacketHeader::default()
        };
        self.queue_control(peer, header, ControlPayload::new());
    }

    /// The offer that answers a probe, from a window that may satisfy it; windows not asked yet are
    /// asked.
    fn find_probe_hit(&mut self, pattern: &Pattern) -> Option<(u32, usize)> {
        if self.blocking_peers == 0 {
            return None;
        }
        for peer_index in self.peers_blocking(pattern) {
            let offers = std::mem::take(&mut self.peers[peer_index as usize].remote_window.hits);
            // A receive that was posted while a probe's question was on its way comes first.
            let fresh: Vec<_> = offers
                .into_iter()
                .filter(|(_, held)| {
                    self.still_blocked(peer_index, held) && !self.is_wanted(peer_index, held)
                })
                .collect();
            let asking = &mut self.peers[peer_index as usize].remote_window;
            asking.hits = fresh;
            let wanted = (pattern.context, pattern.tag);
            if let Some(at) = asking
                .hits
                .iter()
                .position(|(tag, held)| (held.context, *tag) == wanted)
            {
                return Some((peer_index, at));
            }
            let same = |question: &RemoteProbe| {
                question.asker == ProbeAsker::Probe && (question.context, question.tag) == wanted
            };
            let known = asking.misses.contains(&wanted)
                || asking.in_flight.iter().any(same)
                || asking.probes.iter().any(same);
            if !known {
                asking.probes.push_back(RemoteProbe {
                    asker: ProbeAsker::Probe,
                    context: pattern.context,
                    tag: pattern.tag,
                });
                self.send_next_probe(peer_index);
            }
        }
        None
    }

    /// Returns the status that a probe may report from peers' windows.
    pub(crate) fn probe_windows(&mut self, pattern: &Pattern) -> Option<Status> {
        let (peer_index, at) = self.find_probe_hit(pattern)?;
        let (_, held) = self.peers[peer_index as usize].remote_window.hits[at];
        Some(Status {
            source: held.source,
            tag: held.tag,
            len: held.len,
            cancelled: false,
            error: None,
        })
    }

    /// Takes a message out of a peer's window for a matched probe.
    pub(crate) fn pull_from_windows(&mut self, pattern: &Pattern) -> Option<(Message, Status)> {
        let (peer_index, at) = self.find_probe_hit(pattern)?;
        let (_, held) = self.peers[peer_index as usize]
            .remote_window
            .hits
            .swap_remove(at);
        let meta = MessageInfo {
            context: held.context,
            peer: self.peers[peer_index as usize].peer,
            source: held.source,
            tag: held.tag,
            sequence: held.sequence as u32,
            len: held.len,
            waiting: None,
            credited: false,
            digest: TypeDigest::NONE,
        };
        let item = self.unexpected.insert(meta, UnexpectedBody::InFlight);
        let message = self.unexpected.take(item);
        self.send_pull(peer_index, &held, ReservedFor::Message(item));
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
    pub(crate) fn receive_matched(&mut self, receive: u32, item: u32) {
        if matches!(self.unexpected.get(item).body, UnexpectedBody::InFlight) {
            let peer = self.unexpected.get(item).meta.peer;
            let operation = self.requests.at(receive);
            operation.state = OpState::Pulling;
            operation.peer = peer;
            self.unexpected.set_receiver(item, receive);
        } else {
            self.deliver_unexpected(receive, item);
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
        if let UnexpectedBody::InFlightFor(receive) = self.unexpected.get(item).body {
            self.unexpected.remove(item);
            return self.deliver_to_receive(receive, meta, incoming);
        }
        match self.own_body(&meta, incoming) {
            Ok(body) => self.unexpected.replace(item, meta, body),
            Err(_) => {
                if let Some(peer_index) = self.peer_index(meta.peer) {
                    self.fail_peer(
                        peer_index,
                        "its message could not be kept for want of memory",
                    );
                }
            }
        }
    }
}
