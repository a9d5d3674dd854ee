//! The shortest ways: a small send that nothing hinders, and a blocking receive whose message is the next thing to come.
//!
//! Guards in front of the general ways of `shard`: whenever something is not plain they say so, having changed nothing, and the
//! caller goes the general way. Owned by the shard; an expected message exists only inside [`Shard::recv_quick`]. Bounded: the
//! streams of [`ROUTES`] routes are remembered, and one message is expected.

use crate::api::{Context, Origin, Pattern, Peer};
use crate::core::Core;
use crate::event::{Event, What};
use crate::gate::stream_key;
use crate::limits::ROUTES;
use crate::rail::{Header, Kind, Rail};
use crate::shard::Shard;
use crate::store::{Body, Meta};
use crate::table::NONE;
use garonne_sync::user::UserMem;

/// A small contiguous standard-mode send.
#[derive(Clone, Copy, Debug)]
pub struct Small {
    /// Context of the envelope.
    pub context: Context,
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
    pub origin: Origin,
}

/// A receive of few contiguous bytes by a caller that waits for it anyway.
#[derive(Clone, Copy, Debug)]
pub struct Catch {
    /// What it accepts.
    pub pattern: Pattern,
    /// Where the bytes go.
    pub mem: UserMem,
    /// Room there.
    pub room: u32,
    /// Who asked.
    pub origin: Origin,
}

/// The envelope of a message that was caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caught {
    /// The sender's rank in the communicator.
    pub source: u32,
    /// Tag.
    pub tag: i32,
    /// Bytes.
    pub len: u32,
}

/// Where the gate and the stream of a (context, peer) lie. Both stay there as long as the engine lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    key: u64,
    pub gate: u32,
    pub stream: u32,
}

/// Routes used lately, each in the one place that its key names.
#[derive(Debug)]
pub(crate) struct Routes([Route; ROUTES]);

impl Routes {
    pub(crate) fn new() -> Self {
        // No peer is u32::MAX, so no stream has this key.
        Self(
            [Route {
                key: u64::MAX,
                gate: NONE,
                stream: NONE,
            }; ROUTES],
        )
    }
}

/// The message that the running [`Shard::recv_quick`] would take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    context: Context,
    /// `None` of a pattern is `u32::MAX` here, which no peer is.
    peer: Peer,
    /// Negative: any.
    tag: i32,
    mem: UserMem,
    /// Room; negative: nothing is expected.
    room: i64,
    caught: Caught,
}

impl Expected {
    pub(crate) fn nothing() -> Self {
        let caught = Caught {
            source: 0,
            tag: 0,
            len: 0,
        };
        Self {
            context: 0,
            peer: 0,
            tag: 0,
            mem: UserMem::null(),
            room: -1,
            caught,
        }
    }

    /// Whether it takes this message, none of the posted receives having matched.
    #[inline(always)]
    pub(crate) fn accepts(&self, meta: &Meta) -> bool {
        self.room >= meta.len as i64
            && self.context == meta.context
            && (self.peer == meta.peer || self.peer == u32::MAX)
            && (self.tag == meta.tag || self.tag < 0)
            && meta.waiting.is_none()
    }
}

impl Core {
    /// The route of (context, peer) if it was used lately.
    #[inline(always)]
    pub(crate) fn known_route(&self, context: Context, peer: Peer) -> Option<Route> {
        let route = self.routes.0[(context ^ peer) as usize % ROUTES];
        (route.key == stream_key(context, peer).0).then_some(route)
    }

    /// Remembers the route of (context, peer), whose gate is open.
    #[cold]
    #[inline(never)]
    pub(crate) fn learn_route(&mut self, context: Context, peer: Peer) -> Option<Route> {
        let gate = self.gate(peer)?;
        let key = stream_key(context, peer);
        let route = Route {
            key: key.0,
            gate,
            stream: self.streams.find_or_insert(key),
        };
        self.routes.0[(context ^ peer) as usize % ROUTES] = route;
        Some(route)
    }

    /// An eager envelope that the expected receive takes, if all is plain: the next of its stream, and no receive posted
    /// that could be older. `false`: nothing happened.
    #[inline(always)]
    pub(crate) fn catch_packet(&mut self, header: &Header, meta: &Meta, payload: UserMem) -> bool {
        if header.kind != Kind::Eager as u8
            || header.flags != 0
            || !self.matcher.nothing_posted()
            || !self.expected.accepts(meta)
        {
            return false;
        }
        let Some(route) = self.known_route(meta.context, meta.peer) else {
            return false;
        };
        let stream = self.streams.get_mut(route.stream);
        if stream.odd.is_some()
            || header.sequence != stream.next_rx as u32
            || !self.gates[route.gate as usize].may_send(&self.quotas)
        {
            return false;
        }
        stream.next_rx += 1;
        self.gates[route.gate as usize].outstanding += 1;
        self.catch(route.gate, meta, payload);
        true
    }

    /// Gives a message to the expected receive, which accepts it.
    #[inline(always)]
    pub(crate) fn catch(&mut self, gate: u32, meta: &Meta, payload: UserMem) {
        self.release_credits(gate, meta.len);
        self.expected.mem.copy_from(0, payload, 0, meta.len as usize);
        self.expected.room = -1;
        self.expected.caught = Caught {
            source: meta.source,
            tag: meta.tag,
            len: meta.len as u32,
        };
    }
}

impl Core {
    /// Notes the receive of a caught message.
    #[inline(always)]
    fn note_caught(&mut self, catch: &Catch, peer: Peer, caught: Caught) {
        self.events.push(Event {
            len: u64::from(caught.len),
            site: catch.origin.site,
            peer,
            context: catch.pattern.context,
            tag: caught.tag,
            call: catch.origin.call,
            what: What::Recv,
            kind: catch.origin.kind,
        });
    }

    /// Receives a kept message if its few bytes lie in its record and fit; `None`: nothing happened.
    #[inline(never)]
    fn catch_kept(&mut self, catch: &Catch, item: u32) -> Option<Caught> {
        let kept = self.store.get(item);
        let meta = kept.meta;
        let Body::Inline(bytes) = &kept.body else {
            return None;
        };
        if meta.len > u64::from(catch.room) || meta.waiting.is_some() {
            return None;
        }
        catch.mem.write(0, bytes.get(..meta.len as usize)?);
        self.matcher.drop_kept(item);
        let (meta, body) = self.store.remove(item);
        self.release_kept(&meta, &body);
        let caught = Caught {
            source: meta.source,
            tag: meta.tag,
            len: meta.len as u32,
        };
        self.note_caught(catch, meta.peer, caught);
        Some(caught)
    }
}

impl<R: Rail> Shard<R> {
    /// Sends a small message at once if nothing is in the way; `false`: nothing happened, take the general way.
    #[inline(always)]
    pub fn send_small(&mut self, small: &Small) -> bool {
        let core = &mut self.core;
        let Some(route) = core
            .known_route(small.context, small.peer)
            .or_else(|| core.learn_route(small.context, small.peer))
        else {
            return false;
        };
        let gate = &mut core.gates[route.gate as usize];
        let fits = small.len <= self.limits.inline_max && small.len <= gate.reach.eager_max;
        // A gate whose peer is gone has no credits.
        if !fits || gate.held != 0 || gate.envelopes == 0 || gate.payload < small.len as u64 {
            return false;
        }
        let stream = core.streams.get_mut(route.stream);
        let header = Header {
            kind: Kind::Eager as u8,
            flags: 0,
            shard: 0,
            len: small.len as u32,
            context: small.context,
            source: small.source,
            tag: small.tag,
            sequence: stream.next_tx as u32,
        };
        if self.rail.send_inline(small.peer, &header, small.mem).is_err() {
            return false;
        }
        stream.next_tx += 1;
        gate.envelopes -= 1;
        gate.payload -= small.len as u64;
        core.events.push(Event {
            len: small.len as u64,
            site: small.origin.site,
            peer: small.peer,
            context: small.context,
            tag: small.tag,
            call: small.origin.call,
            what: What::Send,
            kind: small.origin.kind,
        });
        true
    }

    /// Receives at once if a matching small message was kept, or is the next thing that arrives within `spins` looks at a quiet rail; `None`: nothing
    /// was received, take the general way.
    #[inline(always)]
    pub fn recv_quick(&mut self, catch: &Catch, spins: u32) -> Option<Caught> {
        let core = &mut self.core;
        // Held messages may match, and queued work must not wait for this.
        if core.pending || core.holders != 0 {
            return None;
        }
        if let Some(item) = core.matcher.find(&catch.pattern) {
            let caught = core.catch_kept(catch, item);
            if core.pending {
                // Credits to return.
                self.pump();
            }
            return caught;
        }
        core.expected.context = catch.pattern.context;
        core.expected.peer = catch.pattern.source.map_or(u32::MAX, |source| source.peer);
        core.expected.tag = catch.pattern.tag.unwrap_or(-1);
        core.expected.mem = catch.mem;
        core.expected.room = i64::from(catch.room);
        let mut left = spins;
        // One packet: what comes behind it is for later receives.
        while !self.rail.poll_one(&mut self.core) {
            if !self.rail.is_quiet() {
                self.rail.poll(1, &mut self.core);
                break;
            }
            if left == 0 {
                break;
            }
            left -= 1;
            std::hint::spin_loop();
        }
        let core = &mut self.core;
        if core.expected.room >= 0 {
            core.expected.room = -1;
            return None;
        }
        let caught = core.expected.caught;
        let peer = core.expected.peer;
        core.note_caught(catch, peer, caught);
        if core.pending {
            // Credits to return.
            self.pump();
        }
        Some(caught)
    }
}
