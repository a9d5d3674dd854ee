//! The process tree below this process, and its end.
//!
//! Both launcher and agent are subreapers: whatever a rank started becomes theirs when its parent
//! dies, so killing all descendants until none is left misses nothing, also processes that changed
//! their session or daemonised.

use garonne_job::process_exit::ProcessExit;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::process::{Pid, Resource, WaitId, WaitIdOptions, WaitOptions};

use crate::sys;
use garonne_job::codes;
use garonne_job::error::Error;
use garonne_job::limits::SWEEP_WAIT;

/// Makes this process the parent of its descendants' orphans.
pub fn adopt_orphans() -> std::io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(
        rustix::process::getpid(),
    ))?)
}

/// Processes whose parent is `pid`, also those started by its other threads.
pub fn children_of(pid: i32) -> Vec<i32> {
    let mut children = Vec::new();
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return children;
    };
    for task in tasks.flatten() {
        let Ok(list) = std::fs::read_to_string(task.path().join("children")) else {
            continue;
        };
        children.extend(
            list.split_ascii_whitespace()
                .filter_map(|pid| pid.parse::<i32>().ok()),
        );
    }
    children
}

/// All processes below `pid`, nearest first.
pub fn descendants(pid: i32) -> Vec<i32> {
    let mut all = children_of(pid);
    let mut next = 0;
    while next < all.len() {
        let below = children_of(all[next]);
        all.extend(
            below
                .into_iter()
                .filter(|pid| !all.contains(pid))
                .collect::<Vec<_>>(),
        );
        next += 1;
    }
    all
}

/// The parent of a process.
pub fn parent_of(pid: i32) -> Option<i32> {
    stat_of(pid)?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Returns the fields of `/proc/PID/stat` from the third on: state, parent, and more.
fn stat_of(pid: i32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before them, in parentheses, may contain anything.
    Some(stat.rsplit_once(')')?.1.to_owned())
}

/// The state of a process, as a letter, and the processor time that it has used, in the system's
/// ticks.
pub fn use_of(pid: i32) -> Option<(char, u64)> {
    let stat = stat_of(pid)?;
    let mut fields = stat.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let (user, system): (u64, u64) = (fields.nth(10)?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((state, user + system))
}

/// Returns whether `ancestor` is above `pid`.
pub fn is_ancestor(ancestor: i32, pid: i32) -> bool {
    std::iter::successors(parent_of(pid), |&pid| {
        (pid > 1).then(|| parent_of(pid)).flatten()
    })
    .any(|pid| pid == ancestor)
}

/// The end of a child if it has ended. It stays unreaped: nobody else can get its process id until
/// [`kill_all`].
pub fn ended(pid: i32) -> Option<ProcessExit> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = rustix::process::waitid(WaitId::Pid(Pid::from_raw(pid)?), options).ok()??;
    let code = status.exit_status().map(ProcessExit::Exit);
    code.or_else(|| status.terminating_signal().map(ProcessExit::Signal))
}

/// The end of a process that may be no child of this one: known once its parent has reaped it, and
/// only to newer kernels.
pub fn end_told_by(pidfd: BorrowedFd<'_>) -> Option<ProcessExit> {
    sys::wait_status(pidfd).map(of_status)
}

/// The end of a process that nobody has reaped yet, whoever's child it is.
pub fn end_unreaped(pid: i32) -> Option<ProcessExit> {
    let stat = stat_of(pid)?;
    let fields: Vec<&str> = stat.split_ascii_whitespace().collect();
    // The state is the third field of proc(5), the status the last but none (52).
    let status: i32 = fields.get(52 - 3)?.parse().ok()?;
    (*fields.first()? == "Z").then_some(of_status(status))
}

fn of_status(status: i32) -> ProcessExit {
    match libc::WIFSIGNALED(status) {
        true => ProcessExit::Signal(libc::WTERMSIG(status)),
        false => ProcessExit::Exit(libc::WEXITSTATUS(status)),
    }
}

/// Takes an ended child out of the process table.
pub fn reap(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
    }
}

/// Kills everything below this process and waits until it is gone. `false`: something is stuck in
/// the kernel.
pub fn kill_all() -> bool {
    let me = rustix::process::getpid().as_raw_pid();
    let deadline = Instant::now() + SWEEP_WAIT;
    loop {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                // No children at all.
                Err(_) => return true,
            }
        }
        if Instant::now() > deadline {
            return false;
        }
        for pid in descendants(me) {
            sys::kill(pid, libc::SIGKILL);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Returns whether this process has children that have not ended.
pub fn any_alive() -> bool {
    children_of(rustix::process::getpid().as_raw_pid())
        .into_iter()
        .any(|pid| ended(pid).is_none())
}

/// The names of signals that end programs, as people know them.
pub fn signal_name(signal: i32) -> String {
    const NAMES: [(i32, &str); 14] = [
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGXCPU, "SIGXCPU"),
        (libc::SIGSYS, "SIGSYS"),
    ];
    NAMES
        .iter()
        .find(|(number, _)| *number == signal)
        .map_or_else(
            || format!("signal {signal}"),
            |(_, name)| (*name).to_owned(),
        )
}

/// Identity of this process's PID namespace; 0 if /proc does not say.
pub fn own_space() -> u64 {
    rustix::fs::stat("/proc/self/ns/pid").map_or(0, |stat| stat.st_ino)
}

/// No process can be started: says so, and by which limit where the user's number of processes is
/// one.
pub fn too_many(what: &str, error: &std::io::Error) -> Error {
    let limit = rustix::process::getrlimit(Resource::Nproc).current;
    let by_limit = limit.filter(|_| error.raw_os_error() == Some(libc::EAGAIN));
    let limit = by_limit.map_or_else(String::new, |limit| {
        format!(
            "; this user may have {limit} processes and threads, which `ulimit -u` shows and sets"
        )
    });
    Error::resource(codes::G0303, format!("{what}: {error}{limit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_found_below_its_parent_and_the_parent_above_it() {
        let mut child = std::process::Command::new("sleep")
            .arg("5")
            .spawn()
            .unwrap();
        let (me, pid) = (std::process::id() as i32, child.id() as i32);
        assert!(children_of(me).contains(&pid));
        assert_eq!(parent_of(pid), Some(me));
        assert!(is_ancestor(me, pid));
        assert!(!is_ancestor(pid, me));
        assert_eq!(ended(pid), None);
        child.kill().unwrap();
        while ended(pid).is_none() {
            std::thread::yield_now();
        }
        assert_eq!(end_unreaped(pid), Some(ProcessExit::Signal(9)));
        assert_eq!(end_unreaped(me), None);
        assert_eq!(
            ended(pid),
            Some(ProcessExit::Signal(9)),
            "and it can be asked again, since it is not reaped"
        );
        child.wait().unwrap();
    }
}
