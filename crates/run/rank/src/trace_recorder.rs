//! What this rank records while somebody traces it: a trace ring in the world's shared memory,
//! which outlives the process.
//!
//! Owned by the rank. Nothing is recorded, and none of this memory but the notes about the program
//! touched, until the board asks for it (`TraceRecorder::is_wanted`): a word that is not zero,
//! and a time until which it counts. Whoever traces moves that time on, so a tracer that was killed
//! is forgotten by itself. Called by any thread of the rank; never waits. Bounded by the ring
//! ([`garonne_trace::limits::RECORDS`]).

use std::cell::Cell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use garonne_engine::api::{CallOrigin, ContextId, Peer};
use garonne_engine::observe::tracer::{OperationTracer, TracedKind, TracedOperation};
use garonne_progress::tasks::{RunOutcome, RunWatcher};
use garonne_sync::shm::{Segment, SharedWord};
use garonne_sync::trace_ring;
use garonne_trace::record::{OperationKind, Record, RecordKind};

use crate::client::AgentClient;
use crate::loaded_objects;
use garonne_job::layout;
use garonne_job::limits::FRUITLESS_RUN_NS;
use garonne_job::wait_report::WaitReport;
use garonne_links::sys;

/// Request to the recorder, as the world's memory says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceRequest {
    /// Nothing is to be recorded.
    No,
    /// All is.
    Yes,
}

/// Records calls and events of this rank while somebody traces it.
#[derive(Debug)]
pub struct TraceRecorder {
    client: Arc<AgentClient>,
    /// Wait report with the names of the rank's communicators.
    book: &'static WaitReport,
    word: SharedWord,
    on: AtomicBool,
    /// Notes and journal.
    area: OnceLock<(Segment, Segment)>,
    switching: Mutex<()>,
}

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// The calling thread's id in the system.
fn thread() -> u32 {
    THREAD.with(|known| {
        if known.get() == 0 {
            known.set(rustix::thread::gettid().as_raw_nonzero().get() as u32);
        }
        known.get()
    })
}

impl TraceRecorder {
    /// The tracer of the rank that `client` registered, with the book that the rank shows.
    pub fn new(client: Arc<AgentClient>, book: &'static WaitReport) -> Self {
        Self {
            word: client.world_memory().word(layout::TRACE_WORD),
            client,
            book,
            on: AtomicBool::new(false),
            area: OnceLock::new(),
            switching: Mutex::new(()),
        }
    }

    /// The word that is not zero while somebody may be tracing.
    pub fn word(&self) -> &AtomicU32 {
        &self.word
    }

    /// Returns whether it records.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// Leaves word of this process, which may be killed at any moment.
    pub fn publish_program(&self) {
        if let Some((notes, _)) = self.area() {
            loaded_objects::write(notes);
        }
    }

    /// Returns whether somebody traces at the moment `now`. A word that nobody answers for any more
    /// is cleared.
    pub fn wanted(&self, now: u64) -> TraceRequest {
        let seen = self.word.load(Acquire);
        let until: &AtomicU64 = layout::trace_until(self.client.board_ref());
        if seen == 0 {
            return TraceRequest::No;
        }
        if until.load(Acquire) >= now {
            return TraceRequest::Yes;
        }
        // A tracer that comes at this moment stores its time before its word, which is another one
        // then.
        let _ = self.word.compare_exchange(seen, 0, AcqRel, Relaxed);
        TraceRequest::No
    }

    /// Begins or ceases to record. `change` switches what else there is to switch, and is called
    /// only if something changes, by one thread at a time.
    pub fn switch(&self, on: bool, change: impl FnOnce()) {
        let _one = self
            .switching
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if self.is_on() == on {
            return;
        }
        if on {
            let Some((notes, _)) = self.area() else {
                return;
            };
            loaded_objects::write(notes);
            self.on.store(true, Relaxed);
            for (number, name) in self.book.names() {
                self.named(number, &name);
            }
            change();
        } else {
            change();
            self.on.store(false, Relaxed);
        }
    }

    /// Notes and journal; `None` where they cannot be mapped.
    fn area(&self) -> Option<&(Segment, Segment)> {
        if let Some(area) = self.area.get() {
            return Some(area);
        }
        let mapped = self.client.map_own_trace().ok()?;
        let notes = mapped.part(0, layout::NOTES_BYTES);
        let journal = mapped.part(layout::NOTES_BYTES, layout::TRACE_RING.bytes());
        Some(self.area.get_or_init(|| (notes, journal)))
    }

    /// Writes a record, with thread and core, and with the time if it has none.
    fn write(&self, record: Record) {
        if let Some((_, journal)) = self.area.get().filter(|_| self.is_on()) {
            let at_ns = if record.at_ns == 0 {
                sys::monotonic_ns()
            } else {
                record.at_ns
            };
            let record = Record {
                at_ns,
                thread: thread(),
                cpu: rustix::thread::sched_getcpu() as u16,
                ..record
            };
            trace_ring::write(journal, layout::TRACE_RING, &record.encode());
        }
    }

    /// The thread entered a call at the moment `now`.
    pub fn enter(&self, origin: CallOrigin, now: u64) {
        self.write(Record {
            at_ns: now,
            call: origin.call,
            site: origin.site,
            ..Record::new(RecordKind::Enter)
        });
    }

    /// Records that the thread leaves a call.
    pub fn leave(&self, call: u16) {
        self.write(Record {
            call,
            ..Record::new(RecordKind::Leave)
        });
    }

    /// A communicator of this number has this name from now on.
    pub fn named(&self, number: u32, name: &str) {
        if self.is_on() {
            Record::named(number, name).for_each(|record| self.write(record));
        }
    }

    /// Something that a kind alone tells.
    pub fn note(&self, kind: RecordKind) {
        if self.is_on() {
            self.write(Record::new(kind));
        }
    }
}

/// Returns the record of an operation: none where no call asked for it, as for the messages by
/// which ranks found communicators or agree on a place for collectives.
fn about(kind: RecordKind, operation: &TracedOperation) -> Option<Record> {
    if operation.origin.call == 0 {
        return None;
    }
    Some(Record {
        operation_kind: match operation.does {
            TracedKind::Send => OperationKind::Send,
            TracedKind::Receive => OperationKind::Receive,
            TracedKind::Collective => OperationKind::Collective,
        },
        call: operation.origin.call,
        site: operation.origin.site,
        peer: operation.peer.unwrap_or(u32::MAX),
        context: operation.context,
        tag: operation.tag,
        sequence: operation.sequence,
        len: operation.bytes,
        operation: operation.name,
        ..Record::new(kind)
    })
}

impl RunWatcher for TraceRecorder {
    fn moment(&self) -> u64 {
        sys::monotonic_ns()
    }

    fn ran(&self, since: u64, step: RunOutcome) {
        let at_ns = sys::monotonic_ns();
        let took = at_ns.saturating_sub(since);
        // A task that polls would fill the journal with runs that found nothing.
        if step == RunOutcome::Again && took < FRUITLESS_RUN_NS {
            return;
        }
        self.write(Record {
            at_ns,
            site: took,
            len: u64::from(step == RunOutcome::Done),
            ..Record::new(RecordKind::Run)
        });
    }
}

impl OperationTracer for TraceRecorder {
    fn now(&self) -> u64 {
        sys::monotonic_ns()
    }

    fn started(&self, operation: &TracedOperation) {
        about(RecordKind::Start, operation)
            .into_iter()
            .for_each(|record| self.write(record));
    }

    fn over(&self, operation: &TracedOperation) {
        about(RecordKind::Done, operation)
            .into_iter()
            .for_each(|record| self.write(record));
    }

    fn moved(&self, name: u64, peer: Option<Peer>, bytes: u64, since: u64) {
        let at_ns = sys::monotonic_ns();
        self.write(Record {
            at_ns,
            site: at_ns.saturating_sub(since),
            peer: peer.unwrap_or(u32::MAX),
            len: bytes,
            operation: name,
            ..Record::new(RecordKind::Work)
        });
    }

    fn collective(&self, context: ContextId, tag: i32) {
        self.write(Record {
            context,
            tag,
            ..Record::new(RecordKind::Collective)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_no_call_asked_for_are_nobodys() {
        let mut operation = TracedOperation {
            name: 1,
            does: TracedKind::Send,
            peer: Some(1),
            context: 2,
            tag: 0,
            sequence: 0,
            bytes: 16,
            origin: CallOrigin::default(),
        };
        for kind in [RecordKind::Start, RecordKind::Done] {
            operation.origin.call = 0;
            assert_eq!(about(kind, &operation), None);
            operation.origin.call = 7;
            assert_eq!(about(kind, &operation).map(|record| record.call), Some(7));
        }
    }
}
