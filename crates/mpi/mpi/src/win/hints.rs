//! Hints of windows: which are known, their defaults, and those in force.

use super::Flavor;
use crate::info::Info;

/// A hint, its default, and which values it takes.
struct Hint {
    key: &'static str,
    default: &'static str,
    accepts: fn(&str) -> bool,
    /// May be changed after the window was made.
    changes: bool,
}

fn is_bool(value: &str) -> bool {
    matches!(value, "true" | "false")
}

fn is_ordering(value: &str) -> bool {
    let known = |word: &str| matches!(word.trim(), "rar" | "raw" | "war" | "waw");
    value == "none" || value.split(',').all(known)
}

fn is_ops(value: &str) -> bool {
    matches!(value, "same_op" | "same_op_no_op")
}

fn is_number(value: &str) -> bool {
    value.parse::<u64>().is_ok()
}

fn is_alignment(value: &str) -> bool {
    value
        .parse::<u64>()
        .is_ok_and(|align| align.is_power_of_two())
}

const HINTS: [Hint; 8] = [
    Hint {
        key: "no_locks",
        default: "false",
        accepts: is_bool,
        changes: true,
    },
    Hint {
        key: "accumulate_ordering",
        default: "rar,raw,war,waw",
        accepts: is_ordering,
        changes: true,
    },
    Hint {
        key: "accumulate_ops",
        default: "same_op_no_op",
        accepts: is_ops,
        changes: true,
    },
    Hint {
        key: "mpi_accumulate_granularity",
        default: "0",
        accepts: is_number,
        changes: false,
    },
    Hint {
        key: "same_size",
        default: "false",
        accepts: is_bool,
        changes: true,
    },
    Hint {
        key: "same_disp_unit",
        default: "false",
        accepts: is_bool,
        changes: true,
    },
    Hint {
        key: "mpi_minimum_memory_alignment",
        default: "",
        accepts: is_alignment,
        changes: false,
    },
    Hint {
        key: NONCONTIG,
        default: "false",
        accepts: is_bool,
        changes: true,
    },
];

const NONCONTIG: &str = "alloc_shared_noncontig";

fn applies(hint: &Hint, flavor: Flavor) -> bool {
    match hint.key {
        NONCONTIG => flavor == Flavor::Shared,
        "mpi_minimum_memory_alignment" => matches!(flavor, Flavor::Shared | Flavor::Allocate),
        _ => true,
    }
}

/// Returns the hints in force in a new window: those of `info` that are known, and defaults.
pub(super) fn of_new(flavor: Flavor, info: &Info) -> Info {
    let pairs = HINTS.iter().filter(|hint| applies(hint, flavor));
    let values = pairs.filter_map(|hint| {
        let given = info.lookup(hint.key).filter(|value| (hint.accepts)(value));
        let value = given.unwrap_or_else(|| hint.default.into());
        (!value.is_empty()).then(|| (hint.key.to_string(), value))
    });
    Info::from_pairs(values)
}

/// Takes over the hints that may change.
pub(super) fn update(own: &Info, info: &Info) {
    for hint in HINTS.iter().filter(|hint| hint.changes) {
        if let Some(value) = info.lookup(hint.key).filter(|value| (hint.accepts)(value)) {
            // Lengths were checked when the pair was set on `info`.
            let _ = own.set(hint.key, &value);
        }
    }
}

/// Whether the parts of a shared window need not follow each other.
pub(super) fn is_noncontiguous(info: &Info) -> bool {
    info.lookup(NONCONTIG).as_deref() == Some("true")
}

/// The alignment that was asked for; 1 if none was, or none that there is.
pub(super) fn alignment(info: &Info) -> u64 {
    let asked = info.lookup("mpi_minimum_memory_alignment");
    let asked = asked.filter(|text| is_alignment(text));
    asked.and_then(|text| text.parse().ok()).unwrap_or(1)
}
