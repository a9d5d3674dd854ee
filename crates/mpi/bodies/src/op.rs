//! Reduction operations.

use crate::abi::Abi;
use crate::c_args::{Buf, Callback, Ptr};
use crate::call::{CallError, CallId, Result};
use crate::callback::{UserFunction, UserReduction};
use crate::callback_conventions::ReductionConvention;
use crate::coll::check_buffer;
use crate::constants::*;
use crate::datatype_refs::TypeRef;
use crate::handle::*;
use crate::objects::{committed, publish, unknown_handle};
use crate::p2p::bad_count;
use crate::rank_context::RankContext;
use garonne_mpi::coll::reduce_local as reduce;
use garonne_mpi::error::Class;
use garonne_mpi::op::{Commutativity, Op};
use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

/// An operation that the program made.
pub(crate) struct UserOpEntry {
    function: UserFunction,
    /// The function as another language wants it called.
    converted: OnceLock<UserFunction>,
    commutes: Commutativity,
}

fn user_ops() -> &'static HandleTable<UserOpEntry> {
    &RankContext::current().user_ops
}

fn unknown_op(handle: MPI_Op) -> CallError {
    unknown_handle(Class::Op, "operation", handle.0, MPI_OP_NULL.0)
}

/// An operation in one reduction.
pub(crate) struct ResolvedOp {
    /// The operation in the form that the reduction takes.
    pub op: Op,
    /// State of a user-defined operation in this reduction.
    pub bound: Option<Arc<UserReduction>>,
}

/// The operation of a handle, for one reduction of data of this type.
#[inline]
pub(crate) fn resolve_op(handle: MPI_Op, datatype: MPI_Datatype) -> Result<ResolvedOp> {
    let found = if handle.0 < FIRST_DYNAMIC {
        Op::predefined(handle.0 as u16).map(|op| ResolvedOp { op, bound: None })
    } else {
        user_ops().get(handle).map(|made| bind_op(made, datatype))
    };
    found.ok_or_else(|| unknown_op(handle))
}

#[inline(never)]
fn bind_op(made: &UserOpEntry, datatype: MPI_Datatype) -> ResolvedOp {
    let function = made.converted.get().unwrap_or(&made.function);
    let bound = Arc::new(UserReduction::new(*function, TypeRef::new(datatype)));
    ResolvedOp {
        op: Op::user(bound.clone(), made.commutes),
        bound: Some(bound),
    }
}

fn create(function: Option<UserFunction>, commute: c_int, out: Ptr<MPI_Op>) -> Result<()> {
    let function = function.ok_or_else(|| {
        CallError::new(
            Class::Arg,
            "the function of the operation is a null pointer",
        )
    })?;
    let commutes = if commute != 0 {
        Commutativity::Yes
    } else {
        Commutativity::No
    };
    let entry = UserOpEntry {
        function,
        converted: OnceLock::new(),
        commutes,
    };
    out.set(publish(user_ops(), entry)?)
}

/// Says how the function of an operation wants to be called. The first time counts.
pub(crate) fn set_convention(handle: MPI_Op, convention: ReductionConvention) {
    if let Some(made) = user_ops().get(handle) {
        let _ = made.converted.set(made.function.with(convention));
    }
}

pub(crate) fn op_create<A: Abi>(
    _: CallId,
    function: Callback<A>,
    commute: c_int,
    out: Ptr<MPI_Op>,
) -> Result<()> {
    create(UserFunction::new(function), commute, out)
}

pub(crate) fn op_create_c<A: Abi>(
    _: CallId,
    function: Callback<A>,
    commute: c_int,
    out: Ptr<MPI_Op>,
) -> Result<()> {
    create(UserFunction::new_large(function), commute, out)
}

/// Frees an operation. Active reductions keep the function.
pub(crate) fn op_free(_: CallId, handle: Ptr<MPI_Op>) -> Result<()> {
    let old = handle.get()?;
    if let Some(predefined) = Op::predefined(old.0 as u16).filter(|_| old.0 < FIRST_DYNAMIC) {
        return Err(CallError::new(
            Class::Op,
            format!("{} is predefined and cannot be freed", predefined.name()),
        ));
    }
    if user_ops().remove(old).is_none() {
        return Err(unknown_op(old));
    }
    handle.set(MPI_OP_NULL)
}

pub(crate) fn op_commutative(_: CallId, handle: MPI_Op, commute: Ptr<c_int>) -> Result<()> {
    let commutes = match Op::predefined(handle.0 as u16).filter(|_| handle.0 < FIRST_DYNAMIC) {
        Some(predefined) => predefined.is_commutative(),
        None => {
            user_ops()
                .get(handle)
                .ok_or_else(|| unknown_op(handle))?
                .commutes
                == Commutativity::Yes
        }
    };
    commute.set(commutes.into())
}

pub(crate) fn reduce_local(
    _: CallId,
    input: Buf,
    inout: Buf,
    count: MPI_Count,
    datatype: MPI_Datatype,
    handle: MPI_Op,
) -> Result<()> {
    let elements = u64::try_from(count).map_err(|_| bad_count(count))?;
    let (operation, datatype) = (resolve_op(handle, datatype), committed(datatype)?);
    let operation = operation?;
    for buf in [input, inout] {
        check_buffer(buf, count, datatype)?;
    }
    let reduced = reduce(input.mem(), inout.mem(), elements, datatype, &operation.op);
    operation.bound.map_or(Ok(()), |bound| bound.end())?;
    Ok(reduced?)
}
