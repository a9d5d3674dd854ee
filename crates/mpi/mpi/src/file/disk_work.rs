//! System calls of an access that goes on in the background: tasks make them, and the access, which
//! is a stepper, hears of their end.

use super::nonblocking::AT_ONCE_BYTES;
use crate::comm::Comm;
use crate::process::Process;
use garonne_progress::tasks::{Place, RunContext, RunOutcome, TaskOptions, Tasks};
use garonne_sync::mutex::lock;
use garonne_sync::progress_owner::{ProgressWakeup, WakeupScope};
use garonne_sync::shm::Segment;
use garonne_sync::task_node::TaskWork;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;

/// Who makes the system calls of an access.
#[derive(Clone)]
pub(super) enum DiskWorkers {
    /// Whoever advances the access.
    Caller,
    /// The tasks of the process, where there is much to do.
    Tasks(Tasks, Arc<AccessWaker>),
}

/// Has a rank look at its steppers again.
pub(super) struct AccessWaker {
    process: Arc<Process>,
    /// Words by which the rank's own progress thread is called, if there are some.
    progress: Option<Segment>,
}

impl AccessWaker {
    /// For the rank of a communicator. To be called by a thread of the program.
    pub fn new(comm: &Comm) -> Self {
        let process = comm.process().clone();
        let progress = process.host.progress_wakeup_words(process.host.me());
        Self { process, progress }
    }

    /// Something that a stepper looks at has changed.
    fn wake(&self) {
        self.process.host.wake();
        if let Some(words) = &self.progress {
            let call = ProgressWakeup::new(words.atomic_u32(0), words.atomic_u32(4));
            call.ring(WakeupScope::Everything);
        }
    }
}

type Slices<T> = Box<dyn FnMut() -> Option<T> + Send>;

/// Work of one access. The task and the access share it.
struct DiskJob<T> {
    slices: Mutex<Slices<T>>,
    outcome: Mutex<Option<T>>,
    waker: Arc<AccessWaker>,
}

impl<T> DiskJob<T> {
    /// Does a slice.
    fn step(&self) -> RunOutcome {
        let Some(outcome) = lock(&self.slices)() else {
            return RunOutcome::Again;
        };
        *lock(&self.outcome) = Some(outcome);
        self.waker.wake();
        RunOutcome::Done
    }
}

/// The task of a job.
struct DiskTask<T>(Arc<DiskJob<T>>);

impl<T: Send + 'static> TaskWork<RunContext> for DiskTask<T> {
    fn run(&self, _: &RunContext) -> RunOutcome {
        self.0.step()
    }
}

impl DiskWorkers {
    /// Does work on so many bytes: calls `slice` until it returns the outcome.
    pub async fn run<T: Send + 'static>(
        &self,
        bytes: u64,
        mut slice: impl FnMut() -> Option<T> + Send + 'static,
    ) -> T {
        let (tasks, waker) = match self {
            Self::Tasks(tasks, waker) if bytes > AT_ONCE_BYTES => (tasks, waker),
            _ => loop {
                if let Some(outcome) = slice() {
                    return outcome;
                }
            },
        };
        let job = Arc::new(DiskJob {
            slices: Mutex::new(Box::new(slice)),
            outcome: Mutex::new(None),
            waker: waker.clone(),
        });
        let submitted = tasks
            .task(&TaskOptions::at(Place::Nearest), DiskTask(job.clone()))
            .and_then(|task| tasks.submit_shared(&Arc::new(task)));
        if submitted.is_err() {
            while job.step() == RunOutcome::Again {}
        }
        poll_fn(|_| lock(&job.outcome).take().map_or(Poll::Pending, Poll::Ready)).await
    }
}
