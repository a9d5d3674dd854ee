//! Constructors of a group that is not a whole communicator, where its members may die.
//!
//! Such a constructor ends at all living members once one of the group has died, because those that
//! notice it leave the others alone. The deaths of processes outside the group do not matter. What
//! was sent for a constructor that ended meets no later one: the tag of its messages also names the
//! group, and no later constructor of that group gets far.

use super::faults::dead_processes;
use super::setup_messages::SetupTask;
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::process::Process;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// FNV-1a: the same on every process and every machine.
pub(super) fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Returns a tag that all processes make of one hash.
pub(super) fn tag_of(hash: u64) -> i32 {
    (hash ^ hash >> 32) as i32 & i32::MAX
}

/// Returns the tag of a constructor's messages: where deaths are survived it also names the group,
/// whose members have these numbers on all of them.
pub(super) fn group_tag(process: &Process, tag: i32, members: impl Iterator<Item = u32>) -> i32 {
    if !process.survives() {
        return tag;
    }
    let words = std::iter::once(tag.cast_unsigned()).chain(members);
    tag_of(hash(words.flat_map(u32::to_le_bytes)))
}

/// Runs a constructor of the processes of a group, until one of them dies.
pub(super) fn run<T: Send + 'static>(
    process: &Arc<Process>,
    group: &Group,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    if !process.survives() {
        return SetupTask::run(process, work);
    }
    let watched = until_death(process.clone(), group.clone(), work);
    SetupTask::run_polling(process, watched)
}

/// Carries work of the processes of a group out until one of them dies. Polled by a task that waits
/// for memory ([`SetupTask::run_polling`]).
pub(super) async fn until_death<T>(
    process: Arc<Process>,
    group: Group,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let world = process.host.world_size();
    let reaches_others = group.members().any(|peer| peer >= world);
    let mut work = pin!(work);
    poll_fn(|cx| {
        if let Poll::Ready(made) = work.as_mut().poll(cx) {
            return Poll::Ready(made);
        }
        let dead = dead_processes(&process, reaches_others);
        let Some(rank) = dead.iter().find_map(|peer| group.rank_of(*peer)) else {
            return Poll::Pending;
        };
        let text = format!("rank {rank} of the new communicator's group has died");
        Poll::Ready(Err(Error::new(Class::ProcFailed, text)))
    })
    .await
}
