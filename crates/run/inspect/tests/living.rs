//! Programs that live are examined: what is seen of them, and that they do not notice.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use garonne_inspect::{ProcessSnapshot, ThreadSnapshot, examine};

/// A program that has said that it is ready, and is ended with this value.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap());
        lines.read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        Self(child)
    }

    /// Waits until its first thread sleeps in `read`, and the last of `threads` in what it sleeps
    /// in.
    fn settle(self, threads: usize, last: Option<&str>) -> Self {
        let sleeps_in = |thread: Option<&ThreadSnapshot>, name: &str| {
            let call = thread.and_then(|thread| thread.call.as_ref());
            call.is_some_and(|call| call.name.starts_with(name))
        };
        loop {
            let process = self.examine();
            let first = sleeps_in(process.threads.first(), "read");
            let last = last.is_none_or(|name| sleeps_in(process.threads.last(), name));
            if process.threads.len() == threads && first && last {
                return self;
            }
            std::thread::yield_now();
        }
    }

    fn examine(&self) -> ProcessSnapshot {
        examine(self.0.id(), true).unwrap()
    }

    /// Lets it go on, to its end.
    fn finish(mut self) -> i32 {
        // It may have ended by itself.
        let _ = self.0.stdin.take().unwrap().write_all(b"x");
        self.0.wait().unwrap().code().unwrap_or(-1)
    }

    /// Waits for its end, which its input must not bring about: the input stays open and empty.
    fn end(mut self) -> i32 {
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            std::thread::yield_now();
        }
    }

    fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
}

/// The program that waits, compiled with these flags. `None` without a compiler.
fn compiled(directory: &Path, flags: &[&str]) -> Option<Running> {
    let program = directory.join("waits");
    let mut compile = Command::new("cc");
    compile
        .args(flags)
        .arg(source("waits.c"))
        .arg("-o")
        .arg(&program)
        .arg("-lpthread");
    match compile.status() {
        Ok(status) => assert!(status.success()),
        Err(_) => return None,
    }
    Some(Running::start(&mut Command::new(program)).settle(3, Some("epoll_")))
}

/// Returns the functions of a thread that have names, without those of the C library.
fn path(thread: &ThreadSnapshot) -> Vec<String> {
    let steps = thread.steps();
    let named = steps.iter().map(ToString::to_string);
    named
        .filter(|step| step.contains(".c:") || step.contains(".py:"))
        .collect()
}

fn line_of(file: &str, text: &str) -> usize {
    let source = std::fs::read_to_string(source(file)).unwrap();
    1 + source.lines().position(|line| line.contains(text)).unwrap()
}

/// The three threads of the program that waits.
fn check_threads(process: &ProcessSnapshot) {
    let at =
        |function: &str, text: &str| format!("{function} at waits.c:{}", line_of("waits.c", text));
    let [main, work, events] = process.threads.as_slice() else {
        panic!("{process}");
    };
    let call = main.call.as_ref().unwrap().to_string();
    assert!(call.starts_with("read(0 <pipe:["), "{call}");
    assert_eq!(
        path(main),
        [at("load_input", "= read("), at("main", "load_input(0)")],
        "{process}"
    );
    assert!(main.complete && process.refused.is_none(), "{process}");
    let computing = path(work);
    assert!(computing[0].starts_with("spin at waits.c:"), "{process}");
    assert_eq!(computing[1], at("work", "    spin("), "{process}");
    assert_eq!(work.call, None);
    assert!(events.call.as_ref().unwrap().name.starts_with("epoll_"));
}

#[test]
fn functions_are_found_with_and_without_frame_pointers() {
    for flags in [
        ["-g", "-O2", "-fomit-frame-pointer"],
        ["-g", "-O1", "-fno-omit-frame-pointer"],
        ["-g", "-O0", "-no-pie"],
    ] {
        let directory = tempfile::tempdir().unwrap();
        let Some(running) = compiled(directory.path(), &flags) else {
            return;
        };
        check_threads(&running.examine());
    }
}

#[test]
fn a_program_does_not_notice_that_it_is_examined() {
    let directory = tempfile::tempdir().unwrap();
    // With frame pointers, so that its thread in read() is stopped, too.
    let Some(running) = compiled(directory.path(), &["-g", "-O0"]) else {
        return;
    };
    for _ in 0..30 {
        running.examine();
    }
    let running = running.settle(3, Some("epoll_"));
    check_threads(&running.examine());
    assert_eq!(running.state(), 'S');
    assert_eq!(running.finish(), 0);
}

#[test]
fn a_program_that_is_stopped_stays_so_and_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let Some(running) = compiled(directory.path(), &["-g", "-O2"]) else {
        return;
    };
    let signal = |signal: &str| {
        let pid = running.0.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, pid.as_str()])
                .status()
                .unwrap()
                .success()
        );
    };
    signal("-STOP");
    while running.state() != 'T' {
        std::thread::yield_now();
    }
    for _ in 0..3 {
        let process = running.examine();
        assert!(
            path(&process.threads[0])[0].starts_with("load_input at"),
            "{process}"
        );
        assert_eq!(running.state(), 'T');
    }
    signal("-CONT");
    // The stop itself has ended the wait for events, and with it the program.
    assert_eq!(running.end(), 9);
}

/// Not a test of its own: what the one below runs and kills.
#[test]
#[ignore = "runs until it is killed"]
fn examine_for_ever() {
    let pid = std::env::var("GARONNE_TEST_EXAMINED")
        .unwrap()
        .parse()
        .unwrap();
    println!("ready");
    loop {
        let _ = examine(pid, true);
    }
}

#[test]
fn a_program_goes_on_when_who_examines_it_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let Some(running) = compiled(directory.path(), &["-g", "-O0"]) else {
        return;
    };
    for round in 0..20 {
        let mut examiner = Command::new(std::env::current_exe().unwrap());
        examiner.args(["--ignored", "--exact", "examine_for_ever", "--nocapture"]);
        examiner.env("GARONNE_TEST_EXAMINED", running.0.id().to_string());
        let mut examiner = examiner.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(examiner.stdout.as_mut().unwrap()).lines();
        lines
            .map_while(Result::ok)
            .find(|line| line.ends_with("ready"))
            .unwrap();
        std::thread::sleep(std::time::Duration::from_micros(137 * round));
        examiner.kill().unwrap();
        examiner.wait().unwrap();
    }
    // A thread that was let go may still have to get a core before it is not stopped any more.
    let begun = std::time::Instant::now();
    let threads = || std::fs::read_dir(format!("/proc/{}/task", running.0.id())).unwrap();
    let states = || -> String {
        let stat = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap()
        };
        let state = |stat: String| stat.rsplit_once(") ").unwrap().1.chars().next().unwrap();
        threads().map(stat).map(state).collect()
    };
    while states().contains(['t', 'T']) {
        assert!(begun.elapsed().as_secs() < 60, "{}", states());
        std::thread::yield_now();
    }
    let running = running.settle(3, Some("epoll_"));
    check_threads(&running.examine());
    assert_eq!(running.finish(), 0);
}

#[test]
fn python_functions_take_the_place_of_the_interpreter() {
    // Other interpreters than the machine's may be named, separated by colons.
    let named = std::env::var("GARONNE_TEST_PYTHONS").unwrap_or_else(|_| "python3".into());
    for interpreter in named.split(':') {
        let command = Command::new(interpreter).arg("--version").output();
        if !command.is_ok_and(|output| output.status.success()) {
            continue;
        }
        let running =
            Running::start(Command::new(interpreter).arg(source("exchange.py"))).settle(2, None);
        let process = running.examine();
        assert_eq!(process.python_unknown, None);
        let line = |text: &str| line_of("exchange.py", text) as u32;
        let of = |thread: &ThreadSnapshot| -> Vec<(String, u32)> {
            let plain = |name: &str| name.rsplit('.').next().unwrap().to_owned();
            thread
                .python
                .iter()
                .map(|frame| (plain(&frame.function), frame.line))
                .collect()
        };
        let again = ("exchange".to_owned(), line("self.wait() if"));
        let main = [
            ("wait".to_owned(), line("raw.read")),
            again.clone(),
            again.clone(),
            again,
            ("<module>".to_owned(), line("Solver().exchange(2)")),
        ];
        assert_eq!(of(&process.threads[0]), main, "{interpreter}\n{process}");
        let computing = of(&process.threads[1]);
        assert_eq!(computing[0].0, "spin", "{interpreter}\n{process}");
        assert_eq!(computing[1].0, "run", "{interpreter}\n{process}");
        let said = process.threads[0].to_string();
        assert!(said.contains("exchange() at exchange.py:"), "{said}");
        assert_eq!(running.finish(), 0);
    }
}

#[test]
fn who_is_not_there_cannot_be_examined() {
    assert!(examine(u32::MAX, true).is_err());
}
