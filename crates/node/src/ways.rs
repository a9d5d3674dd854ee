//! Ways of a job's ranks through hosts between, as a table in the board of each node.
//!
//! The node's agent adds to it, ranks and tools read it at any time: the number of entries that there have been is stored behind them, and the newest take the places of the oldest. So a way that is told late is
//! known however many were told before. Bounded by [`WAYS_MAX`].

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;

use garonne_sync::shm::Segment;

use crate::layout;
use crate::limits::WAYS_MAX;
use crate::orders::Way;

/// Bytes of an entry: where it leads, through which node, at which port.
const ENTRY: usize = 12;
/// Places of the table: one is being written.
const PLACES: u32 = WAYS_MAX as u32 + 1;
// It stands before the addresses that hosts have got.
const _: () = assert!(layout::WAYS + BYTES <= layout::ADDED);

/// Bytes of the table: the number of entries that there have been, and its places.
pub const BYTES: usize = 4 + PLACES as usize * ENTRY;

fn told(board: &Segment) -> &AtomicU32 {
    board.atomic_u32(layout::WAYS)
}

fn entry(board: &Segment, number: u32) -> [&AtomicU32; 3] {
    let at = layout::WAYS + 4 + (number % PLACES) as usize * ENTRY;
    [0, 4, 8].map(|word| board.atomic_u32(at + word))
}

/// What is in the table now, each way once, those that were told last behind.
pub fn read(board: &Segment) -> Vec<Way> {
    // SYNC(ways): the entries before the number were stored before it.
    let last = told(board).load(Acquire);
    let first = last.saturating_sub(WAYS_MAX as u32);
    let mut ways: Vec<(u32, Way)> = (first..last)
        .map(|number| {
            let [to, via, port] = entry(board, number).map(|word| word.load(Relaxed));
            let port = port as u16;
            (number, Way { to, via, port })
        })
        .collect();
    // SYNC(ways again): who has seen a word of a newer entry sees that all those before it were told.
    fence(Acquire);
    let last = told(board).load(Relaxed);
    ways.retain(|(number, _)| last.saturating_sub(*number) <= WAYS_MAX as u32);
    let ways: Vec<Way> = ways.into_iter().map(|(_, way)| way).collect();
    let newest = |(at, way): &(usize, &Way)| !ways[at + 1..].contains(way);
    let newest = ways.iter().enumerate().filter(newest);
    newest.map(|(_, way)| *way).collect()
}

/// Adds a way. Only the node's agent does.
pub(crate) fn add(board: &Segment, way: Way) {
    let number = told(board).load(Relaxed);
    // SYNC(ways again): the entry that had this place is not read any more by who sees a word of this one.
    fence(Release);
    for (word, value) in entry(board, number)
        .into_iter()
        .zip([way.to, way.via, way.port.into()])
    {
        word.store(value, Relaxed);
    }
    // SYNC(ways)
    told(board).store(number.saturating_add(1), Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn way(number: u32) -> Way {
        Way {
            to: number,
            via: number.wrapping_mul(7),
            port: number as u16,
        }
    }

    #[test]
    fn those_told_last_are_known_however_many_were_told_before() {
        let board = Segment::anonymous(layout::HEADER_BYTES).unwrap();
        let most = WAYS_MAX as u32;
        for number in 0..3 * most {
            add(&board, way(number));
            let known: Vec<Way> = ((number + 1).saturating_sub(most)..=number).map(way).collect();
            assert_eq!(read(&board), known);
        }
    }

    #[test]
    fn a_way_that_is_told_again_is_known_once_and_as_the_newest() {
        let board = Segment::anonymous(layout::HEADER_BYTES).unwrap();
        for number in [1, 2, 3, 1] {
            add(&board, way(number));
        }
        assert_eq!(read(&board), [2, 3, 1].map(way));
        told(&board).store(u32::MAX, Relaxed);
        assert!(read(&board).len() <= WAYS_MAX);
    }

    #[test]
    fn nobody_reads_half_of_a_way_that_takes_the_place_of_another() {
        let board = Segment::anonymous(layout::HEADER_BYTES).unwrap();
        let begin = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begin.wait();
                (0..200_000).for_each(|number| add(&board, way(number)));
            });
            begin.wait();
            let mut seen = 0;
            while seen + 1 < 200_000 {
                let known = read(&board);
                assert!(known.windows(2).all(|two| two[1].to == two[0].to + 1));
                assert!(known.iter().all(|known| *known == way(known.to)));
                seen = known.last().map_or(seen, |last| last.to);
            }
        });
    }
}
