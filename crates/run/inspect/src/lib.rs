//! Jobs and processes seen from outside, for tools.
//!
//! A running job is asked through its agent ([`query_client`]); its world's memory tells what ranks
//! record ([`trace_reader`]) and what they have sent ([`sent_counters`]). A job that has ended
//! badly leaves a [`flight_recording`].
//!
//! [`examine`] looks at any process once and gives a value; it knows nothing of MPI. A sleeping
//! thread is read without being touched, if its stack can be told so. Any other thread is stopped
//! while its registers and its stack are copied, some ten to a hundred microseconds; everything
//! else happens after it goes on. Threads whose system call would end with an error when it is
//! interrupted are never stopped. A stopped thread goes on when the examining thread ends, in
//! whatever way. Stateless; files and memory are read, nothing is written. Bounded by the constants
//! in `limits`.

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("registers are known on x86-64 and AArch64");

mod access_denied;
mod crashed_thread;
pub mod flight_recording;
pub mod limits;
mod process_memory;
mod process_report;
pub mod python;
pub mod query_client;
mod registers;
pub mod sent_counters;
#[allow(unsafe_code)]
mod sys;
mod system_call;
mod thread;
pub mod trace_reader;
mod unwind;

use garonne_sites::SymbolResolver;
use serde::Serialize;

pub use crashed_thread::CrashedThread;
pub use process_memory::StackCopy;
pub use process_report::{StackStep, steps};
pub use python::PythonFrame;
pub use registers::Registers;
pub use system_call::SystemCall;
pub use thread::{NativeFrame, ThreadSnapshot};

use python::PythonInterpreter;
use thread::ThreadExaminer;

/// A process as it was at one moment. [`examine`] makes it, reading one thread after the other; it
/// holds no resource of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessSnapshot {
    /// Process id, in the namespace of the examining process.
    pub pid: u32,
    /// Threads of the process, the first one first.
    pub threads: Vec<ThreadSnapshot>,
    /// Threads beyond those that are examined.
    pub more_threads: usize,
    /// Why stacks are missing or end early: a line for the user.
    pub refused: Option<String>,
    /// Why Python frames are missing, if the process has an interpreter: a line for the user.
    pub python_unknown: Option<String>,
}

/// Examines all threads of process `pid`, or the first one alone.
///
/// # Errors
/// There is no such process, or nothing may be known of it.
pub fn examine(pid: u32, all_threads: bool) -> std::io::Result<ProcessSnapshot> {
    // The kernel lets threads go on when the thread that stopped them has ended.
    let examined = std::thread::scope(|scope| {
        let examine = || examine_here(pid, all_threads);
        std::thread::Builder::new()
            .name("garonne-inspect".into())
            .spawn_scoped(scope, examine)
            .map(|thread| thread.join())
    })?;
    examined.unwrap_or_else(|_| Err(std::io::Error::other("the examination failed")))
}

fn examine_here(pid: u32, all_threads: bool) -> std::io::Result<ProcessSnapshot> {
    sys::take_short_turns();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut ids = thread::ids(pid)?;
    if !all_threads {
        ids.truncate(1);
    }
    let more_threads = ids.len().saturating_sub(limits::THREADS_MAX);
    ids.truncate(limits::THREADS_MAX);
    let (interpreter, python_unknown) = match PythonInterpreter::find(pid, &maps) {
        Some(Ok(interpreter)) => (Some(interpreter), None),
        Some(Err(why)) => (None, Some(why)),
        None => (None, None),
    };
    let mut examiner = ThreadExaminer::new(pid, &maps, interpreter.as_ref());
    let threads = ids
        .into_iter()
        .filter_map(|tid| examiner.examine(tid))
        .collect();
    let refused = examiner.refused();
    Ok(ProcessSnapshot {
        pid,
        threads,
        more_threads,
        refused,
        python_unknown,
    })
}

/// Puts names to addresses of one process.
pub(crate) struct FunctionNames<'a> {
    pid: u32,
    maps: &'a str,
    resolver: SymbolResolver,
}

impl<'a> FunctionNames<'a> {
    pub(crate) fn new(pid: u32, maps: &'a str) -> Self {
        Self {
            pid,
            maps,
            resolver: SymbolResolver::default(),
        }
    }

    /// The functions at these addresses, the innermost first; inlined ones are frames of their own.
    pub(crate) fn frames(&mut self, addresses: &[u64]) -> Vec<NativeFrame> {
        let mut frames = Vec::new();
        for &address in addresses {
            let functions = self.resolver.functions(self.pid, self.maps, address);
            if functions.is_empty() {
                frames.push(NativeFrame::at(address));
            }
            frames.extend(
                functions
                    .into_iter()
                    .map(|function| NativeFrame::of(address, function)),
            );
        }
        frames
    }
}
