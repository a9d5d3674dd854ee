//! Error handlers as values (MPI 5.0 section 9.3). Communicators, windows, files and sessions own
//! one each; the edge, where errors meet the program, does what they say.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// The reaction to a failed call on an object.
#[derive(Clone, Debug, Default)]
pub enum Errhandler {
    /// `MPI_ERRORS_ARE_FATAL`: the whole job ends.
    #[default]
    Fatal,
    /// `MPI_ERRORS_ABORT`: the processes of the object end.
    Abort,
    /// `MPI_ERRORS_RETURN`: the call returns the code.
    Return,
    /// The program's function is called, then the call returns the code.
    User(Arc<UserHandler>),
    /// `MPI::ERRORS_THROW_EXCEPTIONS` of the ABI whose word this is: the call returns the code to
    /// that MPI's C++ library.
    Cxx(usize),
}

/// Which kind of object a user's handler is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrhandlerKind {
    /// Communicators.
    Comm,
    /// Windows.
    Window,
    /// Files.
    File,
    /// Sessions.
    Session,
}

/// The function of a program's error handler.
pub trait ErrhandlerCallback: Any + Send + Sync {
    /// Calls the function with the edge's handle of the object and the error code. It may not
    /// return.
    fn call(&self, object: usize, code: i32);
}

/// A program's error handler.
pub struct UserHandler {
    /// Kind of object that the handler may be attached to.
    pub kind: ErrhandlerKind,
    /// The function.
    pub callback: Box<dyn ErrhandlerCallback>,
    /// The edge's handle of this handler, 0 while it has none, so that `MPI_*_get_errhandler` gives
    /// the same again.
    pub handle: AtomicUsize,
    /// Number of times that the program was given that handle and has not freed it.
    pub given: AtomicUsize,
}

impl fmt::Debug for UserHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserHandler")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl Errhandler {
    /// A handler that calls the program's function.
    pub fn user(kind: ErrhandlerKind, callback: Box<dyn ErrhandlerCallback>) -> Self {
        Errhandler::User(Arc::new(UserHandler {
            kind,
            callback,
            handle: AtomicUsize::new(0),
            given: AtomicUsize::new(0),
        }))
    }

    /// Returns whether it may be attached to objects of this kind.
    pub fn fits(&self, kind: ErrhandlerKind) -> bool {
        match self {
            Errhandler::User(user) => user.kind == kind,
            _ => true,
        }
    }
}
