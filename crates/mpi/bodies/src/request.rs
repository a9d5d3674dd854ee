//! Requests: waiting, testing, starting, cancelling, freeing.
//!
//! Completion sets the handle to `MPI_REQUEST_NULL` and drops the request, unless the request is
//! persistent. Errors of several requests at once are reported in the statuses and as
//! `MPI_ERR_IN_STATUS`.

mod get_status;
mod start_cancel;

pub(crate) use get_status::{
    request_get_status, request_get_status_all, request_get_status_any, request_get_status_some,
};
pub(crate) use start_cancel::{cancel, start, startall};

use crate::c_args::{ConstPtr, Ptr};
use crate::call::{CallError, CallId, Result};
use crate::callback::UserReduction;
use crate::constants::*;
use crate::entry::call_site;
use crate::handle::*;
use crate::light_request::record_poll;
use crate::objects::{publish, unknown_handle};
use crate::rank_context::RankContext;
use crate::status::{StatusLayout, write_empty, write_outcome};
use crate::{generalized_request, light_request, recent_errors};
use garonne_engine::observe::events::PendingOperation;
use garonne_mpi::comm::Comm;
use garonne_mpi::error::{Class, Error};
use garonne_mpi::partitioned::PartitionedOperation;
use garonne_mpi::request::generalized::GeneralizedRequest;
use garonne_mpi::request::{self, Outcome, Request, Status, TestAny};
use smallvec::SmallVec;
use std::ffi::c_int;
use std::sync::Arc;

/// A request as the table stores it.
pub(crate) struct RequestEntry {
    request: Request,
    /// The program's side of a generalised request.
    pub general: Option<Arc<GeneralizedRequest>>,
    /// The operation of a partitioned request.
    pub partitioned: Option<Box<PartitionedOperation>>,
    /// The program's operation in a reduction.
    operation: Option<Arc<UserReduction>>,
}

#[inline(always)]
fn requests() -> &'static HandleTable<RequestEntry> {
    &RankContext::current().requests
}

/// Returns a handle for a new request.
#[inline]
pub(crate) fn return_request(new: Request, out: Ptr<MPI_Request>) -> Result<()> {
    if new.is_nothing() {
        return out.set(light_request::DONE);
    }
    return_entry(
        RequestEntry {
            request: new,
            general: None,
            partitioned: None,
            operation: None,
        },
        out,
    )
}

/// Returns a handle for the request of a reduction with a user-defined operation. The call that
/// completes the request throws what the operation threw.
pub(crate) fn return_reduction(
    new: Request,
    operation: &Arc<UserReduction>,
    out: Ptr<MPI_Request>,
) -> Result<()> {
    if new.is_nothing() && !operation.has_thrown() {
        return out.set(light_request::DONE);
    }
    return_entry(
        RequestEntry {
            request: new,
            general: None,
            partitioned: None,
            operation: Some(operation.clone()),
        },
        out,
    )
}

/// Returns a handle for a generalised request.
pub(crate) fn return_generalized(
    new: Request,
    general: Arc<GeneralizedRequest>,
    out: Ptr<MPI_Request>,
) -> Result<()> {
    return_entry(
        RequestEntry {
            request: new,
            general: Some(general),
            partitioned: None,
            operation: None,
        },
        out,
    )
}

/// Returns a handle for an inactive partitioned request.
pub(crate) fn return_partitioned(
    new: Request,
    operation: PartitionedOperation,
    out: Ptr<MPI_Request>,
) -> Result<()> {
    return_entry(
        RequestEntry {
            request: new,
            general: None,
            partitioned: Some(Box::new(operation)),
            operation: None,
        },
        out,
    )
}

fn return_entry(entry: RequestEntry, out: Ptr<MPI_Request>) -> Result<()> {
    out.set(publish(requests(), entry)?)
}

/// Returns the table entry of a handle that is not null.
pub(crate) fn request_entry(handle: MPI_Request) -> Result<&'static RequestEntry> {
    requests()
        .get(handle)
        .ok_or_else(|| unknown_handle(Class::Request, "request", handle.0, MPI_REQUEST_NULL.0))
}

/// The request behind a handle if it is one operation of the engine, a send or a receive.
pub(crate) fn find_operation(handle: MPI_Request) -> Result<Option<&'static Request>> {
    let request = &request_entry(handle)?.request;
    Ok(request.is_operation().then_some(request))
}

/// The request that a handle names.
enum ResolvedRequest {
    Null,
    RequestEntry(&'static RequestEntry),
    /// A light request, as a temporary object for this call.
    Plain(Request),
}

impl ResolvedRequest {
    fn request(&self) -> Option<&Request> {
        match self {
            ResolvedRequest::Null => None,
            ResolvedRequest::RequestEntry(entry) => Some(&entry.request),
            ResolvedRequest::Plain(request) => Some(request),
        }
    }
}

impl ResolvedRequest {
    /// Returns the outcome to report to the program: a reduction whose operation threw has failed.
    fn reported(&self, outcome: Outcome) -> Outcome {
        let operation = match self {
            ResolvedRequest::RequestEntry(entry) => entry.operation.as_ref(),
            ResolvedRequest::Null | ResolvedRequest::Plain(_) => None,
        };
        match operation.map_or(Ok(()), |operation| operation.end()) {
            Ok(()) => outcome,
            Err(fault) => Err(fault.error().clone()),
        }
    }
}

fn resolve(handle: MPI_Request) -> Result<ResolvedRequest> {
    if handle == MPI_REQUEST_NULL {
        return Ok(ResolvedRequest::Null);
    }
    if !light_request::is_light(handle) {
        return request_entry(handle).map(ResolvedRequest::RequestEntry);
    }
    match light_request::as_request(handle)? {
        Some(request) => Ok(ResolvedRequest::Plain(request)),
        None => Err(unknown_handle(
            Class::Request,
            "request",
            handle.0,
            MPI_REQUEST_NULL.0,
        )),
    }
}

/// Returns the pending operation of a request, for display.
pub(crate) fn pending_operation(handle: MPI_Request) -> Result<Option<PendingOperation>> {
    Ok(resolve(handle)?.request().and_then(Request::shown))
}

/// Resolves a handle that must not be null.
fn resolve_non_null(handle: MPI_Request) -> Result<ResolvedRequest> {
    match resolve(handle)? {
        ResolvedRequest::Null => request_entry(handle).map(ResolvedRequest::RequestEntry),
        found => Ok(found),
    }
}

/// Returns whether the request of an outcome goes on: a receive that waits until the death of a
/// possible sender is acknowledged.
fn is_pending(outcome: &Outcome) -> bool {
    matches!(outcome, Err(error) if error.class == Class::ProcFailedPending)
}

/// Forgets a request whose outcome was taken.
fn release_completed(place: Ptr<MPI_Request>, outcome: &Outcome) -> Result<()> {
    if is_pending(outcome) {
        return Ok(());
    }
    release(place)
}

fn release(place: Ptr<MPI_Request>) -> Result<()> {
    let handle = place.get()?;
    if light_request::is_light(handle) {
        // Its slot went with the outcome.
        return place.set(MPI_REQUEST_NULL);
    }
    let persistent = requests()
        .get(handle)
        .is_none_or(|entry| entry.request.is_persistent());
    if !persistent {
        requests().remove(handle);
        place.set(MPI_REQUEST_NULL)?;
    }
    Ok(())
}

/// Reports one outcome: the status, or the error on the request's communicator.
fn report_outcome<S: StatusLayout>(
    outcome: Outcome,
    comm: Option<Comm>,
    place: Ptr<S>,
) -> Result<()> {
    write_outcome(place, outcome).map_err(|fault| fault.on_comm(comm))
}

/// Returns the communicator on which an error is raised, or `None` if there is no error.
fn error_comm(request: &Request, outcome: &Outcome) -> Option<Comm> {
    if outcome.is_err() {
        request.comm()
    } else {
        None
    }
}

pub(crate) fn wait<S: StatusLayout>(
    _: CallId,
    place: Ptr<MPI_Request>,
    status: Ptr<S>,
) -> Result<()> {
    if light_request::wait(place, status)? {
        return Ok(());
    }
    wait_general(place, status)
}

#[inline(never)]
fn wait_general<S: StatusLayout>(place: Ptr<MPI_Request>, status: Ptr<S>) -> Result<()> {
    let found = resolve(place.get()?)?;
    let Some(request) = found.request() else {
        return write_empty(status);
    };
    let outcome = found.reported(request::wait(request));
    let comm = error_comm(request, &outcome);
    release_completed(place, &outcome)?;
    report_outcome(outcome, comm, status)
}

pub(crate) fn test<S: StatusLayout>(
    call: CallId,
    place: Ptr<MPI_Request>,
    flag: Ptr<c_int>,
    status: Ptr<S>,
) -> Result<()> {
    if let Some(over) = light_request::test(call, place, status)? {
        return flag.set(over.into());
    }
    let found = resolve(place.get()?)?;
    let Some(request) = found.request() else {
        flag.set(1)?;
        return write_empty(status);
    };
    let tested = request::test(request);
    record_poll(call, (1, place), tested.is_none());
    let Some(outcome) = tested else {
        return flag.set(0);
    };
    let outcome = found.reported(outcome);
    let comm = error_comm(request, &outcome);
    flag.set(1)?;
    release_completed(place, &outcome)?;
    report_outcome(outcome, comm, status)
}

/// The requests of an array argument.
struct RequestList {
    requests: SmallVec<[ResolvedRequest; 16]>,
    array_of_requests: Ptr<MPI_Request>,
    /// True if the call completes requests; false for `MPI_Request_get_status_*`.
    completes: bool,
}

impl RequestList {
    fn new(count: c_int, array_of_requests: Ptr<MPI_Request>) -> Result<Self> {
        let n = usize::try_from(count).map_err(|_| bad_count(count))?;
        let requests = (0..n)
            .map(|i| resolve(array_of_requests.at(i)?))
            .collect::<Result<_>>()?;
        Ok(Self {
            requests,
            array_of_requests,
            completes: true,
        })
    }

    /// Resolves the handles of a call that leaves the requests as they are.
    fn for_status(count: c_int, handles: ConstPtr<MPI_Request>) -> Result<Self> {
        let n = usize::try_from(count).map_err(|_| bad_count(count))?;
        let requests = (0..n)
            .map(|i| resolve(handles.at(i)?))
            .collect::<Result<_>>()?;
        Ok(Self {
            requests,
            array_of_requests: Ptr::ignore(),
            completes: false,
        })
    }

    fn refs(&self) -> SmallVec<[Option<&Request>; 16]> {
        self.requests.iter().map(ResolvedRequest::request).collect()
    }

    /// Returns the outcome to report, see [`ResolvedRequest::reported`].
    fn reported(&self, index: usize, outcome: Outcome) -> Outcome {
        match self.requests.get(index) {
            Some(found) if self.completes => found.reported(outcome),
            _ => outcome,
        }
    }

    fn at(&self, index: usize) -> Option<&Request> {
        self.requests.get(index).and_then(ResolvedRequest::request)
    }
}

fn bad_count(count: c_int) -> CallError {
    CallError::new(
        Class::Count,
        format!("the number of requests is {count}; it must not be negative"),
    )
}

/// Outcomes of several requests. Statuses are written in order of arrival or at the index of their
/// request.
struct CompletionReport<S> {
    call: CallId,
    statuses: Ptr<S>,
    /// Index of the request of each outcome.
    indices: SmallVec<[usize; 16]>,
    /// Requests that go on although they are reported.
    pending: Vec<usize>,
    failed: Option<(Error, Option<Comm>)>,
    /// The first error in writing results to the program's arrays.
    write_error: Option<CallError>,
}

impl<S: StatusLayout> CompletionReport<S> {
    fn new(call: CallId, statuses: Ptr<S>) -> Self {
        Self {
            call,
            statuses,
            indices: SmallVec::new(),
            pending: Vec::new(),
            failed: None,
            write_error: None,
        }
    }

    /// Notes the outcome of request `index`, its status going to element `at`.
    fn add(&mut self, list: &RequestList, (index, at): (usize, usize), outcome: Outcome) {
        let outcome = list.reported(index, outcome);
        let (mut status, code) = match &outcome {
            Ok(status) => (S::encode(status), MPI_SUCCESS),
            Err(error) => (
                S::encode(&error.status.unwrap_or(Status::EMPTY)),
                recent_errors::record(self.call, call_site(), error),
            ),
        };
        status.set_error(code);
        self.statuses.element(at).set_if(status);
        if is_pending(&outcome) {
            self.pending.push(index);
        }
        if let Err(error) = outcome
            && self.failed.is_none()
        {
            let comm = list.at(index).and_then(Request::comm);
            self.failed = Some((error, comm));
        }
        self.indices.push(index);
    }

    /// Spends the requests reported and says whether any failed.
    fn finish(mut self, list: &RequestList) -> Result<SmallVec<[usize; 16]>> {
        for &index in &self.indices {
            if list.at(index).is_some()
                && !self.pending.contains(&index)
                && let Err(fault) = release(list.array_of_requests.element(index))
            {
                self.write_error.get_or_insert(fault);
            }
        }
        self.result()
    }

    /// Says whether any failed.
    fn result(self) -> Result<SmallVec<[usize; 16]>> {
        if let Some((error, comm)) = self.failed {
            return Err(CallError::new(Class::InStatus, error.detail).on_comm(comm));
        }
        self.write_error.map_or(Ok(self.indices), Err)
    }
}

pub(crate) fn waitall<S: StatusLayout>(
    call: CallId,
    count: c_int,
    array_of_requests: Ptr<MPI_Request>,
    statuses: Ptr<S>,
) -> Result<()> {
    let n = usize::try_from(count).map_err(|_| bad_count(count))?;
    let seen = light_request::wait_all(n, array_of_requests, statuses)?;
    if seen == n {
        return Ok(());
    }
    let (array_of_requests, statuses) = (array_of_requests.element(seen), statuses.element(seen));
    let list = RequestList::new(count - seen as c_int, array_of_requests)?;
    let mut report = CompletionReport::new(call, statuses);
    request::wait_all(&list.refs(), &mut |index, outcome| {
        report.add(&list, (index, index), outcome)
    });
    report.finish(&list).map(drop)
}

pub(crate) fn testall<S: StatusLayout>(
    call: CallId,
    count: c_int,
    array_of_requests: Ptr<MPI_Request>,
    flag: Ptr<c_int>,
    statuses: Ptr<S>,
) -> Result<()> {
    let n = usize::try_from(count).map_err(|_| bad_count(count))?;
    let Some(seen) = light_request::test_all(call, n, array_of_requests, statuses)? else {
        return flag.set(0);
    };
    if seen == n {
        return flag.set(1);
    }
    let (array_of_requests, statuses) = (array_of_requests.element(seen), statuses.element(seen));
    let list = RequestList::new(count - seen as c_int, array_of_requests)?;
    let mut report = CompletionReport::new(call, statuses);
    let all = request::test_all(&list.refs(), &mut |index, outcome| {
        report.add(&list, (index, index), outcome)
    });
    record_poll(call, (list.requests.len(), array_of_requests), !all);
    flag.set(all.into())?;
    report.finish(&list).map(drop)
}

pub(crate) fn waitany<S: StatusLayout>(
    _: CallId,
    count: c_int,
    array_of_requests: Ptr<MPI_Request>,
    index: Ptr<c_int>,
    status: Ptr<S>,
) -> Result<()> {
    let n = usize::try_from(count).map_err(|_| bad_count(count))?;
    match light_request::wait_any(n, array_of_requests, status)? {
        light_request::LightOutcome::Complete(at) => return index.set(at as c_int),
        light_request::LightOutcome::NoneActive => {
            index.set(MPI_UNDEFINED)?;
            return write_empty(status);
        }
        light_request::LightOutcome::UseGeneralPath | light_request::LightOutcome::NoneComplete => {
        }
    }
    let list = RequestList::new(count, array_of_requests)?;
    let Some((at, outcome)) = request::wait_any(&list.refs()) else {
        index.set(MPI_UNDEFINED)?;
        return write_empty(status);
    };
    return_one(&list, (at, outcome), index, status)
}

pub(crate) fn testany<S: StatusLayout>(
    call: CallId,
    count: c_int,
    array_of_requests: Ptr<MPI_Request>,
    index: Ptr<c_int>,
    flag: Ptr<c_int>,
    status: Ptr<S>,
) -> Result<()> {
    let n = usize::try_from(count).map_err(|_| bad_count(count))?;
    match light_request::test_any(call, n, array_of_requests, status)? {
        light_request::LightOutcome::Complete(at) => {
            flag.set(1)?;
            return index.set(at as c_int);
        }
        light_request::LightOutcome::NoneActive => {
            flag.set(1)?;
            index.set(MPI_UNDEFINED)?;
            return write_empty(status);
        }
        light_request::LightOutcome::NoneComplete => {
            flag.set(0)?;
            return index.set(MPI_UNDEFINED);
        }
        light_request::LightOutcome::UseGeneralPath => {}
    }
    let list = RequestList::new(count, array_of_requests)?;
    let found = request::test_any(&list.refs());
    record_poll(
        call,
        (n, array_of_requests),
        matches!(found, TestAny::NotYet),
    );
    match found {
        TestAny::Done(at, outcome) => {
            flag.set(1)?;
            return_one(&list, (at, outcome), index, status)
        }
        TestAny::Nothing => {
            flag.set(1)?;
            index.set(MPI_UNDEFINED)?;
            write_empty(status)
        }
        TestAny::NotYet => {
            flag.set(0)?;
            index.set(MPI_UNDEFINED)
        }
    }
}

fn return_one<S: StatusLayout>(
    list: &RequestList,
    (at, outcome): (usize, Outcome),
    index: Ptr<c_int>,
    status: Ptr<S>,
) -> Result<()> {
    let outcome = list.reported(at, outcome);
    let comm = list
        .at(at)
        .and_then(|request| error_comm(request, &outcome));
    index.set(at as c_int)?;
    release_completed(list.array_of_requests.element(at), &outcome)?;
    report_outcome(outcome, comm, status)
}

/// Output arguments of `MPI_Waitsome` and `MPI_Testsome`: number of completed requests and their
/// indices. The statuses are packed together.
struct SomeOutput {
    count: Ptr<c_int>,
    indices: Ptr<c_int>,
}

impl SomeOutput {
    fn write<S: StatusLayout>(
        self,
        list: &RequestList,
        found: Option<usize>,
        report: CompletionReport<S>,
    ) -> Result<()> {
        if found.is_none() {
            return self.count.set(MPI_UNDEFINED);
        }
        self.count.set(report.indices.len() as c_int)?;
        self.indices
            .fill(report.indices.iter().map(|&index| index as c_int))?;
        report.finish(list).map(drop)
    }
}

pub(crate) fn waitsome<S: StatusLayout>(
    call: CallId,
    incount: c_int,
    array_of_requests: Ptr<MPI_Request>,
    count: Ptr<c_int>,
    indices: Ptr<c_int>,
    statuses: Ptr<S>,
) -> Result<()> {
    let n = usize::try_from(incount).map_err(|_| bad_count(incount))?;
    let several = light_request::SomeArgs {
        array_of_requests,
        indices,
        statuses,
    };
    match several.wait(n)? {
        light_request::LightOutcome::Complete(over) => return count.set(over as c_int),
        light_request::LightOutcome::NoneActive => return count.set(MPI_UNDEFINED),
        light_request::LightOutcome::UseGeneralPath | light_request::LightOutcome::NoneComplete => {
        }
    }
    let list = RequestList::new(incount, array_of_requests)?;
    let mut report = CompletionReport::new(call, statuses);
    let found = request::wait_some(&list.refs(), &mut |index, outcome| {
        report.add(&list, (index, report.indices.len()), outcome);
    });
    SomeOutput { count, indices }.write(&list, found, report)
}

pub(crate) fn testsome<S: StatusLayout>(
    call: CallId,
    incount: c_int,
    array_of_requests: Ptr<MPI_Request>,
    count: Ptr<c_int>,
    indices: Ptr<c_int>,
    statuses: Ptr<S>,
) -> Result<()> {
    let n = usize::try_from(incount).map_err(|_| bad_count(incount))?;
    let several = light_request::SomeArgs {
        array_of_requests,
        indices,
        statuses,
    };
    match several.test(call, n)? {
        light_request::LightOutcome::Complete(over) => return count.set(over as c_int),
        light_request::LightOutcome::NoneActive => return count.set(MPI_UNDEFINED),
        light_request::LightOutcome::NoneComplete => return count.set(0),
        light_request::LightOutcome::UseGeneralPath => {}
    }
    let list = RequestList::new(incount, array_of_requests)?;
    let mut report = CompletionReport::new(call, statuses);
    let found = request::test_some(&list.refs(), &mut |index, outcome| {
        report.add(&list, (index, report.indices.len()), outcome);
    });
    record_poll(call, (n, array_of_requests), found == Some(0));
    SomeOutput { count, indices }.write(&list, found, report)
}

pub(crate) fn request_free(_: CallId, place: Ptr<MPI_Request>) -> Result<()> {
    let handle = place.get()?;
    if light_request::is_light(handle)
        && let ResolvedRequest::Plain(request) = resolve(handle)?
    {
        place.set(MPI_REQUEST_NULL)?;
        return Ok(request.free()?);
    }
    if let Some(general) = &request_entry(handle)?.general {
        place.set(MPI_REQUEST_NULL)?;
        return generalized_request::free(handle, general);
    }
    let Some(entry) = requests().remove(handle) else {
        return Err(unknown_handle(
            Class::Request,
            "request",
            handle.0,
            MPI_REQUEST_NULL.0,
        ));
    };
    place.set(MPI_REQUEST_NULL)?;
    let comm = entry.request.comm();
    entry
        .request
        .free()
        .map_err(|error| CallError::from(error).on_comm(comm))
}

/// Takes back a handle that nobody needs any more.
pub(crate) fn remove_entry(handle: MPI_Request) {
    requests().remove(handle);
}
