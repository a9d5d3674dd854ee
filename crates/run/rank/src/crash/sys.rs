//! The handler of signals that end a rank, and its stack.
//!
//! Everything that the handler calls may be called from a signal handler: atomics, system calls,
//! and a lock that is only tried. It asks for no memory and touches no thread-local variable of
//! this library, which might be made at that moment.

use garonne_job::crash_report::CrashReport;
use garonne_job::crash_report::STANDS;
use std::mem::{MaybeUninit, zeroed};
use std::sync::Arc;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use garonne_sync::futex;

use crate::client::AgentClient;
use garonne_job::layout::RankBlock;
use garonne_job::limits::{CRASH_STACK_BYTES, CRASH_WAIT};

/// Signals that end a process because of what it did.
const SIGNALS: [i32; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGABRT,
];

/// Data that the signal handler needs, made beforehand and never freed.
struct HandlerContext {
    pid: i32,
    client: Arc<AgentClient>,
    card: RankBlock,
}

static RANK: AtomicPtr<HandlerContext> = AtomicPtr::new(std::ptr::null_mut());

/// Has this process tell its agent of signals that end it and that nobody handles. The calling
/// thread gets a stack for signal handlers, unless it has one: its own may be full.
pub(super) fn install(client: Arc<AgentClient>) {
    let card = client.rank_block(client.world().rank);
    let pid = rustix::process::getpid().as_raw_pid();
    let rank = Box::new(HandlerContext { pid, client, card });
    // SYNC(crash-rank): the handler sees what it is made of.
    RANK.store(Box::into_raw(rank), Release);
    give_stack();
    for signal in SIGNALS {
        // SAFETY: all zeroes is a valid value of this plain C structure: no flags, an empty mask,
        // SIG_DFL.
        let (mut before, mut action): (libc::sigaction, libc::sigaction) =
            unsafe { (zeroed(), zeroed()) };
        action.sa_sigaction = on_crash as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: valid places to read from and to write to; the handler lives as long as the
        // process, since this library is never unloaded, and is one that may run at any time.
        unsafe {
            libc::sigfillset(&mut action.sa_mask);
            if libc::sigaction(signal, std::ptr::null(), &mut before) == 0
                && before.sa_sigaction == libc::SIG_DFL
            {
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
    }
}

/// Gives the calling thread a stack for signal handlers, unless it has one. It stays until the
/// process ends.
fn give_stack() {
    // SAFETY: all zeroes is a valid value of this plain C structure.
    let mut stack: libc::stack_t = unsafe { zeroed() };
    // SAFETY: `stack` is a valid place to write to.
    let known = unsafe { libc::sigaltstack(std::ptr::null(), &mut stack) } == 0;
    if !known || stack.ss_flags & libc::SS_DISABLE == 0 {
        return;
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE;
    // SAFETY: new memory, which nothing else refers to.
    let room = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            CRASH_STACK_BYTES,
            protection,
            flags,
            -1,
            0,
        )
    };
    if room == libc::MAP_FAILED {
        return;
    }
    let stack = libc::stack_t {
        ss_sp: room,
        ss_flags: 0,
        ss_size: CRASH_STACK_BYTES,
    };
    // SAFETY: the memory is as large as it says, and is never given back.
    unsafe { libc::sigaltstack(&stack, std::ptr::null_mut()) };
}

/// Tells the agent, waits until it has seen enough, and lets the signal end the process.
extern "C" fn on_crash(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over a valid structure, and so does a handler of the program's that
    // calls this one.
    let told = unsafe { &*info };
    // SYNC(crash-rank)
    let rank = RANK.load(Acquire);
    // SAFETY: null, or never given back.
    if let Some(rank) = unsafe { rank.as_ref() }
        // A child that was forked is no rank, and shares the sockets of one.
        && rank.pid == rustix::process::getpid().as_raw_pid()
    {
        rank.stand(&CrashReport {
            signal,
            code: told.si_code,
            tid: rustix::thread::gettid().as_raw_pid() as u32,
            // SAFETY: both fields are at the same place of what the kernel has filled in, and plain
            // numbers.
            detail: unsafe {
                match told.si_code > 0 {
                    true => told.si_addr().expose_provenance() as u64,
                    false => told.si_pid() as u64,
                }
            },
            context: context.expose_provenance() as u64,
        });
    }
    end_by(signal, info);
}

impl HandlerContext {
    /// Stands still until the agent has seen enough, or for so long. Of several threads that crash
    /// the first is told of; the others stand with it.
    fn stand(&self, crash: &CrashReport) {
        let word = self.card.crash();
        let first = word.compare_exchange(0, STANDS, Relaxed, Relaxed).is_ok();
        if first && !self.client.report_crash(crash) {
            return;
        }
        let until = Instant::now() + CRASH_WAIT;
        // SYNC(crash-end)
        while word.load(Acquire) == STANDS {
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                break;
            }
            futex::wait(word, STANDS, Some(left));
        }
    }
}

/// Has the signal come once more, as it came, with nobody who handles it: it ends the process when
/// the handler returns, at the instruction that it came at.
fn end_by(signal: i32, info: *mut libc::siginfo_t) {
    let pid = rustix::process::getpid().as_raw_pid();
    let tid = rustix::thread::gettid().as_raw_pid();
    // SAFETY: all zeroes is a valid value of this plain C structure: no flags, an empty mask,
    // SIG_DFL.
    let default: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: reads the structures, which are valid; the signal is blocked until the handler
    // returns.
    unsafe {
        libc::sigaction(signal, &default, std::ptr::null_mut());
        if libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, signal, info) != 0 {
            libc::syscall(libc::SYS_tgkill, pid, tid, signal);
        }
    }
}
