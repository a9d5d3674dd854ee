//! Jobs on a terminal: keys reach them, and the terminal can be read from.

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use support::{MARK, finish, garonne, marked, until};

/// Starts `garonne` with these words on a terminal of its own; returns the other side of it.
fn on_terminal(words: &[&str], mark: &str) -> (Child, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master)
        .and_then(|()| unlockpt(&master))
        .expect("a terminal");
    let name = ptsname(&master, Vec::new()).expect("its name");
    let open = || {
        File::options()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .expect("its other side")
    };
    let side: OwnedFd = open().into();
    let mut command = Command::new("setsid");
    command
        .args(["--ctty", "--wait"])
        .arg(garonne())
        .args(words)
        .env(MARK, mark);
    command
        .stdin(side.try_clone().unwrap())
        .stdout(side.try_clone().unwrap())
        .stderr(side);
    (command.spawn().expect("setsid (util-linux)"), File::from(master))
}

/// Reads from the terminal until `text` has appeared.
fn read_until(terminal: &mut File, text: &str) -> String {
    let mut seen = String::new();
    let mut buffer = [0; 256];
    while !seen.contains(text) {
        match terminal.read(&mut buffer) {
            Ok(n) if n > 0 => seen += &String::from_utf8_lossy(&buffer[..n]),
            _ => panic!("the terminal closed before {text:?} appeared: {seen:?}"),
        }
    }
    seen
}

#[test]
fn the_interrupt_key_ends_everything_quietly() {
    let mark = format!("{}-key", std::process::id());
    let script = "echo ready; while :; do sleep 0.01; done";
    let (job, mut terminal) = on_terminal(&["run", "-n", "1", "sh", "-c", script], &mark);
    read_until(&mut terminal, "ready");
    terminal.write_all(b"\x03").unwrap();
    assert_eq!(finish(job).code, 128 + libc::SIGINT);
    until("no process is left", || marked(&mark).is_empty());
    let mut rest = String::new();
    // The read ends with an error once nobody has the other side open.
    let _ = terminal.read_to_string(&mut rest);
    assert!(!rest.contains("error"), "{rest}");
}

#[test]
fn the_first_rank_reads_from_the_terminal() {
    let mark = format!("{}-read", std::process::id());
    let script = "test -t 0 && printf 'name? ' && read name && echo hello $name";
    let (job, mut terminal) = on_terminal(&["run", "-n", "1", "sh", "-c", script], &mark);
    read_until(&mut terminal, "name? ");
    terminal.write_all(b"you\n").unwrap();
    read_until(&mut terminal, "hello you");
    assert_eq!(finish(job).code, 0);
}
