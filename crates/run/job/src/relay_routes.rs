//! Relay routes of a job: which host passes on the connections of ranks that do not reach each
//! other, as a table in the memory that the ranks of a node share.
//!
//! The node's agent adds to it, ranks and tools read it at any time: the number of entries that
//! there have been is stored behind them, and the newest take the places of the oldest. So a way
//! that is told late is known however many were told before. Bounded by [`WAYS_MAX`], as is what
//! the agent itself knows ([`RelayRoutes`]), which it shows to worlds that begin.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;

use garonne_sync::shm::Segment;

use crate::agent_messages::RelayRoute;
use crate::layout;
use crate::limits::WAYS_MAX;

/// Bytes of an entry: where it leads, through which node, at which port.
const ENTRY: usize = 12;
/// Places of the table: one is being written.
const PLACES: u32 = WAYS_MAX as u32 + 1;
// It stands before the addresses that hosts have got.
const _: () = assert!(layout::WAYS + BYTES <= layout::ADDED);

/// Bytes of the table: the number of entries that there have been, and its places.
pub const BYTES: usize = 4 + PLACES as usize * ENTRY;

/// Relay routes that were announced last, each once, the newest at the end.
#[derive(Debug, Default)]
pub struct RelayRoutes(Vec<RelayRoute>);

impl RelayRoutes {
    /// Adds a route; the oldest goes if there are too many. Returns whether it is new: the last
    /// route to a node is there already.
    pub fn tell(&mut self, way: RelayRoute) -> bool {
        if self.0.iter().rfind(|known| known.to == way.to) == Some(&way) {
            return false;
        }
        self.0.retain(|known| *known != way);
        if self.0.len() >= WAYS_MAX {
            self.0.remove(0);
        }
        self.0.push(way);
        true
    }

    /// Has a board show them, of which that shows all but the newest, or none. Only the node's
    /// agent does. Ways that are told again and again, in turn, fill the table, too: then all are
    /// added anew.
    pub fn show(&self, world_memory: &Segment) {
        if let Some(newest) = self.0.last() {
            add(world_memory, *newest);
        }
        if read(world_memory).len() < self.0.len() {
            self.0.iter().for_each(|way| add(world_memory, *way));
        }
    }
}

/// Returns how many entries there have been.
fn entries(world_memory: &Segment) -> &AtomicU32 {
    world_memory.atomic_u32(layout::WAYS)
}

fn entry(world_memory: &Segment, number: u32) -> [&AtomicU32; 3] {
    let at = layout::WAYS + 4 + (number % PLACES) as usize * ENTRY;
    [0, 4, 8].map(|word| world_memory.atomic_u32(at + word))
}

/// Reads the table, in the order of [`RelayRoutes`].
pub fn read(world_memory: &Segment) -> Vec<RelayRoute> {
    // SYNC(ways): the entries before the number were stored before it.
    let last = entries(world_memory).load(Acquire);
    let first = last.saturating_sub(WAYS_MAX as u32);
    let mut ways: Vec<(u32, RelayRoute)> = (first..last)
        .map(|number| {
            let [to, via, port] = entry(world_memory, number).map(|word| word.load(Relaxed));
            let port = port as u16;
            (number, RelayRoute { to, via, port })
        })
        .collect();
    // SYNC(ways again): who has seen a word of a newer entry sees that all those before it were
    // told.
    fence(Acquire);
    let last = entries(world_memory).load(Relaxed);
    ways.retain(|(number, _)| last.saturating_sub(*number) <= WAYS_MAX as u32);
    let mut known = RelayRoutes::default();
    for (_, way) in ways {
        known.tell(way);
    }
    known.0
}

/// Adds a way.
fn add(world_memory: &Segment, way: RelayRoute) {
    let number = entries(world_memory).load(Relaxed);
    // SYNC(ways again): the entry that had this place is not read any more by who sees a word of
    // this one.
    fence(Release);
    for (word, value) in
        entry(world_memory, number)
            .into_iter()
            .zip([way.to, way.via, way.port.into()])
    {
        word.store(value, Relaxed);
    }
    // SYNC(ways)
    entries(world_memory).store(number.saturating_add(1), Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn way(number: u32) -> RelayRoute {
        RelayRoute {
            to: number,
            via: number.wrapping_mul(7),
            port: number as u16,
        }
    }

    #[test]
    fn those_told_last_are_known_however_many_were_told_before() {
        let world_memory = Segment::anonymous(layout::HEADER_BYTES).unwrap();
        let most = WAYS_MAX as u32;
        for number in 0..3 * most {
            add(&world_memory, way(number));
            let known: Vec<RelayRoute> = ((number + 1).saturating_sub(most)..=number)
                .map(way)
                .collect();
            assert_eq!(read(&world_memory), known);
        }
    }

    #[test]
    fn a_way_that_is_told_again_is_known_once_and_as_the_newest_to_its_node() {
        let world_memory = Segment::anonymous(layout::HEADER_BYTES).unwrap();
        let by = |via| RelayRoute { via, ..way(9) };
        for via in [1, 2, 3, 1] {
            add(&world_memory, by(via));
        }
        assert_eq!(read(&world_memory), [2, 3, 1].map(by));
        entries(&world_memory).store(u32::MAX, Relaxed);
        assert!(read(&world_memory).len() <= WAYS_MAX);
    }

    #[test]
    fn the_agent_and_ranks_of_all_worlds_know_the_same_ways() {
        let boards = [(); 2].map(|()| Segment::anonymous(layout::HEADER_BYTES).unwrap());
        let mut told = RelayRoutes::default();
        let by = |via| RelayRoute { via, ..way(9) };
        // Two take turns for long.
        let turns = (0..WAYS_MAX as u32).map(|turn| by(turn % 2));
        let all = (0..2 * WAYS_MAX as u32).map(way).chain(turns);
        for way in all {
            if told.tell(way) {
                // One world is there from the beginning, and the other begins late.
                told.show(&boards[0]);
            }
        }
        told.show(&boards[1]);
        assert_eq!(told.0.len(), WAYS_MAX);
        for known in boards.iter().map(read) {
            assert!(known.len() == WAYS_MAX && told.0.iter().all(|way| known.contains(way)));
            assert_eq!(known.iter().rfind(|way| way.to == 9), Some(&by(1)));
        }
    }

    #[test]
    fn a_way_that_is_told_late_is_known_however_many_were_told_before() {
        let by = |to: u32, via| RelayRoute { to, via, port: 1 };
        let mut ways = RelayRoutes::default();
        assert!(ways.tell(by(9, 2)) && !ways.tell(by(9, 2)));
        assert!(ways.tell(by(9, 3)) && ways.tell(by(9, 2)));
        assert_eq!(ways.0, [by(9, 3), by(9, 2)]);
        for to in 10..10 + 2 * WAYS_MAX as u32 {
            assert!(ways.tell(by(to, 2)));
        }
        assert_eq!(ways.0.len(), WAYS_MAX);
        assert_eq!(ways.0.last(), Some(&by(9 + 2 * WAYS_MAX as u32, 2)));
        assert!(!ways.0.contains(&by(9, 2)));
    }

    #[test]
    fn nobody_reads_half_of_a_way_that_takes_the_place_of_another() {
        let world_memory = Segment::anonymous(layout::HEADER_BYTES).unwrap();
        let begin = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begin.wait();
                (0..200_000).for_each(|number| add(&world_memory, way(number)));
            });
            begin.wait();
            let mut seen = 0;
            while seen + 1 < 200_000 {
                let known = read(&world_memory);
                assert!(known.windows(2).all(|two| two[1].to == two[0].to + 1));
                assert!(known.iter().all(|known| *known == way(known.to)));
                seen = known.last().map_or(seen, |last| last.to);
            }
        });
    }
}
