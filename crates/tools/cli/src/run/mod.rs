//! `garonne run`, also as `mpirun` and `mpiexec`: reads the command line, decides where ranks run,
//! launches.
//!
//! Before the first rank starts, nothing is done that the job does not need: no option library, no
//! machine discovery beyond a few files.

mod batch_allocation;
pub mod clap_command;
mod environment_check;
mod forwarded_signals;
mod host_list;
mod job_report;
mod join_hosts;
mod launch_request;
mod local_aliases;
mod metrics;
mod module_check;
#[cfg(test)]
mod option_arity;
mod option_table;
mod option_values;
pub mod options;
mod parse;
mod rank_file;
mod stdin_ranks;
mod switches;
#[cfg(test)]
mod tests;
mod timeout;
mod trace_option;
mod traffic_mapping;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use garonne_agent::{binding_order, cpu_claims, needs, rank_slots, remote_agent};
use garonne_job::agent_tree;
use garonne_job::bounded_read;
use garonne_job::codes;
use garonne_job::job::{Job, TagColour};
use garonne_job::limits;
use garonne_job::node_map::{NodeMap, listed};
use garonne_links::local_host::which_are_local as own_names;
use garonne_topology::{machine, quota};

use crate::flight_recording::FlightRecords;
use crate::output;
use job_report::JobReport;
use launch_request::{ColorWhen, JobOrder, LaunchRequest, SystemFacts};

/// Exit code for a command line that is not understood.
const USAGE: i32 = 2;

/// Bytes of a line with a process id, at most.
const PID_LINE_MAX: u64 = 16;

/// Runs the words after `run` and returns the exit code. `called` is the name that the user called
/// us by.
pub fn run(words: Vec<OsString>, called: &str) -> i32 {
    match parse::parse(words, &facts()) {
        Ok(LaunchRequest::Version) => {
            outln!(
                "{called} (Garonne) {}\nMPI 5.0 standard ABI",
                env!("CARGO_PKG_VERSION")
            );
            0
        }
        Ok(LaunchRequest::Help) => help(clap_command::ForeignOptions::Hidden),
        Ok(LaunchRequest::HelpAll) => help(clap_command::ForeignOptions::Told),
        Ok(LaunchRequest::Run(order)) => start(*order),
        Err(text) => {
            errln!("error[{}]: {text}", codes::G0211);
            USAGE
        }
    }
}

fn help(foreign: clap_command::ForeignOptions) -> i32 {
    let help = clap_command::command("run", foreign).render_help();
    match output::is_coloured(output::OutputStream::Out) {
        true => output::out_bytes(help.ansi().to_string().as_bytes()),
        false => out!("{help}"),
    }
    0
}

fn facts() -> SystemFacts {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let short = host.split('.').next().unwrap_or("").to_owned();
    SystemFacts {
        cores: usable_cpus(),
        host_names: vec![
            "localhost".into(),
            "127.0.0.1".into(),
            "::1".into(),
            short,
            host,
        ],
        env: std::env::vars_os().collect(),
        read: |path| bounded_read::read_text(path, bounded_read::LIST_BYTES_MAX),
        are_own: own_names,
    }
}

/// CPUs that this process may use, a control group's quota counted as CPUs (a part of one as a
/// whole one).
pub fn usable_cpus() -> u32 {
    let allowed = machine::allowed().len() as u32;
    quota::cpu_milli().map_or(allowed, |quota| allowed.min(quota.div_ceil(1000)).max(1))
}

fn start(order: JobOrder) -> i32 {
    let JobOrder {
        mut job,
        mut hosts,
        mapping,
        policy,
        colour,
        report_bindings,
        report_pid,
        cpus,
        name,
        metrics,
        tracing,
        rank_file,
        traffic,
        need,
        json,
        joining,
    } = order;
    job.start_as(name);
    if let Some(cpus) = &cpus
        && let Err(error) = cpu_claims::confine(cpus)
    {
        errln!(
            "error[{}]: the job cannot be confined to CPUs {cpus}: {error}; this process may use {}",
            codes::G0211,
            machine::allowed()
        );
        return USAGE;
    }
    output::set_colour(match colour {
        ColorWhen::Auto => output::ColorChoice::Auto,
        ColorWhen::Always => output::ColorChoice::Always,
        ColorWhen::Never => output::ColorChoice::Never,
    });
    let coloured = output::is_coloured(output::OutputStream::Out);
    job.colour = if coloured {
        TagColour::Always
    } else {
        TagColour::Never
    };
    if let Some(path) = report_pid
        && let Err(error) = tell_pid(&path)
    {
        errln!(
            "error[{}]: cannot write the process id to '{}': {error}",
            codes::G0211,
            path.display()
        );
        return USAGE;
    }
    environment_check::warn_of_unknown(&job);
    let modules = module_check::are_named(&job);
    let refused = |code: i32, text: String| {
        errln!("{text}");
        code
    };
    if modules && let Err(text) = module_check::settle(&mut job) {
        return refused(USAGE, text);
    }
    // Before others are waited for.
    let several = joining.is_wanted() || hosts.iter().any(|host| !host.own);
    if let Err(text) = environment_check::are_understood(&job, several) {
        return refused(USAGE, text);
    }
    if modules
        && joining.is_wanted()
        && let Err(text) = module_check::check(&job)
    {
        return refused(1, text);
    }
    let company = match joining.is_wanted() {
        false => None,
        true => match join_hosts::gather(&joining, &mut job, &mut hosts, mapping) {
            Ok(company) => Some(company),
            Err(code) => return code,
        },
    };
    if hosts.iter().any(|host| !host.own) {
        match NodeMap::assign(&hosts, job.size(), mapping) {
            Ok(mut nodes) => {
                if let Some(file) = &rank_file {
                    nodes.of_rank = file.nodes(&hosts, &nodes.names);
                }
                job.nodes = nodes;
            }
            Err(error) => {
                errln!("{error}");
                return USAGE;
            }
        }
        job.fan_out = match agent_tree::fan_out_from_environment() {
            Ok(fan_out) => fan_out,
            Err(error) => {
                errln!("{error}");
                return USAGE;
            }
        };
        job.guests = company
            .as_ref()
            .map_or(0, |company| company.offers().len() as u32);
        say_if_flat(&job);
        job.policy = policy;
        job.cpus = cpus.map(|cpus| cpus.to_string()).unwrap_or_default();
    }
    if modules
        && !joining.is_wanted()
        && let Err(text) = module_check::check(&job)
    {
        return refused(1, text);
    }
    let switches = switches::of(&job);
    let groups = switches.as_ref().map(|switches| &switches.group_of[..]);
    if let Some(file) = &traffic
        && let Err(text) = file.apply(&mut job, groups)
    {
        return refused(USAGE, format!("error[{}]: {text}", codes::G0211));
    }
    if let Some(need) = &need
        && let Err(text) = needs::give(&mut job, need)
    {
        return refused(USAGE, format!("error[{}]: {text}", codes::G0211));
    }
    switches::give(&mut job, switches.as_ref());
    let here = binding_order::ranks(&job, 0);
    if tracing.is_wanted() && here.is_empty() {
        errln!(
            "error[{}]: a job is traced from the start only where a rank runs on this host (--host localhost,...)",
            codes::G0211
        );
        return USAGE;
    }
    let placed = match rank_slots::place(&job, &here) {
        None => cpu_claims::place_ranks(here.len() as u32, &policy),
        Some(Ok(placed)) => placed,
        Some(Err(error)) => {
            errln!("{error}");
            return USAGE;
        }
    };
    if let (false, Some(what)) = (here.is_empty(), placed.shortfall(&policy)) {
        errln!("garonne run: ranks {} {what}", listed(&here));
    }
    if report_bindings {
        report(&placed, &here, &job);
    }
    job.placement = remote_agent::spread(&placed.placement, &here, job.size());
    let mut served = match metrics.map(metrics::MetricsListener::at).transpose() {
        Ok(served) => served,
        Err(text) => return refused(1, text),
    };
    let mut begun = || {
        served
            .take()
            .into_iter()
            .for_each(metrics::MetricsListener::begin)
    };
    let document = match json
        .map(|path| JobReport::begin(path, &mut job))
        .transpose()
    {
        Ok(document) => document,
        Err(text) => {
            errln!("error[{}]: {text}", codes::G0211);
            return USAGE;
        }
    };
    let mut last = FlightRecords::default();
    let ended = trace_option::launch(&mut job, company, &tracing, &mut begun, &mut last);
    let code = ended.unwrap_or_else(|error| {
        errln!("{error}");
        if error.code() == codes::G0211 {
            USAGE
        } else {
            1
        }
    });
    say_last_events(last.write(&job.name));
    match document.map(|document| document.finish(code)) {
        Some(Err(text)) => {
            errln!("garonne: {text}");
            if code == 0 { 1 } else { code }
        }
        _ => code,
    }
}

/// Names the file with the last events of the ranks, if there are any.
fn say_last_events(written: Option<Result<PathBuf, String>>) {
    match written {
        None => {}
        Some(Ok(path)) => {
            let path = path.display();
            errln!(
                "note[{}]: the last events of the ranks are in {path}; garonne trace {path} shows them",
                codes::G0315
            );
        }
        Some(Err(error)) => errln!(
            "note[{}]: the last events of the ranks could not be written: {error}",
            codes::G0315
        ),
    }
}

/// Agents are started one by one from here, by ssh or the user's own command, which serves some
/// dozens of hosts. In an allocation the batch system starts them.
fn say_if_flat(job: &Job) {
    let started = job
        .nodes
        .names
        .len()
        .saturating_sub(1 + job.guests as usize);
    let command = job.starter.first().map(|program| program.to_string_lossy());
    let by_batch_system = command
        .as_ref()
        .is_some_and(|program| batch_allocation::is_a_batch_systems(program));
    if !by_batch_system && started > limits::STARTED_FLAT {
        let each = command.map_or("an ssh".into(), |program| format!("a '{program}'"));
        errln!(
            "garonne run: {started} hosts, each by {each} of its own from this one; a batch system starts that many sooner (docs/user/launchers.md)"
        );
    }
}

/// Writes our process id where `--report-pid` wants it.
fn tell_pid(path: &Path) -> std::io::Result<()> {
    let line = format!("{}\n", std::process::id());
    match path.to_str() {
        Some("-") => std::io::stdout().write_all(line.as_bytes()),
        Some("+") => std::io::stderr().write_all(line.as_bytes()),
        _ if !may_hold_pid(path)? => Err(std::io::Error::other(
            "it is there and holds something else; name another file, or remove it first",
        )),
        _ => std::fs::write(path, line),
    }
}

/// Returns whether a file is not there, holds the number that an earlier job wrote, or is no plain
/// file.
fn may_hold_pid(path: &Path) -> std::io::Result<bool> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() > PID_LINE_MAX => Ok(false),
        Ok(meta) if meta.is_file() => {
            let text = std::fs::read(path)?;
            Ok(text
                .trim_ascii()
                .iter()
                .all(|letter| letter.is_ascii_digit()))
        }
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

fn report(placed: &cpu_claims::PlacementClaim, here: &[u32], job: &Job) {
    match placed.sets.is_empty() {
        true if here.is_empty() => {}
        true => errln!("ranks {} are not bound ({})", listed(here), placed.reason),
        false => placed
            .sets
            .iter()
            .zip(here)
            .for_each(|(cpus, rank)| errln!("rank {rank} is bound to CPU {cpus}")),
    }
    for node in 1..job.nodes.names.len() as u32 {
        let ranks = listed(&job.ranks_of(node));
        errln!(
            "ranks {ranks} are on host '{}', which binds them by itself",
            job.nodes.name(node)
        );
    }
}
