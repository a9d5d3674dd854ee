//! What a job is called, by people and tools: one word that is the same on all its hosts.
//!
//! The user chooses it (`garonne run --name`), or it is derived from the program and the start. Two
//! jobs may have one name; tools that are given it ask which of them is meant.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest name.
pub const NAME_MAX: usize = 64;

/// Characters of a derived name's program.
const PROGRAM_MAX: usize = 32;
/// Digits of a derived name, without those that look alike and without vowels, so that no words
/// come about.
const DIGITS: &[u8] = b"23456789bcdfghjkmnpqrstvwxz";
/// How many of them tell the starts of one program apart.
const DIGITS_USED: usize = 4;

/// Programs that run what their first argument names.
const INTERPRETERS: [&str; 8] = [
    "python", "pypy", "sh", "bash", "dash", "perl", "ruby", "julia",
];

/// Options of these behind which there is code instead of a script.
const CODE: [&str; 2] = ["-c", "-e"];

/// Returns whether a user may call a job so.
///
/// # Errors
/// A line that says what a name is.
pub fn check(name: &str) -> Result<(), String> {
    let is_begun = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    match is_begun && !is_number && name.len() <= NAME_MAX && name.chars().all(is_allowed) {
        true => Ok(()),
        false => Err(format!(
            "a name of up to {NAME_MAX} letters, digits, '.', '_' and '-', which begins with a letter or a digit and is no number"
        )),
    }
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-".contains(c)
}

/// A name for a job with this command line. `start` tells apart the jobs of one program; nothing
/// can be concluded from the name on it.
pub fn derived(command: &str, start: u64) -> String {
    // FNV-1a, of which a few bits are used.
    let hash = start
        .to_le_bytes()
        .iter()
        .chain(command.as_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    let mut rest = (hash >> 32) ^ (hash & 0xffff_ffff);
    let mut name = format!("{}-", program(command));
    for _ in 0..DIGITS_USED {
        let digit = (rest % DIGITS.len() as u64) as usize;
        name.extend(DIGITS.get(digit).map(|byte| char::from(*byte)));
        rest /= DIGITS.len() as u64;
    }
    name
}

/// The program in a command line, or the script that an interpreter runs, without directories and
/// suffix.
pub fn program(command: &str) -> String {
    let mut words = command.split_ascii_whitespace();
    let first = words.next().unwrap_or_default();
    let interpreter = stem(first);
    let interpreter = interpreter.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let mut rest = words.take_while(|word| !CODE.contains(word));
    let word = match INTERPRETERS.contains(&interpreter) {
        true => rest.find(|word| !word.starts_with('-')).unwrap_or(first),
        false => first,
    };
    let name = stem(word);
    let known = name.chars().map(|c| if is_allowed(c) { c } else { '_' });
    let known: String = known.take(PROGRAM_MAX).collect();
    let known = known.trim_start_matches(['.', '_', '-']);
    if known.is_empty() { "job" } else { known }.to_owned()
}

fn stem(word: &str) -> String {
    let path = Path::new(word);
    let is_script = path.extension().is_some_and(|suffix| {
        let suffix = suffix.to_string_lossy();
        (1..=3).contains(&suffix.len()) && suffix.chars().all(|c| c.is_ascii_alphabetic())
    });
    let name = match is_script {
        true => path.file_stem(),
        false => path.file_name(),
    };
    name.unwrap_or_default().to_string_lossy().into_owned()
}

/// Seconds since 1970.
pub fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_called_by_its_program_or_script() {
        for (command, name) in [
            ("./solver input.dat", "solver"),
            ("/opt/bin/heat2d.exe -n 4", "heat2d"),
            ("python3 -u scripts/train.py --lr 1", "train"),
            ("/usr/bin/python3.12 a.py", "a"),
            ("python3", "python3"),
            ("python3 -c import time", "python3"),
            ("python3 -m mpi4py.bench x", "mpi4py.bench"),
            ("bash", "bash"),
            ("./lmp_2.4", "lmp_2.4"),
            ("", "job"),
            ("./\u{e9}t\u{e9}\u{1b}[1m", "t___1m"),
        ] {
            assert_eq!(program(command), name, "{command}");
        }
    }

    #[test]
    fn starts_of_one_program_have_names_of_their_own_that_may_be_chosen() {
        let names: std::collections::HashSet<_> =
            (0..64).map(|start| derived("./app", start)).collect();
        assert!(names.len() > 60, "{names:?}");
        for name in names
            .iter()
            .chain([&derived("", 1), &derived(&"x".repeat(500), 1)])
        {
            assert!(check(name).is_ok(), "{name}");
        }
        assert_eq!(derived("./app", 7), derived("./app", 7));
    }

    #[test]
    fn what_tools_could_not_tell_from_a_process_or_an_option_is_no_name() {
        for name in [
            "",
            "12",
            "-x",
            ".x",
            "a b",
            "a/b",
            "a\n",
            "\u{e9}",
            &"x".repeat(65),
        ] {
            assert!(check(name).is_err(), "{name:?}");
        }
        for name in ["a", "heat-1", "2d.run_7", &"x".repeat(64)] {
            assert!(check(name).is_ok(), "{name:?}");
        }
    }
}
