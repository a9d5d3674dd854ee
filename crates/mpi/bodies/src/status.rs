//! Statuses: filling them in, and what programs read from and write into them.
//!
//! The layout of a status differs between ABIs. All code that touches a status is generic over
//! [`StatusLayout`], so that each call writes the layout of its caller directly.

use crate::c_args::{ConstPtr, CountOut, Ptr};
use crate::call::{CallError, CallId, Result};
use crate::constants::*;
use crate::handle::*;
use crate::objects::datatype;
use garonne_mpi::error::Class;
use garonne_mpi::request::{Outcome, Status};
use std::ffi::c_int;

/// The layout of a status in one ABI, with that ABI's special ranks, tags and error codes.
///
/// Values that go in and out of the methods are those of the standard ABI.
pub trait StatusLayout: Copy {
    /// Address of `MPI_STATUS_IGNORE`. No status lies at a lower one.
    const IGNORED: usize;

    /// Returns the status of a message that arrived, in C's form. Rank and tag are not special.
    #[inline(always)]
    fn of_message(status: &Status) -> Self {
        Self::encode(status)
    }
    /// Returns this status in C's form, with success as its error.
    fn encode(status: &Status) -> Self;
    /// Returns what a status says except its error.
    fn decode(&self) -> Status;
    /// Returns the error code.
    fn error(&self) -> c_int;
    /// Stores an error code.
    fn set_error(&mut self, code: c_int);
    /// Copies the error code of another status as it is.
    fn keep_error(&mut self, from: &Self);
}

impl StatusLayout for MPI_Status {
    const IGNORED: usize = 0;

    #[inline(always)]
    fn encode(status: &Status) -> Self {
        Self::new(status.source, status.tag, status.len, status.cancelled)
    }

    fn decode(&self) -> Status {
        Status {
            source: self.source,
            tag: self.tag,
            len: self.bytes(),
            cancelled: self.cancelled(),
        }
    }

    fn error(&self) -> c_int {
        self.error
    }

    #[inline(always)]
    fn set_error(&mut self, code: c_int) {
        self.error = code;
    }

    #[inline(always)]
    fn keep_error(&mut self, from: &Self) {
        self.error = from.error;
    }
}

/// Fills in a status unless the program ignores it. `MPI_ERROR` is left as it was, as the standard
/// says for calls that complete one operation.
#[inline]
pub(crate) fn write_status<S: StatusLayout>(place: Ptr<S>, status: &Status) -> Result<()> {
    if place.is_null() {
        return Ok(());
    }
    let mut filled = S::encode(status);
    filled.keep_error(&place.get()?);
    place.set(filled)
}

/// Writes the status of an outcome and returns its error. A failed receive whose message arrived
/// writes its status, too.
pub(crate) fn write_outcome<S: StatusLayout>(place: Ptr<S>, outcome: Outcome) -> Result<()> {
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

/// Writes the status of a message that arrived, unless the program ignores it. The address is as
/// the program passed it. Cannot fail.
#[inline(always)]
pub(crate) fn write_message<S: StatusLayout>(place: Ptr<S>, status: &Status) {
    if place.addr() > S::IGNORED
        && let Ok(old) = place.get()
    {
        let mut filled = S::of_message(status);
        filled.keep_error(&old);
        place.set_if(filled);
    }
}

/// Fills in the empty status, whose error is success.
pub(crate) fn write_empty<S: StatusLayout>(place: Ptr<S>) -> Result<()> {
    place.set_if(S::encode(&Status::EMPTY));
    Ok(())
}

fn modify<S: StatusLayout>(place: Ptr<S>, change: impl FnOnce(&mut Status)) -> Result<()> {
    let old = place.get()?;
    let mut status = old.decode();
    change(&mut status);
    let mut changed = S::encode(&status);
    changed.keep_error(&old);
    place.set(changed)
}

pub(crate) fn get_count<S: StatusLayout>(
    _: CallId,
    status: ConstPtr<S>,
    handle: MPI_Datatype,
    count: CountOut,
) -> Result<()> {
    let (bytes, size) = (status.get()?.decode().len, datatype(handle)?.size());
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

pub(crate) fn get_elements<S: StatusLayout>(
    _: CallId,
    status: ConstPtr<S>,
    handle: MPI_Datatype,
    count: CountOut,
) -> Result<()> {
    let elements = datatype(handle)?.elements_in(status.get()?.decode().len);
    count.set_or_undefined(
        elements
            .and_then(|n| i64::try_from(n).ok())
            .unwrap_or(MPI_UNDEFINED.into()),
    )
}

pub(crate) fn status_set_elements<S: StatusLayout>(
    _: CallId,
    status: Ptr<S>,
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
    modify(status, |status| status.len = bytes)
}

pub(crate) fn status_set_cancelled<S: StatusLayout>(
    _: CallId,
    status: Ptr<S>,
    flag: c_int,
) -> Result<()> {
    modify(status, |status| status.cancelled = flag != 0)
}

pub(crate) fn test_cancelled<S: StatusLayout>(
    _: CallId,
    status: ConstPtr<S>,
    flag: Ptr<c_int>,
) -> Result<()> {
    flag.set(status.get()?.decode().cancelled.into())
}

pub(crate) fn status_get_source<S: StatusLayout>(
    _: CallId,
    status: ConstPtr<S>,
    source: Ptr<c_int>,
) -> Result<()> {
    source.set(status.get()?.decode().source)
}

pub(crate) fn status_get_tag<S: StatusLayout>(
    _: CallId,
    status: ConstPtr<S>,
    tag: Ptr<c_int>,
) -> Result<()> {
    tag.set(status.get()?.decode().tag)
}

pub(crate) fn status_get_error<S: StatusLayout>(
    _: CallId,
    status: ConstPtr<S>,
    error: Ptr<c_int>,
) -> Result<()> {
    error.set(status.get()?.error())
}

pub(crate) fn status_set_source<S: StatusLayout>(
    _: CallId,
    status: Ptr<S>,
    source: c_int,
) -> Result<()> {
    modify(status, |status| status.source = source)
}

pub(crate) fn status_set_tag<S: StatusLayout>(_: CallId, status: Ptr<S>, tag: c_int) -> Result<()> {
    modify(status, |status| status.tag = tag)
}

pub(crate) fn status_set_error<S: StatusLayout>(
    _: CallId,
    status: Ptr<S>,
    error: c_int,
) -> Result<()> {
    let mut changed = status.get()?;
    changed.set_error(error);
    status.set(changed)
}
