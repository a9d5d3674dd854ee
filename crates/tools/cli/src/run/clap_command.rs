//! The options of `garonne run` as the option library knows them, made from the table: for help,
//! for completion and for manual pages.
//!
//! Nothing is parsed by this: [`super::parse`] reads command lines, in the ways of both `mpirun`
//! families.

use garonne_job::settings::abi::ABIS;
use garonne_job::settings::record::RECORD;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::builder::{PossibleValuesParser, Str};
use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};

use garonne_job::settings;

use super::options::{OPTIONS, OptionAction, OptionSpec, find};

/// Which options of other launchers help shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignOptions {
    /// Nothing.
    Hidden,
    /// All of them, and why each is accepted without effect or refused.
    Told,
}

const USAGE: &str =
    "garonne run [-n N] [OPTIONS] PROGRAM [ARGS] [: [-n N] [OPTIONS] PROGRAM [ARGS]]...";
const ABOUT: &str =
    "Start a job: N processes of an MPI program, on this machine or on the hosts named";
const EXAMPLES: &str = "examples:
  garonne run -n 4 ./solver input.dat
  garonne run --host a:2,b:2 ./solver input.dat
  garonne run -n 2 python3 script.py
  garonne run -n 1 ./server : -n 3 ./client
  garonne run -n 2 --timeout 60 -l gdb -batch -ex run --args ./app

The exit code is that of the first rank that failed (128 + signal if a signal ended it).
`mpirun` and `mpiexec` are the same command.";

/// The command under this name: `run`, or as a launcher.
pub fn command(name: impl Into<Str>, foreign: ForeignOptions) -> Command {
    let program = Arg::new("program")
        .value_name("PROGRAM")
        .help("The program and its arguments; several programs are separated by ':'")
        .num_args(1..)
        .trailing_var_arg(true)
        .allow_hyphen_values(true)
        .add(ArgValueCompleter::new(programs));
    Command::new(name)
        .about(ABOUT)
        .override_usage(USAGE)
        .after_help(EXAMPLES)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args_override_self(true)
        .args(OPTIONS.iter().filter_map(|entry| option(entry, foreign)))
        .arg(program)
}

/// The option of a row; `None`: it has no name that the library could know.
fn option(entry: &OptionSpec, foreign: ForeignOptions) -> Option<Arg> {
    let is_letter = |name: &str| name.len() == 1;
    let (letters, words): (Vec<&str>, Vec<&str>) = entry
        .names
        .iter()
        .copied()
        .filter(|name| !name.starts_with('-'))
        .partition(|name| is_letter(name));
    let letters: Vec<char> = letters.iter().flat_map(|name| name.chars()).collect();
    let mut arg = Arg::new(*entry.names.first()?);
    if letters.is_empty() && words.is_empty() {
        return None;
    }
    if let [first, more @ ..] = &letters[..] {
        arg = arg.short(*first).short_aliases(more.iter().copied());
    }
    // Help names one more than the first; all where it tells of everything.
    let is_told = foreign == ForeignOptions::Told;
    if let [first, more @ ..] = &words[..] {
        let shown = usize::from(letters.is_empty() && !is_told).min(more.len());
        let (shown, others) = more.split_at(shown);
        arg = arg
            .long(*first)
            .visible_aliases(shown.iter().copied())
            .aliases(others.iter().copied());
    }
    let others = words.iter().skip(1).map(|word| format!("--{word}"));
    let others: Vec<_> = letters
        .iter()
        .skip(1)
        .map(|letter| format!("-{letter}"))
        .chain(others)
        .collect();
    let help = |text: &str| match is_told && !others.is_empty() {
        true => format!(
            "{text}{}also: {}",
            if text.is_empty() { "" } else { "; " },
            others.join(", ")
        ),
        false => text.to_owned(),
    };
    let arg = with_values(arg, entry);
    Some(match entry.action {
        OptionAction::Accept(_, reason) => of_others(
            arg.help(help(reason)),
            "Accepted, without effect here",
            foreign,
        ),
        OptionAction::Refuse(advice) => of_others(arg.help(help(advice)), "Refused", foreign),
        OptionAction::Means(words) => arg
            .help(help(&format!("the same as {}", words.join(" "))))
            .hide(!is_told),
        _ => arg
            .help(help(entry.help))
            .hide(entry.help.is_empty() && !is_told),
    })
}

fn of_others(arg: Arg, heading: &'static str, foreign: ForeignOptions) -> Arg {
    arg.help_heading(heading)
        .hide(foreign == ForeignOptions::Hidden)
}

fn with_values(arg: Arg, entry: &OptionSpec) -> Arg {
    let arg = match (entry.action, entry.value) {
        (OptionAction::Accept(0, _), _) | (_, "") => return arg.action(ArgAction::SetTrue),
        (OptionAction::Accept(count, _), _) => arg.num_args(usize::from(count)),
        // A value that may be left out.
        (_, value) if value.starts_with("[=") => arg.num_args(0..=1).require_equals(true),
        (OptionAction::Help, _) => arg.num_args(0..=1),
        _ => arg.num_args(1),
    };
    let optional = entry
        .value
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let name = optional.map_or(entry.value, |name| name.trim_start_matches('='));
    let arg = arg
        .value_name(name)
        .action(ArgAction::Append)
        .value_hint(hint(entry.action));
    match values(entry.action) {
        [] => arg,
        values => arg
            .value_parser(PossibleValuesParser::new(values))
            .hide_possible_values(true),
    }
}

/// The values of an option, where they are few.
pub fn values(action: OptionAction) -> &'static [&'static str] {
    match action {
        OptionAction::BindTo => &["core", "numa", "socket", "l3cache", "hwthread", "none"],
        OptionAction::MapBy => &[
            "scatter", "core", "numa", "socket", "l3cache", "slot", "node",
        ],
        OptionAction::Colour => &["auto", "always", "never"],
        OptionAction::Output => &["tag", "rank", "timestamp", "merge"],
        OptionAction::InitialErrhandler => &settings::INITIAL_ERRHANDLERS,
        OptionAction::Abi => &ABIS,
        OptionAction::Record => &RECORD,
        OptionAction::Stdin => &["0", "none"],
        OptionAction::Display => &["bind", "map"],
        OptionAction::Help => &["all"],
        OptionAction::Launcher => &["ssh", "slurm", "prterun"],
        _ => &[],
    }
}

fn hint(action: OptionAction) -> ValueHint {
    match action {
        OptionAction::Directory => ValueHint::DirPath,
        OptionAction::Hostfile
        | OptionAction::Programs
        | OptionAction::Trace
        | OptionAction::ReportPid
        | OptionAction::JoinKey => ValueHint::FilePath,
        _ => ValueHint::Other,
    }
}

/// Returns the arguments behind a program: files, as far as this command knows.
pub fn arguments() -> Command {
    let files = ArgValueCompleter::new(|word: &OsStr| {
        let found = paths(&word.to_string_lossy());
        found.into_iter().map(CompletionCandidate::new).collect()
    });
    let all = Arg::new("arguments")
        .num_args(0..)
        .trailing_var_arg(true)
        .allow_hyphen_values(true)
        .add(files);
    Command::new("arguments")
        .disable_help_flag(true)
        .disable_version_flag(true)
        .arg(all)
}

/// Returns whether what follows these words, which stand behind the command's name, is an argument
/// of a program: it is not for this command.
pub fn is_in_program(words: &[OsString]) -> bool {
    let mut rest = words.iter();
    let mut in_program = false;
    while let Some(word) = rest.next() {
        let text = word.to_string_lossy();
        if in_program {
            in_program = text != ":";
        } else if text.len() < 2 || !text.starts_with('-') {
            in_program = true;
        } else if text == "--" {
            in_program = rest.next().is_some();
        } else {
            let entry = find(&text, text.trim_start_matches('-'));
            let values = entry.map_or(0, |entry| values_behind(entry, rest.as_slice().first()));
            rest = rest.as_slice().get(values..).unwrap_or_default().iter();
        }
    }
    in_program
}

/// Returns how many words behind an option are its values.
fn values_behind(entry: &OptionSpec, next: Option<&OsString>) -> usize {
    match entry.action {
        OptionAction::Accept(count, _) => usize::from(count),
        OptionAction::LocalEnv | OptionAction::GlobalEnv
            if next.is_some_and(|next| !next.as_bytes().contains(&b'=')) =>
        {
            2
        }
        OptionAction::Refuse(_) | OptionAction::Help => 0,
        _ => usize::from(!entry.value.is_empty() && !entry.value.starts_with("[=")),
    }
}

/// Writes `-bind-to` as `--bind-to`, which is the same to us: the option library takes it for
/// single letters.
pub fn give_two_dashes(word: &mut OsString) {
    let text = word.to_string_lossy();
    let name = text.split('=').next().unwrap_or_default();
    let is_one_dash = name.len() > 2 && name.starts_with('-') && !name.starts_with("--");
    let begins = |name: &str| {
        OPTIONS
            .iter()
            .flat_map(|entry| entry.names)
            .any(|known| known.starts_with(name))
    };
    if is_one_dash && begins(&name[1..]) {
        *word = format!("-{text}").into();
    }
}

/// Completes a word behind which arguments follow: with programs in directories that it names or
/// where programs are looked for, and with paths of files.
fn programs(word: &OsStr) -> Vec<CompletionCandidate> {
    let text = word.to_string_lossy();
    let mut found = paths(&text);
    if !text.is_empty() && !text.contains('/') {
        let path = std::env::var_os("PATH").unwrap_or_default();
        for directory in std::env::split_paths(&path) {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
            found.extend(names.filter(|name| name.starts_with(&*text)));
        }
    }
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(CompletionCandidate::new).collect()
}

/// Files and directories that a word may be the beginning of, directories with a slash at the end.
fn paths(text: &str) -> Vec<String> {
    let (directory, start) = text.rsplit_once('/').map_or(("", text), |(before, start)| {
        (&text[..before.len() + 1], start)
    });
    let read = std::fs::read_dir(if directory.is_empty() { "." } else { directory });
    let entries = read.into_iter().flatten().flatten();
    let path = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_hidden = name.starts_with('.') && !start.starts_with('.');
        let slash = if entry.path().is_dir() { "/" } else { "" };
        (name.starts_with(start) && !is_hidden).then(|| format!("{directory}{name}{slash}"))
    };
    entries.filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_the_table_is_known_by_its_names() {
        for foreign in [ForeignOptions::Hidden, ForeignOptions::Told] {
            let mut command = command("run", foreign);
            command.build();
            for entry in OPTIONS {
                for name in entry.names.iter().filter(|name| !name.starts_with('-')) {
                    let is_it = |arg: &&Arg| {
                        let longs = arg
                            .get_long()
                            .into_iter()
                            .chain(arg.get_all_aliases().unwrap_or_default());
                        let shorts = arg.get_short().into_iter();
                        let shorts = shorts.chain(arg.get_all_short_aliases().unwrap_or_default());
                        longs.map(str::to_owned).any(|long| long == *name)
                            || shorts.map(String::from).any(|short| short == *name)
                    };
                    let arg = command.get_arguments().find(is_it);
                    assert_eq!(
                        arg.map(|arg| arg.get_id().as_str()),
                        Some(entry.names[0]),
                        "{name}"
                    );
                }
            }
        }
    }

    #[test]
    fn values_that_are_offered_are_those_that_are_understood() {
        for entry in OPTIONS {
            for value in values(entry.action)
                .iter()
                .filter(|_| entry.action != OptionAction::Help)
            {
                let words = [
                    format!("--{}", entry.names[0]),
                    (*value).to_owned(),
                    "true".to_owned(),
                ];
                let words = words.map(std::ffi::OsString::from).to_vec();
                let read = super::super::parse::parse(words, &super::super::tests::facts());
                assert!(read.is_ok(), "{} {value}: {:?}", entry.names[0], read.err());
            }
        }
    }

    #[test]
    fn what_stands_behind_a_program_is_none_of_ours() {
        let after = |line: &str| {
            let words: Vec<_> = line.split_whitespace().map(OsString::from).collect();
            is_in_program(&words)
        };
        for line in [
            "./app",
            "-n 4 ./app",
            "-np 4 --bind-to core ./app x",
            "-genv A 1 ./a",
            "--env A=1 ./a",
            "-- ./a",
            "./a : -n 2 ./b",
            "--mca a b ./c",
            "-n4 ./a",
        ] {
            assert!(after(line), "{line}");
        }
        for line in [
            "",
            "-n 4",
            "--bind-to",
            "-n 4 ./a :",
            "--join-key",
            "--mca a b",
            "-genv A 1",
            "--timeout=3",
        ] {
            assert!(!after(line), "{line}");
        }
    }

    #[test]
    fn help_tells_of_other_launchers_options_where_that_is_asked_for() {
        let text = |foreign| command("run", foreign).render_help().to_string();
        assert!(!text(ForeignOptions::Hidden).contains("--oversubscribe"));
        let all = text(ForeignOptions::Told);
        assert!(
            all.contains("--oversubscribe")
                && all.contains("Refused:")
                && all.contains("--rankmap")
        );
    }
}
