//! Jobs on a terminal: keys reach them, and the terminal can be read from.

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use support::{MARK, finish, garonne, kill, marked, until};

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
    (
        command.spawn().expect("setsid (util-linux)"),
        File::from(master),
    )
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

#[test]
fn the_interrupt_key_where_a_host_has_joined_ends_the_job_and_is_told_there() {
    use std::io::{BufRead, BufReader};
    let mark = format!("{}-join", std::process::id());
    let mut job = support::command("run --join-key -n 2 sleep 1000")
        .env(MARK, &mark)
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(job.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let key = line.strip_prefix("garonne join ").expect(&line).trim();
    let (guest, mut terminal) = on_terminal(&["join", key, "--name", "notebook"], &mark);
    read_until(&mut terminal, "the job begins");
    let sleeps = || {
        let name =
            |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        marked(&mark)
            .iter()
            .filter(|pid| name(pid) == "sleep\n")
            .count()
    };
    until("all ranks run", || sleeps() == 2);
    terminal.write_all(b"\x03").unwrap();
    read_until(&mut terminal, "exit code 130");
    let mut said = String::new();
    errors.read_to_string(&mut said).unwrap();
    assert!(
        said.contains("'notebook'") && said.contains("SIGINT"),
        "{said}"
    );
    assert_eq!((finish(job).code, finish(guest).code), (130, 130));
    until("nothing is left", || marked(&mark).is_empty());
}

/// Starts `garonne run -n 2` with a signal ignored from the beginning, as a job's parent may have
/// left it.
fn ignoring(signal: &str, words: &[&str]) -> Child {
    Command::new("env")
        .arg(format!("--ignore-signal={signal}"))
        .arg(garonne())
        .args(["run", "-n", "2"])
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("env runs")
}

#[test]
fn a_job_under_nohup_goes_on_when_its_terminal_is_closed() {
    let mut child = ignoring("HUP", &["sh", "-c", "echo ready; sleep 0.5"]);
    let mut ready = [0; 6];
    let mut output = child.stdout.take().expect("a pipe");
    output.read_exact(&mut ready).expect("a rank speaks");
    kill(child.id() as i32, libc::SIGHUP);
    child.stdout = Some(output);
    assert_eq!(finish(child).code, 0);
}

#[test]
fn a_job_whose_parent_ignores_the_ends_of_children_comes_to_its_end() {
    assert_eq!(finish(ignoring("CHLD", &["true"])).code, 0);
}

#[test]
fn what_takes_long_counts_its_steps_on_a_terminal_and_nowhere_else() {
    let mark = format!("{}-progress", std::process::id());
    let words = [
        "bench",
        "tasks",
        "--samples",
        "2",
        "--tasks",
        "10",
        "--json",
    ];
    let (job, mut terminal) = on_terminal(&words, &mark);
    let bar = read_until(&mut terminal, "2/");
    assert!(bar.contains("] 1/"), "{bar:?}");
    // The line is wiped before anything else is said.
    read_until(&mut terminal, "\r\u{1b}[K{");
    drop(terminal);
    finish(job);
    let said = support::said(support::command("").args(words));
    assert!(
        said.code == 0 && said.err.is_empty() && said.out.starts_with('{'),
        "{said:?}"
    );
    // What the ranks of a measurement have come to is told by the one that receives.
    let (job, mut terminal) = on_terminal(&["tune", "--dry-run"], &mark);
    let bar = read_until(&mut terminal, "] 3/9 messages of 64 KB");
    assert!(bar.contains("] 1/9 copies"), "{bar:?}");
    drop(terminal);
    finish(job);
}

#[test]
fn a_watch_draws_its_job_anew_until_the_key_comes() {
    let mark = format!("{}-watch", std::process::id());
    let job = support::command("run -n 2 --name drawn RANK forever")
        .spawn()
        .unwrap();
    until("the job is seen", || {
        support::run("ps drawn").out.contains("running")
    });
    let (watch, mut terminal) = on_terminal(&["who", "--watch=0.1", "drawn"], &mark);
    for _ in 0..3 {
        let drawn = read_until(&mut terminal, "\u{1b}[2J\u{1b}[H");
        assert!(!drawn.contains("error"), "{drawn}");
    }
    terminal.write_all(b"\x03").unwrap();
    assert_eq!(finish(watch).code, 0);
    kill(job.id() as i32, libc::SIGTERM);
    finish(job);
}
