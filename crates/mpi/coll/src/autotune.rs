//! Choice of the path that the data of a long collective takes in a segment, by the time that
//! earlier calls took, alike on all members.
//!
//! A process's part in a segment owns one [`PathTuner`]. No path is best everywhere: cores that
//! share a cache pass lines through it, others get them sooner from memory, and on some machines
//! the kernel copies between processes quicker than two cores do. Virtual cores move while a job
//! runs. So all paths stay known, for each traffic pattern and each doubling of length.
//!
//! Short calls try every path at first, and again now and then. Long calls begin with what shorter
//! calls say, and try another path when earlier calls have saved what the try is expected to lose.
//!
//! A timed call begins and ends with a barrier. Its time runs from when the first member went on to
//! when the last was done, so no member's lateness counts. In the last barrier all show when they
//! began and were done. Every member then learns equal numbers in equal order, and decides alike
//! without being told. Most calls are untimed and read no clock. Patterns, length classes and paths
//! bound the memory.

use crate::limits as limit;
use std::time::Duration;

/// The path of the data of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPath {
    /// Through lanes.
    Lanes(LaneCopies),
    /// Read from where it lies.
    Direct,
    /// By messages, whose way the transport chooses.
    Messages,
}

/// Way in which a copy into a lane or out of it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyKind {
    /// By the routine of all copies, through the caches.
    #[default]
    Cached,
    /// By stores that bypass the caches.
    Streamed,
    /// By the C library's, which on some processors need not fetch what it overwrites, and on
    /// others is far behind between cores.
    Library,
}

/// The copies of a way through lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCopies {
    /// Copies that fill lanes.
    pub put: CopyKind,
    /// Copies that write to where the data stays.
    pub take: CopyKind,
}

const fn lane_path(put: CopyKind, take: CopyKind) -> DataPath {
    DataPath::Lanes(LaneCopies { put, take })
}

/// All ways, in the order in which they are tried. The first one is nowhere bad, so it serves a
/// call that stays alone.
pub const PATHS: [DataPath; 7] = [
    lane_path(CopyKind::Streamed, CopyKind::Cached),
    lane_path(CopyKind::Cached, CopyKind::Cached),
    DataPath::Direct,
    DataPath::Messages,
    lane_path(CopyKind::Cached, CopyKind::Streamed),
    lane_path(CopyKind::Streamed, CopyKind::Streamed),
    lane_path(CopyKind::Library, CopyKind::Library),
];

/// The place of [`DataPath::Direct`] among them: with it a long call begins of which nothing is
/// known, since it touches no lane for the first time.
const DIRECT: usize = 2;

/// The way that comes nearest to one of which nothing is known, and what it takes beside that, in
/// quarters: past the caches nothing is fetched that is overwritten, which a fair guess does not
/// hold against a way that is only open where caches keep nothing.
fn similar_path(way: usize) -> Option<(usize, u32)> {
    match PATHS[way] {
        DataPath::Lanes(LaneCopies {
            put: CopyKind::Cached,
            take: CopyKind::Streamed,
        }) => Some((1, 3)),
        DataPath::Lanes(LaneCopies {
            put: CopyKind::Streamed,
            take: CopyKind::Streamed,
        }) => Some((0, 3)),
        DataPath::Lanes(LaneCopies {
            put: CopyKind::Library,
            ..
        }) => Some((1, 4)),
        _ => None,
    }
}

/// The direction of the data of a call: calls of one pattern and length take about equal time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficPattern {
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
    /// Contributions of lower ranks, combined.
    Scan,
}

const PATTERNS: usize = TrafficPattern::Scan as usize + 1;

/// Calls that are chosen for together: a pattern, and a length that all members know alike.
#[derive(Clone, Copy, Debug)]
pub struct CallClass {
    /// The direction of its data.
    pub pattern: TrafficPattern,
    /// Bytes: of a block, of the whole in calls without blocks.
    pub len: u64,
}

/// Nanoseconds of so many bytes at a pace.
fn cost_ns(ps: u32, len: u64) -> i64 {
    (u128::from(ps) * u128::from(len) / 1000).min(1 << 50) as i64
}

impl CallClass {
    fn length_class(self) -> usize {
        (self
            .len
            .max(1)
            .ilog2()
            .saturating_sub(limit::TUNE_FROM_LOG2) as usize)
            .min(limit::TUNE_CLASSES - 1)
    }

    /// A program may make only a handful of such calls.
    fn is_long(self) -> bool {
        self.len >= limit::TUNE_TIMED_ALL
    }

    /// Measurements that make a way known.
    fn samples_needed(self) -> u8 {
        if self.is_long() {
            1
        } else {
            limit::TUNE_SAMPLES
        }
    }
}

/// The ways that a call could go: the same on all members.
#[derive(Clone, Copy, Debug, Default)]
pub struct AvailablePaths {
    /// True if members can read each other's memory.
    pub direct: bool,
    /// True if messages may carry the data.
    pub messages: bool,
    /// True if all members together move more than the caches keep.
    pub streamed: bool,
    /// The C library copies in another way than all else here does.
    pub library: bool,
}

impl AvailablePaths {
    fn has(self, way: DataPath) -> bool {
        match way {
            DataPath::Direct => self.direct,
            DataPath::Messages => self.messages,
            DataPath::Lanes(LaneCopies {
                put: CopyKind::Library,
                ..
            }) => self.library,
            DataPath::Lanes(strokes) => self.streamed || strokes.take != CopyKind::Streamed,
        }
    }
}

/// The measured cost of one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PathCost {
    /// Picoseconds per byte; 0: nothing known.
    ps_per_byte: u32,
    /// Measurements behind it, as far as they are counted.
    samples: u8,
    /// Measurements in a row that were far above, and the least of them.
    above: u8,
    above_least: u32,
}

impl PathCost {
    fn learn(&mut self, now: u32) {
        let old = self.ps_per_byte;
        self.samples = self.samples.saturating_add(1);
        if self.samples <= limit::TUNE_SAMPLES {
            self.ps_per_byte = if old == 0 { now } else { now.min(old) };
            return;
        }
        if now <= old.saturating_add(old / 2) {
            self.above = 0;
            // Quick ones count more: what slows a call down is a preemption as a rule, which says
            // nothing of the way.
            self.ps_per_byte = match now <= old {
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
        self.ps_per_byte = old.saturating_add(old.div_ceil(16));
        if self.above == limit::TUNE_CHANGED_AFTER {
            // No preemption, but other cores than before.
            self.above = 0;
            self.ps_per_byte = self.above_least;
        }
    }
}

/// Measurements of one class of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ClassStats {
    costs: [PathCost; PATHS.len()],
    turns: u32,
    /// Nanoseconds that tries may lose: a share of what calls took.
    budget_ns: i64,
    /// The way of the last call.
    last: Option<usize>,
    /// Tries of ways that are known but not usual.
    retries: u32,
    /// The next call goes this way: it was begun to be tried, or was quicker than the usual one.
    next_path: Option<usize>,
}

/// Knowledge of a communicator about the paths of long collectives. All members hold equal values:
/// only numbers enter that all were shown in one barrier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathTuner {
    classes: [Option<Box<[ClassStats; limit::TUNE_CLASSES]>>; PATTERNS],
}

impl PathTuner {
    fn stats(&self, sort: CallClass) -> Option<&[ClassStats; limit::TUNE_CLASSES]> {
        self.classes[sort.pattern as usize].as_deref()
    }

    fn stats_mut(&mut self, sort: CallClass) -> &mut ClassStats {
        let classes = self.classes[sort.pattern as usize].get_or_insert_default();
        &mut classes[sort.length_class()]
    }

    /// The pace of a way for this length, or what the nearest shorter one that has one lets expect;
    /// 0: none.
    fn learned(&self, sort: CallClass, way: usize) -> u32 {
        let classes = self
            .stats(sort)
            .map_or(&[][..], |classes| &classes[..=sort.length_class()]);
        let Some((here, shorter)) = classes.split_last() else {
            return 0;
        };
        if here.costs[way].ps_per_byte > 0 {
            return here.costs[way].ps_per_byte;
        }
        let Some(near) = shorter
            .iter()
            .rev()
            .find(|known| known.costs[way].ps_per_byte > 0)
        else {
            return 0;
        };
        // Longer calls find other caches, and the first ones cold ones: how ways compare carries
        // over, not how long they take.
        let both = (0..PATHS.len()).filter(|other| {
            here.costs[*other].ps_per_byte > 0 && near.costs[*other].ps_per_byte > 0
        });
        let (now, then) = both
            .map(|other| (here.costs[other].ps_per_byte, near.costs[other].ps_per_byte))
            .min()
            .unwrap_or((1, 1));
        let ps = u64::from(near.costs[way].ps_per_byte) * u64::from(now) / u64::from(then);
        ps.clamp(1, u64::from(u32::MAX)) as u32
    }

    /// Returns the learned cost of a path, or an estimate from the path most like it.
    fn estimate(&self, sort: CallClass, way: usize) -> u32 {
        match (self.learned(sort, way), similar_path(way)) {
            (0, Some((near, quarters))) => {
                (u64::from(self.learned(sort, near)) * u64::from(quarters) / 4) as u32
            }
            (ps, _) => ps,
        }
    }

    /// The quickest way that is open and that anything is known of.
    fn best_path(&self, sort: CallClass, open: AvailablePaths) -> usize {
        let ways = (0..PATHS.len()).filter(|way| open.has(PATHS[*way]));
        let known = ways
            .map(|way| (self.estimate(sort, way), way))
            .filter(|(ps, _)| *ps > 0);
        let first = if sort.is_long() && open.direct {
            DIRECT
        } else {
            0
        };
        known.min().map_or(first, |(_, way)| way)
    }

    /// Returns the time that a try of a path is expected to lose. For an unknown path that is the
    /// time of the usual path, which must be known.
    fn loss(&self, sort: CallClass, way: usize, usual: usize) -> i64 {
        let (usually, guess) = (self.estimate(sort, usual), self.estimate(sort, way));
        let more = match (usually, guess) {
            _ if way == usual => 0,
            (0, _) => return i64::MAX,
            (_, 0) => usually,
            _ => guess.saturating_sub(usually),
        };
        cost_ns(more, sort.len)
    }

    /// Returns how the next call of this sort goes, and whether it is timed. Changes nothing.
    pub fn decide(&self, sort: CallClass, open: AvailablePaths) -> (usize, bool) {
        let known = self
            .stats(sort)
            .map(|classes| classes[sort.length_class()])
            .unwrap_or_default();
        let seen = |way: usize| known.costs[way].samples;
        let ways = || (0..PATHS.len()).filter(|way| open.has(PATHS[*way]));
        let unsure = || ways().filter(|way| seen(*way) < sort.samples_needed());
        if let Some(way) = known.next_path.filter(|way| open.has(PATHS[*way])) {
            return (way, true);
        }
        // What nothing at all is known of is tried at once, the rest in its turn. A long call is
        // too dear for that.
        let at_once =
            |way: &usize| seen(*way) > 0 || !sort.is_long() && self.estimate(sort, *way) == 0;
        if let Some(way) = unsure().find(at_once) {
            return (way, true);
        }
        let usual = self.best_path(sort, open);
        let affordable = |way: &usize| self.loss(sort, *way, usual) <= known.budget_ns;
        // Of long calls there may be few: what is next to the usual way by what is known need not
        // wait.
        let due =
            sort.is_long() || known.turns % limit::TUNE_LEARN_EVERY == limit::TUNE_LEARN_EVERY - 1;
        if due
            && let Some(way) = unsure()
                .min_by_key(|way| self.loss(sort, *way, usual))
                .filter(affordable)
        {
            return (way, true);
        }
        if is_retry(known.turns) {
            let others = ways().filter(|way| *way != usual);
            let count = others.clone().count().max(1);
            if let Some(way) = others
                .clone()
                .nth(known.retries as usize % count)
                .filter(affordable)
            {
                return (way, true);
            }
        }
        let timed = sort.len >= limit::TUNE_TIMED_ALL
            || known.turns.is_multiple_of(limit::TUNE_TIMED_EVERY);
        (usual, timed && ways().count() > 1)
    }

    /// A call of this sort is over. If it was timed and all could say how long they took, the
    /// slowest took so long.
    pub fn record(
        &mut self,
        (sort, open): (CallClass, AvailablePaths),
        way: usize,
        took: Option<Duration>,
    ) {
        let usual = self.best_path(sort, open);
        let (guess, learned) = (self.estimate(sort, usual), self.learned(sort, way) > 0);
        let known = self.stats_mut(sort);
        known.retries = known.retries.wrapping_add(u32::from(is_retry(known.turns)));
        known.turns = known.turns.wrapping_add(1);
        let follows = known.last.replace(way) == Some(way);
        let was_again = known.next_path.take().is_some();
        let usually = cost_ns(guess, sort.len);
        let most = usually.saturating_mul(limit::TUNE_BUDGET_MAX);
        known.budget_ns = (known.budget_ns + usually / limit::TUNE_BUDGET_SHARE).min(most);
        let Some(took) = took else { return };
        let now = (took.as_nanos() * 1000 / u128::from(sort.len.max(1)))
            .clamp(1, u128::from(u32::MAX)) as u32;
        if way != usual {
            known.budget_ns =
                (known.budget_ns - cost_ns(now.saturating_sub(guess), sort.len)).max(0);
        }
        // A long call that is so much slower is not made again only because it found pages and
        // caches as another way had left them, unless its lanes may have been touched for the first
        // time.
        let hopeless =
            sort.is_long() && way != usual && learned && now > guess.saturating_add(guess / 2);
        if !follows && !hopeless {
            known.next_path = (way != usual && !was_again).then_some(way);
            return;
        }
        known.costs[way].learn(now);
        let best = known.costs[usual].ps_per_byte;
        known.next_path =
            (way != usual && now < best && known.costs[way].ps_per_byte >= best).then_some(way);
    }
}

/// Returns whether a way that is not usual is tried in this turn: more often at first, when one bad
/// call may have decided.
fn is_retry(turn: u32) -> bool {
    let turn = turn.wrapping_add(1);
    turn.is_multiple_of(limit::TUNE_RETRY_EVERY)
        || (limit::TUNE_RETRY_FIRST..limit::TUNE_RETRY_EVERY).contains(&turn)
            && turn.is_power_of_two()
}

#[cfg(test)]
mod tests;
