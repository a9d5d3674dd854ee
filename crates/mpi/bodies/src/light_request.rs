//! Light requests: requests without a request object. They are sends that completed at once, and
//! receives of contiguous data.
//!
//! Most requests of most programs are light. All sends that completed at once share the handle
//! [`DONE`]. A light receive is known to the engine alone. Its handle holds the engine's slot and
//! some bits of the slot's generation; no table has an entry for it.
//!
//! Waiting for successful completion runs on the handle alone. All else (errors, cancelling,
//! waiting for one of several) makes a temporary [`Request`] from the handle ([`as_request`]) and
//! takes the general path. The engine bounds the number of requests; a slot index that does not fit
//! into a handle gets a table entry.

use crate::c_args::Ptr;
use crate::call::{CallId, Result};
use crate::comm_contexts;
use crate::constants::MPI_REQUEST_NULL;
use crate::handle::*;
use crate::objects::comm;
use crate::request::return_request;
use crate::status::{StatusLayout, write_status};
use crate::{init_state, polling_calls, this_rank};
use garonne_engine::api::{self, SHARD_SHIFT, SHARDS_MAX};
use garonne_engine::engine::Engine;
use garonne_engine::fast::recv::PlainRecvStatus;
use garonne_engine::limits::SHORT_GENERATION_BITS;
use garonne_engine::transport::Transport;
use garonne_mpi::comm::Comm;
use garonne_mpi::request::{Request, Status};
use garonne_progress::messaging::{FastMessaging, WaitTarget, Waiting};
use garonne_rank::RankHost;
use std::cell::Cell;
use std::ffi::c_int;

mod wait_any;
pub(crate) use wait_any::{test_any, wait_any};

/// Handle of every send that completed at once. The value is neither a code of the standard nor a
/// table handle.
pub(crate) const DONE: MPI_Request = MPI_Request(FIRST_DYNAMIC - 1);

const SLOT_BITS: u32 = 19;
const SLOT_MASK: usize = (1 << SLOT_BITS) - 1;
/// Bits of slot and shard.
const PLACE_BITS: u32 = SLOT_BITS + (u32::BITS - SHARD_SHIFT);
const GENERATION_MASK: u32 = (1 << SHORT_GENERATION_BITS) - 1;
const LIGHT_HANDLES: usize = 1 << (PLACE_BITS + SHORT_GENERATION_BITS);

const _: () = assert!(
    FIRST_LIGHT + LIGHT_HANDLES <= i32::MAX as usize,
    "MPI_Request_toint gives an int"
);

/// Returns the handle of a receive with engine name `name` in `shard`, or `None` if the name does
/// not fit into a handle.
#[inline(always)]
pub(crate) fn handle(shard: usize, name: api::Request) -> Option<MPI_Request> {
    let generation = (name.generation & GENERATION_MASK) as usize;
    let slot = name.index as usize;
    let word = generation << PLACE_BITS | shard << SLOT_BITS | slot;
    (slot <= SLOT_MASK).then_some(MPI_Request(FIRST_LIGHT + word))
}

/// Returns the rank-wide name of a request: its name in its shard's engine, with the shard's
/// number.
#[inline]
pub(crate) fn in_shard(shard: usize, name: api::Request) -> api::Request {
    let index = api::in_shard(shard, name.index);
    api::Request { index, ..name }
}

/// Gives a table entry to a receive whose name does not fit into a handle.
#[cold]
pub(crate) fn return_posted(on: MPI_Comm, name: api::Request, out: Ptr<MPI_Request>) -> Result<()> {
    return_request(Request::posted(comm(on)?, name), out)
}

/// The name behind a handle in the engine of its shard, as far as it is known; `None`: another kind
/// of handle.
#[inline(always)]
fn engine_name(handle: MPI_Request) -> Option<api::Request> {
    let word = handle.0.wrapping_sub(FIRST_LIGHT);
    (word < LIGHT_HANDLES).then_some(api::Request {
        index: (word & SLOT_MASK) as u32,
        generation: (word >> PLACE_BITS) as u32,
    })
}

/// The shard of such a handle; of others the first.
#[inline(always)]
fn shard_of(handle: MPI_Request) -> usize {
    let word = handle.0.wrapping_sub(FIRST_LIGHT);
    if word < LIGHT_HANDLES {
        word >> SLOT_BITS & (SHARDS_MAX - 1)
    } else {
        0
    }
}

/// Array of requests in the form of some ABI.
pub(crate) trait RequestArray: Copy {
    /// Reads the handle at an index.
    fn at(self, at: usize) -> Result<MPI_Request>;
    /// Makes the handle at an index null.
    fn clear(self, at: usize) -> Result<()>;
    /// Returns whether the request at an index completed without the engine. Threads that wait only
    /// for such sends then share no lock.
    #[inline(always)]
    fn was_complete(self, at: usize) -> Result<bool> {
        self.at(at)
            .map(|handle| handle == DONE || handle == MPI_REQUEST_NULL)
    }
}

impl RequestArray for Ptr<MPI_Request> {
    #[inline(always)]
    fn at(self, at: usize) -> Result<MPI_Request> {
        Ptr::at(self, at)
    }

    #[inline(always)]
    fn clear(self, at: usize) -> Result<()> {
        self.put(at, MPI_REQUEST_NULL)
    }
}

/// The engine of one shard, for handles of that shard.
#[derive(Clone, Copy)]
struct ShardEngine {
    host: &'static RankHost,
    shard: usize,
    /// There are other shards.
    many: bool,
}

impl ShardEngine {
    /// Returns the engine of the shard of this handle.
    #[inline(always)]
    fn for_handle(handle: MPI_Request) -> Option<Self> {
        let many = this_rank::has_shards();
        let shard = if many { shard_of(handle) } else { 0 };
        Some(Self {
            host: if many {
                this_rank::engine_of_shard(shard)?
            } else {
                this_rank::engine()?
            },
            shard,
            many,
        })
    }

    /// Returns the engine of the first light receive among these requests; of the first shard if
    /// there is none.
    #[inline(always)]
    fn for_first(count: usize, array_of_requests: impl RequestArray) -> Result<Option<Self>> {
        let first = if this_rank::has_shards() {
            first_posted(count, array_of_requests)?
        } else {
            DONE
        };
        Ok(Self::for_handle(first))
    }

    /// Returns whether this engine can tell the state of the request.
    #[inline(always)]
    fn knows(self, handle: MPI_Request) -> bool {
        !self.many || engine_name(handle).is_none() || shard_of(handle) == self.shard
    }
}

/// Returns the wait target of a thread that waits for this request.
fn wait_target(handle: MPI_Request) -> WaitTarget {
    engine_name(handle).map_or(WaitTarget::Anything, WaitTarget::Operation)
}

/// Returns whether the handle is that of a light request, which has no table entry.
#[inline(always)]
pub(crate) fn is_light(handle: MPI_Request) -> bool {
    handle == DONE || engine_name(handle).is_some()
}

/// The request behind such a handle, as an object for the moment; `None`: it was completed already.
#[cold]
pub(crate) fn as_request(handle: MPI_Request) -> Result<Option<Request>> {
    if handle == DONE {
        return Ok(Some(Request::done(&init_state::process()?, Status::EMPTY)));
    }
    let engine = ShardEngine::for_handle(handle);
    let known = engine_name(handle).and_then(|name| engine?.host.full_request(name));
    let posted = |comm: Comm, name| Request::posted(&comm, in_shard(shard_of(handle), name));
    Ok(known.and_then(|(name, context)| Some(posted(comm_contexts::find(context)?, name))))
}

/// State of a light request.
enum LightState {
    /// Not complete.
    Active,
    /// Complete; the engine has forgotten the request.
    Complete(Status),
    /// There is more to it.
    NeedsGeneralPath,
}

#[inline(always)]
fn light_state_in<R: Transport>(shard: &mut Engine<R>, handle: MPI_Request) -> LightState {
    if handle == DONE {
        return LightState::Complete(Status::EMPTY);
    }
    match engine_name(handle).map(|name| shard.take_plain(name)) {
        Some(PlainRecvStatus::Plainly(received)) => LightState::Complete(received.into()),
        Some(PlainRecvStatus::NotYet) => LightState::Active,
        _ => LightState::NeedsGeneralPath,
    }
}

/// Returns the state of a light request. Takes the engine's lock only for receives.
#[inline(always)]
fn light_state(host: &RankHost, handle: MPI_Request) -> LightState {
    if handle == DONE {
        return LightState::Complete(Status::EMPTY);
    }
    host.ending(|shard| light_state_in(shard, handle))
}

/// Returns engine, handle and state of a light request; `None` for any other request.
#[inline(always)]
fn light_at(
    place: Ptr<MPI_Request>,
) -> Result<Option<(&'static RankHost, MPI_Request, LightState)>> {
    let handle = place.get()?;
    let Some(ShardEngine { host, .. }) = ShardEngine::for_handle(handle) else {
        return Ok(None);
    };
    Ok(is_light(handle).then(|| (host, handle, light_state(host, handle))))
}

/// Runs `MPI_Wait` on a light request. Returns false, with the handle unchanged, if the general
/// path must run.
#[inline(always)]
pub(crate) fn wait<S: StatusLayout>(place: Ptr<MPI_Request>, status: Ptr<S>) -> Result<bool> {
    let Some((host, handle, mut state)) = light_at(place)? else {
        return Ok(false);
    };
    if let LightState::Active = state {
        host.wait_for(&|| wait_target(handle), &mut || {
            state = host.ending(|shard| light_state_in(shard, handle));
            !matches!(state, LightState::Active)
        });
    }
    complete_one(state, place, status)
}

/// Runs `MPI_Test` on a light request. Returns whether the request completed, or `None` if the
/// general path must run.
#[inline(always)]
pub(crate) fn test<S: StatusLayout>(
    call: CallId,
    place: Ptr<MPI_Request>,
    status: Ptr<S>,
) -> Result<Option<bool>> {
    let Some((host, handle, mut state)) = light_at(place)? else {
        return Ok(None);
    };
    if let LightState::Active = state {
        host.progress_for_test();
        state = host.ending(|shard| light_state_in(shard, handle));
        record_poll(call, (1, place), matches!(state, LightState::Active));
    }
    match state {
        LightState::Active => Ok(Some(false)),
        state => Ok(complete_one(state, place, status)?.then_some(true)),
    }
}

/// Records a nonblocking poll of these requests, successful or not.
pub(crate) fn record_poll(
    call: CallId,
    (count, array_of_requests): (usize, Ptr<MPI_Request>),
    in_vain: bool,
) {
    match in_vain {
        true => polling_calls::record_unsuccessful(call, &|asked| {
            asked.add_requests(count, |at| array_of_requests.at(at))
        }),
        false => polling_calls::record_answer(),
    }
}

#[inline(always)]
fn complete_one<S: StatusLayout>(
    state: LightState,
    place: Ptr<MPI_Request>,
    status: Ptr<S>,
) -> Result<bool> {
    let LightState::Complete(ended) = state else {
        return Ok(false);
    };
    place.set(MPI_REQUEST_NULL)?;
    write_status(status, &ended)?;
    Ok(true)
}

/// Runs `MPI_Waitall` over light and null requests. Returns the number of requests completed, from
/// the first on. The general path completes the rest.
#[inline]
pub(crate) fn wait_all<S: StatusLayout>(
    count: usize,
    array_of_requests: impl RequestArray,
    statuses: Ptr<S>,
) -> Result<usize> {
    let mut begun = 0;
    while begun < count && array_of_requests.was_complete(begun)? {
        array_of_requests.clear(begun)?;
        write_one(statuses, begun, || S::encode(&Status::EMPTY))?;
        begun += 1;
    }
    if begun == count || !is_light(array_of_requests.at(begun)?) {
        return Ok(begun);
    }
    let Some(engine) = ShardEngine::for_first(count, array_of_requests)? else {
        return Ok(begun);
    };
    let host = engine.host;
    let (next, mut fault) = (Cell::new(begun), None);
    // Receives mostly complete in order, so one cursor looks at each request about once.
    let mut pass =
        || match complete_in_order(engine, (next.get(), count), array_of_requests, statuses) {
            Ok((at, over)) => {
                next.set(at);
                over
            }
            Err(error) => {
                fault = Some(error);
                true
            }
        };
    if !pass() {
        // Waits for the last request: once it completes, those before it mostly have completed. If
        // it is complete already, waits for the one at the cursor.
        let last = || {
            let last = array_of_requests
                .at(count - 1)
                .ok()
                .filter(|last| engine.knows(*last));
            let last = last.and_then(engine_name);
            let last = last.filter(|name| host.plain_recv_completed_at(*name).is_none());
            let cursor = || {
                array_of_requests
                    .at(next.get())
                    .map_or(WaitTarget::Anything, wait_target)
            };
            last.map_or_else(cursor, WaitTarget::Operation)
        };
        host.wait_for(&last, &mut pass);
    }
    fault.map_or(Ok(next.get()), Err)
}

/// Returns the first light receive among these requests, or [`DONE`].
#[inline(always)]
fn first_posted(count: usize, array_of_requests: impl RequestArray) -> Result<MPI_Request> {
    for at in 0..count {
        let handle = array_of_requests.at(at)?;
        if engine_name(handle).is_some() {
            return Ok(handle);
        }
    }
    Ok(DONE)
}

/// Returns the engine if these requests are all light or null, and in one shard.
#[inline(always)]
fn engine_of_light(
    count: usize,
    array_of_requests: Ptr<MPI_Request>,
) -> Result<Option<ShardEngine>> {
    let Some(engine) = ShardEngine::for_first(count, array_of_requests)? else {
        return Ok(None);
    };
    for at in 0..count {
        let handle = array_of_requests.at(at)?;
        if handle != MPI_REQUEST_NULL && !(is_light(handle) && engine.knows(handle)) {
            return Ok(None);
        }
    }
    Ok(Some(engine))
}

/// Returns the completion number of a request that is not null, among the completions of this rank;
/// `None` while the request is active.
#[inline(always)]
fn completion_number(host: &RankHost, handle: MPI_Request) -> Option<u64> {
    match engine_name(handle) {
        Some(name) => host.plain_recv_completed_at(name),
        None => Some(0),
    }
}

/// Runs `MPI_Testall` over light requests. Returns the number of requests completed if all are
/// complete, or `None` if one is active.
pub(crate) fn test_all<S: StatusLayout>(
    call: CallId,
    count: usize,
    array_of_requests: Ptr<MPI_Request>,
    statuses: Ptr<S>,
) -> Result<Option<usize>> {
    let Some(engine) = engine_of_light(count, array_of_requests)? else {
        return Ok(Some(0));
    };
    let host = engine.host;
    let all_over = || -> Result<bool> {
        for at in 0..count {
            let handle = array_of_requests.at(at)?;
            if handle != MPI_REQUEST_NULL && completion_number(host, handle).is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    };
    if !all_over()? {
        host.progress_for_test();
        let over = all_over()?;
        record_poll(call, (count, array_of_requests), !over);
        if !over {
            return Ok(None);
        }
    }
    Ok(Some(
        complete_in_order(engine, (0, count), array_of_requests, statuses)?.0,
    ))
}

/// Outcome of a call about some of several requests.
pub(crate) enum LightOutcome<T> {
    /// The general path must run; nothing happened.
    UseGeneralPath,
    /// No request is active.
    NoneActive,
    /// No request is complete.
    NoneComplete,
    /// Requests are complete, and their handles are null now.
    Complete(T),
}

/// Returns the wait target of a thread that waits for any of these requests, which are all light or
/// null.
fn wait_target_of_any(
    host: &RankHost,
    count: usize,
    array_of_requests: Ptr<MPI_Request>,
) -> WaitTarget {
    let handles = (0..count).map(|at| array_of_requests.at(at));
    let active = handles.filter(|handle| !matches!(handle, Ok(MPI_REQUEST_NULL)));
    host.register_any_of(&mut active.map(|handle| handle.map_or(WaitTarget::Anything, wait_target)))
}

/// Arguments of `MPI_Waitsome` and `MPI_Testsome`.
#[derive(Clone, Copy)]
pub(crate) struct SomeArgs<S> {
    pub array_of_requests: Ptr<MPI_Request>,
    pub indices: Ptr<c_int>,
    pub statuses: Ptr<S>,
}

impl<S: StatusLayout> SomeArgs<S> {
    /// Refuses a null array of indices, before any request is completed.
    fn check_indices(self, count: usize) -> Result<()> {
        match count {
            0 => Ok(()),
            _ => self.indices.given().map(drop),
        }
    }

    /// Completes all requests that can be completed, and returns their number. A failed request is
    /// left for the next call; if no request completed before it, the general path must run.
    fn complete_ready(self, engine: ShardEngine, count: usize) -> Result<LightOutcome<usize>> {
        let (mut active, mut over) = (false, 0);
        for at in 0..count {
            let requests = self.array_of_requests;
            let handle = requests.at(at)?;
            if handle == MPI_REQUEST_NULL {
                continue;
            }
            active = true;
            let ended = match light_state(engine.host, handle) {
                LightState::Complete(ended) => {
                    requests.clear(at)?;
                    write_one(self.statuses, over, || S::encode(&ended))?;
                    Some(true)
                }
                LightState::Active => Some(false),
                LightState::NeedsGeneralPath => None,
            };
            match ended {
                Some(true) => {
                    self.indices.put(over, at as c_int)?;
                    over += 1;
                }
                Some(false) => {}
                None if over == 0 => return Ok(LightOutcome::UseGeneralPath),
                None => {}
            }
        }
        Ok(match over {
            0 if active => LightOutcome::NoneComplete,
            0 => LightOutcome::NoneActive,
            over => LightOutcome::Complete(over),
        })
    }

    /// Runs `MPI_Testsome` over light requests. Writes indices and statuses and returns their
    /// number.
    pub(crate) fn test(self, call: CallId, count: usize) -> Result<LightOutcome<usize>> {
        self.check_indices(count)?;
        let Some(engine) = engine_of_light(count, self.array_of_requests)? else {
            return Ok(LightOutcome::UseGeneralPath);
        };
        match self.complete_ready(engine, count)? {
            LightOutcome::NoneComplete => {
                engine.host.progress_for_test();
                let found = self.complete_ready(engine, count)?;
                record_poll(
                    call,
                    (count, self.array_of_requests),
                    matches!(found, LightOutcome::NoneComplete),
                );
                Ok(found)
            }
            found => Ok(found),
        }
    }

    /// `MPI_Waitsome` likewise.
    pub(crate) fn wait(self, count: usize) -> Result<LightOutcome<usize>> {
        self.check_indices(count)?;
        let Some(engine) = engine_of_light(count, self.array_of_requests)? else {
            return Ok(LightOutcome::UseGeneralPath);
        };
        let mut found = self.complete_ready(engine, count);
        if let Ok(LightOutcome::NoneComplete) = found {
            let awaits = wait_target_of_any(engine.host, count, self.array_of_requests);
            engine.host.wait_for(&|| awaits, &mut || {
                found = self.complete_ready(engine, count);
                !matches!(found, Ok(LightOutcome::NoneComplete))
            });
        }
        found
    }
}

/// Completes requests from index `next` on. Returns the index of the first request that is active
/// or not light, and whether waiting is over.
#[inline(always)]
fn complete_in_order<S: StatusLayout>(
    engine: ShardEngine,
    range: (usize, usize),
    array_of_requests: impl RequestArray,
    statuses: Ptr<S>,
) -> Result<(usize, bool)> {
    let only = engine.many.then_some(engine);
    engine
        .host
        .ending(|shard| complete_in_shard(shard, only, range, array_of_requests, statuses))
}

/// Completes requests as [`complete_in_order`] does, in an engine that is locked; it is the engine
/// of `only` some requests if there are several.
// A function of its own, so that the loop's variables stay in registers.
#[inline(never)]
fn complete_in_shard<R: Transport, S: StatusLayout>(
    shard: &mut Engine<R>,
    only: Option<ShardEngine>,
    (mut next, count): (usize, usize),
    array_of_requests: impl RequestArray,
    statuses: Ptr<S>,
) -> Result<(usize, bool)> {
    while next < count {
        if array_of_requests.was_complete(next)? {
            array_of_requests.clear(next)?;
            write_one(statuses, next, || S::encode(&Status::EMPTY))?;
            next += 1;
            continue;
        }
        let handle = array_of_requests.at(next)?;
        if only.is_some_and(|engine| !engine.knows(handle)) {
            break;
        }
        let name = engine_name(handle).map(|name| shard.take_plain(name));
        match name {
            Some(PlainRecvStatus::Plainly(received)) => {
                array_of_requests.clear(next)?;
                write_one(statuses, next, || S::of_message(&received.into()))?;
                next += 1;
            }
            Some(PlainRecvStatus::NotYet) => return Ok((next, false)),
            _ => break,
        }
    }
    Ok((next, true))
}

/// Writes the status of one of several requests, unless the program ignores them.
#[inline(always)]
fn write_one<S: StatusLayout>(
    statuses: Ptr<S>,
    at: usize,
    status: impl FnOnce() -> S,
) -> Result<()> {
    match statuses.is_null() {
        true => Ok(()),
        false => statuses.put(at, status()),
    }
}

#[cfg(test)]
mod tests;
