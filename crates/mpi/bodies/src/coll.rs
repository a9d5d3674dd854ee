//! Collectives that move data. The blocking, the nonblocking and the persistent call of each share
//! one body.

use crate::c_args::{Buf, ConstPtr, CountsIn, Ptr};
use crate::call::{CallId, Result};
use crate::callback::UserReduction;
use crate::constants::*;
use crate::gpu_buffers;
use crate::handle::*;
use crate::objects::{comm, committed, datatype, info_or_null};
use crate::p2p::{bad_count, check_suspicious_buffer};
use crate::request::{return_reduction, return_request};
use garonne_engine::api::CallOrigin;
use garonne_mpi::coll::{
    Allgather, Allgatherv, Alltoall, Alltoallv, Alltoallw, Barrier, Bcast, Collective, Elements,
    ElementsV, ElementsW, Gather, Gatherv, Scatter, Scatterv,
};
use garonne_mpi::comm::Comm;
use garonne_mpi::datatype::Datatype;
use std::ffi::c_int;
use std::sync::Arc;

/// Form of a collective call, with the pointer to its request.
#[derive(Clone, Copy)]
pub(crate) enum CallForm {
    /// Returns when it is done.
    Blocking,
    /// Returns when it is started.
    Nonblocking(Ptr<MPI_Request>),
    /// Started again and again.
    Persistent(Ptr<MPI_Request>),
}

/// A call of a collective: communicator, origin and form.
pub(crate) struct CollCall {
    pub comm: &'static Comm,
    origin: CallOrigin,
    form: CallForm,
}

impl CollCall {
    #[inline]
    pub fn new(call: CallId, on: MPI_Comm, form: CallForm) -> Result<Self> {
        Ok(Self {
            comm: comm(on)?,
            origin: call.origin(),
            form,
        })
    }

    /// Makes a persistent call. No info hint has a meaning here.
    pub fn persistent(
        call: CallId,
        on: MPI_Comm,
        hints: MPI_Info,
        out: Ptr<MPI_Request>,
    ) -> Result<Self> {
        info_or_null(hints)?;
        Self::new(call, on, CallForm::Persistent(out))
    }

    /// Carries the collective out, or starts it, or makes it ready to be started.
    #[inline]
    pub fn run(self, collective: &impl Collective) -> Result<()> {
        match self.form {
            CallForm::Blocking => Ok(self.comm.collective(collective, self.origin)?),
            CallForm::Nonblocking(out) => {
                return_request(self.comm.start_collective(collective, self.origin)?, out)
            }
            CallForm::Persistent(out) => {
                return_request(self.comm.init_collective(collective, self.origin)?, out)
            }
        }
    }

    /// Runs a reduction. `bound` is the program's operation, if the reduction uses one.
    #[inline]
    pub fn run_reduction(
        self,
        collective: &impl Collective,
        bound: Option<&Arc<UserReduction>>,
    ) -> Result<()> {
        match bound {
            Some(bound) => self.run_user_reduction(collective, bound),
            None => self.run(collective),
        }
    }

    #[inline(never)]
    fn run_user_reduction(
        self,
        collective: &impl Collective,
        bound: &Arc<UserReduction>,
    ) -> Result<()> {
        let (started, out) = match self.form {
            CallForm::Blocking => {
                let outcome = self.comm.collective(collective, self.origin);
                bound.end()?;
                return Ok(outcome?);
            }
            CallForm::Nonblocking(out) => {
                (self.comm.start_collective(collective, self.origin), out)
            }
            CallForm::Persistent(out) => (self.comm.init_collective(collective, self.origin), out),
        };
        match started {
            Ok(request) => return_reduction(request, bound, out),
            Err(error) => {
                bound.end()?;
                Err(error.into())
            }
        }
    }

    /// Returns whether this process is the root. On an intercommunicator: whether this process
    /// passed `MPI_ROOT`.
    pub fn is_root(&self, root: c_int) -> bool {
        if self.comm.is_inter() {
            root == MPI_ROOT
        } else {
            self.comm.rank() as c_int == root
        }
    }

    /// Returns whether this process passes a buffer of its own to a rooted collective.
    pub fn contributes(&self, root: c_int) -> bool {
        !self.comm.is_inter() || root >= 0
    }

    /// The ranks that a buffer of one block per rank has blocks for.
    fn blocks(&self) -> usize {
        self.comm.peers() as usize
    }
}

/// The entries of a body, one for each form.
macro_rules! collective_forms {
    ($body:ident: $blocking:ident $nonblocking:ident $persistent:ident ($($arg:ident: $ty:ty),*)) => {
        pub(crate) fn $blocking(call: CallId, $($arg: $ty,)* on: MPI_Comm) -> Result<()> {
            $body(CollCall::new(call, on, CallForm::Blocking)?, $($arg),*)
        }

        pub(crate) fn $nonblocking(call: CallId, $($arg: $ty,)* on: MPI_Comm, out: Ptr<MPI_Request>) -> Result<()> {
            $body(CollCall::new(call, on, CallForm::Nonblocking(out))?, $($arg),*)
        }

        pub(crate) fn $persistent(
            call: CallId, $($arg: $ty,)* on: MPI_Comm, hints: MPI_Info, out: Ptr<MPI_Request>,
        ) -> Result<()> {
            $body(CollCall::persistent(call, on, hints, out)?, $($arg),*)
        }
    };
}
pub(crate) use collective_forms;

/// Refuses addresses where no data of this type can be.
pub(crate) fn check_buffer(buf: Buf, count: MPI_Count, datatype: &Datatype) -> Result<()> {
    if buf.addr() <= gpu_buffers::checked_up_to() {
        check_suspicious_buffer(buf, count, datatype)?;
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

/// Returns [`elements`], or `None` for `MPI_IN_PLACE`.
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

/// The buffer of a vector collective: one block per rank, each with its own count and displacement.
pub(crate) struct VectorBuffer {
    buf: Buf,
    counts: CountsIn,
    displs: CountsIn,
}

impl VectorBuffer {
    pub fn new(buf: Buf, counts: impl Into<CountsIn>, displs: impl Into<CountsIn>) -> Self {
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
        gpu_buffers::refuse_gpu_memory(self.buf)?;
        Ok(ElementsW {
            mem: self.buf.mem(),
            counts,
            displs,
            datatypes,
        })
    }
}

pub(crate) fn datatypes_of(
    handles: ConstPtr<MPI_Datatype>,
    counts: CountsIn,
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

fn barrier_body(coll_call: CollCall) -> Result<()> {
    coll_call.run(&Barrier)
}

collective_forms!(barrier_body: barrier ibarrier barrier_init ());

fn bcast_body(
    coll_call: CollCall,
    buf: Buf,
    count: MPI_Count,
    datatype: MPI_Datatype,
    root: c_int,
) -> Result<()> {
    let buffer = elements(buf, count, datatype)?;
    coll_call.run(&Bcast { buffer, root })
}

collective_forms!(bcast_body: bcast ibcast bcast_init (buf: Buf, count: MPI_Count, datatype: MPI_Datatype, root: c_int));

fn gather_body(
    coll_call: CollCall,
    sendbuf: Buf,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: Buf,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
    root: c_int,
) -> Result<()> {
    let is_root = coll_call.is_root(root);
    let send = match coll_call.contributes(root) {
        true if is_root => or_in_place(sendbuf, sendcount, sendtype)?,
        true => Some(elements(sendbuf, sendcount, sendtype)?),
        false => None,
    };
    let recv = if is_root {
        Some(elements(recvbuf, recvcount, recvtype)?)
    } else {
        None
    };
    coll_call.run(&Gather { send, recv, root })
}

collective_forms!(gather_body: gather igather gather_init (
    sendbuf: Buf, sendcount: MPI_Count, sendtype: MPI_Datatype,
    recvbuf: Buf, recvcount: MPI_Count, recvtype: MPI_Datatype, root: c_int));

fn gatherv_body(
    coll_call: CollCall,
    sendbuf: Buf,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: Buf,
    counts: CountsIn,
    displs: CountsIn,
    recvtype: MPI_Datatype,
    root: c_int,
) -> Result<()> {
    let is_root = coll_call.is_root(root);
    let send = match coll_call.contributes(root) {
        true if is_root => or_in_place(sendbuf, sendcount, sendtype)?,
        true => Some(elements(sendbuf, sendcount, sendtype)?),
        false => None,
    };
    let blocks = VectorBuffer::new(recvbuf, counts, displs);
    let recv = if is_root {
        Some(blocks.uneven(coll_call.blocks(), recvtype)?)
    } else {
        None
    };
    coll_call.run(&Gatherv { send, recv, root })
}

collective_forms!(gatherv_body: gatherv igatherv gatherv_init (
    sendbuf: Buf, sendcount: MPI_Count, sendtype: MPI_Datatype,
    recvbuf: Buf, counts: CountsIn, displs: CountsIn, recvtype: MPI_Datatype, root: c_int));

fn scatter_body(
    coll_call: CollCall,
    sendbuf: Buf,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: Buf,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
    root: c_int,
) -> Result<()> {
    let is_root = coll_call.is_root(root);
    let send = if is_root {
        Some(elements(sendbuf, sendcount, sendtype)?)
    } else {
        None
    };
    let recv = match coll_call.contributes(root) {
        true if is_root => or_in_place(recvbuf, recvcount, recvtype)?,
        true => Some(elements(recvbuf, recvcount, recvtype)?),
        false => None,
    };
    coll_call.run(&Scatter { send, recv, root })
}

collective_forms!(scatter_body: scatter iscatter scatter_init (
    sendbuf: Buf, sendcount: MPI_Count, sendtype: MPI_Datatype,
    recvbuf: Buf, recvcount: MPI_Count, recvtype: MPI_Datatype, root: c_int));

fn scatterv_body(
    coll_call: CollCall,
    sendbuf: Buf,
    counts: CountsIn,
    displs: CountsIn,
    sendtype: MPI_Datatype,
    recvbuf: Buf,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
    root: c_int,
) -> Result<()> {
    let is_root = coll_call.is_root(root);
    let blocks = VectorBuffer::new(sendbuf, counts, displs);
    let send = if is_root {
        Some(blocks.uneven(coll_call.blocks(), sendtype)?)
    } else {
        None
    };
    let recv = match coll_call.contributes(root) {
        true if is_root => or_in_place(recvbuf, recvcount, recvtype)?,
        true => Some(elements(recvbuf, recvcount, recvtype)?),
        false => None,
    };
    coll_call.run(&Scatterv { send, recv, root })
}

collective_forms!(scatterv_body: scatterv iscatterv scatterv_init (
    sendbuf: Buf, counts: CountsIn, displs: CountsIn, sendtype: MPI_Datatype,
    recvbuf: Buf, recvcount: MPI_Count, recvtype: MPI_Datatype, root: c_int));

fn allgather_body(
    coll_call: CollCall,
    sendbuf: Buf,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: Buf,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
) -> Result<()> {
    let send = or_in_place(sendbuf, sendcount, sendtype)?;
    coll_call.run(&Allgather {
        send,
        recv: elements(recvbuf, recvcount, recvtype)?,
    })
}

collective_forms!(allgather_body: allgather iallgather allgather_init (
    sendbuf: Buf, sendcount: MPI_Count, sendtype: MPI_Datatype,
    recvbuf: Buf, recvcount: MPI_Count, recvtype: MPI_Datatype));

fn allgatherv_body(
    coll_call: CollCall,
    sendbuf: Buf,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: Buf,
    counts: CountsIn,
    displs: CountsIn,
    recvtype: MPI_Datatype,
) -> Result<()> {
    let send = or_in_place(sendbuf, sendcount, sendtype)?;
    let blocks = VectorBuffer::new(recvbuf, counts, displs);
    let recv = blocks.uneven(coll_call.blocks(), recvtype)?;
    coll_call.run(&Allgatherv { send, recv })
}

collective_forms!(allgatherv_body: allgatherv iallgatherv allgatherv_init (
    sendbuf: Buf, sendcount: MPI_Count, sendtype: MPI_Datatype,
    recvbuf: Buf, counts: CountsIn, displs: CountsIn, recvtype: MPI_Datatype));

fn alltoall_body(
    coll_call: CollCall,
    sendbuf: Buf,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: Buf,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
) -> Result<()> {
    let send = or_in_place(sendbuf, sendcount, sendtype)?;
    coll_call.run(&Alltoall {
        send,
        recv: elements(recvbuf, recvcount, recvtype)?,
    })
}

collective_forms!(alltoall_body: alltoall ialltoall alltoall_init (
    sendbuf: Buf, sendcount: MPI_Count, sendtype: MPI_Datatype,
    recvbuf: Buf, recvcount: MPI_Count, recvtype: MPI_Datatype));

fn alltoallv_body(
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
    let outgoing = VectorBuffer::new(sendbuf, sendcounts, sdispls);
    let incoming = VectorBuffer::new(recvbuf, recvcounts, rdispls);
    let n = coll_call.blocks();
    let send = if sendbuf.is_in_place() {
        None
    } else {
        Some(outgoing.uneven(n, sendtype)?)
    };
    coll_call.run(&Alltoallv {
        send,
        recv: incoming.uneven(n, recvtype)?,
    })
}

collective_forms!(alltoallv_body: alltoallv ialltoallv alltoallv_init (
    sendbuf: Buf, sendcounts: CountsIn, sdispls: CountsIn, sendtype: MPI_Datatype,
    recvbuf: Buf, recvcounts: CountsIn, rdispls: CountsIn, recvtype: MPI_Datatype));

fn alltoallw_body(
    coll_call: CollCall,
    sendbuf: Buf,
    sendcounts: CountsIn,
    sdispls: CountsIn,
    sendtypes: ConstPtr<MPI_Datatype>,
    recvbuf: Buf,
    recvcounts: CountsIn,
    rdispls: CountsIn,
    recvtypes: ConstPtr<MPI_Datatype>,
) -> Result<()> {
    let outgoing = VectorBuffer::new(sendbuf, sendcounts, sdispls);
    let incoming = VectorBuffer::new(recvbuf, recvcounts, rdispls);
    let n = coll_call.blocks();
    let sent = if sendbuf.is_in_place() {
        Vec::new()
    } else {
        datatypes_of(sendtypes, sendcounts, n)?
    };
    let received = datatypes_of(recvtypes, recvcounts, n)?;
    let send = if sendbuf.is_in_place() {
        None
    } else {
        Some(outgoing.mixed(n, &sent)?)
    };
    coll_call.run(&Alltoallw {
        send,
        recv: incoming.mixed(n, &received)?,
    })
}

collective_forms!(alltoallw_body: alltoallw ialltoallw alltoallw_init (
    sendbuf: Buf, sendcounts: CountsIn, sdispls: CountsIn, sendtypes: ConstPtr<MPI_Datatype>,
    recvbuf: Buf, recvcounts: CountsIn, rdispls: CountsIn, recvtypes: ConstPtr<MPI_Datatype>));
