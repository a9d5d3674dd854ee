//! Graph topologies: the whole graph at every process, or each process's neighbours only.

use super::Topology;
use crate::coll::constructor_entry::ConstructorEntry;
use crate::comm::Comm;
use crate::comm::setup_messages::word_at;
use crate::error::{Class, Error, Result};
use garonne_coll::call_tag::CollectiveKind;
use garonne_engine::api::CallOrigin;
use std::sync::Arc;

/// A graph in the form of `MPI_Graph_create`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// Running sums of the nodes' numbers of neighbours.
    pub index: Vec<i32>,
    /// The neighbours of node 0, then those of node 1, …
    pub edges: Vec<i32>,
}

impl Graph {
    fn new(index: &[i32], edges: &[i32]) -> Result<Self> {
        if index.first().is_some_and(|first| *first < 0) || !index.is_sorted() {
            return Err(Error::new(
                Class::Arg,
                "the index array of a graph must not fall and start at 0 or more",
            ));
        }
        let count = index.last().map_or(0, |last| *last as usize);
        let edges = edges.get(..count).ok_or_else(|| {
            Error::new(
                Class::Arg,
                format!("the graph's index names {count} edges, fewer were given"),
            )
        })?;
        if let Some(bad) = edges
            .iter()
            .find(|node| **node < 0 || **node as usize >= index.len())
        {
            return Err(Error::new(
                Class::Rank,
                format!(
                    "an edge leads to node {bad} of a graph with {} nodes",
                    index.len()
                ),
            ));
        }
        Ok(Self {
            index: index.to_vec(),
            edges: edges.to_vec(),
        })
    }

    /// `MPI_Graph_neighbors`.
    pub fn neighbors(&self, rank: i32) -> Result<&[i32]> {
        let node = usize::try_from(rank)
            .ok()
            .filter(|node| *node < self.index.len());
        let node = node.ok_or_else(|| {
            Error::new(
                Class::Rank,
                format!(
                    "node {rank} is not in the graph, which has {}",
                    self.index.len()
                ),
            )
        })?;
        let start = if node == 0 {
            0
        } else {
            self.index[node - 1] as usize
        };
        Ok(&self.edges[start..self.index[node] as usize])
    }
}

/// Neighbours of one process in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdjacentRanks {
    /// Ranks of the neighbours.
    pub ranks: Vec<i32>,
    /// Weights of the edges, as many; empty for an unweighted graph.
    pub weights: Vec<i32>,
}

/// The part of a distributed graph that a process knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistGraph {
    /// Whence it receives.
    pub sources: AdjacentRanks,
    /// Whither it sends.
    pub destinations: AdjacentRanks,
    /// True if weights were given (`MPI_Dist_graph_neighbors_count`).
    pub weighted: bool,
}

/// Edges that one process contributes to `MPI_Dist_graph_create`.
#[derive(Clone, Copy, Debug)]
pub struct GraphEdges<'a> {
    /// Source nodes.
    pub sources: &'a [i32],
    /// Number of destinations of each source.
    pub degrees: &'a [i32],
    /// Destinations of the first source, then of the second, …
    pub destinations: &'a [i32],
    /// A weight for each destination; `None` for `MPI_UNWEIGHTED`.
    pub weights: Option<&'a [i32]>,
}

impl Comm {
    /// `MPI_Graph_create`: `None` for processes that the graph leaves over.
    pub fn graph_create(
        &self,
        index: &[i32],
        edges: &[i32],
        (reorder, origin): (bool, CallOrigin),
    ) -> Result<Option<Comm>> {
        let graph = Graph::new(index, edges)?;
        let size = self.graph_size(&graph)?;
        self.with_topology(
            size,
            Topology::Graph(graph),
            (CollectiveKind::GraphCreate, reorder, origin),
        )
    }

    fn graph_size(&self, graph: &Graph) -> Result<u32> {
        if graph.index.len() > self.size() as usize {
            let text = format!(
                "has {} processes, fewer than the {} nodes of the graph",
                self.size(),
                graph.index.len()
            );
            return Err(self.error(Class::Arg, text));
        }
        Ok(graph.index.len() as u32)
    }

    /// The graph of this communicator.
    pub fn graph(&self) -> Result<&Graph> {
        match self.topology() {
            Some(Topology::Graph(graph)) => Ok(graph),
            _ => Err(self.error(Class::Topology, "has no graph topology")),
        }
    }

    /// `MPI_Graph_map`: the rank that the calling process would have, or `MPI_UNDEFINED`.
    pub fn graph_map(&self, index: &[i32], edges: &[i32]) -> Result<i32> {
        let size = self.graph_size(&Graph::new(index, edges)?)?;
        Ok(if self.rank() < size {
            self.rank() as i32
        } else {
            crate::UNDEFINED
        })
    }

    /// `MPI_Dist_graph_create_adjacent`. `weighted` tells whether the program gave weights;
    /// `MPI_WEIGHTS_EMPTY` is weighted without edges.
    pub fn dist_graph_adjacent(
        &self,
        graph: DistGraph,
        (reorder, origin): (bool, CallOrigin),
    ) -> Result<Comm> {
        self.no_inter()?;
        for side in [&graph.sources, &graph.destinations] {
            self.check_nodes(&side.ranks)?;
            if graph.weighted && side.weights.len() != side.ranks.len() {
                return Err(self.error(
                    Class::Arg,
                    "was given a weighted graph with fewer weights than edges",
                ));
            }
        }
        let entered = self.enter(CollectiveKind::DistGraphAdjacent, origin)?;
        self.dist_graph_comm(graph, reorder, &entered)
    }

    /// `MPI_Dist_graph_create`: any process may contribute any edges. Each process reads all
    /// contributions once, so this costs memory in proportion to the graph while it runs.
    pub fn dist_graph_create(
        &self,
        edges: GraphEdges<'_>,
        (reorder, origin): (bool, CallOrigin),
    ) -> Result<Comm> {
        self.no_inter()?;
        let records = self.edge_records(edges)?;
        let weighted = edges.weights.is_some();
        let entered = self.enter(CollectiveKind::DistGraphCreate, origin)?;
        let channel = self.constructor_channel(origin);
        let all = self.run(async move { channel.all_gather_sized(&records).await })?;
        let me = self.rank() as i32;
        let mut graph = DistGraph {
            sources: AdjacentRanks::default(),
            destinations: AdjacentRanks::default(),
            weighted,
        };
        for edge in all.chunks_exact(EDGE_LEN) {
            let ends = word_at(edge, 0);
            let (source, destination, weight) = (
                ends as u32 as i32,
                (ends >> 32) as u32 as i32,
                word_at(edge, 1) as i32,
            );
            let add = |side: &mut AdjacentRanks, rank| {
                side.ranks.push(rank);
                if weighted {
                    side.weights.push(weight);
                }
            };
            if destination == me {
                add(&mut graph.sources, source);
            }
            if source == me {
                add(&mut graph.destinations, destination);
            }
        }
        self.dist_graph_comm(graph, reorder, &entered)
    }

    /// The neighbours of this process in a distributed graph.
    pub fn dist_graph(&self) -> Result<&DistGraph> {
        match self.topology() {
            Some(Topology::DistGraph(graph)) => Ok(graph),
            _ => Err(self.error(Class::Topology, "has no distributed graph topology")),
        }
    }

    fn dist_graph_comm(
        &self,
        graph: DistGraph,
        reorder: bool,
        entered: &ConstructorEntry,
    ) -> Result<Comm> {
        let (group, graph) = self
            .reordered_graph(&graph, (reorder, entered.origin()))?
            .unwrap_or_else(|| (self.group().clone(), graph));
        let topology = Some(Arc::new(Topology::DistGraph(graph)));
        let made = self.create_dressed(&group, entered, move |parts| parts.topology = topology)?;
        made.ok_or_else(|| self.error(Class::Intern, "lost a process in MPI_Dist_graph_create"))
    }

    fn check_nodes(&self, nodes: &[i32]) -> Result<()> {
        match nodes
            .iter()
            .find(|node| **node < 0 || **node as u32 >= self.size())
        {
            Some(bad) => Err(self.error(
                Class::Rank,
                format!("has {} processes; an edge names rank {bad}", self.size()),
            )),
            None => Ok(()),
        }
    }

    /// The contributed edges as bytes: both ends in a word, then the weight.
    fn edge_records(&self, edges: GraphEdges<'_>) -> Result<Vec<u8>> {
        self.check_nodes(edges.sources)?;
        self.check_nodes(edges.destinations)?;
        if let Some(bad) = edges.degrees.iter().find(|degree| **degree < 0) {
            return Err(self.error(Class::Arg, format!("was given a node with {bad} edges")));
        }
        let total: usize = edges.degrees.iter().map(|degree| *degree as usize).sum();
        let short = edges.weights.is_some_and(|weights| weights.len() < total);
        if edges.degrees.len() < edges.sources.len() || edges.destinations.len() < total || short {
            return Err(self.error(
                Class::Arg,
                "was given fewer destinations or weights than the degrees say",
            ));
        }
        let from = edges
            .sources
            .iter()
            .zip(edges.degrees)
            .flat_map(|(node, degree)| std::iter::repeat_n(*node, *degree as usize));
        let mut records = Vec::with_capacity(total * EDGE_LEN);
        for (at, source) in from.enumerate() {
            let ends = u64::from(source as u32) | u64::from(edges.destinations[at] as u32) << 32;
            let weight = edges.weights.map_or(1, |weights| weights[at]);
            records.extend_from_slice(&ends.to_le_bytes());
            records.extend_from_slice(&i64::from(weight).to_le_bytes());
        }
        Ok(records)
    }
}

const EDGE_LEN: usize = 16;
