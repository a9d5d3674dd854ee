//! The subcommands other than `run`: one module each, with its arguments and a function that
//! returns the exit code.

mod bench;
mod bench_fibers;
mod bench_tasks;
mod bubbles;
mod doctor;
mod explain;
mod fortran;
mod generate;
pub mod job_lookup;
mod join;
pub mod map;
pub mod net;
mod network;
mod omp;
mod overlap;
mod ping;
mod preload;
mod ps;
mod rank_pair;
pub mod remote_command;
mod sockets;
mod strategy;
mod suggestions;
mod threads;
mod top;
mod trace;
mod tune;
mod tune_memory;
mod tune_networks;
mod tune_ranks;
mod who;
mod why;
mod why_peer;

use std::ffi::OsString;
use std::path::PathBuf;

pub use trace::record;

use crate::output::ColorChoice;
use crate::run::clap_command as run;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::env::{CompleteEnv, Shells};

#[derive(Debug, Parser)]
#[command(
    name = "garonne",
    version,
    about = "Runs MPI programs on this machine, and says what they do",
    arg_required_else_help = true
)]
struct Cli {
    /// Colour what is said (default: on a terminal, unless NO_COLOR is set)
    #[arg(
        long,
        visible_alias = "colour",
        global = true,
        value_name = "auto|always|never",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        hide_default_value = true
    )]
    color: ColorChoice,
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
    Join(join::JoinArgs),
    /// What this machine can do, what is degraded and what it costs, how to mend it
    Doctor(doctor::DoctorArgs),
    /// The jobs that run, on all their hosts; or the ranks of one: garonne ps JOB
    Ps(ps::PsArgs),
    /// The machines of a job's hosts, and its ranks on them; without a job this machine
    Map(map::MapArgs),
    /// Live table of a running job
    Top(top::TopArgs),
    /// What each rank of a running job does and waits for
    Who(who::WhoArgs),
    /// How much of each nonblocking operation was hidden behind computation, by call site
    Overlap(overlap::OverlapArgs),
    /// A timeline of a running job, for Perfetto
    Trace(trace::TraceArgs),
    /// Measure what moving bytes costs on this machine, and keep it
    Tune(tune::TuneArgs),
    /// How long messages take between two hosts, and which way they go: garonne ping A B
    Ping(ping::PingArgs),
    /// The networks that a running job uses between hosts; take one out of use, or back
    #[command(alias = "rail")]
    Network(network::NetworkArgs),
    /// Switches and links between hosts: find out about them, compare with the last time
    #[command(subcommand)]
    Net(net::NetCommand),
    /// Load a strategy that is a module, ask it thousands of random questions, and say what is
    /// wrong with it
    Strategy(strategy::StrategyArgs),
    /// Schedulers of nested sets of threads: compare them in virtual time, look at what they did
    #[command(subcommand)]
    Bubbles(bubbles::BubblesCommand),
    /// Programs of gcc -fopenmp with their threads as fibers: garonne omp run -- ./app
    #[command(subcommand)]
    Omp(omp::OmpCommand),
    /// Programs of POSIX threads with their threads as fibers: garonne threads run -- pigz file
    #[command(subcommand)]
    Threads(threads::ThreadsCommand),
    /// Programs of TCP whose connections within the host go over shared memory: garonne sockets
    /// run -- redis-server
    #[command(subcommand)]
    Sockets(sockets::SocketsCommand),
    /// Why something is as it is: binding, settings, costs
    Why(why::WhyArgs),
    /// Measure against other MPIs (--against mpich,openmpi), or the task engine alone (tasks)
    #[command(disable_help_flag = true)]
    Bench(bench::BenchArgs),
    /// Try a Fortran compiler: garonne fortran --check --fc ifx
    Fortran(fortran::FortranArgs),
    /// The long story of an error code: garonne explain G0107
    Explain(explain::ExplainArgs),
    /// Print what makes a shell complete: source <(garonne completions bash)
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
        /// The command to complete: garonne, mpirun or mpiexec
        #[arg(default_value = "garonne", value_parser = COMPLETED)]
        command: String,
    },
    /// Write manual pages and completions into a directory that is to be an installation's share
    #[command(hide = true)]
    Generate(generate::GenerateArgs),
}

/// The commands that shells learn to complete.
const COMPLETED: [&str; 3] = ["garonne", "mpirun", "mpiexec"];

/// The whole command, with the options of `run` as its table has them.
fn whole(foreign: run::ForeignOptions) -> clap::Command {
    Cli::command().mut_subcommand("run", |_| run::command("run", foreign))
}

/// Runs the subcommand that `words` (with the program's name) ask for.
pub fn dispatch(words: Vec<OsString>) -> i32 {
    let named = ColorChoice::named(&words);
    crate::output::set_colour(named);
    let choice = named.choice();
    let asks_for_help = words.get(1).is_some_and(|word| word == "help");
    let command = if asks_for_help {
        whole(run::ForeignOptions::Hidden)
    } else {
        Cli::command()
    };
    let matches = command.color(choice).try_get_matches_from(&words);
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            // A closed pipe is the reader's choice.
            let _ = error.print();
            if let Some(tip) =
                network::tip(&words, &error).or_else(|| suggestions::of(&words, &error))
            {
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
        Command::Network(args) => network::run(&args),
        Command::Net(command) => net::run(&command),
        Command::Strategy(args) => strategy::run(&args),
        Command::Bubbles(command) => bubbles::run(&command),
        Command::Omp(command) => omp::run(&command),
        Command::Threads(command) => threads::run(&command),
        Command::Sockets(command) => sockets::run(&command),
        Command::Why(args) => why::run(&args),
        Command::Bench(args) => bench::run(args),
        Command::Fortran(args) => fortran::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Completions { shell, command } => registration(&shell.to_string(), &command),
        Command::Generate(args) => generate::run(&args),
    }
}

/// The variable by which a shell asks for completions. Its own name, since ranks inherit the
/// environment.
pub const COMPLETE: &str = "GARONNE_COMPLETE";

/// Answers a shell that asks how a command line may go on; returns if none asks.
pub fn complete() {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let begin = words
        .iter()
        .position(|word| word == "--")
        .map_or(words.len(), |at| at + 1);
    let called = words.get(begin).map(PathBuf::from).unwrap_or_default();
    let called = called
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let is_launcher = called.starts_with("mpi");
    let is_run = !is_launcher && words.get(begin + 1).is_some_and(|word| word == "run");
    let options = begin + if is_run { 2 } else { 1 };
    // The shell names the word that is to go on; behind it there may be more.
    let index = std::env::var("_CLAP_COMPLETE_INDEX")
        .ok()
        .and_then(|index| index.parse().ok());
    let cursor = index.map_or(words.len().saturating_sub(1), |index: usize| begin + index);
    let mut in_program = false;
    if (is_launcher || is_run) && options <= cursor && cursor < words.len() {
        let (before, rest) = words.split_at_mut(cursor);
        if let Some(before) = before.get_mut(options..) {
            in_program = run::is_in_program(before);
            before
                .iter_mut()
                .chain(rest.first_mut())
                .for_each(run::give_two_dashes);
        }
    }
    let command = || match (in_program, is_launcher) {
        (true, _) => run::arguments(),
        (false, true) => run::command("mpirun", run::ForeignOptions::Hidden),
        (false, false) => whole(run::ForeignOptions::Hidden),
    };
    let here = std::env::current_dir().ok();
    let asked = CompleteEnv::with_factory(command)
        .var(COMPLETE)
        .try_complete(words, here.as_deref());
    if asked.unwrap_or_else(|error| error.exit()) {
        std::process::exit(0);
    }
}

/// Prints the lines by which a shell learns to ask.
fn registration(shell: &str, command: &str) -> i32 {
    match asks(shell, command) {
        Some(text) => {
            crate::output::out_bytes(&text);
            0
        }
        None => {
            errln!("error: no completion for {shell}");
            1
        }
    }
}

/// Returns the shell code by which a shell learns to ask for completions. The shell always asks
/// `garonne`: another program of the name `mpirun` would take the question for a job.
fn asks(shell: &str, command: &str) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let known = Shells::builtins();
    let completer = known.completer(shell)?;
    let written = completer.write_registration(COMPLETE, command, command, "garonne", &mut text);
    written.ok().map(|()| text)
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
