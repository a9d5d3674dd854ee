//! Reduction operations.

use crate::call::{Call, Fault, Result};
use crate::callback::{UserFunction, UserFunctionLarge};
use crate::coll::check_buffer;
use crate::constants::*;
use crate::edge::{Buf, Callback, Ptr};
use crate::handle::*;
use crate::objects::{committed, publish, unknown};
use crate::p2p::bad_count;
use garonne_mpi::coll::reduce_local as reduce;
use garonne_mpi::error::Class;
use garonne_mpi::op::{Commutes, Op, UserOp};
use std::ffi::c_int;
use std::sync::Arc;

static OPS: Table<Op> = Table::new();

/// The operation of a handle.
#[inline]
pub(crate) fn op(handle: MPI_Op) -> Result<Op> {
    let found = if handle.0 < LIVE {
        Op::predefined(handle.0 as u16)
    } else {
        OPS.get(handle).cloned()
    };
    found.ok_or_else(|| unknown(Class::Op, "operation", handle.0, MPI_OP_NULL.0))
}

fn create(function: Callback, wrapped: Arc<dyn UserOp>, commute: c_int, out: Ptr<MPI_Op>) -> Result<()> {
    if function.is_null() {
        return Err(Fault::new(
            Class::Arg,
            "the function of the operation is a null pointer",
        ));
    }
    let commutes = if commute != 0 { Commutes::Yes } else { Commutes::No };
    out.set(publish(&OPS, Op::user(wrapped, commutes))?)
}

pub(crate) fn op_create(_: Call, function: Callback, commute: c_int, out: Ptr<MPI_Op>) -> Result<()> {
    create(function, Arc::new(UserFunction(function)), commute, out)
}

pub(crate) fn op_create_c(_: Call, function: Callback, commute: c_int, out: Ptr<MPI_Op>) -> Result<()> {
    create(function, Arc::new(UserFunctionLarge(function)), commute, out)
}

/// Reductions under way keep the operation.
pub(crate) fn op_free(_: Call, handle: Ptr<MPI_Op>) -> Result<()> {
    let old = handle.get()?;
    if old.0 < LIVE && old != MPI_OP_NULL {
        return Err(Fault::new(
            Class::Op,
            format!("{} is predefined and cannot be freed", op(old)?.name()),
        ));
    }
    if OPS.remove(old).is_none() {
        return Err(unknown(Class::Op, "operation", old.0, MPI_OP_NULL.0));
    }
    handle.set(MPI_OP_NULL)
}

pub(crate) fn op_commutative(_: Call, handle: MPI_Op, commute: Ptr<c_int>) -> Result<()> {
    commute.set(op(handle)?.is_commutative().into())
}

pub(crate) fn reduce_local(
    _: Call,
    input: Buf,
    inout: Buf,
    count: MPI_Count,
    datatype: MPI_Datatype,
    handle: MPI_Op,
) -> Result<()> {
    let elements = u64::try_from(count).map_err(|_| bad_count(count))?;
    let (datatype, op) = (committed(datatype)?, op(handle)?);
    for buf in [input, inout] {
        check_buffer(buf, count, datatype)?;
    }
    Ok(reduce(input.mem(), inout.mem(), elements, datatype, &op)?)
}
