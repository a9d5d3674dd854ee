//! A thread that has crashed and stands still in a signal handler, with its registers before the
//! signal in its own memory.

use std::ops::ControlFlow;

use garonne_sites::proc_maps::{part_at, parts};

use crate::limits::CRASHED_READS_MAX;
use crate::process_memory::ProcessMemory;
use crate::process_report::{StackStep, is_evaluation};
use crate::python::{PythonFrame, PythonInterpreter};
use crate::registers::Registers;
use crate::thread::NativeFrame;
use crate::unwind::{ProcessUnwinder, UnwoundStack};
use crate::{FunctionNames, thread};

/// Examines one crashed thread, and hands its functions over one by one: names take longest, and a
/// caller that waits may have enough.
#[derive(Debug)]
pub struct CrashedThread {
    pid: u32,
    maps: String,
    registers: Registers,
    is_main: bool,
    tid: u32,
}

impl CrashedThread {
    /// Thread `tid` (as its own process sees it) of process `pid`, which waits in a signal handler.
    /// Its registers before the signal lie at `context` (`ucontext_t`), as the kernel gave them to
    /// the handler. The thread is not stopped; the caller sees to it that it stands still.
    ///
    /// # Errors
    /// The process may not be examined, or is gone.
    pub fn new(pid: u32, tid: u32, context: u64) -> std::io::Result<Self> {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let registers = Registers::of_context(ProcessMemory { pid }, context);
        Ok(Self {
            pid,
            maps,
            registers: registers.ok_or(std::io::ErrorKind::PermissionDenied)?,
            is_main: tid == thread::inner_id(pid, pid),
            tid,
        })
    }

    /// Returns whether it is the first thread of its process.
    pub fn is_main(&self) -> bool {
        self.is_main
    }

    /// The thread's name.
    pub fn thread_name(&self) -> Option<String> {
        let ids = thread::ids(self.pid).ok()?;
        let outer = ids
            .into_iter()
            .find(|id| thread::inner_id(self.pid, *id) == self.tid)?;
        thread::name_and_state(self.pid, outer).map(|(name, _)| name)
    }

    /// Returns whether memory that could not be used lies where the stack would have grown to.
    pub fn is_stack_overflow(&self, address: u64) -> bool {
        /// Largest stack frame of a function, but for those with large arrays.
        const FRAME_BYTES: u64 = 64 * 1024;
        let sp = self.registers.sp;
        let near = sp.saturating_sub(FRAME_BYTES)..sp.saturating_add(FRAME_BYTES);
        let is_usable = part_at(&self.maps, address).is_some_and(|part| part.rights.contains('w'));
        // A stack grows downwards: it is the next memory above. Whoever writes beyond its other end
        // meets something else.
        let above = parts(&self.maps).find(|part| part.start > address);
        near.contains(&address) && !is_usable && above.is_some_and(|part| part.rights.contains('w'))
    }

    /// Hands the functions to `tell` one by one, the innermost first. First come those that Python
    /// functions called, then the Python functions in place of the interpreter's own. `tell` may
    /// end it.
    pub fn tell(&self, mut tell: impl FnMut(StackStep<'_>) -> ControlFlow<()>) {
        let python = self.python();
        let mut tell_native = |frame: &NativeFrame| match !python.is_empty() && is_evaluation(frame)
        {
            true => ControlFlow::Break(true),
            false => tell(StackStep::Native(frame)).map_break(|()| false),
        };
        let mut names = FunctionNames::new(self.pid, &self.maps);
        let mut addresses = self.unwound().addresses.into_iter();
        let native = addresses.try_for_each(|address| {
            let frames = names.frames(&[address]);
            frames.iter().try_for_each(&mut tell_native)
        });
        if native != ControlFlow::Break(false) {
            let _ = python.iter().map(StackStep::Python).try_for_each(tell);
        }
    }

    /// The stack is read where it lies: it stands still, and a signal handler before this one may
    /// have had another.
    fn unwound(&self) -> UnwoundStack {
        let memory = ProcessMemory { pid: self.pid };
        let mut reads = 0;
        let read = |address| {
            reads += 1;
            memory.word(address).filter(|_| reads <= CRASHED_READS_MAX)
        };
        ProcessUnwinder::new(self.pid, &self.maps).unwind_by(self.registers, read)
    }

    fn python(&self) -> Vec<PythonFrame> {
        let Some(Ok(interpreter)) = PythonInterpreter::find(self.pid, &self.maps) else {
            return Vec::new();
        };
        let raw = interpreter.capture(self.tid, self.is_main, self.registers.sp, &self.maps);
        raw.into_iter()
            .filter_map(|raw| interpreter.name(raw))
            .collect()
    }
}
