//! The last few thousand events of a rank, and its pending work: plain data that the host may
//! publish.
//!
//! The engine's core writes them in program order; an event's number is its stamp. Small sends on
//! the fast path are noted in their sequence's send log instead. Receives of messages that lay
//! ready leave one event for many, when their channel closes (`fast::recv_channel`). No clock is
//! read here.

use crate::api::{CallOrigin, ContextId, Peer, TypeDigest};
use crate::core::Core;
use crate::fast::send_log;
use crate::limits::{EVENTS, SEND_LOGS_READ};
use crate::matching::unexpected::MessageInfo;
pub use crate::observe::pending::{
    AwaitedRanks, ExternalWait, KEPT_SHOWN, PENDING_SHOWN, PendingAction, PendingOperation,
    PendingReport, UnreceivedMessage,
};
use garonne_sync::post_mortem::{PostMortemArc, PostMortemArea};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU16, AtomicU64, Ordering};

/// Kind of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EventKind {
    /// The record was never written.
    #[default]
    Nothing = 0,
    /// A send was started.
    Send = 1,
    /// A receive was posted.
    Recv = 2,
    /// A message of this peer met a receive from any source. Without a site it is the receive that
    /// the next [`EventKind::Recv`] of the same peer, context and tag tells.
    Match = 3,
    /// A message was kept for later.
    Unexpected = 4,
    /// A send joined the window.
    Blocked = 5,
    /// A large message began to move.
    Move = 6,
    /// An operation completed.
    Complete = 7,
    /// A peer is gone.
    Gone = 8,
    /// A peer broke the format.
    ProtocolError = 9,
    /// Messages from one sender that lay ready were received: the bytes of all, the rest of the
    /// last.
    ReadyRecv = 10,
}

/// An event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Event {
    /// Bytes concerned.
    pub len: u64,
    /// Return address of the call, 0 if it was not a call's.
    pub site: u64,
    /// The other process.
    pub peer: Peer,
    /// Context of the envelope.
    pub context: ContextId,
    /// Tag of the envelope.
    pub tag: i32,
    /// Index of the function called.
    pub call: u16,
    /// Kind of an event.
    pub kind: EventKind,
    /// Which type the data is of, as in [`CallOrigin`].
    pub datatype: u8,
}

/// An event as it lies in the ring: 32 bytes, in which each word is stored as it is at hand.
#[derive(Debug, bytemuck::Zeroable)]
#[repr(C)]
struct EventRecord {
    len: AtomicU64,
    site: AtomicU64,
    /// Peer below context: [`peer_context`].
    parties: AtomicU64,
    tag: AtomicI32,
    /// Call below what: [`call_and_kind`].
    act: AtomicU16,
    kind: AtomicU8,
}

/// Bits of an act that tell the call.
pub(crate) const CALL_BITS: u32 = 12;

/// Packs peer and context into one word.
#[inline(always)]
pub(crate) fn peer_context(peer: Peer, context: ContextId) -> u64 {
    u64::from(peer) | u64::from(context) << 32
}

#[inline(always)]
pub(crate) fn call_and_kind(call: u16, what: EventKind) -> u16 {
    call & ((1 << CALL_BITS) - 1) | (what as u16) << CALL_BITS
}

pub(crate) fn kind_of(act: u16) -> EventKind {
    use EventKind::*;
    const ALL: [EventKind; 11] = [
        Nothing,
        Send,
        Recv,
        Match,
        Unexpected,
        Blocked,
        Move,
        Complete,
        Gone,
        ProtocolError,
        ReadyRecv,
    ];
    ALL.get(usize::from(act >> CALL_BITS))
        .copied()
        .unwrap_or(Nothing)
}

/// The ring, written by one thread at a time: its words need no order.
#[derive(Debug, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct EventRing {
    ring: [EventRecord; EVENTS],
    /// Address of the newest send log; 0 if there is none.
    newest: AtomicU64,
    /// Bytes written so far, each event being [`EVENT_BYTES`] long.
    at: AtomicU64,
}

impl EventRing {
    /// Writes one event over the oldest.
    #[inline(always)]
    pub(crate) fn push(&self, event: Event) {
        let at = self.at.load(Ordering::Relaxed);
        let record = &self.ring[at as usize / EVENT_BYTES % EVENTS];
        record.len.store(event.len, Ordering::Relaxed);
        record.site.store(event.site, Ordering::Relaxed);
        record
            .parties
            .store(peer_context(event.peer, event.context), Ordering::Relaxed);
        record.tag.store(event.tag, Ordering::Relaxed);
        record
            .act
            .store(call_and_kind(event.call, event.kind), Ordering::Relaxed);
        record.kind.store(event.datatype, Ordering::Relaxed);
        // Read again, which lets the processor count in memory.
        self.at.store(
            self.at.load(Ordering::Relaxed) + EVENT_BYTES as u64,
            Ordering::Relaxed,
        );
    }

    fn event(&self, number: u64) -> Event {
        let record = &self.ring[number as usize % EVENTS];
        let parties = record.parties.load(Ordering::Relaxed);
        let act = record.act.load(Ordering::Relaxed);
        Event {
            len: record.len.load(Ordering::Relaxed),
            site: record.site.load(Ordering::Relaxed),
            peer: parties as u32,
            context: (parties >> 32) as u32,
            tag: record.tag.load(Ordering::Relaxed),
            call: act & ((1 << CALL_BITS) - 1),
            kind: kind_of(act),
            datatype: record.kind.load(Ordering::Relaxed),
        }
    }
}

/// The ring as its owner sees it.
#[derive(Debug)]
pub struct EventLog {
    ring: PostMortemArc<EventRing>,
    /// Memory of the ring and of send logs, readable after death; see `post_mortem`.
    area: Option<Arc<PostMortemArea>>,
}

impl EventLog {
    /// No events so far; their ring lies in this area, if there is one and it has room.
    pub(crate) fn new(area: Option<Arc<PostMortemArea>>) -> Self {
        Self {
            ring: PostMortemArc::zeroed(area.as_ref()),
            area,
        }
    }

    /// Returns the area in which the ring lies, for what is to be readable beside it.
    pub(crate) fn area(&self) -> Option<&Arc<PostMortemArea>> {
        self.area.as_ref()
    }

    /// Address of the newest send log; 0 if there is none.
    pub(crate) fn newest_send_log(&self) -> u64 {
        self.ring.newest.load(Ordering::Relaxed)
    }

    /// A send log was made. It knows the one that was the newest before.
    pub(crate) fn link_send_log(&self, address: u64) {
        self.ring.newest.store(address, Ordering::Relaxed);
    }

    /// Tags of the sends of a sequence that are among the events, newest first.
    pub(crate) fn tags(&self, peer: Peer, context: ContextId) -> impl Iterator<Item = i32> {
        self.iter()
            .rev()
            .filter(move |(_, event)| {
                event.kind == EventKind::Send && (event.peer, event.context) == (peer, context)
            })
            .map(|(_, event)| event.tag)
    }

    /// Returns the callers that may have made the send `sent`, as far as the events reach back,
    /// each once.
    pub(crate) fn callers(&self, sent: &SentMessage) -> Vec<CallOrigin> {
        let mut found = Vec::new();
        let callers = self.iter().filter_map(|(_, event)| event.caller_of(sent));
        callers.for_each(|origin| add_origin(&mut found, origin));
        found
    }

    /// Writes one event over the oldest.
    #[inline(always)]
    pub(crate) fn push(&self, event: Event) {
        self.ring.push(event);
    }

    /// Notes that a receive from any source got a message.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_from_any(&self, meta: &MessageInfo, origin: CallOrigin) {
        self.push(Event {
            len: meta.len,
            site: origin.site,
            peer: meta.peer,
            context: meta.context,
            tag: meta.tag,
            call: origin.call,
            kind: EventKind::Match,
            datatype: origin.datatype,
        });
    }

    /// Returns the fixed address of the ring in this process, for readers of its memory
    /// ([`find_senders`]).
    pub fn address(&self) -> usize {
        self.ring.ring.as_ptr().addr()
    }

    /// Number of the next event.
    pub fn next(&self) -> u64 {
        self.ring.at.load(Ordering::Relaxed) / EVENT_BYTES as u64
    }

    /// The events still remembered, oldest first, with their numbers.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, Event)> {
        let next = self.next();
        let first = next.saturating_sub(EVENTS as u64);
        (first..next).map(|number| (number, self.ring.event(number)))
    }
}

impl Core {
    /// Notes an event that is not the direct result of a call.
    #[inline]
    pub(crate) fn note(&mut self, what: EventKind, peer: Peer, context: u32, tag: i32, len: u64) {
        self.events.push(Event {
            len,
            site: 0,
            peer,
            context,
            tag,
            call: 0,
            kind: what,
            datatype: 0,
        });
    }

    #[inline]
    pub(crate) fn note_call(&mut self, event: Event, origin: CallOrigin) {
        self.events.push(Event {
            site: origin.site,
            call: origin.call,
            datatype: origin.datatype,
            ..event
        });
    }
}

/// A send as its receiver knows it, to find it among the sender's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentMessage {
    /// The process that sent.
    pub from: Peer,
    /// The process that it was sent to.
    pub to: Peer,
    /// Context of the envelope.
    pub context: ContextId,
    /// Tag of the envelope.
    pub tag: i32,
    /// Bytes.
    pub len: u64,
}

/// Bytes of the ring of a rank, as [`EventLog::address`] tells where it is. Behind it lies the
/// address of the newest send log.
pub(crate) const RING_BYTES: usize = EVENTS * EVENT_BYTES;
pub(crate) const EVENT_BYTES: usize = 32;
/// Bytes of a log, and where the bytes written so far are counted in it.
pub(crate) const LOG_BYTES: usize = size_of::<EventRing>();
pub(crate) const LOG_AT: usize = std::mem::offset_of!(EventRing, at);

const _: () = assert!(
    size_of::<EventRecord>() == EVENT_BYTES,
    "as `decode` reads it"
);
const _: () = assert!(
    std::mem::offset_of!(EventRing, ring) == 0
        && std::mem::offset_of!(EventRing, newest) == RING_BYTES
        && std::mem::offset_of!(EventRing, at) == RING_BYTES + size_of::<u64>(),
    "as `senders` and `taken_from_any` read it"
);

impl Event {
    /// An event as it lies in the memory of a process with this version of the engine. Any bytes
    /// will do: numbers that mean nothing become `ProbeMiss`.
    pub(crate) fn decode(bytes: &[u8; EVENT_BYTES]) -> Self {
        let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        const {
            assert!(
                std::mem::offset_of!(EventRecord, parties) == 16
                    && std::mem::offset_of!(EventRecord, act) == 28
            )
        };
        const { assert!(std::mem::offset_of!(EventRecord, kind) == 30) };
        let act = u16::from_ne_bytes([bytes[28], bytes[29]]);
        Self {
            len: long(0),
            site: long(8),
            peer: word(16),
            context: word(20),
            tag: word(24) as i32,
            call: act & ((1 << CALL_BITS) - 1),
            kind: kind_of(act),
            datatype: bytes[30],
        }
    }

    /// Returns the caller of the send `sent`, if this event may be that send.
    fn caller_of(&self, sent: &SentMessage) -> Option<CallOrigin> {
        let is_it = self.kind == EventKind::Send
            && (self.peer, self.context, self.tag, self.len)
                == (sent.to, sent.context, sent.tag, sent.len);
        (is_it && self.call != 0).then_some(CallOrigin {
            call: self.call,
            datatype: self.datatype,
            digest: TypeDigest::NONE,
            site: self.site,
        })
    }
}

/// Returns the caller that last received a message of this `peer`, context and tag (`None`: any)
/// from any source, and the tag. Reads the events at `ring` of another process, like
/// [`find_senders`].
pub fn taken_from_any(
    ring: u64,
    (peer, context, tag): (Peer, ContextId, Option<i32>),
    read: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Option<(i32, CallOrigin)> {
    let memory = read(ring, RING_BYTES + 2 * size_of::<u64>())?;
    let (ring, at) = memory.split_last_chunk()?;
    let next = u64::from_ne_bytes(*at) as usize / EVENT_BYTES;
    let events = ring.get(..RING_BYTES)?.as_chunks::<EVENT_BYTES>().0;
    let (newer, older) = events.split_at(next % EVENTS);
    let mut later: Option<Event> = None;
    for event in older.iter().chain(newer).rev().map(Event::decode) {
        if (event.peer, event.context) != (peer, context) || tag.is_some_and(|tag| tag != event.tag)
        {
            continue;
        }
        let receive = match event.kind {
            EventKind::Match if event.site != 0 => Some(event),
            EventKind::Match => later.filter(|later| later.tag == event.tag),
            EventKind::Recv => {
                later = Some(event);
                continue;
            }
            _ => continue,
        };
        if let Some(receive) = receive {
            let origin = CallOrigin {
                call: receive.call,
                datatype: receive.datatype,
                digest: TypeDigest::NONE,
                site: receive.site,
            };
            return Some((event.tag, origin));
        }
    }
    None
}

/// Returns the callers that may have made the send `sent`, each once, from the memory of its
/// sender. `read` returns so many bytes at an address, or `None`. `ring` is what the sender's
/// [`EventLog::address`] returned. The owner may write meanwhile, so the answer is a hint for
/// people, never for decisions. `None`: the memory could not be read.
pub fn find_senders(
    ring: u64,
    sent: &SentMessage,
    read: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Option<Vec<CallOrigin>> {
    let memory = read(ring, RING_BYTES + size_of::<u64>())?;
    let (ring, newest) = memory.split_last_chunk()?;
    let mut found = in_ring(ring, sent);
    let mut next = u64::from_ne_bytes(*newest);
    // The list may be any memory by now, and lead in a circle.
    for _ in 0..SEND_LOGS_READ {
        let head = (next != 0)
            .then(|| read(next, send_log::HEAD_BYTES))
            .flatten();
        let Some((is_its, older)) = head.and_then(|head| send_log::header(&head, sent)) else {
            break;
        };
        if is_its {
            let memory = read(next, send_log::SEND_LOG_BYTES).unwrap_or_default();
            send_log::callers(&memory, sent).for_each(|origin| add_origin(&mut found, origin));
            break;
        }
        next = older;
    }
    Some(found)
}

pub(crate) fn add_origin(found: &mut Vec<CallOrigin>, origin: CallOrigin) {
    if !found.contains(&origin) {
        found.push(origin);
    }
}

/// Returns the callers among the events of a ring.
fn in_ring(ring: &[u8], sent: &SentMessage) -> Vec<CallOrigin> {
    let mut found = Vec::new();
    let events = ring.as_chunks::<EVENT_BYTES>().0.iter().map(Event::decode);
    let callers = events.filter_map(|event| event.caller_of(sent));
    callers.for_each(|origin| add_origin(&mut found, origin));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(events: &[Event]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for event in events {
            bytes.extend(event.len.to_ne_bytes());
            bytes.extend(event.site.to_ne_bytes());
            bytes.extend(event.peer.to_ne_bytes());
            bytes.extend(event.context.to_ne_bytes());
            bytes.extend(event.tag.to_ne_bytes());
            bytes.extend(call_and_kind(event.call, event.kind).to_ne_bytes());
            bytes.extend([event.datatype, 0]);
        }
        bytes
    }

    #[test]
    fn a_sender_is_found_by_what_its_receiver_knows() {
        let sent = SentMessage {
            from: 3,
            to: 5,
            context: 8,
            tag: 7,
            len: 100,
        };
        let event = Event {
            len: 100,
            site: 11,
            peer: 5,
            context: 8,
            tag: 7,
            call: 2,
            kind: EventKind::Send,
            datatype: 9,
        };
        let others = [
            Event {
                kind: EventKind::Recv,
                ..event
            },
            Event { peer: 4, ..event },
            Event {
                context: 9,
                ..event
            },
            Event { tag: 6, ..event },
            Event { len: 99, ..event },
            Event { call: 0, ..event },
        ];
        assert_eq!(in_ring(&memory(&others), &sent), []);
        let all = [
            others.as_slice(),
            &[event, event, Event { site: 12, ..event }],
        ]
        .concat();
        let origin = CallOrigin {
            call: 2,
            datatype: 9,
            digest: TypeDigest::NONE,
            site: 11,
        };
        assert_eq!(
            in_ring(&memory(&all), &sent),
            [origin, CallOrigin { site: 12, ..origin }]
        );
        assert_eq!(
            in_ring(&memory(&all)[1..], &sent),
            [],
            "shifted memory means nothing"
        );
    }
}
