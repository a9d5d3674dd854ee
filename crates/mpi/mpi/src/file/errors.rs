//! Error classes of what the file system answers.

use crate::error::{Class, Error};
use garonne_files::{Cause, FileError};

/// Returns the class of a cause.
fn class_of(cause: Cause) -> Class {
    match cause {
        Cause::NotFound => Class::NoSuchFile,
        Cause::Exists => Class::FileExists,
        Cause::Access => Class::Access,
        Cause::ReadOnly => Class::ReadOnly,
        Cause::NoSpace => Class::NoSpace,
        Cause::Quota => Class::Quota,
        Cause::Busy => Class::FileInUse,
        Cause::BadName => Class::BadFile,
        Cause::Unsupported => Class::UnsupportedOperation,
        Cause::NoResources => Class::NoMem,
        Cause::BadBuffer => Class::Buffer,
        Cause::TooLarge | Cause::Stale | Cause::Io => Class::Io,
    }
}

impl From<FileError> for Error {
    #[cold]
    fn from(error: FileError) -> Self {
        Error::new(class_of(error.cause), error.to_string())
    }
}
