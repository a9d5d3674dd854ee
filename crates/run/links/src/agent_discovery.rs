//! How a process finds the agent of its job, and a tool the jobs of this machine: without files.
//!
//! The agent binds one datagram socket to an abstract name. A rank inherits a socket that is
//! connected to it (the number and inode are in the environment); if a wrapper closed that, the
//! name serves. Messages on it carry the agent's end of a private socket, over which everything
//! else goes, so that many processes may share the inherited one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;

use rustix::net::SocketAddrUnix;

use crate::sys;
use garonne_job::agent_socket_name::{AgentSocketName, PREFIX};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::registration_secret::RegistrationSecret;

/// Inherited socket, as `number:inode`.
pub const ENV_FD: &str = "GARONNE_FD";
/// Abstract name of the agent's socket.
pub const ENV_AGENT: &str = "GARONNE_AGENT";
/// Variable with the secret that admits to the job, 32 hexadecimal digits.
pub const ENV_JOB: &str = "GARONNE_JOB";
/// Rank of the process.
pub const ENV_RANK: &str = "GARONNE_RANK";
/// Number of ranks.
pub const ENV_SIZE: &str = "GARONNE_SIZE";
/// Variable with the number of the process's program in the job, and how many ranks run it:
/// `index:ranks`.
pub const ENV_PROGRAM: &str = "GARONNE_PROGRAM";
/// The CPUs on which the progress thread of a bound rank may run, as a list.
pub const ENV_HELPERS: &str = "GARONNE_HELPERS";

/// Returns whether a variable tells a rank its place in a job, which a program that the rank starts
/// does not have.
pub fn is_of_rank(name: &std::ffi::OsStr) -> bool {
    let own = [
        ENV_FD,
        ENV_AGENT,
        ENV_JOB,
        ENV_RANK,
        ENV_SIZE,
        ENV_PROGRAM,
        ENV_HELPERS,
    ];
    own.iter().any(|known| name == *known)
}

/// The jobs that run on this machine (in this network namespace), oldest first.
pub fn jobs() -> Vec<AgentSocketName> {
    let mut jobs: Vec<_> = abstract_names()
        .into_iter()
        .filter(|name| name.starts_with(PREFIX))
        .map(AgentSocketName)
        .collect();
    jobs.sort_by_key(AgentSocketName::launcher);
    jobs.dedup();
    jobs
}

/// All abstract socket names of this network namespace.
pub fn abstract_names() -> Vec<String> {
    let table = std::fs::read("/proc/net/unix").unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    table
        .lines()
        .filter_map(|line| {
            line.split_once(" @")
                .map(|(_, name)| name.trim_end_matches('@').to_owned())
        })
        .collect()
}

/// A socket connected to the agent of `name`.
pub fn connect(name: &AgentSocketName) -> Result<OwnedFd> {
    let gone = |error| {
        Error::system(
            codes::G0212,
            format!(
                "no agent answers under the name '{}' that {ENV_AGENT} gives",
                name.0
            ),
            error,
        )
    };
    let socket = UnixDatagram::unbound().map_err(gone)?;
    socket.connect_addr(&name.address()?).map_err(gone)?;
    Ok(socket.into())
}

/// The name that an agent's socket is bound to.
pub fn name_of(socket: BorrowedFd<'_>) -> Option<AgentSocketName> {
    let address: SocketAddrUnix = rustix::net::getsockname(socket).ok()?.try_into().ok()?;
    let name = std::str::from_utf8(address.abstract_name()?).ok()?;
    Some(AgentSocketName(name.to_owned()))
}

/// The agent's socket, and the one that ranks inherit.
pub fn bind(name: &AgentSocketName) -> Result<(OwnedFd, OwnedFd)> {
    let failed = |error| Error::system(codes::G0209, "cannot make the agent's socket", error);
    let listener = UnixDatagram::bind_addr(&name.address()?).map_err(failed)?;
    let shared = UnixDatagram::unbound().map_err(failed)?;
    shared.connect_addr(&name.address()?).map_err(failed)?;
    rustix::net::sockopt::set_socket_passcred(&listener, true)
        .map_err(|error| failed(error.into()))?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok((listener.into(), shared.into()))
}

/// Number of the program that a process runs, among those of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramPosition {
    /// Place of the program on the command line, from 0 (`MPI_APPNUM`).
    pub index: i32,
    /// Ranks that run it (`maxprocs`).
    pub ranks: u32,
}

impl ProgramPosition {
    /// Reads the environment; `None` outside a job, or if it is damaged: nothing depends on it.
    pub fn from_env() -> Option<Self> {
        std::env::var_os(ENV_AGENT)?;
        Self::parse(&std::env::var(ENV_PROGRAM).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let (index, ranks) = text.split_once(':')?;
        let place = Self {
            index: index.parse().ok()?,
            ranks: ranks.parse().ok()?,
        };
        (place.index >= 0 && place.ranks > 0).then_some(place)
    }
}

impl std::fmt::Display for ProgramPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.index, self.ranks)
    }
}

/// Way in which a process finds its agent, from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEnvironment {
    /// Secret that admits to the job.
    pub admission: RegistrationSecret,
    /// Rank of this process.
    pub rank: u32,
    /// Name of the agent.
    pub agent: AgentSocketName,
    /// Number and inode of the inherited socket.
    pub inherited: Option<(RawFd, u64)>,
}

impl JobEnvironment {
    /// Reads the environment; `None` if it names no job.
    pub fn from_env() -> Result<Option<Self>> {
        Self::from_vars(|name| std::env::var(name).ok())
    }

    fn from_vars(var: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let Some(agent) = var(ENV_AGENT) else {
            return Ok(None);
        };
        let bad = |name: &str| {
            let text = format!(
                "{ENV_AGENT} names a job, but {name} is missing or damaged (its value: {:?})",
                var(name)
            );
            Error::misuse(codes::G0212, text)
        };
        let admission = var(ENV_JOB)
            .and_then(|text| RegistrationSecret::parse(&text))
            .ok_or_else(|| bad(ENV_JOB))?;
        let rank = var(ENV_RANK)
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| bad(ENV_RANK))?;
        let inherited = var(ENV_FD).and_then(|text| {
            let (number, inode) = text.split_once(':')?;
            Some((number.parse().ok()?, inode.parse().ok()?))
        });
        Ok(Some(Self {
            admission,
            rank,
            agent: AgentSocketName(agent),
            inherited,
        }))
    }

    /// The inherited socket if it is still there, else a connection by name.
    pub fn connect(&self) -> Result<OwnedFd> {
        let inherited = self
            .inherited
            .and_then(|(number, inode)| sys::adopt_socket(number, inode));
        inherited.map_or_else(|| connect(&self.agent), Ok)
    }

    /// The variables that tell a rank of this job about it. `number` is where it finds the
    /// inherited socket.
    pub fn vars(
        admission: &RegistrationSecret,
        agent: &AgentSocketName,
        shared: &OwnedFd,
        number: RawFd,
    ) -> Result<Vec<(String, String)>> {
        let stat = rustix::fs::fstat(shared.as_fd()).map_err(|error| {
            Error::system(codes::G0209, "cannot examine the agent's socket", error)
        })?;
        Ok(vec![
            (ENV_FD.into(), format!("{number}:{}", stat.st_ino)),
            (ENV_AGENT.into(), agent.0.clone()),
            (ENV_JOB.into(), admission.text()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_job::layout::JobId;

    #[test]
    fn the_place_of_a_program_reads_back_and_nonsense_is_none() {
        let place = ProgramPosition { index: 2, ranks: 5 };
        assert_eq!(ProgramPosition::parse(&place.to_string()), Some(place));
        for text in ["", "2", "2:", ":5", "-1:5", "1:0", "1:5:6", "99999999999:1"] {
            assert_eq!(ProgramPosition::parse(text), None, "{text}");
        }
    }

    #[test]
    fn without_variables_there_is_no_job() {
        assert_eq!(JobEnvironment::from_vars(|_| None).unwrap(), None);
    }

    #[test]
    fn half_an_invitation_is_an_error_that_names_the_variable() {
        let error =
            JobEnvironment::from_vars(|name| (name == ENV_AGENT).then(|| "x".into())).unwrap_err();
        assert!(error.to_string().contains(ENV_JOB), "{error}");
    }

    #[test]
    fn a_bound_name_is_listed_and_knows_its_launcher() {
        let name =
            AgentSocketName::new(4_000_001, JobId(u128::from(std::process::id()) << 64 | 77));
        let _sockets = bind(&name).unwrap();
        assert!(jobs().contains(&name));
        assert_eq!(name.launcher(), Some(4_000_001));
    }
}
