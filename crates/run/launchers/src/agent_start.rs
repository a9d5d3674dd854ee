//! How a rank starts the agent of its host: `garonne agent --adopt`, which detaches itself, serves
//! all ranks of the job there and ends with them.
//!
//! Owned by [`wireup`](super::wireup). The private socket between them is the agent's standard
//! input. The rank says whom to adopt, the agent where it is, and the rank where the agent is that
//! this one reports to. The socket's end tells the agent of a rank that died before it registered.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use garonne_job::adoption_messages::{AdoptionRequest, AgentLocation, ChildListener, RootAgent};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::limits::AGENT_START_WAIT;
use garonne_links::socket_pair::private_pair;
use garonne_links::sys;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvFlags, SendFlags};

/// An agent that was started, and the line to it.
#[derive(Debug)]
pub(super) struct StartedAgent {
    socket: OwnedFd,
    pub location: AgentLocation,
    /// The job's identity, if this agent is the root.
    pub root_agent: Option<RootAgent>,
    /// Listener for child agents, if there are any and this agent is not the root.
    pub child_listener: Option<ChildListener>,
}

impl StartedAgent {
    /// Tells it where the agent is that it reports to. The line is to be kept until its first rank
    /// has registered.
    pub fn send_parent(self, first: &RootAgent) -> Result<OwnedFd> {
        let told = sys::send(
            self.socket.as_fd(),
            &first.encode(),
            &[],
            SendFlags::empty(),
        );
        told.map_err(|error| Error::system(codes::G0220, "the agent of this host is gone", error))?;
        Ok(self.socket)
    }
}

/// Starts an agent on this host.
pub(super) fn start(adoption: &AdoptionRequest) -> Result<StartedAgent> {
    let program = program()?;
    let (ours, theirs) = private_pair()?;
    let child = Command::new(&program)
        .args(["agent", "--adopt"])
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .spawn();
    let failed = |what: &str| {
        format!(
            "{what} '{}', which serves the ranks of this host",
            program.display()
        )
    };
    let mut child =
        child.map_err(|error| Error::system(codes::G0220, failed("cannot execute"), error))?;
    for message in adoption.encode() {
        let sent = sys::send(ours.as_fd(), &message, &[], SendFlags::empty());
        sent.map_err(|error| Error::system(codes::G0220, failed("cannot speak to"), error))?;
    }
    // It detaches itself from us at once. A program that ignores the ends of its children need not
    // be told of this one.
    let _ = child.wait();
    let mut answer = receive(&ours, &failed("no answer from"))?;
    let (first, child_listener) = (
        RootAgent::decode(&answer).ok(),
        ChildListener::decode(&answer).ok(),
    );
    if first.is_some() || child_listener.is_some() {
        answer = receive(&ours, &failed("half an answer from"))?;
    }
    Ok(StartedAgent {
        socket: ours,
        location: AgentLocation::decode(&answer)?,
        root_agent: first,
        child_listener,
    })
}

/// Receives one message, which must come within [`AGENT_START_WAIT`].
fn receive(line: &OwnedFd, missing: &str) -> Result<Vec<u8>> {
    let limit = sys::timespec(AGENT_START_WAIT);
    let mut fds = [PollFd::new(line, PollFlags::IN)];
    while let Err(rustix::io::Errno::INTR) = rustix::event::poll(&mut fds, Some(&limit)) {}
    if fds[0].revents().is_empty() {
        let text = format!("{missing} within {} s", AGENT_START_WAIT.as_secs());
        return Err(Error::peer(codes::G0220, text));
    }
    let message = sys::recv(line.as_fd(), RecvFlags::DONTWAIT);
    let message =
        message.map_err(|error| Error::system(codes::G0220, missing.to_owned(), error))?;
    if message.bytes.is_empty() {
        return Err(Error::peer(
            codes::G0220,
            format!("{missing}: it has ended"),
        ));
    }
    Ok(message.bytes)
}

/// The `garonne` that belongs to this library: beside it, or where an installation has it, or else
/// the one of the search path.
pub fn program() -> Result<PathBuf> {
    let own = own_object();
    let dir = own.as_deref().and_then(|path| path.parent());
    let near = dir
        .into_iter()
        .flat_map(|dir| ["garonne", "../bin/garonne", "../garonne"].map(|place| dir.join(place)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let searched: Vec<PathBuf> = std::env::split_paths(&path)
        .map(|dir| dir.join("garonne"))
        .collect();
    let usable = |place: &PathBuf| {
        place.is_file() && rustix::fs::access(place, rustix::fs::Access::EXEC_OK).is_ok()
    };
    near.chain(searched).find(usable).ok_or_else(|| {
        let beside = own.map_or(String::from("the library"), |path| {
            format!("'{}'", path.display())
        });
        let text =
            format!("no `garonne` beside {beside}, nor in PATH: it serves the ranks of a host");
        Error::misuse(codes::G0220, text)
    })
}

/// The file that this code was loaded from.
fn own_object() -> Option<PathBuf> {
    let here = own_object as fn() -> Option<PathBuf> as usize as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| {
        let range = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        let parse = |text: &str| u64::from_str_radix(text, 16).ok();
        range.is_some_and(|(from, to)| {
            parse(from).is_some_and(|from| from <= here) && parse(to).is_some_and(|to| here < to)
        })
    })?;
    Some(PathBuf::from(&line[line.find('/')?..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_code_knows_the_file_that_it_is_in() {
        assert_eq!(own_object(), std::env::current_exe().ok());
    }
}
