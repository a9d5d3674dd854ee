//! Reads a timeline back, as far as shares are computed from it. A file may come from anybody: what
//! is not understood is passed over.

use crate::event::{EventKind, MessageId, ProgressMode, SharedName, TraceEvent};
use crate::record::OperationKind;
use crate::timeline::{CALL, COLLECTIVE, INTERNAL_TAG, OPERATION, RECORDING, WORK};
use crate::trace_file::whole;
use serde_json::Value;

/// A timeline, read.
#[derive(Clone, Debug, Default)]
pub struct ParsedTimeline {
    /// The job's ranks took all its cores.
    pub crowded: bool,
    /// Events of all ranks, each rank's in their order.
    pub seen: Vec<TraceEvent>,
}

/// Reads the text of a file.
///
/// # Errors
/// A line for people: it is no JSON, or no timeline of Garonne's.
pub fn read(text: &[u8]) -> Result<ParsedTimeline, String> {
    let parse = |text: &[u8]| serde_json::from_slice::<Value>(text);
    let file = parse(text).or_else(|error| whole(text).map_or(Err(error), |mended| parse(&mended)));
    let file = file.map_err(|error| format!("it is no JSON: {error}"))?;
    let about = &file["otherData"];
    if about["made_by"] != "garonne" {
        return Err("it was not made by garonne trace".into());
    }
    let events = file["traceEvents"].as_array().ok_or("it has no events")?;
    Ok(ParsedTimeline {
        crowded: about["crowded"] == true,
        seen: events.iter().filter_map(event).collect(),
    })
}

fn word(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

fn name(value: &Value) -> Option<SharedName> {
    value.as_str().map(SharedName::from)
}

/// Nanoseconds of a time in microseconds.
fn ns(value: &Value) -> Option<u64> {
    let ns = (value.as_f64()? * 1000.0).round();
    (ns >= 0.0).then_some(ns as u64)
}

fn operation(event: &Value) -> Option<u64> {
    let (_, name) = event["id"].as_str()?.split_once('o')?;
    u64::from_str_radix(name, 16).ok()
}

fn message(value: &Value) -> Option<MessageId> {
    let part = |index: usize| word(value.get(index)?);
    Some(MessageId {
        context: part(0)?,
        from: part(1)?,
        to: part(2)?,
        sequence: part(3)?,
    })
}

fn event(event: &Value) -> Option<TraceEvent> {
    let args = &event["args"];
    let mut at_ns = ns(&event["ts"])?;
    let what = match (event["cat"].as_str()?, event["ph"].as_str()?) {
        (CALL, "B") => EventKind::Enter {
            call: name(&event["name"])?,
            site: name(&args["at"])?,
        },
        (CALL, "E") => EventKind::Leave {
            call: name(&event["name"])?,
        },
        (COLLECTIVE, "B") => EventKind::Collective {
            name: name(&event["name"])?,
        },
        (OPERATION, "b") => EventKind::Start {
            operation: operation(event)?,
            side: match args["side"].as_str()? {
                "send" => OperationKind::Send,
                "receive" => OperationKind::Receive,
                _ => OperationKind::Collective,
            },
            call: name(&event["name"])?,
            site: name(&args["at"])?,
            context: word(&args["context"])?,
            tag: i32::try_from(args["tag"].as_i64().or(args[INTERNAL_TAG].as_i64())?).ok()?,
            peer: word(&args["peer"]),
            bytes: args["bytes"].as_u64()?,
        },
        (OPERATION, "e") => EventKind::Done {
            operation: operation(event)?,
            message: message(&args["message"]),
            bytes: args["bytes"].as_u64()?,
        },
        (WORK, "X") => {
            let since_ns = at_ns;
            at_ns = at_ns.saturating_add(ns(&event["dur"])?);
            EventKind::Work {
                operation: args["operation"].as_u64()?,
                peer: word(&args["peer"]),
                since_ns,
                bytes: args["bytes"].as_u64()?,
            }
        }
        (RECORDING, "i") => match (args["background"].as_str(), args["lost"].as_u64()) {
            (Some(state), _) => EventKind::State(ProgressMode::from_name(state)),
            (None, Some(records)) => EventKind::Lost(records),
            _ => return None,
        },
        _ => return None,
    };
    Some(TraceEvent {
        rank: word(&event["pid"])?,
        thread: word(&event["tid"])?,
        cpu: 0,
        at_ns,
        kind: what,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlap::OverlapAnalysis;
    use crate::timeline;
    use serde_json::json;

    fn story() -> Vec<TraceEvent> {
        let at = |rank: u32, at_ns: u64, what: EventKind| TraceEvent {
            rank,
            thread: 7 + rank,
            cpu: 0,
            at_ns,
            kind: what,
        };
        let (call, site): (SharedName, SharedName) = ("MPI_Irecv".into(), "halo.c:66".into());
        let message = MessageId {
            context: 0,
            from: 0,
            to: 1,
            sequence: 0,
        };
        let start = EventKind::Start {
            operation: 1 << 32 | 5,
            side: OperationKind::Receive,
            call: call.clone(),
            site: site.clone(),
            context: 0,
            tag: -1,
            peer: None,
            bytes: 1 << 20,
        };
        let blocking = EventKind::Start {
            operation: 6,
            side: OperationKind::Send,
            call: "MPI_Send".into(),
            site: "halo.c:58".into(),
            context: 0,
            tag: 1,
            peer: Some(1),
            bytes: 1 << 20,
        };
        let sent = EventKind::Done {
            operation: 6,
            message: Some(message),
            bytes: 1 << 20,
        };
        let pushed = EventKind::Work {
            operation: 6,
            peer: Some(1),
            since_ns: 55_000,
            bytes: 4,
        };
        let work = EventKind::Work {
            operation: 1 << 32 | 5,
            peer: Some(0),
            since_ns: 20_001,
            bytes: 1 << 20,
        };
        let done = EventKind::Done {
            operation: 1 << 32 | 5,
            message: Some(message),
            bytes: 1 << 20,
        };
        vec![
            at(1, 900, EventKind::State(ProgressMode::Off)),
            at(
                1,
                1000,
                EventKind::Enter {
                    call: call.clone(),
                    site,
                },
            ),
            at(1, 1001, start),
            at(1, 2000, EventKind::Leave { call }),
            at(1, 50_003, work),
            at(1, 60_000, done),
            // The other side is a blocking call's, which has no row of its own.
            at(0, 1500, blocking),
            at(0, 56_000, pushed),
            at(0, 70_000, sent),
            at(0, 70_001, EventKind::Lost(3)),
        ]
    }

    #[test]
    fn a_timeline_gives_the_shares_that_what_was_seen_gave() {
        let (mut live, mut shown, mut again) = (
            OverlapAnalysis::new(true),
            timeline::Timeline::new(0, 2),
            OverlapAnalysis::new(true),
        );
        for seen in story() {
            live.see(&seen);
            shown.see(&seen);
        }
        let file = format!(
            "{{\"otherData\":{{\"made_by\":\"garonne\",\"crowded\":true}},\"traceEvents\":[{}]}}",
            shown.take()
        );
        let read = read(file.as_bytes()).unwrap();
        assert!(read.crowded);
        read.seen.iter().for_each(|seen| again.see(seen));
        assert_eq!(again.lost, live.lost);
        let rows = live.finish();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows.values().next().unwrap().moving_ns, 31_002);
        assert_eq!(again.finish(), rows);
    }

    #[test]
    fn what_is_no_timeline_is_said_and_what_is_strange_is_passed_over() {
        assert!(read(b"[").unwrap_err().contains("no JSON"));
        assert!(read(b"{}").unwrap_err().contains("not made by"));
        let strange = json!({ "otherData": { "made_by": "garonne" }, "traceEvents": [3, {}, { "ph": "X", "cat": "work", "ts": -1, "dur": "x" },
            { "ph": "e", "cat": "operation", "id": "roz", "ts": 1e300, "args": { "message": [1] } }] });
        assert_eq!(read(strange.to_string().as_bytes()).unwrap().seen, []);
    }
}
