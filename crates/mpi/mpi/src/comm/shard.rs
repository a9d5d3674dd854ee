//! The shard of its processes' engines in which a communicator's messages are
//! (`garonne_engine::api::shard_of`).
//!
//! Where all processes of a new communicator have several shards, its number chooses one, unless a
//! hint names one (`garonne_shard`). A communicator on which nobody receives with any tag
//! (`mpi_assert_no_any_tag`) uses all shards, each tag in one: no receive can observe the order of
//! two tags. The processes agree on the shard together with the context; where they differ, the
//! first shard serves.

use super::context_ids::{ContextBlock, ContextLease, base};
use super::{Comm, Process};
use crate::error::{Class, Error};
use crate::info::Info;
use garonne_engine::api::{ContextId, SHARDS_MAX, in_shard, without_shard};

const KIND_BITS: u32 = 5;
/// Bits of a wish and of how many shards there are.
pub(crate) const WANT_BITS: u32 = 2 * KIND_BITS;

/// Place where a process wants the messages of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardRequest {
    /// In the first shard: with those of the predefined communicators.
    First,
    /// In this one.
    Shard(u32),
    /// In one of its own, as far as there are enough.
    Own,
    /// Each tag in one of all.
    ByTag,
}

/// The hint that names a communicator's shard.
pub(crate) const HINT: &str = "garonne_shard";
const NO_ANY_TAG: &str = "mpi_assert_no_any_tag";

impl ShardRequest {
    /// Reads the request from hints.
    pub(crate) fn of(hints: Option<&Info>) -> Self {
        let says = |key: &str| hints.and_then(|hints| hints.lookup(key));
        match says(HINT).map(|shard| shard.trim().parse::<u32>()) {
            Some(Ok(0)) => ShardRequest::First,
            Some(Ok(shard)) => ShardRequest::Shard(shard),
            Some(Err(_)) | None if says(NO_ANY_TAG).is_some_and(|value| value == "true") => {
                ShardRequest::ByTag
            }
            Some(Err(_)) | None => ShardRequest::Own,
        }
    }

    /// Limits the request to the shards that a process has.
    pub(crate) fn among(self, shards: usize) -> Self {
        match self {
            _ if shards <= 1 => ShardRequest::First,
            ShardRequest::Shard(shard) => match shard % shards as u32 {
                0 => ShardRequest::First,
                shard => ShardRequest::Shard(shard),
            },
            other => other,
        }
    }

    /// Encodes the request as a word for a process with `shards` shards: all agree only if they
    /// have as many.
    pub(crate) fn encode(self, shards: usize) -> u64 {
        let kind = match self {
            ShardRequest::First => 0,
            ShardRequest::Shard(shard) => u64::from(shard),
            ShardRequest::Own => SHARDS_MAX as u64,
            ShardRequest::ByTag => SHARDS_MAX as u64 + 1,
        };
        (shards as u64) << KIND_BITS | kind
    }

    /// The other way round; what nobody says is the first.
    pub(crate) fn decode(word: u64) -> Self {
        const OWN: u64 = SHARDS_MAX as u64;
        const BY_TAG: u64 = OWN + 1;
        match word & ((1 << KIND_BITS) - 1) {
            OWN => ShardRequest::Own,
            BY_TAG => ShardRequest::ByTag,
            shard @ 1..OWN => ShardRequest::Shard(shard as u32),
            _ => ShardRequest::First,
        }
    }

    /// The shard of what is not about a tag, for the communicator of this number.
    fn shard(self, block: ContextBlock, shards: usize) -> u32 {
        match self {
            ShardRequest::Own => 1 + block % (shards as u32 - 1).max(1),
            ShardRequest::Shard(shard) => shard,
            ShardRequest::First | ShardRequest::ByTag => 0,
        }
    }
}

/// The first context of a new communicator, and over how many shards its tags are spread (0: they
/// are not).
pub(crate) fn first_context(lease: &ContextLease, process: &Process) -> (ContextId, u32) {
    let shards = process.host.shards();
    let shard = lease.want.shard(lease.block, shards);
    let spread = if lease.want == ShardRequest::ByTag {
        shards as u32
    } else {
        0
    };
    (in_shard(shard as usize, base(lease.block)), spread)
}

/// The number of the communicator that owns a context: what `comm #` stands before.
pub fn number(context: ContextId) -> u32 {
    without_shard(context) / crate::limits::CONTEXTS_PER_COMM
}

impl Comm {
    /// The context of messages with this tag. What receives any tag is in that of none.
    #[inline(always)]
    pub(crate) fn context_of(&self, tag: i32) -> ContextId {
        match self.tag_shards() {
            0 => self.context(),
            shards => in_shard((tag as u32 % shards) as usize, self.context()),
        }
    }

    /// Returns whether receives of any tag find what they are for.
    #[inline(always)]
    pub(crate) fn takes_any_tag(&self) -> bool {
        self.tag_shards() == 0
    }

    /// Returns the error for a receive of any tag on a communicator without that right.
    #[cold]
    pub(crate) fn any_tag(&self) -> Error {
        self.error(
            Class::Tag,
            "cannot be asked for any tag: it was made with mpi_assert_no_any_tag",
        )
    }

    /// Returns whether its messages travel in this context.
    pub fn owns(&self, context: ContextId) -> bool {
        let first = without_shard(self.context());
        (first..first + crate::limits::CONTEXTS_PER_COMM).contains(&without_shard(context))
    }

    /// Number of its contexts ([`number`]); none before its processes agreed on them.
    pub fn contexts_number(&self) -> Option<u32> {
        let context = self.context();
        (context != super::NO_CONTEXT).then(|| number(context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_survive_the_way_to_others() {
        let all = (1..SHARDS_MAX as u32).map(ShardRequest::Shard);
        for want in all.chain([ShardRequest::First, ShardRequest::Own, ShardRequest::ByTag]) {
            assert_eq!(ShardRequest::decode(want.encode(SHARDS_MAX)), want);
            assert!(want.encode(SHARDS_MAX) < 1 << WANT_BITS);
            assert_ne!(want.encode(2), want.encode(3));
            assert_eq!(want.among(1), ShardRequest::First);
        }
        assert_eq!(ShardRequest::decode(u64::MAX), ShardRequest::First);
    }

    #[test]
    fn hints_say_where_messages_are() {
        let hints = |pairs: &[(&str, &str)]| Info::from_pairs(pairs.iter().copied());
        assert_eq!(ShardRequest::of(None), ShardRequest::Own);
        assert_eq!(
            ShardRequest::of(Some(&hints(&[("garonne_shard", " 3 ")]))),
            ShardRequest::Shard(3)
        );
        assert_eq!(
            ShardRequest::of(Some(&hints(&[("garonne_shard", "0")]))),
            ShardRequest::First
        );
        assert_eq!(
            ShardRequest::of(Some(&hints(&[("garonne_shard", "many")]))),
            ShardRequest::Own
        );
        let assertion = ("mpi_assert_no_any_tag", "true");
        assert_eq!(
            ShardRequest::of(Some(&hints(&[assertion]))),
            ShardRequest::ByTag
        );
        assert_eq!(
            ShardRequest::of(Some(&hints(&[assertion, ("garonne_shard", "2")]))),
            ShardRequest::Shard(2)
        );
        assert_eq!(ShardRequest::Shard(18).among(16), ShardRequest::Shard(2));
        assert_eq!(ShardRequest::Shard(16).among(16), ShardRequest::First);
    }

    #[test]
    fn communicators_in_a_row_are_in_shards_of_their_own() {
        let shards: std::collections::HashSet<_> = (3..18)
            .map(|block| ShardRequest::Own.shard(block, 16))
            .collect();
        assert_eq!(shards, (1..16).collect());
        assert_eq!(ShardRequest::Own.shard(7, 2), 1);
    }
}
