//! Accesses of one process for itself, and what all accesses have in common: checks, the place in
//! the file, the status.

use super::disk_work::DiskWorkers;
use super::pointers::checked;
use super::staged::Staged;
use super::transfer::{Direction, SlicedTransfer, Transfer};
use super::view::SharedView;
use super::{AccessMode, File, hints};
use crate::coll::Elements;
use crate::error::{Class, Result};
use crate::request::Status;
use std::sync::atomic::Ordering;

/// Place in the file where an access begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At an offset, in etypes.
    At(i64),
    /// At the individual file pointer.
    Individual,
    /// At the shared file pointer.
    Shared,
}

/// The program's data, or why its arguments were refused. Collective calls tell the others.
pub type AccessData<'a> = Result<Elements<'a>>;

/// One read or write.
#[derive(Clone)]
pub struct Access<'a> {
    /// Read or write.
    pub direction: Direction,
    /// Where.
    pub place: Place,
    /// Memory.
    pub data: AccessData<'a>,
}

/// An access that was checked, without its place.
pub(super) struct Prepared {
    view: SharedView,
    staged: Staged,
    direction: Direction,
    /// Etypes that it touches.
    pub etypes: u64,
}

/// An access that is ready to be carried out.
pub(super) struct ReadyAccess {
    pub transfer: Transfer,
    pub staged: Staged,
}

impl ReadyAccess {
    /// Carries the access out.
    ///
    /// # Errors
    /// What the file system says.
    pub fn run(&mut self) -> Result<Status> {
        self.transfer.run()?;
        self.finish()
    }

    /// Carries the access out, where workers may make the system calls.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn run_by(self, workers: &DiskWorkers) -> Result<Status> {
        let Self { transfer, staged } = self;
        let (len, mut sliced) = (transfer.data.len, SlicedTransfer::new(transfer));
        let advance = move || {
            let outcome = sliced.advance()?;
            Some(outcome.map(|()| sliced.moved()))
        };
        let moved = workers.run(len, advance).await?;
        Self::status(&staged, moved)
    }

    /// The status of an access that moved so many bytes of the file.
    pub fn status(staged: &Staged, moved: u64) -> Result<Status> {
        Ok(Status {
            len: staged.finish(moved)?,
            ..Status::EMPTY
        })
    }

    /// Ends an access whose transfer is over.
    pub fn finish(&self) -> Result<Status> {
        Self::status(&self.staged, self.transfer.done)
    }
}

impl File {
    /// `MPI_File_read`, `MPI_File_write_at` and their kin.
    ///
    /// # Errors
    /// `Access`, `ReadOnly`, `UnsupportedOperation` by the access mode; `Arg`, `Count`, `Type` for
    /// arguments; what the file system says.
    pub fn access(&self, access: Access<'_>) -> Result<Status> {
        self.ready(access)?.run()
    }

    /// Checks an access and claims its place.
    pub(super) fn ready(&self, access: Access<'_>) -> Result<ReadyAccess> {
        let prepared = self.prepare(access.direction, access.data)?;
        if access.place != Place::Shared {
            self.check_random("is accessed without the shared file pointer")?;
        }
        let at = self.0.pointers.claim(access.place, prepared.etypes)?;
        self.placed(prepared, at)
    }

    /// Checks an access, and makes its data ready.
    pub(super) fn prepare(&self, direction: Direction, data: AccessData<'_>) -> Result<Prepared> {
        let elements = data?;
        let mode = self.mode();
        if direction == Direction::Read && !mode.reads() {
            return Err(self.error(Class::Access, "was opened for writing only"));
        }
        if direction == Direction::Write && !mode.writes() {
            return Err(self.error(Class::ReadOnly, "was opened for reading only"));
        }
        let view = self.view();
        let staged = Staged::new(&view, &elements, direction)?;
        let (len, etype) = (staged.data.len, view.etype_size());
        if !len.is_multiple_of(etype) {
            let text = format!(
                "is accessed with {len} bytes, which is no whole number of etypes of {etype} bytes"
            );
            return Err(self.error(Class::Io, text));
        }
        if len > 0 && view.filetype().size() == 0 {
            return Err(self.error(Class::Type, "has a view that shows no data"));
        }
        Ok(Prepared {
            etypes: len / etype,
            view,
            staged,
            direction,
        })
    }

    /// Refuses what files opened for sequential access do not allow.
    pub(super) fn check_random(&self, what: &str) -> Result<()> {
        match self.mode().has(AccessMode::SEQUENTIAL) {
            true => {
                let text = format!("{what}, but was opened with MPI_MODE_SEQUENTIAL");
                Err(self.error(Class::UnsupportedOperation, text))
            }
            false => Ok(()),
        }
    }

    /// Gives a checked access its place.
    pub(super) fn placed(&self, prepared: Prepared, at: u64) -> Result<ReadyAccess> {
        let Prepared {
            view,
            staged,
            direction,
            ..
        } = prepared;
        let from = checked(i128::from(at) * i128::from(view.etype_size()))?;
        view.map().check_reach(from, staged.data.len)?;
        if direction == Direction::Write && staged.data.len > 0 {
            self.0.written.store(true, Ordering::Relaxed);
        }
        Ok(ReadyAccess {
            transfer: Transfer {
                disk: self.0.disk.clone(),
                map: view.map().clone(),
                direction,
                from,
                data: staged.data.clone(),
                done: 0,
                atomic: self.0.atomic.load(Ordering::Relaxed),
                sieving: hints::sieving(&self.0.info, self.mode().reads()),
                gap_lock: self.0.gap_lock.clone(),
            },
            staged,
        })
    }
}
