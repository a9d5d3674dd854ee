//! The engine of one rank and one shard: a core coupled with its transport, and the operations that
//! hosts call.
//!
//! A rank has one engine per shard. Each is owned by whoever holds its lock. A call starts an
//! operation and returns; time passes only in [`Engine::progress`]. Bounded by the core.

use crate::api::{
    CallOrigin, Error, Message, Pattern, Peer, RecvArgs, Request, SendArgs, Source, StartOutcome,
    Status,
};
use crate::core::{Core, IncomingPayload};
use crate::limits::{POLL_BUDGET, SELF_EAGER_MAX};
use crate::matching::unexpected::MessageInfo;
use crate::observe::events::{Event, EventKind, EventLog, PendingAction, PendingOperation};
use crate::peer::credits::CreditQuotas;
use crate::protocol::dispatch::SELF_PEER;
use crate::requests::{NewOperation, OpFlag, OpSide, OpState};
use crate::transport::{Transport, TransportLimits};
use garonne_sync::post_mortem::PostMortemArea;
use garonne_sync::shm::Segment;
use garonne_sync::user::Data;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of what [`Engine::set_tally`] shows.
pub const TALLY_BYTES: usize = 24;

/// The engine of one rank and one shard: a `Core` and its transport.
///
/// Owned by the host, which holds its lock during each call. A host calls `new`, then starts
/// operations (`send`, `recv`, `probe`), calls `progress` until they are complete, and takes their
/// status with `take`. Time passes only in `progress`.
#[derive(Debug)]
pub struct Engine<R> {
    pub(crate) core: Core,
    pub(crate) transport: R,
    pub(crate) limits: TransportLimits,
}

/// Outcome of [`Engine::poll_only`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollOutcome {
    /// Bytes that large messages could move now.
    pub bytes: u64,
    /// The poll used up its budget: there may be more packets.
    pub more: bool,
}

impl<R: Transport> Engine<R> {
    /// An engine for process `me` of a job of `world` processes over `transport`. Every engine of a
    /// job gets the same quotas.
    pub fn new(transport: R, me: Peer, world: u32, quotas: CreditQuotas) -> Self {
        let limits = transport.limits();
        Self {
            core: Core::new(me, world, quotas),
            transport,
            limits,
        }
    }

    /// Has what happens from now on recorded in this area, for readers after the process's death
    /// ([`crate::observe::post_mortem`]). To be called before anything else.
    pub fn record_in(&mut self, area: Arc<PostMortemArea>) {
        self.core.events = EventLog::new(Some(area));
    }

    /// Adds `count` peers to those that may be named, as another world that this process is
    /// connected to, and returns their numbers: those after all that are known. The transport
    /// must reach them by these numbers.
    ///
    /// # Errors
    /// `Resource` when numbers run out.
    pub fn add_peers(&mut self, count: u32) -> Result<Range<Peer>, Error> {
        self.core
            .peers
            .add(count)
            .ok_or(Error::Resource("no numbers are left for more peers"))
    }

    /// The transport, for what concerns only it (arming, wake source).
    pub fn transport(&mut self) -> &mut R {
        &mut self.transport
    }

    /// Starts a send.
    ///
    /// # Errors
    /// `Misuse` for a peer outside the world, `Peer` for one that is gone, `Resource` when no
    /// memory is left.
    pub fn send(&mut self, send: SendArgs) -> Result<StartOutcome, Error> {
        let SendArgs {
            context,
            peer,
            source,
            tag,
            data,
            mode,
            origin,
        } = send;
        if !self.core.peers.has(peer) {
            return Err(Error::Misuse(
                "the destination is not a process of this job",
            ));
        }
        if self.core.peers.any_lost() {
            self.core.check_context(context)?;
        }
        let event = Event {
            len: data.len,
            site: 0,
            peer,
            context,
            tag,
            call: 0,
            kind: EventKind::Send,
            datatype: 0,
        };
        let pattern = Pattern {
            context,
            source: None,
            tag: Some(tag),
        };
        if peer != self.core.me {
            self.ensure_peer(peer)?;
        }
        let index = self.core.requests.open(NewOperation {
            side: OpSide::Send,
            state: OpState::Active,
            pattern,
            data,
            origin,
        })?;
        // Offered receives find their messages among these: there is one for each envelope that
        // gets a number, in their order.
        self.core.note_call(event, origin);
        let operation = self.core.requests.at(index);
        operation.peer = peer;
        operation.source = source;
        operation.tag = tag;
        operation.remote = 0;
        operation.synchronous = mode == crate::api::SendCompletion::Synchronous;
        self.core.watch_send(index);
        if peer == self.core.me {
            self.send_to_self(index);
        } else {
            self.submit(index);
        }
        Ok(self.start_outcome(index))
    }

    /// Opens the state of `peer` and makes sure it is usable.
    pub(crate) fn ensure_peer(&mut self, peer: Peer) -> Result<u32, Error> {
        let peer_index = match self.core.peer_index(peer) {
            Some(peer_index) => peer_index,
            None => {
                let reach = self.transport.capabilities(peer).ok_or(Error::Peer {
                    peer,
                    what: "no transport reaches it",
                })?;
                self.core.open_peer(peer, reach)
            }
        };
        if self.core.peers[peer_index as usize].gone {
            return Err(self.core.peers[peer_index as usize].failure());
        }
        self.refresh_capabilities();
        Ok(peer_index)
    }

    /// Asks the transport about peers that were heard of before they were spoken to.
    pub(crate) fn refresh_capabilities(&mut self) {
        if !self.core.peers.take_stale() {
            return;
        }
        for peer_state in self.core.peers.states_mut() {
            if let Some(reach) = self.transport.capabilities(peer_state.peer) {
                peer_state.capabilities = reach;
            }
        }
    }

    fn send_to_self(&mut self, index: u32) {
        let operation = self.core.requests.peek(index);
        let meta = MessageInfo {
            context: operation.context,
            peer: operation.peer,
            source: operation.source,
            tag: operation.tag,
            sequence: 0,
            len: operation.data.len,
            waiting: None,
            credited: false,
            digest: operation.origin.digest,
        };
        let buffered = !operation.synchronous
            && operation.data.layout.is_none()
            && meta.len <= SELF_EAGER_MAX.min(self.core.unexpected.self_credit);
        if buffered {
            let mem = operation.data.mem;
            let kept = self.core.unexpected.alive();
            self.core
                .deliver(SELF_PEER, meta, IncomingPayload::Payload(mem));
            if self.core.unexpected.alive() > kept {
                self.core.unexpected.self_credit -= meta.len;
            }
            self.core.complete(index, None);
        } else {
            self.core
                .deliver(SELF_PEER, meta, IncomingPayload::SelfSend(index));
        }
    }

    /// Returns the outcome of an operation just started.
    pub(crate) fn start_outcome(&mut self, index: u32) -> StartOutcome {
        let operation = self.core.requests.peek(index);
        if operation.state == OpState::Complete {
            let receives = operation.side == OpSide::Recv;
            let status = self.core.requests.status(index);
            // A receive that failed tells whoever waits for it, and not who starts it: that would
            // depend on whether its message was there already.
            if status.error.is_none() || !receives {
                self.core.requests.close(index);
                return StartOutcome::Done(status);
            }
        }
        StartOutcome::Pending(self.core.requests.name(index))
    }

    /// Starts a receive.
    ///
    /// # Errors
    /// `Misuse` for a source outside the world, `Peer` for one that is gone and left no matching
    /// message, `Resource`.
    #[inline]
    pub fn recv(&mut self, recv: RecvArgs) -> Result<StartOutcome, Error> {
        let RecvArgs {
            pattern,
            data,
            origin,
        } = recv;
        let peer = pattern.source.map_or(u32::MAX, |source| source.peer);
        let event = Event {
            len: data.len,
            site: 0,
            peer,
            context: pattern.context,
            tag: pattern.tag.unwrap_or(-1),
            call: 0,
            kind: EventKind::Recv,
            datatype: 0,
        };
        if self.core.peers.any_lost() {
            self.core.check_context(pattern.context)?;
        }
        self.core.note_call(event, origin);
        let fresh = NewOperation {
            side: OpSide::Recv,
            state: OpState::Active,
            pattern,
            data,
            origin,
        };
        if let Some(item) = self.core.matcher.find(&pattern) {
            let index = self.core.open(fresh)?;
            self.core.matcher.drop_kept(item);
            self.core.deliver_unexpected(index, item);
            self.flush_answers();
            return Ok(self.start_outcome(index));
        }
        if self.core.unmatched_fragmented != 0
            && let Some(peer_index) = self.core.fragmented_for(&pattern)
        {
            let index = self.core.open(fresh)?;
            self.core.adopt_fragmented(peer_index, index);
            return Ok(self.start_outcome(index));
        }
        if peer != u32::MAX && peer != self.core.me {
            if !self.core.peers.has(peer) {
                return Err(Error::Misuse("the source is not a process of this job"));
            }
            self.check_sender(&pattern)?;
        }
        let index = self.core.open(NewOperation {
            state: OpState::Posted,
            ..fresh
        })?;
        if self.core.peers.any_lost() && self.suspend_if_lost(index) {
            return Ok(StartOutcome::Pending(self.core.requests.name(index)));
        }
        self.core.matcher.post(&pattern, index);
        self.core.probe_windows_for(index);
        Ok(StartOutcome::Pending(self.core.requests.name(index)))
    }

    /// Looks for a message without receiving it.
    ///
    /// # Errors
    /// `Peer` when the only possible sender is gone.
    pub fn probe(&mut self, pattern: Pattern) -> Result<Option<Status>, Error> {
        if self.core.peers.any_lost() {
            self.core.check_context(pattern.context)?;
        }
        if let Some(item) = self.core.matcher.find(&pattern) {
            return Ok(Some(self.core.probe_status(item)));
        }
        self.check_sender(&pattern)?;
        Ok(self.core.probe_windows(&pattern))
    }

    fn check_sender(&mut self, pattern: &Pattern) -> Result<(), Error> {
        let Some(source) = pattern.source else {
            return match self.core.peers.any_lost() {
                true => self.core.check_any_source(pattern.context),
                false => Ok(()),
            };
        };
        match self.core.peer_index(source.peer) {
            Some(peer_index) if self.core.peers[peer_index as usize].gone => {
                Err(self.core.peers[peer_index as usize].failure())
            }
            Some(_) => Ok(()),
            None => {
                self.core.reach_other_world(source.peer);
                Ok(())
            }
        }
    }

    /// Takes a message out of matching.
    ///
    /// # Errors
    /// As for `probe`.
    pub fn mprobe(&mut self, pattern: Pattern) -> Result<Option<(Message, Status)>, Error> {
        if self.core.peers.any_lost() {
            self.core.check_context(pattern.context)?;
        }
        if let Some(item) = self.core.matcher.find(&pattern) {
            let status = self.core.probe_status(item);
            self.core.matcher.drop_kept(item);
            return Ok(Some((self.core.unexpected.take(item), status)));
        }
        self.check_sender(&pattern)?;
        Ok(self.core.pull_from_windows(&pattern))
    }

    /// Receives a message taken by `mprobe`.
    ///
    /// # Errors
    /// `Misuse` for a stale message.
    pub fn mrecv(
        &mut self,
        message: Message,
        data: Data,
        origin: CallOrigin,
    ) -> Result<StartOutcome, Error> {
        let item = self
            .core
            .unexpected
            .find_taken(message)
            .ok_or(Error::Misuse("the message was received already"))?;
        let meta = self.core.unexpected.get(item).meta;
        let pattern = Pattern {
            context: meta.context,
            source: Some(Source {
                rank: meta.source,
                peer: meta.peer,
            }),
            tag: Some(meta.tag),
        };
        let index = self.core.open(NewOperation {
            side: OpSide::Recv,
            state: OpState::Active,
            pattern,
            data,
            origin,
        })?;
        self.core.receive_matched(index, item);
        self.flush_answers();
        Ok(self.start_outcome(index))
    }

    /// Asks to cancel a receive that has not matched.
    ///
    /// # Errors
    /// `Misuse` for a stale request.
    pub fn cancel(&mut self, request: Request) -> Result<(), Error> {
        let index = self.find(request)?;
        if let Some(Error::Pending { .. }) = self.core.requests.peek(index).error {
            let operation = self.core.requests.at(index);
            operation.cancelled = true;
            operation.error = None;
        }
        if self.core.requests.peek(index).state == OpState::Posted && self.withdraw_posted(index) {
            let operation = self.core.requests.at(index);
            operation.cancelled = true;
            operation.total = 0;
            let pattern = operation.pattern;
            self.core.matcher.withdraw(&pattern, index);
            self.core.complete(index, None);
        }
        Ok(())
    }

    #[inline]
    fn find(&self, request: Request) -> Result<u32, Error> {
        self.core.requests.find(request).ok_or(Error::Misuse(
            "the request is stale: it completed and was taken already",
        ))
    }

    /// The status if complete; the request stays.
    ///
    /// # Errors
    /// `Misuse` for a stale request.
    #[inline]
    pub fn peek(&self, request: Request) -> Result<Option<Status>, Error> {
        let index = self.find(request)?;
        Ok((self.core.requests.peek(index).state == OpState::Complete)
            .then(|| self.core.requests.status(index)))
    }

    /// The operation's place among the completions of this engine; `None` while it goes on, and for
    /// stale names.
    #[inline]
    pub fn completion_number(&self, request: Request) -> Option<u64> {
        let operation = self.core.requests.peek(self.core.requests.find(request)?);
        (operation.state == OpState::Complete).then_some(operation.finished)
    }

    /// Returns whether the operation is complete.
    #[inline]
    pub fn is_complete(&self, request: Request) -> bool {
        self.core
            .requests
            .find(request)
            .is_none_or(|index| self.core.requests.peek(index).state == OpState::Complete)
    }

    /// Returns the program address that started the operation; `None` if the operation is complete.
    pub fn pending_call_site(&self, request: Request) -> Option<u64> {
        let operation = self.core.requests.peek(self.core.requests.find(request)?);
        (operation.state != OpState::Complete).then_some(operation.origin.site)
    }

    /// Returns the description of a pending operation; `None` if it is complete.
    pub fn pending(&self, request: Request) -> Option<PendingOperation> {
        let operation = self.core.requests.peek(self.core.requests.find(request)?);
        (operation.state != OpState::Complete).then(|| operation.describe())
    }

    /// Returns whether the operation needs this rank to poll, because its peer cannot wake it
    /// ([`crate::transport::AsyncProgress::needs_polling`]).
    pub fn needs_polling(&self, request: Request) -> bool {
        let Some(index) = self.core.requests.find(request) else {
            return false;
        };
        let shown = self.core.requests.peek(index).describe();
        // A send that is still open waits for room or an answer, whatever its length.
        let len = if shown.action == PendingAction::Send {
            u64::MAX
        } else {
            shown.bytes
        };
        self.transport.needs_polling(shown.peer, len)
    }

    /// The status if complete; the name is gone then.
    ///
    /// # Errors
    /// `Misuse` for a stale request.
    #[inline]
    pub fn take(&mut self, request: Request) -> Result<Option<Status>, Error> {
        let index = self.find(request)?;
        if self.core.requests.peek(index).state != OpState::Complete {
            return Ok(None);
        }
        let status = self.core.requests.status(index);
        // A receive that waits for an acknowledgement keeps its name.
        if !matches!(status.error, Some(Error::Pending { .. })) {
            self.core.requests.close(index);
        }
        Ok(Some(status))
    }

    /// Forgets the name; the operation finishes on its own.
    ///
    /// # Errors
    /// `Misuse` for a stale request.
    pub fn abandon(&mut self, request: Request) -> Result<(), Error> {
        let index = self.find(request)?;
        if self.core.requests.peek(index).state == OpState::Complete {
            self.core.requests.close(index);
        } else {
            self.core.requests.at(index).set(OpFlag::Abandoned);
        }
        Ok(())
    }

    /// Polls the transport once and moves whatever can move. `true` if anything did.
    #[inline]
    pub fn progress(&mut self) -> bool {
        let told = self.transport.poll(POLL_BUDGET, &mut self.core);
        if self.core.has_work {
            return self.progress_queued() || told != 0;
        }
        told != 0
    }

    /// Polls the transport without moving what may be long.
    pub fn poll_only(&mut self) -> PollOutcome {
        let told = self.transport.poll(POLL_BUDGET, &mut self.core);
        let left = |index: u32| {
            let operation = self.core.requests.peek(index);
            operation.data.len.saturating_sub(operation.moved)
        };
        let core = &self.core;
        let bytes = if core.has_work {
            let moving = core
                .transfers
                .reads
                .iter()
                .chain(core.transfers.writes.iter())
                .chain(core.transfers.packets.iter());
            moving
                .map(left)
                .fold(core.early_write_bytes(), u64::saturating_add)
        } else {
            0
        };
        PollOutcome {
            bytes,
            more: told >= POLL_BUDGET,
        }
    }

    /// Completions and arrivals so far: unchanged means that nobody needs to look again.
    #[inline]
    pub fn completions(&self) -> u64 {
        self.core.completion_events.count()
    }

    /// Work is queued that needs further calls of `progress` even if nothing arrives.
    pub fn has_work(&self) -> bool {
        self.core.has_work
    }

    /// Messages that are being fetched.
    pub fn transfers_in_progress(&self) -> usize {
        self.core.transfers.reads.len()
    }

    /// Operations are open.
    pub fn has_open_operations(&self) -> bool {
        self.core.requests.alive() > 0
    }

    /// Puts aside the control packets for peers that will not look at them, as `left` says, so that
    /// they are no work any more.
    pub fn defer_control(&mut self, left: impl Fn(Peer) -> bool) {
        self.core.control.defer(left);
    }

    /// Queues again what was put aside.
    pub fn resume_control(&mut self) {
        self.core.has_work |= self.core.control.resume();
    }

    /// Shows from now on in `tally` (three words, 8 bytes each) messages sent, bytes sent and
    /// messages kept. The words follow when credits move, and at `publish_tally`; what was sent to
    /// a peer that died meanwhile is not counted, nor is what the rank sent to itself.
    pub fn set_tally(&mut self, tally: Segment) {
        self.core.tally = (tally.len() >= TALLY_BYTES).then_some(tally);
    }

    /// Returns the fixed address of the counters that other processes may read
    /// ([`crate::observe::counters::read`]).
    pub fn counters_address(&self) -> usize {
        self.core.peers.counters_address()
    }

    /// Shows them now.
    pub fn publish_tally(&self) {
        self.core.publish_tally();
    }

    /// Peers that this one has spoken with so far, itself among them if it has.
    pub fn peer_count(&self) -> usize {
        self.core.peers.len()
    }

    /// The last events.
    pub fn events(&self) -> &EventLog {
        &self.core.events
    }

    /// Returns whether nothing is pending, unexpected, blocked or owed beyond credits. This holds
    /// at the end of a correct program.
    pub fn is_idle(&self) -> bool {
        let core = &self.core;
        core.requests.alive() == 0
            && core.unexpected.alive() == 0
            && core.matcher.is_empty()
            && core.windows.is_empty()
            && core.unmatched_fragmented == 0
            && core.control.is_empty()
            && core.one_sided.is_idle()
    }

    /// Messages kept because nobody asked for them yet.
    pub fn unexpected_count(&self) -> usize {
        self.core.unexpected.alive()
    }
}
