//! `MPI_Start`, `MPI_Startall` and `MPI_Cancel`.

use super::resolve_non_null;
use crate::c_args::Ptr;
use crate::call::{CallError, CallId, Result};
use crate::group::length;
use crate::handle::*;
use garonne_mpi::error::Error;
use garonne_mpi::request::Request;
use std::ffi::c_int;

pub(crate) fn start(_: CallId, place: Ptr<MPI_Request>) -> Result<()> {
    start_one(place.get()?)
}

fn start_one(handle: MPI_Request) -> Result<()> {
    let found = resolve_non_null(handle)?;
    let Some(request) = found.request() else {
        return Ok(());
    };
    request
        .start()
        .map_err(|error| on_request_comm(request, error))
}

pub(crate) fn startall(_: CallId, count: c_int, array_of_requests: Ptr<MPI_Request>) -> Result<()> {
    (0..length(count, "the number of requests")?)
        .try_for_each(|i| start_one(array_of_requests.at(i)?))
}

pub(crate) fn cancel(_: CallId, place: Ptr<MPI_Request>) -> Result<()> {
    let found = resolve_non_null(place.get()?)?;
    let Some(request) = found.request() else {
        return Ok(());
    };
    request
        .cancel()
        .map_err(|error| on_request_comm(request, error))
}

/// An error of the communicator that a request belongs to.
fn on_request_comm(request: &Request, error: Error) -> CallError {
    CallError::from(error).on_comm(request.comm())
}
