//! Messages that arrived before anybody asked for them.
//!
//! Owned by the engine's core. Records live in a slab with generations (a matched probe's `Message`
//! names one). Payload lies inside the record, or in reused buffers of powers of two. Bounded by
//! the credits that peers were given.

use crate::api::{CallOrigin, ContextId, Error, Message, MessageMismatch, Peer, TypeDigest};
use crate::key_map::NONE;
use crate::limits::{
    SELF_CREDIT, UNEXPECTED_BUFFER_LOG2_MAX, UNEXPECTED_BUFFERS, UNEXPECTED_INLINE,
};
use crate::protocol::wire::Rts;
use garonne_sync::user::{Scratch, UserMem};

/// Envelope, length and origin of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageInfo {
    pub context: ContextId,
    pub peer: Peer,
    pub source: u32,
    pub tag: i32,
    pub sequence: u32,
    /// Length of the message.
    pub len: u64,
    /// The send's name, if the sender waits to hear that it was matched.
    pub waiting: Option<u64>,
    /// The message counts against its sender's credits.
    pub credited: bool,
    /// Type digest that the sender sent.
    pub digest: TypeDigest,
}

/// Payload of an unexpected message.
#[derive(Debug)]
pub(crate) enum UnexpectedBody {
    Free(u32),
    Inline([u8; UNEXPECTED_INLINE]),
    Buffer(Scratch),
    Rts(Box<Rts>),
    /// A send of this very rank, by its slot.
    SelfSend(u32),
    /// Taken out of its sender's window by a matched probe; the envelope is on its way.
    InFlight,
    /// Taken by a matched probe, on its way, and awaited by the receive in this slot.
    InFlightFor(u32),
}

/// An unexpected message.
#[derive(Debug)]
pub(crate) struct UnexpectedMessage {
    generation: u32,
    pub meta: MessageInfo,
    pub body: UnexpectedBody,
    /// Taken by a matched probe: no longer in the matcher.
    pub taken: bool,
}

/// Slab of the messages that arrived before their receive, with reusable payload buffers.
///
/// Owned by the core. `insert` keeps a message, `remove` hands it to its receive; a matched probe
/// names it in between with `take`.
#[derive(Debug)]
pub(crate) struct UnexpectedMessages {
    items: Vec<UnexpectedMessage>,
    free: u32,
    alive: usize,
    /// Payload in bytes that sends to oneself may still leave here.
    pub self_credit: u64,
    buffers: Vec<Vec<Scratch>>,
}

impl UnexpectedMessages {
    pub(crate) fn new() -> Self {
        Self {
            items: Vec::new(),
            free: NONE,
            alive: 0,
            self_credit: SELF_CREDIT,
            buffers: (0..=UNEXPECTED_BUFFER_LOG2_MAX)
                .map(|_| Vec::new())
                .collect(),
        }
    }

    /// Copies payload that must be kept.
    pub(crate) fn copy(&mut self, payload: UserMem, len: usize) -> Result<UnexpectedBody, Error> {
        if len <= UNEXPECTED_INLINE {
            let mut bytes = [0; UNEXPECTED_INLINE];
            payload.read(0, &mut bytes[..len]);
            return Ok(UnexpectedBody::Inline(bytes));
        }
        let buffer = self.buffer(len)?;
        buffer.mem().copy_from(0, payload, 0, len);
        Ok(UnexpectedBody::Buffer(buffer))
    }

    /// A buffer for at least `len` bytes.
    pub(crate) fn buffer(&mut self, len: usize) -> Result<Scratch, Error> {
        let class = len.next_power_of_two().trailing_zeros();
        match self.buffers.get_mut(class as usize).and_then(Vec::pop) {
            Some(buffer) => Ok(buffer),
            None => Scratch::new(len.next_power_of_two())
                .ok_or(Error::Resource("no memory for an unexpected message")),
        }
    }

    /// Gives a buffer back for reuse.
    pub(crate) fn recycle(&mut self, body: UnexpectedBody) {
        if let UnexpectedBody::Buffer(buffer) = body {
            let class = buffer.len().trailing_zeros() as usize;
            if let Some(kept) = self.buffers.get_mut(class)
                && kept.len() < UNEXPECTED_BUFFERS
            {
                kept.push(buffer);
            }
        }
    }

    /// Keeps a message.
    pub(crate) fn insert(&mut self, meta: MessageInfo, body: UnexpectedBody) -> u32 {
        self.alive += 1;
        if self.free != NONE {
            let index = self.free;
            let item = &mut self.items[index as usize];
            if let UnexpectedBody::Free(next) = item.body {
                self.free = next;
            }
            item.meta = meta;
            item.body = body;
            item.taken = false;
            return index;
        }
        self.items.push(UnexpectedMessage {
            generation: 0,
            meta,
            body,
            taken: false,
        });
        (self.items.len() - 1) as u32
    }

    pub(crate) fn get(&self, index: u32) -> &UnexpectedMessage {
        &self.items[index as usize]
    }

    /// Marks a message as taken by a matched probe and names it.
    pub(crate) fn take(&mut self, index: u32) -> Message {
        let item = &mut self.items[index as usize];
        item.taken = true;
        Message {
            index,
            generation: item.generation,
        }
    }

    /// The slot of a taken message, if the name is not stale.
    pub(crate) fn find_taken(&self, message: Message) -> Option<u32> {
        let item = self.items.get(message.index as usize)?;
        (item.taken
            && item.generation == message.generation
            && !matches!(item.body, UnexpectedBody::Free(_)))
        .then_some(message.index)
    }

    /// Takes a message out for good.
    pub(crate) fn remove(&mut self, index: u32) -> (MessageInfo, UnexpectedBody) {
        let item = &mut self.items[index as usize];
        let body = std::mem::replace(&mut item.body, UnexpectedBody::Free(self.free));
        item.generation = item.generation.wrapping_add(1);
        item.taken = false;
        self.free = index;
        self.alive -= 1;
        (item.meta, body)
    }

    /// A receive waits for the envelope of a taken message.
    pub(crate) fn set_receiver(&mut self, index: u32, receive: u32) {
        self.items[index as usize].body = UnexpectedBody::InFlightFor(receive);
    }

    /// The envelope of a taken message arrived.
    pub(crate) fn replace(&mut self, index: u32, meta: MessageInfo, body: UnexpectedBody) {
        let item = &mut self.items[index as usize];
        item.meta = meta;
        item.body = body;
    }

    /// The messages that no receive or matched probe has taken.
    pub(crate) fn unmatched(&self) -> impl Iterator<Item = &MessageInfo> {
        let is_kept = |item: &&UnexpectedMessage| {
            !item.taken && !matches!(item.body, UnexpectedBody::Free(_))
        };
        self.items.iter().filter(is_kept).map(|item| &item.meta)
    }

    /// The messages that no receive has, those among them that a matched probe has taken.
    pub(crate) fn unreceived(&self) -> impl Iterator<Item = &MessageInfo> {
        let is_unreceived = |item: &&UnexpectedMessage| {
            !matches!(
                item.body,
                UnexpectedBody::Free(_) | UnexpectedBody::InFlightFor(_)
            )
        };
        self.items
            .iter()
            .filter(is_unreceived)
            .map(|item| &item.meta)
    }

    /// Messages kept.
    pub(crate) fn alive(&self) -> usize {
        self.alive
    }
}

/// Returns the error of a message that does not fit a receive of `room` bytes, if there is one.
#[inline]
pub(crate) fn mismatch(meta: &MessageInfo, room: u64, origin: CallOrigin) -> Option<Error> {
    let mistyped =
        meta.digest != TypeDigest::NONE && meta.digest.contradicts(origin.digest, meta.len == room);
    (meta.len > room || mistyped).then(|| mismatch_error(meta, room, origin))
}

#[cold]
fn mismatch_error(meta: &MessageInfo, room: u64, origin: CallOrigin) -> Error {
    let both = Box::new(MessageMismatch {
        sent: meta.len,
        room,
        peer: meta.peer,
        sequence: meta.sequence,
        origin,
    });
    match meta.len > room {
        true => Error::Truncated(both),
        false => Error::Mistyped(both),
    }
}
