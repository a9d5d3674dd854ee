//! Sends and receives.

use crate::c_args::{Buf, Ptr};
use crate::call::{CallError, CallId, Result};
use crate::gpu_buffers;
use crate::handle::*;
use crate::objects::{comm, committed, find_comm};
use crate::request::return_request;
use crate::status::{StatusLayout, write_outcome, write_status};
use crate::{fast_path, light_request, this_rank};
use garonne_engine::api::shard_of;
use garonne_engine::fast::recv::FastRecv;
use garonne_mpi::comm::Comm;
use garonne_mpi::datatype::{Datatype, run_bytes};
use garonne_mpi::error::Class;
use garonne_mpi::p2p::{RecvArgs, ReplaceArgs, SendArgs, SendMode, SmallBuffer};
use garonne_mpi::request::Request;
use garonne_progress::limits::ASYNC_RECV_MIN;
use garonne_progress::messaging::FastMessaging;
use garonne_sync::user::Data;
use std::ffi::c_int;

/// Largest element count on the fast path. No product with an element's size overflows, and the
/// engine refuses messages larger than a transport's slot.
const FAST_ELEMENTS_MAX: u64 = 1 << 16;

/// A buffer argument as memory with a shape. The count is checked first, then the type, then the
/// address.
#[inline]
pub(crate) fn data(buf: Buf, count: MPI_Count, handle: MPI_Datatype) -> Result<Data> {
    if count < 0 {
        return Err(bad_count(count));
    }
    let datatype = committed(handle)?;
    if buf.addr() <= gpu_buffers::checked_up_to() {
        check_suspicious_buffer(buf, count, datatype)?;
    }
    Ok(datatype.data(buf.mem(), count as u64)?)
}

#[cold]
pub(crate) fn bad_count(count: MPI_Count) -> CallError {
    CallError::new(
        Class::Count,
        format!("count is {count}; it must not be negative"),
    )
}

/// Refuses an address where no data can be.
#[cold]
#[inline(never)]
pub(crate) fn check_suspicious_buffer(
    buf: Buf,
    count: MPI_Count,
    datatype: &Datatype,
) -> Result<()> {
    // Types made of absolute addresses go with MPI_BOTTOM, which is null; a predefined type at null
    // is a mistake.
    let absolute = buf.addr() == 0 && datatype.code().is_none();
    if buf.addr() <= Buf::AUTOMATIC && count > 0 && !absolute {
        return Err(bad_buffer(buf, count));
    }
    gpu_buffers::check_gpu_memory(buf, count)
}

#[cold]
fn bad_buffer(buf: Buf, count: MPI_Count) -> CallError {
    let what = if buf.is_in_place() {
        "MPI_IN_PLACE, which is not allowed here"
    } else {
        "no address of data"
    };
    CallError::new(
        Class::Buffer,
        format!(
            "the buffer is {what} ({:#x}), but count is {count}",
            buf.addr()
        ),
    )
}

/// The C arguments that all sends share.
struct SendArguments {
    buf: Buf,
    count: MPI_Count,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
}

impl SendArguments {
    #[inline]
    fn args(self, call: CallId, mode: SendMode) -> Result<SendArgs> {
        let data = data(self.buf, self.count, self.datatype)?;
        Ok(SendArgs {
            data,
            dest: self.dest,
            tag: self.tag,
            mode,
            origin: call.origin_of(self.count, self.datatype),
        })
    }
}

/// `MPI_Send`, `MPI_Isend` and `MPI_Send_init` of one mode.
macro_rules! sends {
    ($($mode:ident: $blocking:ident $nonblocking:ident;)*) => {$(
        #[inline(never)]
        pub(crate) fn $blocking(
            call: CallId,
            buf: Buf,
            count: MPI_Count,
            datatype: MPI_Datatype,
            dest: c_int,
            tag: c_int,
            on: MPI_Comm,
        ) -> Result<()> {
            let comm = comm(on)?;
            let args = SendArguments { buf, count, datatype, dest, tag }.args(call, SendMode::$mode)?;
            Ok(comm.send(args)?)
        }

        #[inline(never)]
        pub(crate) fn $nonblocking(
            call: CallId,
            buf: Buf,
            count: MPI_Count,
            datatype: MPI_Datatype,
            dest: c_int,
            tag: c_int,
            on: MPI_Comm,
            out: Ptr<MPI_Request>,
        ) -> Result<()> {
            let comm = comm(on)?;
            let args = SendArguments { buf, count, datatype, dest, tag }.args(call, SendMode::$mode)?;
            return_request(comm.isend(args)?, out)
        }
    )*};
}

sends! {
    Standard: send_general isend_general;
    Ready: rsend irsend;
    Synchronous: ssend issend;
    Buffered: bsend ibsend;
}

/// Defines `MPI_Send_init`, `MPI_Bsend_init`, `MPI_Ssend_init` and `MPI_Rsend_init`.
macro_rules! send_inits {
    ($($mode:ident: $name:ident;)*) => {$(
        pub(crate) fn $name(
            call: CallId,
            buf: Buf,
            count: MPI_Count,
            datatype: MPI_Datatype,
            dest: c_int,
            tag: c_int,
            on: MPI_Comm,
            out: Ptr<MPI_Request>,
        ) -> Result<()> {
            let comm = comm(on)?;
            let args = SendArguments { buf, count, datatype, dest, tag }.args(call, SendMode::$mode)?;
            return_request(comm.send_init(args)?, out)
        }
    )*};
}

send_inits! {
    Standard: send_init;
    Ready: rsend_init;
    Synchronous: ssend_init;
    Buffered: bsend_init;
}

/// Returns the engine's arguments if the data is a few elements of a contiguous predefined type at
/// an ordinary address.
#[inline(always)]
fn fast_args(
    call: CallId,
    buf: Buf,
    (count, datatype): (MPI_Count, MPI_Datatype),
    (rank, tag): (c_int, c_int),
) -> Option<SmallBuffer> {
    let bytes = run_bytes(datatype.0);
    // A negative count is a large one here.
    if bytes == 0 || count as u64 > FAST_ELEMENTS_MAX || buf.addr() <= gpu_buffers::checked_up_to()
    {
        return None;
    }
    let len = bytes as u32 * count as u32;
    Some(SmallBuffer {
        mem: buf.mem(),
        len,
        rank,
        tag,
        origin: call.origin_of(count, datatype),
    })
}

/// Sends a small contiguous message by the engine's fast path. Returns false if nothing happened.
#[inline(always)]
fn try_send_fast(
    call: CallId,
    buf: Buf,
    data: (MPI_Count, MPI_Datatype),
    (dest, tag): (c_int, c_int),
    on: MPI_Comm,
) -> bool {
    let small =
        find_comm(on).and_then(|comm| comm.small(&fast_args(call, buf, data, (dest, tag))?));
    let Some((small, host)) =
        small.and_then(|small| Some((small, this_rank::engine_for(small.context)?)))
    else {
        return false;
    };
    let sent = host.send_small(&small);
    if sent {
        fast_path::learn_channel(on, dest, &small);
    }
    sent
}

/// Returns the communicator and the engine's arguments of a contiguous receive. Adds the pair to
/// the table of `fast_path`.
#[inline(always)]
fn fast_recv_args(
    call: CallId,
    buf: Buf,
    data: (MPI_Count, MPI_Datatype),
    (source, tag): (c_int, c_int),
    on: MPI_Comm,
) -> Option<(&'static Comm, FastRecv)> {
    let comm = find_comm(on)?;
    let fast_recv = comm.catch(&fast_args(call, buf, data, (source, tag))?)?;
    if fast_path::wants_entry(on, source) {
        fast_path::learn(on, source, (fast_recv.context, fast_recv.peer));
    }
    Some((comm, fast_recv))
}

/// `MPI_Send`, after `fast_path` returned `None`. A small contiguous message takes the engine's
/// fast path; everything else and every error takes the general path.
pub(crate) fn send(
    call: CallId,
    buf: Buf,
    count: MPI_Count,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    on: MPI_Comm,
) -> Result<()> {
    if try_send_fast(call, buf, (count, datatype), (dest, tag), on) {
        return Ok(());
    }
    send_general(call, buf, count, datatype, dest, tag, on)
}

/// `MPI_Recv`, as `send`.
pub(crate) fn recv<S: StatusLayout>(
    call: CallId,
    buf: Buf,
    count: MPI_Count,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    on: MPI_Comm,
    status: Ptr<S>,
) -> Result<()> {
    if let Some((_, fast_recv)) = fast_recv_args(call, buf, (count, datatype), (source, tag), on)
        && let Some(host) = this_rank::engine_for(fast_recv.context)
        && let Some(received) = host.fast_recv(&fast_recv)
    {
        return write_status(status, &received.into());
    }
    recv_general(call, buf, count, datatype, source, tag, on, status)
}

#[inline(never)]
fn recv_general<S: StatusLayout>(
    call: CallId,
    buf: Buf,
    count: MPI_Count,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    on: MPI_Comm,
    status: Ptr<S>,
) -> Result<()> {
    let comm = comm(on)?;
    let data = data(buf, count, datatype)?;
    write_outcome(
        status,
        comm.recv(RecvArgs {
            data,
            source,
            tag,
            origin: call.origin_of(count, datatype),
        }),
    )
}

/// `MPI_Isend`, as `send`.
pub(crate) fn isend(
    call: CallId,
    buf: Buf,
    count: MPI_Count,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    on: MPI_Comm,
    out: Ptr<MPI_Request>,
) -> Result<()> {
    if try_send_fast(call, buf, (count, datatype), (dest, tag), on) {
        return out.set(light_request::DONE);
    }
    isend_general(call, buf, count, datatype, dest, tag, on, out)
}

/// `MPI_Irecv`, as `send`.
pub(crate) fn irecv(
    call: CallId,
    buf: Buf,
    count: MPI_Count,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    on: MPI_Comm,
    out: Ptr<MPI_Request>,
) -> Result<()> {
    if let Some((comm, fast_recv)) = fast_recv_args(call, buf, (count, datatype), (source, tag), on)
        && let Some(host) = this_rank::engine_for(fast_recv.context)
        && let Some(name) = host.post_plain_recv(&fast_recv)
    {
        let shard = shard_of(fast_recv.context);
        if fast_recv.room > ASYNC_RECV_MIN {
            comm.process()
                .host
                .leave_pending(light_request::in_shard(shard, name));
        }
        return match light_request::handle(shard, name) {
            Some(handle) => out.set(handle),
            None => return_request(
                Request::posted(comm, light_request::in_shard(shard, name)),
                out,
            ),
        };
    }
    irecv_general(call, buf, count, datatype, source, tag, on, out)
}

#[inline(never)]
fn irecv_general(
    call: CallId,
    buf: Buf,
    count: MPI_Count,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    on: MPI_Comm,
    out: Ptr<MPI_Request>,
) -> Result<()> {
    let comm = comm(on)?;
    let data = data(buf, count, datatype)?;
    return_request(
        comm.irecv(RecvArgs {
            data,
            source,
            tag,
            origin: call.origin_of(count, datatype),
        })?,
        out,
    )
}

pub(crate) fn recv_init(
    call: CallId,
    buf: Buf,
    count: MPI_Count,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    on: MPI_Comm,
    out: Ptr<MPI_Request>,
) -> Result<()> {
    let comm = comm(on)?;
    let data = data(buf, count, datatype)?;
    return_request(
        comm.recv_init(RecvArgs {
            data,
            source,
            tag,
            origin: call.origin_of(count, datatype),
        })?,
        out,
    )
}

/// The C arguments of `MPI_Sendrecv` and `MPI_Isendrecv`.
struct SendrecvArguments {
    sendbuf: Buf,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    dest: c_int,
    sendtag: c_int,
    recvbuf: Buf,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
    source: c_int,
    recvtag: c_int,
}

impl SendrecvArguments {
    fn args(self, call: CallId) -> Result<(SendArgs, RecvArgs)> {
        let send = SendArgs {
            data: data(self.sendbuf, self.sendcount, self.sendtype)?,
            dest: self.dest,
            tag: self.sendtag,
            mode: SendMode::Standard,
            origin: call.origin_of(self.sendcount, self.sendtype),
        };
        let data = data(self.recvbuf, self.recvcount, self.recvtype)?;
        Ok((
            send,
            RecvArgs {
                data,
                source: self.source,
                tag: self.recvtag,
                origin: call.origin_of(self.recvcount, self.recvtype),
            },
        ))
    }
}

pub(crate) fn sendrecv<S: StatusLayout>(
    call: CallId,
    sendbuf: Buf,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    dest: c_int,
    sendtag: c_int,
    recvbuf: Buf,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
    source: c_int,
    recvtag: c_int,
    on: MPI_Comm,
    status: Ptr<S>,
) -> Result<()> {
    let comm = comm(on)?;
    let both = SendrecvArguments {
        sendbuf,
        sendcount,
        sendtype,
        dest,
        sendtag,
        recvbuf,
        recvcount,
        recvtype,
        source,
        recvtag,
    };
    let (send, recv) = both.args(call)?;
    write_outcome(status, comm.sendrecv(send, recv))
}

pub(crate) fn isendrecv(
    call: CallId,
    sendbuf: Buf,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    dest: c_int,
    sendtag: c_int,
    recvbuf: Buf,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
    source: c_int,
    recvtag: c_int,
    on: MPI_Comm,
    out: Ptr<MPI_Request>,
) -> Result<()> {
    let comm = comm(on)?;
    let both = SendrecvArguments {
        sendbuf,
        sendcount,
        sendtype,
        dest,
        sendtag,
        recvbuf,
        recvcount,
        recvtype,
        source,
        recvtag,
    };
    let (send, recv) = both.args(call)?;
    return_request(comm.isendrecv(send, recv)?, out)
}

pub(crate) fn sendrecv_replace<S: StatusLayout>(
    call: CallId,
    buf: Buf,
    count: MPI_Count,
    datatype: MPI_Datatype,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    on: MPI_Comm,
    status: Ptr<S>,
) -> Result<()> {
    let comm = comm(on)?;
    let data = data(buf, count, datatype)?;
    let args = ReplaceArgs {
        data,
        to: (dest, sendtag),
        from: (source, recvtag),
        origin: call.origin_of(count, datatype),
    };
    write_outcome(status, comm.sendrecv_replace(args))
}

pub(crate) fn isendrecv_replace(
    call: CallId,
    buf: Buf,
    count: MPI_Count,
    datatype: MPI_Datatype,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    on: MPI_Comm,
    out: Ptr<MPI_Request>,
) -> Result<()> {
    let comm = comm(on)?;
    let data = data(buf, count, datatype)?;
    let args = ReplaceArgs {
        data,
        to: (dest, sendtag),
        from: (source, recvtag),
        origin: call.origin_of(count, datatype),
    };
    return_request(comm.isendrecv_replace(args)?, out)
}
