//! The only source of atomics for what several workers share without a lock, so that loom can try
//! every order (`RUSTFLAGS="--cfg loom" cargo test -p garonne-fiber --lib --release`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Between two looks at something that another thread is about to change.
pub(crate) fn relax() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}
