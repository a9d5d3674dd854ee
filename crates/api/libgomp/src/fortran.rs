//! `omp_` functions under the names and with the arguments of Fortran: addresses of integers of 4
//! or 8 bytes, texts with their lengths and without an end.

use crate::{allocators, api, target, tasks};
use std::ffi::{c_double, c_int};

/// An integer of 8 bytes as C's `int`.
fn narrow(number: i64) -> c_int {
    number.clamp(i64::from(c_int::MIN), i64::from(c_int::MAX)) as c_int
}

macro_rules! getters {
    ($($name:ident $function:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            api::$function()
        }
    )*};
}

getters! {
    omp_get_dynamic_ omp_get_dynamic;
    omp_get_nested_ omp_get_nested;
    omp_in_parallel_ omp_in_parallel;
    omp_get_max_threads_ omp_get_max_threads;
    omp_get_num_procs_ omp_get_num_procs;
    omp_get_num_threads_ omp_get_num_threads;
    omp_get_thread_num_ omp_get_thread_num;
    omp_get_thread_limit_ omp_get_thread_limit;
    omp_get_max_active_levels_ omp_get_max_active_levels;
    omp_get_supported_active_levels_ omp_get_supported_active_levels;
    omp_get_level_ omp_get_level;
    omp_get_active_level_ omp_get_active_level;
    omp_in_final_ omp_in_final;
    omp_get_max_teams_ omp_get_max_teams;
    omp_get_teams_thread_limit_ omp_get_teams_thread_limit;
    omp_get_cancellation_ omp_get_cancellation;
    omp_get_proc_bind_ omp_get_proc_bind;
    omp_get_num_places_ omp_get_num_places;
    omp_get_place_num_ omp_get_place_num;
    omp_get_partition_num_places_ omp_get_partition_num_places;
    omp_get_default_device_ omp_get_default_device;
    omp_get_num_devices_ omp_get_num_devices;
    omp_get_num_teams_ omp_get_num_teams;
    omp_get_team_num_ omp_get_team_num;
    omp_is_initial_device_ omp_is_initial_device;
    omp_get_initial_device_ omp_get_initial_device;
    omp_get_device_num_ omp_get_device_num;
    omp_get_max_task_priority_ omp_get_max_task_priority;
}

macro_rules! setters {
    ($($name:ident $name_8:ident $function:ident $convert:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(value: *const i32) {
            // SAFETY: the program passes an integer.
            api::$function(unsafe { *value });
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name_8(value: *const i64) {
            // SAFETY: the program passes an integer.
            api::$function($convert(unsafe { *value }));
        }
    )*};
}

fn truth(value: i64) -> c_int {
    c_int::from(value != 0)
}

setters! {
    omp_set_dynamic_ omp_set_dynamic_8_ omp_set_dynamic truth;
    omp_set_nested_ omp_set_nested_8_ omp_set_nested truth;
    omp_set_num_threads_ omp_set_num_threads_8_ omp_set_num_threads narrow;
    omp_set_max_active_levels_ omp_set_max_active_levels_8_ omp_set_max_active_levels narrow;
    omp_set_num_teams_ omp_set_num_teams_8_ omp_set_num_teams narrow;
    omp_set_teams_thread_limit_ omp_set_teams_thread_limit_8_ omp_set_teams_thread_limit narrow;
    omp_set_default_device_ omp_set_default_device_8_ omp_set_default_device narrow;
    omp_display_env_ omp_display_env_8_ omp_display_env truth;
}

macro_rules! queries {
    ($($name:ident $name_8:ident $function:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(value: *const i32) -> c_int {
            // SAFETY: the program passes an integer.
            api::$function(unsafe { *value })
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name_8(value: *const i64) -> c_int {
            // SAFETY: the program passes an integer.
            api::$function(narrow(unsafe { *value }))
        }
    )*};
}

queries! {
    omp_get_ancestor_thread_num_ omp_get_ancestor_thread_num_8_ omp_get_ancestor_thread_num;
    omp_get_team_size_ omp_get_team_size_8_ omp_get_team_size;
    omp_get_place_num_procs_ omp_get_place_num_procs_8_ omp_get_place_num_procs;
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_get_wtime_() -> c_double {
    api::omp_get_wtime()
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_get_wtick_() -> c_double {
    api::omp_get_wtick()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_set_schedule_(kind: *const i32, chunk: *const i32) {
    // SAFETY: the program passes integers.
    unsafe { api::omp_set_schedule(*kind as u32, *chunk) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_set_schedule_8_(kind: *const i32, chunk: *const i64) {
    // SAFETY: the program passes integers.
    unsafe { api::omp_set_schedule(*kind as u32, narrow(*chunk)) };
}

/// The kind without the mark of monotonic ones, which Fortran's enumeration lacks.
fn schedule() -> (i32, i32) {
    let (kind, chunk) = api::schedule();
    ((kind & 0x7fff_ffff) as i32, chunk)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_get_schedule_(kind: *mut i32, chunk: *mut i32) {
    // SAFETY: the program passes integers.
    unsafe { (*kind, *chunk) = schedule() };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_get_schedule_8_(kind: *mut i32, chunk: *mut i64) {
    let (own_kind, own_chunk) = schedule();
    // SAFETY: the program passes integers.
    unsafe { (*kind, *chunk) = (own_kind, i64::from(own_chunk)) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_get_place_proc_ids_(place: *const i32, ids: *mut i32) {
    // SAFETY: the program passes room for as many as it was told.
    unsafe { api::omp_get_place_proc_ids(*place, ids) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_get_place_proc_ids_8_(place: *const i64, ids: *mut i64) {
    // SAFETY: the program passes room for as many as it was told.
    unsafe {
        for (at, cpu) in api::place_cpus(narrow(*place)).iter().enumerate() {
            *ids.add(at) = i64::from(*cpu);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_get_partition_place_nums_(places: *mut i32) {
    // SAFETY: the program passes room for as many as it was told.
    unsafe { api::omp_get_partition_place_nums(places) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_get_partition_place_nums_8_(places: *mut i64) {
    let count = api::omp_get_partition_num_places().max(0) as usize;
    let mut small = vec![0; count];
    // SAFETY: the program passes room for as many as it was told.
    unsafe {
        api::omp_get_partition_place_nums(small.as_mut_ptr());
        for (at, place) in small.iter().enumerate() {
            *places.add(at) = i64::from(*place);
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_fulfill_event_(event: usize) {
    tasks::omp_fulfill_event(event);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_pause_resource_(kind: *const i32, device: *const i32) -> i32 {
    // SAFETY: the program passes integers.
    unsafe { target::omp_pause_resource(*kind, *device) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_pause_resource_all_(kind: *const i32) -> i32 {
    // SAFETY: the program passes an integer.
    unsafe { target::omp_pause_resource_all(*kind) }
}

/// A text of Fortran, without the blanks at its end.
unsafe fn text(text: *const u8, length: usize) -> String {
    if text.is_null() || length == 0 {
        return String::new();
    }
    // SAFETY: the program passes a text of that length.
    let bytes = unsafe { std::slice::from_raw_parts(text, length) };
    String::from_utf8_lossy(bytes)
        .trim_end_matches(' ')
        .to_owned()
}

/// Copies a text, and fills the rest with blanks.
unsafe fn give(value: &str, buffer: *mut u8, room: usize) {
    if !buffer.is_null() && room > 0 {
        // SAFETY: the program passes so much room.
        let buffer = unsafe { std::slice::from_raw_parts_mut(buffer, room) };
        buffer.fill(b' ');
        let length = value.len().min(room);
        buffer[..length].copy_from_slice(&value.as_bytes()[..length]);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_set_affinity_format_(format: *const u8, length: usize) {
    // SAFETY: as there.
    api::set_affinity_format(unsafe { text(format, length) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_get_affinity_format_(buffer: *mut u8, room: usize) -> i32 {
    let format = api::affinity_format();
    // SAFETY: as there.
    unsafe { give(&format, buffer, room) };
    format.len() as i32
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_display_affinity_(format: *const u8, length: usize) {
    // SAFETY: as there.
    eprintln!("{}", api::affinity_text(&unsafe { text(format, length) }));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_capture_affinity_(
    buffer: *mut u8,
    format: *const u8,
    room: usize,
    length: usize,
) -> i32 {
    // SAFETY: as there.
    unsafe {
        let value = api::affinity_text(&text(format, length));
        give(&value, buffer, room);
        value.len() as i32
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_init_allocator_(
    space: *const usize,
    count: *const i32,
    traits: *const allocators::Trait,
) -> usize {
    // SAFETY: the program passes so many traits.
    unsafe { allocators::omp_init_allocator(*space, *count, traits) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_init_allocator_8_(
    space: *const usize,
    count: *const i64,
    traits: *const allocators::Trait,
) -> usize {
    // SAFETY: the program passes so many traits.
    unsafe { allocators::omp_init_allocator(*space, narrow(*count), traits) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_destroy_allocator_(allocator: *const usize) {
    // SAFETY: the program passes a handle.
    unsafe { allocators::omp_destroy_allocator(*allocator) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_set_default_allocator_(allocator: *const usize) {
    // SAFETY: the program passes a handle.
    allocators::omp_set_default_allocator(unsafe { *allocator });
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_get_default_allocator_() -> usize {
    allocators::omp_get_default_allocator()
}
