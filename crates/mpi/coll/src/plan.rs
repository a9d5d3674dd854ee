//! A collective as steps: the interface that algorithms write to ([`Plan`]), and the recorded form
//! ([`Schedule`]).
//!
//! An algorithm is a function that states its steps in order to a plan. Communication starts when
//! its step is reached, and goes on by itself. `wait` and `fence` hold later steps back until
//! earlier communication is complete. Copies and reductions happen where they stand. There are
//! three plans:
//! - [`PlanRecorder`] records the steps.
//! - The plan of a blocking call performs each step as it is stated, and records nothing.
//! - The plan of a nonblocking call performs steps until it must wait, and records the others.
//!
//! The last two belong to who can communicate, which is `garonne-mpi`.
//!
//! Algorithms never look at data while planning, so all forms send the same messages.
//!
//! Rules for algorithms: messages of one collective between two processes are sent and received in
//! one order, which the engine's matching relies on. A buffer that is being sent is not changed,
//! and a buffer that is being received is not read, before a `wait` or `fence` that covers it.

use super::node_map::NodeMap;
use super::temp_buffer::{NoMemory, TempBuffer};
use super::typed_buffer::{self, ElementLayout, ReduceOp, TypedBuffer};
use garonne_sync::user::{Data, UserMem};
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
    /// What a step may fail with.
    type Error: From<NoMemory>;

    /// The calling process's rank in its own group.
    fn me(&self) -> u32;
    /// Size of its own group.
    fn size(&self) -> u32;
    /// Size of the remote group; 0 without one.
    fn remote_size(&self) -> u32;
    /// Returns whether all processes share one node's memory.
    fn is_on_node(&self) -> bool;
    /// Returns how the processes are spread over nodes, if that makes a difference to algorithms.
    fn node_map(&self) -> Option<Arc<NodeMap>>;

    /// Starts a send.
    fn send_to(&mut self, site: PlanPeer, data: Data) -> Result<TransferId, Self::Error>;
    /// Starts a receive.
    fn recv_from(&mut self, site: PlanPeer, data: Data) -> Result<TransferId, Self::Error>;
    /// Later steps happen after this communication is complete.
    fn wait(&mut self, token: TransferId) -> Result<(), Self::Error>;
    /// Later steps happen after all communication stated so far is complete.
    fn fence(&mut self) -> Result<(), Self::Error>;
    /// Copies the packed stream of `src` to `dst`.
    fn copy(&mut self, src: Data, dst: Data) -> Result<(), Self::Error>;
    /// `into = left op into`.
    fn fold(
        &mut self,
        fold: &dyn ReduceOp,
        left: UserMem,
        into: UserMem,
        count: u64,
    ) -> Result<(), Self::Error>;
    /// `len` bytes that live until the plan has been carried out.
    fn scratch(&mut self, len: u64) -> Result<UserMem, Self::Error>;

    /// Starts a send to a rank of the own group.
    fn send(&mut self, rank: u32, data: Data) -> Result<TransferId, Self::Error> {
        self.send_to(
            PlanPeer {
                side: GroupSide::Local,
                rank,
            },
            data,
        )
    }

    /// Starts a receive from a rank of the own group.
    fn recv(&mut self, rank: u32, data: Data) -> Result<TransferId, Self::Error> {
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
    fn scratch_for(
        &mut self,
        shape: &dyn ElementLayout,
        count: u64,
    ) -> Result<UserMem, Self::Error> {
        let (low, len) = typed_buffer::span(shape, count);
        Ok(self.scratch(len)?.offset(-low as isize))
    }

    /// Scratch elements of the same datatype as `like`.
    fn scratch_like<'a>(
        &mut self,
        like: &TypedBuffer<'a>,
        count: u64,
    ) -> Result<TypedBuffer<'a>, Self::Error> {
        Ok(TypedBuffer::new(
            self.scratch_for(like.shape, count)?,
            like.shape,
        ))
    }
}

impl<P: Plan + ?Sized> PlanScratch for P {}

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
/// A [`PlanRecorder`] makes it. The request of a nonblocking collective owns it while it is carried
/// out, a persistent collective for all its starts.
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

    /// Returns whether a step runs the program's own code, and so may only be taken on a user
    /// thread inside an MPI call.
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

    /// Spreads its processes over nodes; without a map in a way that makes no difference.
    pub fn spread_over(&mut self, spread: Option<Arc<NodeMap>>) {
        self.together = false;
        self.spread = spread;
    }

    /// Counts its communications from here on, after `started` that others have started.
    pub fn begin_at(&mut self, started: u32) {
        self.started = started;
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
    type Error = NoMemory;

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

    fn send_to(&mut self, site: PlanPeer, data: Data) -> Result<TransferId, NoMemory> {
        self.schedule.steps.push(ScheduleStep::Send(site, data));
        Ok(self.token())
    }

    fn recv_from(&mut self, site: PlanPeer, data: Data) -> Result<TransferId, NoMemory> {
        self.schedule.steps.push(ScheduleStep::Recv(site, data));
        Ok(self.token())
    }

    fn wait(&mut self, token: TransferId) -> Result<(), NoMemory> {
        self.schedule.steps.push(ScheduleStep::Wait(token));
        Ok(())
    }

    fn fence(&mut self) -> Result<(), NoMemory> {
        self.schedule.steps.push(ScheduleStep::Fence);
        Ok(())
    }

    fn copy(&mut self, src: Data, dst: Data) -> Result<(), NoMemory> {
        self.schedule.steps.push(ScheduleStep::Copy(src, dst));
        Ok(())
    }

    fn fold(
        &mut self,
        fold: &dyn ReduceOp,
        left: UserMem,
        into: UserMem,
        count: u64,
    ) -> Result<(), NoMemory> {
        let fold = self.last_fold.get_or_insert_with(|| fold.keep()).clone();
        self.schedule.steps.push(ScheduleStep::Fold(CombineStep {
            fold,
            left,
            into,
            count,
        }));
        Ok(())
    }

    fn scratch(&mut self, len: u64) -> Result<UserMem, NoMemory> {
        let scratch = TempBuffer::new(len)?;
        let mem = scratch.mem();
        self.schedule.scratch.push(scratch);
        Ok(mem)
    }
}
