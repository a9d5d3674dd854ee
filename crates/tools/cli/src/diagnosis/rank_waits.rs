//! Determines what a rank needs before it can go on, from its rank block and its wait report.
//!
//! A blocking call's own operations say exactly what it waits for. Of a rank that waits for
//! requests only all operations that it started are known, any of which may be enough. Waits are
//! read twice a moment apart, and again at the end: what changed meanwhile was no wait.

use garonne_links::process_memory::memory_of;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use garonne_engine::observe::events::{PendingAction, PendingOperation};
use garonne_inspect::query_client::QueryClient;
use garonne_job::call_names;
use garonne_job::layout::{LAGGARDS, RankState, WaitInfo, last_calls};
use garonne_job::snapshot::{CommMembers, CommSnapshot, DetailedSnapshot};
use garonne_job::wait_report::{BOOK_BYTES, CommGroup, PendingOperations, WaitReportCopy};
use garonne_sites::SymbolResolver;

use super::call_kinds::{is_blocking, is_probe, names_its_partner};
use super::collectives::{self, ActiveCollective, collective, has_entered};
use super::deadlock::{WaitDependency, WaitState};
use super::{bytes_in_flight, polling, unexpected_messages};
use crate::commands::job_lookup::{self, RankSnapshot};

/// Between the two looks: many times what a rank needs to wake and take a message.
const MOMENT: Duration = Duration::from_millis(50);
/// Members of a communicator that are read: those of the largest jobs.
const MEMBERS_MAX: u32 = garonne_job::limits::RANKS_MAX;

pub const CONTEXTS: u64 = garonne_mpi::limits::CONTEXTS_PER_COMM as u64;

/// In place of the system's letter: a key of the terminal has ended the process just now.
pub const INTERRUPTED: char = 'i';

/// The number of the communicator that owns a context.
pub fn number_of(context: u64) -> u64 {
    u64::from(garonne_mpi::comm::number(context as u32))
}

/// One rank of a job as its host shows it. [`super::job_snapshot::gather`] makes one for every
/// rank, in order; the other modules of diagnosis only read it.
#[derive(Debug)]
pub struct RankView {
    pub snapshot: DetailedSnapshot,
    /// Host of the rank, in a job on several.
    pub host: Option<Rc<str>>,
    /// Nothing is known of it: its host has not said what its ranks show.
    pub silent: bool,
}

/// The ranks of this host, looked at before and after what they wait for was read in detail.
pub fn read_local_ranks(client: &QueryClient) -> Vec<DetailedSnapshot> {
    let before = polling::PollBaseline::of(&job_lookup::ranks(client));
    // The query has woken ranks that had not yet said what they wait for.
    std::thread::sleep(MOMENT);
    let on_hosts = client
        .world
        .as_ref()
        .is_some_and(|(shape, _)| shape.nodes > 1);
    let read = |ranks: Vec<RankSnapshot>| {
        let mut known = ranks.iter().filter(|rank| rank.pid != 0);
        let busy = match (on_hosts, known.next()) {
            (true, Some(rank)) => bytes_in_flight::busy(rank.pid),
            _ => HashSet::new(),
        };
        let mut reader = RankReader {
            client,
            places: SymbolResolver::default(),
            lists: HashSet::new(),
            busy,
            before,
        };
        ranks.into_iter().map(|rank| reader.read(rank)).collect()
    };
    let mut all = with_steady_waits(|| job_lookup::ranks(client), read);
    all.iter_mut()
        .for_each(|seen| name_unknown_call(client, seen));
    all
}

/// Reads ranks in detail, and keeps the waits of those that waited for the same all the time.
/// Reading takes long where many wait, and a rank that goes on meanwhile shows what it waits for
/// next.
fn with_steady_waits(
    mut ranks: impl FnMut() -> Vec<RankSnapshot>,
    read: impl FnOnce(Vec<RankSnapshot>) -> Vec<DetailedSnapshot>,
) -> Vec<DetailedSnapshot> {
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

/// A wait of which the rank's engine cannot say the call is that of the call which its only thread
/// entered last.
fn name_unknown_call(client: &QueryClient, seen: &mut DetailedSnapshot) {
    let (Some((shape, world_memory)), Some(wait)) = (&client.world, &mut seen.rank.wait) else {
        return;
    };
    if wait.call == 0
        && let [(site, Some(call))] = *last_calls::latest_call(world_memory, shape, seen.rank.rank)
    {
        (wait.call, wait.site) = (call.into(), site);
        seen.place = SymbolResolver::default()
            .describe(seen.rank.pid, "", site)
            .into();
    }
}

/// Reads what ranks of this host have in their memory. Lists that ranks share are kept once.
struct RankReader<'a> {
    client: &'a QueryClient,
    places: SymbolResolver,
    lists: HashSet<Arc<[u32]>>,
    /// Sockets with bytes on their way.
    busy: HashSet<u64>,
    before: polling::PollBaseline,
}

impl RankReader<'_> {
    fn read(&mut self, rank: RankSnapshot) -> DetailedSnapshot {
        let read = || memory_of(rank.pid, rank.book, BOOK_BYTES);
        let book = (rank.book != 0 && rank.pid != 0).then(read).flatten();
        let book = book.and_then(|first| Some(WaitReportCopy::new(&first, &read()?)));
        let operations = book.as_ref().and_then(WaitReportCopy::operations);
        let polls = book.as_ref().map_or_else(Vec::new, |book| {
            self.before.polling(self.client, &rank, book)
        });
        let mut contexts: Vec<u64> = Vec::new();
        if let Some(wait) = &rank.wait {
            let of_operations = operations.iter().flat_map(|operations| &operations.list);
            let of_operations = of_operations.map(|operation| u64::from(operation.context));
            let of_messages = operations.iter().flat_map(|operations| &operations.kept);
            let of_messages = of_messages.map(|message| u64::from(message.context));
            contexts.extend(
                std::iter::once(wait.comm)
                    .chain(of_operations)
                    .chain(of_messages),
            );
        }
        let asks = polls.iter().flat_map(|(polls, _)| &polls.asks);
        let polled = asks.flat_map(|ask| &ask.operations);
        contexts.extend(polled.map(|operation| u64::from(operation.context)));
        let comms = self.comms(rank.pid, book.as_ref(), &contexts);
        let waits = rank.wait.is_some() || !polls.is_empty();
        let placed = |polls| polling::with_call_sites(polls, |site| self.place(rank.pid, site));
        let polls = polls.into_iter().map(placed).collect();
        DetailedSnapshot {
            moves: waits && bytes_in_flight::has_one(rank.pid, &self.busy),
            polls,
            waited_ns: rank
                .wait
                .map_or(0, |wait| monotonic_ns().saturating_sub(wait.since_ns)),
            place: rank
                .wait
                .and_then(|wait| self.place_of_wait(&rank, wait.site)),
            operation_places: self.operation_places(&rank, operations.as_ref()),
            senders: self.senders(&rank, operations.as_ref()),
            takers: self.takers(&rank, operations.as_ref()),
            entered: book.map_or_else(Vec::new, |book| collectives::entered(rank.pid, &book)),
            operations,
            comms,
            rank,
        }
    }

    /// Returns where operations were started, where several threads of a rank wait.
    fn operation_places(
        &mut self,
        rank: &RankSnapshot,
        operations: Option<&PendingOperations>,
    ) -> Vec<String> {
        let Some(operations) = operations.filter(|it| it.threads && rank.wait.is_some()) else {
            return Vec::new();
        };
        let sites = operations
            .list
            .iter()
            .map(|operation| operation.origin.site);
        sites
            .map(|site| self.place(rank.pid, site).unwrap_or_default())
            .collect()
    }

    /// Returns where messages were sent that nobody has asked for.
    fn senders(
        &mut self,
        rank: &RankSnapshot,
        operations: Option<&PendingOperations>,
    ) -> Vec<String> {
        let kept = operations.filter(|_| rank.wait.is_some());
        let kept = kept.map_or(&[][..], |operations| &operations.kept);
        let sent = kept
            .iter()
            .map(|message| unexpected_messages::sender(self.client, rank.rank, message));
        let sent: Vec<_> = sent.collect();
        sent.into_iter()
            .map(|sent| sent.and_then(|(pid, site)| self.place(pid, site)))
            .map(Option::unwrap_or_default)
            .collect()
    }

    /// Returns where receives from any source took what operations wait for; nothing if none did.
    fn takers(
        &mut self,
        rank: &RankSnapshot,
        operations: Option<&PendingOperations>,
    ) -> Vec<String> {
        let list = operations.filter(|_| rank.wait.is_some());
        let list = list.map_or(&[][..], |operations| &operations.list);
        let sites = unexpected_messages::sites_that_took(self.client, rank.rank, list);
        sites
            .into_iter()
            .map(|site| self.place(rank.pid, site).unwrap_or_default())
            .collect()
    }

    /// The communicators that own these contexts, each once.
    fn comms(
        &mut self,
        pid: u32,
        book: Option<&WaitReportCopy>,
        contexts: &[u64],
    ) -> Vec<CommSnapshot> {
        let mut comms: Vec<CommSnapshot> = Vec::new();
        for context in contexts {
            if let (Ok(number), Some(book)) = (u32::try_from(number_of(*context)), book)
                && comms.iter().all(|known| known.number != number)
                && let Some(comm) = self.comm(pid, book, number)
            {
                comms.push(comm);
            }
        }
        comms
    }

    fn comm(&mut self, pid: u32, book: &WaitReportCopy, number: u32) -> Option<CommSnapshot> {
        let shown = book.communicator(number)?;
        let (size, members) = match shown.group {
            CommGroup::Untold => (None, CommMembers::Untold),
            CommGroup::Strided {
                first,
                stride,
                size,
            } if size <= MEMBERS_MAX => (
                Some(size),
                CommMembers::Strided {
                    first,
                    stride,
                    size,
                },
            ),
            CommGroup::At { address, size } if size <= MEMBERS_MAX => {
                let list = memory_of(pid, address, size as usize * 4);
                (
                    Some(size),
                    list.map_or(CommMembers::Untold, |bytes| self.list(&bytes)),
                )
            }
            CommGroup::Strided { size, .. } | CommGroup::At { size, .. } => {
                (Some(size), CommMembers::Untold)
            }
        };
        Some(CommSnapshot {
            number,
            name: shown.name,
            size,
            members,
        })
    }

    fn list(&mut self, bytes: &[u8]) -> CommMembers {
        let words = bytes.as_chunks().0.iter();
        let list: Vec<u32> = words.map(|word| u32::from_ne_bytes(*word)).collect();
        let known = self.lists.get(list.as_slice()).map(Arc::clone);
        CommMembers::List(known.unwrap_or_else(|| {
            let list: Arc<[u32]> = list.into();
            self.lists.insert(Arc::clone(&list));
            list
        }))
    }

    /// Returns where in the program a rank waits, also where its process is gone.
    fn place_of_wait(&mut self, rank: &RankSnapshot, site: u64) -> Option<String> {
        let objects = match rank.process {
            None | Some('Z' | 'X') => self.client.objects(rank.rank),
            _ => String::new(),
        };
        (site != 0 && rank.pid != 0).then(|| self.places.describe(rank.pid, &objects, site))
    }

    /// A place in the program of a process, if that can be read from here.
    fn place(&mut self, pid: u32, site: u64) -> Option<String> {
        (site != 0 && pid != 0).then(|| self.places.describe(pid, "", site))
    }
}

/// This host's clock.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

impl RankView {
    fn comm(&self, number: u64) -> Option<&CommSnapshot> {
        self.snapshot
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

    /// The members of a communicator of its wait or its operations, if they are told.
    pub fn members_of(&self, number: u64) -> Option<Vec<u32>> {
        self.comm(number)?.members.list()
    }

    /// Returns whether several of its threads may be in MPI.
    pub fn has_threads(&self) -> bool {
        let operations = self.snapshot.operations.as_ref();
        if self.snapshot.rank.process == Some(INTERRUPTED) {
            return false;
        }
        operations.is_none_or(|operations| operations.threads)
    }
}

/// Determines the state of every rank. Lists that ranks have in common are kept once: members of
/// communicators, and who is missing in a collective.
pub fn wait_states(all: &[RankView]) -> Vec<WaitState> {
    wait_states_with(all, false)
}

/// Determines the state of every rank if ranks that poll did nothing else.
pub fn wait_states_if_polls_block(all: &[RankView]) -> Vec<WaitState> {
    wait_states_with(all, true)
}

fn wait_states_with(all: &[RankView], polls_wait: bool) -> Vec<WaitState> {
    let mut sources = WaitResolver {
        all,
        polls_wait,
        known: HashMap::new(),
        missing: Vec::new(),
        everybody: (0..all.len() as u32).collect(),
    };
    all.iter().map(|shown| sources.wait_state(shown)).collect()
}

/// Members that are missing in a collective.
struct MissingMembers {
    members: Rc<[u32]>,
    meeting: ActiveCollective,
    needs: Rc<[WaitDependency]>,
}

/// Resolves what ranks wait for to the ranks that can provide it.
struct WaitResolver<'a> {
    all: &'a [RankView],
    /// Ranks that poll count as ranks that wait.
    polls_wait: bool,
    known: HashMap<CommMembers, Rc<[u32]>>,
    missing: Vec<MissingMembers>,
    everybody: Rc<[u32]>,
}

impl WaitResolver<'_> {
    fn wait_state(&mut self, shown: &RankView) -> WaitState {
        let RankSnapshot {
            state,
            process,
            wait,
            ..
        } = &shown.snapshot.rank;
        match (state, process, wait) {
            // Of what cannot be seen anything may be: so nothing is held to be certain that hangs
            // on it.
            _ if shown.silent => WaitState::Runs,
            // What is on its way may be what it waits for, or what another does.
            (RankState::Running, Some(_), _) if shown.snapshot.moves => WaitState::Runs,
            (RankState::Gone | RankState::Finalized, _, _) => WaitState::Ended,
            (RankState::Running, Some('Z' | 'X') | None, _) => WaitState::Ended,
            (RankState::Absent, _, _) | (_, Some('T' | 't'), _) => WaitState::Runs,
            // What it does between two looks is not known.
            _ if !shown.snapshot.polls.is_empty() => self.polls(shown),
            (_, _, None) => WaitState::Runs,
            (RankState::Running, Some(_), Some(wait)) => self.waits(shown, wait),
        }
    }

    fn polls(&mut self, shown: &RankView) -> WaitState {
        if !self.polls_wait {
            return WaitState::Runs;
        }
        let polls = &shown.snapshot.polls;
        let asks = || polls.iter().flat_map(|polled| &polled.asks);
        if asks().any(|ask| ask.operations.is_empty()) {
            return WaitState::WaitsForUnknown;
        }
        let operations = asks().flat_map(|ask| &ask.operations);
        let needs: Vec<WaitDependency> = operations
            .map(|(operation, _)| self.dependency_of(shown, operation))
            .collect();
        let beside = shown
            .snapshot
            .rank
            .wait
            .map(|wait| self.waits(shown, &wait));
        match beside {
            None if polling::wants_all(polls) => WaitState::WaitsForAll(needs.into()),
            None => WaitState::WaitsForAny(needs.into()),
            // Other threads wait meanwhile.
            Some(WaitState::WaitsForAll(theirs) | WaitState::WaitsForAny(theirs)) => {
                WaitState::WaitsForAny(needs.iter().chain(theirs.iter()).cloned().collect())
            }
            Some(other) => other,
        }
    }

    /// Returns the ranks that could end an operation that is polled for.
    fn dependency_of(&mut self, shown: &RankView, operation: &PendingOperation) -> WaitDependency {
        let Some(meeting) = polling::collective(operation) else {
            let from = self.possible_peers(shown, operation.peer, operation.context.into());
            return WaitDependency { from };
        };
        let members = self.members_of(shown, meeting.comm);
        let missing = members.map(|members| self.missing_in(&members, meeting));
        let missing = missing.iter().flat_map(|needs| needs.iter());
        // Where all have entered, whoever it waits for is not known.
        WaitDependency {
            from: missing.flat_map(|need| need.from.iter().copied()).collect(),
        }
    }

    fn waits(&mut self, shown: &RankView, wait: &WaitInfo) -> WaitState {
        let Some(operations) = &shown.snapshot.operations else {
            return match (call_names::name(wait.call), u32::try_from(wait.peer)) {
                // Of others it is not known whether another of their threads acts.
                (Some(name), Ok(peer))
                    if shown.snapshot.rank.process == Some(INTERRUPTED)
                        && names_its_partner(name) =>
                {
                    let from = self.possible_peers(shown, Some(peer), wait.comm);
                    WaitState::WaitsForAll([WaitDependency { from }].into())
                }
                _ => WaitState::WaitsForUnknown,
            };
        };
        // Of several threads each may go on, whatever the others wait for.
        let of_wait = |operation: &PendingOperation| {
            (u32::from(operation.origin.call), operation.origin.site) == (wait.call, wait.site)
        };
        let alone =
            !operations.threads || (!operations.more && operations.list.iter().all(of_wait));
        if alone && let Some(standing) = self.blocking_call_dependencies(shown, wait, operations) {
            return standing;
        }
        if operations.more || operations.list.is_empty() {
            return WaitState::WaitsForUnknown;
        }
        let needs = operations.list.iter().map(|operation| WaitDependency {
            from: self.possible_peers(shown, operation.peer, operation.context.into()),
        });
        WaitState::WaitsForAny(needs.collect())
    }

    /// Returns what a blocking call needs; `None`: the call waits for requests.
    fn blocking_call_dependencies(
        &mut self,
        shown: &RankView,
        wait: &WaitInfo,
        operations: &PendingOperations,
    ) -> Option<WaitState> {
        let is_message =
            |operation: &&PendingOperation| operation.action != PendingAction::Collective;
        if let (true, Some(meeting)) = (wait.peer < 0, collective(wait)) {
            let Some(members) = self.members_of(shown, meeting.comm) else {
                return Some(WaitState::WaitsForUnknown);
            };
            let missing = self.missing_in(&members, meeting);
            let inner = operations
                .list
                .iter()
                .any(|operation| is_message(&operation));
            // All have entered, and one may still wait for another, as leaders of two groups do.
            if !(missing.is_empty() && inner) {
                // Who is in a round, or waits for those who are several collectives behind, need
                // not wait for all that are missing here.
                if wait.peer != LAGGARDS && meeting.waits_for_all() {
                    return Some(WaitState::WaitsForAll(missing));
                }
                let from: Rc<[u32]> = missing
                    .iter()
                    .flat_map(|need| need.from.iter().copied())
                    .collect();
                return Some(WaitState::WaitsForAll([WaitDependency { from }].into()));
            }
        }
        if call_names::name(wait.call).is_some_and(is_probe) {
            let from = self.possible_peers(shown, u32::try_from(wait.peer).ok(), wait.comm);
            return Some(WaitState::WaitsForAll([WaitDependency { from }].into()));
        }
        // A collective that reads what another member left in shared memory has no message of its
        // own.
        let reads =
            |operation: &&PendingOperation| !is_message(operation) && operation.peer.is_some();
        if let Some(leader) = operations
            .list
            .iter()
            .find(reads)
            .and_then(|operation| operation.peer)
        {
            let from = [leader].into();
            return Some(WaitState::WaitsForAll([WaitDependency { from }].into()));
        }
        let blocking = operations.list.iter().filter(is_message);
        let blocking = blocking.filter(|operation| is_blocking(operation));
        let blocking: Rc<[WaitDependency]> = blocking
            .map(|operation| WaitDependency {
                from: self.possible_peers(shown, operation.peer, operation.context.into()),
            })
            .collect();
        (!blocking.is_empty()).then_some(WaitState::WaitsForAll(blocking))
    }

    fn members_of(&mut self, shown: &RankView, comm: u64) -> Option<Rc<[u32]>> {
        let members = &shown.comm(comm)?.members;
        if let Some(known) = self.known.get(members) {
            return Some(Rc::clone(known));
        }
        let list: Rc<[u32]> = members.list()?.into();
        self.known.insert(members.clone(), Rc::clone(&list));
        Some(list)
    }

    fn missing_in(
        &mut self,
        members: &Rc<[u32]>,
        meeting: ActiveCollective,
    ) -> Rc<[WaitDependency]> {
        let same = |known: &&MissingMembers| {
            Rc::ptr_eq(&known.members, members) && known.meeting == meeting
        };
        if let Some(known) = self.missing.iter().find(same) {
            return Rc::clone(&known.needs);
        }
        // Of whom nothing is known may have left already.
        let is_missing = |rank: &&u32| {
            let other = self.all.get(**rank as usize);
            other.is_some_and(|other| has_entered(other, &meeting) == Some(false))
        };
        let missing = members.iter().filter(is_missing);
        let needs: Rc<[WaitDependency]> = missing
            .map(|rank| WaitDependency {
                from: [*rank].into(),
            })
            .collect();
        self.missing.push(MissingMembers {
            members: Rc::clone(members),
            meeting,
            needs: Rc::clone(&needs),
        });
        needs
    }

    /// Returns the ranks that can end an operation with `peer`, or with any member of the
    /// communicator of a context. The rank itself may be among many.
    fn possible_peers(&mut self, shown: &RankView, peer: Option<u32>, context: u64) -> Rc<[u32]> {
        let count = self.all.len();
        let known = |rank: &u32| (*rank as usize) < count;
        if let Some(peer) = peer {
            return Some(peer).filter(known).into_iter().collect();
        }
        match self.members_of(shown, number_of(context)) {
            Some(members) if members.iter().all(known) && !members.is_empty() => members,
            Some(members) => {
                let own = shown.snapshot.rank.rank;
                let others = members
                    .iter()
                    .copied()
                    .filter(|rank| known(rank) && *rank != own);
                let others: Rc<[u32]> = others.collect();
                if others.is_empty() {
                    [own].into()
                } else {
                    others
                }
            }
            None => Rc::clone(&self.everybody),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_on_while_its_operations_are_read_does_not_wait() {
        let mut looks = [[7, 7, 7], [7, 8, 7], [7, 8, 9]].into_iter();
        let ranks = || {
            let looked = looks.next().expect("three looks");
            let rank = |(rank, since_ns): (u32, u64)| RankSnapshot {
                wait: Some(WaitInfo {
                    since_ns,
                    ..WaitInfo::default()
                }),
                ..DetailedSnapshot::unavailable(rank).rank
            };
            (0..).zip(looked).map(rank).collect()
        };
        let read = |ranks: Vec<RankSnapshot>| {
            let seen = |rank: RankSnapshot| DetailedSnapshot {
                rank: rank.clone(),
                ..DetailedSnapshot::unavailable(rank.rank)
            };
            ranks.into_iter().map(seen).collect()
        };
        let all = with_steady_waits(ranks, read);
        let waits: Vec<_> = all.iter().map(|seen| seen.rank.wait.is_some()).collect();
        assert_eq!(waits, [true, false, false]);
    }
}
