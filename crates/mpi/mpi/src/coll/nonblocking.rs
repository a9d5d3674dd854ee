//! Starts a nonblocking collective: what can be done at once is done at once, the rest is recorded.
//!
//! Used by [`Comm::start_collective`](crate::comm::Comm::start_collective). Until the first `wait`
//! or `fence` that would have to wait, steps are taken as they are stated, on the caller's thread;
//! from there on they are kept for the host's steppers. So a root whose messages all leave at once,
//! or a rank that has nothing to do, needs no stepper, and the others' is short. Bounded as
//! [`super::execute`].

use super::Collective;
use super::execute::{CollContext, InFlight, RunningSchedule};
use super::node_map::NodeMap;
use super::plan::{Plan, PlanPeer, PlanRecorder, Schedule, TransferId};
use super::temp_buffer::TempBuffer;
use super::typed_buffer::{self, ReduceOp};
use crate::comm::Comm;
use crate::error::Result;
use garonne_sync::user::{Data, UserMem};
use std::sync::Arc;

/// The plan of a call that does not wait.
pub(super) struct NonblockingPlan {
    wire: CollContext<'static>,
    afloat: InFlight,
    /// From the first step that must wait.
    rest: Option<PlanRecorder>,
}

/// How starting ended.
pub(super) enum StartOutcome {
    /// Nothing is left to do.
    Over,
    /// The rest is a stepper's.
    Running(Arc<RunningSchedule>),
}

/// What a call would do, for an operation that has to do it later.
pub(super) fn plan_of(call: &impl Collective, comm: &Comm) -> Result<Schedule> {
    let mut recorder = PlanRecorder::on(comm, 0);
    call.plan(&mut recorder)?;
    Ok(recorder.finish())
}

impl NonblockingPlan {
    pub fn new(wire: CollContext<'static>) -> Self {
        Self {
            wire,
            afloat: InFlight::default(),
            rest: None,
        }
    }

    /// Closes the plan.
    ///
    /// # Errors
    /// What an operation met that is over already, if all are.
    pub fn finish(mut self) -> Result<StartOutcome> {
        let over = self.rest.is_none() && self.afloat.flight.all_over(&self.wire);
        if over {
            return self
                .afloat
                .flight
                .take_error()
                .map_or(Ok(StartOutcome::Over), Err);
        }
        let schedule = self.rest.map_or_else(Schedule::fence, PlanRecorder::finish);
        Ok(StartOutcome::Running(RunningSchedule::new(
            self.wire,
            schedule,
            self.afloat,
        )))
    }

    /// Whether steps are still taken as they are stated.
    fn acts(&self) -> bool {
        self.rest.is_none()
    }

    /// The plan for what comes after a step that must wait.
    fn record(&mut self) -> &mut PlanRecorder {
        let (comm, started) = (self.wire.comm(), self.afloat.flight.started());
        self.rest
            .get_or_insert_with(|| PlanRecorder::on(comm, started))
    }
}

impl Plan for NonblockingPlan {
    fn me(&self) -> u32 {
        self.wire.me()
    }

    fn size(&self) -> u32 {
        self.wire.size()
    }

    fn remote_size(&self) -> u32 {
        self.wire.across()
    }

    fn is_on_node(&self) -> bool {
        self.wire.together()
    }

    fn node_map(&self) -> Option<Arc<NodeMap>> {
        self.wire.spread()
    }

    fn send_to(&mut self, site: PlanPeer, data: Data) -> Result<TransferId> {
        match &mut self.rest {
            Some(rest) => rest.send_to(site, data),
            None => Ok(self.afloat.send(&self.wire, site, data)),
        }
    }

    fn recv_from(&mut self, site: PlanPeer, data: Data) -> Result<TransferId> {
        match &mut self.rest {
            Some(rest) => rest.recv_from(site, data),
            None => Ok(self.afloat.recv(&self.wire, site, data)),
        }
    }

    fn wait(&mut self, token: TransferId) -> Result<()> {
        match self.acts() && self.afloat.flight.is_over(&self.wire, token) {
            true => Ok(()),
            false => self.record().wait(token),
        }
    }

    fn fence(&mut self) -> Result<()> {
        match self.acts() && self.afloat.flight.all_over(&self.wire) {
            true => Ok(()),
            false => self.record().fence(),
        }
    }

    fn copy(&mut self, src: Data, dst: Data) -> Result<()> {
        match &mut self.rest {
            Some(rest) => rest.copy(src, dst),
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
            Some(rest) => rest.fold(fold, left, into, count),
            None => {
                self.afloat.fold(fold, left, into, count);
                Ok(())
            }
        }
    }

    fn scratch(&mut self, len: u64) -> Result<UserMem> {
        let scratch = TempBuffer::new(len)?;
        let mem = scratch.mem();
        self.afloat.scratch.push(scratch);
        Ok(mem)
    }
}
