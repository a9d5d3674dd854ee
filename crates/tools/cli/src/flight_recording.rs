//! The file with the last events of a job's ranks: what ranks recorded before the job ended badly.
//!
//! The file is a timeline in the trace event format, for viewers. Its times only say in which order
//! each rank's events came, because nothing that ranks record all the time has a clock. `otherData`
//! holds the same for [`show`], which prints it. Bounded: [`EVENTS`] events of a rank, as many
//! small sends of each of its streams, and the ranks that the agent hands over.

use std::collections::HashMap;
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use garonne_agent::launcher;
use garonne_engine::observe::events::{Event, EventKind};
use garonne_engine::observe::post_mortem::RecordedEvents;
use garonne_inspect::flight_recording::{self, FlightRecording};
use garonne_job::bounded_read;
use garonne_job::call_names;
use garonne_job::printable::line;
use garonne_sites::SymbolResolver;
use garonne_trace::event::{communicator_of, has_tag};
use garonne_trace::trace_file::TraceFile;
use serde_json::{Value, json};

use crate::overwrite_check::{TIMELINE, may_replace};

/// Events of a rank.
const EVENTS: usize = 100;

/// Files of other kinds that may stand in the way, before another directory is tried.
const NAMES: usize = 10;

/// Bytes of a file that is shown: many times what the most ranks write.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Value of `otherData.kind` in such a file.
const KIND: &str = "last events";

/// Records that the agent has handed over. Give it each event of the launcher with `hear`, then
/// call `write` once.
#[derive(Debug, Default)]
pub struct FlightRecords {
    remains: Option<(FlightRecording, Option<u32>)>,
    ranks: Vec<(u32, u32, OwnedFd)>,
}

impl FlightRecords {
    /// Takes what an event of the launcher brings, if it brings something.
    pub fn hear(&mut self, event: launcher::LauncherEvent) {
        match event {
            launcher::LauncherEvent::Remains { world, rank } => {
                self.remains = FlightRecording::open(world)
                    .ok()
                    .map(|remains| (remains, rank));
            }
            launcher::LauncherEvent::Recorder {
                rank,
                process,
                file,
            } => self.ranks.push((rank, process, file)),
            launcher::LauncherEvent::Begun | launcher::LauncherEvent::World(_) => {}
        }
    }

    /// Writes a file for the job of this name; where it is. `None`: there is nothing to write.
    ///
    /// # Errors
    /// A line for the user.
    pub fn write(mut self, job: &str) -> Option<Result<PathBuf, String>> {
        let (remains, blamed) = self.remains?;
        self.ranks.sort_by_key(|(rank, ..)| *rank);
        let mut places = SymbolResolver::default();
        let ranks: Vec<Value> = self
            .ranks
            .iter()
            .filter_map(|(rank, process, file)| {
                let recorded = flight_recording::read(file, EVENTS)?;
                let mut names = PlaceNames {
                    places: &mut places,
                    known: HashMap::new(),
                    process: *process,
                    objects: remains.objects(*rank),
                };
                Some(rank_value(
                    (*rank, *process),
                    &recorded,
                    &remains,
                    &mut names,
                ))
            })
            .collect();
        if ranks.is_empty() {
            return None;
        }
        let shape = remains.shape();
        let about = json!({ "made_by": "garonne", "version": env!("CARGO_PKG_VERSION"), "kind": KIND, "job": job,
            "ranks": shape.size, "hosts": shape.nodes, "blamed": blamed, "clock": "none: the order of each rank's events",
            "last": ranks });
        Some(written(job, &about))
    }
}

fn written(job: &str, about: &Value) -> Result<PathBuf, String> {
    let here = target(Path::new("."), job).and_then(|path| make(path, about));
    here.or_else(|error| {
        let elsewhere = target(&std::env::temp_dir(), job).and_then(|path| make(path, about));
        elsewhere.map_err(|_| error)
    })
}

/// A path in this directory where there is no file, or an earlier one of this kind.
fn target(directory: &Path, job: &str) -> Result<PathBuf, String> {
    let names = (0..NAMES).map(|count| match count {
        0 => format!("garonne-{job}.trace"),
        count => format!("garonne-{job}-{count}.trace"),
    });
    let mut paths = names.map(|name| match directory == Path::new(".") {
        true => PathBuf::from(name),
        false => directory.join(name),
    });
    paths
        .find(|path| !path.is_symlink() && may_replace(path, TIMELINE).unwrap_or(false))
        .ok_or_else(|| "files of other kinds have its names".into())
}

fn make(path: PathBuf, about: &Value) -> Result<PathBuf, String> {
    let made = TraceFile::create(&path, about).and_then(|mut file| file.add(&viewer_events(about)));
    made.map(|()| path).map_err(|error| error.to_string())
}

/// The names of one rank's places.
struct PlaceNames<'a> {
    places: &'a mut SymbolResolver,
    known: HashMap<u64, String>,
    process: u32,
    objects: String,
}

impl PlaceNames<'_> {
    fn place(&mut self, address: u64) -> String {
        let (places, process, objects) = (&mut *self.places, self.process, &self.objects);
        let place = self.known.entry(address);
        place
            .or_insert_with(|| places.describe(process, objects, address))
            .clone()
    }
}

fn call_name(number: u16) -> Option<&'static str> {
    call_names::name(number.into()).filter(|_| number != 0)
}

fn communicator(context: u32) -> String {
    match communicator_of(context) {
        0 => "MPI_COMM_WORLD".into(),
        1 => "MPI_COMM_SELF".into(),
        number => format!("comm #{number}"),
    }
}

fn what(what: EventKind) -> &'static str {
    match what {
        EventKind::Nothing => "nothing",
        EventKind::Send => "sends",
        EventKind::Recv => "posts a receive",
        EventKind::Match => "a message meets its receive",
        EventKind::Unexpected => "a message comes that nobody has asked for yet",
        EventKind::Blocked => "a send waits for room or credit",
        EventKind::Move => "a large message begins to move",
        EventKind::Complete => "an operation is over",
        EventKind::Gone => "a peer is gone",
        EventKind::ProtocolError => "a peer broke the format",
        EventKind::ReadyRecv => "receives what lay ready",
    }
}

fn event_value((number, event): &(u64, Event), names: &mut PlaceNames<'_>) -> Value {
    let own = has_tag(garonne_trace::record::OperationKind::Send, event.context);
    json!({ "number": number, "what": what(event.kind), "call": call_name(event.call),
        "at": (event.site != 0).then(|| names.place(event.site)), "peer": event.peer,
        "tag": own.then_some(event.tag), "communicator": communicator(event.context), "bytes": event.len })
}

fn rank_value(
    (rank, process): (u32, u32),
    recorded: &RecordedEvents,
    remains: &FlightRecording,
    names: &mut PlaceNames<'_>,
) -> Value {
    let latest = remains.latest(rank);
    let calls: Vec<Value> = latest
        .iter()
        .map(|(site, call)| json!({ "call": call.and_then(call_name), "at": names.place(*site) }))
        .collect();
    let waits = remains.wait(rank).map(|wait| {
        json!({ "call": call_names::name(wait.call), "at": names.place(wait.site), "peer": u32::try_from(wait.peer).ok(),
            "communicator": communicator(wait.comm as u32) })
    });
    let events: Vec<Value> = recorded
        .events
        .iter()
        .map(|event| event_value(event, names))
        .collect();
    let mut small = Vec::new();
    for stream in &recorded.small {
        let mut sends = Vec::new();
        for send in &stream.list {
            sends.push(
                json!({ "number": send.number, "call": call_name(send.origin.call),
                "at": names.place(send.origin.site), "tag": send.tag, "bytes": send.len }),
            );
        }
        small.push(json!({ "peer": stream.peer, "communicator": communicator(stream.context), "sent": stream.sent, "sends": sends }));
    }
    json!({ "rank": rank, "process": process, "calls": calls, "waits": waits, "events": events, "small": small })
}

/// A list in a file, which may be anybody's.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A text in a file, as it may be printed.
fn text(value: &Value) -> Option<String> {
    value.as_str().map(line)
}

fn headline(event: &Value) -> String {
    let call = text(&event["call"]);
    let what = text(&event["what"]).unwrap_or_else(|| "sends".into());
    call.map_or(what.clone(), |call| format!("{call} {what}"))
}

/// Events for viewers: slices of one unit each, in order.
fn viewer_events(about: &Value) -> String {
    let mut out = Vec::new();
    for rank in list(&about["last"]) {
        let (pid, process) = (&rank["rank"], &rank["process"]);
        let name = format!("rank {pid}");
        out.push(
            json!({ "ph": "M", "name": "process_name", "pid": pid, "args": { "name": name } }),
        );
        let mut track = |tid: Value, name: String, events: &[Value]| {
            out.push(
                json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": { "name": name } }),
            );
            for (place, event) in events.iter().enumerate() {
                out.push(json!({ "ph": "X", "cat": KIND, "name": headline(event), "pid": pid, "tid": tid, "ts": place,
                    "dur": 1, "args": event }));
            }
        };
        track(process.clone(), "last events".into(), list(&rank["events"]));
        for (stream, sends) in list(&rank["small"]).iter().enumerate() {
            let to = text(&sends["communicator"]).unwrap_or_default();
            let name = format!("small sends to process {} in {to}", sends["peer"]);
            track(json!(stream + 1), name, list(&sends["sends"]));
        }
    }
    let lines: Vec<String> = out.iter().map(Value::to_string).collect();
    lines.join(",\n")
}

/// The text of a file with last events.
///
/// # Errors
/// A line for the user: it cannot be read, or is none.
pub fn show(path: &Path) -> Result<String, String> {
    let about = |error: String| format!("{}: {error}", path.display());
    let bytes =
        bounded_read::read(path, FILE_BYTES_MAX).map_err(|error| about(error.to_string()))?;
    let file: Value =
        serde_json::from_slice(&bytes).map_err(|error| about(format!("it is no JSON: {error}")))?;
    let data = &file["otherData"];
    match (data["made_by"].as_str(), data["kind"].as_str()) {
        (Some("garonne"), Some(KIND)) => Ok(text_of(data)),
        (Some("garonne"), _) => Err(about(
            "it is a timeline: open it at https://ui.perfetto.dev, or see garonne overlap FILE"
                .into(),
        )),
        _ => Err(about("it was not made by garonne".into())),
    }
}

fn text_of(data: &Value) -> String {
    let mut out = String::new();
    let last = list(&data["last"]);
    let job = text(&data["job"]).unwrap_or_default();
    let _ = writeln!(
        out,
        "job {job}: last events of {} of {} ranks",
        last.len(),
        data["ranks"]
    );
    if data["hosts"].as_u64().is_some_and(|hosts| hosts > 1) {
        let _ = writeln!(
            out,
            "ranks of other hosts than the launcher's are not in this file"
        );
    }
    for rank in last {
        let blamed = match rank["rank"] == data["blamed"] {
            true => ", which the job failed by",
            false => "",
        };
        let _ = writeln!(
            out,
            "\nrank {} (process {}){blamed}",
            rank["rank"], rank["process"]
        );
        for call in list(&rank["calls"]) {
            let name = text(&call["call"]).unwrap_or_else(|| "a small message".into());
            let at = text(&call["at"]).unwrap_or_default();
            let _ = writeln!(out, "  in or after {name} at {at}");
        }
        let waits = &rank["waits"];
        if waits.is_object() {
            let name = text(&waits["call"]).unwrap_or_else(|| "a call of MPI".into());
            let at = text(&waits["at"]).unwrap_or_default();
            let of = waits["peer"]
                .as_u64()
                .map_or(String::new(), |peer| format!(" for process {peer}"));
            let _ = writeln!(out, "  waited{of} in {name} at {at}");
        }
        for event in list(&rank["events"]) {
            let _ = writeln!(out, "  {}", event_line(event));
        }
        for stream in list(&rank["small"]) {
            let comm = text(&stream["communicator"]).unwrap_or_default();
            let peer = &stream["peer"];
            let _ = writeln!(
                out,
                "  small sends to process {peer} in {comm} (how they and the events above follow each other is not recorded)"
            );
            for send in list(&stream["sends"]) {
                let _ = writeln!(out, "    {}", event_line(send));
            }
        }
    }
    out
}

fn event_line(event: &Value) -> String {
    let mut line = format!("#{} {}:", event["number"], headline(event));
    if let Some(peer) = event["peer"].as_u64() {
        let name = match peer {
            peer if peer == u64::from(u32::MAX) => "any process".into(),
            peer => format!("process {peer}"),
        };
        let _ = write!(line, " {name},");
    }
    if let Some(tag) = event["tag"].as_i64() {
        let _ = write!(line, " tag {tag},");
    }
    let _ = write!(line, " {} B", event["bytes"]);
    if let Some(comm) = text(&event["communicator"]) {
        let _ = write!(line, ", {comm}");
    }
    if let Some(at) = text(&event["at"]) {
        let _ = write!(line, "   at {at}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> Value {
        json!({ "made_by": "garonne", "kind": KIND, "job": "a\u{1b}b", "ranks": 3, "hosts": 2, "blamed": 1, "last": [{
            "rank": 1, "process": 77, "calls": [{ "call": "MPI_Recv", "at": "x.c:4" }],
            "waits": { "call": "MPI_Recv", "at": "x.c:4", "peer": 0 },
            "events": [{ "number": 9, "what": "sends", "call": "MPI_Isend", "at": "x.c:3", "peer": 0, "tag": 7,
                "communicator": "MPI_COMM_WORLD", "bytes": 80 }],
            "small": [{ "peer": 2, "communicator": "comm #3", "sent": 6,
                "sends": [{ "number": 5, "call": "MPI_Send", "at": "x.c:2", "tag": 1, "bytes": 8 }] }] }] })
    }

    #[test]
    fn a_file_is_shown_as_it_was_written_and_replaces_only_its_like() {
        let directory =
            std::env::temp_dir().join(format!("garonne-last-events-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("garonne-j.trace"), "mine").unwrap();
        for _ in 0..2 {
            let path = make(target(&directory, "j").unwrap(), &about()).unwrap();
            assert_eq!(path, directory.join("garonne-j-1.trace"));
            let shown = show(&path).unwrap();
            for words in [
                "job a b: last events of 1 of 3 ranks",
                "ranks of other hosts than the launcher's are not in this file",
                "rank 1 (process 77), which the job failed by",
                "in or after MPI_Recv at x.c:4",
                "waited for process 0 in MPI_Recv at x.c:4",
                "#9 MPI_Isend sends: process 0, tag 7, 80 B, MPI_COMM_WORLD   at x.c:3",
                "small sends to process 2 in comm #3",
                "#5 MPI_Send sends: tag 1, 8 B   at x.c:2",
            ] {
                assert!(shown.contains(words), "{words} in {shown}");
            }
            let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            assert_eq!(file["traceEvents"].as_array().unwrap().len(), 6);
        }
        assert!(
            show(&directory.join("garonne-j.trace"))
                .unwrap_err()
                .contains("no JSON")
        );
        std::fs::write(
            directory.join("other"),
            "{\"otherData\":{\"made_by\":\"garonne\"}}",
        )
        .unwrap();
        assert!(
            show(&directory.join("other"))
                .unwrap_err()
                .contains("a timeline")
        );
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn any_values_are_shown_without_harm() {
        for data in [
            json!({}),
            json!({ "last": [3, {}, { "events": [1, {}], "small": [{ "sends": "x" }] }] }),
        ] {
            text_of(&data);
            viewer_events(&data);
        }
    }
}
