//! The limit on the addresses of this process (`ulimit -v`), for messages about memory that is
//! refused. Nothing here but [`hint`] asks for memory.

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, getrlimit};
use std::fmt;

/// The limit on a process's addresses, and how many of them this one uses, in KB as `ulimit -v`
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressLimit {
    /// The limit.
    pub limit_kb: u64,
    /// Addresses in use, if the system tells.
    pub used_kb: Option<u64>,
}

impl AddressLimit {
    /// Returns the limit of this process. `None`: there is none.
    pub fn of_this_process() -> Option<Self> {
        let limit_kb = getrlimit(Resource::As).current? / 1024;
        Some(Self {
            limit_kb,
            used_kb: used_kb(),
        })
    }
}

impl fmt::Display for AddressLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this process may have {} KB of addresses", self.limit_kb)?;
        if let Some(used) = self.used_kb {
            write!(f, " and uses {used}")?;
        }
        f.write_str(", which `ulimit -v` shows and sets")
    }
}

/// Returns how many addresses this process uses, in KB.
pub fn used_kb() -> Option<u64> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(c"/proc/self/status", flags, Mode::empty()).ok()?;
    // The line is among the first.
    let mut text = [0u8; 2048];
    let len = rustix::io::read(&file, &mut text).ok()?;
    let words = |line: &[u8]| {
        std::str::from_utf8(line.strip_prefix(b"VmSize:")?)
            .ok()?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    };
    text[..len].split(|byte| *byte == b'\n').find_map(words)
}

/// Returns the limit on addresses, as the end of a message about a refusal of memory. Empty if
/// there is none.
pub fn hint() -> String {
    AddressLimit::of_this_process().map_or_else(String::new, |addresses| format!("; {addresses}"))
}
