//! The operations of a rank that are not finished, in a slab with generations.
//!
//! Owned by the engine's core. A slot is reused with the next generation, so a stale name is an
//! error, never another's operation. Bounded by what the program leaves pending; grows by doubling
//! when a new one finds no free slot.

use crate::api::{CallOrigin, ContextId, Error, Pattern, Peer, Request, SHARD_SHIFT, Status};
use crate::fast::recv::{FastRecv, PlainRecvStatus, ReceivedMessage};
use crate::key_map::NONE;
use crate::limits::SHORT_GENERATION_BITS;
use crate::observe::events::{PendingAction, PendingOperation};
use crate::transport::{BulkToken, BulkTransfer, RegionDescriptor, RendezvousMode};
use garonne_sync::allocator::may_fail;
use garonne_sync::user::Data;

/// The bits of a generation that a short name has.
const SHORT_GENERATION: u32 = (1 << SHORT_GENERATION_BITS) - 1;

/// State of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpState {
    /// The slot is free.
    Free,
    /// A receive that waits for its message, known to the matcher.
    Posted,
    /// A receive that took an envelope out of its sender's window and waits for it.
    Pulling,
    /// A send that waits in the window.
    InWindow,
    /// Under way: announced, pulled, streamed, or waiting for the receiver's word.
    Active,
    /// Finished; the status waits to be taken.
    Complete,
}

/// Which side of a message an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpSide {
    Send,
    Recv,
    /// One-sided: an access to a peer's region, a flush, or the end of an own region.
    Access,
}

/// A pending operation. The envelope of a receive is that of its message once matched.
///
/// Owned by [`RequestTable`]. A send goes from `Active` (or `InWindow` first) to `Complete`; a
/// receive from `Posted` (or `Pulling`) over `Active` to `Complete`.
#[derive(Debug)]
pub(crate) struct Operation {
    pub generation: u32,
    next_free: u32,
    pub state: OpState,
    pub side: OpSide,
    /// A set of [`OpFlag`].
    pub flags: u16,
    pub synchronous: bool,
    /// A region was exposed for it and is not yet revoked.
    pub exposed: bool,
    /// Waiter of the operation, if [`OpFlag::WaitedFor`] is set.
    pub waiter: u32,
    /// Copies of it that are carried out without the engine, or by the transport until it tells: it
    /// ends after them.
    pub copies: u8,
    pub context: ContextId,
    pub peer: Peer,
    pub source: u32,
    pub tag: i32,
    pub sequence: u32,
    /// Messages that a receive accepts.
    pub pattern: Pattern,
    pub data: Data,
    pub origin: CallOrigin,
    /// Bytes moved so far, of `total`.
    pub moved: u64,
    pub total: u64,
    /// The peer's name for its side.
    pub remote: u64,
    /// The peer's region, while it is read or written.
    pub region: Option<Box<RegionDescriptor>>,
    /// Transfer mode of a rendezvous receive, once decided.
    pub mode: Option<RendezvousMode>,
    pub error: Option<Error>,
    pub cancelled: bool,
    /// Number of the completion in this engine, once complete.
    pub finished: u64,
}

/// Flags that the fast path to an operation's end must not overlook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum OpFlag {
    /// The name was released: the operation ends on its own.
    Abandoned = 1,
    /// A receive whose memory its sender may write unasked; it is exposed, too.
    EarlyRtrSent = 2,
    /// The transport was not asked how to fetch its message, so it hears nothing of that.
    ModeUnasked = 4,
    /// The operation ends after the copies under way.
    Ending = 8,
    /// A send that is being written to a receive offered early.
    EarlyWrite = 16,
    /// A receive that asked for its message by packets, once and for all: what comes of other ways
    /// counts for nothing any more. A send that goes so.
    DataRequested = 32,
    /// A send whose receiver has let it write to its memory, which it does once.
    RtrReceived = 64,
    /// The operation was started under a tracer, which hears of its end.
    Traced = 128,
    /// Somebody waits for it among others, and is to hear of its end.
    WaitedFor = 256,
}

impl Operation {
    /// `len` bytes of it from `from` on, between its own memory and the same place of what its peer
    /// exposed.
    pub(crate) fn bulk<'a>(
        &'a self,
        token: BulkToken,
        descriptor: &'a RegionDescriptor,
        from: u64,
        len: u64,
    ) -> BulkTransfer<'a> {
        BulkTransfer {
            token,
            peer: self.peer,
            descriptor,
            offset: from,
            local: &self.data,
            local_offset: from,
            len,
        }
    }

    /// Returns the description of the operation for others.
    pub(crate) fn describe(&self) -> PendingOperation {
        let shown = PendingOperation {
            action: match self.side {
                OpSide::Send | OpSide::Access => PendingAction::Send,
                OpSide::Recv => PendingAction::Receive,
            },
            context: self.context,
            peer: Some(self.peer),
            tag: Some(self.tag),
            bytes: self.data.len,
            origin: self.origin,
        };
        if self.state == OpState::Posted {
            let Pattern {
                context,
                source,
                tag,
            } = self.pattern;
            return PendingOperation {
                context,
                peer: source.map(|source| source.peer),
                tag,
                ..shown
            };
        }
        shown
    }

    pub(crate) fn has(&self, mark: OpFlag) -> bool {
        self.flags & mark as u16 != 0
    }

    pub(crate) fn set(&mut self, mark: OpFlag) {
        self.flags |= mark as u16;
    }

    pub(crate) fn clear(&mut self, mark: OpFlag) {
        self.flags &= !(mark as u16);
    }
}

/// An operation's name as it travels.
#[inline]
pub(crate) fn to_wire(request: Request) -> u64 {
    u64::from(request.generation) << 32 | u64::from(request.index)
}

/// The request that a wire name names.
#[inline]
pub(crate) fn from_wire(name: u64) -> Request {
    Request {
        index: name as u32,
        generation: (name >> 32) as u32,
    }
}

/// Initial values of a new operation.
pub(crate) struct NewOperation {
    pub side: OpSide,
    pub state: OpState,
    pub pattern: Pattern,
    pub data: Data,
    pub origin: CallOrigin,
}

/// The slab.
#[derive(Debug)]
pub(crate) struct RequestTable {
    slots: Vec<Operation>,
    free: u32,
    alive: usize,
}

impl RequestTable {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            alive: 0,
        }
    }

    /// Opens an operation.
    #[inline]
    pub(crate) fn open(&mut self, fresh: NewOperation) -> Result<u32, Error> {
        let total = fresh.data.len;
        if self.free == NONE {
            self.grow()?;
        }
        self.alive += 1;
        let index = self.free;
        let slot = &mut self.slots[index as usize];
        self.free = slot.next_free;
        slot.state = fresh.state;
        slot.side = fresh.side;
        slot.context = fresh.pattern.context;
        slot.pattern = fresh.pattern;
        slot.data = fresh.data;
        slot.origin = fresh.origin;
        slot.total = total;
        slot.moved = 0;
        slot.mode = None;
        Ok(index)
    }

    /// Opens a receive of contiguous bytes in a free slot, if there is one. What only other
    /// operations use stays as [`RequestTable::close`] left it.
    #[inline(always)]
    pub(crate) fn open_plain(&mut self, catch: &FastRecv, state: OpState) -> Option<u32> {
        let index = self.free;
        let slot = match self.slots.get_mut(index as usize) {
            Some(slot) => slot,
            None => return self.open_grown(catch, state),
        };
        self.free = slot.next_free;
        self.alive += 1;
        slot.state = state;
        slot.side = OpSide::Recv;
        slot.context = catch.context;
        slot.pattern = catch.pattern();
        slot.data.mem = catch.mem;
        slot.data.len = catch.room.into();
        slot.origin = catch.origin;
        Some(index)
    }

    #[cold]
    #[inline(never)]
    fn open_grown(&mut self, catch: &FastRecv, state: OpState) -> Option<u32> {
        self.open(NewOperation {
            side: OpSide::Recv,
            state,
            pattern: catch.pattern(),
            data: Data::contiguous(catch.mem, catch.room.into()),
            origin: catch.origin,
        })
        .ok()
    }

    /// The slot of a name of whose generation the low bits are known.
    #[inline(always)]
    pub(crate) fn find_short(&self, name: Request) -> Option<&Operation> {
        let slot = self.slots.get(name.index as usize)?;
        ((slot.generation ^ name.generation) & SHORT_GENERATION == 0).then_some(slot)
    }

    /// Returns whether there is a free slot.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        (self.free as usize) < self.slots.len()
    }

    /// Opens a receive that has ended already, in a free slot, if there is one.
    #[inline(always)]
    pub(crate) fn open_ended(
        &mut self,
        context: ContextId,
        caught: ReceivedMessage,
        finished: u64,
    ) -> Option<Request> {
        let index = self.free;
        let slot = self.slots.get_mut(index as usize)?;
        self.free = slot.next_free;
        self.alive += 1;
        slot.state = OpState::Complete;
        slot.side = OpSide::Recv;
        slot.context = context;
        slot.source = caught.source;
        slot.tag = caught.tag;
        slot.total = caught.len.into();
        slot.finished = finished;
        Some(Request {
            index,
            generation: slot.generation,
        })
    }

    /// Ends a plain receive if it is over and came as it should. Of the name's generation the low
    /// bits count.
    #[inline(always)]
    pub(crate) fn end_plain(&mut self, name: Request) -> PlainRecvStatus {
        let Some(slot) = self.slots.get_mut(name.index as usize) else {
            return PlainRecvStatus::Otherwise;
        };
        let stale = (slot.generation ^ name.generation) & SHORT_GENERATION != 0;
        if stale || slot.state != OpState::Complete {
            let goes_on = !stale && slot.state != OpState::Free;
            return if goes_on {
                PlainRecvStatus::NotYet
            } else {
                PlainRecvStatus::Otherwise
            };
        }
        let (Ok(len), None, false) = (u32::try_from(slot.total), &slot.error, slot.cancelled)
        else {
            return PlainRecvStatus::Otherwise;
        };
        let caught = ReceivedMessage {
            source: slot.source,
            tag: slot.tag,
            len,
        };
        // It has neither layout nor error, and none of the marks that `close` takes back.
        slot.generation = slot.generation.wrapping_add(1);
        slot.state = OpState::Free;
        slot.next_free = self.free;
        self.free = name.index;
        self.alive -= 1;
        PlainRecvStatus::Plainly(caught)
    }

    /// Adds free slots: the one place where the slab takes memory.
    #[cold]
    fn grow(&mut self) -> Result<(), Error> {
        let old = self.slots.len();
        let add = old.clamp(64, 1 << 16);
        if old + add >= 1 << SHARD_SHIFT {
            return Err(Error::Resource(
                "more than two hundred million pending requests",
            ));
        }
        may_fail(|| self.slots.try_reserve(add))
            .map_err(|_| Error::Resource("no memory for pending requests"))?;
        for index in old..old + add {
            let next = if index + 1 < old + add {
                index as u32 + 1
            } else {
                self.free
            };
            self.slots.push(Operation {
                generation: 0,
                next_free: next,
                state: OpState::Free,
                side: OpSide::Send,
                flags: 0,
                waiter: 0,
                synchronous: false,
                exposed: false,
                copies: 0,
                context: 0,
                peer: 0,
                source: 0,
                tag: 0,
                sequence: 0,
                pattern: Pattern {
                    context: 0,
                    source: None,
                    tag: None,
                },
                data: Data::empty(),
                origin: CallOrigin::default(),
                moved: 0,
                total: 0,
                remote: 0,
                region: None,
                mode: None,
                error: None,
                cancelled: false,
                finished: 0,
            });
        }
        self.free = old as u32;
        Ok(())
    }

    /// The operation in a slot that is known to be in use.
    #[inline]
    pub(crate) fn at(&mut self, index: u32) -> &mut Operation {
        &mut self.slots[index as usize]
    }

    #[inline]
    pub(crate) fn peek(&self, index: u32) -> &Operation {
        &self.slots[index as usize]
    }

    /// The name of the operation in a slot.
    #[inline]
    pub(crate) fn name(&self, index: u32) -> Request {
        Request {
            index,
            generation: self.slots[index as usize].generation,
        }
    }

    /// The slot of a name, if it is not stale.
    #[inline]
    pub(crate) fn find(&self, request: Request) -> Option<u32> {
        let slot = self.slots.get(request.index as usize)?;
        (slot.generation == request.generation && slot.state != OpState::Free)
            .then_some(request.index)
    }

    /// Closes a slot; its name is stale from now on.
    #[inline]
    pub(crate) fn close(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.state = OpState::Free;
        slot.flags = 0;
        slot.synchronous = false;
        slot.cancelled = false;
        slot.data.layout = None;
        slot.error = None;
        slot.next_free = self.free;
        self.free = index;
        self.alive -= 1;
    }

    /// The status of a complete operation.
    #[inline]
    pub(crate) fn status(&self, index: u32) -> Status {
        let slot = &self.slots[index as usize];
        Status {
            source: slot.source,
            tag: slot.tag,
            len: if slot.side == OpSide::Recv {
                slot.total
            } else {
                slot.data.len
            },
            cancelled: slot.cancelled,
            error: slot.error.clone(),
        }
    }

    /// Slots, free ones included.
    pub(crate) fn places(&self) -> usize {
        self.slots.len()
    }

    /// Operations alive.
    pub(crate) fn alive(&self) -> usize {
        self.alive
    }

    /// The slots with their operations, free ones included.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Operation)> {
        self.slots
            .iter()
            .enumerate()
            .map(|(index, slot)| (index as u32, slot))
    }

    /// Slots of living operations that satisfy `test`.
    pub(crate) fn select(&self, mut test: impl FnMut(&Operation) -> bool) -> Vec<u32> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| slot.state != OpState::Free && test(slot))
            .map(|(index, _)| index as u32)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_stay_as_small_as_the_limits_page_says() {
        assert!(size_of::<Operation>() <= 256, "{}", size_of::<Operation>());
        assert!(
            size_of::<crate::matching::unexpected::UnexpectedMessage>() <= 128,
            "{}",
            size_of::<crate::matching::unexpected::UnexpectedMessage>()
        );
    }

    #[test]
    fn the_name_of_a_closed_operation_is_stale_even_when_its_slot_is_used_again() {
        let mut requests = RequestTable::new();
        let fresh = || NewOperation {
            side: OpSide::Recv,
            state: OpState::Posted,
            pattern: Pattern {
                context: 0,
                source: None,
                tag: None,
            },
            data: Data::empty(),
            origin: CallOrigin::default(),
        };
        let first = requests.open(fresh()).unwrap();
        let name = requests.name(first);
        assert_eq!(requests.find(name), Some(first));
        requests.close(first);
        assert_eq!(requests.find(name), None);
        let second = requests.open(fresh()).unwrap();
        assert_eq!((second, requests.find(name)), (first, None));
        assert_eq!(
            from_wire(to_wire(requests.name(second))),
            requests.name(second)
        );
    }
}
