//! The only source of atomics for what threads of a team share without a lock, so that loom can try
//! every order (`RUSTFLAGS="--cfg loom" cargo test -p garonne-openmp --lib --release`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Between two sequentially consistent operations. The language orders them by itself; loom takes
/// them for acquire and release.
pub(crate) fn fence_of_model() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}
