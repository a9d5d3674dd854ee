//! Lines of a trace: the machine, then what happens in the order of time.

use serde::{Deserialize, Serialize};

use crate::bubble::{BubbleId, Entity};
use crate::machine::{Machine, Place, PlaceId};
use crate::record::Record;
use crate::view::View;

/// Version of the trace's format; `docs/reference/bubble-trace.md` describes it.
pub const TRACE_VERSION: u32 = 1;

/// A line of a trace, as JSON an object with one member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceLine {
    /// The first line.
    Machine(TraceHead),
    /// A bubble or thread was made.
    New {
        /// When, in nanoseconds.
        at: u64,
        /// The bubble or thread.
        entity: Entity,
        /// The bubble around it.
        parent: Option<BubbleId>,
        /// Name for people.
        name: String,
    },
    /// A bubble or thread has a new position.
    Move(Record),
}

/// The first line of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceHead {
    /// Version of the format.
    pub version: u32,
    /// What was recorded, in words.
    pub title: String,
    /// Places by number; the whole machine is the last.
    pub places: Vec<Place>,
    /// CPU number and core of each processor.
    pub processors: Vec<(u32, PlaceId)>,
}

impl TraceHead {
    /// The first line of a trace on a machine.
    pub fn new(machine: &Machine, title: String) -> Self {
        let place = |place| machine.place(place).cloned();
        let processors = machine.processors();
        Self {
            version: TRACE_VERSION,
            title,
            places: machine.places().filter_map(place).collect(),
            processors: processors
                .map(|processor| (machine.cpu(processor), machine.leaf(processor)))
                .collect(),
        }
    }
}

/// Makes lines of records, with one for each new bubble and thread before its first position.
#[derive(Clone, Debug, Default)]
pub struct TraceLines {
    bubbles: u32,
    threads: u32,
}

impl TraceLines {
    /// The lines of records that a framework has made, in their order.
    pub fn of(&mut self, records: Vec<Record>, view: &View) -> Vec<TraceLine> {
        let mut lines = Vec::with_capacity(records.len());
        for record in records {
            // Numbers are given in order, so an unknown one is the next.
            let (known, number) = match record.entity {
                Entity::Bubble(bubble) => (&mut self.bubbles, bubble.0),
                Entity::Thread(thread) => (&mut self.threads, thread.0),
            };
            if number >= *known {
                *known = number + 1;
                lines.push(TraceLine::New {
                    at: record.at,
                    entity: record.entity,
                    parent: view.parent(record.entity),
                    name: view.attributes(record.entity).name.clone(),
                });
            }
            lines.push(TraceLine::Move(record));
        }
        lines
    }
}
