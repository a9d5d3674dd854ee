//! Identity of an MPI call, its error type, and the raising of errors.
//!
//! A body returns a [`CallError`]. The generated wrapper passes the result to [`return_code`],
//! which raises the error on the error handler of the call's object. No code here runs in a call
//! that succeeds.

use crate::c_args::Ptr;
use crate::handle::{
    MPI_Comm, MPI_Count, MPI_Datatype, MPI_Errhandler, MPI_File, MPI_Session, MPI_Win,
};
use crate::wrappers::{NAMES, UNIMPLEMENTED};
use garonne_engine::api::{CallOrigin, TypeDigest};
use garonne_mpi::comm::Comm;
use garonne_mpi::datatype::kind_of;
use garonne_mpi::errhandler::ErrhandlerKind;
use garonne_mpi::error::{Class, Error};
use std::ffi::c_int;

/// A function of the table by its number, from 1; the index into [`NAMES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CallId(pub u16);

impl CallId {
    /// `MPI_Send`.
    pub fn name(self) -> &'static str {
        NAMES[self.0 as usize]
    }

    /// The function of this name.
    pub fn named(name: &str) -> Option<Self> {
        let found = NAMES.iter().position(|other| *other == name)?;
        u16::try_from(found).ok().map(Self)
    }

    /// Returns the origin (function and call site) that requests and events record. Must be called
    /// before any callback of the program runs, because a callback may overwrite the call site.
    #[inline(always)]
    pub fn origin(self) -> CallOrigin {
        CallOrigin {
            call: self.0,
            datatype: 0,
            digest: TypeDigest::NONE,
            site: crate::entry::call_site(),
        }
    }

    /// Returns `Call::origin` with the type of the data that the call sends or receives.
    #[inline(always)]
    pub fn origin_of(self, count: MPI_Count, datatype: MPI_Datatype) -> CallOrigin {
        CallOrigin {
            datatype: kind_of(datatype.0),
            digest: crate::optional_checks::type_mark(count, datatype),
            ..self.origin()
        }
    }
}

/// The object on whose error handler a failure of a call is raised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ErrorObject {
    /// A communicator.
    Comm(MPI_Comm),
    /// A window.
    Win(MPI_Win),
    /// A file.
    File(MPI_File),
    /// A session.
    Session(MPI_Session),
    /// An object of this kind that the call creates with this error handler.
    New(MPI_Errhandler, ErrhandlerKind),
    /// None in particular.
    None,
}

impl ErrorObject {
    /// The communicator whose handle is there when the call begins.
    pub fn comm_at(place: Ptr<MPI_Comm>) -> Self {
        place.get().map_or(ErrorObject::None, ErrorObject::Comm)
    }

    /// The window whose handle is there when the call begins.
    pub fn win_at(place: Ptr<MPI_Win>) -> Self {
        place.get().map_or(ErrorObject::None, ErrorObject::Win)
    }

    /// The file whose handle is there when the call begins.
    pub fn file_at(place: Ptr<MPI_File>) -> Self {
        place.get().map_or(ErrorObject::None, ErrorObject::File)
    }

    /// The session whose handle is there when the call begins.
    pub fn session_at(place: Ptr<MPI_Session>) -> Self {
        place.get().map_or(ErrorObject::None, ErrorObject::Session)
    }
}

/// The reason why a call failed. Boxed, so that the result of a successful call is one word.
#[derive(Debug)]
pub struct CallError(Box<CallErrorParts>);

struct CallErrorParts {
    error: Error,
    comm: Option<Comm>,
}

impl std::fmt::Debug for CallErrorParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

/// The result of a body.
pub(crate) type Result<T, E = CallError> = std::result::Result<T, E>;

impl CallError {
    /// A fault of a class of the standard.
    #[cold]
    pub fn new(class: Class, detail: impl Into<String>) -> Self {
        Self::from(Error::new(class, detail))
    }

    /// Raises the error on `comm` instead of the call's own argument. Used for requests, whose
    /// communicator is no argument of the call.
    pub fn on_comm(mut self, comm: Option<Comm>) -> Self {
        self.0.comm = comm;
        self
    }

    /// Returns the communicator on which the error is raised, if that is not the call's own
    /// argument.
    pub fn comm(&self) -> Option<&Comm> {
        self.0.comm.as_ref()
    }

    /// Returns the error.
    pub fn error(&self) -> &Error {
        &self.0.error
    }
}

impl From<Error> for CallError {
    #[cold]
    fn from(error: Error) -> Self {
        Self(Box::new(CallErrorParts { error, comm: None }))
    }
}

/// Turns a body's result into the C result.
#[inline(always)]
pub(crate) fn return_code(call: CallId, holder: ErrorObject, result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(fault) => crate::errhandler::raise(call, holder, fault),
    }
}

/// Raises the error of a call whose pointer to a result is null.
#[cold]
#[inline(never)]
pub(crate) fn raise_null_output(
    call: CallId,
    holder: ErrorObject,
    argument: &'static str,
) -> c_int {
    let detail = format!("{argument} is a null pointer: there is no place for what the call gives");
    crate::errhandler::raise(call, holder, CallError::new(Class::Arg, detail))
}

/// Returns the error for a call in a forked child.
#[cold]
#[inline(never)]
pub(crate) fn forked_child_error() -> CallError {
    let rank = crate::init_state::find_process().map_or(String::from("a rank"), |process| {
        format!("rank {}", process.host.me())
    });
    // SAFETY: neither call takes an argument or fails.
    let (own, parent) = unsafe { (libc::getpid(), libc::getppid()) };
    let detail = format!(
        "error[G0109]: process {own} is a forked child of {rank} (process {parent}): what its parent communicates with is not the child's"
    );
    CallError::new(Class::Other, detail)
}

/// The answer to a forked child.
#[cold]
#[inline(never)]
pub(crate) fn raise_in_forked(call: CallId, holder: ErrorObject) -> c_int {
    crate::errhandler::raise(call, holder, forked_child_error())
}

/// The code of the first function of the table that is not there; above all predefined classes and
/// codes of the ABI, and with the whole table below `MPI_ERR_LASTCODE`, above which the program's
/// own codes begin.
const UNIMPLEMENTED_FIRST: c_int = 8192;
/// Above the code of the last function of the table.
pub(crate) const UNIMPLEMENTED_END: c_int = UNIMPLEMENTED_FIRST + NAMES.len() as c_int;
const _: () = assert!(UNIMPLEMENTED_END < crate::constants::MPI_ERR_LASTCODE);

/// Returns the message for a function that is not implemented.
fn unimplemented_text(call: CallId) -> String {
    if ["ompi_info_", "opal_"]
        .iter()
        .any(|start| call.name().starts_with(start))
    {
        return format!(
            "{} is a part of Open MPI, whose tools run outside of `garonne run`, or with `--abi off`",
            call.name()
        );
    }
    format!(
        "{} is not implemented; docs/user/conformance.md says what is, and docs/user/binaries.md which extensions of other MPIs are not (an install has them in share/doc/garonne)",
        call.name()
    )
}

/// The function that an error code of the class `MPI_ERR_UNSUPPORTED_OPERATION` stands for, as a
/// sentence.
pub(crate) fn unimplemented_string(code: c_int) -> Option<String> {
    let number = u16::try_from(code.checked_sub(UNIMPLEMENTED_FIRST)?).ok()?;
    UNIMPLEMENTED.binary_search(&number).ok()?;
    let class = Class::UnsupportedOperation.name();
    Some(format!("{class}: {}", unimplemented_text(CallId(number))))
}

/// The answer of a function that is not there yet: a code of its own, so that `MPI_Error_string`
/// can name the function.
#[cold]
#[inline(never)]
#[allow(dead_code, reason = "the table may have no missing function")]
pub(crate) fn raise_unimplemented(call: CallId, holder: ErrorObject) -> c_int {
    let mut error = Error::new(Class::UnsupportedOperation, unimplemented_text(call));
    error.code = Some(UNIMPLEMENTED_FIRST + c_int::from(call.0));
    crate::errhandler::raise(call, holder, CallError::from(error))
}
