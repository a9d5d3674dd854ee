//! Persistent collectives (MPI 5.0 section 6.13): planned once, carried out at each start.
//!
//! The plan is made where the collective is initialised: arguments are checked and the algorithm is
//! chosen there, and a start only takes the steps. Processes may start what they initialised in
//! different orders, so the slots of a communicator, which count calls, do not serve. Each
//! persistent collective has a tag of its own, from its place among those of its communicator. Two
//! starts of one collective follow each other in the order of their messages.
//!
//! Two persistent collectives that live at a time never have one number. Where counting has come
//! round to one that lives, the new one is refused on each process that still has the old one. The
//! schedule and its temporary memory live as long as the request.

use super::Collective;
use super::execute::{CollContext, InFlight, RunningSchedule};
use super::nonblocking::plan_of;
use super::shm_nonblocking::persistent_slots::{GrantMessage, PersistentSlots};
use crate::comm::Comm;
use crate::error::{Class, Result};
use crate::request::Request;
use garonne_coll::call_tag::{CallSeries, NUMBERS};
use garonne_coll::plan::Schedule;
use garonne_engine::api::CallOrigin;
use garonne_progress::messaging::Stepper;
use std::sync::Arc;

impl Comm {
    /// Initialises a collective (`MPI_Bcast_init` and its kin): gives an inactive request. The
    /// program's buffers belong to it while it is active; counts, displacements and datatypes never
    /// do.
    ///
    /// # Errors
    /// As [`Comm::collective`], for what is wrong with the arguments; what the communication meets
    /// is told by each start's completion.
    pub fn init_collective(&self, call: &impl Collective, origin: CallOrigin) -> Result<Request> {
        call.check(self)?;
        // Who has no memory for it is not counted, either, and in step when it tries again.
        let schedule = Arc::new(plan_of(call, self)?);
        let word = GrantMessage::of(call, self)?;
        let ctx = CollContext::owned(
            self,
            self.next_call(CallSeries::Persistent, call.kind()),
            origin,
        );
        let slots = word.map(|word| PersistentSlots::of(call, &ctx, word));
        let kept = PersistentCollective::new(ctx, schedule, slots)?;
        Ok(Request::persistent(
            self,
            Box::new(move || Ok(kept.start())),
        ))
    }
}

/// A persistent collective, owned by its request. No other on its communicator has its number while
/// it lives.
struct PersistentCollective {
    ctx: CollContext<'static>,
    schedule: Arc<Schedule>,
    /// Place where it meets in shared memory, if it may.
    slots: Option<Arc<PersistentSlots>>,
}

impl PersistentCollective {
    fn new(
        ctx: CollContext<'static>,
        schedule: Arc<Schedule>,
        slots: Option<Arc<PersistentSlots>>,
    ) -> Result<Self> {
        let (comm, call) = (ctx.comm(), ctx.call());
        if !comm.0.persistent().insert(call.number) {
            let text = format!(
                "{call} is still there, and {NUMBERS} were initialised since: free it, or use a duplicate of the communicator for one of both"
            );
            return Err(comm.error(Class::Other, text));
        }
        Ok(Self {
            ctx,
            schedule,
            slots,
        })
    }

    fn start(&self) -> Request {
        let process = self.ctx.comm().process();
        let mut ctx = self.ctx.clone();
        ctx.trace_start();
        if let Some(started) = self
            .slots
            .as_ref()
            .and_then(|slots| slots.start(&ctx, &self.schedule))
        {
            return started;
        }
        let running = RunningSchedule::new(ctx, self.schedule.clone(), InFlight::default());
        // On the caller's thread, which may run the program's own operations.
        if !running.step(&*process.host) {
            process.host.attach_stepper(running.clone());
        }
        match running.take_if_over() {
            Some(Ok(status)) => Request::done(process, status),
            // What went wrong is told by the wait or test, so that others started in the same call
            // are started.
            _ => Request::new(process, running),
        }
    }
}

impl Drop for PersistentCollective {
    fn drop(&mut self) {
        self.ctx
            .comm()
            .0
            .persistent()
            .remove(&self.ctx.call().number);
    }
}
