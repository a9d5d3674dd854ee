//! The abstract socket where the ranks of one host meet without a launcher's help.
//!
//! Any user of the machine can bind an abstract name before rank 0 does. Rank 0 then takes a name
//! that nobody can know beforehand, and the others find it in the kernel's table of sockets. The
//! kernel says whose socket each one is.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::limits::LEADER_LOOK;
use garonne_job::printable;
use garonne_links::agent_discovery::abstract_names;

/// Returns whether the other side of a connection is a process of this user.
pub(super) fn is_own_user(line: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    sockopt::socket_peercred(line).is_ok_and(|peer| peer.uid == own)
}

/// The process at the other side of a connection in words, as the kernel knows it.
fn peer_of(line: &UnixStream) -> Option<String> {
    let peer = sockopt::socket_peercred(line).ok()?;
    let (process, user) = (peer.pid.as_raw_pid(), peer.uid.as_raw());
    // The kernel has no number for a process of another PID namespace.
    if process == 0 {
        return Some(format!(
            "a process of another PID namespace and user number {user}"
        ));
    }
    let program = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    let program = match program.trim() {
        "" => String::new(),
        program => format!(" ({})", printable::line(program)),
    };
    Some(format!("process {process}{program} of user number {user}"))
}

/// Whose socket has a name.
#[derive(Debug)]
pub(super) enum SocketOwner {
    /// A process of this user took the call: it counts as the caller's, and must be used.
    Own(UnixStream),
    /// A process of another user, in words.
    Foreign(String),
    /// Nobody has the name, or whoever has it does not listen.
    Nobody,
}

/// Returns whose socket has a name, by calling it.
pub(super) fn owner(name: &str) -> SocketOwner {
    match try_connect(name) {
        Some(line) if is_own_user(&line) => SocketOwner::Own(line),
        Some(line) => peer_of(&line).map_or(SocketOwner::Nobody, SocketOwner::Foreign),
        None => SocketOwner::Nobody,
    }
}

/// A connection to whoever listens under a name, if one comes about at once.
fn try_connect(name: &str) -> Option<UnixStream> {
    // A full queue of callers refuses this one, instead of having it wait.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let line =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?;
    rustix::net::connect(&line, &address).ok()?;
    let line = UnixStream::from(line);
    line.set_nonblocking(false).ok()?;
    Some(line)
}

/// A connection to a process of this user that listens under a name.
fn try_connect_own(name: &str) -> Option<UnixStream> {
    try_connect(name).filter(is_own_user)
}

/// A connection to a process of this user that listens under one of the names that nobody can know
/// beforehand.
fn try_connect_further(name: &str) -> Option<UnixStream> {
    let further = format!("{name}/");
    let names = abstract_names();
    let mut names = names.iter().filter(|name| name.starts_with(&further));
    names.find_map(|name| try_connect_own(name))
}

/// A connection to rank 0, which has taken this name or a further one. The names in use are read
/// only where `thorough`.
pub(super) fn connect(name: &str, thorough: bool) -> Option<UnixStream> {
    let further = || thorough.then(|| try_connect_further(name)).flatten();
    try_connect_own(name).or_else(further)
}

fn bind(name: &str) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Takes the name for rank 0, or a further one where a process of another user, or one that does
/// not listen, holds it.
///
/// # Errors
/// Another job of this user meets there.
pub(super) fn take(name: &str) -> Result<UnixListener> {
    let unusable = |error| Error::system(codes::G0219, "no place to meet", error);
    match bind(name) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
        taken => return taken.map_err(unusable),
    }
    // A socket has its name for a moment before it listens.
    std::thread::sleep(LEADER_LOOK);
    if let Some(other) = connect(name, true) {
        let holder = peer_of(&other).unwrap_or_else(|| "an unknown process".into());
        let text = format!("another job ({holder}) meets by the same variables");
        return Err(Error::peer(codes::G0219, text));
    }
    let number = RandomState::new().hash_one(std::process::id());
    bind(&format!("{name}/{number:016x}")).map_err(unusable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(what: &str) -> String {
        format!("garonne/meet/test/{what}/{}", std::process::id())
    }

    #[test]
    fn another_job_of_this_user_keeps_its_name_and_is_told_by_its_process() {
        let name = name("own");
        let _first = take(&name).unwrap();
        // Rank 0 takes the call for a rank's, so a caller that may be one keeps it.
        assert!(matches!(owner(&name), SocketOwner::Own(_)));
        let error = take(&name).unwrap_err().to_string();
        let user = rustix::process::geteuid().as_raw();
        let program = std::fs::read_to_string("/proc/self/comm").unwrap();
        let told = format!(
            "another job (process {} ({}) of user number {user})",
            std::process::id(),
            program.trim()
        );
        assert!(error.contains("G0219") && error.contains(&told), "{error}");
    }

    #[test]
    fn a_name_that_an_unauthenticated_caller_holds_keeps_no_rank_from_meeting() {
        let name = name("held");
        // It does not listen, so nobody can say whose it is.
        let held = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::net::bind(
            &held,
            &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap(),
        )
        .unwrap();
        let first = take(&name).unwrap();
        assert!(connect(&name, false).is_none());
        let _line = connect(&name, true).unwrap();
        assert!(is_own_user(&first.accept().unwrap().0));
        // Whoever comes as rank 0 now meets the one that is there.
        assert!(take(&name).is_err());
    }

    #[test]
    fn nobody_waits_in_the_queue_of_a_socket_that_takes_no_callers() {
        let name = name("full");
        let _listener = take(&name).unwrap();
        let mut lines = Vec::new();
        while let Some(line) = connect(&name, true) {
            lines.push(line);
            assert!(lines.len() < 10_000, "the queue has no end");
        }
    }
}
