//! The core of an engine: everything that needs no rail. Envelopes in, matches and completions out,
//! control packets queued.
//!
//! Owned by a [`crate::engine::Engine`], which couples it with a rail: the rail's polls call it
//! through `PollSink`, and what it wants to send leaves through its outbox and work lists when the
//! shard pumps. Bounded by requests, credits and gates.

use crate::api::{ContextId, Error, Peer, Status, TypeDigest};
use crate::copy::{BounceBuffer, copy_between, copy_in};
use crate::fast::recv::ExpectedRecv;
use crate::fast::recv_channel::RecvChannels;
use crate::key_map::KeyedQueues;
use crate::limits::{OUTBOX, SELF_CREDIT};
use crate::matching::matcher::{Envelope, Matcher};
pub(crate) use crate::matching::unexpected::misfit;
use crate::matching::unexpected::{MessageInfo, UnexpectedBody, UnexpectedMessages};
use crate::observe::completion_events::CompletionEvents;
use crate::observe::counters::ExportedCounters;
use crate::observe::events::{EventKind, EventLog};
use crate::observe::tracer::OperationTracer;
use crate::peer::routes::RouteCache;
use crate::peer::sequences::Sequences;
use crate::peer::state::{CreditQuotas, PeerState, stream_key, widen};
use crate::protocol::early_rtr::EarlyRtrState;
use crate::protocol::wire::{ControlPayload, Cts, Fin, Rts};
use crate::requests::{OpFlag, OpSide, OpState, RequestTable, from_wire};
use crate::schedule::order::OrderPolicy;
use crate::schedule::plugin::CheckedPlugin;
use crate::schedule::priority::PriorityTable;
use crate::transport::{PacketHeader, PacketKind, PeerCapabilities};
use garonne_sync::post_mortem::PostMortemArea;
use garonne_sync::shm::Segment;
use garonne_sync::user::UserMem;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One control packet that waits for room.
#[derive(Debug)]
pub(crate) struct ControlPacket {
    pub peer: Peer,
    pub header: PacketHeader,
    pub bytes: ControlPayload,
}

/// Bytes that arrived or wait for their receive.
pub(crate) enum IncomingPayload {
    /// In memory: a packet's payload or a kept buffer.
    Payload(UserMem),
    /// In a buffer of the store.
    Whole(UnexpectedBody),
    /// To be fetched.
    Announced(Rts),
    /// A send of this rank, by its slot.
    Local(u32),
}

/// See the module's paragraph.
#[derive(Debug)]
pub(crate) struct Core {
    pub me: Peer,
    pub world: u32,
    pub quotas: CreditQuotas,
    /// By peer: the number of its gate in `gates`, counted from 1; 0 is none. Zeros that were never
    /// written cost no memory, and most peers are never spoken to.
    gate_of: Vec<u32>,
    pub gates: Vec<PeerState>,
    /// Tells other processes where to read what the gates have counted.
    pub counters: ExportedCounters,
    pub streams: Sequences,
    /// Streams that have a track and their contexts, in the order in which their trails are linked,
    /// the newest last.
    pub tracks: Vec<(ContextId, u32)>,
    /// Where the streams lie that were used lately.
    pub routes: RouteCache,
    /// See `fast::recv`.
    pub expected: ExpectedRecv,
    /// See `fast::recv_channel`.
    pub inlets: RecvChannels,
    pub matcher: Matcher,
    pub requests: RequestTable,
    pub store: UnexpectedMessages,
    /// Sends in windows, in three kinds of list; see `remote_probe`.
    pub window: KeyedQueues,
    pub outbox: VecDeque<ControlPacket>,
    /// Control packets for peers that look at nothing any more, until this rank is in use again.
    pub aside: VecDeque<ControlPacket>,
    /// Receives that read their sender's region.
    pub pulls: VecDeque<u32>,
    /// Sends that were cleared to send by packets, by peer, the oldest first; no queue is empty.
    pub streams_out: BTreeMap<Peer, VecDeque<u32>>,
    /// Sends that may write to their receivers' memory.
    pub pushes: VecDeque<u32>,
    /// See `early_rtr`.
    pub ahead: EarlyRtrState,
    /// Receives whose fetch is over, for the rail to learn from: their names, and whether the way
    /// could be gone.
    pub fetched: Vec<(u64, bool)>,
    /// Regions to revoke.
    pub revokes: Vec<u32>,
    /// Gates whose window may move.
    pub blocked: Vec<u32>,
    /// Sends that receivers took out of windows.
    pub taken: VecDeque<u32>,
    /// Peers that hold envelopes back, as far as known.
    pub holders: u32,
    /// Gates with a message that comes in piece by piece and that nobody asked for yet.
    pub flows: u32,
    /// Something is queued that a pump can work on.
    pub pending: bool,
    /// A peer is gone: who wants to receive must ask which.
    pub any_lost: bool,
    /// Which of them the rail was not told of yet.
    pub lost: Vec<Peer>,
    /// Peers were heard of that the rail was not asked about yet.
    pub fresh_gates: bool,
    /// Tracks may be used (see `fast::send_channel`).
    pub runs: bool,
    /// Completions so far; changes tell waiters to look.
    pub completions: u64,
    /// What they were, as far as waiters need that.
    pub news: CompletionEvents,
    pub self_credit: u64,
    pub events: EventLog,
    /// Where events and tracks lie; see `post_mortem`.
    pub area: Option<Arc<PostMortemArea>>,
    /// Where to show what was sent and what is kept.
    pub tally: Option<Segment>,
    pub bounce: BounceBuffer,
    /// Who is told what happens; see `tracer`.
    pub watcher: Option<Arc<dyn OperationTracer>>,
    /// Who is asked in which order messages leave; see `plan`.
    pub loaded: Option<Arc<CheckedPlugin>>,
    /// In which order messages leave where that does not say.
    pub ordering: OrderPolicy,
    pub priorities: PriorityTable,
}

impl Core {
    pub(crate) fn new(me: Peer, world: u32, quotas: CreditQuotas) -> Self {
        Self {
            me,
            world,
            quotas,
            gate_of: vec![0; world as usize],
            gates: Vec::new(),
            counters: ExportedCounters::new(&quotas),
            streams: Sequences::new(),
            tracks: Vec::new(),
            routes: RouteCache::new(),
            expected: ExpectedRecv::nothing(),
            inlets: RecvChannels::new(),
            matcher: Matcher::new(),
            requests: RequestTable::new(),
            store: UnexpectedMessages::new(),
            window: KeyedQueues::new(),
            outbox: VecDeque::with_capacity(OUTBOX),
            aside: VecDeque::new(),
            pulls: VecDeque::new(),
            streams_out: BTreeMap::new(),
            pushes: VecDeque::new(),
            ahead: EarlyRtrState::default(),
            fetched: Vec::new(),
            revokes: Vec::new(),
            blocked: Vec::new(),
            taken: VecDeque::new(),
            holders: 0,
            flows: 0,
            pending: false,
            any_lost: false,
            lost: Vec::new(),
            fresh_gates: false,
            runs: false,
            completions: 0,
            news: CompletionEvents::default(),
            self_credit: SELF_CREDIT,
            events: EventLog::new(None),
            area: None,
            tally: None,
            bounce: BounceBuffer::new(),
            watcher: None,
            loaded: None,
            ordering: OrderPolicy::default(),
            priorities: PriorityTable::default(),
        }
    }

    /// The open gate to `peer`.
    #[inline]
    pub(crate) fn gate(&self, peer: Peer) -> Option<u32> {
        self.gate_of.get(peer as usize)?.checked_sub(1)
    }

    /// Opens the gate to `peer`, a process of the job.
    #[cold]
    pub(crate) fn open_gate(&mut self, peer: Peer, reach: PeerCapabilities) -> u32 {
        let gate = self.gates.len() as u32;
        self.counters.hide();
        self.gates.push(PeerState::new(peer, reach, self.quotas));
        self.counters.show(&self.gates);
        self.gate_of[peer as usize] = gate + 1;
        gate
    }

    /// Queues a control packet.
    pub(crate) fn tell(&mut self, peer: Peer, mut header: PacketHeader, bytes: ControlPayload) {
        header.len = bytes.len as u32;
        self.outbox.push_back(ControlPacket {
            peer,
            header,
            bytes,
        });
        self.pending = true;
    }

    /// Ends the operation in slot `index`.
    pub(crate) fn complete(&mut self, index: u32, error: Option<Error>) {
        let operation = self.requests.at(index);
        operation.state = OpState::Complete;
        operation.data.layout = None;
        operation.region = None;
        let fetched = operation.fetching.is_some();
        operation.error = error;
        self.completions += 1;
        operation.finished = self.completions;
        if fetched {
            self.fetch_is_over(index, true);
        }
        if self.requests.peek(index).marks != 0 {
            self.marked_over(index);
        }
        if self.requests.peek(index).marked(OpFlag::Abandoned) {
            self.requests.close(index);
        }
    }

    /// A whole envelope arrived from a peer: in sequence it enters the matcher, else it waits.
    #[inline]
    pub(crate) fn envelope(
        &mut self,
        gate: u32,
        header: &PacketHeader,
        meta: MessageInfo,
        incoming: IncomingPayload,
    ) {
        let route = self
            .known_route(meta.context, meta.peer)
            .or_else(|| self.learn_route(meta.context, meta.peer));
        let at = match route {
            Some(route) => route.stream,
            None => self
                .streams
                .find_or_insert(stream_key(meta.context, meta.peer)),
        };
        let stream = self.streams.get_mut(at);
        if stream.odd.is_none() && header.sequence == stream.next_rx as u32 {
            stream.next_rx += 1;
            self.deliver(gate, meta, incoming);
        } else {
            let number = widen(stream.next_rx, header.sequence);
            self.out_of_sequence(gate, at, number, header.flags, meta, incoming);
        }
    }

    /// Hands an envelope whose turn it is to the receive it matches, or keeps it.
    #[inline]
    pub(crate) fn deliver(&mut self, gate: u32, meta: MessageInfo, incoming: IncomingPayload) {
        let envelope = Envelope {
            context: meta.context,
            peer: meta.peer,
            tag: meta.tag,
        };
        match self.matcher.arrive(&envelope) {
            Some(receive) => {
                self.release(gate, &incoming, meta.len);
                self.fulfil(receive, meta, incoming);
            }
            None => match incoming {
                IncomingPayload::Payload(payload) if self.expected.accepts(&meta, &self.events) => {
                    self.catch(gate, &meta, payload)
                }
                incoming => self.keep(gate, meta, incoming),
            },
        }
    }

    #[cold]
    fn keep(&mut self, gate: u32, meta: MessageInfo, incoming: IncomingPayload) {
        self.note(EventKind::Keep, meta.peer, meta.context, meta.tag, meta.len);
        match self.bodied(&meta, incoming) {
            Ok(body) => {
                let item = self.store.insert(meta, body);
                let envelope = Envelope {
                    context: meta.context,
                    peer: meta.peer,
                    tag: meta.tag,
                };
                self.keep_item(&envelope, item);
            }
            // The credits bound what is kept; if even that does not fit, the peer's message cannot
            // be kept for anybody.
            Err(_) => self.lose(gate, "its message could not be kept for want of memory"),
        }
    }

    /// A kept message can be found from now on.
    pub(crate) fn keep_item(&mut self, envelope: &Envelope, item: u32) {
        self.matcher.keep(envelope, item);
        self.news.keep(envelope);
        self.completions += 1;
    }

    /// Makes incoming bytes ours to keep.
    pub(crate) fn bodied(
        &mut self,
        meta: &MessageInfo,
        incoming: IncomingPayload,
    ) -> Result<UnexpectedBody, Error> {
        Ok(match incoming {
            IncomingPayload::Payload(payload) => self.store.copy(payload, meta.len as usize)?,
            IncomingPayload::Whole(body) => body,
            IncomingPayload::Announced(announce) => UnexpectedBody::Announced(Box::new(announce)),
            IncomingPayload::Local(send) => UnexpectedBody::Local(send),
        })
    }

    /// Shows messages and bytes sent, and messages kept, to those who watch. Off the way of
    /// messages: called when credits move and when the rank sleeps.
    #[cold]
    pub(crate) fn publish(&self) {
        let Some(tally) = &self.tally else { return };
        let (mut messages, mut bytes) = (0u64, 0u64);
        for gate in &self.gates {
            let sent = gate.sent(&self.quotas);
            (messages, bytes) = (messages + sent.0, bytes + sent.1);
        }
        for (index, value) in [messages, bytes, self.store.alive() as u64]
            .into_iter()
            .enumerate()
        {
            tally.atomic_u64(8 * index).store(value, Ordering::Relaxed);
        }
    }

    /// Notes in a receive which message it got. Returns the error of one that does not fit.
    #[inline]
    pub(crate) fn met(&mut self, receive: u32, meta: &MessageInfo) -> Option<Error> {
        let operation = self.requests.at(receive);
        operation.peer = meta.peer;
        operation.source = meta.source;
        operation.tag = meta.tag;
        operation.sequence = meta.sequence;
        operation.total = meta.len;
        operation.moved = 0;
        let room = operation.data.len;
        let origin = operation.origin;
        if operation.pattern.source.is_none() {
            self.events.note_from_any(meta, origin);
        }
        misfit(meta, room, origin)
    }

    /// A message and its receive have met.
    #[inline]
    pub(crate) fn fulfil(&mut self, receive: u32, meta: MessageInfo, incoming: IncomingPayload) {
        let error = self.met(receive, &meta);
        let operation = self.requests.at(receive);
        let room = operation.data.len;
        match incoming {
            IncomingPayload::Payload(payload) => {
                let len = meta.len.min(room) as usize;
                if operation.data.layout.is_none() {
                    operation.data.mem.copy_from(0, payload, 0, len);
                } else {
                    copy_in(&operation.data, 0, payload, len, &mut self.bounce);
                }
                if let Some(send) = meta.waiting {
                    self.finish(meta.peer, send);
                }
                self.end(receive, error);
            }
            IncomingPayload::Whole(body) => {
                if let UnexpectedBody::Buffer(buffer) = &body {
                    let len = meta.len.min(room) as usize;
                    copy_in(&operation.data, 0, buffer.mem(), len, &mut self.bounce);
                }
                self.store.recycle(body);
                self.end(receive, error);
            }
            IncomingPayload::Announced(announce) => self.fetch(receive, &meta, announce, error),
            IncomingPayload::Local(send) => self.meet(send, receive, error),
        }
    }

    /// Tells the sender that its send needs nothing more.
    pub(crate) fn finish(&mut self, peer: Peer, send: u64) {
        if peer == self.me {
            if let Some(index) = self.requests.find(from_wire(send)) {
                self.complete(index, None);
            }
            return;
        }
        self.tell(
            peer,
            PacketHeader {
                kind: PacketKind::Fin as u8,
                ..PacketHeader::default()
            },
            Fin { send }.encode(),
        );
    }

    /// Begins to fetch an announced message.
    fn fetch(&mut self, receive: u32, meta: &MessageInfo, announce: Rts, error: Option<Error>) {
        self.note(EventKind::Move, meta.peer, meta.context, meta.tag, meta.len);
        if error.is_some() || meta.len == 0 {
            self.finish(meta.peer, announce.send);
            self.end(receive, error);
            return;
        }
        let operation = self.requests.at(receive);
        operation.state = OpState::Active;
        operation.remote = announce.send;
        match announce.region {
            Some(region) => {
                operation.region = Some(Box::new(region));
                self.pull_on(receive);
            }
            // The rail is asked first who has the memory.
            None if operation.marked(OpFlag::Announced) => {
                self.pull_on(receive);
            }
            None => self.ask_for_packets(receive),
        }
    }

    /// A message is to be fetched, or the next part of one. Each is named once, also where another
    /// that ended while it was named here had the slot before: of what the rail reads by itself all
    /// is asked for at the first turn, and a second one would take that for the end.
    pub(crate) fn pull_on(&mut self, receive: u32) {
        if !self.pulls.contains(&receive) {
            self.pulls.push_back(receive);
        }
        self.pending = true;
    }

    /// Asks the sender for the message by packets. Once: both sides may find out that another way
    /// fails, and packets that begin anew would be counted twice.
    pub(crate) fn ask_for_packets(&mut self, receive: u32) {
        self.pulls.retain(|&pull| pull != receive);
        if self.requests.peek(receive).marked(OpFlag::Packets) {
            return;
        }
        self.withdrawn(receive);
        let operation = self.requests.at(receive);
        operation.mark(OpFlag::Packets);
        operation.region = None;
        operation.moved = 0;
        let (peer, send) = (operation.peer, operation.remote);
        let clear = Cts {
            send,
            recv: crate::requests::to_wire(self.requests.name(receive)),
        };
        self.tell(
            peer,
            PacketHeader {
                kind: PacketKind::Cts as u8,
                ..PacketHeader::default()
            },
            clear.encode(),
        );
    }

    /// A send and a receive of this very rank have met.
    fn meet(&mut self, send: u32, receive: u32, error: Option<Error>) {
        let source = self.requests.peek(send).data.clone();
        let target = self.requests.peek(receive).data.clone();
        let len = source.len.min(target.len);
        copy_between(&source, &target, len, &mut self.bounce);
        self.complete(receive, error);
        self.complete(send, None);
    }

    /// Gives a kept message to the receive in slot `receive`.
    pub(crate) fn hand_over(&mut self, receive: u32, item: u32) {
        let (meta, body) = self.store.remove(item);
        self.release_kept(&meta, &body);
        match body {
            UnexpectedBody::Inline(bytes) => self.fulfil_from(receive, meta, &bytes),
            UnexpectedBody::Buffer(buffer) => {
                self.fulfil(receive, meta, IncomingPayload::Payload(buffer.mem()));
                self.store.recycle(UnexpectedBody::Buffer(buffer));
            }
            UnexpectedBody::Announced(announce) => {
                self.fulfil(receive, meta, IncomingPayload::Announced(*announce))
            }
            UnexpectedBody::Local(send) => self.fulfil(receive, meta, IncomingPayload::Local(send)),
            UnexpectedBody::Free(_) | UnexpectedBody::Coming | UnexpectedBody::Awaited(_) => {}
        }
    }

    fn fulfil_from(&mut self, receive: u32, mut meta: MessageInfo, bytes: &[u8]) {
        // The few bytes lie in the record: they are written from here, and the rest of the way is
        // that of an empty payload.
        let len = meta.len;
        let operation = self.requests.at(receive);
        let room = operation.data.len;
        let moved = len.min(room) as usize;
        operation.data.unpack(0, &bytes[..moved]);
        let error = misfit(&meta, room, operation.origin);
        (meta.len, meta.mark) = (0, TypeDigest::NONE);
        self.fulfil(receive, meta, IncomingPayload::Payload(UserMem::null()));
        let operation = self.requests.at(receive);
        if operation.state != OpState::Free {
            operation.total = len;
            operation.error = error;
        }
    }

    /// The status a probe reports for a kept message.
    pub(crate) fn probed(&self, item: u32) -> Status {
        let meta = &self.store.get(item).meta;
        Status {
            source: meta.source,
            tag: meta.tag,
            len: meta.len,
            cancelled: false,
            error: None,
        }
    }

    /// A peer is dead or broke the format: everything that depends on it ends with an error.
    #[cold]
    pub(crate) fn lose(&mut self, gate: u32, what: &'static str) {
        if let Some(peer) = self.gates.get(gate as usize).map(|entry| entry.peer) {
            self.part(gate, Error::Peer { peer, what });
        }
    }

    /// Nothing passes between here and a peer any more: everything that depends on it ends with
    /// this error.
    #[cold]
    pub(crate) fn part(&mut self, gate: u32, why: Error) {
        let Some(entry) = self.gates.get_mut(gate as usize) else {
            return;
        };
        if entry.gone {
            return;
        }
        entry.gone = true;
        entry.why = Some(Box::new(why.clone()));
        self.any_lost = true;
        entry.settle();
        entry.run = None;
        self.counters.note_run(gate, None);
        // Spares the quick send a look at `gone`.
        entry.envelopes = 0;
        self.holders -= u32::from(entry.asking.held);
        entry.asking = Default::default();
        let peer = entry.peer;
        self.lost.push(peer);
        self.pending = true;
        self.drop_flow(gate);
        self.ahead.forget(peer);
        if !matches!(why, Error::Unreached(_)) {
            self.note(EventKind::Gone, peer, 0, 0, 0);
        }
        self.outbox.retain(|control| control.peer != peer);
        self.aside.retain(|control| control.peer != peer);
        self.streams_out.remove(&peer);
        let hit = self
            .requests
            .select(|operation| match (operation.side, operation.state) {
                (_, OpState::Complete | OpState::Free) => false,
                (OpSide::Recv, OpState::Posted) => operation
                    .pattern
                    .source
                    .is_some_and(|source| source.peer == peer),
                _ => operation.peer == peer,
            });
        for index in hit {
            let operation = self.requests.peek(index);
            match operation.state {
                OpState::Posted => {
                    let pattern = operation.pattern;
                    self.matcher.withdraw(&pattern, index);
                    self.requests.at(index).total = 0;
                }
                OpState::Held => self.unhold(index),
                _ => {}
            }
            self.pushes.retain(|&send| send != index);
            self.end(index, Some(why.clone()));
        }
        // Who looks for a message of its hears that none will come.
        self.news.keep_any();
        self.completions += 1;
    }
}
