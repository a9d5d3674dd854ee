//! Files (MPI 5.0, chapter 14).
//!
//! - `access_mode`: how a file is opened; `open`: open, close and delete; `errors`: classes.
//! - `view`: which bytes of the file a process sees, and in which order; `datarep`: their form.
//! - `transfer`: moves data between memory and the bytes of a view; `staged` converts them.
//! - `pointers`: the individual and the shared file pointer.
//! - `independent`, `collective`, `nonblocking`: the three forms of accesses.
//! - `plan`: who moves which bytes in a collective access.
//! - `size`: size, preallocation, sync and atomic mode; `hints`: infos.
//! - `agreement`: what all processes of a file agree on.
//!
//! [`garonne_files`] does the system's part of it.

mod access_mode;
mod agreement;
mod collective;
pub mod datarep;
mod errors;
mod hints;
mod independent;

mod nonblocking;
mod open;
pub mod plan;
mod pointers;
mod shared_pointer;
mod size;
mod staged;
mod transfer;
mod view;

pub use access_mode::AccessMode;
pub use collective::SplitKind;
pub use independent::{Access, AccessData, Place};
pub use open::{OpenRequest, delete};
pub use pointers::Whence;
pub use transfer::Direction;

use crate::comm::Comm;
use crate::datatype::Datatype;
use crate::errhandler::{Errhandler, ErrhandlerKind};
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::info::Info;
use collective::SplitAccess;
use datarep::Representation;
use garonne_progress::tasks::Tasks;
use garonne_sync::mutex::lock;
use shared_pointer::SharedPointer;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use view::View;

/// An open file.
///
/// Made collectively by [`File::open`] and ended collectively by [`File::close`]. Between them
/// accesses go to the bytes that the view shows, at explicit offsets or at a file pointer. Cheap to
/// clone.
#[derive(Clone)]
pub struct File(Arc<FileInner>);

/// State of an open file at one process.
struct FileInner {
    /// Communicator of the file alone.
    comm: Comm,
    path: PathBuf,
    mode: AccessMode,
    disk: Arc<dyn garonne_files::File>,
    /// Replaced whole by `MPI_File_set_view`.
    view: Mutex<Arc<View>>,
    /// The individual file pointer, in etypes of the view.
    position: Mutex<u64>,
    shared: SharedPointer,
    atomic: AtomicBool,
    /// A write since the last sync.
    written: AtomicBool,
    /// The split collective access that has begun and not ended.
    split: Mutex<Option<SplitAccess>>,
    errhandler: Mutex<Errhandler>,
    info: Info,
    /// Where nonblocking accesses run, once there was one.
    tasks: OnceLock<Option<Tasks>>,
    /// The edge's handle, for callbacks.
    handle: AtomicUsize,
}

impl File {
    /// `MPI_File_get_group`.
    pub fn group(&self) -> &Group {
        self.0.comm.group()
    }

    /// The file's own communicator.
    pub fn comm(&self) -> &Comm {
        &self.0.comm
    }

    /// `MPI_File_get_amode`.
    pub fn mode(&self) -> AccessMode {
        self.0.mode
    }

    /// The edge's handle.
    pub fn handle(&self) -> usize {
        self.0.handle.load(Ordering::Relaxed)
    }

    /// Tells the handle by which the program knows the file.
    pub fn set_handle(&self, handle: usize) {
        self.0.handle.store(handle, Ordering::Relaxed);
        // Errors of requests are raised on the communicator, which stands for the file.
        self.0.comm.set_handle(handle);
    }

    /// `MPI_File_get_errhandler`.
    pub fn errhandler(&self) -> Errhandler {
        lock(&self.0.errhandler).clone()
    }

    /// `MPI_File_set_errhandler`.
    ///
    /// # Errors
    /// `Arg` for a handler that was made for other objects.
    pub fn set_errhandler(&self, handler: Errhandler) -> Result<()> {
        if !handler.fits(ErrhandlerKind::File) {
            let text = "got an error handler that was not made for files";
            return Err(self.error(Class::Arg, text));
        }
        self.0.comm.stand_for(handler.clone());
        *lock(&self.0.errhandler) = handler;
        Ok(())
    }

    /// `MPI_File_get_info`: a new object with the hints in force.
    pub fn info(&self) -> Info {
        hints::told(&self.0.info, &self.0.path)
    }

    /// `MPI_File_set_info`: takes over the hints that are known here. Collective.
    pub fn set_info(&self, info: &Info) {
        hints::update(&self.0.info, info);
    }

    /// The view in force.
    fn view(&self) -> Arc<View> {
        lock(&self.0.view).clone()
    }

    /// `MPI_File_get_view`: displacement, etype, filetype and the name of the representation.
    pub fn get_view(&self) -> (i64, Datatype, Datatype, String) {
        let view = self.view();
        let name = view.representation().name().into();
        let disp = view.disp() as i64;
        (disp, view.etype().clone(), view.filetype().clone(), name)
    }

    /// `MPI_File_get_type_extent`.
    ///
    /// # Errors
    /// What the program's extent function says.
    pub fn type_extent(&self, datatype: &Datatype) -> Result<i64> {
        let view = self.view();
        match view.representation() {
            Representation::Native | Representation::Internal => Ok(datatype.extent()),
            other => Ok(datarep::file_type(other, datatype)?.extent()),
        }
    }

    /// The file in words.
    fn label(&self) -> String {
        format!("file {:?}", self.0.path)
    }

    #[cold]
    fn error(&self, class: Class, what: impl std::fmt::Display) -> Error {
        Error::new(class, format!("{} {what}", self.label()))
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File")
            .field("path", &self.0.path)
            .field("mode", &self.0.mode)
            .finish_non_exhaustive()
    }
}
