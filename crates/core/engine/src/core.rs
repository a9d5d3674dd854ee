//! The part of an engine that needs no transport: envelopes in, matches and completions out,
//! control packets queued.
//!
//! Owned by an [`Engine`](crate::engine::Engine), which couples it with a transport. The
//! transport's polls call it through `PollSink`. Packets to send leave its queues when the engine
//! makes progress. Bounded by requests, credits and peers.

use crate::api::{Error, Peer, Status, TypeDigest};
use crate::copy::{BounceBuffer, copy_between, copy_in};
use crate::fast::recv::ExpectedRecv;
use crate::fast::recv_channel::RecvChannels;
use crate::fast::send_channel::SendChannels;
use crate::matching::matcher::{Envelope, Matcher};
pub(crate) use crate::matching::unexpected::mismatch;
use crate::matching::unexpected::{MessageInfo, UnexpectedBody, UnexpectedMessages};
use crate::observe::completion_events::CompletionEvents;
use crate::observe::events::{EventKind, EventLog};
use crate::observe::tracer::OperationTracer;
use crate::peer::credits::CreditQuotas;
use crate::peer::routes::RouteCache;
use crate::peer::sequences::Sequences;
use crate::peer::sequences::{stream_key, widen};
use crate::peer::table::PeerTable;
use crate::protocol::control::{ControlPacket, ControlQueues};
use crate::protocol::early_rtr::EarlyRtrState;
use crate::protocol::one_sided::OneSidedState;
use crate::protocol::transfers::Transfers;
use crate::protocol::wire::{ControlPayload, Cts, Fin, Rts};
use crate::requests::{OpFlag, OpSide, OpState, RequestTable, from_wire};
use crate::schedule::plan::SendOrder;
use crate::schedule::window::SendWindows;
use crate::transport::{PacketHeader, PacketKind, PeerCapabilities};
use garonne_sync::shm::Segment;
use garonne_sync::user::UserMem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes that arrived or wait for their receive.
pub(crate) enum IncomingPayload {
    /// In memory: a packet's payload or a kept buffer.
    Payload(UserMem),
    /// In a buffer of the store.
    Buffered(UnexpectedBody),
    /// To be fetched.
    Rts(Rts),
    /// A send of this rank, by its slot.
    SelfSend(u32),
}

/// The part of an engine that needs no transport: peers, matching, protocols, windows, and queues
/// of work.
///
/// Owned by an [`Engine`](crate::engine::Engine), which calls it from polls and passes. Its parts
/// are public to the modules of this crate only.
#[derive(Debug)]
pub(crate) struct Core {
    pub me: Peer,
    pub quotas: CreditQuotas,
    pub peers: PeerTable,
    pub sequences: Sequences,
    pub send_channels: SendChannels,
    /// Cache of the peers and sequences used lately.
    pub routes: RouteCache,
    /// See `fast::recv`.
    pub expected_recv: ExpectedRecv,
    /// See `fast::recv_channel`.
    pub recv_channels: RecvChannels,
    pub matcher: Matcher,
    pub requests: RequestTable,
    pub unexpected: UnexpectedMessages,
    pub windows: SendWindows,
    pub control: ControlQueues,
    pub transfers: Transfers,
    /// See `early_rtr`.
    pub early_rtr: EarlyRtrState,
    pub one_sided: OneSidedState,
    /// Peers that hold envelopes back, as far as known.
    pub blocking_peers: u32,
    /// Peer states with a message that comes in fragments and that nobody asked for yet.
    pub unmatched_fragmented: u32,
    /// Something is queued that a pump can work on.
    pub has_work: bool,
    /// Completions and arrivals since the host last told its waiting threads.
    pub completion_events: CompletionEvents,
    pub events: EventLog,
    /// Shared words for messages sent, bytes sent and unexpected messages.
    pub tally: Option<Segment>,
    pub bounce: BounceBuffer,
    /// Tracer that hears of operations and transfers; see `tracer`.
    pub tracer: Option<Arc<dyn OperationTracer>>,
    pub send_order: SendOrder,
}

impl Core {
    pub(crate) fn new(me: Peer, world: u32, quotas: CreditQuotas) -> Self {
        Self {
            me,
            quotas,
            peers: PeerTable::new(world, &quotas),
            sequences: Sequences::new(),
            send_channels: SendChannels::default(),
            routes: RouteCache::new(),
            expected_recv: ExpectedRecv::none(),
            recv_channels: RecvChannels::new(),
            matcher: Matcher::new(),
            requests: RequestTable::new(),
            unexpected: UnexpectedMessages::new(),
            windows: SendWindows::new(),
            control: ControlQueues::new(),
            transfers: Transfers::default(),
            early_rtr: EarlyRtrState::default(),
            one_sided: OneSidedState::default(),
            blocking_peers: 0,
            unmatched_fragmented: 0,
            has_work: false,
            completion_events: CompletionEvents::default(),
            events: EventLog::new(None),
            tally: None,
            bounce: BounceBuffer::new(),
            tracer: None,
            send_order: SendOrder::default(),
        }
    }

    /// Returns the index of the state of `peer`, if there is one.
    #[inline]
    pub(crate) fn peer_index(&self, peer: Peer) -> Option<u32> {
        self.peers.find(peer)
    }

    /// Opens the state of `peer`, a process of the job.
    #[cold]
    pub(crate) fn open_peer(&mut self, peer: Peer, reach: PeerCapabilities) -> u32 {
        self.peers.open(peer, reach, &self.quotas)
    }

    /// Queues a control packet.
    pub(crate) fn queue_control(
        &mut self,
        peer: Peer,
        mut header: PacketHeader,
        bytes: ControlPayload,
    ) {
        header.len = bytes.len as u32;
        self.control.push(ControlPacket {
            peer,
            header,
            bytes,
        });
        self.has_work = true;
    }

    /// Ends the operation in slot `index`.
    pub(crate) fn complete(&mut self, index: u32, error: Option<Error>) {
        let operation = self.requests.at(index);
        operation.state = OpState::Complete;
        operation.data.layout = None;
        operation.region = None;
        let fetched = operation.mode.is_some();
        operation.error = error;
        operation.finished = self.completion_events.count_one();
        if fetched {
            self.rendezvous_over(index, true);
        }
        if self.requests.peek(index).flags != 0 {
            self.marked_over(index);
        }
        if self.requests.peek(index).has(OpFlag::Abandoned) {
            self.requests.close(index);
        }
    }

    /// A whole envelope arrived from a peer: in sequence it enters the matcher, else it waits.
    #[inline]
    pub(crate) fn on_envelope(
        &mut self,
        peer_index: u32,
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
                .sequences
                .find_or_insert(stream_key(meta.context, meta.peer)),
        };
        let stream = self.sequences.get_mut(at);
        if stream.reorder.is_none() && header.sequence == stream.next_rx as u32 {
            stream.next_rx += 1;
            self.deliver(peer_index, meta, incoming);
        } else {
            let number = widen(stream.next_rx, header.sequence);
            self.out_of_sequence(peer_index, at, number, header.flags, meta, incoming);
        }
    }

    /// Hands an envelope whose turn it is to the receive it matches, or keeps it.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        peer_index: u32,
        meta: MessageInfo,
        incoming: IncomingPayload,
    ) {
        let envelope = Envelope {
            context: meta.context,
            peer: meta.peer,
            tag: meta.tag,
        };
        match self.matcher.arrive(&envelope) {
            Some(receive) => {
                self.release(peer_index, &incoming, meta.len);
                self.deliver_to_receive(receive, meta, incoming);
            }
            None => match incoming {
                IncomingPayload::Payload(payload)
                    if self.expected_recv.accepts(&meta, &self.events) =>
                {
                    self.receive_expected(peer_index, &meta, payload)
                }
                incoming => self.store_unexpected(peer_index, meta, incoming),
            },
        }
    }

    #[cold]
    fn store_unexpected(&mut self, peer_index: u32, meta: MessageInfo, incoming: IncomingPayload) {
        self.note(
            EventKind::Unexpected,
            meta.peer,
            meta.context,
            meta.tag,
            meta.len,
        );
        match self.own_body(&meta, incoming) {
            Ok(body) => {
                let item = self.unexpected.insert(meta, body);
                let envelope = Envelope {
                    context: meta.context,
                    peer: meta.peer,
                    tag: meta.tag,
                };
                self.publish_unexpected(&envelope, item);
            }
            // The credits bound what is kept; if even that does not fit, the peer's message cannot
            // be kept for anybody.
            Err(_) => self.fail_peer(
                peer_index,
                "its message could not be kept for want of memory",
            ),
        }
    }

    /// An unexpected message can be found from now on.
    pub(crate) fn publish_unexpected(&mut self, envelope: &Envelope, item: u32) {
        self.matcher.keep(envelope, item);
        self.completion_events.message_kept(envelope);
        self.completion_events.count_one();
    }

    /// Makes incoming bytes ours to keep.
    pub(crate) fn own_body(
        &mut self,
        meta: &MessageInfo,
        incoming: IncomingPayload,
    ) -> Result<UnexpectedBody, Error> {
        Ok(match incoming {
            IncomingPayload::Payload(payload) => {
                self.unexpected.copy(payload, meta.len as usize)?
            }
            IncomingPayload::Buffered(body) => body,
            IncomingPayload::Rts(announce) => UnexpectedBody::Rts(Box::new(announce)),
            IncomingPayload::SelfSend(send) => UnexpectedBody::SelfSend(send),
        })
    }

    /// Shows messages and bytes sent, and messages kept, to those who watch. Off the way of
    /// messages: called when credits move and when the rank sleeps.
    #[cold]
    pub(crate) fn publish_tally(&self) {
        let Some(tally) = &self.tally else { return };
        let (mut messages, mut bytes) = (0u64, 0u64);
        for peer_state in self.peers.states() {
            let sent = peer_state.sent(&self.quotas);
            (messages, bytes) = (messages + sent.0, bytes + sent.1);
        }
        for (index, value) in [messages, bytes, self.unexpected.alive() as u64]
            .into_iter()
            .enumerate()
        {
            tally.atomic_u64(8 * index).store(value, Ordering::Relaxed);
        }
    }

    /// Notes in a receive which message it got. Returns the error of one that does not fit.
    #[inline]
    pub(crate) fn note_match(&mut self, receive: u32, meta: &MessageInfo) -> Option<Error> {
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
        mismatch(meta, room, origin)
    }

    /// A message and its receive have met.
    #[inline]
    pub(crate) fn deliver_to_receive(
        &mut self,
        receive: u32,
        meta: MessageInfo,
        incoming: IncomingPayload,
    ) {
        let error = self.note_match(receive, &meta);
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
                    self.send_fin(meta.peer, send);
                }
                self.end_operation(receive, error);
            }
            IncomingPayload::Buffered(body) => {
                if let UnexpectedBody::Buffer(buffer) = &body {
                    let len = meta.len.min(room) as usize;
                    copy_in(&operation.data, 0, buffer.mem(), len, &mut self.bounce);
                }
                self.unexpected.recycle(body);
                self.end_operation(receive, error);
            }
            IncomingPayload::Rts(announce) => {
                self.start_rendezvous(receive, &meta, announce, error)
            }
            IncomingPayload::SelfSend(send) => self.complete_self_send(send, receive, error),
        }
    }

    /// Tells the sender that its send needs nothing more.
    pub(crate) fn send_fin(&mut self, peer: Peer, send: u64) {
        if peer == self.me {
            if let Some(index) = self.requests.find(from_wire(send)) {
                self.complete(index, None);
            }
            return;
        }
        self.queue_control(
            peer,
            PacketHeader {
                kind: PacketKind::Fin as u8,
                ..PacketHeader::default()
            },
            Fin { send }.encode(),
        );
    }

    /// Begins to fetch a rendezvous message.
    fn start_rendezvous(
        &mut self,
        receive: u32,
        meta: &MessageInfo,
        announce: Rts,
        error: Option<Error>,
    ) {
        self.note(EventKind::Move, meta.peer, meta.context, meta.tag, meta.len);
        if error.is_some() || meta.len == 0 {
            self.send_fin(meta.peer, announce.send);
            self.end_operation(receive, error);
            return;
        }
        let operation = self.requests.at(receive);
        operation.state = OpState::Active;
        operation.remote = announce.send;
        match announce.region {
            Some(region) => {
                operation.region = Some(Box::new(region));
                self.queue_read(receive);
            }
            // The transport is asked first who has the memory.
            None if operation.has(OpFlag::EarlyRtrSent) => {
                self.queue_read(receive);
            }
            None => self.send_cts(receive),
        }
    }

    /// A message is to be fetched, or the next part of one. Each is named once, also where another
    /// that ended while it was named here had the slot before: of what the transport reads by
    /// itself all is asked for at the first turn, and a second one would take that for the end.
    pub(crate) fn queue_read(&mut self, receive: u32) {
        self.transfers.reads.push_once(receive);
        self.has_work = true;
    }

    /// Asks the sender for the message by packets. Once: both sides may find out that another way
    /// fails, and packets that begin anew would be counted twice.
    pub(crate) fn send_cts(&mut self, receive: u32) {
        self.transfers.reads.remove(receive);
        if self.requests.peek(receive).has(OpFlag::DataRequested) {
            return;
        }
        self.offer_withdrawn(receive);
        let operation = self.requests.at(receive);
        operation.set(OpFlag::DataRequested);
        operation.region = None;
        operation.moved = 0;
        let (peer, send) = (operation.peer, operation.remote);
        let clear = Cts {
            send,
            recv: crate::requests::to_wire(self.requests.name(receive)),
        };
        self.queue_control(
            peer,
            PacketHeader {
                kind: PacketKind::Cts as u8,
                ..PacketHeader::default()
            },
            clear.encode(),
        );
    }

    /// A send and a receive of this very rank have met.
    fn complete_self_send(&mut self, send: u32, receive: u32, error: Option<Error>) {
        let source = self.requests.peek(send).data.clone();
        let target = self.requests.peek(receive).data.clone();
        let len = source.len.min(target.len);
        copy_between(&source, &target, len, &mut self.bounce);
        self.complete(receive, error);
        self.complete(send, None);
    }

    /// Gives an unexpected message to the receive in slot `receive`.
    pub(crate) fn deliver_unexpected(&mut self, receive: u32, item: u32) {
        let (meta, body) = self.unexpected.remove(item);
        self.release_unexpected(&meta, &body);
        match body {
            UnexpectedBody::Inline(bytes) => self.deliver_inline(receive, meta, &bytes),
            UnexpectedBody::Buffer(buffer) => {
                self.deliver_to_receive(receive, meta, IncomingPayload::Payload(buffer.mem()));
                self.unexpected.recycle(UnexpectedBody::Buffer(buffer));
            }
            UnexpectedBody::Rts(announce) => {
                self.deliver_to_receive(receive, meta, IncomingPayload::Rts(*announce))
            }
            UnexpectedBody::SelfSend(send) => {
                self.deliver_to_receive(receive, meta, IncomingPayload::SelfSend(send))
            }
            UnexpectedBody::Free(_) | UnexpectedBody::InFlight | UnexpectedBody::InFlightFor(_) => {
            }
        }
    }

    fn deliver_inline(&mut self, receive: u32, mut meta: MessageInfo, bytes: &[u8]) {
        // The few bytes lie in the record: they are written from here, and the rest of the way is
        // that of an empty payload.
        let len = meta.len;
        let operation = self.requests.at(receive);
        let room = operation.data.len;
        let moved = len.min(room) as usize;
        operation.data.unpack(0, &bytes[..moved]);
        let error = mismatch(&meta, room, operation.origin);
        (meta.len, meta.digest) = (0, TypeDigest::NONE);
        self.deliver_to_receive(receive, meta, IncomingPayload::Payload(UserMem::null()));
        let operation = self.requests.at(receive);
        if operation.state != OpState::Free {
            operation.total = len;
            operation.error = error;
        }
    }

    /// The status a probe reports for an unexpected message.
    pub(crate) fn probe_status(&self, item: u32) -> Status {
        let meta = &self.unexpected.get(item).meta;
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
    pub(crate) fn fail_peer(&mut self, peer_index: u32, what: &'static str) {
        if let Some(peer) = self
            .peers
            .states()
            .get(peer_index as usize)
            .map(|entry| entry.peer)
        {
            self.fail_peer_with(peer_index, Error::Peer { peer, what });
        }
    }

    /// Nothing passes between here and a peer any more: everything that depends on it ends with
    /// this error.
    #[cold]
    pub(crate) fn fail_peer_with(&mut self, peer_index: u32, why: Error) {
        let Some(entry) = self.peers.states_mut().get_mut(peer_index as usize) else {
            return;
        };
        if entry.gone {
            return;
        }
        entry.gone = true;
        entry.cause = Some(Box::new(why.clone()));
        entry.close_batch();
        entry.batch = None;
        // Spares the quick send a look at `gone`.
        entry.envelopes = 0;
        self.blocking_peers -= u32::from(entry.remote_window.blocked);
        entry.remote_window = Default::default();
        let peer = entry.peer;
        self.peers.note_batch(peer_index);
        self.peers.push_lost(peer);
        self.has_work = true;
        self.drop_fragmented(peer_index);
        self.early_rtr.forget_peer(peer);
        if !matches!(why, Error::Unreached(_)) {
            self.note(EventKind::Gone, peer, 0, 0, 0);
        }
        self.control.drop_peer(peer);
        self.transfers.packets.drop_peer(peer);
        self.one_sided.target.drop_peer(peer);
        self.one_sided.origin.drop_peer(peer, &self.requests);
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
                OpState::InWindow => self.leave_unsent(index),
                _ => {}
            }
            self.transfers.writes.remove(index);
            self.end_operation(index, Some(why.clone()));
        }
        if self.peers[peer_index as usize].was_lost() {
            self.break_collectives_of(peer, &why);
        }
        // Who looks for a message of its hears that none will come.
        self.completion_events.any_message_kept();
        self.completion_events.count_one();
    }
}
