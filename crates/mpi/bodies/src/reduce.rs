//! Collectives that combine data. The blocking, the nonblocking and the persistent call of each
//! share one body.

use crate::c_args::{Buf, CountsIn, Ptr};
use crate::call::{CallId, Result};
use crate::coll::{CallForm, CollCall, check_buffer, collective_forms};
use crate::handle::*;
use crate::objects::committed;
use crate::op::resolve_op;
use crate::p2p::bad_count;
use garonne_mpi::coll::{Allreduce, Exscan, Reduce, ReduceScatter, ReduceScatterBlock, Scan};
use garonne_mpi::datatype::Datatype;
use garonne_sync::user::UserMem;
use std::ffi::c_int;

/// The data of a reduction: a number of elements of a type.
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

fn reduce_body(
    coll_call: CollCall,
    sendbuf: Buf,
    recvbuf: Buf,
    count: MPI_Count,
    datatype: MPI_Datatype,
    operation: MPI_Op,
    root: c_int,
) -> Result<()> {
    let operands = Operands::new(count, datatype)?;
    let is_root = coll_call.is_root(root);
    let send = match coll_call.contributes(root) {
        true if is_root => operands.or_in_place(sendbuf)?,
        true => Some(operands.mem(sendbuf)?),
        false => None,
    };
    let recv = if is_root {
        Some(operands.mem(recvbuf)?)
    } else {
        None
    };
    let operation = resolve_op(operation, datatype)?;
    let Operands { count, datatype } = operands;
    let reduce = Reduce {
        send,
        recv,
        count,
        datatype,
        op: &operation.op,
        root,
    };
    coll_call.run_reduction(&reduce, operation.bound.as_ref())
}

collective_forms!(reduce_body: reduce ireduce reduce_init (
    sendbuf: Buf, recvbuf: Buf, count: MPI_Count, datatype: MPI_Datatype, operation: MPI_Op, root: c_int));

/// Reductions whose result every process gets: they differ in the call they make.
macro_rules! symmetric {
    ($($body:ident $call:ident;)*) => {$(
        #[inline]
        fn $body(
            coll_call: CollCall,
            sendbuf: Buf,
            recvbuf: Buf,
            count: MPI_Count,
            datatype: MPI_Datatype,
            operation: MPI_Op,
        ) -> Result<()> {
            let operands = Operands::new(count, datatype)?;
            let (send, recv) = (operands.or_in_place(sendbuf)?, operands.mem(recvbuf)?);
            let operation = resolve_op(operation, datatype)?;
    let Operands { count, datatype } = operands;
            let call = $call { send, recv, count, datatype, op: &operation.op };
            coll_call.run_reduction(&call, operation.bound.as_ref())
        }
    )*};
}

symmetric! {
    allreduce_body Allreduce;
    scan_body Scan;
    exscan_body Exscan;
    reduce_scatter_block_body ReduceScatterBlock;
}

collective_forms!(allreduce_body: allreduce iallreduce allreduce_init (
    sendbuf: Buf, recvbuf: Buf, count: MPI_Count, datatype: MPI_Datatype, operation: MPI_Op));
collective_forms!(scan_body: scan iscan scan_init (
    sendbuf: Buf, recvbuf: Buf, count: MPI_Count, datatype: MPI_Datatype, operation: MPI_Op));
collective_forms!(exscan_body: exscan iexscan exscan_init (
    sendbuf: Buf, recvbuf: Buf, count: MPI_Count, datatype: MPI_Datatype, operation: MPI_Op));
collective_forms!(reduce_scatter_block_body: reduce_scatter_block ireduce_scatter_block reduce_scatter_block_init (
    sendbuf: Buf, recvbuf: Buf, count: MPI_Count, datatype: MPI_Datatype, operation: MPI_Op));

fn reduce_scatter_body(
    coll_call: CollCall,
    sendbuf: Buf,
    recvbuf: Buf,
    counts: CountsIn,
    datatype: MPI_Datatype,
    operation: MPI_Op,
) -> Result<()> {
    let numbers = counts.numbers(coll_call.comm.size() as usize)?;
    let own = numbers.get(coll_call.comm.rank());
    let total: i64 = (0..coll_call.comm.size())
        .map(|rank| numbers.get(rank).max(0))
        .sum();
    let operands = Operands::new(own, datatype)?;
    let whole = Operands {
        count: total as u64,
        datatype: operands.datatype,
    };
    let send = whole.or_in_place(sendbuf)?;
    let recv = operands.mem(recvbuf)?;
    let operation = resolve_op(operation, datatype)?;
    let call = ReduceScatter {
        send,
        recv,
        counts: numbers,
        datatype: operands.datatype,
        op: &operation.op,
    };
    coll_call.run_reduction(&call, operation.bound.as_ref())
}

collective_forms!(reduce_scatter_body: reduce_scatter ireduce_scatter reduce_scatter_init (
    sendbuf: Buf, recvbuf: Buf, counts: CountsIn, datatype: MPI_Datatype, operation: MPI_Op));
