//! `garonne run --trace FILE` and `--overlap`: records a job from its first rank to its last, in a
//! thread of the launcher.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use garonne_agent::join::join_listener::JoinedHosts;
use garonne_agent::launcher::{self, LauncherEvent};
use garonne_inspect::trace_reader::{ReadFrom, TraceReader};
use garonne_job::Result;
use garonne_job::codes;
use garonne_job::job::Job;

use super::USAGE;
use crate::commands::job_lookup;
use crate::flight_recording::FlightRecords;
use crate::recording::overlap_table::SHORT;
use crate::recording::remote_recording::RemoteRecordings;
use crate::recording::{self, Recording, RecordingOutputs, RecordingResult};

/// Traces that the command line asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceOptions {
    /// A file for a timeline.
    pub timeline: Option<PathBuf>,
    /// Print shares per call site at the end.
    pub overlap: bool,
}

impl TraceOptions {
    /// Returns whether anything is to be recorded.
    pub fn is_wanted(&self) -> bool {
        self.timeline.is_some() || self.overlap
    }
}

/// The thread that records, and where it hears of worlds.
type RecorderThread = (
    Sender<OwnedFd>,
    JoinHandle<std::result::Result<RecordingResult, String>>,
);

/// Runs a job, perhaps with hosts that have joined, recorded as wanted. `begun` is called when
/// threads may be started, and `last` hears what the ranks recorded before the job ended badly.
pub fn launch(
    job: &mut Job,
    company: Option<JoinedHosts>,
    tracing: &TraceOptions,
    begun: &mut dyn FnMut(),
    last: &mut FlightRecords,
) -> Result<i32> {
    if !tracing.is_wanted() {
        return launcher::launch(job, company, &mut |event| match event {
            LauncherEvent::Begun => begun(),
            event => last.hear(event),
        });
    }
    let empty = match tracing
        .timeline
        .as_deref()
        .map(ClaimedFile::new)
        .transpose()
    {
        Ok(empty) => empty,
        Err(text) => {
            errln!("error[{}]: {text}", codes::G0211);
            return Ok(USAGE);
        }
    };
    job.traced = true;
    let mut recorder: Option<RecorderThread> = None;
    let code = launcher::launch(job, company, &mut |event| {
        let world = match event {
            LauncherEvent::Begun => return begun(),
            LauncherEvent::World(world) => world,
            event => return last.hear(event),
        };
        let (worlds, _) = recorder.get_or_insert_with(|| {
            let (sender, receiver) = channel();
            let tracing = tracing.clone();
            (
                sender,
                std::thread::spawn(move || record(&receiver, &tracing)),
            )
        });
        // A recorder that is gone has said why.
        let _ = worlds.send(world);
    });
    let whole = match recorder {
        None => {
            errln!("garonne: nothing to trace: no process called MPI_Init");
            empty.iter().for_each(ClaimedFile::leave);
            true
        }
        Some((worlds, thread)) => {
            drop(worlds);
            match thread.join() {
                Ok(Ok(outcome)) => report(&outcome),
                Ok(Err(text)) => {
                    errln!("garonne: {text}");
                    false
                }
                Err(_) => {
                    errln!("garonne: the trace was not finished: its thread failed");
                    false
                }
            }
        }
    };
    code.map(|code| if code == 0 && !whole { UNTRACED } else { code })
}

/// The exit code of a job that succeeded and whose trace could not be written.
const UNTRACED: i32 = 1;

/// A file that can be written, known before the job starts.
struct ClaimedFile {
    path: PathBuf,
    /// The file was not there before.
    new: bool,
}

impl ClaimedFile {
    /// Leaves what is in it alone until there is something to trace.
    fn new(path: &Path) -> std::result::Result<Self, String> {
        recording::check_target(path)?;
        let new = !path.exists();
        let opened = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        opened
            .map_err(|error| format!("cannot write the trace to '{}': {error}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            new,
        })
    }

    /// Nothing was written into it.
    fn leave(&self) {
        if self.new {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Reads all worlds until the launcher says that there is no more.
fn record(
    worlds: &Receiver<OwnedFd>,
    tracing: &TraceOptions,
) -> std::result::Result<RecordingResult, String> {
    let wants = RecordingOutputs {
        timeline: tracing.timeline.as_deref(),
        shares: tracing.overlap,
        traffic: false,
        stream: false,
    };
    let open = |file: OwnedFd| {
        TraceReader::open(&file, ReadFrom::Beginning).map_err(|error| error.to_string())
    };
    let first = open(worlds.recv().map_err(|error| error.to_string())?)?;
    let distant = match first.shape().nodes {
        0 | 1 => None,
        _ => Some(RemoteRecordings::of_all(&job_lookup::named(
            std::process::id(),
        )?)?),
    };
    let ranks = first.shape().size;
    let mut recording = Recording::new((Some(first), ranks), wants, distant)?;
    loop {
        match worlds.try_recv() {
            Ok(world) => recording.add(open(world)?),
            Err(TryRecvError::Disconnected) => return Ok(recording.finish()),
            Err(TryRecvError::Empty) => {}
        }
        if !recording.look(false) {
            Recording::pause();
        }
    }
}

/// Says what came of it. Returns whether the file is whole.
fn report(outcome: &RecordingResult) -> bool {
    recording::complain(outcome);
    if let Some(table) = &outcome.table {
        err!("\n{}", table.text(SHORT));
    }
    outcome.failed.is_none()
}
