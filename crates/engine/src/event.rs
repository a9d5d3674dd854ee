//! The last few thousand events of a rank, and what it waits for: plain data that the host may publish.
//!
//! Written by the engine's core in program order; an event's number is its stamp. No clock is read here.

use crate::api::{Context, Origin, Peer};
use crate::limits::EVENTS;

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum What {
    /// The record was never written.
    #[default]
    Nothing = 0,
    /// A send was started.
    Send = 1,
    /// A receive was posted.
    Recv = 2,
    /// A message met its receive.
    Match = 3,
    /// A message was kept for later.
    Keep = 4,
    /// A send joined the window.
    Hold = 5,
    /// A large message began to move.
    Move = 6,
    /// An operation completed.
    Complete = 7,
    /// A peer is gone.
    Gone = 8,
    /// A peer broke the format.
    Broken = 9,
}

/// One event, 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Event {
    /// Bytes concerned.
    pub len: u64,
    /// Return address of the call, 0 if it was not a call's.
    pub site: u64,
    /// The other process.
    pub peer: Peer,
    /// Context of the envelope.
    pub context: Context,
    /// Tag of the envelope.
    pub tag: i32,
    /// Index of the function called.
    pub call: u16,
    /// What happened.
    pub what: What,
    /// Which type the data is of, as in [`Origin`].
    pub kind: u8,
}

/// The ring.
#[derive(Debug)]
pub struct Events {
    ring: Box<[Event; EVENTS]>,
    next: u64,
}

impl Events {
    pub(crate) fn new() -> Self {
        // From a vector, so that the zeroed pages are not touched before they are used.
        let ring = vec![Event::default(); EVENTS].into_boxed_slice();
        let ring = ring
            .try_into()
            .unwrap_or_else(|_| Box::new([Event::default(); EVENTS]));
        Self { ring, next: 0 }
    }

    /// Writes one event over the oldest.
    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        self.ring[self.next as usize % EVENTS] = event;
        self.next += 1;
    }

    /// Where the ring lies in this process, for others that may read its memory; it stays there.
    pub fn address(&self) -> usize {
        self.ring.as_ptr().addr()
    }

    /// Number of the next event.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The events still remembered, oldest first, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Event)> {
        let first = self.next.saturating_sub(EVENTS as u64);
        (first..self.next).map(|number| (number, &self.ring[number as usize % EVENTS]))
    }
}

/// A send as its receiver knows it, to find it among the sender's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The process that sent.
    pub from: Peer,
    /// The process that it was sent to.
    pub to: Peer,
    /// Context of the envelope.
    pub context: Context,
    /// Tag of the envelope.
    pub tag: i32,
    /// Bytes.
    pub len: u64,
}

/// Bytes of the ring of a rank, as [`Events::address`] gives it.
pub const RING_BYTES: usize = EVENTS * EVENT_BYTES;
const EVENT_BYTES: usize = 32;

const _: () = assert!(size_of::<Event>() == EVENT_BYTES, "as `decode` reads it");

impl Event {
    /// An event as it lies in the memory of a process with this version of the engine. Any bytes will do: numbers that mean
    /// nothing become `Nothing`.
    fn decode(bytes: &[u8; EVENT_BYTES]) -> Self {
        let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        const { assert!(std::mem::offset_of!(Event, peer) == 16 && std::mem::offset_of!(Event, what) == 30) };
        const { assert!(std::mem::offset_of!(Event, kind) == 31) };
        Self {
            len: long(0),
            site: long(8),
            peer: word(16),
            context: word(20),
            tag: word(24) as i32,
            call: u16::from_ne_bytes([bytes[28], bytes[29]]),
            what: if bytes[30] == What::Send as u8 {
                What::Send
            } else {
                What::Nothing
            },
            kind: bytes[31],
        }
    }
}

/// Who may have made the send `sent`, from the memory of the sender's ring: each caller once. The ring is read while its owner
/// may write, so this is a hint for people, never for decisions.
pub fn senders(ring: &[u8], sent: &Sent) -> Vec<Origin> {
    let mut found = Vec::new();
    for bytes in ring.as_chunks::<EVENT_BYTES>().0 {
        let event = Event::decode(bytes);
        let fits = event.what == What::Send
            && (event.peer, event.context, event.tag, event.len)
                == (sent.to, sent.context, sent.tag, sent.len);
        let origin = Origin {
            call: event.call,
            kind: event.kind,
            site: event.site,
        };
        if fits && event.call != 0 && !found.contains(&origin) {
            found.push(origin);
        }
    }
    found
}

/// Whom a wait that the layer above tells of is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The other members of the communicator, through shared memory.
    Members,
    /// Whoever sends the message that a probe asks for; `None`: any process.
    Sender(Option<Peer>),
}

/// A wait that the engine knows nothing of, told by the layer above: a meeting of ranks through shared memory, named as its
/// messages would be, or a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// Whom it is for.
    pub awaited: Awaited,
    /// Context of the messages.
    pub context: Context,
    /// Their tag; negative for a probe that takes any.
    pub tag: i32,
    /// Who asked.
    pub origin: Origin,
}

/// An operation that is not over, as others may see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// It is a send; else a receive.
    pub sends: bool,
    /// Context of its envelope.
    pub context: Context,
    /// The other process; `None`: a receive from any.
    pub peer: Option<Peer>,
    /// Tag; `None`: a receive of any.
    pub tag: Option<i32>,
    /// Bytes of a send, room of a receive.
    pub bytes: u64,
    /// Who asked.
    pub origin: Origin,
}

/// Operations that [`Waiting`] lists.
pub const PENDING_SHOWN: usize = 16;

/// What a rank waits for, as far as its engine knows: the oldest pending receive and send, and how much is pending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Receives posted and not matched.
    pub posted: u32,
    /// The oldest of them: context, source process (`None`: any), tag (`None`: any), and who asked.
    pub oldest_receive: Option<(Context, Option<Peer>, Option<i32>, Origin)>,
    /// Operations under way or held.
    pub pending: u32,
    /// Messages kept for later.
    pub unexpected: u32,
    /// A send that cannot go on: context, peer, tag, bytes, and who asked.
    pub blocked_send: Option<(Context, Peer, i32, u64, Origin)>,
    /// What the layer above told of.
    pub meeting: Option<Meeting>,
    /// Operations that are not over, in no order: the first `shown` count.
    pub operations: [Pending; PENDING_SHOWN],
    /// How many of them there are.
    pub shown: usize,
    /// There are more operations than those.
    pub more: bool,
    /// Several threads of the process may be in MPI: others than the one that waits may act.
    pub threads: bool,
}

impl Waiting {
    /// Lists one more operation, if there is room.
    pub(crate) fn add(&mut self, operation: Pending) {
        match self.operations.get_mut(self.shown) {
            Some(place) => {
                *place = operation;
                self.shown += 1;
            }
            None => self.more = true,
        }
    }

    /// The operations listed.
    pub fn listed(&self) -> &[Pending] {
        self.operations.get(..self.shown).unwrap_or_default()
    }
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
            bytes.extend(event.call.to_ne_bytes());
            bytes.extend([event.what as u8, event.kind]);
        }
        bytes
    }

    #[test]
    fn a_sender_is_found_by_what_its_receiver_knows() {
        let sent = Sent {
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
            what: What::Send,
            kind: 9,
        };
        let others = [
            Event {
                what: What::Recv,
                ..event
            },
            Event { peer: 4, ..event },
            Event { context: 9, ..event },
            Event { tag: 6, ..event },
            Event { len: 99, ..event },
            Event { call: 0, ..event },
        ];
        assert_eq!(senders(&memory(&others), &sent), []);
        let all = [others.as_slice(), &[event, event, Event { site: 12, ..event }]].concat();
        let origin = Origin {
            call: 2,
            kind: 9,
            site: 11,
        };
        assert_eq!(
            senders(&memory(&all), &sent),
            [origin, Origin { site: 12, ..origin }]
        );
        assert_eq!(
            senders(&memory(&all)[1..], &sent),
            [],
            "shifted memory means nothing"
        );
    }
}
