//! Communicators of which members may die: revocation, known failures, agreement, shrinking
//! (User-Level Failure Mitigation, beyond MPI 5.0).
//!
//! The host tells of deaths, and decides agreements: the agents of the job are the detectors, and
//! the first of them decides. So no member waits for another one that may die. Members that share a
//! host agree in its memory ([`on_host`]), those of several worlds by messages
//! ([`across_worlds`]). A new communicator of the survivors takes two agreements: on a context, and
//! on whether all could take it.

mod across_worlds;
mod consensus;
mod on_host;
#[cfg(test)]
mod tests;

pub(crate) use across_worlds::AgreementMail;
#[cfg(any(test, fuzzing))]
pub(super) use consensus::read_anything;

use super::context_ids::{ContextLease, watched};
use super::setup_messages::SetupTask;
use super::{Comm, CommInner, CommParts};
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::limits::CONTEXTS_PER_COMM;
use crate::process::{AgreementInput, AgreementKey, Decision, FaultDetector, Process};
use crate::request::{Completion, Outcome, Request, Status};
use across_worlds::WorldsAgreement;
use garonne_engine::api::{CallOrigin, ContextId, Peer};
use garonne_engine::faults::ContextMembers;
use garonne_engine::observe::events::{AwaitedRanks, ExternalWait};
use garonne_progress::messaging::WaitTarget;
use garonne_sync::mutex::lock;
use on_host::HostAgreements;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::task::Poll;

/// What a communicator knows of its dead members.
#[derive(Debug, Default)]
pub(crate) struct CommFaults(Mutex<KnownFaults>);

#[derive(Debug, Default)]
struct KnownFaults {
    /// Dead members, in the order in which this process learned of them.
    dead: Vec<Peer>,
    /// How many of them the program has acknowledged.
    acknowledged: usize,
    /// Agreements that this process has begun.
    agreements: u32,
    /// Agreements by the memory of the members' host, once there was one. `Some(None)`: the members
    /// do not share one.
    on_host: Option<Option<Arc<HostAgreements>>>,
}

/// An agreement to which this process has contributed.
enum BegunAgreement {
    /// Nobody else takes part.
    Alone(Decision),
    /// By the memory of the members' host.
    OnHost(Arc<HostAgreements>, AgreementKey),
    /// By the agents.
    ByAgents(Arc<dyn FaultDetector>, AgreementKey),
    /// By messages.
    AcrossWorlds(Box<WorldsAgreement>),
}

impl BegunAgreement {
    /// Goes on; gives the decision once it is there.
    fn poll(&mut self) -> Option<Result<Decision>> {
        match self {
            Self::Alone(decision) => Some(Ok(decision.clone())),
            Self::OnHost(agreements, key) => agreements.take(key),
            Self::ByAgents(detector, key) => detector.take_decision(key).map(Ok),
            Self::AcrossWorlds(across) => across.step().transpose(),
        }
    }

    async fn decision(mut self) -> Result<Decision> {
        poll_fn(move |_| self.poll().map_or(Poll::Pending, Poll::Ready)).await
    }
}

/// The processes of a communicator's groups.
#[derive(Debug)]
struct Members {
    local: Group,
    remote: Option<Group>,
}

impl ContextMembers for Members {
    fn contains(&self, peer: Peer) -> bool {
        let has = |group: &Group| group.rank_of(peer).is_some();
        has(&self.local) || self.remote.as_ref().is_some_and(has)
    }

    fn peers(&self) -> Vec<Peer> {
        let remote = self.remote.iter().flat_map(Group::members);
        self.local.members().chain(remote).collect()
    }
}

impl CommInner {
    fn fault_contexts(&self) -> Range<ContextId> {
        let first = self.context.load(std::sync::atomic::Ordering::Relaxed);
        first..first + CONTEXTS_PER_COMM
    }

    /// The communicator is gone: messages of its agreements that are still to come are dropped.
    pub(super) fn close_agreements(&self) {
        if !self.bridges.is_empty() && lock(&self.placement.faults.0).agreements > 0 {
            self.process.mail.close(self.number() as i32);
        }
    }

    fn fault_members(&self) -> Members {
        Members {
            local: self.local.clone(),
            remote: self.remote.clone(),
        }
    }

    /// Has the engine end what needs all members once one of them dies.
    pub(super) fn watch_members(&self) {
        if self.process.survives() {
            let members = Arc::new(self.fault_members());
            let contexts = watched(self.fault_contexts().start);
            self.process.host.watch_context(contexts, members);
        }
    }
}

/// What came of an agreement: the conjunction of all members' bits, and the error that all members
/// get where one of them does not know of a death.
pub struct Agreed {
    /// Bits.
    pub flags: i32,
    /// Deaths that not all members have acknowledged.
    pub error: Option<Error>,
}

/// An agreement or a new communicator that is not there yet: where its value is taken from when its
/// request is over.
pub struct Later<T>(Arc<SetupTask<T>>);

impl<T: Send + 'static> Later<T> {
    /// Returns whether the value is there.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// Takes the value, once.
    ///
    /// # Errors
    /// What went wrong.
    pub fn take(&self) -> Result<T> {
        let gone = || Error::new(Class::Intern, "an agreement ended without a decision");
        self.0.take().unwrap_or_else(|| Err(gone()))
    }
}

/// The request of something whose value a function takes.
struct LaterCompletion<T, F> {
    task: Arc<SetupTask<T>>,
    comm: Comm,
    take: Mutex<Option<F>>,
    meeting: ExternalWait,
}

impl<T, F> Completion for LaterCompletion<T, F>
where
    T: Send + 'static,
    F: FnOnce(Result<T>) -> Result<()> + Send,
{
    fn is_done(&self) -> bool {
        self.task.is_over()
    }

    fn awaits(&self) -> WaitTarget {
        WaitTarget::stepper_end(&*self.task)
    }

    fn meeting(&self) -> Option<ExternalWait> {
        Some(self.meeting).filter(|_| !self.is_done())
    }

    fn peek(&self) -> Outcome {
        Ok(Status::EMPTY)
    }

    fn finish(&self) -> Outcome {
        let value = Later(self.task.clone()).take();
        let take = lock(&self.take).take();
        take.map_or(Ok(()), |take| take(value))?;
        Ok(Status::EMPTY)
    }

    fn must_finish(&self) -> bool {
        true
    }

    fn comm(&self) -> Option<Comm> {
        Some(self.comm.clone())
    }
}

impl Comm {
    /// `MPIX_Comm_revoke`: ends all operations on it at all members, and refuses others.
    ///
    /// # Errors
    /// Its tags are spread over shards.
    pub fn revoke(&self) -> Result<()> {
        if self.tag_shards() != 0 {
            return Err(self.unsupported("made with mpi_assert_no_any_tag cannot be revoked"));
        }
        let members = self.0.fault_members();
        let revoked = self
            .0
            .process
            .host
            .revoke_contexts(self.0.fault_contexts(), &members);
        revoked.map_err(|error| self.convert(error))?;
        if let Some(local) = self.0.local_comm.get() {
            local.revoke()?;
        }
        Ok(())
    }

    /// `MPIX_Comm_is_revoked`.
    pub fn is_revoked(&self) -> bool {
        self.0.process.host.is_revoked(self.context())
    }

    fn unsupported(&self, what: &str) -> Error {
        self.error(Class::UnsupportedOperation, what)
    }

    /// Learns of deaths, and returns all dead members in the order in which they became known.
    fn learn_deaths(&self) -> std::sync::MutexGuard<'_, KnownFaults> {
        let mut known = lock(&self.0.placement.faults.0);
        for peer in self.dead_members() {
            if !known.dead.contains(&peer) {
                known.dead.push(peer);
            }
        }
        known
    }

    /// Returns the members that are dead now: of the own world as its agent says, of other worlds
    /// those that are not reached any more.
    pub(crate) fn dead_members(&self) -> Vec<Peer> {
        let process = &self.0.process;
        let detector = process.config.faults.as_ref();
        let mut dead = detector.map_or_else(Vec::new, |detector| detector.dead());
        dead.extend(lost_of_other_worlds(process, self.has_other_worlds()));
        let members = self.0.fault_members();
        dead.retain(|peer| members.contains(*peer));
        dead
    }

    /// `MPIX_Comm_get_failed`: the members that are known to be dead.
    pub fn failed(&self) -> Group {
        Group::compact(self.learn_deaths().dead.clone())
    }

    /// The error of a call that some members gave up because others have died.
    #[cold]
    pub(crate) fn lost_members(&self) -> Error {
        let dead = self.learn_deaths().dead.clone();
        let text = match dead.is_empty() {
            true => String::from("has lost a member"),
            false => format!("has lost {}", ranks_of(self.group(), &dead)),
        };
        self.error(Class::ProcFailed, text)
    }

    /// `MPIX_Comm_ack_failed`: acknowledges so many of the members that `failed` names, the first
    /// ones. Returns how many are acknowledged.
    pub fn acknowledge_failed(&self, count: i32) -> usize {
        let mut known = self.learn_deaths();
        let wanted = usize::try_from(count).unwrap_or(0).min(known.dead.len());
        known.acknowledged = known.acknowledged.max(wanted);
        let (acknowledged, all) = (known.acknowledged, known.dead.len());
        drop(known);
        if acknowledged == all {
            self.0.process.host.acknowledge_losses(self.context());
        }
        acknowledged
    }

    /// `MPIX_Comm_failure_get_acked`: the dead members that were acknowledged.
    pub fn acknowledged(&self) -> Group {
        let known = lock(&self.0.placement.faults.0);
        Group::compact(known.dead[..known.acknowledged].to_vec())
    }

    /// `MPIX_Comm_agree`.
    ///
    /// # Errors
    /// Nobody can decide.
    pub fn agree(&self, flags: i32, origin: CallOrigin) -> Result<Agreed> {
        let mut begun = self.agreement(flags as u32, 0)?;
        if let BegunAgreement::OnHost(agreements, key) = &begun {
            agreements.wait_on_board(key, self.agreement_wait(origin));
        }
        let decision = match begun.poll() {
            Some(decision) => decision?,
            None => SetupTask::run_polling(&self.0.process, begun.decision())?,
        };
        Ok(self.agreed(&decision))
    }

    /// `MPIX_Comm_iagree`: `take` gets what came of it when the request is completed.
    ///
    /// # Errors
    /// Nobody can decide.
    pub fn iagree(
        &self,
        flags: i32,
        origin: CallOrigin,
        take: impl FnOnce(Agreed) -> Result<()> + Send + 'static,
    ) -> Result<Request> {
        let work = self.agreement(flags as u32, 0)?.decision();
        let comm = self.clone();
        let take = move |decision: Result<Decision>| take(comm.agreed(&decision?));
        Ok(self.later(work, origin, take))
    }

    fn agreed(&self, decision: &Decision) -> Agreed {
        // This process may not have heard of them itself yet.
        let mut known = lock(&self.0.placement.faults.0);
        for &peer in &decision.dead {
            if !known.dead.contains(&peer) {
                known.dead.push(peer);
            }
        }
        drop(known);
        let error = (!decision.acknowledged).then(|| {
            let dead = ranks_of(self.group(), &decision.dead);
            let text = format!("has lost {dead}, which not all members have acknowledged");
            self.error(Class::ProcFailed, text)
        });
        Agreed {
            flags: decision.flags as i32,
            error,
        }
    }

    /// `MPIX_Comm_shrink`: a communicator of the members that are alive.
    ///
    /// # Errors
    /// Nobody can decide, or a member has too many communicators.
    pub fn shrink(&self) -> Result<Comm> {
        let work = self.shrinking()?;
        SetupTask::run_polling(&self.0.process, work)
    }

    /// `MPIX_Comm_ishrink`: `take` gets the communicator when the request is completed.
    ///
    /// # Errors
    /// Nobody can decide.
    pub fn ishrink(
        &self,
        origin: CallOrigin,
        take: impl FnOnce(Comm) -> Result<()> + Send + 'static,
    ) -> Result<Request> {
        let work = self.shrinking()?;
        Ok(self.later(work, origin, move |comm: Result<Comm>| take(comm?)))
    }

    fn later<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
        origin: CallOrigin,
        take: impl FnOnce(Result<T>) -> Result<()> + Send + 'static,
    ) -> Request {
        let meeting = self.agreement_wait(origin);
        let task = SetupTask::start_polling(self, meeting, work);
        let completion = LaterCompletion {
            task,
            comm: self.clone(),
            take: Mutex::new(Some(take)),
            meeting,
        };
        Request::new(self, Arc::new(completion))
    }

    /// What a wait for an agreement is to those who watch.
    fn agreement_wait(&self, origin: CallOrigin) -> ExternalWait {
        ExternalWait {
            awaited: AwaitedRanks::Members,
            context: self.context() + 2,
            tag: 0,
            origin,
        }
    }

    /// Contributes to one agreement of all members.
    fn agreement(&self, flags: u32, number: u32) -> Result<BegunAgreement> {
        let process = &self.0.process;
        let detector = process.config.faults.as_ref();
        let has_deaths = detector.is_none_or(|detector| detector.has_deaths());
        let mut known = match has_deaths || self.has_other_worlds() {
            true => self.learn_deaths(),
            false => lock(&self.0.placement.faults.0),
        };
        let mut acknowledged = known.dead[..known.acknowledged].to_vec();
        acknowledged.sort_unstable();
        let agreement = known.agreements;
        known.agreements = agreement.wrapping_add(1);
        let on_host = match &known.on_host {
            Some(on_host) => on_host.clone(),
            None => {
                let on_host = HostAgreements::of(self, self.sorted_members()).map(Arc::new);
                known.on_host.insert(on_host).clone()
            }
        };
        drop(known);
        if let Some(on_host) = on_host {
            let key = on_host.key(agreement);
            on_host.begin(key, acknowledged, (flags, number));
            return Ok(BegunAgreement::OnHost(on_host, key));
        }
        let members = self.sorted_members();
        if members.len() == 1 {
            return Ok(BegunAgreement::Alone(Decision {
                dead: Vec::new(),
                acknowledged: true,
                flags,
                number,
            }));
        }
        let key = AgreementKey {
            context: self.context(),
            first: members.first().copied().unwrap_or(0),
            number: agreement,
        };
        let given = AgreementInput {
            key,
            acknowledged,
            members,
            flags,
            number,
        };
        if self.has_other_worlds() {
            let across = WorldsAgreement::new(self, &given);
            return Ok(BegunAgreement::AcrossWorlds(Box::new(across)));
        }
        let detector = detector.ok_or_else(|| {
            self.unsupported("has no agent that could decide: start the job by a launcher")
        })?;
        detector
            .contribute(given)
            .map_err(|text| Error::new(Class::Other, format!("{}: {text}", self.label())))?;
        Ok(BegunAgreement::ByAgents(detector.clone(), key))
    }

    /// The processes of both groups, each once, in order.
    fn sorted_members(&self) -> Vec<Peer> {
        let mut members = self.0.fault_members().peers();
        members.sort_unstable();
        members.dedup();
        members
    }

    fn shrinking(&self) -> Result<impl Future<Output = Result<Comm>> + Send + 'static> {
        // Refused at once where nobody can decide.
        let begun = self.context_agreement(0)?;
        let comm = self.clone();
        Ok(async move {
            let (lease, dead) = comm.agree_on_context(begun).await?;
            let living = |group: &Group| {
                Group::compact(
                    group
                        .members()
                        .filter(|peer| !dead.contains(peer))
                        .collect(),
                )
            };
            let local = living(&comm.0.local);
            let parts = comm.heir(local.clone());
            let Some(remote) = comm.0.remote.as_ref().map(living) else {
                return Ok(Comm::build(lease, parts));
            };
            let own = comm.0.local_comm.get().cloned();
            let own = own.ok_or_else(|| comm.error(Class::Intern, "has no local group's own"))?;
            let begun = own.context_agreement(0)?;
            let (own_lease, _) = own.agree_on_context(begun).await?;
            if remote.size() == 0 {
                let text = "has nobody left in its other group";
                return Err(comm.error(Class::ProcFailed, text));
            }
            let local_comm = Comm::build(own_lease, comm.heir(local));
            let remote = Some(remote);
            let made = Comm::build(lease, CommParts { remote, ..parts });
            made.keep_local(local_comm);
            Ok(made)
        })
    }

    /// Proposes a block of contexts of this number or above.
    fn context_agreement(&self, floor: u32) -> Result<ContextProposal> {
        let mine = self.0.process.contexts.reserve(floor);
        let number = mine.as_ref().map_or(NONE_LEFT, |lease| lease.block);
        let agreed = self.agreement(u32::MAX, number)?;
        Ok((mine, agreed))
    }

    /// Agrees on a block of contexts of all living members. Returns it with the dead members.
    async fn agree_on_context(
        &self,
        mut proposal: ContextProposal,
    ) -> Result<(ContextLease, Vec<Peer>)> {
        let contexts = &self.0.process.contexts;
        loop {
            let (mine, agreed) = proposal;
            let block = agreed.decision().await?.number;
            if block == NONE_LEFT {
                return Err(self.error(
                    Class::Other,
                    "cannot be shrunk: a process has too many communicators",
                ));
            }
            let lease: Option<ContextLease> = match mine {
                Some(lease) if lease.block == block => Some(lease),
                other => {
                    drop(other);
                    contexts.reserve_exactly(block)
                }
            };
            let all = self.agreement(u32::from(lease.is_some()), 0)?;
            let all = all.decision().await?;
            if let (Some(lease), 1) = (lease, all.flags & 1) {
                return Ok((lease, all.dead));
            }
            proposal = self.context_agreement(block + 1)?;
        }
    }
}

/// An own block of contexts, and the agreement in which it is proposed.
type ContextProposal = (Option<ContextLease>, BegunAgreement);

/// Proposed by a process that has too many communicators: above every block.
const NONE_LEFT: u32 = u32::MAX;

/// Returns the processes that are dead now: of the own world as its agent says, of other worlds, if
/// asked for, those that are not reached any more. For those who ask again and again: a death may
/// be missing for a moment.
pub(crate) fn dead_processes(process: &Process, of_other_worlds: bool) -> Vec<Peer> {
    let detector = process.config.faults.as_ref();
    let detector = detector.filter(|detector| detector.has_deaths());
    let mut dead = detector.map_or_else(Vec::new, |detector| detector.dead());
    dead.extend(lost_of_other_worlds(process, of_other_worlds));
    dead
}

/// Returns the processes of other worlds, if there are any, that are not reached any more.
fn lost_of_other_worlds(process: &Process, are_there: bool) -> Vec<Peer> {
    let world = process.host.world_size();
    let mut lost = match are_there {
        true => process.host.lost_peers(),
        false => Vec::new(),
    };
    lost.retain(|peer| *peer >= world);
    lost
}

/// Names the ranks of processes.
fn ranks_of(group: &Group, peers: &[Peer]) -> String {
    let ranks = peers.iter().filter_map(|peer| group.rank_of(*peer));
    let ranks: Vec<String> = ranks.map(|rank| rank.to_string()).collect();
    match &ranks[..] {
        [] => "members of the other group".into(),
        [rank] => format!("rank {rank}"),
        _ => format!("ranks {}", ranks.join(", ")),
    }
}
