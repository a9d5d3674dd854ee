//! Striping of large transfers over several rails between two ranks.
//!
//! Pure functions. Whoever moves the data asks them each time that a rail has room for another
//! piece. Water-filling by rate, latency and backlog says which share of the rest a rail should
//! carry so that all end together. A piece is half of that share, so that pieces shrink towards the
//! end, and the next ones make up for wrong estimates. A rail that would end after the others have
//! carried everything carries nothing.

use crate::limits::{STRIPE_EQUAL, STRIPE_LEAST, STRIPE_MICROSECONDS, STRIPE_MOST};

/// Which decisions are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StripePolicy {
    /// Every rail that has room takes a piece of [`STRIPE_EQUAL`] bytes, whatever it moves.
    Equal,
    /// Each rail takes all of its share that one piece may have, so that there are few.
    Shares,
    /// The rail that is quickest, as far as that is known, takes all, and is waited for.
    Quickest,
    /// Shares by estimates, in shrinking pieces, so that all rails end together.
    #[default]
    Balanced,
}

impl StripePolicy {
    /// All variants.
    #[cfg(test)]
    const ALL: [Self; 4] = [Self::Equal, Self::Shares, Self::Quickest, Self::Balanced];

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Equal => "equal pieces, for whichever has room",
            Self::Shares => "each its share, in few pieces",
            Self::Quickest => "all by the quickest",
            Self::Balanced => "as measured, so that all end together",
        }
    }

    /// Bytes that way `at` should be asked for now, of `left` that nobody was asked for; 0: none,
    /// others are to take it. As long as bytes are left, some rail gets some once all backlogs are
    /// gone.
    pub fn piece(self, ways: &[RailEstimate], at: usize, left: u64) -> u64 {
        let Some(way) = ways.get(at) else { return 0 };
        if ways.len() == 1 {
            return left.min(most(way));
        }
        match self {
            Self::Equal => left.min(STRIPE_EQUAL),
            Self::Quickest if quickest(ways, left) == at => left.min(most(way)),
            Self::Quickest => 0,
            Self::Shares => part(ways, at, left, 1.0),
            Self::Balanced => part(ways, at, left, 0.5),
        }
    }
}

/// Estimated state of a rail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RailEstimate {
    /// Bytes that it moves in a microsecond; above 0.
    pub rate: f64,
    /// Microseconds from a request to its first byte.
    pub latency: f64,
    /// Bytes that it still has to move.
    pub backlog: u64,
}

impl RailEstimate {
    /// When something asked now would begin to come.
    fn begins(&self) -> f64 {
        self.latency.max(self.backlog as f64 / self.rate)
    }

    /// When it would have moved so many bytes more.
    fn ends(&self, len: u64) -> f64 {
        self.begins() + len as f64 / self.rate
    }
}

/// When all is over, if `left` bytes more are split so that all rails which take part end together.
pub fn ends_together(ways: &[RailEstimate], left: u64) -> f64 {
    let mut end = f64::INFINITY;
    // Those that would begin after the end are left out, which makes the end later; so this settles
    // after as many turns as there are rails.
    for _ in 0..=ways.len() {
        let (mut rate, mut debt) = (0.0, left as f64);
        for way in ways.iter().filter(|way| way.begins() < end) {
            rate += way.rate;
            debt += way.rate * way.begins();
        }
        let next = if rate > 0.0 { debt / rate } else { end };
        if next == end {
            break;
        }
        end = next;
    }
    end
}

/// The rail that would have moved so many bytes first, if it took them alone.
pub fn first(ways: &[RailEstimate], len: u64) -> usize {
    let by_end = |a: &usize, b: &usize| ways[*a].ends(len).total_cmp(&ways[*b].ends(len));
    (0..ways.len()).min_by(by_end).unwrap_or(0)
}

/// The rail that would have moved so many bytes first if it had nothing else to move.
fn quickest(ways: &[RailEstimate], len: u64) -> usize {
    let idle: Vec<RailEstimate> = ways
        .iter()
        .map(|way| RailEstimate { backlog: 0, ..*way })
        .collect();
    first(&idle, len)
}

/// Returns the piece of `left` that a rail should carry now; 0: other rails are quicker.
fn part(ways: &[RailEstimate], at: usize, left: u64, of: f64) -> u64 {
    let way = &ways[at];
    let share = (ends_together(ways, left) - way.begins()) * way.rate;
    if left < 2 * STRIPE_LEAST || share < least(way) as f64 / 2.0 {
        // Not worth two requests: whoever has it first.
        return if first(ways, left) == at {
            left.min(most(way))
        } else {
            0
        };
    }
    let piece = (share * of) as u64;
    piece.clamp(least(way), most(way)).min(left)
}

/// Returns the smallest piece that keeps a rail busy until the next one begins to come.
fn least(way: &RailEstimate) -> u64 {
    ((way.rate * way.latency) as u64).clamp(STRIPE_LEAST, STRIPE_MOST)
}

/// A piece should not take longer than this, so that a rail that gets slower or breaks keeps
/// little.
pub fn most(way: &RailEstimate) -> u64 {
    ((way.rate * STRIPE_MICROSECONDS.max(way.latency)) as u64).clamp(STRIPE_LEAST, STRIPE_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::STRIPE_PATHS;
    use proptest::prelude::*;

    fn way(rate: f64, latency: f64, backlog: u64) -> RailEstimate {
        RailEstimate {
            rate,
            latency,
            backlog,
        }
    }

    /// Moves `total` bytes over rails of these rates, of which each really moves as fast as `truth`
    /// says, with at most `depth` pieces asked of each. The time it took, and what each carried.
    fn run(believed: &[RailEstimate], truth: &[f64], total: u64, depth: usize) -> (f64, Vec<u64>) {
        let (took, pieces) = run_as(StripePolicy::Balanced, (believed, truth), total, depth);
        (
            took,
            pieces.iter().map(|pieces| pieces.iter().sum()).collect(),
        )
    }

    /// Simulates a transfer, and returns its end with the number of pieces of each rail.
    fn run_as(
        splitting: StripePolicy,
        (believed, truth): (&[RailEstimate], &[f64]),
        total: u64,
        depth: usize,
    ) -> (f64, Vec<Vec<u64>>) {
        let mut left = total;
        let mut asked: Vec<std::collections::VecDeque<(f64, u64)>> =
            vec![Default::default(); truth.len()];
        let mut carried = vec![Vec::new(); truth.len()];
        let mut now = 0.0;
        loop {
            loop {
                let mut moved = false;
                for at in 0..truth.len() {
                    let ways: Vec<RailEstimate> = believed
                        .iter()
                        .zip(&asked)
                        .map(|(way, asked)| RailEstimate {
                            backlog: asked.iter().map(|(_, len)| len).sum(),
                            ..*way
                        })
                        .collect();
                    if asked[at].len() >= depth || left == 0 {
                        continue;
                    }
                    let len = splitting.piece(&ways, at, left);
                    assert!(len <= left);
                    if len > 0 {
                        let begins = asked[at]
                            .back()
                            .map_or(now + believed[at].latency, |(end, _)| {
                                f64::max(*end, now + believed[at].latency)
                            });
                        asked[at].push_back((begins + len as f64 / truth[at], len));
                        left -= len;
                        moved = true;
                    }
                }
                if !moved {
                    break;
                }
            }
            let next = (0..truth.len())
                .filter(|at| !asked[*at].is_empty())
                .min_by(|a, b| asked[*a][0].0.total_cmp(&asked[*b][0].0));
            let Some(at) = next else {
                assert_eq!(left, 0, "bytes are left and nobody is asked for them");
                return (now, carried);
            };
            let (end, len) = asked[at].pop_front().unwrap();
            now = end;
            carried[at].push(len);
        }
    }

    #[test]
    fn ways_of_one_to_four_and_one_to_ten_give_nearly_their_sum() {
        for slow in [0.25, 0.1, 1.0] {
            let ways = [way(1000.0, 100.0, 0), way(1000.0 * slow, 100.0, 0)];
            let total = 64 << 20;
            let (took, carried) = run(&ways, &[1000.0, 1000.0 * slow], total, 2);
            let ideal = total as f64 / (1000.0 * (1.0 + slow));
            assert!(took < ideal * 1.05, "{slow}: {took} {ideal} {carried:?}");
        }
    }

    #[test]
    fn what_was_misjudged_is_made_good() {
        // Both are believed equal; one is four times as slow.
        let ways = [way(1000.0, 100.0, 0), way(1000.0, 100.0, 0)];
        let total = 256 << 20;
        let (took, _) = run(&ways, &[1000.0, 250.0], total, 2);
        let ideal = total as f64 / 1250.0;
        assert!(took < ideal * 1.15, "{took} {ideal}");
    }

    #[test]
    fn a_way_that_begins_late_carries_nothing_of_a_short_message() {
        let ways = [way(1000.0, 50.0, 0), way(1000.0, 50_000.0, 0)];
        assert_eq!(StripePolicy::Balanced.piece(&ways, 1, 1 << 20), 0);
        assert!(StripePolicy::Balanced.piece(&ways, 0, 1 << 20) > 0);
        assert!(StripePolicy::Balanced.piece(&ways, 1, 1 << 30) > 0);
        // A long queue is as bad as a long way.
        let ways = [way(1000.0, 50.0, 0), way(1000.0, 50.0, 50 << 20)];
        assert_eq!(StripePolicy::Balanced.piece(&ways, 1, 1 << 20), 0);
    }

    #[test]
    fn each_strategy_splits_as_it_says() {
        let ways = [way(1000.0, 100.0, 0), way(250.0, 100.0, 0)];
        let total = 64 << 20;
        let run = |splitting| run_as(splitting, (&ways, &[1000.0, 250.0]), total, 2).1;
        let sum = |pieces: &[u64]| pieces.iter().sum::<u64>();
        let equal = run(StripePolicy::Equal);
        assert!(equal.iter().flatten().all(|len| *len == STRIPE_EQUAL));
        assert!(equal.iter().all(|pieces| sum(pieces) > total / 8));
        let quickest = run(StripePolicy::Quickest);
        assert_eq!((sum(&quickest[0]), sum(&quickest[1])), (total, 0));
        let (shares, balanced) = (run(StripePolicy::Shares), run(StripePolicy::Balanced));
        let count = |pieces: &[Vec<u64>]| pieces.iter().map(Vec::len).sum::<usize>();
        assert!(
            count(&shares) < count(&balanced),
            "{} {}",
            count(&shares),
            count(&balanced)
        );
        for pieces in [&shares, &balanced] {
            let part = sum(&pieces[0]) as f64 / total as f64;
            assert!((0.7..0.9).contains(&part), "{part}");
        }
    }

    proptest! {
        #[test]
        fn all_is_carried_whatever_the_strategy_and_however_wrong_it_is_about_the_ways(
            splitting in prop::sample::select(StripePolicy::ALL.to_vec()),
            rates in prop::collection::vec((1.0f64..5000.0, 1.0f64..5000.0, 1.0f64..5000.0), 1..=STRIPE_PATHS),
            total in 1u64..200_000_000,
            depth in 1usize..4,
        ) {
            let ways: Vec<RailEstimate> = rates.iter().map(|(rate, latency, _)| way(*rate, *latency, 0)).collect();
            let truth: Vec<f64> = rates.iter().map(|(.., truth)| *truth).collect();
            let (_, pieces) = run_as(splitting, (&ways, &truth), total, depth);
            prop_assert_eq!(pieces.iter().flatten().sum::<u64>(), total);
            prop_assert!(pieces.iter().flatten().all(|len| *len <= STRIPE_MOST));
        }

        #[test]
        fn all_is_carried_and_never_later_than_by_the_best_way_alone(
            rates in prop::collection::vec((1.0f64..5000.0, 1.0f64..5000.0), 1..=STRIPE_PATHS),
            total in 1u64..200_000_000,
            depth in 2usize..4,
        ) {
            let ways: Vec<RailEstimate> = rates.iter().map(|(rate, latency)| way(*rate, *latency, 0)).collect();
            let truth: Vec<f64> = rates.iter().map(|(rate, _)| *rate).collect();
            let (took, carried) = run(&ways, &truth, total, depth);
            prop_assert_eq!(carried.iter().sum::<u64>(), total);
            let alone = ways
                .iter()
                .zip(&truth)
                .map(|(only, truth)| run(&[*only], &[*truth], total, depth).0)
                .fold(f64::INFINITY, f64::min);
            // One piece more than the best rail's share may be on the others when it ends.
            let last = |way: &RailEstimate| way.latency + least(way) as f64 / way.rate;
            let slack = ways.iter().filter(|way| way.ends(0) < alone).map(last).fold(0.0, f64::max);
            prop_assert!(took <= alone * 1.01 + slack, "{} {} {}", took, alone, slack);
            let sum: f64 = truth.iter().sum();
            prop_assert!(took * sum >= total as f64 * 0.999);
        }
    }
}
