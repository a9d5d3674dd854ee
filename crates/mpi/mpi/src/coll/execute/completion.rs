//! A schedule under way as what its host steps and what a thread waits for.

use super::RunningSchedule;
use crate::comm::Comm;
use crate::request::{Completion, Outcome, Status};
use garonne_progress::messaging::{AnyOfWaiter, Messaging, Stepper, WaitTarget};
use std::sync::atomic::Ordering;

impl Stepper for RunningSchedule {
    fn step(&self, _host: &dyn Messaging) -> bool {
        let over = self.advance();
        if over {
            self.ctx.trace_end();
            // SYNC(collective): Release the result and the program's buffers.
            self.over.store(true, Ordering::Release);
        }
        over
    }

    fn runs_user_code(&self) -> bool {
        self.runs_user_code
    }

    fn call_site(&self) -> u64 {
        self.ctx.origin.site
    }

    fn current_waiter(&self) -> Option<&AnyOfWaiter> {
        Some(&self.waiter)
    }
}

impl Completion for RunningSchedule {
    fn is_done(&self) -> bool {
        // SYNC(collective): Acquire the result and the program's buffers.
        self.over.load(Ordering::Acquire)
    }

    fn awaits(&self) -> WaitTarget {
        WaitTarget::stepper_end(self)
    }

    fn awaits_among(&self) -> WaitTarget {
        self.waiter.register();
        self.awaits()
    }

    fn peek(&self) -> Outcome {
        let state = self.state();
        state
            .in_flight
            .transfers
            .error
            .clone()
            .map_or(Ok(Status::EMPTY), Err)
    }

    fn comm(&self) -> Option<Comm> {
        Some(self.ctx.comm.clone().into_owned())
    }

    fn must_finish(&self) -> bool {
        true
    }
}
