//! A track: everything that the small messages of one stream need, found at once and used without the engine.
//!
//! Most programs send small messages to few destinations. Whether one may leave is the same question each time: does the peer live, is there
//! credit and room, does nothing wait that it must not overtake? A gate answers it for many messages at once by opening the rail's
//! [`Run`]; a track joins the run with what is the stream's own (its envelope's constant part and its numbers) and with the log of events. Whatever
//! changes an answer closes the run, and the next message goes the general way, which opens it again.
//!
//! Made by the engine, owned by its stream, used by one thread at a time as that thread promised (see [`Shard::allow_runs`]); were that broken, messages
//! could be lost or numbered twice, no memory be harmed. Bounded by the streams.

use crate::api::{Context, Origin, Peer, TypeMark};
use crate::event::{Event, Log, What, parties};
use crate::quick::Small;
use crate::rail::{Kind, Rail};
use crate::route::Route;
use crate::shard::Shard;
use garonne_sync::mailbox::INLINE_MAX;
use garonne_sync::run::{Run, Words};
use garonne_sync::user::UserMem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Payload that a record of a run can carry.
pub(crate) const RUN_PAYLOAD_MAX: usize = INLINE_MAX;

/// See the module's paragraph.
#[derive(Debug)]
pub struct Track {
    run: Arc<Run>,
    log: Arc<Log>,
    /// Context and source of the envelopes, as their header has them.
    from: u64,
    /// Peer and context, as events have them.
    parties: u64,
    /// The number of the next envelope.
    next: AtomicU64,
}

impl Track {
    /// The number of the next envelope of the stream.
    #[inline(always)]
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// That number was sent.
    #[inline(always)]
    pub(crate) fn count(&self) {
        self.next
            .store(self.next.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Sends `len` bytes, at most [`INLINE_MAX`], with a tag of at least 0, if the way is free; `false`: nothing happened, take the general way.
    #[inline(always)]
    pub fn send(&self, tag: i32, mem: UserMem, len: u32, origin: Origin) -> bool {
        let Some(place) = self.run.next() else {
            return false;
        };
        let words = Words {
            first: [Kind::Eager as u32, len],
            second: self.from,
            third: [tag as u32, self.next() as u32],
        };
        self.run.put(place, words, mem, len as usize);
        self.count();
        let event = Event {
            len: len.into(),
            site: origin.site,
            peer: 0,
            context: 0,
            tag,
            call: origin.call,
            what: What::Send,
            kind: origin.kind,
        };
        self.log.push_about(self.parties, event);
        // Last, since it may be a call.
        self.run.ring();
        true
    }
}

impl<R: Rail> Shard<R> {
    /// Says whether tracks may be used: while one thread at a time calls, as it promised. Taking that back ends all runs.
    pub fn allow_runs(&mut self, allowed: bool) {
        self.core.runs = allowed;
        for gate in &mut self.core.gates {
            gate.settle();
        }
    }

    /// The track of a stream that small messages took before, if it has one.
    pub fn track(&self, context: Context, peer: Peer) -> Option<Arc<Track>> {
        let route = self.core.known_route(context, peer)?;
        self.core.streams.get(route.stream).track.clone()
    }

    /// Sends a small message on its stream's track, opening the run of its gate if that may be; `false`: nothing happened.
    #[inline(always)]
    pub(crate) fn send_on_track(&mut self, small: &Small, route: Route) -> bool {
        self.core.runs
            && small.len <= RUN_PAYLOAD_MAX
            && small.origin.mark == TypeMark::NONE
            && self.try_track(small, route)
    }

    #[inline(never)]
    fn try_track(&mut self, small: &Small, route: Route) -> bool {
        let core = &mut self.core;
        let gate = &mut core.gates[route.gate as usize];
        // A gate whose peer is gone has no credits.
        if gate.held != 0 || gate.reach.eager_max < RUN_PAYLOAD_MAX {
            return false;
        }
        if gate.run.is_none() {
            gate.run = self.rail.run(small.peer);
        }
        let Some(run) = &gate.run else { return false };
        let stream = core.streams.get_mut(route.stream);
        let next = stream.next_tx();
        let track = stream.track.get_or_insert_with(|| {
            Arc::new(Track {
                run: run.clone(),
                log: core.events.log(),
                from: u64::from(small.context) | u64::from(small.source) << 32,
                parties: parties(small.peer, small.context),
                next: AtomicU64::new(next),
            })
        });
        let send = || track.send(small.tag, small.mem, small.len as u32, small.origin);
        if send() {
            return true;
        }
        gate.settle();
        let records = self.rail.open_run(small.peer, gate.grantable());
        gate.grant(records);
        send()
    }
}
