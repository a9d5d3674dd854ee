//! The process that stands for a rank: it hands the rank to the shared process of its group, waits,
//! and ends as the rank ends.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use garonne_job::settings::{ENV_RANK_PROGRAM, ENV_RANKS_PER_PROCESS};
use garonne_links::agent_discovery::{ENV_AGENT, ENV_FD, ENV_RANK, is_of_rank};
use garonne_links::sys as links;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::handover::{Handover, RankEnd};
use crate::{ENV_SHARED_PROCESS, limits, sys};

/// Number of the rank on its host, from 0, and of ranks there.
const ENV_HERE: [&str; 2] = ["MPI_LOCALRANKID", "MPI_LOCALNRANKS"];

/// Variable with the C library's tunables.
const ENV_TUNABLES: &str = "GLIBC_TUNABLES";

/// Directory in which the loader of the shared process looks for libraries: descriptors of the
/// calling thread.
const LIBRARY_PATH: &str = "/proc/thread-self/fd";

/// Hands this process's rank over and returns its exit code.
pub(crate) fn run() -> Result<i32, String> {
    let handover = own_handover()?;
    let (group, members) = own_group()?;
    let job = std::env::var(ENV_AGENT).map_err(|_| not_by_hand())?;
    let address = SocketAddrUnix::new_abstract_name(format!("{job}-ranks-{group}").as_bytes())
        .map_err(|error| format!("the shared process has no name: {error}"))?;
    let socket = seqpacket()?;
    match rustix::net::bind(&socket, &address) {
        Ok(()) => start_process(&socket, members, &handover)?,
        Err(Errno::ADDRINUSE) => {}
        Err(error) => {
            return Err(format!(
                "the shared process's name cannot be taken: {error}"
            ));
        }
    }
    let line = connect(&address)?;
    hand_over(&handover, line.as_fd())?;
    drop(socket);
    let end = links::recv(line.as_fd(), RecvFlags::empty());
    let word = end
        .ok()
        .and_then(|end| <[u8; 4]>::try_from(&end.bytes[..]).ok());
    match word.and_then(|word| RankEnd::from_word(u32::from_le_bytes(word))) {
        Some(RankEnd::Exit(code)) => Ok(code.into()),
        Some(RankEnd::Signal(signal)) => sys::end_by_signal(signal.into()),
        // Something ended the process of the rank, without a word.
        None => sys::end_by_signal(libc::SIGKILL),
    }
}

fn not_by_hand() -> String {
    format!(
        "this command is started by garonne run with --ranks-per-process; {ENV_AGENT} is not set"
    )
}

fn own_handover() -> Result<Handover, String> {
    let program = std::env::var_os(ENV_RANK_PROGRAM).ok_or_else(not_by_hand)?;
    let rank = std::env::var(ENV_RANK)
        .ok()
        .and_then(|rank| rank.parse().ok());
    let number = std::env::var(ENV_FD).ok();
    let number = number.and_then(|text| text.split_once(':')?.0.parse().ok());
    let variables = std::env::vars_os().filter(|(name, _)| name != ENV_RANK_PROGRAM);
    let entry = |(name, value): (OsString, OsString)| {
        OsString::from_vec([name.as_bytes(), b"=", value.as_bytes()].concat())
    };
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    Ok(Handover {
        rank: rank.ok_or_else(not_by_hand)?,
        program: program.into(),
        arguments: std::env::args_os().collect(),
        environment: variables.map(entry).collect(),
        agent_number: number.unwrap_or(-1),
        umask: umask.bits(),
        cpus: sys::own_cpus(),
        files: Vec::new(),
    })
}

/// Number of this rank's group, and of its members.
fn own_group() -> Result<(usize, usize), String> {
    let number = |name: &str| -> Result<usize, String> {
        let text = std::env::var(name).unwrap_or_default();
        let bad = || format!("{name} is {text:?}, which is no number of ranks");
        text.parse().map_err(|_| bad())
    };
    let (here, all) = (number(ENV_HERE[0])?, number(ENV_HERE[1])?);
    let each = match number(ENV_RANKS_PER_PROCESS)? {
        0 => all.max(1),
        each => each,
    };
    let group = here / each;
    Ok((group, each.min(all.saturating_sub(group * each))))
}

fn seqpacket() -> Result<OwnedFd, String> {
    rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| format!("no socket for the shared process: {error}"))
}

/// Starts the group's shared process, which takes what connects to `socket`.
fn start_process(socket: &OwnedFd, members: usize, first: &Handover) -> Result<(), String> {
    let failed = |what: &str, error: std::io::Error| format!("{what}: {error}");
    rustix::net::listen(socket, i32::try_from(members).unwrap_or(i32::MAX))
        .map_err(|error| failed("the shared process cannot listen", error.into()))?;
    let inherited = rustix::io::fcntl_dupfd_cloexec(socket, 3)
        .map_err(|error| failed("no descriptor for the shared process", error.into()))?;
    rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty())
        .map_err(|error| failed("no descriptor for the shared process", error.into()))?;
    let exe =
        std::env::current_exe().map_err(|error| failed("the shared process's file", error))?;
    let mut command = Command::new(exe);
    if let Some((name, words)) = first.arguments.split_first() {
        command.arg0(name).args(words);
    }
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_rank(name)) {
        command.env_remove(name);
    }
    let order = format!("{}:{members}", inherited.as_raw_fd());
    command
        .env_remove("LD_PRELOAD")
        .env(ENV_SHARED_PROCESS, order)
        .env(ENV_TUNABLES, tunables(members))
        .env("LD_LIBRARY_PATH", LIBRARY_PATH);
    command
        .spawn()
        .map_err(|error| failed("the shared process cannot be started", error))?;
    Ok(())
}

/// Tunables of the C library with room for thread-local variables of libraries that have them at
/// fixed places, as the MPI library has.
fn tunables(members: usize) -> String {
    let room = members * limits::STATIC_THREAD_LOCALS;
    let room = format!("glibc.rtld.optional_static_tls={room}");
    let before = std::env::var(ENV_TUNABLES).unwrap_or_default();
    match before.is_empty() {
        true => room,
        false => format!("{before}:{room}"),
    }
}

/// Connects to the shared process. The process that has bound the name listens a moment later.
fn connect(address: &SocketAddrUnix) -> Result<OwnedFd, String> {
    let mut last = Errno::CONNREFUSED;
    for _ in 0..limits::CONNECTION_TRIES {
        let socket = seqpacket()?;
        match rustix::net::connect(&socket, address) {
            Ok(()) => return Ok(socket),
            Err(error) => last = error,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(format!("no shared process answers: {last}"))
}

fn hand_over(handover: &Handover, line: BorrowedFd<'_>) -> Result<(), String> {
    let null = File::open("/dev/null").map_err(|error| format!("/dev/null: {error}"))?;
    let directory = File::open(".").map_err(|error| format!("the working directory: {error}"))?;
    let agent = sys::duplicate(handover.agent_number);
    let agent = agent.as_ref().map_or(null.as_fd(), AsFd::as_fd);
    let files = [
        rustix::stdio::stdin(),
        rustix::stdio::stdout(),
        rustix::stdio::stderr(),
        directory.as_fd(),
        agent,
    ];
    let sent = handover.send(line, files);
    sent.map_err(|error| format!("the rank cannot be handed over: {error}"))
}
