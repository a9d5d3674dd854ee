//! Messages that arrived before anybody asked for them.
//!
//! Owned by the engine's core. Records live in a slab with generations (a matched probe's `Message`
//! names one); payload lies inside the record, or in buffers of powers of two that are reused.
//! Bounded by the credits that peers were given.

use crate::api::{Context, Error, Message, Misfit, Origin, Peer, TypeMark};
use crate::key_map::NONE;
use crate::limits::{KEPT_BUFFER_LOG2_MAX, KEPT_BUFFERS, KEPT_INLINE};
use crate::protocol::wire::Announce;
use garonne_sync::user::{Scratch, UserMem};

/// What is known of a message beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub context: Context,
    pub peer: Peer,
    pub source: u32,
    pub tag: i32,
    pub sequence: u32,
    /// Length of the message.
    pub len: u64,
    /// The send's name, if the sender waits to hear that it was matched.
    pub waiting: Option<u64>,
    /// It counts against its sender's credits.
    pub credited: bool,
    /// What its sender says of the type.
    pub mark: TypeMark,
}

/// Where a kept message's bytes are.
#[derive(Debug)]
pub(crate) enum Body {
    Free(u32),
    Inline([u8; KEPT_INLINE]),
    Buffer(Scratch),
    Announced(Box<Announce>),
    /// A send of this very rank, by its slot.
    Local(u32),
    /// Taken out of its sender's window by a matched probe; the envelope is on its way.
    Coming,
    /// The same, and the receive in this slot waits for it.
    Awaited(u32),
}

/// One kept message.
#[derive(Debug)]
pub(crate) struct Item {
    generation: u32,
    pub meta: Meta,
    pub body: Body,
    /// Taken by a matched probe: no longer in the matcher.
    pub taken: bool,
}

/// See the module's paragraph.
#[derive(Debug)]
pub(crate) struct Store {
    items: Vec<Item>,
    free: u32,
    alive: usize,
    buffers: Vec<Vec<Scratch>>,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self {
            items: Vec::new(),
            free: NONE,
            alive: 0,
            buffers: (0..=KEPT_BUFFER_LOG2_MAX).map(|_| Vec::new()).collect(),
        }
    }

    /// Copies payload that must be kept.
    pub(crate) fn copy(&mut self, payload: UserMem, len: usize) -> Result<Body, Error> {
        if len <= KEPT_INLINE {
            let mut bytes = [0; KEPT_INLINE];
            payload.read(0, &mut bytes[..len]);
            return Ok(Body::Inline(bytes));
        }
        let buffer = self.buffer(len)?;
        buffer.mem().copy_from(0, payload, 0, len);
        Ok(Body::Buffer(buffer))
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
    pub(crate) fn recycle(&mut self, body: Body) {
        if let Body::Buffer(buffer) = body {
            let class = buffer.len().trailing_zeros() as usize;
            if let Some(kept) = self.buffers.get_mut(class)
                && kept.len() < KEPT_BUFFERS
            {
                kept.push(buffer);
            }
        }
    }

    /// Keeps a message.
    pub(crate) fn insert(&mut self, meta: Meta, body: Body) -> u32 {
        self.alive += 1;
        if self.free != NONE {
            let index = self.free;
            let item = &mut self.items[index as usize];
            if let Body::Free(next) = item.body {
                self.free = next;
            }
            item.meta = meta;
            item.body = body;
            item.taken = false;
            return index;
        }
        self.items.push(Item {
            generation: 0,
            meta,
            body,
            taken: false,
        });
        (self.items.len() - 1) as u32
    }

    pub(crate) fn get(&self, index: u32) -> &Item {
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
        (item.taken && item.generation == message.generation && !matches!(item.body, Body::Free(_)))
            .then_some(message.index)
    }

    /// Takes a message out for good.
    pub(crate) fn remove(&mut self, index: u32) -> (Meta, Body) {
        let item = &mut self.items[index as usize];
        let body = std::mem::replace(&mut item.body, Body::Free(self.free));
        item.generation = item.generation.wrapping_add(1);
        item.taken = false;
        self.free = index;
        self.alive -= 1;
        (item.meta, body)
    }

    /// A receive waits for the envelope of a taken message.
    pub(crate) fn await_for(&mut self, index: u32, receive: u32) {
        self.items[index as usize].body = Body::Awaited(receive);
    }

    /// The envelope of a taken message arrived.
    pub(crate) fn fill(&mut self, index: u32, meta: Meta, body: Body) {
        let item = &mut self.items[index as usize];
        item.meta = meta;
        item.body = body;
    }

    /// The messages that no receive or matched probe has taken.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &Meta> {
        let is_kept = |item: &&Item| !item.taken && !matches!(item.body, Body::Free(_));
        self.items.iter().filter(is_kept).map(|item| &item.meta)
    }

    /// The messages that no receive has, those among them that a matched probe has taken.
    pub(crate) fn unreceived(&self) -> impl Iterator<Item = &Meta> {
        let is_unreceived = |item: &&Item| !matches!(item.body, Body::Free(_) | Body::Awaited(_));
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

/// What is wrong with a message for a receive of `room` bytes, if anything.
#[inline]
pub(crate) fn misfit(meta: &Meta, room: u64, origin: Origin) -> Option<Error> {
    let mistyped =
        meta.mark != TypeMark::NONE && meta.mark.contradicts(origin.mark, meta.len == room);
    (meta.len > room || mistyped).then(|| told(meta, room, origin))
}

#[cold]
fn told(meta: &Meta, room: u64, origin: Origin) -> Error {
    let both = Box::new(Misfit {
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
