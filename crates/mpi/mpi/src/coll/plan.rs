//! A collective as steps: the interface that algorithms write to ([`Plan`]), and the recorded form
//! ([`Schedule`]).
//!
//! An algorithm is a function that states its steps in order to a plan. Communication starts when
//! its step is reached, and goes on by itself. `wait` and `fence` hold later steps back until
//! earlier communication is complete. Copies and reductions happen where they stand. There are
//! three plans:
//! - [`super::execute::BlockingPlan`] performs each step as it is stated, and records nothing.
//! - [`PlanRecorder`] records the steps.
//! - [`super::nonblocking::NonblockingPlan`] performs steps until it must wait, and records the
//!   others.
//!
//! Algorithms never look at data while planning, so all forms send the same messages.
//!
//! Rules for algorithms: messages of one collective between two processes are sent and received in
//! one order, which the engine's matching relies on. A buffer that is being sent is not changed,
//! and a buffer that is being received is not read, before a `wait` or `fence` that covers it.

use super::node_map::NodeMap;
use super::temp_buffer::TempBuffer;
use super::typed_buffer::{self, ElementLayout, ReduceOp, TypedBuffer};
use crate::comm::Comm;
use crate::error::{Class, Error, Result};
use garonne_sync::user::{Data, Scratch, UserMem};
use std::sync::Arc;

/// Which group of the communicator a rank is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupSide {
    /// The group of the calling process.
    Local,
    /// The remote group of an intercommunicator.
    Remote,
}

/// One process as an algorithm names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanPeer {
    /// The group.
    pub side: GroupSide,
    /// The rank in it.
    pub rank: u32,
}

/// Names a communication of a plan, for waiting: its number among the plan's communications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransferId(pub u32);

/// The interface to which an algorithm states the steps of one process in one collective.
///
/// First all queries, then `send_to`, `recv_from`, `wait`, `fence`, `copy` and `fold` in the order
/// of the steps. The caller of the algorithm ends the plan.
pub trait Plan {
    /// The calling process's rank in its own group.
    fn me(&self) -> u32;
    /// Size of its own group.
    fn size(&self) -> u32;
    /// Size of the remote group; 0 without one.
    fn remote_size(&self) -> u32;
    /// Whether all processes share one node's memory.
    fn is_on_node(&self) -> bool;
    /// How the processes are spread over nodes, if that makes a difference to algorithms.
    fn node_map(&self) -> Option<Arc<NodeMap>>;

    /// Starts a send.
    fn send_to(&mut self, site: PlanPeer, data: Data) -> Result<TransferId>;
    /// Starts a receive.
    fn recv_from(&mut self, site: PlanPeer, data: Data) -> Result<TransferId>;
    /// Later steps happen after this communication is complete.
    fn wait(&mut self, token: TransferId) -> Result<()>;
    /// Later steps happen after all communication stated so far is complete.
    fn fence(&mut self) -> Result<()>;
    /// Copies the packed stream of `src` to `dst`.
    fn copy(&mut self, src: Data, dst: Data) -> Result<()>;
    /// `into = left op into`.
    fn fold(&mut self, fold: &dyn ReduceOp, left: UserMem, into: UserMem, count: u64)
    -> Result<()>;
    /// `len` bytes that live until the plan has been carried out.
    fn scratch(&mut self, len: u64) -> Result<UserMem>;

    /// Starts a send to a rank of the own group.
    fn send(&mut self, rank: u32, data: Data) -> Result<TransferId> {
        self.send_to(
            PlanPeer {
                side: GroupSide::Local,
                rank,
            },
            data,
        )
    }

    /// Starts a receive from a rank of the own group.
    fn recv(&mut self, rank: u32, data: Data) -> Result<TransferId> {
        self.recv_from(
            PlanPeer {
                side: GroupSide::Local,
                rank,
            },
            data,
        )
    }
}

/// Scratch memory of plans by elements.
pub trait PlanScratch: Plan {
    /// Scratch room for `count` elements of `shape`; the address is that of element 0.
    fn scratch_for(&mut self, shape: &dyn ElementLayout, count: u64) -> Result<UserMem> {
        let (low, len) = typed_buffer::span(shape, count);
        Ok(self.scratch(len)?.offset(-low as isize))
    }

    /// Scratch elements of the same datatype as `like`.
    fn scratch_like<'a>(&mut self, like: &TypedBuffer<'a>, count: u64) -> Result<TypedBuffer<'a>> {
        Ok(TypedBuffer::new(
            self.scratch_for(like.shape, count)?,
            like.shape,
        ))
    }
}

impl<P: Plan + ?Sized> PlanScratch for P {}

/// Allocates scratch memory, or says that there is none.
pub fn scratch(len: u64) -> Result<Scratch> {
    usize::try_from(len)
        .ok()
        .and_then(Scratch::new)
        .ok_or_else(|| {
            Error::new(
                Class::NoMem,
                format!("no memory for {len} bytes of temporary space of a collective"),
            )
        })
}

/// One step of a recorded schedule.
#[derive(Debug)]
pub enum ScheduleStep {
    /// Start a send.
    Send(PlanPeer, Data),
    /// Start a receive.
    Recv(PlanPeer, Data),
    /// Hold until this communication is complete.
    Wait(TransferId),
    /// Hold until all communication so far is complete.
    Fence,
    /// Copy a packed stream.
    Copy(Data, Data),
    /// Combine two runs of elements.
    Fold(CombineStep),
}

/// A reduction step: `into = left op into`.
#[derive(Debug)]
pub struct CombineStep {
    /// Operation and datatype.
    pub fold: Arc<dyn ReduceOp>,
    /// Left operand.
    pub left: UserMem,
    /// Right operand and result.
    pub into: UserMem,
    /// Elements.
    pub count: u64,
}

/// All steps of one process in one collective, with the temporary memory they use.
///
/// A [`PlanRecorder`] makes it. The request of a nonblocking collective owns it through a
/// [`RunningSchedule`](super::execute::RunningSchedule), a persistent collective for all its
/// starts.
#[derive(Debug, Default)]
pub struct Schedule {
    /// The steps, in order.
    pub steps: Vec<ScheduleStep>,
    /// Kept alive for the steps' views of it.
    pub scratch: Vec<TempBuffer>,
}

impl Schedule {
    /// Nothing but waiting for what was started before.
    pub fn fence() -> Self {
        Self {
            steps: vec![ScheduleStep::Fence],
            scratch: Vec::new(),
        }
    }

    /// Whether a step runs the program's own code, and so may only be taken on a user thread inside
    /// an MPI call.
    pub fn runs_user_code(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(step, ScheduleStep::Fold(combine) if combine.fold.user()))
    }
}

/// The plan that keeps its steps.
pub struct PlanRecorder {
    me: u32,
    size: u32,
    across: u32,
    together: bool,
    spread: Option<Arc<NodeMap>>,
    started: u32,
    schedule: Schedule,
    last_fold: Option<Arc<dyn ReduceOp>>,
}

impl PlanRecorder {
    /// Makes the plan of a process of a communicator, after `started` communications.
    pub fn on(comm: &Comm, started: u32) -> Self {
        let across = comm.0.remote.as_ref().map_or(0, |group| group.size());
        Self {
            together: comm.is_on_node(),
            spread: comm.spread().cloned(),
            started,
            ..Self::new(comm.rank(), comm.size(), across)
        }
    }

    /// An empty plan for rank `me` of `size`, with `remote_size` processes in the remote group, all
    /// on one node.
    pub fn new(me: u32, size: u32, across: u32) -> Self {
        Self {
            me,
            size,
            across,
            together: true,
            spread: None,
            started: 0,
            schedule: Schedule::default(),
            last_fold: None,
        }
    }

    /// From here on its processes are spread over nodes.
    #[cfg(test)]
    pub fn spread_over(&mut self, spread: Option<NodeMap>) {
        self.together = false;
        self.spread = spread.map(Arc::new);
    }

    /// The steps stated, closed by a fence.
    pub fn finish(mut self) -> Schedule {
        self.schedule.steps.push(ScheduleStep::Fence);
        self.schedule
    }

    fn token(&mut self) -> TransferId {
        self.started += 1;
        TransferId(self.started - 1)
    }
}

impl Plan for PlanRecorder {
    fn me(&self) -> u32 {
        self.me
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn remote_size(&self) -> u32 {
        self.across
    }

    fn is_on_node(&self) -> bool {
        self.together
    }

    fn node_map(&self) -> Option<Arc<NodeMap>> {
        self.spread.clone()
    }

    fn send_to(&mut self, site: PlanPeer, data: Data) -> Result<TransferId> {
        self.schedule.steps.push(ScheduleStep::Send(site, data));
        Ok(self.token())
    }

    fn recv_from(&mut self, site: PlanPeer, data: Data) -> Result<TransferId> {
        self.schedule.steps.push(ScheduleStep::Recv(site, data));
        Ok(self.token())
    }

    fn wait(&mut self, token: TransferId) -> Result<()> {
        self.schedule.steps.push(ScheduleStep::Wait(token));
        Ok(())
    }

    fn fence(&mut self) -> Result<()> {
        self.schedule.steps.push(ScheduleStep::Fence);
        Ok(())
    }

    fn copy(&mut self, src: Data, dst: Data) -> Result<()> {
        self.schedule.steps.push(ScheduleStep::Copy(src, dst));
        Ok(())
    }

    fn fold(
        &mut self,
        fold: &dyn ReduceOp,
        left: UserMem,
        into: UserMem,
        count: u64,
    ) -> Result<()> {
        let fold = self.last_fold.get_or_insert_with(|| fold.keep()).clone();
        self.schedule.steps.push(ScheduleStep::Fold(CombineStep {
            fold,
            left,
            into,
            count,
        }));
        Ok(())
    }

    fn scratch(&mut self, len: u64) -> Result<UserMem> {
        let scratch = TempBuffer::new(len)?;
        let mem = scratch.mem();
        self.schedule.scratch.push(scratch);
        Ok(mem)
    }
}
