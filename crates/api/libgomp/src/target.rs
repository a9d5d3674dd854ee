//! Target regions, which run on this host; leagues of teams on the host; memory of devices.

use crate::tasks::depends;
use crate::{Outlined, code, fatal};
use garonne_openmp::icv::globals;
use garonne_openmp::{Depend, current};
use std::ffi::{c_int, c_uint, c_ushort, c_void};

const FIRSTPRIVATE: u8 = 0xc;
/// Device that the control variable names.
const DEVICE_ICV: c_int = -1;
/// Device of a target region whose `if` clause is false.
const DEVICE_HOST_FALLBACK: c_int = -2;
/// The host's number: there are no others.
const HOST: c_int = 0;

/// Ends the program where a device must be used and the host was not asked for.
fn check_device(device: c_int) {
    let device = match device {
        DEVICE_ICV => current().icv().default_device,
        device => device,
    };
    if globals().offload_mandatory && device != DEVICE_HOST_FALLBACK && device != HOST {
        fatal("OMP_TARGET_OFFLOAD is set to MANDATORY, but device not found");
    }
}

/// Data of the host need no transfer: what is left of one is to wait for others.
fn await_for_device(device: c_int, dependences: &[Depend]) {
    check_device(device);
    current().await_dependences(dependences);
}

fn run(function: Outlined, addresses: *mut *mut c_void, thread_limit: u32) {
    current().run_as_initial(code(function, addresses.cast()), thread_limit);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_target(
    device: c_int,
    function: Outlined,
    _: *const c_void,
    _: usize,
    addresses: *mut *mut c_void,
    _: *const usize,
    _: *const u8,
) {
    check_device(device);
    run(function, addresses, 0);
}

/// Reads the thread limit of a target region's arguments; 0: none.
unsafe fn thread_limit(arguments: *const *mut c_void) -> u32 {
    const HAS_VALUE: isize = 1 << 7;
    const DEVICE_MASK: isize = (1 << 7) - 1;
    const KIND_MASK: isize = ((1 << 8) - 1) << 8;
    const THREAD_LIMIT: isize = 2 << 8;
    let mut at = arguments;
    // SAFETY: the compiler's list ends with a zero.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let word = *at as isize;
            at = at.add(1);
            let value = if word & HAS_VALUE != 0 {
                let value = *at as isize;
                at = at.add(1);
                value
            } else {
                word >> 16
            };
            if word & DEVICE_MASK == 0 && word & KIND_MASK == THREAD_LIMIT {
                return value.clamp(0, i32::MAX as isize) as u32;
            }
        }
    }
    0
}

#[allow(clippy::too_many_arguments, reason = "the compiler's interface")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_target_ext(
    device: c_int,
    function: Outlined,
    count: usize,
    addresses: *mut *mut c_void,
    sizes: *const usize,
    kinds: *const c_ushort,
    _: c_uint,
    dependences: *const *mut c_void,
    arguments: *const *mut c_void,
) {
    check_device(device);
    // SAFETY: the compiler passes so many addresses, sizes and kinds.
    unsafe {
        current().await_dependences(&depends(dependences));
        // Copies of what is private from the beginning.
        let mut copies: Vec<Box<[u8]>> = Vec::new();
        for at in 0..count {
            let kind = *kinds.add(at);
            // An optional argument that is absent has no address.
            if kind as u8 == FIRSTPRIVATE && !(*addresses.add(at)).is_null() {
                let alignment = 1usize << (kind >> 8).min(12);
                let mut copy = vec![0u8; *sizes.add(at) + alignment].into_boxed_slice();
                let offset = copy.as_ptr().align_offset(alignment).min(alignment);
                let place = copy.as_mut_ptr().add(offset);
                std::ptr::copy_nonoverlapping(
                    (*addresses.add(at)).cast::<u8>(),
                    place,
                    *sizes.add(at),
                );
                *addresses.add(at) = place.cast();
                copies.push(copy);
            }
        }
        run(function, addresses, thread_limit(arguments));
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_target_data(
    device: c_int,
    _: *const c_void,
    _: usize,
    _: *mut *mut c_void,
    _: *const usize,
    _: *const u8,
) {
    check_device(device);
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_target_data_ext(
    device: c_int,
    _: usize,
    _: *mut *mut c_void,
    _: *const usize,
    _: *const c_ushort,
) {
    check_device(device);
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_target_end_data() {}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_target_update(
    device: c_int,
    _: *const c_void,
    _: usize,
    _: *mut *mut c_void,
    _: *const usize,
    _: *const u8,
) {
    check_device(device);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_target_update_ext(
    device: c_int,
    _: usize,
    _: *mut *mut c_void,
    _: *const usize,
    _: *const c_ushort,
    _: c_uint,
    dependences: *const *mut c_void,
) {
    // SAFETY: as the compiler passes them.
    await_for_device(device, &unsafe { depends(dependences) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_target_enter_exit_data(
    device: c_int,
    _: usize,
    _: *mut *mut c_void,
    _: *const usize,
    _: *const c_ushort,
    _: c_uint,
    dependences: *const *mut c_void,
) {
    // SAFETY: as the compiler passes them.
    await_for_device(device, &unsafe { depends(dependences) });
}

/// Images for devices are noted by compilers' start-up code; there is no device to load them.
#[unsafe(no_mangle)]
pub extern "C" fn GOMP_offload_register(_: *const c_void, _: c_int, _: *const c_void) {}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_offload_unregister(_: *const c_void, _: c_int, _: *const c_void) {}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_offload_register_ver(
    _: c_uint,
    _: *const c_void,
    _: c_int,
    _: *const c_void,
) {
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_offload_unregister_ver(
    _: c_uint,
    _: *const c_void,
    _: c_int,
    _: *const c_void,
) {
}

fn limit_threads(limit: c_uint) {
    if limit != 0 {
        current().set_icv(|icv| {
            icv.thread_limit = if limit > i32::MAX as u32 {
                u32::MAX
            } else {
                limit
            };
        });
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_teams(_: c_uint, limit: c_uint) {
    limit_threads(limit);
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_teams4(low: c_uint, _: c_uint, limit: c_uint, first: bool) -> bool {
    let thread = current();
    if first {
        limit_threads(limit);
        thread.set_league(0, low.max(1));
        return true;
    }
    let (number, size) = thread.league();
    if number + 1 == size {
        return false;
    }
    thread.set_league(number + 1, size);
    true
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_teams_reg(
    function: Outlined,
    data: *mut c_void,
    teams: c_uint,
    limit: c_uint,
    _: c_uint,
) {
    let thread = current();
    let before = thread.icv().thread_limit;
    let wished = crate::api::league_wishes();
    limit_threads(if limit == 0 { wished.1 } else { limit });
    let teams = match (teams, wished.0) {
        (0, 0) => 3,
        (0, wished) => wished,
        (teams, _) => teams,
    };
    let code = code(function, data);
    for number in 0..teams {
        thread.set_league(number, teams);
        code.run();
    }
    thread.set_league(0, 1);
    thread.set_icv(|icv| icv.thread_limit = before);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_target_alloc(bytes: usize, device: c_int) -> *mut c_void {
    if device == HOST {
        // SAFETY: has no precondition.
        return unsafe { libc::malloc(bytes) };
    }
    std::ptr::null_mut()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_target_free(memory: *mut c_void, device: c_int) {
    if device == HOST {
        // SAFETY: the program passes what `omp_target_alloc` returned.
        unsafe { libc::free(memory) };
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_target_is_present(_: *const c_void, _: c_int) -> c_int {
    1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_target_memcpy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    to_offset: usize,
    from_offset: usize,
    to_device: c_int,
    from_device: c_int,
) -> c_int {
    if to_device != HOST || from_device != HOST {
        return libc::EINVAL;
    }
    // SAFETY: the program passes valid memory.
    unsafe {
        libc::memcpy(to.byte_add(to_offset), from.byte_add(from_offset), bytes);
    }
    0
}

/// Copies a part of an array of several dimensions.
#[allow(clippy::too_many_arguments, reason = "what the interface has")]
unsafe fn copy_rectangle(
    to: *mut u8,
    from: *const u8,
    element: usize,
    dimensions: usize,
    volume: *const usize,
    to_offsets: *const usize,
    from_offsets: *const usize,
    to_sizes: *const usize,
    from_sizes: *const usize,
) -> c_int {
    // SAFETY: the program passes arrays of so many dimensions, and memory of their sizes.
    unsafe {
        let part = |sizes: *const usize| {
            (1..dimensions).try_fold(element, |bytes, at| bytes.checked_mul(*sizes.add(at)))
        };
        let (Some(to_part), Some(from_part)) = (part(to_sizes), part(from_sizes)) else {
            return libc::EINVAL;
        };
        let to = to.wrapping_add(*to_offsets * to_part);
        let from = from.wrapping_add(*from_offsets * from_part);
        if dimensions == 1 {
            match element.checked_mul(*volume) {
                Some(bytes) => std::ptr::copy_nonoverlapping(from, to, bytes),
                None => return libc::EINVAL,
            }
            return 0;
        }
        for at in 0..*volume {
            let copied = copy_rectangle(
                to.wrapping_add(at * to_part),
                from.wrapping_add(at * from_part),
                element,
                dimensions - 1,
                volume.add(1),
                to_offsets.add(1),
                from_offsets.add(1),
                to_sizes.add(1),
                from_sizes.add(1),
            );
            if copied != 0 {
                return copied;
            }
        }
    }
    0
}

#[allow(clippy::too_many_arguments, reason = "the standard's interface")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_target_memcpy_rect(
    to: *mut c_void,
    from: *const c_void,
    element: usize,
    dimensions: c_int,
    volume: *const usize,
    to_offsets: *const usize,
    from_offsets: *const usize,
    to_sizes: *const usize,
    from_sizes: *const usize,
    to_device: c_int,
    from_device: c_int,
) -> c_int {
    if to.is_null() && from.is_null() {
        return c_int::MAX;
    }
    if to_device != HOST || from_device != HOST || dimensions < 1 {
        return libc::EINVAL;
    }
    // SAFETY: as the program passes them.
    unsafe {
        copy_rectangle(
            to.cast(),
            from.cast(),
            element,
            dimensions as usize,
            volume,
            to_offsets,
            from_offsets,
            to_sizes,
            from_sizes,
        )
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_target_associate_ptr(
    _: *const c_void,
    _: *const c_void,
    _: usize,
    _: usize,
    _: c_int,
) -> c_int {
    libc::EINVAL
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_target_disassociate_ptr(_: *const c_void, _: c_int) -> c_int {
    libc::EINVAL
}

/// Kinds of pauses: soft and hard.
fn pause(kind: c_int) -> c_int {
    if kind == 1 || kind == 2 { 0 } else { -1 }
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_pause_resource(kind: c_int, device: c_int) -> c_int {
    if device != HOST && device != DEVICE_ICV {
        return -1;
    }
    pause(kind)
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_pause_resource_all(kind: c_int) -> c_int {
    pause(kind)
}
