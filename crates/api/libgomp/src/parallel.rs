//! Parallel regions, sections, cancellation.

use crate::loops::{fixed, runtime};
use crate::tasks::register_reductions;
use crate::{Outlined, code};
use garonne_openmp::icv::{Kind, Schedule, globals};
use garonne_openmp::{Code, LoopRequest, Region, Space, TaskGroup, current};
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::sync::atomic::Ordering;

/// Calls compiled code in a thread that tells its place first.
fn tell_and_call(function: usize, argument: usize) {
    crate::api::tell_affinity();
    crate::call(function, argument);
}

fn code_of_region(function: Outlined, data: *mut c_void) -> Code {
    let code = code(function, data);
    match globals().display_affinity {
        true => Code {
            call: tell_and_call,
            ..code
        },
        false => code,
    }
}

fn region(function: Outlined, data: *mut c_void, threads: c_uint, flags: c_uint) -> Region {
    Region {
        code: code_of_region(function, data),
        threads,
        sections: 0,
        bind: flags & 7,
        group: None,
        first_loop: None,
    }
}

/// Begins a region, runs thread 0's part, and ends it.
fn run(region: Region) {
    let (thread, code) = (current(), region.code);
    begin(region);
    code.run();
    thread.end();
}

fn begin(region: Region) {
    current().begin(region);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_parallel(
    function: Outlined,
    data: *mut c_void,
    threads: c_uint,
    flags: c_uint,
) {
    run(region(function, data, threads, flags));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_parallel_start(
    function: Outlined,
    data: *mut c_void,
    threads: c_uint,
) {
    begin(region(function, data, threads, 0));
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_parallel_end() {
    current().end();
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_parallel_reductions(
    function: Outlined,
    data: *mut c_void,
    threads: c_uint,
    flags: c_uint,
) -> c_uint {
    let mut region = region(function, data, threads, flags);
    let count = current().threads_of(&region);
    let group = TaskGroup::new(None);
    // SAFETY: the first word of the argument is the address of the reductions.
    unsafe {
        let reductions = *data.cast::<*mut usize>();
        register_reductions(reductions, 0, std::ptr::null(), count);
        group
            .reductions
            .store(reductions as usize, Ordering::Release);
    }
    region.group = Some(group);
    region.threads = count as c_uint;
    run(region);
    count as c_uint
}

fn with_loop(mut region: Region, space: Space, schedule: Schedule) -> Region {
    region.first_loop = Some(LoopRequest {
        space,
        schedule,
        doacross: None,
    });
    region
}

macro_rules! parallel_loops {
    ($($kind:expr => $begin:ident, $run:ident $(, $more:ident)*;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $begin(
            function: Outlined, data: *mut c_void, threads: c_uint,
            start: c_long, end: c_long, step: c_long, chunk: c_long,
        ) {
            let region = region(function, data, threads, 0);
            begin(with_loop(region, Space::signed(start, end, step), fixed($kind, chunk)));
        }
        parallel_loops!(@run $kind => $run $(, $more)*);
    )*};
    (@run $kind:expr => $($name:ident),*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            function: Outlined, data: *mut c_void, threads: c_uint,
            start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint,
        ) {
            let region = region(function, data, threads, flags);
            run(with_loop(region, Space::signed(start, end, step), fixed($kind, chunk)));
        }
    )*};
}

parallel_loops! {
    Kind::Static => GOMP_parallel_loop_static_start, GOMP_parallel_loop_static;
    Kind::Dynamic => GOMP_parallel_loop_dynamic_start, GOMP_parallel_loop_dynamic, GOMP_parallel_loop_nonmonotonic_dynamic;
    Kind::Guided => GOMP_parallel_loop_guided_start, GOMP_parallel_loop_guided, GOMP_parallel_loop_nonmonotonic_guided;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_parallel_loop_runtime_start(
    function: Outlined,
    data: *mut c_void,
    threads: c_uint,
    start: c_long,
    end: c_long,
    step: c_long,
) {
    let region = region(function, data, threads, 0);
    begin(with_loop(
        region,
        Space::signed(start, end, step),
        runtime(),
    ));
}

macro_rules! parallel_runtime_loops {
    ($($name:ident),*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            function: Outlined, data: *mut c_void, threads: c_uint,
            start: c_long, end: c_long, step: c_long, flags: c_uint,
        ) {
            let region = region(function, data, threads, flags);
            run(with_loop(region, Space::signed(start, end, step), runtime()));
        }
    )*};
}

parallel_runtime_loops!(
    GOMP_parallel_loop_runtime,
    GOMP_parallel_loop_nonmonotonic_runtime,
    GOMP_parallel_loop_maybe_nonmonotonic_runtime
);

fn sections(count: c_uint) -> (Space, Schedule) {
    (
        Space::signed(1, c_long::from(count) + 1, 1),
        fixed(Kind::Dynamic, 1),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_parallel_sections_start(
    function: Outlined,
    data: *mut c_void,
    threads: c_uint,
    count: c_uint,
) {
    let (space, schedule) = sections(count);
    let mut region = with_loop(region(function, data, threads, 0), space, schedule);
    region.sections = count;
    begin(region);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_parallel_sections(
    function: Outlined,
    data: *mut c_void,
    threads: c_uint,
    count: c_uint,
    flags: c_uint,
) {
    let (space, schedule) = sections(count);
    let mut region = with_loop(region(function, data, threads, flags), space, schedule);
    region.sections = count;
    run(region);
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_sections_start(count: c_uint) -> c_uint {
    let (space, schedule) = sections(count);
    let request = || LoopRequest {
        space,
        schedule,
        doacross: None,
    };
    current().enter_share(request, |_| ());
    GOMP_sections_next()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_sections2_start(
    count: c_uint,
    reductions: *mut usize,
    memory: *mut *mut c_void,
) -> c_uint {
    let (space, schedule) = sections(count);
    let request = || LoopRequest {
        space,
        schedule,
        doacross: None,
    };
    // SAFETY: as compiled code passes them.
    unsafe { crate::loops::enter_with(request, reductions, memory) };
    GOMP_sections_next()
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_sections_next() -> c_uint {
    current()
        .next_chunk()
        .map_or(0, |(section, _)| section as c_uint)
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_sections_end() {
    crate::loops::GOMP_loop_end();
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_sections_end_nowait() {
    current().leave_share();
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_sections_end_cancel() -> bool {
    crate::loops::GOMP_loop_end_cancel()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_scope_start(reductions: *mut usize) {
    let request = || LoopRequest {
        space: Space::signed(0, 0, 1),
        schedule: fixed(Kind::Static, 0),
        doacross: None,
    };
    // SAFETY: as compiled code passes them.
    unsafe { crate::loops::enter_with(request, reductions, std::ptr::null_mut()) };
}

// What may be cancelled, by the compiler's numbers.
const LOOP_OR_SECTIONS: c_int = 2 | 4;
const GROUP: c_int = 8;

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_cancellation_point(which: c_int) -> bool {
    if !globals().cancellation {
        return false;
    }
    let thread = current();
    if which & LOOP_OR_SECTIONS != 0 {
        return thread.team().is_share_cancelled();
    }
    let group = thread.group().is_some_and(|group| group.is_cancelled());
    (which & GROUP != 0 && group) || thread.team().is_cancelled()
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_cancel(which: c_int, cancels: bool) -> bool {
    if !globals().cancellation {
        return false;
    }
    if !cancels {
        return GOMP_cancellation_point(which);
    }
    let thread = current();
    if which & LOOP_OR_SECTIONS != 0 {
        thread.cancel_share();
    } else if which & GROUP != 0 {
        thread.cancel_group();
    } else {
        thread.cancel_region();
    }
    true
}
