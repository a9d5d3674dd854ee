//! `MPI_Waitany` and `MPI_Testany` for plain requests: which of those that are over is the one.
//!
//! The one that was over first, so that nobody waits for long while others come again and again.
//! Where many are over at once not all are compared: each thread goes on behind the request that it
//! found last, so every request has its turn, and a call about many requests that are over costs
//! the same however many there are.

use super::*;
use crate::request::find_operation;
use smallvec::SmallVec;

/// Requests that are over of which a call compares the times at most: more than most programs have
/// at a time.
const COMPARED_MAX: usize = 64;

thread_local! {
    /// Where the calling thread's next look for one of several requests begins: behind the last one
    /// found.
    static NEXT_START: Cell<usize> = const { Cell::new(0) };
}

/// Requests among the plain ones that are sends or receives with an object.
type ObjectRequests = SmallVec<[&'static Request; 8]>;

/// The same with these objects among them. Of one that is over the general way tells.
fn earliest(
    engine: ShardEngine,
    count: usize,
    places: Ptr<MPI_Request>,
    objects: &mut ObjectRequests,
) -> Result<LightOutcome<usize>> {
    objects.clear();
    let (found, first) = earliest_light(engine, count, places, objects)?;
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

/// Of the plain requests that are over, the one that was over first, of the first [`COMPARED_MAX`]
/// from where the thread's look begins, and its place among the completions. Objects that are come
/// across are noted.
fn earliest_light(
    engine: ShardEngine,
    count: usize,
    places: Ptr<MPI_Request>,
    objects: &mut ObjectRequests,
) -> Result<(LightOutcome<usize>, u64)> {
    // Where all are compared the first of those that were over at once is the one, as programs
    // expect.
    let next = Some(NEXT_START.get()).filter(|next| count > COMPARED_MAX && *next < count);
    let begin = next.unwrap_or(0);
    engine.host.ending(|shard| {
        let (mut found, mut first, mut compared) = (LightOutcome::NoneActive, u64::MAX, 0);
        for at in (begin..count).chain(0..begin) {
            let handle = places.at(at)?;
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

/// What a thread waits for that waits for any of these requests.
fn wait_target_of_any(
    host: &RankHost,
    count: usize,
    places: Ptr<MPI_Request>,
    objects: &ObjectRequests,
) -> WaitTarget {
    let plain = (0..count).filter_map(|at| places.at(at).ok().and_then(engine_name));
    let objects = objects.iter().map(|object| object.awaits());
    host.any_of(&mut plain.map(WaitTarget::Operation).chain(objects))
}

/// `MPI_Testany`: the index, with the status given.
pub(crate) fn test_any(
    call: CallId,
    count: usize,
    places: Ptr<MPI_Request>,
    status: Ptr<MPI_Status>,
) -> Result<LightOutcome<usize>> {
    let Some(engine) = ShardEngine::for_first(count, places)? else {
        return Ok(LightOutcome::UseGeneralPath);
    };
    let mut objects = ObjectRequests::new();
    let mut found = earliest(engine, count, places, &mut objects)?;
    if let LightOutcome::NoneComplete = found {
        engine.host.look();
        found = earliest(engine, count, places, &mut objects)?;
        record_poll(
            call,
            (count, places),
            matches!(found, LightOutcome::NoneComplete),
        );
    }
    complete_found(engine.host, found, places, status)
}

/// `MPI_Waitany`: the index, with the status given.
pub(crate) fn wait_any(
    count: usize,
    places: Ptr<MPI_Request>,
    status: Ptr<MPI_Status>,
) -> Result<LightOutcome<usize>> {
    let Some(engine) = ShardEngine::for_first(count, places)? else {
        return Ok(LightOutcome::UseGeneralPath);
    };
    let host = engine.host;
    let mut objects = ObjectRequests::new();
    let mut found = earliest(engine, count, places, &mut objects);
    if let Ok(LightOutcome::NoneComplete) = found {
        let awaits = wait_target_of_any(host, count, places, &objects);
        host.wait_for(&|| awaits, &mut || {
            found = earliest(engine, count, places, &mut objects);
            !matches!(found, Ok(LightOutcome::NoneComplete))
        });
    }
    complete_found(host, found?, places, status)
}

fn complete_found(
    host: &RankHost,
    found: LightOutcome<usize>,
    places: Ptr<MPI_Request>,
    status: Ptr<MPI_Status>,
) -> Result<LightOutcome<usize>> {
    let LightOutcome::Complete(at) = found else {
        return Ok(found);
    };
    let place = places.element(at);
    let handle = place.get()?;
    let stands = light_state(host, handle);
    Ok(if complete_one(stands, place, status)? {
        NEXT_START.set(at + 1);
        LightOutcome::Complete(at)
    } else {
        LightOutcome::UseGeneralPath
    })
}
