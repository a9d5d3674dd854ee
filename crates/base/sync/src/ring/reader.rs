//! The reading end of a ring: the next record, and the room that is returned to writers.

use super::fill_limit::LAP_FIRST;
use super::{AREA, PLACE_WORD, RingMemory, RingPosition, STREAMED, StoreKind, VOID};
use crate::facade::{Ordering, fence};

/// Record at the reader's next slot. A copy; validated against the ring's geometry, its header
/// is not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundRecord<At> {
    pub(crate) writer: u16,
    pub(crate) void: bool,
    /// Way in which its writer says that it wrote the payload.
    pub(crate) stores: StoreKind,
    /// The slot.
    pub(crate) at: At,
    /// Words after the stamp.
    pub(crate) words: [u64; PLACE_WORD + 1],
    /// First unit in the area (masked) and units; `None`: the payload is inline.
    pub(crate) area: Option<(u32, u32)>,
    pub(super) end: RingPosition,
}

/// State of the reader's next slot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NextSlot<At> {
    Empty,
    Record(FoundRecord<At>),
    /// A slot that no honest writer publishes; the writer it names is at fault, and it can be
    /// passed over.
    Broken(u16),
}

/// The reader's end.
#[derive(Debug)]
pub(crate) struct RingReader<M> {
    pub(crate) memory: M,
    pub(super) next: RingPosition,
    published: RingPosition,
    /// Slots and units whose reading is worth a publication.
    worth: RingPosition,
}

impl<M: RingMemory> RingReader<M> {
    /// The only reader of a ring.
    pub(crate) fn new(memory: M) -> Self {
        let next = RingPosition::from_word(memory.head().load(Ordering::Relaxed));
        let geometry = memory.geometry();
        Self {
            memory,
            next,
            published: next,
            worth: RingPosition {
                slot: geometry.slots / 8,
                // A writer may have come back to the first unit after this many times four.
                unit: (geometry.units / 8).min(LAP_FIRST / 4),
            },
        }
    }

    /// Slots consumed so far (wrapping).
    #[inline(always)]
    pub(crate) fn head_slot(&self) -> u32 {
        self.next.slot
    }

    /// The payload unit at which the next payload begins, unless it has to skip the rest of the
    /// area.
    #[inline(always)]
    pub(crate) fn next_unit(&self) -> u32 {
        self.next.unit
    }

    /// Returns whether the next slot is unpublished. One load.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        let at = self.memory.at(self.next.slot);
        self.memory.stamp(at).load(Ordering::Relaxed) as u32 != self.next.slot.wrapping_add(1)
    }

    /// Looks at the next record.
    #[inline(always)]
    pub(crate) fn look(&self) -> NextSlot<M::At> {
        let next = self.next;
        let at = self.memory.at(next.slot);
        let mut end = RingPosition {
            slot: next.slot.wrapping_add(1),
            unit: next.unit,
        };
        // Acquire: the record behind the stamp. SYNC(ring-stamp).
        let stamp = self.memory.stamp(at).load(Ordering::Acquire);
        if stamp as u32 != end.slot {
            return NextSlot::Empty;
        }
        let words = self.memory.get(at);
        let writer = (stamp >> 32) as u16;
        let mut area = None;
        if stamp & AREA != 0 {
            let geometry = self.memory.geometry();
            let (start, units) = (words[PLACE_WORD] as u32, (words[PLACE_WORD] >> 32) as u32);
            end.unit = start.wrapping_add(units);
            let offset = start & (geometry.units - 1);
            let ahead = start.wrapping_sub(self.next.unit);
            if ahead > geometry.units
                || units > geometry.units - offset
                || end.unit.wrapping_sub(self.next.unit) > geometry.units
            {
                return NextSlot::Broken(writer);
            }
            area = Some((offset, units));
        }
        NextSlot::Record(FoundRecord {
            writer,
            void: stamp & VOID != 0,
            stores: if stamp & STREAMED != 0 {
                StoreKind::Streamed
            } else {
                StoreKind::Cached
            },
            at,
            words,
            area,
            end,
        })
    }

    /// Slots from the next one on that lie in a row, which ends before the last position that a
    /// stamp can count, and after which the head is worth telling: at least one.
    pub(crate) fn row(&self) -> u32 {
        let (next, slots) = (self.next.slot, self.memory.geometry().slots);
        let row = (slots - (next & (slots - 1))).min((u32::MAX - next).max(1));
        let told = next.wrapping_sub(self.published.slot);
        row.min(self.worth.slot.saturating_sub(told).max(1))
    }

    /// Gives the room of a record back whose payload shares its slot, without telling the writers.
    #[inline(always)]
    pub(crate) fn pass_inline(&mut self) {
        self.next.slot = self.next.slot.wrapping_add(1);
    }

    /// Tells the writers how far the reader is, if that is worth it. `true`: writers wait for room
    /// and must be rung.
    pub(crate) fn publish_worthwhile(&mut self) -> bool {
        self.next.slot.wrapping_sub(self.published.slot) >= self.worth.slot && self.publish_head()
    }

    /// Gives a record's room back. `true`: writers wait for room and must be rung.
    #[inline(always)]
    pub(crate) fn release(&mut self, found: &FoundRecord<M::At>) -> bool {
        self.next = found.end;
        let slots = self.next.slot.wrapping_sub(self.published.slot);
        let units = self.next.unit.wrapping_sub(self.published.unit);
        (slots >= self.worth.slot || units >= self.worth.unit) && self.publish_head()
    }

    /// Passes over a broken slot: its payload claim is unknown, so all units claimed so far count
    /// as consumed.
    pub(crate) fn pass_over(&mut self) -> bool {
        self.next.slot = self.next.slot.wrapping_add(1);
        self.publish_head()
    }

    /// Tells the writers how far the reader is, with a look whether one starves.
    #[cold]
    #[inline(never)]
    pub(crate) fn publish_head(&mut self) -> bool {
        // Release: our reads of what lies below are done before a writer may overwrite it.
        // SYNC(ring-head).
        self.memory
            .head()
            .store(self.next.to_word(), Ordering::Release);
        self.published = self.next;
        // Pairs with the fence in `look_again`. SYNC(ring-starved).
        fence(Ordering::SeqCst);
        self.take_starved()
    }

    /// Tells the writers without a fence, when the ring is found empty: a starving writer is then
    /// seen by a later call.
    #[inline(always)]
    pub(crate) fn publish_idle(&mut self) -> bool {
        if self.published != self.next {
            // SYNC(ring-head).
            self.memory
                .head()
                .store(self.next.to_word(), Ordering::Release);
            self.published = self.next;
        }
        self.memory.starved().load(Ordering::Relaxed) != 0 && self.take_starved()
    }

    fn take_starved(&self) -> bool {
        self.memory.starved().load(Ordering::Relaxed) != 0
            && self.memory.starved().swap(0, Ordering::AcqRel) != 0
    }

    /// If the next slot is claimed but unpublished and its writer is `gone`, passes over it. `true`
    /// if it did.
    pub(crate) fn skip_gone(&mut self, gone: &mut dyn FnMut(u16) -> bool) -> bool {
        // Acquire: the intents of all claims up to this tail. SYNC(ring-intent).
        let tail = RingPosition::from_word(self.memory.tail().load(Ordering::Acquire));
        if tail.slot == self.next.slot || !self.is_empty() {
            return false;
        }
        let wanted = self.next.slot.wrapping_add(1);
        let mut end = None;
        for writer in 0..self.memory.writers() {
            let intent =
                RingPosition::from_word(self.memory.intent(writer).load(Ordering::Relaxed));
            if intent.slot != wanted {
                continue;
            }
            if !gone(writer) {
                // A living writer has the same intent: it owns the slot and will publish, or lost
                // it and will move on.
                return false;
            }
            end = Some(intent);
        }
        // Look again: the owner may have published and died between the looks above.
        let Some(end) = end.filter(|_| self.is_empty()) else {
            return false;
        };
        let geometry = self.memory.geometry();
        if end.unit.wrapping_sub(self.next.unit) > geometry.units {
            return false;
        }
        self.next = end;
        self.publish_head();
        true
    }
}
