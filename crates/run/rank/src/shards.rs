//! The further shards of a rank of several threads: what opens them, and which processes have any.
//!
//! Each is an engine of its own with an inbox and a bell of its own in the world's memory. Between
//! hosts there are none: ranks of a job on several have one connection to each peer.

use crate::client::AgentClient;
use crate::environment::RankEnvironment;
use crate::node_peers::SegmentPeers;
use crate::rank::RankHost;
use crate::transport_modules::TransportModules;
use garonne_engine::CreditQuotas;
use garonne_engine::api::{Error as EngineError, SHARDS_MAX};
use garonne_engine::engine::Engine;
use garonne_engine::schedule::builtin::BuiltinStrategy;
use garonne_engine::schedule::plugin::CheckedPlugin;
use garonne_job::error::Result;
use garonne_job::settings::shards::wished;
use garonne_multi::MultiTransport;
use garonne_progress::sharded::{ShardOpener, ShardedEngine};
use garonne_shm::cost_model::CostModel;
use garonne_shm::{NodePeers, ShmTransport, ThreadPeers};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A rank of several threads, as the layers above use it.
pub type RankShards = ShardedEngine<MultiTransport, RankEnvironment>;

/// Arguments from which the further shards of a rank are made.
pub(crate) struct ShardFactory {
    client: Option<Arc<AgentClient>>,
    place: RankEnvironment,
    built_in: BuiltinStrategy,
    loaded: Option<Arc<CheckedPlugin>>,
    modules: Arc<TransportModules>,
    most: usize,
    /// Shards whose inbox found no room, one bit each: others were told, so it stays so.
    closed: AtomicU32,
}

impl ShardFactory {
    /// For the shards of this process.
    ///
    /// # Errors
    /// `Misuse` if the environment wishes for what there is not.
    pub(crate) fn new(
        client: Option<Arc<AgentClient>>,
        place: RankEnvironment,
        (built_in, loaded): (BuiltinStrategy, Option<Arc<CheckedPlugin>>),
        modules: Arc<TransportModules>,
    ) -> Result<Self> {
        Ok(Self {
            client,
            place,
            built_in,
            loaded,
            modules,
            most: wished()?,
            closed: AtomicU32::new(0),
        })
    }

    /// The rank with all its shards; `None`: it can have no more than one.
    pub(crate) fn around(self, first: Arc<RankHost>) -> Option<Arc<RankShards>> {
        let count = self
            .client
            .as_ref()
            .map_or(SHARDS_MAX, |client| client.shards() as usize)
            .min(self.most);
        let open: ShardOpener<_, _> = Box::new(move |shard| self.open(shard));
        (count > 1).then(|| ShardedEngine::new(first, count, open))
    }

    fn open(
        &self,
        shard: usize,
    ) -> std::result::Result<(Engine<MultiTransport>, RankEnvironment), EngineError> {
        let place = RankEnvironment {
            shard,
            ..self.place.clone()
        };
        let Some(client) = &self.client else {
            let memory = ThreadPeers::new(1)?.pop();
            let memory = memory.ok_or(EngineError::Resource("no memory for a shard"))?;
            let transport = MultiTransport::of_node(transport(Arc::new(memory))?);
            let transport = self.through_modules(transport, (0, shard as u32, 1))?;
            let quotas = CreditQuotas::for_world(1);
            return Ok((Engine::new(transport, 0, 1, quotas), place));
        };
        let world = client.world();
        let number = shard as u32;
        const NO_ROOM: EngineError = EngineError::Resource("cannot map the inbox of a shard");
        if self.closed.load(Ordering::Relaxed) & 1 << number != 0 {
            return Err(NO_ROOM);
        }
        let neighbours = SegmentPeers::in_shard(client.clone(), number).map_err(|_| {
            self.closed.fetch_or(1 << number, Ordering::Relaxed);
            NO_ROOM
        })?;
        let transport = MultiTransport::of_node(transport(Arc::new(neighbours))?);
        let transport = self.through_modules(transport, (world.rank, number, world.size))?;
        let mut engine = Engine::new(
            transport,
            world.rank,
            world.size,
            CreditQuotas::for_world(world.size),
        );
        engine.set_order(self.built_in.ordering());
        if let Some(loaded) = &self.loaded {
            engine.set_plugin(loaded.clone());
        }
        if let Some(card) = client.shard_block(number, world.rank) {
            engine.set_tally(card.sent_totals());
            card.set_counters(engine.counters_address() as u64);
        }
        Ok((engine, place))
    }

    /// Puts the rank's modules around the transport of a shard: rank, shard, ranks of the world.
    fn through_modules(
        &self,
        transport: MultiTransport,
        of: (u32, u32, u32),
    ) -> std::result::Result<MultiTransport, EngineError> {
        const REFUSED: EngineError =
            EngineError::Misuse("a transport module makes no transport for a further shard");
        self.modules.around(transport, of).map_err(|_| REFUSED)
    }
}

fn transport(neighbours: Arc<dyn NodePeers>) -> std::result::Result<ShmTransport, EngineError> {
    let mut transport = ShmTransport::new(neighbours)?;
    if let Some(costs) = CostModel::load() {
        transport.begin_with(&costs);
    }
    Ok(transport)
}
