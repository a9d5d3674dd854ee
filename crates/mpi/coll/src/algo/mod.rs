//! The algorithms, each a function that states its steps to a [`Plan`](super::plan::Plan).
//!
//! Called by the entry points in [`super`] and by each other; which one serves a call is decided in
//! [`super::choose`]. Bounded by the number of steps they state: at most a small multiple of the
//! ranks, or of the segments of a pipeline.

pub mod allgather;
pub mod allreduce;
pub mod alltoall;
pub mod barrier;
pub mod bcast;
pub mod gather;
pub mod intercomm;
pub mod reduce;
pub mod reduce_scatter;
pub mod scan;

use super::typed_buffer::{ElementLayout, ReduceOp, TypedBuffer};
use garonne_sync::user::{Data, UserMem};
use std::ops::Range;

/// The rank `by` after `rank` on a ring of `n`.
pub fn plus(rank: u32, by: u32, n: u32) -> u32 {
    ((u64::from(rank) + u64::from(by)) % u64::from(n)) as u32
}

/// The rank `by` before `rank` on a ring of `n`.
pub fn minus(rank: u32, by: u32, n: u32) -> u32 {
    plus(rank, n - by % n, n)
}

/// The largest power of two that is at most `n` (at least 1).
pub fn power_below(n: u32) -> u32 {
    1 << n.ilog2()
}

/// Elements of part `index` when `count` elements are divided evenly among `parts`.
pub fn part(count: u64, parts: u32, index: u32) -> Range<u64> {
    let (parts, index) = (u64::from(parts), u64::from(index));
    let (each, more) = (count / parts, count % parts);
    let start = index * each + index.min(more);
    start..start + each + u64::from(index < more)
}

/// Elements of the parts `range`.
pub fn parts(count: u64, of: u32, range: Range<u32>) -> Range<u64> {
    if range.is_empty() {
        return 0..0;
    }
    part(count, of, range.start).start..part(count, of, range.end - 1).end
}

/// A tree of ranks 0..n in which the subtree of rank `v` is a run of ranks that starts at `v`: its
/// parent has the lowest set bit of `v` cleared.
#[derive(Clone, Copy)]
pub struct BinomialTree {
    v: u32,
    n: u32,
}

impl BinomialTree {
    /// The place of rank `v` among `n`.
    pub fn new(v: u32, n: u32) -> Self {
        Self { v, n }
    }

    /// Distance to the parent, and a bound of the distances to children; for the root the power of
    /// two that is not below `n`.
    fn reach(self) -> u32 {
        if self.v == 0 {
            self.n.next_power_of_two()
        } else {
            1 << self.v.trailing_zeros()
        }
    }

    /// The parent, unless this is the root.
    pub fn parent(self) -> Option<u32> {
        (self.v != 0).then(|| self.v - self.reach())
    }

    /// Ranks in the subtree of this one.
    pub fn subtree(self) -> u32 {
        self.reach().min(self.n - self.v)
    }

    /// The children, nearest first: each with the number of ranks in its subtree.
    pub fn children(self) -> impl DoubleEndedIterator<Item = (u32, u32)> {
        (0..self.reach().trailing_zeros())
            .map(move |bit| self.v + (1 << bit))
            .filter(move |&child| child < self.n)
            .map(move |child| (child, BinomialTree::new(child, self.n).subtree()))
    }
}

/// The operands and the result of a reduction. `input` and `output` are the same address for an
/// in-place call.
#[derive(Clone, Copy)]
pub struct Reduction<'a> {
    /// Operation and datatype.
    pub fold: &'a dyn ReduceOp,
    /// This process's contribution.
    pub input: UserMem,
    /// Place where the result goes, on processes that get one.
    pub output: UserMem,
    /// Elements.
    pub count: u64,
}

impl<'a> Reduction<'a> {
    /// The contribution as typed elements.
    pub fn input(&self) -> TypedBuffer<'a> {
        TypedBuffer::new(self.input, self.shape())
    }

    /// The result as typed elements.
    pub fn output(&self) -> TypedBuffer<'a> {
        TypedBuffer::new(self.output, self.shape())
    }

    /// The datatype.
    pub fn shape(&self) -> &'a dyn ElementLayout {
        self.fold.shape()
    }

    /// All `count` elements at `mem`.
    pub fn whole(&self, mem: UserMem) -> Data {
        TypedBuffer::new(mem, self.shape()).data(0, self.count)
    }

    /// Returns the place of the elements of this range in a buffer at `mem`.
    pub fn some(&self, mem: UserMem, elements: &Range<u64>) -> Data {
        TypedBuffer::new(mem, self.shape()).data(0, elements.end - elements.start)
    }

    /// Returns where these elements begin in what lies at `mem`.
    pub fn at(&self, mem: UserMem, elements: &Range<u64>) -> UserMem {
        mem.offset((elements.start as i64).wrapping_mul(self.shape().extent()) as isize)
    }

    /// Returns whether contribution and result share their memory.
    pub fn in_place(&self) -> bool {
        self.input == self.output
    }

    /// Returns this reduction with its result at `output`.
    pub fn to(mut self, output: UserMem) -> Self {
        self.output = output;
        self
    }
}

/// The elements of a range as data.
pub fn run(typed: &TypedBuffer<'_>, range: &Range<u64>) -> Data {
    typed.data(range.start as i64, range.end - range.start)
}

/// Returns how many elements a range has.
pub fn len(range: &Range<u64>) -> u64 {
    range.end - range.start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_elements_once_in_order() {
        for count in [0u64, 1, 7, 16, 100] {
            for n in 1..20 {
                let mut next = 0;
                for index in 0..n {
                    let range = part(count, n, index);
                    assert_eq!(range.start, next);
                    next = range.end;
                }
                assert_eq!(next, count);
            }
        }
    }

    #[test]
    fn every_rank_of_a_binomial_tree_is_the_child_of_its_parent() {
        for n in 1..40 {
            for v in 1..n {
                let parent = BinomialTree::new(v, n).parent().unwrap();
                let sizes: Vec<_> = BinomialTree::new(parent, n)
                    .children()
                    .filter(|child| child.0 == v)
                    .collect();
                assert_eq!(sizes, [(v, BinomialTree::new(v, n).subtree())]);
            }
            let tree = BinomialTree::new(0, n);
            assert_eq!(tree.parent(), None);
            assert_eq!(tree.children().map(|child| child.1).sum::<u32>() + 1, n);
        }
    }
}
