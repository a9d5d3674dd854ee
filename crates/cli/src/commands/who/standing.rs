//! What a rank needs before it can go on, from what its card and its book show.
//!
//! A blocking call's own operations say what it waits for exactly; of a rank that waits for requests only all operations that it
//! started are known, any of which may be enough. Read twice a moment apart: what changed meanwhile was no wait.

use std::time::Duration;

use garonne_engine::event::Pending;
use garonne_mpi::coll::tag::Call;
use garonne_node::book::{BOOK_BYTES, Copied, Group};
use garonne_node::layout::{State, Wait};
use garonne_node::rank::memory_of;
use garonne_node::visit::Visit;

use super::verdict::{Need, Standing};
use crate::commands::jobs::{self, Rank};
use garonne_node::calls;

/// Between the two looks: many times what a rank needs to wake and take a message.
const MOMENT: Duration = Duration::from_millis(50);
/// Members of a communicator that are read: those of the largest jobs on one node.
const MEMBERS_MAX: u32 = 1 << 16;

pub const CONTEXTS: u64 = garonne_mpi::limits::CONTEXTS_PER_COMM as u64;

/// A rank and its book.
pub struct Seen {
    pub rank: Rank,
    book: Option<Copied>,
    members: Option<Vec<u32>>,
}

/// A collective that a rank is in, and the communicator's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InCollective {
    pub comm: u64,
    pub call: Call,
}

/// The collective that a wait belongs to: its messages have the second context of their communicator.
pub fn collective(wait: &Wait) -> Option<InCollective> {
    let call = Call::from_tag(wait.tag).filter(|_| wait.comm % CONTEXTS == 1)?;
    Some(InCollective {
        comm: wait.comm / CONTEXTS,
        call,
    })
}

/// The ranks of a job, looked at twice.
pub fn look(visit: &Visit) -> Vec<Seen> {
    // Our visit has stirred ranks that had not yet said what they wait for.
    std::thread::sleep(MOMENT);
    let first = jobs::ranks(visit);
    if first.iter().any(|rank| rank.wait.is_some()) {
        std::thread::sleep(MOMENT);
    }
    let again = jobs::ranks(visit);
    let pairs = first.into_iter().zip(again);
    pairs
        .map(|(before, mut rank)| {
            if before.wait != rank.wait {
                rank.wait = None;
            }
            Seen::new(rank)
        })
        .collect()
}

impl Seen {
    fn new(rank: Rank) -> Self {
        let read = || memory_of(rank.pid, rank.book, BOOK_BYTES);
        let book = (rank.book != 0 && rank.pid != 0).then(read).flatten();
        let book = book.and_then(|first| Some(Copied::new(&first, &read()?)));
        let mut seen = Self {
            rank,
            book,
            members: None,
        };
        seen.members = seen
            .rank
            .wait
            .and_then(|wait| seen.members_of((wait.comm / CONTEXTS) as u32));
        seen
    }

    fn members_of(&self, comm: u32) -> Option<Vec<u32>> {
        match self.book.as_ref()?.communicator(comm)?.group {
            Group::Strided { first, stride, size } if size <= MEMBERS_MAX => Some(
                (0..size)
                    .map(|index| first.wrapping_add(index.wrapping_mul(stride)))
                    .collect(),
            ),
            Group::At { address, size } if size <= MEMBERS_MAX => {
                let bytes = memory_of(self.rank.pid, address, size as usize * 4)?;
                Some(
                    bytes
                        .as_chunks()
                        .0
                        .iter()
                        .map(|word| u32::from_ne_bytes(*word))
                        .collect(),
                )
            }
            _ => None,
        }
    }

    /// A communicator as its user knows it.
    pub fn comm_name(&self, comm: u64) -> String {
        let shown = self
            .book
            .as_ref()
            .and_then(|book| book.communicator(u32::try_from(comm).ok()?));
        match shown {
            Some(shown) if shown.name.starts_with("MPI_COMM_") => shown.name,
            Some(shown) if !shown.name.is_empty() => format!("comm \"{}\"", shown.name),
            Some(shown) => match shown.group {
                Group::Strided { size, .. } | Group::At { size, .. } => {
                    format!("an unnamed communicator of {size} ranks (#{comm})")
                }
                Group::Untold => format!("an unnamed intercommunicator (#{comm})"),
            },
            None => format!("comm #{comm}"),
        }
    }

    /// Whether several of its threads may be in MPI.
    pub fn has_threads(&self) -> bool {
        self.book
            .as_ref()
            .and_then(Copied::operations)
            .is_none_or(|operations| operations.threads)
    }
}

/// What every rank does and needs.
pub fn standings(all: &[Seen]) -> Vec<Standing> {
    all.iter().map(|seen| standing(seen, all)).collect()
}

fn standing(seen: &Seen, all: &[Seen]) -> Standing {
    let Rank {
        state, process, wait, ..
    } = &seen.rank;
    match (state, process, wait) {
        (State::Gone | State::Finalized, _, _) => Standing::Ended,
        (State::Running, Some('Z' | 'X') | None, _) => Standing::Ended,
        (State::Absent, _, _) | (_, Some('T' | 't'), _) | (_, _, None) => Standing::Acts,
        (State::Running, Some(_), Some(wait)) => waits(seen, wait, all),
    }
}

fn waits(seen: &Seen, wait: &Wait, all: &[Seen]) -> Standing {
    if wait.peer < 0
        && let Some(meeting) = collective(wait)
    {
        let Some(members) = &seen.members else {
            return Standing::Waits;
        };
        let there = |rank: &&u32| {
            all.get(**rank as usize)
                .and_then(|other| collective(other.rank.wait.as_ref()?))
                == Some(meeting)
        };
        let missing = members.iter().filter(|rank| !there(rank));
        return Standing::WaitsForAll(missing.map(|rank| Need { from: vec![*rank] }).collect());
    }
    if calls::name(wait.call).is_some_and(is_probe) {
        let from = seen.sources(u32::try_from(wait.peer).ok(), wait.comm, all);
        return Standing::WaitsForAll(vec![Need { from }]);
    }
    let Some(operations) = seen.book.as_ref().and_then(Copied::operations) else {
        return Standing::Waits;
    };
    let need = |operation: &Pending| Need {
        from: seen.sources(operation.peer, operation.context.into(), all),
    };
    let blocking = operations
        .list
        .iter()
        .filter(|operation| is_blocking(operation))
        .map(need);
    let blocking: Vec<_> = if operations.threads {
        Vec::new()
    } else {
        blocking.collect()
    };
    if !blocking.is_empty() {
        return Standing::WaitsForAll(blocking);
    }
    // A collective that reads what another member left in shared memory has no operation of its own.
    if let (true, Some(_), Ok(leader)) = (
        operations.list.is_empty(),
        collective(wait),
        u32::try_from(wait.peer),
    ) {
        return Standing::WaitsForAll(vec![Need { from: vec![leader] }]);
    }
    if operations.more || operations.list.is_empty() {
        return Standing::Waits;
    }
    Standing::WaitsForAny(operations.list.iter().map(need).collect())
}

impl Seen {
    /// Who can end an operation with `peer`, or with any member of the communicator of a context.
    fn sources(&self, peer: Option<u32>, context: u64, all: &[Seen]) -> Vec<u32> {
        let own = self.rank.rank;
        let known = |rank: &u32| (*rank as usize) < all.len();
        if let Some(peer) = peer {
            return Some(peer).filter(known).into_iter().collect();
        }
        let members = u32::try_from(context / CONTEXTS)
            .ok()
            .and_then(|comm| self.members_of(comm));
        let members = members.unwrap_or_else(|| (0..all.len() as u32).collect());
        let others: Vec<_> = members
            .into_iter()
            .filter(|rank| *rank != own && known(rank))
            .collect();
        if others.is_empty() { vec![own] } else { others }
    }
}

fn is_probe(name: &str) -> bool {
    matches!(name, "MPI_Probe" | "MPI_Mprobe")
}

/// Whether the call that made an operation returns only when it is over.
fn is_blocking(operation: &Pending) -> bool {
    calls::name(operation.origin.call.into()).is_some_and(|name| !returns_early(name))
}

fn returns_early(name: &str) -> bool {
    let immediate = name.strip_prefix("MPI_I").is_some_and(|rest| {
        !["nit", "nfo", "ntercomm"]
            .iter()
            .any(|other| rest.starts_with(other))
    });
    immediate
        || ["MPI_Start", "MPI_Comm_idup", "MPI_Bsend"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_return_early_are_told_from_those_that_do_not() {
        for name in [
            "MPI_Isend",
            "MPI_Irecv_c",
            "MPI_Ibcast",
            "MPI_Startall",
            "MPI_Comm_idup_with_info",
            "MPI_Isendrecv",
        ] {
            assert!(returns_early(name), "{name}");
        }
        for name in [
            "MPI_Send",
            "MPI_Recv",
            "MPI_Sendrecv",
            "MPI_Init_thread",
            "MPI_Intercomm_create",
            "MPI_Comm_split",
            "MPI_Bcast",
        ] {
            assert!(!returns_early(name), "{name}");
        }
    }
}
