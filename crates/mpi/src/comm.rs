//! Communicators: a context, the group of processes in it, and what hangs on it.

use crate::group::Group;
use crate::process::Process;
use garonne_engine::api::Context;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// A communicator. Cheap to clone; freed with its last user.
#[derive(Clone)]
pub struct Comm(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    /// The rank that owns this handle of the communicator.
    pub process: Arc<Process>,
    /// Context of incoming point-to-point messages; collectives use the odd one after it.
    pub context: Context,
    /// Context that the other side of an intercommunicator listens to; equal to `context` for an intracommunicator.
    pub remote_context: Context,
    /// This process's rank in `local`.
    pub rank: u32,
    /// The group this process belongs to.
    pub local: Group,
    /// The other group of an intercommunicator.
    pub remote: Option<Group>,
    /// Number of collectives started, which also numbers them for `who`; their tags derive from it.
    pub collectives: AtomicU32,
}

impl Comm {
    /// The calling process's rank in its own group.
    pub fn rank(&self) -> u32 {
        self.0.rank
    }

    /// Size of the local group.
    pub fn size(&self) -> u32 {
        self.0.local.size()
    }

    /// Size of the group that messages go to: the remote one of an intercommunicator.
    pub fn peers(&self) -> u32 {
        self.0.remote.as_ref().unwrap_or(&self.0.local).size()
    }

    /// Whether this is an intercommunicator.
    pub fn is_inter(&self) -> bool {
        self.0.remote.is_some()
    }

    /// The rank this communicator belongs to.
    pub fn process(&self) -> &Arc<Process> {
        &self.0.process
    }
}
