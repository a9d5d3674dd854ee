//! Programs that cannot be executed: each is told exactly, with what to do, and no shell reads a
//! program of another machine.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use support::{Said, command, said};

fn write(dir: &Path, name: &str, content: &[u8], mode: u32) {
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn run_in(dir: &Path, program: &str) -> Said {
    said(command("run -n 2").arg(program).current_dir(dir))
}

#[test]
fn what_cannot_be_executed_is_told_with_what_to_do() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let mut other = b"\x7fELF\x02\x01\x01".to_vec();
    other.resize(64, 0);
    // An executable (2) for s390x (22).
    (other[16], other[18]) = (2, 22);
    write(dir, "other", &other, 0o755);
    write(
        dir,
        "crlf",
        b"#!/usr/bin/env python3\r\nprint(1)\r\n",
        0o755,
    );
    write(dir, "missing", b"#!/opt/none/python\n", 0o755);
    write(dir, "z.h", b"int x;\n", 0o644);
    write(dir, "job.py", b"print(1)\n", 0o644);
    std::fs::create_dir(dir.join("folder")).unwrap();
    for (program, code, words) in [
        (
            "./other",
            127,
            "it is a program for s390x, and this machine is",
        ),
        ("./crlf", 127, "its first line ends with a carriage return"),
        (
            "./missing",
            127,
            "the interpreter '/opt/none/python', which is not there",
        ),
        (
            "z.h",
            126,
            "it is there, but not executable; `chmod +x ./z.h`",
        ),
        ("job.py", 126, "start it as `python3 ./job.py`"),
        ("folder", 127, "it is a directory"),
        (
            "nothing",
            127,
            "not found in PATH nor in the working directory",
        ),
    ] {
        let said = run_in(dir, program);
        assert!(
            said.code == code && said.err.contains("error[G0210]") && said.err.contains(words),
            "{program}: {said:?}"
        );
        assert_eq!(said.err.lines().count(), 1, "{program}: {said:?}");
    }
}

#[test]
fn text_without_a_first_line_is_run_by_a_shell() {
    let place = tempfile::tempdir().unwrap();
    write(place.path(), "plain", b"echo by a shell\n", 0o755);
    let said = run_in(place.path(), "./plain");
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "by a shell\nby a shell\n"),
        "{said:?}"
    );
}
