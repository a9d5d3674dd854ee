//! Send channels: everything that the small messages of one sequence need, found at once and used
//! without the engine.
//!
//! Most programs send small messages to few destinations. Whether one may leave is the same
//! question each time: does the peer live, is there credit and room, does nothing wait that it must
//! not overtake? A peer state answers it for many messages at once by opening the transport's
//! [`SlotBatch`]. A send channel joins the batch with what belongs to the sequence (the constant
//! part of the envelope, and the numbers) and with its send log. Whatever changes an answer closes
//! the batch. The next message takes the general path, which opens the batch again.
//!
//! Made by the engine, owned by its sequence, used by one thread at a time as that thread promised
//! (see [`Engine::allow_slot_batches`]). If that promise were broken, messages could be lost or
//! numbered twice, but no memory harmed. Bounded by the sequences.

use crate::api::{CallOrigin, ContextId, Peer, TypeDigest};
use crate::core::Core;
use crate::engine::Engine;
use crate::fast::send::FastSend;
use crate::fast::send_log::SendLog;
use crate::limits::EARLY_LOG;
use crate::observe::events::{EventLog, peer_context};
use crate::peer::routes::PeerRoute;
use crate::transport::{PacketKind, Transport};
use garonne_sync::mailbox::INLINE_MAX;
use garonne_sync::post_mortem::PostMortemArc;
use garonne_sync::slot_batch::{HeaderWords, SlotBatch};
use garonne_sync::user::UserMem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Payload that a record of a slot batch can carry.
pub(crate) const RUN_PAYLOAD_MAX: usize = INLINE_MAX;

/// Fast path of the small messages of one sequence: slot batch, envelope numbers, and send log.
///
/// Made by the engine, owned by its [`Sequence`](crate::peer::sequences::Sequence), used by one
/// thread at a time. `send` succeeds while the slot batch is open; otherwise the caller takes the
/// general path, which opens the batch again.
#[derive(Debug)]
#[repr(C)]
pub struct SendChannel {
    batch: Arc<SlotBatch>,
    /// Context and source of the envelopes, as their header has them.
    from: u64,
    /// The number of the next envelope.
    next: AtomicU64,
    log: SendLog,
}

/// Bytes of a send channel, and where in it the number of the next envelope and the send log lie,
/// as they are read after the process's death.
pub(crate) const SEND_CHANNEL_BYTES: usize = size_of::<SendChannel>();
pub(crate) const NEXT_AT: usize = std::mem::offset_of!(SendChannel, next);
pub(crate) const SEND_LOG_AT: usize = std::mem::offset_of!(SendChannel, log);

impl SendChannel {
    /// The number of the next envelope of the sequence.
    #[inline(always)]
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Counts a message with this tag that took another path.
    pub(crate) fn count(&self, tag: i32) {
        self.log.note_other(self.next(), tag);
        self.advance();
    }

    /// The tag of one of the sequence's last envelopes; `None`: it is not known.
    pub(crate) fn tag(&self, number: u64) -> Option<i32> {
        self.log.tag(number)
    }

    /// Returns the callers that may have made a send of this tag and length on this channel.
    pub(crate) fn callers(&self, tag: i32, len: u64) -> impl Iterator<Item = CallOrigin> + '_ {
        self.log.callers(tag, len)
    }

    #[inline(always)]
    fn advance(&self) {
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
        let Some(place) = self.batch.next() else {
            return false;
        };
        let number = self.next();
        let begun = place.begin(HeaderWords {
            first: [PacketKind::Eager as u32, len],
            second: self.from,
            third: [tag as u32, number as u32],
        });
        // Looked up once: the compiler cannot know that nothing below changes it.
        let run: &SlotBatch = &self.batch;
        // Here number, tag and site are at hand in registers that the payload may need.
        self.log.note(number, (tag, len as u8), origin, site);
        run.put(begun, mem, len as usize);
        self.advance();
        // Last, since it may be a call.
        run.ring();
        true
    }
}

const _: () = assert!(
    RUN_PAYLOAD_MAX <= u8::MAX as usize,
    "a trail has lengths in a byte"
);

/// A send channel of a sequence whose sends of these numbers, the next being their end, are among
/// the events as far as those reach back: nothing waits in the window.
#[cold]
#[inline(never)]
fn new_channel(
    run: &Arc<SlotBatch>,
    numbers: Range<u64>,
    events: &EventLog,
    small: &FastSend,
) -> PostMortemArc<SendChannel> {
    let next = numbers.end;
    let track = SendChannel {
        batch: run.clone(),
        from: u64::from(small.context) | u64::from(small.source) << 32,
        next: AtomicU64::new(next),
        log: SendLog::new(
            peer_context(small.peer, small.context),
            events.newest_send_log(),
        ),
    };
    let track = PostMortemArc::new(events.area(), track);
    let past = numbers.start.max(next.saturating_sub(EARLY_LOG))..next;
    for (number, tag) in past.rev().zip(events.tags(small.peer, small.context)) {
        track.log.note_other(number, tag);
    }
    events.link_send_log(track.log.address());
    track
}

/// The send channels of one engine: which sequences have one, and whether they may be used.
///
/// Owned by the core. The channels themselves lie with their sequences.
#[derive(Debug, Default)]
pub(crate) struct SendChannels {
    /// Sequences that have a send channel and their contexts, in the order in which their send logs
    /// are linked, the newest last.
    open: Vec<(ContextId, u32)>,
    allowed: bool,
    /// A communicator is revoked, whose channels the program's table may still name.
    forbidden: bool,
}

impl Core {
    /// Ends the use of send channels for good: those of a revoked communicator must send nothing.
    pub(crate) fn forbid_send_channels(&mut self) {
        self.send_channels.forbidden = true;
        self.send_channels.allowed = false;
        for peer_state in self.peers.states_mut() {
            peer_state.close_batch();
        }
    }

    /// Ends the send channels in these contexts.
    pub(crate) fn end_send_channels(&mut self, contexts: &Range<ContextId>) {
        let Some(first) = self
            .send_channels
            .open
            .iter()
            .position(|(context, _)| contexts.contains(context))
        else {
            return;
        };
        let later = self.send_channels.open.split_off(first);
        let mut older = self
            .send_channels
            .open
            .last()
            .map_or(0, |&(_, stream)| self.log_address(stream));
        // They lie where they did until nobody is led there.
        let mut ended = Vec::new();
        for (context, stream) in later {
            if contexts.contains(&context) {
                ended.extend(self.sequences.get_mut(stream).end_channel());
            } else {
                if let Some(track) = &self.sequences.get(stream).channel {
                    track.log.relink(older);
                }
                self.send_channels.open.push((context, stream));
                older = self.log_address(stream);
            }
        }
        self.events.link_send_log(older);
    }

    /// Returns the address of the send log of a sequence that has a send channel, or 0.
    fn log_address(&self, stream: u32) -> u64 {
        let track = &self.sequences.get(stream).channel;
        track.as_ref().map_or(0, |track| track.log.address())
    }
}

impl<R: Transport> Engine<R> {
    /// Says whether send channels may be used: while one thread at a time calls, as it promised.
    /// Taking that back ends all runs.
    pub fn allow_slot_batches(&mut self, allowed: bool) {
        self.core.send_channels.allowed = allowed && !self.core.send_channels.forbidden;
        for peer_state in self.core.peers.states_mut() {
            peer_state.close_batch();
        }
    }

    /// The send channel of a sequence that small messages took before, if it has one.
    pub fn send_channel(
        &self,
        context: ContextId,
        peer: Peer,
    ) -> Option<PostMortemArc<SendChannel>> {
        let route = self.core.known_route(context, peer)?;
        self.core.sequences.get(route.stream).channel.clone()
    }

    /// Ends the send channels in these contexts, and 8 KB with each, while their sequences go on.
    /// Whoever still has one must not use it again.
    pub fn end_send_channels(&mut self, contexts: &Range<ContextId>) {
        self.core.end_send_channels(contexts);
    }

    /// Sends a small message on its sequence's send channel, opening the slot batch of its peer
    /// state if that may be; `false`: nothing happened.
    #[inline(always)]
    pub(crate) fn send_on_channel(&mut self, small: &FastSend, route: PeerRoute) -> bool {
        self.core.send_channels.allowed
            && small.len <= RUN_PAYLOAD_MAX
            && small.origin.digest == TypeDigest::NONE
            && self.try_channel(small, route)
    }

    #[inline(never)]
    fn try_channel(&mut self, small: &FastSend, route: PeerRoute) -> bool {
        let core = &mut self.core;
        let (peer_state, counters) = core.peers.with_counters(route.peer_index);
        // A peer that is gone has no credits.
        if peer_state.window_len != 0 || peer_state.capabilities.eager_max < RUN_PAYLOAD_MAX {
            return false;
        }
        if peer_state.batch.is_none() {
            peer_state.batch = self.transport.slot_batch(small.peer);
            counters.note_run(route.peer_index, peer_state.batch.as_deref());
        }
        let Some(run) = &peer_state.batch else {
            return false;
        };
        let stream = core.sequences.get_mut(route.stream);
        let numbers = stream.unlogged_below..stream.next_tx();
        let track = stream.channel.get_or_insert_with(|| {
            core.send_channels.open.push((small.context, route.stream));
            new_channel(run, numbers, &core.events, small)
        });
        let data = (small.mem, small.len as u32);
        let site = |word: &AtomicU64| word.store(small.origin.site, Ordering::Relaxed);
        let send = || track.send(small.tag, data, small.origin, site);
        if send() {
            return true;
        }
        peer_state.close_batch();
        let records = self
            .transport
            .open_slot_batch(small.peer, peer_state.batchable());
        peer_state.batch_opened(records);
        send()
    }
}
