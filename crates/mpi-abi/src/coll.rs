//! Collectives that move data. The blocking and the nonblocking call of each share one body.

use crate::call::{Call, Result};
use crate::constants::*;
use crate::device;
use crate::edge::{Buf, Counts, In, Ptr};
use crate::handle::*;
use crate::objects::{comm, committed, datatype};
use crate::p2p::{bad_count, suspect};
use crate::request::give_request;
use garonne_engine::api::Origin;
use garonne_mpi::coll::{
    Allgather, Allgatherv, Alltoall, Alltoallv, Alltoallw, Barrier, Bcast, Collective, Elements, Gather,
    Gatherv, Mixed, Scatter, Scatterv, Uneven,
};
use garonne_mpi::comm::Comm;
use garonne_mpi::datatype::Datatype;
use std::ffi::c_int;

/// How a collective was called: on what, from where, and where its request goes if it is nonblocking.
pub(crate) struct Way {
    pub comm: &'static Comm,
    origin: Origin,
    out: Option<Ptr<MPI_Request>>,
}

impl Way {
    #[inline]
    pub fn new(call: Call, on: MPI_Comm, out: Option<Ptr<MPI_Request>>) -> Result<Self> {
        Ok(Self {
            comm: comm(on)?,
            origin: call.origin(),
            out,
        })
    }

    /// Carries the collective out, or starts it.
    #[inline]
    pub fn run(self, collective: &impl Collective) -> Result<()> {
        match self.out {
            None => Ok(self.comm.collective(collective, self.origin)?),
            Some(out) => give_request(self.comm.start_collective(collective, self.origin)?, out),
        }
    }

    /// Whether this process is the root (of an intercommunicator: the root itself, in the root's group).
    pub fn is_root(&self, root: c_int) -> bool {
        if self.comm.is_inter() {
            root == MPI_ROOT
        } else {
            self.comm.rank() as c_int == root
        }
    }

    /// Whether this process sends to or receives from the root of a rooted collective with a buffer of its own.
    pub fn contributes(&self, root: c_int) -> bool {
        !self.comm.is_inter() || root >= 0
    }

    /// The ranks that a buffer of one block per rank has blocks for.
    fn blocks(&self) -> usize {
        self.comm.peers() as usize
    }
}

/// The blocking and the nonblocking entry of a body.
macro_rules! both {
    ($body:ident: $blocking:ident $nonblocking:ident ($($arg:ident: $ty:ty),*)) => {
        pub(crate) fn $blocking(call: Call, $($arg: $ty,)* on: MPI_Comm) -> Result<()> {
            $body(Way::new(call, on, None)?, $($arg),*)
        }

        pub(crate) fn $nonblocking(call: Call, $($arg: $ty,)* on: MPI_Comm, out: Ptr<MPI_Request>) -> Result<()> {
            $body(Way::new(call, on, Some(out))?, $($arg),*)
        }
    };
}
pub(crate) use both;

/// Refuses addresses where no data of this type can be.
pub(crate) fn check_buffer(buf: Buf, count: MPI_Count, datatype: &Datatype) -> Result<()> {
    if buf.addr() <= device::floor() {
        suspect(buf, count, datatype)?;
    }
    Ok(())
}

fn elements(buf: Buf, count: MPI_Count, handle: MPI_Datatype) -> Result<Elements<'static>> {
    let n = u64::try_from(count).map_err(|_| bad_count(count))?;
    let datatype = committed(handle)?;
    check_buffer(buf, count, datatype)?;
    Ok(Elements {
        mem: buf.mem(),
        count: n,
        datatype,
    })
}

/// As [`elements`]; `None` for `MPI_IN_PLACE`.
fn or_in_place(buf: Buf, count: MPI_Count, handle: MPI_Datatype) -> Result<Option<Elements<'static>>> {
    if buf.is_in_place() {
        Ok(None)
    } else {
        elements(buf, count, handle).map(Some)
    }
}

/// A block of its own length and place for every rank.
struct Ragged {
    buf: Buf,
    counts: Counts,
    displs: Counts,
}

impl Ragged {
    fn uneven(&self, n: usize, handle: MPI_Datatype) -> Result<Uneven<'_>> {
        let (counts, displs) = (self.counts.numbers(n)?, self.displs.numbers(n)?);
        let datatype = committed(handle)?;
        let most = (0..n as u32)
            .map(|rank| counts.get(rank))
            .max()
            .unwrap_or(0)
            .max(0);
        check_buffer(self.buf, most, datatype)?;
        Ok(Uneven {
            mem: self.buf.mem(),
            counts,
            displs,
            datatype,
        })
    }

    fn mixed<'a>(&'a self, n: usize, datatypes: &'a [Datatype]) -> Result<Mixed<'a>> {
        let (counts, displs) = (self.counts.numbers(n)?, self.displs.numbers(n)?);
        device::refuse(self.buf)?;
        Ok(Mixed {
            mem: self.buf.mem(),
            counts,
            displs,
            datatypes,
        })
    }
}

fn each_type(handles: In<MPI_Datatype>, counts: Counts, n: usize) -> Result<Vec<Datatype>> {
    let one = |i: usize| {
        // The type of an empty block need not be committed, but must be one.
        let handle = handles.at(i)?;
        if counts.at(i)? == 0 {
            datatype(handle).cloned()
        } else {
            committed(handle).cloned()
        }
    };
    (0..n).map(one).collect()
}

pub(crate) fn barrier(call: Call, on: MPI_Comm) -> Result<()> {
    Way::new(call, on, None)?.run(&Barrier)
}

pub(crate) fn ibarrier(call: Call, on: MPI_Comm, out: Ptr<MPI_Request>) -> Result<()> {
    Way::new(call, on, Some(out))?.run(&Barrier)
}

fn any_bcast(way: Way, buf: Buf, count: MPI_Count, datatype: MPI_Datatype, root: c_int) -> Result<()> {
    let buffer = elements(buf, count, datatype)?;
    way.run(&Bcast { buffer, root })
}

both!(any_bcast: bcast ibcast (buf: Buf, count: MPI_Count, datatype: MPI_Datatype, root: c_int));

fn any_gather(
    way: Way,
    sendbuf: Buf,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: Buf,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
    root: c_int,
) -> Result<()> {
    let is_root = way.is_root(root);
    let send = match way.contributes(root) {
        true if is_root => or_in_place(sendbuf, sendcount, sendtype)?,
        true => Some(elements(sendbuf, sendcount, sendtype)?),
        false => None,
    };
    let recv = if is_root {
        Some(elements(recvbuf, recvcount, recvtype)?)
    } else {
        None
    };
    way.run(&Gather { send, recv, root })
}

both!(any_gather: gather igather (
    sendbuf: Buf, sendcount: MPI_Count, sendtype: MPI_Datatype,
    recvbuf: Buf, recvcount: MPI_Count, recvtype: MPI_Datatype, root: c_int));

fn any_gatherv(
    way: Way,
    sendbuf: Buf,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: Buf,
    counts: Counts,
    displs: Counts,
    recvtype: MPI_Datatype,
    root: c_int,
) -> Result<()> {
    let is_root = way.is_root(root);
    let send = match way.contributes(root) {
        true if is_root => or_in_place(sendbuf, sendcount, sendtype)?,
        true => Some(elements(sendbuf, sendcount, sendtype)?),
        false => None,
    };
    let blocks = Ragged {
        buf: recvbuf,
        counts,
        displs,
    };
    let recv = if is_root {
        Some(blocks.uneven(way.blocks(), recvtype)?)
    } else {
        None
    };
    way.run(&Gatherv { send, recv, root })
}

both!(any_gatherv: gatherv igatherv (
    sendbuf: Buf, sendcount: MPI_Count, sendtype: MPI_Datatype,
    recvbuf: Buf, counts: Counts, displs: Counts, recvtype: MPI_Datatype, root: c_int));

fn any_scatter(
    way: Way,
    sendbuf: Buf,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: Buf,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
    root: c_int,
) -> Result<()> {
    let is_root = way.is_root(root);
    let send = if is_root {
        Some(elements(sendbuf, sendcount, sendtype)?)
    } else {
        None
    };
    let recv = match way.contributes(root) {
        true if is_root => or_in_place(recvbuf, recvcount, recvtype)?,
        true => Some(elements(recvbuf, recvcount, recvtype)?),
        false => None,
    };
    way.run(&Scatter { send, recv, root })
}

both!(any_scatter: scatter iscatter (
    sendbuf: Buf, sendcount: MPI_Count, sendtype: MPI_Datatype,
    recvbuf: Buf, recvcount: MPI_Count, recvtype: MPI_Datatype, root: c_int));

fn any_scatterv(
    way: Way,
    sendbuf: Buf,
    counts: Counts,
    displs: Counts,
    sendtype: MPI_Datatype,
    recvbuf: Buf,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
    root: c_int,
) -> Result<()> {
    let is_root = way.is_root(root);
    let blocks = Ragged {
        buf: sendbuf,
        counts,
        displs,
    };
    let send = if is_root {
        Some(blocks.uneven(way.blocks(), sendtype)?)
    } else {
        None
    };
    let recv = match way.contributes(root) {
        true if is_root => or_in_place(recvbuf, recvcount, recvtype)?,
        true => Some(elements(recvbuf, recvcount, recvtype)?),
        false => None,
    };
    way.run(&Scatterv { send, recv, root })
}

both!(any_scatterv: scatterv iscatterv (
    sendbuf: Buf, counts: Counts, displs: Counts, sendtype: MPI_Datatype,
    recvbuf: Buf, recvcount: MPI_Count, recvtype: MPI_Datatype, root: c_int));

fn any_allgather(
    way: Way,
    sendbuf: Buf,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: Buf,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
) -> Result<()> {
    let send = or_in_place(sendbuf, sendcount, sendtype)?;
    way.run(&Allgather {
        send,
        recv: elements(recvbuf, recvcount, recvtype)?,
    })
}

both!(any_allgather: allgather iallgather (
    sendbuf: Buf, sendcount: MPI_Count, sendtype: MPI_Datatype,
    recvbuf: Buf, recvcount: MPI_Count, recvtype: MPI_Datatype));

fn any_allgatherv(
    way: Way,
    sendbuf: Buf,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: Buf,
    counts: Counts,
    displs: Counts,
    recvtype: MPI_Datatype,
) -> Result<()> {
    let send = or_in_place(sendbuf, sendcount, sendtype)?;
    let blocks = Ragged {
        buf: recvbuf,
        counts,
        displs,
    };
    let recv = blocks.uneven(way.blocks(), recvtype)?;
    way.run(&Allgatherv { send, recv })
}

both!(any_allgatherv: allgatherv iallgatherv (
    sendbuf: Buf, sendcount: MPI_Count, sendtype: MPI_Datatype,
    recvbuf: Buf, counts: Counts, displs: Counts, recvtype: MPI_Datatype));

fn any_alltoall(
    way: Way,
    sendbuf: Buf,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: Buf,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
) -> Result<()> {
    let send = or_in_place(sendbuf, sendcount, sendtype)?;
    way.run(&Alltoall {
        send,
        recv: elements(recvbuf, recvcount, recvtype)?,
    })
}

both!(any_alltoall: alltoall ialltoall (
    sendbuf: Buf, sendcount: MPI_Count, sendtype: MPI_Datatype,
    recvbuf: Buf, recvcount: MPI_Count, recvtype: MPI_Datatype));

fn any_alltoallv(
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
    let outgoing = Ragged {
        buf: sendbuf,
        counts: sendcounts,
        displs: sdispls,
    };
    let incoming = Ragged {
        buf: recvbuf,
        counts: recvcounts,
        displs: rdispls,
    };
    let n = way.blocks();
    let send = if sendbuf.is_in_place() {
        None
    } else {
        Some(outgoing.uneven(n, sendtype)?)
    };
    way.run(&Alltoallv {
        send,
        recv: incoming.uneven(n, recvtype)?,
    })
}

both!(any_alltoallv: alltoallv ialltoallv (
    sendbuf: Buf, sendcounts: Counts, sdispls: Counts, sendtype: MPI_Datatype,
    recvbuf: Buf, recvcounts: Counts, rdispls: Counts, recvtype: MPI_Datatype));

fn any_alltoallw(
    way: Way,
    sendbuf: Buf,
    sendcounts: Counts,
    sdispls: Counts,
    sendtypes: In<MPI_Datatype>,
    recvbuf: Buf,
    recvcounts: Counts,
    rdispls: Counts,
    recvtypes: In<MPI_Datatype>,
) -> Result<()> {
    let outgoing = Ragged {
        buf: sendbuf,
        counts: sendcounts,
        displs: sdispls,
    };
    let incoming = Ragged {
        buf: recvbuf,
        counts: recvcounts,
        displs: rdispls,
    };
    let n = way.blocks();
    let sent = if sendbuf.is_in_place() {
        Vec::new()
    } else {
        each_type(sendtypes, sendcounts, n)?
    };
    let received = each_type(recvtypes, recvcounts, n)?;
    let send = if sendbuf.is_in_place() {
        None
    } else {
        Some(outgoing.mixed(n, &sent)?)
    };
    way.run(&Alltoallw {
        send,
        recv: incoming.mixed(n, &received)?,
    })
}

both!(any_alltoallw: alltoallw ialltoallw (
    sendbuf: Buf, sendcounts: Counts, sdispls: Counts, sendtypes: In<MPI_Datatype>,
    recvbuf: Buf, recvcounts: Counts, rdispls: Counts, recvtypes: In<MPI_Datatype>));
