//! The plan of a nonblocking collective: steps that need no wait are performed at once, the others
//! are recorded.
//!
//! [`Comm::start_collective`](crate::comm::Comm::start_collective) makes a [`NonblockingPlan`].
//! Until the first `wait` or `fence` that would have to wait, steps are performed as they are
//! stated, on the caller's thread. From there on they are recorded for the engine's steppers. So a
//! root whose messages all leave at once, or a rank that has nothing to do, needs no stepper.

use super::execute::{CollContext, InFlight, RunningSchedule};
use super::{Collective, recorder_on};
use crate::comm::Comm;
use crate::error::{Error, Result};
use garonne_coll::node_map::NodeMap;
use garonne_coll::plan::{Plan, PlanPeer, PlanRecorder, Schedule, TransferId};
use garonne_coll::temp_buffer::TempBuffer;
use garonne_coll::typed_buffer::{self, ReduceOp};
use garonne_sync::user::{Data, UserMem};
use std::sync::Arc;

/// The plan of a call that does not wait.
pub(super) struct NonblockingPlan {
    ctx: CollContext<'static>,
    in_flight: InFlight,
    /// From the first step that must wait.
    rest: Option<PlanRecorder>,
}

/// Way in which starting ended.
pub(super) enum StartOutcome {
    /// Nothing is left to do.
    Over,
    /// The rest is a stepper's.
    Running(Arc<RunningSchedule>),
}

/// Records the steps of a call, for an operation that performs them later.
pub(super) fn plan_of(call: &impl Collective, comm: &Comm) -> Result<Schedule> {
    let mut recorder = recorder_on(comm, 0);
    call.plan(&mut recorder)?;
    Ok(recorder.finish())
}

impl NonblockingPlan {
    pub fn new(ctx: CollContext<'static>) -> Self {
        Self {
            ctx,
            in_flight: InFlight::default(),
            rest: None,
        }
    }

    /// Closes the plan.
    ///
    /// # Errors
    /// What an operation met that is over already, if all are.
    pub fn finish(mut self) -> Result<StartOutcome> {
        let over = self.rest.is_none() && self.in_flight.transfers.all_over(&self.ctx);
        if over {
            return self
                .in_flight
                .transfers
                .take_error()
                .map_or(Ok(StartOutcome::Over), Err);
        }
        let schedule = self.rest.map_or_else(Schedule::fence, PlanRecorder::finish);
        Ok(StartOutcome::Running(RunningSchedule::new(
            self.ctx,
            schedule,
            self.in_flight,
        )))
    }

    /// Returns whether steps are still taken as they are stated.
    fn is_immediate(&self) -> bool {
        self.rest.is_none()
    }

    /// The plan for what comes after a step that must wait.
    fn record(&mut self) -> &mut PlanRecorder {
        let (comm, started) = (self.ctx.comm(), self.in_flight.transfers.started());
        self.rest.get_or_insert_with(|| recorder_on(comm, started))
    }
}

impl Plan for NonblockingPlan {
    type Error = Error;

    fn me(&self) -> u32 {
        self.ctx.me()
    }

    fn size(&self) -> u32 {
        self.ctx.size()
    }

    fn remote_size(&self) -> u32 {
        self.ctx.remote_size()
    }

    fn is_on_node(&self) -> bool {
        self.ctx.is_on_node()
    }

    fn node_map(&self) -> Option<Arc<NodeMap>> {
        self.ctx.node_map()
    }

    fn send_to(&mut self, site: PlanPeer, data: Data) -> Result<TransferId> {
        match &mut self.rest {
            Some(rest) => Ok(rest.send_to(site, data)?),
            None => Ok(self.in_flight.send(&self.ctx, site, data)),
        }
    }

    fn recv_from(&mut self, site: PlanPeer, data: Data) -> Result<TransferId> {
        match &mut self.rest {
            Some(rest) => Ok(rest.recv_from(site, data)?),
            None => Ok(self.in_flight.recv(&self.ctx, site, data)),
        }
    }

    fn wait(&mut self, token: TransferId) -> Result<()> {
        match self.is_immediate() && self.in_flight.transfers.is_over(&self.ctx, token) {
            true => Ok(()),
            false => Ok(self.record().wait(token)?),
        }
    }

    fn fence(&mut self) -> Result<()> {
        match self.is_immediate() && self.in_flight.transfers.all_over(&self.ctx) {
            true => Ok(()),
            false => Ok(self.record().fence()?),
        }
    }

    fn copy(&mut self, src: Data, dst: Data) -> Result<()> {
        match &mut self.rest {
            Some(rest) => Ok(rest.copy(src, dst)?),
            None => {
                typed_buffer::copy(&src, &dst);
                Ok(())
            }
        }
    }

    fn fold(
        &mut self,
        fold: &dyn ReduceOp,
        left: UserMem,
        into: UserMem,
        count: u64,
    ) -> Result<()> {
        match &mut self.rest {
            Some(rest) => Ok(rest.fold(fold, left, into, count)?),
            None => {
                self.in_flight.fold(fold, left, into, count);
                Ok(())
            }
        }
    }

    fn scratch(&mut self, len: u64) -> Result<UserMem> {
        let scratch = TempBuffer::new(len)?;
        let mem = scratch.mem();
        self.in_flight.scratch.push(scratch);
        Ok(mem)
    }
}
