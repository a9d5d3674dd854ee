//! Ranks that the key which ends a job has ended before anybody looked: the one that reads the
//! terminal, unless it handles the signal. Their memory is gone; what they waited for stands on
//! their rank blocks.

use garonne_job::layout::RankState;
use garonne_job::snapshot::{CommMembers, CommSnapshot};

use super::rank_waits::{INTERRUPTED, RankView, number_of};

/// Has such ranks count as what they were when the key came. What others know of their
/// communicators is theirs, too.
pub fn revive(all: &mut [RankView]) {
    for index in 0..all.len() {
        let rank = &all[index].snapshot.rank;
        if all[index].silent
            || rank.state != RankState::Running
            || !matches!(rank.process, None | Some('Z' | 'X'))
        {
            continue;
        }
        let comm = rank
            .wait
            .and_then(|wait| known_to_others(all, rank.rank, number_of(wait.comm)));
        let seen = &mut all[index].snapshot;
        seen.rank.process = Some(INTERRUPTED);
        seen.comms.extend(comm);
    }
}

/// A communicator of which `rank` is a member, as another member shows it.
fn known_to_others(all: &[RankView], rank: u32, number: u64) -> Option<CommSnapshot> {
    let mut comms = all.iter().flat_map(|shown| &shown.snapshot.comms);
    let is_this = |comm: &&CommSnapshot| {
        let holds = |members: Vec<u32>| members.contains(&rank);
        u64::from(comm.number) == number
            && comm.members != CommMembers::Untold
            && comm.members.list().is_some_and(holds)
    };
    comms.find(is_this).cloned()
}
