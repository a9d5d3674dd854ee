//! Registry of communicators by context id. Includes freed communicators while operations use their
//! contexts.
//!
//! A light receive (see `light_request`) knows only its context. The registry serves rare calls
//! such as `MPI_Cancel`, which a program may repeat many times. A lookup therefore costs the same
//! for any number of communicators and operations. Freed communicators are swept when their number
//! has doubled, or when a sweep is cheap.
//!
//! The handle of a freed communicator names no object for the program. The handle is not reused
//! before the last operation on the communicator is gone. When an error handler is called for such
//! an operation it receives the old handle, which is valid while the handler runs
//! ([`RevivedHandle`]).

use crate::constants::{MPI_COMM_SELF, MPI_COMM_WORLD};
use crate::handle::{Handle, HandleTable, MPI_Comm};
use crate::objects::{comms, find_comm};
use crate::optional_checks;
use crate::rank_context::RankContext;
use garonne_engine::api::ContextId;
use garonne_engine::observe::contexts_in_use::ContextsInUse;
use garonne_mpi::comm::{Comm, number};
use garonne_mpi::process::Process;
use garonne_mpi::unreceived_messages::ContextOwner;
use std::collections::{HashMap, VecDeque};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Number of engine slots that a sweep may visit per freed communicator. A sweep then costs less
/// than freeing the communicator did.
const PLACES_PER_FREED: usize = 64;

/// Freed communicators of which the names are kept where messages are checked: the last ones, some
/// hundred kilobytes.
const OWNERS_KNOWN: usize = 1024;

/// Communicators of a rank by their contexts.
pub(crate) struct CommContexts(LazyLock<Mutex<CommRegistry>>);

impl CommContexts {
    /// None.
    pub const fn new() -> Self {
        Self(LazyLock::new(Mutex::default))
    }
}

fn registry() -> MutexGuard<'static, CommRegistry> {
    let contexts = &RankContext::current().comm_contexts;
    // Entries are put in and taken out whole.
    contexts.0.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct CommRegistry {
    /// Handles by the number of their communicator's contexts.
    handles: HashMap<u32, MPI_Comm>,
    /// Handles of communicators that had no contexts yet when they got them (`MPI_Comm_idup`).
    pending: Vec<MPI_Comm>,
    /// Freed communicators that operations may use.
    freed: HashMap<u32, FreedComm>,
    /// Owners of the most recently freed contexts, with their numbers; kept only where messages are
    /// checked.
    owners: VecDeque<(u32, ContextOwner)>,
    /// Number of freed communicators at which the next sweep happens.
    sweep_at: usize,
}

struct FreedComm {
    comm: Comm,
    /// The table of the handle.
    table: &'static HandleTable<Comm>,
    /// Number of running error handlers that received the communicator's handle.
    handlers: u32,
}

impl FreedComm {
    fn handle(&self) -> MPI_Comm {
        MPI_Comm::from_word(self.comm.handle())
    }
}

impl Drop for FreedComm {
    fn drop(&mut self) {
        self.table.release(self.handle());
    }
}

impl CommRegistry {
    /// Notes those of the unborn that have contexts by now.
    fn register_pending(&mut self) {
        let handles = &mut self.handles;
        self.pending.retain(
            |&handle| match comms().get(handle).map(Comm::contexts_number) {
                Some(Some(number)) => {
                    handles.insert(number, handle);
                    false
                }
                born_later => born_later.is_some(),
            },
        );
    }

    /// Forgets freed communicators that nothing refers to and whose contexts nobody uses, if it is
    /// time for that.
    fn sweep(&mut self, process: &Process) {
        if self.freed.len() <= self.sweep_at {
            return;
        }
        let ContextsInUse {
            contexts,
            looked_at,
        } = process.contexts_in_use();
        let numbers: std::collections::HashSet<u32> = contexts.into_iter().map(number).collect();
        self.freed.retain(|number, freed| {
            freed.handlers > 0 || freed.comm.is_referred_to() || numbers.contains(number)
        });
        let for_operations = looked_at / PLACES_PER_FREED;
        self.sweep_at = if self.freed.is_empty() {
            for_operations
        } else {
            for_operations.max(2 * self.freed.len())
        };
    }
}

/// A communicator got its handle.
pub(crate) fn add(handle: MPI_Comm, comm: &Comm) {
    let mut known = registry();
    match comm.contexts_number() {
        Some(number) => drop(known.handles.insert(number, handle)),
        None => known.pending.push(handle),
    }
}

/// A communicator was withdrawn from its handle; the communicator lives on while operations of the
/// engine's use its contexts.
pub(crate) fn retire(handle: MPI_Comm, comm: Comm) {
    let mut known = registry();
    let Some(number) = comm.contexts_number() else {
        known.pending.retain(|&other| other != handle);
        comms().release(handle);
        return;
    };
    known.handles.remove(&number);
    if optional_checks::messages_enabled() {
        let owner = ContextOwner {
            is_freed: true,
            ..comm.owner()
        };
        known.owners.truncate(OWNERS_KNOWN - 1);
        known.owners.push_front((number, owner));
    }
    let process = comm.process().clone();
    let freed = FreedComm {
        comm,
        table: comms(),
        handlers: 0,
    };
    known.freed.insert(number, freed);
    known.sweep(&process);
}

/// Forgets communicators that were kept for pending receives: the world ends, and the receives with
/// it.
pub(crate) fn forget_freed() {
    let mut known = registry();
    known.sweep_at = 0;
    let freed = std::mem::take(&mut known.freed);
    drop(known);
    drop(freed);
}

/// The communicator whose messages travel in this context.
pub(crate) fn find(context: ContextId) -> Option<Comm> {
    let mut predefined = [MPI_COMM_WORLD, MPI_COMM_SELF]
        .into_iter()
        .filter_map(find_comm);
    if let Some(comm) = predefined.find(|comm| comm.owns(context)) {
        return Some(comm.clone());
    }
    let mut known = registry();
    known.register_pending();
    let number = number(context);
    let living = known
        .handles
        .get(&number)
        .and_then(|handle| comms().get(*handle));
    living
        .or_else(|| known.freed.get(&number).map(|freed| &freed.comm))
        .cloned()
}

/// Returns the owner of a context: the living communicator, or the record of a freed one where
/// messages are checked.
pub(crate) fn owner(context: ContextId) -> Option<ContextOwner> {
    let number = number(context);
    let is_it = |freed: &&(u32, ContextOwner)| freed.0 == number;
    let freed = registry().owners.iter().find(is_it).cloned();
    match freed {
        Some((_, owner)) => Some(owner),
        None => find(context).map(|comm| comm.owner()),
    }
}

/// Guard that makes the handle of a freed communicator valid again while an error handler runs.
pub(crate) struct RevivedHandle(Option<Comm>);

impl RevivedHandle {
    /// Does nothing for a communicator that the program has not freed.
    pub fn new(comm: &Comm) -> Self {
        let mut known = registry();
        let number = comm.contexts_number();
        let found = number.and_then(|number| known.freed.get_mut(&number));
        let Some(freed) = found.filter(|freed| freed.comm.is(comm)) else {
            return Self(None);
        };
        freed.handlers += 1;
        if freed.handlers == 1 {
            comms().fill(freed.handle(), freed.comm.clone());
        }
        Self(Some(freed.comm.clone()))
    }
}

impl Drop for RevivedHandle {
    fn drop(&mut self) {
        let Some(comm) = self.0.take() else { return };
        let mut known = registry();
        let number = comm.contexts_number();
        let Some(freed) = number.and_then(|number| known.freed.get_mut(&number)) else {
            return;
        };
        freed.handlers -= 1;
        if freed.handlers == 0 {
            crate::fast_path::forget(Some(freed.handle()));
            drop(comms().withdraw(freed.handle()));
        }
    }
}
