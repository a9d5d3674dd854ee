//! Files (MPI 5.0, chapter 14).
//!
//! - `access_mode`: how a file is opened; `open`: open, close and delete; `errors`: classes.
//! - `view`: which bytes of the file a process sees, and in which order; `datarep`: their form.
//! - `transfer`: moves data between memory and the bytes of a view; `staged` converts them.
//! - `pointers`: the individual and the shared file pointer.
//! - `independent`, `collective`, `nonblocking`: the three forms of accesses; `background`:
//!   collective ones that do not block; `disk_work`: their system calls.
//! - `plan`: who moves which bytes in a collective access; `decision`: how processes come to it;
//!   `gathering`: accesses through writers; `stripes`, `coverage`: parts of a file and of a window.
//! - `size`: size, preallocation, sync and atomic mode; `hints`: infos.
//! - `agreement`: what all processes of a file agree on.
//!
//! [`garonne_files`] does the system's part of it.

mod access_mode;
mod agreement;
mod background;
mod collective;
mod coverage;
pub mod datarep;
mod decision;
mod disk_work;
mod errors;
mod gathering;
mod hints;
mod independent;
mod nonblocking;
mod open;
pub mod plan;
mod pointers;
mod shared_pointer;
mod size;
mod staged;
mod stripes;
mod transfer;
mod view;

pub use access_mode::AccessMode;
pub use collective::{CollectiveFile, SplitKind};
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
use background::LastBackgroundAccess;
use collective::SplitAccess;
use datarep::Representation;
use garonne_engine::api::CallOrigin;
use garonne_progress::tasks::Tasks;
use garonne_sync::mutex::lock;
use gathering::GatherBuffers;
use pointers::FilePointers;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use transfer::GapLock;
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
    pointers: FilePointers,
    atomic: AtomicBool,
    /// A write since the last sync.
    written: AtomicBool,
    /// The split collective access that has begun and not ended.
    split: Mutex<Option<SplitAccess>>,
    errhandler: Mutex<Errhandler>,
    info: Info,
    /// Memory of accesses through writers.
    gather_buffers: Mutex<GatherBuffers>,
    gap_lock: GapLock,
    background: LastBackgroundAccess,
    /// Where nonblocking accesses run, once there was one.
    tasks: OnceLock<Option<Tasks>>,
    /// The edge's handle, for callbacks.
    handle: AtomicUsize,
}

impl File {
    /// `MPI_File_open`. Collective over `comm`.
    ///
    /// # Errors
    /// `Comm` for intercommunicators, `Amode`, `NotSame`, and what the file system says, at all
    /// processes alike.
    pub fn open(comm: &Comm, request: OpenRequest<'_>, origin: CallOrigin) -> Result<Self> {
        open::open(comm, request, origin)
    }

    /// Returns the file for a collective call.
    pub fn together(&self, origin: CallOrigin) -> CollectiveFile<'_> {
        CollectiveFile { file: self, origin }
    }

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

    /// `MPI_File_get_size`.
    ///
    /// # Errors
    /// What the file system says.
    pub fn size(&self) -> Result<i64> {
        Ok(self.0.disk.size()? as i64)
    }

    /// `MPI_File_get_atomicity`.
    pub fn is_atomic(&self) -> bool {
        self.0.atomic.load(Ordering::Relaxed)
    }

    /// `MPI_File_seek`.
    ///
    /// # Errors
    /// `Arg` for a place before the view; `UnsupportedOperation` for sequential files.
    pub fn seek(&self, offset: i64, whence: Whence) -> Result<()> {
        self.check_random("has its individual file pointer moved")?;
        self.0.pointers.seek(offset, whence, &|| self.end())
    }

    /// `MPI_File_get_position`.
    ///
    /// # Errors
    /// `UnsupportedOperation` for sequential files.
    pub fn position(&self) -> Result<i64> {
        self.check_random("is asked for its individual file pointer")?;
        Ok(self.0.pointers.position() as i64)
    }

    /// `MPI_File_get_position_shared`.
    ///
    /// # Errors
    /// What reaching the word met.
    pub fn position_shared(&self) -> Result<i64> {
        Ok(self.0.pointers.shared().get()? as i64)
    }

    /// `MPI_File_get_byte_offset`.
    ///
    /// # Errors
    /// `Arg` for a negative offset; `UnsupportedOperation` for sequential files.
    pub fn byte_offset(&self, offset: i64) -> Result<i64> {
        self.check_random("is asked for a byte offset")?;
        let etypes = pointers::checked(offset.into())?;
        Ok(self.view().byte_offset(etypes)? as i64)
    }

    /// Etypes before the end of the file.
    fn end(&self) -> Result<u64> {
        Ok(self.view().etypes_in(self.0.disk.size()?))
    }

    /// Refuses what may not be called while a split collective access is open.
    fn check_no_split(&self) -> Result<()> {
        match lock(&self.0.split).is_some() {
            true => Err(self.error(
                Class::Io,
                "has a split collective access that has begun and not ended",
            )),
            false => Ok(()),
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
