//! Size, preallocation, sync and atomic mode. All are collective.

use super::collective::CollectiveFile;
use crate::error::{Class, Error, Result};
use std::sync::atomic::Ordering;

impl CollectiveFile<'_> {
    /// Lets rank 0 act, and agrees on the outcome.
    fn by_first(
        &self,
        (call, size): (&str, i64),
        act: impl FnOnce(u64) -> Result<()>,
    ) -> Result<()> {
        let agreement = self.agreement();
        let checked = u64::try_from(size).map_err(|_| {
            let text = format!("cannot have {size} bytes: {call} takes no negative size");
            self.file.error(Class::Arg, text)
        });
        let checked = checked.and_then(|size| match self.file.mode().writes() {
            true => Ok(size),
            false => Err(self
                .file
                .error(Class::ReadOnly, "was opened for reading only")),
        });
        let what = format!("the size given to {call}");
        let size = agreement.agree_on(checked, [(what.as_str(), size as u64)])?;
        let done = match self.file.comm().rank() {
            0 => act(size),
            _ => Ok(()),
        };
        agreement.agree(done)
    }

    /// `MPI_File_set_size`.
    ///
    /// # Errors
    /// `Arg`, `ReadOnly`, `NotSame`; what the file system says.
    pub fn set_size(&self, size: i64) -> Result<()> {
        self.by_first(("MPI_File_set_size", size), |size| {
            Ok(self.file.0.disk.set_size(size)?)
        })
    }

    /// `MPI_File_preallocate`.
    ///
    /// # Errors
    /// `Arg`, `ReadOnly`, `NotSame`; `NoSpace` and what else the file system says.
    pub fn preallocate(&self, size: i64) -> Result<()> {
        self.by_first(("MPI_File_preallocate", size), |size| {
            Ok(self.file.0.disk.preallocate(size)?)
        })
    }

    /// `MPI_File_sync`.
    ///
    /// # Errors
    /// What the file system says, also of writes that it accepted earlier.
    pub fn sync(&self) -> Result<()> {
        let synced = match self.file.0.written.swap(false, Ordering::Relaxed) {
            true => self.file.0.disk.sync().map_err(Error::from),
            false => Ok(()),
        };
        self.agreement().agree(synced)
    }

    /// `MPI_File_set_atomicity`.
    ///
    /// # Errors
    /// `NotSame`.
    pub fn set_atomic(&self, atomic: bool) -> Result<()> {
        let agreement = self.agreement();
        agreement.same("the flag of MPI_File_set_atomicity", atomic.into())?;
        self.file.0.atomic.store(atomic, Ordering::Relaxed);
        agreement.barrier()
    }
}
