//! Which host runs which rank: pure functions from what the user said of hosts.

use std::collections::HashMap;

use crate::codes;
use crate::error::{Error, Result};
use crate::limits;

/// A host that the user named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// The name, as whoever starts its agent understands it.
    pub name: String,
    /// How many ranks it takes before the next host's turn.
    pub slots: u32,
    /// The host is the one that the launcher runs on.
    pub own: bool,
}

/// The order in which hosts take ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostOrder {
    /// A host takes as many as it has slots, then the next.
    #[default]
    Slots,
    /// Each takes one in turn.
    Turns,
}

/// The nodes of a job and where its ranks are. Node 0 is the launcher's, also if it has no ranks.
/// Empty: there is no other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMap {
    /// Names by node, as the user gave them.
    pub names: Vec<String>,
    /// Nodes by rank.
    pub of_rank: Vec<u32>,
}

impl NodeMap {
    /// Gives `ranks` ranks to hosts, round and round if there are more than slots. Hosts of one
    /// name are one host.
    ///
    /// # Errors
    /// There are more hosts than one launcher starts, or no slots.
    pub fn assign(hosts: &[HostSpec], ranks: u32, mapping: HostOrder) -> Result<Self> {
        let mut nodes = vec![(String::from("this host"), 0u32)];
        let mut turns: Vec<u32> = Vec::new();
        let mut known: HashMap<&str, usize> = HashMap::new();
        for host in hosts.iter().filter(|host| host.slots > 0) {
            let node = match (host.own, known.get(host.name.as_str())) {
                (true, _) => 0,
                (false, Some(at)) => *at,
                (false, None) => {
                    nodes.push((host.name.clone(), 0));
                    known.insert(&host.name, nodes.len() - 1);
                    nodes.len() - 1
                }
            };
            if host.own {
                nodes[0].0.clone_from(&host.name);
            }
            if nodes[node].1 == 0 {
                turns.push(node as u32);
            }
            nodes[node].1 = nodes[node].1.saturating_add(host.slots);
        }
        if nodes.len() > limits::HOSTS_MAX {
            let text = format!(
                "{} hosts: a job has at most {}",
                nodes.len() - 1,
                limits::HOSTS_MAX
            );
            return Err(Error::resource(codes::G0306, text));
        }
        if turns.is_empty() {
            return Err(Error::misuse(codes::G0211, "the hosts named have no slots"));
        }
        let mut of_rank = Vec::with_capacity(ranks.min(limits::RANKS_MAX) as usize);
        for node in turns.iter().cycle() {
            let take = match mapping {
                HostOrder::Slots => nodes[*node as usize].1,
                HostOrder::Turns => 1,
            };
            let left = ranks.min(limits::RANKS_MAX) as usize - of_rank.len();
            if left == 0 {
                break;
            }
            of_rank.extend(std::iter::repeat_n(*node, left.min(take as usize)));
        }
        Ok(Self {
            names: nodes.into_iter().map(|(name, _)| name).collect(),
            of_rank,
        })
    }

    /// Shares `ranks` out among hosts of so many slots, in proportion to them; at least one to each
    /// that has any, if there are enough.
    pub fn share(slots: &[u32], ranks: u32) -> Vec<u32> {
        let total: u64 = slots
            .iter()
            .map(|slots| u64::from(*slots))
            .sum::<u64>()
            .max(1);
        let exact = |slots: &u32| u64::from(ranks) * u64::from(*slots);
        let mut shares: Vec<u32> = slots
            .iter()
            .map(|slots| (exact(slots) / total) as u32)
            .collect();
        // What is left goes to those that lost most by rounding, the first of equals first.
        let mut order: Vec<usize> = (0..slots.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(exact(&slots[*at]) % total));
        let left = ranks.saturating_sub(shares.iter().sum());
        order
            .iter()
            .take(left as usize)
            .for_each(|at| shares[*at] += 1);
        while let Some(empty) = (0..slots.len()).find(|at| slots[*at] > 0 && shares[*at] == 0)
            && let Some(largest) = (0..slots.len()).rev().max_by_key(|at| shares[*at])
            && shares[largest] > 1
        {
            shares[largest] -= 1;
            shares[empty] += 1;
        }
        shares
    }

    /// Names for hosts that call themselves so, none of them given twice or taken already.
    pub fn names_apart(names: &[String], taken: &[String]) -> Vec<String> {
        let mut given: Vec<String> = Vec::new();
        for name in names {
            let is_free = |name: &String| !given.contains(name) && !taken.contains(name);
            let own = std::iter::once(name.clone());
            let mut tries = own.chain((2..).map(|number| format!("{name}-{number}")));
            let free = tries.find(is_free).unwrap_or_default();
            given.push(free);
        }
        given
    }

    /// Returns whether there is more than one node.
    pub fn several(&self) -> bool {
        self.names.len() > 1
    }

    /// The node of a rank.
    pub fn of(&self, rank: u32) -> u32 {
        self.of_rank.get(rank as usize).copied().unwrap_or(0)
    }

    /// The name of a node.
    pub fn name(&self, node: u32) -> &str {
        self.names
            .get(node as usize)
            .map_or("this host", String::as_str)
    }

    /// The ranks of a node, in order, of a job of `size` ranks.
    pub fn ranks_of(&self, node: u32, size: u32) -> Vec<u32> {
        (0..size).filter(|rank| self.of(*rank) == node).collect()
    }
}

/// Ranks in words: `rank 2`, `ranks 0,3-7`.
pub fn named(ranks: &[u32]) -> String {
    match ranks {
        [rank] => format!("rank {rank}"),
        ranks => format!("ranks {}", listed(ranks)),
    }
}

/// Ranks as people write them: `0-3,8`.
pub fn listed(ranks: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => parts.push((*rank, *rank)),
        }
    }
    let part = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, slots: u32) -> HostSpec {
        HostSpec {
            name: name.into(),
            slots,
            own: name == "here",
        }
    }

    #[test]
    fn ranks_fill_slots_or_take_turns_and_go_round_when_there_are_more() {
        let hosts = [host("a", 2), host("b", 1)];
        let of = |ranks, mapping| NodeMap::assign(&hosts, ranks, mapping).unwrap().of_rank;
        assert_eq!(of(3, HostOrder::Slots), [1, 1, 2]);
        assert_eq!(of(5, HostOrder::Slots), [1, 1, 2, 1, 1]);
        assert_eq!(of(4, HostOrder::Turns), [1, 2, 1, 2]);
    }

    #[test]
    fn the_own_host_is_node_0_and_a_name_twice_is_one_host() {
        let hosts = [host("a", 1), host("here", 2), host("a", 1)];
        let nodes = NodeMap::assign(&hosts, 4, HostOrder::Slots).unwrap();
        assert_eq!(nodes.names, ["here", "a"]);
        assert_eq!(nodes.of_rank, [1, 1, 0, 0]);
        assert_eq!(nodes.ranks_of(0, 4), [2, 3]);
    }

    #[test]
    fn a_job_has_131072_hosts_and_one_more_is_refused_with_the_number() {
        // The launcher's host is one of them.
        let hosts = |count| -> Vec<_> { (0..count).map(|at| host(&format!("h{at}"), 8)).collect() };
        let most = NodeMap::assign(&hosts(131_071), 1 << 20, HostOrder::Slots).unwrap();
        assert_eq!((most.names.len(), most.of_rank.len()), (1 << 17, 1 << 20));
        let error = NodeMap::assign(&hosts(131_072), 200, HostOrder::Slots).unwrap_err();
        assert_eq!(error.code(), codes::G0306);
        assert!(error.to_string().contains("131072 hosts"), "{error}");
    }

    #[test]
    fn ranks_are_shared_out_by_slots_and_nobody_goes_without() {
        assert_eq!(NodeMap::share(&[4, 4], 8), [4, 4]);
        assert_eq!(NodeMap::share(&[8, 2], 5), [4, 1]);
        assert_eq!(NodeMap::share(&[4, 4], 3), [2, 1]);
        assert_eq!(NodeMap::share(&[64, 1, 1], 4), [2, 1, 1]);
        assert_eq!(NodeMap::share(&[0, 3, 3], 4), [0, 2, 2]);
        assert_eq!(NodeMap::share(&[2, 2], 9), [5, 4]);
        assert_eq!(NodeMap::share(&[5, 5], 1), [1, 0]);
        for ranks in 0..40 {
            let shares = NodeMap::share(&[3, 0, 7, 1], ranks);
            assert_eq!(shares.iter().sum::<u32>(), ranks);
            assert!(
                ranks < 3
                    || shares
                        .iter()
                        .zip([true, false, true, true])
                        .all(|(n, has)| (*n > 0) == has)
            );
        }
    }

    #[test]
    fn hosts_that_call_themselves_alike_are_told_apart() {
        let names = ["a", "b", "a", "a-2"].map(String::from);
        let taken = [String::from("b")];
        assert_eq!(
            NodeMap::names_apart(&names, &taken),
            ["a", "b-2", "a-2", "a-2-2"]
        );
    }

    #[test]
    fn lists_of_ranks_are_short() {
        assert_eq!(listed(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(listed(&[]), "");
    }
}
