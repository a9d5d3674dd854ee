//! A file system in memory that does what real ones do seldom: short counts, interruptions, a full
//! disk in the middle of a write, stale handles, failing devices. What happens is a function of the
//! seed and of the calls so far.

use crate::error::{Cause, FileError};
use crate::looped::{FileCalls, LockCall, LoopedFile};
use crate::{File, FileSystem, FileSystemInfo, FileSystemKind, LockKind, OpenOptions};
use garonne_sync::mutex::lock;
use garonne_sync::user::Packed;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What goes wrong, and how often: `n` stands for once in `n` calls, 0 for never.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Reads and writes that move fewer bytes than asked.
    pub short: u64,
    /// Calls that are interrupted.
    pub interrupted: u64,
    /// Bytes that all files have together at most; 0: no limit.
    pub capacity: u64,
    /// Reads and writes after which handles that are open are stale; 0: never.
    pub stale_after: u64,
    /// Bytes of any file that cannot be read or written.
    pub broken: Option<Range<u64>>,
    /// Space cannot be allocated without writing.
    pub no_allocation: bool,
    /// There are no locks.
    pub no_locks: bool,
    /// Which kind the file system says it is.
    pub kind: Option<FileSystemKind>,
}

/// A file system in memory; clones are the same one.
///
/// Made by [`SimulatedFileSystem::new`]. Tests look at files by [`SimulatedFileSystem::content`].
#[derive(Clone, Debug)]
pub struct SimulatedFileSystem(Arc<Mutex<Disk>>);

#[derive(Debug)]
struct Disk {
    faults: Faults,
    random: u64,
    files: BTreeMap<PathBuf, Arc<Mutex<Inode>>>,
    used: u64,
    transfers: u64,
    /// Bytes that reads moved.
    read: u64,
    /// Ranges that somebody said he reads soon.
    prefetched: Vec<Range<u64>>,
    next_handle: u64,
}

/// A file's bytes; those that were never written are holes.
#[derive(Debug, Default)]
struct Inode {
    bytes: Vec<u8>,
    written: Vec<bool>,
    /// Locked ranges with the handles that hold them.
    locks: Vec<(u64, Range<u64>, LockKind)>,
}

impl Disk {
    /// `true` once in `times`; never for 0. SplitMix64.
    fn one_in(&mut self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn interrupted(&mut self) -> Result<(), Errno> {
        match self.one_in(self.faults.interrupted) {
            true => Err(Errno::INTR),
            false => Ok(()),
        }
    }

    /// Returns how many of `asked` bytes from `offset` on a call moves.
    fn admitted(&mut self, offset: u64, asked: u64) -> Result<u64, Errno> {
        self.interrupted()?;
        self.transfers += 1;
        if self.faults.stale_after > 0 && self.transfers > self.faults.stale_after {
            return Err(Errno::STALE);
        }
        let mut admitted = asked;
        if asked > 1 && self.one_in(self.faults.short) {
            admitted = 1 + self.below(asked - 1);
        }
        if let Some(broken) = &self.faults.broken {
            if broken.contains(&offset) {
                return Err(Errno::IO);
            }
            if offset < broken.start && broken.start < offset + admitted {
                admitted = broken.start - offset;
            }
        }
        Ok(admitted)
    }
}

impl Inode {
    fn resize(&mut self, size: u64) {
        self.bytes.resize(size as usize, 0);
        self.written.resize(size as usize, false);
    }

    fn blocks(&self, range: Range<u64>) -> u64 {
        let written = self.written.iter().take(range.end as usize);
        written
            .skip(range.start as usize)
            .filter(|byte| **byte)
            .count() as u64
    }
}

impl SimulatedFileSystem {
    /// An empty file system whose faults follow from the seed.
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self(Arc::new(Mutex::new(Disk {
            faults,
            random: seed,
            files: BTreeMap::new(),
            used: 0,
            transfers: 0,
            read: 0,
            prefetched: Vec::new(),
            next_handle: 0,
        })))
    }

    /// Returns the bytes of a file, if it is there.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let file = lock(&self.0).files.get(path)?.clone();
        let bytes = lock(&file).bytes.clone();
        Some(bytes)
    }

    /// Makes a file of these bytes, or replaces its content.
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        let mut disk = lock(&self.0);
        disk.used += bytes.len() as u64;
        let file = disk.files.entry(path.to_owned()).or_default();
        let mut file = lock(file);
        file.bytes = bytes.to_vec();
        file.written = vec![true; bytes.len()];
    }

    /// Returns how many bytes reads have moved, of all files together.
    pub fn bytes_read(&self) -> u64 {
        lock(&self.0).read
    }

    /// Returns the ranges that are to be fetched, in their order, of all files together.
    pub fn prefetched(&self) -> Vec<Range<u64>> {
        lock(&self.0).prefetched.clone()
    }

    /// Changes what goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        lock(&self.0).faults = faults;
    }

    fn kind_and_block(disk: &Disk) -> FileSystemInfo {
        FileSystemInfo {
            kind: disk.faults.kind.unwrap_or(FileSystemKind::Local),
            block_bytes: 4096,
        }
    }
}

impl FileSystem for SimulatedFileSystem {
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>, FileError> {
        let failed = |cause| Err(FileError::found("open", path, cause));
        let mut disk = lock(&self.0);
        let file = match disk.files.get(path).cloned() {
            Some(_) if options.create && options.exclusive => return failed(Cause::Exists),
            Some(file) => file,
            None if options.create => {
                let file = Arc::<Mutex<Inode>>::default();
                disk.files.insert(path.to_owned(), file.clone());
                file
            }
            None => return failed(Cause::NotFound),
        };
        disk.next_handle += 1;
        let calls = SimulatedCalls {
            system: self.clone(),
            file,
            handle: disk.next_handle,
            options,
            path: path.to_owned(),
        };
        let info = Self::kind_and_block(&disk);
        Ok(Arc::new(LoopedFile::new(calls, path, info)))
    }

    fn delete(&self, path: &Path) -> Result<(), FileError> {
        match lock(&self.0).files.remove(path) {
            Some(_) => Ok(()),
            None => Err(FileError::found("delete", path, Cause::NotFound)),
        }
    }

    fn info(&self, _: &Path) -> Result<FileSystemInfo, FileError> {
        Ok(Self::kind_and_block(&lock(&self.0)))
    }
}

/// Calls on one open file of the model.
#[derive(Debug)]
struct SimulatedCalls {
    system: SimulatedFileSystem,
    file: Arc<Mutex<Inode>>,
    handle: u64,
    options: OpenOptions,
    path: PathBuf,
}

impl Drop for SimulatedCalls {
    fn drop(&mut self) {
        let handle = self.handle;
        lock(&self.file)
            .locks
            .retain(|(holder, ..)| *holder != handle);
        if self.options.delete_on_close {
            let _ = self.system.delete(&self.path);
        }
    }
}

impl SimulatedCalls {
    /// Lets `each` see the pieces of buffers that make up `moved` bytes, with their places.
    fn pieces(buffers: &[Packed], moved: u64, mut each: impl FnMut(u64, Packed)) {
        let mut at = 0;
        for buffer in buffers {
            let len = (buffer.len() as u64).min(moved - at);
            each(at, buffer.split(len as usize).0);
            at += len;
        }
    }
}

fn total(buffers: &[Packed]) -> u64 {
    buffers.iter().map(|buffer| buffer.len() as u64).sum()
}

impl FileCalls for SimulatedCalls {
    fn read(&self, offset: u64, into: &[Packed]) -> Result<usize, Errno> {
        if !self.options.read {
            return Err(Errno::BADF);
        }
        let mut disk = lock(&self.system.0);
        let file = lock(&self.file);
        let there = (file.bytes.len() as u64).saturating_sub(offset);
        let asked = total(into).min(there);
        if asked == 0 {
            return Ok(0);
        }
        let moved = disk.admitted(offset, asked)?;
        disk.read += moved;
        Self::pieces(into, moved, |at, piece| {
            let bytes = &file.bytes[(offset + at) as usize..][..piece.len()];
            piece.mem().write(0, bytes);
        });
        Ok(moved as usize)
    }

    fn prefetch(&self, range: Range<u64>) {
        lock(&self.system.0).prefetched.push(range);
    }

    fn write(&self, offset: u64, from: &[Packed]) -> Result<usize, Errno> {
        if !self.options.write {
            return Err(Errno::BADF);
        }
        let mut disk = lock(&self.system.0);
        let mut file = lock(&self.file);
        let mut moved = disk.admitted(offset, total(from))?;
        if disk.faults.capacity > 0 {
            // As many bytes as there is room for those of them that are new.
            let mut room = disk.faults.capacity.saturating_sub(disk.used);
            let mut fits = 0;
            while fits < moved {
                let known = file.written.get((offset + fits) as usize) == Some(&true);
                if !known && room == 0 {
                    break;
                }
                room -= u64::from(!known);
                fits += 1;
            }
            if fits == 0 {
                return Err(Errno::NOSPC);
            }
            moved = fits;
        }
        let end = offset + moved;
        disk.used += moved - file.blocks(offset..end);
        let size = end.max(file.bytes.len() as u64);
        file.resize(size);
        Self::pieces(from, moved, |at, piece| {
            let place = (offset + at) as usize..(offset + at) as usize + piece.len();
            piece.mem().read(0, &mut file.bytes[place.clone()]);
            file.written[place].fill(true);
        });
        Ok(moved as usize)
    }

    fn size(&self) -> Result<u64, Errno> {
        lock(&self.system.0).interrupted()?;
        Ok(lock(&self.file).bytes.len() as u64)
    }

    fn set_size(&self, size: u64) -> Result<(), Errno> {
        let mut disk = lock(&self.system.0);
        disk.interrupted()?;
        if !self.options.write {
            return Err(Errno::INVAL);
        }
        let mut file = lock(&self.file);
        let old = file.bytes.len() as u64;
        disk.used -= file.blocks(size.min(old)..old);
        file.resize(size);
        Ok(())
    }

    fn allocate(&self, size: u64) -> Result<(), Errno> {
        let mut disk = lock(&self.system.0);
        disk.interrupted()?;
        if disk.faults.no_allocation {
            return Err(Errno::OPNOTSUPP);
        }
        let mut file = lock(&self.file);
        let needed = size - file.blocks(0..size);
        if disk.faults.capacity > 0 && disk.used + needed > disk.faults.capacity {
            return Err(Errno::NOSPC);
        }
        disk.used += needed;
        let end = size.max(file.bytes.len() as u64);
        file.resize(end);
        file.written[..size as usize].fill(true);
        Ok(())
    }

    fn hole(&self, from: u64) -> Result<Option<Range<u64>>, Errno> {
        lock(&self.system.0).interrupted()?;
        let file = lock(&self.file);
        let find = |from: usize, wanted: bool| {
            let rest = file.written.iter().skip(from);
            let there = rest.take_while(|byte| **byte != wanted).count();
            from + there
        };
        let start = find(from as usize, false);
        let end = find(start, true);
        Ok((start < end && end <= file.written.len()).then_some(start as u64..end as u64))
    }

    fn sync(&self) -> Result<(), Errno> {
        lock(&self.system.0).interrupted()
    }

    fn lock(&self, range: Range<u64>, call: LockCall) -> Result<(), Errno> {
        let mut disk = lock(&self.system.0);
        disk.interrupted()?;
        if disk.faults.no_locks {
            return Err(Errno::NOLCK);
        }
        let mut file = lock(&self.file);
        let touches = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        let kind = match call {
            LockCall::Unlock => None,
            LockCall::Try(kind) | LockCall::Wait(kind) => Some(kind),
        };
        let excludes = |other: LockKind| {
            kind.is_some_and(|kind| kind == LockKind::Exclusive || other == LockKind::Exclusive)
        };
        let mut held = file.locks.iter();
        if held.any(|(who, at, other)| *who != self.handle && touches(at) && excludes(*other)) {
            // Who waits is interrupted again and again here, since nobody wakes it.
            return Err(match call {
                LockCall::Wait(_) => Errno::INTR,
                _ => Errno::AGAIN,
            });
        }
        let mut kept = Vec::new();
        for (who, at, other) in file.locks.drain(..) {
            if who != self.handle || !touches(&at) {
                kept.push((who, at, other));
                continue;
            }
            for left in [at.start..range.start, range.end..at.end] {
                if left.start < left.end {
                    kept.push((who, left, other));
                }
            }
        }
        kept.extend(kind.map(|kind| (self.handle, range, kind)));
        file.locks = kept;
        Ok(())
    }
}
