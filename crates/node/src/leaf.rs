//! `garonne agent`: what the launcher has started on another host.
//!
//! Reads its errand from standard input (never arguments or environment: others may read those), calls the launcher's agent at all addresses at once and keeps
//! the line that first proves the job's secret, is told the job, and goes on as the launcher of this host's part. Until the line stands, words go to standard error,
//! which whoever started it passes on to the user. A host that joins gets its errand on the line that it has made, and goes on in the same way ([`obey`]).

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use garonne_rails::tcp::House;
use garonne_rails::tcp::trusted::{self, Call, Called, Trusted};
use garonne_topology::CpuSet;
use rustix::event::{PollFd, PollFlags};

use crate::agent::{Beginning, Outer, start};
use crate::codes;
use crate::error::{Error, Result};
use crate::job::{Job, Placement};
use crate::launcher;
use crate::layout::JobId;
use crate::limits::{CALL_WAIT, ERRAND_BYTES_MAX};
use crate::orders::{Errand, Order};
use crate::placement;

/// Does the errand on standard input. Returns the exit code of this process, which nobody but the one who started it sees.
pub fn serve() -> i32 {
    match serve_errand() {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            1
        }
    }
}

fn serve_errand() -> Result<i32> {
    let errand = read_errand(std::io::stdin().lock())?;
    let house = trusted::house(errand.secret.clone(), errand.job.to_ne_bytes(), errand.node);
    let (line, reached) = call(&house, &errand.addresses, errand.port)?;
    obey(errand, line, (reached, Manner::Started))
}

/// How an agent came to be that of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// The job has started it: its ranks run as on the job's own host, in the same directory and environment.
    Started,
    /// Its host has joined: they run as this process does.
    Guest,
}

/// Is told the job on the line to the first agent, and runs this node's part of it. Returns the code of this process.
pub(crate) fn obey(errand: Errand, mut line: Trusted, (reached, manner): (IpAddr, Manner)) -> Result<i32> {
    let mut job = receive_job(&mut line)?;
    if manner == Manner::Guest {
        job.env = Some(start::environment_of_guest(job.env.take().unwrap_or_default()));
    }
    if let Some(cpus) = CpuSet::parse(&job.cpus).filter(|cpus| !cpus.is_empty())
        && let Err(error) = placement::confine(&cpus)
    {
        let text = format!(
            "the job cannot be confined to CPUs {cpus} on host '{}'",
            errand.name
        );
        return Err(Error::system(codes::G0211, text, error));
    }
    let ranks = job.ranks_of(errand.node);
    let placed = placement::place(ranks.len() as u32, &job.policy);
    job.placement = spread(&placed.placement, &ranks, job.size());
    let outer = Outer {
        job: JobId(errand.job),
        node: errand.node,
        secret: errand.secret,
        line,
        reached,
        port: errand.port,
        guest: manner == Manner::Guest,
    };
    launcher::launch_as(&job, Beginning::Outer(Box::new(outer)), &mut drop)
}

/// The placement of some of a job's ranks as one of all, of which the others are not here.
pub fn spread(placed: &Placement, ranks: &[u32], size: u32) -> Placement {
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
    Placement {
        masks,
        helpers,
        ..placed.clone()
    }
}

fn read_errand(mut from: impl Read) -> Result<Errand> {
    let failed = |error| {
        let text =
            "no errand on standard input; `garonne agent` is started by `garonne run --host`, not by hand";
        Error::system(codes::G0216, text, error)
    };
    let mut len = [0; 4];
    from.read_exact(&mut len).map_err(failed)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > ERRAND_BYTES_MAX {
        let text = "what is on standard input is no errand; `garonne agent` is started by `garonne run --host`, not by hand";
        return Err(Error::misuse(codes::G0216, text));
    }
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes).map_err(failed)?;
    Errand::decode(&bytes)
}

/// Calls all addresses at once; the first that answers and proves the secret is kept.
pub(crate) fn call(house: &House, addresses: &[IpAddr], port: u16) -> Result<(Trusted, IpAddr)> {
    let addresses: Vec<_> = addresses
        .iter()
        .map(|address| SocketAddr::new(*address, port))
        .collect();
    let reached = reach(house, &addresses).map_err(|failures| {
        let tried = match failures.is_empty() {
            true => String::from("it has no address"),
            false => failures.join("; "),
        };
        let text = format!("the launcher's host is not reached at any of its addresses ({tried})");
        Error::peer(codes::G0216, text)
    });
    reached.map(|(line, address)| (line, address.ip()))
}

/// The same; of addresses that do not answer as they should it says why not, one by one.
pub(crate) fn reach(
    house: &House,
    addresses: &[SocketAddr],
) -> std::result::Result<(Trusted, SocketAddr), Vec<String>> {
    let until = Instant::now() + CALL_WAIT;
    let mut failures: Vec<String> = Vec::new();
    let mut calls = Vec::new();
    for address in addresses {
        match Call::begin(house, *address, 0) {
            Ok(call) => calls.push((*address, call)),
            Err(why) => failures.push(format!("{address}: {why}")),
        }
    }
    while !calls.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let mut fds = Vec::new();
        for (_, call) in &calls {
            let room = match call.has_called() {
                true => PollFlags::empty(),
                false => PollFlags::OUT,
            };
            fds.extend(
                call.fd()
                    .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN | room)),
            );
        }
        let limit = crate::sys::timespec(left);
        let _ = rustix::event::poll(&mut fds, Some(&limit));
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut waiting = Vec::new();
        for ((address, mut call), ready) in calls.into_iter().zip(ready) {
            match if ready { call.look() } else { Called::Waits } {
                Called::Open(line) => return Ok((*line, address)),
                Called::Waits => waiting.push((address, call)),
                Called::Failed(why) => failures.push(format!("{address}: {why}")),
            }
        }
        calls = waiting;
    }
    failures.extend(calls.iter().map(|(address, _)| format!("{address}: no answer")));
    Err(failures)
}

fn receive_job(line: &mut Trusted) -> Result<Job> {
    let lost = || Error::peer(codes::G0216, "the launcher has closed the connection");
    let until = Instant::now() + CALL_WAIT;
    loop {
        line.push().map_err(|_| lost())?;
        if let Some(message) = line.receive().map_err(|_| lost())? {
            return match Order::decode(&message)? {
                Order::Job(job) => Ok(*job),
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
        let limit = crate::sys::timespec(left);
        let _ = rustix::event::poll(&mut fds, Some(&limit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_starts_it_by_hand_is_told_what_it_is() {
        for input in [&b""[..], b"hello, who is there?"] {
            let error = read_errand(input).unwrap_err();
            assert_eq!(error.code(), codes::G0216);
            assert!(error.to_string().contains("garonne run --host"), "{error}");
        }
    }

    #[test]
    fn masks_of_some_ranks_stand_in_their_places_among_all() {
        let placed = Placement {
            masks: vec![vec![1], vec![2]],
            ..Placement::default()
        };
        assert_eq!(
            spread(&placed, &[1, 3], 4).masks,
            [vec![], vec![1], vec![], vec![2]]
        );
        assert!(spread(&Placement::default(), &[1], 4).masks.is_empty());
    }
}
