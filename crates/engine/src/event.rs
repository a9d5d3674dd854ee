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
        let ring = ring.try_into().unwrap_or_else(|_| Box::new([Event::default(); EVENTS]));
        Self { ring, next: 0 }
    }

    /// Writes one event over the oldest.
    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        self.ring[self.next as usize % EVENTS] = event;
        self.next += 1;
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
}
