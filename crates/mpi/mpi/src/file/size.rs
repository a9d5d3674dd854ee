//! Size, preallocation, sync and atomic mode. All are collective but the questions.

use super::File;
use super::agreement::Agreement;
use crate::error::{Class, Error, Result};
use garonne_engine::api::CallOrigin;
use std::sync::atomic::Ordering;

impl File {
    fn meeting(&self, origin: CallOrigin) -> Agreement<'_> {
        Agreement {
            comm: self.comm(),
            origin,
        }
    }

    /// Lets rank 0 act, and agrees on the outcome.
    fn by_first(
        &self,
        (call, size): (&str, i64),
        origin: CallOrigin,
        act: impl FnOnce(u64) -> Result<()>,
    ) -> Result<()> {
        let meeting = self.meeting(origin);
        let checked = u64::try_from(size).map_err(|_| {
            let text = format!("cannot have {size} bytes: {call} takes no negative size");
            self.error(Class::Arg, text)
        });
        let checked = checked.and_then(|size| match self.mode().writes() {
            true => Ok(size),
            false => Err(self.error(Class::ReadOnly, "was opened for reading only")),
        });
        let size = meeting.agree(checked)?;
        meeting.same(&format!("the size given to {call}"), size)?;
        let done = match self.comm().rank() {
            0 => act(size),
            _ => Ok(()),
        };
        meeting.agree(done)
    }

    /// `MPI_File_get_size`.
    ///
    /// # Errors
    /// What the file system says.
    pub fn size(&self) -> Result<i64> {
        Ok(self.0.disk.size()? as i64)
    }

    /// `MPI_File_set_size`.
    ///
    /// # Errors
    /// `Arg`, `ReadOnly`, `NotSame`; what the file system says.
    pub fn set_size(&self, size: i64, origin: CallOrigin) -> Result<()> {
        self.by_first(("MPI_File_set_size", size), origin, |size| {
            Ok(self.0.disk.set_size(size)?)
        })
    }

    /// `MPI_File_preallocate`.
    ///
    /// # Errors
    /// `Arg`, `ReadOnly`, `NotSame`; `NoSpace` and what else the file system says.
    pub fn preallocate(&self, size: i64, origin: CallOrigin) -> Result<()> {
        self.by_first(("MPI_File_preallocate", size), origin, |size| {
            Ok(self.0.disk.preallocate(size)?)
        })
    }

    /// `MPI_File_sync`.
    ///
    /// # Errors
    /// What the file system says, also of writes that it accepted earlier.
    pub fn sync(&self, origin: CallOrigin) -> Result<()> {
        let synced = match self.take_written() {
            true => self.0.disk.sync().map_err(Error::from),
            false => Ok(()),
        };
        self.meeting(origin).agree(synced)
    }

    /// `MPI_File_get_atomicity`.
    pub fn is_atomic(&self) -> bool {
        self.0.atomic.load(Ordering::Relaxed)
    }

    /// `MPI_File_set_atomicity`.
    ///
    /// # Errors
    /// `NotSame`.
    pub fn set_atomic(&self, atomic: bool, origin: CallOrigin) -> Result<()> {
        let meeting = self.meeting(origin);
        meeting.same("the flag of MPI_File_set_atomicity", atomic.into())?;
        self.0.atomic.store(atomic, Ordering::Relaxed);
        meeting.barrier()
    }
}
