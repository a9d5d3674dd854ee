//! What lies where in an inbox: pure arithmetic, the same in every process of a job.
//!
//! `docs/formats.md` says the same in words, clauses S1 to S10. All of an inbox is zero at first, and zero is a valid state
//! of every word, so peers may write before the owner has started. Bounded by [`inbox_bytes`].

use crate::limits::{
    LANE_SLOTS, LANE_UNITS, LANES, MAILBOX_SLOTS, MAILBOX_UNITS, REGIONS, RESERVED_SLOTS_DIVISOR,
    RESERVED_UNITS_PER_SLOT,
};
use garonne_sync::mailbox::{CARD_BYTES, CONTROL_BYTES, Geometry, Place, UNIT};

const PAGE: usize = 4096;
/// Address of a word in the owner's memory, and its value: peers probe with it. Address 0: the owner has not started.
pub(crate) const PROBE_ADDR: usize = 8;
/// See [`PROBE_ADDR`].
pub(crate) const PROBE_VALUE: usize = 16;
/// Not 0: the owner looks for messages just now, so what needs its hands is done at once.
pub(crate) const LOOKING: usize = 64;
/// Control blocks: the mailbox's, then the lanes'.
const CONTROLS: usize = 128;
/// The region table follows the control blocks.
pub(crate) const REGION_TABLE: usize = 2048;
/// Bytes of an entry of the region table; the first eight are its state.
pub(crate) const REGION_BYTES: usize = 64;
/// Writers' cards follow the region table.
const CARDS: usize = REGION_TABLE + REGIONS * REGION_BYTES;

/// Words of a writer's card after its intent word.
pub(crate) mod card {
    /// Written by the reader: lane granted to the writer, plus one; 0: none.
    pub(crate) const GRANT: usize = 8;
    /// Written by the writer: lane it uses, plus one.
    pub(crate) const HELD: usize = 12;
    /// Written by the writer before it first uses a lane: the mailbox's position behind its last record there.
    pub(crate) const SWITCH: usize = 16;
    /// Written by the reader: what its copies of the writer's payloads took, two numbers of 32 bits; see `stores`.
    pub(crate) const READS: usize = 24;
}

const fn geometry(slots: u32, units: u32) -> Geometry {
    let reserved_slots = slots / RESERVED_SLOTS_DIVISOR;
    Geometry {
        slots,
        units,
        reserved_slots,
        reserved_units: reserved_slots * RESERVED_UNITS_PER_SLOT,
    }
}

const fn ring_bytes(geometry: &Geometry) -> usize {
    (geometry.slots as usize + geometry.units as usize) * UNIT
}

/// The mailbox's sizes.
pub(crate) const MAILBOX: Geometry = geometry(MAILBOX_SLOTS, MAILBOX_UNITS);
/// A lane's sizes.
pub(crate) const LANE: Geometry = geometry(LANE_SLOTS, LANE_UNITS);

fn rings(ranks: u32) -> usize {
    (CARDS + ranks as usize * CARD_BYTES).next_multiple_of(PAGE)
}

/// Bytes of one rank's inbox in a node of `ranks`.
pub fn inbox_bytes(ranks: u32) -> usize {
    rings(ranks) + ring_bytes(&MAILBOX) + LANES * ring_bytes(&LANE)
}

/// Where `writer`'s card lies.
pub(crate) fn card_at(writer: u16) -> usize {
    CARDS + usize::from(writer) * CARD_BYTES
}

/// Where the mailbox lies.
pub(crate) fn mailbox(ranks: u32) -> Place {
    place(ranks, CONTROLS, rings(ranks), MAILBOX)
}

/// Where a lane lies.
pub(crate) fn lane(ranks: u32, lane: usize) -> Place {
    let ring = rings(ranks) + ring_bytes(&MAILBOX) + lane * ring_bytes(&LANE);
    place(ranks, CONTROLS + (lane + 1) * CONTROL_BYTES, ring, LANE)
}

fn place(ranks: u32, control: usize, ring: usize, geometry: Geometry) -> Place {
    Place {
        control,
        slots: ring,
        area: ring + geometry.slots as usize * UNIT,
        cards: CARDS,
        writers: ranks as u16,
        geometry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_an_inbox_do_not_overlap() {
        const { assert!(CONTROLS + (LANES + 1) * CONTROL_BYTES <= REGION_TABLE) };
        for ranks in [1, 2, 64, 1000] {
            assert!(card_at(ranks as u16 - 1) + CARD_BYTES <= mailbox(ranks).slots);
            let mut end = 0;
            for place in std::iter::once(mailbox(ranks)).chain((0..LANES).map(|n| lane(ranks, n))) {
                assert!(
                    place.slots >= end && place.area == place.slots + place.geometry.slots as usize * UNIT
                );
                end = place.area + place.geometry.units as usize * UNIT;
            }
            assert_eq!(end, inbox_bytes(ranks));
        }
    }

    #[test]
    fn an_inbox_for_sixty_four_ranks_stays_below_three_megabytes_of_addresses() {
        assert!(inbox_bytes(64) < 3 << 20);
    }
}
