//! Requests: everything that `MPI_Wait` and its family may wait for (MPI 5.0 sections 3.7, 3.9,
//! 13.2).
//!
//! A [`Request`] is a value behind the edge's handle. After [`wait`], a true [`test`] or their kin
//! gave its outcome, the edge drops it and nulls the handle, unless [`Request::is_persistent`]:
//! then it is inactive and stays. Null handles are `None` in the slices here. At most one thread
//! completes a request, as the standard demands; any may look at it with [`get_status`].
//!
//! Other modules make requests from an [`Arc<dyn Completion>`](Completion): collectives,
//! constructors that do not block, generalised requests.

#[cfg(test)]
mod concurrent_wait_tests;
pub mod generalized;
mod wait;
#[cfg(test)]
mod wait_tests;

pub use wait::{
    TestAny, get_status, get_status_all, get_status_any, get_status_some, test, test_all, test_any,
    test_some, wait, wait_all, wait_any, wait_some,
};

use crate::comm::Comm;
use crate::error::{Class, Error, Result};
use crate::process::Process;
use garonne_engine::api;
use garonne_engine::fast::recv::ReceivedMessage;
use garonne_engine::observe::events::{ExternalWait, PendingOperation};
use garonne_progress::messaging::{AnyOfWaiter, WaitTarget};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The status of a completed operation (`MPI_Status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// `MPI_SOURCE`.
    pub source: i32,
    /// `MPI_TAG`.
    pub tag: i32,
    /// Bytes received, from which `MPI_Get_count` computes.
    pub len: u64,
    /// `MPI_Test_cancelled`.
    pub cancelled: bool,
}

impl From<ReceivedMessage> for Status {
    #[inline(always)]
    fn from(caught: ReceivedMessage) -> Self {
        Self {
            source: caught.source as i32,
            tag: caught.tag,
            len: caught.len.into(),
            cancelled: false,
        }
    }
}

impl Status {
    /// The empty status of the standard: what null and inactive requests and sends give.
    pub const EMPTY: Status = Status {
        source: crate::ANY_SOURCE,
        tag: crate::ANY_TAG,
        len: 0,
        cancelled: false,
    };
    /// Status of a receive from `MPI_PROC_NULL`.
    pub const PROC_NULL: Status = Status {
        source: crate::PROC_NULL,
        tag: crate::ANY_TAG,
        len: 0,
        cancelled: false,
    };

    pub(crate) fn of_receive(status: &api::Status) -> Self {
        Self {
            source: status.source as i32,
            tag: status.tag,
            len: status.len,
            cancelled: status.cancelled,
        }
    }
}

/// Way in which an operation ended.
pub type Outcome = Result<Status>;

/// An operation beside the engine's own that completes some day: a collective's schedule, a
/// constructor, a generalised request. Whoever completes it makes sure that waiters look again (a
/// stepper's move does; otherwise `Messaging::wake`).
pub trait Completion: Send + Sync {
    /// Returns whether it is over. Cheap; makes no progress.
    fn is_done(&self) -> bool;

    /// Called on the user's thread inside a wait or test on this request, before `is_done`, for
    /// steps that run user code (user operators). Most need nothing.
    fn advance(&self) {}

    /// The thread waits for this alone: a moment of looking at nothing else, where that is worth
    /// it.
    fn linger(&self) {}

    /// Returns the wait target of a thread that waits for this alone.
    fn awaits(&self) -> WaitTarget {
        WaitTarget::Anything
    }

    /// Returns the wait target of a thread that waits for this among others, for
    /// [`Waiting::register_any_of`](garonne_progress::messaging::Host::any_of). It may change
    /// whenever some of that has come.
    fn awaits_among(&self) -> WaitTarget {
        WaitTarget::Anything
    }

    /// Returns how it ended, for `MPI_Request_get_status`. Only called once `is_done`; may be
    /// called several times.
    fn peek(&self) -> Outcome;

    /// Returns how it ended, at the wait or test that frees the request. Only called once
    /// `is_done`, and once.
    fn finish(&self) -> Outcome {
        self.peek()
    }

    /// `MPI_Cancel`.
    fn cancel(&self) -> Result<()> {
        Err(Error::new(
            Class::Request,
            "MPI_Cancel: an operation of this kind cannot be cancelled",
        ))
    }

    /// `MPI_Request_free` while active. The operation goes on.
    fn free(&self) -> Result<()> {
        Ok(())
    }

    /// Other processes need this one's part in it: finalize waits for one that was freed.
    fn must_finish(&self) -> bool {
        false
    }

    /// The communicator whose error handler errors belong to.
    fn comm(&self) -> Option<Comm> {
        None
    }

    /// Describes for tools what its waiter waits for outside the engine. Returns `None` if that is
    /// nothing, or over.
    fn meeting(&self) -> Option<ExternalWait> {
        None
    }
}

/// One operation that the program can wait for.
pub struct Request(RequestKind);

enum RequestKind {
    /// Over at birth; kept for its status, with its place among the completions.
    Done(Status, RequestOwner, u64),
    Send(Comm, api::Request),
    Recv(Comm, api::Request),
    Shared(RequestOwner, Arc<dyn Completion>),
    Persistent(Comm, Box<PersistentState>),
}

/// The owner of a request. A communicator is counted rather than its rank where there is one:
/// threads that use communicators of their own then share no counter.
pub struct RequestOwner(OwnerKind);

enum OwnerKind {
    Rank(Arc<Process>),
    Member(Comm),
}

impl RequestOwner {
    fn process(&self) -> &Arc<Process> {
        match &self.0 {
            OwnerKind::Rank(process) => process,
            OwnerKind::Member(comm) => comm.process(),
        }
    }
}

impl From<&Arc<Process>> for RequestOwner {
    fn from(process: &Arc<Process>) -> Self {
        Self(OwnerKind::Rank(process.clone()))
    }
}

impl From<&Comm> for RequestOwner {
    fn from(comm: &Comm) -> Self {
        Self(OwnerKind::Member(comm.clone()))
    }
}

struct PersistentState {
    start: Box<dyn Fn() -> Result<Request> + Send + Sync>,
    active: Mutex<Option<Request>>,
    /// The threads that wait for its start, and then for its end, among others.
    waiter: AnyOfWaiter,
}

impl PersistentState {
    fn active(&self) -> MutexGuard<'_, Option<Request>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn awaits_among(&self) -> WaitTarget {
        if let Some(active) = &*self.active() {
            return active.awaits_among();
        }
        // Another thread may start it: who does finds this, or is found here.
        self.waiter.register();
        let active = self.active();
        active
            .as_ref()
            .map_or(WaitTarget::signal_of(self), Request::awaits_among)
    }
}

impl Request {
    /// An operation that was over when it started.
    pub fn done(owner: impl Into<RequestOwner>, status: Status) -> Self {
        Self(RequestKind::Done(status, owner.into(), 0))
    }

    /// Waits for `completion`.
    pub fn new(owner: impl Into<RequestOwner>, completion: Arc<dyn Completion>) -> Self {
        Self(RequestKind::Shared(owner.into(), completion))
    }

    /// An inactive persistent request on `comm`; `start` starts the operation once.
    pub fn persistent(comm: &Comm, start: Box<dyn Fn() -> Result<Request> + Send + Sync>) -> Self {
        Self(RequestKind::Persistent(
            comm.clone(),
            Box::new(PersistentState {
                start,
                active: Mutex::new(None),
                waiter: AnyOfWaiter::default(),
            }),
        ))
    }

    /// A receive on `comm` that the engine was given directly and knows by `name`.
    pub fn posted(comm: &Comm, name: api::Request) -> Self {
        Self(RequestKind::Recv(comm.clone(), name))
    }

    /// Returns whether it was over at birth and has nothing to tell: any other such request could
    /// stand for it.
    #[inline]
    pub fn is_nothing(&self) -> bool {
        matches!(self.0, RequestKind::Done(Status::EMPTY, _, _))
    }

    /// The call that made it returns to the program before it is over, and it may need hands until
    /// then.
    pub(crate) fn left_open(self) -> Self {
        if let RequestKind::Send(comm, name) | RequestKind::Recv(comm, name) = &self.0 {
            comm.process().host.leave_pending(*name);
        }
        self
    }

    pub(crate) fn of_send(comm: &Comm, started: api::StartOutcome) -> Result<Self> {
        match started {
            api::StartOutcome::Done(api::Status {
                error: Some(error), ..
            }) => Err(comm.convert(error)),
            api::StartOutcome::Done(_) => Ok(Self::done(comm, Status::EMPTY)),
            api::StartOutcome::Pending(name) => Ok(Self(RequestKind::Send(comm.clone(), name))),
        }
    }

    pub(crate) fn of_recv(comm: &Comm, started: api::StartOutcome) -> Result<Self> {
        match started {
            api::StartOutcome::Done(status) => {
                let place = comm.process().host.completions(comm.context_of(status.tag));
                Ok(Self(RequestKind::Done(
                    comm.received(status)?,
                    comm.into(),
                    place,
                )))
            }
            api::StartOutcome::Pending(name) => Ok(Self(RequestKind::Recv(comm.clone(), name))),
        }
    }

    /// The rank it belongs to.
    pub fn process(&self) -> &Arc<Process> {
        match &self.0 {
            RequestKind::Send(comm, _)
            | RequestKind::Recv(comm, _)
            | RequestKind::Persistent(comm, _) => comm.process(),
            RequestKind::Done(_, owner, _) | RequestKind::Shared(owner, _) => owner.process(),
        }
    }

    /// The communicator whose error handler errors of this request belong to; `None`: to nobody's
    /// in particular.
    pub fn comm(&self) -> Option<Comm> {
        match &self.0 {
            RequestKind::Send(comm, _)
            | RequestKind::Recv(comm, _)
            | RequestKind::Persistent(comm, _) => Some(comm.clone()),
            RequestKind::Shared(_, completion) => completion.comm(),
            RequestKind::Done(..) => None,
        }
    }

    /// Returns whether the handle survives completion (becomes inactive).
    pub fn is_persistent(&self) -> bool {
        matches!(self.0, RequestKind::Persistent(..))
    }

    /// `false` for a persistent request that is not started.
    pub fn is_active(&self) -> bool {
        match &self.0 {
            RequestKind::Persistent(_, persistent) => persistent.active().is_some(),
            _ => true,
        }
    }

    /// `MPI_Start`.
    pub fn start(&self) -> Result<()> {
        let RequestKind::Persistent(comm, persistent) = &self.0 else {
            return Err(Error::new(
                Class::Request,
                "MPI_Start: this is not a persistent request",
            ));
        };
        let mut active = persistent.active();
        if active.is_some() {
            return Err(Error::new(
                Class::Request,
                "MPI_Start: this persistent request is active already; wait for it first",
            ));
        }
        *active = Some((persistent.start)()?);
        drop(active);
        if let Some(waiter) = persistent.waiter.take_registration() {
            let host = &comm.process().host;
            host.signal(WaitTarget::signal_of(&**persistent), &waiter);
        }
        Ok(())
    }

    /// `MPI_Cancel`. A receive that has not matched completes as cancelled; anything else in
    /// point-to-point completes normally, as the standard permits.
    pub fn cancel(&self) -> Result<()> {
        match &self.0 {
            RequestKind::Done(..) | RequestKind::Send(..) => Ok(()),
            RequestKind::Recv(comm, name) => comm
                .process()
                .host
                .cancel(*name)
                .map_err(|error| comm.convert(error)),
            RequestKind::Shared(_, completion) => completion.cancel(),
            RequestKind::Persistent(_, persistent) => match &*persistent.active() {
                Some(active) => active.cancel(),
                None => Err(Error::new(
                    Class::Request,
                    "MPI_Cancel: this persistent request is not active",
                )),
            },
        }
    }

    /// `MPI_Request_free`: the operation goes on, the handle is gone.
    pub fn free(self) -> Result<()> {
        match self.0 {
            RequestKind::Done(..) => {}
            RequestKind::Shared(owner, completion) => {
                completion.free()?;
                let process = owner.process().clone();
                process.retire(Request(RequestKind::Shared(owner, completion)));
            }
            RequestKind::Persistent(_, persistent) => {
                let active = persistent.active().take();
                if let Some(active) = active {
                    active.free()?;
                }
            }
            RequestKind::Send(..) | RequestKind::Recv(..) => {
                let process = self.process().clone();
                process.retire(self);
            }
        }
        Ok(())
    }

    /// The outcome if the operation is over, without making progress; the request stays.
    fn peek(&self) -> Option<Outcome> {
        match &self.0 {
            RequestKind::Done(status, _, _) => Some(Ok(*status)),
            RequestKind::Send(comm, name) => {
                settle(comm, comm.process().host.peek(*name), Comm::sent)
            }
            RequestKind::Recv(comm, name) => {
                settle(comm, comm.process().host.peek(*name), Comm::received)
            }
            RequestKind::Shared(_, completion) => {
                completion.advance();
                completion.is_done().then(|| completion.peek())
            }
            RequestKind::Persistent(_, persistent) => match &*persistent.active() {
                Some(active) => active.peek(),
                None => Some(Ok(Status::EMPTY)),
            },
        }
    }

    /// The place of an operation that is over among the completions of its rank, without making
    /// progress; `None` while it goes on. What is not a message is first.
    pub fn finished_at(&self) -> Option<u64> {
        match &self.0 {
            RequestKind::Done(_, _, place) => Some(*place),
            RequestKind::Send(comm, name) | RequestKind::Recv(comm, name) => {
                comm.process().host.completed_at(*name)
            }
            RequestKind::Persistent(_, persistent) => match &*persistent.active() {
                Some(active) => active.finished_at(),
                None => Some(0),
            },
            RequestKind::Shared(..) => self.ready().then_some(0),
        }
    }

    /// Returns the wait target of a thread that waits for this request alone.
    pub fn awaits(&self) -> WaitTarget {
        match &self.0 {
            RequestKind::Send(_, name) | RequestKind::Recv(_, name) => WaitTarget::Operation(*name),
            RequestKind::Persistent(_, persistent) => {
                let active = persistent.active();
                active
                    .as_ref()
                    .map_or(WaitTarget::Anything, Request::awaits)
            }
            RequestKind::Shared(_, completion) => completion.awaits(),
            RequestKind::Done(..) => WaitTarget::Anything,
        }
    }

    /// Returns the wait target of a thread that waits for this among others.
    fn awaits_among(&self) -> WaitTarget {
        match &self.0 {
            RequestKind::Send(_, name) | RequestKind::Recv(_, name) => WaitTarget::Operation(*name),
            RequestKind::Persistent(_, persistent) => persistent.awaits_among(),
            RequestKind::Shared(_, completion) => completion.awaits_among(),
            RequestKind::Done(..) => WaitTarget::Anything,
        }
    }

    /// Returns whether it is one operation of the engine from its beginning to its end.
    pub fn is_operation(&self) -> bool {
        matches!(self.0, RequestKind::Send(..) | RequestKind::Recv(..))
    }

    /// A thread begins to wait for this alone.
    fn linger(&self) {
        if let RequestKind::Shared(_, completion) = &self.0 {
            completion.linger();
        }
    }

    /// Describes for tools what a thread that waits for this request waits for outside the engine.
    fn meeting(&self) -> Option<ExternalWait> {
        match &self.0 {
            RequestKind::Persistent(_, persistent) => {
                persistent.active().as_ref().and_then(Request::meeting)
            }
            RequestKind::Shared(_, completion) => completion.meeting(),
            RequestKind::Done(..) | RequestKind::Send(..) | RequestKind::Recv(..) => None,
        }
    }

    /// Returns whether the operation is over, without making progress or calling user code for its
    /// status.
    fn ready(&self) -> bool {
        match &self.0 {
            RequestKind::Shared(_, completion) => {
                completion.advance();
                completion.is_done()
            }
            RequestKind::Persistent(_, persistent) => {
                persistent.active().as_ref().is_none_or(Request::ready)
            }
            _ => self.peek().is_some(),
        }
    }

    /// The outcome if the operation is over, without making progress; the request is spent then, or
    /// inactive again.
    pub(crate) fn take(&self) -> Option<Outcome> {
        match &self.0 {
            RequestKind::Done(status, _, _) => Some(Ok(*status)),
            RequestKind::Send(comm, name) => {
                settle(comm, comm.process().host.take(*name), Comm::sent)
            }
            RequestKind::Recv(comm, name) => {
                settle(comm, comm.process().host.take(*name), Comm::received)
            }
            RequestKind::Shared(_, completion) => {
                completion.advance();
                completion.is_done().then(|| completion.finish())
            }
            RequestKind::Persistent(_, persistent) => {
                let mut active = persistent.active();
                let Some(running) = &*active else {
                    return Some(Ok(Status::EMPTY));
                };
                let outcome = running.take()?;
                let goes_on =
                    matches!(&outcome, Err(error) if error.class == Class::ProcFailedPending);
                if !goes_on {
                    *active = None;
                }
                Some(outcome)
            }
        }
    }

    /// For freed requests: whether it is over, its engine slot given back.
    pub(crate) fn over(&self) -> bool {
        match &self.0 {
            // Nobody wants its outcome, and a generalised request has called its free function.
            RequestKind::Shared(_, completion) => {
                completion.advance();
                completion.is_done()
            }
            _ => self.take().is_some(),
        }
    }

    /// Returns whether there is nothing to wait for and nothing to keep.
    pub(crate) fn over_at_birth(&self) -> bool {
        matches!(self.0, RequestKind::Done(..))
    }

    /// Returns the engine's view of a send or receive that is not over.
    pub(crate) fn pending(&self) -> Option<(PendingOperation, Comm)> {
        match &self.0 {
            RequestKind::Send(comm, name) | RequestKind::Recv(comm, name) => {
                Some((comm.process().host.pending(*name)?, comm.clone()))
            }
            _ => None,
        }
    }

    /// Describes for tools what the request waits for. Returns `None` if it is over, or the program
    /// itself ends it.
    pub fn shown(&self) -> Option<PendingOperation> {
        match &self.0 {
            RequestKind::Send(comm, name) | RequestKind::Recv(comm, name) => {
                comm.process().host.pending(*name)
            }
            RequestKind::Persistent(_, persistent) => {
                persistent.active().as_ref().and_then(Request::shown)
            }
            RequestKind::Shared(_, completion) => {
                completion.meeting().map(|meeting| meeting.shown())
            }
            RequestKind::Done(..) => None,
        }
    }

    /// For freed requests: whether finalize waits for it.
    pub(crate) fn must_finish(&self) -> bool {
        match &self.0 {
            RequestKind::Send(..) => true,
            RequestKind::Shared(_, completion) => completion.must_finish(),
            _ => false,
        }
    }
}

fn settle(
    comm: &Comm,
    answer: Result<Option<api::Status>, api::Error>,
    end: fn(&Comm, api::Status) -> Outcome,
) -> Option<Outcome> {
    match answer {
        Ok(None) => None,
        Ok(Some(ended)) => Some(end(comm, ended)),
        Err(error) => Some(Err(comm.convert(error))),
    }
}
