//! Checks what jobs on several hosts need here: addresses, ways to start agents, libraries and
//! limits. Jobs on this host alone need none of them.

use std::net::IpAddr;
use std::path::PathBuf;

use garonne_ethernet::packet_socket;
use garonne_job::settings::ENV_ETHERNET;
use garonne_links::addresses;
use rustix::process::{Resource, getrlimit};

use super::{CheckResult, CheckStatus, finding};

/// Returns whether there is such a program.
pub(super) fn is_in_path(name: &str) -> bool {
    find_in_path(name).is_some()
}

/// Returns the file that a command's name stands for.
pub(super) fn find_in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&path).map(|dir| dir.join(name));
    files.find(|file| file.is_file())
}

/// Where ranks and agents of other hosts call.
pub(super) fn other_hosts() -> CheckResult {
    const WHAT: &str = "other hosts";
    let networks = addresses::networks();
    let of = |address: IpAddr| {
        let network = networks
            .iter()
            .find(|(_, network)| network.contains(&address));
        network.map(|(interface, _)| format!("{address} ({interface})"))
    };
    let found: Vec<String> = addresses::own().into_iter().filter_map(of).collect();
    match found.is_empty() {
        false => finding(
            WHAT,
            CheckStatus::Good,
            format!("call at {}", found.join(", ")),
            "",
        ),
        true => finding(
            WHAT,
            CheckStatus::Degraded,
            "no address but this host's own",
            "Jobs run on this host alone. An interface with an address that others reach is needed (ip address).",
        ),
    }
}

pub(super) fn ipv6() -> CheckResult {
    let outer = addresses::own()
        .into_iter()
        .filter(|address| address.is_ipv6() && !address.is_loopback());
    let found = match (outer.count(), std::net::TcpListener::bind("[::1]:0")) {
        (0, Err(error)) => format!("not here ({error}); IPv4 alone is used"),
        (0, Ok(_)) => String::from("within this host alone; others are reached by IPv4"),
        (_, _) => String::from("used where IPv4 does not lead"),
    };
    finding("IPv6", CheckStatus::Good, found, "")
}

/// Asks for the right to packet sockets, which jobs need that ask for Ethernet frames.
pub(super) fn ethernet() -> CheckResult {
    let found = match packet_socket::probe() {
        Ok(()) => format!("packet sockets can be opened ({ENV_ETHERNET})"),
        Err(error) => format!(
            "no packet sockets ({error}); jobs with {ENV_ETHERNET} use TCP here, with CAP_NET_RAW they would not"
        ),
    };
    finding("Ethernet", CheckStatus::Good, found, "")
}

/// Looks for the program that starts agents on other hosts where no batch system does.
pub(super) fn ssh() -> CheckResult {
    match is_in_path("ssh") {
        true => finding(
            "ssh",
            CheckStatus::Good,
            "there; `ssh HOST true` must work without a password",
            "",
        ),
        false => finding(
            "ssh",
            CheckStatus::Degraded,
            "not in PATH",
            "`garonne run --host` has nothing to start agents with on other hosts: install ssh, name another way by --launcher, or have hosts join (garonne run --join-key).",
        ),
    }
}

pub(super) fn pmix() -> CheckResult {
    let found = match garonne_launchers::pmix_library() {
        Ok(place) => format!(
            "{}: ranks of prterun and `srun --mpi=pmix` can join",
            place.display()
        ),
        Err(_) => String::from(
            "no libpmix; needed by ranks of prterun and `srun --mpi=pmix` alone (Debian: libpmix2)",
        ),
    };
    finding("PMIx", CheckStatus::Good, found, "")
}

/// Devices of fast networks read and write locked memory.
pub(super) fn locked_memory() -> CheckResult {
    const WHAT: &str = "locked memory";
    /// Pieces of large data that a rank may have registered with a peer at a time.
    const LEAST: u64 = 64 << 20;
    match getrlimit(Resource::Memlock).current {
        None => finding(WHAT, CheckStatus::Good, "no limit", ""),
        Some(limit) if limit >= LEAST => {
            finding(WHAT, CheckStatus::Good, format!("{} MB", limit >> 20), "")
        }
        Some(limit) => finding(
            WHAT,
            CheckStatus::Good,
            format!(
                "{} KB; enough but for libfabric on devices (ulimit -l unlimited)",
                limit >> 10
            ),
            "",
        ),
    }
}

/// Returns whether hosts can be made here, as tests and benchmarks of several do.
pub(super) fn hosts_made_here() -> CheckResult {
    let lacks = [
        (!rustix::process::geteuid().is_root(), "root"),
        (!is_in_path("ip"), "ip"),
        (!is_in_path("tc"), "tc"),
    ];
    let lacks: Vec<&str> = lacks
        .iter()
        .filter(|(lacks, _)| *lacks)
        .map(|(_, what)| *what)
        .collect();
    let found = match lacks.is_empty() {
        true => String::from(
            "network namespaces and tc, as tests and `garonne bench flows` make hosts of",
        ),
        false => format!(
            "not without {}: tests and `garonne bench flows` between hosts",
            lacks.join(", ")
        ),
    };
    finding("hosts made here", CheckStatus::Good, found, "")
}
