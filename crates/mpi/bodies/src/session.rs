//! Sessions, and communicators made from groups.

use crate::c_args::{Ptr, StrIn, StrOut};
use crate::call::{CallId, Result};
use crate::constants::*;
use crate::group::publish_group;
use crate::handle::*;
use crate::objects::{
    GroupEntry, errhandler, group, info, infos, publish, publish_comm, unknown_handle,
};
use crate::rank_context::RankContext;
use crate::{comm_contexts, env, init_state, optional_checks, this_rank};
use garonne_mpi::comm::{Comm, FromGroup, IntercommGroups};
use garonne_mpi::errhandler::Errhandler;
use garonne_mpi::error::Class;
use garonne_mpi::info::Info;
use garonne_mpi::process::{Process, ThreadLevel};
use garonne_mpi::session::Session;
use std::ffi::c_int;
use std::sync::Arc;

fn sessions() -> &'static HandleTable<Session> {
    &RankContext::current().sessions
}

/// The session of a handle.
pub(crate) fn session(handle: MPI_Session) -> Result<&'static Session> {
    sessions()
        .get(handle)
        .ok_or_else(|| unknown_handle(Class::Session, "session", handle.0, MPI_SESSION_NULL.0))
}

/// Returns the session of a handle, or `None`.
pub(crate) fn find_session(handle: MPI_Session) -> Option<&'static Session> {
    sessions().get(handle)
}

pub(crate) fn session_init(
    _: CallId,
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
    let process = env::acquire_process(ThreadLevel::Serialized)?;
    this_rank::share_engine();
    let session = Session::init(&process, hints, handler)?;
    let handle = publish(sessions(), session.clone())?;
    session.set_handle(Handle::word(handle));
    out.set(handle)
}

pub(crate) fn session_finalize(_: CallId, handle: Ptr<MPI_Session>) -> Result<()> {
    let old = handle.get()?;
    let ended = session(old)?.clone();
    ended.finalize()?;
    sessions().remove(old);
    let process = ended.process();
    if optional_checks::messages_enabled()
        && process.users() == 0
        && let Some(report) = process.unreceived_at_end(&comm_contexts::owner)
    {
        env::end_for_unreceived(process, &report);
    }
    env::release_if_unused()?;
    handle.set(MPI_SESSION_NULL)
}

pub(crate) fn session_get_info(_: CallId, on: MPI_Session, out: Ptr<MPI_Info>) -> Result<()> {
    out.set(publish(infos(), session(on)?.info())?)
}

pub(crate) fn session_get_num_psets(
    _: CallId,
    on: MPI_Session,
    _: MPI_Info,
    count: Ptr<c_int>,
) -> Result<()> {
    count.set(session(on)?.num_psets() as c_int)
}

pub(crate) fn session_get_nth_pset(
    _: CallId,
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

pub(crate) fn session_get_pset_info(
    _: CallId,
    on: MPI_Session,
    name: StrIn,
    out: Ptr<MPI_Info>,
) -> Result<()> {
    out.set(publish(infos(), session(on)?.pset_info(&name.text()?)?)?)
}

pub(crate) fn group_from_session_pset(
    _: CallId,
    on: MPI_Session,
    name: StrIn,
    out: Ptr<MPI_Group>,
) -> Result<()> {
    let session = session(on)?;
    publish_group(session.group(&name.text()?)?, Some(session.clone()), out)
}

/// Arguments of `MPI_Comm_create_from_group` and `MPI_Intercomm_create_from_groups`, on which all
/// processes agree.
struct FromGroupArgs {
    process: Arc<Process>,
    tag: String,
    hints: Option<Info>,
    handler: Errhandler,
}

impl FromGroupArgs {
    fn new(tag: StrIn, hints: MPI_Info, handler: MPI_Errhandler) -> Result<Self> {
        let hints = if hints == MPI_INFO_NULL {
            None
        } else {
            Some(info(hints)?.clone())
        };
        Ok(Self {
            process: init_state::process()?,
            tag: tag.text()?,
            hints,
            handler: errhandler(handler)?,
        })
    }

    fn args(&self, of: &GroupEntry, call: CallId) -> FromGroup<'_> {
        FromGroup {
            process: &self.process,
            session: of.session.clone(),
            stringtag: &self.tag,
            info: self.hints.as_ref(),
            errhandler: self.handler.clone(),
            origin: call.origin(),
        }
    }
}

pub(crate) fn comm_create_from_group(
    call: CallId,
    of: MPI_Group,
    tag: StrIn,
    hints: MPI_Info,
    handler: MPI_Errhandler,
    out: Ptr<MPI_Comm>,
) -> Result<()> {
    let meeting = FromGroupArgs::new(tag, hints, handler)?;
    let of = group(of)?;
    out.set(publish_comm(Comm::create_from_group(
        meeting.args(of, call),
        of,
    )?)?)
}

pub(crate) fn intercomm_create_from_groups(
    call: CallId,
    local: MPI_Group,
    local_leader: c_int,
    remote: MPI_Group,
    remote_leader: c_int,
    tag: StrIn,
    hints: MPI_Info,
    handler: MPI_Errhandler,
    out: Ptr<MPI_Comm>,
) -> Result<()> {
    let meeting = FromGroupArgs::new(tag, hints, handler)?;
    let (local, remote) = (group(local)?, group(remote)?);
    let sides = IntercommGroups {
        local,
        local_leader,
        remote,
        remote_leader,
    };
    out.set(publish_comm(Comm::intercomm_from_groups(
        meeting.args(local, call),
        sides,
    )?)?)
}
