//! The ranks of this node as the shared-memory rail of a shard meets them: inboxes, bells, processes.

use crate::client::Client;
use crate::error::{Error, Result};
use crate::layout::State;
use crate::sys;
use garonne_engine::api::{Error as EngineError, Peer};
use garonne_rails::shm::{Neighbours, Process};
use garonne_sync::shm::Segment;
use std::io::Write;
use std::sync::Arc;

/// The ranks of a job's node in one of their shards, as the agent's memory shows them.
pub(super) struct OfJob {
    client: Arc<Client>,
    board: Segment,
    me: Peer,
    size: u32,
    shard: u32,
    own_inbox: Segment,
}

impl OfJob {
    /// In the first shard.
    pub(super) fn new(client: Arc<Client>) -> Self {
        let own_inbox = client.own_inbox();
        Self::with(client, 0, own_inbox)
    }

    /// In a shard.
    pub(super) fn in_shard(client: Arc<Client>, shard: u32) -> Result<Self> {
        let own_inbox = client.map_shard_inbox(shard, client.world().rank)?;
        Ok(Self::with(client, shard, own_inbox))
    }

    fn with(client: Arc<Client>, shard: u32, own_inbox: Segment) -> Self {
        let world = client.world();
        Self {
            board: client.board(),
            me: world.rank,
            size: world.size,
            client,
            shard,
            own_inbox,
        }
    }
}

impl OfJob {
    /// Ends the job for what this rank lacks.
    fn end(&self, error: Error) -> ! {
        let text = format!("{}\n  rank {}", error.with_host(), self.me);
        if self.client.abort(1, &text).is_err() {
            drop(writeln!(std::io::stderr(), "{text}"));
        }
        sys::exit_now(1)
    }
}

impl Neighbours for OfJob {
    fn me(&self) -> Peer {
        self.me
    }

    fn size(&self) -> u32 {
        self.size
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
                // The peer is there, and without its inbox nothing can be said to it: no operation of this rank's can go on.
                other => self.end(other),
            })
    }

    fn doorbell(&self, peer: Peer) -> Option<Segment> {
        match self.shard {
            0 => (peer < self.size).then(|| self.board.part(crate::layout::doorbell_offset(peer), 4)),
            shard => self.client.shard_card(shard, peer).map(|card| card.bell()),
        }
    }

    // A rank has one helper, whatever shard it is called for.
    fn hands(&self, peer: Peer) -> Option<Segment> {
        (peer < self.size).then(|| self.board.part(crate::layout::hands_offset(peer), 8))
    }

    fn process(&self, peer: Peer) -> Process {
        let card = self.client.card(peer);
        let (pid, own) = (card.pid(), self.client.card(self.me));
        if peer == self.me {
            Process::Same
        } else if pid == 0 || card.pid_space() != own.pid_space() || own.pid_space() == 0 {
            Process::Unreachable
        } else {
            Process::Other {
                pid,
                kept: card.agent_is_parent(),
            }
        }
    }

    fn is_gone(&self, peer: Peer) -> bool {
        self.client.card(peer).state() == State::Gone
    }

    fn commons(&self) -> Option<Segment> {
        self.client.collective_area().ok()
    }
}
