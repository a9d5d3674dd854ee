//! Control variables from the environment. What cannot be read is reported and ignored.

use crate::icv::{Globals, Icv, Kind, ProcBind, Schedule};
use crate::limits::{ACTIVE_LEVELS_MAX, STACK_DEFAULT};
use crate::places::Places;

/// Format of a thread's place where `OMP_AFFINITY_FORMAT` says nothing.
pub const AFFINITY_FORMAT: &str = "level %L thread %i affinity %A";

/// Default device where one must be used and nobody named the host.
const NO_DEVICE: i32 = -4;

fn invalid(name: &str, value: &str) {
    eprintln!("\nlibgomp: Invalid value for environment variable {name}: {value}");
}

/// Reads a value by `parse`, or reports it.
fn get<T>(
    variable: &impl Fn(&str) -> Option<String>,
    name: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let value = variable(name)?;
    let parsed = parse(value.trim());
    if parsed.is_none() {
        invalid(name, &value);
    }
    parsed
}

fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

fn positive(text: &str) -> Option<u32> {
    let number: u64 = text.trim().parse().ok()?;
    (number > 0).then_some(number.min(i32::MAX as u64) as u32)
}

fn list<T>(text: &str, parse: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    text.split(',').map(|word| parse(word.trim())).collect()
}

fn bind(text: &str) -> Option<ProcBind> {
    Some(match text.to_ascii_lowercase().as_str() {
        "false" => ProcBind::False,
        "true" => ProcBind::True,
        "master" | "primary" => ProcBind::Primary,
        "close" => ProcBind::Close,
        "spread" => ProcBind::Spread,
        _ => return None,
    })
}

/// Reads `[modifier:]kind[,chunk]`.
pub fn schedule(text: &str) -> Option<Schedule> {
    let text = text.to_ascii_lowercase();
    let (modifier, rest) = match text.split_once(':') {
        Some((modifier, rest)) => (Some(modifier.trim()), rest),
        None => (None, text.as_str()),
    };
    let (kind, chunk) = match rest.split_once(',') {
        Some((kind, chunk)) => (kind, Some(chunk.trim().parse::<u64>().ok()?)),
        None => (rest, None),
    };
    let kind = match kind.trim() {
        "static" => Kind::Static,
        "dynamic" => Kind::Dynamic,
        "guided" => Kind::Guided,
        "auto" => Kind::Auto,
        _ => return None,
    };
    let monotonic = match modifier {
        Some("monotonic") => true,
        Some("nonmonotonic") => false,
        Some(_) => return None,
        None => kind == Kind::Static,
    };
    let least = u64::from(kind != Kind::Static);
    let chunk = chunk.filter(|chunk| *chunk != 0).unwrap_or(least);
    if chunk > i32::MAX as u64 {
        return None;
    }
    Some(Schedule {
        kind,
        chunk,
        monotonic,
    })
}

/// Reads a size with a unit; without one it is in KB.
fn size(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].trim().to_ascii_lowercase().as_str() {
        "b" => 0,
        "" | "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return None,
    };
    let bytes = digits.trim().parse::<usize>().ok()?.checked_shl(shift)?;
    (bytes > 0).then_some(bytes)
}

/// Reads the size of a stack. More than a thread can have is refused, and not cut.
fn stack(text: &str) -> Option<usize> {
    size(text).filter(|bytes| *bytes <= garonne_fiber::limits::STACK_MAX)
}

fn allocator(text: &str) -> Option<usize> {
    const NAMES: [&str; 8] = [
        "omp_default_mem_alloc",
        "omp_large_cap_mem_alloc",
        "omp_const_mem_alloc",
        "omp_high_bw_mem_alloc",
        "omp_low_lat_mem_alloc",
        "omp_cgroup_mem_alloc",
        "omp_pteam_mem_alloc",
        "omp_thread_mem_alloc",
    ];
    if let Some(at) = NAMES
        .iter()
        .position(|name| text.eq_ignore_ascii_case(name))
    {
        return Some(at + 1);
    }
    text.parse().ok().filter(|number| (1..=8).contains(number))
}

/// Reads all variables.
pub fn read(variable: impl Fn(&str) -> Option<String>) -> Globals {
    let variable = &variable;
    let cpus: Vec<u32> = garonne_topology::allowed().iter().collect();
    let threads_list = get(variable, "OMP_NUM_THREADS", |text| list(text, positive));
    let threads_list = threads_list.unwrap_or_default();
    let bind_list = get(variable, "OMP_PROC_BIND", |text| list(text, bind)).unwrap_or_default();
    let places = get(variable, "OMP_PLACES", |text| Places::parse(text, &cpus));
    let affinity = get(variable, "GOMP_CPU_AFFINITY", |text| {
        Places::parse_affinity(text, &cpus)
    });
    let has_places = places.is_some() || affinity.is_some();
    let own_bind = match bind_list.first() {
        Some(first) => *first,
        None if has_places => ProcBind::True,
        None => ProcBind::False,
    };
    let mut places = places.or(affinity).unwrap_or_default();
    if places.is_empty() && own_bind != ProcBind::False {
        places = Places::each_cpu(&cpus);
    }
    let nested = get(variable, "OMP_NESTED", boolean);
    let levels = get(variable, "OMP_MAX_ACTIVE_LEVELS", |text| {
        text.parse::<u32>().ok()
    });
    let nests = nested == Some(true) || threads_list.len() > 1 || bind_list.len() > 1;
    let levels = levels.map(|levels| levels.min(ACTIVE_LEVELS_MAX));
    let levels = levels.unwrap_or(if nests && nested != Some(false) {
        ACTIVE_LEVELS_MAX
    } else {
        1
    });
    let stack =
        get(variable, "OMP_STACKSIZE", stack).or_else(|| get(variable, "GOMP_STACKSIZE", stack));
    let wait_active = get(variable, "OMP_WAIT_POLICY", |text| {
        match text.to_ascii_lowercase().as_str() {
            "active" => Some(true),
            "passive" => Some(false),
            _ => None,
        }
    });
    let spins = get(variable, "GOMP_SPINCOUNT", |text| {
        match text.to_ascii_lowercase().as_str() {
            "infinity" | "infinite" => Some(u32::MAX),
            text => text
                .parse::<u64>()
                .ok()
                .map(|n| n.min(u64::from(u32::MAX)) as u32),
        }
    });
    let spins = spins.or(match wait_active {
        Some(true) => Some(1_000_000),
        Some(false) => Some(0),
        None => None,
    });
    let offload = get(variable, "OMP_TARGET_OFFLOAD", |text| {
        match text.to_ascii_lowercase().as_str() {
            "default" => Some((false, false)),
            "mandatory" => Some((true, false)),
            "disabled" => Some((false, true)),
            _ => None,
        }
    });
    let mandatory = offload.is_some_and(|(mandatory, _)| mandatory);
    let initial = Icv {
        threads: threads_list
            .first()
            .copied()
            .unwrap_or(cpus.len().max(1) as u32),
        thread_limit: get(variable, "OMP_THREAD_LIMIT", positive).unwrap_or(u32::MAX),
        dynamic: get(variable, "OMP_DYNAMIC", boolean).unwrap_or(false),
        max_active_levels: levels,
        schedule: get(variable, "OMP_SCHEDULE", schedule).unwrap_or(Schedule {
            kind: Kind::Dynamic,
            chunk: 1,
            monotonic: false,
        }),
        bind: own_bind,
        default_device: get(variable, "OMP_DEFAULT_DEVICE", |text| text.parse().ok())
            .unwrap_or(if mandatory { NO_DEVICE } else { 0 }),
        allocator: get(variable, "OMP_ALLOCATOR", allocator).unwrap_or(1),
    };
    let format = variable("OMP_AFFINITY_FORMAT");
    Globals {
        initial,
        threads_list,
        bind_list,
        cpus,
        places,
        cancellation: get(variable, "OMP_CANCELLATION", boolean).unwrap_or(false),
        stack: stack.unwrap_or(STACK_DEFAULT),
        stack_given: stack.is_some(),
        spins,
        wait_active,
        max_priority: get(variable, "OMP_MAX_TASK_PRIORITY", |text| text.parse().ok())
            .filter(|priority| *priority >= 0)
            .unwrap_or(0),
        display_affinity: get(variable, "OMP_DISPLAY_AFFINITY", boolean).unwrap_or(false),
        affinity_format: format.unwrap_or_else(|| AFFINITY_FORMAT.into()),
        offload_mandatory: mandatory,
        offload_disabled: offload.is_some_and(|(_, disabled)| disabled),
        teams: get(variable, "OMP_NUM_TEAMS", positive).unwrap_or(0),
        teams_thread_limit: get(variable, "OMP_TEAMS_THREAD_LIMIT", positive).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &'static [(&str, &str)]) -> Globals {
        read(|name| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn variables_are_read() {
        let globals = with(&[
            ("OMP_NUM_THREADS", "4,3"),
            ("OMP_SCHEDULE", "guided, 7"),
            ("OMP_STACKSIZE", "2 M"),
            ("OMP_DYNAMIC", "TRUE"),
            ("OMP_THREAD_LIMIT", "nonsense"),
        ]);
        assert_eq!(globals.threads_list, [4, 3]);
        assert_eq!(globals.initial.max_active_levels, ACTIVE_LEVELS_MAX);
        let schedule = globals.initial.schedule;
        assert_eq!((schedule.kind, schedule.chunk), (Kind::Guided, 7));
        assert_eq!(globals.stack, 2 << 20);
        assert!(globals.initial.dynamic);
        assert_eq!(globals.initial.thread_limit, u32::MAX);
        assert_eq!(with(&[]).initial.max_active_levels, 1);
    }

    #[test]
    fn schedules_and_sizes() {
        let read = |text| schedule(text).map(|s| (s.kind, s.chunk, s.monotonic));
        assert_eq!(read("monotonic:dynamic,3"), Some((Kind::Dynamic, 3, true)));
        assert_eq!(read("static"), Some((Kind::Static, 0, true)));
        assert_eq!(read("auto"), Some((Kind::Auto, 1, false)));
        for wrong in ["", "fast", "dynamic,x", "odd:static", "static,99999999999"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(
            (size("1"), size("3b"), size("x")),
            (Some(1024), Some(3), None)
        );
        assert_eq!((stack("4G"), stack("100G")), (Some(4 << 30), None));
    }
}
