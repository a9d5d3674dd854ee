//! Neighbourhood collectives (MPI 5.0 section 8.6): each process exchanges blocks with its
//! neighbours in the communicator's topology.
//!
//! Blocks are counted by neighbour here, in the order of [`Comm::neighbors`]; beyond the edge of a
//! grid the block is left alone. No process waits for others than its neighbours. Between two
//! processes that are neighbours more than once, blocks are told apart by the order of their
//! messages.

use super::buffers::{Elements, ElementsV, ElementsW};
use super::sealed::Planned;
use crate::comm::Comm;
use crate::error::Result;
use crate::topo::Topology;
use garonne_coll::blocks::Blocks;
use garonne_coll::call_tag::CollectiveKind;
use garonne_coll::plan::Plan;
use garonne_sync::user::Data;

/// A process's neighbours by rank, in the order of their blocks; `MPI_PROC_NULL` beyond the edge of
/// a grid.
pub struct Neighbors {
    sources: Vec<i32>,
    destinations: Vec<i32>,
    /// Two for each dimension of a grid.
    in_pairs: bool,
}

impl Neighbors {
    /// Returns the neighbours of the calling process.
    ///
    /// # Errors
    /// `Topology`: the communicator has none.
    pub fn of(comm: &Comm) -> Result<Self> {
        let (sources, destinations) = comm.neighbors()?;
        Ok(Self {
            sources,
            destinations,
            in_pairs: matches!(comm.topology(), Some(Topology::Cart(_))),
        })
    }

    /// Blocks that the process receives.
    pub fn indegree(&self) -> usize {
        self.sources.len()
    }

    /// Blocks that it sends.
    pub fn outdegree(&self) -> usize {
        self.destinations.len()
    }

    /// The order in which blocks are received. In a grid what was sent downwards comes from above:
    /// where both neighbours of a dimension are one process, the first that it sent is the block
    /// from above.
    fn arrivals(&self) -> impl Iterator<Item = usize> {
        let other = usize::from(self.in_pairs);
        (0..self.sources.len()).map(move |index| index ^ other)
    }

    /// Receives a block from each source, sends one to each destination.
    fn exchange<P: Plan>(
        &self,
        p: &mut P,
        outgoing: impl Fn(u32) -> Data,
        incoming: &Blocks<'_>,
    ) -> Result<(), P::Error> {
        for index in self.arrivals() {
            if let Ok(source) = u32::try_from(self.sources[index]) {
                p.recv(source, incoming.one(index as u32))?;
            }
        }
        for (index, &destination) in self.destinations.iter().enumerate() {
            if let Ok(destination) = u32::try_from(destination) {
                p.send(destination, outgoing(index as u32))?;
            }
        }
        p.fence()
    }
}

/// The five calls: what differs is how blocks are described, and whether every destination gets the
/// same.
macro_rules! neighborhood {
    ($($(#[$doc:meta])* $call:ident: $send:ident ($blocks:expr, $outgoing:expr), $recv:ident;)*) => {$(
        $(#[$doc])*
        pub struct $call<'a> {
            /// Whom blocks are for and from.
            pub neighbors: &'a Neighbors,
            /// A block for each destination, or the one that all of them get.
            pub send: $send<'a>,
            /// A block from each source.
            pub recv: $recv<'a>,
        }

        impl Planned for $call<'_> {
            fn kind(&self) -> CollectiveKind {
                CollectiveKind::$call
            }

            fn check(&self, _: &Comm) -> Result<()> {
                let blocks: fn(&Neighbors) -> usize = $blocks;
                self.send.check(blocks(self.neighbors) as u32)?;
                self.recv.check(self.neighbors.indegree() as u32)
            }

            fn plan<P: Plan>(&self, p: &mut P) -> Result<(), P::Error> {
                let outgoing: fn(&$send<'_>, u32) -> Data = $outgoing;
                let outgoing = |index| outgoing(&self.send, index);
                self.neighbors.exchange(p, outgoing, &self.recv.blocks())
            }

            fn synchronizes_all(&self) -> bool {
                false
            }
        }
    )*};
}

neighborhood! {
    /// `MPI_Neighbor_allgather`.
    NeighborAllgather: Elements (|_| 1, |send, _| send.data()), Elements;
    /// `MPI_Neighbor_allgatherv`.
    NeighborAllgatherv: Elements (|_| 1, |send, _| send.data()), ElementsV;
    /// `MPI_Neighbor_alltoall`.
    NeighborAlltoall: Elements (Neighbors::outdegree, |send, index| send.blocks().one(index)), Elements;
    /// `MPI_Neighbor_alltoallv`.
    NeighborAlltoallv: ElementsV (Neighbors::outdegree, |send, index| send.blocks().one(index)), ElementsV;
    /// `MPI_Neighbor_alltoallw`.
    NeighborAlltoallw: ElementsW (Neighbors::outdegree, |send, index| send.blocks().one(index)), ElementsW;
}
