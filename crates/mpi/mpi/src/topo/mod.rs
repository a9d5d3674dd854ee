//! Virtual topologies (MPI 5.0 chapter 8): what a communicator knows of who talks to whom.
//!
//! A topology is an immutable value that a communicator and its duplicates share. Constructors that
//! may reorder ranks do so where that brings neighbours nearer to each other.

mod cart;
mod dims;
mod graph;
mod reorder;
#[cfg(test)]
mod tests;

pub use cart::Cart;
pub use dims::dims_create;
pub use graph::{AdjacentRanks, DistGraph, Graph, GraphEdges};

use crate::comm::{Comm, CommParts};
use crate::error::{Class, Result};
use crate::group::Group;
use garonne_coll::call_tag::CollectiveKind;
use garonne_engine::api::CallOrigin;
use std::sync::Arc;

/// The kinds of topology.
#[derive(Debug)]
pub enum Topology {
    /// Cartesian grid (`MPI_CART`).
    Cart(Cart),
    /// General graph, known whole by every process (`MPI_GRAPH`).
    Graph(Graph),
    /// Distributed graph, each process knows its neighbours (`MPI_DIST_GRAPH`).
    DistGraph(DistGraph),
}

impl Topology {
    /// The number that `MPI_Topo_test` gives in the standard ABI.
    pub fn number(&self) -> i32 {
        match self {
            Topology::Cart(_) => 211,
            Topology::Graph(_) => 212,
            Topology::DistGraph(_) => 213,
        }
    }
}

impl Comm {
    /// The topology of this communicator, if it has one (`MPI_Topo_test`).
    pub fn topology(&self) -> Option<&Topology> {
        self.0.topology.as_deref()
    }

    /// Neighbours in the order of neighbourhood collectives: ranks to receive from, ranks to send
    /// to, `MPI_PROC_NULL` beyond the edges of a grid.
    pub fn neighbors(&self) -> Result<(Vec<i32>, Vec<i32>)> {
        match self.topology() {
            Some(Topology::Cart(cart)) => {
                let both = cart.neighbors(self.rank());
                Ok((both.clone(), both))
            }
            Some(Topology::Graph(graph)) => {
                let both = graph.neighbors(self.rank() as i32)?.to_vec();
                Ok((both.clone(), both))
            }
            Some(Topology::DistGraph(graph)) => Ok((
                graph.sources.ranks.clone(),
                graph.destinations.ranks.clone(),
            )),
            None => Err(self.error(Class::Topology, "has no topology")),
        }
    }

    /// A communicator of `size` ranks with this topology: the first, or others in another order if
    /// ranks may be reordered. `None` for those left over.
    fn with_topology(
        &self,
        size: u32,
        topology: Topology,
        (kind, reorder, origin): (CollectiveKind, bool, CallOrigin),
    ) -> Result<Option<Comm>> {
        self.no_inter()?;
        let entered = self.enter(kind, origin)?;
        let reordered = self.reordered_group(size, &topology, (reorder, origin))?;
        let members = reordered.unwrap_or_else(|| self.first_ranks(size));
        self.create_dressed(&members, &entered, move |parts: &mut CommParts| {
            parts.topology = Some(Arc::new(topology))
        })
    }

    /// Group of the first `size` ranks.
    fn first_ranks(&self, size: u32) -> Group {
        match &self.0.local {
            Group::Strided { first, stride, .. } => Group::Strided {
                first: *first,
                stride: *stride,
                size,
            },
            Group::List(members) => Group::compact(members[..size as usize].to_vec()),
        }
    }

    fn no_inter(&self) -> Result<()> {
        if self.is_inter() {
            return Err(self.error(
                Class::Comm,
                "is an intercommunicator, which cannot have a topology",
            ));
        }
        Ok(())
    }
}
