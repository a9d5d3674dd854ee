//! From what was seen to the events of a timeline, in the trace event format that Perfetto and
//! Chrome open.
//!
//! A rank is a process; a thread is a track. Its calls, sleeps, progress turns and task runs are
//! slices that nest; what it moves lies within them. Operations, and the work that anybody does for
//! a rank, are asynchronous slices of the rank. A message is an arrow, drawn when both of its ends
//! are known, so none hangs in the air. Slices that are open when their rank dies or the recording
//! ends are closed there. Slices whose end is among lost records are closed where the rank's last
//! event is. Bounded by [`crate::limits`].

use crate::event::{EventKind, MessageId, SharedName, TraceEvent, communicator_of, has_tag};
use crate::limits::{DEPTH, OPEN_OPERATIONS, PENDING_PAIRS_KEPT, SITES, THREADS};
use crate::record::OperationKind;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};

/// Category of MPI calls.
pub const CALL: &str = "mpi";
/// Category of sleeps in them.
pub const SLEEP: &str = "sleep";
/// Category of the collective that a call is.
pub const COLLECTIVE: &str = "collective";
/// Category of a progress thread's turns.
pub const TURN: &str = "helper";
/// Category of moving bytes, by the thread that does it.
pub const WORK: &str = "work";
/// Category of runs of tasks.
pub const TASK: &str = "task";
/// Category of operations.
pub const OPERATION: &str = "operation";
/// Category of what is done for a rank, by whomever.
const FOR_RANK: &str = "for this rank";
/// Category of messages.
const MESSAGE: &str = "message";
/// Category of what concerns the recording.
pub const RECORDING: &str = "recording";

/// Name that messages of collectives have instead of a tag.
pub const INTERNAL_TAG: &str = "internal_tag";

#[derive(Debug)]
struct TrackSlice {
    category: &'static str,
    name: SharedName,
}

#[derive(Debug, Default)]
struct ThreadTrack {
    stack: Vec<TrackSlice>,
    role: ThreadRole,
    named: bool,
}

/// Role of a thread, as far as was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum ThreadRole {
    /// The thread runs tasks, and was not seen to call MPI.
    #[default]
    Worker,
    /// The thread calls MPI.
    Program,
    /// The thread is the rank's progress thread, which runs tasks, too.
    Helper,
}

impl ThreadRole {
    fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Program => "program",
            Self::Helper => "helper",
        }
    }
}

#[derive(Debug)]
struct TimelineOperation {
    side: OperationKind,
    call: SharedName,
    point: TrackPoint,
    /// The operation started within a call that is shown.
    in_slice: bool,
}

#[derive(Debug, Default)]
struct RankTrack {
    threads: HashMap<u32, ThreadTrack>,
    open: HashMap<u64, TimelineOperation>,
    last_ns: u64,
    named: bool,
    /// Names of communicators, by number.
    communicators: HashMap<u32, SharedName>,
}

/// A moment on a track.
#[derive(Clone, Copy, Debug)]
struct TrackPoint {
    rank: u32,
    thread: u32,
    at_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct FlowArrow {
    from: Option<TrackPoint>,
    to: Option<TrackPoint>,
}

/// Turns events into a timeline in the trace event format. Feed it the events of each rank in
/// order, then call [`Timeline::take`] for what is to be written.
#[derive(Debug)]
pub struct Timeline {
    /// Time 0 of the file.
    base_ns: u64,
    /// Ranks of a world.
    size: u32,
    ranks: HashMap<u32, RankTrack>,
    arrows: HashMap<MessageId, FlowArrow>,
    order: VecDeque<MessageId>,
    works: u64,
    flows: u64,
    out: Vec<Value>,
}

impl Timeline {
    /// A timeline whose time begins at `base_ns`, of worlds of `size` ranks each.
    pub fn new(base_ns: u64, size: u32) -> Self {
        Self {
            base_ns,
            size: size.max(1),
            ranks: HashMap::new(),
            arrows: HashMap::new(),
            order: VecDeque::new(),
            works: 0,
            flows: 0,
            out: Vec::new(),
        }
    }

    /// Says on which host a rank is.
    pub fn label(&mut self, rank: u32, host: &str) {
        self.out.push(
            json!({ "ph": "M", "name": "process_labels", "pid": rank, "args": { "labels": host } }),
        );
    }

    /// Microseconds in the file, exact to the nanosecond.
    fn ts(&self, at_ns: u64) -> Value {
        let since = at_ns.saturating_sub(self.base_ns);
        json!(since as f64 / 1000.0)
    }

    fn event(&self, phase: &str, category: &str, name: &str, point: TrackPoint) -> Value {
        json!({ "ph": phase, "cat": category, "name": name, "pid": point.rank, "tid": point.thread, "ts": self.ts(point.at_ns) })
    }

    /// Takes one event, later than those of its rank before.
    pub fn see(&mut self, seen: &TraceEvent) {
        let point = TrackPoint {
            rank: seen.rank,
            thread: seen.thread,
            at_ns: seen.at_ns,
        };
        self.meet(seen);
        match &seen.kind {
            EventKind::Enter { call, site } => {
                self.open(
                    point,
                    CALL,
                    call,
                    json!({ "at": &**site, "core": seen.cpu }),
                );
            }
            EventKind::Leave { call } => self.close(point, CALL, Some(call)),
            EventKind::TurnBegin => self.open(point, TURN, "helper", json!({ "core": seen.cpu })),
            EventKind::TurnEnd => self.close(point, TURN, None),
            EventKind::SleepBegin => self.open(point, SLEEP, "asleep", json!({})),
            EventKind::SleepEnd => self.close(point, SLEEP, None),
            EventKind::Collective { name } => self.open(point, COLLECTIVE, name, json!({})),
            EventKind::Start { .. } => self.start(seen, point),
            EventKind::Done {
                operation,
                message,
                bytes,
            } => self.done(point, *operation, *message, *bytes),
            EventKind::Work { .. } => self.work(seen, point),
            EventKind::Run { since_ns, finished } => {
                let args = json!({ "core": seen.cpu, "finished": finished });
                self.since((TASK, "task"), *since_ns, point, args);
            }
            EventKind::State(state) => {
                let mut event = self.event(
                    "i",
                    RECORDING,
                    &format!("background {}", state.name()),
                    point,
                );
                event["s"] = json!("t");
                event["args"] = json!({ "background": state.name() });
                self.out.push(event);
            }
            EventKind::Lost(records) => self.lost(seen.rank, *records),
            EventKind::Named { number, name } => self.named(seen.rank, *number, name),
            EventKind::Died => self.died(point),
        }
    }

    /// From now on the rank's operations on this communicator bear its name.
    fn named(&mut self, of: u32, number: u32, name: &SharedName) {
        let Some(rank) = self.ranks.get_mut(&of) else {
            return;
        };
        if name.is_empty() {
            // Another communicator has this number now.
            rank.communicators.remove(&number);
        } else if rank.communicators.len() < SITES || rank.communicators.contains_key(&number) {
            rank.communicators.insert(number, name.clone());
        }
    }

    /// Marks the death of a rank, where all that it had begun ends.
    fn died(&mut self, point: TrackPoint) {
        self.cut(point.rank, point.at_ns, "the rank died");
        let name = format!("rank {} died", point.rank % self.size);
        let mut event = self.event("i", RECORDING, &name, point);
        event["s"] = json!("p");
        event["args"] = json!({ "died": true });
        self.out.push(event);
    }

    /// Names ranks and threads when they are first seen.
    fn meet(&mut self, seen: &TraceEvent) {
        let rank = self.ranks.entry(seen.rank).or_default();
        rank.last_ns = rank.last_ns.max(seen.at_ns);
        if !std::mem::replace(&mut rank.named, true) {
            let of = seen.rank;
            let name = match of / self.size {
                0 => format!("rank {of}"),
                world => format!("rank {} of world {}", of % self.size, world + 1),
            };
            self.out.push(
                json!({ "ph": "M", "name": "process_name", "pid": of, "args": { "name": name } }),
            );
            self.out.push(
                json!({ "ph": "M", "name": "process_sort_index", "pid": of, "args": { "sort_index": of } }),
            );
        }
        if matches!(
            seen.kind,
            EventKind::Lost(_) | EventKind::Named { .. } | EventKind::Died
        ) || rank.threads.len() >= THREADS && !rank.threads.contains_key(&seen.thread)
        {
            return;
        }
        let thread = rank.threads.entry(seen.thread).or_default();
        let role = match seen.kind {
            EventKind::Run { .. } => ThreadRole::Worker,
            EventKind::TurnBegin => ThreadRole::Helper,
            _ => ThreadRole::Program,
        };
        let role = role.max(thread.role);
        let changed = std::mem::replace(&mut thread.role, role) != role;
        if !std::mem::replace(&mut thread.named, true) || changed {
            let name = format!("{} {}", role.name(), seen.thread);
            let event = json!({ "ph": "M", "name": "thread_name", "pid": seen.rank, "tid": seen.thread, "args": { "name": name } });
            self.out.push(event);
        }
    }

    fn thread(&mut self, point: TrackPoint) -> Option<&mut ThreadTrack> {
        self.ranks
            .get_mut(&point.rank)?
            .threads
            .get_mut(&point.thread)
    }

    fn open(&mut self, point: TrackPoint, category: &'static str, name: &str, args: Value) {
        let Some(thread) = self
            .thread(point)
            .filter(|thread| thread.stack.len() < DEPTH)
        else {
            return;
        };
        thread.stack.push(TrackSlice {
            category,
            name: name.into(),
        });
        let mut event = self.event("B", category, name, point);
        event["args"] = args;
        self.out.push(event);
    }

    /// Closes the innermost slice of this kind and those within it; nothing if there is none.
    fn close(&mut self, point: TrackPoint, category: &str, name: Option<&str>) {
        let Some(thread) = self.thread(point) else {
            return;
        };
        let fits = |slice: &TrackSlice| {
            slice.category == category && name.is_none_or(|name| *slice.name == *name)
        };
        let Some(depth) = thread.stack.iter().rposition(fits) else {
            return;
        };
        let closed: Vec<TrackSlice> = thread.stack.drain(depth..).collect();
        for slice in closed.iter().rev() {
            let event = self.event("E", slice.category, &slice.name, point);
            self.out.push(event);
        }
    }

    fn start(&mut self, seen: &TraceEvent, point: TrackPoint) {
        let EventKind::Start {
            operation,
            side,
            call,
            site,
            context,
            tag,
            peer,
            bytes,
        } = &seen.kind
        else {
            return;
        };
        let begins = self.in_slice(point);
        let Some(rank) = self.ranks.get_mut(&seen.rank) else {
            return;
        };
        if rank.open.len() >= OPEN_OPERATIONS {
            return;
        }
        let known = TimelineOperation {
            side: *side,
            call: call.clone(),
            point,
            in_slice: begins,
        };
        rank.open.insert(*operation, known);
        let communicator = rank.communicators.get(&communicator_of(*context)).cloned();
        let own = has_tag(*side, *context);
        let side = match side {
            OperationKind::Send => "send",
            OperationKind::Receive => "receive",
            OperationKind::Collective => "collective",
        };
        let mut event = self.event("b", OPERATION, call, point);
        event["id"] = identity(seen.rank, *operation);
        event["args"] = json!({ "side": side, "at": &**site, "context": context, "peer": peer, "bytes": bytes });
        event["args"][if own { "tag" } else { INTERNAL_TAG }] = json!(tag);
        if let Some(communicator) = communicator {
            event["args"]["communicator"] = json!(&*communicator);
        }
        self.out.push(event);
    }

    fn done(&mut self, point: TrackPoint, operation: u64, message: Option<MessageId>, bytes: u64) {
        let known = self
            .ranks
            .get_mut(&point.rank)
            .and_then(|rank| rank.open.remove(&operation));
        let Some(known) = known else { return };
        let mut event = self.event("e", OPERATION, &known.call, point);
        event["id"] = identity(point.rank, operation);
        event["args"] = json!({ "bytes": bytes });
        if let Some(message) = message {
            event["args"]["message"] =
                json!([message.context, message.from, message.to, message.sequence]);
        }
        self.out.push(event);
        let Some(message) = message else { return };
        let bound = match known.side {
            OperationKind::Send => known.in_slice,
            _ => self.in_slice(point),
        };
        if !bound {
            // Its call began before anybody watched, or that record is lost: an arrow there would
            // hang in the air.
            self.arrows.remove(&message);
            return;
        }
        let arrow = self.arrows.entry(message).or_default();
        let fresh = arrow.from.is_none() && arrow.to.is_none();
        match known.side {
            OperationKind::Send => arrow.from = Some(known.point),
            _ => arrow.to = Some(point),
        }
        if let FlowArrow {
            from: Some(from),
            to: Some(to),
        } = *arrow
        {
            self.arrows.remove(&message);
            self.draw(from, to, bytes);
        } else if fresh {
            self.order.push_back(message);
            if self.order.len() > PENDING_PAIRS_KEPT
                && let Some(oldest) = self.order.pop_front()
            {
                self.arrows.remove(&oldest);
            }
        }
    }

    /// Returns whether a slice is open on the point's thread: what viewers bind the end of an arrow
    /// to.
    fn in_slice(&mut self, point: TrackPoint) -> bool {
        self.thread(point)
            .is_some_and(|thread| !thread.stack.is_empty())
    }

    fn draw(&mut self, from: TrackPoint, to: TrackPoint, bytes: u64) {
        self.flows += 1;
        for (phase, point) in [("s", from), ("f", to)] {
            let mut event = self.event(phase, MESSAGE, "message", point);
            event["id"] = json!(self.flows);
            event["args"] = json!({ "bytes": bytes });
            if phase == "f" {
                event["bp"] = json!("e");
            }
            self.out.push(event);
        }
    }

    fn work(&mut self, seen: &TraceEvent, point: TrackPoint) {
        let EventKind::Work {
            operation,
            peer,
            since_ns,
            bytes,
        } = &seen.kind
        else {
            return;
        };
        let rank = self.ranks.get(&seen.rank);
        let thread = rank.and_then(|rank| rank.threads.get(&seen.thread));
        let who = thread
            .map_or(ThreadRole::Program, |thread| thread.role)
            .name();
        let args =
            json!({ "operation": operation, "peer": peer, "bytes": bytes, "core": seen.cpu });
        self.since((WORK, "moves bytes"), *since_ns, point, args);
        for rank in std::iter::once(seen.rank).chain(*peer) {
            self.works += 1;
            let name = match rank == seen.rank {
                true => format!("own {who} moves bytes"),
                false => format!("rank {}'s {who} moves bytes", seen.rank),
            };
            for (phase, at_ns) in [("b", *since_ns), ("e", seen.at_ns)] {
                let at = TrackPoint {
                    rank,
                    at_ns,
                    ..point
                };
                let mut event = self.event(phase, FOR_RANK, &name, at);
                event["id"] = json!(format!("w{}", self.works));
                event["args"] = json!({ "bytes": bytes, "core": seen.cpu, "thread": seen.thread });
                self.out.push(event);
            }
        }
    }

    /// A slice that ends at this point, told when it is over.
    fn since(
        &mut self,
        (category, name): (&str, &str),
        since_ns: u64,
        end: TrackPoint,
        args: Value,
    ) {
        let begin = TrackPoint {
            at_ns: since_ns,
            ..end
        };
        let mut event = self.event("X", category, name, begin);
        event["dur"] = json!(end.at_ns.saturating_sub(since_ns) as f64 / 1000.0);
        event["args"] = args;
        self.out.push(event);
    }

    fn lost(&mut self, of: u32, records: u64) {
        let Some(rank) = self.ranks.get(&of) else {
            return;
        };
        let at_ns = rank.last_ns;
        self.cut(of, at_ns, "not seen");
        let mut event = self.event(
            "i",
            RECORDING,
            &format!("{records} events lost"),
            TrackPoint {
                rank: of,
                thread: 0,
                at_ns,
            },
        );
        event["s"] = json!("p");
        event["args"] = json!({ "lost": records });
        self.out.push(event);
    }

    /// Closes everything of a rank, at this moment or its last event if that is later. `end` says
    /// what is known of it.
    fn cut(&mut self, of: u32, at_ns: u64, end: &str) {
        let Some(rank) = self.ranks.get_mut(&of) else {
            return;
        };
        let at_ns = rank.last_ns.max(at_ns);
        let mut slices = Vec::new();
        for (&thread, known) in &mut rank.threads {
            let point = TrackPoint {
                rank: of,
                thread,
                at_ns,
            };
            slices.extend(known.stack.drain(..).rev().map(|slice| (point, slice)));
        }
        let operations: Vec<_> = rank.open.drain().collect();
        for (point, slice) in slices {
            let mut event = self.event("E", slice.category, &slice.name, point);
            event["args"] = json!({ "end": end });
            self.out.push(event);
        }
        for (operation, known) in operations {
            let at = TrackPoint {
                at_ns,
                ..known.point
            };
            let mut event = self.event("e", OPERATION, &known.call, at);
            event["id"] = identity(of, operation);
            event["args"] = json!({ "end": end });
            self.out.push(event);
        }
    }

    /// Closes what is still open: the recording ended at this moment.
    pub fn finish(&mut self, at_ns: u64) {
        let mut ranks: Vec<u32> = self.ranks.keys().copied().collect();
        ranks.sort_unstable();
        ranks
            .into_iter()
            .for_each(|rank| self.cut(rank, at_ns, "still open"));
    }

    /// The events made since the last time, each a line.
    pub fn take(&mut self) -> String {
        let lines: Vec<String> = self.out.drain(..).map(|event| event.to_string()).collect();
        lines.join(",\n")
    }
}

fn identity(rank: u32, operation: u64) -> Value {
    json!(format!("r{rank}o{operation:x}"))
}

#[cfg(test)]
mod tests;
