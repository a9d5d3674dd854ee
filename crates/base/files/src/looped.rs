//! From single calls, which may do less than asked, to whole reads and writes.

use crate::error::{Cause, FileError, TransferError};
use crate::limits::{CALL_BUFFERS_MAX, CALL_BYTES_MAX, OFFSET_MAX, ZEROS_BYTES};
use crate::{File, FileSystemInfo, LockKind};
use garonne_sync::user::Packed;
use rustix::io::Errno;
use std::fmt::Debug;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What is to happen to the lock of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockCall {
    /// Take the lock if that is possible at once, else `EAGAIN`.
    Try(LockKind),
    /// Take the lock when that is possible.
    Wait(LockKind),
    /// Give the lock back.
    Unlock,
}

/// Calls on one open file, each as a kernel has it: interrupted (`EINTR`), short, or failed.
///
/// Buffers of a call are at most 128 with at most `0x7ffff000` bytes, and not all empty.
pub trait FileCalls: Send + Sync + Debug {
    /// Reads some bytes; 0 at the end of the file.
    ///
    /// # Errors
    /// The system's number.
    fn read(&self, offset: u64, into: &[Packed]) -> Result<usize, Errno>;

    /// Has the system begin to fetch a range that is read soon, if it does such things.
    fn prefetch(&self, range: Range<u64>);

    /// Writes some bytes.
    ///
    /// # Errors
    /// The system's number.
    fn write(&self, offset: u64, from: &[Packed]) -> Result<usize, Errno>;

    /// Returns the size.
    ///
    /// # Errors
    /// The system's number.
    fn size(&self) -> Result<u64, Errno>;

    /// Sets the size.
    ///
    /// # Errors
    /// The system's number.
    fn set_size(&self, size: u64) -> Result<(), Errno>;

    /// Allocates room for the first bytes and lengthens the file to them.
    ///
    /// # Errors
    /// The system's number; `EOPNOTSUPP` where only writing allocates.
    fn allocate(&self, size: u64) -> Result<(), Errno>;

    /// Returns the first hole that ends behind `from` and is within the file.
    ///
    /// # Errors
    /// The system's number.
    fn hole(&self, from: u64) -> Result<Option<Range<u64>>, Errno>;

    /// Brings what was written to the device.
    ///
    /// # Errors
    /// The system's number.
    fn sync(&self) -> Result<(), Errno>;

    /// Takes or returns the lock of a range that is not empty.
    ///
    /// # Errors
    /// The system's number; `EAGAIN` for a lock that another open file has.
    fn lock(&self, range: Range<u64>, call: LockCall) -> Result<(), Errno>;
}

/// A file over single calls: loops until all is done.
#[derive(Debug)]
pub struct LoopedFile<C: FileCalls> {
    calls: C,
    path: PathBuf,
    info: FileSystemInfo,
}

/// Buffers of a transfer, from the first byte that was not moved yet.
struct Rest<'a> {
    buffers: &'a [Packed],
    /// Bytes of the first buffer that were moved.
    skip: usize,
}

impl<'a> Rest<'a> {
    fn new(buffers: &'a [Packed], moved: u64) -> Self {
        let mut rest = Self { buffers, skip: 0 };
        rest.advance(moved);
        rest
    }

    /// Passes bytes that were moved, and buffers that are empty.
    fn advance(&mut self, mut moved: u64) {
        while let Some(first) = self.buffers.first() {
            let left = first.len() - self.skip;
            if moved < left as u64 {
                self.skip += moved as usize;
                return;
            }
            moved -= left as u64;
            self.skip = 0;
            self.buffers = &self.buffers[1..];
        }
    }

    /// Puts the buffers of the next call into `list` and returns them with their bytes.
    fn next_call<'l>(&self, list: &'l mut [Packed; CALL_BUFFERS_MAX]) -> (&'l [Packed], usize) {
        let (mut used, mut bytes, mut skip) = (0, 0, self.skip);
        for buffer in self.buffers.iter().take(CALL_BUFFERS_MAX) {
            let (_, buffer) = buffer.split(skip);
            skip = 0;
            let (buffer, _) = buffer.split(buffer.len().min(CALL_BYTES_MAX - bytes));
            if buffer.is_empty() && bytes == CALL_BYTES_MAX {
                break;
            }
            bytes += buffer.len();
            list[used] = buffer;
            used += 1;
        }
        (&list[..used], bytes)
    }
}

impl<C: FileCalls> LoopedFile<C> {
    /// A file over these calls, which was opened under this path.
    pub fn new(calls: C, path: &Path, info: FileSystemInfo) -> Self {
        let path = path.to_owned();
        Self { calls, path, info }
    }

    fn failed(&self, call: &'static str, errno: Errno) -> FileError {
        FileError::from_errno(call, &self.path, errno)
    }

    /// Repeats a call as long as it is interrupted.
    fn call<T>(
        &self,
        name: &'static str,
        mut call: impl FnMut(&C) -> Result<T, Errno>,
    ) -> Result<T, FileError> {
        loop {
            match call(&self.calls) {
                Err(Errno::INTR) => {}
                result => return result.map_err(|errno| self.failed(name, errno)),
            }
        }
    }

    /// Moves bytes until `call` moves none, and returns how many were moved.
    fn transfer(
        &self,
        name: &'static str,
        offset: u64,
        buffers: &[Packed],
        call: impl Fn(&C, u64, &[Packed]) -> Result<usize, Errno>,
    ) -> Result<u64, TransferError> {
        let fails = |done, error| Err(TransferError { done, error });
        let bytes = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        if offset.checked_add(bytes).is_none_or(|end| end > OFFSET_MAX) {
            return fails(0, FileError::found(name, &self.path, Cause::TooLarge));
        }
        let mut done = 0;
        // As a rule the first call moves all.
        if buffers.len() <= CALL_BUFFERS_MAX && bytes <= CALL_BYTES_MAX as u64 && bytes > 0 {
            match call(&self.calls, offset, buffers) {
                Ok(0) => return Ok(0),
                Ok(moved) if moved as u64 == bytes => return Ok(bytes),
                Ok(moved) => done = moved as u64,
                Err(Errno::INTR) => {}
                Err(errno) => return fails(0, self.failed(name, errno)),
            }
        }
        let mut rest = Rest::new(buffers, done);
        let mut list = [Packed::of(&[]); CALL_BUFFERS_MAX];
        while !rest.buffers.is_empty() {
            let (some, asked) = rest.next_call(&mut list);
            match call(&self.calls, offset + done, some) {
                Ok(0) => break,
                Ok(moved) => {
                    done += moved.min(asked) as u64;
                    rest.advance(moved as u64);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return fails(done, self.failed(name, errno)),
            }
        }
        Ok(done)
    }

    /// Writes zeros to a range.
    fn write_zeros(&self, range: Range<u64>) -> Result<(), FileError> {
        let zeros = vec![0; ZEROS_BYTES.min((range.end - range.start) as usize)];
        let mut at = range.start;
        while at < range.end {
            let piece = zeros.len().min((range.end - at) as usize);
            self.write_at(at, Packed::of(&zeros[..piece]))?;
            at += piece as u64;
        }
        Ok(())
    }

    /// Allocates by writing: zeros to each hole, then behind the end.
    fn allocate_by_writing(&self, size: u64) -> Result<(), FileError> {
        let old = self.size()?;
        let mut at = 0;
        while at < old.min(size) {
            let Some(hole) = self.call("preallocate", |calls| calls.hole(at))? else {
                break;
            };
            let hole = hole.start.max(at)..hole.end.min(size).min(old);
            if hole.start >= hole.end {
                break;
            }
            at = hole.end;
            self.write_zeros(hole)?;
        }
        match old < size {
            true => self.write_zeros(old..size),
            false => Ok(()),
        }
    }
}

impl<C: FileCalls> File for LoopedFile<C> {
    fn read_vectored_at(&self, offset: u64, into: &[Packed]) -> Result<u64, TransferError> {
        self.transfer("read", offset, into, C::read)
    }

    fn prefetch(&self, range: Range<u64>) {
        self.calls.prefetch(range);
    }

    fn write_vectored_at(&self, offset: u64, from: &[Packed]) -> Result<(), TransferError> {
        let done = self.transfer("write", offset, from, C::write)?;
        if done == from.iter().map(|buffer| buffer.len() as u64).sum() {
            return Ok(());
        }
        // A write that neither fails nor moves anything would be repeated for ever.
        let error = FileError::found("write", &self.path, Cause::Io);
        Err(TransferError { done, error })
    }

    fn size(&self) -> Result<u64, FileError> {
        self.call("ask the size of", C::size)
    }

    fn set_size(&self, size: u64) -> Result<(), FileError> {
        if size > OFFSET_MAX {
            return Err(FileError::found("resize", &self.path, Cause::TooLarge));
        }
        self.call("resize", |calls| calls.set_size(size))
    }

    fn preallocate(&self, size: u64) -> Result<(), FileError> {
        if size == 0 {
            return Ok(());
        }
        if size > OFFSET_MAX {
            return Err(FileError::found("preallocate", &self.path, Cause::TooLarge));
        }
        match self.call("preallocate", |calls| calls.allocate(size)) {
            Err(error) if error.cause == Cause::Unsupported => self.allocate_by_writing(size),
            result => result,
        }
    }

    fn sync(&self) -> Result<(), FileError> {
        self.call("sync", C::sync)
    }

    fn lock(&self, range: Range<u64>, kind: LockKind, wait: bool) -> Result<bool, FileError> {
        let call = match wait {
            true => LockCall::Wait(kind),
            false => LockCall::Try(kind),
        };
        if range.start >= range.end {
            return Ok(true);
        }
        loop {
            match self.calls.lock(range.clone(), call) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::ACCESS) if !wait => return Ok(false),
                Err(errno) => return Err(self.failed("lock", errno)),
            }
        }
    }

    fn unlock(&self, range: Range<u64>) -> Result<(), FileError> {
        if range.start >= range.end {
            return Ok(());
        }
        self.call("unlock", |calls| {
            calls.lock(range.clone(), LockCall::Unlock)
        })
    }

    fn info(&self) -> FileSystemInfo {
        self.info
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
