//! What lies where in an inbox: pure arithmetic, the same in every process of a job.
//!
//! `docs/reference/shared-memory.md` says the same in words, clauses S1 to S10. All of an inbox is
//! zero at first, and zero is a valid state of every word, so peers may write before the owner has
//! started. All inboxes of a node are alike, and their length says how long their lanes are.
//! Bounded by [`inbox_bytes`].

use garonne_sync::mailbox::{CONTROL_BYTES, RANK_BLOCK_BYTES, RingGeometry, RingLayout, UNIT};
use garonne_transport::limits::{
    LANE_SLOTS, LANE_UNITS, LANES, LANES_UNITS, MAILBOX_SLOTS, MAILBOX_UNITS, REGIONS,
    RESERVED_SLOTS_DIVISOR, RESERVED_UNITS_PER_SLOT,
};

const PAGE: usize = 4096;
/// Address of a word in the owner's memory, and its value: peers probe with it. Address 0: the
/// owner has not started.
pub(crate) const PROBE_ADDR: usize = 8;
/// Value that a peer must find at [`PROBE_ADDR`]'s address.
pub(crate) const PROBE_VALUE: usize = 16;
/// Not 0: a writer has no way to here and says so on its card.
pub(crate) const UNREACHED: usize = 24;
/// Not 0: the owner looks for messages just now, so what needs its hands is done at once.
pub(crate) const LOOKING: usize = 64;
/// Control blocks: the mailbox's, then the lanes'.
const CONTROLS: usize = 128;
/// The region table follows the control blocks.
pub(crate) const REGION_TABLE: usize = 2048;
/// Bytes of an entry of the region table; the first eight are its state.
pub(crate) const REGION_BYTES: usize = 64;
/// Writers' cards follow the region table.
const RANK_BLOCKS: usize = REGION_TABLE + REGIONS * REGION_BYTES;

/// Words of a writer's card after its intent word.
pub(crate) mod card {
    /// Written by the reader: lane granted to the writer, plus one; 0: none.
    pub(crate) const GRANT: usize = 8;
    /// Written by the writer: lane it uses, plus one.
    pub(crate) const HELD: usize = 12;
    /// Written by the writer before it first uses a lane: the mailbox's position behind its last
    /// record there.
    pub(crate) const SWITCH: usize = 16;
    /// Written by the reader: what its copies of the writer's payloads took, two numbers of 32
    /// bits; see `store_policy`.
    pub(crate) const READS: usize = 24;
    /// Written by the writer, without a mapping: why it has none of this inbox (errno); 0: it said
    /// nothing.
    pub(crate) const REFUSED: usize = 32;
}

const fn geometry(slots: u32, units: u32) -> RingGeometry {
    let reserved_slots = slots / RESERVED_SLOTS_DIVISOR;
    RingGeometry {
        slots,
        units,
        reserved_slots,
        reserved_units: reserved_slots * RESERVED_UNITS_PER_SLOT,
    }
}

const fn ring_bytes(geometry: &RingGeometry) -> usize {
    (geometry.slots as usize + geometry.units as usize) * UNIT
}

/// The mailbox's sizes.
pub(crate) const MAILBOX: RingGeometry = geometry(MAILBOX_SLOTS, MAILBOX_UNITS);

const _: () = assert!(
    LANE_UNITS.is_power_of_two() && LANES_UNITS.is_power_of_two() && LANE_UNITS < LANES_UNITS
);

fn rings(ranks: u32) -> usize {
    (RANK_BLOCKS + ranks as usize * RANK_BLOCK_BYTES).next_multiple_of(PAGE)
}

/// Payload units of a lane where so many ranks share a node: each may write to all others.
fn lane_units(ranks: u32) -> u32 {
    let writers = ranks.saturating_sub(1).max(1);
    // The power of two below.
    let fair = 1 << (LANES_UNITS / writers).max(1).ilog2();
    LANE_UNITS.max(fair)
}

fn bytes(ranks: u32, lane_units: u32) -> usize {
    rings(ranks) + ring_bytes(&MAILBOX) + LANES * ring_bytes(&geometry(LANE_SLOTS, lane_units))
}

/// Bytes of each inbox of a node with so many ranks, whatever the number of ranks in the job.
pub fn inbox_bytes(ranks: u32) -> usize {
    bytes(ranks.max(1), lane_units(ranks))
}

/// Returns where the card of the writer with this local number lies.
pub(crate) fn card_at(writer: u16) -> usize {
    RANK_BLOCKS + usize::from(writer) * RANK_BLOCK_BYTES
}

/// Offsets of the parts of each inbox of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InboxLayout {
    ranks: u32,
    lane: RingGeometry,
}

impl InboxLayout {
    /// Returns the layout of inboxes of `len` bytes on a node of `ranks`: with the longest lanes
    /// that fit. `None`: too short for any.
    pub(crate) fn of(len: usize, ranks: u32) -> Option<Self> {
        let units = (LANE_UNITS.ilog2()..=LANES_UNITS.ilog2()).rev();
        let units = units
            .map(|log2| 1 << log2)
            .find(|units| bytes(ranks, *units) <= len)?;
        Some(Self {
            ranks,
            lane: geometry(LANE_SLOTS, units),
        })
    }

    /// Returns where the mailbox lies.
    pub(crate) fn mailbox(&self) -> RingLayout {
        place(self.ranks, CONTROLS, rings(self.ranks), MAILBOX)
    }

    /// Returns where a lane lies.
    pub(crate) fn lane(&self, lane: usize) -> RingLayout {
        let ring = rings(self.ranks) + ring_bytes(&MAILBOX) + lane * ring_bytes(&self.lane);
        place(
            self.ranks,
            CONTROLS + (lane + 1) * CONTROL_BYTES,
            ring,
            self.lane,
        )
    }
}

fn place(ranks: u32, control: usize, ring: usize, geometry: RingGeometry) -> RingLayout {
    RingLayout {
        control,
        slots: ring,
        area: ring + geometry.slots as usize * UNIT,
        cards: RANK_BLOCKS,
        writers: ranks as u16,
        geometry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_transport::limits::LOCAL_RANKS_MAX;

    #[test]
    fn the_parts_of_an_inbox_do_not_overlap() {
        const { assert!(CONTROLS + (LANES + 1) * CONTROL_BYTES <= REGION_TABLE) };
        for ranks in [1, 2, 20, 64, 1000, LOCAL_RANKS_MAX] {
            let len = inbox_bytes(ranks);
            let layout = InboxLayout::of(len, ranks).unwrap();
            assert!(card_at(ranks as u16 - 1) + RANK_BLOCK_BYTES <= layout.mailbox().slots);
            let mut end = 0;
            for place in std::iter::once(layout.mailbox()).chain((0..LANES).map(|n| layout.lane(n)))
            {
                assert!(
                    place.slots >= end
                        && place.area == place.slots + place.geometry.slots as usize * UNIT
                );
                end = place.area + place.geometry.units as usize * UNIT;
            }
            assert_eq!(end, len);
        }
    }

    #[test]
    fn lanes_are_the_longer_the_fewer_ranks_of_the_node_may_have_one() {
        let units = |ranks| {
            let layout = InboxLayout::of(inbox_bytes(ranks), ranks).unwrap();
            layout.lane(0).geometry.units
        };
        assert_eq!([1, 2].map(units), [LANES_UNITS; 2]);
        assert_eq!(units(3), LANES_UNITS / 2);
        assert_eq!([4, 5, 64, 1000].map(units), [LANE_UNITS; 4]);
        assert_eq!(inbox_bytes(0), inbox_bytes(1));
    }

    #[test]
    fn an_inbox_for_sixty_four_ranks_stays_below_three_megabytes_of_addresses() {
        assert!(inbox_bytes(64) < 3 << 20);
    }

    #[test]
    fn what_is_too_short_for_the_shortest_lanes_is_no_inbox() {
        assert_eq!(InboxLayout::of(bytes(64, LANE_UNITS) - 1, 64), None);
        assert_eq!(InboxLayout::of(0, 1), None);
    }
}
