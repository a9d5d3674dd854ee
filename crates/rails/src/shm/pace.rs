//! How fast messages of each length come from each peer by each way of fetching them: measured on what passes anyway.
//!
//! Owned by the rail; decides for the receiving side how the next announced message is fetched. The two virtual cores of
//! a pair may be near or far from each other and change that while a job runs, and which way is best also depends on where
//! the data lies (just written by its sender, or long in both caches): so all ways stay known, each is tried at first and
//! again now and then. What is measured is the whole fetch, from the decision to the last byte. Bounded by the classes.

use crate::limits::{PACE_CLASSES, PACE_FROM_LOG2, PACE_LEARN_EVERY, PACE_RETRY_EVERY, PACE_SURE, SHARE_MIN};
use garonne_engine::rail::Fetch;
use std::time::Duration;

/// The ways, in the order of their columns.
pub const WAYS: [Fetch; 4] = [Fetch::Read, Fetch::Push, Fetch::Share, Fetch::Packets];

fn column(way: Fetch) -> usize {
    WAYS.iter().position(|other| *other == way).unwrap_or(0)
}

/// The class of a length.
pub fn class(len: u64) -> usize {
    (len.max(1).ilog2().saturating_sub(PACE_FROM_LOG2) as usize).min(PACE_CLASSES - 1)
}

/// The shortest length of a class.
pub fn class_len(class: usize) -> u64 {
    1 << (PACE_FROM_LOG2 as usize + class)
}

/// One way in one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    /// Picoseconds per byte; 0: nothing known.
    pace: u32,
    /// Measurements behind it, as far as they are counted; 0 with a pace: the cost model's.
    seen: u8,
}

/// Paces from one peer.
#[derive(Clone, Debug)]
pub struct Pace {
    cells: [[Cell; WAYS.len()]; PACE_CLASSES],
    turns: [u32; PACE_CLASSES],
    /// Ways that turned out to be impossible.
    barred: [bool; WAYS.len()],
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            cells: Default::default(),
            turns: [0; PACE_CLASSES],
            barred: [false; WAYS.len()],
        }
    }
}

/// What is known of one class, for reports: nanoseconds per kilobyte by way, where known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// In the order of [`WAYS`].
    pub paces: [Option<f64>; WAYS.len()],
    /// What the next message uses, if it is nobody's turn to be tried.
    pub preferred: Fetch,
}

impl Pace {
    /// The cost model says this of messages of `len` bytes, in nanoseconds.
    pub fn seed(&mut self, way: Fetch, len: u64, ns: f64) {
        let pace = (ns * 1000.0 / len.max(1) as f64).clamp(1.0, f64::from(u32::MAX)) as u32;
        self.cells[class(len)][column(way)] = Cell { pace, seen: 0 };
    }

    /// A fetch of `len` bytes took so long.
    pub fn took(&mut self, way: Fetch, len: u64, took: Duration) {
        let class = class(len);
        let now = (took.as_nanos().saturating_mul(1000) / u128::from(len.max(1))).clamp(1, 1 << 31) as u64;
        let cell = &mut self.cells[class][column(way)];
        let old = u64::from(cell.pace);
        cell.pace = match cell.seen {
            0 => now,
            // The first ones touch pages and caches for the first time.
            1..PACE_SURE => now.min(old),
            // Quick ones count more: what slows one transfer down is a preemption as a rule, which says nothing of the way.
            _ if now <= old => (old + now).div_ceil(2),
            _ => old + (now - old).min(old).div_ceil(16),
        } as u32;
        cell.seen = cell.seen.saturating_add(1);
    }

    /// The way cannot be gone with this peer.
    pub fn bar(&mut self, way: Fetch) {
        self.barred[column(way)] = true;
    }

    /// The pace of a way in a class, or what the nearest shorter class with one says.
    fn guess(&self, class: usize, way: usize) -> u32 {
        let known = self.cells[..=class].iter().rev().map(|cells| cells[way].pace);
        known.into_iter().find(|pace| *pace > 0).unwrap_or(0)
    }

    fn open(&self, way: usize, len: u64) -> bool {
        !self.barred[way] && (WAYS[way] != Fetch::Share || len >= SHARE_MIN)
    }

    /// What is known to be best, among the ways that are `able`; packets if nothing is.
    pub fn preferred(&self, len: u64, able: impl Fn(Fetch) -> bool) -> Fetch {
        let class = class(len);
        let known = (0..WAYS.len())
            .filter(|way| self.open(*way, len) && able(WAYS[*way]))
            .map(|way| (self.guess(class, way), WAYS[way]))
            .filter(|(pace, _)| *pace > 0);
        known
            .min_by_key(|(pace, _)| *pace)
            .map_or(Fetch::Packets, |(_, way)| way)
    }

    /// How to fetch the next message, among the ways that are `able`.
    pub fn decide(&mut self, len: u64, able: impl Fn(Fetch) -> bool) -> Fetch {
        let class = class(len);
        self.turns[class] = self.turns[class].wrapping_add(1);
        let turn = self.turns[class];
        let ways = (0..WAYS.len()).filter(|way| self.open(*way, len) && able(WAYS[*way]));
        let unsure = ways
            .clone()
            .filter(|way| self.cells[class][*way].seen < PACE_SURE);
        // What nothing at all is known about is tried at once, the rest in its turn.
        if let Some(way) = unsure.clone().find(|way| {
            self.guess(class, *way) == 0 || (1..PACE_SURE).contains(&self.cells[class][*way].seen)
        }) {
            return WAYS[way];
        }
        if turn.is_multiple_of(PACE_LEARN_EVERY)
            && let Some(way) = unsure.min_by_key(|way| self.guess(class, *way))
        {
            return WAYS[way];
        }
        if turn.is_multiple_of(PACE_RETRY_EVERY) {
            let ways: Vec<usize> = ways.collect();
            let pick = (turn / PACE_RETRY_EVERY) as usize % ways.len().max(1);
            return ways.get(pick).map_or(Fetch::Packets, |way| WAYS[*way]);
        }
        self.preferred(len, able)
    }

    /// Index of a pace in the order of classes and ways, and the pace in picoseconds per byte.
    pub(crate) fn cell(&self, len: u64, way: Fetch) -> (usize, u32) {
        let (class, way) = (class(len), column(way));
        (class * WAYS.len() + way, self.cells[class][way].pace)
    }

    /// What is known of messages of `len` bytes, measured in their class.
    pub fn known(&self, len: u64) -> Known {
        let cells = &self.cells[class(len)];
        Known {
            paces: std::array::from_fn(|way| {
                (cells[way].pace > 0).then(|| f64::from(cells[way].pace) * 1.024)
            }),
            preferred: self.preferred(len, |_| true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 1 << 20;

    fn any(_: Fetch) -> bool {
        true
    }

    /// A pace that has seen each way often, in nanoseconds per message of `LEN`.
    fn seen(each: [u64; 4]) -> Pace {
        let mut pace = Pace::default();
        for _ in 0..4 {
            for (way, ns) in WAYS.iter().zip(each) {
                pace.took(*way, LEN, Duration::from_nanos(ns));
            }
        }
        pace
    }

    #[test]
    fn every_way_is_tried_some_times_before_one_is_preferred() {
        let mut pace = Pace::default();
        let mut tried = Vec::new();
        for _ in 0..WAYS.len() * usize::from(PACE_SURE) {
            let way = pace.decide(LEN, any);
            pace.took(way, LEN, Duration::from_micros(100));
            tried.push(way);
        }
        for way in WAYS {
            let count = tried.iter().filter(|other| **other == way).count();
            assert_eq!(count, usize::from(PACE_SURE), "{way:?}");
        }
    }

    #[test]
    fn ways_that_cannot_be_gone_are_not_tried() {
        let mut pace = Pace::default();
        pace.bar(Fetch::Push);
        for _ in 0..1000 {
            let way = pace.decide(LEN, |way| way != Fetch::Share);
            assert!(matches!(way, Fetch::Read | Fetch::Packets));
            pace.took(way, LEN, Duration::from_micros(100));
        }
        assert_eq!(pace.decide(LEN, |_| false), Fetch::Packets);
    }

    #[test]
    fn a_short_message_is_not_shared() {
        let mut pace = Pace::default();
        for _ in 0..100 {
            let way = pace.decide(SHARE_MIN - 1, any);
            assert_ne!(way, Fetch::Share);
            pace.took(way, SHARE_MIN - 1, Duration::from_micros(5));
        }
    }

    #[test]
    fn the_ways_not_preferred_are_tried_again_now_and_then() {
        let mut pace = seen([80_000, 90_000, 50_000, 400_000]);
        let turns = 12 * PACE_RETRY_EVERY as usize;
        let ways: Vec<_> = (0..turns).map(|_| pace.decide(LEN, any)).collect();
        let count = |way| ways.iter().filter(|other| **other == way).count();
        assert_eq!(
            [count(Fetch::Read), count(Fetch::Push), count(Fetch::Packets)],
            [3, 3, 3]
        );
    }

    #[test]
    fn one_slow_transfer_does_not_turn_a_clear_decision_but_many_do() {
        let mut pace = seen([80_000, 400_000, 400_000, 400_000]);
        pace.took(Fetch::Read, LEN, Duration::from_millis(100));
        assert_eq!(pace.preferred(LEN, any), Fetch::Read);
        for _ in 0..40 {
            pace.took(Fetch::Read, LEN, Duration::from_millis(1));
        }
        assert_ne!(pace.preferred(LEN, any), Fetch::Read);
    }

    #[test]
    fn a_length_never_seen_goes_by_what_shorter_ones_say_and_learns_in_its_turn() {
        let mut pace = seen([80_000, 90_000, 50_000, 400_000]);
        let ways: Vec<_> = (0..PACE_LEARN_EVERY)
            .map(|_| pace.decide(16 * LEN, any))
            .collect();
        assert!(
            ways[..PACE_LEARN_EVERY as usize - 1]
                .iter()
                .all(|way| *way == Fetch::Share)
        );
    }

    #[test]
    fn lengths_fall_into_classes_of_powers_of_two() {
        assert_eq!([class(0), class(4096), class(8191), class(8192)], [0, 0, 0, 1]);
        assert_eq!(class(u64::MAX), PACE_CLASSES - 1);
    }
}
