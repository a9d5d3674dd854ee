//! Files below MPI: what a file system can do, without views, ranks or pointers.
//!
//! [`FileSystem`] opens and deletes; [`File`] reads and writes at positions, and loops until all
//! bytes are moved, the file ends, or a call fails. Buffers are memory that others may touch
//! meanwhile ([`Packed`](garonne_sync::user::Packed)), so the kernel gets addresses, never slices.
//!
//! A kind of file is made of single calls ([`FileCalls`]), which may be interrupted or move fewer
//! bytes than asked; [`LoopedFile`] makes a [`File`] of them. [`posix`] is the kernel's, and
//! `simulated` a model with seeded faults for tests.
//!
//! Failures are a [`FileError`]: a cause from which callers derive their own codes, the call, the
//! path and the system's number.

mod error;
mod limits;
mod looped;
mod name;
pub mod posix;
#[cfg(feature = "simulated")]
pub mod simulated;
mod sys;

pub use error::{Cause, FileError, TransferError};
pub use looped::{FileCalls, LockCall, LoopedFile};
pub use name::path_of_name;

use garonne_sync::user::Packed;
use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened. Positional writes of a file that the kernel appends to would all go to its
/// end, so there is no such option: a caller that appends begins at [`File::size`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Reads are allowed.
    pub read: bool,
    /// Writes are allowed.
    pub write: bool,
    /// A file that is not there is made.
    pub create: bool,
    /// With `create`: a file that is there is an error.
    pub exclusive: bool,
    /// The name is removed when the last reference to the open file goes.
    pub delete_on_close: bool,
    /// Permissions of a file that is made, before the process's mask.
    pub mode: u32,
}

impl Default for OpenOptions {
    /// Reading a file that is there.
    fn default() -> Self {
        Self {
            read: true,
            write: false,
            create: false,
            exclusive: false,
            delete_on_close: false,
            mode: 0o666,
        }
    }
}

/// Kinds of file systems, as far as accesses depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemKind {
    /// One host's own: all processes see each write at once.
    Local,
    /// NFS: hosts see each other's writes after `fsync` here and `open` or a lock there.
    Nfs,
    /// Lustre: coherent, with stripes.
    Lustre,
    /// Another one that several hosts share and that keeps them coherent (GPFS, Ceph, BeeGFS …).
    Shared,
    /// Not known; taken for one that hosts share.
    Unknown,
}

/// What a file system says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemInfo {
    /// Which kind.
    pub kind: FileSystemKind,
    /// Bytes of a block; a power of two from 512 to 64 MB, whatever the file system said.
    pub block_bytes: u64,
}

/// Kinds of locks on a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Several may hold the range.
    Shared,
    /// One holds the range.
    Exclusive,
}

/// Where files are.
pub trait FileSystem: Send + Sync + Debug {
    /// Opens a file.
    ///
    /// # Errors
    /// With the cause; [`Cause::BadName`] for a directory, a pipe or a socket.
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>, FileError>;

    /// Removes a name.
    ///
    /// # Errors
    /// With the cause; [`Cause::BadName`] for a directory.
    fn delete(&self, path: &Path) -> Result<(), FileError>;

    /// Tells on what kind of file system a file is, or would be: a file that is not there is asked
    /// for by its directory.
    ///
    /// # Errors
    /// With the cause, if the directory is not there either.
    fn info(&self, path: &Path) -> Result<FileSystemInfo, FileError>;
}

/// An open file. Positions are in bytes from the file's beginning; there is no current position.
///
/// Calls may be made by several threads at once. Two writes of one range at once leave the bytes of
/// either in each place, as the file system orders them.
pub trait File: Send + Sync + Debug {
    /// Fills buffers in their order with the bytes from `offset` on and returns how many there
    /// were: fewer than asked only where the file ends.
    ///
    /// # Errors
    /// With the bytes that were read before.
    fn read_vectored_at(&self, offset: u64, into: &[Packed]) -> Result<u64, TransferError>;

    /// Writes all bytes of the buffers in their order from `offset` on.
    ///
    /// # Errors
    /// With the bytes that were written before.
    fn write_vectored_at(&self, offset: u64, from: &[Packed]) -> Result<(), TransferError>;

    /// Fills one buffer, as [`File::read_vectored_at`] does.
    ///
    /// # Errors
    /// With the bytes that were read before.
    fn read_at(&self, offset: u64, into: Packed) -> Result<u64, TransferError> {
        self.read_vectored_at(offset, &[into])
    }

    /// Has the system begin to fetch a range that is read soon. Nothing fails by it.
    fn prefetch(&self, range: Range<u64>);

    /// Writes one buffer, as [`File::write_vectored_at`] does.
    ///
    /// # Errors
    /// With the bytes that were written before.
    fn write_at(&self, offset: u64, from: Packed) -> Result<(), TransferError> {
        self.write_vectored_at(offset, &[from])
    }

    /// Returns the bytes of the file.
    ///
    /// # Errors
    /// With the cause.
    fn size(&self) -> Result<u64, FileError>;

    /// Cuts the file, or lengthens it by bytes that read as zeros.
    ///
    /// # Errors
    /// With the cause.
    fn set_size(&self, size: u64) -> Result<(), FileError>;

    /// Makes sure that the first `size` bytes have room on the device. A shorter file gets longer;
    /// what is in the file stays. Where the file system cannot allocate, zeros are written to
    /// holes and behind the end: nobody else may write there meanwhile.
    ///
    /// # Errors
    /// With the cause.
    fn preallocate(&self, size: u64) -> Result<(), FileError>;

    /// Returns when all that was written is on the device (with NFS: on the server).
    ///
    /// # Errors
    /// With the cause: also that of a write which the system accepted earlier.
    fn sync(&self) -> Result<(), FileError>;

    /// Locks a range against other open files, of this process too, and returns whether that was
    /// possible at once; with `wait` only then. The same open file may change its own locks. They
    /// end with [`File::unlock`] or with the open file, so with the death of its process.
    ///
    /// # Errors
    /// With the cause; [`Cause::Unsupported`] where the file system has no locks.
    fn lock(&self, range: Range<u64>, kind: LockKind, wait: bool) -> Result<bool, FileError>;

    /// Gives a range back.
    ///
    /// # Errors
    /// With the cause.
    fn unlock(&self, range: Range<u64>) -> Result<(), FileError>;

    /// Tells on what kind of file system the file is.
    fn info(&self) -> FileSystemInfo;

    /// Returns the path under which the file was opened.
    fn path(&self) -> &Path;
}
