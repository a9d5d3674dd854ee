//! `garonne run`, also as `mpirun` and `mpiexec`: reads the command line, decides where ranks run, launches.
//!
//! On the way to the first rank nothing is done that the job does not need: no option library, no machine discovery
//! beyond a few files.

mod options;
mod parse;
mod table;
#[cfg(test)]
mod tests;
mod tracing;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::Path;

use garonne_node::job::Colour;
use garonne_node::{codes, placement};
use garonne_topology::cpuset::CpuSet;
use garonne_topology::{machine, quota};

use parse::{Facts, Order, Request, When};

/// Exit code for a command line that is not understood.
const USAGE: i32 = 2;

/// Runs the words after `run` and returns the exit code. `called` is the name that the user called us by.
pub fn run(words: Vec<OsString>, called: &str) -> i32 {
    match parse::parse(words, &facts()) {
        Ok(Request::Version) => {
            println!(
                "{called} (Garonne) {}\nMPI 5.0 standard ABI",
                env!("CARGO_PKG_VERSION")
            );
            0
        }
        Ok(Request::Help) => {
            print!("{}", options::help());
            0
        }
        Ok(Request::HelpAll) => {
            print!("{}", options::help_all());
            0
        }
        Ok(Request::Run(order)) => start(*order),
        Err(text) => {
            eprintln!("error[{}]: {text}", codes::G0211);
            USAGE
        }
    }
}

fn facts() -> Facts {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = host.split('.').next().unwrap_or("").to_owned();
    Facts {
        cores: usable_cpus(),
        host_names: vec!["localhost".into(), "127.0.0.1".into(), "::1".into(), short, host],
        env: std::env::vars_os().collect(),
        read: |path| std::fs::read_to_string(path),
    }
}

/// CPUs that this process may use, a control group's quota counted as CPUs (a part of one as a whole one).
fn usable_cpus() -> u32 {
    let allowed = machine::allowed().len() as u32;
    quota::cpu_milli().map_or(allowed, |quota| allowed.min(quota.div_ceil(1000)).max(1))
}

fn start(order: Order) -> i32 {
    let Order {
        mut job,
        policy,
        colour,
        report_bindings,
        report_pid,
        cpus,
        tracing,
    } = order;
    if let Some(cpus) = cpus
        && let Err(error) = confine(&cpus)
    {
        eprintln!(
            "error[{}]: the job cannot be confined to CPUs {cpus}: {error}",
            codes::G0211
        );
        return USAGE;
    }
    let coloured = match colour {
        When::Auto => std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        When::Always => true,
        When::Never => false,
    };
    job.colour = if coloured { Colour::Always } else { Colour::Never };
    if let Some(path) = report_pid
        && let Err(error) = tell_pid(&path)
    {
        eprintln!(
            "error[{}]: cannot write the process id to '{}': {error}",
            codes::G0211,
            path.display()
        );
        return USAGE;
    }
    let placed = placement::place(job.size(), &policy);
    if report_bindings {
        report(&placed, job.size());
    }
    job.placement = placed.placement.clone();
    tracing::launch(&mut job, &tracing).unwrap_or_else(|error| {
        eprintln!("{error}");
        1
    })
}

/// Lets us, and so the job, use these CPUs only.
fn confine(cpus: &CpuSet) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    cpus.iter()
        .filter(|cpu| (*cpu as usize) < rustix::thread::CpuSet::MAX_CPU)
        .for_each(|cpu| set.set(cpu as usize));
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Writes our process id where `--report-pid` wants it.
fn tell_pid(path: &Path) -> std::io::Result<()> {
    let line = format!("{}\n", std::process::id());
    match path.to_str() {
        Some("-") => std::io::stdout().write_all(line.as_bytes()),
        Some("+") => std::io::stderr().write_all(line.as_bytes()),
        _ => std::fs::write(path, line),
    }
}

fn report(placed: &placement::Placed, ranks: u32) {
    match placed.sets.is_empty() {
        true => eprintln!("ranks 0 to {} are not bound ({})", ranks - 1, placed.reason),
        false => placed
            .sets
            .iter()
            .enumerate()
            .for_each(|(rank, cpus)| eprintln!("rank {rank} is bound to CPU {cpus}")),
    }
}
