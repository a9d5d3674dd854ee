//! How fast messages of each length come from each peer by each way of fetching them: measured on
//! what passes anyway.
//!
//! Owned by the transport; decides for the receiving side how the next announced message is
//! fetched. The two virtual cores of a pair may be near or far from each other and change that
//! while a job runs, and which way is best also depends on where the data lies (just written by its
//! sender, or long in both caches): so all ways stay known. A way that is not preferred is tried
//! when what it is expected to lose was earned: a share of the time that messages of its length
//! took. So a long message, of which a program may send a handful, is hardly ever spent on
//! learning, and a short one that comes often is. What is measured is the whole fetch, from the
//! decision to the last byte. Bounded by the classes.

use garonne_engine::transport::RendezvousMode;
use garonne_transport::limits::{
    SHARE_MIN, TUNER_CHANGED, TUNER_CLASSES, TUNER_EARNED_MAX, TUNER_EARNED_SURE,
    TUNER_EARNED_UNSURE, TUNER_FROM_LOG2, TUNER_KERNEL_HANDICAP, TUNER_LONG_FROM,
    TUNER_RETRY_EVERY, TUNER_SURE, TUNER_TRIED_ONCE_FROM, TUNER_TRIES, TUNER_UNMEASURED,
};
use std::time::Duration;

/// The ways, in the order of their columns.
pub const WAYS: [RendezvousMode; 4] = [
    RendezvousMode::Read,
    RendezvousMode::Write,
    RendezvousMode::Share,
    RendezvousMode::Data,
];

fn column(way: RendezvousMode) -> usize {
    WAYS.iter().position(|other| *other == way).unwrap_or(0)
}

/// The class of a length.
pub fn class(len: u64) -> usize {
    (len.max(1).ilog2().saturating_sub(TUNER_FROM_LOG2) as usize).min(TUNER_CLASSES - 1)
}

/// From here on a way that is quicker for one class is so for the next, as a rule.
fn class_of_long() -> usize {
    class(TUNER_LONG_FROM)
}

/// The shortest length of a class.
pub fn class_len(class: usize) -> u64 {
    1 << (TUNER_FROM_LOG2 as usize + class)
}

/// Nanoseconds of so many bytes at a pace.
fn price(cost: u32, len: u64) -> i64 {
    (u128::from(cost) * u128::from(len) / 1000).min(1 << 50) as i64
}

/// Messages in a row for which a way is tried.
fn tries(len: u64) -> u32 {
    if len < TUNER_TRIED_ONCE_FROM {
        TUNER_TRIES
    } else {
        1
    }
}

/// One way in one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MeasuredTime {
    /// Picoseconds per byte; 0: nothing known.
    cost: u32,
    /// Measurements behind it, as far as they are counted; 0 with a pace: the cost model's.
    seen: u8,
    /// Measurements in a row that were much slower than the pace says, and the quickest of them.
    slower: u8,
    slower_least: u32,
}

impl MeasuredTime {
    /// A fetch took `now` picoseconds per byte. `true`: that is much quicker than all that is
    /// known, or much slower for a while already.
    fn learn(&mut self, now: u32) -> bool {
        let old = self.cost;
        let (slower, quicker) = (
            now > old.saturating_add(old / 2),
            now.saturating_add(now / 2) < old,
        );
        let seen = self.seen;
        self.seen = seen.saturating_add(1);
        if seen < TUNER_SURE {
            // The first ones touch pages and caches for the first time.
            self.cost = if seen == 0 { now } else { now.min(old) };
            return false;
        }
        if !slower {
            self.slower = 0;
            // Quick ones count more: what slows one transfer down is a preemption as a rule, which
            // says nothing of the way.
            self.cost = if now <= old {
                old - (old - now) / 2
            } else {
                old + (now - old).div_ceil(16)
            };
            return quicker;
        }
        self.slower_least = if self.slower == 0 {
            now
        } else {
            now.min(self.slower_least)
        };
        self.slower += 1;
        // So often is no preemption, but other cores than before, or other caches.
        let turned = self.slower == TUNER_CHANGED;
        self.cost = if turned {
            self.slower = 0;
            self.slower_least
        } else {
            old + old.div_ceil(16)
        };
        turned
    }
}

/// Measurements of messages of one class.
#[derive(Clone, Copy, Debug, Default)]
struct SizeClass {
    cells: [MeasuredTime; WAYS.len()],
    /// Nanoseconds that tries may lose; negative after one that lost more than was expected.
    earned: i64,
    /// Messages since the last try.
    since: u32,
    /// The way that was tried last, and messages for which that goes on.
    tried: usize,
    left: u32,
    /// Some way that can be gone is not known well yet.
    learning: bool,
    /// The last decision was a try.
    trying: bool,
}

/// Paces from one peer.
#[derive(Clone, Debug, Default)]
pub struct ProtocolTuner {
    classes: [SizeClass; TUNER_CLASSES],
    /// Ways that turned out to be impossible.
    barred: [bool; WAYS.len()],
}

/// Measurements of one class, for reports: nanoseconds per kilobyte by way, where known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TunerReport {
    /// In the order of [`WAYS`].
    pub costs: [Option<f64>; WAYS.len()],
    /// Way that the next message uses, if it is nobody's turn to be tried.
    pub preferred: RendezvousMode,
}

impl ProtocolTuner {
    /// The cost model says this of messages of `len` bytes, in nanoseconds.
    pub fn seed(&mut self, way: RendezvousMode, len: u64, ns: f64) {
        let cost = (ns * 1000.0 / len.max(1) as f64).clamp(1.0, f64::from(u32::MAX)) as u32;
        self.classes[class(len)].cells[column(way)] = MeasuredTime {
            cost,
            ..MeasuredTime::default()
        };
    }

    /// A fetch of `len` bytes took so long.
    pub fn took(&mut self, way: RendezvousMode, len: u64, took: Duration) {
        let (class, way) = (class(len), column(way));
        let now = (took.as_nanos().saturating_mul(1000) / u128::from(len.max(1))).clamp(1, 1 << 31)
            as u32;
        let best = (0..WAYS.len())
            .map(|way| self.guess(class, way))
            .filter(|cost| *cost > 0)
            .min();
        let known = &mut self.classes[class];
        let old = known.cells[way].cost;
        let share = if known.learning {
            TUNER_EARNED_UNSURE
        } else {
            TUNER_EARNED_SURE
        };
        known.earned += price(now, len) / share;
        if known.trying {
            known.earned -= price(now.saturating_sub(best.unwrap_or(now)), len);
        }
        let most = price(now, len).saturating_mul(TUNER_EARNED_MAX);
        known.earned = known.earned.clamp(-most, most);
        // The first of several finds caches and lanes as another way left them.
        if known.trying && way == known.tried && known.left > 0 && known.left + 1 == tries(len) {
            return;
        }
        if known.cells[way].learn(now) {
            // The cores moved: the other ways gain or lose by that, too, and how much has to be
            // seen.
            let new = u64::from(known.cells[way].cost);
            for other in (0..WAYS.len()).filter(|other| *other != way) {
                let cell = &mut known.cells[other];
                if cell.cost == 0 {
                    continue;
                }
                // 0 would stand for a way of which nothing is known.
                let moved = (u64::from(cell.cost) * new / u64::from(old)).max(1);
                // It may also be this way alone that got slower: no other is thought worse than it.
                cell.cost = moved.min(new.max(cell.cost.into())) as u32;
                cell.seen = cell.seen.min(1);
            }
        }
    }

    /// The way cannot be gone with this peer.
    pub fn bar(&mut self, way: RendezvousMode) {
        self.barred[column(way)] = true;
    }

    /// Returns the pace of a way in a class, or what the nearest shorter class with one
    /// says, and how many classes away that is.
    fn nearest(&self, class: usize, way: usize) -> (u32, usize) {
        let known = self.classes[..=class].iter().rev().enumerate();
        let known = known.map(|(away, class)| (class.cells[way].cost, away));
        let (cost, away) = known
            .into_iter()
            .find(|(cost, _)| *cost > 0)
            .unwrap_or((0, 0));
        // The kernel's copies leave buffers in the wrong core's caches and lanes cold, which is
        // measured with the messages after them.
        let more = if WAYS[way] == RendezvousMode::Data {
            0
        } else {
            cost / TUNER_KERNEL_HANDICAP
        };
        (cost.saturating_add(more), away)
    }

    fn guess(&self, class: usize, way: usize) -> u32 {
        self.nearest(class, way).0
    }

    /// Returns the pace that a way may turn out to take at best: with every class a quarter less
    /// than in the one before, since what a message costs beside its bytes weighs less. One that is
    /// hoped for too much is tried once, one that is not would never be. In long messages the bytes
    /// are all that weighs: hope alone would have each way tried in the first messages of every new
    /// length.
    fn hope(&self, class: usize, way: usize) -> u32 {
        let (cost, away) = self.nearest(class, way);
        let short = class_of_long().saturating_sub(class - away);
        (0..away.min(short).min(4)).fold(cost, |cost, _| cost - cost / 4)
    }

    fn open(&self, way: usize, len: u64) -> bool {
        !self.barred[way] && (WAYS[way] != RendezvousMode::Share || len >= SHARE_MIN)
    }

    /// Returns the way known to be best, among those that are `able`; packets if nothing is.
    pub fn preferred(&self, len: u64, able: impl Fn(RendezvousMode) -> bool) -> RendezvousMode {
        let class = class(len);
        let known = (0..WAYS.len())
            .filter(|way| self.open(*way, len) && able(WAYS[*way]))
            .map(|way| (self.guess(class, way), WAYS[way]))
            .filter(|(cost, _)| *cost > 0);
        known
            .min_by_key(|(cost, _)| *cost)
            .map_or(RendezvousMode::Data, |(_, way)| way)
    }

    /// Returns how to fetch the next message, among the ways that are `able`.
    pub fn decide(&mut self, len: u64, able: impl Fn(RendezvousMode) -> bool) -> RendezvousMode {
        let class = class(len);
        let usual = column(self.preferred(len, &able));
        let known = &mut self.classes[class];
        if known.left > 0 && known.tried != usual {
            known.left -= 1;
            if !self.barred[known.tried] && able(WAYS[known.tried]) {
                return WAYS[known.tried];
            }
            known.left = 0;
        }
        let known = &self.classes[class];
        let others = (1..=WAYS.len())
            .map(|step| (known.tried + step) % WAYS.len())
            .filter(|way| *way != usual && self.open(*way, len) && able(WAYS[*way]));
        let unsure = others
            .clone()
            .filter(|way| known.cells[*way].seen < TUNER_SURE);
        let best = self.guess(class, usual);
        let tries = i64::from(tries(len));
        let lost = |way: usize| {
            price(self.hope(class, way).saturating_sub(best), len).saturating_mul(tries)
        };
        let picked = unsure.min_by_key(|way| self.hope(class, *way)).or_else(|| {
            // In turn, but for those that could never be paid for.
            let most = price(best, len).saturating_mul(TUNER_EARNED_MAX);
            let mut payable = others.filter(|way| lost(*way) <= most);
            payable.next().filter(|_| known.since >= TUNER_RETRY_EVERY)
        });
        let learning = picked.is_some_and(|way| known.cells[way].seen < TUNER_SURE);
        // What nothing at all is known about, or may be best, is tried at once, but not before the
        // usual way has been measured: packets keep to it until then, which leaves their lane in
        // the caches, and the first message of a length touches its memory for the first time.
        // Unless it cannot be gone now, or never runs alone and so is not measured.
        let begun =
            known.cells[usual].seen > 0 || !able(WAYS[usual]) || known.since >= TUNER_UNMEASURED;
        let affordable = picked.filter(|way| begun && lost(*way) <= known.earned.max(0));
        let known = &mut self.classes[class];
        (known.learning, known.trying) = (learning, affordable.is_some());
        match affordable {
            Some(way) => {
                (known.tried, known.since, known.left) = (way, 0, tries as u32 - 1);
                WAYS[way]
            }
            None => {
                known.since = known.since.saturating_add(1);
                WAYS[usual]
            }
        }
    }

    /// Index of a pace in the order of classes and ways, and the pace in picoseconds per byte.
    pub(crate) fn cell(&self, len: u64, way: RendezvousMode) -> (usize, u32) {
        let (class, way) = (class(len), column(way));
        (
            class * WAYS.len() + way,
            self.classes[class].cells[way].cost,
        )
    }

    /// Returns the measurements of messages of `len` bytes, in their class.
    pub fn known(&self, len: u64) -> TunerReport {
        let cells = &self.classes[class(len)].cells;
        TunerReport {
            costs: std::array::from_fn(|way| {
                (cells[way].cost > 0).then(|| f64::from(cells[way].cost) * 1.024)
            }),
            preferred: self.preferred(len, |_| true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 1 << 20;

    fn any(_: RendezvousMode) -> bool {
        true
    }

    /// A pace that has seen each way often, in nanoseconds per message of `LEN`.
    fn seen(each: [u64; 4]) -> ProtocolTuner {
        let mut tuner = ProtocolTuner::default();
        for _ in 0..4 {
            for (way, ns) in WAYS.iter().zip(each) {
                tuner.took(*way, LEN, Duration::from_nanos(ns));
            }
        }
        tuner
    }

    #[test]
    fn what_cannot_be_gone_now_is_not_gone_for_want_of_anything_known() {
        assert_eq!(
            ProtocolTuner::default().decide(LEN, |way| way == RendezvousMode::Read),
            RendezvousMode::Read
        );
    }

    #[test]
    fn where_nothing_is_ever_measured_all_ways_are_gone() {
        let mut tuner = ProtocolTuner::default();
        let mut gone = [0; WAYS.len()];
        (0..1000).for_each(|_| gone[column(tuner.decide(LEN, any))] += 1);
        assert!(gone.iter().all(|count| *count > 0), "{gone:?}");
    }

    #[test]
    fn every_way_is_tried_some_times_before_one_is_preferred() {
        let mut tuner = ProtocolTuner::default();
        let mut tried = Vec::new();
        for _ in 0..20 * WAYS.len() * usize::from(TUNER_SURE) {
            let way = tuner.decide(LEN, any);
            tuner.took(way, LEN, Duration::from_micros(100));
            tried.push(way);
        }
        for way in WAYS {
            let count = tried.iter().filter(|other| **other == way).count();
            assert!(count >= usize::from(TUNER_SURE), "{way:?} {count}");
        }
    }

    #[test]
    fn a_way_that_was_measured_stays_known_however_wildly_the_others_change() {
        let mut each = [100_000; 4];
        each[column(RendezvousMode::Read)] = 1 << 30;
        let mut tuner = seen(each);
        for _ in 0..40 {
            tuner.took(RendezvousMode::Read, LEN, Duration::from_nanos(1));
            assert!(tuner.known(LEN).costs.iter().all(Option::is_some));
        }
        for way in WAYS {
            for _ in 0..20 {
                tuner.took(way, LEN, Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn ways_that_cannot_be_gone_are_not_tried() {
        let mut tuner = ProtocolTuner::default();
        tuner.bar(RendezvousMode::Write);
        for _ in 0..1000 {
            let way = tuner.decide(LEN, |way| way != RendezvousMode::Share);
            assert!(matches!(way, RendezvousMode::Read | RendezvousMode::Data));
            tuner.took(way, LEN, Duration::from_micros(100));
        }
        assert_eq!(tuner.decide(LEN, |_| false), RendezvousMode::Data);
    }

    #[test]
    fn a_short_message_is_not_shared() {
        let mut tuner = ProtocolTuner::default();
        for _ in 0..100 {
            let way = tuner.decide(SHARE_MIN - 1, any);
            assert_ne!(way, RendezvousMode::Share);
            tuner.took(way, SHARE_MIN - 1, Duration::from_micros(5));
        }
    }

    /// Fetches so many messages of `len` where each way takes so many nanoseconds. How often each
    /// was gone, and the time of all by that of the quickest way alone.
    fn fetch(tuner: &mut ProtocolTuner, len: u64, count: u64, each: [u64; 4]) -> ([u64; 4], f64) {
        let (mut gone, mut total) = ([0; 4], 0);
        for _ in 0..count {
            let way = column(tuner.decide(len, any));
            tuner.took(WAYS[way], len, Duration::from_nanos(each[way]));
            gone[way] += 1;
            total += each[way];
        }
        (
            gone,
            total as f64 / (count * each.iter().min().unwrap()) as f64,
        )
    }

    #[test]
    fn the_ways_not_preferred_are_tried_again_now_and_then_at_a_price_that_was_earned() {
        let each = [80_000, 90_000, 50_000, 400_000];
        let mut tuner = seen(each);
        let (gone, price) = fetch(&mut tuner, LEN, 5000, each);
        assert!(gone.iter().all(|count| *count > 5), "{gone:?}");
        assert!(price < 1.03, "{price} {gone:?}");
    }

    #[test]
    fn a_few_long_messages_are_not_spent_on_learning() {
        let each = [60_000, 70_000, 80_000, 30_000];
        let mut tuner = seen(each);
        let (gone, price) = fetch(&mut tuner, 16 * LEN, 24, each.map(|ns| 16 * ns));
        assert!(gone[3] >= 20 && price < 1.2, "{gone:?} {price}");
    }

    #[test]
    fn the_first_long_messages_of_a_length_go_as_shorter_ones_did() {
        let mut tuner = ProtocolTuner::default();
        for shift in [18, 19, 21] {
            fetch(
                &mut tuner,
                1 << shift,
                400,
                [130, 130, 100, 60].map(|each| each << (shift - 10)),
            );
        }
        // Half a dozen is all that many a program sends of them.
        let each = [210, 210, 170, 90].map(|each| each << 14);
        let (gone, _) = fetch(&mut tuner, 16 * LEN, 7, each);
        assert_eq!(gone, [0, 0, 0, 7]);
        let (gone, price) = fetch(&mut tuner, 16 * LEN, 100, each);
        assert!(
            gone[..3].iter().all(|count| *count > 0) && price < 1.1,
            "{gone:?} {price}"
        );
    }

    #[test]
    fn the_kernel_has_to_be_clearly_better_than_lanes() {
        assert_eq!(
            seen([80_000, 80_000, 70_000, 80_000]).preferred(LEN, any),
            RendezvousMode::Data
        );
        assert_eq!(
            seen([80_000, 80_000, 50_000, 80_000]).preferred(LEN, any),
            RendezvousMode::Share
        );
    }

    #[test]
    fn a_way_that_is_quick_only_after_itself_is_found() {
        let mut tuner = ProtocolTuner::default();
        let (mut last, mut gone) = (0, [0; 4]);
        for turn in 0..2000 {
            let way = column(tuner.decide(LEN, any));
            let lanes = if last == way { 50_000 } else { 110_000 };
            tuner.took(
                WAYS[way],
                LEN,
                Duration::from_nanos([90_000, 100_000, 80_000, lanes][way]),
            );
            gone[way] += u32::from(turn >= 1000);
            last = way;
        }
        assert!(gone[3] > 850, "{gone:?}");
    }

    #[test]
    fn what_shorter_messages_say_is_not_believed_for_long() {
        let mut tuner = seen([80_000, 90_000, 70_000, 240_000]);
        let (gone, price) = fetch(
            &mut tuner,
            4 * LEN,
            100,
            [320_000, 360_000, 280_000, 160_000],
        );
        assert!(gone[3] > 60 && price < 1.35, "{gone:?} {price}");
    }

    #[test]
    fn cores_that_move_apart_or_nearer_are_noticed_within_some_messages() {
        let (near, far) = (
            [65_000, 70_000, 45_000, 50_000],
            [185_000, 180_000, 160_000, 84_000],
        );
        let mut tuner = seen(near);
        fetch(&mut tuner, LEN, 100, near);
        fetch(&mut tuner, LEN, 40, far);
        let (gone, price) = fetch(&mut tuner, LEN, 100, far);
        assert!(gone[3] > 85 && price < 1.15, "{gone:?} {price}");
        fetch(&mut tuner, LEN, 40, near);
        let (_, price) = fetch(&mut tuner, LEN, 100, near);
        assert!(price < 1.15, "{price}");
    }

    #[test]
    fn one_slow_transfer_does_not_turn_a_clear_decision_but_many_do() {
        let mut tuner = seen([80_000, 400_000, 400_000, 400_000]);
        tuner.took(RendezvousMode::Read, LEN, Duration::from_millis(100));
        assert_eq!(tuner.preferred(LEN, any), RendezvousMode::Read);
        for _ in 0..40 {
            tuner.took(RendezvousMode::Read, LEN, Duration::from_millis(1));
        }
        assert_ne!(tuner.preferred(LEN, any), RendezvousMode::Read);
    }

    #[test]
    fn a_length_never_seen_goes_by_what_shorter_ones_say() {
        let mut tuner = seen([80_000, 90_000, 50_000, 400_000]);
        assert_eq!(tuner.decide(16 * LEN, any), RendezvousMode::Share);
    }

    #[test]
    fn lengths_fall_into_classes_of_powers_of_two() {
        assert_eq!(
            [class(0), class(4096), class(8191), class(8192)],
            [0, 0, 0, 1]
        );
        assert_eq!(class(u64::MAX), TUNER_CLASSES - 1);
    }
}
