//! Accesses that go on after the call: tasks of the process, which idle cores and waiting threads
//! carry out in slices.

use super::File;
use super::independent::{Access, ReadyAccess};
use super::staged::Staged;
use super::transfer::SlicedTransfer;
use crate::comm::Comm;
use crate::error::{Class, Error, Result};
use crate::request::{Completion, Outcome, Request};
use garonne_progress::messaging::{AnyOfWaiter, WaitTarget};
use garonne_progress::tasks::{
    Place as TaskPlace, RunContext, RunOutcome, TaskOptions, Tasks, shared,
};
use garonne_sync::mutex::lock;
use garonne_sync::task_node::TaskWork;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes up to which an access is carried out by its call: handing it on would take longer.
pub(super) const AT_ONCE_BYTES: u64 = if cfg!(test) { 64 } else { 4096 };

/// An access that goes on. Its task and its request share it.
struct Running {
    comm: Comm,
    progress: Mutex<AccessProgress>,
    is_over: AtomicBool,
    waiter: AnyOfWaiter,
}

/// How far an access is. One thread at a time has it.
struct AccessProgress {
    transfer: SlicedTransfer,
    staged: Staged,
    outcome: Option<Outcome>,
}

impl AccessProgress {
    /// Moves a slice; returns how the access ended, if it did.
    fn advance(&mut self) -> Option<Outcome> {
        let moved = self.transfer.advance()?;
        Some(moved.and_then(|()| ReadyAccess::status(&self.staged, self.transfer.moved())))
    }
}

impl Running {
    /// Moves a slice, and wakes who waits if that was the last one.
    fn step(&self) -> RunOutcome {
        let mut progress = lock(&self.progress);
        if progress.outcome.is_some() {
            return RunOutcome::Done;
        }
        let Some(outcome) = progress.advance() else {
            return RunOutcome::Again;
        };
        progress.outcome = Some(outcome);
        drop(progress);
        // SYNC(file-access): Release the data that were read, Acquire in `is_done`.
        self.is_over.store(true, Ordering::Release);
        let host = &self.comm.process().host;
        host.signal(self.awaits(), &self.waiter);
        RunOutcome::Done
    }
}

impl Completion for Running {
    fn is_done(&self) -> bool {
        // SYNC(file-access): Acquire what the last slice did.
        self.is_over.load(Ordering::Acquire)
    }

    fn awaits(&self) -> WaitTarget {
        WaitTarget::signal_of(self)
    }

    fn awaits_among(&self) -> WaitTarget {
        self.waiter.register();
        self.awaits()
    }

    fn peek(&self) -> Outcome {
        let missing = || Error::new(Class::Intern, "an access to a file has no outcome");
        let outcome = lock(&self.progress).outcome.clone();
        outcome.unwrap_or_else(|| Err(missing()))
    }

    fn must_finish(&self) -> bool {
        true
    }

    fn comm(&self) -> Option<Comm> {
        Some(self.comm.clone())
    }
}

/// The task of an access.
struct AccessTask(Arc<Running>);

impl TaskWork<RunContext> for AccessTask {
    fn run(&self, _: &RunContext) -> RunOutcome {
        self.0.step()
    }
}

impl File {
    /// `MPI_File_iread`, `MPI_File_iwrite_at` and their kin.
    ///
    /// # Errors
    /// Those of [`File::access`] that are found before data move; the request tells the others.
    pub fn start(&self, access: Access<'_>) -> Result<Request> {
        self.ready(access).map(|ready| self.start_ready(ready))
    }

    /// Starts an access that is ready.
    pub(super) fn start_ready(&self, ready: ReadyAccess) -> Request {
        let len = ready.transfer.data.len;
        // Functions of the program run in its calls only.
        let at_once = len <= AT_ONCE_BYTES || ready.staged.ends_in_program();
        let running = Arc::new(Running {
            comm: self.comm().clone(),
            progress: Mutex::new(AccessProgress {
                transfer: SlicedTransfer::new(ready.transfer),
                staged: ready.staged,
                outcome: None,
            }),
            is_over: AtomicBool::new(false),
            waiter: AnyOfWaiter::default(),
        });
        if at_once || self.submit(&running).is_none() {
            while running.step() == RunOutcome::Again {}
        }
        Request::new(self.comm(), running)
    }

    /// Hands an access to the tasks of the process; `None` if there are none.
    fn submit(&self, running: &Arc<Running>) -> Option<()> {
        let tasks = self.tasks()?;
        let options = TaskOptions::at(TaskPlace::Nearest);
        let task = tasks.task(&options, AccessTask(running.clone())).ok()?;
        tasks.submit_shared(&Arc::new(task)).ok()
    }

    pub(super) fn tasks(&self) -> Option<&Tasks> {
        self.0.tasks.get_or_init(|| shared().ok()).as_ref()
    }
}
