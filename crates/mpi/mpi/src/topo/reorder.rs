//! Reordering of ranks for a topology: neighbours come near each other (`reorder` of
//! `MPI_Cart_create`, `MPI_Graph_create` and the distributed graphs).
//!
//! Each process tells where it runs: its host, and there the package, NUMA node and last-level
//! cache that it is bound to. Rank 0 maps the nodes of the graph to processes and tells all. This
//! costs memory in proportion to the number of ranks while a constructor with `reorder` runs, and
//! nothing afterwards. Where all processes are equally far from each other, or where the order of
//! ranks is as good, ranks stay as they are.

use super::{AdjacentRanks, DistGraph, Topology};
use crate::comm::Comm;
use crate::comm::setup_messages::{SetupChannel, word_at};
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::process::HwResource;
use garonne_engine::api::CallOrigin;
use garonne_mapping::{SlotTree, Traffic, map};

/// Cost of a byte between processes on different hosts, then in different packages, NUMA nodes and
/// last-level caches of a host, then of one cache. Only their order and rough size matter.
const COSTS: [u64; 5] = [64, 6, 4, 2, 1];
/// Resources of a host that a place names, by their numbers in [`COSTS`] after the host.
const RESOURCES: [&str; 3] = ["hwloc://Package", "hwloc://NUMANode", "hwloc://L3Cache"];
/// Bytes of an encoded place.
const PLACE_LEN: usize = 16;

/// Where a process runs: its host, then what it is bound to, each by the first CPU.
/// `u32::MAX` stands for a resource of which the process may use several.
fn place(host: u32, resources: &[HwResource]) -> [u32; 4] {
    let first = |name: &str| {
        let found = resources.iter().find(|resource| resource.name == name);
        found
            .and_then(|resource| resource.instance)
            .map_or(u32::MAX, |instance| instance.first)
    };
    let [package, numa, cache] = RESOURCES.map(first);
    [host, package, numa, cache]
}

fn decoded_places(bytes: &[u8]) -> Vec<[u32; 4]> {
    let place = |bytes: &[u8]| {
        let (low, high) = (word_at(bytes, 0), word_at(bytes, 1));
        [
            low as u32,
            (low >> 32) as u32,
            high as u32,
            (high >> 32) as u32,
        ]
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
fn assignment(places: &[[u32; 4]], size: u32, edges: Vec<(u32, u32, u64)>) -> Option<Vec<u32>> {
    let tree = SlotTree::from_paths(places, &COSTS).ok()?;
    let traffic = Traffic::new(size, edges).ok()?;
    let mapping = map(&traffic, &tree)?;
    (mapping.cost < mapping.identity_cost).then_some(mapping.slots)
}

/// Rank 0 assigns processes to the nodes of a graph, all get the outcome.
async fn assigned(
    channel: &SetupChannel,
    places: &[[u32; 4]],
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
    let is_known = |rank: &u32| (*rank as usize) < places.len();
    if ranks.is_empty() {
        return Ok(None);
    }
    if ranks.len() != size as usize || !ranks.iter().all(is_known) {
        return Err(Error::new(
            Class::Intern,
            "rank 0 sent an order of ranks that is none",
        ));
    }
    Ok(Some(ranks))
}

impl Comm {
    /// Places of all processes by rank, or `None`: a process does not want to be reordered, or all
    /// are equally far from each other. Collective, with the same result on all.
    fn places_to_reorder(
        &self,
        reorder: bool,
        origin: CallOrigin,
    ) -> Result<Option<Vec<[u32; 4]>>> {
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
        let own = place(host, &resources).map(u32::to_le_bytes).concat();
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
