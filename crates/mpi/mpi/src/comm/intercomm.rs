//! Intercommunicators (MPI 5.0 section 7.6): two groups that face each other.
//!
//! Both sides use one context number, agreed by all processes of both; each side also owns an
//! intracommunicator of its group for phases within it. Leaders exchange what one side must know of
//! the other.

use super::constructors::{FromGroup, hash_tag};
use super::context_agreement::{LeaderBridge, Participants, agree, give_up};
use super::context_ids::{self, LEADERS};
use super::setup_messages::{SetupChannel, SetupTask, word_at};
use super::{Comm, CommParts, partial_group};
use crate::coll::constructor_entry::ConstructorEntry;
use crate::error::{Class, Error, Result};
use crate::group::Group;
use garonne_coll::call_tag::CollectiveKind;
use garonne_engine::api::CallOrigin;

/// The other side of `MPI_Intercomm_create`: significant at the local leader only.
pub struct PeerLeader<'a> {
    /// A communicator that holds both leaders.
    pub comm: &'a Comm,
    /// The other leader's rank in it.
    pub rank: i32,
}

/// The two sides of `MPI_Intercomm_create_from_groups`.
pub struct IntercommGroups<'a> {
    /// The caller's side.
    pub local: &'a Group,
    /// Rank of its leader in `local`.
    pub local_leader: i32,
    /// The other side.
    pub remote: &'a Group,
    /// Rank of its leader in `remote`.
    pub remote_leader: i32,
}

impl Comm {
    /// `MPI_Intercomm_create` over this intracommunicator. `peer` is needed at `local_leader` and
    /// ignored elsewhere; `tag` tells the leaders' messages on the peer communicator apart.
    pub fn intercomm_create(
        &self,
        local_leader: i32,
        peer: Option<PeerLeader<'_>>,
        tag: i32,
        origin: CallOrigin,
    ) -> Result<Comm> {
        self.check_tag(tag)?;
        if self.is_inter() {
            return Err(self.error(
                Class::Comm,
                "is an intercommunicator; MPI_Intercomm_create takes an intracommunicator",
            ));
        }
        let leader = u32::try_from(local_leader)
            .ok()
            .filter(|rank| *rank < self.size());
        let leader = leader.ok_or_else(|| {
            self.error(
                Class::Rank,
                format!("has no rank {local_leader} to lead it"),
            )
        })?;
        let mut bridge = LeaderBridge {
            leader,
            remote_leader: 0,
            channel: None,
        };
        if leader == self.rank() {
            let peer = peer
                .ok_or_else(|| self.error(Class::Comm, "got no peer communicator at its leader"))?;
            peer.comm
                .peer(peer.rank)?
                .ok_or_else(|| self.error(Class::Rank, "cannot face MPI_PROC_NULL"))?;
            bridge.remote_leader = peer.rank as u32;
            bridge.channel = Some(peer.comm.leaders_channel(tag, origin));
        }
        self.check_one_world("MPI_Intercomm_create")?;
        if let Some(channel) = &bridge.channel
            && !self.0.process.bridges_of(&[&channel.group]).is_empty()
        {
            return Err(self.error(
                Class::UnsupportedOperation,
                "is to face processes of another world, which MPI_Intercomm_create does not support",
            ));
        }
        let _entered = match self.enter(CollectiveKind::IntercommCreate, origin) {
            Ok(entered) => entered,
            Err(error) => {
                if let Some(channel) = bridge.channel {
                    // The other leader waits for this one.
                    self.run(async move { give_up(&channel, bridge.remote_leader).await })?;
                }
                return Err(error);
            }
        };
        let mut circle = Participants {
            local: self.constructor_channel(origin),
            bridge: Some(bridge),
        };
        let (comm, process) = (self.clone(), self.0.process.clone());
        let work = async move {
            // Of the other group only its leader is known.
            let theirs = circle.swap(encode_group(&comm.0.local)).await?;
            let remote = decode_group(&theirs)?;
            if comm.0.local.intersection(&remote).size() > 0 {
                return Err(comm.error(
                    Class::Comm,
                    "cannot face a group that shares processes with it",
                ));
            }
            let both = comm.0.local.union(&remote);
            circle.name_groups(&both);
            let face = comm.face(&circle, remote, comm.0.local.clone());
            let made = match comm.0.process.survives() {
                true => partial_group::until_death(comm.0.process.clone(), both, face).await?,
                false => face.await?,
            };
            made.ok_or_else(|| comm.error(Class::Intern, "lost a process in MPI_Intercomm_create"))
        };
        match process.survives() {
            true => SetupTask::run_polling(&process, work),
            false => self.run(work),
        }
    }

    /// Gives this intercommunicator, whose processes are `circle`, the intracommunicator of its
    /// local group.
    pub(crate) async fn bear_local(&self, circle: &Participants) -> Result<()> {
        let own = agree(&circle.own_side()).await?;
        self.keep_local(Comm::build(own, self.heir(self.0.local.clone())));
        Ok(())
    }

    pub(super) fn keep_local(&self, local: Comm) {
        assert!(
            self.0.local_comm.set(local).is_ok(),
            "an intercommunicator got its local group's communicator twice"
        );
    }

    /// A channel for leaders of `MPI_Intercomm_create` on this, their peer communicator.
    fn leaders_channel(&self, tag: i32, origin: CallOrigin) -> SetupChannel {
        SetupChannel {
            process: self.0.process.clone(),
            context: self.context() + LEADERS,
            tag,
            rank: self.0.rank,
            group: self.targets().clone(),
            origin,
        }
    }

    /// All processes of an intercommunicator; rank 0 leads each side.
    pub(crate) fn inter_circle(&self, local: &Comm, origin: CallOrigin) -> Participants {
        let own = local.constructor_channel(origin);
        let channel = SetupChannel {
            process: self.0.process.clone(),
            context: self.context() + 2,
            // Sides construct in the same order, so their counters agree.
            tag: self.0.next_construction(),
            rank: self.0.rank,
            group: self.targets().clone(),
            origin,
        };
        Participants {
            local: own,
            bridge: Some(LeaderBridge {
                leader: 0,
                remote_leader: 0,
                channel: Some(channel),
            }),
        }
    }

    /// `MPI_Intercomm_merge`. `high` on one side and not on the other puts that side's ranks last;
    /// otherwise the side with the lowest process comes first.
    pub fn merge(&self, order: MergeOrder, origin: CallOrigin) -> Result<Comm> {
        let remote = self.remote_group()?.clone();
        let entered = self.enter(CollectiveKind::IntercommMerge, origin)?;
        let (comm, circle) = (self.clone(), self.circle(entered.origin()));
        self.run(async move {
            let local = comm.0.local.clone();
            let (least, most) = circle
                .local
                .min_max(u64::from(order == MergeOrder::High))
                .await?;
            let ours = if least == most { least } else { SPLIT };
            let theirs = word_at(&circle.swap(ours.to_le_bytes().to_vec()).await?, 0);
            if ours == SPLIT || theirs == SPLIT {
                return Err(comm.error(
                    Class::Arg,
                    "is merged with different values of high on one side",
                ));
            }
            let first = match (ours, theirs) {
                (0, 1) => true,
                (1, 0) => false,
                _ if comm.has_other_worlds() => comm.precedes(&circle).await?,
                _ => local.members().min() < remote.members().min(),
            };
            let group = if first {
                local.union(&remote)
            } else {
                remote.union(&local)
            };
            let lease = agree(&circle).await?;
            Ok(Comm::build(lease, comm.heir(group)))
        })
    }

    /// Returns whether the local group comes first, by the identities of both first processes.
    async fn precedes(&self, circle: &Participants) -> Result<bool> {
        let connector = self.0.process.config.connector.as_ref();
        let own = connector.map_or_else(Vec::new, |connector| connector.identity());
        let ours = circle.local.broadcast(0, own).await?;
        let theirs = circle.swap(ours.clone()).await?;
        Ok(ours < theirs)
    }

    /// `MPI_Comm_create` on an intercommunicator.
    pub(crate) fn create_inter(
        &self,
        group: Group,
        entered: &ConstructorEntry,
    ) -> Result<Option<Comm>> {
        let (comm, circle) = (self.clone(), self.circle(entered.origin()));
        self.run(async move {
            // Both sides know each other's ranks. Numbers of processes differ between worlds.
            let ranks = group.members().map(|peer| comm.0.local.rank_of(peer));
            let ranks = ranks.collect::<Option<Vec<_>>>().ok_or_else(|| {
                comm.error(Class::Group, "does not have all processes of the group")
            })?;
            let theirs = circle.swap(encode_group(&Group::compact(ranks))).await?;
            let facing = comm.remote_group()?;
            let remote = decode_group(&theirs)?;
            let remote = remote.members().map(|rank| facing.peer(rank));
            let remote = remote.collect::<Option<Vec<_>>>().ok_or_else(|| {
                comm.error(Class::Group, "got ranks that the other side does not have")
            })?;
            comm.face(&circle, Group::compact(remote), group).await
        })
    }

    /// Builds the intercommunicator of `local`, this communicator's group or part of it, and
    /// `remote`. All processes of the circle take part; where a side is empty or the caller is not
    /// in it there is nothing to build.
    pub(super) async fn face(
        &self,
        circle: &Participants,
        remote: Group,
        local: Group,
    ) -> Result<Option<Comm>> {
        let lease = agree(circle).await?;
        let own = agree(&Participants {
            local: circle.local.clone(),
            bridge: None,
        })
        .await?;
        if remote.size() == 0 || local.rank_of(self.0.process.host.me()).is_none() {
            return Ok(None);
        }
        let local_comm = Comm::build(own, self.heir(local.clone()));
        let made = Comm::build(
            lease,
            CommParts {
                remote: Some(remote),
                ..self.heir(local)
            },
        );
        made.keep_local(local_comm);
        Ok(Some(made))
    }

    /// `MPI_Intercomm_create_from_groups`: `None` if the caller is not in the local group.
    pub fn intercomm_from_groups(
        args: FromGroup<'_>,
        sides: IntercommGroups<'_>,
    ) -> Result<Option<Comm>> {
        let process = args.process.clone();
        let Some(rank) = sides.local.rank_of(process.host.me()) else {
            return Ok(None);
        };
        let tag = hash_tag(args.process, args.stringtag, &[sides.local, sides.remote])?;
        let check = |leader: i32, group: &Group| {
            let found = u32::try_from(leader)
                .ok()
                .filter(|leader| *leader < group.size());
            found.ok_or_else(|| {
                Error::new(
                    Class::Rank,
                    format!(
                        "a group of {} has no rank {leader} to lead it",
                        group.size()
                    ),
                )
            })
        };
        let (leader, remote_leader) = (
            check(sides.local_leader, sides.local)?,
            check(sides.remote_leader, sides.remote)?,
        );
        if sides.local.intersection(sides.remote).size() > 0 {
            return Err(Error::new(
                Class::Group,
                "the two groups of an intercommunicator share processes",
            ));
        }
        let base = context_ids::base(context_ids::BOOTSTRAP);
        let channel = |context, group: &Group| SetupChannel {
            process: process.clone(),
            context,
            tag,
            rank,
            group: group.clone(),
            origin: args.origin,
        };
        let local = channel(base + 1, sides.local);
        let bridge = LeaderBridge {
            leader,
            remote_leader,
            channel: Some(channel(base + 2, sides.remote)),
        };
        let circle = Participants {
            local: local.clone(),
            bridge: Some(bridge),
        };
        let all = sides.local.union(sides.remote);
        let (lease, own) = partial_group::run(args.process, &all, async move {
            let lease = agree(&circle).await?;
            Ok((
                lease,
                agree(&Participants {
                    local,
                    bridge: None,
                })
                .await?,
            ))
        })?;
        let parts = || CommParts {
            errhandler: args.errhandler.clone(),
            session: args.session.clone(),
            ..CommParts::intra(args.process.clone(), sides.local.clone())
        };
        let info = args.info.map(super::hints).unwrap_or_default();
        let made = Comm::build(
            lease,
            CommParts {
                remote: Some(sides.remote.clone()),
                info,
                ..parts()
            },
        );
        made.keep_local(Comm::build(own, parts()));
        Ok(Some(made))
    }
}

/// Place where a side wants its ranks in a merged communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeOrder {
    /// `high` false: first.
    Low,
    /// `high` true: last.
    High,
}

/// Answer of a side whose processes gave different orders.
const SPLIT: u64 = 2;

/// A group for the other side: words first, stride, size, or size marker 2^63 and the members.
fn encode_group(group: &Group) -> Vec<u8> {
    match group {
        Group::Strided {
            first,
            stride,
            size,
        } => [*first, *stride, *size]
            .iter()
            .flat_map(|word| u64::from(*word).to_le_bytes())
            .collect(),
        Group::List(members) => {
            let head = [LIST, members.len() as u64]
                .into_iter()
                .flat_map(u64::to_le_bytes);
            head.chain(
                members
                    .iter()
                    .flat_map(|peer| u64::from(*peer).to_le_bytes()),
            )
            .collect()
        }
    }
}

/// Marks a list where a formula has its first process.
const LIST: u64 = u64::MAX;

fn decode_group(bytes: &[u8]) -> Result<Group> {
    let bad = || {
        Error::new(
            Class::Other,
            "the other side of an intercommunicator sent a damaged group",
        )
    };
    if word_at(bytes, 0) != LIST {
        if bytes.len() != 24 {
            return Err(bad());
        }
        return Ok(Group::Strided {
            first: word_at(bytes, 0) as u32,
            stride: word_at(bytes, 1) as u32,
            size: word_at(bytes, 2) as u32,
        });
    }
    let count = word_at(bytes, 1) as usize;
    if count.checked_mul(8).and_then(|len| len.checked_add(16)) != Some(bytes.len()) {
        return Err(bad());
    }
    Ok(Group::compact(
        (0..count)
            .map(|index| word_at(bytes, index + 2) as u32)
            .collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_group_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..60), list: bool, rank: u32) {
            if list && bytes.len() >= 16 {
                let count = bytes.len() as u64 / 8 - 2;
                bytes[..8].copy_from_slice(&LIST.to_le_bytes());
                bytes[8..16].copy_from_slice(&count.to_le_bytes());
            }
            if let Ok(group) = decode_group(&bytes) {
                prop_assert_eq!(group.peer(rank).is_some(), rank < group.size());
                let _ = group.rank_of(rank);
            }
        }
    }
}
