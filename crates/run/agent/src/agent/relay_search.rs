//! When a way is looked for between two hosts whose ranks do not reach each other, and which. Pure:
//! time is an argument.
//!
//! Owned by the first agent, which hears that ranks ask for each other's calls. First hosts are
//! asked that reach the one that is called; then, if none has answered, whether the two can meet at
//! the job's own, and then at others. Bounded by [`SOUGHT_MAX`]; what nobody asks for any more is
//! forgotten.

use std::collections::HashMap;
use std::time::Instant;

use garonne_job::limits::{RENDEZVOUS_AFTER, SOUGHT_MAX, WAY_AFTER, WAY_FORGETS, WAY_ROUNDS};

/// Number of times that it is looked for a place to meet in a round: at the job's own host, and at
/// others.
const RENDEZVOUS_HOSTS: u32 = 2;

/// Next step of a search for relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchStep {
    Nothing,
    /// A host that reaches the one that is called.
    Caller,
    /// Whether both reach the job's own host; how many rounds have found no place before.
    VenueHere(u32),
    /// Whether both reach another; the same.
    VenueElsewhere(u32),
}

/// Pairs of nodes, from caller to called, that do not reach each other.
#[derive(Debug, Default)]
pub(super) struct RelaySearch {
    sought: HashMap<(u32, u32), SearchedPair>,
    /// When two nodes were last told where to meet, the lower first.
    settled: HashMap<(u32, u32), Instant>,
    /// When it was last looked for such.
    swept: Option<Instant>,
}

#[derive(Debug)]
struct SearchedPair {
    /// When one first asked, and last.
    since: Instant,
    last: Instant,
    /// All other nodes have been asked.
    asked: Option<Instant>,
    /// Number of times that they were, in this case.
    rounds: u32,
    /// A host has answered since the search began.
    found: bool,
    /// Since then it was looked for hosts where both can call: at the job's own, and at others.
    venues: u32,
    /// Since then the two were told of one.
    told: bool,
    /// Rounds in which they were told of none, though all were asked that are in one.
    failed: u32,
}

impl RelaySearch {
    /// A rank of the first node of a pair does not reach one of the second. What is to be done
    /// about it now.
    pub(super) fn record_unreachable(&mut self, nodes: (u32, u32), now: Instant) -> SearchStep {
        if self.swept.is_none_or(|swept| now > swept + WAY_FORGETS) {
            self.swept = Some(now);
            self.sought
                .retain(|_, known| now <= known.last + WAY_FORGETS);
            self.settled
                .retain(|_, settled| now <= *settled + WAY_FORGETS);
        }
        if self.sought.len() >= SOUGHT_MAX && !self.sought.contains_key(&nodes) {
            return SearchStep::Nothing;
        }
        let this = self.sought.entry(nodes).or_insert(SearchedPair {
            since: now,
            last: now,
            asked: None,
            rounds: 0,
            found: false,
            venues: 0,
            told: false,
            failed: 0,
        });
        if now > this.last + WAY_FORGETS {
            (this.since, this.rounds) = (now, 0);
        }
        this.last = now;
        match this.asked {
            _ if now < this.since + WAY_AFTER => SearchStep::Nothing,
            Some(asked) if now < asked + WAY_FORGETS * this.rounds.clamp(1, WAY_ROUNDS) => {
                this.next(now)
            }
            _ => {
                this.failed += u32::from(this.venues >= RENDEZVOUS_HOSTS && !this.told);
                (this.asked, this.rounds) = (Some(now), this.rounds + 1);
                (this.found, this.venues, this.told) = (false, 0, false);
                SearchStep::Caller
            }
        }
    }

    /// A host has answered that reaches the second node of a pair.
    pub(super) fn record_found(&mut self, nodes: (u32, u32)) {
        if let Some(this) = self.sought.get_mut(&nodes) {
            this.found = true;
        }
    }

    /// Returns whether two nodes were told just now where to meet.
    pub(super) fn is_settled(&self, two: (u32, u32), now: Instant) -> bool {
        let lately = self.settled.get(&ordered(two));
        lately.is_some_and(|settled| now < *settled + WAY_FORGETS)
    }

    /// Both of two nodes reach one where they can meet, and that expects them: whether they are to
    /// be told.
    pub(super) fn settle(&mut self, two: (u32, u32), now: Instant) -> bool {
        let nodes = ordered(two);
        let is_new = !self.settled.contains_key(&nodes);
        if self.is_settled(two, now) || self.settled.len() >= SOUGHT_MAX && is_new {
            return false;
        }
        self.settled.insert(nodes, now);
        for nodes in [nodes, (nodes.1, nodes.0)] {
            if let Some(this) = self.sought.get_mut(&nodes) {
                this.told = true;
            }
        }
        true
    }
}

fn ordered((one, other): (u32, u32)) -> (u32, u32) {
    (one.min(other), one.max(other))
}

impl SearchedPair {
    /// All have been asked, and still one does not reach the other.
    fn next(&mut self, now: Instant) -> SearchStep {
        let passed = self.found && self.rounds == 1;
        let due = self
            .asked
            .is_some_and(|asked| now >= asked + RENDEZVOUS_AFTER * (self.venues + 1));
        if passed || !due || self.venues >= RENDEZVOUS_HOSTS {
            return SearchStep::Nothing;
        }
        self.venues += 1;
        match self.venues {
            1 => SearchStep::VenueHere(self.failed),
            _ => SearchStep::VenueElsewhere(self.failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the steps of each second in which a pair is unreachable, from the first on.
    fn each_second(search: &mut RelaySearch, begun: Instant, seconds: u32) -> Vec<SearchStep> {
        let missed = |second| search.record_unreachable((1, 2), begun + SECOND * second);
        (0..seconds).map(missed).collect()
    }

    fn elsewhere(seek: &SearchStep) -> Option<u32> {
        match seek {
            SearchStep::VenueElsewhere(failed) => Some(*failed),
            _ => None,
        }
    }

    #[test]
    fn others_are_asked_for_a_way_when_two_have_missed_each_other_for_a_while_and_then_not_for_another()
     {
        let (mut search, begun) = (RelaySearch::default(), Instant::now());
        let seen = each_second(&mut search, begun, 12);
        let asked: Vec<usize> = (0..12)
            .filter(|second| seen[*second] == SearchStep::Caller)
            .collect();
        assert_eq!(asked, [2, 7]);
        // Long after, it is another case.
        let later = begun + WAY_FORGETS * 10;
        assert_eq!(
            search.record_unreachable((1, 2), later),
            SearchStep::Nothing
        );
        assert_eq!(
            search.record_unreachable((1, 2), later + WAY_AFTER),
            SearchStep::Caller
        );
    }

    #[test]
    fn who_asks_for_long_as_one_that_waits_where_it_should_is_looked_for_more_seldom() {
        let (mut search, begun) = (RelaySearch::default(), Instant::now());
        // As calls that are kept.
        let seen = each_second(&mut search, begun, 200);
        let asked: Vec<u32> = (0..200u32)
            .filter(|second| seen[*second as usize] == SearchStep::Caller)
            .collect();
        assert_eq!(asked[..5], [2, 7, 17, 32, 52]);
        let most = WAY_FORGETS * WAY_ROUNDS;
        assert!(
            asked[4..]
                .windows(2)
                .all(|two| SECOND * (two[1] - two[0]) == most)
        );
        // Each time to its end.
        let here = seen
            .iter()
            .filter(|seek| matches!(seek, SearchStep::VenueHere(_)));
        assert!(here.count() + 1 >= asked.len());
        // Nobody has been told of a place: each time others are asked.
        let elsewhere: Vec<u32> = seen.iter().filter_map(elsewhere).collect();
        assert!(elsewhere.len() + 1 >= asked.len());
        assert!(
            (0..)
                .zip(elsewhere)
                .all(|(before, failed)| failed == before)
        );
        let last = begun + SECOND * 199;
        assert_eq!(
            search.record_unreachable((1, 2), last + WAY_FORGETS + SECOND),
            SearchStep::Nothing
        );
    }

    #[test]
    fn where_nobody_reaches_either_they_are_to_meet_at_the_job_s_own_host_or_else_at_another() {
        let (mut search, begun) = (RelaySearch::default(), Instant::now());
        let seen = each_second(&mut search, begun, 7);
        let wanted = [
            SearchStep::Nothing,
            SearchStep::Nothing,
            SearchStep::Caller,
            SearchStep::VenueHere(0),
            SearchStep::VenueElsewhere(0),
            SearchStep::Nothing,
            SearchStep::Nothing,
        ];
        assert_eq!(seen, wanted);
    }

    #[test]
    fn others_are_asked_only_after_a_round_in_which_two_were_told_of_no_place() {
        let (mut search, begun) = (RelaySearch::default(), Instant::now());
        assert!(each_second(&mut search, begun, 7).contains(&SearchStep::VenueElsewhere(0)));
        assert!(search.settle((2, 1), begun + SECOND * 6));
        let later = begun + SECOND * 7;
        let seen = each_second(&mut search, later, 10);
        assert_eq!(seen.iter().find_map(elsewhere), Some(0));
        let seen = each_second(&mut search, later + SECOND * 10, 10);
        assert_eq!(seen.iter().find_map(elsewhere), Some(1));
    }

    #[test]
    fn who_was_told_of_a_host_that_calls_one_meets_nowhere_unless_that_was_in_vain() {
        let (mut search, begun) = (RelaySearch::default(), Instant::now());
        assert_eq!(each_second(&mut search, begun, 3)[2], SearchStep::Caller);
        search.record_found((1, 2));
        for second in 3..7 {
            assert_eq!(
                search.record_unreachable((1, 2), begun + SECOND * second),
                SearchStep::Nothing
            );
        }
        assert_eq!(
            search.record_unreachable((1, 2), begun + SECOND * 7),
            SearchStep::Caller
        );
        search.record_found((1, 2));
        assert_eq!(
            search.record_unreachable((1, 2), begun + SECOND * 8),
            SearchStep::VenueHere(0)
        );
    }

    #[test]
    fn two_are_told_where_to_meet_once_for_a_while_whoever_of_them_was_missed() {
        let (mut search, begun) = (RelaySearch::default(), Instant::now());
        assert!(search.settle((1, 2), begun));
        assert!(
            !search.settle((2, 1), begun + SECOND) && search.is_settled((2, 1), begun + SECOND)
        );
        assert!(search.settle((3, 1), begun + SECOND));
        assert!(
            !search.is_settled((2, 1), begun + WAY_FORGETS)
                && search.settle((2, 1), begun + WAY_FORGETS)
        );
    }

    #[test]
    fn pairs_of_which_nobody_asks_any_more_are_forgotten_and_there_are_never_too_many() {
        let (mut search, begun) = (RelaySearch::default(), Instant::now());
        for pair in 0..SOUGHT_MAX as u32 + 10 {
            search.record_unreachable((pair, 0), begun);
        }
        assert_eq!(search.sought.len(), SOUGHT_MAX);
        let later = begun + WAY_FORGETS + SECOND;
        search.record_unreachable((0, 1), later);
        assert_eq!(search.sought.len(), 1);
        assert_eq!(
            search.record_unreachable((0, 1), later + WAY_AFTER),
            SearchStep::Caller
        );
    }
}
