//! Neighbourhood collectives. The forms of each share one body, as in [`crate::coll`].

use crate::c_args::{Buf, ConstPtr, CountsIn, Ptr};
use crate::call::{CallError, CallId, Result};
use crate::coll::{CallForm, CollCall, VectorBuffer, collective_forms, datatypes_of, elements};
use crate::handle::*;
use garonne_mpi::coll::{
    NeighborAllgather, NeighborAllgatherv, NeighborAlltoall, NeighborAlltoallv, NeighborAlltoallw,
    Neighbors,
};
use garonne_mpi::error::Class;

/// Refuses `MPI_IN_PLACE`, which has no meaning in these calls.
fn refuse_in_place(bufs: [Buf; 2]) -> Result<()> {
    match bufs.iter().any(|buf| buf.is_in_place()) {
        true => Err(CallError::new(
            Class::Buffer,
            "MPI_IN_PLACE is not allowed in neighborhood collectives",
        )),
        false => Ok(()),
    }
}

/// Exchanges of blocks of one length: they differ in the call they make.
macro_rules! even {
    ($($body:ident $call:ident;)*) => {$(
        fn $body(
            coll_call: CollCall,
            sendbuf: Buf,
            sendcount: MPI_Count,
            sendtype: MPI_Datatype,
            recvbuf: Buf,
            recvcount: MPI_Count,
            recvtype: MPI_Datatype,
        ) -> Result<()> {
            refuse_in_place([sendbuf, recvbuf])?;
            let neighbors = &Neighbors::of(coll_call.comm)?;
            coll_call.run(&$call {
                neighbors,
                send: elements(sendbuf, sendcount, sendtype)?,
                recv: elements(recvbuf, recvcount, recvtype)?,
            })
        }
    )*};
}

even! {
    neighbor_allgather_body NeighborAllgather;
    neighbor_alltoall_body NeighborAlltoall;
}

collective_forms!(neighbor_allgather_body: neighbor_allgather ineighbor_allgather neighbor_allgather_init (
    sendbuf: Buf, sendcount: MPI_Count, sendtype: MPI_Datatype,
    recvbuf: Buf, recvcount: MPI_Count, recvtype: MPI_Datatype));
collective_forms!(neighbor_alltoall_body: neighbor_alltoall ineighbor_alltoall neighbor_alltoall_init (
    sendbuf: Buf, sendcount: MPI_Count, sendtype: MPI_Datatype,
    recvbuf: Buf, recvcount: MPI_Count, recvtype: MPI_Datatype));

fn neighbor_allgatherv_body(
    coll_call: CollCall,
    sendbuf: Buf,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: Buf,
    counts: CountsIn,
    displs: CountsIn,
    recvtype: MPI_Datatype,
) -> Result<()> {
    refuse_in_place([sendbuf, recvbuf])?;
    let neighbors = &Neighbors::of(coll_call.comm)?;
    let send = elements(sendbuf, sendcount, sendtype)?;
    let incoming = VectorBuffer::new(recvbuf, counts, displs);
    let recv = incoming.uneven(neighbors.indegree(), recvtype)?;
    coll_call.run(&NeighborAllgatherv {
        neighbors,
        send,
        recv,
    })
}

collective_forms!(neighbor_allgatherv_body: neighbor_allgatherv ineighbor_allgatherv neighbor_allgatherv_init (
    sendbuf: Buf, sendcount: MPI_Count, sendtype: MPI_Datatype,
    recvbuf: Buf, counts: CountsIn, displs: CountsIn, recvtype: MPI_Datatype));

fn neighbor_alltoallv_body(
    coll_call: CollCall,
    sendbuf: Buf,
    sendcounts: CountsIn,
    sdispls: CountsIn,
    sendtype: MPI_Datatype,
    recvbuf: Buf,
    recvcounts: CountsIn,
    rdispls: CountsIn,
    recvtype: MPI_Datatype,
) -> Result<()> {
    refuse_in_place([sendbuf, recvbuf])?;
    let neighbors = &Neighbors::of(coll_call.comm)?;
    let outgoing = VectorBuffer::new(sendbuf, sendcounts, sdispls);
    let incoming = VectorBuffer::new(recvbuf, recvcounts, rdispls);
    let send = outgoing.uneven(neighbors.outdegree(), sendtype)?;
    let recv = incoming.uneven(neighbors.indegree(), recvtype)?;
    coll_call.run(&NeighborAlltoallv {
        neighbors,
        send,
        recv,
    })
}

collective_forms!(neighbor_alltoallv_body: neighbor_alltoallv ineighbor_alltoallv neighbor_alltoallv_init (
    sendbuf: Buf, sendcounts: CountsIn, sdispls: CountsIn, sendtype: MPI_Datatype,
    recvbuf: Buf, recvcounts: CountsIn, rdispls: CountsIn, recvtype: MPI_Datatype));

fn neighbor_alltoallw_body(
    coll_call: CollCall,
    sendbuf: Buf,
    sendcounts: CountsIn,
    sdispls: ConstPtr<MPI_Aint>,
    sendtypes: ConstPtr<MPI_Datatype>,
    recvbuf: Buf,
    recvcounts: CountsIn,
    rdispls: ConstPtr<MPI_Aint>,
    recvtypes: ConstPtr<MPI_Datatype>,
) -> Result<()> {
    refuse_in_place([sendbuf, recvbuf])?;
    let neighbors = &Neighbors::of(coll_call.comm)?;
    let outgoing = VectorBuffer::new(sendbuf, sendcounts, sdispls);
    let incoming = VectorBuffer::new(recvbuf, recvcounts, rdispls);
    let (sent, received) = (neighbors.outdegree(), neighbors.indegree());
    let sendtypes = datatypes_of(sendtypes, sendcounts, sent)?;
    let recvtypes = datatypes_of(recvtypes, recvcounts, received)?;
    let send = outgoing.mixed(sent, &sendtypes)?;
    let recv = incoming.mixed(received, &recvtypes)?;
    coll_call.run(&NeighborAlltoallw {
        neighbors,
        send,
        recv,
    })
}

collective_forms!(neighbor_alltoallw_body: neighbor_alltoallw ineighbor_alltoallw neighbor_alltoallw_init (
    sendbuf: Buf, sendcounts: CountsIn, sdispls: ConstPtr<MPI_Aint>, sendtypes: ConstPtr<MPI_Datatype>,
    recvbuf: Buf, recvcounts: CountsIn, rdispls: ConstPtr<MPI_Aint>, recvtypes: ConstPtr<MPI_Datatype>));
