//! `garonne trace`: a timeline of a running job, for Perfetto; or the last events of one that ended
//! badly, from their file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap_complete::engine::ArgValueCandidates;
use garonne_inspect::query_client::QueryClient;
use garonne_inspect::trace_reader::{ReadFrom, TraceReader};
use garonne_trace::traffic::TrafficMatrix;

use super::job_lookup;
use crate::flight_recording;
use crate::progress_bar::ProgressBar;
use crate::recording::remote_recording::RemoteRecordings;
use crate::recording::{self, Recording, RecordingOutputs, RecordingResult};

/// Interval at which the ranks are asked to go on. It is several times shorter than the time for
/// which they record unasked, and than [`garonne_job::limits::LOOK_WAIT`], for which another host
/// waits for a word of this one.
const ASK_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
pub struct TraceArgs {
    /// The job, by its name or its launcher's process id (garonne ps), not needed if one job runs;
    /// or a file with the last events of a job that ended badly, which are printed
    #[arg(add = ArgValueCandidates::new(job_lookup::candidates))]
    job: Option<String>,
    /// Where to write the timeline; open it at https://ui.perfetto.dev
    #[arg(short, long, default_value = "garonne-trace.json")]
    output: PathBuf,
    /// Also write what each rank sent each other: lines of SOURCE DESTINATION BYTES, for
    /// garonne run --map-by traffic:FILE
    #[arg(long, value_name = "FILE")]
    traffic: Option<PathBuf>,
    /// How long: 5s, 500ms, or seconds; without it until the job ends
    #[arg(long = "for", value_parser = duration)]
    time: Option<Duration>,
}

/// A time as people write it.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * unit);
    seconds
        .filter(|seconds| (0.001..=86_400.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "a time such as 5s or 500ms".into())
}

pub fn run(args: &TraceArgs) -> i32 {
    // A job's name holds no slash; a file's may be one all the same.
    let path = args.job.as_deref().map(Path::new);
    if let Some(path) = path.filter(|path| path.components().count() != 1 || path.is_file()) {
        return match flight_recording::show(path) {
            Ok(text) => {
                out!("{text}");
                0
            }
            Err(text) => super::fail(&text),
        };
    }
    let job: Option<job_lookup::JobSelector> = match args.job.as_deref().map(str::parse).transpose()
    {
        Ok(job) => job,
        Err(text) => return super::fail(&text),
    };
    if let Err(text) = recording::check_target(&args.output) {
        return super::fail(&text);
    }
    let wants = RecordingOutputs {
        timeline: Some(&args.output),
        shares: false,
        traffic: args.traffic.is_some(),
        stream: false,
    };
    match follow(job.as_ref(), "garonne trace JOB", args.time, wants) {
        Ok(outcome) => {
            recording::complain(&outcome);
            outln!(
                "{} events in {}; open it at https://ui.perfetto.dev",
                outcome.read,
                args.output.display()
            );
            if let Some(path) = &args.traffic
                && let Err(text) = write_traffic(path, outcome.traffic.as_ref())
            {
                return super::fail(&text);
            }
            i32::from(outcome.failed.is_some())
        }
        Err(text) => {
            errln!("error: {text}");
            1
        }
    }
}

/// Writes what was seen of messages between ranks.
fn write_traffic(path: &Path, seen: Option<&TrafficMatrix>) -> Result<(), String> {
    let mut text = String::from("# source destination bytes\n");
    let mut pairs = seen.map(TrafficMatrix::busiest).unwrap_or_default();
    pairs.sort_unstable_by_key(|(pair, _)| *pair);
    for ((from, to), sum) in &pairs {
        // A message without data counts, too.
        let _ = writeln!(text, "{from} {to} {}", sum.bytes.max(sum.messages));
    }
    std::fs::write(path, text)
        .map_err(|error| format!("cannot write '{}': {error}", path.display()))?;
    let others = seen.map(TrafficMatrix::others).unwrap_or_default();
    outln!(
        "traffic of {} pairs of ranks in {}",
        pairs.len(),
        path.display()
    );
    if others.messages > 0 {
        errln!(
            "{} messages of further pairs are not in '{}'",
            others.messages,
            path.display()
        );
    }
    Ok(())
}

/// Traces a running job for this long, or to its end.
/// `line`: see [`job_lookup::choose`].
pub fn follow(
    job: Option<&job_lookup::JobSelector>,
    line: &str,
    time: Option<Duration>,
    wants: RecordingOutputs<'_>,
) -> Result<RecordingResult, String> {
    let client = job_lookup::choose(job, line)?;
    let distant = match client.hosts.len() {
        0 | 1 => None,
        _ => Some(RemoteRecordings::of(&client, time)?),
    };
    record(&client, (ReadFrom::Now, time), wants, distant)
}

/// Records the ranks of this host, and what others tell of theirs.
pub fn record(
    client: &QueryClient,
    (from, time): (ReadFrom, Option<Duration>),
    wants: RecordingOutputs<'_>,
    distant: Option<RemoteRecordings>,
) -> Result<RecordingResult, String> {
    let world = match client.file.as_ref().filter(|_| client.has_ranks_here()) {
        Some(file) => Some(TraceReader::open(file, from).map_err(|error| error.to_string())?),
        // A host that has no rank shows those of others.
        None if distant.is_some() => None,
        None => return Err("no rank of that job has called MPI_Init yet".into()),
    };
    let mut recording = Recording::new((world, client.ranks), wants, distant)?;
    let begun = Instant::now();
    let end = time.map(|time| begun + time);
    let seconds = time.map_or(0, |time| time.as_secs_f64().ceil() as usize);
    let mut progress = (seconds > 1).then(|| ProgressBar::new(seconds));
    let mut told = 0;
    let mut asked: Option<Instant> = None;
    while !recording.is_over()
        && !recording.has_failed()
        && end.is_none_or(|end| Instant::now() < end)
    {
        if asked.is_none_or(|asked| asked.elapsed() > ASK_EVERY) {
            recording.ask();
            asked = Some(Instant::now());
        }
        if let (Some(progress), true) = (&mut progress, begun.elapsed().as_secs() >= told) {
            progress.step("seconds recorded");
            told += 1;
        }
        if !recording.look(false) {
            Recording::pause();
        }
    }
    drop(progress);
    Ok(recording.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!(duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        for wrong in ["", "s", "-1", "5h", "nan", "0"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
