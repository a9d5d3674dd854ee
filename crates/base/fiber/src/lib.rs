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

#[cfg(not(loom))]
mod barrier;
#[cfg(not(loom))]
mod borrowed_stack;
#[cfg(not(loom))]
mod clock;
#[cfg(not(loom))]
mod completion;
#[cfg(not(loom))]
mod condvar;
#[cfg(not(loom))]
mod context;
mod facade;
#[cfg(not(loom))]
mod guest;
#[cfg(not(loom))]
mod identity;
#[cfg_attr(loom, allow(dead_code))]
mod idle_workers;
#[cfg(not(loom))]
mod keypoint;
#[cfg_attr(loom, allow(dead_code))]
pub mod limits;
#[cfg(not(loom))]
mod local;
#[cfg(not(loom))]
pub mod measure;
#[cfg(not(loom))]
mod mutex;
#[cfg_attr(loom, allow(dead_code))]
mod mutex_word;
#[cfg(not(loom))]
mod once;
#[cfg(not(loom))]
mod overflow;
#[cfg_attr(loom, allow(dead_code))]
mod park_state;
#[cfg(not(loom))]
mod parking_lot;
#[cfg(not(loom))]
mod place;
#[cfg(not(loom))]
mod posix_thread;
#[cfg_attr(loom, allow(dead_code))]
mod priority;
#[cfg_attr(loom, allow(dead_code))]
mod run_queues;
#[cfg(not(loom))]
mod runtime;
#[cfg(not(loom))]
mod scheduler;
#[cfg_attr(loom, allow(dead_code))]
mod seat_holder;
#[cfg(not(loom))]
mod semaphore;
#[cfg(not(loom))]
mod simulation;
#[cfg(not(loom))]
mod spawn;
#[cfg(not(loom))]
mod stack;
#[cfg(not(loom))]
mod timers;
#[cfg(not(loom))]
mod wait_queue;
#[cfg_attr(loom, allow(dead_code))]
mod waiting_count;

#[cfg(not(loom))]
pub use barrier::Barrier;
#[cfg(not(loom))]
pub use borrowed_stack::SleepStack;
#[cfg(not(loom))]
pub use completion::Completion;
#[cfg(not(loom))]
pub use condvar::Condvar;
#[cfg(not(loom))]
pub use context::on_worker_stack;
#[cfg(not(loom))]
pub use guest::{
    GuestHost, GuestScheduler, ReadyFiber, enter_guest, guest, guest_number, leave_guest,
};
#[cfg(not(loom))]
pub use identity::Identity;
#[cfg(not(loom))]
pub use keypoint::{Keypoint, attach_library, set_keypoint, suspend_in_library_waits};
#[cfg(not(loom))]
pub use local::{FiberLocal, Key};
#[cfg(not(loom))]
pub use mutex::{Mutex, MutexGuard, RawMutex};
#[cfg(not(loom))]
pub use once::Once;
#[cfg(not(loom))]
pub use parking_lot::{ParkOutcome, Parker, ParkingLot};
#[cfg(not(loom))]
pub use place::Place;
#[cfg(not(loom))]
pub use posix_thread::PosixThread;
pub use priority::Priority;
#[cfg(not(loom))]
pub use runtime::{blocking, now, start_workers, worker_cpus, worker_threads, workers};
#[cfg(not(loom))]
pub use semaphore::Semaphore;
#[cfg(not(loom))]
pub use simulation::{Outcome, Simulation};
#[cfg(not(loom))]
pub use spawn::{
    Builder, FiberHandle, JoinHandle, Pin, caller, current, exit, machine, pin, queued, sleep,
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
