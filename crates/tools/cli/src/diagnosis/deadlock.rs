//! Finds deadlocks: the ranks of a job that can never go on, and those for which others wait.
//!
//! Pure: from what each rank does and needs to a [`HangVerdict`]. A rank is stuck only if every way
//! in which it could go on depends on ranks that are stuck themselves or have ended. So a rank that
//! computes, or of which too little is known, never makes a deadlock. Called by `garonne who`.
//! Bounded by the number of ranks and of the operations that they show. Lists that many ranks share
//! are looked at once for all that follows from a rank.

use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

/// Something that one of these ranks has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitDependency {
    /// Any of them would do; in the order in which they are worth naming. The one that waits may be
    /// among others.
    pub from: Rc<[u32]>,
}

/// Activity of a rank, as far as deadlock detection needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitState {
    /// The rank waits in MPI until all of these are met.
    WaitsForAll(Rc<[WaitDependency]>),
    /// The rank waits in MPI, and one of these may be enough.
    WaitsForAny(Rc<[WaitDependency]>),
    /// The rank waits in MPI for something that cannot be determined.
    WaitsForUnknown,
    /// The rank runs or may run at any time.
    Runs,
    /// The rank does nothing more by itself: finalized, ended, or never came.
    Ended,
}

/// Conclusion about all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HangVerdict {
    /// Each of these waits for the next, the last for the first; so many others wait for them.
    Cycle {
        /// The cycle, beginning with its least rank.
        ranks: Vec<u32>,
        /// Ranks beside the cycle that can never go on because of it.
        others: usize,
    },
    /// `waiter` waits for ranks of which none does anything any more, such as `ended`; so many
    /// others can never go on, too.
    WaitsForEnded {
        /// The rank that waits.
        waiter: u32,
        /// One that it waits for.
        ended: u32,
        /// Other ranks that can never go on.
        others: usize,
    },
    /// Ranks that act, and how many ranks wait for each, directly or through others; most waited
    /// for first.
    Awaited(Vec<(u32, usize)>),
    /// No rank waits for another.
    Moving,
}

/// Finds the deadlock of a job whose ranks are in these states, or the ranks that others wait for.
pub fn find_deadlock(standings: &[WaitState]) -> HangVerdict {
    let stuck = stuck_ranks(standings);
    let is_stuck = |rank: u32| stuck.get(rank as usize) == Some(&true);
    let waiters = (0..standings.len() as u32)
        .filter(|&rank| is_stuck(rank) && dependencies(&standings[rank as usize]).is_some());
    let Some(first) = waiters.clone().next() else {
        return awaited_ranks(standings);
    };
    let mut path = Vec::new();
    let mut at = first;
    loop {
        if let Some(begin) = path.iter().position(|&rank| rank == at) {
            let mut cycle = path.split_off(begin);
            let least = cycle
                .iter()
                .enumerate()
                .min_by_key(|(_, rank)| **rank)
                .map_or(0, |(index, _)| index);
            cycle.rotate_left(least);
            let others = waiters.count() - cycle.len();
            return HangVerdict::Cycle {
                ranks: cycle,
                others,
            };
        }
        path.push(at);
        match next_in_cycle(at, &standings[at as usize], &is_stuck) {
            Some(then) if dependencies(&standings[then as usize]).is_some() => at = then,
            Some(ended) => {
                return HangVerdict::WaitsForEnded {
                    waiter: at,
                    ended,
                    others: waiters.count() - 1,
                };
            }
            // Cannot be: a stuck rank has a need that only stuck ranks could meet.
            None => return awaited_ranks(standings),
        }
    }
}

/// Returns the deadlock that there is if ranks that poll do nothing else. `None` where there is one
/// anyhow, or none even so.
pub fn presumed_deadlock(
    verdict_now: &HangVerdict,
    of_pollers: impl FnOnce() -> Vec<WaitState>,
) -> Option<HangVerdict> {
    if !matches!(verdict_now, HangVerdict::Awaited(_) | HangVerdict::Moving) {
        return None;
    }
    let stuck = find_deadlock(&of_pollers());
    matches!(
        stuck,
        HangVerdict::Cycle { .. } | HangVerdict::WaitsForEnded { .. }
    )
    .then_some(stuck)
}

fn dependencies(standing: &WaitState) -> Option<&[WaitDependency]> {
    match standing {
        WaitState::WaitsForAll(needs) | WaitState::WaitsForAny(needs) => Some(needs),
        WaitState::WaitsForUnknown | WaitState::Runs | WaitState::Ended => None,
    }
}

/// The largest set of ranks none of which can go on before another of the set does.
fn stuck_ranks(standings: &[WaitState]) -> Vec<bool> {
    let mut stuck = vec![true; standings.len()];
    loop {
        let is_stuck = |rank: &u32| stuck.get(*rank as usize) == Some(&true);
        let unmet = |need: &WaitDependency| !need.from.is_empty() && need.from.iter().all(is_stuck);
        let stays = |(standing, stuck): (&WaitState, &bool)| {
            *stuck
                && match standing {
                    WaitState::WaitsForAll(needs) => needs.iter().any(unmet),
                    WaitState::WaitsForAny(needs) => !needs.is_empty() && needs.iter().all(unmet),
                    WaitState::Ended => true,
                    WaitState::WaitsForUnknown | WaitState::Runs => false,
                }
        };
        let kept: Vec<bool> = standings.iter().zip(&stuck).map(stays).collect();
        if kept == stuck {
            return stuck;
        }
        stuck = kept;
    }
}

/// Whom a stuck rank waits for: the first of the first need that stuck ranks alone could meet.
/// Itself only if nobody else could.
fn next_in_cycle(own: u32, standing: &WaitState, is_stuck: &impl Fn(u32) -> bool) -> Option<u32> {
    let unmet = |need: &&WaitDependency| {
        !need.from.is_empty() && need.from.iter().all(|&rank| is_stuck(rank))
    };
    let from = &dependencies(standing)?.iter().find(unmet)?.from;
    let other = from.iter().find(|rank| **rank != own);
    other.or(from.first()).copied()
}

/// The ranks that act and for which others wait.
fn awaited_ranks(standings: &[WaitState]) -> HangVerdict {
    let mut counts = vec![0usize; standings.len()];
    // By rank: from which one it was last reached.
    let mut seen = vec![usize::MAX; standings.len()];
    for (rank, standing) in standings.iter().enumerate() {
        if dependencies(standing).is_none() {
            continue;
        }
        // Along what ranks wait for, to those that act.
        let mut lists = HashSet::new();
        let mut queue = VecDeque::from([rank as u32]);
        seen[rank] = rank;
        while let Some(at) = queue.pop_front() {
            let needs = dependencies(&standings[at as usize]).unwrap_or_default();
            if needs.len() > 1 && !lists.insert(needs.as_ptr().addr()) {
                continue;
            }
            for need in needs {
                if need.from.len() > 1 && !lists.insert(need.from.as_ptr().addr()) {
                    continue;
                }
                for &then in need.from.iter() {
                    let Some(by) = seen.get_mut(then as usize) else {
                        continue;
                    };
                    if std::mem::replace(by, rank) != rank {
                        queue.push_back(then);
                        if standings[then as usize] == WaitState::Runs {
                            counts[then as usize] += 1;
                        }
                    }
                }
            }
        }
    }
    let mut list: Vec<_> = counts
        .into_iter()
        .enumerate()
        .filter(|(_, count)| *count > 0)
        .map(|(rank, count)| (rank as u32, count))
        .collect();
    list.sort_by_key(|&(rank, count)| (std::cmp::Reverse(count), rank));
    if list.is_empty() {
        HangVerdict::Moving
    } else {
        HangVerdict::Awaited(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(from: &[u32]) -> WaitDependency {
        WaitDependency { from: from.into() }
    }

    fn waits(from: &[u32]) -> WaitState {
        WaitState::WaitsForAll([need(from)].into())
    }

    #[test]
    fn a_ring_of_waits_is_a_cycle_that_begins_with_its_least_rank() {
        let ring = [waits(&[1]), waits(&[2]), waits(&[0])];
        assert_eq!(
            find_deadlock(&ring),
            HangVerdict::Cycle {
                ranks: vec![0, 1, 2],
                others: 0
            }
        );
        let tail = [waits(&[2]), waits(&[2]), waits(&[3]), waits(&[2])];
        assert_eq!(
            find_deadlock(&tail),
            HangVerdict::Cycle {
                ranks: vec![2, 3],
                others: 2
            }
        );
        assert_eq!(
            find_deadlock(&[waits(&[0])]),
            HangVerdict::Cycle {
                ranks: vec![0],
                others: 0
            }
        );
    }

    #[test]
    fn a_rank_that_acts_breaks_every_cycle_that_could_reach_it() {
        let any =
            |list: &[u32]| WaitState::WaitsForAny(list.iter().map(|&rank| need(&[rank])).collect());
        let one_way_out = [waits(&[1]), any(&[0, 2]), WaitState::Runs];
        assert_eq!(
            find_deadlock(&one_way_out),
            HangVerdict::Awaited(vec![(2, 2)])
        );
        let from_anybody = [waits(&[1]), waits(&[0, 2]), WaitState::Runs];
        assert_eq!(
            find_deadlock(&from_anybody),
            HangVerdict::Awaited(vec![(2, 2)])
        );
        let both = WaitState::WaitsForAll([need(&[0]), need(&[2])].into());
        assert_eq!(
            find_deadlock(&[waits(&[1]), both, WaitState::Runs]),
            HangVerdict::Cycle {
                ranks: vec![0, 1],
                others: 0
            }
        );
        assert_eq!(
            find_deadlock(&[waits(&[1]), WaitState::WaitsForUnknown]),
            HangVerdict::Moving
        );
        assert_eq!(
            find_deadlock(&[waits(&[1]), WaitState::WaitsForAny([].into())]),
            HangVerdict::Moving
        );
    }

    #[test]
    fn one_that_waits_for_any_member_does_not_wait_for_itself() {
        let anybody: Rc<[u32]> = [0, 1].into();
        let both = WaitState::WaitsForAll([WaitDependency { from: anybody }].into());
        assert_eq!(
            find_deadlock(&[both.clone(), both.clone()]),
            HangVerdict::Cycle {
                ranks: vec![0, 1],
                others: 0
            }
        );
        assert_eq!(
            find_deadlock(&[both, WaitState::Runs]),
            HangVerdict::Awaited(vec![(1, 1)])
        );
    }

    #[test]
    fn who_has_ended_is_missing_for_those_who_wait_for_it() {
        let standings = [waits(&[1]), waits(&[2]), WaitState::Ended, WaitState::Runs];
        assert_eq!(
            find_deadlock(&standings),
            HangVerdict::WaitsForEnded {
                waiter: 1,
                ended: 2,
                others: 1
            }
        );
        assert_eq!(
            find_deadlock(&[WaitState::Ended, WaitState::Runs]),
            HangVerdict::Moving
        );
    }

    #[test]
    fn the_rank_that_most_wait_for_is_named_first() {
        let barrier = waits(&[3]);
        let standings = [
            barrier.clone(),
            barrier.clone(),
            barrier,
            WaitState::Runs,
            waits(&[5]),
            WaitState::Runs,
        ];
        assert_eq!(
            find_deadlock(&standings),
            HangVerdict::Awaited(vec![(3, 3), (5, 1)])
        );
    }

    #[test]
    fn what_is_presumed_of_ranks_that_poll_is_told_only_where_nobody_is_stuck_otherwise() {
        let polling = [waits(&[1]), waits(&[0])];
        let now = find_deadlock(&[WaitState::Runs, waits(&[0])]);
        let both = HangVerdict::Cycle {
            ranks: vec![0, 1],
            others: 0,
        };
        assert_eq!(
            presumed_deadlock(&now, || polling.to_vec()),
            Some(both.clone())
        );
        assert_eq!(presumed_deadlock(&both, || unreachable!()), None);
        assert_eq!(
            presumed_deadlock(&now, || vec![WaitState::Runs, waits(&[0])]),
            None
        );
    }

    proptest::proptest! {
        #[test]
        fn every_rank_of_a_cycle_needs_the_next(raw in proptest::collection::vec((0u8..5, proptest::collection::vec(0u32..6, 0..3)), 6)) {
            let standing = |(kind, from): (u8, Vec<u32>)| match kind {
                0 | 1 => WaitState::WaitsForAll(from.iter().map(|&rank| need(&[rank])).collect()),
                2 => waits(&from),
                3 => WaitState::WaitsForAny(from.iter().map(|&rank| need(&[rank])).collect()),
                _ => WaitState::Runs,
            };
            let standings: Vec<_> = raw.into_iter().map(standing).collect();
            if let HangVerdict::Cycle { ranks, .. } = find_deadlock(&standings) {
                for (index, &rank) in ranks.iter().enumerate() {
                    let next = ranks[(index + 1) % ranks.len()];
                    let wanted = dependencies(&standings[rank as usize]).unwrap();
                    proptest::prop_assert!(wanted.iter().any(|need| need.from.contains(&next)));
                }
            }
        }
    }
}
