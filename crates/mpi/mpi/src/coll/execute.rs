//! Execution of collectives on a communicator: at once for blocking calls, as a stepper of the
//! engine for nonblocking ones.
//!
//! A collective owns its pending messages and the temporary memory that they reach ([`InFlight`]).
//! A blocking call has a [`BlockingPlan`] on its stack. A [`RunningSchedule`], which
//! [`super::nonblocking`] makes, is shared by its request and the engine's list of steppers. The
//! messages between two fences bound the memory.

mod completion;

use crate::comm::Comm;
use crate::error::{Class, Error, Result};
use crate::request::{Completion, Outcome};
use garonne_coll::call_tag::{CallId, TagScope};
use garonne_coll::node_map::NodeMap;
use garonne_coll::plan::{GroupSide, Plan, PlanPeer, Schedule, ScheduleStep, TransferId};
use garonne_coll::temp_buffer::TempBuffer;
use garonne_coll::typed_buffer::{self, ReduceOp};
use garonne_engine::api::{self, CallOrigin, Pattern, SendCompletion, Source, StartOutcome};
use garonne_engine::observe::events::{AwaitedRanks, ExternalWait};
use garonne_engine::observe::tracer::{TracedKind, TracedOperation};
use garonne_progress::messaging::{AnyOfWaiter, Messaging, WaitTarget};
use garonne_sync::user::{Data, UserMem};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One call of a collective: its communicator, the tag of its messages, and the place in the
/// program that called it.
#[derive(Clone)]
pub(crate) struct CollContext<'a> {
    comm: Cow<'a, Comm>,
    call: CallId,
    origin: CallOrigin,
    /// True if a tracer was told of the start.
    watched: bool,
}

impl<'a> CollContext<'a> {
    /// For a call that returns when it is over.
    pub fn borrowed(comm: &'a Comm, call: CallId, origin: CallOrigin) -> Self {
        Self {
            comm: Cow::Borrowed(comm),
            call,
            origin,
            watched: false,
        }
    }

    /// For an operation that keeps its communicator alive.
    pub fn owned(comm: &Comm, call: CallId, origin: CallOrigin) -> CollContext<'static> {
        CollContext {
            comm: Cow::Owned(comm.clone()),
            call,
            origin,
            watched: false,
        }
    }

    pub fn comm(&self) -> &Comm {
        &self.comm
    }

    /// Returns where the program called it.
    pub fn origin(&self) -> CallOrigin {
        self.origin
    }

    /// Returns the kind and number of the call.
    pub fn call(&self) -> CallId {
        self.call
    }

    /// A wait for those who take part in it, for those who watch from outside.
    pub fn wait_description(&self, awaited: AwaitedRanks) -> ExternalWait {
        ExternalWait {
            awaited,
            context: self.comm.context() + COLLECTIVE,
            tag: self.call.tag(TagScope::Whole),
            origin: self.origin,
        }
    }

    /// The return address of the program's call.
    pub fn site(&self) -> u64 {
        self.origin.site
    }

    /// Describes this operation for a tracer. No operation of the engine has a name with the
    /// highest bit set.
    fn watched(&self) -> TracedOperation {
        let (context, tag) = (
            self.comm.context() + COLLECTIVE,
            self.call.tag(TagScope::Whole),
        );
        TracedOperation {
            name: 1 << 63 | u64::from(context) << 32 | u64::from(tag as u32),
            does: TracedKind::Collective,
            peer: None,
            context,
            tag,
            sequence: 0,
            bytes: 0,
            origin: self.origin,
        }
    }

    /// Tells those who watch that the call that the thread is in is this collective.
    #[inline]
    pub fn trace_call(&self) {
        if let Some(watcher) = self.host().tracer() {
            let watched = self.watched();
            watcher.collective(watched.context, watched.tag);
        }
    }

    /// Tells a tracer of the call, and that a nonblocking operation begins.
    pub fn trace_start(&mut self) {
        self.trace_call();
        if let Some(watcher) = self.host().tracer() {
            self.watched = true;
            watcher.started(&self.watched());
        }
    }

    /// Moves bytes of this operation in shared memory, so many, which those who were told of its
    /// start hear of; for all others it only moves them.
    pub fn trace_move<T>(&self, bytes: impl FnOnce() -> u64, act: impl FnOnce() -> T) -> T {
        let watcher = match self.watched {
            true => self.host().tracer(),
            false => None,
        };
        let Some(watcher) = watcher else { return act() };
        let since = watcher.now();
        let result = act();
        match bytes() {
            0 => {}
            bytes => watcher.moved(self.watched().name, None, bytes, since),
        }
        result
    }

    /// Tells them that it is over.
    pub fn trace_end(&self) {
        if let Some(watcher) = self.host().tracer() {
            watcher.over(&self.watched());
        }
    }

    fn host(&self) -> &dyn Messaging {
        &*self.comm.0.process.host
    }

    /// The calling process's rank in its own group.
    pub fn me(&self) -> u32 {
        self.comm.rank()
    }

    /// Size of its own group.
    pub fn size(&self) -> u32 {
        self.comm.size()
    }

    /// Size of the remote group; 0 without one.
    pub fn remote_size(&self) -> u32 {
        self.comm.0.remote.as_ref().map_or(0, |group| group.size())
    }

    /// Returns whether all processes that take part share one node's memory.
    pub fn is_on_node(&self) -> bool {
        self.comm.is_on_node()
    }

    /// Returns how those of the own group are spread over nodes, if that makes a difference.
    pub fn node_map(&self) -> Option<Arc<NodeMap>> {
        self.comm.spread().cloned()
    }

    fn tag_scope(&self, side: GroupSide) -> TagScope {
        if self.comm.is_inter() && side == GroupSide::Local {
            TagScope::OneGroup
        } else {
            TagScope::Whole
        }
    }

    fn peer(&self, site: PlanPeer) -> Result<u32> {
        let group = match (site.side, &self.comm.0.remote) {
            (GroupSide::Remote, Some(remote)) => remote,
            _ => &self.comm.0.local,
        };
        group.peer(site.rank).ok_or_else(|| {
            Error::new(
                Class::Intern,
                format!("{} has no process {site:?}", self.call.kind),
            )
        })
    }

    fn send(&self, site: PlanPeer, data: Data) -> Result<StartOutcome> {
        let send = api::SendArgs {
            context: self.comm.context() + COLLECTIVE,
            peer: self.peer(site)?,
            source: self.comm.0.rank,
            tag: self.call.tag(self.tag_scope(site.side)),
            data,
            mode: SendCompletion::Standard,
            origin: self.origin,
        };
        self.host().send(send).map_err(|error| self.convert(error))
    }

    fn recv(&self, site: PlanPeer, data: Data) -> Result<StartOutcome> {
        let source = Source {
            rank: site.rank,
            peer: self.peer(site)?,
        };
        let pattern = Pattern {
            context: self.comm.context() + COLLECTIVE,
            source: Some(source),
            tag: Some(self.call.tag(self.tag_scope(site.side))),
        };
        self.host()
            .recv(api::RecvArgs {
                pattern,
                data,
                origin: self.origin,
            })
            .map_err(|error| self.convert(error))
    }

    #[cold]
    fn convert(&self, error: api::Error) -> Error {
        let mut error = self.comm.convert(error);
        error.detail = format!("{}: {}", self.call, error.detail);
        if error.class == Class::Truncate {
            error.detail = format!(
                "error[G0107]: {}\n  help: the counts and datatypes of all ranks must describe the same amount of data",
                error.detail
            );
        }
        error
    }
}

/// The context of collectives, from the first one of a communicator.
pub(crate) const COLLECTIVE: u32 = 1;

/// Operations kept without allocation: as many as small collectives have pending.
const INLINE_PENDING: usize = 8;

/// The communication that has been started, and the first error among it.
#[derive(Default)]
pub(super) struct PendingTransfers {
    /// Token of the first entry of `pending`.
    base: u32,
    /// By token; `None` when it is over.
    pending: SmallVec<[Option<api::Request>; INLINE_PENDING]>,
    /// Entries before this one are over.
    settled: usize,
    error: Option<Error>,
}

impl PendingTransfers {
    /// Keeps what starting an operation gave. An operation that could not start counts as over, so
    /// that the others go on and no peer hangs because of this process's error; the error is told
    /// at the end.
    fn add(&mut self, ctx: &CollContext<'_>, started: Result<StartOutcome>) -> TransferId {
        let token = TransferId(self.base + self.pending.len() as u32);
        let entry = match started {
            Ok(StartOutcome::Pending(request)) => Some(request),
            Ok(StartOutcome::Done(status)) => {
                self.note(ctx, status);
                None
            }
            Err(error) => {
                self.error.get_or_insert(error);
                None
            }
        };
        self.pending.push(entry);
        token
    }

    fn note(&mut self, ctx: &CollContext<'_>, status: api::Status) {
        if let Some(error) = status.error {
            self.error.get_or_insert_with(|| ctx.convert(error));
        }
    }

    /// Returns whether the operation at `index` is over, asking the engine.
    fn over(&mut self, ctx: &CollContext<'_>, index: usize) -> bool {
        let Some(request) = self.pending[index] else {
            return true;
        };
        match ctx.host().take(request) {
            Ok(None) => return false,
            Ok(Some(status)) => self.note(ctx, status),
            Err(error) => {
                self.error.get_or_insert_with(|| ctx.convert(error));
            }
        }
        self.pending[index] = None;
        true
    }

    /// Returns whether the operation of this token is over.
    pub fn is_over(&mut self, ctx: &CollContext<'_>, token: TransferId) -> bool {
        token.0 < self.base || self.over(ctx, (token.0 - self.base) as usize)
    }

    /// Returns the wait target of an operation that `is_over` or `all_over` found pending.
    fn awaits(&self, index: usize) -> WaitTarget {
        let open = self.pending.get(index).copied().flatten();
        open.map_or(WaitTarget::Anything, WaitTarget::Operation)
    }

    /// Returns whether all operations are over.
    pub fn all_over(&mut self, ctx: &CollContext<'_>) -> bool {
        while self.settled < self.pending.len() {
            if !self.over(ctx, self.settled) {
                return false;
            }
            self.settled += 1;
        }
        self.base += self.pending.len() as u32;
        self.pending.clear();
        self.settled = 0;
        true
    }

    fn is_empty(&self) -> bool {
        self.pending.iter().all(Option::is_none)
    }

    /// Returns how many operations were started so far.
    pub fn started(&self) -> u32 {
        self.base + self.pending.len() as u32
    }

    /// The first error, once.
    pub fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }
}

/// Operations under way and the temporary memory that they reach.
#[derive(Default)]
pub(super) struct InFlight {
    pub transfers: PendingTransfers,
    pub scratch: Vec<TempBuffer>,
}

impl InFlight {
    pub fn send(&mut self, ctx: &CollContext<'_>, site: PlanPeer, data: Data) -> TransferId {
        let started = ctx.send(site, data);
        self.transfers.add(ctx, started)
    }

    pub fn recv(&mut self, ctx: &CollContext<'_>, site: PlanPeer, data: Data) -> TransferId {
        let started = ctx.recv(site, data);
        self.transfers.add(ctx, started)
    }

    pub fn fold(&self, fold: &dyn ReduceOp, left: UserMem, into: UserMem, count: u64) {
        if count > 0 && self.transfers.error.is_none() {
            fold.fold(left, into, count);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if !self.transfers.is_empty() {
            // Planning failed half-way, or the engine is being taken down, and it may still write
            // there: better lost than reused.
            self.scratch.drain(..).for_each(std::mem::forget);
        }
    }
}

/// The plan that does each step as it is stated, for blocking calls.
pub(crate) struct BlockingPlan<'a> {
    ctx: CollContext<'a>,
    in_flight: InFlight,
}

impl<'a> BlockingPlan<'a> {
    pub fn new(ctx: CollContext<'a>) -> Self {
        Self {
            ctx,
            in_flight: InFlight::default(),
        }
    }

    /// Waits for what is left and gives the first error.
    pub fn finish(mut self) -> Result<()> {
        self.fence()?;
        self.in_flight.transfers.take_error().map_or(Ok(()), Err)
    }
}

impl Plan for BlockingPlan<'_> {
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
        Ok(self.in_flight.send(&self.ctx, site, data))
    }

    fn recv_from(&mut self, site: PlanPeer, data: Data) -> Result<TransferId> {
        Ok(self.in_flight.recv(&self.ctx, site, data))
    }

    fn wait(&mut self, token: TransferId) -> Result<()> {
        let (ctx, flight) = (&self.ctx, &mut self.in_flight.transfers);
        if !flight.is_over(ctx, token) {
            let awaits = flight.awaits((token.0 - flight.base) as usize);
            ctx.host()
                .wait_for(&|| awaits, &mut || flight.is_over(ctx, token));
        }
        Ok(())
    }

    fn fence(&mut self) -> Result<()> {
        let (ctx, flight) = (&self.ctx, &mut self.in_flight.transfers);
        if !flight.all_over(ctx) {
            let awaits = Cell::new(flight.awaits(flight.settled));
            ctx.host().wait_for(&|| awaits.get(), &mut || {
                let over = flight.all_over(ctx);
                awaits.set(flight.awaits(flight.settled));
                over
            });
        }
        Ok(())
    }

    fn copy(&mut self, src: Data, dst: Data) -> Result<()> {
        typed_buffer::copy(&src, &dst);
        Ok(())
    }

    fn fold(
        &mut self,
        fold: &dyn ReduceOp,
        left: UserMem,
        into: UserMem,
        count: u64,
    ) -> Result<()> {
        self.in_flight.fold(fold, left, into, count);
        Ok(())
    }

    fn scratch(&mut self, len: u64) -> Result<UserMem> {
        let scratch = TempBuffer::new(len)?;
        let mem = scratch.mem();
        self.in_flight.scratch.push(scratch);
        Ok(mem)
    }
}

/// A schedule that is being carried out. Its request and the engine's list of steppers share it;
/// the engine steps it until all its steps are done.
pub(crate) struct RunningSchedule {
    ctx: CollContext<'static>,
    state: Mutex<ScheduleState>,
    runs_user_code: bool,
    over: AtomicBool,
    waiter: AnyOfWaiter,
}

struct ScheduleState {
    /// Given back when all its steps have been taken.
    schedule: Option<Arc<Schedule>>,
    next: usize,
    in_flight: InFlight,
}

impl Drop for ScheduleState {
    fn drop(&mut self) {
        if !self.in_flight.transfers.is_empty() {
            // As in `InFlight`: the steps under way may reach the schedule's own temporary memory,
            // too.
            std::mem::forget(self.schedule.take());
        }
    }
}

impl RunningSchedule {
    /// The rest of a collective of which `in_flight` was started already. Nothing else carries out
    /// the same schedule meanwhile: its steps share temporary memory.
    pub(super) fn new(
        ctx: CollContext<'static>,
        schedule: impl Into<Arc<Schedule>>,
        in_flight: InFlight,
    ) -> Arc<Self> {
        let schedule = schedule.into();
        let runs_user_code = schedule.runs_user_code();
        let state = Mutex::new(ScheduleState {
            schedule: Some(schedule),
            next: 0,
            in_flight,
        });
        Arc::new(Self {
            ctx,
            state,
            runs_user_code,
            over: AtomicBool::new(false),
            waiter: AnyOfWaiter::default(),
        })
    }

    /// Returns how it ended, if it is over already.
    pub fn take_if_over(&self) -> Option<Outcome> {
        self.is_done().then(|| self.peek())
    }

    /// Takes the steps that can be taken, for an owner that tells others of the end itself; `true`
    /// when there are no more.
    pub(super) fn advance(&self) -> bool {
        let mut state = self.state();
        if !state.advance(&self.ctx) {
            return false;
        }
        state.schedule = None;
        state.in_flight.scratch.clear();
        true
    }

    /// Returns the first error of the schedule, once it is over.
    pub(super) fn error(&self) -> Option<Error> {
        self.state().in_flight.transfers.error.clone()
    }

    fn state(&self) -> MutexGuard<'_, ScheduleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ScheduleState {
    /// Takes steps until one must wait; `true` when all have been taken.
    fn advance(&mut self, ctx: &CollContext<'_>) -> bool {
        let Self {
            schedule,
            next,
            in_flight,
        } = self;
        let steps = schedule
            .as_ref()
            .map_or(&[][..], |schedule| &schedule.steps);
        while let Some(step) = steps.get(*next) {
            match step {
                ScheduleStep::Send(site, data) => drop(in_flight.send(ctx, *site, data.clone())),
                ScheduleStep::Recv(site, data) => drop(in_flight.recv(ctx, *site, data.clone())),
                ScheduleStep::Wait(token) if !in_flight.transfers.is_over(ctx, *token) => {
                    return false;
                }
                ScheduleStep::Fence if !in_flight.transfers.all_over(ctx) => return false,
                ScheduleStep::Wait(_) | ScheduleStep::Fence => {}
                ScheduleStep::Copy(src, dst) => typed_buffer::copy(src, dst),
                ScheduleStep::Fold(combine) => {
                    in_flight.fold(&*combine.fold, combine.left, combine.into, combine.count)
                }
            }
            *next += 1;
        }
        true
    }
}
