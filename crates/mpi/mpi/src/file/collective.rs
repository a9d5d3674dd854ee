//! Accesses of all processes of a file together: blocking, ordered, and split in two calls.
//!
//! Errors are agreed upon, so that no process goes on alone.

use super::File;
use super::agreement::Agreement;
use super::independent::{Access, Place, ReadyAccess};
use super::transfer::Direction;
use crate::error::{Class, Error, Result};
use crate::request::{self, Request, Status};
use garonne_engine::api::CallOrigin;
use garonne_sync::mutex::lock;

/// Kinds of split collective accesses, which begin and end with functions of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitKind {
    /// At the individual file pointers: `..._all_begin`.
    All,
    /// At explicit offsets: `..._at_all_begin`.
    AtAll,
    /// At the shared file pointer, in the order of ranks: `..._ordered_begin`.
    Ordered,
}

/// A split collective access that has begun.
pub(super) struct SplitAccess {
    kind: SplitKind,
    direction: Direction,
    /// The operation, or why it did not begin.
    started: Result<Request>,
}

impl File {
    /// `MPI_File_read_all`, `MPI_File_write_at_all` and their kin.
    ///
    /// # Errors
    /// Those of [`File::access`], at all processes if at one.
    pub fn access_all(&self, access: Access<'_>, origin: CallOrigin) -> Result<Status> {
        let done = self
            .check_no_split()
            .and_then(|()| self.ready(access))
            .and_then(|mut ready| ready.run());
        self.agree(done, origin)
    }

    /// `MPI_File_read_ordered` and `MPI_File_write_ordered`.
    ///
    /// # Errors
    /// Those of [`File::access`], at all processes if at one.
    pub fn access_ordered(&self, access: Access<'_>, origin: CallOrigin) -> Result<Status> {
        let checked = self.check_no_split().map(|()| access);
        let done = self
            .ready_in_order(checked, origin)?
            .and_then(|mut ready| ready.run());
        self.agree(done, origin)
    }

    fn agree<T>(&self, own: Result<T>, origin: CallOrigin) -> Result<T> {
        let meeting = Agreement {
            comm: self.comm(),
            origin,
        };
        meeting.agree(own)
    }

    /// Checks an access and places it behind those of lower ranks. The inner error is this
    /// process's, and the others do not know of it yet.
    fn ready_in_order(
        &self,
        access: Result<Access<'_>>,
        origin: CallOrigin,
    ) -> Result<Result<ReadyAccess>> {
        let meeting = Agreement {
            comm: self.comm(),
            origin,
        };
        let prepared = access.and_then(|access| self.prepare(access.direction, access.data));
        let etypes = prepared.as_ref().map_or(0, |prepared| prepared.etypes);
        let (below, all) = meeting.sums(etypes)?;
        let base = match self.comm().rank() {
            0 => self.0.shared.fetch_add(all),
            _ => Ok(0),
        };
        let word = *base.as_ref().unwrap_or(&0);
        let ((), [base]) = meeting.agree_and(base.map(drop), [word])?;
        Ok(prepared.and_then(|prepared| self.placed(prepared, base.saturating_add(below))))
    }

    /// Refuses what may not be called while a split collective access is open.
    pub(super) fn check_no_split(&self) -> Result<()> {
        match lock(&self.0.split).is_some() {
            true => Err(self.error(
                Class::Io,
                "has a split collective access that has begun and not ended",
            )),
            false => Ok(()),
        }
    }

    /// The first half of a split collective access.
    ///
    /// # Errors
    /// Those of [`File::access`] that are found before data move.
    pub fn begin(&self, kind: SplitKind, access: Access<'_>, origin: CallOrigin) -> Result<()> {
        let direction = access.direction;
        self.check_no_split()?;
        let ready = match kind {
            SplitKind::Ordered => self.ready_in_order(Ok(access), origin)?,
            SplitKind::All | SplitKind::AtAll => self.ready(access),
        };
        let started = ready.map(|ready| self.start_ready(ready));
        // The end is where all agree, so an error waits for it, too.
        let failed = started.as_ref().err().cloned();
        *lock(&self.0.split) = Some(SplitAccess {
            kind,
            direction,
            started,
        });
        failed.map_or(Ok(()), |error| self.forget_alone(error))
    }

    /// A file of one process has nobody to agree with at the end: its access ends here.
    fn forget_alone(&self, error: Error) -> Result<()> {
        if self.comm().size() > 1 {
            return Ok(());
        }
        *lock(&self.0.split) = None;
        Err(error)
    }

    /// The second half of a split collective access.
    ///
    /// # Errors
    /// `Io` if no such access has begun; those of [`File::access`], at all processes if at one.
    pub fn end(&self, kind: SplitKind, direction: Direction, origin: CallOrigin) -> Result<Status> {
        let mut split = lock(&self.0.split);
        let is_of_kind =
            |begun: &mut SplitAccess| begun.kind == kind && begun.direction == direction;
        let Some(begun) = split.take_if(is_of_kind) else {
            let text = "has no split collective access of this kind that has begun";
            return Err(self.error(Class::Io, text));
        };
        drop(split);
        let done = begun.started.and_then(|request| request::wait(&request));
        self.agree(done, origin)
    }
}

impl SplitKind {
    /// The place of an access of this kind; `offset` is that of explicit ones.
    pub fn place(self, offset: i64) -> Place {
        match self {
            Self::All => Place::Individual,
            Self::AtAll => Place::At(offset),
            Self::Ordered => Place::Shared,
        }
    }
}
