//! Errors of files: what went wrong, in which call, where.

use rustix::io::Errno;
use std::fmt;
use std::path::{Path, PathBuf};

/// What went wrong, as far as a program would tell cases apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// No such file or directory.
    NotFound,
    /// The file is there already.
    Exists,
    /// Not permitted, or the file was not opened for that.
    Access,
    /// The file system is read-only.
    ReadOnly,
    /// No room on the device.
    NoSpace,
    /// The user's quota is used up.
    Quota,
    /// In use by somebody.
    Busy,
    /// No name of a file: too long, a directory, a loop of links.
    BadName,
    /// The file system cannot do that.
    Unsupported,
    /// Larger than files may be.
    TooLarge,
    /// No memory or no descriptor left.
    NoResources,
    /// The buffer is not memory of the process.
    BadBuffer,
    /// The server does not know the file any more.
    Stale,
    /// The device or the connection to it failed.
    Io,
}

/// Causes of the system's numbers; others are [`Cause::Io`].
const CAUSES: [(Errno, Cause); 25] = [
    (Errno::NOENT, Cause::NotFound),
    (Errno::NXIO, Cause::BadName),
    (Errno::EXIST, Cause::Exists),
    (Errno::ACCESS, Cause::Access),
    (Errno::PERM, Cause::Access),
    (Errno::BADF, Cause::Access),
    (Errno::ROFS, Cause::ReadOnly),
    (Errno::NOSPC, Cause::NoSpace),
    (Errno::DQUOT, Cause::Quota),
    (Errno::BUSY, Cause::Busy),
    (Errno::TXTBSY, Cause::Busy),
    (Errno::ISDIR, Cause::BadName),
    (Errno::NOTDIR, Cause::BadName),
    (Errno::NAMETOOLONG, Cause::BadName),
    (Errno::LOOP, Cause::BadName),
    (Errno::SPIPE, Cause::BadName),
    (Errno::OPNOTSUPP, Cause::Unsupported),
    (Errno::NOSYS, Cause::Unsupported),
    (Errno::NOLCK, Cause::Unsupported),
    (Errno::FBIG, Cause::TooLarge),
    (Errno::OVERFLOW, Cause::TooLarge),
    (Errno::NOMEM, Cause::NoResources),
    (Errno::MFILE, Cause::NoResources),
    (Errno::NFILE, Cause::NoResources),
    (Errno::FAULT, Cause::BadBuffer),
];

impl Cause {
    /// Returns the cause that a number of the system means.
    pub fn of_errno(errno: Errno) -> Self {
        if errno == Errno::STALE {
            return Self::Stale;
        }
        let known = CAUSES.iter().find(|(number, _)| *number == errno);
        known.map_or(Self::Io, |(_, cause)| *cause)
    }

    /// Returns what the cause means, in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::NotFound => "no such file",
            Self::Exists => "the file exists",
            Self::Access => "permission denied",
            Self::ReadOnly => "the file system is read-only",
            Self::NoSpace => "no space left on the device",
            Self::Quota => "quota exceeded",
            Self::Busy => "the file is in use",
            Self::BadName => "not the name of a file",
            Self::Unsupported => "the file system does not support this",
            Self::TooLarge => "beyond the largest size of a file",
            Self::NoResources => "no memory or no descriptor left",
            Self::BadBuffer => "the buffer is not memory of the process",
            Self::Stale => "the server does not know the file any more (stale handle)",
            Self::Io => "input or output failed",
        }
    }
}

/// A call on a file that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// What went wrong.
    pub cause: Cause,
    /// What was being done: `open`, `write` …
    pub call: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The system's number, if the system said so.
    pub errno: Option<i32>,
}

impl FileError {
    /// An error that the system reported.
    pub fn from_errno(call: &'static str, path: &Path, errno: Errno) -> Self {
        Self {
            cause: Cause::of_errno(errno),
            call,
            path: path.to_owned(),
            errno: Some(errno.raw_os_error()),
        }
    }

    /// An error that was found before the system was asked.
    pub fn found(call: &'static str, path: &Path, cause: Cause) -> Self {
        Self {
            cause,
            call,
            path: path.to_owned(),
            errno: None,
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        write!(f, "cannot {} '{path}': {}", self.call, self.cause.text())?;
        match self.errno {
            Some(errno) => write!(f, " ({})", std::io::Error::from_raw_os_error(errno)),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FileError {}

/// A read or a write that failed, perhaps in the middle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferError {
    /// Bytes that were moved before, from the first on.
    pub done: u64,
    /// Why no more were.
    pub error: FileError,
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, after {} bytes", self.error, self.done)
    }
}

impl std::error::Error for TransferError {}

impl From<TransferError> for FileError {
    fn from(failed: TransferError) -> Self {
        failed.error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_come_from_numbers_and_unknown_ones_are_failures_of_the_device() {
        assert_eq!(Cause::of_errno(Errno::NOENT), Cause::NotFound);
        assert_eq!(Cause::of_errno(Errno::STALE), Cause::Stale);
        assert_eq!(Cause::of_errno(Errno::IO), Cause::Io);
        assert_eq!(Cause::of_errno(Errno::TIMEDOUT), Cause::Io);
    }

    #[test]
    fn no_number_is_listed_twice() {
        for (index, (errno, _)) in CAUSES.iter().enumerate() {
            assert!(CAUSES[..index].iter().all(|(other, _)| other != errno));
        }
    }

    #[test]
    fn the_text_names_the_call_the_file_and_the_systems_words() {
        let error = FileError::from_errno("open", Path::new("/a/b"), Errno::NOENT);
        let text = error.to_string();
        assert!(
            text.starts_with("cannot open '/a/b': no such file ("),
            "{text}"
        );
        assert!(text.contains("No such file"), "{text}");
    }
}
