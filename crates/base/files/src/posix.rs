//! Files of the kernel.

use crate::error::{Cause, FileError};
use crate::limits::{BLOCK_BYTES, BLOCK_BYTES_DEFAULT, OFFSET_MAX};
use crate::looped::{FileCalls, LockCall, LoopedFile};
use crate::sys::{self, Direction};
use crate::{File, FileSystem, FileSystemInfo, FileSystemKind, OpenOptions};
use garonne_sync::user::Packed;
use rustix::fs::{self, Advice, FallocateFlags, FileType, Mode, OFlags, SeekFrom, StatFs};
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file systems that the kernel has mounted.
#[derive(Clone, Copy, Debug, Default)]
pub struct PosixFileSystem;

impl FileSystem for PosixFileSystem {
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>, FileError> {
        let failed = |errno| FileError::from_errno("open", path, errno);
        let access = match (options.read, options.write) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            (true, false) => OFlags::RDONLY,
            (false, false) => return Err(FileError::found("open", path, Cause::Access)),
        };
        // Without waiting: the open of a pipe would wait for its other end.
        let mut flags = access | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        flags.set(OFlags::CREATE, options.create);
        flags.set(OFlags::EXCL, options.create && options.exclusive);
        let mode = Mode::from_bits_truncate(options.mode);
        let fd = repeated(|| fs::open(path, flags, mode)).map_err(failed)?;
        let stat = fs::fstat(&fd).map_err(failed)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::CharacterDevice | FileType::BlockDevice => {}
            _ => return Err(FileError::found("open", path, Cause::BadName)),
        }
        let info = fs::fstatfs(&fd).map_or(UNKNOWN, |stat| info_of(&stat));
        let delete = options.delete_on_close.then(|| path.to_owned());
        let calls = PosixCalls { fd, delete };
        Ok(Arc::new(LoopedFile::new(calls, path, info)))
    }

    fn delete(&self, path: &Path) -> Result<(), FileError> {
        repeated(|| fs::unlink(path)).map_err(|errno| FileError::from_errno("delete", path, errno))
    }

    fn info(&self, path: &Path) -> Result<FileSystemInfo, FileError> {
        let asked = match fs::statfs(path) {
            Err(Errno::NOENT) => fs::statfs(directory_of(path)),
            result => result,
        };
        let failed = |errno| FileError::from_errno("ask the file system of", path, errno);
        asked.map(|stat| info_of(&stat)).map_err(failed)
    }
}

/// Calls of the kernel on one open file.
#[derive(Debug)]
struct PosixCalls {
    fd: OwnedFd,
    /// Name to remove at the end.
    delete: Option<PathBuf>,
}

impl Drop for PosixCalls {
    fn drop(&mut self) {
        if let Some(path) = &self.delete {
            // Nobody is there any more to hear of a failure.
            let _ = fs::unlink(path);
        }
    }
}

impl FileCalls for PosixCalls {
    fn read(&self, offset: u64, into: &[Packed]) -> Result<usize, Errno> {
        sys::transfer(self.fd.as_fd(), Direction::Read, offset, into)
    }

    fn prefetch(&self, range: Range<u64>) {
        let Some(len) = NonZeroU64::new(range.end.saturating_sub(range.start)) else {
            return;
        };
        // A hint: what has no such calls is read without.
        let _ = fs::fadvise(&self.fd, range.start, Some(len), Advice::WillNeed);
    }

    fn write(&self, offset: u64, from: &[Packed]) -> Result<usize, Errno> {
        sys::transfer(self.fd.as_fd(), Direction::Write, offset, from)
    }

    fn size(&self) -> Result<u64, Errno> {
        fs::fstat(&self.fd).map(|stat| stat.st_size as u64)
    }

    fn set_size(&self, size: u64) -> Result<(), Errno> {
        fs::ftruncate(&self.fd, size)
    }

    fn allocate(&self, size: u64) -> Result<(), Errno> {
        fs::fallocate(&self.fd, FallocateFlags::empty(), 0, size)
    }

    fn hole(&self, from: u64) -> Result<Option<Range<u64>>, Errno> {
        let size = self.size()?;
        let start = match fs::seek(&self.fd, SeekFrom::Hole(from)) {
            // Behind the end, or a file system that does not know.
            Err(Errno::NXIO | Errno::INVAL) => return Ok(None),
            result => result?,
        };
        if start >= size {
            return Ok(None);
        }
        match fs::seek(&self.fd, SeekFrom::Data(start)) {
            Err(Errno::NXIO) => Ok(Some(start..size)),
            result => Ok(Some(start..result?)),
        }
    }

    fn sync(&self) -> Result<(), Errno> {
        match fs::fsync(&self.fd) {
            // Devices without anything to bring anywhere.
            Err(Errno::INVAL | Errno::ROFS) => Ok(()),
            result => result,
        }
    }

    fn lock(&self, range: Range<u64>, call: LockCall) -> Result<(), Errno> {
        if range.start > OFFSET_MAX {
            return Err(Errno::OVERFLOW);
        }
        match sys::lock(self.fd.as_fd(), range, call) {
            // What a kernel or a file system says that has no locks of open files.
            Err(Errno::INVAL) => Err(Errno::NOLCK),
            result => result,
        }
    }
}

/// Repeats a call that is interrupted.
fn repeated<T>(call: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// The directory of a path's last part.
fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

const UNKNOWN: FileSystemInfo = FileSystemInfo {
    kind: FileSystemKind::Unknown,
    block_bytes: BLOCK_BYTES_DEFAULT,
};

/// Numbers of kinds of file systems (`f_type` of `statfs`).
const KINDS: [(u32, FileSystemKind); 18] = [
    (0xef53, FileSystemKind::Local),      // ext2, ext3, ext4
    (0x5846_5342, FileSystemKind::Local), // XFS
    (0x9123_683e, FileSystemKind::Local), // Btrfs
    (0xf2f5_2010, FileSystemKind::Local), // F2FS
    (0x2fc1_2fc1, FileSystemKind::Local), // ZFS
    (0x0102_1994, FileSystemKind::Local), // tmpfs
    (0x8584_58f6, FileSystemKind::Local), // ramfs
    (0x794c_7630, FileSystemKind::Local), // overlay
    (0x6969, FileSystemKind::Nfs),
    (0x0bd0_0bd0, FileSystemKind::Lustre),
    (0x4750_4653, FileSystemKind::Shared), // GPFS
    (0x00c3_6400, FileSystemKind::Shared), // Ceph
    (0x1983_0326, FileSystemKind::Shared), // BeeGFS
    (0x2003_0528, FileSystemKind::Shared), // OrangeFS
    (0x0116_1970, FileSystemKind::Shared), // GFS2
    (0x7461_636f, FileSystemKind::Shared), // OCFS2
    (0xff53_4d42, FileSystemKind::Shared), // CIFS
    (0xfe53_4d42, FileSystemKind::Shared), // SMB 2
];

fn info_of(stat: &StatFs) -> FileSystemInfo {
    let number = stat.f_type as u32;
    let known = KINDS.iter().find(|(known, _)| *known == number);
    let said = stat.f_bsize as u64;
    let believed = said.is_power_of_two() && BLOCK_BYTES.contains(&said);
    FileSystemInfo {
        kind: known.map_or(FileSystemKind::Unknown, |(_, kind)| *kind),
        block_bytes: if believed { said } else { BLOCK_BYTES_DEFAULT },
    }
}
