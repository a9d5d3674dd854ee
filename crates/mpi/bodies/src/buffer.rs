//! Buffers for buffered sends: of the process, of communicators, of sessions.

use crate::c_args::{Buf, CountOut, Ptr};
use crate::call::{CallError, CallId, Result};
use crate::handle::*;
use crate::init_state;
use crate::objects::comm;
use crate::request::return_request;
use crate::session::session;
use garonne_mpi::error::Class;
use garonne_mpi::p2p::bsend_buffer::{BsendBuffer, BsendMemory};
use garonne_mpi::process::Process;
use std::sync::Arc;

fn attach(to: &BsendBuffer, buf: Buf, size: MPI_Count) -> Result<()> {
    if buf.addr() == Buf::AUTOMATIC {
        return Ok(to.attach(BsendMemory::Automatic)?);
    }
    let len = u64::try_from(size).map_err(|_| {
        CallError::new(
            Class::Arg,
            format!("the buffer's size is {size}; it must not be negative"),
        )
    })?;
    if buf.addr() == 0 && len > 0 {
        return Err(CallError::new(
            Class::Buffer,
            format!("the buffer of {len} bytes is at a null pointer"),
        ));
    }
    Ok(to.attach(BsendMemory::User {
        mem: buf.mem(),
        len,
    })?)
}

/// Detaches the buffer once it is empty, and returns its address and size to the program. Detaching
/// without an attached buffer is an error.
fn detach(from: &BsendBuffer, process: &Process, addr: Buf, size: CountOut) -> Result<()> {
    let addr = addr.given()?;
    let (at, len) = match from.detach(process) {
        Some(BsendMemory::Automatic) => (Buf::AUTOMATIC, 0),
        Some(BsendMemory::User { mem, len }) => (mem.addr(0), len as i64),
        None => {
            return Err(CallError::new(
                Class::Buffer,
                "no buffer for buffered sends is attached",
            ));
        }
    };
    addr.store(at)?;
    size.set(len)
}

pub(crate) fn buffer_attach(_: CallId, buf: Buf, size: MPI_Count) -> Result<()> {
    attach(&init_state::process()?.buffers, buf, size)
}

pub(crate) fn buffer_detach(_: CallId, addr: Buf, size: CountOut) -> Result<()> {
    let process = init_state::process()?;
    detach(&process.buffers, &process, addr, size)
}

pub(crate) fn buffer_flush(_: CallId) -> Result<()> {
    let process = init_state::process()?;
    process.buffers.flush(&process);
    Ok(())
}

pub(crate) fn buffer_iflush(_: CallId, out: Ptr<MPI_Request>) -> Result<()> {
    let process = init_state::process()?;
    return_request(process.buffers.iflush(&process), out)
}

pub(crate) fn comm_attach_buffer(_: CallId, on: MPI_Comm, buf: Buf, size: MPI_Count) -> Result<()> {
    attach(comm(on)?.buffers(), buf, size)
}

pub(crate) fn comm_detach_buffer(_: CallId, on: MPI_Comm, addr: Buf, size: CountOut) -> Result<()> {
    let comm = comm(on)?;
    detach(comm.buffers(), comm.process(), addr, size)
}

pub(crate) fn comm_flush_buffer(_: CallId, on: MPI_Comm) -> Result<()> {
    let comm = comm(on)?;
    comm.buffers().flush(comm.process());
    Ok(())
}

pub(crate) fn comm_iflush_buffer(_: CallId, on: MPI_Comm, out: Ptr<MPI_Request>) -> Result<()> {
    let comm = comm(on)?;
    let process: &Arc<Process> = comm.process();
    return_request(comm.buffers().iflush(process), out)
}

pub(crate) fn session_attach_buffer(
    _: CallId,
    on: MPI_Session,
    buf: Buf,
    size: MPI_Count,
) -> Result<()> {
    attach(session(on)?.buffers(), buf, size)
}

pub(crate) fn session_detach_buffer(
    _: CallId,
    on: MPI_Session,
    addr: Buf,
    size: CountOut,
) -> Result<()> {
    let session = session(on)?;
    detach(session.buffers(), session.process(), addr, size)
}

pub(crate) fn session_flush_buffer(_: CallId, on: MPI_Session) -> Result<()> {
    let session = session(on)?;
    session.buffers().flush(session.process());
    Ok(())
}

pub(crate) fn session_iflush_buffer(
    _: CallId,
    on: MPI_Session,
    out: Ptr<MPI_Request>,
) -> Result<()> {
    let session = session(on)?;
    return_request(session.buffers().iflush(session.process()), out)
}
