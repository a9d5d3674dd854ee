//! Constructors of intracommunicators, and those that also work on intercommunicators (MPI 5.0
//! section 7.4.2).

use super::context_agreement::{Participants, agree_on};
use super::context_ids::{self, PARTIAL};
use super::setup_messages::{SetupChannel, SetupTask};
use super::shard::ShardRequest;
use super::{Comm, CommParts, lock, partial_group};
use crate::attr::Attrs;
use crate::coll::constructor_entry::ConstructorEntry;
use crate::errhandler::Errhandler;
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::info::Info;
use crate::limits::STRINGTAG_LEN_MAX;
use crate::process::Process;
use crate::request::Request;
use crate::session::Session;
use garonne_coll::call_tag::CollectiveKind;
use garonne_engine::api::{CallOrigin, Peer};
use std::future::Future;
use std::sync::Arc;

/// Way in which processes that share no communicator make one.
pub struct FromGroup<'a> {
    /// The process that calls.
    pub process: &'a Arc<Process>,
    /// The session that the group came from.
    pub session: Option<Session>,
    /// Tells concurrent constructions apart.
    pub stringtag: &'a str,
    /// Hints.
    pub info: Option<&'a Info>,
    /// Error handler of the new communicator.
    pub errhandler: Errhandler,
    /// The program's call.
    pub origin: CallOrigin,
}

impl Comm {
    /// Returns what a new communicator inherits from its parent: error handler and session, but
    /// neither hints nor name.
    pub(crate) fn heir(&self, local: Group) -> CommParts {
        CommParts {
            errhandler: self.errhandler(),
            session: self.0.session.clone(),
            ..CommParts::intra(self.0.process.clone(), local)
        }
    }

    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        SetupTask::run(&self.0.process, work)
    }

    /// `MPI_Comm_dup` (without `info`) and `MPI_Comm_dup_with_info`: with attributes as their
    /// callbacks say and topology.
    pub fn dup(&self, info: Option<&Info>, origin: CallOrigin) -> Result<Comm> {
        let dup = self.unborn_dup(info)?;
        let entered = self.enter(CollectiveKind::CommDup, origin)?;
        self.run(self.dup_work(&dup, entered.origin()))?;
        Ok(dup)
    }

    /// `MPI_Comm_idup`, `MPI_Comm_idup_with_info`. Attributes are copied now, on this thread. The
    /// new communicator may be used for what is local at once, for communication when the request
    /// is complete.
    pub fn idup(&self, info: Option<&Info>, origin: CallOrigin) -> Result<(Comm, Request)> {
        let dup = self.unborn_dup(info)?;
        let meeting = self.started_constructor(origin);
        let task = SetupTask::start(self, meeting, self.dup_work(&dup, origin));
        Ok((dup, Request::new(&self.0.process, task)))
    }

    fn unborn_dup(&self, info: Option<&Info>) -> Result<Comm> {
        let attrs = Attrs::default();
        self.0.attrs.copy_to(self.handle(), &attrs)?;
        Ok(Comm::unborn(CommParts {
            remote: self.0.remote.clone(),
            info: info.map(super::hints).unwrap_or_default(),
            attrs,
            topology: self.0.topology.clone(),
            ..self.heir(self.0.local.clone())
        }))
    }

    fn dup_work(
        &self,
        dup: &Comm,
        origin: CallOrigin,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        let (dup, circle) = (dup.clone(), self.circle(origin));
        let want = match dup.is_inter() {
            true => ShardRequest::First,
            false => ShardRequest::of(Some(&lock(&dup.0.info))),
        };
        async move {
            let lease = agree_on(&circle, want).await?;
            if dup.is_inter() {
                dup.bear_local(&circle).await?;
            }
            dup.bear(lease);
            Ok(())
        }
    }

    /// `MPI_Comm_create`: a communicator of `group`, a subset of this one's local group; `None` for
    /// processes outside it. Disjoint groups may be given by different processes. On an
    /// intercommunicator each side gives its part.
    pub fn create(&self, group: &Group, origin: CallOrigin) -> Result<Option<Comm>> {
        self.check_subset(group)?;
        let entered = self.enter(CollectiveKind::CommCreate, origin)?;
        if self.is_inter() {
            return self.create_inter(group.clone(), &entered);
        }
        self.create_dressed(group, &entered, |_| ())
    }

    /// A communicator of `group`; `dress` adds what is special before it is built.
    pub(crate) fn create_dressed(
        &self,
        group: &Group,
        entered: &ConstructorEntry,
        dress: impl FnOnce(&mut CommParts) + Send + 'static,
    ) -> Result<Option<Comm>> {
        let (comm, circle, group) = (self.clone(), self.circle(entered.origin()), group.clone());
        self.run(async move {
            let lease = agree_on(&circle, ShardRequest::Own).await?;
            if group.rank_of(comm.0.process.host.me()).is_none() {
                return Ok(None);
            }
            let mut parts = comm.heir(group);
            dress(&mut parts);
            Ok(Some(Comm::build(lease, parts)))
        })
    }

    /// `MPI_Comm_create_group`: called by the members of `group` only; `tag` tells concurrent calls
    /// apart.
    pub fn create_group(
        &self,
        group: &Group,
        tag: i32,
        origin: CallOrigin,
    ) -> Result<Option<Comm>> {
        self.check_tag(tag)?;
        self.check_subset(group)?;
        if self.is_inter() {
            return Err(self.error(
                Class::Comm,
                "is an intercommunicator, which MPI_Comm_create_group does not take",
            ));
        }
        let Some(rank) = group.rank_of(self.0.process.host.me()) else {
            return Ok(None);
        };
        let process = self.0.process.clone();
        let ranks = group
            .members()
            .filter_map(|peer| self.0.local.rank_of(peer));
        let tag = partial_group::group_tag(&process, tag, ranks);
        let local = SetupChannel {
            process,
            context: self.context() + PARTIAL,
            tag,
            rank,
            group: group.clone(),
            origin,
        };
        let (comm, of) = (self.clone(), group.clone());
        let work = async move {
            let circle = Participants {
                local,
                bridge: None,
            };
            let lease = agree_on(&circle, ShardRequest::Own).await?;
            Ok(Some(Comm::build(lease, comm.heir(of))))
        };
        partial_group::run(&self.0.process, group, work)
    }

    fn check_subset(&self, group: &Group) -> Result<()> {
        let strangers = group.difference(&self.0.local).size();
        if strangers > 0 {
            let text = format!("was given a group with {strangers} processes that are not in it");
            return Err(self.error(Class::Group, text));
        }
        Ok(())
    }

    /// `MPI_Comm_create_from_group`: `None` if the caller is not a member.
    pub fn create_from_group(args: FromGroup<'_>, group: &Group) -> Result<Option<Comm>> {
        let Some(rank) = group.rank_of(args.process.host.me()) else {
            return Ok(None);
        };
        let tag = hash_tag(args.process, args.stringtag, &[group])?;
        let context = context_ids::base(context_ids::BOOTSTRAP);
        let process = args.process.clone();
        let local = SetupChannel {
            process: process.clone(),
            context,
            tag,
            rank,
            group: group.clone(),
            origin: args.origin,
        };
        let want = ShardRequest::of(args.info);
        let lease = partial_group::run(args.process, group, async move {
            agree_on(
                &Participants {
                    local,
                    bridge: None,
                },
                want,
            )
            .await
        })?;
        Ok(Some(Comm::build(
            lease,
            CommParts {
                errhandler: args.errhandler,
                info: args.info.map(super::hints).unwrap_or_default(),
                session: args.session,
                ..CommParts::intra(process, group.clone())
            },
        )))
    }

    /// `MPI_Comm_disconnect`: completes what is buffered and meets the other processes, so that all
    /// their messages have left, then does what [`Comm::free`] does.
    pub fn disconnect(&self, origin: CallOrigin) -> Result<()> {
        self.0.buffers.flush(&self.0.process);
        let entered = self.enter(CollectiveKind::CommDisconnect, origin)?;
        let circle = self.circle(entered.origin());
        self.run(async move { circle.min_max(0).await.map(drop) })?;
        drop(entered);
        self.free()
    }

    /// All processes of this communicator, ready for one constructor.
    pub(crate) fn circle(&self, origin: CallOrigin) -> Participants {
        match self.0.local_comm.get() {
            Some(local) => self.inter_circle(local, origin),
            None => Participants {
                local: self.constructor_channel(origin),
                bridge: None,
            },
        }
    }
}

/// A tag for messages of the constructors named `stringtag`. Constructions whose names collide are
/// told apart by their order between two processes, which is the same on both sides.
pub(super) fn hash_tag(process: &Process, stringtag: &str, groups: &[&Group]) -> Result<i32> {
    if stringtag.len() > STRINGTAG_LEN_MAX {
        let text = format!(
            "the string tag has {} bytes, more than {STRINGTAG_LEN_MAX}",
            stringtag.len()
        );
        return Err(Error::new(Class::Arg, text));
    }
    let tag = partial_group::tag_of(partial_group::hash(stringtag.bytes()));
    let mut members: Vec<Peer> = groups.iter().flat_map(|group| group.members()).collect();
    members.sort_unstable();
    let world = process.host.world_size();
    if members.last().is_some_and(|last| *last >= world) {
        // Processes of other worlds have other numbers there.
        return Ok(tag);
    }
    Ok(partial_group::group_tag(process, tag, members.into_iter()))
}
