//! A track: everything that the small messages of one stream need, found at once and used without
//! the engine.
//!
//! Most programs send small messages to few destinations. Whether one may leave is the same
//! question each time: does the peer live, is there credit and room, does nothing wait that it must
//! not overtake? A gate answers it for many messages at once by opening the rail's [`SlotBatch`]; a
//! track joins the run with what is the stream's own (its envelope's constant part and its numbers)
//! and with its trail. Whatever changes an answer closes the run, and the next message goes the
//! general way, which opens it again.
//!
//! Made by the engine, owned by its stream, used by one thread at a time as that thread promised
//! (see [`Engine::allow_runs`]); were that broken, messages could be lost or numbered twice, no
//! memory be harmed. Bounded by the streams.

use crate::api::{CallOrigin, ContextId, Peer, TypeDigest};
use crate::core::Core;
use crate::engine::Engine;
use crate::fast::recv::FastSend;
use crate::fast::send_log::SendLog;
use crate::limits::AHEAD_LOG;
use crate::observe::events::{EventLog, parties};
use crate::peer::routes::PeerRoute;
use crate::transport::{PacketKind, Transport};
use garonne_sync::mailbox::INLINE_MAX;
use garonne_sync::post_mortem::{PostMortemArc, PostMortemArea};
use garonne_sync::slot_batch::{HeaderWords, SlotBatch};
use garonne_sync::user::UserMem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Payload that a record of a run can carry.
pub(crate) const RUN_PAYLOAD_MAX: usize = INLINE_MAX;

/// See the module's paragraph.
#[derive(Debug)]
#[repr(C)]
pub struct SendChannel {
    run: Arc<SlotBatch>,
    /// Context and source of the envelopes, as their header has them.
    from: u64,
    /// The number of the next envelope.
    next: AtomicU64,
    trail: SendLog,
}

/// Bytes of a track, and where in it the number of the next envelope and the trail lie, as they are
/// read after the process's death.
pub(crate) const TRACK_BYTES: usize = size_of::<SendChannel>();
pub(crate) const NEXT_AT: usize = std::mem::offset_of!(SendChannel, next);
pub(crate) const TRAIL_AT: usize = std::mem::offset_of!(SendChannel, trail);

impl SendChannel {
    /// The number of the next envelope of the stream.
    #[inline(always)]
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// That number was sent, with this tag, in another way.
    pub(crate) fn count(&self, tag: i32) {
        self.trail.note_other(self.next(), tag);
        self.step();
    }

    /// The tag of one of the stream's last envelopes; `None`: it is not known.
    pub(crate) fn tag(&self, number: u64) -> Option<i32> {
        self.trail.tag(number)
    }

    /// Who may have made a send of this tag and length that took the track.
    pub(crate) fn callers(&self, tag: i32, len: u64) -> impl Iterator<Item = CallOrigin> + '_ {
        self.trail.callers(tag, len)
    }

    #[inline(always)]
    fn step(&self) {
        self.next
            .store(self.next.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Sends some bytes, at most [`INLINE_MAX`], with a tag of at least 0, if the way is free;
    /// `false`: nothing happened, take the general way. The site, which `origin` need not have, is
    /// stored by `site`, since its caller knows in what kind of register it is.
    #[inline(always)]
    pub fn send(
        &self,
        tag: i32,
        (mem, len): (UserMem, u32),
        origin: CallOrigin,
        site: impl FnOnce(&AtomicU64),
    ) -> bool {
        let Some(place) = self.run.next() else {
            return false;
        };
        let number = self.next();
        let begun = place.begin(HeaderWords {
            first: [PacketKind::Eager as u32, len],
            second: self.from,
            third: [tag as u32, number as u32],
        });
        // Looked up once: the compiler cannot know that nothing below changes it.
        let run: &SlotBatch = &self.run;
        // Here number, tag and site are at hand in registers that the payload may need.
        self.trail.note(number, (tag, len as u8), origin, site);
        run.put(begun, mem, len as usize);
        self.step();
        // Last, since it may be a call.
        run.ring();
        true
    }
}

const _: () = assert!(
    RUN_PAYLOAD_MAX <= u8::MAX as usize,
    "a trail has lengths in a byte"
);

/// A track of a stream whose sends of these numbers, the next being their end, are among the events
/// as far as those reach back: nothing waits in the window.
#[cold]
#[inline(never)]
fn lay(
    run: &Arc<SlotBatch>,
    numbers: Range<u64>,
    (events, area): (&EventLog, Option<&Arc<PostMortemArea>>),
    small: &FastSend,
) -> PostMortemArc<SendChannel> {
    let next = numbers.end;
    let track = SendChannel {
        run: run.clone(),
        from: u64::from(small.context) | u64::from(small.source) << 32,
        next: AtomicU64::new(next),
        trail: SendLog::new(parties(small.peer, small.context), events.newest_trail()),
    };
    let track = PostMortemArc::new(area, track);
    let past = numbers.start.max(next.saturating_sub(AHEAD_LOG))..next;
    for (number, tag) in past.rev().zip(events.tags(small.peer, small.context)) {
        track.trail.note_other(number, tag);
    }
    events.link_trail(track.trail.address());
    track
}

impl Core {
    /// Ends the tracks in these contexts.
    pub(crate) fn end_tracks(&mut self, contexts: &Range<ContextId>) {
        let Some(first) = self
            .tracks
            .iter()
            .position(|(context, _)| contexts.contains(context))
        else {
            return;
        };
        let later = self.tracks.split_off(first);
        let mut older = self
            .tracks
            .last()
            .map_or(0, |&(_, stream)| self.trail(stream));
        // They lie where they did until nobody is led there.
        let mut ended = Vec::new();
        for (context, stream) in later {
            if contexts.contains(&context) {
                ended.extend(self.streams.get_mut(stream).end_track());
            } else {
                if let Some(track) = &self.streams.get(stream).track {
                    track.trail.follow(older);
                }
                self.tracks.push((context, stream));
                older = self.trail(stream);
            }
        }
        self.events.link_trail(older);
    }

    /// Where the trail of a stream lies that has a track.
    fn trail(&self, stream: u32) -> u64 {
        let track = &self.streams.get(stream).track;
        track.as_ref().map_or(0, |track| track.trail.address())
    }
}

impl<R: Transport> Engine<R> {
    /// Says whether tracks may be used: while one thread at a time calls, as it promised. Taking
    /// that back ends all runs.
    pub fn allow_runs(&mut self, allowed: bool) {
        self.core.runs = allowed;
        for gate in &mut self.core.gates {
            gate.settle();
        }
    }

    /// The track of a stream that small messages took before, if it has one.
    pub fn track(&self, context: ContextId, peer: Peer) -> Option<PostMortemArc<SendChannel>> {
        let route = self.core.known_route(context, peer)?;
        self.core.streams.get(route.stream).track.clone()
    }

    /// Ends the tracks in these contexts, and 8 KB with each, while their streams go on. Whoever
    /// still has one must not use it again.
    pub fn end_tracks(&mut self, contexts: &Range<ContextId>) {
        self.core.end_tracks(contexts);
    }

    /// Sends a small message on its stream's track, opening the run of its gate if that may be;
    /// `false`: nothing happened.
    #[inline(always)]
    pub(crate) fn send_on_track(&mut self, small: &FastSend, route: PeerRoute) -> bool {
        self.core.runs
            && small.len <= RUN_PAYLOAD_MAX
            && small.origin.mark == TypeDigest::NONE
            && self.try_track(small, route)
    }

    #[inline(never)]
    fn try_track(&mut self, small: &FastSend, route: PeerRoute) -> bool {
        let core = &mut self.core;
        let gate = &mut core.gates[route.gate as usize];
        // A gate whose peer is gone has no credits.
        if gate.held != 0 || gate.reach.eager_max < RUN_PAYLOAD_MAX {
            return false;
        }
        if gate.run.is_none() {
            gate.run = self.rail.run(small.peer);
            core.counters.note_run(route.gate, gate.run.as_deref());
        }
        let Some(run) = &gate.run else { return false };
        let stream = core.streams.get_mut(route.stream);
        let numbers = stream.forgotten..stream.next_tx();
        let track = stream.track.get_or_insert_with(|| {
            core.tracks.push((small.context, route.stream));
            lay(run, numbers, (&core.events, core.area.as_ref()), small)
        });
        let data = (small.mem, small.len as u32);
        let site = |word: &AtomicU64| word.store(small.origin.site, Ordering::Relaxed);
        let send = || track.send(small.tag, data, small.origin, site);
        if send() {
            return true;
        }
        gate.settle();
        let records = self.rail.open_run(small.peer, gate.grantable());
        gate.grant(records);
        send()
    }
}
