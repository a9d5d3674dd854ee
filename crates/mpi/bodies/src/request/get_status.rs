//! Calls that read the state of requests and leave the requests as they are. An exception of a
//! reduction's operation is thrown by the call that completes the reduction.

use super::{CompletionReport, RequestList, error_comm, report_outcome, resolve};
use crate::c_args::{ConstPtr, Ptr};
use crate::call::{CallId, Result};
use crate::constants::*;
use crate::handle::*;
use crate::polling_calls;
use crate::status::{StatusLayout, write_empty};
use garonne_mpi::request::{self, TestAny};
use std::ffi::c_int;

/// Records a nonblocking poll of these requests, successful or not.
fn record_poll(
    call: CallId,
    count: usize,
    handle: impl Fn(usize) -> Result<MPI_Request>,
    in_vain: bool,
) {
    match in_vain {
        true => {
            polling_calls::record_unsuccessful(call, &|asked| asked.add_requests(count, &handle))
        }
        false => polling_calls::record_answer(),
    }
}

pub(crate) fn request_get_status<S: StatusLayout>(
    call: CallId,
    handle: MPI_Request,
    flag: Ptr<c_int>,
    status: Ptr<S>,
) -> Result<()> {
    let found = resolve(handle)?;
    let Some(request) = found.request() else {
        flag.set(1)?;
        return write_empty(status);
    };
    let looked_at = request::get_status(request);
    record_poll(call, 1, |_| Ok(handle), looked_at.is_none());
    let Some(outcome) = looked_at else {
        return flag.set(0);
    };
    flag.set(1)?;
    let comm = error_comm(request, &outcome);
    report_outcome(outcome, comm, status)
}

pub(crate) fn request_get_status_any<S: StatusLayout>(
    call: CallId,
    count: c_int,
    handles: ConstPtr<MPI_Request>,
    index: Ptr<c_int>,
    flag: Ptr<c_int>,
    status: Ptr<S>,
) -> Result<()> {
    let list = RequestList::for_status(count, handles)?;
    let found = request::get_status_any(&list.refs());
    let in_vain = matches!(found, TestAny::NotYet);
    record_poll(call, list.requests.len(), |at| handles.at(at), in_vain);
    match found {
        TestAny::Done(at, outcome) => {
            flag.set(1)?;
            index.set(at as c_int)?;
            let comm = list
                .at(at)
                .and_then(|request| error_comm(request, &outcome));
            report_outcome(outcome, comm, status)
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

pub(crate) fn request_get_status_all<S: StatusLayout>(
    call: CallId,
    count: c_int,
    handles: ConstPtr<MPI_Request>,
    flag: Ptr<c_int>,
    statuses: Ptr<S>,
) -> Result<()> {
    let list = RequestList::for_status(count, handles)?;
    let mut report = CompletionReport::new(call, statuses);
    let all = request::get_status_all(&list.refs(), &mut |index, outcome| {
        report.add(&list, (index, index), outcome)
    });
    record_poll(call, list.requests.len(), |at| handles.at(at), !all);
    flag.set(all.into())?;
    report.result().map(drop)
}

pub(crate) fn request_get_status_some<S: StatusLayout>(
    call: CallId,
    incount: c_int,
    handles: ConstPtr<MPI_Request>,
    count: Ptr<c_int>,
    indices: Ptr<c_int>,
    statuses: Ptr<S>,
) -> Result<()> {
    let list = RequestList::for_status(incount, handles)?;
    let mut report = CompletionReport::new(call, statuses);
    let found = request::get_status_some(&list.refs(), &mut |index, outcome| {
        report.add(&list, (index, report.indices.len()), outcome);
    });
    record_poll(
        call,
        list.requests.len(),
        |at| handles.at(at),
        found == Some(0),
    );
    count.set(found.map_or(MPI_UNDEFINED, |n| n as c_int))?;
    indices.fill(report.indices.iter().map(|&index| index as c_int))?;
    report.result().map(drop)
}
