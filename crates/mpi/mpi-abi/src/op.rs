//! Reduction operations.

use crate::call::{Call, Fault, Result};
use crate::callback::{Bound, Function};
use crate::coll::check_buffer;
use crate::constants::*;
use crate::c_args::{Buf, Callback, Ptr};
use crate::handle::*;
use crate::objects::{committed, publish, unknown};
use crate::p2p::bad_count;
use crate::datatype_refs::TypeRef;
use garonne_mpi::coll::reduce_local as reduce;
use garonne_mpi::error::Class;
use garonne_mpi::op::{Commutes, Op};
use std::ffi::c_int;
use std::sync::Arc;

/// An operation that the program made.
struct Made {
    function: Function,
    commutes: Commutes,
}

static MADE: Table<Made> = Table::new();

fn no_operation(handle: MPI_Op) -> Fault {
    unknown(Class::Op, "operation", handle.0, MPI_OP_NULL.0)
}

/// An operation in one reduction.
pub(crate) struct Operation {
    /// As the reduction takes it.
    pub op: Op,
    /// What the edge keeps of one of the program's.
    pub bound: Option<Arc<Bound>>,
}

/// The operation of a handle, for one reduction of data of this type.
#[inline]
pub(crate) fn op_on(handle: MPI_Op, datatype: MPI_Datatype) -> Result<Operation> {
    let found = if handle.0 < LIVE {
        Op::predefined(handle.0 as u16).map(|op| Operation { op, bound: None })
    } else {
        MADE.get(handle).map(|made| bound(made, datatype))
    };
    found.ok_or_else(|| no_operation(handle))
}

#[inline(never)]
fn bound(made: &Made, datatype: MPI_Datatype) -> Operation {
    let bound = Arc::new(Bound::new(made.function, TypeRef::new(datatype)));
    Operation {
        op: Op::user(bound.clone(), made.commutes),
        bound: Some(bound),
    }
}

fn create(function: Function, commute: c_int, out: Ptr<MPI_Op>) -> Result<()> {
    let (Function::Int(code) | Function::Large(code)) = function;
    if code.is_null() {
        return Err(Fault::new(
            Class::Arg,
            "the function of the operation is a null pointer",
        ));
    }
    let commutes = if commute != 0 {
        Commutes::Yes
    } else {
        Commutes::No
    };
    out.set(publish(&MADE, Made { function, commutes })?)
}

pub(crate) fn op_create(
    _: Call,
    function: Callback,
    commute: c_int,
    out: Ptr<MPI_Op>,
) -> Result<()> {
    create(Function::Int(function), commute, out)
}

pub(crate) fn op_create_c(
    _: Call,
    function: Callback,
    commute: c_int,
    out: Ptr<MPI_Op>,
) -> Result<()> {
    create(Function::Large(function), commute, out)
}

/// Reductions under way keep the function.
pub(crate) fn op_free(_: Call, handle: Ptr<MPI_Op>) -> Result<()> {
    let old = handle.get()?;
    if let Some(predefined) = Op::predefined(old.0 as u16).filter(|_| old.0 < LIVE) {
        return Err(Fault::new(
            Class::Op,
            format!("{} is predefined and cannot be freed", predefined.name()),
        ));
    }
    if MADE.remove(old).is_none() {
        return Err(no_operation(old));
    }
    handle.set(MPI_OP_NULL)
}

pub(crate) fn op_commutative(_: Call, handle: MPI_Op, commute: Ptr<c_int>) -> Result<()> {
    let commutes = match Op::predefined(handle.0 as u16).filter(|_| handle.0 < LIVE) {
        Some(predefined) => predefined.is_commutative(),
        None => {
            MADE.get(handle)
                .ok_or_else(|| no_operation(handle))?
                .commutes
                == Commutes::Yes
        }
    };
    commute.set(commutes.into())
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
    let (operation, datatype) = (op_on(handle, datatype), committed(datatype)?);
    let operation = operation?;
    for buf in [input, inout] {
        check_buffer(buf, count, datatype)?;
    }
    let reduced = reduce(input.mem(), inout.mem(), elements, datatype, &operation.op);
    operation.bound.map_or(Ok(()), |bound| bound.end())?;
    Ok(reduced?)
}
