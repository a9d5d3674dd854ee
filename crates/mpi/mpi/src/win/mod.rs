//! Windows of one-sided communication (MPI 5.0, chapter 12).
//!
//! Origins do everything: they read, write and combine the memory of targets of their host by
//! themselves, and open and close epochs by atomics in the targets' control blocks
//! ([`garonne_sync::window_control`]). A target that computes delays nobody.
//!
//! - `setup`: how members make the memory that they share.
//! - `epochs`: fence, post and start, locks; `open_to_all`: what of them needs no lock to know.
//! - `access`: put, get and accumulates; `target`: where the memory of a target is.
//! - `attached`: memory of dynamic windows.
//! - `other_hosts`: accesses to other hosts, by the engine's one-sided calls.
//! - `served`: accesses of other hosts while the program computes.
//! - `hints`: infos.
//!
//! An access is over when its call returns. So a flush is a fence of memory.

mod access;
mod attached;
mod epochs;
mod hints;
mod open_to_all;
mod other_hosts;
mod served;
mod setup;
mod target;

pub use access::{AccumulateArgs, Part, TargetPart};
pub use epochs::{Assert, LockKind};
pub use setup::WindowRequest;

use crate::attr::{AttrKind, AttrTarget, Attrs};
use crate::coll::Barrier;
use crate::comm::Comm;
use crate::errhandler::{Errhandler, ErrhandlerKind};
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::info::Info;
use attached::Attachments;
use epochs::Epochs;
use garonne_engine::api::CallOrigin;
use garonne_engine::one_sided::RegionKey;
use garonne_sync::doorbell::Doorbell;
use garonne_sync::mutex::lock;
use garonne_sync::shm::Segment;
use garonne_sync::window_control::WindowControl;
use open_to_all::OpenToAll;
use served::ServedWindow;
use std::sync::atomic::{AtomicI32, AtomicIsize, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use target::Member;

/// Kinds of windows, with their numbers in the standard ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Flavor {
    /// `MPI_WIN_FLAVOR_CREATE`: memory of the program.
    Create = 311,
    /// `MPI_WIN_FLAVOR_ALLOCATE`: memory that the library allocated.
    Allocate = 312,
    /// `MPI_WIN_FLAVOR_DYNAMIC`: memory that is attached later.
    Dynamic = 313,
    /// `MPI_WIN_FLAVOR_SHARED`: memory that all members load and store.
    Shared = 314,
}

/// `MPI_WIN_UNIFIED`.
const UNIFIED: i32 = 321;

/// Keys of the predefined attributes of windows, with their numbers in the standard ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "the standard documents the names")]
pub enum WindowKey {
    Base = 601,
    DispUnit = 602,
    Size = 603,
    CreateFlavor = 604,
    Model = 605,
}

impl WindowKey {
    /// The key of a number.
    pub fn from_number(keyval: i32) -> Option<Self> {
        use WindowKey::*;
        [Base, DispUnit, Size, CreateFlavor, Model]
            .into_iter()
            .find(|key| *key as i32 == keyval)
    }
}

/// A window: memory of the members of a group that the others access.
///
/// Made collectively by [`Window::new`] and ended collectively by [`Window::free`]. Accesses stand
/// in epochs, which [`Window::fence`], [`Window::start`], [`Window::lock`] and their counterparts
/// open and close. Cheap to clone.
#[derive(Clone)]
pub struct Window(Arc<WindowInner>);

/// State of a window at one member.
struct WindowInner {
    /// Communicator of the window alone.
    comm: Comm,
    flavor: Flavor,
    /// Parts of allocated memory follow each other without gaps.
    contiguous: bool,
    /// All members are on this host.
    one_host: bool,
    /// Accesses of a window on several hosts to members on this one.
    near_accesses: AtomicU32,
    /// Regions of this member that members on other hosts access.
    regions: Vec<RegionKey>,
    /// Has the progress thread serve members on other hosts; `None`: there are none.
    _served: Option<ServedWindow>,
    /// Members by rank, and what this one knows of their memory.
    members: Vec<Member>,
    epochs: Mutex<Epochs>,
    open_to_all: OpenToAll,
    attachments: Mutex<Attachments>,
    own_control: WindowControl,
    /// Control block of the first member on this host.
    first_control: Option<WindowControl>,
    attrs: Attrs,
    name: Mutex<String>,
    errhandler: Mutex<Errhandler>,
    info: Info,
    values: PredefinedValues,
    /// Doorbells of the members, by rank.
    doorbells: Vec<Option<Segment>>,
    /// The edge's handle, for callbacks.
    handle: AtomicUsize,
}

/// Values of the predefined attributes, which programs get as addresses.
struct PredefinedValues {
    base: usize,
    size: AtomicIsize,
    disp_unit: AtomicI32,
    flavor: AtomicI32,
    model: AtomicI32,
}

impl Window {
    /// Makes a window. Collective over the communicator of the request.
    ///
    /// # Errors
    /// Arguments that are wrong, and memory that cannot be had: at all members alike.
    pub fn new(comm: &Comm, request: WindowRequest, origin: CallOrigin) -> Result<Self> {
        setup::create(comm, request, origin)
    }

    /// `MPI_Win_free`: deletes the attributes, and waits for all members. The edge then forgets its
    /// handle.
    ///
    /// # Errors
    /// `RmaSync` while an epoch is open; errors of callbacks.
    pub fn free(&self, origin: CallOrigin) -> Result<()> {
        self.check_closed("MPI_Win_free")?;
        self.0.attrs.delete_all(self.handle())?;
        self.0.comm.collective(&Barrier, origin)?;
        self.close_regions()
    }

    /// This process's rank in the window's group.
    pub fn rank(&self) -> u32 {
        self.0.comm.rank()
    }

    /// Number of members.
    pub fn size(&self) -> u32 {
        self.0.comm.size()
    }

    /// `MPI_Win_get_group`.
    pub fn group(&self) -> &Group {
        self.0.comm.group()
    }

    /// The window's own communicator.
    pub fn comm(&self) -> &Comm {
        &self.0.comm
    }

    /// The kind of window.
    pub fn flavor(&self) -> Flavor {
        self.0.flavor
    }

    /// Address of this member's memory.
    pub fn base(&self) -> usize {
        self.0.values.base
    }

    /// The edge's handle.
    pub fn handle(&self) -> usize {
        self.0.handle.load(Ordering::Relaxed)
    }

    /// Tells the handle by which the program knows the window.
    pub fn set_handle(&self, handle: usize) {
        self.0.handle.store(handle, Ordering::Relaxed);
    }

    /// `MPI_Win_get_name`.
    pub fn name(&self) -> String {
        lock(&self.0.name).clone()
    }

    /// `MPI_Win_set_name`.
    pub fn set_name(&self, name: &str) {
        *lock(&self.0.name) = name.into();
    }

    /// `MPI_Win_get_errhandler`.
    pub fn errhandler(&self) -> Errhandler {
        lock(&self.0.errhandler).clone()
    }

    /// `MPI_Win_set_errhandler`.
    ///
    /// # Errors
    /// `Arg` for a handler that was made for other objects.
    pub fn set_errhandler(&self, handler: Errhandler) -> Result<()> {
        if !handler.fits(ErrhandlerKind::Window) {
            let text = "got an error handler that was not made for windows";
            return Err(self.error(Class::Arg, text));
        }
        *lock(&self.0.errhandler) = handler;
        Ok(())
    }

    /// `MPI_Win_get_info`: a new object with the hints in force.
    pub fn info(&self) -> Info {
        self.0.info.dup()
    }

    /// `MPI_Win_set_info`: takes over the hints that are known here and may change.
    pub fn set_info(&self, info: &Info) {
        hints::update(&self.0.info, info);
    }

    /// `MPI_Win_set_attr` for a key of the program's.
    ///
    /// # Errors
    /// `Keyval`; errors of the callback that deletes the old value.
    pub fn set_attr(&self, keyval: i32, value: usize) -> Result<()> {
        let keys = &self.0.comm.process().keyvals;
        self.0.attrs.set(keys, self.attr_target(keyval), value)
    }

    /// `MPI_Win_get_attr` for a key of the program's.
    ///
    /// # Errors
    /// `Keyval`.
    pub fn get_attr(&self, keyval: i32) -> Result<Option<usize>> {
        let keys = &self.0.comm.process().keyvals;
        self.0.attrs.get(keys, AttrKind::Window, keyval)
    }

    /// `MPI_Win_delete_attr`.
    ///
    /// # Errors
    /// `Keyval`; errors of the callback.
    pub fn delete_attr(&self, keyval: i32) -> Result<()> {
        let keys = &self.0.comm.process().keyvals;
        self.0.attrs.delete(keys, self.attr_target(keyval))
    }

    fn attr_target(&self, keyval: i32) -> AttrTarget {
        AttrTarget {
            kind: AttrKind::Window,
            owner: self.handle(),
            keyval,
        }
    }

    /// Value of a predefined attribute as C has it: an address.
    pub fn predefined_attr(&self, key: WindowKey) -> usize {
        let values = &self.0.values;
        let address = |value: &AtomicI32| value.as_ptr().expose_provenance();
        match key {
            WindowKey::Base => values.base,
            WindowKey::Size => values.size.as_ptr().expose_provenance(),
            WindowKey::DispUnit => address(&values.disp_unit),
            WindowKey::CreateFlavor => address(&values.flavor),
            WindowKey::Model => address(&values.model),
        }
    }

    /// Control block of this member.
    fn own_control(&self) -> &WindowControl {
        &self.0.own_control
    }

    /// Rings for a member that may sleep until what was just written.
    fn ring(&self, rank: u32) {
        let bell = self.0.doorbells.get(rank as usize).and_then(Option::as_ref);
        if let Some(bell) = bell {
            Doorbell::new(bell.atomic_u32(0)).ring_fenced();
        }
    }

    /// The window in words.
    pub fn label(&self) -> String {
        let name = self.name();
        if name.is_empty() {
            format!("window of {} ranks", self.size())
        } else {
            format!("window \"{name}\"")
        }
    }

    fn error(&self, class: Class, what: impl std::fmt::Display) -> Error {
        Error::new(class, format!("{} {what}", self.label()))
    }
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Window")
            .field("flavor", &self.0.flavor)
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}
