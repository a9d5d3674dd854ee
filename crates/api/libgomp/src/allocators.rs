//! Memory by allocators: `omp_alloc` and its kin.

use crate::fatal;
use garonne_openmp::current;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Handles up to this one are predefined.
const PREDEFINED_MAX: usize = 8;
const DEFAULT: usize = 1;
const HIGH_BANDWIDTH_SPACE: usize = 3;
const SPACES_MAX: usize = 4;

// Keys of traits.
const SYNC_HINT: c_int = 1;
const ALIGNMENT: c_int = 2;
const ACCESS: c_int = 3;
const POOL_SIZE: c_int = 4;
const FALLBACK: c_int = 5;
const FALLBACK_DATA: c_int = 6;
const PINNED: c_int = 7;
const PARTITION: c_int = 8;

// Values of traits.
const VALUE_DEFAULT: usize = usize::MAX;
const DEFAULT_MEMORY: usize = 11;
const NULL: usize = 12;
const ABORT: usize = 13;
const OTHER_ALLOCATOR: usize = 14;

/// A trait of an allocator, as programs pass it.
#[repr(C)]
pub struct Trait {
    key: c_int,
    value: usize,
}

/// An allocator of the program.
struct Allocator {
    alignment: usize,
    pool: usize,
    used: AtomicUsize,
    fallback: usize,
    fallback_allocator: usize,
}

/// What stands before a block: what `free` and `realloc` need.
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    block: *mut c_void,
    bytes: usize,
    charged: usize,
    allocator: usize,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_init_allocator(
    space: usize,
    count: c_int,
    traits: *const Trait,
) -> usize {
    let mut allocator = Allocator {
        alignment: size_of::<usize>(),
        pool: usize::MAX,
        used: AtomicUsize::new(0),
        fallback: DEFAULT_MEMORY,
        fallback_allocator: 0,
    };
    if space > SPACES_MAX || space == HIGH_BANDWIDTH_SPACE {
        return 0;
    }
    for at in 0..count.max(0) as usize {
        // SAFETY: the program passes so many traits.
        let Trait { key, value } = unsafe { traits.add(at).read() };
        let is_default = value == VALUE_DEFAULT;
        let is_known = match key {
            SYNC_HINT => is_default || (3..=6).contains(&value),
            ALIGNMENT if is_default => true,
            ALIGNMENT => {
                allocator.alignment = value.max(size_of::<usize>());
                value.is_power_of_two()
            }
            ACCESS => is_default || (7..=10).contains(&value),
            POOL_SIZE => {
                allocator.pool = value;
                true
            }
            FALLBACK => {
                allocator.fallback = if is_default { DEFAULT_MEMORY } else { value };
                is_default || (DEFAULT_MEMORY..=OTHER_ALLOCATOR).contains(&value)
            }
            FALLBACK_DATA => {
                allocator.fallback_allocator = value;
                true
            }
            // Pinned memory is not offered.
            PINNED => is_default || value == 0,
            PARTITION => is_default || (15..=18).contains(&value),
            _ => false,
        };
        if !is_known {
            return 0;
        }
    }
    Box::into_raw(Box::new(allocator)) as usize
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_destroy_allocator(allocator: usize) {
    if allocator > PREDEFINED_MAX {
        // SAFETY: a handle that is not predefined is the address that `omp_init_allocator` made.
        drop(unsafe { Box::from_raw(allocator as *mut Allocator) });
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_set_default_allocator(allocator: usize) {
    let allocator = if allocator == 0 { DEFAULT } else { allocator };
    current().set_icv(|icv| icv.allocator = allocator);
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_get_default_allocator() -> usize {
    current().icv().allocator
}

/// The allocator of a handle; `None`: a predefined one.
unsafe fn find<'a>(handle: usize) -> Option<&'a Allocator> {
    // SAFETY: a handle that is not predefined is the address that `omp_init_allocator` made.
    (handle > PREDEFINED_MAX).then(|| unsafe { &*(handle as *const Allocator) })
}

fn out_of_memory(bytes: usize) -> ! {
    fatal(&format!("Out of memory allocating {bytes} bytes"))
}

/// Takes memory from one allocator, without its fallback.
unsafe fn take(alignment: usize, bytes: usize, handle: usize, zeroed: bool) -> *mut c_void {
    // SAFETY: as there.
    let allocator = unsafe { find(handle) };
    let own = allocator.map_or(1, |allocator| allocator.alignment);
    let alignment = alignment.max(own).max(align_of::<Header>());
    let room = size_of::<Header>() + alignment - 1;
    let Some(all) = bytes.checked_add(room) else {
        return std::ptr::null_mut();
    };
    let charged = match allocator {
        Some(allocator) if allocator.pool != usize::MAX => {
            let more = |used: usize| used.checked_add(all).filter(|used| *used <= allocator.pool);
            let charged = allocator
                .used
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
            if charged.is_err() {
                return std::ptr::null_mut();
            }
            all
        }
        _ => 0,
    };
    // SAFETY: the block has room for the header, the alignment and the bytes.
    unsafe {
        let block = if zeroed {
            libc::calloc(1, all)
        } else {
            libc::malloc(all)
        };
        if block.is_null() {
            if let Some(allocator) = allocator {
                allocator.used.fetch_sub(charged, Ordering::Relaxed);
            }
            return block;
        }
        let at = (block as usize + size_of::<Header>()).next_multiple_of(alignment);
        let memory = at as *mut c_void;
        memory.cast::<Header>().sub(1).write(Header {
            block,
            bytes,
            charged,
            allocator: handle,
        });
        memory
    }
}

/// Allocates memory. `handle` 0: the default allocator.
unsafe fn allocate(alignment: usize, bytes: usize, handle: usize, zeroed: bool) -> *mut c_void {
    if bytes == 0 {
        return std::ptr::null_mut();
    }
    let mut handle = if handle == 0 {
        current().icv().allocator
    } else {
        handle
    };
    loop {
        // SAFETY: the program passes a handle.
        let (memory, allocator) = unsafe { (take(alignment, bytes, handle, zeroed), find(handle)) };
        if !memory.is_null() {
            return memory;
        }
        match allocator.map(|allocator| (allocator.fallback, allocator.fallback_allocator)) {
            Some((NULL, _)) => return memory,
            Some((ABORT, _)) => out_of_memory(bytes),
            Some((OTHER_ALLOCATOR, other)) if other != 0 => handle = other,
            Some(_) => handle = DEFAULT,
            None => return memory,
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_alloc(bytes: usize, allocator: usize) -> *mut c_void {
    // SAFETY: as the program passes it.
    unsafe { allocate(1, bytes, allocator, false) }
}

fn is_alignment(alignment: usize, bytes: usize) -> bool {
    alignment.is_power_of_two() && bytes.is_multiple_of(alignment)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_aligned_alloc(
    alignment: usize,
    bytes: usize,
    allocator: usize,
) -> *mut c_void {
    if !is_alignment(alignment, bytes) {
        return std::ptr::null_mut();
    }
    // SAFETY: as the program passes it.
    unsafe { allocate(alignment, bytes, allocator, false) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_calloc(count: usize, each: usize, allocator: usize) -> *mut c_void {
    // SAFETY: as the program passes it.
    unsafe { omp_aligned_calloc(1, count, each, allocator) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_aligned_calloc(
    alignment: usize,
    count: usize,
    each: usize,
    allocator: usize,
) -> *mut c_void {
    match count.checked_mul(each) {
        Some(bytes) if is_alignment(alignment, each) => {
            // SAFETY: as the program passes it.
            unsafe { allocate(alignment, bytes, allocator, true) }
        }
        _ => std::ptr::null_mut(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_free(memory: *mut c_void, _: usize) {
    if memory.is_null() {
        return;
    }
    // SAFETY: the program passes what `allocate` returned.
    unsafe {
        let header = memory.cast::<Header>().sub(1).read();
        if header.charged != 0
            && let Some(allocator) = find(header.allocator)
        {
            allocator.used.fetch_sub(header.charged, Ordering::Relaxed);
        }
        libc::free(header.block);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_realloc(
    memory: *mut c_void,
    bytes: usize,
    allocator: usize,
    free_allocator: usize,
) -> *mut c_void {
    // SAFETY: as the program passes it.
    unsafe {
        if memory.is_null() {
            return omp_alloc(bytes, allocator);
        }
        if bytes == 0 {
            omp_free(memory, free_allocator);
            return std::ptr::null_mut();
        }
        let header = memory.cast::<Header>().sub(1).read();
        let allocator = if allocator == 0 {
            header.allocator
        } else {
            allocator
        };
        // A pool has room for what it gave up.
        if header.charged != 0
            && allocator == header.allocator
            && let Some(own) = find(allocator)
        {
            own.used.fetch_sub(header.charged, Ordering::Relaxed);
            memory.cast::<Header>().sub(1).write(Header {
                charged: 0,
                ..header
            });
        }
        let new = allocate(1, bytes, allocator, false);
        if !new.is_null() {
            libc::memcpy(new, memory, bytes.min(header.bytes));
            omp_free(memory, free_allocator);
        } else if header.charged != 0
            && let Some(own) = find(header.allocator)
        {
            own.used.fetch_add(header.charged, Ordering::Relaxed);
            memory.cast::<Header>().sub(1).write(header);
        }
        new
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_alloc(
    alignment: usize,
    bytes: usize,
    allocator: usize,
) -> *mut c_void {
    // SAFETY: as compiled code passes it.
    let memory = unsafe { allocate(alignment.max(1), bytes.max(1), allocator, false) };
    if memory.is_null() {
        out_of_memory(bytes);
    }
    memory
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_free(memory: *mut c_void, allocator: usize) {
    // SAFETY: as compiled code passes it.
    unsafe { omp_free(memory, allocator) }
}
