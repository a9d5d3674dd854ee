//! `--need`: what groups of ranks need of a machine, without names of hardware, and where that is.
//!
//! [`need_text`] reads the words of a need, a tree of groups within groups. [`need_machine`] is
//! what a host has, and [`resolver`] finds a place for each group there. The launcher gives whole
//! groups to hosts ([`give`]); the agent of each host finds the need where [`crate::rank_slots`]
//! finds the places of a rank file, and resolves it on its own machine. A need that cannot be met
//! is an error that says what is missing: ranks that run elsewhere would be what nobody asked for.

pub mod need_machine;
pub mod need_text;
pub mod resolver;

use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::job::Job;
use garonne_job::node_map::NodeMap;

use crate::cpu_claims::{self, PlacementClaim};
use crate::rank_slots;
use need_machine::NeedMachine;
use need_text::Need;

/// Gives whole groups of a job's ranks to its hosts, each of which keeps its number of ranks, and
/// the need to the agents.
///
/// # Errors
/// The need is not understood, does not fit the number of ranks, or no host has room for a whole
/// group: a line for the user.
pub fn give(job: &mut Job, text: &str) -> std::result::Result<(), String> {
    let need = Need::parse(text)?;
    let groups = need.groups(job.size())?;
    if !job.nodes.of_rank.is_empty() {
        let of_rank = by_groups(&job.nodes.of_rank, job.nodes.names.len(), &groups)
            .map_err(|(first, ranks)| {
                format!("--need: no host has room for the group of {ranks} ranks from rank {first} on; hosts need slots for whole groups (--host a:{ranks},...)")
            })?;
        let names = std::mem::take(&mut job.nodes.names);
        job.nodes = NodeMap { names, of_rank };
    }
    rank_slots::give_need(job, text);
    Ok(())
}

/// The host of each rank, with each group on one host that has so many slots left. The error is the
/// first rank and the size of a group that no host has room for.
fn by_groups(
    of_rank: &[u32],
    hosts: usize,
    groups: &[std::ops::Range<u32>],
) -> std::result::Result<Vec<u32>, (u32, usize)> {
    let mut left = vec![0usize; hosts];
    for host in of_rank {
        if let Some(left) = left.get_mut(*host as usize) {
            *left += 1;
        }
    }
    let mut placed = Vec::with_capacity(of_rank.len());
    for group in groups {
        let host = left.iter().position(|left| *left >= group.len());
        let host = host.ok_or((group.start, group.len()))?;
        left[host] -= group.len();
        placed.extend(group.clone().map(|_| host as u32));
    }
    Ok(placed)
}

/// Binds the ranks of this host to what they need.
///
/// # Errors
/// This host does not have what its groups need; what is missing.
pub(crate) fn place(text: &str, job: &Job, here: &[u32]) -> Result<PlacementClaim> {
    let placed = Need::parse(text)
        .and_then(|need| {
            let groups = need.groups(job.size())?;
            let count = groups_here(&groups, here)?;
            let size = groups.first().map_or(0, |group| group.len() as u32);
            let machine = NeedMachine::discover(&cpu_claims::claimed(None));
            resolver::resolve(&need, (count, size), &machine)
        })
        .map_err(|why| Error::misuse(codes::G0211, format!("--need: {why}")));
    placed.map(|places| {
        let sets = places.iter().map(|place| place.cpus.clone()).collect();
        cpu_claims::pin_ranks(sets, "the need says so")
    })
}

/// Number of groups that have all their ranks among those of this host, which begin with a group
/// and end with one.
fn groups_here(groups: &[std::ops::Range<u32>], here: &[u32]) -> std::result::Result<u32, String> {
    let whole = groups
        .iter()
        .filter(|group| here.binary_search(&group.start).is_ok());
    let ranks: usize = whole.clone().map(std::iter::ExactSizeIterator::len).sum();
    match ranks == here.len() {
        true => Ok(whole.count() as u32),
        false => Err("this host has a part of a group only".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_job::job::Program;

    fn job(of_rank: Vec<u32>) -> Job {
        let mut job = Job::new(vec![Program {
            argv: vec!["true".into()],
            ranks: of_rank.len() as u32,
            env: Vec::new(),
            dir: None,
        }]);
        let names = vec!["a".into(), "b".into()];
        job.nodes = NodeMap { names, of_rank };
        job
    }

    #[test]
    fn groups_stay_whole_and_hosts_keep_their_number_of_ranks() {
        // Slots for four and two, dealt out in turn.
        let mut one = job(vec![0, 1, 0, 1, 0, 0]);
        give(&mut one, "3 groups sharing cache").unwrap();
        assert_eq!(one.nodes.of_rank, [0, 0, 0, 0, 1, 1]);
        let fault = give(&mut job(vec![0, 0, 0, 1]), "2 groups sharing cache").unwrap_err();
        assert!(fault.contains("from rank 2 on"), "{fault}");
    }

    #[test]
    fn a_host_counts_its_whole_groups() {
        let groups = [0..2, 2..4, 4..6];
        assert_eq!(groups_here(&groups, &[2, 3, 4, 5]), Ok(2));
        assert!(groups_here(&groups, &[1, 2, 3]).is_err());
    }

    #[test]
    fn a_need_that_is_not_understood_is_told() {
        let fault = give(&mut job(vec![0, 0]), "2 groups sharing warmth").unwrap_err();
        assert!(fault.contains("'warmth'"), "{fault}");
    }
}
