//! The launcher: the process that the user started and whose exit code counts.
//!
//! It forks the agent, passes signals on to it, and waits. Should the agent be killed, everything that is left becomes
//! the launcher's child, and the launcher ends it; should the launcher be killed, the agent does.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::process::{PidfdFlags, WaitOptions};

use crate::agent;
use crate::codes;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::limits;
use crate::processes;
use crate::sys::{self, Forked, Signals};
use crate::wire::Link;

/// Runs a job to its end and returns its exit code. The calling process must have one thread.
pub fn launch(job: &Job) -> Result<i32> {
    if job.size() == 0 || job.size() > limits::RANKS_MAX {
        let text = format!("{} ranks: a job has 1 to {}", job.size(), limits::RANKS_MAX);
        return Err(Error::misuse(codes::G0211, text));
    }
    let failed = |what: &'static str| move |error: std::io::Error| Error::system(codes::G0209, what, error);
    processes::adopt_orphans().map_err(failed("cannot become the parent of orphans"))?;
    let signals = Signals::watch().map_err(failed("cannot watch signals"))?;
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| Error::system(codes::G0209, "cannot make a socket for the agent", error))?;
    let launcher = rustix::process::getpid().as_raw_pid();
    match sys::fork()
        .map_err(|error| Error::resource(codes::G0303, format!("cannot start the agent: {error}")))?
    {
        Forked::Child => {
            drop(ours);
            let code = match signals.renew() {
                Ok(signals) => agent::run(job, launcher, &theirs, &signals),
                Err(_) => 1,
            };
            sys::exit_now(code)
        }
        Forked::Parent(agent) => {
            drop(theirs);
            attend(agent, &ours, &signals)
        }
    }
}

/// Passes signals on until the agent says that the job is done, or is gone.
fn attend(agent: i32, link: &OwnedFd, signals: &Signals) -> Result<i32> {
    let pidfd = rustix::process::Pid::from_raw(agent)
        .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
    loop {
        let mut fds = vec![
            PollFd::new(signals, PollFlags::IN),
            PollFd::new(link, PollFlags::IN),
        ];
        fds.extend(pidfd.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return Err(Error::system(
                    codes::G0209,
                    "the launcher cannot wait for events",
                    error,
                ));
            }
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            pass_signals_on(link, signals);
        }
        if ready[1] || ready.get(2) == Some(&true) {
            match done(link) {
                Some(code) => {
                    wait_for(agent);
                    return Ok(code);
                }
                None => return bury(),
            }
        }
    }
}

fn pass_signals_on(link: &OwnedFd, signals: &Signals) {
    while let Some(signal) = signals.next() {
        if signal.number == libc::SIGCHLD {
            continue;
        }
        let message = Link::Signal {
            signal: signal.number,
            broadcast: signal.from_kernel,
        };
        let _ = sys::send(link.as_fd(), &message.encode(), &[], SendFlags::DONTWAIT);
        if signal.number == libc::SIGTSTP {
            sys::stop_self();
        }
    }
}

/// The exit code, if the agent has said it.
fn done(link: &OwnedFd) -> Option<i32> {
    let message = sys::recv(link.as_fd(), RecvFlags::DONTWAIT).ok()?;
    match Link::decode(&message.bytes) {
        Ok(Link::Done { code }) => Some(code),
        _ => None,
    }
}

fn wait_for(agent: i32) {
    let Some(pid) = rustix::process::Pid::from_raw(agent) else {
        return;
    };
    while let Err(rustix::io::Errno::INTR) = rustix::process::waitpid(Some(pid), WaitOptions::empty()) {}
}

/// The agent is gone without a word: ends what it left.
fn bury() -> Result<i32> {
    let clean = processes::kill_all();
    let rest = if clean {
        ""
    } else {
        "; some of its processes are stuck in the kernel"
    };
    Err(Error::peer(
        codes::G0204,
        format!("the agent of this job was killed; all its ranks were ended{rest}"),
    ))
}
