//! Moves data between memory and the bytes of a view.
//!
//! A transfer runs in slices, so that nonblocking accesses need not keep a worker for long. Reads
//! with gaps in the file read over small gaps, and prefetch over larger ones. Writes touch their
//! own bytes only, so they need no lock.

use super::view::{FileMap, FileRun};
use crate::error::{Class, Error, Result};
use garonne_files::LockKind;
use garonne_sync::mutex::lock;
use garonne_sync::user::{Data, Packed, Scratch};
use std::ops::Range;
use std::sync::{Arc, Mutex};

#[cfg(test)]
mod tests;

/// Directions of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the file to memory.
    Read,
    /// From memory to the file.
    Write,
}

/// Bytes of data that one slice moves at most, where the transfer is sliced at all.
const SLICE_BYTES: u64 = 4 << 20;
/// Bytes that are packed at once.
const STAGE_BYTES: u64 = 1 << 20;
/// Runs are fetched together with the gaps between them if at least one of so many bytes is wanted.
const SIEVE_SHARE: u64 = 4;
/// Gaps up to here are always fetched along.
const GAP_BYTES: u64 = 4096;
/// Bytes that the kernel copies in the time that one more call takes.
const CALL_BYTES: u64 = 4096;

/// A transfer between memory and a part of a view's stream.
pub(super) struct Transfer {
    pub disk: Arc<dyn garonne_files::File>,
    pub map: FileMap,
    pub direction: Direction,
    /// Place in the stream.
    pub from: u64,
    /// The memory; as long as the part of the stream.
    pub data: Data,
    /// Bytes done.
    pub done: u64,
    /// Nobody else may see a part of it.
    pub atomic: bool,
    pub sieving: Sieving,
    pub gap_lock: GapLock,
}

/// Excludes the accesses of all processes from each other while one writes over gaps. Locks of the
/// file system do not exclude those by one open file.
#[derive(Clone, Default)]
pub(super) struct GapLock(Arc<Mutex<()>>);

impl GapLock {
    /// Holds a range of the file meanwhile.
    pub fn hold<T>(
        &self,
        disk: &dyn garonne_files::File,
        span: &Range<u64>,
        act: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.hold_in_process(|| {
            disk.lock(span.clone(), LockKind::Exclusive, true)?;
            let outcome = act();
            let unlocked = disk.unlock(span.clone());
            let value = outcome?;
            unlocked?;
            Ok(value)
        })
    }

    /// Excludes the accesses of this process, where the range is held already.
    fn hold_in_process<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let _alone = lock(&self.0);
        act()
    }
}

/// How accesses go over gaps in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sieving {
    /// Reads take gaps along where that pays.
    pub reads: bool,
    /// Bytes that are read at once.
    pub read_bytes: u64,
    /// Writes read what is in the gaps and write it again, under locks. All writes take these then.
    pub writes: bool,
    /// Bytes that are written at once.
    pub write_bytes: u64,
}

/// State of a transfer after a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferState {
    /// Bytes are left.
    Unfinished,
    /// All is done, or the file has ended.
    Finished,
}

/// A transfer that moves slice by slice, with the lock of atomic mode held from the first to the
/// last.
pub(super) struct SlicedTransfer {
    transfer: Transfer,
    /// The range that is locked in atomic mode.
    held: Option<Range<u64>>,
    has_begun: bool,
}

impl SlicedTransfer {
    pub fn new(transfer: Transfer) -> Self {
        Self {
            transfer,
            held: None,
            has_begun: false,
        }
    }

    /// Returns the bytes that were moved.
    pub fn moved(&self) -> u64 {
        self.transfer.done
    }

    /// Moves a slice; returns how the transfer ended, if it did.
    pub fn advance(&mut self) -> Option<Result<()>> {
        let moved = self.move_slice();
        if let Ok(TransferState::Unfinished) = moved {
            return None;
        }
        let unlocked = self.transfer.unlock(self.held.take());
        Some(moved.and(unlocked))
    }

    fn move_slice(&mut self) -> Result<TransferState> {
        if !self.has_begun {
            self.held = self.transfer.lock()?;
            self.has_begun = true;
        }
        self.transfer.slice(SLICE_BYTES)
    }
}

impl Transfer {
    /// Moves everything.
    ///
    /// # Errors
    /// What the file system says.
    pub fn run(&mut self) -> Result<()> {
        let held = self.lock()?;
        let rest = self.data.len - self.done;
        let outcome = self.slice(rest).map(drop);
        self.unlock(held)?;
        outcome
    }

    /// Takes the lock of atomic mode on the bytes that are touched.
    pub fn lock(&self) -> Result<Option<Range<u64>>> {
        if !self.atomic || self.data.len == 0 {
            return Ok(None);
        }
        let span = self.map.span(self.from, self.data.len);
        let kind = match self.direction {
            Direction::Read => LockKind::Shared,
            Direction::Write => LockKind::Exclusive,
        };
        self.disk.lock(span.clone(), kind, true)?;
        Ok(Some(span))
    }

    /// Gives the lock back.
    pub fn unlock(&self, held: Option<Range<u64>>) -> Result<()> {
        held.map_or(Ok(()), |span| Ok(self.disk.unlock(span)?))
    }

    /// Moves at most so many bytes more.
    ///
    /// # Errors
    /// What the file system says.
    pub fn slice(&mut self, most: u64) -> Result<TransferState> {
        let len = most.min(self.data.len - self.done);
        let (moved, outcome) = match (self.direction, self.map.is_contiguous()) {
            (Direction::Read, true) => self.read_straight(len),
            (Direction::Read, false) => self.read_runs(len),
            (Direction::Write, _) if self.sieving.writes => self.write_sieved(len),
            (Direction::Write, true) => self.write_straight(len),
            (Direction::Write, false) => self.write_runs(len),
        };
        self.done += moved;
        outcome?;
        Ok(match moved < len || self.done == self.data.len {
            true => TransferState::Finished,
            false => TransferState::Unfinished,
        })
    }

    /// Reads bytes that follow each other in the file.
    fn read_straight(&self, len: u64) -> (u64, Result<()>) {
        let at = self.map.offset_of(self.from + self.done);
        self.read_run(FileRun { offset: at, len }, self.done)
    }

    /// Reads a run of the file to packed bytes from `to` on.
    fn read_run(&self, run: FileRun, to: u64) -> (u64, Result<()>) {
        if self.data.layout.is_none() {
            let into = Packed::new(self.data.mem.offset(to as isize), run.len as usize);
            return match self.disk.read_at(run.offset, into) {
                Ok(moved) => (moved, Ok(())),
                Err(failed) => (failed.done, Err(failed.error.into())),
            };
        }
        let stage = match stage(run.len) {
            Ok(stage) => stage,
            Err(error) => return (0, Err(error)),
        };
        let mut moved = 0;
        while moved < run.len {
            let piece = (run.len - moved).min(stage.len() as u64);
            let into = Packed::new(stage.mem(), piece as usize);
            let (got, outcome) = match self.disk.read_at(run.offset + moved, into) {
                Ok(got) => (got, Ok(())),
                Err(failed) => (failed.done, Err(failed.error.into())),
            };
            let filled = Packed::new(stage.mem(), got as usize);
            self.data.unpack_from(to + moved, filled);
            moved += got;
            if got < piece || outcome.is_err() {
                return (moved, outcome);
            }
        }
        (moved, Ok(()))
    }

    /// Reads runs with gaps between them: several are fetched together where that pays, and read by
    /// one call or, if that copies less than their calls cost, by a call for each.
    fn read_runs(&self, len: u64) -> (u64, Result<()>) {
        let mut runs = self.map.runs(self.from + self.done, len).peekable();
        let (mut moved, mut group) = (0, Vec::new());
        let mut stage_memory = None;
        while let Some(first) = runs.next() {
            group.clear();
            group.push(first);
            let (mut end, mut wanted) = (first.offset + first.len, first.len);
            while let Some(run) = runs.peek() {
                let gap = run.offset.checked_sub(end);
                let span = (run.offset + run.len).saturating_sub(first.offset);
                let pays = gap.is_some_and(|gap| gap <= GAP_BYTES)
                    || span <= (wanted + run.len).saturating_mul(SIEVE_SHARE);
                let pays = pays && self.sieving.reads;
                if gap.is_none() || span > self.sieving.read_bytes || !pays {
                    break;
                }
                (end, wanted) = (run.offset + run.len, wanted + run.len);
                group.push(*run);
                runs.next();
            }
            let (got, outcome) = match group.as_slice() {
                [run] => self.read_run(*run, self.done + moved),
                group if group.len() as u64 * CALL_BYTES <= end - first.offset => {
                    self.read_each(group, end, self.done + moved)
                }
                group => self.read_group(group, end, self.done + moved, &mut stage_memory),
            };
            moved += got;
            if got < wanted || outcome.is_err() {
                return (moved, outcome);
            }
        }
        (moved, Ok(()))
    }

    /// Has all from the first run to `end` fetched from the device at once, and reads the runs
    /// alone: what the system has in memory already is copied once, without the gaps.
    fn read_each(&self, group: &[FileRun], end: u64, to: u64) -> (u64, Result<()>) {
        self.disk.prefetch(group[0].offset..end);
        let mut moved = 0;
        for run in group {
            let (got, outcome) = self.read_run(*run, to + moved);
            moved += got;
            if got < run.len || outcome.is_err() {
                return (moved, outcome);
            }
        }
        (moved, Ok(()))
    }

    /// Reads all from the first run to `end`, and takes out what is wanted.
    fn read_group(
        &self,
        group: &[FileRun],
        end: u64,
        to: u64,
        memory: &mut Option<Scratch>,
    ) -> (u64, Result<()>) {
        let start = group[0].offset;
        if memory.is_none() {
            match scratch(self.sieving.read_bytes) {
                Ok(made) => *memory = Some(made),
                Err(error) => return (0, Err(error)),
            }
        }
        let Some(stage) = memory else {
            return (0, Err(no_memory()));
        };
        let whole = Packed::new(stage.mem(), (end - start) as usize);
        let (got, outcome) = match self.disk.read_at(start, whole) {
            Ok(got) => (got, Ok(())),
            Err(failed) => (failed.done, Err(failed.error.into())),
        };
        let mut moved = 0;
        for run in group {
            let at = run.offset - start;
            let there = got.saturating_sub(at).min(run.len);
            let piece = Packed::new(stage.mem().offset(at as isize), there as usize);
            self.data.unpack_from(to + moved, piece);
            moved += there;
            if there < run.len {
                break;
            }
        }
        (moved, outcome)
    }

    /// Writes bytes that follow each other in the file.
    fn write_straight(&self, len: u64) -> (u64, Result<()>) {
        let at = self.map.offset_of(self.from + self.done);
        self.write_run(FileRun { offset: at, len }, self.done, &mut None)
    }

    fn write_run(
        &self,
        run: FileRun,
        from: u64,
        memory: &mut Option<Scratch>,
    ) -> (u64, Result<()>) {
        let write = |offset, bytes: Packed| match self.disk.write_at(offset, bytes) {
            Ok(()) => (bytes.len() as u64, Ok(())),
            Err(failed) => (failed.done, Err(failed.error.into())),
        };
        if self.data.layout.is_none() {
            let bytes = Packed::new(self.data.mem.offset(from as isize), run.len as usize);
            return write(run.offset, bytes);
        }
        if memory
            .as_ref()
            .is_none_or(|stage| (stage.len() as u64) < run.len.min(STAGE_BYTES))
        {
            match stage(run.len) {
                Ok(made) => *memory = Some(made),
                Err(error) => return (0, Err(error)),
            }
        }
        let Some(stage) = memory else {
            return (0, Err(no_memory()));
        };
        let mut moved = 0;
        while moved < run.len {
            let piece = (run.len - moved).min(stage.len() as u64);
            let packed = Packed::new(stage.mem(), piece as usize);
            self.data.pack_to(from + moved, packed);
            let (done, outcome) = write(run.offset + moved, packed);
            moved += done;
            if outcome.is_err() {
                return (moved, outcome);
            }
        }
        (moved, Ok(()))
    }

    /// Writes runs with gaps between them, each with a call of its own.
    fn write_runs(&self, len: u64) -> (u64, Result<()>) {
        let (mut moved, mut memory) = (0, None);
        for run in self.map.runs(self.from + self.done, len) {
            let (done, outcome) = self.write_run(run, self.done + moved, &mut memory);
            moved += done;
            if outcome.is_err() {
                return (moved, outcome);
            }
        }
        (moved, Ok(()))
    }
}

impl Transfer {
    /// Writes under locks, groups of runs with the gaps between them.
    fn write_sieved(&self, len: u64) -> (u64, Result<()>) {
        let mut runs = self.map.runs(self.from + self.done, len).peekable();
        let (mut moved, mut group, mut memory) = (0, Vec::new(), None);
        while let Some(first) = runs.next() {
            group.clear();
            group.push(first);
            let (mut end, mut wanted) = (first.offset + first.len, first.len);
            while let Some(run) = runs.next_if(|run| {
                run.offset >= end && run.offset + run.len - first.offset <= self.sieving.write_bytes
            }) {
                (end, wanted) = (run.offset + run.len, wanted + run.len);
                group.push(run);
            }
            let span = first.offset..end;
            let (done, outcome) = match self.under_lock(&span, || {
                Ok(match group.as_slice() {
                    [run] => self.write_run(*run, self.done + moved, &mut memory),
                    group => self.write_group(group, &span, self.done + moved)?,
                })
            }) {
                Ok(written) => written,
                Err(error) => (0, Err(error)),
            };
            moved += done;
            if outcome.is_err() {
                return (moved, outcome);
            }
        }
        (moved, Ok(()))
    }

    /// Holds the lock of a range meanwhile; atomic accesses hold it anyway.
    fn under_lock<T>(&self, span: &Range<u64>, act: impl FnOnce() -> Result<T>) -> Result<T> {
        match self.atomic {
            true => self.gap_lock.hold_in_process(act),
            false => self.gap_lock.hold(&*self.disk, span, act),
        }
    }

    /// Reads what is in the gaps of a group of runs, and writes all of it with one call.
    fn write_group(
        &self,
        group: &[FileRun],
        span: &Range<u64>,
        from: u64,
    ) -> Result<(u64, Result<()>)> {
        let bytes = (span.end - span.start) as usize;
        let room = scratch(bytes as u64)?;
        let whole = Packed::new(room.mem(), bytes);
        let there = self
            .disk
            .read_at(span.start, whole)
            .map_err(|failed| failed.error)?;
        // What lies behind the end of the file reads as zeros from now on.
        room.mem()
            .with_mut(there as isize, bytes - there as usize, |rest| rest.fill(0));
        let mut moved = 0;
        for run in group {
            let at = (run.offset - span.start) as isize;
            let piece = Packed::new(room.mem().offset(at), run.len as usize);
            self.data.pack_to(from + moved, piece);
            moved += run.len;
        }
        Ok(match self.disk.write_at(span.start, whole) {
            Ok(()) => (moved, Ok(())),
            Err(failed) => {
                let end = span.start + failed.done;
                let written = group
                    .iter()
                    .map(|run| end.saturating_sub(run.offset).min(run.len));
                (written.sum(), Err(failed.error.into()))
            }
        })
    }
}

/// Memory for packed bytes.
fn stage(len: u64) -> Result<Scratch> {
    scratch(len.min(STAGE_BYTES))
}

fn scratch(bytes: u64) -> Result<Scratch> {
    Scratch::new(bytes as usize).ok_or_else(no_memory)
}

#[cold]
fn no_memory() -> Error {
    Error::new(Class::NoMem, "no memory is left for an access to a file")
}
