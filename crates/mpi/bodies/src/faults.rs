//! Communicators of which members may die (beyond MPI 5.0): revocation, known failures, agreement,
//! shrinking.

use crate::c_args::Ptr;
use crate::call::{CallError, CallId, Result};
use crate::group::publish_group;
use crate::handle::*;
use crate::objects::{comm, fill_comm, publish_comm, reserve_comm};
use crate::request::return_request;
use garonne_mpi::comm::faults::Agreed;
use garonne_mpi::error::Error;
use std::ffi::c_int;

pub(crate) fn comm_revoke(_: CallId, on: MPI_Comm) -> Result<()> {
    Ok(comm(on)?.revoke()?)
}

pub(crate) fn comm_is_revoked(_: CallId, on: MPI_Comm, flag: Ptr<c_int>) -> Result<()> {
    flag.set(comm(on)?.is_revoked().into())
}

pub(crate) fn comm_get_failed(_: CallId, on: MPI_Comm, out: Ptr<MPI_Group>) -> Result<()> {
    publish_group(comm(on)?.failed(), None, out)
}

pub(crate) fn comm_ack_failed(
    _: CallId,
    on: MPI_Comm,
    num_to_ack: c_int,
    num_acked: Ptr<c_int>,
) -> Result<()> {
    num_acked.set(comm(on)?.acknowledge_failed(num_to_ack) as c_int)
}

pub(crate) fn comm_failure_ack(_: CallId, on: MPI_Comm) -> Result<()> {
    comm(on)?.acknowledge_failed(c_int::MAX);
    Ok(())
}

pub(crate) fn comm_failure_get_acked(_: CallId, on: MPI_Comm, out: Ptr<MPI_Group>) -> Result<()> {
    publish_group(comm(on)?.acknowledged(), None, out)
}

pub(crate) fn comm_agree(call: CallId, on: MPI_Comm, flag: Ptr<c_int>) -> Result<()> {
    let Agreed { flags, error } = comm(on)?.agree(flag.get()?, call.origin())?;
    // All members get the value, and all the same error.
    flag.set(flags)?;
    error.map_or(Ok(()), |error| Err(CallError::from(error)))
}

pub(crate) fn comm_iagree(
    call: CallId,
    on: MPI_Comm,
    flag: Ptr<c_int>,
    request: Ptr<MPI_Request>,
) -> Result<()> {
    let place = flag.kept();
    let started = comm(on)?.iagree(flag.get()?, call.origin(), move |agreed| {
        place.mem().write(0, &agreed.flags.to_ne_bytes());
        agreed.error.map_or(Ok(()), Err)
    })?;
    return_request(started, request)
}

pub(crate) fn comm_shrink(_: CallId, on: MPI_Comm, out: Ptr<MPI_Comm>) -> Result<()> {
    out.set(publish_comm(Some(comm(on)?.shrink()?))?)
}

/// The handle exists at once, the communicator behind it when the request completes.
pub(crate) fn comm_ishrink(
    call: CallId,
    on: MPI_Comm,
    out: Ptr<MPI_Comm>,
    request: Ptr<MPI_Request>,
) -> Result<()> {
    let parent = comm(on)?;
    let handle = reserve_comm(parent)?;
    let started = parent.ishrink(call.origin(), move |shrunk| {
        fill_comm(handle, shrunk);
        Ok::<(), Error>(())
    })?;
    out.set(handle)?;
    return_request(started, request)
}
