//! Collective operations (MPI 5.0, chapter 6): on intra- and intercommunicators, blocking,
//! nonblocking and persistent.
//!
//! A call takes one of three ways, and all processes choose alike:
//! 1. Processes that share a node use a segment of shared memory ([`comm_segment`]): [`shm_small`]
//!    for short data, [`shm_large`] for long data, [`shm_nonblocking`] for calls that return a
//!    request.
//! 2. Otherwise an algorithm of [`garonne_coll`] states its steps to a [`Plan`]. [`choose`] names
//!    the algorithm. A blocking call performs each step at once; a nonblocking call records what it
//!    has to wait for.
//! 3. Processes on several nodes combine steps inside nodes with steps between them
//!    ([`garonne_coll::hierarchical`]).
//!
//! The C edge and the constructors of communicators call the methods of
//! [`Comm`](crate::comm::Comm). The cost of a call is bounded by the steps that its algorithm
//! states (see [`garonne_coll::algo`]) and by its temporary memory, at most a small multiple of the
//! call's own data.

mod buffers;
mod call_signature;
mod calls;
pub(crate) mod comm_segment;
pub(crate) mod constructor_entry;
mod datatype_layout;
mod execute;
mod mismatch_report;
mod neighbors;
mod nonblocking;
mod persistent;
mod reductions;
mod rooted;
mod scans;
mod segment_setup;
mod shm_large;
mod shm_nonblocking;
mod shm_small;
mod shm_sync;
mod tuned_call;

pub use buffers::{Elements, ElementsV, ElementsW};
pub use calls::{Allgather, Allgatherv, Alltoall, Alltoallv, Alltoallw, Barrier, Bcast};
pub use garonne_coll::blocks::CountArray;
pub use garonne_coll::call_tag;
pub use garonne_coll::choose;
pub use garonne_coll::segment_allocator::SegmentAllocator;
pub use garonne_coll::switch_tree::SwitchTree;
pub use neighbors::{
    NeighborAllgather, NeighborAllgatherv, NeighborAlltoall, NeighborAlltoallv, NeighborAlltoallw,
    Neighbors,
};
pub use reductions::{Allreduce, Reduce, ReduceScatter, ReduceScatterBlock, reduce_local};
pub use rooted::{Gather, Gatherv, Scatter, Scatterv};
pub use scans::{Exscan, Scan};

use crate::ROOT;
use crate::comm::Comm;
use crate::error::{Class, Error, Result};
use crate::request::{Request, Status};
use call_signature::CallSignature;
use execute::{BlockingPlan, CollContext};
use garonne_coll::algo::intercomm::RootRole;
use garonne_coll::call_tag::{CallId, CallSeries, CollectiveKind};
use garonne_coll::plan::{Plan, PlanRecorder};
use garonne_coll::temp_buffer::NoMemory;
use garonne_engine::api::CallOrigin;
use garonne_progress::environment::CollectiveCounter;
use nonblocking::{NonblockingPlan, StartOutcome};
use shm_nonblocking::shm_op::ShmOp;
use shm_sync::ShmSync;
use std::sync::atomic::Ordering;

#[cfg(test)]
mod tests;

/// The arguments of one collective call.
pub trait Collective: sealed::Planned {}

impl<T: sealed::Planned> Collective for T {}

pub(crate) mod sealed {
    use super::*;

    /// A collective call: it names itself, checks itself against a communicator and states its
    /// steps. Order of calls: `check`, then `run_in_shm` or `shm_op` where the communicator has a
    /// segment, and `plan` where messages serve.
    pub trait Planned {
        /// Returns the kind of the call.
        fn kind(&self) -> CollectiveKind;
        /// Refuses what does not fit the communicator.
        fn check(&self, comm: &Comm) -> Result<()>;
        /// States the steps of the calling process.
        fn plan<P: Plan>(&self, p: &mut P) -> Result<(), P::Error>;
        /// Returns the properties that must be equal on all ranks.
        fn signature(&self, _comm: &Comm) -> CallSignature {
            CallSignature::of(self.kind())
        }
        /// Returns whether all ranks pass a barrier for the call where they have a segment, if only
        /// to compare their calls. `false` for calls that concern only a rank and its neighbours.
        fn synchronizes_all(&self) -> bool {
            true
        }
        /// Carries out the call in the communicator's segment. On `false` nothing happened, and
        /// messages serve. Decided by what the statement says and by nothing else, so that ranks
        /// with equal statements decide alike.
        fn run_in_shm(&self, _table: &ShmSync<'_>) -> Result<bool> {
            Ok(false)
        }
        /// Returns the operation for a slot of the communicator's segment, if the call may use a
        /// slot. Decided by the signature alone.
        fn shm_op(&self, _comm: &Comm) -> Option<ShmOp<'_>> {
            None
        }
    }
}

impl Comm {
    /// Carries out a collective (`MPI_Bcast` and its kin): returns when this process's part is
    /// done.
    ///
    /// # Errors
    /// `Root`, `Count`, `Arg`, `Op` … for arguments that do not fit; `NoMem`; what the
    /// communication met.
    pub fn collective(&self, call: &impl Collective, origin: CallOrigin) -> Result<()> {
        call.check(self)?;
        let number = self.next_call(CallSeries::Blocking, call.kind());
        CollContext::borrowed(self, number, origin).trace_call();
        if call.synchronizes_all()
            && let Some(place) = comm_segment::attach_for_blocking(self, number, origin)?
        {
            let signature = call.signature(self);
            let sync = ShmSync::new(self, place, number, origin, signature);
            // What went wrong earlier is told after the call is carried out: the others take part
            // in it, too.
            let earlier = sync.check_earlier();
            if !call.run_in_shm(&sync)? {
                self.run_by_messages_in_step(call, &sync)?;
            }
            return earlier.and_then(|()| sync.check_earlier());
        }
        self.run_by_messages(call, number, origin)
    }

    /// Messages serve: either always for such a call, or because that is the way it goes this time.
    fn run_by_messages_in_step(&self, call: &impl Collective, sync: &ShmSync<'_>) -> Result<()> {
        let mut tuned = sync.take_tuned();
        match &mut tuned {
            Some(tuned) if tuned.is_timed() => tuned.begin(sync)?,
            _ => sync.compare_signatures()?,
        }
        let outcome = self.run_by_messages(call, sync.call, sync.origin);
        match tuned {
            Some(tuned) => tuned.end(sync, outcome),
            None => outcome,
        }
    }

    fn run_by_messages(
        &self,
        call: &impl Collective,
        number: CallId,
        origin: CallOrigin,
    ) -> Result<()> {
        if self.size() == 1 {
            // Nobody sends anything that would be refused.
            self.check_not_revoked()?;
        }
        let mut immediate = BlockingPlan::new(CollContext::borrowed(self, number, origin));
        call.plan(&mut immediate)?;
        immediate.finish()
    }

    /// Starts a collective (`MPI_Ibcast` and its kin). The program's buffers belong to it until the
    /// request is over; counts, displacements and datatypes do not.
    ///
    /// # Errors
    /// As [`Comm::collective`]; what the communication meets later is told by the request.
    pub fn start_collective(&self, call: &impl Collective, origin: CallOrigin) -> Result<Request> {
        call.check(self)?;
        let number = self.next_call(CallSeries::Nonblocking, call.kind());
        let mut ctx = CollContext::owned(self, number, origin);
        ctx.trace_start();
        if call.synchronizes_all()
            && let Some(started) = shm_nonblocking::start(call, &ctx)
        {
            return started;
        }
        let mut starting = NonblockingPlan::new(ctx);
        call.plan(&mut starting)?;
        let running = match starting.finish()? {
            StartOutcome::Over => {
                CollContext::borrowed(self, number, origin).trace_end();
                return Ok(Request::done(self, Status::EMPTY));
            }
            StartOutcome::Running(running) => running,
        };
        self.process().host.attach_stepper(running.clone());
        match running.take_if_over() {
            Some(Err(error)) => Err(error),
            Some(Ok(_)) => Ok(Request::done(self, Status::EMPTY)),
            None => Ok(Request::new(self, running)),
        }
    }

    /// Numbers a collective, from 1: all processes of the communicator call those of a series in
    /// the same order, one thread at a time.
    fn next_call(&self, series: CallSeries, kind: CollectiveKind) -> CallId {
        let count = &self.0.collective_counts[counter_of(series) as usize];
        let number = count.load(Ordering::Relaxed).wrapping_add(1);
        count.store(number, Ordering::Relaxed);
        CallId::new(number, series, kind)
    }

    /// Checks the root of a rooted call.
    pub(crate) fn check_root(&self, kind: CollectiveKind, root: i32) -> Result<()> {
        let ok = match u32::try_from(root) {
            Ok(rank) => rank < self.peers(),
            Err(_) => self.is_inter() && (root == ROOT || root == crate::PROC_NULL),
        };
        if ok {
            Ok(())
        } else {
            Err(self.bad_root(kind, root))
        }
    }

    #[cold]
    fn bad_root(&self, kind: CollectiveKind, root: i32) -> Error {
        let peers = self.peers();
        let text = match self.is_inter() {
            true => format!(
                "{kind}: root {root} is neither a rank of the remote group (0 to {}) nor MPI_ROOT nor MPI_PROC_NULL",
                peers - 1
            ),
            false => format!("{kind}: root {root} is no rank: it has {peers} processes"),
        };
        self.error(Class::Root, text)
    }
}

/// Returns which of a communicator's counters counts the calls of a series.
pub fn counter_of(series: CallSeries) -> CollectiveCounter {
    match series {
        CallSeries::Blocking => CollectiveCounter::Blocking,
        CallSeries::Nonblocking => CollectiveCounter::Nonblocking,
        CallSeries::Persistent => CollectiveCounter::Persistent,
    }
}

impl From<NoMemory> for Error {
    fn from(error: NoMemory) -> Self {
        Error::new(Class::NoMem, error.to_string())
    }
}

/// Makes the recorder of the plan of a process of a communicator, after `started` communications.
fn recorder_on(comm: &Comm, started: u32) -> PlanRecorder {
    let across = comm.0.remote.as_ref().map_or(0, |group| group.size());
    let mut recorder = PlanRecorder::new(comm.rank(), comm.size(), across);
    if !comm.is_on_node() {
        recorder.spread_over(comm.spread().cloned());
    }
    recorder.begin_at(started);
    recorder
}

/// The role of the calling process in a rooted call of an intercommunicator; the root was checked.
fn role(root: i32) -> RootRole {
    match u32::try_from(root) {
        Ok(rank) => RootRole::Peer(rank),
        Err(_) if root == ROOT => RootRole::Root,
        Err(_) => RootRole::Bystander,
    }
}
