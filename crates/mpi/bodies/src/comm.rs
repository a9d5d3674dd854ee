//! Communicators.

use crate::c_args::{Ptr, StrIn, StrOut};
use crate::call::{CallError, CallId, Result};
use crate::constants::*;
use crate::group::{comparison, publish_group};
use crate::handle::*;
use crate::objects::{self, comm, group, info_or_null, infos, publish, publish_comm};
use crate::request::return_request;
use garonne_mpi::comm::{Comm, MergeOrder, PeerLeader, SplitType};
use garonne_mpi::error::Class;
use garonne_mpi::info::Info;
use std::ffi::c_int;

fn hints(handle: MPI_Info) -> Result<Option<Info>> {
    if handle == MPI_INFO_NULL {
        Ok(None)
    } else {
        info_or_null(handle).map(Some)
    }
}

pub(crate) fn comm_size(_: CallId, on: MPI_Comm, size: Ptr<c_int>) -> Result<()> {
    size.set(comm(on)?.size() as c_int)
}

pub(crate) fn comm_rank(_: CallId, on: MPI_Comm, rank: Ptr<c_int>) -> Result<()> {
    rank.set(comm(on)?.rank() as c_int)
}

pub(crate) fn comm_compare(_: CallId, a: MPI_Comm, b: MPI_Comm, result: Ptr<c_int>) -> Result<()> {
    result.set(comparison(comm(a)?.compare(comm(b)?)))
}

pub(crate) fn comm_test_inter(_: CallId, on: MPI_Comm, flag: Ptr<c_int>) -> Result<()> {
    flag.set(comm(on)?.is_inter().into())
}

pub(crate) fn comm_remote_size(_: CallId, on: MPI_Comm, size: Ptr<c_int>) -> Result<()> {
    size.set(comm(on)?.remote_group()?.size() as c_int)
}

pub(crate) fn comm_group(_: CallId, on: MPI_Comm, out: Ptr<MPI_Group>) -> Result<()> {
    publish_group(comm(on)?.group().clone(), None, out)
}

pub(crate) fn comm_remote_group(_: CallId, on: MPI_Comm, out: Ptr<MPI_Group>) -> Result<()> {
    publish_group(comm(on)?.remote_group()?.clone(), None, out)
}

pub(crate) fn comm_dup(call: CallId, on: MPI_Comm, out: Ptr<MPI_Comm>) -> Result<()> {
    return_dup(comm(on)?.dup(None, call.origin()), out)
}

pub(crate) fn comm_dup_with_info(
    call: CallId,
    on: MPI_Comm,
    with: MPI_Info,
    out: Ptr<MPI_Comm>,
) -> Result<()> {
    return_dup(
        comm(on)?.dup(Some(&info_or_null(with)?), call.origin()),
        out,
    )
}

/// Hands a duplicate to the program. Where there is none, since a copy function refused, it does
/// not keep what its variable held.
fn return_dup(new: garonne_mpi::error::Result<Comm>, out: Ptr<MPI_Comm>) -> Result<()> {
    if new.is_err() {
        out.set_if(MPI_COMM_NULL);
    }
    out.set(publish_comm(Some(new?))?)
}

/// The handle exists at once, the communicator behind it when the request completes.
fn idup(
    call: CallId,
    on: MPI_Comm,
    with: Option<Info>,
    out: Ptr<MPI_Comm>,
    request: Ptr<MPI_Request>,
) -> Result<()> {
    let (new, started) = comm(on)?.idup(with.as_ref(), call.origin())?;
    out.set(publish_comm(Some(new))?)?;
    return_request(started, request)
}

pub(crate) fn comm_idup(
    call: CallId,
    on: MPI_Comm,
    out: Ptr<MPI_Comm>,
    request: Ptr<MPI_Request>,
) -> Result<()> {
    idup(call, on, None, out, request)
}

pub(crate) fn comm_idup_with_info(
    call: CallId,
    on: MPI_Comm,
    with: MPI_Info,
    out: Ptr<MPI_Comm>,
    request: Ptr<MPI_Request>,
) -> Result<()> {
    idup(call, on, Some(info_or_null(with)?), out, request)
}

pub(crate) fn comm_create(
    call: CallId,
    on: MPI_Comm,
    of: MPI_Group,
    out: Ptr<MPI_Comm>,
) -> Result<()> {
    out.set(publish_comm(comm(on)?.create(group(of)?, call.origin())?)?)
}

pub(crate) fn comm_create_group(
    call: CallId,
    on: MPI_Comm,
    of: MPI_Group,
    tag: c_int,
    out: Ptr<MPI_Comm>,
) -> Result<()> {
    out.set(publish_comm(comm(on)?.create_group(
        group(of)?,
        tag,
        call.origin(),
    )?)?)
}

pub(crate) fn comm_split(
    call: CallId,
    on: MPI_Comm,
    color: c_int,
    key: c_int,
    out: Ptr<MPI_Comm>,
) -> Result<()> {
    out.set(publish_comm(comm(on)?.split(color, key, call.origin())?)?)
}

pub(crate) fn comm_split_type(
    call: CallId,
    on: MPI_Comm,
    kind: c_int,
    key: c_int,
    with: MPI_Info,
    out: Ptr<MPI_Comm>,
) -> Result<()> {
    let comm = comm(on)?;
    let kind = if kind == MPI_UNDEFINED {
        None
    } else {
        Some(SplitType::try_from(kind)?)
    };
    out.set(publish_comm(comm.split_type(
        kind,
        key,
        hints(with)?.as_ref(),
        call.origin(),
    )?)?)
}

pub(crate) fn intercomm_create(
    call: CallId,
    local: MPI_Comm,
    local_leader: c_int,
    peer: MPI_Comm,
    remote_leader: c_int,
    tag: c_int,
    out: Ptr<MPI_Comm>,
) -> Result<()> {
    let local = comm(local)?;
    // Only the leader's peer communicator and remote rank count.
    let leads = local.rank() as c_int == local_leader;
    let peer = if leads {
        Some(PeerLeader {
            comm: comm(peer)?,
            rank: remote_leader,
        })
    } else {
        None
    };
    out.set(publish_comm(Some(local.intercomm_create(
        local_leader,
        peer,
        tag,
        call.origin(),
    )?))?)
}

pub(crate) fn intercomm_merge(
    call: CallId,
    on: MPI_Comm,
    high: c_int,
    out: Ptr<MPI_Comm>,
) -> Result<()> {
    let order = if high != 0 {
        MergeOrder::High
    } else {
        MergeOrder::Low
    };
    out.set(publish_comm(Some(comm(on)?.merge(order, call.origin())?))?)
}

/// A handle that the program may free: not one of the predefined communicators.
fn freeable(handle: MPI_Comm) -> Result<&'static Comm> {
    let found = comm(handle)?;
    if handle.0 < FIRST_DYNAMIC {
        return Err(CallError::new(
            Class::Comm,
            format!("{} is predefined and cannot be freed", found.label()),
        ));
    }
    Ok(found)
}

pub(crate) fn comm_free(_: CallId, place: Ptr<MPI_Comm>) -> Result<()> {
    let handle = place.get()?;
    let found = freeable(handle)?;
    found.free()?;
    found.process().forget_parent(found);
    objects::retire_comm(handle);
    place.set(MPI_COMM_NULL)
}

pub(crate) fn comm_disconnect(call: CallId, place: Ptr<MPI_Comm>) -> Result<()> {
    let handle = place.get()?;
    let found = freeable(handle)?;
    found.disconnect(call.origin())?;
    found.process().forget_parent(found);
    objects::retire_comm(handle);
    place.set(MPI_COMM_NULL)
}

/// The parent's communicator got its handle in `MPI_Init`.
pub(crate) fn comm_get_parent(_: CallId, parent: Ptr<MPI_Comm>) -> Result<()> {
    let found = crate::init_state::process()?.parent();
    parent.set(found.map_or(MPI_COMM_NULL, |comm| MPI_Comm(comm.handle())))
}

pub(crate) fn comm_set_name(_: CallId, on: MPI_Comm, name: StrIn) -> Result<()> {
    comm(on)?.set_name(&name.text()?);
    Ok(())
}

pub(crate) fn comm_get_name(_: CallId, on: MPI_Comm, name: StrOut, len: Ptr<c_int>) -> Result<()> {
    let found = if on == MPI_COMM_NULL {
        "MPI_COMM_NULL".into()
    } else {
        comm(on)?.name()
    };
    let written = name.write(&found, MPI_MAX_OBJECT_NAME as usize)?;
    len.set(written as c_int)
}

pub(crate) fn comm_set_info(_: CallId, on: MPI_Comm, with: MPI_Info) -> Result<()> {
    comm(on)?.set_info(&info_or_null(with)?);
    Ok(())
}

pub(crate) fn comm_get_info(_: CallId, on: MPI_Comm, out: Ptr<MPI_Info>) -> Result<()> {
    out.set(publish(infos(), comm(on)?.info())?)
}
