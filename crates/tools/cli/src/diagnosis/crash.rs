//! Where a rank has crashed: what its signal says, and the functions of the program around the
//! place, the innermost first.
//!
//! Lines are written as soon as they are known. The agent takes what has come when its patience
//! ends.

use garonne_job::crash_report::CrashReport;
use std::io::Write;
use std::ops::ControlFlow;

use garonne_inspect::{CrashedThread, NativeFrame, StackStep};
use garonne_sites::last_part;

/// Functions that are named: further ones rarely say more.
const FUNCTIONS_MAX: usize = 8;

/// Garonne's library.
const OWN: &str = "libmpi_abi";

/// Libraries of the language and of the system, and Garonne's own: of their functions only the one
/// that the program called.
const RUNTIME: [&str; 11] = [
    "ld-linux",
    "ld-musl",
    "libc.",
    "libc-",
    "libgcc_s.",
    "libm.",
    OWN,
    "libpthread",
    "libpython",
    "libstdc++",
    "python3",
];

/// Place where every program begins.
const START: [&str; 2] = ["_start", "__libc_start_main"];

/// Prints where thread and signal of `crash` (a [`CrashReport`] as a word) are in process `pid`.
/// Returns the exit code.
pub fn print_for_agent(pid: &str, crash: &str) -> i32 {
    let (Ok(pid), Some(crash)) = (pid.parse(), CrashReport::parse(crash)) else {
        return 2;
    };
    let Ok(crashed) = CrashedThread::new(pid, crash.tid, crash.context) else {
        return 1;
    };
    let mut told = StackPrinter::new(|line| writeln!(std::io::stdout(), "{line}").is_ok());
    if let Some(cause) = cause(&crash, |address| crashed.is_stack_overflow(address)) {
        told.say(&cause);
    }
    if !crashed.is_main() {
        let name = crashed.thread_name().unwrap_or_default();
        told.say(&format!("in its thread {} ({name})", crash.tid));
    }
    crashed.tell(|step| told.step(&step));
    told.end();
    0
}

/// Returns what the kernel says of a signal beside its name. `is_stack_overflow` says it of an
/// address.
fn cause(crash: &CrashReport, is_stack_overflow: impl Fn(u64) -> bool) -> Option<String> {
    // Of the kernel's headers; the same on all architectures.
    const SEGV_MAPERR: i32 = 1;
    const SEGV_ACCERR: i32 = 2;
    const BUS_ADRALN: i32 = 1;
    const BUS_ADRERR: i32 = 2;
    const FPE_INTDIV: i32 = 1;
    const FPE_INTOVF: i32 = 2;
    const FPE_FLTDIV: i32 = 3;
    const FPE_FLTOVF: i32 = 4;
    const FPE_FLTUND: i32 = 5;
    const FPE_FLTINV: i32 = 7;
    let at = crash.detail;
    let words = match (crash.signal, crash.code) {
        (libc::SIGSEGV, SEGV_MAPERR | SEGV_ACCERR) if is_stack_overflow(at) => {
            "the stack is full (a recursion without end, large local arrays, or `ulimit -s`)".into()
        }
        (libc::SIGSEGV, SEGV_MAPERR) => format!("there is no memory at {at:#x}"),
        (libc::SIGSEGV, SEGV_ACCERR) => format!("the memory at {at:#x} may not be used so"),
        (libc::SIGSEGV, code) if code > 0 => "an address that no memory can have".into(),
        (libc::SIGBUS, BUS_ADRALN) => format!("a wrongly aligned address, {at:#x}"),
        (libc::SIGBUS, BUS_ADRERR) => {
            format!("nothing is behind the memory at {at:#x} (a file that was cut?)")
        }
        (libc::SIGFPE, FPE_INTDIV) => "an integer was divided by zero".into(),
        (libc::SIGFPE, FPE_INTOVF) => "an integer overflowed".into(),
        (libc::SIGFPE, FPE_FLTDIV) => "a floating-point number was divided by zero".into(),
        (libc::SIGFPE, FPE_FLTOVF) => "a floating-point number overflowed".into(),
        (libc::SIGFPE, FPE_FLTUND) => "a floating-point number underflowed".into(),
        (libc::SIGFPE, FPE_FLTINV) => "an invalid floating-point operation".into(),
        (libc::SIGILL, code) if code > 0 => {
            format!("the processor knows no instruction at {at:#x}")
        }
        (signal, libc::SI_USER) if signal != libc::SIGABRT => format!("process {at} sent it"),
        _ => return None,
    };
    Some(words)
}

/// Prints a stack function by function, and folds repeated ones.
struct StackPrinter<W> {
    write: W,
    /// Functions told.
    functions: usize,
    /// Before the first function of the program: the innermost function of a library, and the one
    /// that the program called.
    library: Option<(String, String)>,
    /// The last function told, and how often it came in a row.
    last: Option<(String, usize)>,
}

impl<W: FnMut(&str) -> bool> StackPrinter<W> {
    fn new(write: W) -> Self {
        Self {
            write,
            functions: 0,
            library: None,
            last: None,
        }
    }

    fn say(&mut self, line: &str) -> bool {
        (self.write)(line)
    }

    /// A further function. Breaks when there are enough.
    fn step(&mut self, step: &StackStep<'_>) -> ControlFlow<()> {
        if let StackStep::Native(frame) = step
            && !is_of_program(frame)
        {
            if self.functions == 0 && self.last.is_none() {
                self.in_library(frame);
            }
            return ControlFlow::Continue(());
        }
        if let Some((innermost, called)) = self.library.take() {
            // What Python called is a function of its interpreter.
            let _ = self.function(match step {
                StackStep::Native(_) => called,
                StackStep::Python(_) => innermost,
            });
        }
        self.function(step.to_string())
    }

    /// A function of a library without lines.
    fn in_library(&mut self, frame: &NativeFrame) {
        if let Some(name) = frame.function.as_deref() {
            let object = last_part(&frame.object);
            // The library's own names of its functions end with those of the standard.
            let name = match name.rfind("MPI_").filter(|_| object.starts_with(OWN)) {
                Some(at) => &name[at..],
                None => name,
            };
            let called = format!("{name} of {object}");
            let innermost = self.library.take().map(|(innermost, _)| innermost);
            self.library = Some((innermost.unwrap_or_else(|| called.clone()), called));
        }
    }

    fn function(&mut self, function: String) -> ControlFlow<()> {
        match &mut self.last {
            Some((last, times)) if *last == function => *times += 1,
            _ => {
                self.tell_last();
                self.last = Some((function, 1));
            }
        }
        match self.functions < FUNCTIONS_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }

    fn tell_last(&mut self) {
        let Some((function, times)) = self.last.take() else {
            return;
        };
        let begin = match self.functions {
            0 => "in",
            FUNCTIONS_MAX.. => return,
            _ => "called by",
        };
        let again = match times {
            1 => String::new(),
            _ => format!(" ({times} times, or more)"),
        };
        self.functions += 1;
        self.say(&format!("{begin} {function}{again}"));
    }

    /// The stack has no more functions.
    fn end(&mut self) {
        if let Some((innermost, _)) = self.library.take() {
            let _ = self.function(innermost);
        }
        self.tell_last();
    }
}

/// Returns whether a function is worth a line: it has a name or a place to look at, and is of no
/// library of the language or the system.
fn is_of_program(frame: &NativeFrame) -> bool {
    let object = last_part(&frame.object);
    let is_runtime =
        RUNTIME.iter().any(|runtime| object.starts_with(runtime)) || object.starts_with('[');
    // Modules that belong to Python.
    let is_runtime = is_runtime || frame.object.contains("/lib-dynload/");
    let is_start = frame
        .function
        .as_deref()
        .is_some_and(|name| START.contains(&name));
    let is_known = frame.line.is_some() || frame.is_of_program(|_| false);
    !is_runtime && !is_start && is_known
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, object: &str, line: Option<u32>) -> NativeFrame {
        NativeFrame {
            function: Some(function.into()),
            file: line.map(|_| "x.c".into()),
            line,
            object: object.into(),
            ..NativeFrame::default()
        }
    }

    fn told(frames: &[NativeFrame]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut told = StackPrinter::new(|line: &str| {
            lines.push(line.to_owned());
            true
        });
        let _ = frames
            .iter()
            .try_for_each(|frame| told.step(&StackStep::Native(frame)));
        told.end();
        lines
    }

    #[test]
    fn the_program_s_functions_are_told_behind_the_one_that_it_called() {
        let libc = "/usr/lib/libc.so.6";
        let frames = [
            frame("__pthread_kill", libc, None),
            frame("abort", libc, None),
            frame("check", "/tmp/x", Some(12)),
            frame("qsort", libc, None),
            frame("main", "/tmp/x", Some(30)),
            frame("_start", "/tmp/x", None),
        ];
        let wanted = [
            "in abort of libc.so.6",
            "called by check at x.c:12",
            "called by main at x.c:30",
        ];
        assert_eq!(told(&frames), wanted);
        let own = frame("other_MPI_Send", "/opt/lib/libmpi_abi.so.1", None);
        assert_eq!(told(&[own]), ["in MPI_Send of libmpi_abi.so.1"]);
        assert_eq!(told(&frames[..1]), ["in __pthread_kill of libc.so.6"]);
    }

    #[test]
    fn a_recursion_is_told_once_and_of_a_deep_stack_the_innermost_functions() {
        let again = vec![frame("again", "/tmp/x", Some(5)); 100];
        assert_eq!(told(&again), ["in again at x.c:5 (100 times, or more)"]);
        let deep: Vec<_> = (1..50)
            .map(|line| frame("f", "/tmp/x", Some(line)))
            .collect();
        let lines = told(&deep);
        assert_eq!(lines.len(), FUNCTIONS_MAX);
        assert_eq!(lines[7], "called by f at x.c:8");
    }

    #[test]
    fn what_the_kernel_says_of_a_signal_is_told() {
        let say = |signal, code, overflow| {
            let crash = CrashReport {
                signal,
                code,
                detail: 8,
                ..CrashReport::default()
            };
            cause(&crash, |_| overflow).unwrap_or_default()
        };
        assert_eq!(say(libc::SIGSEGV, 1, false), "there is no memory at 0x8");
        assert!(say(libc::SIGSEGV, 2, true).starts_with("the stack is full"));
        assert_eq!(
            say(libc::SIGFPE, 1, false),
            "an integer was divided by zero"
        );
        assert_eq!(
            say(libc::SIGSEGV, libc::SI_USER, false),
            "process 8 sent it"
        );
        assert_eq!(say(libc::SIGABRT, libc::SI_TKILL, false), "");
    }
}
