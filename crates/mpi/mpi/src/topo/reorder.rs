//! Reordering of ranks for a topology: neighbours come near each other (`reorder` of
//! `MPI_Cart_create`, `MPI_Graph_create` and the distributed graphs).
//!
//! Each process tells where it runs: the switch of its host if that is known, its host, and there
//! the package, NUMA node and last-level cache that it is bound to. Rank 0 maps the nodes of the
//! graph to processes and tells all. This costs memory in proportion to the number of ranks while a
//! constructor with `reorder` runs, and nothing afterwards. Where all processes are equally far
//! from each other, or where the order of ranks is as good, ranks stay as they are.

use super::{AdjacentRanks, DistGraph, Topology};
use crate::comm::Comm;
use crate::comm::setup_messages::{SetupChannel, word_at};
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::process::HwResource;
use garonne_engine::api::CallOrigin;
use garonne_mapping::{SlotTree, Traffic, map};

/// Cost of a byte between processes below different switches, on different hosts, then in different
/// packages, NUMA nodes and last-level caches of a host, then of one cache. Only their order and
/// rough size matter.
const COSTS: [u64; 6] = [256, 64, 6, 4, 2, 1];
/// Resources of a host that a place names, by their numbers in [`COSTS`] after the host.
const RESOURCES: [&str; 3] = ["hwloc://Package", "hwloc://NUMANode", "hwloc://L3Cache"];
/// Bytes of an encoded place.
const PLACE_LEN: usize = 20;

/// Switch of a process's host, the host, then what the process is bound to, each by the first CPU.
type RankPlace = [u32; PLACE_LEN / 4];

/// Where a process runs. `u32::MAX` stands for a resource of which the process may use several.
fn place((switch, host): (u32, u32), resources: &[HwResource]) -> RankPlace {
    let first = |name: &str| {
        let found = resources.iter().find(|resource| resource.name == name);
        found
            .and_then(|resource| resource.instance)
            .map_or(u32::MAX, |instance| instance.first)
    };
    let [package, numa, cache] = RESOURCES.map(first);
    [switch, host, package, numa, cache]
}

fn decoded_places(bytes: &[u8]) -> Vec<RankPlace> {
    let place = |bytes: &[u8]| {
        let mut words = bytes.chunks_exact(4);
        [(); PLACE_LEN / 4].map(|()| {
            let word = words.next().and_then(|word| word.try_into().ok());
            u32::from_le_bytes(word.unwrap_or_default())
        })
    };
    bytes.chunks_exact(PLACE_LEN).map(place).collect()
}

/// Traffic along each edge of a topology, as (node, node, weight). A node is the rank that a
/// process has in the new communicator. Edges of grids and graphs weigh the same.
pub(super) fn edges(topology: &Topology) -> Vec<(u32, u32, u64)> {
    match topology {
        Topology::Cart(cart) => {
            let neighbors = |rank: u32| {
                let both = cart.neighbors(rank).into_iter();
                both.filter_map(move |other| Some((rank, u32::try_from(other).ok()?, 1)))
            };
            (0..cart.size() as u32).flat_map(neighbors).collect()
        }
        Topology::Graph(graph) => {
            let neighbors = |node: u32| {
                let others = graph.neighbors(node as i32).unwrap_or_default().iter();
                others.map(move |other| (node, *other as u32, 1))
            };
            (0..graph.index.len() as u32).flat_map(neighbors).collect()
        }
        Topology::DistGraph(_) => Vec::new(),
    }
}

/// The old rank of the process for each new rank; `None`: the first `size` in their order.
fn assignment(places: &[RankPlace], size: u32, edges: Vec<(u32, u32, u64)>) -> Option<Vec<u32>> {
    let tree = SlotTree::from_paths(places, &COSTS).ok()?;
    let traffic = Traffic::new(size, edges).ok()?;
    let mapping = map(&traffic, &tree)?;
    (mapping.cost < mapping.identity_cost).then_some(mapping.slots)
}

/// Rank 0 assigns processes to the nodes of a graph, all get the outcome.
async fn assigned(
    channel: &SetupChannel,
    places: &[RankPlace],
    (size, edges): (u32, Vec<(u32, u32, u64)>),
) -> Result<Option<Vec<u32>>> {
    let found = match channel.rank {
        0 => assignment(places, size, edges).unwrap_or_default(),
        _ => Vec::new(),
    };
    let bytes = found.iter().flat_map(|rank| rank.to_le_bytes()).collect();
    let bytes = channel.broadcast(0, bytes).await?;
    let ranks: Vec<u32> = bytes
        .chunks_exact(4)
        .map(|rank| u32::from_le_bytes(rank.try_into().unwrap_or_default()))
        .collect();
    if ranks.is_empty() {
        return Ok(None);
    }
    if ranks.len() != size as usize || !are_different(&ranks, places.len()) {
        return Err(Error::new(
            Class::Intern,
            "rank 0 sent an order of ranks that is none",
        ));
    }
    Ok(Some(ranks))
}

/// Whether each of these ranks is one of `size`, and none is there twice.
fn are_different(ranks: &[u32], size: usize) -> bool {
    let mut used = vec![false; size];
    let is_new = |rank: &u32| match used.get_mut(*rank as usize) {
        Some(used) => !std::mem::replace(used, true),
        None => false,
    };
    ranks.iter().all(is_new)
}

impl Comm {
    /// Places of all processes by rank, or `None`: a process does not want to be reordered, or all
    /// are equally far from each other. Collective, with the same result on all.
    fn places_to_reorder(
        &self,
        reorder: bool,
        origin: CallOrigin,
    ) -> Result<Option<Vec<RankPlace>>> {
        let channel = self.constructor_channel(origin);
        let config = &self.process().config;
        let host = self
            .group()
            .peer(self.rank())
            .map_or(0, |me| (config.node_of)(me));
        let resources = if reorder {
            (config.resources)()
        } else {
            Vec::new()
        };
        let switch = config.switches.as_ref().map_or(0, |tree| tree.group(host));
        let own = place((switch, host), &resources);
        let own = own.map(u32::to_le_bytes).concat();
        self.run(async move {
            if channel.min_max(reorder.into()).await?.0 == 0 {
                return Ok(None);
            }
            let places = decoded_places(&channel.all_gather(&own).await?);
            let differ = places.iter().any(|other| *other != places[0]);
            Ok(differ.then_some(places))
        })
    }

    /// Group of the communicator of a grid or graph of `size` nodes, if the order of ranks is to
    /// change. Collective.
    pub(super) fn reordered_group(
        &self,
        size: u32,
        topology: &Topology,
        (reorder, origin): (bool, CallOrigin),
    ) -> Result<Option<Group>> {
        let Some(places) = self.places_to_reorder(reorder, origin)? else {
            return Ok(None);
        };
        let channel = self.constructor_channel(origin);
        let edges = match channel.rank {
            0 => edges(topology),
            _ => Vec::new(),
        };
        let ranks = self.run(async move { assigned(&channel, &places, (size, edges)).await })?;
        ranks.map(|ranks| self.group_of(&ranks)).transpose()
    }

    /// Group and graph of the calling process in a distributed graph, if the order of ranks is to
    /// change: whoever gets the rank of a node gets the node's neighbours. Collective; each process
    /// reads the whole graph.
    pub(super) fn reordered_graph(
        &self,
        graph: &DistGraph,
        (reorder, origin): (bool, CallOrigin),
    ) -> Result<Option<(Group, DistGraph)>> {
        let Some(places) = self.places_to_reorder(reorder, origin)? else {
            return Ok(None);
        };
        let channel = self.constructor_channel(origin);
        let (size, own, me) = (self.size(), encoded_graph(graph), self.rank());
        let found = self.run(async move {
            let graphs = decoded_graphs(&channel.all_gather_sized(&own).await?);
            if graphs.len() != size as usize {
                return Err(Error::new(
                    Class::Intern,
                    "lost a part of a distributed graph",
                ));
            }
            let edges = match channel.rank {
                0 => graph_edges(&graphs),
                _ => Vec::new(),
            };
            let ranks = assigned(&channel, &places, (size, edges)).await?;
            Ok(ranks.map(|ranks| (ranks, graphs)))
        })?;
        let Some((ranks, mut graphs)) = found else {
            return Ok(None);
        };
        let node = ranks.iter().position(|rank| *rank == me);
        let node = node.ok_or_else(|| self.error(Class::Intern, "lost a process of a graph"))?;
        Ok(Some((self.group_of(&ranks)?, graphs.swap_remove(node))))
    }

    /// Group of these ranks in this order.
    fn group_of(&self, ranks: &[u32]) -> Result<Group> {
        let ranks: Vec<i32> = ranks.iter().map(|rank| *rank as i32).collect();
        self.group().incl(&ranks)
    }
}

/// A process's part of a distributed graph as words: whether it is weighted, and for each
/// direction the number of neighbours and (rank, weight) of each in order.
fn encoded_graph(graph: &DistGraph) -> Vec<u8> {
    let mut words = vec![u64::from(graph.weighted)];
    for side in [&graph.sources, &graph.destinations] {
        words.push(side.ranks.len() as u64);
        for (at, rank) in side.ranks.iter().enumerate() {
            let weight = side.weights.get(at).copied().unwrap_or(0);
            words.push(u64::from(*rank as u32) | u64::from(weight as u32) << 32);
        }
    }
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// The parts of all processes, from what they encoded, joined.
fn decoded_graphs(bytes: &[u8]) -> Vec<DistGraph> {
    let mut words = bytes.chunks_exact(8).map(|word| word_at(word, 0));
    let mut graphs = Vec::new();
    while let Some(weighted) = words.next() {
        let weighted = weighted != 0;
        let mut side = || {
            let count = words.next().unwrap_or(0) as usize;
            let mut adjacent = AdjacentRanks::default();
            for word in words.by_ref().take(count) {
                adjacent.ranks.push(word as u32 as i32);
                if weighted {
                    adjacent.weights.push((word >> 32) as u32 as i32);
                }
            }
            adjacent
        };
        let (sources, destinations) = (side(), side());
        graphs.push(DistGraph {
            sources,
            destinations,
            weighted,
        });
    }
    graphs
}

/// Traffic along the edges of a distributed graph. Sources are left out: each is somebody's
/// destination. A weight below 0, which the standard forbids, counts as none.
fn graph_edges(graphs: &[DistGraph]) -> Vec<(u32, u32, u64)> {
    let of_node = |(node, graph): (usize, &DistGraph)| {
        let to = &graph.destinations;
        let each = to.ranks.iter().enumerate().map(|(at, other)| {
            let weight = to
                .weights
                .get(at)
                .map_or(1, |weight| (*weight).max(0) as u64);
            (node as u32, *other as u32, weight)
        });
        each.collect::<Vec<_>>()
    };
    graphs.iter().enumerate().flat_map(of_node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_come_below_one_switch_where_hosts_have_one_rank() {
        // Ranks 0 and 3 are below one switch, 1 and 2 below another.
        let places: Vec<RankPlace> = [0, 1, 1, 0]
            .into_iter()
            .zip(0..)
            .map(|(switch, host)| place((switch, host), &[]))
            .collect();
        let ranks = assignment(&places, 4, vec![(0, 1, 100), (2, 3, 100), (1, 2, 1)]).unwrap();
        let switch = |node: usize| places[ranks[node] as usize][0];
        assert_eq!((switch(0), switch(2)), (switch(1), switch(3)));
        let bytes: Vec<u8> = places
            .iter()
            .flatten()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        assert_eq!(decoded_places(&bytes), places);
    }

    #[test]
    fn an_order_that_names_a_rank_twice_is_none() {
        assert!(are_different(&[2, 0, 1], 3) && are_different(&[2, 0], 3));
        assert!(!are_different(&[2, 2, 1], 3) && !are_different(&[0, 3], 3));
    }

    proptest! {
        #[test]
        fn an_assignment_is_a_permutation_and_better_than_none(
            places in proptest::collection::vec((0u32..3, 0u32..3, 0u32..2), 2..24),
            edges in proptest::collection::vec((0u32..24, 0u32..24, 0u64..1000), 0..60),
        ) {
            let size = places.len() as u32;
            let places: Vec<RankPlace> = places
                .into_iter()
                .map(|(switch, host, package)| [switch, host, package, u32::MAX, u32::MAX])
                .collect();
            let edges: Vec<_> = edges.into_iter().map(|(a, b, weight)| (a % size, b % size, weight)).collect();
            if let Some(ranks) = assignment(&places, size, edges.clone()) {
                prop_assert!(ranks.len() == places.len() && are_different(&ranks, places.len()));
                let tree = SlotTree::from_paths(&places, &COSTS).unwrap();
                let traffic = Traffic::new(size, edges).unwrap();
                let identity: Vec<u32> = (0..size).collect();
                let cost = |slots: &[u32]| garonne_mapping::cost(&traffic, &tree, slots);
                prop_assert!(cost(&ranks) < cost(&identity));
            }
        }
    }
}
