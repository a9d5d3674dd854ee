//! Running jobs under test: the command, the rank without MPI, and looking for what a job left
//! behind.

#![allow(dead_code)] // each test crate uses its own part

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Longest time that anything here may take; a job that hangs fails its test instead of the whole
/// run.
const PATIENCE: Duration = Duration::from_secs(30);

/// The variable by which all processes of a test's job are found, whatever became of their parents.
pub const MARK: &str = "GARONNE_TEST_MARK";

pub fn garonne() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_garonne"))
}

/// The rank without MPI: an example of this package. A run of all tests has built it; one test
/// alone, or an edit since, has not.
pub fn fake_rank() -> String {
    static PATH: LazyLock<PathBuf> = LazyLock::new(|| {
        let directory = garonne()
            .parent()
            .expect("a directory of programs")
            .to_owned();
        let path = directory.join("examples").join("fake-rank");
        let built = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/fake-rank.rs");
        if built(&path).is_none_or(|at| built(&source).is_some_and(|edited| edited > at)) {
            build_fake_rank(&directory);
        }
        path
    });
    PATH.to_str().expect("a path in UTF-8").to_owned()
}

/// Builds it where this test's own programs are: `TARGET/PROFILE`, as `cargo test` does without
/// `--target`.
fn build_fake_rank(directory: &Path) {
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--package",
            env!("CARGO_PKG_NAME"),
            "--example",
            "fake-rank",
        ])
        .args(["--profile", profile, "--target-dir"])
        .arg(directory.parent().expect("the target directory"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "cannot build the example fake-rank"
    );
}

/// `garonne` with the words of `line`; `RANK` stands for the rank without MPI.
pub fn command(line: &str) -> Command {
    let mut command = Command::new(garonne());
    command.args(line.split_whitespace().map(|word| {
        if word == "RANK" {
            fake_rank()
        } else {
            word.to_owned()
        }
    }));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("GARONNE_")) {
        command.env_remove(name);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Exit code and output of a finished command.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    /// Lines of standard output, sorted: ranks speak in any order.
    pub fn sorted(&self) -> Vec<&str> {
        let mut lines: Vec<_> = self.out.lines().collect();
        lines.sort_unstable();
        lines
    }
}

fn text(output: Output) -> Said {
    use std::os::unix::process::ExitStatusExt;
    let code = output
        .status
        .code()
        .unwrap_or_else(|| -output.status.signal().unwrap_or(0));
    let utf8 = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Said {
        code,
        out: utf8(&output.stdout),
        err: utf8(&output.stderr),
    }
}

/// Runs to the end.
pub fn said(command: &mut Command) -> Said {
    let child = command.spawn().expect("the command starts");
    finish(child)
}

/// Waits for the end, and collects what was said.
pub fn finish(child: Child) -> Said {
    let pid = child.id() as i32;
    let (done, wait) = std::sync::mpsc::channel();
    let collector = std::thread::spawn(move || {
        let output = child.wait_with_output();
        let _ = done.send(());
        output
    });
    if wait.recv_timeout(PATIENCE).is_err() {
        kill(pid, libc::SIGKILL);
        panic!(
            "the job did not end within {PATIENCE:?}: {:?}",
            collector.join().unwrap().map(text)
        );
    }
    text(collector.join().unwrap().expect("the command's output"))
}

/// Runs the words of `line` to the end.
pub fn run(line: &str) -> Said {
    said(&mut command(line))
}

pub fn kill(pid: i32, signal: i32) {
    rustix::process::Pid::from_raw(pid)
        .zip(rustix::process::Signal::from_named_raw(signal))
        .map(|(pid, signal)| rustix::process::kill_process(pid, signal));
}

/// Waits until `what` holds.
pub fn until(text: &str, mut what: impl FnMut() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {text}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Processes that carry this mark in their environment and are no zombies.
pub fn marked(mark: &str) -> Vec<i32> {
    let wanted = format!("{MARK}={mark}");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        // A zombie's environment reads empty.
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environ
            .split(|&b| b == 0)
            .any(|variable| variable == wanted.as_bytes())
        {
            found.push(pid);
        }
    }
    found
}

/// Children of a process.
pub fn children(pid: i32) -> Vec<i32> {
    let list =
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// The agent of a launcher, once it is there: the child of its guard.
pub fn agent_of(launcher: i32) -> Option<i32> {
    let guard = children(launcher).first().copied()?;
    children(guard).first().copied()
}

/// Names of files in shared memory and of abstract sockets of launcher `pid`: what a job might
/// leave.
pub fn leftovers(launcher: u32) -> Vec<String> {
    let files = std::fs::read_dir("/dev/shm")
        .into_iter()
        .flatten()
        .flatten();
    let files = files
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains("garonne"));
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let names = [
        format!("garonne/job/{launcher}/"),
        format!("garonne/cpus/{launcher}/"),
    ];
    let sockets = sockets
        .lines()
        .filter(|line| names.iter().any(|name| line.contains(name.as_str())))
        .map(str::to_owned);
    files.chain(sockets.collect::<Vec<_>>()).collect()
}
