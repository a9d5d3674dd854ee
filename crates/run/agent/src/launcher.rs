//! The launcher: the process that the user started and whose exit code counts.
//!
//! It forks a guard, which forks the agent; it passes signals on to the agent, and waits. Each of
//! the three is the parent of orphans below it and notices the end of the others, so any one of
//! them that survives ends what is left: the launcher what guard and agent leave, the agent what it
//! started, the guard what both of the others would have ended.
//!
//! It keeps a hand on the agent's connections to those of other hosts, too ([`AgentConnections`]):
//! so they end as connections do that somebody ends, also where the agent is killed.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::process::{PidfdFlags, WaitOptions};

use crate::agent::{self, AgentStart};
use crate::join::join_listener::JoinedHosts;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::job::Job;
use garonne_job::limits;
use garonne_job::rank_messages::LauncherMessage;
use garonne_links::process_tree;
use garonne_links::sys::{self, ForkSide, SignalFd};

/// An event that a launcher reports while its job runs.
#[derive(Debug)]
pub enum LauncherEvent {
    /// The job's processes are apart from this one: from now on it may start threads.
    Begun,
    /// Memory file of a world of a traced job on this host, before any rank has joined it.
    World(OwnedFd),
    /// The job has ended badly.
    Remains {
        /// The memory file of its newest world on this host.
        world: OwnedFd,
        /// The rank that is to blame, if one is.
        rank: Option<u32>,
    },
    /// Flight recorder of a rank of that world; the rank that is to blame comes first.
    Recorder {
        /// The rank.
        rank: u32,
        /// Process of the rank.
        process: u32,
        /// The memory file, which `garonne-inspect` reads.
        file: OwnedFd,
    },
}

/// Runs a job to its end, perhaps with hosts that have joined, which are the last of its nodes, and
/// returns its exit code. The calling process must have one thread until `event` is called first.
pub fn launch(
    job: &Job,
    company: Option<JoinedHosts>,
    event: &mut dyn FnMut(LauncherEvent),
) -> Result<i32> {
    let beginning = company.map_or(AgentStart::Plain, |company| {
        AgentStart::Joined(Box::new(company))
    });
    launch_as(job, beginning, event)
}

/// Launches this host's part of a job. On another host the launcher is only the parent of the
/// agent.
pub(crate) fn launch_as(
    job: &Job,
    beginning: AgentStart,
    event: &mut dyn FnMut(LauncherEvent),
) -> Result<i32> {
    job.check_size()?;
    let failed =
        |what: &'static str| move |error: std::io::Error| Error::system(codes::G0209, what, error);
    process_tree::adopt_orphans().map_err(failed("cannot become the parent of orphans"))?;
    let signals = SignalFd::watch().map_err(failed("cannot watch signals"))?;
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| Error::system(codes::G0209, "cannot make a socket for the agent", error))?;
    let launcher = rustix::process::getpid().as_raw_pid();
    match sys::fork().map_err(|error| process_tree::too_many("cannot start the agent", &error))? {
        ForkSide::Child => {
            drop(ours);
            guard(job, launcher, theirs, signals, beginning)
        }
        ForkSide::Parent(guard) => {
            // The agent tells us of its lines to other hosts itself, also of those that it makes
            // later.
            drop((theirs, beginning));
            event(LauncherEvent::Begun);
            supervise(guard, &ours, &signals, event)
        }
    }
}

/// The process between launcher and agent. It does nothing but wait for the agent's end: should
/// launcher and agent be killed at one time, what they leave becomes its child.
fn guard(job: &Job, launcher: i32, link: OwnedFd, signals: SignalFd, beginning: AgentStart) -> ! {
    // Without it a job is as safe as its launcher and agent are: not worth refusing one.
    let _ = process_tree::adopt_orphans();
    let code = match sys::fork() {
        Ok(ForkSide::Child) => match signals.renew() {
            Ok(signals) => agent::run(job, launcher, &link, &signals, beginning),
            Err(error) => {
                let error = Error::system(codes::G0209, "the agent cannot watch signals", error);
                agent::report_start_failure(job, &link, &error)
            }
        },
        Ok(ForkSide::Parent(agent)) => {
            // The launcher sees the end of the link when the agent is gone.
            drop((link, signals, beginning));
            wait_for(agent);
            process_tree::kill_all();
            0
        }
        Err(error) => agent::report_start_failure(
            job,
            &link,
            &process_tree::too_many("cannot start the agent", &error),
        ),
    };
    sys::exit_now(code)
}

/// Passes signals on until the agent says that the job is done, or it or its guard is gone.
fn supervise(
    guard: i32,
    link: &OwnedFd,
    signals: &SignalFd,
    event: &mut dyn FnMut(LauncherEvent),
) -> Result<i32> {
    let mut lines = AgentConnections::default();
    let pidfd = rustix::process::Pid::from_raw(guard)
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
            match read_agent((guard, link), event, &mut lines) {
                AgentMessage::Done(code) => {
                    wait_for(guard);
                    lines.end();
                    return Ok(code);
                }
                AgentMessage::Nothing if ready.get(2) != Some(&true) => {}
                AgentMessage::Nothing | AgentMessage::End => {
                    lines.end_with_agent();
                    return reap_all();
                }
            }
        }
    }
}

fn pass_signals_on(link: &OwnedFd, signals: &SignalFd) {
    while let Some(signal) = signals.next() {
        if signal.number == libc::SIGCHLD {
            continue;
        }
        let message = LauncherMessage::Signal {
            signal: signal.number,
            broadcast: signal.from_kernel,
        };
        let _ = sys::send(link.as_fd(), &message.encode(), &[], SendFlags::DONTWAIT);
        if signal.number == libc::SIGTSTP {
            sys::stop_self();
        }
    }
}

/// A message of the agent to the launcher.
enum AgentMessage {
    /// The job is over.
    Done(i32),
    /// Nothing that ends it.
    Nothing,
    /// The agent has closed the connection.
    End,
}

/// Hears the agent out, as far as it has spoken.
fn read_agent(
    (guard, link): (i32, &OwnedFd),
    event: &mut dyn FnMut(LauncherEvent),
    lines: &mut AgentConnections,
) -> AgentMessage {
    loop {
        let message = match sys::recv(link.as_fd(), RecvFlags::DONTWAIT) {
            Ok(message) => message,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return AgentMessage::Nothing;
            }
            Err(_) => return AgentMessage::End,
        };
        match LauncherMessage::decode(&message.bytes) {
            Ok(LauncherMessage::Done { code }) => return AgentMessage::Done(code),
            Ok(LauncherMessage::NewWorld) => message
                .fds
                .into_iter()
                .for_each(|world| event(LauncherEvent::World(world))),
            Ok(LauncherMessage::FlightRecording { rank }) => message
                .fds
                .into_iter()
                .for_each(|world| event(LauncherEvent::Remains { world, rank })),
            Ok(LauncherMessage::FlightRecorder { rank, process }) => {
                let recorder = |file| LauncherEvent::Recorder {
                    rank,
                    process,
                    file,
                };
                message.fds.into_iter().map(recorder).for_each(&mut *event);
            }
            Ok(LauncherMessage::AgentConnection { node }) => {
                lines.agent = lines
                    .agent
                    .or_else(|| process_tree::children_of(guard).first().copied());
                message
                    .fds
                    .into_iter()
                    .for_each(|line| lines.keep(node, line));
            }
            _ => return AgentMessage::End,
        }
    }
}

/// The connections by which the agent speaks with those of other hosts, by their nodes.
///
/// The system resets the connections of a process that is killed with something unread, and a reset
/// may as well come from something on the way, which a line survives. While this process has them,
/// too, they are not reset: it ends them, and the other side knows at once that this agent is gone.
#[derive(Debug, Default)]
struct AgentConnections {
    kept: HashMap<u32, OwnedFd>,
    /// The agent, known once it has a line: the guard's only child.
    agent: Option<i32>,
}

impl AgentConnections {
    /// In the place of the one before, which the agent has left.
    fn keep(&mut self, node: u32, line: OwnedFd) {
        if self.kept.len() < limits::LINES_KEPT || self.kept.contains_key(&node) {
            self.kept.insert(node, line);
        }
    }

    /// The agent is gone.
    fn end(&self) {
        for line in self.kept.values() {
            let _ = rustix::net::shutdown(line, rustix::net::Shutdown::Both);
        }
    }

    /// The guard is gone, perhaps alone. Then the agent, which has become our child, ends before
    /// its lines do: it would take their end for that of the other hosts, and blame one of those.
    fn end_with_agent(&self) {
        let me = rustix::process::getpid().as_raw_pid();
        if let Some(agent) = self
            .agent
            .filter(|agent| process_tree::parent_of(*agent) == Some(me))
        {
            sys::kill(agent, libc::SIGKILL);
            let until = Instant::now() + limits::SWEEP_WAIT;
            while process_tree::ended(agent).is_none() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.end();
    }
}

fn wait_for(child: i32) {
    let Some(pid) = rustix::process::Pid::from_raw(child) else {
        return;
    };
    while let Err(rustix::io::Errno::INTR) =
        rustix::process::waitpid(Some(pid), WaitOptions::empty())
    {}
}

/// The agent is gone without a word: ends what it left.
fn reap_all() -> Result<i32> {
    let clean = process_tree::kill_all();
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
