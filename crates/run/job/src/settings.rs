//! The variables of the environment that people may set, and those that our processes set for each
//! other. Each setting that is more than a word has a module, which reads it.

pub mod abi;
pub mod async_progress;
pub mod backtrace;
pub mod bulk_transports;
pub mod deadlock;
pub mod ethernet;
pub mod kill_after;
pub mod ranks;
pub mod record;
pub mod shards;
pub mod strategy;
pub mod survive;
pub mod transport_modules;

use std::ffi::OsString;

use crate::agent_tree::ENV_FAN_OUT;
pub use abi::ENV_ABI;
pub use async_progress::ENV_BACKGROUND;
pub use backtrace::ENV_BACKTRACE;
pub use bulk_transports::ENV_RAILS;
pub use deadlock::ENV_DEADLOCK;
pub use ethernet::ENV_ETHERNET;
pub use kill_after::ENV_KILL_AFTER;
pub use ranks::{
    CHECKS, ENV_CHECK, ENV_ENCRYPT, ENV_INITIAL_ERRHANDLER, ENV_OFI, INITIAL_ERRHANDLERS,
    initial_errhandler,
};
pub use record::ENV_RECORD;
pub use shards::ENV_SHARDS;
pub use strategy::ENV_STRATEGY;
pub use survive::ENV_SURVIVE;
pub use transport_modules::ENV_TRANSPORT_MODULES;

/// Bubble scheduler that places fibers.
pub const ENV_BUBBLES: &str = "GARONNE_BUBBLES";

/// Names the file for what a bubble scheduler decides.
pub const ENV_BUBBLES_TRACE: &str = "GARONNE_BUBBLES_TRACE";

/// How many ranks a process carries, each as a thread; 0: all of a host.
pub const ENV_RANKS_PER_PROCESS: &str = "GARONNE_RANKS_PER_PROCESS";

/// Names the file of a program that runs as one of several ranks of a process.
pub const ENV_RANK_PROGRAM: &str = "GARONNE_RANK_PROGRAM";

/// Names the file. The key itself is never in the environment.
pub const ENV_KEY: &str = "GARONNE_KEY_FILE";

/// With `1` ranks may be of another MPI: each is a world of its own then.
pub const ENV_SINGLETONS: &str = "GARONNE_SINGLETONS";

/// The setting's name.
pub const ENV_NETWORKS: &str = "GARONNE_NETWORKS";

/// Names the file that holds the key where `garonne join` is given none.
pub const ENV_JOIN_KEY: &str = "GARONNE_JOIN_KEY";

/// Variables that change what `garonne run` and the library do, their defaults, and what they mean.
pub const SETTINGS: [(&str, &str, &str); 27] = [
    (
        ENV_ABI,
        "auto",
        "programs built for another MPI load Garonne's library: auto, off, or the ABI to preload: mpich, openmpi; also --abi",
    ),
    (
        ENV_BACKGROUND,
        "1",
        "whether communication advances also while ranks compute; 0: only in MPI calls",
    ),
    (
        ENV_BACKTRACE,
        "1",
        "whether a rank that a signal ends (a crash, abort) is examined before, for the functions and lines where it came",
    ),
    (
        ENV_BUBBLES,
        "spread",
        "bubble scheduler of programs with fibers: spread, steal, gang, affinity, memory, flat, or a module's path",
    ),
    (
        ENV_BUBBLES_TRACE,
        "none",
        "file into which a program with fibers writes what its bubble scheduler decides (garonne bubbles replay)",
    ),
    (
        ENV_CHECK,
        "none",
        "types: messages and receives of different types are errors; errors: those of no communicator are MPI_COMM_SELF's",
    ),
    (
        ENV_INITIAL_ERRHANDLER,
        "mpi_errors_are_fatal",
        "the error handler that communicators have at first (also --initial-errhandler): mpi_errors_are_fatal, mpi_errors_abort, mpi_errors_return",
    ),
    (
        ENV_FAN_OUT,
        "32",
        "how many agents report to one, in a job on more hosts than that (the same for all)",
    ),
    (
        ENV_DEADLOCK,
        "report",
        "what comes of ranks that are proven to wait for each other for 10 s: report, abort (the job is ended), off",
    ),
    (
        ENV_KILL_AFTER,
        "0.25",
        "seconds between asking ranks to end (SIGTERM) and ending them (SIGKILL); also --kill-after",
    ),
    (
        ENV_JOIN_KEY,
        "none",
        "file with the key by which this host joins a job (garonne join)",
    ),
    (
        ENV_RANKS_PER_PROCESS,
        "1",
        "how many ranks a process carries, each as a thread with its own copy of the program; 0: all of a host; also --ranks-per-process",
    ),
    (
        ENV_LAUNCHER,
        "ssh",
        "what starts agents on other hosts, also for jobs that ranks start: ssh, slurm, prterun, or a command; also --launcher",
    ),
    (
        ENV_KEY,
        "none",
        "file with the key by which ranks on several hosts know each other where no launcher can be asked",
    ),
    (
        ENV_ENCRYPT,
        "0",
        "whether what ranks on different hosts say to each other is encrypted (the same for all)",
    ),
    (
        ENV_ETHERNET,
        "off",
        "interfaces by which ranks on different hosts talk in plain Ethernet frames instead of TCP, by comma; type=0x88B5 and frame=1500 change the frames",
    ),
    (
        ENV_NETWORKS,
        "all",
        "networks that ranks may use between hosts: networks, addresses, interfaces by comma; ^ forbids one",
    ),
    (
        ENV_OFI,
        "off",
        "large data between hosts by libfabric: auto (networks faster than TCP), off, or a provider's name",
    ),
    (
        ENV_RAILS,
        "shm",
        "rails of large data between ranks of one host: shm, or shm,tcp for both at once",
    ),
    (
        ENV_RECORD,
        "on",
        "whether the last events of each rank go to a file where the job ends badly (garonne trace FILE); off; also --record",
    ),
    (
        ENV_SHARDS,
        "16",
        "how many shards a rank of several threads has for its communicators (MPI_THREAD_MULTIPLE); 1: one for all",
    ),
    (
        ENV_SINGLETONS,
        "unset",
        "1: ranks may be of another MPI, each a world of one",
    ),
    (
        ENV_STRATEGY,
        "adaptive",
        "which messages leave together and in which order, and how large data are split: immediate, aggregate, hold, adaptive (garonne strategy), or a module's path",
    ),
    (
        ENV_SURVIVE,
        "0",
        "1: the death of a rank ends nothing, and calls that need it return MPIX_ERR_PROC_FAILED (the same for all); also --survive",
    ),
    (
        ENV_TRANSPORT_MODULES,
        "none",
        "modules that all packets of ranks go through, separated by ;: FILE or FILE,OPTIONS (also --transport-module)",
    ),
    (
        "MPIEXEC_TIMEOUT",
        "none",
        "seconds until a job is ended (also --timeout)",
    ),
    (
        "NO_COLOR",
        "unset",
        "if set, tags are not coloured (also --color)",
    ),
];

/// Variables that our processes set for each other, or that only tests, the compiler wrappers and
/// the scripts that build and test Garonne read.
pub const INTERNAL: [&str; 23] = [
    "GARONNE_AGENT",
    "GARONNE_BINDING_ORDER",
    ENV_RANK_PROGRAM,
    "GARONNE_RANK_THREADS",
    "GARONNE_CC",
    "GARONNE_COMPLETE",
    "GARONNE_CXX",
    "GARONNE_FC",
    "GARONNE_FD",
    "GARONNE_HELPERS",
    "GARONNE_JOB",
    ENV_PARENT,
    "GARONNE_PROGRAM",
    "GARONNE_RANK",
    "GARONNE_ROOT",
    "GARONNE_SEED",
    "GARONNE_SEEDS",
    "GARONNE_SIZE",
    "GARONNE_SLOTS",
    ENV_SPAWN,
    "GARONNE_STATE",
    crate::switch_groups::ENV_SWITCHES,
    "GARONNE_THREADS_REPORT",
];

/// What starts agents on other hosts. A job's launcher sets it for its ranks, which may start more.
pub const ENV_LAUNCHER: &str = "GARONNE_LAUNCHER";

/// Port to which the processes of a started job connect, for the job's agent. It becomes
/// [`ENV_PARENT`] of its processes, so that jobs which these start by hand do not inherit it.
pub const ENV_SPAWN: &str = "GARONNE_SPAWN";

/// Port to which a started process connects when it initialises MPI.
pub const ENV_PARENT: &str = "GARONNE_PARENT";

/// Returns the variables that look like settings and are none, each with a sentence about it, in
/// order.
pub fn unknown(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let known = SETTINGS.map(|(name, ..)| name);
    let is_known = |name: &str| {
        known.contains(&name) || INTERNAL.contains(&name) || name.starts_with("GARONNE_TEST_")
    };
    let names = names.filter_map(|name| name.into_string().ok());
    let mut strange: Vec<String> = names
        .filter(|name| name.starts_with("GARONNE_") && !is_known(name))
        .collect();
    strange.sort_unstable();
    strange.dedup();
    let sentence = |name: String| {
        let near = known
            .map(|known| (strsim::damerau_levenshtein(&name, known), known))
            .into_iter()
            .min();
        // The beginning is common to all.
        let close =
            near.filter(|(distance, _)| *distance <= 1 + (name.len() - "GARONNE_".len()) / 4);
        let advice = match close {
            Some((_, known)) => format!("did you mean {known}?"),
            None => "`garonne why settings` lists all".to_owned(),
        };
        format!("{name} is no setting and changes nothing; {advice}")
    };
    strange.into_iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_setting_is_named_once_with_the_nearest_and_what_is_known_never() {
        let said = |names: &[&str]| {
            unknown(
                names
                    .iter()
                    .map(|name| OsString::from(format!("GARONNE{name}"))),
            )
        };
        let lines = said(&["_CHEK", "", "_CHEK", "_XYZZY_PLUGH"]);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("_CHEK is no setting") && lines[0].contains("_CHECK?"));
        assert!(lines[1].contains("garonne why settings"), "{lines:?}");
        assert!(said(&["_CHECK", "_TEST_MARK", "_FD", "_CC", "X"]).is_empty());
    }
}
