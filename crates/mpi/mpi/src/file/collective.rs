//! Accesses of all processes of a file together: blocking, ordered, and split in two calls.
//!
//! Errors are agreed upon, so that no process goes on alone. Where it pays, writers move the bytes
//! of all. Split accesses go on in the background between their halves.

use super::File;
use super::agreement::{Agreement, in_call};
use super::background;
use super::disk_work::DiskWorkers;
use super::independent::{Access, Place, ReadyAccess};
use super::pointers::Whence;
use super::transfer::Direction;
use crate::error::{Class, Result};
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
    request: Request,
}

/// A file in one collective call, which all its processes make.
#[derive(Clone, Copy)]
pub struct CollectiveFile<'a> {
    pub(super) file: &'a File,
    pub(super) origin: CallOrigin,
}

impl CollectiveFile<'_> {
    /// `MPI_File_read_all`, `MPI_File_write_at_all` and their kin.
    ///
    /// # Errors
    /// Those of [`File::access`], at all processes if at one.
    pub fn access_all(&self, access: Access<'_>) -> Result<Status> {
        let direction = access.direction;
        let ready = self
            .file
            .check_no_split()
            .and_then(|()| self.file.ready(access));
        self.carry_out(direction, ready)
    }

    /// `MPI_File_read_ordered` and `MPI_File_write_ordered`.
    ///
    /// # Errors
    /// Those of [`File::access`], at all processes if at one.
    pub fn access_ordered(&self, access: Access<'_>) -> Result<Status> {
        let direction = access.direction;
        let checked = self.file.check_no_split().map(|()| access);
        let ready = self.ready_in_order(checked)?;
        self.carry_out(direction, ready)
    }

    fn carry_out(&self, direction: Direction, ready: Result<ReadyAccess>) -> Result<Status> {
        let agreement = self.agreement();
        in_call(async {
            let decided = agreement.decide(self.file, direction, ready).await?;
            let workers = DiskWorkers::Caller;
            agreement.carry_out(self.file, &workers, decided).await
        })
    }

    /// What the processes of the file agree by. Accesses that began before end first.
    pub(super) fn agreement(&self) -> Agreement<'_> {
        background::finish_background(self.file);
        Agreement::in_call(self.file.comm(), self.origin)
    }

    /// `MPI_File_iread_all`, `MPI_File_iwrite_at_all` and their kin.
    ///
    /// # Errors
    /// Those of [`File::access`] that are found before data move; the request tells the others, and
    /// those of other processes.
    pub fn start_all(&self, access: Access<'_>) -> Result<Request> {
        let direction = access.direction;
        let ready = self
            .file
            .check_no_split()
            .and_then(|()| self.file.ready(access));
        if self.file.comm().size() == 1 {
            return ready.map(|ready| self.file.start_ready(ready));
        }
        let refused = ready.as_ref().err().cloned();
        let request = self.start(direction, ready);
        match refused {
            None => Ok(request),
            Some(error) => {
                // This process takes part, as far as the others need it.
                request.free()?;
                Err(error)
            }
        }
    }

    /// Starts an access, or takes part in it as the one that was refused.
    fn start(&self, direction: Direction, ready: Result<ReadyAccess>) -> Request {
        background::start_in_background(self.file, direction, ready, self.origin)
    }

    /// Checks an access and places it behind those of lower ranks. The inner error is this
    /// process's, and the others do not know of it yet.
    fn ready_in_order(&self, access: Result<Access<'_>>) -> Result<Result<ReadyAccess>> {
        let agreement = self.agreement();
        let prepared = access.and_then(|access| self.file.prepare(access.direction, access.data));
        let etypes = prepared.as_ref().map_or(0, |prepared| prepared.etypes);
        let (below, all) = agreement.sums(etypes)?;
        let base = match self.file.comm().rank() {
            0 => self.file.0.pointers.shared().fetch_add(all),
            _ => Ok(0),
        };
        let word = *base.as_ref().unwrap_or(&0);
        let ((), [base]) = in_call(agreement.agree_and(base.map(drop), [word]))?;
        Ok(prepared.and_then(|prepared| self.file.placed(prepared, base.saturating_add(below))))
    }

    /// The first half of a split collective access.
    ///
    /// # Errors
    /// Those of [`File::access`] that are found before data move.
    pub fn begin(&self, kind: SplitKind, access: Access<'_>) -> Result<()> {
        let direction = access.direction;
        let checked = self.file.check_no_split();
        let refused = checked.clone();
        let ready = match kind {
            SplitKind::Ordered => self.ready_in_order(checked.map(|()| access))?,
            SplitKind::All | SplitKind::AtAll => checked.and_then(|()| self.file.ready(access)),
        };
        if self.file.comm().size() == 1 {
            let started = self.file.start_ready(ready?);
            self.note_begun(kind, direction, started);
            return Ok(());
        }
        // The end is where all agree, so an error waits for it.
        let started = self.start(direction, ready);
        match refused {
            Ok(()) => self.note_begun(kind, direction, started),
            // The access that has begun before stays.
            Err(_) => started.free()?,
        }
        refused
    }

    fn note_begun(&self, kind: SplitKind, direction: Direction, request: Request) {
        *lock(&self.file.0.split) = Some(SplitAccess {
            kind,
            direction,
            request,
        });
    }

    /// The second half of a split collective access.
    ///
    /// # Errors
    /// `Io` if no such access has begun; those of [`File::access`], at all processes if at one.
    pub fn end(&self, kind: SplitKind, direction: Direction) -> Result<Status> {
        let mut split = lock(&self.file.0.split);
        let is_of_kind =
            |begun: &mut SplitAccess| begun.kind == kind && begun.direction == direction;
        let Some(begun) = split.take_if(is_of_kind) else {
            let text = "has no split collective access of this kind that has begun";
            return Err(self.file.error(Class::Io, text));
        };
        drop(split);
        request::wait(&begun.request)
    }

    /// `MPI_File_seek_shared`.
    ///
    /// # Errors
    /// `Arg`; `NotSame` for places that differ.
    pub fn seek_shared(&self, offset: i64, whence: Result<Whence>) -> Result<()> {
        let (agreement, pointers) = (self.agreement(), &self.file.0.pointers);
        let number = whence.as_ref().map_or(0, |whence| *whence as u64);
        // Nobody moves the pointer before all have asked for it.
        let target = whence.and_then(|whence| {
            let end = || self.file.end();
            pointers.shared_target(offset, whence, &end)
        });
        let same = [
            ("the offset of MPI_File_seek_shared", offset as u64),
            ("the origin of MPI_File_seek_shared", number),
        ];
        let target = agreement.agree_on(target, same)?;
        let set = match self.file.comm().rank() {
            0 => pointers.shared().set(target),
            _ => Ok(()),
        };
        agreement.agree(set)
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
