//! What a thread tells about its place: `OMP_DISPLAY_AFFINITY`, `omp_display_affinity`.

use crate::icv::globals;
use crate::thread::Thread;

/// Facts of the process and the thread that the runtime does not have by itself.
#[derive(Debug)]
pub struct Facts {
    /// Name of the host.
    pub host: String,
    /// Number of the process.
    pub process: u32,
    /// What `pthread_self` says.
    pub native_thread: usize,
    /// CPUs of the thread, if no place says so.
    pub cpus: Vec<u32>,
}

/// CPUs as ranges.
pub fn ranges(cpus: &[u32]) -> String {
    let mut text = String::new();
    let mut at = 0;
    while at < cpus.len() {
        let mut last = at;
        while last + 1 < cpus.len() && cpus[last + 1] == cpus[last] + 1 {
            last += 1;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&cpus[at].to_string());
        if last > at {
            text.push_str(&format!("-{}", cpus[last]));
        }
        at = last + 1;
    }
    text
}

/// Long and short names of fields.
const NAMES: [(&str, char); 11] = [
    ("team_num", 't'),
    ("num_teams", 'T'),
    ("nesting_level", 'L'),
    ("thread_num", 'n'),
    ("num_threads", 'N'),
    ("ancestor_tnum", 'a'),
    ("host", 'H'),
    ("process_id", 'P'),
    ("native_thread_id", 'i'),
    ("thread_affinity", 'A'),
    ("affinity", 'A'),
];

/// Fills in a format, as the standard defines it.
///
/// # Errors
/// The field that is unknown.
pub fn format(thread: &Thread, format: &str, facts: &Facts) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            text.push('%');
            rest = after;
            continue;
        }
        let field = rest;
        let zero = rest.starts_with('0');
        rest = rest.trim_start_matches('0');
        let right = rest.starts_with('.');
        rest = rest.strip_prefix('.').unwrap_or(rest);
        let digits = rest.chars().take_while(char::is_ascii_digit).count();
        let width: usize = rest[..digits].parse().unwrap_or(0).min(4096);
        rest = &rest[digits..];
        let name = if let Some(long) = rest.strip_prefix('{') {
            let (long, after) = long.split_once('}').ok_or_else(|| field.to_owned())?;
            rest = after;
            let found = NAMES.iter().find(|(name, _)| *name == long);
            found.map(|(_, short)| *short)
        } else {
            let short = rest.chars().next();
            rest = short.map_or("", |short| &rest[short.len_utf8()..]);
            short
        };
        let value = value(thread, name.unwrap_or('?'), facts).ok_or_else(|| field.to_owned())?;
        // Zeros stand behind a sign and behind the mark of a hexadecimal number.
        let digits = value.trim_start_matches('-');
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        let (head, digits) = value.split_at(value.len() - digits.len());
        let is_number = name.is_some_and(|name| !matches!(name, 'H' | 'A'));
        match (right, zero && is_number) {
            (true, true) => {
                let width = width.saturating_sub(head.len());
                text.push_str(&format!("{head}{digits:0>width$}"));
            }
            (true, false) => text.push_str(&format!("{value:>width$}")),
            _ => text.push_str(&format!("{value:<width$}")),
        }
    }
    text.push_str(rest);
    Ok(text)
}

fn value(thread: &Thread, name: char, facts: &Facts) -> Option<String> {
    let team = thread.team();
    let (number, teams) = thread.league();
    Some(match name {
        't' => number.to_string(),
        'T' => teams.to_string(),
        'L' => team.level.to_string(),
        'n' => thread.number().to_string(),
        'N' => team.size.to_string(),
        'a' => match team.level.checked_sub(1) {
            Some(outer) => thread.ancestor(outer)?.0.to_string(),
            None => "-1".into(),
        },
        'H' => facts.host.clone(),
        'P' => facts.process.to_string(),
        'i' => format!("{:#x}", facts.native_thread),
        'A' => match thread.place() {
            Some(place) => ranges(globals().places.cpus(place)),
            None => ranges(&facts.cpus),
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_filled_in() {
        let facts = Facts {
            host: "node".into(),
            process: 12,
            native_thread: 0xab,
            cpus: vec![0, 1, 2, 5],
        };
        let text = |text| format(crate::current(), text, &facts);
        assert_eq!(text("%0.5L%%%n>%6H<").unwrap(), "00000%0>node  <");
        assert_eq!(
            text("%.6P_%0.8i_%0.7{ancestor_tnum}").unwrap(),
            "    12_0x0000ab_-000001"
        );
        assert_eq!(text("%{num_threads}!%A").unwrap(), "1!0-2,5");
        assert!(text("%x").is_err() && text("%{nothing}").is_err() && text("%").is_err());
    }
}
