//! A stack that overflows: the fiber is named, and the process dies by the signal.

#![cfg(not(loom))]

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

fn deeper(depth: u64) -> u64 {
    let room = std::hint::black_box([depth; 64]);
    if room[0] == u64::MAX {
        0
    } else {
        deeper(depth + 1) + room[63]
    }
}

#[test]
fn an_overflow_names_the_fiber() {
    if std::env::var_os("OVERFLOW").is_some() {
        let builder = garonne_fiber::Builder::new().name("glutton");
        let fiber = builder.spawn(|| deeper(1)).unwrap();
        fiber.join().unwrap();
        return;
    }
    // Guards that are marks in page tables, where the kernel has these, and pages without access.
    for guards in ["GARONNE_TEST_ANY_GUARDS", "GARONNE_TEST_PROTECTED_GUARDS"] {
        let program = std::env::current_exe().unwrap();
        let ended = Command::new(program)
            .env("OVERFLOW", "1")
            .env(guards, "1")
            .args(["--exact", "an_overflow_names_the_fiber", "--nocapture"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&ended.stderr);
        assert!(
            text.contains("the stack of fiber glutton overflowed"),
            "{guards}: {text}"
        );
        assert_eq!(ended.status.signal(), Some(11), "{guards}");
    }
}
