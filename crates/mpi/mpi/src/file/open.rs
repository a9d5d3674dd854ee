//! Open, close, delete, and the change of a file's view.

use super::access_mode::AccessMode;
use super::agreement::Agreement;
use super::collective::CollectiveFile;
use super::hints;
use super::pointers::FilePointers;
use super::shared_pointer::SharedPointer;
use super::transfer::GapLock;
use super::view::View;
use super::{File, FileInner};
use crate::comm::Comm;
use crate::datatype::Datatype;
use crate::errhandler::Errhandler;
use crate::error::{Class, Error, Result};
use crate::info::Info;
use garonne_engine::api::CallOrigin;
use garonne_files::posix::PosixFileSystem;
use garonne_files::{FileSystem, OpenOptions, path_of_name};
use garonne_sync::mutex::lock;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};

/// `MPI_BYTE`.
const BYTE: u16 = 0x247;
/// `MPI_DISPLACEMENT_CURRENT`.
const DISPLACEMENT_CURRENT: i64 = -1;

/// What `MPI_File_open` is given. Where an argument was refused already, the others are told.
pub struct OpenRequest<'a> {
    /// Name, which may begin with the kind of file system.
    pub name: Result<&'a Path>,
    /// Access mode.
    pub mode: AccessMode,
    /// Hints.
    pub info: Result<Info>,
    /// The error handler of `MPI_FILE_NULL`, which new files inherit.
    pub errhandler: Errhandler,
}

/// `MPI_File_delete`.
///
/// # Errors
/// `NoSuchFile`, `Access` … as the file system says.
pub fn delete(name: &Path) -> Result<()> {
    Ok(PosixFileSystem.delete(&path_of_name(name)?)?)
}

/// `MPI_File_open`. Collective over `comm`.
///
/// # Errors
/// `Comm` for intercommunicators, `Amode`, `NotSame`, and what the file system says, at all
/// processes alike.
pub(super) fn open(comm: &Comm, request: OpenRequest<'_>, origin: CallOrigin) -> Result<File> {
    if comm.is_inter() {
        return Err(comm.error(
            Class::Comm,
            "is an intercommunicator; files are opened on intracommunicators",
        ));
    }
    let own = comm
        .create(comm.group(), origin)?
        .ok_or_else(|| Error::new(Class::Intern, "the communicator of a file is empty"))?;
    own.set_name("file");
    let meeting = Agreement::in_call(&own, origin);
    let OpenRequest {
        name,
        mode,
        info,
        errhandler,
    } = request;
    let checked = mode
        .check()
        .and_then(|()| Ok((path_of_name(name?)?, hints::known(&info?))));
    let (path, info) = meeting.agree_on(
        checked,
        [("the access mode of MPI_File_open", mode.0 as u64)],
    )?;
    let disk = open_all(meeting, &path, mode, &info)?;
    let shared = SharedPointer::new(&own, origin)?;
    own.stand_for(errhandler.clone());
    let byte = Datatype::predefined_ref(BYTE)
        .ok_or_else(|| Error::new(Class::Intern, "MPI_BYTE is not predefined"))?;
    let file = File(Arc::new(FileInner {
        comm: own.clone(),
        path,
        mode,
        disk,
        view: Mutex::new(Arc::new(View::of_bytes(byte))),
        pointers: FilePointers::new(shared),
        atomic: AtomicBool::new(false),
        written: AtomicBool::new(false),
        split: Mutex::new(None),
        errhandler: Mutex::new(errhandler),
        info,
        gather_buffers: Mutex::default(),
        gap_lock: GapLock::default(),
        background: Mutex::default(),
        tasks: OnceLock::new(),
        handle: AtomicUsize::new(0),
    }));
    if mode.has(AccessMode::APPEND) {
        let size = file.0.disk.size().map_err(Error::from);
        let end = meeting.agree(size.and_then(|size| file.0.pointers.reset(size, own.rank() == 0)));
        end.inspect_err(|_| drop(file.0.pointers.shared().free(origin)))?;
    }
    Ok(file)
}

impl CollectiveFile<'_> {
    /// `MPI_File_close`. Collective, but where a process has died: then each closes the file alone.
    /// The edge then forgets its handle.
    ///
    /// # Errors
    /// `Io` while a split collective access is open; what the file system says when the file is to
    /// be deleted.
    pub fn close(&self) -> Result<()> {
        match self.close_together() {
            Err(error) if error.class == Class::ProcFailed => self.close_alone(),
            closed => closed,
        }
    }

    fn close_alone(&self) -> Result<()> {
        let comm = self.file.comm();
        let dead = comm.dead_members();
        let first = comm.group().members().find(|peer| !dead.contains(peer));
        let deletes = first == Some(comm.process().host.me());
        if !deletes || !self.file.0.mode.has(AccessMode::DELETE_ON_CLOSE) {
            return Ok(());
        }
        match PosixFileSystem
            .delete(&self.file.0.path)
            .map_err(Error::from)
        {
            // By one that has died since.
            Err(error) if error.class == Class::NoSuchFile => Ok(()),
            deleted => deleted,
        }
    }

    fn close_together(&self) -> Result<()> {
        let agreement = self.agreement();
        agreement.agree(self.file.check_no_split())?;
        self.file.0.pointers.shared().free(self.origin)?;
        if !self.file.0.mode.has(AccessMode::DELETE_ON_CLOSE) {
            return Ok(());
        }
        let deleted = match self.file.comm().rank() {
            0 => PosixFileSystem
                .delete(&self.file.0.path)
                .map_err(Error::from),
            _ => Ok(()),
        };
        agreement.agree(deleted)
    }

    /// `MPI_File_set_view`. Collective; file pointers go back to 0.
    ///
    /// # Errors
    /// `Type`, `Arg`, `UnsupportedDatarep`; `NotSame` for representations or extents of etypes
    /// that differ.
    pub fn set_view(
        &self,
        disp: i64,
        types: Result<(&Datatype, &Datatype)>,
        (representation, info): (Result<&str>, Result<Info>),
    ) -> Result<()> {
        let agreement = self.agreement();
        let made = (|| {
            self.file.check_no_split()?;
            let (types, name, info) = (types?, representation?, info?);
            let disp = self.displacement(disp)?;
            let found = self.file.comm().process().datareps.find(name)?;
            let view = View::new(disp, types, found, self.file.mode().writes())?;
            Ok((view, info))
        })();
        let mut hash = DefaultHasher::new();
        let mut extent = 0;
        if let Ok((view, _)) = &made {
            view.representation().name().hash(&mut hash);
            extent = view.etype().extent();
        }
        let same = [
            ("the data representation of the view", hash.finish()),
            ("the extent of the view's etype", extent as u64),
        ];
        let (view, info) = agreement.agree_on(made, same)?;
        hints::update(&self.file.0.info, &info);
        *lock(&self.file.0.view) = Arc::new(view);
        let reset = self.file.0.pointers.reset(0, self.file.comm().rank() == 0);
        agreement.agree(reset)
    }

    /// The displacement of a view, in bytes.
    fn displacement(&self, disp: i64) -> Result<u64> {
        let sequential = self.file.mode().has(AccessMode::SEQUENTIAL);
        if disp == DISPLACEMENT_CURRENT && sequential {
            let at = self.file.0.pointers.shared().get()?;
            return self.file.view().byte_offset(at);
        }
        if sequential {
            let text =
                "was opened with MPI_MODE_SEQUENTIAL: its views begin at MPI_DISPLACEMENT_CURRENT";
            return Err(self.file.error(Class::UnsupportedOperation, text));
        }
        u64::try_from(disp).map_err(|_| {
            let text = format!("cannot have a view at {disp}: displacements must not be negative");
            self.file.error(Class::Arg, text)
        })
    }
}

/// Opens the file at all processes. Rank 0 comes first where one process is to make it: a file that
/// must not be there, or one that hosts may not share.
fn open_all(
    meeting: Agreement<'_>,
    path: &Path,
    mode: AccessMode,
    info: &Info,
) -> Result<Arc<dyn garonne_files::File>> {
    let options = OpenOptions {
        // Reads over gaps and locks for reading want it, where that is possible.
        read: mode.reads(),
        write: mode.writes(),
        create: mode.has(AccessMode::CREATE),
        exclusive: mode.has(AccessMode::EXCL),
        delete_on_close: false,
        mode: hints::permissions_of(info),
    };
    let open = |options| PosixFileSystem.open(path, options).map_err(Error::from);
    if meeting.comm.size() == 1 {
        return open(options);
    }
    let makes = options.create && (options.exclusive || !meeting.comm.is_on_node());
    if !makes {
        return meeting.agree(open(options));
    }
    let first = match meeting.comm.rank() {
        0 => open(options).map(Some),
        _ => Ok(None),
    };
    let first = meeting.agree(first)?;
    let opened = match first {
        Some(disk) => Ok(disk),
        None => open(OpenOptions {
            create: false,
            exclusive: false,
            ..options
        }),
    };
    meeting.agree(opened)
}
