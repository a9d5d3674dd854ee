//! Generalised requests (MPI 5.0 section 13.2): the program completes them, the library only waits.

use super::{Completion, Outcome, Request, Status};
use crate::error::{Error, Result};
use crate::process::Process;
use garonne_progress::messaging::{AnyOfWaiter, WaitTarget};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The program's functions of one generalised request. `Err` carries the program's error code.
pub trait GeneralizedFunctions: Any + Send + Sync {
    /// Fills in the status of the completed operation.
    fn query(&self) -> Result<Status, i32>;
    /// The last use of the request is over.
    fn free(&self) -> Result<(), i32>;
    /// `MPI_Cancel` was called; `complete` tells whether the operation is over.
    fn cancel(&self, complete: bool) -> Result<(), i32>;
}

/// A generalised request as the program completes it. The edge keeps it beside the [`Request`].
pub struct GeneralizedRequest {
    process: Arc<Process>,
    operations: Box<dyn GeneralizedFunctions>,
    state: AtomicU8,
    waiter: AnyOfWaiter,
}

const DONE: u8 = 1;
const FREED: u8 = 2;

/// `MPI_Grequest_start`.
pub fn start(
    process: &Arc<Process>,
    operations: Box<dyn GeneralizedFunctions>,
) -> (Arc<GeneralizedRequest>, Request) {
    let general = Arc::new(GeneralizedRequest {
        process: process.clone(),
        operations,
        state: AtomicU8::new(0),
        waiter: AnyOfWaiter::default(),
    });
    let request = Request::new(process, general.clone());
    (general, request)
}

impl GeneralizedRequest {
    /// `MPI_Grequest_complete`: wakes whoever waits; calls the free function if the request was
    /// freed before.
    pub fn complete(&self) -> Result<()> {
        // SYNC(general): Release what the program did before completing, Acquire in `is_done`.
        let before = self.state.fetch_or(DONE, Ordering::AcqRel);
        let host = &self.process.host;
        host.signal(Completion::awaits(self), &self.waiter);
        if before & FREED != 0 {
            self.release()
        } else {
            Ok(())
        }
    }

    /// Returns the program's functions.
    pub fn functions(&self) -> &dyn GeneralizedFunctions {
        &*self.operations
    }

    /// Returns whether it was both freed and completed: nobody needs it any more.
    pub fn is_over(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE | FREED
    }

    fn release(&self) -> Result<()> {
        let freed = self.operations.free();
        freed.map_err(|code| {
            Error::from_callback(
                code,
                format!("the free function of a generalized request returned {code}"),
            )
        })
    }
}

impl Completion for GeneralizedRequest {
    fn is_done(&self) -> bool {
        // SYNC(general): Acquire what came before `complete`.
        self.state.load(Ordering::Acquire) & DONE != 0
    }

    fn awaits(&self) -> WaitTarget {
        WaitTarget::signal_of(self)
    }

    fn awaits_among(&self) -> WaitTarget {
        self.waiter.register();
        self.awaits()
    }

    fn peek(&self) -> Outcome {
        let status = self.operations.query();
        status.map_err(|code| {
            Error::from_callback(
                code,
                format!("the query function of a generalized request returned {code}"),
            )
        })
    }

    fn finish(&self) -> Outcome {
        let outcome = self.peek();
        let freed = self.release();
        let status = outcome?;
        freed.map(|()| status)
    }

    fn cancel(&self) -> Result<()> {
        let cancelled = self.operations.cancel(self.is_done());
        cancelled.map_err(|code| {
            Error::from_callback(
                code,
                format!("the cancel function of a generalized request returned {code}"),
            )
        })
    }

    fn free(&self) -> Result<()> {
        let before = self.state.fetch_or(FREED, Ordering::AcqRel);
        if before & DONE != 0 {
            self.release()
        } else {
            Ok(())
        }
    }
}
