//! Communicators: a context, the group of processes in it, and what hangs on it (MPI 5.0 chapter
//! 7).
//!
//! A communicator owns four contexts: point-to-point, collectives, its own constructors,
//! `MPI_Comm_create_group`. A [`Comm`] is a counted reference: pending operations hold one, so a
//! context is not reused before the last operation on it is over. Any thread may use any
//! communicator at any time; constructors on one communicator are called in the same order by its
//! processes, as the standard wants.

mod constructors;
mod context_agreement;
pub(crate) mod context_ids;
pub mod faults;
mod intercomm;
pub(crate) mod other_worlds;
mod partial_group;
mod priority;
pub(crate) mod setup_messages;
pub(crate) mod shard;
mod split;
#[cfg(test)]
mod tests;

pub use constructors::FromGroup;
pub use intercomm::{IntercommGroups, MergeOrder, PeerLeader};
pub use other_worlds::SpawnCounts;
pub use shard::number;
pub use split::SplitType;

use crate::attr::{self, AttrTarget, Attrs};
use crate::coll::comm_segment::CommSegment;
use crate::errhandler::Errhandler;
use crate::error::{Class, Error, Result};
use crate::group::{Comparison, Group};
use crate::info::Info;
use crate::limits::{OBJECT_NAME_LEN_MAX, TAG_UB};
use crate::p2p::bsend_buffer::BsendBuffer;
use crate::partitioned::matching::Matching;
use crate::process::Process;
use crate::session::Session;
use crate::topo::Topology;
use garonne_coll::node_map::NodeMap;
use garonne_engine::api::{CallOrigin, ContextId, Peer};
use garonne_progress::environment::{
    CollectiveCounter, CollectiveCounts, CommunicatorInfo, GroupMembers,
};
use std::collections::HashSet;
// Values behind these locks are replaced whole.
use garonne_sync::mutex::lock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

/// A communicator: a context, the group of its processes, and what is attached to them.
///
/// A handle is a counted reference. The program holds one, and so does every pending operation and
/// request, so `MPI_Comm_free` takes effect when the last of them is gone. A constructor makes it
/// ([`constructors`], [`split`], [`intercomm`]); only then its context is set, and messages may be
/// sent.
#[derive(Clone)]
pub struct Comm(pub(crate) Arc<CommInner>);

// In cache lines of its own: it counts its collectives, and what the allocator puts beside it
// belongs to other threads.
#[repr(align(64))]
pub(crate) struct CommInner {
    /// The rank that owns this handle of the communicator.
    pub process: Arc<Process>,
    /// Context of point-to-point messages ([`Comm::context`]). Written once, before the
    /// constructor's request completes.
    context: AtomicU32,
    /// Shards over which its tags are spread; 0: they are not. Written with `context`.
    tag_shards: AtomicU32,
    /// This process's rank in `local`.
    pub rank: u32,
    /// The group that messages go to, if it is a formula: found without a look at which group that
    /// is.
    strided: StridedRanks,
    /// The group this process belongs to.
    pub local: Group,
    /// The other group of an intercommunicator.
    pub remote: Option<Group>,
    /// Intracommunicator of the local group of an intercommunicator.
    pub local_comm: OnceLock<Comm>,
    /// Numbers of collectives by series, from which their tags derive, and of constructors, which
    /// gives their messages their tag. Others may look at them ([`CollectiveCounter`]).
    pub collective_counts: CollectiveCounts,
    /// The numbers of those that are there.
    persistent: Mutex<HashSet<u32>>,
    /// The shared segment of its collectives.
    pub segment: CommSegment,
    /// Place of its processes, once somebody asked.
    placement: MemberPlacement,
    /// The edge's handle, 0 while it has none.
    handle: AtomicUsize,
    name: Mutex<String>,
    errhandler: RwLock<Errhandler>,
    /// The program set it.
    has_own_errhandler: AtomicBool,
    info: Mutex<Info>,
    /// Whether the communicator's messages have another priority than the usual one.
    has_priority: Mutex<bool>,
    /// Attributes cached on it.
    pub attrs: Attrs,
    /// Virtual topology, if it has one.
    pub topology: Option<Arc<Topology>>,
    /// Buffer of `MPI_Comm_attach_buffer`.
    pub buffers: BsendBuffer,
    /// The session it was made from, directly or through a parent.
    pub session: Option<Session>,
    /// Bridges to its processes of other worlds.
    bridges: Vec<Arc<other_worlds::BridgeLease>>,
    /// Matching of its partitioned operations, once there was one.
    partitioned: OnceLock<Arc<Matching>>,
    /// Keeps the context ours.
    lease: OnceLock<context_ids::ContextLease>,
}

/// Nodes of a communicator's processes, found out at the first question, and what is known of the
/// dead ones.
#[derive(Default)]
struct MemberPlacement {
    /// Whether all its processes share one node.
    on_node: OnceLock<bool>,
    /// Way in which its processes are spread over nodes.
    spread: OnceLock<Option<Arc<NodeMap>>>,
    /// Members that are dead.
    faults: faults::CommFaults,
}

impl CommInner {
    /// Number of its block of contexts, which tells it from others of this process.
    fn number(&self) -> u32 {
        number(self.context.load(Ordering::Relaxed))
    }

    /// Counts a constructor that begins to talk: the tag of its messages.
    fn next_construction(&self) -> i32 {
        let count = &self.collective_counts[CollectiveCounter::Constructions as usize];
        (count.fetch_add(1, Ordering::Relaxed) & i32::MAX as u32) as i32
    }

    pub fn persistent(&self) -> MutexGuard<'_, HashSet<u32>> {
        lock(&self.persistent)
    }

    /// Shows its name and members to those who watch from outside.
    fn show(&self, name: &str) {
        let members = match (&self.remote, &self.local) {
            _ if !self.bridges.is_empty() => GroupMembers::Untold,
            (Some(_), _) => GroupMembers::Untold,
            (
                None,
                &Group::Strided {
                    first,
                    stride,
                    size,
                },
            ) => GroupMembers::Strided {
                first,
                stride,
                size,
            },
            (None, Group::List(list)) => GroupMembers::List(list),
        };
        let known = CommunicatorInfo {
            name,
            members,
            counts: &self.collective_counts,
        };
        self.process
            .host
            .publish_communicator(self.number(), &known);
    }
}

impl Drop for CommInner {
    fn drop(&mut self) {
        if let Some(matching) = self.partitioned.get() {
            matching.close();
        }
        if self.lease.get().is_some() {
            self.close_agreements();
            self.forget_contexts();
            let gone = CommunicatorInfo {
                name: "",
                members: GroupMembers::Gone,
                counts: &self.collective_counts,
            };
            self.process.host.publish_communicator(self.number(), &gone);
        }
    }
}

/// `span` processes from `first` on, `stride` apart, by rank; none where there is no such formula.
struct StridedRanks {
    first: Peer,
    stride: u32,
    span: u32,
}

impl StridedRanks {
    fn of(group: &Group) -> Self {
        match *group {
            Group::Strided {
                first,
                stride,
                size,
            } => Self {
                first,
                stride,
                span: size,
            },
            Group::List(_) => Self {
                first: 0,
                stride: 0,
                span: 0,
            },
        }
    }
}

/// The context of a communicator that is not born yet: the first of no block, on which nobody
/// sends.
const NO_CONTEXT: ContextId = ContextId::MAX;

/// The parts of a new communicator beside its context.
pub(crate) struct CommParts {
    pub process: Arc<Process>,
    pub local: Group,
    pub remote: Option<Group>,
    pub errhandler: Errhandler,
    pub info: Info,
    pub session: Option<Session>,
    pub attrs: Attrs,
    pub topology: Option<Arc<Topology>>,
}

impl CommParts {
    /// An intracommunicator with nothing special.
    pub fn intra(process: Arc<Process>, local: Group) -> Self {
        Self {
            process,
            local,
            remote: None,
            errhandler: Errhandler::Fatal,
            info: Info::new(),
            session: None,
            attrs: Attrs::default(),
            topology: None,
        }
    }
}

/// Hints that have a meaning here; others are not kept, as the standard allows.
const HINTS: [&str; 8] = [
    shard::HINT,
    priority::HINT,
    "mpi_assert_no_any_tag",
    "mpi_assert_no_any_source",
    "mpi_assert_exact_length",
    "mpi_assert_allow_overtaking",
    "mpi_assert_strict_persistent_collective_ordering",
    "mpi_assert_memory_alloc_kinds",
];

impl Comm {
    pub(crate) fn build(lease: context_ids::ContextLease, parts: CommParts) -> Self {
        let comm = Self::unborn(parts);
        comm.bear(lease);
        comm
    }

    /// Gives an unborn communicator its context: from now on it can communicate.
    pub(crate) fn bear(&self, lease: context_ids::ContextLease) {
        // Relaxed: whoever communicates on it has seen its constructor complete, which orders this.
        // Further shards reach the own world only.
        let lease = match self.has_other_worlds() {
            true => lease.wanted(shard::ShardRequest::First),
            false => lease,
        };
        let (context, tag_shards) = shard::first_context(&lease, &self.0.process);
        self.0.context.store(context, Ordering::Relaxed);
        self.0.tag_shards.store(tag_shards, Ordering::Relaxed);
        assert!(
            self.0.lease.set(lease).is_ok(),
            "a communicator got a context twice"
        );
        self.0.watch_members();
        self.0.show(&self.name());
        self.prioritise();
    }

    /// A communicator that has everything but its context: what `MPI_Comm_idup` gives before it
    /// completes.
    pub(crate) fn unborn(parts: CommParts) -> Self {
        let rank = parts
            .local
            .rank_of(parts.process.host.me())
            .expect("a communicator is made by its members");
        let bridges = match &parts.remote {
            Some(remote) => parts.process.bridges_of(&[&parts.local, remote]),
            None => parts.process.bridges_of(&[&parts.local]),
        };
        Self(Arc::new(CommInner {
            context: AtomicU32::new(NO_CONTEXT),
            tag_shards: AtomicU32::new(0),
            rank,
            strided: StridedRanks::of(parts.remote.as_ref().unwrap_or(&parts.local)),
            local: parts.local,
            remote: parts.remote,
            local_comm: OnceLock::new(),
            collective_counts: CollectiveCounts::default(),
            persistent: Mutex::default(),
            segment: CommSegment::default(),
            placement: MemberPlacement::default(),
            handle: AtomicUsize::new(0),
            name: Mutex::default(),
            errhandler: RwLock::new(parts.errhandler),
            has_own_errhandler: AtomicBool::new(false),
            info: Mutex::new(parts.info),
            has_priority: Mutex::new(false),
            attrs: parts.attrs,
            topology: parts.topology,
            buffers: BsendBuffer::default(),
            session: parts.session,
            process: parts.process,
            bridges,
            partitioned: OnceLock::new(),
            lease: OnceLock::new(),
        }))
    }

    /// The calling process's rank in its own group.
    #[inline]
    pub fn rank(&self) -> u32 {
        self.0.rank
    }

    /// Context of its point-to-point messages, equal on both sides of an intercommunicator;
    /// collectives use the odd one after it.
    #[inline]
    pub(crate) fn context(&self) -> ContextId {
        self.0.context.load(Ordering::Relaxed)
    }

    /// Shards over which its tags are spread; 0: they are not.
    #[inline(always)]
    fn tag_shards(&self) -> u32 {
        self.0.tag_shards.load(Ordering::Relaxed)
    }

    /// The matching of its partitioned operations.
    pub(crate) fn matching(&self) -> &Arc<Matching> {
        self.0.partitioned.get_or_init(|| Matching::new(self))
    }

    /// Size of the local group.
    #[inline]
    pub fn size(&self) -> u32 {
        self.0.local.size()
    }

    /// Size of the group that messages go to: the remote one of an intercommunicator.
    pub fn peers(&self) -> u32 {
        self.targets().size()
    }

    /// The group that messages go to and come from.
    #[inline]
    pub(crate) fn targets(&self) -> &Group {
        self.0.remote.as_ref().unwrap_or(&self.0.local)
    }

    /// The process of a rank that messages go to, if there is such a rank.
    #[inline(always)]
    pub(crate) fn target_of(&self, rank: u32) -> Option<Peer> {
        let StridedRanks {
            first,
            stride,
            span,
        } = self.0.strided;
        if rank < span {
            return Some(first.wrapping_add(rank.wrapping_mul(stride)));
        }
        self.targets().peer(rank)
    }

    /// Returns whether all its processes, of both groups, share one node's memory: all of them know
    /// it alike.
    pub(crate) fn is_on_node(&self) -> bool {
        let (node, world) = (
            &self.0.process.config.node,
            self.0.process.host.world_size(),
        );
        if self.has_other_worlds() {
            return false;
        }
        node.size() == world
            || *self.0.placement.on_node.get_or_init(|| {
                let within = |group: &Group| {
                    group.size() <= node.size()
                        && group.members().all(|peer| node.rank_of(peer).is_some())
                };
                within(&self.0.local) && self.0.remote.as_ref().is_none_or(within)
            })
    }

    /// Returns how the processes of its group are spread over nodes, if that makes a difference to
    /// collectives: all of them know it alike.
    pub(crate) fn spread(&self) -> Option<&Arc<NodeMap>> {
        if self.is_on_node() || self.is_inter() || self.has_other_worlds() {
            return None;
        }
        let of = || {
            let (config, group) = (&self.0.process.config, &self.0.local);
            let node_of = |peer| (config.node_of)(peer);
            let of_rank = |rank| group.peer(rank).map_or(u32::MAX, node_of);
            let switches = config.switches.as_deref();
            NodeMap::with_switches(group.size(), of_rank, self.0.rank, switches).map(Arc::new)
        };
        self.0.placement.spread.get_or_init(of).as_ref()
    }

    /// Returns whether this is an intercommunicator.
    pub fn is_inter(&self) -> bool {
        self.0.remote.is_some()
    }

    /// The rank this communicator belongs to.
    #[inline]
    pub fn process(&self) -> &Arc<Process> {
        &self.0.process
    }

    /// The group of this process (`MPI_Comm_group`).
    pub fn group(&self) -> &Group {
        &self.0.local
    }

    /// The other group of an intercommunicator (`MPI_Comm_remote_group`, `MPI_Comm_remote_size`).
    pub fn remote_group(&self) -> Result<&Group> {
        self.0
            .remote
            .as_ref()
            .ok_or_else(|| self.error(Class::Comm, "is not an intercommunicator"))
    }

    /// Returns whether both are references to one communicator.
    pub fn is(&self, other: &Comm) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns whether others refer to it, beside the one who asks: operations that are open.
    pub fn is_referred_to(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// `MPI_Comm_compare`.
    pub fn compare(&self, other: &Comm) -> Comparison {
        if self.is(other) {
            return Comparison::Ident;
        }
        let local = self.0.local.compare(&other.0.local);
        let remote = match (&self.0.remote, &other.0.remote) {
            (None, None) => Comparison::Ident,
            (Some(a), Some(b)) => a.compare(b),
            _ => Comparison::Unequal,
        };
        match (local, remote) {
            (Comparison::Unequal, _) | (_, Comparison::Unequal) => Comparison::Unequal,
            (Comparison::Ident, Comparison::Ident) => Comparison::Congruent,
            _ => Comparison::Similar,
        }
    }

    /// The edge's handle of this communicator, 0 if it has none: what callbacks get to see.
    pub fn handle(&self) -> usize {
        self.0.handle.load(Ordering::Relaxed)
    }

    /// Tells the handle that the edge gave to this communicator, right after construction.
    pub fn set_handle(&self, handle: usize) {
        self.0.handle.store(handle, Ordering::Relaxed);
    }

    /// `MPI_Comm_get_name`.
    pub fn name(&self) -> String {
        lock(&self.0.name).clone()
    }

    /// `MPI_Comm_set_name`. Longer names are cut at a character's boundary to
    /// `MPI_MAX_OBJECT_NAME - 1` bytes.
    pub fn set_name(&self, name: &str) {
        let mut end = name.len().min(OBJECT_NAME_LEN_MAX);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        *lock(&self.0.name) = name[..end].to_string();
        if self.0.lease.get().is_some() {
            self.0.show(&name[..end]);
        }
    }

    /// Buffer of `MPI_Comm_attach_buffer`.
    pub fn buffers(&self) -> &BsendBuffer {
        &self.0.buffers
    }

    /// The name for messages to people: the given one, or one that tells the context.
    pub fn label(&self) -> String {
        let name = self.name();
        if name.is_empty() {
            format!("comm #{}", self.0.number())
        } else {
            format!("comm \"{name}\"")
        }
    }

    /// `MPI_Comm_get_errhandler`.
    pub fn errhandler(&self) -> Errhandler {
        self.0
            .errhandler
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// `MPI_Comm_set_errhandler`.
    pub fn set_errhandler(&self, handler: Errhandler) -> Result<()> {
        if !handler.fits(crate::errhandler::ErrhandlerKind::Comm) {
            return Err(self.error(
                Class::Arg,
                "got an error handler that was not made for communicators",
            ));
        }
        *self
            .0
            .errhandler
            .write()
            .unwrap_or_else(PoisonError::into_inner) = handler;
        self.0.has_own_errhandler.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the communicator stand for the object of another kind that owns it: errors of its
    /// requests go to that object's error handler.
    pub(crate) fn stand_for(&self, handler: Errhandler) {
        let own = self.0.errhandler.write();
        *own.unwrap_or_else(PoisonError::into_inner) = handler;
    }

    /// Returns whether the program set its error handler.
    pub fn has_own_errhandler(&self) -> bool {
        self.0.has_own_errhandler.load(Ordering::Relaxed)
    }

    /// `MPI_Comm_get_info`: a new object with the hints in use and the kinds of memory that buffers
    /// may be of.
    pub fn info(&self) -> Info {
        lock(&self.0.info).with_memory_kinds()
    }

    /// `MPI_Comm_set_info`: takes over the hints that are known here.
    pub fn set_info(&self, info: &Info) {
        let own = lock(&self.0.info);
        for (key, value) in known_hints(info) {
            // Lengths were checked when the pair was set on `info`.
            let _ = own.set(&key, &value);
        }
        drop(own);
        self.prioritise();
    }

    /// `MPI_Comm_set_attr`.
    pub fn set_attr(&self, keyval: i32, value: usize) -> Result<()> {
        self.0
            .attrs
            .set(&self.0.process.keyvals, self.target(keyval), value)
    }

    /// `MPI_Comm_get_attr` for keys that are not predefined (see [`Process::predefined_attr`]
    /// for those).
    pub fn get_attr(&self, keyval: i32) -> Result<Option<usize>> {
        self.0
            .attrs
            .get(&self.0.process.keyvals, attr::AttrKind::Comm, keyval)
    }

    /// `MPI_Comm_delete_attr`.
    pub fn delete_attr(&self, keyval: i32) -> Result<()> {
        self.0
            .attrs
            .delete(&self.0.process.keyvals, self.target(keyval))
    }

    fn target(&self, keyval: i32) -> AttrTarget {
        AttrTarget {
            kind: attr::AttrKind::Comm,
            owner: self.handle(),
            keyval,
        }
    }

    /// `MPI_Comm_free`, first half: deletes the attributes. The edge then forgets its handle and
    /// drops its reference; the context lives until pending operations are over.
    pub fn free(&self) -> Result<()> {
        self.0.attrs.delete_all(self.handle())?;
        self.0.buffers.flush(&self.0.process);
        Ok(())
    }

    pub(crate) fn error(&self, class: Class, what: impl std::fmt::Display) -> Error {
        Error::new(class, format!("{} {what}", self.label()))
    }

    /// The process that `rank` names as a destination; `None` for `MPI_PROC_NULL`.
    #[inline]
    pub(crate) fn peer(&self, rank: i32) -> Result<Option<Peer>> {
        match self.target_of(rank as u32) {
            Some(peer) => Ok(Some(peer)),
            None if rank == crate::PROC_NULL => self.no_peer(),
            None => Err(self.bad_rank(rank)),
        }
    }

    /// Refuses also messages to nobody on a revoked communicator.
    #[cold]
    fn no_peer(&self) -> Result<Option<Peer>> {
        self.check_not_revoked().map(|()| None)
    }

    /// Refuses what needs no message, and so is not refused by the engine.
    #[cold]
    pub(crate) fn check_not_revoked(&self) -> Result<()> {
        match self.is_revoked() {
            true => Err(self.error(Class::Revoked, "has been revoked by a member")),
            false => Ok(()),
        }
    }

    #[cold]
    fn bad_rank(&self, rank: i32) -> Error {
        let group = if self.is_inter() {
            "the remote group of this intercommunicator"
        } else {
            "it"
        };
        self.error(
            Class::Rank,
            format!("has no rank {rank}: {group} has {} processes", self.peers()),
        )
    }

    #[inline]
    pub(crate) fn check_tag(&self, tag: i32) -> Result<()> {
        if tag < 0 {
            Err(self.bad_tag(tag))
        } else {
            Ok(())
        }
    }

    #[cold]
    fn bad_tag(&self, tag: i32) -> Error {
        self.error(
            Class::Tag,
            format!("cannot carry tag {tag}: a tag is 0 to {TAG_UB}"),
        )
    }
}

/// A new object with the pairs of `info` that are known hints.
pub(crate) fn hints(info: &Info) -> Info {
    Info::from_pairs(known_hints(info))
}

fn known_hints(info: &Info) -> impl Iterator<Item = (String, String)> {
    info.to_pairs().into_iter().filter(|(key, value)| {
        HINTS.contains(&key.as_str()) && (key != priority::HINT || priority::is_known(value))
    })
}

/// The channels on which constructors talk.
impl Comm {
    /// A channel within the local group for one constructor; every call takes the next tag.
    pub(crate) fn constructor_channel(&self, origin: CallOrigin) -> setup_messages::SetupChannel {
        let tag = self.0.next_construction();
        setup_messages::SetupChannel {
            process: self.0.process.clone(),
            context: self.context() + 2,
            tag,
            rank: self.0.rank,
            group: self.0.local.clone(),
            origin,
        }
    }

    /// Returns when all processes of the local group have called it.
    #[cfg(test)]
    pub(crate) fn meet(&self) -> Result<()> {
        let channel = self.constructor_channel(CallOrigin::default());
        setup_messages::SetupTask::run(&self.0.process, async move {
            channel.min_max(0).await.map(drop)
        })
    }
}
