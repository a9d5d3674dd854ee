//! `garonne agent`: what the launcher has started on another host.
//!
//! Reads its bootstrap message from standard input (never arguments or environment: others may read
//! those), calls the launcher's agent at all addresses at once and keeps the line that first proves
//! the job's secret, is told the job, and goes on as the launcher of this host's part. Until the
//! line stands, words go to standard error, which whoever started it passes on to the user. A host
//! that joins gets its bootstrap message on the line that it has made, and goes on in the same way
//! ([`join`]).

use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Instant;

use garonne_links::connect::{ConnectTarget, connect_to};
use garonne_tcp::agent_channel::{self, AgentChannel};
use garonne_topology::CpuSet;
use rustix::event::{PollFd, PollFlags};

use crate::agent::{AgentStart, RootConnection, rank_start};
use crate::binding_order;
use crate::cpu_claims;
use crate::launcher;
use crate::rank_slots;
use garonne_job::agent_messages::{AgentBootstrap, AgentCommand};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::job::{Job, PlacementOptions};
use garonne_job::layout::JobId;
use garonne_job::limits::{BOOTSTRAP_BYTES_MAX, BUSY_WAIT, CALL_WAIT};

/// Carries out the bootstrap message on standard input. Returns the exit code of this process,
/// which nobody but the one who started it sees.
pub fn serve() -> i32 {
    match serve_bootstrap() {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            1
        }
    }
}

fn serve_bootstrap() -> Result<i32> {
    let bootstrap = read_bootstrap(std::io::stdin().lock())?;
    let identity = agent_channel::identity(
        bootstrap.secret.clone(),
        bootstrap.job.to_ne_bytes(),
        bootstrap.node,
    );
    let until = Instant::now() + BUSY_WAIT;
    let input = std::io::stdin();
    let whom = ConnectTarget {
        node: bootstrap.parent,
        name: &bootstrap.parent_name,
        port: bootstrap.port,
        busy_retry: BUSY_WAIT,
        starter: Some(input.as_fd()),
    };
    loop {
        let (mut line, reached) = connect_to(&identity, &bootstrap.addresses, &whom)?;
        match receive_job(&mut line)? {
            Some(job) => {
                return run_as_agent(bootstrap, job, line, (reached, AgentOrigin::Started));
            }
            // It was answered, but its proof came when its place was gone.
            None if Instant::now() < until => {}
            None => return Err(closed()),
        }
    }
}

fn closed() -> Error {
    Error::peer(codes::G0216, "the launcher has closed the connection")
}

/// Way in which an agent came to be that of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentOrigin {
    /// The job has started it: its ranks run as on the job's own host, in the same directory and
    /// environment.
    Started,
    /// The host has joined: its ranks run as this process does.
    Joined,
}

/// Is told the job on the line that a host which joins has made, and runs its part of it. Returns
/// the code of this process.
pub(crate) fn join(
    bootstrap: AgentBootstrap,
    mut line: AgentChannel,
    reached: IpAddr,
) -> Result<i32> {
    let job = receive_job(&mut line)?.ok_or_else(closed)?;
    run_as_agent(bootstrap, job, line, (reached, AgentOrigin::Joined))
}

/// Runs this node's part of the job that the first agent has told on its line.
fn run_as_agent(
    bootstrap: AgentBootstrap,
    mut job: Job,
    line: AgentChannel,
    (reached, manner): (IpAddr, AgentOrigin),
) -> Result<i32> {
    if manner == AgentOrigin::Joined {
        job.env = Some(rank_start::environment_of_guest(
            job.env.take().unwrap_or_default(),
        ));
    }
    if let Some(cpus) = CpuSet::parse(&job.cpus).filter(|cpus| !cpus.is_empty())
        && let Err(error) = cpu_claims::confine(&cpus)
    {
        let text = format!(
            "the job cannot be confined to CPUs {cpus} on host '{}'",
            bootstrap.name
        );
        return Err(Error::system(codes::G0211, text, error));
    }
    let ranks = binding_order::ranks(&job, bootstrap.node);
    let placed = match rank_slots::place(&job, &ranks) {
        Some(placed) => placed,
        None => Ok(cpu_claims::place_ranks(ranks.len() as u32, &job.policy)),
    };
    // The claim on the CPUs lasts as long as the job.
    if let Err(Error::Misuse { text, .. }) = &placed {
        job.fault = Some(format!("host '{}': {text}", bootstrap.name));
    }
    if let Ok(placed) = &placed {
        job.shortfall = placed.shortfall(&job.policy).filter(|_| !ranks.is_empty());
        job.placement = spread(&placed.placement, &ranks, job.size());
    }
    let outer = RootConnection {
        job: JobId(bootstrap.job),
        node: bootstrap.node,
        secret: bootstrap.secret,
        line,
        parent: bootstrap.parent,
        reached,
        port: bootstrap.port,
        guest: manner == AgentOrigin::Joined,
        child_listener: None,
    };
    launcher::launch_as(&job, AgentStart::Outer(Box::new(outer)), &mut drop)
}

/// The placement of some of a job's ranks as one of all, of which the others are not here.
pub fn spread(placed: &PlacementOptions, ranks: &[u32], size: u32) -> PlacementOptions {
    if placed.masks.is_empty() {
        return placed.clone();
    }
    let mut masks = vec![Vec::new(); size as usize];
    for (mask, rank) in placed.masks.iter().zip(ranks) {
        masks[*rank as usize].clone_from(mask);
    }
    let mut helpers = vec![String::new(); size as usize];
    for (cpus, rank) in placed.helpers.iter().zip(ranks) {
        helpers[*rank as usize].clone_from(cpus);
    }
    PlacementOptions {
        masks,
        helpers,
        ..placed.clone()
    }
}

fn read_bootstrap(mut from: impl Read) -> Result<AgentBootstrap> {
    let failed = |error| {
        let text = "no bootstrap message on standard input; `garonne agent` is started by `garonne run --host`, not by hand";
        Error::system(codes::G0216, text, error)
    };
    let mut len = [0; 4];
    from.read_exact(&mut len).map_err(failed)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > BOOTSTRAP_BYTES_MAX {
        let text = "what is on standard input is no bootstrap message; `garonne agent` is started by `garonne run --host`, not by hand";
        return Err(Error::misuse(codes::G0216, text));
    }
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes).map_err(failed)?;
    AgentBootstrap::decode(&bytes)
}

/// The job that this node has a part in. `None`: the launcher has closed the connection before it
/// had said anything.
fn receive_job(line: &mut AgentChannel) -> Result<Option<Job>> {
    let until = Instant::now() + CALL_WAIT;
    loop {
        let Ok(received) = line.push().and_then(|()| line.receive()) else {
            return Ok(None);
        };
        if let Some(message) = received {
            return match AgentCommand::decode(&message)? {
                AgentCommand::Job(job) => Ok(Some(*job)),
                _ => Err(Error::peer(
                    codes::G0216,
                    "the launcher does not say what is to be run",
                )),
            };
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::peer(codes::G0216, "the launcher says nothing"));
        }
        let mut fds = [PollFd::from_borrowed_fd(line.fd(), PollFlags::IN)];
        let limit = garonne_links::sys::timespec(left);
        let _ = rustix::event::poll(&mut fds, Some(&limit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_starts_it_by_hand_is_told_what_it_is() {
        for input in [&b""[..], b"hello, who is there?"] {
            let error = read_bootstrap(input).unwrap_err();
            assert_eq!(error.code(), codes::G0216);
            assert!(error.to_string().contains("garonne run --host"), "{error}");
        }
    }

    #[test]
    fn masks_of_some_ranks_stand_in_their_places_among_all() {
        let placed = PlacementOptions {
            masks: vec![vec![1], vec![2]],
            ..PlacementOptions::default()
        };
        assert_eq!(
            spread(&placed, &[1, 3], 4).masks,
            [vec![], vec![1], vec![], vec![2]]
        );
        assert!(
            spread(&PlacementOptions::default(), &[1], 4)
                .masks
                .is_empty()
        );
    }
}
