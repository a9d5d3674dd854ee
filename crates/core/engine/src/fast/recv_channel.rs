//! Receives whose message lies ready: matched and taken in one go, without a request.
//!
//! A message that lies in its slot when its receive comes needs no more than a comparison, if
//! nothing else could concern either: no receive was posted before, no message is kept or held
//! back, nothing waits to be done. Whenever that is not so nothing happens here, and the ways of
//! `fast::recv` and `engine` see to it.
//!
//! What a stream and its gate have to say about each envelope (its turn, the credits it used and
//! that are owed for it) an [`RecvChannel`] says for many: opened for as many as nothing can go
//! wrong with, and settled before the engine looks at a packet in any other way. An inlet is open
//! only while all is calm, and only packets and posted receives end that, so `settle` has one
//! caller besides its own. So it is with what is recorded: an inlet has at hand what its last
//! receive was, and leaves one event for all that it took when it closes. Owned by the core.
//! Bounded by [`INLETS`].

use crate::api::{ContextId, Peer, Request};
use crate::core::Core;
use crate::engine::Engine;
use crate::fast::recv::{ANY_PEER, ANY_TAG, FastRecv, ReceivedMessage};
use crate::fast::send_channel::RUN_PAYLOAD_MAX;
use crate::limits::INLETS;
use crate::observe::events::{Event, EventKind};
use crate::peer::state::stream_key;
use crate::transport::{
    PacketAcceptor, PacketHeader, PacketKind, PeekResult, PeekedPacket, Transport,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// A stream whose next small envelopes may be taken. A line long, so that one shift finds it.
#[derive(Debug)]
#[repr(align(64))]
struct RecvChannel {
    /// That of the stream, or [`CLOSED`].
    key: u64,
    /// Tag and number of the last envelope, as its header has them: the number's low half is the
    /// upper one.
    last: u64,
    /// Envelopes that may be taken.
    left: u32,
    /// Envelopes that could be taken at first.
    granted: u32,
    gate: u32,
    stream: u32,
    /// Payload taken.
    bytes: u64,
    /// Of the last receive: its call and the type of its data as an event has them, and its site,
    /// which its caller stores.
    call: u16,
    kind: u8,
    site: AtomicU64,
}

const _: () = assert!(size_of::<RecvChannel>() == 64, "a line");

/// No stream has this key: no peer is `u32::MAX`.
const CLOSED: u64 = u64::MAX;

/// The inlets, each in the one place that its peer names.
#[derive(Debug)]
pub(crate) struct RecvChannels {
    places: [RecvChannel; INLETS],
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
            gate: 0,
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

    /// What it took, as an event.
    fn taken(&self, key: u64) -> Event {
        Event {
            len: self.bytes,
            site: self.site.load(Ordering::Relaxed),
            peer: key as u32,
            context: (key >> 32) as u32,
            tag: self.last as u32 as i32,
            call: self.call,
            what: EventKind::Take,
            kind: self.kind,
        }
    }
}

impl RecvChannels {
    pub(crate) fn new() -> Self {
        Self {
            places: [const { RecvChannel::closed() }; INLETS],
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

    /// Takes a packet for a receive that nothing precedes, if it is the next envelope of its stream
    /// and all is plain.
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
        let place = peeked.peer as usize % INLETS;
        if core.inlets.places[place].key != key && !core.open_inlet(catch.context, peeked.peer) {
            return None;
        }
        let inlet = &mut core.inlets.places[place];
        if (third >> 32) as u32 != inlet.next() {
            return None;
        }
        // Its number, which says what comes next, and its tag, which is recorded, in one store.
        inlet.last = third;
        inlet.bytes += u64::from(caught.len);
        site(&inlet.site);
        inlet.call = catch.origin.call;
        inlet.kind = catch.origin.kind;
        inlet.left -= 1;
        // Before the copy, where the place is still at hand; credits leave after it, when the
        // caller pumps.
        if inlet.left == 0 {
            core.close_inlet(place);
        }
        catch
            .mem
            .copy_from(0, peeked.payload, 0, caught.len as usize);
        Some(caught)
    }
}

impl Core {
    /// Whether a receive may take a message that lies ready: nothing queued must not wait, no
    /// message is kept, held back by its sender or comes in pieces already, and no receive was
    /// posted before.
    #[inline(always)]
    fn is_calm(&self) -> bool {
        let nothing = u32::from(self.pending) | self.holders | self.flows;
        nothing == 0 && self.matcher.is_empty()
    }

    /// Opens the inlet of a stream that was heard of; `false`: its envelopes are not to be taken
    /// so.
    #[cold]
    #[inline(never)]
    fn open_inlet(&mut self, context: ContextId, peer: Peer) -> bool {
        let place = peer as usize % INLETS;
        self.close_inlet(place);
        let Some(route) = self.known_route(context, peer) else {
            return false;
        };
        let stream = self.streams.get(route.stream);
        let gate = &self.gates[route.gate as usize];
        if stream.odd.is_some() || !gate.may_send(&self.quotas) {
            return false;
        }
        let allowed = gate.takeable(&self.quotas, RUN_PAYLOAD_MAX as u64);
        self.inlets.places[place] = RecvChannel {
            key: stream_key(context, peer).0,
            last: u64::from((stream.next_rx as u32).wrapping_sub(1)) << 32,
            left: allowed,
            granted: allowed,
            gate: route.gate,
            stream: route.stream,
            ..RecvChannel::closed()
        };
        self.inlets.open = true;
        true
    }

    /// Tells stream and gate what was taken, and notes it.
    #[cold]
    #[inline(never)]
    fn close_inlet(&mut self, place: usize) {
        let inlet = &mut self.inlets.places[place];
        let key = std::mem::replace(&mut inlet.key, CLOSED);
        if key == CLOSED {
            return;
        }
        let taken = inlet.granted - inlet.left;
        if taken != 0 {
            self.events.push(inlet.taken(key));
        }
        self.streams.get_mut(inlet.stream).next_rx += u64::from(taken);
        let gate = inlet.gate;
        if self.gates[gate as usize].took(taken, inlet.bytes, &self.quotas) {
            self.return_credits(gate);
        }
    }

    /// Has streams and gates know all that was taken, before a packet is looked at in another way.
    #[inline(always)]
    pub(crate) fn settle_inlets(&mut self) {
        if self.inlets.open {
            self.close_inlets();
        }
    }

    #[cold]
    #[inline(never)]
    fn close_inlets(&mut self) {
        self.inlets.open = false;
        for place in 0..INLETS {
            self.close_inlet(place);
        }
    }
}

impl<R: Transport> Engine<R> {
    /// Receives the message that lies ready, if all is plain; `None`: nothing happened, take
    /// another way. Looks once. The site, which the origin need not have, is stored by `site`,
    /// since its caller knows in what kind of register it is.
    #[inline(always)]
    pub fn take_now(
        &mut self,
        catch: &FastRecv,
        site: impl FnOnce(&AtomicU64),
    ) -> Option<ReceivedMessage> {
        if !self.core.is_calm() {
            return None;
        }
        match self.take_ready(catch, site) {
            PeekResult::Taken(caught) => Some(caught),
            _ => None,
        }
    }

    /// The same for a receive that has a name afterwards, which is over.
    #[inline(always)]
    pub fn post_now(&mut self, catch: &FastRecv, site: impl FnOnce(&AtomicU64)) -> Option<Request> {
        if !self.core.requests.has_room() {
            return None;
        }
        let caught = self.take_now(catch, site)?;
        let core = &mut self.core;
        core.completions += 1;
        core.requests
            .open_ended(catch.context, caught, core.completions)
    }

    /// Receives at once if a matching small message was kept, or is the next thing that arrives
    /// within `spins` looks at a quiet rail; `None`: nothing was received, take the general way.
    #[inline(always)]
    pub fn recv_quick(&mut self, catch: &FastRecv, spins: u32) -> Option<ReceivedMessage> {
        let mut left = spins;
        while self.core.is_calm() {
            match self.take_ready(catch, |word| catch.note_site(word)) {
                PeekResult::Taken(caught) => return Some(caught),
                PeekResult::Unknown if self.rail.is_quiet() => {}
                _ => return self.recv_polled(*catch, left),
            }
            if left == 0 {
                return None;
            }
            left -= 1;
            std::hint::spin_loop();
        }
        self.recv_troubled(*catch, spins)
    }

    /// Whether [`Engine::recv_quick`], which just received nothing, may do so when more comes, as
    /// far as that is known.
    pub fn may_catch(&self, catch: &FastRecv) -> bool {
        let core = &self.core;
        let troubled = core.pending || core.holders != 0 || core.flows != 0;
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
        let found = self.rail.take_ready(ReadyPacketTaker { core, catch, site });
        if self.core.pending {
            // Credits to return.
            self.pump();
        }
        found
    }

    /// The same where messages are kept or receives posted.
    #[cold]
    #[inline(never)]
    fn recv_troubled(&mut self, catch: FastRecv, spins: u32) -> Option<ReceivedMessage> {
        // Held messages may match, or one that comes in pieces already, and queued work must not
        // wait for this.
        if self.core.pending || self.core.holders != 0 || self.core.flows != 0 {
            return None;
        }
        if let Some(item) = self.core.matcher.find(&catch.pattern()) {
            return self.recv_kept(catch, item);
        }
        self.recv_polled(catch, spins)
    }

    /// Starts a receive of contiguous bytes: it ends with a message that lies ready or was kept, or
    /// is posted. `None`: nothing happened, take the general way. Its end is asked for with
    /// [`Engine::end_plain`] or with `take`.
    #[inline]
    pub fn post_plain(&mut self, catch: &FastRecv) -> Option<Request> {
        self.post_now(catch, |word| catch.note_site(word))
            .or_else(|| self.post_unready(*catch))
    }
}
