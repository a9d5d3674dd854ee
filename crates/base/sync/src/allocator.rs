//! The allocator of Garonne's processes: the C library's, with a handler for lack of memory.
//!
//! The standard library would end the process with a message of its own. This allocator calls a
//! handler that names the limit that was reached. A library or program declares one as its
//! `#[global_allocator]`. Code that can do without some memory allocates it within [`may_fail`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Whoever asks is told that there is none.
    static MAY_FAIL: Cell<bool> = const { Cell::new(false) };
}

/// The C library's allocator, with a handler that is called when there is no memory.
#[derive(Debug)]
pub struct ReportingAllocator {
    refused: fn(usize),
}

impl ReportingAllocator {
    /// `refused` is told how many bytes there are no more, and is not to return; it must not ask
    /// for memory itself.
    pub const fn new(refused: fn(usize)) -> Self {
        Self { refused }
    }

    fn got(&self, memory: *mut u8, size: usize) -> *mut u8 {
        if memory.is_null() {
            self.got_none(size);
        }
        memory
    }

    #[cold]
    #[inline(never)]
    fn got_none(&self, size: usize) {
        // A thread that ends has no such mark any more, nor anything that may fail.
        if !MAY_FAIL.try_with(Cell::get).unwrap_or(false) {
            (self.refused)(size);
        }
    }
}

// SAFETY: all of it is the system's allocator; what is done in between does not ask for memory and
// does not unwind.
unsafe impl GlobalAlloc for ReportingAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        self.got(unsafe { System.alloc(layout) }, layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        self.got(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        self.got(unsafe { System.realloc(memory, layout, size) }, size)
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Asks for memory that may not be had: `ask` is told so, and the process goes on.
pub fn may_fail<T>(ask: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            MAY_FAIL.set(self.0);
        }
    }
    let _before = Before(MAY_FAIL.replace(true));
    ask()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static TOLD: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn what_is_not_there_is_told_unless_whoever_asks_can_do_without() {
        let heap = ReportingAllocator::new(|size| TOLD.store(size, Ordering::Relaxed));
        let ask = |size: usize| {
            let layout = Layout::from_size_align(size, 8).unwrap();
            // SAFETY: the size is not zero; what comes is given back as it came.
            unsafe {
                let memory = heap.alloc(layout);
                if !memory.is_null() {
                    heap.dealloc(memory, layout);
                }
                !memory.is_null()
            }
        };
        let too_much = isize::MAX as usize - 64;
        assert!(ask(64) && TOLD.load(Ordering::Relaxed) == 0);
        assert!(!may_fail(|| ask(too_much)) && TOLD.load(Ordering::Relaxed) == 0);
        assert!(!ask(too_much) && TOLD.load(Ordering::Relaxed) == too_much);
    }
}
