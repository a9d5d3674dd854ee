//! Collective accesses that go on beside the program (`MPI_File_iwrite_all`, split ones): steppers
//! of the rank's engine, which take the same way as blocking ones and give way where those wait.
//!
//! The accesses of a file take place one after the other, in the order of their calls, so all
//! processes meet in one order. A blocking collective call waits for those before it
//! ([`finish_background`]).

use super::File;
use super::agreement::{Agreement, Waiting};
use super::disk_work::{AccessWaker, DiskWorkers};
use super::independent::ReadyAccess;
use super::transfer::Direction;
use crate::comm::Comm;
use crate::error::{Class, Error, Result};
use crate::request::{Completion, Outcome, Request};
use garonne_engine::api::CallOrigin;
use garonne_progress::messaging::{AnyOfWaiter, Messaging, Stepper, WaitTarget};
use garonne_sync::mutex::lock;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};

type AccessWork = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A collective access under way, which its request and the engine's steppers share.
pub(super) struct BackgroundAccess {
    comm: Comm,
    origin: CallOrigin,
    work: Mutex<Option<AccessWork>>,
    outcome: Mutex<Option<Outcome>>,
    is_over: AtomicBool,
    /// The access ends with functions of the program, which convert data.
    ends_in_program: bool,
    waiter: AnyOfWaiter,
}

impl Stepper for BackgroundAccess {
    fn step(&self, _: &dyn Messaging) -> bool {
        let mut work = lock(&self.work);
        let Some(future) = work.as_mut() else {
            return true;
        };
        let Poll::Ready(outcome) = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        else {
            return false;
        };
        *work = None;
        *lock(&self.outcome) = Some(outcome);
        // SYNC(file-access-all): Release the data that were read, Acquire in `is_done`.
        self.is_over.store(true, Ordering::Release);
        true
    }

    fn runs_user_code(&self) -> bool {
        self.ends_in_program
    }

    fn polls_memory(&self) -> bool {
        // Workers note the ends of system calls there.
        true
    }

    fn call_site(&self) -> u64 {
        self.origin.site
    }

    fn current_waiter(&self) -> Option<&AnyOfWaiter> {
        Some(&self.waiter)
    }
}

impl Completion for BackgroundAccess {
    fn is_done(&self) -> bool {
        // SYNC(file-access-all): Acquire what the last step did.
        self.is_over.load(Ordering::Acquire)
    }

    fn awaits(&self) -> WaitTarget {
        WaitTarget::stepper_end(self)
    }

    fn awaits_among(&self) -> WaitTarget {
        self.waiter.register();
        self.awaits()
    }

    fn peek(&self) -> Outcome {
        let missing = || Error::new(Class::Intern, "an access to a file has no outcome");
        lock(&self.outcome)
            .clone()
            .unwrap_or_else(|| Err(missing()))
    }

    fn must_finish(&self) -> bool {
        true
    }

    fn comm(&self) -> Option<Comm> {
        Some(self.comm.clone())
    }
}

impl BackgroundAccess {
    fn new(
        (comm, origin): (&Comm, CallOrigin),
        ends_in_program: bool,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            comm: comm.clone(),
            origin,
            work: Mutex::new(Some(Box::pin(work))),
            outcome: Mutex::new(None),
            is_over: AtomicBool::new(false),
            ends_in_program,
            waiter: AnyOfWaiter::default(),
        })
    }

    /// Takes the first step, and leaves the others to the engine.
    fn begin(self: Arc<Self>) -> Request {
        let host = &self.comm.process().host;
        host.attach_stepper(self.clone());
        Request::new(&self.comm, self.clone())
    }

    /// Starts work of a test.
    #[cfg(test)]
    pub fn start(comm: &Comm, work: impl Future<Output = Outcome> + Send + 'static) -> Request {
        Self::new((comm, CallOrigin::default()), false, work).begin()
    }
}

/// Starts a collective access, of which this process's part may have been refused: the others
/// then hear of it.
pub(super) fn start_in_background(
    file: &File,
    direction: Direction,
    ready: Result<ReadyAccess>,
    origin: CallOrigin,
) -> Request {
    let ends_in_program = matches!(&ready, Ok(ready) if ready.staged.ends_in_program());
    let workers = match (ends_in_program, file.tasks()) {
        (false, Some(tasks)) => {
            DiskWorkers::Tasks(tasks.clone(), Arc::new(AccessWaker::new(file.comm())))
        }
        _ => DiskWorkers::Caller,
    };
    let mut last = lock(&file.0.background);
    let (own, before) = (file.clone(), last.clone());
    let work = async move {
        poll_fn(
            |_| match before.upgrade().is_none_or(|before| before.is_done()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            },
        )
        .await;
        let meeting = Agreement {
            comm: own.comm(),
            origin,
            waiting: Waiting::InBackground,
        };
        let decided = meeting.decide(&own, direction, ready).await?;
        meeting.carry_out(&own, &workers, decided).await
    };
    let access = BackgroundAccess::new((file.comm(), origin), ends_in_program, work);
    *last = Arc::downgrade(&access);
    drop(last);
    access.begin()
}

/// Waits until the collective accesses in the background are over.
pub(super) fn finish_background(file: &File) {
    let last = lock(&file.0.background).upgrade();
    if let Some(access) = last.filter(|access| !access.is_done()) {
        let host = &file.comm().process().host;
        host.wait_for(&|| access.awaits(), &mut || access.is_done());
    }
}

/// The last collective access of a file in the background.
pub(super) type LastBackgroundAccess = Mutex<Weak<BackgroundAccess>>;
