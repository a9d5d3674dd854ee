//! How the processes of a new communicator agree on its context.
//!
//! Every process proposes a number that is free with it; the greatest is tried. If all proposed the
//! same, it is settled in one round. Otherwise those that did not propose it check whether it is
//! free with them too, and a second round tells. Two agreements that share a process may run at
//! once, in any threads: a number reserved for one is not free for the other, and both retry from
//! different places.

use super::context_ids::ContextLease;
use super::partial_group::group_tag;
use super::setup_messages::{SetupChannel, word_at};
use super::shard::{ShardRequest, WANT_BITS};
use crate::error::{Class, Error, Result};
use crate::group::Group;
use garonne_engine::api::Peer;

/// The processes that make a communicator: one group, or two that face each other through their
/// leaders.
#[derive(Clone)]
pub(crate) struct Participants {
    /// The own side.
    pub local: SetupChannel,
    /// The other side, if there is one.
    pub bridge: Option<LeaderBridge>,
}

/// The means of a side's leader to speak with the other side's leader.
#[derive(Clone)]
pub(crate) struct LeaderBridge {
    /// Leader on the own side, a rank of `Participants::local`.
    pub leader: u32,
    /// Leader on the other side, a rank of `channel`.
    pub remote_leader: u32,
    /// Reaches the other side; only the leader uses it.
    pub channel: Option<SetupChannel>,
}

/// Messages of a leader to its side when the other leader cannot be reached, and when that is since
/// a process has died; no real message is as short.
const FAILED: &[u8] = &[];
const DIED: &[u8] = &[1];

/// Length that a leader sends instead of a message's when its side has failed.
pub(crate) const GIVES_UP: u64 = u64::MAX;

/// Tells the other side's leader, which begins to talk, that this side has failed. Nothing of what
/// it says is left over for a later constructor.
pub(crate) async fn give_up(channel: &SetupChannel, remote: u32) -> Result<()> {
    let told = channel
        .exchange(remote, &GIVES_UP.to_le_bytes(), remote, 8)
        .await;
    match told {
        // There is nobody to tell.
        Err(error) if error.class != Class::ProcFailed => Err(error),
        _ => Ok(()),
    }
}

impl Participants {
    /// The channel to the other side's leader, at this side's leader.
    pub(crate) fn leaders_channel(&self) -> Option<SetupChannel> {
        let bridge = self.bridge.as_ref();
        let bridge = bridge.filter(|bridge| bridge.leader == self.local.rank);
        bridge.and_then(|bridge| bridge.channel.clone())
    }

    /// The own side alone.
    pub fn own_side(&self) -> Participants {
        Participants {
            local: self.local.clone(),
            bridge: None,
        }
    }

    /// Both sides learn the other's bytes (which are the same on all processes of a side, and not
    /// empty).
    pub async fn swap(&self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let bridge = self
            .bridge
            .as_ref()
            .ok_or_else(|| Error::new(Class::Intern, "a swap needs two sides"))?;
        let mut got = FAILED.to_vec();
        let mut failure = None;
        if let Some(channel) = bridge
            .channel
            .as_ref()
            .filter(|_| self.local.rank == bridge.leader)
        {
            match Self::swap_leaders(channel, bridge.remote_leader, &bytes).await {
                Ok(bytes) => got = bytes,
                Err(error) => {
                    if error.class == Class::ProcFailed {
                        got = DIED.to_vec();
                    }
                    failure = Some(error);
                }
            }
        }
        let got = self.local.broadcast(bridge.leader, got).await?;
        match failure {
            Some(error) => Err(error),
            None if got == FAILED || got == DIED => Err(Error::new(
                match got == DIED {
                    true => Class::ProcFailed,
                    false => Class::Other,
                },
                "the leader of this side did not reach the other side's",
            )),
            None => Ok(got),
        }
    }

    /// Names the groups of both sides in the tag of the leaders' messages, so that what is left
    /// over where one of these processes dies meets no later constructor.
    pub fn name_groups(&mut self, both: &Group) {
        let bridge = self.bridge.as_mut();
        if let Some(channel) = bridge.and_then(|bridge| bridge.channel.as_mut()) {
            let mut members: Vec<Peer> = both.members().collect();
            members.sort_unstable();
            channel.tag = group_tag(&channel.process, channel.tag, members.into_iter());
        }
    }

    async fn swap_leaders(channel: &SetupChannel, remote: u32, bytes: &[u8]) -> Result<Vec<u8>> {
        let len = channel
            .exchange(remote, &(bytes.len() as u64).to_le_bytes(), remote, 8)
            .await?;
        let len = word_at(&len, 0);
        if len == GIVES_UP {
            let text = "the processes of the other side could not connect to each other";
            // Nothing else keeps them from it within a world.
            let class = match channel.process.survives() {
                true => Class::ProcFailed,
                false => Class::Other,
            };
            return Err(Error::new(class, text));
        }
        channel.exchange(remote, bytes, remote, len as usize).await
    }

    /// The least and the greatest word of all processes of both sides.
    pub async fn min_max(&self, word: u64) -> Result<(u64, u64)> {
        let (min, max) = self.local.min_max(word).await?;
        if self.bridge.is_none() {
            return Ok((min, max));
        }
        let other = self
            .swap([min.to_le_bytes(), max.to_le_bytes()].concat())
            .await?;
        Ok((min.min(word_at(&other, 0)), max.max(word_at(&other, 1))))
    }
}

/// Proposed by a process that has too many communicators: above every block, so that all learn it.
const NONE_LEFT: u64 = u64::MAX;

/// Agrees on one free block of contexts for all processes of the circle, in the first shard.
pub(crate) async fn agree(circle: &Participants) -> Result<ContextLease> {
    agree_on(circle, ShardRequest::First).await
}

/// Agrees on a context in the shard that all want, or else in the first.
pub(crate) async fn agree_on(circle: &Participants, want: ShardRequest) -> Result<ContextLease> {
    let contexts = circle.local.process.contexts.clone();
    let shards = circle.local.process.host.shards();
    let want = want.among(shards).encode(shards);
    // One number for both: of two words the greater has the greater block.
    let word = |block: u64| block << WANT_BITS | want;
    let agreed = |min: u64, max: u64| {
        if min == max {
            ShardRequest::decode(want)
        } else {
            ShardRequest::First
        }
    };
    let mut floor = 0;
    for attempt in 0u32.. {
        let mine = contexts.reserve(floor);
        let (min, max) = circle
            .min_max(
                mine.as_ref()
                    .map_or(NONE_LEFT, |lease| word(lease.block.into())),
            )
            .await?;
        if max == NONE_LEFT {
            break;
        }
        let block = (max >> WANT_BITS) as u32;
        let lease = match mine {
            Some(lease) if min >> WANT_BITS == max >> WANT_BITS => {
                return Ok(lease.wanted(agreed(min, max)));
            }
            Some(lease) if lease.block == block => Some(lease),
            other => {
                drop(other);
                contexts.reserve_exactly(block)
            }
        };
        let (min, max) = circle.min_max(word(lease.is_some() as u64)).await?;
        match lease {
            Some(lease) if min >> WANT_BITS == 1 => return Ok(lease.wanted(agreed(min, max))),
            // Contenders start their next attempt at different distances, or they could meet again
            // for ever.
            _ => floor = block + 1 + circle.local.tag as u32 % (2 << attempt.min(10)),
        }
    }
    Err(Error::new(
        Class::Other,
        "a process has too many communicators; free some",
    ))
}
