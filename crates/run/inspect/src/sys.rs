//! The system calls that examine another process: reading its memory, and stopping one of its
//! threads for the time that it takes to read registers.

use std::io;
use std::time::{Duration, Instant};

use crate::limits::{CORE_WAIT, STOP_WAIT};
use crate::registers::Registers;

/// Copies memory of process `pid` from `address` on; returns how many bytes were there. Takes no
/// attachment, and does not stop the process.
pub fn read(pid: u32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(address as usize),
        iov_len: into.len(),
    };
    // SAFETY: writes within `into`; the remote address is only interpreted by the kernel, in the
    // other process.
    let got = unsafe { libc::process_vm_readv(pid as libc::pid_t, &local, 1, &remote, 1, 0) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// A thread that stands still until this value is dropped.
///
/// The kernel lets the thread go on as well when the thread that stopped it ends, in whatever way.
/// Whoever stops threads therefore does so in a thread of its own.
#[derive(Debug)]
pub struct StoppedThread {
    tid: libc::pid_t,
    /// A signal that was about to be delivered, which the stopped thread gets when it goes on.
    signal: i32,
}

/// Between two looks whether the thread has stopped. Whoever sleeps in between is scheduled soon on
/// a busy machine, which a thread that keeps asking is not.
const PAUSE: Duration = Duration::from_micros(15);

/// Pause between two looks once the thread is late.
const LONG_PAUSE: Duration = Duration::from_micros(200);

/// The kernel's `struct sched_attr` in its first version.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Has the calling thread wake up on time, and take short turns at a core soon after: whoever it
/// has stopped waits for it meanwhile. What the kernel does not know it leaves out.
pub fn take_short_turns() {
    const SHORTEST_NS: u64 = 100_000;
    let mut scheduling = SchedAttr::default();
    let size = size_of::<SchedAttr>();
    // SAFETY: the kernel writes at most `size` bytes to the structure, and reads as many; the first
    // call takes a number alone.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0);
        if libc::syscall(libc::SYS_sched_getattr, 0, &raw mut scheduling, size, 0) == 0 {
            scheduling.runtime = SHORTEST_NS;
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const scheduling, 0);
        }
    }
}

/// Returns whether a thread computes, or would if it had a core.
fn is_runnable(tid: libc::pid_t) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state == Some('R')
}

/// Stops the thread `tid`. It may be traced by nobody else. Signals that it has and stops that it
/// is in stay as they are.
///
/// # Errors
/// The thread is not there or may not be stopped; or it did not stop in [`STOP_WAIT`], nor in
/// [`CORE_WAIT`] while it waited for a core.
pub fn stop(tid: u32) -> io::Result<StoppedThread> {
    let tid = tid as libc::pid_t;
    trace(libc::PTRACE_SEIZE, tid, 0)?;
    // From here on the end of this thread would end the attachment, if nothing else does.
    trace(libc::PTRACE_INTERRUPT, tid, 0)?;
    let begun = Instant::now();
    loop {
        let mut status = 0;
        let flags = libc::__WALL | libc::WNOHANG | libc::__WNOTHREAD;
        // SAFETY: `status` is a valid place to write to.
        match unsafe { libc::waitpid(tid, &mut status, flags) } {
            0 if begun.elapsed() < STOP_WAIT => std::thread::sleep(PAUSE),
            0 if begun.elapsed() < CORE_WAIT && is_runnable(tid) => {
                std::thread::sleep(LONG_PAUSE);
            }
            0 => return Err(io::ErrorKind::TimedOut.into()),
            got if got == tid && libc::WIFSTOPPED(status) => {
                let is_event = status >> 16 != 0;
                let signal = if is_event { 0 } else { libc::WSTOPSIG(status) };
                return Ok(StoppedThread { tid, signal });
            }
            got if got == tid => return Err(io::ErrorKind::NotFound.into()),
            _ => return Err(io::Error::last_os_error()),
        }
    }
}

impl StoppedThread {
    /// The registers that unwinding begins with.
    pub fn registers(&self) -> io::Result<Registers> {
        // SAFETY: all zeroes is a valid value of this plain C structure.
        let mut raw: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let mut place = libc::iovec {
            iov_base: (&raw mut raw).cast(),
            iov_len: size_of_val(&raw),
        };
        const NT_PRSTATUS: usize = 1;
        // SAFETY: the kernel writes at most `iov_len` bytes to `raw`.
        let done = unsafe {
            libc::ptrace(
                libc::PTRACE_GETREGSET,
                self.tid,
                NT_PRSTATUS,
                &raw mut place,
            )
        };
        match done {
            0 => Ok(Registers::from(raw)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        // Fails only where the thread has been killed meanwhile.
        let _ = trace(libc::PTRACE_DETACH, self.tid, self.signal);
    }
}

fn trace(request: libc::c_uint, tid: libc::pid_t, data: i32) -> io::Result<()> {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: these requests take a number for data and touch no memory of this process.
    match unsafe { libc::ptrace(request, tid, nothing, data as libc::c_long) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
