//! Calls that ask without waiting (`MPI_Test`, `MPI_Iprobe` and their kin) and are made again and
//! again: what their thread asks for is shown to those who watch from outside, as a wait would be.
//!
//! A thread counts its looks in vain, and reads the clock and tells what it asks for only at some
//! of them: at counts that are powers of two, and at the next few, since a loop may ask by several
//! calls. Nothing is told before a thread has asked for some milliseconds. The answer to a call
//! that had to look ends the count; an answer that was there already does not come here, and the
//! count may go on.

use crate::call::{CallId, Result};
use crate::entry::call_site;
use crate::handle::MPI_Request;
use crate::request;
use garonne_engine::observe::events::{PENDING_SHOWN, PendingOperation};
use garonne_node::rank;
use garonne_node::wait_report::{ASKS_SHOWN, PollReport, PollSlot, PolledCall};
use std::cell::{Cell, RefCell};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The look in vain at which the clock is read first: most waits of programs that poll are shorter.
const CLOCK_FROM_POLL: u64 = 4;
/// The first look at which a thread may tell.
const PUBLISH_FROM_POLL: u64 = 8;
/// Who has asked for less is not worth telling of.
const PUBLISH_AFTER: Duration = Duration::from_millis(10);

/// Of one thread, without a destructor, which every use would have to ask for.
struct PollCounter {
    in_vain: Cell<u64>,
    since_ns: Cell<u64>,
    /// Where the count is shown; `None`: nothing is shown.
    shown: Cell<Option<&'static AtomicU64>>,
}

/// What a thread shows, and where.
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

/// A call has looked and has nothing to answer. `asked`: what it asks for, as far as that is known.
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

/// A call that had to look has an answer, or the thread asks no more.
pub(crate) fn record_answer() {
    POLL_COUNTER.with(|looks| {
        looks.in_vain.set(0);
        if looks.shown.take().is_some() {
            withdraw_published();
        }
    });
}

fn now_ns() -> u64 {
    rank::clock_ns()
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
            *place = rank::poll_slot();
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

/// What a call asks for.
pub(crate) struct PolledOperations(Vec<PendingOperation>);

impl PolledOperations {
    /// One thing more, while there is room. Of what cannot be told nothing is said.
    pub fn add(&mut self, operation: Result<Option<PendingOperation>>) {
        if let Ok(Some(operation)) = operation
            && !self.is_full()
        {
            self.0.push(operation);
        }
    }

    /// What these requests wait for that are not over.
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
