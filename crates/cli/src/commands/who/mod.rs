//! `garonne who`: what each rank of a running job does and what that comes to, from what the ranks publish, without their
//! help; of all hosts that answer. The exit code says what was found (docs/using.md).

use clap_complete::engine::ArgValueCandidates;

use super::jobs;
use crate::diagnosis::{Diagnosis, places, words};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job, by its name or its launcher's process id (garonne ps); not needed if one job runs
    #[arg(add = ArgValueCandidates::new(jobs::candidates))]
    job: Option<jobs::Wanted>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show the stacks of all threads of all ranks of this host, too
    #[arg(long)]
    stacks: bool,
}

pub fn run(args: &Args) -> i32 {
    let visit = match jobs::choose(args.job.as_ref(), "garonne who JOB") {
        Ok(visit) => visit,
        Err(text) => {
            errln!("error: {text}");
            return 1;
        }
    };
    let found = Diagnosis::of(&visit);
    let code = found.finding().exit_code();
    if args.json {
        let printed = super::print_json(&found.json(&visit));
        return if printed == 0 { code } else { printed };
    }
    outln!(
        "job {}: {} ({} ranks)",
        visit.launcher,
        visit.command,
        visit.ranks
    );
    match found.has_begun() {
        false if found.silent.is_empty() => {
            outln!("no rank has called MPI_Init yet");
            return 0;
        }
        false => outln!("no rank that can be seen has called MPI_Init yet"),
        true => outln!("{}", words::table(&found.all).trim_fmt()),
    }
    let text = found.text();
    if !text.is_empty() {
        outln!("\n{text}");
    }
    if args.stacks {
        let stacks = places::stacks(&visit, &found.all);
        stacks.iter().for_each(|stack| outln!("\n{}", stack.trim_end()));
    }
    code
}
