//! What a check for undelivered messages asks the engines of a rank.

use crate::environment::Environment;
use crate::locked_engine::LockedEngine;
use crate::messaging::Messaging;
use crate::sharded::ShardedEngine;
use garonne_engine::api::{CallOrigin, Peer, in_shard, shard_of};
use garonne_engine::observe::events::{SentMessage, UnreceivedMessage};
use garonne_engine::transport::Transport;

/// Messages that nobody received at a rank, and its own sends. For checks that a user asks
/// for: each call takes the engine's lock.
pub trait MessageAudit {
    /// Takes in all that has come, and lists the messages that no receive has. Ends when peers send
    /// nothing more, or have used up their credits.
    fn unreceived(&self) -> Vec<UnreceivedMessage> {
        Vec::new()
    }

    /// The peers that this rank has spoken with so far.
    fn peers(&self) -> Vec<Peer> {
        Vec::new()
    }

    /// Returns who in this process may have made the send `sent`, as far as that is remembered.
    fn callers(&self, sent: &SentMessage) -> Vec<CallOrigin> {
        let _ = sent;
        Vec::new()
    }
}

impl<R: Transport + Send, S: Environment> MessageAudit for LockedEngine<R, S> {
    fn unreceived(&self) -> Vec<UnreceivedMessage> {
        while self.progress_surely() {}
        self.inspect(|shard| shard.unreceived().collect())
    }

    fn peers(&self) -> Vec<Peer> {
        self.inspect(|shard| shard.peers().collect())
    }

    fn callers(&self, sent: &SentMessage) -> Vec<CallOrigin> {
        self.inspect(|shard| shard.callers(sent))
    }
}

impl<R: Transport + Send + 'static, S: Environment + 'static> MessageAudit for ShardedEngine<R, S> {
    fn unreceived(&self) -> Vec<UnreceivedMessage> {
        // Peers may have sent to shards in which this rank has not done anything yet.
        let shards = 0..self.shards();
        let hosts = shards.filter_map(|shard| self.engine_of(in_shard(shard, 0)).ok());
        hosts.flat_map(MessageAudit::unreceived).collect()
    }

    fn peers(&self) -> Vec<Peer> {
        let hosts = (0..self.shards()).filter_map(|shard| self.known(shard));
        hosts.flat_map(MessageAudit::peers).collect()
    }

    fn callers(&self, sent: &SentMessage) -> Vec<CallOrigin> {
        let host = self.known(shard_of(sent.context));
        host.map_or_else(Vec::new, |host| host.callers(sent))
    }
}
