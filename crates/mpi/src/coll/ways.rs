//! Which way the data of long collectives goes on a board: chosen by what earlier calls took, alike on all members.
//!
//! Owned by a communicator's place at its board; used by [`super::lanes`]. Cores that share a cache hand lines over through it, others get them
//! sooner from memory, and on some machines the kernel copies from process to process quicker than two cores do; virtual cores move while a
//! job runs. So all ways stay known, for each pattern and each doubling of length: every way is tried at first and again now and then. A timed call
//! begins and ends with a meeting: its time is that of the slowest member, since all had come, and no member's lateness counts.
//! In the last meeting all show how long they took, so that every member learns the same numbers in the same order and decides the same
//! without being told. Untimed calls, the most, read no clock. Bounded by patterns, classes and ways.

use super::table::Table;
use crate::error::{Class, Result};
use crate::limits::coll as limit;
use garonne_sync::copy::Stores;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A way of the data of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Through lanes.
    Lanes(Strokes),
    /// Read from where it lies.
    Direct,
    /// By messages, whose way the rail chooses.
    Messages,
}

/// The stores of a way through lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Strokes {
    /// Those that fill lanes.
    pub put: Stores,
    /// Those that write to where the data stays.
    pub take: Stores,
}

const fn lanes(put: Stores, take: Stores) -> Way {
    Way::Lanes(Strokes { put, take })
}

/// All ways, in the order in which they are tried. The first one is nowhere bad, so it serves a call that stays alone.
const WAYS: [Way; 6] = [
    lanes(Stores::Streamed, Stores::Cached),
    lanes(Stores::Cached, Stores::Cached),
    Way::Direct,
    Way::Messages,
    lanes(Stores::Cached, Stores::Streamed),
    lanes(Stores::Streamed, Stores::Streamed),
];

/// What moves where: calls of one pattern take about as long for the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// One to all.
    Bcast,
    /// All to all, the same block.
    Allgather,
    /// All to one.
    Gather,
    /// A block to each from one.
    Scatter,
    /// All to all, a block to each.
    Alltoall,
    /// Combined to all.
    Allreduce,
    /// Combined to one.
    Reduce,
    /// Combined, a slice to each.
    ReduceScatter,
    /// What lower ranks have, combined.
    Scan,
}

const PATTERNS: usize = Pattern::Scan as usize + 1;

/// Calls that are chosen for together: a pattern, and a length that all members know alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sort {
    pub pattern: Pattern,
    /// Bytes: of a block, of the whole in calls without blocks.
    pub len: u64,
}

impl Sort {
    fn class(self) -> usize {
        (self.len.max(1).ilog2().saturating_sub(limit::WAYS_FROM_LOG2) as usize).min(limit::WAYS_CLASSES - 1)
    }
}

/// The ways that a call could go: the same on all members.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Open {
    pub direct: bool,
    pub messages: bool,
    /// What a member takes is so long that no cache keeps it.
    pub streamed: bool,
}

impl Open {
    fn has(self, way: Way) -> bool {
        match way {
            Way::Direct => self.direct,
            Way::Messages => self.messages,
            Way::Lanes(strokes) => self.streamed || strokes.take == Stores::Cached,
        }
    }
}

/// What is known of one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pace {
    /// Picoseconds per byte; 0: nothing known.
    ps: u32,
    /// Measurements behind it, as far as they are counted.
    seen: u8,
    /// Measurements in a row that were far above, and the least of them.
    above: u8,
    above_least: u32,
}

impl Pace {
    fn learn(&mut self, now: u32) {
        let old = self.ps;
        self.seen = self.seen.saturating_add(1);
        if self.seen <= limit::WAYS_SURE {
            self.ps = if old == 0 { now } else { now.min(old) };
            return;
        }
        if now <= old.saturating_add(old / 2) {
            self.above = 0;
            // Quick ones count more: what slows a call down is a preemption as a rule, which says nothing of the way.
            self.ps = match now <= old {
                true => (old - (old - now) / 2).max(1),
                false => old + (now - old).div_ceil(8),
            };
            return;
        }
        self.above_least = if self.above == 0 {
            now
        } else {
            now.min(self.above_least)
        };
        self.above += 1;
        self.ps = old.saturating_add(old.div_ceil(16));
        if self.above == limit::WAYS_TURNED {
            // No preemption, but other cores than before.
            self.above = 0;
            self.ps = self.above_least;
        }
    }
}

/// What is known of calls of one sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    paces: [Pace; WAYS.len()],
    turns: u32,
    /// The way of the last call.
    last: Option<usize>,
    /// Tries of ways that are known but not usual.
    retries: u32,
    /// The next call goes this way: it was begun to be tried, or was quicker than the usual one.
    again: Option<usize>,
}

/// What a communicator knows. All members' are equal: nothing enters but what all were shown in the same meeting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ways {
    sorts: [Option<Box<[Known; limit::WAYS_CLASSES]>>; PATTERNS],
}

impl Ways {
    fn known(&self, sort: Sort) -> Option<&[Known; limit::WAYS_CLASSES]> {
        self.sorts[sort.pattern as usize].as_deref()
    }

    fn known_mut(&mut self, sort: Sort) -> &mut Known {
        let classes = self.sorts[sort.pattern as usize].get_or_insert_default();
        &mut classes[sort.class()]
    }

    /// The pace of a way for this length, or for the nearest shorter one that has one; 0: none.
    fn guess(&self, sort: Sort, way: usize) -> u32 {
        let classes = self
            .known(sort)
            .map_or(&[][..], |classes| &classes[..=sort.class()]);
        let paces = classes.iter().rev().map(|known| known.paces[way].ps);
        paces.into_iter().find(|ps| *ps > 0).unwrap_or(0)
    }

    /// The quickest way that is open and that anything is known of.
    fn usual(&self, sort: Sort, open: Open) -> usize {
        let ways = (0..WAYS.len()).filter(|way| open.has(WAYS[*way]));
        let known = ways
            .map(|way| (self.guess(sort, way), way))
            .filter(|(ps, _)| *ps > 0);
        known.min().map_or(0, |(_, way)| way)
    }

    /// How the next call of this sort goes, and whether it is timed. Changes nothing.
    fn decide(&self, sort: Sort, open: Open) -> (usize, bool) {
        let known = self
            .known(sort)
            .map(|classes| classes[sort.class()])
            .unwrap_or_default();
        let seen = |way: usize| known.paces[way].seen;
        let ways = || (0..WAYS.len()).filter(|way| open.has(WAYS[*way]));
        let unsure = || ways().filter(|way| seen(*way) < limit::WAYS_SURE);
        if let Some(way) = known.again.filter(|way| open.has(WAYS[*way])) {
            return (way, true);
        }
        // What nothing at all is known of is tried at once, the rest in its turn.
        if let Some(way) = unsure().find(|way| self.guess(sort, *way) == 0 || seen(*way) > 0) {
            return (way, true);
        }
        let usual = self.usual(sort, open);
        if known.turns % limit::WAYS_LEARN_EVERY == limit::WAYS_LEARN_EVERY - 1
            && let Some(way) = unsure().min_by_key(|way| self.guess(sort, *way))
        {
            return (way, true);
        }
        if is_retry(known.turns) {
            let others = ways().filter(|way| *way != usual);
            let count = others.clone().count().max(1);
            if let Some(way) = others.clone().nth(known.retries as usize % count) {
                return (way, true);
            }
        }
        let timed = sort.len >= limit::WAYS_TIMED_ALL || known.turns.is_multiple_of(limit::WAYS_TIMED_EVERY);
        (usual, timed && ways().count() > 1)
    }

    /// A call of this sort is over. If it was timed and all could say how long they took, the slowest took so long.
    fn over(&mut self, (sort, open): (Sort, Open), way: usize, took: Option<Duration>) {
        let usual = self.usual(sort, open);
        let known = self.known_mut(sort);
        known.retries = known.retries.wrapping_add(u32::from(is_retry(known.turns)));
        known.turns = known.turns.wrapping_add(1);
        let follows = known.last.replace(way) == Some(way);
        let was_again = known.again.take().is_some();
        let Some(took) = took else { return };
        if !follows {
            // It found pages and caches as another way had left them.
            known.again = (way != usual && !was_again).then_some(way);
            return;
        }
        let now =
            (took.as_nanos() * 1000 / u128::from(sort.len.max(1))).clamp(1, u128::from(u32::MAX)) as u32;
        known.paces[way].learn(now);
        let best = known.paces[usual].ps;
        known.again = (way != usual && now < best && known.paces[way].ps >= best).then_some(way);
    }
}

/// Whether a way that is not usual is tried in this turn: more often at first, when one bad call may have decided.
fn is_retry(turn: u32) -> bool {
    let turn = turn.wrapping_add(1);
    turn.is_multiple_of(limit::WAYS_RETRY_EVERY)
        || (limit::WAYS_RETRY_FIRST..limit::WAYS_RETRY_EVERY).contains(&turn) && turn.is_power_of_two()
}

/// One call's way, from the decision to what was learned of it.
#[derive(Debug)]
pub(super) struct Course {
    of: (Sort, Open),
    way: usize,
    timed: bool,
    start: Option<Instant>,
}

impl Course {
    /// Decides for a call; every member comes to the same.
    pub fn decide(table: &Table<'_>, sort: Sort, open: Open) -> Self {
        let (way, timed) = lock(&table.place.ways).decide(sort, open);
        // Members that were not of one mind would wait for each other: then they differ in the words that they meet with.
        table.add_to_word(way as u32 * 2 + u32::from(timed) + 1);
        Self {
            of: (sort, open),
            way,
            timed,
            start: None,
        }
    }

    pub fn way(&self) -> Way {
        WAYS[self.way]
    }

    pub fn is_timed(&self) -> bool {
        self.timed
    }

    /// To be called before the call's data moves: in a timed one all meet.
    ///
    /// # Errors
    /// As [`Table::pass`].
    pub fn begin(&mut self, table: &Table<'_>) -> Result<()> {
        if self.timed {
            table.agree()?;
            self.start = Some(Instant::now());
        }
        Ok(())
    }

    /// The call came to this outcome, which is given back. Also one who failed meets the others.
    ///
    /// # Errors
    /// The outcome's; as [`Table::pass`].
    pub fn end<T>(self, table: &Table<'_>, outcome: Result<T>) -> Result<T> {
        // Then its first meeting failed, for all.
        if matches!(&outcome, Err(error) if error.class == Class::NotSame) {
            return outcome;
        }
        let took = match self.start {
            Some(start) => table.slowest(outcome.is_ok().then(|| start.elapsed()))?,
            None => None,
        };
        lock(&table.place.ways).over(self.of, self.way, took);
        outcome
    }
}

fn lock(ways: &Mutex<Ways>) -> MutexGuard<'_, Ways> {
    ways.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SORT: Sort = Sort {
        pattern: Pattern::Alltoall,
        len: 1 << 18,
    };
    const TWO: Open = Open {
        direct: false,
        messages: false,
        streamed: false,
    };
    const THREE: Open = Open { direct: true, ..TWO };
    const ALL: Open = Open {
        direct: true,
        messages: true,
        streamed: true,
    };

    /// Calls of a sort, each way taking so many nanoseconds: how often each was gone.
    fn calls(ways: &mut Ways, open: Open, count: u32, ns: [u64; WAYS.len()]) -> [u32; WAYS.len()] {
        let mut gone = [0; WAYS.len()];
        for _ in 0..count {
            let (way, timed) = ways.decide(SORT, open);
            gone[way] += 1;
            ways.over((SORT, open), way, timed.then(|| Duration::from_nanos(ns[way])));
        }
        gone
    }

    fn others_than(way: usize, gone: [u32; WAYS.len()]) -> u32 {
        gone.iter().sum::<u32>() - gone[way]
    }

    #[test]
    fn every_open_way_is_tried_and_the_quickest_is_kept_to() {
        for best in 0..WAYS.len() {
            let mut ns = [300_000; WAYS.len()];
            ns[best] = 100_000;
            let mut ways = Ways::default();
            let gone = calls(&mut ways, ALL, 1000, ns);
            assert!(
                gone.iter().all(|count| *count >= u32::from(limit::WAYS_SURE)),
                "{gone:?}"
            );
            assert!(others_than(best, gone) <= 50, "{best}: {gone:?}");
        }
    }

    #[test]
    fn a_way_that_is_not_open_is_never_gone() {
        let mut ways = Ways::default();
        let gone = calls(&mut ways, TWO, 1000, [9, 9, 1, 1, 1, 1]);
        assert_eq!(gone[2..], [0; 4]);
        calls(&mut ways, ALL, 1000, [9, 9, 1, 1, 1, 1].map(|us| us * 10_000));
        let gone = calls(&mut ways, TWO, 1000, [9, 9, 1, 1, 1, 1]);
        assert_eq!(gone[2..], [0; 4]);
    }

    #[test]
    fn one_slow_call_changes_nothing_but_other_cores_do_and_back_again() {
        let (near, far) = (
            [110_000, 80_000, 130_000, 0, 0, 0],
            [90_000, 250_000, 140_000, 0, 0, 0],
        );
        let mut ways = Ways::default();
        calls(&mut ways, THREE, 500, near);
        assert_eq!(ways.usual(SORT, THREE), 1);
        ways.over((SORT, THREE), 1, Some(Duration::from_millis(10)));
        assert_eq!(ways.usual(SORT, THREE), 1);
        for _ in 0..3 {
            calls(&mut ways, THREE, 50, far);
            assert_eq!(ways.usual(SORT, THREE), 0);
            calls(&mut ways, THREE, 400, near);
            assert_eq!(ways.usual(SORT, THREE), 1);
        }
    }

    #[test]
    fn most_short_calls_read_no_clock() {
        let mut ways = Ways::default();
        calls(&mut ways, THREE, 100, [90_000, 80_000, 70_000, 0, 0, 0]);
        let mut timed = 0;
        for _ in 0..800 {
            let (way, time) = ways.decide(SORT, THREE);
            timed += u32::from(time);
            ways.over(
                (SORT, THREE),
                way,
                time.then(|| Duration::from_nanos(70_000 + way as u64 * 10_000)),
            );
        }
        assert!(timed <= 130, "{timed}");
    }

    #[test]
    fn a_length_never_seen_goes_the_way_of_shorter_ones_and_learns_in_its_turn() {
        let mut ways = Ways::default();
        calls(&mut ways, THREE, 200, [300_000, 100_000, 200_000, 0, 0, 0]);
        let longer = Sort {
            len: 16 * SORT.len,
            ..SORT
        };
        assert_eq!(ways.decide(longer, THREE).0, 1);
        let other = Sort {
            pattern: Pattern::Allgather,
            ..longer
        };
        assert_eq!(ways.decide(other, THREE).0, 0);
    }

    #[test]
    fn nothing_is_learned_of_a_call_that_somebody_could_not_time() {
        let mut ways = Ways::default();
        for _ in 0..100 {
            let (way, _) = ways.decide(SORT, THREE);
            ways.over((SORT, THREE), way, None);
        }
        assert_eq!(ways.usual(SORT, THREE), 0);
        assert_eq!(ways.decide(SORT, THREE), (0, true));
    }

    #[test]
    fn lengths_fall_into_classes_of_powers_of_two() {
        let class = |len| Sort { len, ..SORT }.class();
        assert_eq!([class(0), class(8192), class(16383), class(16384)], [0, 0, 0, 1]);
        assert_eq!(class(u64::MAX), limit::WAYS_CLASSES - 1);
    }
}
