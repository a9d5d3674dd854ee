//! Numbers of collectives: the tag that keeps the messages of one collective apart from those of
//! all others.
//!
//! Every communicator counts its collectives, equally on all its processes since all call them in
//! the same order. A tag carries that number and the kind of call, so a mismatch (one process in a
//! broadcast, another in a barrier) leaves a message with the right number and another kind in the
//! unexpected queue, where `garonne who` finds it and names both calls.

use std::fmt;

/// Kinds of collective, as tags and events carry them; constructors of communicators, in which all
/// members take part, are among them. The numbers are part of the format: append, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the standard documents the names")]
pub enum CollectiveKind {
    /// The library's own, before the first collective of a communicator: a place in shared memory.
    Internal = 0,
    Barrier = 1,
    Bcast = 2,
    Gather = 3,
    Gatherv = 4,
    Scatter = 5,
    Scatterv = 6,
    Allgather = 7,
    Allgatherv = 8,
    Alltoall = 9,
    Alltoallv = 10,
    Alltoallw = 11,
    Reduce = 12,
    Allreduce = 13,
    ReduceScatter = 14,
    ReduceScatterBlock = 15,
    Scan = 16,
    Exscan = 17,
    NeighborAllgather = 18,
    NeighborAllgatherv = 19,
    NeighborAlltoall = 20,
    NeighborAlltoallv = 21,
    NeighborAlltoallw = 22,
    CommDup = 23,
    CommCreate = 24,
    CommSplit = 25,
    CommSplitType = 26,
    CommDisconnect = 27,
    IntercommCreate = 28,
    IntercommMerge = 29,
    CartCreate = 30,
    CartSub = 31,
    GraphCreate = 32,
    DistGraphCreate = 33,
    DistGraphAdjacent = 34,
}

const KINDS: [CollectiveKind; 35] = [
    CollectiveKind::Internal,
    CollectiveKind::Barrier,
    CollectiveKind::Bcast,
    CollectiveKind::Gather,
    CollectiveKind::Gatherv,
    CollectiveKind::Scatter,
    CollectiveKind::Scatterv,
    CollectiveKind::Allgather,
    CollectiveKind::Allgatherv,
    CollectiveKind::Alltoall,
    CollectiveKind::Alltoallv,
    CollectiveKind::Alltoallw,
    CollectiveKind::Reduce,
    CollectiveKind::Allreduce,
    CollectiveKind::ReduceScatter,
    CollectiveKind::ReduceScatterBlock,
    CollectiveKind::Scan,
    CollectiveKind::Exscan,
    CollectiveKind::NeighborAllgather,
    CollectiveKind::NeighborAllgatherv,
    CollectiveKind::NeighborAlltoall,
    CollectiveKind::NeighborAlltoallv,
    CollectiveKind::NeighborAlltoallw,
    CollectiveKind::CommDup,
    CollectiveKind::CommCreate,
    CollectiveKind::CommSplit,
    CollectiveKind::CommSplitType,
    CollectiveKind::CommDisconnect,
    CollectiveKind::IntercommCreate,
    CollectiveKind::IntercommMerge,
    CollectiveKind::CartCreate,
    CollectiveKind::CartSub,
    CollectiveKind::GraphCreate,
    CollectiveKind::DistGraphCreate,
    CollectiveKind::DistGraphAdjacent,
];

impl CollectiveKind {
    /// All kinds, by number.
    pub const ALL: [CollectiveKind; 35] = KINDS;

    /// Returns whether it makes a communicator, or ends one.
    pub fn is_constructor(self) -> bool {
        self as u8 >= CollectiveKind::CommDup as u8
    }

    /// The kind of a number that came from another process.
    pub fn from_code(code: u8) -> Option<CollectiveKind> {
        KINDS.get(usize::from(code)).copied()
    }

    /// Name as programs write it, in its blocking form.
    pub fn name(self) -> &'static str {
        match self {
            CollectiveKind::Internal => "preparing shared memory for collectives",
            CollectiveKind::Barrier => "MPI_Barrier",
            CollectiveKind::Bcast => "MPI_Bcast",
            CollectiveKind::Gather => "MPI_Gather",
            CollectiveKind::Gatherv => "MPI_Gatherv",
            CollectiveKind::Scatter => "MPI_Scatter",
            CollectiveKind::Scatterv => "MPI_Scatterv",
            CollectiveKind::Allgather => "MPI_Allgather",
            CollectiveKind::Allgatherv => "MPI_Allgatherv",
            CollectiveKind::Alltoall => "MPI_Alltoall",
            CollectiveKind::Alltoallv => "MPI_Alltoallv",
            CollectiveKind::Alltoallw => "MPI_Alltoallw",
            CollectiveKind::Reduce => "MPI_Reduce",
            CollectiveKind::Allreduce => "MPI_Allreduce",
            CollectiveKind::ReduceScatter => "MPI_Reduce_scatter",
            CollectiveKind::ReduceScatterBlock => "MPI_Reduce_scatter_block",
            CollectiveKind::Scan => "MPI_Scan",
            CollectiveKind::Exscan => "MPI_Exscan",
            CollectiveKind::NeighborAllgather => "MPI_Neighbor_allgather",
            CollectiveKind::NeighborAllgatherv => "MPI_Neighbor_allgatherv",
            CollectiveKind::NeighborAlltoall => "MPI_Neighbor_alltoall",
            CollectiveKind::NeighborAlltoallv => "MPI_Neighbor_alltoallv",
            CollectiveKind::NeighborAlltoallw => "MPI_Neighbor_alltoallw",
            CollectiveKind::CommDup => "MPI_Comm_dup",
            CollectiveKind::CommCreate => "MPI_Comm_create",
            CollectiveKind::CommSplit => "MPI_Comm_split",
            CollectiveKind::CommSplitType => "MPI_Comm_split_type",
            CollectiveKind::CommDisconnect => "MPI_Comm_disconnect",
            CollectiveKind::IntercommCreate => "MPI_Intercomm_create",
            CollectiveKind::IntercommMerge => "MPI_Intercomm_merge",
            CollectiveKind::CartCreate => "MPI_Cart_create",
            CollectiveKind::CartSub => "MPI_Cart_sub",
            CollectiveKind::GraphCreate => "MPI_Graph_create",
            CollectiveKind::DistGraphCreate => "MPI_Dist_graph_create",
            CollectiveKind::DistGraphAdjacent => "MPI_Dist_graph_create_adjacent",
        }
    }
}

impl fmt::Display for CollectiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which of a communicator's counts a collective belongs to.
///
/// The standard wants all collectives of a communicator called in one order. Blocking and
/// nonblocking ones are counted apart all the same: programs exist that start a nonblocking one
/// before a barrier on one process and after it on another, and other implementations let them.
/// Persistent ones are counted where they are initialised, all in one order, since each process may
/// start those it has in an order of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallSeries {
    /// Calls that return when they are done.
    Blocking,
    /// Calls that give a request.
    Nonblocking,
    /// Calls that give a request to be started again and again.
    Persistent,
}

const SERIES_BITS: u32 = 2;

impl CallSeries {
    fn from_code(code: u32) -> Option<Self> {
        [Self::Blocking, Self::Nonblocking, Self::Persistent]
            .into_iter()
            .find(|series| *series as u32 == code)
    }
}

/// One collective on one communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId {
    /// Number among the communicator's collectives of this series, modulo 2^22.
    pub number: u32,
    /// Series that the call is counted in.
    pub series: CallSeries,
    /// Kind of the call.
    pub kind: CollectiveKind,
}

/// Numbers wrap here: a process would have to be 4 million collectives ahead of another to confuse
/// two of them. Of persistent ones, which live on, no two have one number.
pub const NUMBERS: u32 = 1 << 22;
const KIND_BITS: u32 = 6;
const _: () = assert!(KINDS.len() <= 1 << KIND_BITS);
const _: () = assert!((NUMBERS as u64) << (SERIES_BITS + KIND_BITS + 1) == 1 << 31);

impl CallId {
    /// The `number`-th collective of a communicator's series.
    pub fn new(number: u32, series: CallSeries, kind: CollectiveKind) -> Self {
        Self {
            number: number % NUMBERS,
            series,
            kind,
        }
    }

    /// Tag of its messages. `inside` marks those that stay inside one group of an
    /// intercommunicator, since both groups count their ranks from 0.
    pub fn tag(self, inside: TagScope) -> i32 {
        let inside = (inside == TagScope::OneGroup) as u32;
        let count = self.number << SERIES_BITS | self.series as u32;
        ((count << (KIND_BITS + 1)) | ((self.kind as u32) << 1) | inside) as i32
    }

    /// The call that a tag on a collective context belongs to; `None` for a tag that this version
    /// does not write.
    pub fn from_tag(tag: i32) -> Option<Self> {
        let bits = u32::try_from(tag).ok()?;
        let kind = CollectiveKind::from_code(((bits >> 1) & ((1 << KIND_BITS) - 1)) as u8)?;
        let count = bits >> (KIND_BITS + 1);
        Some(Self {
            number: count >> SERIES_BITS,
            series: CallSeries::from_code(count & ((1 << SERIES_BITS) - 1))?,
            kind,
        })
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let series = match self.series {
            CallSeries::Blocking => "",
            CallSeries::Nonblocking => "nonblocking ",
            CallSeries::Persistent => "persistent ",
        };
        write!(f, "{} {series}#{}", self.kind, self.number)
    }
}

/// Between which processes of a communicator a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagScope {
    /// Intracommunicator, or from one group of an intercommunicator to the other.
    Whole,
    /// Within one group of an intercommunicator.
    OneGroup,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_names_the_call_it_came_from() {
        for (index, &kind) in KINDS.iter().enumerate() {
            assert_eq!(kind as usize, index);
            for number in [0, 1, 77, NUMBERS - 1, NUMBERS, u32::MAX] {
                for series in [
                    CallSeries::Blocking,
                    CallSeries::Nonblocking,
                    CallSeries::Persistent,
                ] {
                    let call = CallId::new(number, series, kind);
                    for inside in [TagScope::Whole, TagScope::OneGroup] {
                        assert!(call.tag(inside) >= 0);
                        assert_eq!(CallId::from_tag(call.tag(inside)), Some(call));
                    }
                }
            }
        }
        assert_eq!(CallId::from_tag(-1), None);
        assert_eq!(CallId::from_tag(63 << 1), None);
        assert_eq!(CallId::from_tag(3 << (KIND_BITS + 1)), None);
    }
}
