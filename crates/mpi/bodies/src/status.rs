//! Statuses: filling them in, and what programs read from and write into them.

use crate::c_args::{ConstPtr, CountOut, Ptr};
use crate::call::{CallError, CallId, Result};
use crate::constants::*;
use crate::handle::*;
use crate::objects::datatype;
use garonne_mpi::error::Class;
use garonne_mpi::request::{Outcome, Status};
use std::ffi::c_int;

/// Fills in a status unless the program ignores it. `MPI_ERROR` is left as it was, as the standard
/// says for calls that complete one operation.
#[inline]
pub(crate) fn write_status(place: Ptr<MPI_Status>, status: &Status) -> Result<()> {
    if place.is_null() {
        return Ok(());
    }
    let mut filled = encode(status);
    filled.error = place.get()?.error;
    place.set(filled)
}

/// Writes the status of an outcome and returns its error. A failed receive whose message arrived
/// writes its status, too.
pub(crate) fn write_outcome(place: Ptr<MPI_Status>, outcome: Outcome) -> Result<()> {
    match outcome {
        Ok(status) => write_status(place, &status),
        Err(error) => {
            if let Some(status) = &error.status {
                write_status(place, status)?;
            }
            Err(error.into())
        }
    }
}

/// Writes a status unless the program ignores it. Cannot fail.
#[inline(always)]
pub(crate) fn write_if_given(place: Ptr<MPI_Status>, status: &Status) {
    if let Ok(old) = place.get() {
        let mut filled = encode(status);
        filled.error = old.error;
        place.set_if(filled);
    }
}

/// Fills in the empty status, whose error is success.
pub(crate) fn write_empty(place: Ptr<MPI_Status>) -> Result<()> {
    place.set_if(encode(&Status::EMPTY));
    Ok(())
}

/// The C form of a status, without an error.
pub(crate) fn encode(status: &Status) -> MPI_Status {
    MPI_Status::new(status.source, status.tag, status.len, status.cancelled)
}

/// Reads a status that the program's query function filled in.
pub(crate) fn decode(status: &MPI_Status) -> Status {
    Status {
        source: status.source,
        tag: status.tag,
        len: status.bytes(),
        cancelled: status.cancelled(),
    }
}

fn modify(place: Ptr<MPI_Status>, change: impl FnOnce(&mut MPI_Status)) -> Result<()> {
    let mut status = place.get()?;
    change(&mut status);
    place.set(status)
}

pub(crate) fn get_count(
    _: CallId,
    status: ConstPtr<MPI_Status>,
    handle: MPI_Datatype,
    count: CountOut,
) -> Result<()> {
    let (bytes, size) = (status.get()?.bytes(), datatype(handle)?.size());
    let whole = match (bytes, size) {
        (0, _) => Some(0),
        (_, 0) => None,
        _ => (bytes % size == 0).then(|| bytes / size),
    };
    count.set_or_undefined(
        whole
            .and_then(|n| i64::try_from(n).ok())
            .unwrap_or(MPI_UNDEFINED.into()),
    )
}

pub(crate) fn get_elements(
    _: CallId,
    status: ConstPtr<MPI_Status>,
    handle: MPI_Datatype,
    count: CountOut,
) -> Result<()> {
    let elements = datatype(handle)?.elements_in(status.get()?.bytes());
    count.set_or_undefined(
        elements
            .and_then(|n| i64::try_from(n).ok())
            .unwrap_or(MPI_UNDEFINED.into()),
    )
}

pub(crate) fn status_set_elements(
    _: CallId,
    status: Ptr<MPI_Status>,
    handle: MPI_Datatype,
    count: MPI_Count,
) -> Result<()> {
    let datatype = datatype(handle)?;
    let bytes = u64::try_from(count)
        .ok()
        .and_then(|elements| datatype.bytes_of_elements(elements));
    let bytes = bytes.ok_or_else(|| {
        CallError::new(
            Class::Count,
            format!("{count} is no number of elements of {datatype}"),
        )
    })?;
    modify(status, |status| status.set_bytes(bytes))
}

pub(crate) fn status_set_cancelled(_: CallId, status: Ptr<MPI_Status>, flag: c_int) -> Result<()> {
    modify(status, |status| status.set_cancelled(flag != 0))
}

pub(crate) fn test_cancelled(
    _: CallId,
    status: ConstPtr<MPI_Status>,
    flag: Ptr<c_int>,
) -> Result<()> {
    flag.set(status.get()?.cancelled().into())
}

pub(crate) fn status_get_source(
    _: CallId,
    status: ConstPtr<MPI_Status>,
    source: Ptr<c_int>,
) -> Result<()> {
    source.set(status.get()?.source)
}

pub(crate) fn status_get_tag(
    _: CallId,
    status: ConstPtr<MPI_Status>,
    tag: Ptr<c_int>,
) -> Result<()> {
    tag.set(status.get()?.tag)
}

pub(crate) fn status_get_error(
    _: CallId,
    status: ConstPtr<MPI_Status>,
    error: Ptr<c_int>,
) -> Result<()> {
    error.set(status.get()?.error)
}

pub(crate) fn status_set_source(_: CallId, status: Ptr<MPI_Status>, source: c_int) -> Result<()> {
    modify(status, |status| status.source = source)
}

pub(crate) fn status_set_tag(_: CallId, status: Ptr<MPI_Status>, tag: c_int) -> Result<()> {
    modify(status, |status| status.tag = tag)
}

pub(crate) fn status_set_error(_: CallId, status: Ptr<MPI_Status>, error: c_int) -> Result<()> {
    modify(status, |status| status.error = error)
}
