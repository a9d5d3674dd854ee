//! The memory of a ring: pointers into a shared segment, checked once, and the words and payload
//! spaces that they lead to.
//!
//! Part of `mailbox`. What a peer may write meanwhile is only loaded and stored. No reference is
//! formed to it, except to words that are atomic.

use crate::facade::{AtomicU32, AtomicU64};
use crate::ring::{Claim, INLINE_MAX, PLACE_WORD, RingGeometry, RingMemory, UNIT};
use crate::shm;
use crate::slot_batch::ContiguousSlots;
use crate::user::UserMem;
use std::io::{Error, ErrorKind, Result};

/// Bytes of a ring's control block: head, tail and starved words, 128 bytes apart.
pub const CONTROL_BYTES: usize = 384;
const TAIL: usize = 128;
const STARVED: usize = 256;
/// Bytes between two writers' cards, which begin with the intent word.
pub const RANK_BLOCK_BYTES: usize = 64;

/// Place where a ring lies in its segment, as offsets in bytes, each a multiple of 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLayout {
    /// Control block.
    pub control: usize,
    /// Slots.
    pub slots: usize,
    /// Payload area.
    pub area: usize,
    /// Writers' cards.
    pub cards: usize,
    /// Number of cards.
    pub writers: u16,
    /// Sizes.
    pub geometry: RingGeometry,
}

#[derive(Debug)]
pub(super) struct RingSegment {
    slots: *mut u8,
    control: *mut u8,
    pub(super) area: *mut u8,
    cards: *mut u8,
    writers: u16,
    geometry: RingGeometry,
    /// What the pointers lead into.
    pub(super) mapping: shm::Segment,
}

// SAFETY: the pointers lead into the mapping that `mapping` holds, which is not bound to a thread.
unsafe impl Send for RingSegment {}
// SAFETY: as above; access is by atomics and by copies that the ring's protocol orders.
unsafe impl Sync for RingSegment {}

impl RingSegment {
    pub(super) fn new(shm: &shm::Segment, place: RingLayout) -> Result<Self> {
        let RingGeometry {
            slots,
            units,
            reserved_slots,
            reserved_units,
        } = place.geometry;
        let sane = slots.is_power_of_two()
            && units.is_power_of_two()
            && slots <= 1 << 20
            && units <= 1 << 24
            && reserved_slots < slots
            && reserved_units < units
            && (shm.ptr(0, 0) as usize).is_multiple_of(UNIT)
            && [place.control, place.slots, place.area, place.cards]
                .iter()
                .all(|at| at % UNIT == 0);
        if !sane {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a ring of impossible shape",
            ));
        }
        let at = |offset: usize, len: usize| match offset.checked_add(len) {
            Some(end) if end <= shm.len() => Ok(shm.ptr(offset, len)),
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                "the ring reaches beyond its segment",
            )),
        };
        Ok(Self {
            slots: at(place.slots, slots as usize * UNIT)?,
            control: at(place.control, CONTROL_BYTES)?,
            area: at(place.area, units as usize * UNIT)?,
            cards: at(place.cards, usize::from(place.writers) * RANK_BLOCK_BYTES)?,
            writers: place.writers,
            geometry: place.geometry,
            mapping: shm.clone(),
        })
    }

    #[inline(always)]
    pub(super) fn slot(&self, slot: u32) -> *mut u8 {
        // Masked again, so that no caller's mistake leaves the segment.
        self.slots
            .wrapping_add((slot & (self.geometry.slots - 1)) as usize * UNIT)
    }

    /// Returns where the payload of a slot begins that shares it with the header.
    #[inline(always)]
    pub(super) fn inline_room(at: SlotAddress) -> UserMem {
        // SAFETY: the end of a slot of the ring, which the transport keeps while the room is out.
        unsafe { UserMem::new(at.0.wrapping_add(8 + PLACE_WORD * 8)) }
    }

    #[inline(always)]
    fn word(&self, at: *mut u8) -> &AtomicU64 {
        // SAFETY: `at` is one of the aligned words that `new` checked to lie in the mapping, alive
        // with `self`.
        unsafe { &*at.cast::<AtomicU64>() }
    }

    /// The payload place `[unit, unit + units)`, or the inline payload of a slot.
    #[inline(always)]
    pub(super) fn room(&self, claim: Claim) -> (UserMem, usize) {
        let (at, len) = if claim.units > 0 {
            let unit = claim.start & (self.geometry.units - 1);
            (
                self.area.wrapping_add(unit as usize * UNIT),
                claim.units.min(self.geometry.units - unit) as usize * UNIT,
            )
        } else {
            (
                self.slot(claim.slot).wrapping_add(8 + PLACE_WORD * 8),
                INLINE_MAX,
            )
        };
        // SAFETY: within the mapping by the masks above; the transport keeps the ring while the
        // room is out.
        (unsafe { UserMem::new(at) }, len)
    }
}

/// The address of a slot. Made by [`RingSegment::at`] and [`RingSegment::behind`] only, so it lies
/// in the mapping, and aligned.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotAddress(*mut u8);

// SAFETY: it is used as the segment is, which keeps the mapping and is not bound to a thread.
unsafe impl Send for SlotAddress {}
// SAFETY: as above.
unsafe impl Sync for SlotAddress {}

impl ContiguousSlots for RingSegment {
    #[inline(always)]
    fn address(&self, slot: u32) -> *mut u8 {
        self.slot(slot)
    }
    #[inline(always)]
    fn behind(at: SlotAddress) -> SlotAddress {
        SlotAddress(at.0.wrapping_add(UNIT))
    }
}

/// Loads the header's words of a slot.
#[inline(always)]
pub(super) fn header_at(at: SlotAddress) -> [u64; PLACE_WORD] {
    let words = at.0.wrapping_add(8).cast::<u64>();
    // SAFETY: in bounds and aligned; volatile because a mad peer may write meanwhile.
    std::array::from_fn(|i| unsafe { words.add(i).read_volatile() })
}

/// Stores the words of a slot after its stamp.
#[inline(always)]
pub(super) fn put_at(at: SlotAddress, header: [u64; PLACE_WORD], place: Option<u64>) {
    let words = at.0.wrapping_add(8).cast::<u64>();
    // SAFETY: the claimed slot is this writer's alone until its stamp; the words lie in the slot,
    // aligned.
    unsafe {
        for (i, word) in header.into_iter().enumerate() {
            words.add(i).write_volatile(word);
        }
        if let Some(place) = place {
            words.add(PLACE_WORD).write_volatile(place);
        }
    }
}

impl RingMemory for RingSegment {
    type At = SlotAddress;

    #[inline(always)]
    fn at(&self, slot: u32) -> SlotAddress {
        SlotAddress(self.slot(slot))
    }
    #[inline(always)]
    fn geometry(&self) -> RingGeometry {
        self.geometry
    }
    #[inline(always)]
    fn head(&self) -> &AtomicU64 {
        self.word(self.control)
    }
    #[inline(always)]
    fn tail(&self) -> &AtomicU64 {
        self.word(self.control.wrapping_add(TAIL))
    }
    #[inline(always)]
    fn starved(&self) -> &AtomicU32 {
        // SAFETY: as in `word`.
        unsafe { &*self.control.wrapping_add(STARVED).cast::<AtomicU32>() }
    }
    #[inline(always)]
    fn stamp(&self, at: SlotAddress) -> &AtomicU64 {
        self.word(at.0)
    }
    #[inline(always)]
    fn intent(&self, writer: u16) -> &AtomicU64 {
        assert!(writer < self.writers, "a writer without a card");
        self.word(
            self.cards
                .wrapping_add(usize::from(writer) * RANK_BLOCK_BYTES),
        )
    }
    fn writers(&self) -> u16 {
        self.writers
    }
    #[inline(always)]
    fn put(&self, at: SlotAddress, header: [u64; PLACE_WORD], place: Option<u64>) {
        put_at(at, header, place);
    }
    #[inline(always)]
    fn get(&self, at: SlotAddress) -> [u64; PLACE_WORD + 1] {
        let words = at.0.wrapping_add(8).cast::<u64>();
        // SAFETY: in bounds and aligned; volatile because a mad peer may write meanwhile.
        std::array::from_fn(|i| unsafe { words.add(i).read_volatile() })
    }
}
