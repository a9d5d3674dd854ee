//! `garonne run`, also as `mpirun` and `mpiexec`: reads the command line, decides where ranks run, launches.
//!
//! On the way to the first rank nothing is done that the job does not need: no option library, no machine discovery
//! beyond a few files.

mod options;
mod parse;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::IsTerminal;

use garonne_node::job::Colour;
use garonne_node::{codes, launcher, placement};
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
    } = order;
    let coloured = match colour {
        When::Auto => std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        When::Always => true,
        When::Never => false,
    };
    job.colour = if coloured { Colour::Always } else { Colour::Never };
    let placed = placement::place(job.size(), &policy);
    if report_bindings {
        report(&placed, job.size());
    }
    job.placement = placed.placement.clone();
    launcher::launch(&job).unwrap_or_else(|error| {
        eprintln!("{error}");
        1
    })
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
