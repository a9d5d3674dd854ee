//! `MPI_Waitany` and `MPI_Testany` for light requests: the choice among several complete requests.
//!
//! The request that completed first is chosen, so that no request starves while others complete
//! again and again. With many complete requests not all are compared: each thread continues behind
//! the request that it found last. So every request has its turn, and the cost of a call is
//! bounded.

use super::*;
use crate::request::find_operation;
use garonne_progress::messaging::Waiting;
use smallvec::SmallVec;

/// Number of complete requests whose completion times a call compares at most. Most programs have
/// fewer.
const COMPARED_MAX: usize = 64;

thread_local! {
    /// Index at which the calling thread's next search begins: behind the last request found.
    static NEXT_START: Cell<usize> = const { Cell::new(0) };
}

/// Sends and receives with a request object, among the light ones.
type ObjectRequests = SmallVec<[&'static Request; 8]>;

/// Finds the complete request that completed first, among light requests and request objects. If a
/// request object completed first the general path must run.
fn earliest(
    engine: ShardEngine,
    count: usize,
    array_of_requests: Ptr<MPI_Request>,
    objects: &mut ObjectRequests,
) -> Result<LightOutcome<usize>> {
    objects.clear();
    let (found, first) = earliest_light(engine, count, array_of_requests, objects)?;
    let over = objects
        .iter()
        .filter_map(|object| object.finished_at())
        .min();
    Ok(match (found, over) {
        (_, Some(object)) if object < first => LightOutcome::UseGeneralPath,
        (LightOutcome::NoneActive, None) if !objects.is_empty() => LightOutcome::NoneComplete,
        (found, _) => found,
    })
}

/// Finds the light request that completed first among the first [`COMPARED_MAX`] complete ones from
/// the thread's start index, and its completion number. Collects the request objects met on the
/// way.
fn earliest_light(
    engine: ShardEngine,
    count: usize,
    array_of_requests: Ptr<MPI_Request>,
    objects: &mut ObjectRequests,
) -> Result<(LightOutcome<usize>, u64)> {
    // Where all requests are compared, the lowest index wins among requests that completed at once,
    // as programs expect.
    let next = Some(NEXT_START.get()).filter(|next| count > COMPARED_MAX && *next < count);
    let begin = next.unwrap_or(0);
    engine.host.ending(|shard| {
        let (mut found, mut first, mut compared) = (LightOutcome::NoneActive, u64::MAX, 0);
        for at in (begin..count).chain(0..begin) {
            let handle = array_of_requests.at(at)?;
            if handle == MPI_REQUEST_NULL {
                continue;
            }
            let over = match engine_name(handle) {
                Some(name) if engine.knows(handle) => shard.plain_ended_at(name),
                None if handle == DONE => Some(0),
                None if !engine.many && objects.len() < COMPARED_MAX => {
                    match find_operation(handle)? {
                        Some(object) => {
                            objects.push(object);
                            continue;
                        }
                        None => return Ok((LightOutcome::UseGeneralPath, 0)),
                    }
                }
                _ => return Ok((LightOutcome::UseGeneralPath, 0)),
            };
            match over {
                Some(place) => {
                    if place < first || compared == 0 {
                        (first, found) = (place, LightOutcome::Complete(at));
                    }
                    compared += 1;
                    if compared == COMPARED_MAX {
                        break;
                    }
                }
                None if matches!(found, LightOutcome::NoneActive) => {
                    found = LightOutcome::NoneComplete
                }
                None => {}
            }
        }
        Ok((found, first))
    })
}

/// Returns the wait target of a thread that waits for any of these requests.
fn wait_target_of_any(
    host: &RankHost,
    count: usize,
    array_of_requests: Ptr<MPI_Request>,
    objects: &ObjectRequests,
) -> WaitTarget {
    let plain = (0..count).filter_map(|at| array_of_requests.at(at).ok().and_then(engine_name));
    let objects = objects.iter().map(|object| object.awaits());
    host.register_any_of(&mut plain.map(WaitTarget::Operation).chain(objects))
}

/// Runs `MPI_Testany` over light requests. Writes the status and returns the index.
pub(crate) fn test_any<S: StatusLayout>(
    call: CallId,
    count: usize,
    array_of_requests: Ptr<MPI_Request>,
    status: Ptr<S>,
) -> Result<LightOutcome<usize>> {
    let Some(engine) = ShardEngine::for_first(count, array_of_requests)? else {
        return Ok(LightOutcome::UseGeneralPath);
    };
    let mut objects = ObjectRequests::new();
    let mut found = earliest(engine, count, array_of_requests, &mut objects)?;
    if let LightOutcome::NoneComplete = found {
        engine.host.progress_for_test();
        found = earliest(engine, count, array_of_requests, &mut objects)?;
        record_poll(
            call,
            (count, array_of_requests),
            matches!(found, LightOutcome::NoneComplete),
        );
    }
    complete_found(engine.host, found, array_of_requests, status)
}

/// Runs `MPI_Waitany` over light requests. Writes the status and returns the index.
pub(crate) fn wait_any<S: StatusLayout>(
    count: usize,
    array_of_requests: Ptr<MPI_Request>,
    status: Ptr<S>,
) -> Result<LightOutcome<usize>> {
    let Some(engine) = ShardEngine::for_first(count, array_of_requests)? else {
        return Ok(LightOutcome::UseGeneralPath);
    };
    let host = engine.host;
    let mut objects = ObjectRequests::new();
    let mut found = earliest(engine, count, array_of_requests, &mut objects);
    if let Ok(LightOutcome::NoneComplete) = found {
        let awaits = wait_target_of_any(host, count, array_of_requests, &objects);
        host.wait_for(&|| awaits, &mut || {
            found = earliest(engine, count, array_of_requests, &mut objects);
            !matches!(found, Ok(LightOutcome::NoneComplete))
        });
    }
    complete_found(host, found?, array_of_requests, status)
}

fn complete_found<S: StatusLayout>(
    host: &RankHost,
    found: LightOutcome<usize>,
    array_of_requests: Ptr<MPI_Request>,
    status: Ptr<S>,
) -> Result<LightOutcome<usize>> {
    let LightOutcome::Complete(at) = found else {
        return Ok(found);
    };
    let place = array_of_requests.element(at);
    let handle = place.get()?;
    let state = light_state(host, handle);
    Ok(if complete_one(state, place, status)? {
        NEXT_START.set(at + 1);
        LightOutcome::Complete(at)
    } else {
        LightOutcome::UseGeneralPath
    })
}
