//! The abstract name of an agent's socket, by which ranks and tools find it.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;

use crate::codes;
use crate::error::{Error, Result};
use crate::layout::JobId;

/// What the names of all agents begin with.
pub const PREFIX: &str = "garonne/job/";

/// Abstract name of an agent's socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentSocketName(pub String);

impl AgentSocketName {
    /// The name for a job of this process: the launcher's process id makes it readable, random
    /// digits make it unique.
    pub fn new(launcher: u32, job: JobId) -> Self {
        Self(format!("{PREFIX}{launcher}/{job}"))
    }

    /// Process id of the launcher.
    pub fn launcher(&self) -> Option<u32> {
        self.0.strip_prefix(PREFIX)?.split('/').next()?.parse().ok()
    }

    /// The job, which all its agents name alike that `garonne run` has started.
    pub fn job(&self) -> Option<&str> {
        self.0.strip_prefix(PREFIX)?.split('/').nth(1)
    }

    /// Returns the socket address of the name.
    ///
    /// # Errors
    /// The name is too long.
    pub fn address(&self) -> Result<SocketAddr> {
        SocketAddr::from_abstract_name(&self.0)
            .map_err(|error| Error::system(codes::G0212, "the job's name is no address", error))
    }
}
