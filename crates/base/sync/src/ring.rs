//! The message ring: 64-byte slots that carry their own sequence number, and an area for payloads
//! that do not fit a slot.
//!
//! A ring is used as a *mailbox* (many writers) or as a *lane* (one writer). This module owns the
//! algorithm only. A [`RingMemory`] says where the words lie: in shared segments, or in loom's
//! cells. Bounded by the geometry.
//!
//! How it works. A position is a slot count and a unit count (64-byte units of payload area). Both
//! have 32 bits, wrap, and are packed in one word. A writer claims a slot and payload space by
//! advancing the tail word: by compare-and-swap in a mailbox, by a plain variable in a lane. It
//! writes the slot's words and the payload, then publishes by storing the slot's stamp, the
//! position plus one. The reader looks only at the stamp of its next slot. So one cache line moves
//! for a small message, and no word is written by both sides. The reader returns room by storing
//! the head word now and then. Writers read the head only when the value that they remember leaves
//! no room. Slots and payload space never change roles, so old payload is never taken for a stamp,
//! and an old stamp is a ring's length behind.
//!
//! A payload is contiguous, so a writer may skip the rest of the area and continue at its
//! beginning. A lane's writer does that early at first ([`FillLimit`]). Memory that was never
//! touched costs many times what the bytes do, and a writer that sends little need not touch much.
//!
//! Death between claim and publish: before each attempt a mailbox writer stores the tail that it is
//! about to set in its own intent word. A reader that finds an unpublished slot below the tail
//! looks up whose intent it is. If that writer is dead, the reader skips the slot
//! ([`RingReader::skip_gone`]).

mod fill_limit;
mod reader;

use crate::facade::{AtomicU32, AtomicU64, Ordering, fence};
use fill_limit::FillLimit;
pub(crate) use fill_limit::rounds_to;
pub(crate) use reader::{NextSlot, RingReader};

/// Bytes of one unit of payload area, and of one slot.
pub const UNIT: usize = 64;
/// Words of a slot after its stamp.
pub const SLOT_WORDS: usize = 7;
/// Flag of a stamp: the record carries nothing.
const VOID: u64 = 1 << 48;
/// Flag of a stamp: the payload lies in the area; the first word after the header tells where.
const AREA: u64 = 1 << 49;
/// Flag of a stamp: the payload was written by stores that bypass the caches.
const STREAMED: u64 = 1 << 50;
/// Index (among the words after the stamp) of the word that says where a payload lies; also of the
/// first inline payload.
pub const PLACE_WORD: usize = 3;
/// Payload bytes that share the slot with the header.
pub const INLINE_MAX: usize = (SLOT_WORDS - PLACE_WORD) * 8;

/// Slots consumed or claimed (low half) and payload units likewise (high half).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingPosition {
    pub(crate) slot: u32,
    pub(crate) unit: u32,
}

impl RingPosition {
    #[inline(always)]
    pub(crate) fn from_word(word: u64) -> Self {
        Self {
            slot: word as u32,
            unit: (word >> 32) as u32,
        }
    }

    #[inline(always)]
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.slot) | u64::from(self.unit) << 32
    }
}

/// Sizes of a ring. Both powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingGeometry {
    /// Slots.
    pub slots: u32,
    /// Units of payload area.
    pub units: u32,
    /// Slots that only control records may take.
    pub reserved_slots: u32,
    /// Units that only control records may take.
    pub reserved_units: u32,
}

/// Place where the words of a ring lie.
pub(crate) trait RingMemory {
    /// A slot, looked up.
    type At: Copy;

    /// Looks up a slot by its position, which wraps.
    fn at(&self, slot: u32) -> Self::At;
    fn geometry(&self) -> RingGeometry;
    /// Written by the reader: what it has consumed.
    fn head(&self) -> &AtomicU64;
    /// Written by the writers of a mailbox: what is claimed.
    fn tail(&self) -> &AtomicU64;
    /// Written by writers that found no room, cleared by the reader.
    fn starved(&self) -> &AtomicU32;
    /// First word of a slot: position + 1, writer << 32, flags.
    fn stamp(&self, at: Self::At) -> &AtomicU64;
    /// The intent word of a writer of this mailbox.
    fn intent(&self, writer: u16) -> &AtomicU64;
    /// Writers that may exist.
    fn writers(&self) -> u16;
    /// Stores the first `PLACE_WORD` words of a slot and, if given, the place.
    fn put(&self, at: Self::At, header: [u64; PLACE_WORD], place: Option<u64>);
    /// Loads the first `PLACE_WORD` words of a slot after its stamp, and the place.
    fn get(&self, at: Self::At) -> [u64; PLACE_WORD + 1];
}

const PAGE_UNITS: u32 = 64;
/// Payloads of so many units and more begin in the middle of a page: large buffers of programs
/// begin at one or little behind as a rule, and a processor takes a load for one of a store under
/// way where their addresses agree but for whole pages (256 KB in pieces of 32 KB: 13 µs so, 10 in
/// the middle).
const PHASED_UNITS: u32 = 128;
const PHASE: u32 = PAGE_UNITS / 2;

/// Number of writers of a ring: one or many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingKind {
    Mailbox,
    Lane,
}

/// Which stores write bytes that another core reads next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreKind {
    /// Ordinary ones: the lines stay in the writer's cache, where the reader gets them.
    #[default]
    Cached = 0,
    /// Stores that bypass the caches: the reader gets the lines from memory, and the writer need
    /// not fetch them at all.
    Streamed = 1,
}

/// Kind of the record that asks for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordClass {
    /// May not use the reserved room.
    Data,
    /// May.
    Control,
}

/// No room at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFull;

/// A claimed slot and payload place, to be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) slot: u32,
    /// First unit of the payload, unmasked.
    pub(crate) start: u32,
    pub(crate) units: u32,
}

/// One writer's end.
#[derive(Debug)]
pub(crate) struct RingWriter<M> {
    pub(crate) memory: M,
    me: u16,
    sharing: RingKind,
    /// The head as last read.
    head: RingPosition,
    /// The next position of a lane.
    tail: RingPosition,
    /// A lane's.
    lap: FillLimit,
    /// The slot at which a lane has no room for data as far as the remembered head tells; a
    /// mailbox's tail, which never moves.
    data_end: u32,
    /// The slot behind this writer's last claim in a mailbox.
    last: u32,
}

impl<M: RingMemory> RingWriter<M> {
    /// The end of writer `me`. A lane's must be empty, with its head published.
    pub(crate) fn new(memory: M, me: u16, sharing: RingKind) -> Self {
        // Acquire: room that the reader gave back may be written. SYNC(ring-head).
        let head = RingPosition::from_word(memory.head().load(Ordering::Acquire));
        let units = memory.geometry().units;
        let mut writer = Self {
            memory,
            me,
            sharing,
            head,
            tail: head,
            lap: FillLimit::new(units),
            data_end: head.slot,
            last: head.slot,
        };
        writer.set_data_end();
        writer
    }

    /// A lane's writer will never fill more than so many units before it comes back to the first.
    pub(crate) fn fill_at_most(&mut self, units: u32) {
        self.lap = FillLimit::new(units.min(self.memory.geometry().units));
    }

    /// To be called whenever the remembered head changed.
    fn set_data_end(&mut self) {
        if self.sharing == RingKind::Lane {
            let geometry = self.memory.geometry();
            self.data_end = self
                .head
                .slot
                .wrapping_add(geometry.slots - geometry.reserved_slots);
        }
    }

    /// Returns where a record of `units` would end if it began at `tail`, and where its payload
    /// would begin, where the area is used up to `lap`.
    #[inline(always)]
    fn place(
        geometry: &RingGeometry,
        lap: u32,
        tail: RingPosition,
        units: u32,
    ) -> (u32, RingPosition) {
        let mut start = tail.unit;
        if units > 0 {
            let mut phase = 0;
            if units >= PHASED_UNITS {
                phase = PHASE;
                start = start.wrapping_add(phase.wrapping_sub(start) % PAGE_UNITS);
            }
            let offset = start & (geometry.units - 1);
            // What is left out takes room until the reader has passed it: from too near the
            // beginning the record would never fit.
            let early = offset + units > lap
                && offset
                    >= phase + units + geometry.reserved_units + start.wrapping_sub(tail.unit);
            if early || offset + units > geometry.units {
                // Payloads are contiguous: skip the rest of the area.
                start = start.wrapping_add(geometry.units - offset + phase);
            }
        }
        let (slot, unit) = (tail.slot.wrapping_add(1), start.wrapping_add(units));
        (start, RingPosition { slot, unit })
    }

    #[inline(always)]
    fn fits(&self, geometry: &RingGeometry, end: RingPosition, priority: RecordClass) -> bool {
        let (slots, units) = match priority {
            RecordClass::Data => (
                geometry.slots - geometry.reserved_slots,
                geometry.units - geometry.reserved_units,
            ),
            RecordClass::Control => (geometry.slots, geometry.units),
        };
        end.slot.wrapping_sub(self.head.slot) <= slots
            && end.unit.wrapping_sub(self.head.unit) <= units
    }

    #[inline(always)]
    fn has_room(
        &mut self,
        geometry: &RingGeometry,
        end: RingPosition,
        priority: RecordClass,
    ) -> bool {
        self.fits(geometry, end, priority) || self.look_again(geometry, end, priority)
    }

    #[cold]
    #[inline(never)]
    fn look_again(
        &mut self,
        geometry: &RingGeometry,
        end: RingPosition,
        priority: RecordClass,
    ) -> bool {
        for _ in 0..2 {
            // Acquire: the reader is done with what lies below. SYNC(ring-head).
            self.head = RingPosition::from_word(self.memory.head().load(Ordering::Acquire));
            self.set_data_end();
            if self.fits(geometry, end, priority) {
                return true;
            }
            // Ask to be rung, then look once more: either the reader sees the wish after its next
            // publication of the head, or we see that head here. The reader's fence is in
            // `publish_head`. SYNC(ring-starved).
            self.memory.starved().store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        false
    }

    /// Claims a slot and `units` of payload (at most a quarter of the area).
    #[inline(always)]
    pub(crate) fn claim(&mut self, units: u32, priority: RecordClass) -> Result<Claim, RingFull> {
        let geometry = self.memory.geometry();
        match self.sharing {
            RingKind::Lane => {
                let (start, end) = Self::place(&geometry, self.lap.units, self.tail, units);
                if !self.has_room(&geometry, end, priority) {
                    return Err(RingFull);
                }
                self.count_rounds(&geometry, end);
                let slot = std::mem::replace(&mut self.tail, end).slot;
                Ok(Claim { slot, start, units })
            }
            RingKind::Mailbox => loop {
                let word = self.memory.tail().load(Ordering::Relaxed);
                let tail = RingPosition::from_word(word);
                let (start, end) = Self::place(&geometry, geometry.units, tail, units);
                if !self.has_room(&geometry, end, priority) {
                    // `fits` may have compared an old tail with a newer head; only an unchanged
                    // tail proves fullness.
                    if self.memory.tail().load(Ordering::Relaxed) == word {
                        return Err(RingFull);
                    }
                    continue;
                }
                self.memory
                    .intent(self.me)
                    .store(end.to_word(), Ordering::Relaxed);
                // Release: whoever sees this tail sees the intent. SYNC(ring-intent).
                if self
                    .memory
                    .tail()
                    .compare_exchange_weak(
                        word,
                        end.to_word(),
                        Ordering::Release,
                        Ordering::Relaxed,
                    )
                    .is_ok()
                {
                    self.last = end.slot;
                    return Ok(Claim {
                        slot: tail.slot,
                        start,
                        units,
                    });
                }
            },
        }
    }

    /// A lane's next position is this.
    #[inline(always)]
    fn count_rounds(&mut self, geometry: &RingGeometry, end: RingPosition) {
        if (end.unit ^ self.tail.unit) & !(geometry.units - 1) != 0 {
            self.lap.again();
        }
    }

    /// Claims the next slot of a lane for a record without payload in the area. `None`: this is a
    /// mailbox, or has no room at first glance, about which [`RingWriter::claim`] knows more.
    #[inline(always)]
    pub(crate) fn claim_slot(&mut self) -> Option<Claim> {
        let slot = self.tail.slot;
        // Control records may be beyond it: the difference is what counts, not equality.
        if self.data_end.wrapping_sub(slot) as i32 <= 0 {
            return None;
        }
        self.tail.slot = slot.wrapping_add(1);
        Some(Claim {
            slot,
            start: self.tail.unit,
            units: 0,
        })
    }

    /// The tail of a lane, and how many data slots from there on are free as far as the head tells
    /// and lie in a row, which ends before the last position that a stamp can count.
    pub(crate) fn row(&mut self) -> (u32, u32) {
        // Acquire: room that the reader gave back may be written. SYNC(ring-head).
        self.head = RingPosition::from_word(self.memory.head().load(Ordering::Acquire));
        self.set_data_end();
        let tail = self.tail.slot;
        let free = self.data_end.wrapping_sub(tail) as i32;
        let slots = self.memory.geometry().slots;
        let row = (slots - (tail & (slots - 1))).min(u32::MAX - tail);
        (tail, row.min(free.max(0) as u32))
    }

    /// Goes on behind `slots` slots of a row that were filled and published by others.
    pub(crate) fn filled(&mut self, slots: u32) {
        self.tail.slot = self.tail.slot.wrapping_add(slots);
    }

    /// Returns whether this is a lane whose next `records` claims of `units` each will succeed.
    pub(crate) fn has_space(&mut self, records: u32, units: u32) -> bool {
        let geometry = self.memory.geometry();
        if self.sharing != RingKind::Lane || records > geometry.slots {
            return false;
        }
        let mut end = self.tail;
        for _ in 0..records {
            end = Self::place(&geometry, self.lap.units, end, units).1;
        }
        self.has_room(&geometry, end, RecordClass::Data)
    }

    /// Publishes a claimed record: the slot's header words and, through the claim, where its
    /// payload lies, which these stores wrote.
    #[inline(always)]
    pub(crate) fn publish(&mut self, claim: Claim, header: [u64; PLACE_WORD], stores: StoreKind) {
        let place =
            (claim.units > 0).then(|| u64::from(claim.start) | u64::from(claim.units) << 32);
        self.memory.put(self.memory.at(claim.slot), header, place);
        let flags = match (place, stores) {
            (None, _) => 0,
            (Some(_), StoreKind::Cached) => AREA,
            (Some(_), StoreKind::Streamed) => AREA | STREAMED,
        };
        self.stamp(claim, flags);
    }

    /// Publishes a claimed record as one that carries nothing.
    pub(crate) fn publish_void(&mut self, claim: Claim) {
        self.memory.put(
            self.memory.at(claim.slot),
            [0; PLACE_WORD],
            Some(u64::from(claim.start) | u64::from(claim.units) << 32),
        );
        self.stamp(claim, VOID | AREA);
    }

    #[inline(always)]
    fn stamp(&self, claim: Claim, flags: u64) {
        let word = self.stamp_word(claim, flags);
        // Release: header and payload are seen by whoever sees the stamp. SYNC(ring-stamp).
        self.memory
            .stamp(self.memory.at(claim.slot))
            .store(word, Ordering::Release);
    }

    /// Returns what the stamp of a published record says.
    #[inline(always)]
    pub(crate) fn stamp_word(&self, claim: Claim, flags: u64) -> u64 {
        u64::from(claim.slot.wrapping_add(1)) | u64::from(self.me) << 32 | flags
    }

    /// The position behind this writer's last claim: when the reader is there, it has taken all
    /// this writer sent.
    pub(crate) fn last(&self) -> u32 {
        match self.sharing {
            RingKind::Lane => self.tail.slot,
            RingKind::Mailbox => self.last,
        }
    }
}

#[cfg(all(test, loom))]
#[path = "ring_loom.rs"]
pub(crate) mod loom_tests;
