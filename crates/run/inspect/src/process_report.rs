//! Formats an examined process as text: its threads, stacks and system calls.

use std::fmt::{Display, Formatter, Result};

use crate::python::PythonFrame;
use crate::thread::{NativeFrame, ThreadSnapshot};
use crate::{ProcessSnapshot, limits};

/// Name of CPython's function that runs Python functions.
const EVALUATION: &str = "_PyEval_EvalFrameDefault";

/// A function that is under way, of the program's own language or of Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackStep<'a> {
    /// Machine code.
    Native(&'a NativeFrame),
    /// A function of Python.
    Python(&'a PythonFrame),
}

impl Display for StackStep<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Native(frame) => frame.fmt(f),
            Self::Python(frame) => frame.fmt(f),
        }
    }
}

impl Display for PythonFrame {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}() at {}", self.function, self.place())
    }
}

impl PythonFrame {
    /// `solver.py:42`.
    pub fn place(&self) -> String {
        let file = garonne_sites::last_part(&self.file);
        match self.line {
            0 => file.to_owned(),
            line => format!("{file}:{line}"),
        }
    }
}

/// Returns whether a function is the one that runs Python functions.
pub(crate) fn is_evaluation(frame: &NativeFrame) -> bool {
    let name = frame.function.as_deref();
    name.is_some_and(|name| name.starts_with(EVALUATION))
}

/// Both stacks of a thread as one, the innermost function first: what Python functions called, then
/// these, in place of the interpreter's own functions.
pub fn steps<'a>(frames: &'a [NativeFrame], python: &'a [PythonFrame]) -> Vec<StackStep<'a>> {
    let called = match python.is_empty() {
        true => frames,
        false => {
            let end = frames.iter().position(is_evaluation).unwrap_or(0);
            &frames[..end]
        }
    };
    let native = called.iter().map(StackStep::Native);
    native.chain(python.iter().map(StackStep::Python)).collect()
}

impl ThreadSnapshot {
    /// Returns the functions, the innermost first; see [`steps`].
    pub fn steps(&self) -> Vec<StackStep<'_>> {
        steps(&self.frames, &self.python)
    }
}

/// A thread's state in a word.
fn state(letter: Option<char>) -> &'static str {
    match letter {
        Some('R') => "running",
        Some('S' | 'I') => "asleep",
        Some('D') => "asleep in the kernel",
        Some('T') => "stopped",
        Some('t') => "held by a debugger",
        Some('Z' | 'X') => "gone",
        _ => "in an unknown state",
    }
}

impl Display for ThreadSnapshot {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(
            f,
            "thread {} ({}), {}",
            self.tid,
            self.name,
            state(self.state)
        )?;
        if let Some(call) = &self.call {
            write!(f, " in {call}")?;
        }
        writeln!(f)?;
        let steps = self.steps();
        for (number, step) in steps.iter().enumerate() {
            writeln!(f, "  #{number:<2} {step}")?;
        }
        if !self.complete && self.python.is_empty() && !steps.is_empty() {
            writeln!(f, "  (further functions are not known)")?;
        }
        Ok(())
    }
}

impl Display for ProcessSnapshot {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for thread in &self.threads {
            thread.fmt(f)?;
        }
        if self.more_threads > 0 {
            writeln!(
                f,
                "{} threads beyond {} are not shown",
                self.more_threads,
                limits::THREADS_MAX
            )?;
        }
        for why in [&self.refused, &self.python_unknown].into_iter().flatten() {
            writeln!(f, "note: {why}")?;
        }
        Ok(())
    }
}
