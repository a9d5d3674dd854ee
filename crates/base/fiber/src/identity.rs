//! Identities towards the C library: a fiber that runs compiled C code as a thread of its own.
//!
//! An identity is the control block of a thread that sleeps for ever. The worker that runs a fiber
//! with an identity sets its thread pointer to that block. So thread-local variables, `errno`,
//! `pthread_self`, owners of mutexes and the allocator's cache belong to the fiber, and go with it
//! to another worker. What stays with the worker: `gettid`, signals sent to one thread, affinity.

mod sys;

use std::io;

/// The identity of one fiber at a time. Its thread is never ended, so keep and reuse identities.
#[derive(Debug)]
pub struct Identity(usize);

impl Identity {
    /// Starts a thread that lends its control block.
    ///
    /// # Errors
    /// The system starts no further thread.
    pub fn new() -> io::Result<Self> {
        sys::sleeping_thread().map(Self)
    }

    /// What the calling thread is.
    pub(crate) fn of_caller() -> Self {
        Self(sys::thread_pointer())
    }

    /// Tells whether the caller is it.
    pub(crate) fn is_caller(&self) -> bool {
        sys::thread_pointer() == self.0
    }

    /// Runs `body` with the identity's thread pointer.
    ///
    /// `body` must not be inlined: addresses of thread-local variables that were computed before
    /// would be those of the worker.
    pub(crate) fn act_as(&self, body: &mut dyn FnMut()) {
        sys::with_thread_pointer(self.0, body);
    }
}
