//! The only source of atomics for what several workers share without a lock, so that loom can try
//! every order (`RUSTFLAGS="--cfg loom" cargo test -p garonne-fiber --lib --release`).

#[cfg(not(loom))]
pub(crate) use garonne_sync::mutex::lock;
#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicUsize, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex,
    atomic::{AtomicU32, AtomicUsize, Ordering, fence},
};

/// Locks loom's mutex, which no panic poisons.
#[cfg(loom)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

/// Between two looks at something that another thread is about to change.
pub(crate) fn relax() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}
