//! Receives whose message lies ready: matched and taken at once, without a request.
//!
//! A message that lies in its slot when its receive comes needs no more than a comparison, if
//! nothing else could concern either: no receive is posted, no message is unexpected or blocked,
//! nothing is queued. Otherwise nothing happens here, and the paths of `fast::recv` and `engine`
//! serve.
//!
//! A sequence and its peer state have to account for each envelope: its turn, the credits it used,
//! the credits owed for it. A [`RecvChannel`] accounts for many at once. It is opened for as many
//! envelopes as nothing can go wrong with, and settled before the engine looks at a packet in any
//! other way. It is open only while nothing is pending. Only packets and posted receives end that,
//! so `settle` has one caller besides its own. The event log works the same way: a channel
//! remembers its last receive, and writes one event for all that it took when it closes. Owned by
//! the core. Bounded by [`RECV_CHANNELS`].

use crate::api::{ContextId, Peer, Request};
use crate::core::Core;
use crate::engine::Engine;
use crate::fast::recv::{ANY_PEER, ANY_TAG, FastRecv, ReceivedMessage};
use crate::fast::send_channel::RUN_PAYLOAD_MAX;
use crate::limits::RECV_CHANNELS;
use crate::observe::events::{Event, EventKind};
use crate::peer::sequences::stream_key;
use crate::transport::{
    PacketAcceptor, PacketHeader, PacketKind, PeekResult, PeekedPacket, Transport,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// A sequence whose next small envelopes may be taken. A line long, so that one shift finds it.
#[derive(Debug)]
#[repr(align(64))]
struct RecvChannel {
    /// Key of the sequence, or [`CLOSED`].
    key: u64,
    /// Tag and number of the last envelope, as its header has them: the number's low half is the
    /// upper one.
    last: u64,
    /// Envelopes that may be taken.
    left: u32,
    /// Envelopes that could be taken at first.
    granted: u32,
    peer_index: u32,
    stream: u32,
    /// Payload taken.
    bytes: u64,
    /// Call and datatype of the last receive in the encoding of an event, and its call site, which
    /// the caller stores.
    call: u16,
    kind: u8,
    site: AtomicU64,
}

const _: () = assert!(size_of::<RecvChannel>() == 64, "a line");

/// No sequence has this key: no peer is `u32::MAX`.
const CLOSED: u64 = u64::MAX;

/// The receive channels, each in the one place that its peer names.
#[derive(Debug)]
pub(crate) struct RecvChannels {
    places: [RecvChannel; RECV_CHANNELS],
    /// Some may be open.
    open: bool,
}

impl RecvChannel {
    const fn closed() -> Self {
        Self {
            key: CLOSED,
            last: 0,
            left: 0,
            granted: 0,
            peer_index: 0,
            stream: 0,
            bytes: 0,
            call: 0,
            kind: 0,
            site: AtomicU64::new(0),
        }
    }

    /// The next envelope's number, its low half.
    #[inline(always)]
    fn next(&self) -> u32 {
        ((self.last >> 32) as u32).wrapping_add(1)
    }

    /// Returns the event for the messages that the channel took.
    fn taken(&self, key: u64) -> Event {
        Event {
            len: self.bytes,
            site: self.site.load(Ordering::Relaxed),
            peer: key as u32,
            context: (key >> 32) as u32,
            tag: self.last as u32 as i32,
            call: self.call,
            kind: EventKind::ReadyRecv,
            datatype: self.kind,
        }
    }
}

impl RecvChannels {
    pub(crate) fn new() -> Self {
        Self {
            places: [const { RecvChannel::closed() }; RECV_CHANNELS],
            open: false,
        }
    }
}

/// A receive that takes what lies ready, and what stores its site.
struct ReadyPacketTaker<'a, S> {
    core: &'a mut Core,
    catch: &'a FastRecv,
    site: S,
}

impl<S: FnOnce(&AtomicU64)> PacketAcceptor for ReadyPacketTaker<'_, S> {
    type Taken = ReceivedMessage;

    /// Takes a packet for a receive that nothing precedes, if it is the next envelope of its
    /// sequence and all is plain.
    #[inline(always)]
    fn accept(self, peeked: &PeekedPacket) -> Option<ReceivedMessage> {
        let Self { core, catch, site } = self;
        let [first, second, third] = peeked.words;
        let caught = ReceivedMessage {
            source: (second >> 32) as u32,
            tag: third as u32 as i32,
            len: PacketHeader::len_in(&peeked.words),
        };
        // Neither flags nor shard: the half has the kind alone.
        let wanted = first as u32 == PacketKind::Eager as u32
            && second as u32 == catch.context
            && (peeked.peer == catch.peer || catch.peer == ANY_PEER)
            && (caught.tag == catch.tag || catch.tag == ANY_TAG)
            && caught.len <= catch.room;
        if !wanted {
            return None;
        }
        let key = stream_key(catch.context, peeked.peer).0;
        let place = peeked.peer as usize % RECV_CHANNELS;
        if core.recv_channels.places[place].key != key
            && !core.open_recv_channel(catch.context, peeked.peer)
        {
            return None;
        }
        let channel = &mut core.recv_channels.places[place];
        if (third >> 32) as u32 != channel.next() {
            return None;
        }
        // Its number, which says what comes next, and its tag, which is recorded, in one store.
        channel.last = third;
        channel.bytes += u64::from(caught.len);
        site(&channel.site);
        channel.call = catch.origin.call;
        channel.kind = catch.origin.datatype;
        channel.left -= 1;
        // Before the copy, where the place is still at hand; credits leave after it, when the
        // caller pumps.
        if channel.left == 0 {
            core.close_recv_channel(place);
        }
        catch
            .mem
            .copy_from(0, peeked.payload, 0, caught.len as usize);
        Some(caught)
    }
}

impl Core {
    /// Returns whether a receive may take a message that lies ready. Nothing urgent is queued, no
    /// message is unexpected, blocked at its sender or incomplete, and no receive is posted.
    #[inline(always)]
    fn nothing_pending(&self) -> bool {
        let nothing = u32::from(self.has_work) | self.blocking_peers | self.unmatched_fragmented;
        nothing == 0 && self.matcher.is_empty()
    }

    /// Opens the receive channel of a sequence that was heard of; `false`: its envelopes are not to
    /// be taken so.
    #[cold]
    #[inline(never)]
    fn open_recv_channel(&mut self, context: ContextId, peer: Peer) -> bool {
        let place = peer as usize % RECV_CHANNELS;
        self.close_recv_channel(place);
        let Some(route) = self.known_route(context, peer) else {
            return false;
        };
        let stream = self.sequences.get(route.stream);
        let peer_state = &self.peers[route.peer_index as usize];
        if stream.reorder.is_some() || !peer_state.may_send() {
            return false;
        }
        let allowed = peer_state.receivable(RUN_PAYLOAD_MAX as u64);
        self.recv_channels.places[place] = RecvChannel {
            key: stream_key(context, peer).0,
            last: u64::from((stream.next_rx as u32).wrapping_sub(1)) << 32,
            left: allowed,
            granted: allowed,
            peer_index: route.peer_index,
            stream: route.stream,
            ..RecvChannel::closed()
        };
        self.recv_channels.open = true;
        true
    }

    /// Tells sequence and peer state what was taken, and notes it.
    #[cold]
    #[inline(never)]
    fn close_recv_channel(&mut self, place: usize) {
        let channel = &mut self.recv_channels.places[place];
        let key = std::mem::replace(&mut channel.key, CLOSED);
        if key == CLOSED {
            return;
        }
        let taken = channel.granted - channel.left;
        if taken != 0 {
            self.events.push(channel.taken(key));
        }
        self.sequences.get_mut(channel.stream).next_rx += u64::from(taken);
        let peer_index = channel.peer_index;
        if self.peers[peer_index as usize].receive_batch(taken, channel.bytes) {
            self.return_credits(peer_index);
        }
    }

    /// Has sequences and peer states know all that was taken, before a packet is looked at in
    /// another way.
    #[inline(always)]
    pub(crate) fn settle_recv_channels(&mut self) {
        if self.recv_channels.open {
            self.close_recv_channels();
        }
    }

    #[cold]
    #[inline(never)]
    fn close_recv_channels(&mut self) {
        self.recv_channels.open = false;
        for place in 0..RECV_CHANNELS {
            self.close_recv_channel(place);
        }
    }
}

impl<R: Transport> Engine<R> {
    /// Receives the message that lies ready, if all is plain; `None`: nothing happened, take
    /// another way. Looks once. The site, which the origin need not have, is stored by `site`,
    /// since its caller knows in what kind of register it is.
    #[inline(always)]
    pub fn try_recv_now(
        &mut self,
        catch: &FastRecv,
        site: impl FnOnce(&AtomicU64),
    ) -> Option<ReceivedMessage> {
        if !self.core.nothing_pending() {
            return None;
        }
        match self.take_ready(catch, site) {
            PeekResult::Taken(caught) => Some(caught),
            _ => None,
        }
    }

    /// Takes a ready message like [`Engine::try_recv_now`] for a receive that gets a name and is
    /// complete.
    #[inline(always)]
    pub fn post_now(&mut self, catch: &FastRecv, site: impl FnOnce(&AtomicU64)) -> Option<Request> {
        if !self.core.requests.has_room() {
            return None;
        }
        let caught = self.try_recv_now(catch, site)?;
        let core = &mut self.core;
        let number = core.completion_events.count_one();
        core.requests.open_ended(catch.context, caught, number)
    }

    /// Receives at once if a matching small message was kept, or is the next thing that arrives
    /// within `spins` looks at a quiet transport; `None`: nothing was received, take the general
    /// way.
    #[inline(always)]
    pub fn recv_blocking_fast(&mut self, catch: &FastRecv, spins: u32) -> Option<ReceivedMessage> {
        let mut left = spins;
        while self.core.nothing_pending() {
            match self.take_ready(catch, |word| catch.note_site(word)) {
                PeekResult::Taken(caught) => return Some(caught),
                PeekResult::Unknown if self.transport.is_idle() => {}
                _ => return self.recv_polled(*catch, left),
            }
            if left == 0 {
                return None;
            }
            left -= 1;
            std::hint::spin_loop();
        }
        self.recv_blocking_slow(*catch, spins)
    }

    /// Returns whether [`Engine::recv_blocking_fast`], which just received nothing, may succeed
    /// when more packets come. A hint.
    pub fn can_recv_fast(&self, catch: &FastRecv) -> bool {
        let core = &self.core;
        let troubled = core.has_work || core.blocking_peers != 0 || core.unmatched_fragmented != 0;
        !troubled && (core.matcher.is_empty() || core.matcher.find(&catch.pattern()).is_none())
    }

    /// Receives the message that lies ready, if it is one for `catch`; the engine is calm.
    #[inline(always)]
    fn take_ready(
        &mut self,
        catch: &FastRecv,
        site: impl FnOnce(&AtomicU64),
    ) -> PeekResult<ReceivedMessage> {
        let core = &mut self.core;
        let found = self
            .transport
            .try_take_ready(ReadyPacketTaker { core, catch, site });
        if self.core.has_work {
            // Credits to return.
            self.progress_queued();
        }
        found
    }

    /// Receives where unexpected messages or posted receives exist.
    #[cold]
    #[inline(never)]
    fn recv_blocking_slow(&mut self, catch: FastRecv, spins: u32) -> Option<ReceivedMessage> {
        // Held messages may match, or one that comes in pieces already, and queued work must not
        // wait for this.
        if self.core.has_work
            || self.core.blocking_peers != 0
            || self.core.unmatched_fragmented != 0
        {
            return None;
        }
        if let Some(item) = self.core.matcher.find(&catch.pattern()) {
            return self.recv_unexpected(catch, item);
        }
        self.recv_polled(catch, spins)
    }

    /// Starts a receive of contiguous bytes: it ends with a message that lies ready or was kept, or
    /// is posted. `None`: nothing happened, take the general way. Its end is asked for with
    /// [`Engine::take_plain`] or with `take`.
    #[inline]
    pub fn post_plain(&mut self, catch: &FastRecv) -> Option<Request> {
        self.post_now(catch, |word| catch.note_site(word))
            .or_else(|| self.post_unready(*catch))
    }
}
