//! One thread: what the kernel says of it, and its stack.

use std::io;

use garonne_sites::proc_maps::part_at;
use garonne_sites::{SourceFunction, last_part};
use serde::Serialize;

use crate::limits::STACK_BYTES_MAX;
use crate::process_memory::{ProcessMemory, StackCopy};
use crate::python::{PythonFrame, PythonInterpreter, RawPythonFrame};
use crate::registers::Registers;
use crate::system_call::{BlockedThread, SystemCall};
use crate::unwind::{ProcessUnwinder, UnwoundStack};
use crate::{FunctionNames, access_denied, sys};

/// A function that is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NativeFrame {
    /// An address within the instruction that it is at.
    pub address: u64,
    /// Name of the function.
    pub function: Option<String>,
    /// Source file.
    pub file: Option<String>,
    /// The line.
    pub line: Option<u32>,
    /// The file of the program or library that it is in; empty if the address is in none.
    pub object: String,
    /// Place where the instruction lies in that file, from its base.
    pub offset: u64,
}

impl NativeFrame {
    pub(crate) fn at(address: u64) -> Self {
        Self {
            address,
            ..Self::default()
        }
    }

    pub(crate) fn of(address: u64, function: SourceFunction) -> Self {
        Self {
            address,
            function: function.name,
            file: function.file,
            line: function.line,
            object: function.object,
            offset: function.offset,
        }
    }

    /// `halo.c:58`, if there is debug information; else the object and the offset in it.
    pub fn place(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{}:{line}", last_part(file)),
            (Some(file), None) => last_part(file).to_owned(),
            _ if self.object.is_empty() => format!("{:#x}", self.address),
            _ => format!("{}+{:#x}", last_part(&self.object), self.offset),
        }
    }

    /// Returns whether this is a function of the program itself or of a library of its own, as far
    /// as one can tell. Functions of the system, or of the object that `is_runtime` names, are not.
    pub fn is_of_program(&self, is_runtime: impl Fn(&str) -> bool) -> bool {
        const SYSTEM: [&str; 4] = ["/lib", "/usr/lib", "/usr/local/lib", "/opt/"];
        let of_system = SYSTEM.iter().any(|begin| self.object.starts_with(begin));
        self.object.starts_with('/') && !of_system && !is_runtime(last_part(&self.object))
    }
}

impl std::fmt::Display for NativeFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.function {
            Some(function) => write!(f, "{function} at {}", self.place()),
            None => write!(f, "{}", self.place()),
        }
    }
}

/// A thread of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ThreadSnapshot {
    /// Thread id, in the namespace of the examining process.
    pub tid: u32,
    /// Name of the thread.
    pub name: String,
    /// Letter of its state as in `ps`.
    pub state: Option<char>,
    /// The system call that it is in.
    pub call: Option<SystemCall>,
    /// Native functions, the innermost first.
    pub frames: Vec<NativeFrame>,
    /// The frames reach the function that the thread began with.
    pub complete: bool,
    /// Python functions, the innermost first.
    pub python: Vec<PythonFrame>,
}

/// The threads of a process, the first one first.
pub(crate) fn ids(pid: u32) -> io::Result<Vec<u32>> {
    let listed = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    let mut ids: Vec<u32> = listed
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    ids.sort_by_key(|tid| (*tid != pid, *tid));
    Ok(ids)
}

/// Stack of a thread, captured while the thread stands still.
struct CapturedStack {
    unwound: UnwoundStack,
    python: Vec<RawPythonFrame>,
}

/// Examines the threads of one process, one after the other. Call [`ThreadExaminer::examine`] for
/// each thread, then [`ThreadExaminer::refused`] for the reason why a thread could not be stopped.
pub(crate) struct ThreadExaminer<'a> {
    pid: u32,
    maps: &'a str,
    unwinder: ProcessUnwinder<'a>,
    names: FunctionNames<'a>,
    interpreter: Option<&'a PythonInterpreter>,
    refused: Option<io::Error>,
}

impl<'a> ThreadExaminer<'a> {
    pub fn new(pid: u32, maps: &'a str, interpreter: Option<&'a PythonInterpreter>) -> Self {
        Self {
            pid,
            maps,
            unwinder: ProcessUnwinder::new(pid, maps),
            names: FunctionNames::new(pid, maps),
            interpreter,
            refused: None,
        }
    }

    /// Why some stack is missing or ends early.
    pub fn refused(self) -> Option<String> {
        self.refused
            .map(|error| access_denied::explanation(self.pid, &error))
    }

    /// A thread; `None` if it has ended.
    pub fn examine(&mut self, tid: u32) -> Option<ThreadSnapshot> {
        let (name, state) = name_and_state(self.pid, tid)?;
        let blocked = BlockedThread::of(self.pid, tid);
        let captured = self.capture(tid, blocked.as_ref());
        let call = blocked.and_then(|blocked| blocked.call);
        let mut thread = ThreadSnapshot {
            tid,
            name,
            state: Some(state),
            call: call.map(|(number, arguments)| SystemCall::of(self.pid, number, arguments)),
            ..ThreadSnapshot::default()
        };
        match captured {
            Ok(captured) => {
                thread.frames = self.names.frames(&captured.unwound.addresses);
                thread.complete = captured.unwound.complete;
                let name = |raw: RawPythonFrame| {
                    self.interpreter
                        .and_then(|interpreter| interpreter.name(raw))
                };
                thread.python = captured.python.into_iter().filter_map(name).collect();
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => self.refused = Some(error),
        }
        Some(thread)
    }

    fn capture(&mut self, tid: u32, blocked: Option<&BlockedThread>) -> io::Result<CapturedStack> {
        let Some(blocked) = blocked else {
            return self.capture_stopped(tid);
        };
        let asleep = self.capture_asleep(tid, blocked);
        match asleep {
            Some(captured) if captured.unwound.complete || blocked.minds_stops() => Ok(captured),
            // What can be told without a stop is better than nothing.
            asleep => match (self.capture_stopped(tid), asleep) {
                (Err(error), Some(captured)) if error.kind() != io::ErrorKind::NotFound => {
                    self.refused = Some(error);
                    Ok(captured)
                }
                (stopped, _) => stopped,
            },
        }
    }

    /// A thread that sleeps is left alone. Its frame pointer is not known then: what follows alike
    /// from two that cannot be right does not depend on it.
    fn capture_asleep(&mut self, tid: u32, blocked: &BlockedThread) -> Option<CapturedStack> {
        let stack = self.copy_stack(blocked.sp);
        let python = self.capture_python(tid, blocked.sp);
        // Whatever it did in between, it does not sleep there any more.
        if BlockedThread::of(self.pid, tid).as_ref() != Some(blocked) {
            return None;
        }
        let [mut unwound, other] = [0, 8].map(|fp| {
            let registers = Registers {
                pc: blocked.pc,
                sp: blocked.sp,
                fp,
                lr: 0,
            };
            self.unwinder.unwind(registers, &stack)
        });
        let same = unwound.addresses.iter().zip(&other.addresses);
        let same = same.take_while(|(one, other)| one == other).count();
        unwound.complete &=
            other.complete && same == unwound.addresses.len() && same == other.addresses.len();
        // The last frame of an incomplete stack may be where the two began to go astray together.
        unwound.addresses.truncate(same);
        Some(CapturedStack { unwound, python })
    }

    fn capture_stopped(&mut self, tid: u32) -> io::Result<CapturedStack> {
        let stopped = sys::stop(tid)?;
        let registers = stopped.registers()?;
        let stack = self.copy_stack(registers.sp);
        let python = self.capture_python(tid, registers.sp);
        drop(stopped);
        let unwound = self.unwinder.unwind(registers, &stack);
        Ok(CapturedStack { unwound, python })
    }

    fn copy_stack(&self, sp: u64) -> StackCopy {
        copy_stack(self.pid, self.maps, sp)
    }

    fn capture_python(&self, tid: u32, sp: u64) -> Vec<RawPythonFrame> {
        self.interpreter.map_or_else(Vec::new, |interpreter| {
            interpreter.capture(inner_id(self.pid, tid), tid == self.pid, sp, self.maps)
        })
    }
}

/// A copy of the stack from `sp` on, as far as it reaches or is copied.
pub(crate) fn copy_stack(pid: u32, maps: &str, sp: u64) -> StackCopy {
    let end = part_at(maps, sp).map_or(sp, |part| part.end);
    let len = usize::try_from(end - sp).map_or(STACK_BYTES_MAX, |len| len.min(STACK_BYTES_MAX));
    StackCopy {
        at: sp,
        bytes: ProcessMemory { pid }.bytes(sp, len),
    }
}

/// A thread's id as its own process sees it.
pub(crate) fn inner_id(pid: u32, tid: u32) -> u32 {
    let status =
        std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    ids.and_then(|ids| ids.split_ascii_whitespace().last()?.parse().ok())
        .unwrap_or(tid)
}

pub(crate) fn name_and_state(pid: u32, tid: u32) -> Option<(String, char)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    let name = name
        .chars()
        .map(|letter| if letter.is_control() { '?' } else { letter });
    Some((name.collect(), rest.trim_start().chars().next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_held_by_another_is_told_of_as_far_as_it_sleeps() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = child.id();
        while BlockedThread::of(pid, pid).is_none_or(|blocked| blocked.call.is_none()) {
            std::thread::yield_now();
        }
        let held = sys::stop(pid).unwrap();
        let process = crate::examine(pid, true).unwrap();
        drop(held);
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!(process.threads[0].state, Some('t'), "{process}");
        if !process.threads[0].complete {
            let refused = process.refused.unwrap();
            assert!(
                refused.starts_with("a debugger holds it (process "),
                "{refused}"
            );
        }
    }
}
