//! Threads that stand still where they crashed: which functions are told, through signal handlers
//! and wrong calls.

use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use garonne_inspect::{CrashedThread, StackStep};

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/crashes.c")
}

/// The place of the line of the program that has this comment.
fn line(mark: &str) -> String {
    let text = std::fs::read_to_string(source()).unwrap();
    let comment = format!("/* {mark} */");
    let before = text.lines().take_while(|line| !line.ends_with(&comment));
    format!("crashes.c:{}", before.count() + 1)
}

/// A program that has crashed and stands still.
struct Standing {
    child: Child,
    crashed: CrashedThread,
    address: u64,
    /// Place where its program lies, which has its lines.
    _directory: tempfile::TempDir,
}

impl Standing {
    /// `None` without a compiler.
    fn start(how: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("crashes");
        let mut compile = Command::new("cc");
        compile
            .args(["-g", "-O1", "-fno-optimize-sibling-calls", "-w", "-o"])
            .arg(&program);
        match compile.arg(source()).status() {
            Ok(status) => assert!(status.success()),
            Err(_) => return None,
        }
        let mut child = Command::new(&program)
            .arg(how)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut said)
            .unwrap();
        let numbers: Vec<u64> = said
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        let crashed = CrashedThread::new(child.id(), numbers[0] as u32, numbers[1]).unwrap();
        Some(Self {
            child,
            crashed,
            address: numbers[2],
            _directory: directory,
        })
    }

    /// Returns the functions and their places, the innermost first, at most `most`.
    fn steps(&self, most: usize) -> Vec<(String, String)> {
        let mut steps = Vec::new();
        self.crashed.tell(|step| {
            if let StackStep::Native(frame) = step {
                steps.push((frame.function.clone().unwrap_or_default(), frame.place()));
            }
            match steps.len() < most {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        steps
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn step(function: &str, mark: &str) -> (String, String) {
    (function.into(), line(mark))
}

#[test]
fn the_functions_around_a_bad_store_are_told_with_their_lines() {
    let Some(standing) = Standing::start("store") else {
        return;
    };
    let wanted = [
        step("store", "store"),
        step("solve", "solve"),
        step("main", "main solves"),
    ];
    assert_eq!(standing.steps(3), wanted);
    assert!(standing.crashed.is_main());
    assert!(!standing.crashed.is_stack_overflow(standing.address));
    assert_eq!(standing.crashed.thread_name().as_deref(), Some("crashes"));
}

#[test]
fn a_call_of_what_is_no_function_is_told_as_its_caller() {
    let Some(standing) = Standing::start("call") else {
        return;
    };
    let steps = standing.steps(3);
    let caller = steps
        .iter()
        .position(|found| *found == step("call", "call"));
    assert!(caller.is_some_and(|at| at <= 1), "{steps:?}");
    assert_eq!(steps[caller.unwrap() + 1], step("main", "main calls"));
}

#[test]
fn a_full_stack_is_known_and_its_innermost_functions_are_told() {
    let Some(standing) = Standing::start("recurse") else {
        return;
    };
    assert!(standing.crashed.is_stack_overflow(standing.address));
    let steps = standing.steps(4);
    assert!(
        steps[1..]
            .iter()
            .all(|found| *found == step("recurse", "recurse")),
        "{steps:?}"
    );
}

#[test]
fn a_handler_that_ends_the_program_is_told_with_what_it_interrupted() {
    let Some(standing) = Standing::start("nested") else {
        return;
    };
    let steps = standing.steps(usize::MAX);
    let own = |name: &str| steps.iter().find(|(function, _)| function == name).cloned();
    assert_eq!(
        own("of_program"),
        Some(step("of_program", "of_program")),
        "{steps:?}"
    );
    assert_eq!(own("solve"), Some(step("solve", "solve")), "{steps:?}");
    assert_eq!(own("store"), Some(step("store", "store")), "{steps:?}");
}
