//! Partitioned point-to-point communication.

use crate::c_args::{Buf, ConstPtr, Ptr};
use crate::call::{CallError, CallId, Result};
use crate::coll::elements;
use crate::constants::MPI_REQUEST_NULL;
use crate::group::length;
use crate::handle::*;
use crate::light_request::is_light;
use crate::objects::{comm, info_or_null};
use crate::request::{request_entry, return_partitioned};
use garonne_mpi::comm::Comm;
use garonne_mpi::error::{Class, Error, Result as MpiResult};
use garonne_mpi::partitioned::{PartitionedArgs, PartitionedOperation};
use garonne_mpi::request::Request;
use std::ffi::c_int;

pub(crate) fn psend_init(
    call: CallId,
    buf: Buf,
    partitions: c_int,
    count: MPI_Count,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    on: MPI_Comm,
    info: MPI_Info,
    out: Ptr<MPI_Request>,
) -> Result<()> {
    let buffer = (buf, partitions, count, datatype);
    init(Comm::psend_init, call, buffer, (dest, tag), (on, info), out)
}

pub(crate) fn precv_init(
    call: CallId,
    buf: Buf,
    partitions: c_int,
    count: MPI_Count,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    on: MPI_Comm,
    info: MPI_Info,
    out: Ptr<MPI_Request>,
) -> Result<()> {
    let buffer = (buf, partitions, count, datatype);
    init(
        Comm::precv_init,
        call,
        buffer,
        (source, tag),
        (on, info),
        out,
    )
}

/// Returns a new request of [`Comm::psend_init`] or [`Comm::precv_init`].
fn init(
    make: fn(&Comm, PartitionedArgs) -> MpiResult<(Request, PartitionedOperation)>,
    call: CallId,
    (buf, partitions, count, datatype): (Buf, c_int, MPI_Count, MPI_Datatype),
    (rank, tag): (c_int, c_int),
    (on, info): (MPI_Comm, MPI_Info),
    out: Ptr<MPI_Request>,
) -> Result<()> {
    let comm = comm(on)?;
    info_or_null(info)?;
    let Ok(number) = u32::try_from(partitions) else {
        return Err(CallError::new(
            Class::Arg,
            format!("the number of partitions is {partitions}; it must not be negative"),
        ));
    };
    let elements = elements(buf, count, datatype)?;
    let args = PartitionedArgs {
        mem: elements.mem,
        partitions: number,
        count: elements.count,
        datatype: elements.datatype.clone(),
        rank,
        tag,
        // Without the type: the pieces of both sides have different numbers of elements.
        origin: call.origin(),
    };
    let (request, operation) = make(comm, args)?;
    return_partitioned(request, operation, out)
}

/// The partitioned operation of a request; `None` for a null handle.
fn operation(handle: MPI_Request) -> Result<Option<&'static PartitionedOperation>> {
    if handle == MPI_REQUEST_NULL {
        return Ok(None);
    }
    let not_partitioned =
        || CallError::new(Class::Request, "this request is not a partitioned one");
    if is_light(handle) {
        return Err(not_partitioned());
    }
    let entry = request_entry(handle)?;
    entry
        .partitioned
        .as_deref()
        .map(Some)
        .ok_or_else(not_partitioned)
}

fn mark(handle: MPI_Request, partitions: impl Iterator<Item = c_int>) -> Result<()> {
    let Some(operation) = operation(handle)? else {
        return request_entry(handle).map(drop);
    };
    operation
        .ready(partitions)
        .map_err(|error| on_comm(operation, error))
}

fn on_comm(operation: &PartitionedOperation, error: Error) -> CallError {
    CallError::from(error).on_comm(Some(operation.comm().clone()))
}

pub(crate) fn pready(_: CallId, partition: c_int, request: MPI_Request) -> Result<()> {
    mark(request, std::iter::once(partition))
}

pub(crate) fn pready_range(_: CallId, low: c_int, high: c_int, request: MPI_Request) -> Result<()> {
    if low > high {
        return Err(CallError::new(
            Class::Arg,
            format!("the range of partitions ends with {high}, before its first one, {low}"),
        ));
    }
    mark(request, low..=high)
}

pub(crate) fn pready_list(
    _: CallId,
    len: c_int,
    partitions: ConstPtr<c_int>,
    request: MPI_Request,
) -> Result<()> {
    let list = partitions.take(length(len, "the number of partitions")?)?;
    mark(request, list.into_iter())
}

pub(crate) fn parrived(
    _: CallId,
    request: MPI_Request,
    partition: c_int,
    flag: Ptr<c_int>,
) -> Result<()> {
    let Some(operation) = operation(request)? else {
        return flag.set(1);
    };
    let arrived = operation.arrived(partition);
    flag.set(arrived.map_err(|error| on_comm(operation, error))?.into())
}
