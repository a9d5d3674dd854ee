//! What is said where this process gets no more memory: how much it wanted, and what the limit on
//! its addresses (`ulimit -v`) is, if there is one. Nothing here asks for memory.

use crate::codes;
use crate::sys;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, getrlimit};
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A process that ends for want of memory ends with this.
const EXIT: i32 = 1;

/// How long, and how often, a thread that finds another saying it waits for that: a tenth of a
/// second in all, a hundred times what it takes.
const LOOK: Duration = Duration::from_millis(1);
const LOOKS_MOST: u32 = 100;

/// A line of words without memory from the heap; what is too long is cut off.
struct LineBuffer {
    bytes: [u8; 320],
    len: usize,
}

impl fmt::Write for LineBuffer {
    fn write_str(&mut self, words: &str) -> fmt::Result {
        let room = &mut self.bytes[self.len..];
        let len = words.len().min(room.len());
        room[..len].copy_from_slice(&words.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}

/// The limit on a process's addresses, and how many of them this one uses, in KB as `ulimit -v`
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AddressLimit {
    limit_kb: u64,
    used_kb: Option<u64>,
}

impl AddressLimit {
    /// `None`: there is no limit.
    fn of_this_process() -> Option<Self> {
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

fn used_kb() -> Option<u64> {
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
pub(crate) fn hint() -> String {
    AddressLimit::of_this_process().map_or_else(String::new, |addresses| format!("; {addresses}"))
}

/// The heap of this process has no more: says so, once, and ends the process.
pub fn end(size: usize) {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    static SAID: AtomicBool = AtomicBool::new(false);
    if BEGUN.swap(true, Ordering::SeqCst) {
        // Another thread says it; the process does not end before it has.
        let mut looks = 0..LOOKS_MOST;
        while !SAID.load(Ordering::SeqCst) && looks.next().is_some() {
            std::thread::sleep(LOOK);
        }
    } else {
        let mut line = LineBuffer {
            bytes: [0; 320],
            len: 0,
        };
        let code = codes::G0304;
        let name = rustix::system::uname();
        let host = name.nodename().to_str().unwrap_or("?");
        // It always has room, or is cut off.
        let _ = write!(
            line,
            "error[{code}]: host '{host}': no memory for {size} bytes"
        );
        match AddressLimit::of_this_process() {
            Some(addresses) => {
                let _ = writeln!(line, "; {addresses}");
            }
            None => {
                let _ = writeln!(line);
            }
        }
        let _ = rustix::io::write(rustix::stdio::stderr(), &line.bytes[..line.len]);
        SAID.store(true, Ordering::SeqCst);
    }
    sys::exit_now(EXIT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_on_addresses_is_named_with_what_is_used_and_a_long_line_is_cut_off() {
        let used = used_kb().unwrap();
        assert!(used > 1000);
        let addresses = AddressLimit {
            limit_kb: 17_200,
            used_kb: Some(17_001),
        };
        let mut line = LineBuffer {
            bytes: [0; 320],
            len: 0,
        };
        writeln!(line, "{addresses}").unwrap();
        assert_eq!(
            &line.bytes[..line.len],
            b"this process may have 17200 KB of addresses and uses 17001, which `ulimit -v` shows and sets\n"
        );
        for _ in 0..10 {
            writeln!(line, "{addresses}").unwrap();
        }
        assert_eq!(line.len, 320);
    }
}
