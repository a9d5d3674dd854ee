//! Threads that poll: they repeat `MPI_Test`, `MPI_Iprobe` or another nonblocking call. Their calls
//! are published for `garonne who` and `garonne top`, as a blocking wait would be.
//!
//! A thread counts its unsuccessful polls. The thread reads the clock and publishes its calls only
//! at counts that are powers of two. The next few polls are published, too, since a loop may poll
//! by several calls. Nothing is published before a thread has polled for some milliseconds. A
//! successful poll that had to enter the engine resets the count. A result that was there already
//! does not pass here, and the count may go on.

use crate::call::{CallId, Result};
use crate::entry::call_site;
use crate::handle::MPI_Request;
use crate::request;
use crate::this_rank;
use garonne_engine::observe::events::{PENDING_SHOWN, PendingOperation};
use garonne_job::wait_report::{ASKS_SHOWN, PollReport, PollSlot, PolledCall};
use std::cell::{Cell, RefCell};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Number of the unsuccessful poll at which the clock is first read. Most waits of polling programs
/// are shorter.
const CLOCK_FROM_POLL: u64 = 4;
/// Number of the first unsuccessful poll at which a thread may publish.
const PUBLISH_FROM_POLL: u64 = 8;
/// Time that a thread has polled before its calls are worth publishing.
const PUBLISH_AFTER: Duration = Duration::from_millis(10);

/// Poll count of one thread. Has no destructor, because every access would have to check for it.
struct PollCounter {
    in_vain: Cell<u64>,
    since_ns: Cell<u64>,
    /// Published counter; `None` while nothing is published.
    shown: Cell<Option<&'static AtomicU64>>,
}

/// The calls that a thread publishes, and their slot.
#[derive(Default)]
struct PublishedPolls {
    place: Option<PollSlot>,
    polls: PollReport,
}

thread_local! {
    static POLL_COUNTER: PollCounter = const {
        PollCounter { in_vain: Cell::new(0), since_ns: Cell::new(0), shown: Cell::new(None) }
    };
    static PUBLISHED: RefCell<PublishedPolls> = RefCell::default();
}

/// Records an unsuccessful poll. `asked` adds the operations that the call polls.
pub(crate) fn record_unsuccessful(call: CallId, asked: &dyn Fn(&mut PolledOperations)) {
    POLL_COUNTER.with(|looks| {
        let count = looks.in_vain.get() + 1;
        looks.in_vain.set(count);
        if let Some(shown) = looks.shown.get() {
            shown.store(count, Relaxed);
        }
        if count < PUBLISH_FROM_POLL {
            if count == CLOCK_FROM_POLL {
                looks.since_ns.set(now_ns());
            }
            return;
        }
        if count - (1 << count.ilog2()) < ASKS_SHOWN as u64 {
            publish(looks, call, asked);
        }
    });
}

/// Records a successful poll: the thread no longer polls.
pub(crate) fn record_answer() {
    POLL_COUNTER.with(|looks| {
        looks.in_vain.set(0);
        if looks.shown.take().is_some() {
            withdraw_published();
        }
    });
}

fn now_ns() -> u64 {
    garonne_rank::clock_ns()
}

#[cold]
fn publish(looks: &PollCounter, call: CallId, asked: &dyn Fn(&mut PolledOperations)) {
    let (now, since) = (now_ns(), looks.since_ns.get());
    if now.saturating_sub(since) < PUBLISH_AFTER.as_nanos() as u64 {
        return;
    }
    let mut operations = PolledOperations(Vec::new());
    asked(&mut operations);
    let count = looks.in_vain.get();
    // A thread that ends has nothing to show any more.
    let _ = PUBLISHED.try_with(|telling| {
        let PublishedPolls { place, polls } = &mut *telling.borrow_mut();
        if place.is_none() {
            *place = this_rank::poll_slot();
        }
        let Some(place) = place else { return };
        if count.is_power_of_two() || looks.shown.get().is_none() {
            polls.asks.clear();
        }
        polls.add(PolledCall {
            call: call.0,
            site: call_site(),
            operations: operations.0,
        });
        (polls.since_ns, polls.told_ns, polls.told_looks) = (since, now, count);
        place.show(polls);
        place.looks().store(count, Relaxed);
        looks.shown.set(Some(place.looks()));
    });
}

#[cold]
fn withdraw_published() {
    let _ = PUBLISHED.try_with(|telling| {
        if let Some(place) = &telling.borrow().place {
            place.withdraw();
        }
    });
}

/// Operations that a call polls.
pub(crate) struct PolledOperations(Vec<PendingOperation>);

impl PolledOperations {
    /// Adds an operation while there is room. Operations that cannot be described are left out.
    pub fn add(&mut self, operation: Result<Option<PendingOperation>>) {
        if let Ok(Some(operation)) = operation
            && !self.is_full()
        {
            self.0.push(operation);
        }
    }

    /// Adds the operations of these requests that are not complete.
    pub fn add_requests(&mut self, count: usize, handle: impl Fn(usize) -> Result<MPI_Request>) {
        for at in 0..count {
            if self.is_full() {
                break;
            }
            self.add(handle(at).and_then(request::pending_operation));
        }
    }

    fn is_full(&self) -> bool {
        self.0.len() == PENDING_SHOWN
    }
}
