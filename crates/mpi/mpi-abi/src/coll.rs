//! Collectives that move data. The blocking, the nonblocking and the persistent call of each share
//! one body.

use crate::call::{Call, Result};
use crate::callback::Bound;
use crate::constants::*;
use crate::gpu_buffers;
use crate::c_args::{Buf, Counts, In, Ptr};
use crate::handle::*;
use crate::objects::{comm, committed, datatype, info_or_null};
use crate::p2p::{bad_count, suspect};
use crate::request::{give_reduction, give_request};
use garonne_engine::api::CallOrigin;
use garonne_mpi::coll::{
    Allgather, Allgatherv, Alltoall, Alltoallv, Alltoallw, Barrier, Bcast, Collective, Elements,
    ElementsV, ElementsW, Gather, Gatherv, Scatter, Scatterv,
};
use garonne_mpi::comm::Comm;
use garonne_mpi::datatype::Datatype;
use std::ffi::c_int;
use std::sync::Arc;

/// The forms of a collective call, with the place of its request.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    /// Returns when it is done.
    Blocking,
    /// Returns when it is started.
    Nonblocking(Ptr<MPI_Request>),
    /// Started again and again.
    Persistent(Ptr<MPI_Request>),
}

/// How a collective was called: on what, from where, and in which form.
pub(crate) struct Way {
    pub comm: &'static Comm,
    origin: CallOrigin,
    form: Form,
}

impl Way {
    #[inline]
    pub fn new(call: Call, on: MPI_Comm, form: Form) -> Result<Self> {
        Ok(Self {
            comm: comm(on)?,
            origin: call.origin(),
            form,
        })
    }

    /// For a persistent call: no hint means anything here.
    pub fn to_start(
        call: Call,
        on: MPI_Comm,
        hints: MPI_Info,
        out: Ptr<MPI_Request>,
    ) -> Result<Self> {
        info_or_null(hints)?;
        Self::new(call, on, Form::Persistent(out))
    }

    /// Carries the collective out, or starts it, or makes it ready to be started.
    #[inline]
    pub fn run(self, collective: &impl Collective) -> Result<()> {
        match self.form {
            Form::Blocking => Ok(self.comm.collective(collective, self.origin)?),
            Form::Nonblocking(out) => {
                give_request(self.comm.start_collective(collective, self.origin)?, out)
            }
            Form::Persistent(out) => {
                give_request(self.comm.init_collective(collective, self.origin)?, out)
            }
        }
    }

    /// The same for a reduction, of which an operation of the program is part or not.
    #[inline]
    pub fn combine(self, collective: &impl Collective, bound: Option<&Arc<Bound>>) -> Result<()> {
        match bound {
            Some(bound) => self.combine_with(collective, bound),
            None => self.run(collective),
        }
    }

    #[inline(never)]
    fn combine_with(self, collective: &impl Collective, bound: &Arc<Bound>) -> Result<()> {
        let (started, out) = match self.form {
            Form::Blocking => {
                let outcome = self.comm.collective(collective, self.origin);
                bound.end()?;
                return Ok(outcome?);
            }
            Form::Nonblocking(out) => (self.comm.start_collective(collective, self.origin), out),
            Form::Persistent(out) => (self.comm.init_collective(collective, self.origin), out),
        };
        match started {
            Ok(request) => give_reduction(request, bound, out),
            Err(error) => {
                bound.end()?;
                Err(error.into())
            }
        }
    }

    /// Whether this process is the root (of an intercommunicator: the root itself, in the root's
    /// group).
    pub fn is_root(&self, root: c_int) -> bool {
        if self.comm.is_inter() {
            root == MPI_ROOT
        } else {
            self.comm.rank() as c_int == root
        }
    }

    /// Whether this process sends to or receives from the root of a rooted collective with a buffer
    /// of its own.
    pub fn contributes(&self, root: c_int) -> bool {
        !self.comm.is_inter() || root >= 0
    }

    /// The ranks that a buffer of one block per rank has blocks for.
    fn blocks(&self) -> usize {
        self.comm.peers() as usize
    }
}

/// The entries of a body, one for each form.
macro_rules! forms {
    ($body:ident: $blocking:ident $nonblocking:ident $persistent:ident ($($arg:ident: $ty:ty),*)) => {
        pub(crate) fn $blocking(call: Call, $($arg: $ty,)* on: MPI_Comm) -> Result<()> {
            $body(Way::new(call, on, Form::Blocking)?, $($arg),*)
        }

        pub(crate) fn $nonblocking(call: Call, $($arg: $ty,)* on: MPI_Comm, out: Ptr<MPI_Request>) -> Result<()> {
            $body(Way::new(call, on, Form::Nonblocking(out))?, $($arg),*)
        }

        pub(crate) fn $persistent(
            call: Call, $($arg: $ty,)* on: MPI_Comm, hints: MPI_Info, out: Ptr<MPI_Request>,
        ) -> Result<()> {
            $body(Way::to_start(call, on, hints, out)?, $($arg),*)
        }
    };
}
pub(crate) use forms;

/// Refuses addresses where no data of this type can be.
pub(crate) fn check_buffer(buf: Buf, count: MPI_Count, datatype: &Datatype) -> Result<()> {
    if buf.addr() <= gpu_buffers::floor() {
        suspect(buf, count, datatype)?;
    }
    Ok(())
}

pub(crate) fn elements(
    buf: Buf,
    count: MPI_Count,
    handle: MPI_Datatype,
) -> Result<Elements<'static>> {
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
fn or_in_place(
    buf: Buf,
    count: MPI_Count,
    handle: MPI_Datatype,
) -> Result<Option<Elements<'static>>> {
    if buf.is_in_place() {
        Ok(None)
    } else {
        elements(buf, count, handle).map(Some)
    }
}

/// A block of its own length and place for every rank.
pub(crate) struct Ragged {
    buf: Buf,
    counts: Counts,
    displs: Counts,
}

impl Ragged {
    pub fn new(buf: Buf, counts: impl Into<Counts>, displs: impl Into<Counts>) -> Self {
        Self {
            buf,
            counts: counts.into(),
            displs: displs.into(),
        }
    }

    pub fn uneven(&self, n: usize, handle: MPI_Datatype) -> Result<ElementsV<'_>> {
        let (counts, displs) = (self.counts.numbers(n)?, self.displs.numbers(n)?);
        let datatype = committed(handle)?;
        let most = (0..n as u32)
            .map(|rank| counts.get(rank))
            .max()
            .unwrap_or(0)
            .max(0);
        check_buffer(self.buf, most, datatype)?;
        Ok(ElementsV {
            mem: self.buf.mem(),
            counts,
            displs,
            datatype,
        })
    }

    pub fn mixed<'a>(&'a self, n: usize, datatypes: &'a [Datatype]) -> Result<ElementsW<'a>> {
        let (counts, displs) = (self.counts.numbers(n)?, self.displs.numbers(n)?);
        gpu_buffers::refuse(self.buf)?;
        Ok(ElementsW {
            mem: self.buf.mem(),
            counts,
            displs,
            datatypes,
        })
    }
}

pub(crate) fn each_type(
    handles: In<MPI_Datatype>,
    counts: Counts,
    n: usize,
) -> Result<Vec<Datatype>> {
    let one = |i: usize| {
        // The type of an empty block need not be committed, and programs say none where there is
        // none.
        let handle = handles.at(i)?;
        match counts.at(i)? {
            0 if handle == MPI_DATATYPE_NULL => datatype(MPI_BYTE).cloned(),
            0 => datatype(handle).cloned(),
            _ => committed(handle).cloned(),
        }
    };
    (0..n).map(one).collect()
}

fn any_barrier(way: Way) -> Result<()> {
    way.run(&Barrier)
}

forms!(any_barrier: barrier ibarrier barrier_init ());

fn any_bcast(
    way: Way,
    buf: Buf,
    count: MPI_Count,
    datatype: MPI_Datatype,
    root: c_int,
) -> Result<()> {
    let buffer = elements(buf, count, datatype)?;
    way.run(&Bcast { buffer, root })
}

forms!(any_bcast: bcast ibcast bcast_init (buf: Buf, count: MPI_Count, datatype: MPI_Datatype, root: c_int));

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

forms!(any_gather: gather igather gather_init (
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
    let blocks = Ragged::new(recvbuf, counts, displs);
    let recv = if is_root {
        Some(blocks.uneven(way.blocks(), recvtype)?)
    } else {
        None
    };
    way.run(&Gatherv { send, recv, root })
}

forms!(any_gatherv: gatherv igatherv gatherv_init (
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

forms!(any_scatter: scatter iscatter scatter_init (
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
    let blocks = Ragged::new(sendbuf, counts, displs);
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

forms!(any_scatterv: scatterv iscatterv scatterv_init (
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

forms!(any_allgather: allgather iallgather allgather_init (
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
    let blocks = Ragged::new(recvbuf, counts, displs);
    let recv = blocks.uneven(way.blocks(), recvtype)?;
    way.run(&Allgatherv { send, recv })
}

forms!(any_allgatherv: allgatherv iallgatherv allgatherv_init (
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

forms!(any_alltoall: alltoall ialltoall alltoall_init (
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
    let outgoing = Ragged::new(sendbuf, sendcounts, sdispls);
    let incoming = Ragged::new(recvbuf, recvcounts, rdispls);
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

forms!(any_alltoallv: alltoallv ialltoallv alltoallv_init (
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
    let outgoing = Ragged::new(sendbuf, sendcounts, sdispls);
    let incoming = Ragged::new(recvbuf, recvcounts, rdispls);
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

forms!(any_alltoallw: alltoallw ialltoallw alltoallw_init (
    sendbuf: Buf, sendcounts: Counts, sdispls: Counts, sendtypes: In<MPI_Datatype>,
    recvbuf: Buf, recvcounts: Counts, rdispls: Counts, recvtypes: In<MPI_Datatype>));
