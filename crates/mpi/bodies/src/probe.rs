//! Probes, and messages that a matched probe took.

use crate::c_args::{Buf, Ptr};
use crate::call::{CallError, CallId, Result};
use crate::constants::*;
use crate::handle::*;
use crate::objects::{comm, publish, unknown_handle};
use crate::p2p::data;
use crate::rank_context::RankContext;
use crate::request::return_request;
use crate::status::{StatusLayout, write_status};
use crate::{init_state, polling_calls};
use garonne_mpi::comm::Comm;
use garonne_mpi::error::Class;
use garonne_mpi::p2p::MatchedMessage;
use garonne_mpi::request::Status;
use std::ffi::c_int;

fn messages() -> &'static HandleTable<MatchedMessage> {
    &RankContext::current().messages
}

pub(crate) fn probe<S: StatusLayout>(
    call: CallId,
    source: c_int,
    tag: c_int,
    on: MPI_Comm,
    status: Ptr<S>,
) -> Result<()> {
    write_status(status, &comm(on)?.probe(source, tag, call.origin())?)
}

/// A probe that does not wait has found a message or not.
fn record_poll(call: CallId, (source, tag): (c_int, c_int), on: &Comm, found: bool) {
    match found {
        true => polling_calls::record_answer(),
        false => polling_calls::record_unsuccessful(call, &|asked| {
            asked.add(Ok(Some(on.probed(source, tag, call.origin()))));
        }),
    }
}

pub(crate) fn iprobe<S: StatusLayout>(
    call: CallId,
    source: c_int,
    tag: c_int,
    on: MPI_Comm,
    flag: Ptr<c_int>,
    status: Ptr<S>,
) -> Result<()> {
    let on = comm(on)?;
    let found = on.iprobe(source, tag)?;
    record_poll(call, (source, tag), on, found.is_some());
    flag.set(found.is_some().into())?;
    found.map_or(Ok(()), |found| write_status(status, &found))
}

fn return_message(message: MatchedMessage, out: Ptr<MPI_Message>) -> Result<()> {
    out.set(match message {
        MatchedMessage::NoProc => MPI_MESSAGE_NO_PROC,
        taken => publish(messages(), taken)?,
    })
}

pub(crate) fn mprobe<S: StatusLayout>(
    call: CallId,
    source: c_int,
    tag: c_int,
    on: MPI_Comm,
    message: Ptr<MPI_Message>,
    status: Ptr<S>,
) -> Result<()> {
    let (found, filled) = comm(on)?.mprobe(source, tag, call.origin())?;
    return_message(found, message)?;
    write_status(status, &filled)
}

pub(crate) fn improbe<S: StatusLayout>(
    call: CallId,
    source: c_int,
    tag: c_int,
    on: MPI_Comm,
    flag: Ptr<c_int>,
    message: Ptr<MPI_Message>,
    status: Ptr<S>,
) -> Result<()> {
    let on = comm(on)?;
    let found = on.improbe(source, tag)?;
    record_poll(call, (source, tag), on, found.is_some());
    flag.set(found.is_some().into())?;
    let Some((found, filled)) = found else {
        return message.set(MPI_MESSAGE_NULL);
    };
    return_message(found, message)?;
    write_status(status, &filled)
}

/// The communicator that a message came on.
fn comm_of(place: Ptr<MPI_Message>) -> Option<Comm> {
    let message = place.get().ok().and_then(|handle| messages().get(handle));
    message.and_then(|message| message.comm().cloned())
}

/// The message of a handle, which the receive consumes.
fn take(place: Ptr<MPI_Message>) -> Result<MatchedMessage> {
    let handle = place.get()?;
    let taken = if handle == MPI_MESSAGE_NO_PROC {
        Some(MatchedMessage::NoProc)
    } else {
        messages().remove(handle)
    };
    let taken = taken
        .ok_or_else(|| unknown_handle(Class::Request, "message", handle.0, MPI_MESSAGE_NULL.0))?;
    place.set(MPI_MESSAGE_NULL)?;
    Ok(taken)
}

pub(crate) fn mrecv<S: StatusLayout>(
    call: CallId,
    buf: Buf,
    count: MPI_Count,
    datatype: MPI_Datatype,
    message: Ptr<MPI_Message>,
    status: Ptr<S>,
) -> Result<()> {
    let origin = call.origin_of(count, datatype);
    if message.get()? == MPI_MESSAGE_NO_PROC {
        message.set(MPI_MESSAGE_NULL)?;
        return write_status(status, &Status::PROC_NULL);
    }
    let data = data(buf, count, datatype).map_err(|fault| fault.on_comm(comm_of(message)))?;
    let message = take(message)?;
    let comm = message.comm().cloned();
    let filled = message
        .recv(data, origin)
        .map_err(|error| CallError::from(error).on_comm(comm))?;
    write_status(status, &filled)
}

pub(crate) fn imrecv(
    call: CallId,
    buf: Buf,
    count: MPI_Count,
    datatype: MPI_Datatype,
    message: Ptr<MPI_Message>,
    out: Ptr<MPI_Request>,
) -> Result<()> {
    let origin = call.origin_of(count, datatype);
    let process = init_state::process()?;
    let data = if message.get()? == MPI_MESSAGE_NO_PROC {
        garonne_sync::user::Data::empty()
    } else {
        data(buf, count, datatype).map_err(|fault| fault.on_comm(comm_of(message)))?
    };
    let message = take(message)?;
    let comm = message.comm().cloned();
    return_request(
        message
            .irecv(data, origin, &process)
            .map_err(|error| CallError::from(error).on_comm(comm))?,
        out,
    )
}
