//! `garonne overlap`: how much of each nonblocking operation was hidden, by call site, of a running
//! job or of a finished trace.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use clap_complete::engine::ArgValueCandidates;
use garonne_trace::overlap::OverlapAnalysis;
use garonne_trace::timeline_reader;

use super::{job_lookup, trace};
use crate::recording::overlap_table::OverlapTable;
use crate::recording::{self, RecordingOutputs};

#[derive(Debug, clap::Args)]
pub struct OverlapArgs {
    /// The job, by its name or its launcher's process id, or a file made by garonne trace; not
    /// needed if one job runs
    #[arg(add = ArgValueCandidates::new(job_lookup::candidates))]
    job: Option<String>,
    /// How long to look at a running job: 5s, 500ms, or seconds
    #[arg(long = "for", value_parser = trace::duration, default_value = "5s")]
    time: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &OverlapArgs) -> i32 {
    match table(args) {
        Ok(table) if args.json => super::print_json(&table.json()),
        Ok(table) => {
            out!("{}", table.text(usize::MAX));
            0
        }
        Err(text) => {
            errln!("error: {text}");
            1
        }
    }
}

fn table(args: &OverlapArgs) -> Result<OverlapTable, String> {
    // A job's name holds no slash; a file's may be one all the same.
    let path = args.job.as_deref().map(Path::new);
    if let Some(path) = path.filter(|path| path.components().count() != 1 || path.is_file()) {
        return of_file(path);
    }
    let job: Option<job_lookup::JobSelector> = args.job.as_deref().map(str::parse).transpose()?;
    let wants = RecordingOutputs {
        timeline: None,
        shares: true,
        traffic: false,
        stream: false,
    };
    let outcome = trace::follow(job.as_ref(), "garonne overlap JOB", Some(args.time), wants)?;
    recording::complain(&outcome);
    outcome.table.ok_or_else(|| "nothing was recorded".into())
}

fn of_file(path: &Path) -> Result<OverlapTable, String> {
    let about = |error: String| format!("{}: {error}", path.display());
    let kind = std::fs::metadata(path)
        .map_err(|error| about(error.to_string()))?
        .file_type();
    if kind.is_char_device() || kind.is_block_device() {
        return Err(about("it is a device, not a file".into()));
    }
    let text = std::fs::read(path).map_err(|error| about(error.to_string()))?;
    let timeline = timeline_reader::read(&text).map_err(about)?;
    let mut analysis = OverlapAnalysis::new(timeline.crowded);
    timeline.seen.iter().for_each(|seen| analysis.see(seen));
    Ok(OverlapTable::new(analysis, timeline.crowded))
}
