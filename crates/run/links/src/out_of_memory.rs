//! What is said where this process gets no more memory: how much it wanted, and what the limit on
//! its addresses (`ulimit -v`) is, if there is one. Nothing here asks for memory.

use crate::sys;
use garonne_job::address_limit::AddressLimit;
use garonne_job::codes;
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
    use garonne_job::address_limit::used_kb;

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
