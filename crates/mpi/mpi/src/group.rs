//! Ordered sets of processes and their algebra (MPI 5.0 section 7.3).
//!
//! The world and regular subsets are stored as formulas, so that a group costs no memory per member
//! unless it is irregular; every constructor ends in [`Group::compact`], which finds the formula
//! again. A group is a value without identity: any thread may use it.

use crate::error::{Class, Error, Result};
use garonne_engine::api::Peer;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// An ordered set of processes of the job.
#[derive(Clone, Debug)]
pub enum Group {
    /// `first`, `first + stride`, … (`size` members), modulo 2^32, so that descending sets are
    /// formulas too; the world is `first` 0, `stride` 1.
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

/// Way in which two groups (or communicators) relate, with the standard's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Comparison {
    /// One object (communicators), or equal members in equal order (groups).
    Ident = 201,
    /// Equal members in equal order in another context (communicators only).
    Congruent = 202,
    /// Equal members in another order.
    Similar = 203,
    /// Otherwise.
    Unequal = 204,
}

/// A range of ranks `first`, `first + stride`, … up to and not beyond `last`
/// (`MPI_Group_range_incl`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankRange {
    /// First rank.
    pub first: i32,
    /// Bound of the last rank, included.
    pub last: i32,
    /// Step, not 0; may be negative.
    pub stride: i32,
}

impl Group {
    /// The group without members.
    pub const EMPTY: Group = Group::Strided {
        first: 0,
        stride: 1,
        size: 0,
    };

    /// The group of processes 0 to `size - 1`.
    pub fn world(size: u32) -> Self {
        Group::Strided {
            first: 0,
            stride: 1,
            size,
        }
    }

    /// The group of one process.
    pub fn single(peer: Peer) -> Self {
        Group::Strided {
            first: peer,
            stride: 1,
            size: 1,
        }
    }

    /// A group of these processes in this order, as a formula where there is one.
    pub fn compact(members: Vec<Peer>) -> Self {
        let stride = match members[..] {
            [] => return Self::EMPTY,
            [only] => return Self::single(only),
            [a, b, ..] => b.wrapping_sub(a),
        };
        if members
            .windows(2)
            .all(|pair| pair[1].wrapping_sub(pair[0]) == stride)
        {
            return Group::Strided {
                first: members[0],
                stride,
                size: members.len() as u32,
            };
        }
        Group::List(members.into())
    }

    /// Number of members.
    pub fn size(&self) -> u32 {
        match self {
            Group::Strided { size, .. } => *size,
            Group::List(members) => members.len() as u32,
        }
    }

    /// The process of `rank`, if there is such a rank.
    #[inline]
    pub fn peer(&self, rank: u32) -> Option<Peer> {
        match self {
            Group::Strided {
                first,
                stride,
                size,
            } => (rank < *size).then(|| first.wrapping_add(rank.wrapping_mul(*stride))),
            Group::List(members) => members.get(rank as usize).copied(),
        }
    }

    /// The rank of a process, if it is a member.
    pub fn rank_of(&self, peer: Peer) -> Option<u32> {
        match self {
            Group::Strided {
                first,
                stride,
                size,
            } => {
                let distance = i64::from(peer.wrapping_sub(*first) as i32);
                let stride = i64::from(*stride as i32);
                let rank = match stride {
                    0 => (distance == 0).then_some(0)?,
                    _ => (distance % stride == 0).then(|| distance / stride)?,
                };
                (0..i64::from(*size)).contains(&rank).then_some(rank as u32)
            }
            Group::List(members) => members
                .iter()
                .position(|m| *m == peer)
                .map(|rank| rank as u32),
        }
    }

    /// The processes in the order of their ranks.
    pub fn members(&self) -> impl Iterator<Item = Peer> + '_ {
        (0..self.size()).map(|rank| self.peer(rank).expect("rank below size"))
    }

    /// Returns whether both are one formula or one list.
    fn same(&self, other: &Group) -> bool {
        self.size() == other.size() && self.members().eq(other.members())
    }

    /// `MPI_Group_compare`: `Ident`, `Similar` or `Unequal`.
    pub fn compare(&self, other: &Group) -> Comparison {
        if self.same(other) {
            return Comparison::Ident;
        }
        if self.size() != other.size() {
            return Comparison::Unequal;
        }
        let index = RankIndex::of(other);
        if self.members().all(|peer| index.rank(peer).is_some()) {
            Comparison::Similar
        } else {
            Comparison::Unequal
        }
    }

    /// `MPI_Group_translate_ranks`: the ranks in `other` of `ranks` in this group. `MPI_PROC_NULL`
    /// stays itself and a process that is not in `other` gives `MPI_UNDEFINED`.
    pub fn translate(&self, ranks: &[i32], other: &Group) -> Result<Vec<i32>> {
        let index = RankIndex::for_queries(other, ranks.len());
        ranks
            .iter()
            .map(|&rank| {
                if rank == crate::PROC_NULL {
                    return Ok(crate::PROC_NULL);
                }
                let peer = self.checked_peer(rank)?;
                Ok(index
                    .rank(peer)
                    .map_or(crate::UNDEFINED, |rank| rank as i32))
            })
            .collect()
    }

    /// `MPI_Group_union`: the members of this group, then those of `other` that are not in it.
    pub fn union(&self, other: &Group) -> Group {
        let index = RankIndex::of(self);
        Self::compact(
            self.members()
                .chain(other.members().filter(|peer| index.rank(*peer).is_none()))
                .collect(),
        )
    }

    /// `MPI_Group_intersection`: the members of this group that are in `other`.
    pub fn intersection(&self, other: &Group) -> Group {
        let index = RankIndex::of(other);
        Self::compact(
            self.members()
                .filter(|peer| index.rank(*peer).is_some())
                .collect(),
        )
    }

    /// `MPI_Group_difference`: the members of this group that are not in `other`.
    pub fn difference(&self, other: &Group) -> Group {
        let index = RankIndex::of(other);
        Self::compact(
            self.members()
                .filter(|peer| index.rank(*peer).is_none())
                .collect(),
        )
    }

    /// `MPI_Group_incl`: the members of these ranks, in this order.
    pub fn incl(&self, ranks: &[i32]) -> Result<Group> {
        let mut seen = HashSet::with_capacity(ranks.len());
        let mut members = Vec::with_capacity(ranks.len());
        for &rank in ranks {
            members.push(self.checked_peer(rank)?);
            if !seen.insert(rank) {
                return Err(Error::new(
                    Class::Rank,
                    format!("rank {rank} is named twice"),
                ));
            }
        }
        Ok(Self::compact(members))
    }

    /// `MPI_Group_excl`: the members of all other ranks, in this group's order.
    pub fn excl(&self, ranks: &[i32]) -> Result<Group> {
        let mut out = HashSet::with_capacity(ranks.len());
        for &rank in ranks {
            self.checked_peer(rank)?;
            if !out.insert(rank as u32) {
                return Err(Error::new(
                    Class::Rank,
                    format!("rank {rank} is named twice"),
                ));
            }
        }
        let keep = (0..self.size()).filter(|rank| !out.contains(rank));
        Ok(Self::compact(
            keep.map(|rank| self.peer(rank).expect("rank below size"))
                .collect(),
        ))
    }

    /// `MPI_Group_range_incl`.
    pub fn range_incl(&self, ranges: &[RankRange]) -> Result<Group> {
        self.incl(&self.expand(ranges)?)
    }

    /// `MPI_Group_range_excl`.
    pub fn range_excl(&self, ranges: &[RankRange]) -> Result<Group> {
        self.excl(&self.expand(ranges)?)
    }

    fn expand(&self, ranges: &[RankRange]) -> Result<Vec<i32>> {
        let mut ranks = Vec::new();
        for &RankRange {
            first,
            last,
            stride,
        } in ranges
        {
            if stride == 0 {
                return Err(Error::new(
                    Class::Arg,
                    format!("range ({first}, {last}, 0): the stride must not be 0"),
                ));
            }
            // Checked first, so that the expansion is bounded by the group's size.
            self.checked_peer(first)?;
            let mut rank = i64::from(first);
            while if stride > 0 {
                rank <= i64::from(last)
            } else {
                rank >= i64::from(last)
            } {
                if ranks.len() >= self.size() as usize {
                    let text = format!(
                        "range ({first}, {last}, {stride}) names more ranks than the group's {}",
                        self.size()
                    );
                    return Err(Error::new(Class::Rank, text));
                }
                ranks.push(i32::try_from(rank).map_err(|_| {
                    Error::new(Class::Rank, format!("rank {rank} is out of range"))
                })?);
                rank += i64::from(stride);
            }
        }
        Ok(ranks)
    }

    fn checked_peer(&self, rank: i32) -> Result<Peer> {
        u32::try_from(rank)
            .ok()
            .and_then(|rank| self.peer(rank))
            .ok_or_else(|| {
                Error::new(
                    Class::Rank,
                    format!(
                        "rank {rank} is not in the group, which has {} members",
                        self.size()
                    ),
                )
            })
    }
}

/// Finds ranks in a group: by its formula, by search for a few queries, or through a table for
/// many.
enum RankIndex<'a> {
    Formula(&'a Group),
    Table(HashMap<Peer, u32>),
}

impl<'a> RankIndex<'a> {
    fn of(group: &'a Group) -> Self {
        Self::for_queries(group, usize::MAX)
    }

    fn for_queries(group: &'a Group, queries: usize) -> Self {
        match group {
            Group::List(members) if queries > 4 => RankIndex::Table(
                members
                    .iter()
                    .enumerate()
                    .map(|(rank, peer)| (*peer, rank as u32))
                    .collect(),
            ),
            _ => RankIndex::Formula(group),
        }
    }

    fn rank(&self, peer: Peer) -> Option<u32> {
        match self {
            RankIndex::Formula(group) => group.rank_of(peer),
            RankIndex::Table(table) => table.get(&peer).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(group: &Group) -> Vec<Peer> {
        group.members().collect()
    }

    #[test]
    fn regular_sets_stay_formulas() {
        let world = Group::world(1000);
        let odd = world
            .range_incl(&[RankRange {
                first: 1,
                last: 999,
                stride: 2,
            }])
            .unwrap();
        assert!(matches!(
            odd,
            Group::Strided {
                first: 1,
                stride: 2,
                size: 500
            }
        ));
        let down = world
            .range_incl(&[RankRange {
                first: 9,
                last: 0,
                stride: -3,
            }])
            .unwrap();
        assert_eq!(list(&down), [9, 6, 3, 0]);
        assert!(matches!(down, Group::Strided { .. }));
        assert_eq!(down.rank_of(3), Some(2));
        assert_eq!(down.rank_of(4), None);
        assert_eq!(down.rank_of(12), None);
    }

    #[test]
    fn a_range_with_stride_zero_and_a_rank_named_twice_are_refused() {
        let world = Group::world(4);
        assert_eq!(
            world
                .range_incl(&[RankRange {
                    first: 0,
                    last: 2,
                    stride: 0
                }])
                .unwrap_err()
                .class,
            Class::Arg
        );
        assert_eq!(world.incl(&[1, 1]).unwrap_err().class, Class::Rank);
        assert_eq!(world.incl(&[4]).unwrap_err().class, Class::Rank);
        assert_eq!(
            world
                .range_incl(&[RankRange {
                    first: 0,
                    last: i32::MAX,
                    stride: 1
                }])
                .unwrap_err()
                .class,
            Class::Rank
        );
    }

    #[test]
    fn translation_keeps_proc_null_and_says_undefined() {
        let a = Group::world(5);
        let b = a.incl(&[4, 2]).unwrap();
        assert_eq!(
            a.translate(&[2, crate::PROC_NULL, 0, 4], &b).unwrap(),
            [1, crate::PROC_NULL, crate::UNDEFINED, 0]
        );
    }

    proptest! {
        #[test]
        fn set_operations_agree_with_lists(a in proptest::sample::subsequence((0u32..12).collect::<Vec<_>>(), 0..12).prop_shuffle(),
                                           b in proptest::sample::subsequence((0u32..12).collect::<Vec<_>>(), 0..12).prop_shuffle()) {
            let (ga, gb) = (Group::compact(a.clone()), Group::compact(b.clone()));
            let only_b: Vec<u32> = b.iter().copied().filter(|x| !a.contains(x)).collect();
            prop_assert_eq!(list(&ga.union(&gb)), [a.clone(), only_b].concat());
            prop_assert_eq!(list(&ga.intersection(&gb)), a.iter().copied().filter(|x| b.contains(x)).collect::<Vec<_>>());
            prop_assert_eq!(list(&ga.difference(&gb)), a.iter().copied().filter(|x| !b.contains(x)).collect::<Vec<_>>());
            let (mut sa, mut sb) = (a.clone(), b.clone());
            sa.sort();
            sb.sort();
            let expected = if a == b { Comparison::Ident } else if sa == sb { Comparison::Similar } else { Comparison::Unequal };
            prop_assert_eq!(ga.compare(&gb), expected);
            for peer in 0..12 {
                prop_assert_eq!(ga.rank_of(peer), a.iter().position(|x| *x == peer).map(|r| r as u32));
            }
        }
    }
}
