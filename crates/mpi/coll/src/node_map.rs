//! The nodes of a communicator's ranks, as all ranks know them alike.
//!
//! Made in the first collective of a communicator that spans nodes, in time linear in its ranks.
//! The map takes one number per node where the ranks of each node are consecutive, as launchers
//! place them, and one number per rank otherwise.

use std::collections::HashMap;

use super::switch_tree::SwitchTree;

/// The node of each rank of a communicator. Nodes are numbered in the order of their first ranks.
#[derive(Debug, PartialEq, Eq)]
pub struct NodeMap {
    /// Place where each node's ranks begin in node order, and how many ranks there are.
    starts: Vec<u32>,
    /// The ranks in node order, unless that is the order of ranks.
    order: Option<Vec<u32>>,
    /// The calling process's node, and its place among the ranks there.
    own_place: (u32, u32),
    grouping: NodeGrouping,
    /// Which nodes share a switch, if that makes a difference.
    switches: Option<SwitchTree>,
}

/// The properties of a node map that choices depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeGrouping {
    /// Nodes.
    pub nodes: u32,
    /// Ranks of every node; 0 if there are not equally many.
    pub each: u32,
    /// True if the ranks of each node follow each other.
    pub runs: bool,
}

impl NodeMap {
    /// From the node of each of so many ranks. `None` where it makes no difference: all share a
    /// node, or no two do.
    pub fn of(ranks: u32, node_of: impl Fn(u32) -> u32, me: u32) -> Option<Self> {
        Self::with_switches(ranks, node_of, me, None)
    }

    /// A map with the switches between the nodes, as the numbers of nodes name them. There is one
    /// also where no two ranks share a node, if nodes share switches.
    pub fn with_switches(
        ranks: u32,
        node_of: impl Fn(u32) -> u32,
        me: u32,
        switches: Option<&SwitchTree>,
    ) -> Option<Self> {
        let mut nodes: Vec<u32> = Vec::new();
        let mut numbers: HashMap<u32, u32> = HashMap::new();
        let mut sizes: Vec<u32> = Vec::new();
        let (mut runs, mut last) = (true, 0);
        for rank in 0..ranks {
            let number = *numbers.entry(node_of(rank)).or_insert(sizes.len() as u32);
            if number as usize == sizes.len() {
                sizes.push(0);
                nodes.push(node_of(rank));
            }
            runs &= number >= last;
            last = number;
            sizes[number as usize] += 1;
        }
        let switches = switches.and_then(|switches| switches.restricted(&nodes));
        let alone = switches.is_none() && sizes.iter().all(|&size| size == 1);
        if sizes.len() < 2 || alone {
            return None;
        }
        let mut starts = vec![0];
        for size in &sizes {
            starts.push(starts[starts.len() - 1] + size);
        }
        let mut next = starts.clone();
        let mut order = (!runs).then(|| vec![0; starts[sizes.len()] as usize]);
        let mut mine = (0, 0);
        for rank in 0..ranks {
            let node = numbers[&node_of(rank)];
            let at = next[node as usize];
            next[node as usize] += 1;
            if rank == me {
                mine = (node, at - starts[node as usize]);
            }
            if let Some(order) = &mut order {
                order[at as usize] = rank;
            }
        }
        let even = sizes.iter().all(|&size| size == sizes[0]);
        let grouping = NodeGrouping {
            nodes: sizes.len() as u32,
            each: if even { sizes[0] } else { 0 },
            runs,
        };
        Some(Self {
            starts,
            order,
            own_place: mine,
            grouping,
            switches,
        })
    }

    /// The facts for a decision.
    pub fn grouping(&self) -> NodeGrouping {
        self.grouping
    }

    /// Which nodes share a switch, by the numbers of this map; `None`: it makes no difference.
    pub fn switches(&self) -> Option<&SwitchTree> {
        self.switches.as_ref()
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u32 {
        self.starts.len() as u32 - 1
    }

    /// Number of ranks on all nodes.
    pub fn ranks(&self) -> u32 {
        self.starts[self.starts.len() - 1]
    }

    /// Number of ranks of a node.
    pub fn size(&self, node: u32) -> u32 {
        self.starts[node as usize + 1] - self.starts[node as usize]
    }

    /// Returns where a node's ranks begin in node order.
    pub fn start(&self, node: u32) -> u32 {
        self.starts[node as usize]
    }

    /// The rank at a place in node order.
    pub fn rank_at(&self, place: u32) -> u32 {
        self.order
            .as_ref()
            .map_or(place, |order| order[place as usize])
    }

    /// The rank that is so many places behind the first of a node.
    pub fn rank(&self, node: u32, index: u32) -> u32 {
        self.rank_at(self.starts[node as usize] + index)
    }

    /// The node of a rank, and its place among the ranks there.
    pub fn place_of(&self, rank: u32) -> (u32, u32) {
        // Ranks of a node rise; nodes are few beside ranks.
        let node = match &self.order {
            None => self.starts.partition_point(|&start| start <= rank) as u32 - 1,
            Some(_) => (0..self.nodes())
                .find(|&node| self.index_in(node, rank).is_some())
                .unwrap_or(0),
        };
        (node, self.index_in(node, rank).unwrap_or(0))
    }

    fn index_in(&self, node: u32, rank: u32) -> Option<u32> {
        let run = self.start(node)..self.start(node) + self.size(node);
        match &self.order {
            None => run.contains(&rank).then(|| rank - run.start),
            Some(order) => order[run.start as usize..run.end as usize]
                .binary_search(&rank)
                .ok()
                .map(|index| index as u32),
        }
    }

    /// The calling process's node, and its place among the ranks there.
    pub fn mine(&self) -> (u32, u32) {
        self.own_place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nodes: &[u32], me: u32) -> Option<NodeMap> {
        NodeMap::of(nodes.len() as u32, |rank| nodes[rank as usize], me)
    }

    #[test]
    fn ranks_of_one_node_or_each_of_its_own_are_no_spread() {
        assert_eq!(of(&[7, 7, 7], 0), None);
        assert_eq!(of(&[3, 1, 2], 0), None);
        assert_eq!(of(&[3], 0), None);
    }

    #[test]
    fn every_rank_has_one_place() {
        for nodes in [
            &[5u32, 5, 2, 2, 2, 9][..],
            &[0, 1, 0, 1, 0],
            &[4, 4, 1, 4],
            &[1, 0, 0],
        ] {
            for me in 0..nodes.len() as u32 {
                let spread = of(nodes, me).unwrap();
                let mut seen: Vec<_> = (0..spread.ranks())
                    .map(|place| spread.rank_at(place))
                    .collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..nodes.len() as u32).collect::<Vec<_>>());
                for rank in 0..nodes.len() as u32 {
                    let (node, index) = spread.place_of(rank);
                    assert_eq!(spread.rank(node, index), rank);
                    let first = spread.rank(node, 0);
                    assert_eq!(nodes[first as usize], nodes[rank as usize]);
                    assert_eq!(spread.mine() == (node, index), rank == me);
                }
            }
        }
    }

    #[test]
    fn what_decisions_see_is_told() {
        let grouping = |nodes: &[u32]| of(nodes, 0).unwrap().grouping();
        let told = |nodes, each, runs| NodeGrouping { nodes, each, runs };
        assert_eq!(grouping(&[0, 0, 1, 1, 2, 2]), told(3, 2, true));
        assert_eq!(grouping(&[1, 1, 0]), told(2, 0, true));
        assert_eq!(grouping(&[0, 1, 0, 1]), told(2, 2, false));
    }
}
