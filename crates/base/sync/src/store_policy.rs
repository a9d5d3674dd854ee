//! The choice of stores for payloads that another process reads next: ordinary ones, or stores that
//! bypass the caches.
//!
//! Both ends of a lane own a policy, and so do the members of a collective segment. Cores that
//! share a cache hand lines over fastest through it. Other cores wait twice for each line: the
//! writer until the reader's old copy is gone, the reader until the writer's cache answers. Lines
//! that pass through memory avoid both waits. Virtual cores move while a job runs, so both sides
//! measure real copies. The writer times its copies into the lane. The reader times its copies out
//! of the lane, and tells the writer by a word of shared memory. Bounded by two numbers on each
//! side.

use crate::copy::StoreKind;
use std::time::Duration;

/// One of so many such payloads is measured on either side, drawn at random: two readings of a
/// clock take a tenth of the shortest copy. A power of two.
const STORES_TIMED: u32 = 32;

/// One of so many is written by the other stores than usual, so that a change of the cores'
/// distance is noticed within milliseconds. A power of two.
const STORES_TRIED: u32 = 256;

/// Payloads from which on each is measured: those of announced messages, of whose copies the
/// clock's readings take a fiftieth.
const STORES_LONG: usize = 32 * 1024;

/// Ratio of [`STORES_TRIED`] for such payloads: a large message has some dozens of them and should
/// not be over before a change is noticed. A power of two.
const STORES_TRIED_LONG: u32 = 64;

/// Ratio of [`STORES_TRIED`] while the cost of either kind of store is unknown. A power of two.
const STORES_LEARNED: u32 = 4;

/// Picoseconds per byte by [`StoreKind`]; 0: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StoreCosts([u32; 2]);

impl StoreCosts {
    fn learn(&mut self, stores: StoreKind, len: usize, took: Duration) {
        let now = (took.as_nanos() * 1000 / len.max(1) as u128).clamp(1, 1 << 24) as u32;
        let cost = &mut self.0[stores as usize];
        *cost = match *cost {
            0 => now,
            // Quick ones count more: what slows one copy down is a preemption or a page that nobody
            // touched before.
            old if now <= old => old - (old - now) / 4,
            old => old + (now - old).min(old).div_ceil(8),
        };
    }

    fn of(&self, stores: StoreKind) -> u32 {
        self.0[stores as usize]
    }
}

/// Costs that a lane's reader tells its writer: a hint, which a mad reader can only make wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCosts(StoreCosts);

impl ReadCosts {
    /// From the word that [`ReadTimer::took`] gave.
    pub fn from_word(word: u64) -> Self {
        Self(StoreCosts([word as u32, (word >> 32) as u32]))
    }

    /// Returns what several readers say, who all read the same.
    pub fn mean(words: impl Iterator<Item = u64>) -> Self {
        let (mut sums, mut known) = ([0u64; 2], [0u64; 2]);
        for Self(StoreCosts(costs)) in words.map(Self::from_word) {
            for (stores, cost) in costs.into_iter().enumerate().filter(|&(_, cost)| cost > 0) {
                sums[stores] += u64::from(cost);
                known[stores] += 1;
            }
        }
        Self(StoreCosts(
            [0, 1].map(|stores| (sums[stores] / known[stores].max(1)) as u32),
        ))
    }

    fn to_word(self) -> u64 {
        let [cached, streamed] = self.0.0;
        u64::from(cached) | u64::from(streamed) << 32
    }
}

fn other(stores: StoreKind) -> StoreKind {
    match stores {
        StoreKind::Cached => StoreKind::Streamed,
        StoreKind::Streamed => StoreKind::Cached,
    }
}

/// Random draws, so that no rhythm of messages decides what is measured.
#[derive(Clone, Copy, Debug)]
struct XorShift(u32);

impl Default for XorShift {
    fn default() -> Self {
        Self(0x9E37_79B9)
    }
}

impl XorShift {
    #[inline(always)]
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }
}

/// Returns whether the copy of a payload of `len` bytes is measured.
#[inline(always)]
fn is_timed(draw: u32, len: usize) -> bool {
    draw & (STORES_TIMED - 1) == 1 || len >= STORES_LONG
}

/// The writer's side: chooses.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreChooser {
    usual: StoreKind,
    /// Both are known on both sides.
    learned: bool,
    own: StoreCosts,
    draw: XorShift,
    /// What bypassing the caches counts more than it is measured to take, in quarters of that.
    dear: u32,
}

impl StoreChooser {
    /// From now on bypassing the caches counts for so many quarters more than it takes: lines that
    /// it drops, others who share the cache would have found there.
    pub fn prefer_caches(&mut self, quarters: u32) {
        self.dear = quarters;
    }

    /// The stores for the next payload of `len` bytes, and whether [`StoreChooser::took`] is to
    /// hear how long they took.
    #[inline(always)]
    pub fn next(&mut self, len: usize) -> (StoreKind, bool) {
        let draw = self.draw.next();
        let tried = match (self.learned, len < STORES_LONG) {
            (false, _) => STORES_LEARNED,
            (true, true) => STORES_TRIED,
            (true, false) => STORES_TRIED_LONG,
        };
        if draw & (tried - 1) == 0 {
            (other(self.usual), true)
        } else {
            (self.usual, is_timed(draw, len))
        }
    }

    /// Writing `len` bytes took so long; the reader says this of its side.
    pub fn took(&mut self, stores: StoreKind, len: usize, took: Duration, reads: ReadCosts) {
        self.own.learn(stores, len, took);
        let known = |stores| self.own.of(stores) > 0 && reads.0.of(stores) > 0;
        self.learned = known(StoreKind::Cached) && known(StoreKind::Streamed);
        let all = |stores| {
            let took = u64::from(self.own.of(stores)) + u64::from(reads.0.of(stores));
            match stores {
                StoreKind::Cached => took,
                StoreKind::Streamed => took + took * u64::from(self.dear) / 4,
            }
        };
        // An eighth: a change costs something, too, and both sides' numbers waver.
        if self.learned && all(other(self.usual)) * 8 < all(self.usual) * 7 {
            self.usual = other(self.usual);
        }
    }
}

/// The reader's side: measures.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadTimer {
    costs: StoreCosts,
    told: StoreCosts,
    last: StoreKind,
    draw: XorShift,
}

impl ReadTimer {
    /// Returns whether [`ReadTimer::took`] is to hear how long the copy of the next payload of
    /// `len` bytes took.
    #[inline(always)]
    pub fn wants(&mut self, stores: StoreKind, len: usize) -> bool {
        let changed = std::mem::replace(&mut self.last, stores) != stores;
        changed || self.costs.of(stores) == 0 || is_timed(self.draw.next(), len)
    }

    /// Reading `len` bytes took so long. The word to tell the writer, if it is worth it: the writer
    /// then has to fetch the line.
    pub fn took(&mut self, stores: StoreKind, len: usize, took: Duration) -> Option<u64> {
        self.costs.learn(stores, len, took);
        let (now, told) = (self.costs.of(stores), self.told.of(stores));
        (now.abs_diff(told) > told / 4).then(|| {
            self.told = self.costs;
            ReadCosts(self.told).to_word()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 4096;

    /// A lane of which each side takes so many picoseconds per byte, by [`StoreKind`].
    struct Lane {
        chooser: StoreChooser,
        reader: ReadTimer,
        word: u64,
    }

    impl Lane {
        fn new() -> Self {
            let (chooser, reader) = (StoreChooser::default(), ReadTimer::default());
            Self {
                chooser,
                reader,
                word: 0,
            }
        }

        /// Sends many payloads: how many of the last thousand were streamed.
        fn send(&mut self, write: [u64; 2], read: [u64; 2]) -> usize {
            let took = |costs: [u64; 2], stores| {
                Duration::from_nanos(costs[stores as usize] * LEN as u64 / 1000)
            };
            let stores: Vec<StoreKind> = (0..3000)
                .map(|_| {
                    let (stores, timed) = self.chooser.next(LEN);
                    if timed {
                        let reads = ReadCosts::from_word(self.word);
                        self.chooser.took(stores, LEN, took(write, stores), reads);
                    }
                    if self.reader.wants(stores, LEN)
                        && let Some(word) = self.reader.took(stores, LEN, took(read, stores))
                    {
                        self.word = word;
                    }
                    stores
                })
                .collect();
            let last = &stores[2000..];
            last.iter()
                .filter(|stores| **stores == StoreKind::Streamed)
                .count()
        }
    }

    #[test]
    fn where_caches_are_preferred_bypassing_them_has_to_be_clearly_quicker() {
        let mut lane = Lane::new();
        lane.chooser.prefer_caches(4);
        assert!((1..100).contains(&lane.send([100, 70], [100, 70])));
        let mut lane = Lane::new();
        lane.chooser.prefer_caches(4);
        assert!(lane.send([100, 30], [100, 30]) > 900);
    }

    #[test]
    fn of_several_readers_those_count_that_know_something() {
        let word = |cached, streamed| ReadCosts(StoreCosts([cached, streamed])).to_word();
        let mean = ReadCosts::mean([word(100, 0), word(0, 0), word(300, 50)].into_iter());
        assert_eq!(mean, ReadCosts(StoreCosts([200, 50])));
        assert_eq!(ReadCosts::mean(std::iter::empty()), ReadCosts::default());
        assert_eq!(
            ReadCosts::mean([word(u32::MAX, 1); 3].into_iter()),
            ReadCosts(StoreCosts([u32::MAX, 1]))
        );
    }

    #[test]
    fn the_quicker_stores_are_used_and_the_others_tried_now_and_then() {
        let streamed = Lane::new().send([50, 90], [50, 80]);
        assert!((1..100).contains(&streamed), "{streamed}");
        let streamed = Lane::new().send([190, 70], [100, 70]);
        assert!((900..1000).contains(&streamed), "{streamed}");
    }

    #[test]
    fn both_sides_count_together() {
        // The writer alone would stream.
        assert!(Lane::new().send([100, 60], [60, 200]) < 100);
        // The reader alone would not.
        assert!(Lane::new().send([300, 60], [60, 100]) > 900);
    }

    #[test]
    fn a_change_of_distance_is_noticed_both_ways() {
        let mut lane = Lane::new();
        assert!(lane.send([50, 90], [50, 80]) < 100);
        assert!(lane.send([190, 70], [100, 70]) > 900);
        assert!(lane.send([50, 90], [50, 80]) < 100);
    }

    #[test]
    fn long_payloads_need_only_some_dozens_to_notice_it() {
        let mut chooser = StoreChooser::default();
        let mut streamed = |count, [cached, other]: [u64; 2]| {
            let reads = ReadCosts(StoreCosts([cached as u32, other as u32]));
            let each = (0..count).map(|_| {
                let (stores, timed) = chooser.next(STORES_LONG);
                let cost = if stores == StoreKind::Cached {
                    cached
                } else {
                    other
                };
                if timed {
                    chooser.took(
                        stores,
                        STORES_LONG,
                        Duration::from_nanos(cost * STORES_LONG as u64 / 1000),
                        reads,
                    );
                }
                usize::from(stores == StoreKind::Streamed)
            });
            each.sum::<usize>()
        };
        streamed(200, [50, 90]);
        assert!(streamed(100, [50, 90]) < 15);
        streamed(200, [190, 70]);
        assert!(streamed(100, [190, 70]) > 85);
    }

    #[test]
    fn what_a_mad_reader_says_changes_nothing_but_the_choice() {
        let mut chooser = StoreChooser::default();
        for word in [0, u64::MAX, 1, 1 << 32, u64::from(u32::MAX)] {
            for _ in 0..100 {
                let (stores, _) = chooser.next(LEN);
                chooser.took(stores, 0, Duration::MAX, ReadCosts::from_word(word));
            }
        }
    }

    #[test]
    fn the_writer_is_told_when_a_number_changed_by_more_than_a_quarter() {
        let mut reader = ReadTimer::default();
        let mut told = |ns| {
            reader
                .took(StoreKind::Cached, 1000, Duration::from_nanos(ns))
                .is_some()
        };
        assert!(told(100) && !told(101));
        assert!(!told(20) && told(20));
    }
}
