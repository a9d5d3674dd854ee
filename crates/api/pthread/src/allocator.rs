//! Memory of this library: always the C library's, by names that no program replaces.
//!
//! A program's own allocator may take mutexes, whose waits allocate in this library.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(memory: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
    fn __libc_free(memory: *mut c_void);
}

/// Alignment that the C library gives unasked.
const ALIGNED: usize = 16;

struct LibraryMemory;

// SAFETY: the C library's allocator does what the trait asks for, with the alignment that is given.
unsafe impl GlobalAlloc for LibraryMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and any power of two may be asked for.
        let memory = unsafe {
            match layout.align() {
                ..=ALIGNED => __libc_malloc(layout.size()),
                align => __libc_memalign(align, layout.size()),
            }
        };
        memory.cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNED {
            // SAFETY: any size may be asked for.
            return unsafe { __libc_calloc(1, layout.size()) }.cast();
        }
        // SAFETY: the caller's layout; the memory has its size.
        unsafe {
            let memory = self.alloc(layout);
            if !memory.is_null() {
                memory.write_bytes(0, layout.size());
            }
            memory
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: the memory came from here.
        unsafe { __libc_free(memory.cast()) };
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= ALIGNED {
            // SAFETY: the memory came from here.
            return unsafe { __libc_realloc(memory.cast(), size) }.cast();
        }
        // SAFETY: the caller's layout with another size, which the caller vouches for.
        unsafe {
            let next = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !next.is_null() {
                next.copy_from_nonoverlapping(memory, layout.size().min(size));
                self.dealloc(memory, layout);
            }
            next
        }
    }
}

#[global_allocator]
static MEMORY: LibraryMemory = LibraryMemory;
