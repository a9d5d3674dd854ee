//! Fibers: threads in user space, over one worker per usable CPU and run queues that mirror the
//! machine.
//!
//! A fiber has a stack of its own with a guard below it, and is switched without the kernel. What
//! waits in a primitive of this crate suspends its fiber; the worker goes on with others. Calls
//! that block in the kernel go into [`blocking`]; workers that are stuck without it are replaced.
//! Primitives also serve threads that run no fiber, which then sleep.
//!
//! A fiber may go on in another thread after any wait. So references to thread-local values must
//! not live across one, unless the fiber is pinned ([`pin`]).

mod barrier;
mod clock;
mod condvar;
mod context;
mod facade;
mod idle_workers;
mod keypoint;
pub mod limits;
mod local;
mod mutex;
mod once;
mod overflow;
mod park_state;
mod place;
mod run_queues;
mod runtime;
mod scheduler;
mod semaphore;
mod simulation;
mod spawn;
mod stack;
mod timers;
mod wait_queue;

pub use barrier::Barrier;
pub use condvar::Condvar;
pub use keypoint::{Keypoint, set_keypoint, suspend_in_library_waits};
pub use local::{FiberLocal, Key};
pub use mutex::{Mutex, MutexGuard, RawMutex};
pub use once::Once;
pub use place::Place;
pub use runtime::{blocking, worker_cpus, workers};
pub use semaphore::Semaphore;
pub use simulation::{Outcome, Simulation};
pub use spawn::{
    Builder, FiberHandle, JoinHandle, Pin, Priority, current, exit, machine, pin, queued, sleep,
    spawn, yield_now,
};

/// Why a fiber cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// More than [`limits::STACK_MAX`].
    #[error("a stack of {0} bytes is larger than any fiber may have")]
    StackTooLarge(usize),
    /// The system gives no memory for a stack, or no guard.
    #[error("no stack for a fiber: {0}")]
    Stack(std::io::Error),
    /// The place names no area of this machine.
    #[error("the machine has no place {0} that this process may use")]
    NoPlace(String),
    /// The process may use no CPU of the machine's tree.
    #[error("this process may use no CPU")]
    NoCpu,
}
