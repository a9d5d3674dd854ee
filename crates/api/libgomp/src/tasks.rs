//! Tasks, task loops, task groups, task reductions.

use crate::{Outlined, code, fatal};
use garonne_openmp::icv::globals;
use garonne_openmp::{Depend, DependKind, TaskRequest, current, fulfill_event, new_event};
use std::ffi::{c_int, c_long, c_uint, c_ulong, c_ulonglong, c_void};
use std::sync::atomic::Ordering;

// Flags of tasks, by the compiler's numbers.
const FINAL: c_uint = 1 << 1;
const DEPEND: c_uint = 1 << 3;
const PRIORITY: c_uint = 1 << 4;
const UP: c_uint = 1 << 8;
const GRAINSIZE: c_uint = 1 << 9;
const IF: c_uint = 1 << 10;
const NOGROUP: c_uint = 1 << 11;
const REDUCTION: c_uint = 1 << 12;
const DETACH: c_uint = 1 << 13;
const STRICT: c_uint = 1 << 14;

type CopyArguments = Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>;

/// Reads a list of dependences.
///
/// # Safety
/// The list is as the compiler makes it.
pub(crate) unsafe fn depends(list: *const *mut c_void) -> Vec<Depend> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller vouches for the list, whose beginning says how long it is.
    let word = |at: usize| unsafe { *list.add(at) } as usize;
    let mut found = Vec::new();
    let mut add = |address: usize, kind: DependKind| found.push(Depend { address, kind });
    if word(0) != 0 {
        let (all, outs) = (word(0), word(1));
        for at in 0..all {
            let kind = if at < outs {
                DependKind::Out
            } else {
                DependKind::In
            };
            add(word(2 + at), kind);
        }
    } else {
        let (all, outs, mutually, ins) = (word(1), word(2), word(3), word(4));
        for at in 0..all {
            let address = word(5 + at);
            if at < outs + mutually {
                add(address, DependKind::Out);
            } else if at < outs + mutually + ins {
                add(address, DependKind::In);
            } else {
                // SAFETY: a depend object: an address and a kind.
                let object = unsafe { *(address as *const [usize; 2]) };
                let kind = if object[1] == 1 {
                    DependKind::In
                } else {
                    DependKind::Out
                };
                add(object[0], kind);
            }
        }
    }
    found
}

/// Memory for a task's arguments: the block, and the address of the aligned part.
fn arguments(bytes: c_long, alignment: c_long) -> (Box<[u8]>, *mut c_void) {
    let alignment = (alignment.max(1) as usize).next_power_of_two();
    let mut block = vec![0u8; bytes.max(0) as usize + alignment].into_boxed_slice();
    let offset = block.as_ptr().align_offset(alignment).min(alignment);
    let at = block.as_mut_ptr().wrapping_add(offset);
    (block, at.cast())
}

/// Copies a task's arguments.
///
/// # Safety
/// `data` has so many bytes, and `copy` is the compiler's function for them.
unsafe fn copied(
    data: *mut c_void,
    copy: CopyArguments,
    bytes: c_long,
    alignment: c_long,
) -> (Box<[u8]>, *mut c_void) {
    let (block, at) = arguments(bytes, alignment);
    // SAFETY: the block has room; the caller vouches for the rest.
    unsafe {
        match copy {
            Some(copy) => copy(at, data),
            None if bytes > 0 => {
                std::ptr::copy_nonoverlapping(data.cast::<u8>(), at.cast::<u8>(), bytes as usize)
            }
            None => (),
        }
    }
    (block, at)
}

#[allow(clippy::too_many_arguments, reason = "the compiler's interface")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_task(
    function: Outlined,
    data: *mut c_void,
    copy: CopyArguments,
    bytes: c_long,
    alignment: c_long,
    may_defer: bool,
    flags: c_uint,
    dependences: *const *mut c_void,
    priority: c_int,
    detach: *mut c_void,
) {
    let thread = current();
    if globals().cancellation && thread.is_cancelled() {
        return;
    }
    let event = (flags & DETACH != 0).then(new_event);
    if let Some(event) = event {
        // SAFETY: the program's event handle, and its copy in the arguments.
        unsafe {
            *detach.cast::<usize>() = event;
            if !data.is_null() {
                *data.cast::<usize>() = event;
            }
        }
    }
    let request = |argument, keep| TaskRequest {
        code: code(function, argument),
        keep,
        is_final: flags & FINAL != 0,
        must_run: copy.is_some(),
        priority: if flags & PRIORITY != 0 { priority } else { 0 },
        depends: match flags & DEPEND {
            0 => Vec::new(),
            // SAFETY: as the compiler passes them.
            _ => unsafe { depends(dependences) },
        },
        event,
    };
    // What the task waits for may come from this thread, after this call.
    let is_plain = flags & (DEPEND | DETACH) == 0;
    if !may_defer || thread.runs_at_once(0) || is_plain && thread.runs_plain_at_once() {
        if copy.is_some() {
            // SAFETY: as the compiler passes them.
            let (block, at) = unsafe { copied(data, copy, bytes, alignment) };
            thread.run_now(request(at, Some(Box::new(block))));
        } else {
            thread.run_now(request(data, None));
        }
        return;
    }
    // SAFETY: as the compiler passes them.
    let (block, at) = unsafe { copied(data, copy, bytes, alignment) };
    thread.defer(request(at, Some(Box::new(block))));
}

/// How many iterations the tasks of a loop have: so many have `large`, those after them `small`,
/// and the last one `last`.
fn split(flags: c_uint, wish: u64, count: u64, threads: u64) -> (u64, u64, u64) {
    if flags & GRAINSIZE != 0 {
        let grain = wish.max(1);
        if flags & STRICT != 0 {
            return (count.div_ceil(grain), grain, 0);
        }
        let tasks = (count / grain).max(1);
        return (tasks, count / tasks, count % tasks);
    }
    let tasks = match wish {
        0 => threads,
        wish => wish,
    };
    let tasks = tasks.min(count).max(1);
    (tasks, count / tasks, count % tasks)
}

/// A task loop's range: the first value, the step, the number of iterations and the end.
struct Range {
    start: u64,
    end: u64,
    step: u64,
    count: u64,
}

#[allow(clippy::too_many_arguments, reason = "the compiler's interface")]
unsafe fn taskloop(
    function: Outlined,
    data: *mut c_void,
    copy: CopyArguments,
    bytes: c_long,
    alignment: c_long,
    flags: c_uint,
    wish: c_ulong,
    priority: c_int,
    range: Range,
) {
    let thread = current();
    let reductions = || {
        // SAFETY: the arguments begin with two bounds and the address of the reductions.
        unsafe { *data.cast::<*mut usize>().add(2) }
    };
    let is_cancelled = || globals().cancellation && thread.is_cancelled();
    if range.count == 0 || (globals().cancellation && thread.team().is_cancelled()) {
        if flags & (NOGROUP | REDUCTION) == REDUCTION {
            // Tells compiled code that nothing was registered.
            // SAFETY: as above.
            unsafe { *reductions().add(2) = 0 };
        }
        return;
    }
    if flags & NOGROUP == 0 {
        thread.begin_group();
        if flags & REDUCTION != 0 {
            // SAFETY: as above.
            unsafe { GOMP_taskgroup_reduction_register(reductions()) };
        }
    } else if is_cancelled() {
        return;
    }
    let (tasks, each, more) = split(flags, wish, range.count, thread.team_size() as u64);
    let strict = flags & (GRAINSIZE | STRICT) == GRAINSIZE | STRICT;
    let at_once = flags & IF == 0 || thread.runs_at_once(tasks as usize);
    let mut position = 0;
    for number in 0..tasks {
        let size = each + u64::from(!strict && number < more);
        let next = (position + size).min(range.count);
        let value = |position: u64| range.start.wrapping_add(position.wrapping_mul(range.step));
        let last = if tasks == 1 { range.end } else { value(next) };
        let bounds = [value(position), last];
        position = next;
        // SAFETY: as the compiler passes them; the arguments begin with the bounds.
        let (block, at) = unsafe {
            let (block, at) = copied(data, copy, bytes, alignment);
            *at.cast::<[u64; 2]>() = bounds;
            (block, at)
        };
        let request = TaskRequest {
            code: code(function, at),
            keep: Some(Box::new(block)),
            is_final: flags & FINAL != 0,
            must_run: copy.is_some(),
            priority,
            depends: Vec::new(),
            event: None,
        };
        if at_once {
            thread.run_now(request);
        } else {
            thread.defer(request);
        }
    }
    if flags & NOGROUP == 0 {
        thread.end_group();
    }
}

#[allow(clippy::too_many_arguments, reason = "the compiler's interface")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_taskloop(
    function: Outlined,
    data: *mut c_void,
    copy: CopyArguments,
    bytes: c_long,
    alignment: c_long,
    flags: c_uint,
    wish: c_ulong,
    priority: c_int,
    start: c_long,
    end: c_long,
    step: c_long,
) {
    let range = Range {
        start: start as u64,
        end: end as u64,
        step: step as u64,
        count: garonne_openmp::Space::signed(start, end, step).count(),
    };
    // SAFETY: as the compiler passes them.
    unsafe {
        taskloop(
            function, data, copy, bytes, alignment, flags, wish, priority, range,
        )
    }
}

#[allow(clippy::too_many_arguments, reason = "the compiler's interface")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_taskloop_ull(
    function: Outlined,
    data: *mut c_void,
    copy: CopyArguments,
    bytes: c_long,
    alignment: c_long,
    flags: c_uint,
    wish: c_ulong,
    priority: c_int,
    start: c_ulonglong,
    end: c_ulonglong,
    step: c_ulonglong,
) {
    let range = Range {
        start,
        end,
        step,
        count: garonne_openmp::Space::unsigned(flags & UP != 0, start, end, step).count(),
    };
    // SAFETY: as the compiler passes them.
    unsafe {
        taskloop(
            function, data, copy, bytes, alignment, flags, wish, priority, range,
        )
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_taskwait() {
    current().taskwait();
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_taskwait_depend(list: *const *mut c_void) {
    // SAFETY: as the compiler passes them.
    current().await_dependences(&unsafe { depends(list) });
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_taskyield() {
    current().yield_now();
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_taskgroup_start() {
    current().begin_group();
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_taskgroup_end() {
    current().end_group();
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_fulfill_event(event: usize) {
    if !fulfill_event(event) {
        fatal(&format!(
            "omp_fulfill_event: {event:#x} event is invalid or has already been fulfilled!"
        ));
    }
}

// Task reductions. The compiler's array: number of items, bytes of a thread's part, alignment (then
// address of the memory), allocator, address of the next array, two words for the library (mark of
// a registration, end of the memory), then for each item its address, its offset in the part and a
// word for the library.
const ITEMS: usize = 0;
const PART: usize = 1;
const MEMORY: usize = 2;
const NEXT: usize = 4;
const IS_HEAD: usize = 5;
const END: usize = 6;
const FIRST: usize = 7;

/// Registers reductions before those that are registered already. `first`: the array of the thread
/// that registered the same ones and allocated their memory.
///
/// # Safety
/// The arrays are as the compiler makes them.
pub(crate) unsafe fn register_reductions(
    data: *mut usize,
    before: usize,
    first: *const usize,
    threads: usize,
) {
    let (mut array, mut first) = (data, first);
    // SAFETY: the caller vouches for the arrays.
    unsafe {
        loop {
            if first.is_null() {
                let bytes = (*array.add(PART) * threads).max(1);
                let alignment = (*array.add(MEMORY)).max(16).next_power_of_two();
                let mut memory = std::ptr::null_mut();
                if libc::posix_memalign(&mut memory, alignment, bytes) != 0 {
                    fatal(&format!("Out of memory allocating {bytes} bytes"));
                }
                libc::memset(memory, 0, bytes);
                *array.add(MEMORY) = memory as usize;
                *array.add(END) = memory as usize + bytes;
            } else {
                *array.add(MEMORY) = *first.add(MEMORY);
                *array.add(END) = *first.add(END);
                first = *first.add(NEXT) as *const usize;
            }
            *array.add(IS_HEAD) = 0;
            let next = *array.add(NEXT);
            if next == 0 {
                *array.add(NEXT) = before;
                break;
            }
            array = next as *mut usize;
        }
        *data.add(IS_HEAD) = 1;
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_taskgroup_reduction_register(data: *mut usize) {
    let thread = current();
    let Some(group) = thread.group() else {
        fatal("GOMP_taskgroup_reduction_register: there is no task group");
    };
    let before = group.reductions.load(Ordering::Acquire);
    // SAFETY: as the compiler passes it.
    unsafe { register_reductions(data, before, std::ptr::null(), thread.team_size()) };
    group.reductions.store(data as usize, Ordering::Release);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_taskgroup_reduction_unregister(data: *mut usize) {
    let mut array = data;
    // SAFETY: as registered; the arrays of one registration end at the head of another one.
    unsafe {
        loop {
            libc::free(*array.add(MEMORY) as *mut c_void);
            array = *array.add(NEXT) as *mut usize;
            if array.is_null() || *array.add(IS_HEAD) != 0 {
                return;
            }
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_workshare_task_reduction_unregister(is_cancelled: bool) {
    let thread = current();
    let data = thread
        .group()
        .map_or(0, |group| group.reductions.load(Ordering::Acquire));
    thread.end_group();
    if thread.number() == 0 && data != 0 {
        // SAFETY: as registered at the beginning of the construct.
        unsafe { GOMP_taskgroup_reduction_unregister(data as *mut usize) };
    }
    if !is_cancelled {
        thread.barrier(false);
    }
}

/// Where an item's private copies are: its array, its offset there, and its own address.
///
/// # Safety
/// The arrays are registered.
unsafe fn find_item(data: *const usize, address: usize) -> Option<(*const usize, usize, usize)> {
    let mut array = data;
    // SAFETY: the caller vouches for the arrays.
    unsafe {
        while !array.is_null() {
            for item in 0..*array.add(ITEMS) {
                let at = array.add(FIRST + 3 * item);
                if *at == address {
                    return Some((array, *at.add(1), address));
                }
            }
            array = *array.add(NEXT) as *const usize;
        }
        let mut array = data;
        while !array.is_null() {
            if (*array.add(MEMORY)..*array.add(END)).contains(&address) {
                let offset = (address - *array.add(MEMORY)) % (*array.add(PART)).max(1);
                let original = (0..*array.add(ITEMS)).find_map(|item| {
                    let at = array.add(FIRST + 3 * item);
                    (*at.add(1) == offset).then(|| *at)
                });
                return Some((array, offset, original.unwrap_or(0)));
            }
            array = *array.add(NEXT) as *const usize;
        }
    }
    None
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_task_reduction_remap(
    count: usize,
    originals: usize,
    pointers: *mut *mut c_void,
) {
    let thread = current();
    let data = thread
        .group()
        .map_or(0, |group| group.reductions.load(Ordering::Acquire));
    for at in 0..count {
        // SAFETY: the compiler passes so many pointers, and room for the originals after them.
        unsafe {
            let address = *pointers.add(at) as usize;
            let Some((array, offset, original)) = find_item(data as *const usize, address) else {
                fatal(&format!(
                    "couldn't find matching task_reduction or reduction with task modifier for {address:#x}"
                ));
            };
            let part = *array.add(PART) * thread.number();
            *pointers.add(at) = (*array.add(MEMORY) + part + offset) as *mut c_void;
            if at < originals {
                *pointers.add(count + at) = original as *mut c_void;
            }
        }
    }
}
