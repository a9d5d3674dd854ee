//! Ordered sets of processes. The world and regular subsets are stored as formulas, so that a group costs no memory
//! per member unless it is irregular.

use garonne_engine::api::Peer;
use std::sync::Arc;

/// An ordered set of processes of the job.
#[derive(Clone, Debug)]
pub enum Group {
    /// `first`, `first + stride`, … (`size` members); the world is `first` 0, `stride` 1.
    Strided {
        /// Process of rank 0.
        first: Peer,
        /// Distance between the processes of successive ranks.
        stride: u32,
        /// Number of members.
        size: u32,
    },
    /// Any list: the process of each rank.
    List(Arc<[Peer]>),
}

impl Group {
    /// Number of members.
    pub fn size(&self) -> u32 {
        match self {
            Group::Strided { size, .. } => *size,
            Group::List(members) => members.len() as u32,
        }
    }

    /// The process of `rank`, if there is such a rank.
    pub fn peer(&self, rank: u32) -> Option<Peer> {
        match self {
            Group::Strided { first, stride, size } => (rank < *size).then(|| first + rank * stride),
            Group::List(members) => members.get(rank as usize).copied(),
        }
    }
}
