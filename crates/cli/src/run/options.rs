//! The options of `garonne run`: one table with the names that both `mpirun` families use.
//!
//! Names match with one dash or two, and with `=VALUE` where there is a value.

/// What an option does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Number of ranks of this program.
    Ranks,
    /// `VAR` or `VAR=VALUE`, for all programs.
    Export,
    /// `VAR=VALUE`, or `VAR VALUE`, for all programs.
    GlobalEnv,
    /// The same, for this program.
    LocalEnv,
    /// Pass on only the variables listed.
    EnvList,
    /// Pass on no variable.
    EnvNone,
    /// Directory of this program.
    Directory,
    /// What ranks are bound to.
    BindTo,
    /// The order of places.
    MapBy,
    /// Ranks per node; there is one node.
    PerNode,
    /// Cores per rank.
    CoresPerRank,
    /// Seconds until the job is ended.
    Timeout,
    /// Lines marked as Open MPI does.
    TagStream,
    /// Lines marked with the rank.
    TagRank,
    /// What Open MPI 5 does with output, separated by commas.
    Output,
    /// `never`, `always`, `auto`.
    Colour,
    /// Who reads standard input.
    Stdin,
    /// Names of hosts.
    Hosts,
    /// A file of hosts.
    Hostfile,
    /// Print where ranks run.
    ReportBindings,
    /// Accepted, with this many values, and of no effect here.
    Ignore(u8),
    /// Known from other launchers, but not there.
    Refuse(&'static str),
    /// Print the version.
    Version,
    /// Print help.
    Help,
}

/// An option.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Names without dashes, the preferred one first.
    pub names: &'static [&'static str],
    /// What it does.
    pub action: Action,
    /// Value as shown in help; empty if there is none.
    pub value: &'static str,
    /// Line of help; empty: not shown.
    pub help: &'static str,
}

const fn entry(
    names: &'static [&'static str],
    action: Action,
    value: &'static str,
    help: &'static str,
) -> Entry {
    Entry {
        names,
        action,
        value,
        help,
    }
}

/// All options. Those shown come first.
pub const OPTIONS: &[Entry] = &[
    entry(
        &["n", "np", "c"],
        Action::Ranks,
        "N",
        "number of ranks (default: one per CPU that may be used)",
    ),
    entry(
        &["x"],
        Action::Export,
        "VAR[=VALUE]",
        "set or pass on an environment variable",
    ),
    entry(
        &["env"],
        Action::LocalEnv,
        "VAR=VALUE",
        "set a variable for this program only (also: -env VAR VALUE)",
    ),
    entry(
        &["genv"],
        Action::GlobalEnv,
        "VAR=VALUE",
        "set a variable for all programs (also: -genv VAR VALUE)",
    ),
    entry(
        &["wdir", "wd", "workdir", "cwd"],
        Action::Directory,
        "DIR",
        "directory to run in",
    ),
    entry(
        &["bind-to"],
        Action::BindTo,
        "core|numa|none",
        "what each rank is bound to (default: a core, if there are enough free ones)",
    ),
    entry(
        &["map-by"],
        Action::MapBy,
        "core|numa|socket",
        "which part of the machine the next rank goes to",
    ),
    entry(
        &["timeout"],
        Action::Timeout,
        "SECONDS",
        "end the job after this time, with exit code 124",
    ),
    entry(
        &["l", "prepend-rank", "tag"],
        Action::TagRank,
        "",
        "mark each line of output with its rank",
    ),
    entry(&["output"], Action::Output, "tag", ""),
    entry(
        &["tag-output"],
        Action::TagStream,
        "",
        "mark each line with job, rank and stream, as Open MPI does",
    ),
    entry(
        &["color", "colour"],
        Action::Colour,
        "auto|always|never",
        "colour the marks (default: on a terminal)",
    ),
    entry(
        &["stdin", "s"],
        Action::Stdin,
        "RANK|none",
        "who reads standard input (default: rank 0)",
    ),
    entry(
        &["report-bindings", "print-rank-map", "display-map"],
        Action::ReportBindings,
        "",
        "print where the ranks run",
    ),
    entry(
        &["host", "H", "hosts"],
        Action::Hosts,
        "LIST",
        "hosts; this version runs on this one only",
    ),
    entry(
        &["hostfile", "machinefile", "f", "machine"],
        Action::Hostfile,
        "FILE",
        "file with hosts; this version runs on this one only",
    ),
    entry(&["version", "V"], Action::Version, "", "print the version"),
    entry(&["help", "h", "?"], Action::Help, "", "print this"),
    entry(&["cpus-per-rank", "cpus-per-proc"], Action::CoresPerRank, "N", ""),
    entry(
        &["ppn", "perhost", "npernode", "N", "ranks-per-proc"],
        Action::PerNode,
        "N",
        "",
    ),
    entry(&["genvlist", "envlist"], Action::EnvList, "LIST", ""),
    entry(&["genvnone", "envnone"], Action::EnvNone, "", ""),
    entry(&["genvall", "envall"], Action::Ignore(0), "", ""),
    entry(
        &[
            "oversubscribe",
            "nooversubscribe",
            "allow-run-as-root",
            "use-hwthread-cpus",
        ],
        Action::Ignore(0),
        "",
        "",
    ),
    entry(
        &[
            "q",
            "quiet",
            "v",
            "verbose",
            "d",
            "debug-devel",
            "leave-session-attached",
        ],
        Action::Ignore(0),
        "",
        "",
    ),
    entry(
        &[
            "pernode",
            "bynode",
            "bycore",
            "byslot",
            "bind-to-core",
            "bind-to-none",
            "display-allocation",
        ],
        Action::Ignore(0),
        "",
        "",
    ),
    entry(
        &[
            "print-all-exitcodes",
            "silent-abort",
            "localonly",
            "local",
            "info",
        ],
        Action::Ignore(0),
        "",
        "",
    ),
    entry(
        &[
            "abort-on-non-zero-status",
            "enable-recovery",
            "disable-recovery",
            "noprefix",
        ],
        Action::Ignore(0),
        "",
        "",
    ),
    entry(
        &["mca", "gmca", "omca", "gomca", "prtemca", "pmixmca", "gpmixmca"],
        Action::Ignore(2),
        "KEY VALUE",
        "",
    ),
    entry(
        &[
            "rank-by",
            "prefix",
            "launcher",
            "launcher-exec",
            "rmk",
            "iface",
            "usize",
            "display",
        ],
        Action::Ignore(1),
        "VALUE",
        "",
    ),
    entry(
        &[
            "cpu-set",
            "cpu-list",
            "personality",
            "runtime-options",
            "tune",
            "am",
            "bootstrap",
            "bootstrap-exec",
        ],
        Action::Ignore(1),
        "VALUE",
        "",
    ),
    entry(
        &["configfile", "app"],
        Action::Refuse("write the programs on the command line, separated by ':'"),
        "",
        "",
    ),
    entry(
        &["output-filename", "outfile-pattern", "errfile-pattern", "outfile"],
        Action::Refuse("redirect the output, and tell ranks apart with -l"),
        "",
        "",
    ),
    entry(
        &["rankfile", "rf", "rankfile-map"],
        Action::Refuse("use --bind-to and --map-by"),
        "",
        "",
    ),
    entry(
        &["xterm", "gdb", "tv", "debug"],
        Action::Refuse("put the debugger before the program: garonne run -n N gdb --args PROGRAM"),
        "",
        "",
    ),
    entry(
        &["gtool", "check_mpi", "trace", "t"],
        Action::Refuse("it belongs to Intel's tools"),
        "",
        "",
    ),
    entry(
        &["with-ft", "disable-auto-cleanup"],
        Action::Refuse("jobs that survive a rank's failure are not there yet"),
        "",
        "",
    ),
    entry(
        &["ckpoint", "ckpointlib", "preload-binary", "preload-files"],
        Action::Refuse("it is not there"),
        "",
        "",
    ),
];

/// The option of this name (without dashes).
pub fn find(name: &str) -> Option<&'static Entry> {
    OPTIONS.iter().find(|entry| entry.names.contains(&name))
}

/// The known name most like `name`.
pub fn nearest(name: &str) -> Option<&'static str> {
    let names = OPTIONS
        .iter()
        .flat_map(|entry| entry.names)
        .filter(|known| known.len() > 1);
    let (distance, nearest) = names
        .map(|known| (strsim::damerau_levenshtein(name, known), *known))
        .min()?;
    (distance <= 1 + name.len() / 4).then_some(nearest)
}

/// The text of `--help`.
pub fn help() -> String {
    let mut text = String::from(
        "usage: garonne run [-n N] [OPTIONS] PROGRAM [ARGS] [: [-n N] [OPTIONS] PROGRAM [ARGS]]...\n\n\
         Starts N processes of an MPI program on this machine. `mpirun` and `mpiexec` are the same command.\n\noptions:\n",
    );
    for entry in OPTIONS.iter().filter(|entry| !entry.help.is_empty()) {
        let dashes = |name: &str| {
            if name.len() == 1 {
                format!("-{name}")
            } else {
                format!("--{name}")
            }
        };
        let names: Vec<_> = entry.names.iter().take(2).map(|name| dashes(name)).collect();
        text += &format!(
            "  {:<38} {}\n",
            format!("{} {}", names.join(", "), entry.value).trim_end(),
            entry.help
        );
    }
    text += "\nexamples:\n  garonne run -n 4 ./solver input.dat\n  garonne run -n 2 python3 script.py\n  \
             garonne run -n 1 ./server : -n 3 ./client\n  garonne run -n 2 --timeout 60 -l gdb -batch -ex run --args ./app\n\n\
             The exit code is that of the first rank that failed (128 + signal if a signal ended it).\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_given_to_two_options() {
        let mut names: Vec<_> = OPTIONS.iter().flat_map(|entry| entry.names).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn a_mistyped_option_is_recognised_and_nonsense_is_not() {
        assert_eq!(nearest("bindto"), Some("bind-to"));
        assert_eq!(nearest("timout"), Some("timeout"));
        assert_eq!(nearest("xyzzyplugh"), None);
    }
}
