//! The rank of the current context: joining and leaving the job, and the rank's engines.

use crate::call::{CallError, CallId, Result};
use crate::rank_context::RankContext;
use crate::{call_site, env, init_state, last_call, optional_checks, trace_calls};
use garonne_engine::api::{ContextId, Peer, shard_of};
use garonne_engine::observe::tracer::OperationTracer;
use garonne_job::agreement;
use garonne_job::layout::RankState;
use garonne_job::switch_groups;
use garonne_job::wait_report::PollSlot;
use garonne_links::agent_discovery::ProgramPosition;
use garonne_mpi::coll::SegmentAllocator;
use garonne_mpi::coll::SwitchTree;
use garonne_mpi::error::Class;
use garonne_mpi::group::Group;
use garonne_mpi::process::{self, FaultDetector, ProcessConfig, ThreadLevel};
use garonne_progress::messaging::Messaging;
use garonne_progress::world_connector::WorldConnector;
use garonne_rank::client::AgentClient;
use garonne_rank::{Rank, RankHost, RankShards, WorldConnections};
use garonne_sync::agreement_board::MemberState;
use garonne_sync::try_lock::SingleThreaded;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// The rank of a context with its engines, and what they share.
pub(crate) struct RankEngines {
    /// The engine of [`RankEngines::rank`], for calls that must be quick.
    host: AtomicPtr<RankHost>,
    /// All shards of the rank, where it has several; kept in [`RankEngines::rank`], too.
    shards: AtomicPtr<RankShards>,
    /// The rank, from its first use to the end of the process. A program may start anew after the
    /// last `MPI_Session_finalize`, and the other ranks still know this one by its place in the
    /// job.
    rank: Mutex<Option<Rank>>,
    /// The rank to become at the first use; `None`: the one that the environment names.
    given: Mutex<Option<Rank>>,
    /// Shared-memory segments of this rank for collectives, kept with the engine.
    segments: LazyLock<Arc<SegmentAllocator>>,
    /// A session was opened: sessions say nothing binding about threads, so locks stay locks.
    has_sessions: AtomicBool,
}

impl RankEngines {
    /// No engine yet. The first use makes it that of this rank, or for `None` that of the rank
    /// which the environment names.
    pub const fn new(given: Option<Rank>) -> Self {
        Self {
            host: AtomicPtr::new(std::ptr::null_mut()),
            shards: AtomicPtr::new(std::ptr::null_mut()),
            rank: Mutex::new(None),
            given: Mutex::new(given),
            segments: LazyLock::new(Arc::default),
            has_sessions: AtomicBool::new(false),
        }
    }

    /// The engine of the rank's first shard, once there is one.
    #[inline(always)]
    pub fn engine(&'static self) -> Option<&'static RankHost> {
        // SYNC(host): pairs with the publication in `join_job`.
        // SAFETY: null, or what `rank` holds, which is never taken out.
        unsafe { self.host.load(Ordering::Acquire).as_ref() }
    }

    fn rank(&self) -> MutexGuard<'_, Option<Rank>> {
        self.rank.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Becomes the rank that was given, or the one that the environment names.
    fn enter(&self) -> Result<Rank> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        match given.take() {
            Some(rank) => Ok(rank),
            None => Rank::enter().map_err(node_error),
        }
    }
}

#[inline(always)]
fn engines() -> &'static RankEngines {
    &RankContext::current().engines
}

/// The engine of this rank, once there is one.
#[inline(always)]
pub(crate) fn engine() -> Option<&'static RankHost> {
    engines().engine()
}

/// Returns whether this rank has several shards.
#[inline(always)]
pub(crate) fn has_shards() -> bool {
    !engines().shards.load(Ordering::Relaxed).is_null()
}

/// The engine of one of its shards, once that is open.
#[inline(always)]
pub(crate) fn engine_of_shard(shard: usize) -> Option<&'static RankHost> {
    if shard == 0 {
        engine()
    } else {
        shards()?.known(shard)
    }
}

/// The engine for messages in this context.
#[inline(always)]
pub(crate) fn engine_for(context: ContextId) -> Option<&'static RankHost> {
    if shard_of(context) == 0 {
        engine()
    } else {
        shards()?.engine_of(context).ok()
    }
}

#[inline]
fn shards() -> Option<&'static RankShards> {
    // SYNC(host): pairs with the publication in `join_job`.
    // SAFETY: null, or what the context's rank holds, which is never taken out.
    unsafe { engines().shards.load(Ordering::Acquire).as_ref() }
}

fn node_error(error: garonne_job::Error) -> CallError {
    let class = match error {
        garonne_job::Error::Resource { .. } => Class::NoMem,
        _ => Class::Other,
    };
    CallError::new(class, error.to_string())
}

/// Joins the job, or reuses the engine of an earlier use, and returns the rank's configuration. A
/// rank with `MPI_THREAD_MULTIPLE` has several shards.
pub(crate) fn join_job(level: ThreadLevel) -> Result<ProcessConfig> {
    optional_checks::read_env().map_err(|text| CallError::new(Class::Arg, text))?;
    let initial_errhandler = crate::errhandler::initial_from_env().map_err(node_error)?;
    let engines = engines();
    let mut kept = engines.rank();
    let rank = match &mut *kept {
        // Everything was finalized, and a session begins: until its end, too, an exit without
        // MPI_Finalize is a failure.
        Some(rank) => {
            rank.reenter().map_err(node_error)?;
            rank
        }
        None => kept.insert(engines.enter()?),
    };
    init_state::watch_forks();
    if let Some(client) = &rank.client {
        last_call::enable(client);
    }
    if let Some(tracer) = &rank.tracer {
        trace_calls::start(tracer);
    }
    let sharded = match level {
        ThreadLevel::Multiple => rank.with_shards(),
        _ => rank.shards().cloned(),
    };
    let host = rank.host.clone();
    if let Some(shards) = &sharded {
        // SYNC(host): publishes them.
        engines
            .shards
            .store(Arc::as_ptr(shards).cast_mut(), Ordering::Release);
    }
    // SYNC(host): publishes the engine.
    engines
        .host
        .store(Arc::as_ptr(&host).cast_mut(), Ordering::Release);
    // A process that a rank started is a world of its own, although it inherits the environment.
    let launched = rank.client.is_some();
    let hosts = rank.hosts.as_ref();
    let node = hosts.map_or_else(
        || Group::world(host.world_size()),
        |hosts| Group::compact(hosts.local_ranks.clone()),
    );
    let connector = connections_of(rank);
    let mut config = ProcessConfig::plain(match sharded {
        Some(shards) => shards,
        None => host.clone(),
    });
    if let (Some(client), Some(_)) = (&rank.client, hosts) {
        let client = client.clone();
        let size = client.world().size;
        config.node_of = Arc::new(move |peer| match peer < size {
            true => client.endpoint(peer).node(),
            // Of processes of other worlds nobody asks.
            false => u32::MAX,
        });
        config.switches = switches_of(rank);
    }
    if let Some(client) = rank.client.clone() {
        config.faults = Some(Arc::new(AgentDetector(client.clone())));
        config.receives_no_more = Arc::new(move |peer| receives_no_more(&client, peer));
    }
    Ok(ProcessConfig {
        node,
        appnum: ProgramPosition::from_env()
            .filter(|_| launched)
            .map(|place| place.index),
        // A job has exactly as many places as ranks.
        universe_size: launched.then(|| i32::try_from(host.world_size()).unwrap_or(i32::MAX)),
        processor_name: hosts.map_or_else(env::processor_name, |hosts| hosts.name.clone()),
        env: init_state::env_pairs(),
        call_name: |call| CallId(call).name(),
        site_name: call_site::describe_in,
        say: env::write_stderr,
        resources: env::resources,
        segments: engines.segments.clone(),
        initial_errhandler,
        connector,
        ..config
    })
}

/// The agent as detector of deaths.
struct AgentDetector(Arc<AgentClient>);

impl AgentDetector {
    fn key(&self, key: &process::AgreementKey) -> agreement::AgreementKey {
        agreement::AgreementKey {
            epoch: self.0.world().epoch,
            context: key.context,
            first: key.first,
            number: key.number,
        }
    }
}

impl FaultDetector for AgentDetector {
    fn survives(&self) -> bool {
        self.0.survives()
    }

    fn has_deaths(&self) -> bool {
        self.0.deaths() != 0
    }

    fn dead(&self) -> Vec<Peer> {
        // Not by the number of deaths: a rank's end is to be seen before it is counted.
        self.0.dead()
    }

    fn deaths(&self) -> u32 {
        self.0.deaths()
    }

    fn state(&self, peer: Peer) -> MemberState {
        match self.0.state_of(peer) {
            RankState::Gone => MemberState::Dead,
            RankState::Finalized => MemberState::Ended,
            RankState::Absent | RankState::Running => MemberState::Alive,
        }
    }

    fn contribute(&self, given: process::AgreementInput) -> std::result::Result<(), String> {
        let given = agreement::Contribution {
            key: self.key(&given.key),
            members: given.members,
            acknowledged: given.acknowledged,
            flags: given.flags,
            number: given.number,
        };
        self.0.agree(given).map_err(|error| error.to_string())
    }

    fn take_decision(&self, key: &process::AgreementKey) -> Option<process::Decision> {
        let decision = self.0.take_decision(&self.key(key))?;
        Some(process::Decision {
            dead: decision.dead,
            acknowledged: decision.acknowledged,
            flags: decision.flags,
            number: decision.number,
        })
    }
}

/// Which hosts of the job share a switch, as the launcher says alike to all ranks.
fn switches_of(rank: &Rank) -> Option<Arc<SwitchTree>> {
    let hosts = rank.client.as_ref()?.world().nodes;
    let (group_of, above) = switch_groups::from_environment(hosts)?;
    SwitchTree::new(group_of, above).map(Arc::new)
}

/// Returns the rank's connections to other worlds; `None`: it can have none.
fn connections_of(rank: &Rank) -> Option<Arc<dyn WorldConnector>> {
    let job = rank.client.as_ref().map(|client| {
        let world = client.world();
        (world.job.0.to_ne_bytes(), world.epoch)
    });
    let survives = rank.client.as_ref().is_some_and(|client| client.survives());
    let connections = WorldConnections::new(rank.host.clone(), job, survives).ok()?;
    Some(Arc::new(connections))
}

/// Returns the reason why a peer will receive nothing more, or `None` if it may. A peer that sleeps
/// in `MPI_Finalize` may still be sent to, but starts no receive.
fn receives_no_more(client: &AgentClient, peer: Peer) -> Option<&'static str> {
    if peer >= client.world().size {
        // Of another world: only its connection tells.
        return None;
    }
    match client.state_of(peer) {
        RankState::Finalized => Some("has called MPI_Finalize"),
        RankState::Gone => Some("has ended"),
        RankState::Absent => None,
        RankState::Running => {
            let sleeps = client
                .rank_block(peer)
                .wait()
                .is_some_and(|wait| wait.call != 0);
            let last =
                CallId::named("MPI_Finalize").filter(|finalize| client.last_call(peer, finalize.0));
            (sleeps && last.is_some()).then_some("waits in MPI_Finalize itself")
        }
    }
}

/// Passes the world model's thread level to the engine. Below `MPI_THREAD_MULTIPLE` the engine's
/// locks cost nothing.
pub(crate) fn set_thread_level(level: ThreadLevel) {
    let engines = engines();
    if level == ThreadLevel::Multiple || engines.has_sessions.load(Ordering::Relaxed) {
        return;
    }
    if let Some(rank) = &*engines.rank() {
        // SAFETY: the program asked for a level at which it promises that its calls do not overlap;
        // before a session, which may bring threads of its own, the promise is taken back.
        rank.host.elide(unsafe { SingleThreaded::promise() });
    }
}

/// Makes the engine's locks effective before a session is used.
pub(crate) fn share_engine() {
    let engines = engines();
    if !engines.has_sessions.swap(true, Ordering::Relaxed)
        && let Some(rank) = &*engines.rank()
    {
        rank.host.share();
    }
}

/// Returns a place for the calling thread to show what it polls for. `None` if there is none left,
/// if nobody looks at this rank, or while another thread joins or leaves the job.
pub(crate) fn poll_slot() -> Option<PollSlot> {
    engines().rank.try_lock().ok()?.as_ref()?.poll_slot()
}

/// Sends all pending messages, and tells the agent that this process may exit at any time.
pub(crate) fn leave_job() -> Result<()> {
    let rank = engines().rank();
    rank.as_ref()
        .map_or(Ok(()), |rank| rank.leave().map_err(node_error))
}

/// Sets the tracer that sees the engine's operations; `None` removes it.
pub(crate) fn set_watcher(watcher: Option<Arc<dyn OperationTracer>>) {
    let rank = engines().rank();
    match rank.as_ref().map(|rank| (rank, rank.shards())) {
        Some((_, Some(shards))) => shards.watch(watcher),
        Some((rank, None)) => rank.host.watch(watcher),
        None => {}
    }
}
