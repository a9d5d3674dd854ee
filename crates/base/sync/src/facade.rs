//! The only source of atomics, cells and threads for lock-free code of this crate, so that loom or
//! shuttle can replace the machine. Nothing else in the crate names `std::sync::atomic`, `loom` or
//! `shuttle`.

#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// What each thread has for itself.
#[cfg(loom)]
pub(crate) use loom::thread_local;
#[cfg(shuttle)]
pub(crate) use shuttle::thread_local;

/// A thread's sleep until it is called.
#[cfg(all(test, loom))]
pub(crate) use loom::sync::Notify;

/// A cell whose accesses loom checks for races.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct Cell<T>(loom::cell::UnsafeCell<T>);

/// A cell that is reached through raw pointers only.
#[cfg(not(any(loom, shuttle)))]
#[derive(Debug)]
pub(crate) struct Cell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(shuttle))]
impl<T> Cell<T> {
    #[cfg(loom)]
    pub(crate) fn new(value: T) -> Self {
        Self(loom::cell::UnsafeCell::new(value))
    }

    #[cfg(not(loom))]
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with a pointer for reading, which several threads may do at once.
    #[cfg(all(test, loom))]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        self.0.with(f)
    }

    /// Calls `f` with a pointer for reading and writing.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        #[cfg(loom)]
        return self.0.with_mut(f);
        #[cfg(not(loom))]
        f(self.0.get())
    }
}

/// Asks for the cache line at `address`, for writing. A hint: it neither waits nor faults.
#[inline(always)]
pub(crate) fn prefetch_to_write<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: a prefetch has no effect that the program could see, at whatever address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = address;
}

/// Between two looks at something that another thread is about to change.
#[inline]
pub(crate) fn relax() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
    #[cfg(not(any(loom, shuttle)))]
    std::hint::spin_loop();
}

/// The caller, as a number that no other waiter has. 0 under loom.
pub(crate) fn me() -> usize {
    #[cfg(loom)]
    return 0;
    #[cfg(not(loom))]
    crate::waiter::current_id().number()
}

/// Between a SeqCst write of one word and a SeqCst read of another. Their places in the one order
/// of all SeqCst operations already say that of two threads that each write one word and read the
/// other's, one sees the other; loom treats such operations as AcqRel only, and knows that order
/// from fences.
#[inline]
pub(crate) fn total_order() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}
