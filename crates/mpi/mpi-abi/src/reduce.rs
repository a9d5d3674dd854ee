//! Collectives that combine data. The blocking, the nonblocking and the persistent call of each
//! share one body.

use crate::call::{Call, Result};
use crate::coll::{Form, Way, check_buffer, forms};
use crate::c_args::{Buf, Counts, Ptr};
use crate::handle::*;
use crate::objects::committed;
use crate::op::op_on;
use crate::p2p::bad_count;
use garonne_mpi::coll::{Allreduce, Exscan, Reduce, ReduceScatter, ReduceScatterBlock, Scan};
use garonne_mpi::datatype::Datatype;
use garonne_sync::user::UserMem;
use std::ffi::c_int;

/// What a reduction works on: a count of elements of a type.
struct Operands {
    count: u64,
    datatype: &'static Datatype,
}

impl Operands {
    fn new(count: MPI_Count, handle: MPI_Datatype) -> Result<Self> {
        Ok(Self {
            count: u64::try_from(count).map_err(|_| bad_count(count))?,
            datatype: committed(handle)?,
        })
    }

    fn mem(&self, buf: Buf) -> Result<UserMem> {
        check_buffer(buf, self.count as i64, self.datatype)?;
        Ok(buf.mem())
    }

    /// `None` for `MPI_IN_PLACE`.
    fn or_in_place(&self, buf: Buf) -> Result<Option<UserMem>> {
        if buf.is_in_place() {
            Ok(None)
        } else {
            self.mem(buf).map(Some)
        }
    }
}

fn any_reduce(
    way: Way,
    sendbuf: Buf,
    recvbuf: Buf,
    count: MPI_Count,
    datatype: MPI_Datatype,
    operation: MPI_Op,
    root: c_int,
) -> Result<()> {
    let operands = Operands::new(count, datatype)?;
    let is_root = way.is_root(root);
    let send = match way.contributes(root) {
        true if is_root => operands.or_in_place(sendbuf)?,
        true => Some(operands.mem(sendbuf)?),
        false => None,
    };
    let recv = if is_root {
        Some(operands.mem(recvbuf)?)
    } else {
        None
    };
    let operation = op_on(operation, datatype)?;
    let Operands { count, datatype } = operands;
    let reduce = Reduce {
        send,
        recv,
        count,
        datatype,
        op: &operation.op,
        root,
    };
    way.combine(&reduce, operation.bound.as_ref())
}

forms!(any_reduce: reduce ireduce reduce_init (
    sendbuf: Buf, recvbuf: Buf, count: MPI_Count, datatype: MPI_Datatype, operation: MPI_Op, root: c_int));

/// Reductions whose result every process gets: they differ in the call they make.
macro_rules! symmetric {
    ($($body:ident $call:ident;)*) => {$(
        #[inline]
        fn $body(
            way: Way,
            sendbuf: Buf,
            recvbuf: Buf,
            count: MPI_Count,
            datatype: MPI_Datatype,
            operation: MPI_Op,
        ) -> Result<()> {
            let operands = Operands::new(count, datatype)?;
            let (send, recv) = (operands.or_in_place(sendbuf)?, operands.mem(recvbuf)?);
            let operation = op_on(operation, datatype)?;
    let Operands { count, datatype } = operands;
            let call = $call { send, recv, count, datatype, op: &operation.op };
            way.combine(&call, operation.bound.as_ref())
        }
    )*};
}

symmetric! {
    any_allreduce Allreduce;
    any_scan Scan;
    any_exscan Exscan;
    any_reduce_scatter_block ReduceScatterBlock;
}

forms!(any_allreduce: allreduce iallreduce allreduce_init (
    sendbuf: Buf, recvbuf: Buf, count: MPI_Count, datatype: MPI_Datatype, operation: MPI_Op));
forms!(any_scan: scan iscan scan_init (
    sendbuf: Buf, recvbuf: Buf, count: MPI_Count, datatype: MPI_Datatype, operation: MPI_Op));
forms!(any_exscan: exscan iexscan exscan_init (
    sendbuf: Buf, recvbuf: Buf, count: MPI_Count, datatype: MPI_Datatype, operation: MPI_Op));
forms!(any_reduce_scatter_block: reduce_scatter_block ireduce_scatter_block reduce_scatter_block_init (
    sendbuf: Buf, recvbuf: Buf, count: MPI_Count, datatype: MPI_Datatype, operation: MPI_Op));

fn any_reduce_scatter(
    way: Way,
    sendbuf: Buf,
    recvbuf: Buf,
    counts: Counts,
    datatype: MPI_Datatype,
    operation: MPI_Op,
) -> Result<()> {
    let numbers = counts.numbers(way.comm.size() as usize)?;
    let own = numbers.get(way.comm.rank());
    let total: i64 = (0..way.comm.size())
        .map(|rank| numbers.get(rank).max(0))
        .sum();
    let operands = Operands::new(own, datatype)?;
    let whole = Operands {
        count: total as u64,
        datatype: operands.datatype,
    };
    let send = whole.or_in_place(sendbuf)?;
    let recv = operands.mem(recvbuf)?;
    let operation = op_on(operation, datatype)?;
    let call = ReduceScatter {
        send,
        recv,
        counts: numbers,
        datatype: operands.datatype,
        op: &operation.op,
    };
    way.combine(&call, operation.bound.as_ref())
}

forms!(any_reduce_scatter: reduce_scatter ireduce_scatter reduce_scatter_init (
    sendbuf: Buf, recvbuf: Buf, counts: Counts, datatype: MPI_Datatype, operation: MPI_Op));
