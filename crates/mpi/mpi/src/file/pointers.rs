//! The individual and the shared file pointer.

use super::File;
use super::agreement::Agreement;
use crate::error::{Class, Error, Result};
use garonne_engine::api::CallOrigin;
use garonne_sync::mutex::lock;

/// From where a seek counts, with the numbers of the standard ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Whence {
    /// `MPI_SEEK_CUR`: the file pointer.
    Current = 401,
    /// `MPI_SEEK_END`: the end of the file.
    End = 402,
    /// `MPI_SEEK_SET`: the beginning of the view.
    Set = 403,
}

impl Whence {
    /// The origin of a number.
    ///
    /// # Errors
    /// `Arg`.
    pub fn from_number(number: i32) -> Result<Self> {
        let known = [Self::Current, Self::End, Self::Set];
        let found = known.into_iter().find(|whence| *whence as i32 == number);
        found.ok_or_else(|| {
            let text = format!(
                "{number} is no origin of a seek; they are MPI_SEEK_SET, MPI_SEEK_CUR and MPI_SEEK_END"
            );
            Error::new(Class::Arg, text)
        })
    }
}

impl File {
    /// `MPI_File_seek`.
    ///
    /// # Errors
    /// `Arg` for a place before the view; `UnsupportedOperation` for sequential files.
    pub fn seek(&self, offset: i64, whence: Whence) -> Result<()> {
        self.check_random("has its individual file pointer moved")?;
        let mut position = lock(&self.0.position);
        *position = self.target(offset, whence, || Ok(*position))?;
        Ok(())
    }

    /// `MPI_File_get_position`.
    ///
    /// # Errors
    /// `UnsupportedOperation` for sequential files.
    pub fn position(&self) -> Result<i64> {
        self.check_random("is asked for its individual file pointer")?;
        Ok(*lock(&self.0.position) as i64)
    }

    /// `MPI_File_get_byte_offset`.
    ///
    /// # Errors
    /// `Arg` for a negative offset; `UnsupportedOperation` for sequential files.
    pub fn byte_offset(&self, offset: i64) -> Result<i64> {
        self.check_random("is asked for a byte offset")?;
        let etypes = u64::try_from(offset).map_err(|_| self.before_view(i128::from(offset)))?;
        Ok(self.view().byte_offset(etypes)? as i64)
    }

    /// `MPI_File_seek_shared`. Collective.
    ///
    /// # Errors
    /// `Arg`; `NotSame` for places that differ.
    pub fn seek_shared(
        &self,
        offset: i64,
        whence: Result<Whence>,
        origin: CallOrigin,
    ) -> Result<()> {
        let meeting = Agreement {
            comm: self.comm(),
            origin,
        };
        let number = whence.as_ref().map_or(0, |whence| *whence as u64);
        // Nobody moves the pointer before all have asked for it.
        let target = whence.and_then(|whence| self.target(offset, whence, || self.0.shared.get()));
        let target = meeting.agree(target)?;
        meeting.same("the offset of MPI_File_seek_shared", offset as u64)?;
        meeting.same("the origin of MPI_File_seek_shared", number)?;
        let set = match self.comm().rank() {
            0 => self.0.shared.set(target),
            _ => Ok(()),
        };
        meeting.agree(set)
    }

    /// `MPI_File_get_position_shared`.
    ///
    /// # Errors
    /// What reaching the word met.
    pub fn position_shared(&self) -> Result<i64> {
        Ok(self.0.shared.get()? as i64)
    }

    /// The place of a seek, in etypes.
    fn target(
        &self,
        offset: i64,
        whence: Whence,
        current: impl FnOnce() -> Result<u64>,
    ) -> Result<u64> {
        let from = match whence {
            Whence::Set => 0,
            Whence::Current => current()?,
            Whence::End => self.view().etypes_in(self.0.disk.size()?),
        };
        let target = i128::from(from) + i128::from(offset);
        let target = u64::try_from(target).map_err(|_| self.before_view(target))?;
        match i64::try_from(target) {
            Ok(_) => Ok(target),
            Err(_) => Err(self.beyond(target)),
        }
    }

    #[cold]
    fn before_view(&self, target: i128) -> Error {
        let text = format!("has no offset {target}: offsets must not be negative");
        self.error(Class::Arg, text)
    }

    /// Moves the individual file pointer past an access, and returns where it was.
    pub(super) fn advance_position(&self, etypes: u64) -> Result<u64> {
        let mut position = lock(&self.0.position);
        let at = *position;
        let next = at.checked_add(etypes);
        *position = next.ok_or_else(|| self.beyond(at))?;
        Ok(at)
    }

    /// Sets both file pointers to the same place. The shared one is set by rank 0.
    pub(super) fn reset_pointers(&self, etypes: u64) -> Result<()> {
        *lock(&self.0.position) = etypes;
        match self.comm().rank() {
            0 => self.0.shared.set(etypes),
            _ => Ok(()),
        }
    }
}
