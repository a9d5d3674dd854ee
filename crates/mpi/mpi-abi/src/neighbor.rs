//! Neighbourhood collectives. The forms of each share one body, as in [`crate::coll`].

use crate::call::{Call, Fault, Result};
use crate::coll::{Form, Ragged, Way, each_type, elements, forms};
use crate::c_args::{Buf, Counts, In, Ptr};
use crate::handle::*;
use garonne_mpi::coll::{
    NeighborAllgather, NeighborAllgatherv, NeighborAlltoall, NeighborAlltoallv, NeighborAlltoallw,
    Neighbors,
};
use garonne_mpi::error::Class;

/// Refuses `MPI_IN_PLACE`, which has no meaning in these calls.
fn apart(bufs: [Buf; 2]) -> Result<()> {
    match bufs.iter().any(|buf| buf.is_in_place()) {
        true => Err(Fault::new(
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
            way: Way,
            sendbuf: Buf,
            sendcount: MPI_Count,
            sendtype: MPI_Datatype,
            recvbuf: Buf,
            recvcount: MPI_Count,
            recvtype: MPI_Datatype,
        ) -> Result<()> {
            apart([sendbuf, recvbuf])?;
            let neighbors = &Neighbors::of(way.comm)?;
            way.run(&$call {
                neighbors,
                send: elements(sendbuf, sendcount, sendtype)?,
                recv: elements(recvbuf, recvcount, recvtype)?,
            })
        }
    )*};
}

even! {
    any_neighbor_allgather NeighborAllgather;
    any_neighbor_alltoall NeighborAlltoall;
}

forms!(any_neighbor_allgather: neighbor_allgather ineighbor_allgather neighbor_allgather_init (
    sendbuf: Buf, sendcount: MPI_Count, sendtype: MPI_Datatype,
    recvbuf: Buf, recvcount: MPI_Count, recvtype: MPI_Datatype));
forms!(any_neighbor_alltoall: neighbor_alltoall ineighbor_alltoall neighbor_alltoall_init (
    sendbuf: Buf, sendcount: MPI_Count, sendtype: MPI_Datatype,
    recvbuf: Buf, recvcount: MPI_Count, recvtype: MPI_Datatype));

fn any_neighbor_allgatherv(
    way: Way,
    sendbuf: Buf,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: Buf,
    counts: Counts,
    displs: Counts,
    recvtype: MPI_Datatype,
) -> Result<()> {
    apart([sendbuf, recvbuf])?;
    let neighbors = &Neighbors::of(way.comm)?;
    let send = elements(sendbuf, sendcount, sendtype)?;
    let incoming = Ragged::new(recvbuf, counts, displs);
    let recv = incoming.uneven(neighbors.indegree(), recvtype)?;
    way.run(&NeighborAllgatherv {
        neighbors,
        send,
        recv,
    })
}

forms!(any_neighbor_allgatherv: neighbor_allgatherv ineighbor_allgatherv neighbor_allgatherv_init (
    sendbuf: Buf, sendcount: MPI_Count, sendtype: MPI_Datatype,
    recvbuf: Buf, counts: Counts, displs: Counts, recvtype: MPI_Datatype));

fn any_neighbor_alltoallv(
    way: Way,
    sendbuf: Buf,
    sendcounts: Counts,
    sdispls: Counts,
    sendtype: MPI_Datatype,
    recvbuf: Buf,
    recvcounts: Counts,
    rdispls: Counts,
    recvtype: MPI_Datatype,
) -> Result<()> {
    apart([sendbuf, recvbuf])?;
    let neighbors = &Neighbors::of(way.comm)?;
    let outgoing = Ragged::new(sendbuf, sendcounts, sdispls);
    let incoming = Ragged::new(recvbuf, recvcounts, rdispls);
    let send = outgoing.uneven(neighbors.outdegree(), sendtype)?;
    let recv = incoming.uneven(neighbors.indegree(), recvtype)?;
    way.run(&NeighborAlltoallv {
        neighbors,
        send,
        recv,
    })
}

forms!(any_neighbor_alltoallv: neighbor_alltoallv ineighbor_alltoallv neighbor_alltoallv_init (
    sendbuf: Buf, sendcounts: Counts, sdispls: Counts, sendtype: MPI_Datatype,
    recvbuf: Buf, recvcounts: Counts, rdispls: Counts, recvtype: MPI_Datatype));

fn any_neighbor_alltoallw(
    way: Way,
    sendbuf: Buf,
    sendcounts: Counts,
    sdispls: In<MPI_Aint>,
    sendtypes: In<MPI_Datatype>,
    recvbuf: Buf,
    recvcounts: Counts,
    rdispls: In<MPI_Aint>,
    recvtypes: In<MPI_Datatype>,
) -> Result<()> {
    apart([sendbuf, recvbuf])?;
    let neighbors = &Neighbors::of(way.comm)?;
    let outgoing = Ragged::new(sendbuf, sendcounts, sdispls);
    let incoming = Ragged::new(recvbuf, recvcounts, rdispls);
    let (sent, received) = (neighbors.outdegree(), neighbors.indegree());
    let sendtypes = each_type(sendtypes, sendcounts, sent)?;
    let recvtypes = each_type(recvtypes, recvcounts, received)?;
    let send = outgoing.mixed(sent, &sendtypes)?;
    let recv = incoming.mixed(received, &recvtypes)?;
    way.run(&NeighborAlltoallw {
        neighbors,
        send,
        recv,
    })
}

forms!(any_neighbor_alltoallw: neighbor_alltoallw ineighbor_alltoallw neighbor_alltoallw_init (
    sendbuf: Buf, sendcounts: Counts, sdispls: In<MPI_Aint>, sendtypes: In<MPI_Datatype>,
    recvbuf: Buf, recvcounts: Counts, rdispls: In<MPI_Aint>, recvtypes: In<MPI_Datatype>));
