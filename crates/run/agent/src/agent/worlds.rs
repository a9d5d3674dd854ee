//! Worlds: the shared memory that the ranks of one generation of MPI processes get, and what they
//! exchange through their agent.
//!
//! A world is made when the first of its ranks registers; on a host without ranks, when a tool
//! looks at it. A script that runs MPI programs one after the other has several.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::{Relaxed, Release};

use garonne_engine::api::SHARDS_MAX;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::layout::{self, RankBlock, RankEndpoint, RankState, ShardBlock, WorldShape};
use garonne_job::limits;
use garonne_job::rank_messages::LauncherMessage;
use garonne_job::settings::survive;
use garonne_links::{memory_file, sys};
use garonne_sync::doorbell::Doorbell;
use garonne_sync::shm::Segment;
use rustix::net::SendFlags;

use super::context::Context;

/// Shards that each rank of a world may have. Only addresses are spent on those that nobody uses;
/// on several hosts the memory of each has addresses for all ranks of the job.
fn shards(ranks: u32, nodes: u32, survives: bool) -> u32 {
    match nodes {
        // One engine per rank hears of deaths and revocations.
        1 if !survives => (limits::INBOXES / ranks).clamp(1, SHARDS_MAX as u32),
        _ => 1,
    }
}

/// Shared memory of one generation of MPI processes, and what they exchange.
#[derive(Debug)]
pub(super) struct World {
    shape: WorldShape,
    file: OwnedFd,
    world_memory: Segment,
    /// Version of the library that its ranks have loaded.
    version: String,
    /// Rank that registered first.
    creator: u32,
    /// Registered processes that wait in the fence.
    in_fence: Vec<u32>,
    store: HashMap<String, Vec<u8>>,
    /// Registered processes that wait for a value, and its key.
    waiting: Vec<(u32, String)>,
}

impl World {
    /// Makes the memory of a world; its rank `creator` has loaded the library's `version`.
    ///
    /// # Errors
    /// There have been too many worlds, or there is no memory for it.
    fn new(ctx: &Context<'_>, epoch: u32, version: &str, creator: u32) -> Result<Self> {
        if epoch >= limits::WORLDS_MAX {
            return Err(Error::resource(
                codes::G0302,
                format!("this job has started {epoch} worlds of MPI programs already"),
            ));
        }
        let (job, host_table) = (ctx.job, ctx.hosts.table());
        let beside = job.ranks_of(ctx.node).len() as u32;
        let (size, nodes) = (job.size(), job.nodes.names.len().max(1) as u32);
        let survives = survive::of(job);
        let shape = WorldShape {
            job: ctx.id,
            epoch,
            size,
            // Ranks of other hosts lend nothing here.
            coll_bytes: job
                .coll_bytes
                .min(u64::from(beside.max(1)) * limits::COLL_BYTES_PER_RANK),
            inbox_bytes: garonne_shm::inbox_bytes(beside) as u64,
            shards: shards(size, nodes, survives),
            cpus_milli: job.placement.cpus_milli,
            bound: !job.placement.masks.is_empty(),
            nodes,
            node: ctx.node,
            hosts_bytes: host_table.len() as u64,
        };
        let (file, world_memory) = memory_file::create(&shape)?;
        memory_file::write_host_table(file.as_fd(), &shape, &host_table)?;
        if survives {
            layout::faults(&world_memory).store(layout::SURVIVES, Relaxed);
        }
        if job.traced {
            // For ever: whoever reads ends with the job.
            layout::trace_until(&world_memory).store(u64::MAX, Relaxed);
            world_memory
                .atomic_u32(layout::TRACE_WORD)
                .store(1, Relaxed);
        }
        // Of other hosts the launcher reads nothing itself.
        if job.traced && !ctx.is_child() && beside > 0 {
            let message = LauncherMessage::NewWorld.encode();
            sys::send(
                ctx.launcher_socket.as_fd(),
                &message,
                &[file.as_fd()],
                SendFlags::empty(),
            )
            .map_err(|error| {
                Error::system(codes::G0209, "cannot hand a world to the launcher", error)
            })?;
        }
        Ok(Self {
            shape,
            file,
            world_memory,
            version: version.to_owned(),
            creator,
            in_fence: vec![],
            store: HashMap::new(),
            waiting: vec![],
        })
    }

    /// Returns the shape of the memory.
    pub fn shape(&self) -> &WorldShape {
        &self.shape
    }

    /// Returns the memory file.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Returns the board: header and rank blocks.
    pub fn world_memory(&self) -> &Segment {
        &self.world_memory
    }

    /// Returns the version of the library that its ranks have loaded, and the rank that registered
    /// first.
    pub fn version(&self) -> (&str, u32) {
        (&self.version, self.creator)
    }

    /// Returns the block of a rank.
    pub fn rank_block(&self, rank: u32) -> RankBlock {
        RankBlock::of(&self.world_memory, rank)
    }

    /// A decision was sent to a rank of this host, which may sleep.
    pub fn count_decision(&self, rank: u32) {
        let block = self.rank_block(rank);
        // SYNC(decisions): the rank reads its socket once it sees another number (Acquire).
        block.decisions().fetch_add(1, Release);
        self.ring(rank);
    }

    /// Rings the doorbells of a rank of this host.
    fn ring(&self, rank: u32) {
        Doorbell::new(self.rank_block(rank).doorbell()).ring_fenced();
        for shard in 1..self.shape.shards {
            if let Some(block) = ShardBlock::of(&self.world_memory, &self.shape, shard, rank) {
                Doorbell::new(block.doorbell()).ring_fenced();
            }
        }
    }

    /// Stores a value, unless its key has one. Returns the processes that waited for it.
    pub fn put(&mut self, key: String, value: Vec<u8>) -> Vec<u32> {
        let (ready, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(_, wanted)| *wanted == key);
        self.waiting = waiting;
        self.store.entry(key).or_insert(value);
        ready.into_iter().map(|(process, _)| process).collect()
    }

    /// Returns the value of a key; the process waits if there is none.
    pub fn get(&mut self, process: u32, key: String) -> Option<Vec<u8>> {
        let value = self.store.get(&key).cloned();
        if value.is_none() {
            self.waiting.push((process, key));
        }
        value
    }

    /// Lets a process wait in the fence. Returns all that waited once the last one has come.
    pub fn fence(&mut self, process: u32) -> Vec<u32> {
        self.in_fence.push(process);
        match self.in_fence.len() == self.shape.size as usize {
            true => std::mem::take(&mut self.in_fence),
            false => Vec::new(),
        }
    }

    fn show_end_elsewhere(&self, rank: u32) {
        RankEndpoint::of(&self.world_memory, &self.shape, rank).set_ended();
    }

    fn show_death(&self, ctx: &Context<'_>, rank: u32) {
        match ctx.is_here(rank) {
            true if self.rank_block(rank).state() == RankState::Finalized => return,
            true => self.rank_block(rank).set_state(RankState::Gone),
            false => RankEndpoint::of(&self.world_memory, &self.shape, rank).set_died(),
        }
        // SYNC(faults): ranks look at states once they see another number (Acquire).
        layout::faults(&self.world_memory).fetch_add(layout::ONE_DEATH, Release);
        for other in 0..self.shape.size {
            if ctx.is_here(other) && self.rank_block(other).state() == RankState::Running {
                self.ring(other);
            }
        }
    }

    /// Wakes ranks that sleep and have not said what they wait for: a rank says it only when it
    /// goes back to sleep, so that short waits do not pay for it.
    pub fn reset_absence(&self) {
        for rank in 0..self.shape.size {
            let card = self.rank_block(rank);
            if card.state() == RankState::Running
                && card.wait().is_some_and(|wait| wait.since_ns == 0)
            {
                Doorbell::new(card.doorbell()).ring_fenced();
                for shard in 1..self.shape.shards {
                    if let Some(card) = ShardBlock::of(&self.world_memory, &self.shape, shard, rank)
                    {
                        Doorbell::new(card.doorbell()).ring_fenced();
                    }
                }
            }
        }
    }
}

/// Worlds of the job, by their numbers.
///
/// Owned by the agent. [`add`](Self::add) makes the next one when its first rank registers; worlds
/// stay to the end of the job.
#[derive(Debug, Default)]
pub(super) struct Worlds {
    worlds: Vec<World>,
    /// Ranks of other hosts that have ended well: a world that is made later shows them too.
    ended_elsewhere: Vec<u32>,
}

impl Worlds {
    /// Makes the world of this number, which is the next. It shows the ranks that are `dead`.
    ///
    /// # Errors
    /// See [`World::new`].
    pub fn add(
        &mut self,
        ctx: &Context<'_>,
        (epoch, version, creator): (u32, &str, u32),
        dead: impl Iterator<Item = u32>,
    ) -> Result<&World> {
        let world = World::new(ctx, epoch, version, creator)?;
        let nodes = (0..ctx.job.size()).map(|rank| ctx.job.nodes.of(rank));
        ctx.hosts
            .publish((&world.world_memory, &world.shape), nodes);
        let ended = self.ended_elsewhere.iter();
        ended.for_each(|rank| world.show_end_elsewhere(*rank));
        dead.filter(|rank| *rank < ctx.job.size())
            .for_each(|rank| world.show_death(ctx, rank));
        self.worlds.push(world);
        Ok(&self.worlds[self.worlds.len() - 1])
    }

    /// Number of worlds.
    pub fn len(&self) -> usize {
        self.worlds.len()
    }

    /// Returns whether no rank has registered yet.
    pub fn is_empty(&self) -> bool {
        self.worlds.is_empty()
    }

    /// Returns the newest world.
    pub fn newest(&self) -> Option<&World> {
        self.worlds.last()
    }

    /// Returns a world by its number.
    pub fn get(&self, epoch: u32) -> Option<&World> {
        self.worlds.get(epoch as usize)
    }

    /// Returns a world by its number, to exchange values.
    pub fn get_mut(&mut self, epoch: u32) -> Option<&mut World> {
        self.worlds.get_mut(epoch as usize)
    }

    /// Boards of all worlds.
    pub fn world_memories(&self) -> impl Iterator<Item = &Segment> {
        self.worlds.iter().map(World::world_memory)
    }

    /// Shows this host's ranks that ranks of other hosts, which an agent names, have ended well.
    /// Wakes them: accesses to ended ranks wait in vain.
    pub fn mark_ended_elsewhere(&mut self, ctx: &Context<'_>, ranks: &[u32]) {
        let elsewhere = |rank: &u32| *rank < ctx.job.size() && !ctx.is_here(*rank);
        for rank in ranks.iter().copied().filter(elsewhere) {
            self.ended_elsewhere.push(rank);
            for world in &self.worlds {
                world.show_end_elsewhere(rank);
            }
        }
        self.wake_ranks(ctx);
    }

    /// Shows ranks that a rank has died, and wakes those of this host.
    pub fn mark_dead(&self, ctx: &Context<'_>, rank: u32) {
        for world in &self.worlds {
            world.show_death(ctx, rank);
        }
    }

    /// Shows ranks that the job ends.
    pub fn mark_ending(&self) {
        for world_memory in self.world_memories() {
            layout::ending(world_memory).store(1, Relaxed);
        }
    }

    /// Has the ranks of this host look at what was changed on their boards.
    pub fn wake_ranks(&self, ctx: &Context<'_>) {
        for world in &self.worlds {
            for rank in 0..world.shape.size {
                let card = world.rank_block(rank);
                if ctx.is_here(rank) && card.state() == RankState::Running {
                    Doorbell::new(card.doorbell()).ring_fenced();
                }
            }
        }
    }
}

impl std::ops::Index<u32> for Worlds {
    type Output = World;

    /// Returns the world of a registered process, which there is.
    fn index(&self, epoch: u32) -> &World {
        &self.worlds[epoch as usize]
    }
}
