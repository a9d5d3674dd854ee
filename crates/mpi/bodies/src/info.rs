//! Info objects. Usable before init and after finalize.

use crate::c_args::{Ptr, StrIn, StrOut};
use crate::call::{CallError, CallId, ErrorObject, Result, return_code};
use crate::constants::*;
use crate::entry::CallSite;
use crate::handle::MPI_Info;
use crate::objects::{info, infos, publish, unknown_handle};
use crate::{init_state, last_call, wrappers};
use garonne_mpi::error::Class;
use garonne_mpi::info::Info;
use std::ffi::c_int;

pub(crate) fn info_create(_: CallId, out: Ptr<MPI_Info>) -> Result<()> {
    out.set(publish(infos(), Info::new())?)
}

/// The program's arguments are taken from the system, whatever the caller passes: they are the
/// same.
pub(crate) fn info_create_env(
    _: CallId,
    _argc: c_int,
    _argv: Ptr<StrIn>,
    out: Ptr<MPI_Info>,
) -> Result<()> {
    out.set(publish(infos(), Info::from_pairs(init_state::env_pairs()))?)
}

pub(crate) fn info_set(_: CallId, handle: MPI_Info, key: StrIn, value: StrIn) -> Result<()> {
    Ok(info(handle)?.set(&key.text()?, &value.text()?)?)
}

/// `MPI_Info_set` of an ABI whose `MPI_MAX_INFO_KEY` is `room`. `MPI_Info_get_nthkey` has so many
/// bytes for a key and its final zero, so a longer key is refused when it is set.
pub fn set_key_within(
    room: usize,
    handle: MPI_Info,
    key: StrIn,
    value: StrIn,
    site: CallSite,
) -> c_int {
    let len = key.bytes().map_or(0, |key| key.len());
    if len < room {
        return wrappers::wrap_MPI_Info_set(handle, key, value, site);
    }
    let call = CallId::named("MPI_Info_set").expect("a function of the table");
    site.note();
    last_call::record(call, site);
    let text = format!(
        "an info key must have 1 to {} bytes in a program with this MPI_MAX_INFO_KEY, this one has {len}",
        room - 1
    );
    let error = CallError::new(Class::InfoKey, text);
    return_code(call, ErrorObject::None, Err(error))
}

pub(crate) fn info_delete(_: CallId, handle: MPI_Info, key: StrIn) -> Result<()> {
    Ok(info(handle)?.delete(&key.text()?)?)
}

pub(crate) fn info_get(
    _: CallId,
    handle: MPI_Info,
    key: StrIn,
    valuelen: c_int,
    value: StrOut,
    flag: Ptr<c_int>,
) -> Result<()> {
    let found = info(handle)?.get(&key.text()?)?;
    if let Some(found) = &found {
        // `valuelen` does not count the final zero.
        value.write(found, usize::try_from(valuelen).unwrap_or(0) + 1)?;
    }
    flag.set(found.is_some().into())
}

pub(crate) fn info_get_string(
    _: CallId,
    handle: MPI_Info,
    key: StrIn,
    buflen: Ptr<c_int>,
    value: StrOut,
    flag: Ptr<c_int>,
) -> Result<()> {
    let found = info(handle)?.get(&key.text()?)?;
    if let Some(found) = &found {
        value.write(found, usize::try_from(buflen.get()?).unwrap_or(0))?;
        buflen.set(found.len() as c_int + 1)?;
    }
    flag.set(found.is_some().into())
}

pub(crate) fn info_get_valuelen(
    _: CallId,
    handle: MPI_Info,
    key: StrIn,
    valuelen: Ptr<c_int>,
    flag: Ptr<c_int>,
) -> Result<()> {
    let found = info(handle)?.get(&key.text()?)?;
    if let Some(found) = &found {
        valuelen.set(found.len() as c_int)?;
    }
    flag.set(found.is_some().into())
}

pub(crate) fn info_get_nkeys(_: CallId, handle: MPI_Info, nkeys: Ptr<c_int>) -> Result<()> {
    nkeys.set(info(handle)?.len() as c_int)
}

pub(crate) fn info_get_nthkey(_: CallId, handle: MPI_Info, n: c_int, key: StrOut) -> Result<()> {
    let found = info(handle)?.nth_key(n)?;
    key.write(&found, MPI_MAX_INFO_KEY as usize)?;
    Ok(())
}

pub(crate) fn info_dup(_: CallId, handle: MPI_Info, out: Ptr<MPI_Info>) -> Result<()> {
    out.set(publish(infos(), info(handle)?.dup())?)
}

pub(crate) fn info_free(_: CallId, handle: Ptr<MPI_Info>) -> Result<()> {
    let old = handle.get()?;
    if infos().remove(old).is_none() {
        return Err(unknown_handle(
            Class::Info,
            "info object",
            old.0,
            MPI_INFO_NULL.0,
        ));
    }
    handle.set(MPI_INFO_NULL)
}
