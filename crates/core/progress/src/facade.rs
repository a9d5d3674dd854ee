//! The only source of atomics and contended locks for tasks and events, so that shuttle can replace
//! the machine and choose the next thread (`RUSTFLAGS="--cfg shuttle" cargo test -p
//! garonne-progress --lib`).

#[cfg(not(shuttle))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
};

/// What each thread has for itself.
#[cfg(shuttle)]
pub(crate) use shuttle::thread_local;
#[cfg(not(shuttle))]
pub(crate) use std::thread_local;

/// Takes a lock, also one whose holder panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
