//! Memory of this library, apart from the program's.
//!
//! A program's own allocator may take mutexes, whose waits allocate in this library. The C
//! library's reserves large mappings for each thread that asks it. So pieces of powers of two come
//! from chunks here, under one lock; a large piece is a mapping. Starts of threads reserve memory
//! ahead ([`reserve`]), so that what a running thread needs is there.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a chunk: some dozen threads with all that they need.
const CHUNK: usize = 1 << 20;

/// Bytes of the least piece: a cache line holds four.
const PIECE_MIN: usize = 16;

/// Bytes of the largest piece of a chunk; larger ones are mappings.
const PIECE_MAX: usize = 32 << 10;

/// Alignment that mappings and chunks have.
const PAGE: usize = 4096;

/// Number of sizes of pieces.
const CLASSES: usize = (PIECE_MAX / PIECE_MIN).ilog2() as usize + 1;

struct Chunks {
    /// First free piece of each size; its first word is the address of the next.
    free: [usize; CLASSES],
    /// What nobody has had of the last chunk.
    rest: usize,
    end: usize,
}

static CHUNKS: Mutex<Chunks> = Mutex::new(Chunks {
    free: [0; CLASSES],
    rest: 0,
    end: 0,
});

fn chunks() -> MutexGuard<'static, Chunks> {
    CHUNKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nobody else allocates while the value lives: for a new process, which has the caller alone.
pub(crate) fn stop() -> impl Drop {
    chunks()
}

/// Maps memory; 0: the system gives none.
fn map(bytes: usize) -> usize {
    // SAFETY: a new mapping touches no other one.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        0
    } else {
        memory as usize
    }
}

/// Makes sure that so many bytes are there. `false`: the system gives no memory.
pub(crate) fn reserve(bytes: usize) -> bool {
    let mut chunks = chunks();
    chunks.end - chunks.rest >= bytes || chunks.grow(bytes)
}

impl Chunks {
    fn grow(&mut self, bytes: usize) -> bool {
        let bytes = bytes.next_multiple_of(CHUNK);
        let chunk = map(bytes);
        if chunk != 0 {
            (self.rest, self.end) = (chunk, chunk + bytes);
        }
        chunk != 0
    }

    /// Whole pages of what is left: for large pieces where the system maps no more.
    fn take_pages(&mut self, bytes: usize) -> usize {
        let piece = self.rest.next_multiple_of(PAGE);
        let end = piece + bytes.next_multiple_of(PAGE);
        if self.end == 0 || end > self.end {
            return 0;
        }
        self.rest = end;
        piece
    }

    fn take(&mut self, class: usize) -> usize {
        let size = PIECE_MIN << class;
        let free = self.free[class];
        if free != 0 {
            // SAFETY: the piece is free, and its first word was written when it became so.
            self.free[class] = unsafe { *(free as *const usize) };
            return free;
        }
        loop {
            let piece = self.rest.next_multiple_of(size.min(PAGE));
            if self.end != 0 && piece + size <= self.end {
                self.rest = piece + size;
                return piece;
            }
            if !self.grow(CHUNK) {
                return 0;
            }
        }
    }

    fn give_back(&mut self, class: usize, piece: usize) {
        // SAFETY: the piece is of this class, and nobody uses it any more.
        unsafe { *(piece as *mut usize) = self.free[class] };
        self.free[class] = piece;
    }
}

/// Size of pieces that serve a layout; `None`: a mapping does.
fn class(layout: Layout) -> Option<usize> {
    let size = layout.size().max(layout.align()).max(PIECE_MIN);
    let size = size.next_power_of_two();
    (size <= PIECE_MAX).then(|| (size / PIECE_MIN).ilog2() as usize)
}

struct LibraryMemory;

// SAFETY: pieces of a class have its size, are aligned by it up to a page, and belong to one owner.
unsafe impl GlobalAlloc for LibraryMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let memory = match class(layout) {
            _ if layout.align() > PAGE => 0,
            Some(class) => chunks().take(class),
            None => match map(layout.size()) {
                0 => chunks().take_pages(layout.size()),
                mapped => mapped,
            },
        };
        memory as *mut u8
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match class(layout) {
            Some(class) => chunks().give_back(class, memory as usize),
            // SAFETY: `alloc` gave these pages, which nobody uses any more.
            None => _ = unsafe { libc::munmap(memory.cast(), layout.size()) },
        }
    }
}

#[global_allocator]
static MEMORY: LibraryMemory = LibraryMemory;
