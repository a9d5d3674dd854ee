//! Windows of one-sided communication.

use crate::c_args::{Buf, CountOut, Ptr, StrIn, StrOut};
use crate::call::{CallError, CallId, Result};
use crate::coll::elements;
use crate::constants::*;
use crate::fast_path::{PlainType, contiguous_bytes};
use crate::group::publish_group;
use crate::handle::*;
use crate::objects::{self, comm, committed, group, info_or_null, infos, publish, unknown_handle};
use crate::op::resolve_op;
use crate::p2p::bad_count;
use crate::rank_context::RankContext;
use crate::request::return_request;
use garonne_mpi::error::Class;
use garonne_mpi::op::{Op, PredefinedOp};
use garonne_mpi::request::{Request, Status};
use garonne_mpi::win::{
    AccumulateArgs, Assert, Flavor, LockKind, Part, TargetPart, Window, WindowRequest,
};
use garonne_sync::user::UserMem;
use std::ffi::c_int;

fn windows() -> &'static HandleTable<Window> {
    &RankContext::current().windows
}

/// The window of a handle.
pub(crate) fn window(handle: MPI_Win) -> Result<&'static Window> {
    windows()
        .get(handle)
        .ok_or_else(|| unknown_handle(Class::Win, "window", handle.0, MPI_WIN_NULL.0))
}

/// Returns the window of a handle, or `None`.
pub(crate) fn find_window(handle: MPI_Win) -> Option<&'static Window> {
    windows().get(handle)
}

/// Makes a window, and returns it to the program.
fn create(
    call: CallId,
    (on, flavor, hints): (MPI_Comm, Flavor, MPI_Info),
    (memory, size, disp_unit): (UserMem, MPI_Aint, MPI_Count),
    out: Ptr<MPI_Win>,
) -> Result<&'static Window> {
    let request = WindowRequest {
        flavor,
        memory,
        size: size as i64,
        disp_unit,
        info: info_or_null(hints)?,
    };
    let new = Window::new(comm(on)?, request, call.origin())?;
    let handle: MPI_Win = publish(windows(), new)?;
    let window = window(handle)?;
    window.set_handle(Handle::word(handle));
    out.set(handle)?;
    Ok(window)
}

pub(crate) fn win_create(
    call: CallId,
    base: Buf,
    size: MPI_Aint,
    disp_unit: MPI_Count,
    hints: MPI_Info,
    on: MPI_Comm,
    out: Ptr<MPI_Win>,
) -> Result<()> {
    let memory = (base.mem(), size, disp_unit);
    create(call, (on, Flavor::Create, hints), memory, out).map(drop)
}

pub(crate) fn win_create_dynamic(
    call: CallId,
    hints: MPI_Info,
    on: MPI_Comm,
    out: Ptr<MPI_Win>,
) -> Result<()> {
    let nothing = (UserMem::null(), 0, 1);
    create(call, (on, Flavor::Dynamic, hints), nothing, out).map(drop)
}

fn allocate(
    call: CallId,
    made: (MPI_Comm, Flavor, MPI_Info),
    (size, disp_unit): (MPI_Aint, MPI_Count),
    baseptr: Buf,
    out: Ptr<MPI_Win>,
) -> Result<()> {
    let baseptr = baseptr.given()?;
    let window = create(call, made, (UserMem::null(), size, disp_unit), out)?;
    baseptr.store(window.base())
}

pub(crate) fn win_allocate(
    call: CallId,
    size: MPI_Aint,
    disp_unit: MPI_Count,
    hints: MPI_Info,
    on: MPI_Comm,
    baseptr: Buf,
    out: Ptr<MPI_Win>,
) -> Result<()> {
    let made = (on, Flavor::Allocate, hints);
    allocate(call, made, (size, disp_unit), baseptr, out)
}

pub(crate) fn win_allocate_shared(
    call: CallId,
    size: MPI_Aint,
    disp_unit: MPI_Count,
    hints: MPI_Info,
    on: MPI_Comm,
    baseptr: Buf,
    out: Ptr<MPI_Win>,
) -> Result<()> {
    let made = (on, Flavor::Shared, hints);
    allocate(call, made, (size, disp_unit), baseptr, out)
}

pub(crate) fn win_free(call: CallId, place: Ptr<MPI_Win>) -> Result<()> {
    let handle = place.get()?;
    window(handle)?.free(call.origin())?;
    windows().remove(handle);
    place.set(MPI_WIN_NULL)
}

pub(crate) fn win_attach(_: CallId, on: MPI_Win, base: Buf, size: MPI_Aint) -> Result<()> {
    Ok(window(on)?.attach(base.mem(), size as i64)?)
}

pub(crate) fn win_detach(_: CallId, on: MPI_Win, base: Buf) -> Result<()> {
    Ok(window(on)?.detach(base.addr())?)
}

pub(crate) fn win_shared_query(
    _: CallId,
    on: MPI_Win,
    rank: c_int,
    size: Ptr<MPI_Aint>,
    disp_unit: CountOut,
    baseptr: Buf,
) -> Result<()> {
    let (len, unit, base) = window(on)?.shared_query(rank)?;
    size.set(len as MPI_Aint)?;
    disp_unit.set(unit as i64)?;
    baseptr.store(base)
}

pub(crate) fn win_get_group(_: CallId, on: MPI_Win, out: Ptr<MPI_Group>) -> Result<()> {
    publish_group(window(on)?.group().clone(), None, out)
}

pub(crate) fn win_get_info(_: CallId, on: MPI_Win, out: Ptr<MPI_Info>) -> Result<()> {
    out.set(publish(infos(), window(on)?.info())?)
}

pub(crate) fn win_set_info(_: CallId, on: MPI_Win, with: MPI_Info) -> Result<()> {
    let window = window(on)?;
    let with = match with == MPI_INFO_NULL {
        true => info_or_null(with)?,
        false => objects::info(with)?.clone(),
    };
    window.set_info(&with);
    Ok(())
}

pub(crate) fn win_get_name(_: CallId, on: MPI_Win, name: StrOut, len: Ptr<c_int>) -> Result<()> {
    let found = match on == MPI_WIN_NULL {
        true => "MPI_WIN_NULL".into(),
        false => window(on)?.name(),
    };
    let written = name.write(&found, MPI_MAX_OBJECT_NAME as usize)?;
    len.set(written as c_int)
}

pub(crate) fn win_set_name(_: CallId, on: MPI_Win, name: StrIn) -> Result<()> {
    window(on)?.set_name(&name.text()?);
    Ok(())
}

pub(crate) fn win_fence(call: CallId, assert: c_int, on: MPI_Win) -> Result<()> {
    Ok(window(on)?.fence(Assert(assert), call.origin())?)
}

pub(crate) fn win_post(_: CallId, of: MPI_Group, assert: c_int, on: MPI_Win) -> Result<()> {
    Ok(window(on)?.post(group(of)?, Assert(assert))?)
}

pub(crate) fn win_start(_: CallId, of: MPI_Group, assert: c_int, on: MPI_Win) -> Result<()> {
    Ok(window(on)?.start(group(of)?, Assert(assert))?)
}

pub(crate) fn win_complete(_: CallId, on: MPI_Win) -> Result<()> {
    Ok(window(on)?.complete()?)
}

pub(crate) fn win_wait(_: CallId, on: MPI_Win) -> Result<()> {
    Ok(window(on)?.wait_exposure()?)
}

pub(crate) fn win_test(_: CallId, on: MPI_Win, flag: Ptr<c_int>) -> Result<()> {
    flag.set(window(on)?.test_exposure()?.into())
}

pub(crate) fn win_lock(
    _: CallId,
    kind: c_int,
    rank: c_int,
    assert: c_int,
    on: MPI_Win,
) -> Result<()> {
    let window = window(on)?;
    let kind = LockKind::from_number(kind).ok_or_else(|| {
        let text =
            format!("{kind} is no kind of lock; they are MPI_LOCK_EXCLUSIVE and MPI_LOCK_SHARED");
        CallError::new(Class::Locktype, text)
    })?;
    Ok(window.lock(kind, rank, Assert(assert))?)
}

pub(crate) fn win_lock_all(_: CallId, assert: c_int, on: MPI_Win) -> Result<()> {
    Ok(window(on)?.lock_all(Assert(assert))?)
}

pub(crate) fn win_unlock(_: CallId, rank: c_int, on: MPI_Win) -> Result<()> {
    Ok(window(on)?.unlock(rank)?)
}

pub(crate) fn win_unlock_all(_: CallId, on: MPI_Win) -> Result<()> {
    Ok(window(on)?.unlock_all()?)
}

pub(crate) fn win_flush(_: CallId, rank: c_int, on: MPI_Win) -> Result<()> {
    Ok(window(on)?.flush(rank)?)
}

pub(crate) fn win_flush_all(_: CallId, on: MPI_Win) -> Result<()> {
    Ok(window(on)?.flush_all()?)
}

pub(crate) fn win_flush_local(_: CallId, rank: c_int, on: MPI_Win) -> Result<()> {
    Ok(window(on)?.flush(rank)?)
}

pub(crate) fn win_flush_local_all(_: CallId, on: MPI_Win) -> Result<()> {
    Ok(window(on)?.flush_all()?)
}

pub(crate) fn win_sync(_: CallId, on: MPI_Win) -> Result<()> {
    window(on)?.sync();
    Ok(())
}

/// A buffer of the origin.
fn part(buf: Buf, count: MPI_Count, datatype: MPI_Datatype) -> Result<Part<'static>> {
    let elements = elements(buf, count, datatype)?;
    Ok(Part {
        mem: elements.mem,
        count: elements.count,
        datatype: elements.datatype,
    })
}

/// Elements of a target.
fn target(
    rank: c_int,
    disp: MPI_Aint,
    count: MPI_Count,
    datatype: MPI_Datatype,
) -> Result<TargetPart<'static>> {
    Ok(TargetPart {
        rank,
        disp: disp as i64,
        count: u64::try_from(count).map_err(|_| bad_count(count))?,
        datatype: committed(datatype)?,
    })
}

/// Longest access that looks for the short way: longer ones do not notice the general one.
const SHORT_WAY_MAX: u32 = 64 << 10;

/// Returns the bytes of an access whose elements lie back to back and are of one predefined type at
/// both sides. `None` for any other.
#[inline(always)]
fn plain_bytes(
    buf: Buf,
    origin: (MPI_Count, MPI_Datatype),
    target: (MPI_Count, MPI_Datatype),
) -> Option<u32> {
    let (count, datatype) = target;
    if origin != target {
        return None;
    }
    let plain = PlainType::of(Handle::word(datatype));
    contiguous_bytes(buf, (count, plain), SHORT_WAY_MAX)
}

pub(crate) fn put(
    _: CallId,
    origin: Buf,
    origin_count: MPI_Count,
    origin_type: MPI_Datatype,
    rank: c_int,
    disp: MPI_Aint,
    count: MPI_Count,
    datatype: MPI_Datatype,
    on: MPI_Win,
) -> Result<()> {
    let window = window(on)?;
    let plain = plain_bytes(origin, (origin_count, origin_type), (count, datatype));
    if let Some(len) = plain
        && let Some((there, _)) = window.near(rank, disp as i64, len.into())
    {
        there.copy_from(0, origin.mem(), 0, len as usize);
        return Ok(());
    }
    let origin = part(origin, origin_count, origin_type)?;
    Ok(window.put(&origin, &target(rank, disp, count, datatype)?)?)
}

pub(crate) fn get(
    _: CallId,
    origin: Buf,
    origin_count: MPI_Count,
    origin_type: MPI_Datatype,
    rank: c_int,
    disp: MPI_Aint,
    count: MPI_Count,
    datatype: MPI_Datatype,
    on: MPI_Win,
) -> Result<()> {
    let window = window(on)?;
    let plain = plain_bytes(origin, (origin_count, origin_type), (count, datatype));
    if let Some(len) = plain
        && let Some((there, _)) = window.near(rank, disp as i64, len.into())
    {
        origin.mem().copy_from(0, there, 0, len as usize);
        return Ok(());
    }
    let origin = part(origin, origin_count, origin_type)?;
    Ok(window.get(&origin, &target(rank, disp, count, datatype)?)?)
}

pub(crate) fn put_notify(
    _: CallId,
    origin: Buf,
    origin_count: MPI_Count,
    origin_type: MPI_Datatype,
    rank: c_int,
    disp: MPI_Aint,
    count: MPI_Count,
    datatype: MPI_Datatype,
    counter: c_int,
    on: MPI_Win,
) -> Result<()> {
    let window = window(on)?;
    let origin = part(origin, origin_count, origin_type)?;
    Ok(window.put_notify(&origin, &target(rank, disp, count, datatype)?, counter)?)
}

pub(crate) fn win_notify_get(
    _: CallId,
    counter: c_int,
    value: Ptr<MPI_Count>,
    on: MPI_Win,
) -> Result<()> {
    value.set(window(on)?.notified(counter)?)
}

pub(crate) fn win_notify_wait(
    _: CallId,
    counter: c_int,
    count: MPI_Count,
    on: MPI_Win,
) -> Result<()> {
    Ok(window(on)?.wait_notified(counter, count)?)
}

/// Returns the operation of a handle, and whether it has operands.
fn operation(handle: MPI_Op, datatype: MPI_Datatype) -> Result<(Op, bool)> {
    let op = resolve_op(handle, datatype)?.op;
    let has_operands = op != Op::Predefined(PredefinedOp::NoOp);
    Ok((op, has_operands))
}

/// Elements of the program: buffer, count and datatype.
type Elements = (Buf, MPI_Count, MPI_Datatype);

/// Combines elements of the origin with those of a target, and gives what the target had.
fn combine(
    on: MPI_Win,
    handle: MPI_Op,
    (origin, result): (Elements, Option<Elements>),
    (rank, disp, count, datatype): (c_int, MPI_Aint, MPI_Count, MPI_Datatype),
) -> Result<()> {
    let window = window(on)?;
    let (op, has_operands) = operation(handle, datatype)?;
    let part = |(buf, count, datatype)| part(buf, count, datatype);
    Ok(window.accumulate(&AccumulateArgs {
        origin: has_operands.then(|| part(origin)).transpose()?,
        result: result.map(part).transpose()?,
        target: target(rank, disp, count, datatype)?,
        op,
    })?)
}

pub(crate) fn accumulate(
    _: CallId,
    origin: Buf,
    origin_count: MPI_Count,
    origin_type: MPI_Datatype,
    rank: c_int,
    disp: MPI_Aint,
    count: MPI_Count,
    datatype: MPI_Datatype,
    handle: MPI_Op,
    on: MPI_Win,
) -> Result<()> {
    let (ours, theirs) = ((origin_count, origin_type), (count, datatype));
    if count > 0 && plain_bytes(origin, ours, theirs).is_some() {
        let operation = resolve_op(handle, datatype)?.op;
        let elements = (count as u64, committed(datatype)?);
        let target = (rank, disp as i64, elements);
        if window(on)?.accumulate_near(origin.mem(), target, &operation)? {
            return Ok(());
        }
    }
    let origin = (origin, origin_count, origin_type);
    let target = (rank, disp, count, datatype);
    combine(on, handle, (origin, None), target)
}

pub(crate) fn get_accumulate(
    _: CallId,
    origin: Buf,
    origin_count: MPI_Count,
    origin_type: MPI_Datatype,
    result: Buf,
    result_count: MPI_Count,
    result_type: MPI_Datatype,
    rank: c_int,
    disp: MPI_Aint,
    count: MPI_Count,
    datatype: MPI_Datatype,
    handle: MPI_Op,
    on: MPI_Win,
) -> Result<()> {
    let origin = (origin, origin_count, origin_type);
    let result = (result, result_count, result_type);
    let target = (rank, disp, count, datatype);
    combine(on, handle, (origin, Some(result)), target)
}

pub(crate) fn fetch_and_op(
    call: CallId,
    origin: Buf,
    result: Buf,
    datatype: MPI_Datatype,
    rank: c_int,
    disp: MPI_Aint,
    handle: MPI_Op,
    on: MPI_Win,
) -> Result<()> {
    let one = (1, datatype);
    if plain_bytes(origin, one, one).is_some() && plain_bytes(result, one, one).is_some() {
        let operation = resolve_op(handle, datatype)?.op;
        let (buffers, target) = (
            (origin.mem(), result.mem()),
            (rank, disp as i64, committed(datatype)?),
        );
        if window(on)?.fetch_near(buffers, target, &operation)? {
            return Ok(());
        }
    }
    get_accumulate(
        call, origin, 1, datatype, result, 1, datatype, rank, disp, 1, datatype, handle, on,
    )
}

pub(crate) fn compare_and_swap(
    _: CallId,
    origin: Buf,
    compare: Buf,
    result: Buf,
    datatype: MPI_Datatype,
    rank: c_int,
    disp: MPI_Aint,
    on: MPI_Win,
) -> Result<()> {
    let window = window(on)?;
    let parts = [origin, compare, result].map(|buf| part(buf, 1, datatype));
    let [origin, compare, result] = parts;
    let memory = (origin?.mem, compare?.mem, result?.mem);
    Ok(window.compare_and_swap(memory, &target(rank, disp, 1, datatype)?)?)
}

/// Returns the request of an operation that is over.
fn return_done(on: MPI_Win, out: Ptr<MPI_Request>) -> Result<()> {
    let owner = window(on)?.comm();
    return_request(Request::done(owner, Status::EMPTY), out)
}

/// Refuses a request outside an epoch that locks opened, in which alone requests are allowed.
fn check_locked(on: MPI_Win, rank: c_int) -> Result<()> {
    let window = window(on)?;
    // Nothing is accessed there: any epoch will do, which the access itself checks.
    match rank == MPI_PROC_NULL {
        true => Ok(()),
        false => Ok(window.check_locked(rank)?),
    }
}

/// Defines the forms of accesses that return a request. `rank` is the parameter that names the
/// target.
macro_rules! request_forms {
    ($($name:ident: $access:ident by $rank:ident($($parameter:ident: $kind:ty),*);)*) => {
        $(
            pub(crate) fn $name(
                call: CallId,
                $($parameter: $kind,)*
                on: MPI_Win,
                out: Ptr<MPI_Request>,
            ) -> Result<()> {
                check_locked(on, $rank)?;
                $access(call, $($parameter,)* on)?;
                return_done(on, out)
            }
        )*
    };
}

request_forms! {
    rput: put by rank(
        origin: Buf, origin_count: MPI_Count, origin_type: MPI_Datatype,
        rank: c_int, disp: MPI_Aint, count: MPI_Count, datatype: MPI_Datatype
    );
    rget: get by rank(
        origin: Buf, origin_count: MPI_Count, origin_type: MPI_Datatype,
        rank: c_int, disp: MPI_Aint, count: MPI_Count, datatype: MPI_Datatype
    );
    raccumulate: accumulate by rank(
        origin: Buf, origin_count: MPI_Count, origin_type: MPI_Datatype,
        rank: c_int, disp: MPI_Aint, count: MPI_Count, datatype: MPI_Datatype, handle: MPI_Op
    );
    rget_accumulate: get_accumulate by rank(
        origin: Buf, origin_count: MPI_Count, origin_type: MPI_Datatype,
        result: Buf, result_count: MPI_Count, result_type: MPI_Datatype,
        rank: c_int, disp: MPI_Aint, count: MPI_Count, datatype: MPI_Datatype, handle: MPI_Op
    );
}
