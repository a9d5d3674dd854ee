//! Errors of the MPI layer: an error class of the standard and the sentence that says what
//! happened.

use crate::request::Status;
use std::fmt;

/// Error classes with their numbers in the MPI 5 standard ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "the standard documents the names")]
pub enum Class {
    Success = 0,
    Buffer = 1,
    Count = 2,
    Type = 3,
    Tag = 4,
    Comm = 5,
    Rank = 6,
    Request = 7,
    Root = 8,
    Group = 9,
    Op = 10,
    Topology = 11,
    Dims = 12,
    Arg = 13,
    Unknown = 14,
    Truncate = 15,
    Other = 16,
    Intern = 17,
    Pending = 18,
    InStatus = 19,
    Access = 20,
    Amode = 21,
    Assert = 22,
    BadFile = 23,
    Base = 24,
    Conversion = 25,
    Disp = 26,
    DupDatarep = 27,
    FileExists = 28,
    FileInUse = 29,
    File = 30,
    InfoKey = 31,
    InfoNokey = 32,
    InfoValue = 33,
    Info = 34,
    Io = 35,
    Keyval = 36,
    Locktype = 37,
    Name = 38,
    NoMem = 39,
    NotSame = 40,
    NoSpace = 41,
    NoSuchFile = 42,
    Port = 43,
    Quota = 44,
    ReadOnly = 45,
    RmaAttach = 46,
    RmaConflict = 47,
    RmaRange = 48,
    RmaShared = 49,
    RmaSync = 50,
    Service = 51,
    Size = 52,
    Spawn = 53,
    UnsupportedDatarep = 54,
    UnsupportedOperation = 55,
    Win = 56,
    RmaFlavor = 57,
    ProcAborted = 58,
    ValueTooLarge = 59,
    Session = 60,
    Errhandler = 61,
    AbiVersion = 62,
    ProcFailed = 101,
    ProcFailedPending = 102,
    Revoked = 103,
}

impl TryFrom<i32> for Class {
    type Error = ();

    fn try_from(value: i32) -> Result<Self, ()> {
        TEXTS
            .iter()
            .map(|(class, _, _)| *class)
            .find(|class| *class as i32 == value)
            .ok_or(())
    }
}

impl Class {
    fn entry(self) -> &'static (Class, &'static str, &'static str) {
        let number = self as usize;
        // Those beyond the standard lie behind the others.
        let place = match number.checked_sub(BEYOND_FROM) {
            Some(beyond) => STANDARD + beyond,
            None => number,
        };
        &TEXTS[place]
    }

    /// The standard's name (`MPI_ERR_TRUNCATE`).
    pub fn name(self) -> &'static str {
        self.entry().1
    }

    /// One sentence on what the class means.
    pub fn text(self) -> &'static str {
        self.entry().2
    }
}

/// An error: the class that a program may test, and the sentence that a person reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The standard's class.
    pub class: Class,
    /// Sentence that says what happened, with the values involved.
    pub detail: String,
    /// The code that the call returns, where a callback of the program's or a missing function has
    /// one of its own.
    pub code: Option<i32>,
    /// The status of a message that arrived but could not be received as it is (too long, of other
    /// types).
    pub status: Option<Status>,
}

impl Error {
    /// An error of `class`, described by `detail`.
    pub fn new(class: Class, detail: impl Into<String>) -> Self {
        Self {
            class,
            detail: detail.into(),
            code: None,
            status: None,
        }
    }

    /// A user's callback (attribute copy, generalised request …) returned `code`, which the call
    /// passes on.
    pub fn from_callback(code: i32, detail: impl Into<String>) -> Self {
        Self {
            class: Class::try_from(code).unwrap_or(Class::Other),
            detail: detail.into(),
            code: Some(code),
            status: None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.detail)
    }
}

impl std::error::Error for Error {}

/// Shorthand of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Classes of the standard.
const STANDARD: usize = 63;
/// Number of the first class beyond it.
const BEYOND_FROM: usize = Class::ProcFailed as usize;

/// Every class with its name and meaning, in the order of the numbers.
const TEXTS: [(Class, &str, &str); STANDARD + 3] = [
    (Class::Success, "MPI_SUCCESS", "no error"),
    (Class::Buffer, "MPI_ERR_BUFFER", "invalid buffer pointer"),
    (Class::Count, "MPI_ERR_COUNT", "invalid count"),
    (Class::Type, "MPI_ERR_TYPE", "invalid datatype"),
    (Class::Tag, "MPI_ERR_TAG", "invalid tag"),
    (Class::Comm, "MPI_ERR_COMM", "invalid communicator"),
    (Class::Rank, "MPI_ERR_RANK", "invalid rank"),
    (Class::Request, "MPI_ERR_REQUEST", "invalid request"),
    (Class::Root, "MPI_ERR_ROOT", "invalid root"),
    (Class::Group, "MPI_ERR_GROUP", "invalid group"),
    (Class::Op, "MPI_ERR_OP", "invalid reduction operation"),
    (Class::Topology, "MPI_ERR_TOPOLOGY", "invalid topology"),
    (Class::Dims, "MPI_ERR_DIMS", "invalid dimensions"),
    (Class::Arg, "MPI_ERR_ARG", "invalid argument"),
    (Class::Unknown, "MPI_ERR_UNKNOWN", "unknown error"),
    (
        Class::Truncate,
        "MPI_ERR_TRUNCATE",
        "message truncated: the receive was smaller than the message",
    ),
    (Class::Other, "MPI_ERR_OTHER", "another known error"),
    (
        Class::Intern,
        "MPI_ERR_INTERN",
        "internal error of the MPI library",
    ),
    (
        Class::Pending,
        "MPI_ERR_PENDING",
        "the request has neither failed nor completed",
    ),
    (
        Class::InStatus,
        "MPI_ERR_IN_STATUS",
        "see the error fields of the statuses",
    ),
    (Class::Access, "MPI_ERR_ACCESS", "permission denied"),
    (
        Class::Amode,
        "MPI_ERR_AMODE",
        "invalid access mode of a file",
    ),
    (Class::Assert, "MPI_ERR_ASSERT", "invalid assertion"),
    (Class::BadFile, "MPI_ERR_BAD_FILE", "invalid file name"),
    (Class::Base, "MPI_ERR_BASE", "invalid base address"),
    (
        Class::Conversion,
        "MPI_ERR_CONVERSION",
        "a data conversion function failed",
    ),
    (Class::Disp, "MPI_ERR_DISP", "invalid displacement"),
    (
        Class::DupDatarep,
        "MPI_ERR_DUP_DATAREP",
        "the data representation is already defined",
    ),
    (Class::FileExists, "MPI_ERR_FILE_EXISTS", "the file exists"),
    (Class::FileInUse, "MPI_ERR_FILE_IN_USE", "the file is open"),
    (Class::File, "MPI_ERR_FILE", "invalid file handle"),
    (
        Class::InfoKey,
        "MPI_ERR_INFO_KEY",
        "the info key is too long or empty",
    ),
    (Class::InfoNokey, "MPI_ERR_INFO_NOKEY", "no such info key"),
    (
        Class::InfoValue,
        "MPI_ERR_INFO_VALUE",
        "the info value is too long",
    ),
    (Class::Info, "MPI_ERR_INFO", "invalid info object"),
    (Class::Io, "MPI_ERR_IO", "input or output failed"),
    (Class::Keyval, "MPI_ERR_KEYVAL", "invalid attribute key"),
    (Class::Locktype, "MPI_ERR_LOCKTYPE", "invalid lock type"),
    (Class::Name, "MPI_ERR_NAME", "no such service name"),
    (Class::NoMem, "MPI_ERR_NO_MEM", "out of memory"),
    (
        Class::NotSame,
        "MPI_ERR_NOT_SAME",
        "the arguments differ between the processes",
    ),
    (Class::NoSpace, "MPI_ERR_NO_SPACE", "no space left"),
    (Class::NoSuchFile, "MPI_ERR_NO_SUCH_FILE", "no such file"),
    (Class::Port, "MPI_ERR_PORT", "invalid port name"),
    (Class::Quota, "MPI_ERR_QUOTA", "quota exceeded"),
    (
        Class::ReadOnly,
        "MPI_ERR_READ_ONLY",
        "the file or file system is read-only",
    ),
    (
        Class::RmaAttach,
        "MPI_ERR_RMA_ATTACH",
        "the memory cannot be attached",
    ),
    (
        Class::RmaConflict,
        "MPI_ERR_RMA_CONFLICT",
        "conflicting accesses to a window",
    ),
    (
        Class::RmaRange,
        "MPI_ERR_RMA_RANGE",
        "the target memory is not part of the window",
    ),
    (
        Class::RmaShared,
        "MPI_ERR_RMA_SHARED",
        "the memory cannot be shared",
    ),
    (
        Class::RmaSync,
        "MPI_ERR_RMA_SYNC",
        "wrong synchronisation of one-sided calls",
    ),
    (Class::Service, "MPI_ERR_SERVICE", "invalid service name"),
    (Class::Size, "MPI_ERR_SIZE", "invalid size"),
    (Class::Spawn, "MPI_ERR_SPAWN", "spawning processes failed"),
    (
        Class::UnsupportedDatarep,
        "MPI_ERR_UNSUPPORTED_DATAREP",
        "unsupported data representation",
    ),
    (
        Class::UnsupportedOperation,
        "MPI_ERR_UNSUPPORTED_OPERATION",
        "this operation is not supported",
    ),
    (Class::Win, "MPI_ERR_WIN", "invalid window"),
    (
        Class::RmaFlavor,
        "MPI_ERR_RMA_FLAVOR",
        "the window has the wrong flavor",
    ),
    (
        Class::ProcAborted,
        "MPI_ERR_PROC_ABORTED",
        "a peer process has ended",
    ),
    (
        Class::ValueTooLarge,
        "MPI_ERR_VALUE_TOO_LARGE",
        "the value does not fit its type",
    ),
    (Class::Session, "MPI_ERR_SESSION", "invalid session"),
    (
        Class::Errhandler,
        "MPI_ERR_ERRHANDLER",
        "invalid error handler",
    ),
    (
        Class::AbiVersion,
        "MPI_ERR_ABI",
        "the library does not support this ABI",
    ),
    (
        Class::ProcFailed,
        "MPIX_ERR_PROC_FAILED",
        "a process that the call needs has died",
    ),
    (
        Class::ProcFailedPending,
        "MPIX_ERR_PROC_FAILED_PENDING",
        "a possible sender has died, and the receive is still open",
    ),
    (
        Class::Revoked,
        "MPIX_ERR_REVOKED",
        "the communicator was revoked",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_texts_is_in_the_order_of_the_numbers() {
        for (index, (class, name, _)) in TEXTS[..STANDARD].iter().enumerate() {
            assert_eq!(*class as usize, index, "{name}");
        }
        for (class, name, _) in &TEXTS {
            assert_eq!(class.name(), *name);
        }
    }
}
