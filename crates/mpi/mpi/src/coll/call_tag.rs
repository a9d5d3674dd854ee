//! Numbers of collectives: the tag that keeps the messages of one collective apart from those of
//! all others.
//!
//! Every communicator counts its collectives, equally on all its processes since all call them in
//! the same order. A tag carries that number and the kind of call, so a mismatch (one process in a
//! broadcast, another in a barrier) leaves a message with the right number and another kind in the
//! unexpected queue, where `garonne who` finds it and names both calls.

use garonne_progress::environment::CollectiveCounter;
use std::fmt;

/// Kinds of collective, as tags and events carry them; constructors of communicators, in which all
/// members take part, are among them. The numbers are part of the format: append, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the standard documents the names")]
pub enum Kind {
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

const KINDS: [Kind; 35] = [
    Kind::Internal,
    Kind::Barrier,
    Kind::Bcast,
    Kind::Gather,
    Kind::Gatherv,
    Kind::Scatter,
    Kind::Scatterv,
    Kind::Allgather,
    Kind::Allgatherv,
    Kind::Alltoall,
    Kind::Alltoallv,
    Kind::Alltoallw,
    Kind::Reduce,
    Kind::Allreduce,
    Kind::ReduceScatter,
    Kind::ReduceScatterBlock,
    Kind::Scan,
    Kind::Exscan,
    Kind::NeighborAllgather,
    Kind::NeighborAllgatherv,
    Kind::NeighborAlltoall,
    Kind::NeighborAlltoallv,
    Kind::NeighborAlltoallw,
    Kind::CommDup,
    Kind::CommCreate,
    Kind::CommSplit,
    Kind::CommSplitType,
    Kind::CommDisconnect,
    Kind::IntercommCreate,
    Kind::IntercommMerge,
    Kind::CartCreate,
    Kind::CartSub,
    Kind::GraphCreate,
    Kind::DistGraphCreate,
    Kind::DistGraphAdjacent,
];

impl Kind {
    #[cfg(test)]
    pub(crate) const ALL: [Kind; 35] = KINDS;

    /// Whether it makes a communicator, or ends one.
    pub fn is_constructor(self) -> bool {
        self as u8 >= Kind::CommDup as u8
    }

    /// The kind of a number that came from another process.
    pub(crate) fn from_code(code: u8) -> Option<Kind> {
        KINDS.get(usize::from(code)).copied()
    }

    /// Its name as programs write it, in its blocking form.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Internal => "preparing shared memory for collectives",
            Kind::Barrier => "MPI_Barrier",
            Kind::Bcast => "MPI_Bcast",
            Kind::Gather => "MPI_Gather",
            Kind::Gatherv => "MPI_Gatherv",
            Kind::Scatter => "MPI_Scatter",
            Kind::Scatterv => "MPI_Scatterv",
            Kind::Allgather => "MPI_Allgather",
            Kind::Allgatherv => "MPI_Allgatherv",
            Kind::Alltoall => "MPI_Alltoall",
            Kind::Alltoallv => "MPI_Alltoallv",
            Kind::Alltoallw => "MPI_Alltoallw",
            Kind::Reduce => "MPI_Reduce",
            Kind::Allreduce => "MPI_Allreduce",
            Kind::ReduceScatter => "MPI_Reduce_scatter",
            Kind::ReduceScatterBlock => "MPI_Reduce_scatter_block",
            Kind::Scan => "MPI_Scan",
            Kind::Exscan => "MPI_Exscan",
            Kind::NeighborAllgather => "MPI_Neighbor_allgather",
            Kind::NeighborAllgatherv => "MPI_Neighbor_allgatherv",
            Kind::NeighborAlltoall => "MPI_Neighbor_alltoall",
            Kind::NeighborAlltoallv => "MPI_Neighbor_alltoallv",
            Kind::NeighborAlltoallw => "MPI_Neighbor_alltoallw",
            Kind::CommDup => "MPI_Comm_dup",
            Kind::CommCreate => "MPI_Comm_create",
            Kind::CommSplit => "MPI_Comm_split",
            Kind::CommSplitType => "MPI_Comm_split_type",
            Kind::CommDisconnect => "MPI_Comm_disconnect",
            Kind::IntercommCreate => "MPI_Intercomm_create",
            Kind::IntercommMerge => "MPI_Intercomm_merge",
            Kind::CartCreate => "MPI_Cart_create",
            Kind::CartSub => "MPI_Cart_sub",
            Kind::GraphCreate => "MPI_Graph_create",
            Kind::DistGraphCreate => "MPI_Dist_graph_create",
            Kind::DistGraphAdjacent => "MPI_Dist_graph_create_adjacent",
        }
    }
}

impl fmt::Display for Kind {
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
pub enum Series {
    /// Calls that return when they are done.
    Blocking,
    /// Calls that give a request.
    Nonblocking,
    /// Calls that give a request to be started again and again.
    Persistent,
}

const SERIES_BITS: u32 = 2;

impl Series {
    /// Which of a communicator's counters counts them.
    pub fn counted(self) -> CollectiveCounter {
        match self {
            Series::Blocking => CollectiveCounter::Blocking,
            Series::Nonblocking => CollectiveCounter::Nonblocking,
            Series::Persistent => CollectiveCounter::Persistent,
        }
    }

    fn from_code(code: u32) -> Option<Self> {
        [Self::Blocking, Self::Nonblocking, Self::Persistent]
            .into_iter()
            .find(|series| *series as u32 == code)
    }
}

/// One collective on one communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its number among the communicator's collectives of its series, modulo 2^22.
    pub number: u32,
    /// Its series.
    pub series: Series,
    /// What was called.
    pub kind: Kind,
}

/// Numbers wrap here: a process would have to be 4 million collectives ahead of another to confuse
/// two of them. Of persistent ones, which live on, no two have one number ([`super::persistent`]).
pub const NUMBERS: u32 = 1 << 22;
const KIND_BITS: u32 = 6;
const _: () = assert!(KINDS.len() <= 1 << KIND_BITS);
const _: () = assert!((NUMBERS as u64) << (SERIES_BITS + KIND_BITS + 1) == 1 << 31);

impl Call {
    /// The `number`-th collective of a communicator's series.
    pub fn new(number: u32, series: Series, kind: Kind) -> Self {
        Self {
            number: number % NUMBERS,
            series,
            kind,
        }
    }

    /// Tag of its messages. `inside` marks those that stay inside one group of an
    /// intercommunicator, since both groups count their ranks from 0.
    pub(crate) fn tag(self, inside: Inside) -> i32 {
        let inside = (inside == Inside::OneGroup) as u32;
        let count = self.number << SERIES_BITS | self.series as u32;
        ((count << (KIND_BITS + 1)) | ((self.kind as u32) << 1) | inside) as i32
    }

    /// The call that a tag on a collective context belongs to; `None` for a tag that this version
    /// does not write.
    pub fn from_tag(tag: i32) -> Option<Self> {
        let bits = u32::try_from(tag).ok()?;
        let kind = Kind::from_code(((bits >> 1) & ((1 << KIND_BITS) - 1)) as u8)?;
        let count = bits >> (KIND_BITS + 1);
        Some(Self {
            number: count >> SERIES_BITS,
            series: Series::from_code(count & ((1 << SERIES_BITS) - 1))?,
            kind,
        })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let series = match self.series {
            Series::Blocking => "",
            Series::Nonblocking => "nonblocking ",
            Series::Persistent => "persistent ",
        };
        write!(f, "{} {series}#{}", self.kind, self.number)
    }
}

/// Between which processes of a communicator a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inside {
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
                for series in [Series::Blocking, Series::Nonblocking, Series::Persistent] {
                    let call = Call::new(number, series, kind);
                    for inside in [Inside::Whole, Inside::OneGroup] {
                        assert!(call.tag(inside) >= 0);
                        assert_eq!(Call::from_tag(call.tag(inside)), Some(call));
                    }
                }
            }
        }
        assert_eq!(Call::from_tag(-1), None);
        assert_eq!(Call::from_tag(63 << 1), None);
        assert_eq!(Call::from_tag(3 << (KIND_BITS + 1)), None);
    }
}
