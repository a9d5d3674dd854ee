//! What a rank needs before it can go on, from what its card and its book show.
//!
//! A blocking call's own operations say what it waits for exactly; of a rank that waits for requests only all operations that it
//! started are known, any of which may be enough. What waits show is looked at twice a moment apart, and again when all is read: what changed meanwhile was no wait.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use garonne_engine::event::Pending;
use garonne_mpi::coll::tag::Call;
use garonne_node::book::{BOOK_BYTES, Copied, Group};
use garonne_node::calls;
use garonne_node::layout::{State, Wait};
use garonne_node::look::{Comm, Members, Seen};
use garonne_node::rank::memory_of;
use garonne_node::visit::Visit;
use garonne_sites::Resolver;

use super::sockets;
use super::verdict::{Need, Standing};
use crate::commands::jobs::{self, Rank};

/// Between the two looks: many times what a rank needs to wake and take a message.
const MOMENT: Duration = Duration::from_millis(50);
/// Members of a communicator that are read: those of the largest jobs.
const MEMBERS_MAX: u32 = garonne_node::limits::RANKS_MAX;

pub const CONTEXTS: u64 = garonne_mpi::limits::CONTEXTS_PER_COMM as u64;

/// A collective that a rank is in, and the communicator's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InCollective {
    pub comm: u64,
    pub call: Call,
}

/// The number of the communicator that owns a context.
fn number_of(context: u64) -> u64 {
    u64::from(garonne_mpi::comm::number(context as u32))
}

/// The collective that a wait belongs to: its messages have the second context of their communicator.
pub fn collective(wait: &Wait) -> Option<InCollective> {
    let call = Call::from_tag(wait.tag).filter(|_| wait.comm % CONTEXTS == 1)?;
    Some(InCollective {
        comm: number_of(wait.comm),
        call,
    })
}

/// A rank of the job, wherever it is.
#[derive(Debug)]
pub struct Shown {
    pub seen: Seen,
    /// Its host, in a job on several.
    pub host: Option<Rc<str>>,
    /// Nothing is known of it: its host has not said what its ranks show.
    pub silent: bool,
}

/// The ranks of this host, looked at before and after what they wait for was read in detail.
pub fn look(visit: &Visit) -> Vec<Seen> {
    // Our visit has stirred ranks that had not yet said what they wait for.
    std::thread::sleep(MOMENT);
    let on_hosts = visit.world.as_ref().is_some_and(|(shape, _)| shape.nodes > 1);
    let read = |ranks: Vec<Rank>| {
        let mut waiting = ranks.iter().filter(|rank| rank.wait.is_some() && rank.pid != 0);
        let busy = match (on_hosts, waiting.next()) {
            (true, Some(rank)) => sockets::busy(rank.pid),
            _ => HashSet::new(),
        };
        let mut reader = Reader {
            busy,
            ..Reader::default()
        };
        ranks.into_iter().map(|rank| reader.read(rank)).collect()
    };
    steady(|| jobs::ranks(visit), read)
}

/// Ranks with what is read of each, and the waits of those that waited for the same all the time: reading takes long where many wait, and a rank that goes on meanwhile shows what it waits for
/// next.
fn steady(mut ranks: impl FnMut() -> Vec<Rank>, read: impl FnOnce(Vec<Rank>) -> Vec<Seen>) -> Vec<Seen> {
    let first = ranks();
    if first.iter().any(|rank| rank.wait.is_some()) {
        std::thread::sleep(MOMENT);
    }
    let mut again = ranks();
    for (before, rank) in first.iter().zip(&mut again) {
        if before.wait != rank.wait {
            rank.wait = None;
        }
    }
    let mut all = read(again);
    for (seen, after) in all.iter_mut().zip(ranks()) {
        if seen.rank.wait != after.wait {
            seen.rank.wait = None;
        }
    }
    all
}

/// Reads what ranks of this host have in their memory: what they share of it is kept once.
#[derive(Default)]
struct Reader {
    places: Resolver,
    lists: HashSet<Arc<[u32]>>,
    /// Sockets with bytes on their way.
    busy: HashSet<u64>,
}

impl Reader {
    fn read(&mut self, rank: Rank) -> Seen {
        let read = || memory_of(rank.pid, rank.book, BOOK_BYTES);
        let book = (rank.book != 0 && rank.pid != 0).then(read).flatten();
        let book = book.and_then(|first| Some(Copied::new(&first, &read()?)));
        let operations = book.as_ref().and_then(Copied::operations);
        let mut comms: Vec<Comm> = Vec::new();
        if let Some(wait) = &rank.wait {
            let of_operations = operations.iter().flat_map(|operations| &operations.list);
            let of_operations = of_operations.map(|operation| u64::from(operation.context));
            for context in std::iter::once(wait.comm).chain(of_operations) {
                if let (Ok(number), Some(book)) = (u32::try_from(number_of(context)), &book)
                    && comms.iter().all(|known| known.number != number)
                    && let Some(comm) = self.comm(rank.pid, book, number)
                {
                    comms.push(comm);
                }
            }
        }
        Seen {
            moves: rank.wait.is_some() && sockets::has_one(rank.pid, &self.busy),
            waited_ns: rank
                .wait
                .map_or(0, |wait| monotonic_ns().saturating_sub(wait.since_ns)),
            place: rank.wait.and_then(|wait| self.place(rank.pid, wait.site)),
            operations,
            comms,
            rank,
        }
    }

    fn comm(&mut self, pid: u32, book: &Copied, number: u32) -> Option<Comm> {
        let shown = book.communicator(number)?;
        let (size, members) = match shown.group {
            Group::Untold => (None, Members::Untold),
            Group::Strided { first, stride, size } if size <= MEMBERS_MAX => {
                (Some(size), Members::Strided { first, stride, size })
            }
            Group::At { address, size } if size <= MEMBERS_MAX => {
                let list = memory_of(pid, address, size as usize * 4);
                (
                    Some(size),
                    list.map_or(Members::Untold, |bytes| self.list(&bytes)),
                )
            }
            Group::Strided { size, .. } | Group::At { size, .. } => (Some(size), Members::Untold),
        };
        Some(Comm {
            number,
            name: shown.name,
            size,
            members,
        })
    }

    fn list(&mut self, bytes: &[u8]) -> Members {
        let words = bytes.as_chunks().0.iter();
        let list: Vec<u32> = words.map(|word| u32::from_ne_bytes(*word)).collect();
        let known = self.lists.get(list.as_slice()).map(Arc::clone);
        Members::List(known.unwrap_or_else(|| {
            let list: Arc<[u32]> = list.into();
            self.lists.insert(Arc::clone(&list));
            list
        }))
    }

    /// Where in the program a rank waits, if that can be read from here.
    fn place(&mut self, pid: u32, site: u64) -> Option<String> {
        (site != 0 && pid != 0).then(|| self.places.describe(pid, "", site))
    }
}

/// This host's clock.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

impl Shown {
    fn comm(&self, number: u64) -> Option<&Comm> {
        self.seen
            .comms
            .iter()
            .find(|comm| u64::from(comm.number) == number)
    }

    /// A communicator as its user knows it.
    pub fn comm_name(&self, number: u64) -> String {
        match self.comm(number) {
            Some(comm) if comm.name.starts_with("MPI_COMM_") => comm.name.clone(),
            Some(comm) if !comm.name.is_empty() => format!("comm \"{}\"", comm.name),
            Some(comm) => match comm.size {
                Some(size) => format!("an unnamed communicator of {size} ranks (#{number})"),
                None => format!("an unnamed intercommunicator (#{number})"),
            },
            None => format!("comm #{number}"),
        }
    }

    /// Whether several of its threads may be in MPI.
    pub fn has_threads(&self) -> bool {
        let operations = self.seen.operations.as_ref();
        operations.is_none_or(|operations| operations.threads)
    }
}

/// What every rank does and needs. Lists that ranks have in common are kept once: members of communicators, and who is missing in a collective.
pub fn standings(all: &[Shown]) -> Vec<Standing> {
    let mut sources = Sources {
        all,
        known: HashMap::new(),
        missing: Vec::new(),
        everybody: (0..all.len() as u32).collect(),
    };
    all.iter().map(|shown| sources.standing(shown)).collect()
}

/// Who of these members is not in this collective.
struct Missing {
    members: Rc<[u32]>,
    meeting: InCollective,
    needs: Rc<[Need]>,
}

/// Who can do what ranks wait for.
struct Sources<'a> {
    all: &'a [Shown],
    known: HashMap<Members, Rc<[u32]>>,
    missing: Vec<Missing>,
    everybody: Rc<[u32]>,
}

impl Sources<'_> {
    fn standing(&mut self, shown: &Shown) -> Standing {
        let Rank {
            state, process, wait, ..
        } = &shown.seen.rank;
        match (state, process, wait) {
            // Of what cannot be seen anything may be: so nothing is held to be certain that hangs on it.
            _ if shown.silent => Standing::Acts,
            // What is on its way may be what it waits for, or what another does.
            (State::Running, Some(_), Some(_)) if shown.seen.moves => Standing::Acts,
            (State::Gone | State::Finalized, _, _) => Standing::Ended,
            (State::Running, Some('Z' | 'X') | None, _) => Standing::Ended,
            (State::Absent, _, _) | (_, Some('T' | 't'), _) | (_, _, None) => Standing::Acts,
            (State::Running, Some(_), Some(wait)) => self.waits(shown, wait),
        }
    }

    fn waits(&mut self, shown: &Shown, wait: &Wait) -> Standing {
        if wait.peer < 0
            && let Some(meeting) = collective(wait)
        {
            return match self.members_of(shown, meeting.comm) {
                Some(members) => Standing::WaitsForAll(self.missing_in(&members, meeting)),
                None => Standing::Waits,
            };
        }
        if calls::name(wait.call).is_some_and(is_probe) {
            let from = self.sources(shown, u32::try_from(wait.peer).ok(), wait.comm);
            return Standing::WaitsForAll([Need { from }].into());
        }
        let Some(operations) = &shown.seen.operations else {
            return Standing::Waits;
        };
        let mut need = |operation: &Pending| Need {
            from: self.sources(shown, operation.peer, operation.context.into()),
        };
        let list = operations.list.iter();
        let blocking = list.filter(|operation| !operations.threads && is_blocking(operation));
        let blocking: Rc<[Need]> = blocking.map(&mut need).collect();
        if !blocking.is_empty() {
            return Standing::WaitsForAll(blocking);
        }
        // A collective that reads what another member left in shared memory has no operation of its own.
        if let (true, Some(_), Ok(leader)) = (
            operations.list.is_empty(),
            collective(wait),
            u32::try_from(wait.peer),
        ) {
            return Standing::WaitsForAll(
                [Need {
                    from: [leader].into(),
                }]
                .into(),
            );
        }
        if operations.more || operations.list.is_empty() {
            return Standing::Waits;
        }
        Standing::WaitsForAny(operations.list.iter().map(need).collect())
    }

    fn members_of(&mut self, shown: &Shown, comm: u64) -> Option<Rc<[u32]>> {
        let members = &shown.comm(comm)?.members;
        if let Some(known) = self.known.get(members) {
            return Some(Rc::clone(known));
        }
        let list: Rc<[u32]> = members.list()?.into();
        self.known.insert(members.clone(), Rc::clone(&list));
        Some(list)
    }

    fn missing_in(&mut self, members: &Rc<[u32]>, meeting: InCollective) -> Rc<[Need]> {
        let same = |known: &&Missing| Rc::ptr_eq(&known.members, members) && known.meeting == meeting;
        if let Some(known) = self.missing.iter().find(same) {
            return Rc::clone(&known.needs);
        }
        let there = |rank: &&u32| {
            let other = self.all.get(**rank as usize);
            other.and_then(|other| collective(other.seen.rank.wait.as_ref()?)) == Some(meeting)
        };
        let missing = members.iter().filter(|rank| !there(rank));
        let needs: Rc<[Need]> = missing.map(|rank| Need { from: [*rank].into() }).collect();
        self.missing.push(Missing {
            members: Rc::clone(members),
            meeting,
            needs: Rc::clone(&needs),
        });
        needs
    }

    /// Who can end an operation with `peer`, or with any member of the communicator of a context; the rank itself may be among many.
    fn sources(&mut self, shown: &Shown, peer: Option<u32>, context: u64) -> Rc<[u32]> {
        let count = self.all.len();
        let known = |rank: &u32| (*rank as usize) < count;
        if let Some(peer) = peer {
            return Some(peer).filter(known).into_iter().collect();
        }
        match self.members_of(shown, number_of(context)) {
            Some(members) if members.iter().all(known) && !members.is_empty() => members,
            Some(members) => {
                let own = shown.seen.rank.rank;
                let others = members.iter().copied().filter(|rank| known(rank) && *rank != own);
                let others: Rc<[u32]> = others.collect();
                if others.is_empty() { [own].into() } else { others }
            }
            None => Rc::clone(&self.everybody),
        }
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
    fn who_goes_on_while_its_operations_are_read_does_not_wait() {
        let mut looks = [[7, 7, 7], [7, 8, 7], [7, 8, 9]].into_iter();
        let ranks = || {
            let looked = looks.next().expect("three looks");
            let rank = |(rank, since_ns): (u32, u64)| Rank {
                wait: Some(Wait {
                    since_ns,
                    ..Wait::default()
                }),
                ..Seen::unseen(rank).rank
            };
            (0..).zip(looked).map(rank).collect()
        };
        let read = |ranks: Vec<Rank>| {
            let seen = |rank: Rank| Seen {
                rank: rank.clone(),
                ..Seen::unseen(rank.rank)
            };
            ranks.into_iter().map(seen).collect()
        };
        let all = steady(ranks, read);
        let waits: Vec<_> = all.iter().map(|seen| seen.rank.wait.is_some()).collect();
        assert_eq!(waits, [true, false, false]);
    }

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
