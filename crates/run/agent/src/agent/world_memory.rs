//! The shared memory that the ranks of one generation of MPI processes get: made when the first of
//! them registers; on a host without ranks, when a tool looks at it.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use garonne_engine::api::SHARDS_MAX;
use rustix::net::SendFlags;

use super::{Agent, WorldState};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::layout::{self, WorldShape};
use garonne_job::limits;
use garonne_job::rank_messages::LauncherMessage;
use garonne_links::sys;

/// Shards that each rank of a world may have. Only addresses are spent on those that nobody uses;
/// on several hosts the memory of each has room for all ranks of the job.
fn shards(ranks: u32, nodes: u32) -> u32 {
    match nodes {
        1 => (limits::INBOXES / ranks).clamp(1, SHARDS_MAX as u32),
        _ => 1,
    }
}

impl Agent<'_> {
    pub(super) fn new_world(&mut self, epoch: u32, version: &str, by: u32) -> Result<()> {
        if epoch >= limits::WORLDS_MAX {
            return Err(Error::resource(
                codes::G0302,
                format!("this job has started {epoch} worlds of MPI programs already"),
            ));
        }
        let (placement, atlas) = (&self.ctx.job.placement, self.host_table());
        let beside = self.ctx.job.ranks_of(self.ctx.node).len() as u32;
        let (size, nodes) = (
            self.ctx.job.size(),
            self.ctx.job.nodes.names.len().max(1) as u32,
        );
        let shape = WorldShape {
            job: self.ctx.id,
            epoch,
            size,
            coll_bytes: self.ctx.job.coll_bytes,
            inbox_bytes: garonne_shm::inbox_bytes(size.min(limits::RANKS_MAX), beside) as u64,
            shards: shards(size, nodes),
            cpus_milli: placement.cpus_milli,
            bound: !placement.masks.is_empty(),
            nodes,
            node: self.ctx.node,
            hosts_bytes: atlas.len() as u64,
        };
        let (file, board) = garonne_links::memory_file::create(&shape)?;
        garonne_links::memory_file::write_atlas(file.as_fd(), &shape, &atlas)?;
        if self.ctx.job.traced {
            // For ever: whoever reads ends with the job.
            layout::trace_until(&board).store(u64::MAX, Relaxed);
            board.atomic_u32(layout::TRACE_WORD).store(1, Relaxed);
        }
        // Of other hosts the launcher reads nothing itself.
        if self.ctx.job.traced && !self.ctx.is_child() && beside > 0 {
            let message = LauncherMessage::NewWorld.encode();
            sys::send(
                self.ctx.launcher_socket.as_fd(),
                &message,
                &[file.as_fd()],
                SendFlags::empty(),
            )
            .map_err(|error| {
                Error::system(codes::G0209, "cannot hand a world to the launcher", error)
            })?;
        }
        self.publish_hosts(&board);
        let version = version.to_owned();
        let world = WorldState {
            shape,
            file,
            board,
            version,
            creator: by,
            in_fence: vec![],
            store: HashMap::new(),
            waiting: vec![],
        };
        garonne_job::disabled_networks::write(&world.board, &self.disabled_networks);
        garonne_job::new_networks::show(&world.board, &self.new_addresses);
        self.publish_routes(&world.board);
        self.worlds.push(world);
        Ok(())
    }
}
