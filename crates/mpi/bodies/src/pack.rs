//! Packing and unpacking, native and in `external32`.

use crate::c_args::{Buf, CountOut, StrIn};
use crate::call::{CallError, CallId, Result};
use crate::gpu_buffers;
use crate::handle::*;
use crate::objects::{comm, committed, datatype};
use crate::p2p::bad_count;
use garonne_mpi::datatype::{PackBuffer, PackElements};
use garonne_mpi::error::Class;

fn elements(buf: Buf, count: MPI_Count, handle: MPI_Datatype) -> Result<PackElements<'static>> {
    let count = u64::try_from(count).map_err(|_| bad_count(count))?;
    let datatype = committed(handle)?;
    if buf.addr() == 0 && count > 0 && datatype.code().is_some() {
        return Err(CallError::new(
            Class::Buffer,
            format!("the buffer is a null pointer, but count is {count}"),
        ));
    }
    gpu_buffers::refuse_gpu_memory(buf)?;
    Ok(PackElements {
        mem: buf.mem(),
        count,
        datatype,
    })
}

fn buffer(buf: Buf, size: MPI_Count, position: CountOut) -> Result<PackBuffer> {
    let at = position.get()?;
    let (Ok(size), Ok(position)) = (u64::try_from(size), u64::try_from(at)) else {
        return Err(CallError::new(
            Class::Arg,
            format!("size {size} and position {at} must not be negative"),
        ));
    };
    if buf.addr() == 0 && size > 0 {
        return Err(CallError::new(
            Class::Buffer,
            "the packing buffer is a null pointer",
        ));
    }
    Ok(PackBuffer {
        mem: buf.mem(),
        size,
        position,
    })
}

fn external32(name: StrIn) -> Result<()> {
    let name = name.text()?;
    if name == "external32" {
        return Ok(());
    }
    Err(CallError::new(
        Class::UnsupportedDatarep,
        format!("the data representation is {name:?}, not \"external32\""),
    ))
}

pub(crate) fn pack(
    _: CallId,
    input: Buf,
    count: MPI_Count,
    handle: MPI_Datatype,
    out: Buf,
    size: MPI_Count,
    position: CountOut,
    on: MPI_Comm,
) -> Result<()> {
    comm(on)?;
    let from = elements(input, count, handle)?;
    let mut buffer = buffer(out, size, position)?;
    buffer.pack(from)?;
    position.set(buffer.position as i64)
}

pub(crate) fn unpack(
    _: CallId,
    input: Buf,
    size: MPI_Count,
    position: CountOut,
    out: Buf,
    count: MPI_Count,
    handle: MPI_Datatype,
    on: MPI_Comm,
) -> Result<()> {
    comm(on)?;
    let to = elements(out, count, handle)?;
    let mut buffer = buffer(input, size, position)?;
    buffer.unpack(to)?;
    position.set(buffer.position as i64)
}

pub(crate) fn pack_size(
    _: CallId,
    count: MPI_Count,
    handle: MPI_Datatype,
    on: MPI_Comm,
    size: CountOut,
) -> Result<()> {
    comm(on)?;
    let count = u64::try_from(count).map_err(|_| bad_count(count))?;
    size.set_or_undefined(datatype(handle)?.pack_size(count)? as i64)
}

pub(crate) fn pack_external(
    _: CallId,
    representation: StrIn,
    input: Buf,
    count: MPI_Count,
    handle: MPI_Datatype,
    out: Buf,
    size: MPI_Count,
    position: CountOut,
) -> Result<()> {
    external32(representation)?;
    let from = elements(input, count, handle)?;
    let mut buffer = buffer(out, size, position)?;
    buffer.pack_external(from)?;
    position.set(buffer.position as i64)
}

pub(crate) fn unpack_external(
    _: CallId,
    representation: StrIn,
    input: Buf,
    size: MPI_Count,
    position: CountOut,
    out: Buf,
    count: MPI_Count,
    handle: MPI_Datatype,
) -> Result<()> {
    external32(representation)?;
    let to = elements(out, count, handle)?;
    let mut buffer = buffer(input, size, position)?;
    buffer.unpack_external(to)?;
    position.set(buffer.position as i64)
}

pub(crate) fn pack_external_size(
    _: CallId,
    representation: StrIn,
    count: MPI_Count,
    handle: MPI_Datatype,
    size: CountOut,
) -> Result<()> {
    external32(representation)?;
    let count = u64::try_from(count).map_err(|_| bad_count(count))?;
    size.set_or_undefined(datatype(handle)?.external_size(count)? as i64)
}
