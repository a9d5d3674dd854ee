//! `garonne who`: shows what each rank of a running job does, and the conclusion, for all hosts
//! that answer. The facts are what ranks publish, read without their help. The exit code says what
//! was found (docs/user/inspect.md).

mod watch;

use std::time::Duration;

use clap_complete::engine::ArgValueCandidates;
use garonne_inspect::query_client::QueryClient;

use super::job_lookup;
use crate::diagnosis::{Diagnosis, report_text, stack_locations};

#[derive(Debug, clap::Args)]
pub struct WhoArgs {
    /// The job, by its name or its launcher's process id (garonne ps); not needed if one job runs
    #[arg(add = ArgValueCandidates::new(job_lookup::candidates))]
    job: Option<job_lookup::JobSelector>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show the stacks of all threads of all ranks of this host, too
    #[arg(long)]
    stacks: bool,
    /// Look again and again, each 2 or so many seconds, until ranks can never go on or the job has
    /// ended
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = EVERY, value_parser = watch::seconds)]
    watch: Option<f64>,
}

/// Seconds between two looks where none are named.
const EVERY: &str = "2";

pub fn run(args: &WhoArgs) -> i32 {
    let (client, every) = match chosen(args) {
        Ok(chosen) => chosen,
        Err(text) => {
            errln!("error: {text}");
            return 1;
        }
    };
    if let Some(seconds) = every {
        return watch::watch(client, Duration::from_secs_f64(seconds), args);
    }
    let found = Diagnosis::of(&client).with_places(&client);
    let code = found.kind().exit_code();
    if args.json {
        let printed = super::print_json(&found.json(&client));
        return if printed == 0 { code } else { printed };
    }
    print(&client, &found, args.stacks);
    code
}

/// The job that is meant, and the seconds between two looks at it. Behind `--watch` a number that
/// names no job is these seconds.
fn chosen(args: &WhoArgs) -> Result<(QueryClient, Option<f64>), String> {
    const LINE: &str = "garonne who JOB";
    match job_lookup::choose(args.job.as_ref(), LINE) {
        Ok(client) => Ok((client, args.watch)),
        Err(text) => {
            let word = args
                .job
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            match (args.watch, watch::seconds(&word)) {
                (Some(_), Ok(seconds)) => Ok((job_lookup::choose(None, LINE)?, Some(seconds))),
                _ => Err(text),
            }
        }
    }
}

/// Prints what a look has found.
fn print(client: &QueryClient, found: &Diagnosis, with_stacks: bool) {
    outln!(
        "job {}: {} ({} ranks)",
        client.launcher,
        client.command,
        client.ranks
    );
    match found.has_begun() {
        false if found.silent_hosts.is_empty() => return outln!("no rank has called MPI_Init yet"),
        false => outln!("no rank that can be seen has called MPI_Init yet"),
        true => outln!("{}", report_text::table(&found.ranks).trim_fmt()),
    }
    let text = found.text();
    if !text.is_empty() {
        outln!("\n{text}");
    }
    if with_stacks {
        let stacks = stack_locations::stacks(client, &found.ranks);
        stacks
            .iter()
            .for_each(|stack| outln!("\n{}", stack.trim_end()));
    }
}
