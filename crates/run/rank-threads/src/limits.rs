//! Bounds of a shared process, each with its reason.

/// Exit code of a rank whose program cannot be loaded, as shells have it.
pub(crate) const EXIT_CANNOT_START: i32 = 127;

/// Least number of a descriptor under which a library is loaded. Lower numbers are the program's.
pub(crate) const LIBRARY_NUMBER_MIN: u32 = 1200;

/// Bytes of thread-local variables that a program may have; `link.sh` keeps the place free.
pub(crate) const THREAD_LOCALS_MAX: usize = 32768;

/// Bytes of the stack on which a rank handles signals.
pub(crate) const SIGNAL_STACK_BYTES: usize = 128 << 10;

/// Bytes of a rank's stack where the limit of stacks is none. Pages that are not used cost nothing.
pub(crate) const STACK_BYTES_UNLIMITED: usize = 256 << 20;

/// Times that a stand-in asks for its shared process before it gives up, a millisecond apart: who
/// listens has bound the name already.
pub(crate) const CONNECTION_TRIES: u32 = 10_000;

/// Bytes that the libraries of one rank may have of thread-local variables at fixed places. Each
/// thread of a shared process has room for those of all its ranks.
pub(crate) const STATIC_THREAD_LOCALS: usize = 1024;
