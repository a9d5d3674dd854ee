//! `omp_` functions: numbers of threads, control variables, places, time, affinity texts.

use garonne_openmp::current;
use garonne_openmp::display::{self, Facts, ranges};
use garonne_openmp::icv::{Kind, ProcBind, Schedule, globals};
use garonne_openmp::limits::ACTIVE_LEVELS_MAX;
use std::ffi::{CStr, c_char, c_double, c_int};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// A number as C's `int`.
fn int(number: usize) -> c_int {
    number.min(c_int::MAX as usize) as c_int
}

macro_rules! getters {
    ($($name:ident: $value:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            $value
        }
    )*};
}

getters! {
    omp_get_num_threads: int(current().team_size());
    omp_get_thread_num: int(current().number());
    omp_get_max_threads: current().icv().threads as c_int;
    omp_get_num_procs: int(globals().cpus.len().max(1));
    omp_in_parallel: c_int::from(current().team().active_level > 0);
    omp_get_dynamic: c_int::from(current().icv().dynamic);
    omp_get_nested: {
        let (icv, active) = (current().icv(), current().team().active_level);
        c_int::from(icv.max_active_levels > 1 && icv.max_active_levels > active)
    };
    omp_get_thread_limit: int(current().icv().thread_limit as usize);
    omp_get_max_active_levels: current().icv().max_active_levels as c_int;
    omp_get_supported_active_levels: ACTIVE_LEVELS_MAX as c_int;
    omp_get_level: current().team().level as c_int;
    omp_get_active_level: current().team().active_level as c_int;
    omp_in_final: c_int::from(current().in_final());
    omp_get_cancellation: c_int::from(globals().cancellation);
    omp_get_proc_bind: current().icv().bind as c_int;
    omp_get_num_places: int(globals().places.len());
    omp_get_place_num: match globals().places.is_empty() {
        true => -1,
        false => current().place().map_or(-1, int),
    };
    omp_get_partition_num_places: match globals().places.is_empty() {
        true => 0,
        false => int(current().partition().1),
    };
    omp_get_default_device: current().icv().default_device.max(0);
    omp_get_num_devices: 0;
    omp_get_initial_device: 0;
    omp_get_device_num: 0;
    omp_is_initial_device: 1;
    omp_get_num_teams: current().league().1 as c_int;
    omp_get_team_num: current().league().0 as c_int;
    omp_get_max_task_priority: globals().max_priority;
    omp_get_max_teams: league_wishes().0 as c_int;
    omp_get_teams_thread_limit: league_wishes().1 as c_int;
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_set_num_threads(threads: c_int) {
    current().set_icv(|icv| icv.threads = threads.max(1) as u32);
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_set_dynamic(dynamic: c_int) {
    current().set_icv(|icv| icv.dynamic = dynamic != 0);
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_set_nested(nests: c_int) {
    current().set_icv(|icv| match (nests != 0, icv.max_active_levels > 1) {
        (true, false) => icv.max_active_levels = ACTIVE_LEVELS_MAX,
        (false, true) => icv.max_active_levels = 1,
        _ => (),
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_set_max_active_levels(levels: c_int) {
    if levels >= 0 {
        current().set_icv(|icv| icv.max_active_levels = (levels as u32).min(ACTIVE_LEVELS_MAX));
    }
}

/// Mark of a monotonic schedule in its number.
const MONOTONIC: u32 = 0x8000_0000;

#[unsafe(no_mangle)]
pub extern "C" fn omp_set_schedule(kind: u32, chunk: c_int) {
    let (number, monotonic) = (kind & !MONOTONIC, kind & MONOTONIC != 0);
    let (kind, least) = match number {
        1 => (Kind::Static, 0),
        2 => (Kind::Dynamic, 1),
        3 => (Kind::Guided, 1),
        4 => (Kind::Auto, 0),
        _ => return,
    };
    let chunk = if chunk < 1 { least } else { chunk as u64 };
    current().set_icv(|icv| {
        icv.schedule = Schedule {
            kind,
            chunk: if kind == Kind::Auto {
                icv.schedule.chunk
            } else {
                chunk
            },
            monotonic,
        };
    });
}

pub(crate) fn schedule() -> (u32, c_int) {
    let Schedule {
        kind,
        chunk,
        monotonic,
    } = current().icv().schedule;
    let number = match kind {
        Kind::Static => 1,
        Kind::Dynamic => 2,
        Kind::Guided => 3,
        Kind::Auto => 4,
    };
    (
        number | if monotonic { MONOTONIC } else { 0 },
        chunk as c_int,
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_get_schedule(kind: *mut u32, chunk: *mut c_int) {
    // SAFETY: the program passes two words.
    unsafe { (*kind, *chunk) = schedule() };
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_get_ancestor_thread_num(level: c_int) -> c_int {
    let ancestor = u32::try_from(level)
        .ok()
        .and_then(|level| current().ancestor(level));
    ancestor.map_or(-1, |(number, _)| int(number))
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_get_team_size(level: c_int) -> c_int {
    let ancestor = u32::try_from(level)
        .ok()
        .and_then(|level| current().ancestor(level));
    ancestor.map_or(-1, |(_, size)| int(size))
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_set_default_device(device: c_int) {
    current().set_icv(|icv| icv.default_device = device.max(0));
}

/// Teams of a league, and threads of each, if a program or the environment said so.
static TEAMS: AtomicU32 = AtomicU32::new(u32::MAX);
static TEAMS_THREAD_LIMIT: AtomicU32 = AtomicU32::new(u32::MAX);

pub(crate) fn league_wishes() -> (u32, u32) {
    let or = |word: &AtomicU32, other| match word.load(Ordering::Relaxed) {
        u32::MAX => other,
        value => value,
    };
    let globals = globals();
    (
        or(&TEAMS, globals.teams),
        or(&TEAMS_THREAD_LIMIT, globals.teams_thread_limit),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_set_num_teams(teams: c_int) {
    if teams >= 0 {
        TEAMS.store(teams as u32, Ordering::Relaxed);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_set_teams_thread_limit(limit: c_int) {
    if limit >= 0 {
        TEAMS_THREAD_LIMIT.store(limit as u32, Ordering::Relaxed);
    }
}

pub(crate) fn place_cpus(place: c_int) -> &'static [u32] {
    usize::try_from(place).map_or(&[], |place| globals().places.cpus(place))
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_get_place_num_procs(place: c_int) -> c_int {
    int(place_cpus(place).len())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_get_place_proc_ids(place: c_int, ids: *mut c_int) {
    for (at, cpu) in place_cpus(place).iter().enumerate() {
        // SAFETY: the program passes room for as many as it was told.
        unsafe { *ids.add(at) = *cpu as c_int };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_get_partition_place_nums(places: *mut c_int) {
    if globals().places.is_empty() {
        return;
    }
    let (first, count) = current().partition();
    for at in 0..count {
        // SAFETY: the program passes room for as many as it was told.
        unsafe { *places.add(at) = int(first + at) };
    }
}

fn seconds(time: libc::timespec) -> c_double {
    time.tv_sec as c_double + time.tv_nsec as c_double / 1e9
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_get_wtime() -> c_double {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    seconds(time)
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_get_wtick() -> c_double {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1,
    };
    // SAFETY: the call writes the time.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC, &mut time) };
    seconds(time)
}

/// The format that a program has set.
static FORMAT: Mutex<Option<String>> = Mutex::new(None);

pub(crate) fn affinity_format() -> String {
    let format = FORMAT.lock().unwrap_or_else(|error| error.into_inner());
    format
        .clone()
        .unwrap_or_else(|| globals().affinity_format.clone())
}

pub(crate) fn set_affinity_format(format: String) {
    *FORMAT.lock().unwrap_or_else(|error| error.into_inner()) = Some(format);
}

fn facts() -> Facts {
    let mut host = [0 as c_char; 256];
    // SAFETY: the calls get room and have no other precondition.
    unsafe {
        libc::gethostname(host.as_mut_ptr(), host.len() - 1);
        Facts {
            host: CStr::from_ptr(host.as_ptr()).to_string_lossy().into_owned(),
            process: std::process::id(),
            native_thread: libc::pthread_self() as usize,
            cpus: globals().cpus.clone(),
        }
    }
}

/// A format filled in; an empty one: the control variable's.
pub(crate) fn affinity_text(format: &str) -> String {
    let own;
    let format = if format.is_empty() {
        own = affinity_format();
        &own
    } else {
        format
    };
    display::format(current(), format, &facts()).unwrap_or_else(|field| {
        crate::fatal(&format!("unsupported type {field} in affinity format"))
    })
}

thread_local! {
    /// What the thread has told about its place.
    static TOLD: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

/// Tells the thread's place if that is asked for and not what it told before.
pub(crate) fn tell_affinity() {
    let text = affinity_text("");
    TOLD.with(|told| {
        if *told.borrow() != text {
            eprintln!("{text}");
            *told.borrow_mut() = text;
        }
    });
}

unsafe fn optional<'a>(text: *const c_char) -> std::borrow::Cow<'a, str> {
    if text.is_null() {
        return "".into();
    }
    // SAFETY: the program passes a text of C.
    unsafe { CStr::from_ptr(text) }.to_string_lossy()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_set_affinity_format(format: *const c_char) {
    // SAFETY: as there.
    set_affinity_format(unsafe { optional(format) }.into_owned());
}

/// Copies a text with its end, as far as there is room.
unsafe fn copy_text(text: &str, buffer: *mut c_char, room: usize) -> usize {
    if room > 0 && !buffer.is_null() {
        let length = text.len().min(room - 1);
        // SAFETY: the program passes so much room.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, length);
            *buffer.add(length) = 0;
        }
    }
    text.len()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_get_affinity_format(buffer: *mut c_char, room: usize) -> usize {
    // SAFETY: as there.
    unsafe { copy_text(&affinity_format(), buffer, room) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_display_affinity(format: *const c_char) {
    // SAFETY: as there.
    eprintln!("{}", affinity_text(&unsafe { optional(format) }));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_capture_affinity(
    buffer: *mut c_char,
    room: usize,
    format: *const c_char,
) -> usize {
    // SAFETY: as there.
    unsafe { copy_text(&affinity_text(&optional(format)), buffer, room) }
}

#[unsafe(no_mangle)]
pub extern "C" fn omp_display_env(verbose: c_int) {
    display_environment(verbose != 0);
}

/// Tells all control variables.
pub(crate) fn display_environment(verbose: bool) {
    let globals = globals();
    let initial = &globals.initial;
    let yes = |is: bool| if is { "TRUE" } else { "FALSE" };
    let mut text = String::from("\nOPENMP DISPLAY ENVIRONMENT BEGIN\n  _OPENMP = '201511'\n");
    let mut line = |name: &str, value: String| {
        text.push_str(&format!("  {name} = '{value}'\n"));
    };
    let bind = |bind: ProcBind| match bind {
        ProcBind::False => "FALSE",
        ProcBind::True => "TRUE",
        ProcBind::Primary => "MASTER",
        ProcBind::Close => "CLOSE",
        ProcBind::Spread => "SPREAD",
    };
    let list = |first: String, rest: Vec<String>| [vec![first], rest].concat().join(",");
    line("OMP_DYNAMIC", yes(initial.dynamic).into());
    line("OMP_NESTED", yes(initial.max_active_levels > 1).into());
    let more = globals
        .threads_list
        .iter()
        .skip(1)
        .map(u32::to_string)
        .collect();
    line("OMP_NUM_THREADS", list(initial.threads.to_string(), more));
    let Schedule {
        kind,
        chunk,
        monotonic,
    } = initial.schedule;
    let (name, usual) = match kind {
        Kind::Static => ("STATIC", 0),
        Kind::Dynamic => ("DYNAMIC", 1),
        Kind::Guided => ("GUIDED", 1),
        Kind::Auto => ("AUTO", chunk),
    };
    let modifier = match (monotonic, kind) {
        (true, Kind::Static) => "",
        (true, _) => "MONOTONIC:",
        (false, Kind::Static) => "NONMONOTONIC:",
        (false, _) => "",
    };
    let tail = if chunk == usual {
        String::new()
    } else {
        format!(",{chunk}")
    };
    line("OMP_SCHEDULE", format!("{modifier}{name}{tail}"));
    let more = globals
        .bind_list
        .iter()
        .skip(1)
        .map(|kind| bind(*kind).to_owned());
    line(
        "OMP_PROC_BIND",
        list(bind(initial.bind).into(), more.collect()),
    );
    let places = (0..globals.places.len())
        .map(|place| format!("{{{}}}", ranges(globals.places.cpus(place))));
    line("OMP_PLACES", places.collect::<Vec<_>>().join(","));
    line(
        "OMP_STACKSIZE",
        if globals.stack_given {
            globals.stack
        } else {
            0
        }
        .to_string(),
    );
    let policy = if globals.wait_active == Some(true) {
        "ACTIVE"
    } else {
        "PASSIVE"
    };
    line("OMP_WAIT_POLICY", policy.into());
    line("OMP_THREAD_LIMIT", initial.thread_limit.to_string());
    line(
        "OMP_MAX_ACTIVE_LEVELS",
        initial.max_active_levels.to_string(),
    );
    line("OMP_NUM_TEAMS", league_wishes().0.to_string());
    line("OMP_TEAMS_THREAD_LIMIT", league_wishes().1.to_string());
    line("OMP_CANCELLATION", yes(globals.cancellation).into());
    line("OMP_DEFAULT_DEVICE", initial.default_device.to_string());
    line("OMP_MAX_TASK_PRIORITY", globals.max_priority.to_string());
    line("OMP_DISPLAY_AFFINITY", yes(globals.display_affinity).into());
    line("OMP_AFFINITY_FORMAT", globals.affinity_format.clone());
    const ALLOCATORS: [&str; 8] = [
        "default",
        "large_cap",
        "const",
        "high_bw",
        "low_lat",
        "cgroup",
        "pteam",
        "thread",
    ];
    let name = initial
        .allocator
        .checked_sub(1)
        .and_then(|at| ALLOCATORS.get(at));
    line(
        "OMP_ALLOCATOR",
        name.map_or(String::new(), |name| format!("omp_{name}_mem_alloc")),
    );
    let offload = match (globals.offload_mandatory, globals.offload_disabled) {
        (true, _) => "MANDATORY",
        (_, true) => "DISABLED",
        _ => "DEFAULT",
    };
    line("OMP_TARGET_OFFLOAD", offload.into());
    if verbose {
        line("GOMP_CPU_AFFINITY", String::new());
        line("GOMP_STACKSIZE", globals.stack.to_string());
        let spins = globals
            .spins
            .map_or("DEFAULT".into(), |spins| spins.to_string());
        line("GOMP_SPINCOUNT", spins);
    }
    text.push_str("OPENMP DISPLAY ENVIRONMENT END\n");
    eprint!("{text}");
}
