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
    static NEXT_LOOK: Cell<usize> = const { Cell::new(0) };
}

/// Requests among the plain ones that are sends or receives with an object.
type Objects = SmallVec<[&'static Request; 8]>;

/// The same with these objects among them. Of one that is over the general way tells.
fn earliest(
    engine: ShardEngine,
    count: usize,
    places: Ptr<MPI_Request>,
    objects: &mut Objects,
) -> Result<Found<usize>> {
    objects.clear();
    let (found, first) = earliest_plain(engine, count, places, objects)?;
    let over = objects
        .iter()
        .filter_map(|object| object.finished_at())
        .min();
    Ok(match (found, over) {
        (_, Some(object)) if object < first => Found::Otherwise,
        (Found::Nothing, None) if !objects.is_empty() => Found::NotYet,
        (found, _) => found,
    })
}

/// Of the plain requests that are over, the one that was over first, of the first [`COMPARED_MAX`]
/// from where the thread's look begins, and its place among the completions. Objects that are come
/// across are noted.
fn earliest_plain(
    engine: ShardEngine,
    count: usize,
    places: Ptr<MPI_Request>,
    objects: &mut Objects,
) -> Result<(Found<usize>, u64)> {
    // Where all are compared the first of those that were over at once is the one, as programs
    // expect.
    let next = Some(NEXT_LOOK.get()).filter(|next| count > COMPARED_MAX && *next < count);
    let begin = next.unwrap_or(0);
    engine.host.ending(|shard| {
        let (mut found, mut first, mut compared) = (Found::Nothing, u64::MAX, 0);
        for at in (begin..count).chain(0..begin) {
            let handle = places.at(at)?;
            if handle == MPI_REQUEST_NULL {
                continue;
            }
            let over = match name(handle) {
                Some(name) if engine.knows(handle) => shard.plain_ended_at(name),
                None if handle == DONE => Some(0),
                None if !engine.many && objects.len() < COMPARED_MAX => {
                    match find_operation(handle)? {
                        Some(object) => {
                            objects.push(object);
                            continue;
                        }
                        None => return Ok((Found::Otherwise, 0)),
                    }
                }
                _ => return Ok((Found::Otherwise, 0)),
            };
            match over {
                Some(place) => {
                    if place < first || compared == 0 {
                        (first, found) = (place, Found::Over(at));
                    }
                    compared += 1;
                    if compared == COMPARED_MAX {
                        break;
                    }
                }
                None if matches!(found, Found::Nothing) => found = Found::NotYet,
                None => {}
            }
        }
        Ok((found, first))
    })
}

/// What a thread waits for that waits for any of these requests.
fn any_of(
    host: &RankHost,
    count: usize,
    places: Ptr<MPI_Request>,
    objects: &Objects,
) -> WaitTarget {
    let plain = (0..count).filter_map(|at| places.at(at).ok().and_then(name));
    let objects = objects.iter().map(|object| object.awaits());
    host.any_of(&mut plain.map(WaitTarget::Operation).chain(objects))
}

/// `MPI_Testany`: the index, with the status given.
pub(crate) fn test_any(
    call: Call,
    count: usize,
    places: Ptr<MPI_Request>,
    status: Ptr<MPI_Status>,
) -> Result<Found<usize>> {
    let Some(engine) = ShardEngine::of_first(count, places)? else {
        return Ok(Found::Otherwise);
    };
    let mut objects = Objects::new();
    let mut found = earliest(engine, count, places, &mut objects)?;
    if let Found::NotYet = found {
        engine.host.look();
        found = earliest(engine, count, places, &mut objects)?;
        looked(call, (count, places), matches!(found, Found::NotYet));
    }
    end_one(engine.host, found, places, status)
}

/// `MPI_Waitany`: the index, with the status given.
pub(crate) fn wait_any(
    count: usize,
    places: Ptr<MPI_Request>,
    status: Ptr<MPI_Status>,
) -> Result<Found<usize>> {
    let Some(engine) = ShardEngine::of_first(count, places)? else {
        return Ok(Found::Otherwise);
    };
    let host = engine.host;
    let mut objects = Objects::new();
    let mut found = earliest(engine, count, places, &mut objects);
    if let Ok(Found::NotYet) = found {
        let awaits = any_of(host, count, places, &objects);
        host.wait_for(&|| awaits, &mut || {
            found = earliest(engine, count, places, &mut objects);
            !matches!(found, Ok(Found::NotYet))
        });
    }
    end_one(host, found?, places, status)
}

fn end_one(
    host: &RankHost,
    found: Found<usize>,
    places: Ptr<MPI_Request>,
    status: Ptr<MPI_Status>,
) -> Result<Found<usize>> {
    let Found::Over(at) = found else {
        return Ok(found);
    };
    let place = places.element(at);
    let handle = place.get()?;
    let stands = standing(host, handle);
    Ok(if conclude(stands, place, status)? {
        NEXT_LOOK.set(at + 1);
        Found::Over(at)
    } else {
        Found::Otherwise
    })
}
