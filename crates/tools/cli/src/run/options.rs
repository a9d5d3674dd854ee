//! The options of `garonne run`: one table with the names that both `mpirun` families use.
//!
//! Names match with one dash or two, and with `=VALUE` where there is a value. A name that begins
//! with a dash itself matches with one dash only: there the families mean different things by one
//! word. The table is in `table`.

use std::ffi::OsStr;

use super::join_hosts::JoinOption;
pub use super::option_table::OPTIONS;

/// Effect of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionAction {
    /// Number of ranks of this program.
    Ranks,
    /// `VAR` or `VAR=VALUE`, for all programs.
    Export,
    /// The error handler that communicators of this program have at first.
    InitialErrhandler,
    /// The MPI library that this program loads if it was built for another MPI.
    Abi,
    /// `VAR=VALUE`, or `VAR VALUE`, for all programs.
    GlobalEnv,
    /// `VAR=VALUE`, or `VAR VALUE`, for this program.
    LocalEnv,
    /// Pass on only the variables listed.
    EnvList,
    /// Pass on no variable.
    EnvNone,
    /// Directory of this program.
    Directory,
    /// Object that ranks are bound to.
    BindTo,
    /// The order of places.
    MapBy,
    /// Ranks per node.
    PerNode,
    /// Command that starts the agent of another host.
    Launcher,
    /// Cores per rank.
    CoresPerRank,
    /// Seconds until the job is ended.
    Timeout,
    /// Seconds between asking ranks to end and ending them.
    KillAfter,
    RanksPerProcess,
    /// The job goes on when ranks die.
    Survive,
    /// Open MPI's spelling of it: `ulfm`, or `none`.
    WithFaultTolerance,
    /// A file with the place of each rank.
    RankFile,
    /// What groups of ranks need of their hosts.
    Need,
    /// A file for a document about the job's end.
    Json,
    /// A file for each rank's output, by a pattern: standard output's, or standard error's.
    OutFile,
    /// See [`OptionAction::OutFile`].
    ErrFile,
    /// Files named after a rank and its stream.
    OutputName,
    /// Files named after a rank and its stream, in a directory for each rank.
    OutputDirectory,
    /// Lines marked as Open MPI does.
    TagStream,
    /// Lines marked with the rank.
    TagRank,
    /// Comma-separated list of what Open MPI 5 does with output.
    Output,
    /// `never`, `always`, `auto`.
    Colour,
    /// Ranks that read standard input.
    Stdin,
    /// Names of hosts.
    Hosts,
    /// A file of hosts.
    Hostfile,
    /// Print where ranks run.
    ReportBindings,
    /// Lines marked with the time.
    Stamp,
    /// Both streams of a rank are one.
    Merge,
    /// Read options and programs from a file, one program a line.
    Programs,
    /// Do not pass on the variables listed.
    EnvExcept,
    /// Facts to show before the start.
    Display,
    /// Write the launcher's process id.
    ReportPid,
    /// The CPUs that the job may use.
    Cpus,
    /// Signals that the launcher passes on.
    Signals,
    /// Write a timeline.
    Trace,
    /// Turns the recording of the last events on or off.
    Record,
    /// A module that all packets of the ranks go through.
    TransportModule,
    /// Name of the job.
    Name,
    /// Where its metrics are served.
    Metrics,
    /// Let other hosts join with a key.
    JoinKey,
    /// How they join.
    Join(JoinOption),
    /// Print how much of each operation was hidden.
    Overlap,
    /// Short for these words.
    Means(&'static [&'static str]),
    /// Accepted, with this many values, and of no effect here; why.
    Accept(u8, &'static str),
    /// Known from other launchers, but not there; what to use instead.
    Refuse(&'static str),
    /// Print the version.
    Version,
    /// Print help.
    Help,
}

/// One option of `garonne run`: its names, its effect, its value and its line of help.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Names without dashes, the preferred one first.
    pub names: &'static [&'static str],
    /// Effect of the option.
    pub action: OptionAction,
    /// Value as shown in help; empty if there is none.
    pub value: &'static str,
    /// Line of help; empty: not shown.
    pub help: &'static str,
}

impl OptionSpec {
    /// Returns whether a value behind `=` is a mistake. What only others would read of it is passed
    /// over.
    pub fn takes_nothing(&self) -> bool {
        let with_none = [
            OptionAction::TagRank,
            OptionAction::TagStream,
            OptionAction::Stamp,
            OptionAction::Merge,
            OptionAction::ReportBindings,
            OptionAction::Overlap,
            OptionAction::EnvNone,
            OptionAction::Survive,
            OptionAction::Version,
        ];
        with_none.contains(&self.action) || matches!(self.action, OptionAction::Means(_))
    }

    /// Returns whether the next word of the command line may be this option's value.
    ///
    /// # Errors
    /// It is an option itself where a file is to be written, or cannot be what `-s` takes: a line
    /// for the user.
    pub fn may_take(&self, next: Option<&OsStr>, word: &str) -> Result<(), String> {
        let Some(next) = next.map(|next| next.to_string_lossy()) else {
            return Ok(());
        };
        match self.action {
            OptionAction::Trace
            | OptionAction::ReportPid
            | OptionAction::Json
            | OptionAction::OutFile
            | OptionAction::ErrFile
            | OptionAction::OutputName
            | OptionAction::OutputDirectory
                if next.len() > 1 && next.starts_with('-') =>
            {
                Err(format!(
                    "option '{word}' needs a file, and '{next}' is an option ('{word} ./{next}' means a file of that name)"
                ))
            }
            // Open MPI's option of this name, which has no value, copies the program to other
            // hosts.
            OptionAction::Stdin if word == "-s" && super::stdin_ranks::read(&next).is_none() => {
                Err(format!(
                    "option '-s' (who reads standard input) needs a rank, all or none, and '{next}' is none of these; Open MPI's -s is not needed, as programs are read where they are"
                ))
            }
            _ => Ok(()),
        }
    }
}

pub(super) const fn entry(
    names: &'static [&'static str],
    action: OptionAction,
    value: &'static str,
    help: &'static str,
) -> OptionSpec {
    OptionSpec {
        names,
        action,
        value,
        help,
    }
}

/// The option that a word of the command line names; `name` is that word without its dashes and its
/// value.
pub fn find(word: &str, name: &str) -> Option<&'static OptionSpec> {
    let is_single = !word.starts_with("--");
    let of_one_dash = |known: &&str| known.strip_prefix('-') == Some(name);
    let single = OPTIONS
        .iter()
        .find(|entry| is_single && entry.names.iter().any(of_one_dash));
    single.or_else(|| OPTIONS.iter().find(|entry| entry.names.contains(&name)))
}

/// The known name most like `name`.
pub fn nearest(name: &str) -> Option<&'static str> {
    let names = OPTIONS
        .iter()
        .flat_map(|entry| entry.names)
        .filter(|known| known.len() > 1 && !known.starts_with('-'));
    let (distance, nearest) = names
        .map(|known| (strsim::damerau_levenshtein(name, known), *known))
        .min()?;
    (distance <= 1 + name.len() / 4).then_some(nearest)
}

/// The value of an option, behind a complaint that there is none.
pub(super) fn shape(entry: &OptionSpec) -> String {
    if entry.value.is_empty() {
        String::new()
    } else {
        format!(": {}", entry.value)
    }
}

/// Returns the error text for a word that is no option: `name` is without dashes and value.
pub(super) fn unknown(word: &str, name: &str) -> String {
    match nearest(name) {
        Some(known) => format!(
            "unknown option '{word}'; did you mean '--{known}'? (options of the program go after its name)"
        ),
        None => format!(
            "unknown option '{word}' (options of the program go after its name; `garonne run --help` lists ours)"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::clap_command;

    #[test]
    fn no_name_is_given_to_two_options() {
        let mut names: Vec<_> = OPTIONS.iter().flat_map(|entry| entry.names).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn help_has_what_the_table_of_overlap_advises() {
        let no_core = garonne_trace::overlap::overlap_share::OverlapReason::NoCore.advice();
        let option = no_core
            .split([' ', ')', ','])
            .find(|word| word.starts_with("--"));
        let help = clap_command::command("run", clap_command::ForeignOptions::Hidden).render_help();
        assert!(help.to_string().contains(option.unwrap()));
    }

    #[test]
    fn a_mistyped_option_is_recognised_and_nonsense_is_not() {
        assert_eq!(nearest("bindto"), Some("bind-to"));
        assert_eq!(nearest("timout"), Some("timeout"));
        assert_eq!(nearest("xyzzyplugh"), None);
    }
}
