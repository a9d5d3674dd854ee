//! The command where its own streams cannot be written: full disks, readers that went away.

mod support;

use std::fs::{File, OpenOptions};
use std::io::pipe;
use std::process::{Output, Stdio};

use support::command;

fn full() -> File {
    OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("a device that is always full")
}

fn output(line: &str, out: impl Into<Stdio>, err: impl Into<Stdio>) -> Output {
    let mut command = command(line);
    command.stdout(out).stderr(err).output().unwrap()
}

/// Commands that write to standard output, some much and some little.
const ASKED: [&str; 7] = [
    "run --version",
    "run --help",
    "explain",
    "explain G0107",
    "explain --json G0107",
    "why settings",
    "completions bash",
];

#[test]
fn an_answer_that_cannot_be_written_is_a_failure_with_one_line() {
    for line in ASKED {
        let ended = output(line, full(), Stdio::piped());
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{line}: {said}");
        assert!(
            said.starts_with("error: cannot write standard output: ") && said.lines().count() == 1,
            "{line}: {said}"
        );
    }
}

#[test]
fn an_answer_that_nobody_reads_ends_the_command_silently() {
    for line in ASKED {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let ended = output(line, writer, Stdio::piped());
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(
            ended.status.code(),
            Some(128 + libc::SIGPIPE),
            "{line}: {said}"
        );
        assert_eq!(said, "", "{line}");
    }
}

#[test]
fn errors_that_cannot_be_said_keep_their_exit_codes() {
    for (line, code) in [
        ("explain G9999", 1),
        ("who 1", 1),
        ("run --no-such-option", 2),
        ("run -n 1 /no/such/program", 127),
        ("run -n 2 sh -c false", 1),
        ("run --verbose -n 1 --bind-to core true", 0),
        ("run -n 1 --report-bindings true", 0),
    ] {
        let ended = output(line, Stdio::piped(), full());
        assert_eq!(ended.status.code(), Some(code), "{line}");
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let ended = output(line, Stdio::piped(), writer);
        assert_eq!(ended.status.code(), Some(code), "{line}");
    }
}

#[test]
fn nothing_is_said_by_both_streams_when_both_are_full() {
    assert_eq!(output("explain", full(), full()).status.code(), Some(1));
}
