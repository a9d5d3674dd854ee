//! `libgaronne_pthread.so.1`: POSIX threads of unmodified programs as fibers.
//!
//! The library is loaded before the C library's functions are looked for. Each thread of the
//! program is a thread of the C library that workers run on its own stack, with its own control
//! block ([`garonne_fiber::PosixThread`]). So thread-local variables, `errno`, keys, bounds of the
//! stack and `pthread_self` are what they were. Words of mutexes, locks and semaphores keep the C
//! library's meaning; waits for them suspend the fiber. What only the kernel's thread can do, a
//! thread does bound: it goes on as its kernel thread meanwhile, or for ever.

#![allow(
    clippy::missing_safety_doc,
    reason = "programs call the entry points as they call the C library's"
)]
#![allow(missing_docs, reason = "names are those of the C library")]

mod allocator;
mod barrier;
mod blocking;
mod condition;
mod layout;
mod mutex;
mod of_kernel;
mod real;
mod record;
mod report;
mod rwlock;
mod semaphore;
mod sleep;
mod thread;
mod time;
