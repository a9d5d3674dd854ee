//! `--map-by traffic:FILE`: ranks that send each other much run on one host, and near each other
//! there. Pure.
//!
//! The file has lines of `SOURCE DESTINATION BYTES`; `garonne trace --traffic FILE` writes it.
//! Which ranks share a host is decided here. A host's agent knows its machine; it is told an order
//! of the ranks, made for a machine of halves within halves, and fills the host's cores in it.

use std::collections::HashMap;
use std::ffi::OsStr;

use garonne_agent::binding_order;
use garonne_job::job::Job;
use garonne_job::node_map::NodeMap;
use garonne_mapping::{SlotTree, Traffic, map};

use super::launch_request::SystemFacts;

/// Levels of halves within a host; more slots than this many halvings tell apart share a place.
const HALVINGS: u32 = 10;
/// Cost of a byte between hosts; between two halves of a host it costs as many as there are levels
/// of halves from there down.
const BETWEEN_HOSTS: u64 = 64;
/// Cost of a byte between hosts that share no switch.
const BETWEEN_SWITCHES: u64 = 256;

/// A file of traffic, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficFile {
    /// Name of the file, for errors.
    shown: String,
    text: String,
}

impl TrafficFile {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read: a line for the user.
    pub fn of_file(path: &OsStr, facts: &SystemFacts) -> Result<Self, String> {
        let shown = path.to_string_lossy().into_owned();
        let text = (facts.read)(path)
            .map_err(|error| format!("cannot read the traffic file '{shown}': {error}"))?;
        Ok(Self { shown, text })
    }

    /// Gives the job's ranks to its hosts, each of which keeps its number of ranks, and decides
    /// their order there. `groups` has a number for each host, one for those that share a switch.
    ///
    /// # Errors
    /// The file is no traffic of this job: a line for the user.
    pub fn apply(&self, job: &mut Job, groups: Option<&[u32]>) -> Result<(), String> {
        let Self { shown, text } = self;
        let traffic = Traffic::parse(text, job.size())
            .map_err(|fault| format!("traffic file '{shown}': {fault}"))?;
        let host_of: Vec<u32> = (0..job.size()).map(|rank| job.nodes.of(rank)).collect();
        let (tree, places) = slot_tree(&host_of, groups)
            .map_err(|fault| format!("traffic file '{shown}': {fault}"))?;
        let Some(mapping) = map(&traffic, &tree) else {
            return Ok(());
        };
        let slot_of = |rank: &u32| mapping.slots[*rank as usize] as usize;
        let ranks = 0..job.size();
        let of_rank = ranks.clone().map(|rank| host_of[slot_of(&rank)]).collect();
        let mut order: Vec<u32> = ranks.collect();
        order.sort_by_key(|rank| places[slot_of(rank)]);
        if !job.nodes.of_rank.is_empty() {
            let names = std::mem::take(&mut job.nodes.names);
            job.nodes = NodeMap { names, of_rank };
        }
        binding_order::give(job, &order);
        Ok(())
    }
}

/// The slots of a job, one for each rank that the hosts were given, and the place (host, number
/// there) of each.
fn slot_tree(
    host_of: &[u32],
    groups: Option<&[u32]>,
) -> Result<(SlotTree, Vec<(u32, u32)>), garonne_mapping::TreeError> {
    let mut taken: HashMap<u32, u32> = HashMap::new();
    let places: Vec<(u32, u32)> = host_of
        .iter()
        .map(|host| {
            let next = taken.entry(*host).or_insert(0);
            *next += 1;
            (*host, *next - 1)
        })
        .collect();
    let most = taken.values().copied().max().unwrap_or(1);
    let levels = most.next_power_of_two().ilog2();
    let halvings = levels.min(HALVINGS);
    let paths: Vec<Vec<u32>> = places
        .iter()
        .map(|(host, number)| {
            let halves = (0..halvings).map(|level| number >> (levels - 1 - level) & 1);
            let group = groups.and_then(|groups| groups.get(*host as usize).copied());
            [group.unwrap_or(0), *host]
                .into_iter()
                .chain(halves)
                .collect()
        })
        .collect();
    let within = (1..=u64::from(halvings) + 1).rev();
    let costs: Vec<u64> = [BETWEEN_SWITCHES, BETWEEN_HOSTS]
        .into_iter()
        .chain(within)
        .collect();
    Ok((SlotTree::from_paths(&paths, &costs)?, places))
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_job::job::Program;

    fn program(ranks: u32) -> Program {
        Program {
            argv: vec!["true".into()],
            ranks,
            env: Vec::new(),
            dir: None,
        }
    }

    fn job(of_rank: Vec<u32>) -> Job {
        let mut job = Job::new(vec![program(of_rank.len() as u32)]);
        job.nodes = NodeMap {
            names: vec!["a".into(), "b".into()],
            of_rank,
        };
        job
    }

    fn file(text: &str) -> TrafficFile {
        TrafficFile {
            shown: "t".into(),
            text: text.into(),
        }
    }

    #[test]
    fn ranks_that_talk_share_a_host_and_follow_each_other_there() {
        // Pairs (0, 7), (1, 6) …; pairs 0 and 1, 2 and 3 talk a little.
        let mut text = String::new();
        for rank in 0..4 {
            text += &format!("{rank} {} 1000\n", 7 - rank);
        }
        text += "0 1 10\n2 3 10\n";
        let mut job = job(vec![0, 0, 0, 0, 1, 1, 1, 1]);
        file(&text).apply(&mut job, None).unwrap();
        let host = &job.nodes.of_rank;
        for rank in 0..4 {
            assert_eq!(host[rank], host[7 - rank], "{host:?}");
        }
        assert_eq!(host[0], host[1]);
        assert_eq!(host.iter().filter(|host| **host == 0).count(), 4);
        for node in 0..2 {
            let order = binding_order::ranks(&job, node);
            assert_eq!(order[0] + order[1], 7, "{order:?}");
        }
    }

    #[test]
    fn one_host_gets_an_order_only() {
        let mut job = job(Vec::new());
        job = Job {
            programs: vec![program(4)],
            ..job
        };
        file("0 3 9\n1 2 9").apply(&mut job, None).unwrap();
        let order = binding_order::ranks(&job, 0);
        assert_eq!(order[0] + order[1], 3, "{order:?}");
    }

    #[test]
    fn traffic_of_another_job_is_refused() {
        let mut job = job(vec![0, 1]);
        let fault = file("0 2 9").apply(&mut job, None).unwrap_err();
        assert!(fault.contains("rank 2, where there are 2 ranks"), "{fault}");
        let fault = file("0 1 nan").apply(&mut job, None).unwrap_err();
        assert!(fault.starts_with("traffic file 't': line 1"), "{fault}");
    }
}
