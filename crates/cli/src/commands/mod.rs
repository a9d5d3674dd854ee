//! The subcommands other than `run`: one module each, with its arguments and a function that returns the exit code.

mod bench;
mod bench_tasks;
mod doctor;
pub mod elsewhere;
mod explain;
pub mod jobs;
mod join;
mod map;
mod overlap;
mod pair;
mod picture;
mod ping;
mod ps;
mod rail;
mod strategy;
mod top;
mod trace;
mod tune;
mod tune_networks;
mod tune_ranks;
mod who;
mod why;
mod why_gate;

use std::ffi::OsString;

pub use trace::record;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::env::{CompleteEnv, Shells};

#[derive(Debug, Parser)]
#[command(
    name = "garonne",
    version,
    about = "Runs MPI programs on this machine, and says what they do",
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a job: garonne run -n 4 ./app
    #[command(disable_help_flag = true)]
    Run {
        /// See `garonne run --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Take part in a job that was started on another host with `garonne run --join-key`
    Join(join::Args),
    /// What this machine can do, what is degraded and what it costs, how to mend it
    Doctor(doctor::Args),
    /// The jobs that run, on all their hosts; or the ranks of one: garonne ps JOB
    Ps(ps::Args),
    /// The machines of a job's hosts, and its ranks on them; without a job this machine
    Map(map::Args),
    /// Live table of a running job
    Top(top::Args),
    /// What each rank of a running job does and waits for
    Who(who::Args),
    /// How much of each nonblocking operation was hidden behind computation, by call site
    Overlap(overlap::Args),
    /// A timeline of a running job, for Perfetto
    Trace(trace::Args),
    /// Measure what moving bytes costs on this machine, and keep it
    Tune(tune::Args),
    /// How long messages take between two hosts, and which way they go: garonne ping A B
    Ping(ping::Args),
    /// The networks that a running job uses between hosts; take one out of use, or back
    Rail(rail::Args),
    /// Load a strategy that is a module, ask it thousands of random questions, and say what is wrong with it
    Strategy(strategy::Args),
    /// Why something is as it is: binding, settings, costs
    Why(why::Args),
    /// Measure against other MPIs (--against mpich,openmpi), or the task engine alone (tasks)
    #[command(disable_help_flag = true)]
    Bench(bench::Args),
    /// The long story of an error code: garonne explain G0107
    Explain(explain::Args),
    /// Print what makes a shell complete: source <(garonne completions bash)
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
}

/// Runs the subcommand that `words` (with the program's name) ask for.
pub fn dispatch(words: Vec<OsString>) -> i32 {
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => {
            // A closed pipe is the reader's choice.
            let _ = error.print();
            if let Some(tip) = rail::tip(&words, &error) {
                errln!("\n{tip}");
            }
            return error.exit_code();
        }
    };
    match cli.command {
        Command::Run { words } => crate::run::run(words, "garonne run"),
        Command::Join(args) => join::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Ps(args) => ps::run(&args),
        Command::Map(args) => map::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Who(args) => who::run(&args),
        Command::Overlap(args) => overlap::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Ping(args) => ping::run(&args),
        Command::Rail(args) => rail::run(&args),
        Command::Strategy(args) => strategy::run(&args),
        Command::Why(args) => why::run(&args),
        Command::Bench(args) => bench::run(args),
        Command::Explain(args) => explain::run(&args),
        Command::Completions { shell } => registration(&shell.to_string()),
    }
}

/// The variable by which a shell asks for completions. Its own name, since ranks inherit the environment.
pub const COMPLETE: &str = "GARONNE_COMPLETE";

/// Answers a shell that asks how a command line may go on; returns if none asks.
pub fn complete() {
    CompleteEnv::with_factory(Cli::command).var(COMPLETE).complete();
}

/// Prints the lines by which a shell learns to ask.
fn registration(shell: &str) -> i32 {
    let mut text = Vec::new();
    let known = Shells::builtins();
    let written = known
        .completer(shell)
        .map(|completer| completer.write_registration(COMPLETE, "garonne", "garonne", "garonne", &mut text));
    match written {
        Some(Ok(())) => {
            crate::output::out_bytes(&text);
            0
        }
        _ => {
            errln!("error: no completion for {shell}");
            1
        }
    }
}

/// Says that something failed, which may bear its code already.
fn fail(text: &str) -> i32 {
    match text.starts_with("error[") {
        true => errln!("{text}"),
        false => errln!("error: {text}"),
    }
    1
}

/// Prints a value as JSON.
fn print_json(value: &impl serde::Serialize) -> i32 {
    match serde_json::to_string_pretty(value) {
        Ok(text) => {
            outln!("{text}");
            0
        }
        Err(error) => {
            errln!("error: cannot write JSON: {error}");
            1
        }
    }
}
