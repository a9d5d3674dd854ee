//! The objects behind handles: one table per kind, the predefined objects, and lookups that say
//! what is wrong.
//!
//! A lookup returns a reference that lives until the program frees the handle. The standard forbids
//! freeing a handle while a call uses it. Pending operations, which outlive the call, take a clone.

use crate::abi::{MPICH_THROWS, OPENMPI_THROWS};
use crate::call::{CallError, Result};
use crate::comm_contexts;
use crate::constants::*;
use crate::foreign_handles;
use crate::handle::*;
use crate::init_state::{self, Phase};
use crate::rank_context::RankContext;
use garonne_mpi::comm::Comm;
use garonne_mpi::datatype::Datatype;
use garonne_mpi::errhandler::Errhandler;
use garonne_mpi::error::Class;
use garonne_mpi::group::Group;
use garonne_mpi::info::Info;
use garonne_mpi::session::Session;
use std::ops::Deref;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The tables of a rank's objects whose handles are used by several modules, and its predefined
/// communicators.
pub(crate) struct ObjectTables {
    comms: HandleTable<Comm>,
    groups: HandleTable<GroupEntry>,
    types: HandleTable<Datatype>,
    infos: HandleTable<Info>,
    errhandlers: HandleTable<Errhandler>,
    /// `MPI_COMM_WORLD` and `MPI_COMM_SELF` between init and finalize.
    world: AtomicPtr<Comm>,
    self_: AtomicPtr<Comm>,
}

impl ObjectTables {
    /// Empty tables, see [`HandleTable::new`].
    pub const fn new(first_generation: u32) -> Self {
        Self {
            comms: HandleTable::new(first_generation),
            groups: HandleTable::new(first_generation),
            types: HandleTable::new(first_generation),
            infos: HandleTable::new(first_generation),
            errhandlers: HandleTable::new(first_generation),
            world: AtomicPtr::new(std::ptr::null_mut()),
            self_: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Communicators.
    #[inline(always)]
    pub fn comms(&self) -> &HandleTable<Comm> {
        &self.comms
    }

    /// Datatypes that are not predefined.
    #[inline(always)]
    pub fn types(&self) -> &HandleTable<Datatype> {
        &self.types
    }
}

#[inline(always)]
fn tables() -> &'static ObjectTables {
    &RankContext::current().objects
}

/// Communicators of the current rank.
#[inline(always)]
pub(crate) fn comms() -> &'static HandleTable<Comm> {
    tables().comms()
}

/// Groups of the current rank.
pub(crate) fn groups() -> &'static HandleTable<GroupEntry> {
    &tables().groups
}

/// Datatypes of the current rank that are not predefined.
#[inline(always)]
pub(crate) fn types() -> &'static HandleTable<Datatype> {
    tables().types()
}

/// Info objects of the current rank.
pub(crate) fn infos() -> &'static HandleTable<Info> {
    &tables().infos
}

/// Error handlers that the program of the current rank made.
pub(crate) fn errhandlers() -> &'static HandleTable<Errhandler> {
    &tables().errhandlers
}

/// A group and the session that it comes from.
pub(crate) struct GroupEntry {
    group: Group,
    pub session: Option<Session>,
}

impl GroupEntry {
    /// A group that came from `session`, directly or through other groups.
    pub fn new(group: Group, session: Option<Session>) -> Self {
        Self { group, session }
    }
}

impl Deref for GroupEntry {
    type Target = Group;

    fn deref(&self) -> &Group {
        &self.group
    }
}

/// Publishes the world's communicators, or withdraws them for `None`.
pub(crate) fn set_world(world: Option<(Comm, Comm)>) {
    crate::fast_path::forget(None);
    let (world, self_) = match world {
        Some((world, self_)) => {
            world.set_handle(MPI_COMM_WORLD.0);
            self_.set_handle(MPI_COMM_SELF.0);
            (
                Box::into_raw(Box::new(world)),
                Box::into_raw(Box::new(self_)),
            )
        }
        None => (std::ptr::null_mut(), std::ptr::null_mut()),
    };
    let tables = tables();
    for (place, new) in [(&tables.world, world), (&tables.self_, self_)] {
        // SYNC(world): publishes the communicator; also takes the old one over.
        let old = place.swap(new, Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: came from `Box::into_raw` above and nobody finds it any more; calls that
            // still use it while the program finalizes are excluded by the standard.
            drop(unsafe { Box::from_raw(old) });
        }
    }
}

#[inline(always)]
fn predefined_comm(handle: MPI_Comm) -> Option<&'static Comm> {
    let place = match handle {
        MPI_COMM_WORLD => &tables().world,
        MPI_COMM_SELF => &tables().self_,
        _ => return None,
    };
    // SYNC(world): pairs with the publication in `set_world`.
    // SAFETY: null or a boxed communicator that lives until finalize.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

/// The communicator of a handle.
#[inline]
pub(crate) fn comm(handle: MPI_Comm) -> Result<&'static Comm> {
    let found = if handle.0 < FIRST_DYNAMIC {
        predefined_comm(handle)
    } else {
        comms().get(handle)
    };
    found.ok_or_else(|| unknown_handle(Class::Comm, "communicator", handle.0, MPI_COMM_NULL.0))
}

/// Returns the communicator of a handle, or `None`.
#[inline]
pub(crate) fn find_comm(handle: MPI_Comm) -> Option<&'static Comm> {
    if handle == MPI_COMM_WORLD {
        // Asked first: most calls are about it.
        return predefined_comm(MPI_COMM_WORLD);
    }
    if handle.0 < FIRST_DYNAMIC {
        predefined_comm(handle)
    } else {
        comms().get(handle)
    }
}

/// Frees a communicator's handle.
pub(crate) fn retire_comm(handle: MPI_Comm) {
    crate::fast_path::forget(Some(handle));
    if let Some(comm) = comms().withdraw(handle) {
        comm_contexts::retire(handle, comm);
    }
}

/// The datatype of a handle.
#[inline]
pub(crate) fn datatype(handle: MPI_Datatype) -> Result<&'static Datatype> {
    let found = if handle.0 < FIRST_DYNAMIC {
        Datatype::predefined_ref(handle.0 as u16)
    } else {
        types().get(handle)
    };
    found.ok_or_else(|| unknown_handle(Class::Type, "datatype", handle.0, MPI_DATATYPE_NULL.0))
}

/// The datatype of a handle, for communication: it must be committed.
#[inline]
pub(crate) fn committed(handle: MPI_Datatype) -> Result<&'static Datatype> {
    let found = datatype(handle)?;
    if found.is_committed() {
        Ok(found)
    } else {
        Err(uncommitted(found))
    }
}

#[cold]
fn uncommitted(datatype: &Datatype) -> CallError {
    CallError::new(
        Class::Type,
        format!("{datatype} is not committed; call MPI_Type_commit before communicating with it"),
    )
}

/// The group of a handle.
pub(crate) fn group(handle: MPI_Group) -> Result<&'static GroupEntry> {
    static EMPTY: LazyLock<GroupEntry> =
        LazyLock::new(|| GroupEntry::new(Group::compact(Vec::new()), None));
    let found = if handle == MPI_GROUP_EMPTY {
        Some(&*EMPTY)
    } else {
        groups().get(handle)
    };
    found.ok_or_else(|| unknown_handle(Class::Group, "group", handle.0, MPI_GROUP_NULL.0))
}

/// The info object of a handle.
pub(crate) fn info(handle: MPI_Info) -> Result<&'static Info> {
    let found = if handle == MPI_INFO_ENV {
        Some(init_state::info_env())
    } else {
        infos().get(handle)
    };
    found.ok_or_else(|| unknown_handle(Class::Info, "info object", handle.0, MPI_INFO_NULL.0))
}

/// The info object of a handle that may be `MPI_INFO_NULL`.
pub(crate) fn info_or_null(handle: MPI_Info) -> Result<Info> {
    if handle == MPI_INFO_NULL {
        Ok(Info::new())
    } else {
        info(handle).cloned()
    }
}

/// The error handler of a handle.
pub(crate) fn errhandler(handle: MPI_Errhandler) -> Result<Errhandler> {
    match handle {
        MPI_ERRORS_ARE_FATAL => Ok(Errhandler::Fatal),
        MPI_ERRORS_ABORT => Ok(Errhandler::Abort),
        MPI_ERRORS_RETURN => Ok(Errhandler::Return),
        MPI_Errhandler(MPICH_THROWS | OPENMPI_THROWS) => Ok(Errhandler::Cxx(handle.0)),
        _ => errhandlers().get(handle).cloned().ok_or_else(|| {
            unknown_handle(
                Class::Errhandler,
                "error handler",
                handle.0,
                MPI_ERRHANDLER_NULL.0,
            )
        }),
    }
}

/// A new handle for an object of `table`.
pub(crate) fn publish<T, H: Handle>(table: &HandleTable<T>, object: T) -> Result<H> {
    table.insert(object).ok_or_else(table_full)
}

#[cold]
fn table_full() -> CallError {
    CallError::new(
        Class::Other,
        format!("{OBJECTS_MAX} objects of this kind exist already; some are never freed"),
    )
}

/// A new communicator's handle, `MPI_COMM_NULL` for none.
pub(crate) fn publish_comm(comm: Option<Comm>) -> Result<MPI_Comm> {
    let Some(comm) = comm else {
        return Ok(MPI_COMM_NULL);
    };
    crate::gpu_buffers::recheck();
    let handle = publish(comms(), comm.clone())?;
    comm.set_handle(Handle::word(handle));
    comm_contexts::add(handle, &comm);
    Ok(handle)
}

/// Returns a handle whose communicator is not there yet. Until then it names the one that it is
/// made from.
pub(crate) fn reserve_comm(parent: &Comm) -> Result<MPI_Comm> {
    publish(comms(), parent.clone())
}

/// Puts the communicator behind a handle of [`reserve_comm`].
pub(crate) fn fill_comm(handle: MPI_Comm, comm: Comm) {
    if comms().withdraw(handle).is_none() {
        // The program has freed it.
        return;
    }
    comm.set_handle(Handle::word(handle));
    comm_contexts::add(handle, &comm);
    comms().fill(handle, comm);
}

/// The handle of a datatype as the program shall see it: the code of a predefined one, else a new
/// handle.
pub(crate) fn publish_type(datatype: Datatype) -> Result<MPI_Datatype> {
    match datatype.code() {
        Some(code) => Ok(MPI_Datatype(code.into())),
        None => publish(types(), datatype),
    }
}

/// Returns the reason why a predefined object does not exist now although it exists at other times.
fn missing_reason(kind: &str, word: usize) -> Option<String> {
    let why = init_state::not_running_reason().filter(|_| word < FIRST_DYNAMIC)?;
    if init_state::find_process().is_none() {
        return Some(why.into());
    }
    // Sessions alone: all is there that does not belong to the world model.
    let name = match MPI_Comm(word) {
        MPI_COMM_WORLD if kind == "communicator" => "MPI_COMM_WORLD",
        MPI_COMM_SELF if kind == "communicator" => "MPI_COMM_SELF",
        _ => return None,
    };
    let (world, advice) = match init_state::phase() {
        Phase::Finalized => ("MPI_Finalize has ended it", "make"),
        _ => (
            "no MPI_Init was called, only MPI_Session_init",
            "call MPI_Init or MPI_Init_thread, or make",
        ),
    };
    let set = if name == "MPI_COMM_SELF" {
        "mpi://SELF"
    } else {
        "mpi://WORLD"
    };
    Some(format!(
        "error[G0108]: {name} exists in the world model only: {world}\n  \
         help: {advice} a communicator by MPI_Comm_create_from_group, of the group that MPI_Group_from_session_pset gives for \"{set}\""
    ))
}

/// Returns the error for a handle that names no object.
#[cold]
pub(crate) fn unknown_handle(class: Class, kind: &str, word: usize, null: usize) -> CallError {
    let what = if word == null {
        format!("the {kind} is null")
    } else if let Some(why) = missing_reason(kind, word) {
        why
    } else if let Some(origin) = foreign_handles::origin(word) {
        let handle = foreign_handles::as_passed(word);
        format!("{handle:#x} is no {kind}: it is {origin}, which this call does not take")
    } else if foreign_handles::as_passed(word) < FIRST_DYNAMIC {
        let word = foreign_handles::as_passed(word);
        let hint = foreign_handles::hint();
        let fortran = foreign_handles::fortran_hint(word);
        format!(
            "{word:#x} is no {kind}: a handle of another kind, or not initialised{fortran}{hint}"
        )
    } else {
        let word = foreign_handles::as_passed(word);
        let other = match RankContext::current().is_only() {
            true => "",
            false => ", or belongs to another rank of this process",
        };
        let hint = foreign_handles::hint();
        format!(
            "{word:#x} is no {kind}: it was freed already, or is a handle of another kind{other}{hint}"
        )
    };
    CallError::new(class, what)
}
