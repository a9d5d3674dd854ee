//! Reads what traced ranks record while they do: into a file with a timeline, and into shares per
//! call site.
//!
//! Shared by `garonne trace`, `garonne overlap` and the options of `garonne run`. Each host of a
//! job on several records its own ranks ([`remote_recording`]). One thread takes the records of all
//! ranks in turn, quickly enough that their trace rings are not overwritten. It processes them with
//! a small part of a core while the ranks run, so most of what a quick program makes is processed
//! at its end. What was overwritten all the same is counted and reported. Bounded by the rings,
//! [`BACKLOG`] and [`garonne_trace::limits`].

mod name_lookup;
pub mod overlap_table;
mod recorded_world;
pub mod remote_recording;

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use garonne_inspect::trace_reader::{self, TraceReader};
use garonne_job::layout::RankState;
use garonne_trace::event::{EventKind, TraceEvent};
use garonne_trace::event_stream;
use garonne_trace::overlap::OverlapAnalysis;
use garonne_trace::timeline::Timeline;
use garonne_trace::trace_file::TraceFile;
use garonne_trace::traffic::TrafficMatrix;
use serde_json::json;

use crate::overwrite_check::{TIMELINE, may_replace};

use overlap_table::OverlapTable;
use recorded_world::{RankReading, RecordedWorld};
use remote_recording::RemoteRecordings;

/// Between two looks at trace rings that fill slowly: a chatty rank writes a fraction of one in
/// that time.
const PAUSE: Duration = Duration::from_millis(5);
/// Records found at one look at one rank from which on the next look follows at once.
const BUSY: usize = garonne_trace::limits::RECORDS as usize / 16;

/// Records that may wait to be worked off: 180 MB. Beyond them no more are taken, and the trace
/// rings lose their oldest.
const BACKLOG: usize = 1 << 21;
/// Records that are worked off at each look: a seventh of a core at most, since all cores may be
/// the ranks'.
const BATCH: usize = 500;
/// Records that are processed at each look while a good part of the backlog is used.
const BATCH_WHEN_FULL: usize = 8192;

/// Frames of other hosts that are taken at each look: as many events as are found in a trace ring
/// that fills quickly.
const FRAMES: usize = 4;

struct BacklogEntry {
    /// Index of its world.
    world: usize,
    rank: u32,
    what: RankReading,
}

/// Outputs to make from the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingOutputs<'a> {
    /// A file with a timeline.
    pub timeline: Option<&'a Path>,
    /// Shares per call site.
    pub shares: bool,
    /// How many messages went from whom to whom.
    pub traffic: bool,
    /// Events as frames on standard output, for another host.
    pub stream: bool,
}

/// Recording of a job: takes records of its ranks, and makes the timeline, the overlap table and
/// the traffic matrix. Owned by one thread; call [`Recording::new`], then `look` until it is over,
/// then `finish`.
pub struct Recording {
    worlds: Vec<RecordedWorld>,
    backlog: VecDeque<BacklogEntry>,
    timeline: Option<Timeline>,
    file: Option<TraceFile>,
    analysis: Option<OverlapAnalysis>,
    traffic: Option<TrafficMatrix>,
    stream: Option<event_stream::EventWriter>,
    /// Ranks of other hosts.
    remote: Option<RemoteRecordings>,
    crowded: bool,
    ranks: u32,
    /// When it began.
    begun_ns: u64,
    lost: u64,
    read: u64,
    /// The file could not be written any more.
    failed: Option<String>,
}

/// Results of a recording.
#[derive(Debug, Default)]
pub struct RecordingResult {
    /// Shares, if they were wanted.
    pub table: Option<OverlapTable>,
    /// Messages and bytes between ranks, if they were wanted.
    pub traffic: Option<TrafficMatrix>,
    /// Records read.
    pub read: u64,
    /// Records overwritten before they were read.
    pub lost: u64,
    /// Error of the file, if there was one.
    pub failed: Option<String>,
    /// Lines that say what is missing of other hosts, and how far their clocks went apart.
    pub missing: Vec<String>,
}

/// Looks whether a timeline may be written to this path: nothing but an earlier timeline is
/// overwritten.
///
/// # Errors
/// A line for the user.
pub fn check_target(path: &Path) -> Result<(), String> {
    let shown = path.display();
    match may_replace(path, TIMELINE) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!(
            "'{shown}' is there and is no timeline of garonne: it is not overwritten; name another file for the trace, or remove it first"
        )),
        Err(error) => Err(format!(
            "cannot read '{shown}', where the trace is to go: {error}"
        )),
    }
}

impl Recording {
    /// Begins to read the first world of a job of so many ranks, if this host has any of them.
    /// `remote` brings what other hosts tell of theirs.
    ///
    /// # Errors
    /// A line for the user: the file cannot be made.
    pub fn new(
        (world, ranks): (Option<TraceReader>, u32),
        wants: RecordingOutputs<'_>,
        distant: Option<RemoteRecordings>,
    ) -> Result<Self, String> {
        let crowded = world.as_ref().is_some_and(|world| {
            recorded_world::local_ranks_of(world).len() as u64 * 1000
                >= u64::from(world.shape().cpus_milli)
        });
        let job = world.as_ref().map(|world| world.shape().job.to_string());
        let base_ns = trace_reader::now_ns();
        let file = wants.timeline.map(|path| {
            let mut about = json!({ "made_by": "garonne", "version": env!("CARGO_PKG_VERSION"), "job": job, "ranks": ranks,
                "crowded": crowded, "clock": "CLOCK_MONOTONIC", "base_ns": base_ns });
            if let Some(distant) = &distant {
                about["hosts"] = distant.about();
            }
            TraceFile::create(path, &about).map_err(|error| format!("cannot write {}: {error}", path.display()))
        });
        let mut recording = Self {
            worlds: Vec::new(),
            backlog: VecDeque::new(),
            timeline: wants.timeline.map(|_| {
                let mut timeline = Timeline::new(base_ns, ranks);
                distant
                    .iter()
                    .for_each(|distant| distant.label(&mut timeline));
                timeline
            }),
            file: file.transpose()?,
            analysis: wants.shares.then(|| OverlapAnalysis::new(crowded)),
            traffic: wants.traffic.then(TrafficMatrix::default),
            stream: wants.stream.then(event_stream::EventWriter::default),
            remote: distant,
            crowded,
            ranks: 0,
            begun_ns: base_ns,
            lost: 0,
            read: 0,
            failed: None,
        };
        world.into_iter().for_each(|world| recording.add(world));
        Ok(recording)
    }

    /// Reads another world of the job, too.
    pub fn add(&mut self, traced: TraceReader) {
        let size = traced.shape().size;
        self.worlds.push(RecordedWorld::new(traced, self.ranks));
        self.ranks = self.ranks.saturating_add(size);
    }

    /// Takes what there is, and works off some of what was taken. `last` says that nobody records
    /// any more. Returns whether it is worth looking again at once.
    pub fn look(&mut self, last: bool) -> bool {
        let busy = self.collect(last);
        let some = match self.backlog.len() {
            _ if last => usize::MAX,
            waiting if waiting > BACKLOG / 2 => BATCH_WHEN_FULL,
            _ => BATCH,
        };
        self.process_backlog(some);
        self.hear(last) || busy
    }

    /// Copies the trace rings' new records: quicker than ranks write them.
    fn collect(&mut self, last: bool) -> bool {
        let mut busy = false;
        for (number, world) in self.worlds.iter_mut().enumerate() {
            for rank in world.local_ranks() {
                if self.backlog.len() >= BACKLOG && !last {
                    return true;
                }
                // Asked first: of a rank that is dead all is in its trace ring.
                let has_died = world.has_newly_died(rank);
                let before = self.backlog.len();
                // What was lost came before what is read now, or in its midst.
                let mut put = |what| {
                    self.backlog.push_back(BacklogEntry {
                        world: number,
                        rank,
                        what,
                    })
                };
                let lost = world
                    .reader
                    .read(rank, last, &mut |record| put(RankReading::Record(record)));
                let read = self.backlog.len() - before;
                if lost > 0 {
                    let what = RankReading::Lost(lost);
                    self.backlog.insert(
                        before,
                        BacklogEntry {
                            world: number,
                            rank,
                            what,
                        },
                    );
                }
                if has_died {
                    let what = RankReading::Died(trace_reader::now_ns());
                    self.backlog.push_back(BacklogEntry {
                        world: number,
                        rank,
                        what,
                    });
                }
                busy |= read >= BUSY;
                self.read += read as u64;
                self.lost += lost;
            }
        }
        busy
    }

    /// Makes of at most `most` records what they are wanted for.
    fn process_backlog(&mut self, most: usize) {
        for count in 1..=most {
            let Some(BacklogEntry { world, rank, what }) = self.backlog.pop_front() else {
                break;
            };
            let mut tell = |seen: &TraceEvent| {
                self.timeline
                    .iter_mut()
                    .for_each(|timeline| timeline.see(seen));
                self.analysis
                    .iter_mut()
                    .for_each(|analysis| analysis.see(seen));
                self.traffic
                    .iter_mut()
                    .for_each(|traffic| traffic.see(seen));
                self.stream.iter_mut().for_each(|stream| stream.see(seen));
            };
            if let Some(world) = self.worlds.get_mut(world) {
                world.tell(rank, &what, &mut tell);
            }
            if count.is_multiple_of(BATCH_WHEN_FULL)
                || self
                    .stream
                    .as_ref()
                    .is_some_and(event_stream::EventWriter::is_full)
            {
                self.write();
            }
        }
        self.write();
    }

    /// Ranks that waited all the time have recorded nothing: shows the calls that they are in.
    fn show_waits(&mut self) {
        for world in &mut self.worlds {
            world.show_waits(self.begun_ns, &mut |seen| {
                self.timeline
                    .iter_mut()
                    .for_each(|timeline| timeline.see(seen));
                self.stream.iter_mut().for_each(|stream| stream.see(seen));
            });
        }
    }

    /// Takes some of what other hosts have told; at the end all that they still tell. Whether there
    /// may be more.
    fn hear(&mut self, last: bool) -> bool {
        let Some(mut distant) = self.remote.take() else {
            return false;
        };
        let mut heard = 0;
        while heard < FRAMES || last {
            let mut tell = |seen: TraceEvent| {
                match seen.kind {
                    EventKind::Lost(records) => self.lost += records,
                    _ => self.read += 1,
                }
                self.timeline
                    .iter_mut()
                    .for_each(|timeline| timeline.see(&seen));
                self.analysis
                    .iter_mut()
                    .for_each(|analysis| analysis.see(&seen));
                self.traffic
                    .iter_mut()
                    .for_each(|traffic| traffic.see(&seen));
            };
            if distant.hear(&mut tell) {
                heard += 1;
                self.write();
            } else if last && !distant.is_over() {
                Self::pause();
            } else {
                break;
            }
        }
        self.remote = Some(distant);
        heard >= FRAMES
    }

    /// For another host: what there is, also where that is nothing.
    fn pulse(&mut self) {
        if let Some(stream) = &mut self.stream {
            let frame = stream.close();
            self.tell(&frame);
        }
    }

    fn tell(&mut self, frame: &[u8]) {
        if let Err(error) = remote_recording::write_frame(&mut std::io::stdout(), frame) {
            self.failed = Some(error.to_string());
        }
    }

    fn write(&mut self) {
        if let Some(frame) = self.stream.as_mut().and_then(|stream| stream.take(1)) {
            self.tell(&frame);
        }
        if let (Some(timeline), Some(file)) = (&mut self.timeline, &mut self.file)
            && let Err(error) = file.add(&timeline.take())
        {
            self.failed = Some(error.to_string());
            (self.file, self.timeline) = (None, None);
        }
    }

    /// Returns messages and bytes between ranks so far.
    pub fn traffic(&self) -> Option<&TrafficMatrix> {
        self.traffic.as_ref()
    }

    /// Has the ranks of all worlds go on recording; tells another host that this one goes on.
    pub fn ask(&mut self) {
        self.worlds.iter().for_each(|world| world.reader.ask());
        self.pulse();
    }

    /// Returns whether nobody gets anything of it any more.
    pub fn has_failed(&self) -> bool {
        self.stream.is_some() && self.failed.is_some()
    }

    /// Returns whether no rank can record anything any more.
    pub fn is_over(&self) -> bool {
        let ended = |world: &RecordedWorld, rank| {
            let card = world.reader.rank_block(rank);
            // Who has not come to MPI yet may come, unless the job ends.
            let to_come = || card.pid() == 0 && !world.reader.is_ending();
            let alive = || {
                to_come() || card.pid() != 0 && Path::new(&format!("/proc/{}", card.pid())).exists()
            };
            matches!(card.state(), RankState::Finalized | RankState::Gone) || !alive()
        };
        let near = self
            .worlds
            .iter()
            .all(|world| world.local_ranks().iter().all(|&rank| ended(world, rank)));
        near && self.remote.as_ref().is_none_or(RemoteRecordings::is_over)
    }

    /// A pause as long as the trace rings allow.
    pub fn pause() {
        std::thread::sleep(PAUSE);
    }

    /// Reads the rest and closes what is open.
    pub fn finish(mut self) -> RecordingResult {
        self.look(true);
        self.show_waits();
        if let Some(timeline) = &mut self.timeline {
            timeline.finish(trace_reader::now_ns());
        }
        self.write();
        if let Some(stream) = self.stream.take() {
            self.tell(&stream.finish());
        }
        let missing = self.remote.map_or_else(Vec::new, RemoteRecordings::missing);
        RecordingResult {
            traffic: self.traffic,
            table: self
                .analysis
                .map(|analysis| OverlapTable::new(analysis, self.crowded)),
            read: self.read,
            lost: self.lost,
            failed: self.failed,
            missing,
        }
    }
}

/// Says what of the trace is missing, if something is.
pub fn complain(outcome: &RecordingResult) {
    if let Some(error) = &outcome.failed {
        errln!("garonne: the trace could not be written to its end: {error}");
    }
    for line in &outcome.missing {
        errln!("garonne: {line}");
    }
    if outcome.lost > 0 {
        let all = outcome.read + outcome.lost;
        errln!(
            "garonne: {} of {all} trace events were lost: the ranks were quicker than the reader",
            outcome.lost
        );
    }
}
