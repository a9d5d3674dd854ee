//! How many bytes a member moves in a round, for those who watch: asked only while somebody does.
//!
//! Pure. What lies at the member already, and its own block, which is nobody else's, do not count,
//! as in a collective of messages.

use super::shm_op::{Errand, To};
use crate::coll::algo::scan::Own;

/// What a member does in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Puts down what it brings.
    Put,
    /// Combines for all, having come last.
    Combine,
    /// Takes what it came for.
    Take,
}

/// The round, as far as bytes depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    pub me: u32,
    pub members: u32,
    pub wide_len: usize,
    /// The last to come combines, and the others take the result.
    pub combined: bool,
}

impl Errand<'_> {
    /// Bytes that the member moves in this step.
    pub fn moves(&self, step: Step, around: Around) -> u64 {
        match step {
            Step::Put => self.puts_down(around),
            Step::Combine => self.brings_together(around),
            Step::Take => self.takes(around),
        }
    }

    fn puts_down(
        &self,
        Around {
            me,
            members,
            wide_len,
            ..
        }: Around,
    ) -> u64 {
        match self {
            Errand::Bcast(root, part) if *root == me => part.bytes(),
            Errand::Reduce(combined, _) | Errand::Scan(combined, _) => combined.bytes(),
            Errand::Allgather(Some(send), _) => send.bytes(),
            Errand::Allgather(None, filled) => filled.blocks().len(me),
            Errand::Alltoall(_, recv) => recv
                .bytes()
                .saturating_mul(members.saturating_sub(1).into()),
            Errand::Gather(_, Some(mine), _) => mine.bytes(),
            Errand::Scatter(root, _, Some(all)) if *root == me => {
                all.bytes().saturating_mul(members.into())
            }
            Errand::Parcels(parcels) => parcels.short(true, me, members, wide_len),
            Errand::Show
            | Errand::Barrier
            | Errand::Bcast(..)
            | Errand::Gather(..)
            | Errand::Scatter(..) => 0,
        }
    }

    fn brings_together(&self, around: Around) -> u64 {
        match self {
            Errand::Reduce(combined, _) => combined.bytes().saturating_mul(around.members.into()),
            _ => 0,
        }
    }

    fn takes(
        &self,
        Around {
            me,
            members,
            wide_len,
            combined: is_combined,
        }: Around,
    ) -> u64 {
        let others = u64::from(members.saturating_sub(1));
        match self {
            Errand::Bcast(root, part) if *root != me => part.bytes(),
            Errand::Reduce(_, To::One(root)) if *root != me => 0,
            Errand::Reduce(combined, to) => match (is_combined, to) {
                (true, To::Slice(_, count)) => combined.datatype.size().saturating_mul(*count),
                (true, _) => combined.bytes(),
                (false, _) => combined.bytes().saturating_mul(members.into()),
            },
            Errand::Scan(combined, own) => {
                let operands = me + u32::from(matches!(own, Own::Included));
                combined.bytes().saturating_mul(operands.into())
            }
            Errand::Allgather(_, filled) => {
                let (blocks, ranks) = (filled.blocks(), (0..members).filter(|&rank| rank != me));
                ranks
                    .map(|rank| blocks.len(rank))
                    .fold(0, u64::saturating_add)
            }
            Errand::Alltoall(_, recv) => recv.bytes().saturating_mul(others),
            Errand::Gather(root, mine, Some(all)) if *root == me => all
                .bytes()
                .saturating_mul(others + u64::from(mine.is_some())),
            Errand::Scatter(root, Some(mine), _) if *root != me => mine.bytes(),
            Errand::Parcels(parcels) => parcels.short(false, me, members, wide_len),
            Errand::Show
            | Errand::Barrier
            | Errand::Bcast(..)
            | Errand::Gather(..)
            | Errand::Scatter(..) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coll::buffers::Elements;
    use crate::coll::shm_nonblocking::shm_op::{Filled, Part};
    use crate::datatype::{Datatype, codes};
    use garonne_sync::user::UserMem;

    const ROUND: Around = Around {
        me: 1,
        members: 4,
        wide_len: 4096,
        combined: false,
    };

    /// Bytes put down and taken by member 1 of four.
    fn both(errand: &Errand<'_>) -> (u64, u64) {
        (
            errand.moves(Step::Put, ROUND),
            errand.moves(Step::Take, ROUND),
        )
    }

    #[test]
    fn what_a_member_moves_is_what_it_gives_to_others_and_gets_of_them() {
        let word = Datatype::predefined(codes::UINT32_T).unwrap();
        let part = |count| {
            let mem = UserMem::null();
            Part::of(&Elements {
                mem,
                count,
                datatype: &word,
            })
        };
        assert_eq!(both(&Errand::Barrier), (0, 0));
        assert_eq!(both(&Errand::Bcast(1, part(5))), (20, 0));
        assert_eq!(both(&Errand::Bcast(0, part(5))), (0, 20));
        assert_eq!(
            both(&Errand::Allgather(Some(part(5)), Filled::Even(part(5)))),
            (20, 60)
        );
        assert_eq!(both(&Errand::Alltoall(Some(part(5)), part(5))), (60, 60));
        assert_eq!(
            both(&Errand::Gather(1, Some(part(5)), Some(part(5)))),
            (20, 80)
        );
        assert_eq!(both(&Errand::Gather(0, Some(part(5)), None)), (20, 0));
        // Its own block a root gives to itself.
        assert_eq!(
            both(&Errand::Scatter(1, Some(part(5)), Some(part(5)))),
            (80, 0)
        );
        assert_eq!(both(&Errand::Scatter(0, Some(part(5)), None)), (0, 20));
    }
}
