//! The shortest ways: a small send that nothing hinders, a blocking receive whose message is the
//! next thing to come, and a plain nonblocking receive from its posting to its end.
//!
//! Guards in front of the general ways of `engine`: whenever something is not plain they say so,
//! having changed nothing, and the caller goes the general way. Owned by the shard; an expected
//! message exists only inside [`Engine::recv_quick`]. Bounded: one message is expected.

use crate::api::{CallOrigin, ContextId, Pattern, Peer, Request, Source, TypeDigest};
use crate::core::{Core, IncomingPayload};
use crate::engine::Engine;
use crate::key_map::NONE;
use crate::limits::AHEAD_FROM;
use crate::matching::matcher::{Envelope, Matcher};
use crate::matching::unexpected::{MessageInfo, UnexpectedBody};
use crate::observe::events::{Event, EventKind, EventLog};
use crate::peer::routes::PeerRoute;
use crate::peer::state::Sequence;
use crate::requests::OpState;
use crate::transport::{PacketHeader, PacketKind, Transport};
use garonne_sync::user::UserMem;
use std::sync::atomic::{AtomicU64, Ordering};

/// A small contiguous standard-mode send.
#[derive(Clone, Copy, Debug)]
pub struct FastSend {
    /// Context of the envelope.
    pub context: ContextId,
    /// The process it goes to.
    pub peer: Peer,
    /// The sender's rank in the communicator.
    pub source: u32,
    /// Tag, at least 0.
    pub tag: i32,
    /// The bytes.
    pub mem: UserMem,
    /// How many.
    pub len: usize,
    /// Who asked.
    pub origin: CallOrigin,
}

/// A receive of contiguous bytes, in words that are compared as they are.
#[derive(Clone, Copy, Debug)]
pub struct FastRecv {
    /// Context of the envelope.
    pub context: ContextId,
    /// The one accepted sender, or [`ANY_PEER`].
    pub peer: Peer,
    /// Its rank in the communicator.
    pub rank: u32,
    /// The one accepted tag, or [`ANY_TAG`].
    pub tag: i32,
    /// Where the bytes go.
    pub mem: UserMem,
    /// Room there.
    pub room: u32,
    /// Who asked.
    pub origin: CallOrigin,
}

/// Any sender. No peer is this one.
pub const ANY_PEER: Peer = u32::MAX;

/// Any tag. No message has this one. It is the number that the ABI has for it, so that nobody has
/// to translate it.
pub const ANY_TAG: i32 = -2;

impl FastRecv {
    /// A receive of what `pattern` accepts into `room` bytes at `mem`.
    pub fn of(pattern: Pattern, (mem, room): (UserMem, u32), origin: CallOrigin) -> Self {
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

    /// What it accepts.
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

/// How a receive that [`Engine::post_plain`] posted stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainRecvStatus {
    /// It goes on.
    NotYet,
    /// It received this message; its name is gone.
    Plainly(ReceivedMessage),
    /// It ended otherwise (an error, cancelled, longer than 4 GB), or the name is stale:
    /// [`Engine::take`] tells.
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

/// The message that the running [`Engine::recv_quick`] would take.
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
    pub(crate) fn nothing() -> Self {
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
    pub(crate) fn flows(&mut self) -> UserMem {
        self.room = FLOWING;
        self.mem
    }

    /// All of it is here.
    #[inline(always)]
    pub(crate) fn flowed(&mut self, meta: &MessageInfo) {
        self.room = NOTHING;
        self.caught = ReceivedMessage {
            source: meta.source,
            tag: meta.tag,
            len: meta.len as u32,
        };
    }

    /// Whether it takes this message, none of the posted receives having matched. Then it has to.
    #[inline(always)]
    pub(crate) fn accepts(&mut self, meta: &MessageInfo, events: &EventLog) -> bool {
        self.room >= meta.len as i64
            && self.context == meta.context
            && (self.tag == meta.tag || self.tag < 0)
            && meta.waiting.is_none()
            && meta.mark == TypeDigest::NONE
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

    /// Whether it takes this message before the posted receives, of which some may have got one
    /// since that was last asked.
    #[cold]
    #[inline(never)]
    fn goes_before(&mut self, matcher: &Matcher, meta: &MessageInfo, events: &EventLog) -> bool {
        // What accepts a message has to take it, so that is asked last.
        matcher.may_overtake(&pattern(self.context, (self.peer, 0), self.tag))
            && self.accepts(meta, events)
    }

    /// Takes a message that it accepts.
    #[inline(always)]
    fn take(&mut self, meta: &MessageInfo, payload: UserMem) {
        self.mem.copy_from(0, payload, 0, meta.len as usize);
        self.flowed(meta);
    }
}

impl Core {
    /// An eager envelope that the expected receive or a plain posted one takes, if all is plain:
    /// the next of its stream, and no wildcard posted that could be older. `false`: nothing
    /// happened.
    #[inline(always)]
    pub(crate) fn catch_packet(
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
        let stream = self.streams.get_mut(route.stream);
        let gate = &mut self.gates[route.gate as usize];
        if stream.odd.is_some()
            || header.sequence != stream.next_rx as u32
            || !gate.may_send(&self.quotas)
        {
            return false;
        }
        let receive = if self.matcher.nothing_posted() {
            if !self.expected.accepts(meta, &self.events) {
                return false;
            }
            NONE
        } else if self.expected.overtakes
            && self.expected.goes_before(&self.matcher, meta, &self.events)
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
        gate.outstanding += 1;
        let credits_due = gate.owe(meta.len, &self.quotas);
        if receive == NONE {
            self.expected.take(meta, payload);
        } else {
            self.fill(receive, meta, payload);
        }
        if credits_due {
            self.return_credits(route.gate);
        }
        true
    }

    /// Ends a posted receive with the eager message that it matched.
    #[inline(always)]
    fn fill(&mut self, receive: u32, meta: &MessageInfo, payload: UserMem) {
        let operation = self.requests.at(receive);
        if operation.data.layout.is_some() || operation.marks != 0 || meta.len > operation.data.len
        {
            return self.fulfil(receive, *meta, IncomingPayload::Payload(payload));
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
        self.completions += 1;
        operation.finished = self.completions;
    }

    /// Gives a message to the expected receive, which accepts it.
    #[inline(always)]
    pub(crate) fn catch(&mut self, gate: u32, meta: &MessageInfo, payload: UserMem) {
        self.release_credits(gate, meta.len);
        self.expected.take(meta, payload);
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
            what: EventKind::Recv,
            kind: catch.origin.kind,
        });
    }

    /// Notes the receive of a caught message.
    #[inline(always)]
    fn note_caught(&mut self, catch: &FastRecv, peer: Peer, caught: ReceivedMessage) {
        self.events.push(Event {
            len: u64::from(caught.len),
            site: catch.origin.site,
            peer,
            context: catch.context,
            tag: caught.tag,
            call: catch.origin.call,
            what: EventKind::Recv,
            kind: catch.origin.kind,
        });
    }

    /// Opens a receive for a kept message.
    #[cold]
    fn post_to_kept(&mut self, catch: &FastRecv, item: u32) -> Option<Request> {
        let index = self.requests.open_plain(catch, OpState::Active)?;
        self.note_posted(catch);
        self.matcher.drop_kept(item);
        self.hand_over(index, item);
        Some(self.requests.name(index))
    }

    /// Whether messages of this process may come: it is one of the job's, and none was lost.
    #[inline(always)]
    fn may_hear(&self, peer: Peer) -> bool {
        peer < self.world && !self.any_lost
    }

    /// Nobody looks for the expected message any more. What has come of it is kept like that of any
    /// message.
    #[cold]
    #[inline(never)]
    fn stop_expecting(&mut self) {
        if std::mem::replace(&mut self.expected.room, NOTHING) == FLOWING {
            self.keep_caught_flow();
        }
    }

    /// Receives a kept message if its few bytes lie in its record and fit; `None`: nothing
    /// happened.
    #[inline(never)]
    fn catch_kept(&mut self, catch: &FastRecv, item: u32) -> Option<ReceivedMessage> {
        let kept = self.store.get(item);
        let meta = &kept.meta;
        let UnexpectedBody::Inline(bytes) = &kept.body else {
            return None;
        };
        if meta.len > u64::from(catch.room)
            || meta.waiting.is_some()
            || meta.mark != TypeDigest::NONE
        {
            return None;
        }
        catch.mem.write(0, bytes.get(..meta.len as usize)?);
        self.matcher.drop_kept(item);
        let (meta, body) = self.store.remove(item);
        self.release_kept(&meta, &body);
        let caught = ReceivedMessage {
            source: meta.source,
            tag: meta.tag,
            len: meta.len as u32,
        };
        if catch.peer == ANY_PEER {
            self.events.note_from_any(&meta, CallOrigin::default());
        }
        self.note_caught(catch, meta.peer, caught);
        Some(caught)
    }
}

/// The header of the next envelope of a stream.
#[inline(always)]
pub(crate) fn header_of(small: &FastSend, stream: &Sequence) -> PacketHeader {
    PacketHeader {
        kind: PacketKind::Eager as u8,
        flags: 0,
        shard: small.origin.mark.0,
        len: small.len as u32,
        context: small.context,
        source: small.source,
        tag: small.tag,
        sequence: stream.next_tx() as u32,
    }
}

/// The event of a small message that left.
#[inline(always)]
pub(crate) fn sent(small: &FastSend) -> Event {
    Event {
        len: small.len as u64,
        site: small.origin.site,
        peer: small.peer,
        context: small.context,
        tag: small.tag,
        call: small.origin.call,
        what: EventKind::Send,
        kind: small.origin.kind,
    }
}

impl<R: Transport> Engine<R> {
    /// Sends a small message at once if nothing is in the way; `false`: nothing happened, take the
    /// general way.
    #[inline(always)]
    pub fn send_small(&mut self, small: &FastSend) -> bool {
        let core = &mut self.core;
        let Some(route) = core
            .known_route(small.context, small.peer)
            .or_else(|| core.learn_route(small.context, small.peer))
        else {
            return false;
        };
        if self.send_on_track(small, route) {
            return true;
        }
        let core = &mut self.core;
        let gate = &mut core.gates[route.gate as usize];
        gate.settle();
        let fits = small.len <= self.limits.inline_max && small.len <= gate.reach.eager_max;
        // A gate whose peer is gone has no credits.
        if !fits || gate.held != 0 || gate.envelopes == 0 || gate.payload < small.len as u64 {
            return small.len > self.limits.inline_max && self.send_medium(*small, route);
        }
        let stream = core.streams.get_mut(route.stream);
        let header = header_of(small, stream);
        if !self.rail.send_at_once(small.peer, header, small.mem) {
            return self.send_small_otherwise(*small, route);
        }
        stream.count_tx(small.tag);
        gate.envelopes -= 1;
        gate.payload -= small.len as u64;
        core.events.push(sent(small));
        true
    }

    /// Sends a small message by another way than the rail's shortest.
    #[inline(never)]
    fn send_small_otherwise(&mut self, small: FastSend, route: PeerRoute) -> bool {
        let core = &mut self.core;
        let stream = core.streams.get_mut(route.stream);
        let header = header_of(&small, stream);
        if self
            .rail
            .send_inline(small.peer, &header, small.mem)
            .is_err()
        {
            return false;
        }
        stream.count_tx(small.tag);
        let gate = &mut core.gates[route.gate as usize];
        gate.envelopes -= 1;
        gate.payload -= small.len as u64;
        core.events.push(sent(&small));
        true
    }

    #[inline(never)]
    pub(crate) fn recv_kept(&mut self, catch: FastRecv, item: u32) -> Option<ReceivedMessage> {
        let caught = self.core.catch_kept(&catch, item);
        if self.core.pending {
            // Credits to return.
            self.pump();
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
        let expected = &mut self.core.expected;
        expected.overtakes = overtakes;
        expected.context = catch.context;
        expected.peer = catch.peer;
        expected.tag = catch.tag;
        expected.mem = catch.mem;
        expected.room = i64::from(catch.room);
        loop {
            if self.rail.poll_one(&mut self.core)
                || !self.rail.is_quiet()
                    && (self.rail.poll(1, &mut self.core) > 0 || self.core.expected.room != FLOWING)
            {
                if self.core.expected.room != FLOWING {
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
        if core.expected.room != NOTHING {
            core.stop_expecting();
            return None;
        }
        let caught = core.expected.caught;
        let peer = core.expected.peer;
        core.note_caught(&catch, peer, caught);
        if core.pending {
            // Credits to return.
            self.pump();
        }
        Some(caught)
    }

    /// As [`Engine::post_plain`] where no message lies ready.
    #[inline(never)]
    pub(crate) fn post_unready(&mut self, catch: FastRecv) -> Option<Request> {
        let core = &mut self.core;
        // One that comes in pieces already may match.
        if core.flows != 0 || catch.peer != ANY_PEER && !core.may_hear(catch.peer) {
            return None;
        }
        let pattern = catch.pattern();
        if let Some(item) = core.matcher.find(&pattern) {
            let name = core.post_to_kept(&catch, item)?;
            self.answer();
            if catch.room > AHEAD_FROM {
                self.announce_slot(name.index);
            }
            return Some(name);
        }
        let index = core.requests.open_plain(&catch, OpState::Posted)?;
        core.note_posted(&catch);
        core.matcher.post(&pattern, index);
        core.ask_for(index);
        let name = core.requests.name(index);
        if catch.room > AHEAD_FROM {
            self.announce_slot(index);
        }
        Some(name)
    }

    /// Ends a posted receive if it is over and all is plain. Of the name's generation the low
    /// [`crate::limits::SHORT_GENERATION_BITS`] count.
    #[inline(always)]
    pub fn end_plain(&mut self, name: Request) -> PlainRecvStatus {
        self.core.requests.end_plain(name)
    }

    /// The place of a posted receive among the completions of this engine; `None` while it goes on.
    /// A stale name counts as over: whoever ends it hears of that.
    #[inline(always)]
    pub fn plain_ended_at(&self, name: Request) -> Option<u64> {
        match self.core.requests.short(name) {
            Some(operation) if operation.state == OpState::Complete => Some(operation.finished),
            Some(operation) if operation.state != OpState::Free => None,
            _ => Some(0),
        }
    }

    /// The whole name and the context of a living operation of which the low bits of the generation
    /// are known.
    pub fn whole_name(&self, name: Request) -> Option<(Request, ContextId)> {
        let operation = self.core.requests.short(name)?;
        (operation.state != OpState::Free)
            .then(|| (self.core.requests.name(name.index), operation.context))
    }
}
