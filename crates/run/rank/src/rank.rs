//! Brings up the engine of this process: in the job it was started in, or as a world of one.
//!
//! Owned by the C edge, which enters once and leaves once per process. What the shared-memory
//! transport and the engine's host need to know of their surroundings (inboxes, doorbells,
//! patience, how to end the job) is answered here from the [`AgentClient`]; a world of one answers
//! it from plain memory and never meets an agent.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use garonne_engine::CreditQuotas;
use garonne_engine::api::{Error as EngineError, Peer};
use garonne_engine::engine::Engine;
use garonne_engine::schedule::builtin::BuiltinStrategy;
use garonne_engine::schedule::plugin::CheckedPlugin;
use garonne_multi::MultiTransport;
use garonne_progress::environment::SpinBudget;
use garonne_progress::locked_engine::LockedEngine;
use garonne_progress::messaging::Waiting;
use garonne_progress::tasks;
use garonne_shm::cost_model::CostModel;
use garonne_shm::{ShmTransport, ThreadPeers};
use garonne_topology::CpuSet;
use garonne_topology::machine::allowed;

use crate::client::{AgentClient, WorldInfo};
use crate::crash;
use crate::environment::{PublishedState, RankEnvironment};
use crate::flight_recorder;
use crate::idle_cores::IdleCores;
use crate::node_peers::SegmentPeers;
use crate::remote_hosts;
use crate::shards::{RankShards, ShardFactory};
use crate::strategy::StrategyModule;
use crate::trace_recorder::TraceRecorder;
use crate::transport_modules::TransportModules;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::layout::{ActiveStrategy, AsyncProgressState, RankState};
use garonne_job::limits;
use garonne_job::settings::async_progress::{AsyncProgressSetting, async_progress_setting};
use garonne_job::settings::bulk_transports;
use garonne_job::settings::strategy::StrategyChoice;
use garonne_job::wait_report::{PollSlot, WaitReport};
use garonne_links::agent_discovery::ENV_HELPERS;

/// The engine of a rank of this node, as the layers above use it.
pub type RankHost = LockedEngine<MultiTransport, RankEnvironment>;

/// A process that has become a rank.
pub struct Rank {
    /// Engine of the rank.
    pub host: Arc<RankHost>,
    /// Connection to the agent; `None` in a world of one that nobody launched.
    pub client: Option<Arc<AgentClient>>,
    /// Recorder of calls while somebody traces the job; `None` without a job.
    pub tracer: Option<Arc<TraceRecorder>>,
    /// The hosts of a job on several.
    pub hosts: Option<JobHosts>,
    /// Factory of further shards, until they are made.
    further: Option<ShardFactory>,
    shards: Option<Arc<RankShards>>,
    /// What the rank shows of its waits; `None` without a job.
    wait_report: Option<&'static WaitReport>,
    /// Modules around the transports of all shards.
    modules: Arc<TransportModules>,
    /// The strategy that was loaded, whose counts others look at.
    _loaded: Option<Arc<CheckedPlugin>>,
}

/// Facts about the hosts of a job on several, as a rank knows them.
#[derive(Clone, Debug)]
pub struct JobHosts {
    /// The ranks that share this one's node, itself included, in order.
    pub local_ranks: Vec<u32>,
    /// The name of this rank's host, which no other of the job has.
    pub name: String,
}

impl Rank {
    /// Joins the job that the environment names, or starts a world of one.
    pub fn enter() -> Result<Self> {
        match AgentClient::from_env()? {
            Some(client) => Self::enter_job(Arc::new(client)),
            None => {
                warn_of_unknown_settings();
                Self::enter_singleton()
            }
        }
    }

    /// Returns the strategy of the window: when and in which order messages leave, and how large
    /// data are split.
    fn strategy(world: u32) -> Result<(BuiltinStrategy, Option<Arc<CheckedPlugin>>)> {
        Ok(match StrategyChoice::from_environment()? {
            StrategyChoice::BuiltIn(one) => (one, None),
            StrategyChoice::Module(path) => {
                let module = Box::new(StrategyModule::open(&path)?);
                (
                    BuiltinStrategy::default(),
                    Some(Arc::new(CheckedPlugin::new(module, world))),
                )
            }
        })
    }

    fn enter_job(client: Arc<AgentClient>) -> Result<Self> {
        let world = client.world();
        let (built_in, loaded) = Self::strategy(world.size)?;
        let modules = Arc::new(TransportModules::from_environment()?);
        let wish = async_progress_setting()?;
        crash::watch(&client)?;
        let mut transport =
            ShmTransport::new(Arc::new(SegmentPeers::new(client.clone()))).map_err(no_transport)?;
        let outward = remote_hosts::RemoteHosts::new(&client, built_in)?;
        if let Some(costs) = CostModel::load() {
            costs.apply();
            transport.begin_with(&costs);
        }
        let shown = Arc::new(PublishedState::new(client.clone()));
        let wait_report = shown.book();
        let tracer = Arc::new(TraceRecorder::new(client.clone(), wait_report));
        client
            .rank_block(world.rank)
            .set_wait_report(wait_report.address());
        tracer.publish_program();
        let helpers = std::env::var(ENV_HELPERS).ok();
        let helpers = helpers.and_then(|cpus| CpuSet::parse(&cpus));
        let place = RankEnvironment {
            shard: 0,
            shown: Some(shown),
            tracer: Some(tracer.clone()),
            patience: patience(world.oversubscribed(), world.nodes > 1, awake(&world)),
            lends_always: wish == AsyncProgressSetting::Always,
            grace: match wish {
                AsyncProgressSetting::Always => None,
                _ => grace(
                    u64::from(world.here) * u64::from(computing_threads()),
                    world.cpus_milli,
                ),
            },
            idle: match world.nodes {
                1 => IdleCores::of(
                    (world.here, computing_threads()),
                    world.cpus_milli,
                    helpers.as_ref(),
                    &allowed(),
                ),
                // A look at the sockets costs more than one at memory.
                _ => None,
            },
        };
        client
            .rank_block(world.rank)
            .set_protocol_tuner(transport.tuners_at() as u64);
        let (transport, hosts) = match outward {
            None => (MultiTransport::of_node(transport), None),
            Some(mut outward) => {
                let hosts = outward.hosts;
                if let Some(loaded) = &loaded {
                    outward.transport.consult(loaded.clone());
                }
                client
                    .rank_block(world.rank)
                    .set_remote_links(outward.transport.shown_at() as u64);
                let mut transport =
                    MultiTransport::new(transport, outward.transport, outward.local_ranks);
                transport.join(outward.local_tcp);
                if let Some(ethernet) = outward.ethernet {
                    client
                        .rank_block(world.rank)
                        .set_ethernet_peers(ethernet.shown_at() as u64);
                    transport.add_ethernet(ethernet);
                }
                transport.watch_from(helpers.clone().unwrap_or_else(allowed).iter());
                (transport, (world.nodes > 1).then_some(hosts))
            }
        };
        let transport = modules.around(transport, (world.rank, 0, world.size))?;
        let mut shard = Engine::new(
            transport,
            world.rank,
            world.size,
            CreditQuotas::for_world(world.size),
        );
        if let Some(area) = flight_recorder::area_of(&client)? {
            shard.record_in(area);
        }
        shard.set_order(built_in.ordering());
        if let Some(loaded) = &loaded {
            shard.set_plugin(loaded.clone());
        }
        let followed = loaded.as_ref().map_or_else(
            || ActiveStrategy::BuiltIn(built_in),
            |loaded| ActiveStrategy::Module(loaded.at() as u64),
        );
        client.rank_block(world.rank).set_strategy(followed);
        shard.set_tally(client.rank_block(world.rank).sent_totals());
        client
            .rank_block(world.rank)
            .set_counters(shard.counters_address() as u64);
        client
            .rank_block(world.rank)
            .set_event_ring(shard.events().address() as u64);
        let further = ShardFactory::new(
            Some(client.clone()),
            place.clone(),
            (built_in, loaded.clone()),
            modules.clone(),
        )?;
        let host = Arc::new(LockedEngine::new(shard, world.rank, world.size, place));
        // Cores to spare, that is; where there are none, workers stay with their rank.
        if let Some(spare) = helpers.as_ref().filter(|cpus| !cpus.meets(&allowed())) {
            tasks::offer(spare.clone());
        }
        if wish != AsyncProgressSetting::Off {
            host.enable_async_progress(helpers);
        } else {
            client
                .rank_block(world.rank)
                .set_async_progress(AsyncProgressState::Off);
        }
        Ok(Self {
            host,
            client: Some(client),
            tracer: Some(tracer),
            hosts,
            further: Some(further),
            shards: None,
            wait_report: Some(wait_report),
            modules,
            _loaded: loaded,
        })
    }

    /// Returns a place for the calling thread to show what it polls for; `None` if there is none
    /// left, or nobody looks at this rank.
    pub fn poll_slot(&self) -> Option<PollSlot> {
        PollSlot::take(self.wait_report?)
    }

    /// Makes a world of its own of this many ranks, which are threads of this process. They reach
    /// each other through memory of the process, and have no agent.
    ///
    /// # Errors
    /// Fails without memory, or if the environment has a wrong setting.
    pub fn world_of_threads(ranks: u32) -> Result<Vec<Self>> {
        let (built_in, loaded) = Self::strategy(ranks)?;
        let modules = Arc::new(TransportModules::from_environment()?);
        bulk_transports::BulkTransports::from_environment()?;
        let crowded = ranks as usize > allowed().iter().count();
        let threads = ThreadPeers::new(ranks).map_err(no_transport)?.into_iter();
        let rank = |(me, neighbours)| {
            let transport = ShmTransport::new(Arc::new(neighbours)).map_err(no_transport)?;
            let place = RankEnvironment {
                shard: 0,
                shown: None,
                tracer: None,
                patience: patience(crowded, false, 1),
                lends_always: false,
                grace: None,
                idle: None,
            };
            let transport = MultiTransport::of_node(transport);
            let transport = modules.around(transport, (me, 0, ranks))?;
            let quotas = CreditQuotas::for_world(ranks);
            let mut engine = Engine::new(transport, me, ranks, quotas);
            // A lone rank has nobody to send anything to; a setting that is wrong is one all the
            // same.
            if ranks > 1 {
                engine.set_order(built_in.ordering());
                if let Some(loaded) = &loaded {
                    engine.set_plugin(loaded.clone());
                }
            }
            // The memory that several ranks share has room for one inbox of each.
            let strategy = (built_in, loaded.clone());
            let further = (ranks == 1)
                .then(|| ShardFactory::new(None, place.clone(), strategy, modules.clone()));
            Ok(Self {
                host: Arc::new(LockedEngine::new(engine, me, ranks, place)),
                client: None,
                tracer: None,
                hosts: None,
                further: further.transpose()?,
                shards: None,
                wait_report: None,
                modules: modules.clone(),
                _loaded: loaded.clone(),
            })
        };
        (0..ranks).zip(threads).map(rank).collect()
    }

    fn enter_singleton() -> Result<Self> {
        let alone = Self::world_of_threads(1)?.pop();
        alone.ok_or(Error::resource(
            codes::G0304,
            "no memory for a world of one",
        ))
    }

    /// Sends what is still queued (the last words about finished messages) and tells the agent that
    /// this rank is done; afterwards the process may end as it likes. What goes to other hosts has
    /// reached them then. Ranks that have left before make no room in their inboxes and want
    /// nothing: what did not fit there is not waited for.
    pub fn leave(&self) -> Result<()> {
        let mut looks = 0;
        while self.has_work() {
            if self.progress() {
                looks = 0;
                continue;
            }
            self.inspect(&mut |shard| shard.defer_control(|peer| self.has_left(peer)));
            // Others make room when they call MPI next, which may be after a long computation.
            looks += 1;
            if looks > limits::EXIT_CHECKS {
                std::thread::sleep(limits::EXIT_CHECK);
            }
        }
        // Bridges to other worlds that are still open say goodbye: what was sent arrives.
        let bridges = self.host.inspect(|shard| shard.transport().take_bridges());
        drop(bridges);
        while self.hosts.is_some() && self.has_unacknowledged() {
            self.host.progress();
            std::thread::sleep(limits::EXIT_CHECK);
        }
        self.host.stop_async_progress();
        self.modules.leave();
        self.client
            .as_ref()
            .map_or(Ok(()), |client| client.finalized())
    }

    /// The rank with one shard for each of several threads' communicators, from now on; `None`: it
    /// can have no more than one.
    pub fn with_shards(&mut self) -> Option<Arc<RankShards>> {
        if let Some(further) = self.further.take() {
            self.shards = further.around(self.host.clone());
        }
        self.shards.clone()
    }

    /// Returns the rank's shards, if [`Rank::with_shards`] has made them.
    pub fn shards(&self) -> Option<&Arc<RankShards>> {
        self.shards.as_ref()
    }

    fn has_work(&self) -> bool {
        match &self.shards {
            Some(shards) => shards.has_work(),
            None => self.host.has_work(),
        }
    }

    fn progress(&self) -> bool {
        match &self.shards {
            Some(shards) => shards.progress(),
            None => self.host.progress(),
        }
    }

    fn inspect(&self, f: &mut dyn FnMut(&mut Engine<MultiTransport>)) {
        match &self.shards {
            Some(shards) => shards.inspect(f),
            None => self.host.inspect(f),
        }
    }

    /// Returns whether a rank of another host that has not ended still waits for something that has
    /// not left this process's host.
    fn has_unacknowledged(&self) -> bool {
        let Some(client) = &self.client else {
            return false;
        };
        let owed = self.host.inspect(|shard| shard.transport().owed());
        let size = client.world().size;
        owed.iter().filter(|peer| **peer < size).any(|peer| {
            matches!(
                client.state_of(*peer),
                RankState::Absent | RankState::Running
            )
        })
    }

    /// Returns whether a rank is done with MPI, for now or for ever.
    fn has_left(&self, peer: Peer) -> bool {
        let client = self.client.as_ref();
        client.is_some_and(|client| {
            let is_own = peer < client.world().size;
            is_own
                && matches!(
                    client.state_of(peer),
                    RankState::Finalized | RankState::Gone
                )
        })
    }

    /// Tells the agent that this rank, after [`Rank::leave`], is in use again.
    pub fn reenter(&self) -> Result<()> {
        self.inspect(&mut |shard| shard.resume_control());
        self.client
            .as_ref()
            .map_or(Ok(()), |client| client.resumed())
    }
}

/// Warns of unknown settings in a world of one that nobody has started: a launcher would have
/// warned.
fn warn_of_unknown_settings() {
    if std::env::var_os(garonne_links::agent_discovery::ENV_JOB).is_none() {
        for line in garonne_job::settings::unknown(std::env::vars_os().map(|(name, _)| name)) {
            // A stream that is closed hears nothing.
            let _ = writeln!(std::io::stderr(), "garonne: {line}");
        }
    }
}

/// Threads of each rank that compute, as far as its environment says so.
fn computing_threads() -> u32 {
    let said = std::env::var("OMP_NUM_THREADS").unwrap_or_default();
    let first = said
        .split(',')
        .next()
        .and_then(|first| first.trim().parse().ok());
    first.unwrap_or(1).max(1)
}

/// Returns how long what a rank left open is left to it where its ranks' threads leave no core to
/// the progress thread: longer where more ranks share a core, so that all progress threads together
/// look as often.
fn grace(threads: u64, cpus_milli: u32) -> Option<Duration> {
    let (wanted, there) = (threads * 1000, u64::from(cpus_milli.max(1)));
    let share = wanted.div_ceil(there).clamp(1, limits::GRACES_MAX);
    (wanted + 1000 > there).then(|| limits::GRACE * share as u32)
}

fn no_transport(error: EngineError) -> Error {
    Error::resource(
        codes::G0304,
        format!("cannot set up the shared-memory transport: {error:?}"),
    )
}

/// `far`: messages come from other hosts, too.
fn patience(oversubscribed: bool, far: bool, awake: u32) -> SpinBudget {
    let (spins, yields) = match (oversubscribed, far) {
        (true, _) => (0, limits::YIELDS_CROWDED),
        (false, true) => (limits::SPINS_REMOTE, 0),
        (false, false) => (limits::SPINS, 0),
    };
    SpinBudget {
        spins,
        yields,
        spinners: awake,
    }
}

/// Threads of a rank that may wait awake at once: its share of the cores, as far as it may use
/// them.
fn awake(world: &WorldInfo) -> u32 {
    let share = world.cpus_milli / 1000 / world.here.max(1);
    share.min(allowed().iter().count() as u32).max(1)
}

/// This host's clock, CLOCK_MONOTONIC in nanoseconds: what ranks show of themselves is dated by it.
pub fn clock_ns() -> u64 {
    garonne_links::sys::monotonic_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_are_called_at_once_only_where_a_core_is_left_and_look_as_often_together_however_many_share_one()
     {
        assert_eq!(grace(2, 3000), None);
        assert_eq!(grace(2, 2999), Some(limits::GRACE));
        assert_eq!(grace(2, 2000), Some(limits::GRACE));
        assert_eq!(grace(64, 2000), Some(32 * limits::GRACE));
        assert_eq!(
            grace(100_000, 500),
            Some(limits::GRACES_MAX as u32 * limits::GRACE)
        );
    }
}
