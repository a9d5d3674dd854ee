//! Worksharing loops over `long` and `unsigned long long`.

use crate::tasks::register_reductions;
use garonne_openmp::icv::{Kind, Schedule};
use garonne_openmp::{LoopRequest, Share, Space, current};
use std::ffi::{c_long, c_uint, c_ulonglong, c_void};
use std::sync::atomic::Ordering;

pub(crate) fn fixed(kind: Kind, chunk: c_long) -> Schedule {
    Schedule {
        kind,
        chunk: chunk.max(0) as u64,
        monotonic: false,
    }
}

/// The schedule that the current task's control variable says.
pub(crate) fn runtime() -> Schedule {
    current().icv().schedule
}

/// The schedule of the compiler's number.
fn numbered(schedule: c_long, chunk: c_long) -> Schedule {
    match schedule as u64 & 0x7fff_ffff {
        1 => fixed(Kind::Static, chunk),
        2 => fixed(Kind::Dynamic, chunk),
        3 => fixed(Kind::Guided, chunk),
        _ => runtime(),
    }
}

fn request(space: Space, schedule: Schedule) -> LoopRequest {
    LoopRequest {
        space,
        schedule,
        doacross: None,
    }
}

fn enter(space: Space, schedule: Schedule) {
    current().enter_share(|| request(space, schedule), |_| ());
}

/// Enters a construct with task reductions, or with memory that its threads share.
///
/// # Safety
/// Both addresses are 0 or as compiled code passes them.
pub(crate) unsafe fn enter_with(
    request: impl FnOnce() -> LoopRequest,
    reductions: *mut usize,
    memory: *mut *mut c_void,
) {
    let thread = current();
    let size = thread.team_size();
    let group = (!reductions.is_null()).then(|| thread.begin_group());
    let before = group.as_ref().map(|group| {
        group.is_workshare.store(true, Ordering::Release);
        group.reductions.load(Ordering::Acquire)
    });
    let init = |share: &Share| {
        if let Some(before) = before {
            // SAFETY: the caller vouches for the address.
            unsafe { register_reductions(reductions, before, std::ptr::null(), size) };
            share
                .reductions
                .store(reductions as usize, Ordering::Release);
        }
    };
    let (share, is_first) = thread.enter_share(request, init);
    if let (Some(group), Some(before)) = (group, before) {
        if !is_first {
            let first = share.reductions.load(Ordering::Acquire) as *const usize;
            // SAFETY: the caller vouches for the address; the first thread's lives as the share.
            unsafe { register_reductions(reductions, before, first, size) };
        }
        group
            .reductions
            .store(reductions as usize, Ordering::Release);
    }
    if !memory.is_null() {
        // SAFETY: the caller vouches for the address. It holds the number of bytes.
        unsafe { *memory = share.memory(*memory as usize) as *mut c_void };
    }
}

/// Stores a chunk for the program.
unsafe fn give<T>(chunk: Option<(u64, u64)>, start: *mut T, end: *mut T) -> bool {
    let Some((first, last)) = chunk else {
        return false;
    };
    // SAFETY: compiled code passes two words.
    unsafe {
        *start.cast::<u64>() = first;
        *end.cast::<u64>() = last;
    }
    true
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_loop_end() {
    let thread = current();
    thread.leave_share();
    thread.barrier(false);
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_loop_end_nowait() {
    current().leave_share();
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_loop_end_cancel() -> bool {
    let thread = current();
    thread.leave_share();
    thread.barrier(true)
}

macro_rules! starts {
    ($($kind:expr => $($long:ident)* | $($ull:ident)*;)*) => {$($(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $long(
            start: c_long, end: c_long, step: c_long, chunk: c_long,
            first: *mut c_long, last: *mut c_long,
        ) -> bool {
            enter(Space::signed(start, end, step), fixed($kind, chunk));
            // SAFETY: as compiled code passes them.
            unsafe { give(current().next_chunk(), first, last) }
        }
        )*$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $ull(
            up: bool, start: c_ulonglong, end: c_ulonglong, step: c_ulonglong, chunk: c_ulonglong,
            first: *mut c_ulonglong, last: *mut c_ulonglong,
        ) -> bool {
            enter(Space::unsigned(up, start, end, step), fixed($kind, chunk.min(i64::MAX as u64) as c_long));
            // SAFETY: as compiled code passes them.
            unsafe { give(current().next_chunk(), first, last) }
        }
    )*)*};
}

macro_rules! runtime_starts {
    ($($long:ident)* | $($ull:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $long(
            start: c_long, end: c_long, step: c_long, first: *mut c_long, last: *mut c_long,
        ) -> bool {
            enter(Space::signed(start, end, step), runtime());
            // SAFETY: as compiled code passes them.
            unsafe { give(current().next_chunk(), first, last) }
        }
        )*$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $ull(
            up: bool, start: c_ulonglong, end: c_ulonglong, step: c_ulonglong,
            first: *mut c_ulonglong, last: *mut c_ulonglong,
        ) -> bool {
            enter(Space::unsigned(up, start, end, step), runtime());
            // SAFETY: as compiled code passes them.
            unsafe { give(current().next_chunk(), first, last) }
        }
    )*};
}

macro_rules! nexts {
    ($next:ident => $($long:ident)* | $($ull:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $long(first: *mut c_long, last: *mut c_long) -> bool {
            // SAFETY: as compiled code passes them.
            unsafe { give(current().$next(), first, last) }
        }
        )*$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $ull(first: *mut c_ulonglong, last: *mut c_ulonglong) -> bool {
            // SAFETY: as compiled code passes them.
            unsafe { give(current().$next(), first, last) }
        }
    )*};
}

macro_rules! general_starts {
    ($($long:ident)* | $($ull:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $long(
            start: c_long, end: c_long, step: c_long, schedule: c_long, chunk: c_long,
            first: *mut c_long, last: *mut c_long, reductions: *mut usize, memory: *mut *mut c_void,
        ) -> bool {
            let space = Space::signed(start, end, step);
            // SAFETY: as compiled code passes them.
            unsafe {
                enter_with(|| request(space, numbered(schedule, chunk)), reductions, memory);
                first.is_null() || give(current().next_chunk(), first, last)
            }
        }
        )*$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $ull(
            up: bool, start: c_ulonglong, end: c_ulonglong, step: c_ulonglong, schedule: c_long,
            chunk: c_ulonglong, first: *mut c_ulonglong, last: *mut c_ulonglong,
            reductions: *mut usize, memory: *mut *mut c_void,
        ) -> bool {
            let space = Space::unsigned(up, start, end, step);
            let chunk = chunk.min(i64::MAX as u64) as c_long;
            // SAFETY: as compiled code passes them.
            unsafe {
                enter_with(|| request(space, numbered(schedule, chunk)), reductions, memory);
                first.is_null() || give(current().next_chunk(), first, last)
            }
        }
    )*};
}

/// A nest of doacross loops, of which the outermost is shared.
///
/// # Safety
/// `counts` has so many words.
unsafe fn nest(depth: c_uint, counts: *const u64, schedule: Schedule) -> LoopRequest {
    // SAFETY: the caller vouches for it.
    let counts = unsafe { std::slice::from_raw_parts(counts, depth as usize) }.to_vec();
    LoopRequest {
        space: Space::unsigned(true, 0, counts.first().copied().unwrap_or(0), 1),
        schedule,
        doacross: Some(counts),
    }
}

macro_rules! doacross_starts {
    ($($number:ty: $kind:expr => $name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            depth: c_uint, counts: *const $number, chunk: $number, first: *mut $number, last: *mut $number,
        ) -> bool {
            // SAFETY: as compiled code passes them.
            unsafe {
                current().enter_share(|| nest(depth, counts.cast(), fixed($kind, chunk as c_long)), |_| ());
                give(current().next_chunk(), first, last)
            }
        }
    )*};
}

macro_rules! doacross_runtime_starts {
    ($($number:ty: $runtime:ident $general:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $runtime(
            depth: c_uint, counts: *const $number, first: *mut $number, last: *mut $number,
        ) -> bool {
            // SAFETY: as compiled code passes them.
            unsafe {
                current().enter_share(|| nest(depth, counts.cast(), runtime()), |_| ());
                give(current().next_chunk(), first, last)
            }
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $general(
            depth: c_uint, counts: *const $number, schedule: c_long, chunk: $number,
            first: *mut $number, last: *mut $number, reductions: *mut usize, memory: *mut *mut c_void,
        ) -> bool {
            // SAFETY: as compiled code passes them.
            unsafe {
                let schedule = numbered(schedule, chunk as c_long);
                enter_with(|| nest(depth, counts.cast(), schedule), reductions, memory);
                first.is_null() || give(current().next_chunk(), first, last)
            }
        }
    )*};
}

starts! {
    Kind::Static => GOMP_loop_static_start GOMP_loop_ordered_static_start | GOMP_loop_ull_static_start GOMP_loop_ull_ordered_static_start;
    Kind::Dynamic => GOMP_loop_dynamic_start GOMP_loop_ordered_dynamic_start GOMP_loop_nonmonotonic_dynamic_start | GOMP_loop_ull_dynamic_start GOMP_loop_ull_ordered_dynamic_start GOMP_loop_ull_nonmonotonic_dynamic_start;
    Kind::Guided => GOMP_loop_guided_start GOMP_loop_ordered_guided_start GOMP_loop_nonmonotonic_guided_start | GOMP_loop_ull_guided_start GOMP_loop_ull_ordered_guided_start GOMP_loop_ull_nonmonotonic_guided_start;
}

runtime_starts! {
    GOMP_loop_runtime_start GOMP_loop_ordered_runtime_start GOMP_loop_nonmonotonic_runtime_start GOMP_loop_maybe_nonmonotonic_runtime_start |
    GOMP_loop_ull_runtime_start GOMP_loop_ull_ordered_runtime_start GOMP_loop_ull_nonmonotonic_runtime_start GOMP_loop_ull_maybe_nonmonotonic_runtime_start
}

nexts! { next_chunk =>
    GOMP_loop_static_next GOMP_loop_dynamic_next GOMP_loop_guided_next GOMP_loop_runtime_next GOMP_loop_nonmonotonic_dynamic_next
    GOMP_loop_nonmonotonic_guided_next GOMP_loop_nonmonotonic_runtime_next GOMP_loop_maybe_nonmonotonic_runtime_next |
    GOMP_loop_ull_static_next GOMP_loop_ull_dynamic_next GOMP_loop_ull_guided_next GOMP_loop_ull_runtime_next GOMP_loop_ull_nonmonotonic_dynamic_next
    GOMP_loop_ull_nonmonotonic_guided_next GOMP_loop_ull_nonmonotonic_runtime_next GOMP_loop_ull_maybe_nonmonotonic_runtime_next
}

nexts! { next_ordered_chunk =>
    GOMP_loop_ordered_static_next GOMP_loop_ordered_dynamic_next GOMP_loop_ordered_guided_next GOMP_loop_ordered_runtime_next |
    GOMP_loop_ull_ordered_static_next GOMP_loop_ull_ordered_dynamic_next GOMP_loop_ull_ordered_guided_next GOMP_loop_ull_ordered_runtime_next
}

general_starts! { GOMP_loop_start GOMP_loop_ordered_start | GOMP_loop_ull_start GOMP_loop_ull_ordered_start }

doacross_starts! {
    c_long: Kind::Static => GOMP_loop_doacross_static_start;
    c_long: Kind::Dynamic => GOMP_loop_doacross_dynamic_start;
    c_long: Kind::Guided => GOMP_loop_doacross_guided_start;
    c_ulonglong: Kind::Static => GOMP_loop_ull_doacross_static_start;
    c_ulonglong: Kind::Dynamic => GOMP_loop_ull_doacross_dynamic_start;
    c_ulonglong: Kind::Guided => GOMP_loop_ull_doacross_guided_start;
}

doacross_runtime_starts! {
    c_long: GOMP_loop_doacross_runtime_start GOMP_loop_doacross_start;
    c_ulonglong: GOMP_loop_ull_doacross_runtime_start GOMP_loop_ull_doacross_start;
}

unsafe fn post(counters: *const u64) {
    if let Some(share) = current().share() {
        // SAFETY: the compiler passes a word for each loop of the nest.
        let counters = unsafe { std::slice::from_raw_parts(counters, share.doacross_depth()) };
        share.doacross_post(counters);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_doacross_post(counters: *const c_long) {
    // SAFETY: as there.
    unsafe { post(counters.cast()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_doacross_ull_post(counters: *const c_ulonglong) {
    // SAFETY: as there.
    unsafe { post(counters.cast()) }
}

/// Number of arguments that a function gets in registers.
#[cfg(target_arch = "x86_64")]
const IN_REGISTERS: usize = 6;
#[cfg(target_arch = "aarch64")]
const IN_REGISTERS: usize = 8;

/// What `GOMP_doacross_wait` jumps to, with the arguments that came in registers and on the stack.
#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_gomp_doacross_wait(registers: *const u64, stack: *const u64) {
    let Some(share) = current().share() else {
        return;
    };
    let depth = share.doacross_depth();
    let argument = |at: usize| {
        // SAFETY: the compiler passes a word for each loop of the nest.
        unsafe {
            match at.checked_sub(IN_REGISTERS) {
                None => *registers.add(at),
                Some(at) => *stack.add(at),
            }
        }
    };
    let iteration: Vec<u64> = (0..depth).map(argument).collect();
    share.doacross_wait(&iteration);
}

// Functions of C with a variable number of arguments, which Rust cannot define: arguments in
// registers are put into an array.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl GOMP_doacross_wait",
    ".globl GOMP_doacross_ull_wait",
    ".type GOMP_doacross_wait,@function",
    ".type GOMP_doacross_ull_wait,@function",
    "GOMP_doacross_wait:",
    "GOMP_doacross_ull_wait:",
    "lea rax, [rsp + 8]",
    "sub rsp, 56",
    "mov [rsp], rdi",
    "mov [rsp + 8], rsi",
    "mov [rsp + 16], rdx",
    "mov [rsp + 24], rcx",
    "mov [rsp + 32], r8",
    "mov [rsp + 40], r9",
    "mov rdi, rsp",
    "mov rsi, rax",
    "call {wait}",
    "add rsp, 56",
    "ret",
    ".size GOMP_doacross_wait, . - GOMP_doacross_wait",
    ".size GOMP_doacross_ull_wait, . - GOMP_doacross_ull_wait",
    wait = sym garonne_gomp_doacross_wait,
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".globl GOMP_doacross_wait",
    ".globl GOMP_doacross_ull_wait",
    ".type GOMP_doacross_wait,%function",
    ".type GOMP_doacross_ull_wait,%function",
    "GOMP_doacross_wait:",
    "GOMP_doacross_ull_wait:",
    "mov x9, sp",
    "stp x29, x30, [sp, #-80]!",
    "stp x0, x1, [sp, #16]",
    "stp x2, x3, [sp, #32]",
    "stp x4, x5, [sp, #48]",
    "stp x6, x7, [sp, #64]",
    "add x0, sp, #16",
    "mov x1, x9",
    "bl {wait}",
    "ldp x29, x30, [sp], #80",
    "ret",
    wait = sym garonne_gomp_doacross_wait,
);
