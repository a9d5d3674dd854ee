//! `garonne bubbles`: bubble schedulers in virtual time, and what they did.

mod machine_spec;
mod replay;

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use garonne_bubble_modules::by_name;
use garonne_bubble_sim::{Costs, Outcome, Simulation, WORKLOADS, Workload, conditions, table};
use garonne_bubbles::{BubbleScheduler, Machine, NAMES, TraceHead, TraceLine};
use serde_json::json;

use super::fail;
use crate::overwrite_check;

/// How each trace begins, by which an earlier one is known.
const TRACE_BEGINNING: &[u8] = br#"{"machine":{"version":"#;

#[derive(Debug, clap::Subcommand)]
pub enum BubblesCommand {
    /// Run workloads under schedulers in virtual time, and print them against each other
    Simulate(SimulateArgs),
    /// Write a page into a file that any browser shows: bubbles and threads of a trace on their
    /// machine, step by step
    Replay(ReplayArgs),
}

#[derive(Debug, clap::Args)]
pub struct ReplayArgs {
    /// The trace, as `garonne bubbles simulate --trace` writes it
    #[arg(value_hint = ValueHint::FilePath)]
    trace: PathBuf,
    /// The page
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct SimulateArgs {
    /// The machine: 4x4 (NUMA nodes and their cores), `here`, a synthetic description of hwloc, or
    /// a file: XML of hwloc, or areas as Garonne describes them
    #[arg(long, value_name = "SPEC", default_value = "4x4")]
    machine: String,
    /// Workloads, between commas: regular, irregular, nested, producer-consumer (default: all)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    workload: Vec<String>,
    /// Schedulers, between commas: spread, steal, gang, affinity, memory, flat, or the
    /// file of a module, with a slash (default: all names)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    scheduler: Vec<String>,
    /// Decides what is random in workloads
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write each decision into this file, for `garonne bubbles replay`; of one workload and one
    /// scheduler
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    trace: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(command: &BubblesCommand) -> i32 {
    let done = match command {
        BubblesCommand::Simulate(args) => simulate(args),
        BubblesCommand::Replay(args) => replay::write_page(&args.trace, &args.output),
    };
    match done {
        Ok(()) => 0,
        Err(text) => fail(&text),
    }
}

/// The words that were given, or all that there are.
fn chosen(given: &[String], all: &[&str]) -> Vec<String> {
    match given.is_empty() {
        true => all.iter().map(|name| (*name).to_owned()).collect(),
        false => given.to_vec(),
    }
}

fn scheduler(name: &str) -> Result<Box<dyn BubbleScheduler>, String> {
    by_name(name).map_err(|error| error.to_string())
}

fn simulate(args: &SimulateArgs) -> Result<(), String> {
    let machine = Machine::new(&machine_spec::read(&args.machine)?);
    let schedulers = chosen(&args.scheduler, &NAMES);
    let workloads = chosen(&args.workload, &WORKLOADS);
    for name in &schedulers {
        scheduler(name)?;
    }
    if let Some(path) = &args.trace {
        if schedulers.len() * workloads.len() != 1 {
            return Err("a trace is of one workload and one scheduler: name them".into());
        }
        overwrite_check::check(path, TRACE_BEGINNING)?;
    }
    let costs = Costs::default();
    let mut shown = conditions(&machine, &costs, args.seed);
    let mut all = Vec::new();
    for name in &workloads {
        let workload = Workload::by_name(name, &machine, args.seed);
        let workload = workload.map_err(|error| error.to_string())?;
        let mut outcomes = Vec::new();
        for chosen in &schedulers {
            let failed = |error: &dyn std::fmt::Display| format!("{name} under {chosen}: {error}");
            let made = Simulation::new(machine.clone(), &workload, scheduler(chosen)?, costs);
            let mut simulation = made.map_err(|error| failed(&error))?;
            if args.trace.is_some() {
                simulation.keep_trace();
            }
            let outcome = simulation.run().map_err(|error| failed(&error))?;
            if let Some(path) = &args.trace {
                let title = format!("{name} under {chosen}, seed {}", args.seed);
                write_trace(
                    path,
                    TraceHead::new(&machine, title),
                    simulation.take_trace(),
                )?;
            }
            let scheduler = simulation.framework().scheduler().to_owned();
            outcomes.push((scheduler, outcome));
        }
        shown += &format!("\n{}", table(name, &outcomes));
        all.extend(
            outcomes
                .iter()
                .map(|(by, outcome)| as_json(name, by, outcome)),
        );
    }
    match args.json {
        true => {
            super::print_json(&all);
        }
        false => out!("{shown}"),
    }
    Ok(())
}

fn as_json(workload: &str, scheduler: &str, outcome: &Outcome) -> serde_json::Value {
    json!({
        "workload": workload, "scheduler": scheduler, "time_ns": outcome.time, "work_ns": outcome.work, "far_ns": outcome.far,
        "cold_ns": outcome.cold, "switching_ns": outcome.switching, "switches": outcome.switches, "cache_migrations": outcome.cache_migrations,
        "moves": outcome.moves, "refused": outcome.refused, "rescued": outcome.rescued, "processors": outcome.processors,
    })
}

/// Writes a trace, a line of JSON each.
fn write_trace(path: &Path, head: TraceHead, lines: Vec<TraceLine>) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    let file = std::fs::File::create(path).map_err(cannot)?;
    let mut file = std::io::BufWriter::new(file);
    for line in std::iter::once(TraceLine::Machine(head)).chain(lines) {
        serde_json::to_writer(&mut file, &line).map_err(|error| cannot(error.into()))?;
        file.write_all(b"\n").map_err(cannot)?;
    }
    file.flush().map_err(cannot)
}
