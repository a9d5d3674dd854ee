//! A thread that has crashed and stands still by itself, with its registers in its own memory.

use crate::Names;
use crate::memory::Memory;
use crate::python::{Interpreter, PythonFrame};
use crate::registers::Registers;
use crate::thread::{self, Frame};
use crate::unwind::ProcessUnwinder;

/// What a crashed thread was at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crashed {
    /// Its functions, the innermost first.
    pub frames: Vec<Frame>,
    /// Its Python functions, the innermost first.
    pub python: Vec<PythonFrame>,
}

/// Examines thread `tid` (as its own process sees it) of process `pid`, which waits in a signal handler: the registers before the signal lie at `context`, as the kernel gave them to the handler
/// (`ucontext_t`). The thread is not stopped; the caller sees to it that it stands still.
///
/// # Errors
/// The process may not be examined, or is gone.
pub fn examine_crashed(pid: u32, tid: u32, context: u64) -> std::io::Result<Crashed> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let memory = Memory { pid };
    let registers = Registers::of_context(memory, context).ok_or(std::io::ErrorKind::PermissionDenied)?;
    let stack = thread::copy_stack(pid, &maps, registers.sp);
    let unwound = ProcessUnwinder::new(pid, &maps).unwind(registers, &stack);
    let python = match Interpreter::find(pid, &maps) {
        Some(Ok(interpreter)) => {
            let is_main = tid == thread::inner_id(pid, pid);
            let raw = interpreter.capture(tid, is_main, registers.sp, &maps);
            raw.into_iter().filter_map(|raw| interpreter.name(raw)).collect()
        }
        _ => Vec::new(),
    };
    Ok(Crashed {
        frames: Names::new(pid, &maps).frames(&unwound.addresses),
        python,
    })
}
