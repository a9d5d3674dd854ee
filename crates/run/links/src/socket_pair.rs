//! Private sockets between a process and its agent.

use std::os::fd::OwnedFd;

use garonne_job::codes;
use garonne_job::error::{Error, Result};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// A socket pair for one rank and the agent.
pub fn private_pair() -> Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| Error::system(codes::G0209, "cannot make a socket to the agent", error))
}
