//! The wait and test forms over mixtures of requests (MPI 5.0 section 3.7.3 to 3.7.6).
//!
//! All make progress, none allocates for up to 16 requests. Outcomes go to a closure with the index
//! of their request, so that the edge writes statuses in place.

use super::{Outcome, Request, Status};
use garonne_progress::messaging::{Messaging, WaitTarget};
use std::cell::Cell;

/// The result of `MPI_Testany` and `MPI_Request_get_status_any`.
#[derive(Debug)]
pub enum TestAny {
    /// No active request in the list: flag true, index `MPI_UNDEFINED`.
    Nothing,
    /// None is over yet.
    NotYet,
    /// The request of this index is over.
    Done(usize, Outcome),
}

type RequestList<'a> = [Option<&'a Request>];

fn active<'a>(list: &'a RequestList<'a>) -> impl Iterator<Item = (usize, &'a Request)> {
    list.iter().enumerate().filter_map(|(index, slot)| {
        slot.filter(|request| request.is_active())
            .map(|r| (index, r))
    })
}

/// One look at the transports on behalf of these requests.
fn look_for(list: &RequestList<'_>) {
    let mut awaited = list.iter().flatten().map(|request| request.awaits());
    if let Some(request) = list.iter().flatten().next() {
        let host = &request.process().host;
        match awaited.next() {
            // Mostly all are of one communicator, or of one thread's.
            Some(first) if awaited.all(|other| host.share_a_shard(first, other)) => {
                host.progress_for(first)
            }
            _ => host.progress_for_test(),
        };
    }
}

/// While it lives, those who watch from outside know what the thread waits for that the engine
/// knows nothing of.
struct ShownWait<'a>(Option<&'a Request>);

impl<'a> ShownWait<'a> {
    /// Shows the first of several requests as what the thread waits for.
    fn tell(mut requests: impl Iterator<Item = &'a Request>) -> Self {
        let found =
            requests.find_map(|request| request.meeting().map(|meeting| (request, meeting)));
        Self(found.map(|(request, meeting)| {
            request.process().host.note_external_wait(0, Some(meeting));
            request
        }))
    }
}

impl Drop for ShownWait<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.0 {
            request.process().host.note_external_wait(0, None);
        }
    }
}

/// `MPI_Wait`.
pub fn wait(request: &Request) -> Outcome {
    if let Some(outcome) = request.take() {
        return outcome;
    }
    request.linger();
    let mut outcome = None;
    let mut done = || {
        outcome = request.take();
        outcome.is_some()
    };
    let _met = ShownWait::tell(std::iter::once(request));
    request
        .process()
        .host
        .wait_for(&|| request.awaits(), &mut done);
    outcome.unwrap_or(Ok(Status::EMPTY))
}

/// `MPI_Waitall`: calls `each` once for every request in the list, null ones with the empty status.
pub fn wait_all(list: &RequestList<'_>, each: &mut dyn FnMut(usize, Outcome)) {
    // Sends and receives mostly complete in order, so one cursor looks at each request about once.
    let at = Cell::new(0);
    let mut pass = || {
        while let Some(slot) = list.get(at.get()) {
            let outcome = match slot {
                Some(request) => request.take(),
                None => Some(Ok(Status::EMPTY)),
            };
            let Some(outcome) = outcome else { return false };
            each(at.get(), outcome);
            at.set(at.get() + 1);
        }
        true
    };
    if pass() {
        return;
    }
    if let Some(request) = list.iter().flatten().next() {
        // Of operations the last one: when it is over, those before it mostly are; if it is over
        // already, the one at the cursor.
        let awaits = || {
            let cursor = list.get(at.get()).copied().flatten();
            let cursor = cursor.map_or(WaitTarget::Anything, Request::awaits);
            let last = list.iter().rev().find_map(|slot| *slot);
            let is_operation = |awaits| matches!(awaits, WaitTarget::Operation(_));
            match last.map(|last| (last, last.awaits())) {
                Some((last, awaits))
                    if is_operation(cursor)
                        && is_operation(awaits)
                        && last.finished_at().is_none() =>
                {
                    awaits
                }
                _ => cursor,
            }
        };
        let _met = ShownWait::tell(list.iter().flatten().copied());
        request.process().host.wait_for(&awaits, &mut pass);
    }
}

/// Returns the request that was over first. The standard lets any be given. In this order a program
/// that keeps several receives posted for one sender sees its messages as they came.
fn earliest(
    list: &RequestList<'_>,
    look: fn(&Request) -> Option<Outcome>,
) -> Option<(usize, Outcome)> {
    let (_, index, request) = active(list)
        .filter_map(|(index, request)| request.finished_at().map(|place| (place, index, request)))
        .min_by_key(|(place, index, _)| (*place, *index))?;
    look(request).map(|outcome| (index, outcome))
}

/// Waits until `done`, for any of these requests.
fn wait_for_any(list: &RequestList<'_>, host: &dyn Messaging, done: &mut dyn FnMut() -> bool) {
    let any_of =
        || host.register_any_of(&mut list.iter().flatten().map(|request| request.awaits_among()));
    // Of what is more than one operation another part may come next, and what is not active may be
    // started.
    let is_once = list.iter().flatten().all(|request| request.is_operation());
    let once = is_once.then(any_of);
    host.wait_for(&|| once.unwrap_or_else(any_of), done);
}

/// `MPI_Waitany`: `None` when no request is active (index `MPI_UNDEFINED`, empty status).
pub fn wait_any(list: &RequestList<'_>) -> Option<(usize, Outcome)> {
    let (_, first) = active(list).next()?;
    let mut found = None;
    let mut pass = || {
        found = earliest(list, Request::take);
        found.is_some()
    };
    if !pass() {
        let _met = ShownWait::tell(active(list).map(|(_, request)| request));
        wait_for_any(list, &*first.process().host, &mut pass);
    }
    found
}

/// `MPI_Waitsome`: the number of requests completed, `None` when none is active (`MPI_UNDEFINED`).
pub fn wait_some(list: &RequestList<'_>, each: &mut dyn FnMut(usize, Outcome)) -> Option<usize> {
    let (_, first) = active(list).next()?;
    let mut count = 0;
    let mut pass = || {
        count += sweep(list, each);
        count > 0
    };
    if !pass() {
        let _met = ShownWait::tell(active(list).map(|(_, request)| request));
        wait_for_any(list, &*first.process().host, &mut pass);
    }
    Some(count)
}

/// Takes all that are over; gives their number.
fn sweep(list: &RequestList<'_>, each: &mut dyn FnMut(usize, Outcome)) -> usize {
    let mut count = 0;
    for (index, request) in active(list) {
        if let Some(outcome) = request.take() {
            each(index, outcome);
            count += 1;
        }
    }
    count
}

/// `MPI_Test`.
pub fn test(request: &Request) -> Option<Outcome> {
    request.take().or_else(|| {
        request.process().host.progress_for(request.awaits());
        request.take()
    })
}

/// `MPI_Testall`: if all are over, calls `each` for every one and gives `true`; otherwise changes
/// nothing.
pub fn test_all(list: &RequestList<'_>, each: &mut dyn FnMut(usize, Outcome)) -> bool {
    let all_over = || list.iter().flatten().all(|request| request.ready());
    if !all_over() {
        look_for(list);
        if !all_over() {
            return false;
        }
    }
    for (index, slot) in list.iter().enumerate() {
        let outcome = slot.and_then(Request::take).unwrap_or(Ok(Status::EMPTY));
        each(index, outcome);
    }
    true
}

/// `MPI_Testany`.
pub fn test_any(list: &RequestList<'_>) -> TestAny {
    any(list, Request::take)
}

fn any(list: &RequestList<'_>, look: fn(&Request) -> Option<Outcome>) -> TestAny {
    if active(list).next().is_none() {
        return TestAny::Nothing;
    }
    let pass = || earliest(list, look);
    let found = pass().or_else(|| {
        look_for(list);
        pass()
    });
    found.map_or(TestAny::NotYet, |(index, outcome)| {
        TestAny::Done(index, outcome)
    })
}

/// `MPI_Testsome`: the number completed, `None` when none is active.
pub fn test_some(list: &RequestList<'_>, each: &mut dyn FnMut(usize, Outcome)) -> Option<usize> {
    active(list).next()?;
    let count = sweep(list, each);
    if count > 0 {
        return Some(count);
    }
    look_for(list);
    Some(sweep(list, each))
}

/// `MPI_Request_get_status`.
pub fn get_status(request: &Request) -> Option<Outcome> {
    request.peek().or_else(|| {
        request.process().host.progress_for(request.awaits());
        request.peek()
    })
}

/// `MPI_Request_get_status_any`.
pub fn get_status_any(list: &RequestList<'_>) -> TestAny {
    any(list, Request::peek)
}

/// `MPI_Request_get_status_all`: like [`test_all`], but the requests stay.
pub fn get_status_all(list: &RequestList<'_>, each: &mut dyn FnMut(usize, Outcome)) -> bool {
    let all_over = || list.iter().flatten().all(|request| request.ready());
    if !all_over() {
        look_for(list);
        if !all_over() {
            return false;
        }
    }
    for (index, slot) in list.iter().enumerate() {
        each(
            index,
            slot.and_then(Request::peek).unwrap_or(Ok(Status::EMPTY)),
        );
    }
    true
}

/// `MPI_Request_get_status_some`: like [`test_some`], but the requests stay.
pub fn get_status_some(
    list: &RequestList<'_>,
    each: &mut dyn FnMut(usize, Outcome),
) -> Option<usize> {
    active(list).next()?;
    let mut pass = || {
        let mut count = 0;
        for (index, request) in active(list) {
            if let Some(outcome) = request.peek() {
                each(index, outcome);
                count += 1;
            }
        }
        count
    };
    let count = pass();
    if count > 0 {
        return Some(count);
    }
    look_for(list);
    Some(pass())
}
