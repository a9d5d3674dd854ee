//! The ranks of this node as the shared-memory transport of a shard meets them: inboxes, doorbells,
//! processes.

use crate::client::AgentClient;
use garonne_engine::api::{Error as EngineError, LackingSide, Peer, UnreachableCause};
use garonne_job::error::{Error, Result};
use garonne_job::layout::RankState;
use garonne_job::limits;
use garonne_shm::{LocalRanks, NodePeers, PeerProcess, refuse};
use garonne_sync::shm::Segment;
use rustix::io::Errno;
use rustix::process::Resource;
use std::sync::Arc;

/// Returns the system's error number.
fn errno_of(error: &Error) -> i32 {
    let said = match error {
        Error::System { source, .. } => source.raw_os_error(),
        _ => None,
    };
    said.unwrap_or(Errno::NOMEM.raw_os_error())
}

/// Returns whether this process, which may have a limited number of addresses, can still have so
/// many bytes of them.
fn is_left(bytes: usize) -> bool {
    let limit = rustix::process::getrlimit(Resource::As).current;
    limit.is_none() || Segment::anonymous(bytes).is_ok()
}

/// The ranks of a job's node in one of their shards, as the agent's memory shows them.
pub(crate) struct SegmentPeers {
    client: Arc<AgentClient>,
    world_memory: Segment,
    me: Peer,
    size: u32,
    shard: u32,
    own_inbox: Segment,
}

impl SegmentPeers {
    /// In the first shard.
    pub(crate) fn new(client: Arc<AgentClient>) -> Self {
        let own_inbox = client.own_inbox();
        Self::with(client, 0, own_inbox)
    }

    /// In a shard. Where its inbox finds no room the other ranks are told that none of them is
    /// reached in it: it is not to be asked for again.
    pub(crate) fn in_shard(client: Arc<AgentClient>, shard: u32) -> Result<Self> {
        match client.map_shard_inbox(shard, client.world().rank) {
            Ok(own_inbox) => Ok(Self::with(client, shard, own_inbox)),
            Err(error) => {
                // Nobody hears of it in that shard again, so they need not wait.
                let absent = Self::with(client.clone(), shard, client.own_inbox());
                let local = absent.client.local_ranks();
                for peer in local.iter().filter(|&peer| peer != absent.me) {
                    refuse(&absent, peer, errno_of(&error));
                }
                Err(error)
            }
        }
    }

    fn with(client: Arc<AgentClient>, shard: u32, own_inbox: Segment) -> Self {
        let world = client.world();
        Self {
            world_memory: client.world_memory(),
            me: world.rank,
            size: world.size,
            client,
            shard,
            own_inbox,
        }
    }
}

impl NodePeers for SegmentPeers {
    fn me(&self) -> Peer {
        self.me
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn local_ranks(&self) -> LocalRanks {
        self.client.local_ranks()
    }

    fn own_inbox(&self) -> Segment {
        self.own_inbox.clone()
    }

    fn map_inbox(&self, peer: Peer) -> std::result::Result<Segment, EngineError> {
        self.client
            .map_shard_inbox(self.shard, peer)
            .map_err(|error| match error {
                Error::Misuse { .. } => {
                    EngineError::Misuse("communication from a forked child, or with no such rank")
                }
                error => EngineError::Unreached(Box::new(UnreachableCause {
                    peer,
                    side: LackingSide::This,
                    bytes: self.own_inbox.len() as u64,
                    errno: errno_of(&error),
                    limit: rustix::process::getrlimit(Resource::As).current,
                })),
            })
    }

    fn write_unmapped(&self, peer: Peer, at: usize, word: u32) {
        let _ = self
            .client
            .write_shard_inbox(self.shard, peer, at as u64, word);
    }

    fn doorbell(&self, peer: Peer) -> Option<Segment> {
        match self.shard {
            0 => (peer < self.size).then(|| {
                self.world_memory
                    .part(garonne_job::layout::doorbell_offset(peer), 4)
            }),
            shard => self.client.shard_block(shard, peer).map(|card| card.bell()),
        }
    }

    // A rank has one progress thread, whatever shard it is called for.
    fn progress_words(&self, peer: Peer) -> Option<Segment> {
        (peer < self.size).then(|| {
            self.world_memory
                .part(garonne_job::layout::hands_offset(peer), 8)
        })
    }

    fn process(&self, peer: Peer) -> PeerProcess {
        let card = self.client.rank_block(peer);
        let (pid, own) = (card.pid(), self.client.rank_block(self.me));
        if peer == self.me {
            PeerProcess::Same
        } else if pid == 0 || card.pid_space() != own.pid_space() || own.pid_space() == 0 {
            PeerProcess::Unreachable
        } else if pid == own.pid() {
            // A rank beside this one, each a thread of the process.
            PeerProcess::Same
        } else {
            PeerProcess::Other {
                pid,
                kept: card.agent_is_parent(),
            }
        }
    }

    fn is_gone(&self, peer: Peer) -> bool {
        self.client.rank_block(peer).state() == RankState::Gone
    }

    fn commons(&self) -> Option<Segment> {
        let area = self.client.collective_area().ok()?;
        // Collectives do without the area, messages not without inboxes.
        let inboxes = self.client.own_inbox().len() * self.client.world().here as usize;
        is_left(inboxes + limits::ADDRESSES_LEFT).then_some(area)
    }
}
