//! Starting a process without copying the parent's page tables.
//!
//! Called by the agent only, for each rank. Every function is a thin layer over system calls whose
//! contract is in its comment.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use garonne_links::sys::SignalFd;

/// A program to start. All strings were prepared by the caller: the child must not allocate.
#[derive(Debug)]
pub struct ExecRequest<'a> {
    /// File to execute.
    pub path: &'a CString,
    /// True if a shell runs it where the system cannot: a script without a first line that names
    /// its interpreter.
    pub by_shell: bool,
    /// Arguments, the first being the program's name.
    pub argv: &'a [CString],
    /// The whole environment, `NAME=value`.
    pub envp: &'a [CString],
    /// Directory to change to first.
    pub dir: Option<&'a CString>,
    /// Becomes descriptor 0; `None` keeps the parent's.
    pub stdin: Option<BorrowedFd<'a>>,
    /// Becomes descriptor 1.
    pub stdout: BorrowedFd<'a>,
    /// Becomes descriptor 2.
    pub stderr: BorrowedFd<'a>,
    /// A descriptor to pass on under the number given.
    pub pass: Option<(BorrowedFd<'a>, RawFd)>,
    /// Out of reach of the terminal's keys, which are for the launcher.
    pub own_group: bool,
    /// CPUs to run on, as a mask of 64-bit words; empty: as the parent.
    pub cpus: &'a [u64],
    /// Limit of open files to set (soft, hard), if the parent raised its own.
    pub nofile: Option<(u64, u64)>,
    /// Signal mask to restore.
    pub signals: &'a SignalFd,
}

/// Memory that child and parent share until exec: arguments of the child, and its error for the
/// parent.
struct VforkShared<'a> {
    exec: &'a ExecRequest<'a>,
    argv: Vec<*const libc::c_char>,
    shell_argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    parent: i32,
    errno: i32,
    in_chdir: bool,
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|s| s.as_ptr())
        .chain([std::ptr::null()])
        .collect()
}

const STACK_BYTES: usize = 64 * 1024;

/// Why a program could not be started.
#[derive(Debug)]
pub enum SpawnError {
    /// No new process.
    Fork(io::Error),
    /// The directory could not be entered.
    Chdir(io::Error),
    /// The file could not be executed.
    Exec(io::Error),
}

/// Starts a program as a child that dies with this process, and returns its process id once it is
/// running.
///
/// The child borrows this process's memory until it executes (as `posix_spawn` does), so the cost
/// does not grow with the parent's memory. All signals that are watched must be blocked in the
/// caller.
pub fn spawn(exec: &ExecRequest<'_>) -> Result<i32, SpawnError> {
    let argv = pointers(exec.argv);
    let mut shell_argv = vec![c"/bin/sh".as_ptr(), exec.path.as_ptr()];
    shell_argv.extend(&argv[1..]);
    // SAFETY: getpid cannot fail.
    let parent = unsafe { libc::getpid() };
    let mut shared = VforkShared {
        exec,
        argv,
        shell_argv,
        envp: pointers(exec.envp),
        parent,
        errno: 0,
        in_chdir: false,
    };
    let mut stack = vec![0u128; STACK_BYTES / 16];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: CLONE_VFORK suspends this thread until the child has executed or ended, so `shared`
    // and `stack` outlive the child's use and nobody else touches them; the stack grows down from
    // its aligned end and is large enough for `child`, which calls nothing but system calls.
    let pid = unsafe {
        libc::clone(
            child,
            stack.as_mut_ptr_range().end.cast(),
            flags,
            (&raw mut shared).cast(),
        )
    };
    if pid < 0 {
        return Err(SpawnError::Fork(io::Error::last_os_error()));
    }
    if shared.errno != 0 {
        // SAFETY: waits for the child just made, which has ended.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        let error = io::Error::from_raw_os_error(shared.errno);
        return Err(if shared.in_chdir {
            SpawnError::Chdir(error)
        } else {
            SpawnError::Exec(error)
        });
    }
    Ok(pid)
}

/// The child between clone and exec.
extern "C" fn child(shared: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn` passes a pointer to its `VforkShared` and is suspended while this runs; only
    // async-signal-safe calls are made, on arguments prepared before.
    unsafe {
        let shared = &mut *shared.cast::<VforkShared<'_>>();
        let exec = shared.exec;
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != shared.parent {
            libc::_exit(127);
        }
        if exec.own_group {
            libc::setpgid(0, 0);
        }
        if !exec.cpus.is_empty() {
            // A refusal (a CPU went offline) leaves the rank unbound, which is always correct.
            libc::syscall(
                libc::SYS_sched_setaffinity,
                0,
                std::mem::size_of_val(exec.cpus),
                exec.cpus.as_ptr(),
            );
        }
        if let Some((soft, hard)) = exec.nofile {
            libc::setrlimit(
                libc::RLIMIT_NOFILE,
                &libc::rlimit {
                    rlim_cur: soft,
                    rlim_max: hard,
                },
            );
        }
        shared.errno = match prepare_descriptors(exec) {
            true => 0,
            false => *libc::__errno_location(),
        };
        if shared.errno == 0
            && let Some(dir) = exec.dir
            && libc::chdir(dir.as_ptr()) != 0
        {
            shared.in_chdir = true;
            shared.errno = *libc::__errno_location();
        }
        if shared.errno == 0 {
            // Rust's runtime ignores it, which a program would inherit.
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::sigprocmask(
                libc::SIG_SETMASK,
                &exec.signals.before,
                std::ptr::null_mut(),
            );
            libc::execve(
                exec.path.as_ptr(),
                shared.argv.as_ptr(),
                shared.envp.as_ptr(),
            );
            if exec.by_shell && *libc::__errno_location() == libc::ENOEXEC {
                libc::execve(
                    c"/bin/sh".as_ptr(),
                    shared.shell_argv.as_ptr(),
                    shared.envp.as_ptr(),
                );
            }
            shared.errno = *libc::__errno_location();
        }
        libc::_exit(127)
    }
}

/// Puts the descriptors of `exec` where the program expects them.
///
/// # Safety
/// Only between clone and exec.
unsafe fn prepare_descriptors(exec: &ExecRequest<'_>) -> bool {
    // SAFETY: dup2 on open descriptors; the sources are above 2 (the agent opened 0 to 2 first), so
    // no target is one.
    unsafe {
        let place = |from: RawFd, to: RawFd| match from == to {
            true => libc::fcntl(to, libc::F_SETFD, 0) != -1,
            false => libc::dup2(from, to) != -1,
        };
        exec.stdin.is_none_or(|fd| place(fd.as_raw_fd(), 0))
            && place(exec.stdout.as_raw_fd(), 1)
            && place(exec.stderr.as_raw_fd(), 2)
            && exec
                .pass
                .is_none_or(|(fd, number)| place(fd.as_raw_fd(), number))
    }
}
