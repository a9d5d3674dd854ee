//! What tools ask the agent of a running job: a read-only look at it, and to leave a network alone.
//!
//! Called by the command. One message, one answer; whoever does not answer within [`limits::VISIT_WAIT`] may have been stopped.

use std::os::fd::{AsFd, OwnedFd};

use garonne_sync::shm::{Access, Segment};
use ipnet::IpNet;
use rustix::net::{RecvFlags, SendFlags, sockopt};

use crate::client::{decode, private_pair, refusal, unexpected};
use crate::codes;
use crate::error::{Error, Result};
use crate::layout::Shape;
use crate::rendezvous;
use crate::wire::{ToAgent, ToRank};
use crate::{limits, memory, sys};

/// A read-only look at a running job, for tools.
#[derive(Debug)]
pub struct Visit {
    /// Its name.
    pub name: rendezvous::JobName,
    /// Command line of the job.
    pub command: String,
    /// Process id of its launcher.
    pub launcher: u32,
    /// Ranks started.
    pub ranks: u32,
    /// Names of the job's hosts, by node; none where there is one.
    pub hosts: Vec<String>,
    /// Shape and board of its newest world; `None` before any rank called MPI_Init.
    pub world: Option<(Shape, Segment)>,
    /// The memory file of that world.
    pub file: Option<OwnedFd>,
}

/// Asks the agent of the job named `name` to have a network left alone between hosts, on all of them, or used again.
///
/// # Errors
/// [`Error::Timeout`] where it does not answer.
pub fn drain(name: &rendezvous::JobName, network: IpNet, drained: bool) -> Result<()> {
    match ask(name, &ToAgent::Drain { network, drained })?.0 {
        ToRank::Heard => Ok(()),
        ToRank::Refused { code, text } => Err(refusal(&code, text)),
        other => Err(unexpected(&other)),
    }
}

/// Sends one message to the agent of a job, and gives its answer with what that carries.
fn ask(name: &rendezvous::JobName, message: &ToAgent) -> Result<(ToRank, Vec<OwnedFd>)> {
    let hello = rendezvous::connect(name)?;
    let (ours, theirs) = private_pair()?;
    sys::send(
        hello.as_fd(),
        &message.encode(),
        &[theirs.as_fd()],
        SendFlags::DONTWAIT,
    )
    .map_err(|error| Error::system(codes::G0209, "cannot talk to the agent of that job", error))?;
    drop((hello, theirs));
    sockopt::set_socket_timeout(&ours, sockopt::Timeout::Recv, Some(limits::VISIT_WAIT))
        .map_err(|error| Error::system(codes::G0209, "cannot limit the wait for an agent", error))?;
    let reply = sys::recv(ours.as_fd(), RecvFlags::empty()).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => Error::Timeout {
            code: codes::G0209,
            text: "the agent of that job does not answer; somebody may have stopped it".into(),
        },
        _ => Error::system(codes::G0209, "cannot hear the agent of that job", error),
    })?;
    Ok((decode(&reply)?, reply.fds))
}

/// Asks the agent of the job named `name` (see [`rendezvous::jobs`]) for a look.
///
/// # Errors
/// [`Error::Timeout`] where it does not answer: somebody may have stopped it.
pub fn visit(name: &rendezvous::JobName) -> Result<Visit> {
    let (answer, fds) = ask(name, &ToAgent::Attach)?;
    match answer {
        ToRank::Attached {
            command,
            launcher,
            ranks,
            hosts,
        } => {
            let file = fds.into_iter().next();
            let world = file
                .as_ref()
                .map(|file| memory::open(file.as_fd(), Access::Read))
                .transpose()?;
            let mut hosts: Vec<String> = hosts.lines().map(str::to_owned).collect();
            if let (true, Some(file), Some((shape, _))) = (hosts.is_empty(), &file, &world)
                && shape.nodes > 1
            {
                let atlas = memory::atlas(file.as_fd(), shape)?;
                let name = |node| atlas.place(node).map(|place| place.name);
                hosts = (0..atlas.nodes()).map(name).collect::<Result<_>>()?;
            }
            Ok(Visit {
                name: name.clone(),
                command,
                launcher,
                ranks,
                hosts,
                world,
                file,
            })
        }
        ToRank::Refused { code, text } => Err(refusal(&code, text)),
        other => Err(unexpected(&other)),
    }
}
