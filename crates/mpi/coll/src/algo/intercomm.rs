//! Collectives of an intercommunicator: what happens inside one group, and what goes across.
//!
//! Rank 0 of each group speaks for it. Within a group the ordinary algorithms run; tags keep their
//! messages apart from those that go across.

use super::{Reduction, barrier, bcast, gather, reduce};
use crate::blocks::Blocks;
use crate::plan::{GroupSide, Plan, PlanPeer, PlanScratch};
use garonne_sync::user::Data;

/// The rank that speaks for its group.
const LEADER: u32 = 0;
const OTHER_LEADER: PlanPeer = PlanPeer {
    side: GroupSide::Remote,
    rank: LEADER,
};

/// Place where the root of a rooted call is, seen from the calling process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootRole {
    /// This process is the root (`MPI_ROOT`).
    Root,
    /// The root is another process of the own group (`MPI_PROC_NULL`).
    Bystander,
    /// The root is this rank of the remote group.
    Peer(u32),
}

/// Nobody leaves before all of both groups have come.
pub fn barrier<P: Plan>(p: &mut P) -> Result<(), P::Error> {
    barrier::dissemination(p)?;
    if p.me() == LEADER {
        p.recv_from(OTHER_LEADER, Data::empty())?;
        p.send_to(OTHER_LEADER, Data::empty())?;
        p.fence()?;
    }
    bcast::binomial(p, LEADER, &Data::empty())
}

/// The root's data to every process of the other group, through its leader.
pub fn bcast<P: Plan>(p: &mut P, role: RootRole, data: &Data) -> Result<(), P::Error> {
    match role {
        RootRole::Root => p.send_to(OTHER_LEADER, data.clone()).map(drop),
        RootRole::Bystander => Ok(()),
        RootRole::Peer(root) => {
            if p.me() == LEADER {
                let token = p.recv_from(
                    PlanPeer {
                        side: GroupSide::Remote,
                        rank: root,
                    },
                    data.clone(),
                )?;
                p.wait(token)?;
            }
            bcast::binomial(p, LEADER, data)
        }
    }
}

/// Every process of the other group sends its block to the root.
pub fn gather<P: Plan>(
    p: &mut P,
    role: RootRole,
    mine: &Data,
    blocks: &Blocks<'_>,
) -> Result<(), P::Error> {
    match role {
        RootRole::Root => gather::from_all(p, GroupSide::Remote, blocks),
        RootRole::Peer(rank) if mine.len > 0 => p
            .send_to(
                PlanPeer {
                    side: GroupSide::Remote,
                    rank,
                },
                mine.clone(),
            )
            .map(drop),
        _ => Ok(()),
    }
}

/// The root sends a block to every process of the other group.
pub fn scatter<P: Plan>(
    p: &mut P,
    role: RootRole,
    mine: &Data,
    blocks: &Blocks<'_>,
) -> Result<(), P::Error> {
    match role {
        RootRole::Root => gather::to_all(p, GroupSide::Remote, blocks),
        RootRole::Peer(rank) if mine.len > 0 => p
            .recv_from(
                PlanPeer {
                    side: GroupSide::Remote,
                    rank,
                },
                mine.clone(),
            )
            .map(drop),
        _ => Ok(()),
    }
}

/// Every process exchanges a block with every process of the other group: `send` may hold the same
/// block for all.
pub fn alltoall<P: Plan>(p: &mut P, send: &Blocks<'_>, recv: &Blocks<'_>) -> Result<(), P::Error> {
    gather::from_all(p, GroupSide::Remote, recv)?;
    gather::to_all(p, GroupSide::Remote, send)
}

/// The sum of the other group's contributions to the root.
pub fn reduce<P: Plan>(p: &mut P, role: RootRole, r: &Reduction<'_>) -> Result<(), P::Error> {
    match role {
        RootRole::Root => p.recv_from(OTHER_LEADER, r.whole(r.output)).map(drop),
        RootRole::Bystander => Ok(()),
        RootRole::Peer(rank) => {
            if let Some(sum) = own_sum(p, r)? {
                p.send_to(
                    PlanPeer {
                        side: GroupSide::Remote,
                        rank,
                    },
                    sum,
                )?;
            }
            Ok(())
        }
    }
}

/// The sum of the own group's contributions, at its leader.
fn own_sum<P: Plan>(p: &mut P, r: &Reduction<'_>) -> Result<Option<Data>, P::Error> {
    let sum = if p.me() == LEADER {
        p.scratch_for(r.shape(), r.count)?
    } else {
        r.output
    };
    reduce::binomial(p, LEADER, &r.to(sum))?;
    Ok((p.me() == LEADER).then(|| r.whole(sum)))
}

/// The sum of the other group's contributions to every process.
pub fn allreduce<P: Plan>(p: &mut P, r: &Reduction<'_>) -> Result<(), P::Error> {
    swap_sums(p, r, r.whole(r.output))?;
    bcast::binomial(p, LEADER, &r.whole(r.output))
}

/// The sum of the other group's contributions, divided among the own group.
pub fn reduce_scatter<P: Plan>(
    p: &mut P,
    r: &Reduction<'_>,
    counts: &dyn Fn(u32) -> u64,
) -> Result<(), P::Error> {
    let sum = if p.me() == LEADER {
        p.scratch_for(r.shape(), r.count)?
    } else {
        r.output
    };
    swap_sums(p, r, r.whole(sum))?;
    let mine = r.output().data(0, counts(p.me()));
    if p.me() != LEADER {
        return if mine.len > 0 {
            p.recv(LEADER, mine).map(drop)
        } else {
            Ok(())
        };
    }
    let sums = super::TypedBuffer::new(sum, r.shape());
    p.copy(sums.data(0, counts(LEADER)), mine)?;
    let mut first = counts(LEADER);
    for rank in 1..p.size() {
        let theirs = sums.data(first as i64, counts(rank));
        first += counts(rank);
        if theirs.len > 0 {
            p.send(rank, theirs)?;
        }
    }
    Ok(())
}

/// The leaders swap their groups' sums; the other one arrives in `theirs`.
fn swap_sums<P: Plan>(p: &mut P, r: &Reduction<'_>, theirs: Data) -> Result<(), P::Error> {
    let own = own_sum(p, r)?;
    if let Some(own) = own {
        let token = p.recv_from(OTHER_LEADER, theirs)?;
        p.send_to(OTHER_LEADER, own)?;
        p.wait(token)?;
    }
    Ok(())
}
