//! Buffers that hold one block per rank: where each rank's block lies.
//!
//! Used by gathers, scatters and all-to-alls; borrows the program's arrays of counts and
//! displacements as they are, `int` or 64-bit, so that planning copies nothing.

use super::typed_buffer::TypedBuffer;
use garonne_sync::user::Data;

/// An array of counts or displacements as the program gave it. What an `int` call passes and what a
/// `_c` call passes.
#[derive(Clone, Copy, Debug)]
pub enum CountArray<'a> {
    /// `int`.
    Int(&'a [i32]),
    /// `MPI_Count` or `MPI_Aint`.
    Wide(&'a [i64]),
    /// One number for every rank.
    All(i64),
}

impl CountArray<'_> {
    /// The number for `rank`; 0 beyond the end.
    pub fn get(&self, rank: u32) -> i64 {
        match self {
            CountArray::Int(values) => values
                .get(rank as usize)
                .map_or(0, |&value| i64::from(value)),
            CountArray::Wide(values) => values.get(rank as usize).copied().unwrap_or(0),
            CountArray::All(value) => *value,
        }
    }

    /// Returns how many there are; `None` when any rank has one.
    pub fn len(&self) -> Option<usize> {
        match self {
            CountArray::Int(values) => Some(values.len()),
            CountArray::Wide(values) => Some(values.len()),
            CountArray::All(_) => None,
        }
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// The number for `rank` as a count: a negative one is none.
    pub fn count(&self, rank: u32) -> u64 {
        self.get(rank).max(0) as u64
    }
}

/// Blocks of which each may have a datatype of its own.
pub trait EachBlock {
    /// Returns the block of `rank`; an empty one beyond the last.
    fn one(&self, rank: u32) -> Data;
    /// Returns the packed length of the block of `rank`.
    fn len(&self, rank: u32) -> u64;
}

/// A buffer of one block per rank.
#[derive(Clone, Copy)]
pub enum Blocks<'a> {
    /// Nothing: on processes where the buffer is not significant.
    None,
    /// Blocks of `count` elements back to back.
    Even {
        /// Element 0 of rank 0's block.
        typed: TypedBuffer<'a>,
        /// Elements in each block.
        count: u64,
    },
    /// Blocks of `counts[rank]` elements, each at its own displacement in extents.
    Uneven {
        /// The origin of displacements.
        typed: TypedBuffer<'a>,
        /// Elements of each block.
        counts: CountArray<'a>,
        /// Displacement of each block in extents.
        displs: CountArray<'a>,
    },
    /// Blocks that each have a datatype of their own.
    Each(&'a dyn EachBlock),
    /// Blocks listed by rank; ranks beyond the list have none.
    List(&'a [Data]),
}

impl Blocks<'_> {
    /// The block of `rank`.
    pub fn one(&self, rank: u32) -> Data {
        match self {
            Blocks::None => Data::empty(),
            Blocks::Even { typed, count } => typed.data((u64::from(rank) * count) as i64, *count),
            Blocks::Uneven {
                typed,
                counts,
                displs,
            } => typed.data(displs.get(rank), counts.count(rank)),
            Blocks::Each(blocks) => blocks.one(rank),
            Blocks::List(list) => list.get(rank as usize).cloned().unwrap_or_else(Data::empty),
        }
    }

    /// Packed length of the block of `rank`.
    pub fn len(&self, rank: u32) -> u64 {
        match self {
            Blocks::None => 0,
            Blocks::Even { typed, count } => typed.bytes(*count),
            Blocks::Uneven { typed, counts, .. } => typed.bytes(counts.count(rank)),
            Blocks::Each(blocks) => blocks.len(rank),
            Blocks::List(list) => list.get(rank as usize).map_or(0, |data| data.len),
        }
    }

    /// The blocks of `ranks` successive ranks, of even blocks only.
    pub fn run(&self, first: u32, ranks: u32) -> Data {
        match self {
            Blocks::Even { typed, count } => {
                typed.data((u64::from(first) * count) as i64, u64::from(ranks) * count)
            }
            _ if ranks == 1 => self.one(first),
            _ => unreachable!("only even blocks are handled in runs"),
        }
    }
}
