//! Sessions, and communicators made from groups.

use crate::call::{Call, Result};
use crate::constants::*;
use crate::edge::{Ptr, StrIn, StrOut};
use crate::env;
use crate::group::publish_group;
use crate::handle::*;
use crate::objects::{INFOS, errhandler, info, publish, unknown};
use garonne_mpi::error::Class;
use garonne_mpi::session::Session;
use std::ffi::c_int;

static SESSIONS: Table<Session> = Table::new();

/// The session of a handle.
pub(crate) fn session(handle: MPI_Session) -> Result<&'static Session> {
    SESSIONS
        .get(handle)
        .ok_or_else(|| unknown(Class::Session, "session", handle.0, MPI_SESSION_NULL.0))
}

/// As [`session`], without a complaint.
pub(crate) fn find_session(handle: MPI_Session) -> Option<&'static Session> {
    SESSIONS.get(handle)
}

pub(crate) fn session_init(
    _: Call,
    hints: MPI_Info,
    handler: MPI_Errhandler,
    out: Ptr<MPI_Session>,
) -> Result<()> {
    let hints = if hints == MPI_INFO_NULL {
        None
    } else {
        Some(info(hints)?)
    };
    let handler = errhandler(handler)?;
    let process = env::join()?;
    let session = Session::init(&process, hints, handler)?;
    let handle = publish(&SESSIONS, session.clone())?;
    session.set_handle(Handle::word(handle));
    out.set(handle)
}

pub(crate) fn session_finalize(_: Call, handle: Ptr<MPI_Session>) -> Result<()> {
    let old = handle.get()?;
    session(old)?.finalize()?;
    SESSIONS.remove(old);
    env::leave_if_unused();
    handle.set(MPI_SESSION_NULL)
}

pub(crate) fn session_get_info(_: Call, on: MPI_Session, out: Ptr<MPI_Info>) -> Result<()> {
    out.set(publish(&INFOS, session(on)?.info())?)
}

pub(crate) fn session_get_num_psets(_: Call, on: MPI_Session, _: MPI_Info, count: Ptr<c_int>) -> Result<()> {
    count.set(session(on)?.num_psets() as c_int)
}

pub(crate) fn session_get_nth_pset(
    _: Call,
    on: MPI_Session,
    _: MPI_Info,
    n: c_int,
    len: Ptr<c_int>,
    name: StrOut,
) -> Result<()> {
    let found = session(on)?.nth_pset(n)?;
    let room = usize::try_from(len.get()?).unwrap_or(0);
    if room > 0 {
        name.write(found, room)?;
    }
    len.set(found.len() as c_int + 1)
}

pub(crate) fn session_get_pset_info(_: Call, on: MPI_Session, name: StrIn, out: Ptr<MPI_Info>) -> Result<()> {
    out.set(publish(&INFOS, session(on)?.pset_info(&name.text()?)?)?)
}

pub(crate) fn group_from_session_pset(
    _: Call,
    on: MPI_Session,
    name: StrIn,
    out: Ptr<MPI_Group>,
) -> Result<()> {
    publish_group(session(on)?.group(&name.text()?)?, out)
}
