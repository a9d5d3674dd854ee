//! Fast paths of receives: a blocking receive of the next message to come, and a plain nonblocking
//! receive.
//!
//! These are guards in front of the general paths of `engine`. If anything is not plain they say
//! so, having changed nothing, and the caller takes the general path. Owned by the engine; an
//! expected message exists only inside [`Engine::recv_blocking_fast`]. Bounded: one message is
//! expected.

use crate::api::{CallOrigin, ContextId, Pattern, Peer, Request, Source, TypeDigest};
use crate::core::{Core, IncomingPayload};
use crate::engine::Engine;
use crate::key_map::NONE;
use crate::limits::EARLY_RTR_FROM;
use crate::matching::matcher::{Envelope, Matcher};
use crate::matching::unexpected::{MessageInfo, UnexpectedBody};
use crate::observe::events::{Event, EventKind, EventLog};
use crate::requests::OpState;
use crate::transport::{PacketHeader, PacketKind, Transport};
use garonne_sync::user::UserMem;
use std::sync::atomic::{AtomicU64, Ordering};

/// A receive of contiguous bytes, in words that are compared as they are.
#[derive(Clone, Copy, Debug)]
pub struct FastRecv {
    /// Context of the envelope.
    pub context: ContextId,
    /// The one accepted sender, or [`ANY_PEER`].
    pub peer: Peer,
    /// Rank of the sender in the communicator.
    pub rank: u32,
    /// The one accepted tag, or [`ANY_TAG`].
    pub tag: i32,
    /// Receive buffer.
    pub mem: UserMem,
    /// Room there.
    pub room: u32,
    /// Call that started the operation.
    pub origin: CallOrigin,
}

/// Any sender. No peer is this one.
pub const ANY_PEER: Peer = u32::MAX;

/// Any tag. No message has this one. It is the number that the ABI has for it, so that nobody has
/// to translate it.
pub const ANY_TAG: i32 = -2;

impl FastRecv {
    /// A receive of what `pattern` accepts into `room` bytes at `mem`.
    pub fn new(pattern: Pattern, (mem, room): (UserMem, u32), origin: CallOrigin) -> Self {
        Self {
            context: pattern.context,
            peer: pattern.source.map_or(ANY_PEER, |source| source.peer),
            rank: pattern.source.map_or(0, |source| source.rank),
            tag: pattern.tag.unwrap_or(ANY_TAG),
            mem,
            room,
            origin,
        }
    }

    /// Stores the site of its origin.
    #[inline(always)]
    pub(crate) fn note_site(&self, word: &AtomicU64) {
        word.store(self.origin.site, Ordering::Relaxed);
    }

    /// Messages that the receive accepts.
    #[inline]
    pub fn pattern(&self) -> Pattern {
        pattern(self.context, (self.peer, self.rank), self.tag)
    }
}

/// The pattern of these words, the sender's rank in the communicator beside its process.
#[inline]
fn pattern(context: ContextId, (peer, rank): (Peer, u32), tag: i32) -> Pattern {
    Pattern {
        context,
        source: (peer != ANY_PEER).then_some(Source { rank, peer }),
        tag: (tag >= 0).then_some(tag),
    }
}

/// State of a receive that [`Engine::post_plain`] posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainRecvStatus {
    /// The receive is pending.
    NotYet,
    /// The receive got this message, and its name is released.
    Plainly(ReceivedMessage),
    /// The receive ended otherwise (error, cancelled, longer than 4 GB), or the name is stale:
    /// [`Engine::take`] tells which.
    Otherwise,
}

/// The envelope of a message that was caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// The sender's rank in the communicator.
    pub source: u32,
    /// Tag.
    pub tag: i32,
    /// Bytes.
    pub len: u32,
}

/// The message that the running [`Engine::recv_blocking_fast`] would take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedRecv {
    context: ContextId,
    /// Or [`ANY_PEER`].
    peer: Peer,
    /// Negative: any.
    tag: i32,
    mem: UserMem,
    /// Receives that other threads are blocked in are posted with the same pattern: it may have the
    /// message before them.
    overtakes: bool,
    /// Room; [`NOTHING`] is expected, or the message is [`FLOWING`] in.
    room: i64,
    caught: ReceivedMessage,
}

/// Nothing is expected (any more).
const NOTHING: i64 = -1;
/// The expected message has begun to come in pieces.
const FLOWING: i64 = -2;

impl ExpectedRecv {
    pub(crate) fn none() -> Self {
        let caught = ReceivedMessage {
            source: 0,
            tag: 0,
            len: 0,
        };
        Self {
            context: 0,
            peer: 0,
            tag: 0,
            mem: UserMem::null(),
            overtakes: false,
            room: NOTHING,
            caught,
        }
    }

    /// The expected message begins to come: where it goes.
    pub(crate) fn take_fragments(&mut self) -> UserMem {
        self.room = FLOWING;
        self.mem
    }

    /// Marks the fragmented message as complete.
    #[inline(always)]
    pub(crate) fn fragments_done(&mut self, meta: &MessageInfo) {
        self.room = NOTHING;
        self.caught = ReceivedMessage {
            source: meta.source,
            tag: meta.tag,
            len: meta.len as u32,
        };
    }

    /// Returns whether the expected receive takes this message, which no posted receive matched. If
    /// it returns true, the receive must take it.
    #[inline(always)]
    pub(crate) fn accepts(&mut self, meta: &MessageInfo, events: &EventLog) -> bool {
        self.room >= meta.len as i64
            && self.context == meta.context
            && (self.tag == meta.tag || self.tag < 0)
            && meta.waiting.is_none()
            && meta.digest == TypeDigest::NONE
            && (self.peer == meta.peer || self.accepts_from_any(meta, events))
    }

    /// Takes and notes a message of any peer.
    #[cold]
    #[inline(never)]
    fn accepts_from_any(&mut self, meta: &MessageInfo, events: &EventLog) -> bool {
        if self.peer != ANY_PEER {
            return false;
        }
        // The receive itself, with its site, is noted when `recv_polled` ends.
        self.peer = meta.peer;
        events.note_from_any(meta, CallOrigin::default());
        true
    }

    /// Returns whether the expected receive takes this message before the posted receives. The
    /// answer may change when a posted receive gets a message.
    #[cold]
    #[inline(never)]
    fn precedes_posted(
        &mut self,
        matcher: &Matcher,
        meta: &MessageInfo,
        events: &EventLog,
    ) -> bool {
        // What accepts a message has to take it, so that is asked last.
        matcher.may_overtake(&pattern(self.context, (self.peer, 0), self.tag))
            && self.accepts(meta, events)
    }

    /// Takes a message that it accepts.
    #[inline(always)]
    fn take(&mut self, meta: &MessageInfo, payload: UserMem) {
        self.mem.copy_from(0, payload, 0, meta.len as usize);
        self.fragments_done(meta);
    }
}

impl Core {
    /// An eager envelope that the expected receive or a plain posted one takes, if all is plain:
    /// the next of its sequence, and no wildcard posted that could be older. `false`: nothing
    /// happened.
    #[inline(always)]
    pub(crate) fn receive_expected_packet(
        &mut self,
        header: &PacketHeader,
        meta: &MessageInfo,
        payload: UserMem,
    ) -> bool {
        if header.kind != PacketKind::Eager as u8 || header.flags != 0 || header.shard != 0 {
            return false;
        }
        let Some(route) = self.known_route(meta.context, meta.peer) else {
            return false;
        };
        let stream = self.sequences.get_mut(route.stream);
        let peer_state = &mut self.peers[route.peer_index as usize];
        if stream.reorder.is_some()
            || header.sequence != stream.next_rx as u32
            || !peer_state.may_send()
        {
            return false;
        }
        let receive = if self.matcher.nothing_posted() {
            if !self.expected_recv.accepts(meta, &self.events) {
                return false;
            }
            NONE
        } else if self.expected_recv.overtakes
            && self
                .expected_recv
                .precedes_posted(&self.matcher, meta, &self.events)
        {
            NONE
        } else {
            let envelope = Envelope {
                context: meta.context,
                peer: meta.peer,
                tag: meta.tag,
            };
            match self.matcher.arrive_plainly(&envelope) {
                Some(receive) => receive,
                None => return false,
            }
        };
        stream.next_rx += 1;
        peer_state.outstanding += 1;
        let credits_due = peer_state.owe(meta.len);
        if receive == NONE {
            self.expected_recv.take(meta, payload);
        } else {
            self.fill_posted(receive, meta, payload);
        }
        if credits_due {
            self.return_credits(route.peer_index);
        }
        true
    }

    /// Ends a posted receive with the eager message that it matched.
    #[inline(always)]
    fn fill_posted(&mut self, receive: u32, meta: &MessageInfo, payload: UserMem) {
        let operation = self.requests.at(receive);
        if operation.data.layout.is_some() || operation.flags != 0 || meta.len > operation.data.len
        {
            return self.deliver_to_receive(receive, *meta, IncomingPayload::Payload(payload));
        }
        operation
            .data
            .mem
            .copy_from(0, payload, 0, meta.len as usize);
        operation.peer = meta.peer;
        operation.source = meta.source;
        operation.tag = meta.tag;
        operation.sequence = meta.sequence;
        operation.total = meta.len;
        // A receive that was only posted has neither region nor error.
        operation.state = OpState::Complete;
        operation.finished = self.completion_events.count_one();
    }

    /// Gives a message to the expected receive, which accepts it.
    #[inline(always)]
    pub(crate) fn receive_expected(
        &mut self,
        peer_index: u32,
        meta: &MessageInfo,
        payload: UserMem,
    ) {
        self.release_credits(peer_index, meta.len);
        self.expected_recv.take(meta, payload);
    }
}

impl Core {
    /// Notes that a plain receive was posted.
    #[inline(always)]
    fn note_posted(&mut self, catch: &FastRecv) {
        self.events.push(Event {
            len: catch.room.into(),
            site: catch.origin.site,
            peer: catch.peer,
            context: catch.context,
            tag: catch.tag,
            call: catch.origin.call,
            kind: EventKind::Recv,
            datatype: catch.origin.datatype,
        });
    }

    /// Notes the receive of a caught message.
    #[inline(always)]
    fn note_received(&mut self, catch: &FastRecv, peer: Peer, caught: ReceivedMessage) {
        self.events.push(Event {
            len: u64::from(caught.len),
            site: catch.origin.site,
            peer,
            context: catch.context,
            tag: caught.tag,
            call: catch.origin.call,
            kind: EventKind::Recv,
            datatype: catch.origin.datatype,
        });
    }

    /// Opens a receive for an unexpected message.
    #[cold]
    fn post_to_kept(&mut self, catch: &FastRecv, item: u32) -> Option<Request> {
        let index = self.requests.open_plain(catch, OpState::Active)?;
        self.note_posted(catch);
        self.matcher.drop_kept(item);
        self.deliver_unexpected(index, item);
        Some(self.requests.name(index))
    }

    /// Returns whether messages of this process may arrive: the process is in the job, and no peer
    /// was lost.
    #[inline(always)]
    fn may_receive_from(&self, peer: Peer) -> bool {
        self.peers.has(peer) && !self.peers.any_lost()
    }

    /// Nobody looks for the expected message any more. What has come of it is kept like that of any
    /// message.
    #[cold]
    #[inline(never)]
    fn stop_expecting(&mut self) {
        if std::mem::replace(&mut self.expected_recv.room, NOTHING) == FLOWING {
            self.keep_expected_fragments();
        }
    }

    /// Receives an unexpected message if its few bytes lie in its record and fit; `None`: nothing
    /// happened.
    #[inline(never)]
    fn receive_unexpected(&mut self, catch: &FastRecv, item: u32) -> Option<ReceivedMessage> {
        let kept = self.unexpected.get(item);
        let meta = &kept.meta;
        let UnexpectedBody::Inline(bytes) = &kept.body else {
            return None;
        };
        if meta.len > u64::from(catch.room)
            || meta.waiting.is_some()
            || meta.digest != TypeDigest::NONE
        {
            return None;
        }
        catch.mem.write(0, bytes.get(..meta.len as usize)?);
        self.matcher.drop_kept(item);
        let (meta, body) = self.unexpected.remove(item);
        self.release_unexpected(&meta, &body);
        let caught = ReceivedMessage {
            source: meta.source,
            tag: meta.tag,
            len: meta.len as u32,
        };
        if catch.peer == ANY_PEER {
            self.events.note_from_any(&meta, CallOrigin::default());
        }
        self.note_received(catch, meta.peer, caught);
        Some(caught)
    }
}

impl<R: Transport> Engine<R> {
    #[inline(never)]
    pub(crate) fn recv_unexpected(
        &mut self,
        catch: FastRecv,
        item: u32,
    ) -> Option<ReceivedMessage> {
        let caught = self.core.receive_unexpected(&catch, item);
        if self.core.has_work {
            // Credits to return.
            self.progress_queued();
        }
        caught
    }

    /// Polls for one packet, or for the pieces of one message, and receives it if it is the one.
    /// What comes behind is for later receives.
    #[inline(never)]
    pub(crate) fn recv_polled(
        &mut self,
        catch: FastRecv,
        mut left: u32,
    ) -> Option<ReceivedMessage> {
        let overtakes =
            !self.core.matcher.nothing_posted() && self.core.matcher.may_overtake(&catch.pattern());
        let expected = &mut self.core.expected_recv;
        expected.overtakes = overtakes;
        expected.context = catch.context;
        expected.peer = catch.peer;
        expected.tag = catch.tag;
        expected.mem = catch.mem;
        expected.room = i64::from(catch.room);
        loop {
            if self.transport.poll_one(&mut self.core)
                || !self.transport.is_idle()
                    && (self.transport.poll(1, &mut self.core) > 0
                        || self.core.expected_recv.room != FLOWING)
            {
                if self.core.expected_recv.room != FLOWING {
                    break;
                }
            } else if left == 0 {
                break;
            } else {
                left -= 1;
                std::hint::spin_loop();
            }
        }
        let core = &mut self.core;
        if core.expected_recv.room != NOTHING {
            core.stop_expecting();
            return None;
        }
        let caught = core.expected_recv.caught;
        let peer = core.expected_recv.peer;
        core.note_received(&catch, peer, caught);
        if core.has_work {
            // Credits to return.
            self.progress_queued();
        }
        Some(caught)
    }

    /// Posts a plain receive like [`Engine::post_plain`], where no message lies ready.
    #[inline(never)]
    pub(crate) fn post_unready(&mut self, catch: FastRecv) -> Option<Request> {
        let core = &mut self.core;
        let may_receive = match catch.peer {
            // Where a possible sender is lost, the general way asks whether that is acknowledged.
            ANY_PEER => !core.peers.any_lost(),
            peer => core.may_receive_from(peer),
        };
        // One that comes in pieces already may match.
        if core.unmatched_fragmented != 0 || !may_receive {
            return None;
        }
        let pattern = catch.pattern();
        if let Some(item) = core.matcher.find(&pattern) {
            let name = core.post_to_kept(&catch, item)?;
            self.flush_answers();
            if catch.room > EARLY_RTR_FROM {
                self.offer_early_slot(name.index);
            }
            return Some(name);
        }
        let index = core.requests.open_plain(&catch, OpState::Posted)?;
        core.note_posted(&catch);
        core.matcher.post(&pattern, index);
        core.probe_windows_for(index);
        let name = core.requests.name(index);
        if catch.room > EARLY_RTR_FROM {
            self.offer_early_slot(index);
        }
        Some(name)
    }

    /// Ends a posted receive if it is over and all is plain. Of the name's generation the low
    /// [`crate::limits::SHORT_GENERATION_BITS`] count.
    #[inline(always)]
    pub fn take_plain(&mut self, name: Request) -> PlainRecvStatus {
        self.core.requests.end_plain(name)
    }

    /// The place of a posted receive among the completions of this engine; `None` while it goes on.
    /// A stale name counts as over: whoever ends it hears of that.
    #[inline(always)]
    pub fn plain_ended_at(&self, name: Request) -> Option<u64> {
        match self.core.requests.find_short(name) {
            Some(operation) if operation.state == OpState::Complete => Some(operation.finished),
            Some(operation) if operation.state != OpState::Free => None,
            _ => Some(0),
        }
    }

    /// The whole name and the context of a living operation of which the low bits of the generation
    /// are known.
    pub fn full_name(&self, name: Request) -> Option<(Request, ContextId)> {
        let operation = self.core.requests.find_short(name)?;
        (operation.state != OpState::Free)
            .then(|| (self.core.requests.name(name.index), operation.context))
    }
}
