//! Bytes that a member moves in a slot, for traces: computed only while somebody traces.
//!
//! Data that lies at the member already, and the member's block for itself, do not count, as in a
//! collective of messages.

use super::shm_op::{ReduceTarget, ShmOp};
use garonne_coll::algo::scan::ScanKind;

/// A phase of a call in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotPhase {
    /// Puts down what it brings.
    Put,
    /// Combines for all, having come last.
    Combine,
    /// Takes what it came for.
    Take,
}

/// The properties of a slot that the number of bytes depends on.
#[derive(Clone, Copy, Debug)]
pub struct SlotGeometry {
    pub me: u32,
    pub members: u32,
    pub wide_len: usize,
    /// The last to come combines, and the others take the result.
    pub combined: bool,
}

impl ShmOp<'_> {
    /// Bytes that the member moves in this step.
    pub fn moves(&self, step: SlotPhase, around: SlotGeometry) -> u64 {
        match step {
            SlotPhase::Put => self.puts_down(around),
            SlotPhase::Combine => self.brings_together(around),
            SlotPhase::Take => self.takes(around),
        }
    }

    fn puts_down(
        &self,
        SlotGeometry {
            me,
            members,
            wide_len,
            ..
        }: SlotGeometry,
    ) -> u64 {
        match self {
            ShmOp::Bcast(root, part) if *root == me => part.bytes(),
            ShmOp::Reduce(combined, _) | ShmOp::Scan(combined, _) => combined.bytes(),
            ShmOp::Allgather(Some(send), _) => send.bytes(),
            ShmOp::Allgather(None, filled) => filled.blocks().len(me),
            ShmOp::Alltoall(_, recv) => recv
                .bytes()
                .saturating_mul(members.saturating_sub(1).into()),
            ShmOp::Gather(_, Some(mine), _) => mine.bytes(),
            ShmOp::Scatter(root, _, Some(all)) if *root == me => {
                all.bytes().saturating_mul(members.into())
            }
            ShmOp::Exchange(exchange) => exchange.bytes_in_cells(true, me, members, wide_len),
            ShmOp::CompareOnly
            | ShmOp::Barrier
            | ShmOp::Bcast(..)
            | ShmOp::Gather(..)
            | ShmOp::Scatter(..) => 0,
        }
    }

    fn brings_together(&self, around: SlotGeometry) -> u64 {
        match self {
            ShmOp::Reduce(combined, _) => combined.bytes().saturating_mul(around.members.into()),
            _ => 0,
        }
    }

    fn takes(
        &self,
        SlotGeometry {
            me,
            members,
            wide_len,
            combined: is_combined,
        }: SlotGeometry,
    ) -> u64 {
        let others = u64::from(members.saturating_sub(1));
        match self {
            ShmOp::Bcast(root, part) if *root != me => part.bytes(),
            ShmOp::Reduce(_, ReduceTarget::One(root)) if *root != me => 0,
            ShmOp::Reduce(combined, to) => match (is_combined, to) {
                (true, ReduceTarget::Slice(_, count)) => {
                    combined.datatype.size().saturating_mul(*count)
                }
                (true, _) => combined.bytes(),
                (false, _) => combined.bytes().saturating_mul(members.into()),
            },
            ShmOp::Scan(combined, own) => {
                let operands = me + u32::from(matches!(own, ScanKind::Inclusive));
                combined.bytes().saturating_mul(operands.into())
            }
            ShmOp::Allgather(_, filled) => {
                let (blocks, ranks) = (filled.blocks(), (0..members).filter(|&rank| rank != me));
                ranks
                    .map(|rank| blocks.len(rank))
                    .fold(0, u64::saturating_add)
            }
            ShmOp::Alltoall(_, recv) => recv.bytes().saturating_mul(others),
            ShmOp::Gather(root, mine, Some(all)) if *root == me => all
                .bytes()
                .saturating_mul(others + u64::from(mine.is_some())),
            ShmOp::Scatter(root, Some(mine), _) if *root != me => mine.bytes(),
            ShmOp::Exchange(exchange) => exchange.bytes_in_cells(false, me, members, wide_len),
            ShmOp::CompareOnly
            | ShmOp::Barrier
            | ShmOp::Bcast(..)
            | ShmOp::Gather(..)
            | ShmOp::Scatter(..) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coll::buffers::Elements;
    use crate::coll::shm_nonblocking::shm_op::{GatherBuffer, StoredElements};
    use crate::datatype::{Datatype, codes};
    use garonne_sync::user::UserMem;

    const ROUND: SlotGeometry = SlotGeometry {
        me: 1,
        members: 4,
        wide_len: 4096,
        combined: false,
    };

    /// Bytes put down and taken by member 1 of four.
    fn both(op: &ShmOp<'_>) -> (u64, u64) {
        (
            op.moves(SlotPhase::Put, ROUND),
            op.moves(SlotPhase::Take, ROUND),
        )
    }

    #[test]
    fn what_a_member_moves_is_what_it_gives_to_others_and_gets_of_them() {
        let word = Datatype::predefined(codes::UINT32_T).unwrap();
        let part = |count| {
            let mem = UserMem::null();
            StoredElements::of(&Elements {
                mem,
                count,
                datatype: &word,
            })
        };
        assert_eq!(both(&ShmOp::Barrier), (0, 0));
        assert_eq!(both(&ShmOp::Bcast(1, part(5))), (20, 0));
        assert_eq!(both(&ShmOp::Bcast(0, part(5))), (0, 20));
        assert_eq!(
            both(&ShmOp::Allgather(
                Some(part(5)),
                GatherBuffer::Even(part(5))
            )),
            (20, 60)
        );
        assert_eq!(both(&ShmOp::Alltoall(Some(part(5)), part(5))), (60, 60));
        assert_eq!(
            both(&ShmOp::Gather(1, Some(part(5)), Some(part(5)))),
            (20, 80)
        );
        assert_eq!(both(&ShmOp::Gather(0, Some(part(5)), None)), (20, 0));
        // Its own block a root gives to itself.
        assert_eq!(
            both(&ShmOp::Scatter(1, Some(part(5)), Some(part(5)))),
            (80, 0)
        );
        assert_eq!(both(&ShmOp::Scatter(0, Some(part(5)), None)), (0, 20));
    }
}
