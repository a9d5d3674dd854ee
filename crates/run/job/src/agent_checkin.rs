//! What an agent knows of the hosts at and below it until all have met: who has come, and what is
//! to be said of them above. Pure, so that the simulator runs it as well.

use std::collections::BTreeMap;
use std::collections::HashMap;

use crate::agent_messages::{HostEndpoint, NodeEndpoints};
use crate::agent_tree::AgentTree;
use crate::error::Result;
use crate::limits::HOSTS_PER_MESSAGE;
use crate::node_map::NodeMap;
use crate::rank_messages::malformed;

/// Nodes at and below an agent that have checked in, and what the parent was told of them.
#[derive(Clone, Debug)]
pub struct AgentCheckin {
    tree: AgentTree,
    node: u32,
    hosts: BTreeMap<u32, NodeEndpoints>,
    told: bool,
}

impl AgentCheckin {
    /// At a node, of which nothing is known yet either.
    pub fn new(tree: AgentTree, node: u32) -> Self {
        Self {
            tree,
            node,
            hosts: BTreeMap::new(),
            told: false,
        }
    }

    /// Records the nodes that a child reports as ready, or this node.
    ///
    /// # Errors
    /// It speaks for others than those below it, or twice of one.
    pub fn check_in(&mut self, from: u32, hosts: Vec<NodeEndpoints>) -> Result<()> {
        for host in hosts {
            let fits = match from == self.node {
                true => host.node == from,
                false => {
                    self.tree.parent(from) == Some(self.node) && self.tree.is_below(from, host.node)
                }
            };
            if !fits || self.told || self.hosts.insert(host.node, host).is_some() {
                return Err(malformed("it speaks of a host that is not its own"));
            }
        }
        Ok(())
    }

    /// Returns whether all at and below this node are ready.
    pub fn is_complete(&self) -> bool {
        self.told || self.hosts.len() == self.tree.count(self.node) as usize
    }

    /// Returns whether all below this node are ready.
    pub fn waits_for_none_but_own(&self) -> bool {
        let own = usize::from(!self.hosts.contains_key(&self.node));
        self.told || self.hosts.len() + own == self.tree.count(self.node) as usize
    }

    /// Returns whether a node is ready, as far as is known here.
    pub fn knows(&self, node: u32) -> bool {
        self.told || self.hosts.contains_key(&node)
    }

    /// Returns how many hosts are known here.
    pub fn held(&self) -> usize {
        self.hosts.len()
    }

    /// Returns what is to be reported to the parent, once all are ready: messages of at most
    /// [`HOSTS_PER_MESSAGE`] hosts.
    pub fn unreported(&mut self) -> Vec<Vec<NodeEndpoints>> {
        if self.told || !self.is_complete() {
            return Vec::new();
        }
        self.told = true;
        in_parts(std::mem::take(&mut self.hosts).into_values().collect())
    }
}

/// Hosts as they go into messages.
pub fn in_parts(mut hosts: Vec<NodeEndpoints>) -> Vec<Vec<NodeEndpoints>> {
    let mut parts = Vec::new();
    while hosts.len() > HOSTS_PER_MESSAGE {
        let rest = hosts.split_off(HOSTS_PER_MESSAGE);
        parts.push(std::mem::replace(&mut hosts, rest));
    }
    parts.push(hosts);
    parts
}

/// Gives hosts of one name (machines that nobody named, containers) those by which the user calls
/// them.
pub fn name_apart(hosts: &mut [NodeEndpoints], nodes: &NodeMap) {
    let mut known: HashMap<String, usize> = HashMap::new();
    for host in &*hosts {
        *known.entry(host.place.name.clone()).or_default() += 1;
    }
    for host in hosts {
        if known.get(&host.place.name).is_some_and(|count| *count > 1) {
            nodes.name(host.node).clone_into(&mut host.place.name);
        }
    }
}

/// All hosts as their ranks want them: places by node, ports by rank.
///
/// # Errors
/// Some are missing, or have other ranks than the job gives them.
pub fn table(hosts: Vec<NodeEndpoints>, nodes: &NodeMap) -> Result<(Vec<HostEndpoint>, Vec<u16>)> {
    let wrong = || malformed("the hosts are not those of the job");
    let mut places = Vec::with_capacity(hosts.len());
    let mut ports = Vec::with_capacity(hosts.len());
    for host in hosts {
        if host.node as usize != places.len() {
            return Err(wrong());
        }
        places.push(host.place);
        ports.push(host.ports.into_iter());
    }
    if places.len() != nodes.names.len() {
        return Err(wrong());
    }
    let of_rank = |node: &u32| ports.get_mut(*node as usize)?.next();
    let by_rank: Option<Vec<u16>> = nodes.of_rank.iter().map(of_rank).collect();
    let by_rank = by_rank.ok_or_else(wrong)?;
    match ports.iter().all(|left| left.len() == 0) {
        true => Ok((places, by_rank)),
        false => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(node: u32) -> NodeEndpoints {
        NodeEndpoints {
            node,
            place: HostEndpoint {
                name: "localhost".into(),
                ..HostEndpoint::default()
            },
            ports: vec![node as u16 + 1],
        }
    }

    fn hosts(nodes: impl IntoIterator<Item = u32>) -> Vec<NodeEndpoints> {
        nodes.into_iter().map(host).collect()
    }

    #[test]
    fn a_node_speaks_when_all_below_it_have() {
        let tree = AgentTree::new(8, 0, 2);
        let mut inner = AgentCheckin::new(tree, 1);
        inner.check_in(1, hosts([1])).unwrap();
        inner.check_in(4, hosts([4])).unwrap();
        assert!(!inner.is_complete() && inner.unreported().is_empty());
        inner.check_in(3, hosts([3, 7])).unwrap();
        assert!(inner.is_complete() && inner.knows(7));
        let told = inner.unreported();
        assert_eq!(told, [hosts([1, 3, 4, 7])]);
        assert!(inner.unreported().is_empty() && inner.is_complete());
        assert!(inner.check_in(3, hosts([3])).is_err());
    }

    #[test]
    fn who_speaks_for_others_than_its_own_is_refused() {
        let tree = AgentTree::new(8, 0, 2);
        for (from, node) in [(3, 4), (3, 0), (7, 7), (2, 2), (1, 3), (3, 99)] {
            assert!(
                AgentCheckin::new(tree, 1)
                    .check_in(from, hosts([node]))
                    .is_err(),
                "{from} {node}"
            );
        }
        let mut inner = AgentCheckin::new(tree, 1);
        assert!(inner.check_in(3, hosts([3, 3])).is_err());
    }

    #[test]
    fn many_hosts_go_in_several_messages_and_none_is_missed() {
        let tree = AgentTree::new(3000, 0, 2999);
        let mut first = AgentCheckin::new(tree, 0);
        for node in 0..3000 {
            first.check_in(node, hosts([node])).unwrap();
        }
        let parts = first.unreported();
        assert!(parts.len() == 3 && parts.iter().all(|part| part.len() <= HOSTS_PER_MESSAGE));
        let nodes = NodeMap {
            names: (0..3000).map(|node| format!("n{node}")).collect(),
            of_rank: (0..3000).rev().collect(),
        };
        let mut all = parts.concat();
        name_apart(&mut all, &nodes);
        let (places, ports) = table(all.clone(), &nodes).unwrap();
        assert_eq!(
            (places[7].name.as_str(), ports[0], ports[2999]),
            ("n7", 3000, 1)
        );
        assert!(table(all[1..].to_vec(), &nodes).is_err());
        all[5].ports.push(1);
        assert!(table(all.clone(), &nodes).is_err());
        all[5].ports.clear();
        assert!(table(all, &nodes).is_err());
    }
}
