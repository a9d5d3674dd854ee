//! The only source of atomics and contended locks for tasks and events, so that shuttle can replace
//! the machine and choose the next thread (`RUSTFLAGS="--cfg shuttle" cargo test -p
//! garonne-progress --lib`).

#[cfg(not(shuttle))]
pub(crate) use std::sync::{
    Condvar, Mutex,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{
    Condvar, Mutex,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
};

/// What each thread has for itself.
#[cfg(shuttle)]
pub(crate) use shuttle::thread_local;
#[cfg(not(shuttle))]
pub(crate) use std::thread_local;

pub(crate) use garonne_sync::mutex::lock;
