//! System calls on sockets, and registrations with libfabric. The only unsafe code of this crate.

#![allow(unsafe_code)]

use garonne_ofi::endpoint::{Endpoint, Region};
use garonne_sync::user::UserMem;
use garonne_transport::iovec::{BLOCKS_PER_CALL, CopyDirection, IoBlock};
use garonne_transport::sys::moved;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Moves bytes between blocks of this process and a socket, without waiting: one call, at most
/// [`BLOCKS_PER_CALL`] blocks. Returns the bytes moved.
///
/// The blocks must be memory that the caller was given as a `Data` for this purpose.
pub fn move_through(
    socket: BorrowedFd<'_>,
    way: CopyDirection,
    blocks: &mut [IoBlock],
) -> Result<usize> {
    // SAFETY: all zeros are a `msghdr` without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = blocks.as_mut_ptr().cast();
    message.msg_iovlen = blocks.len().min(BLOCKS_PER_CALL) as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let call = match way {
        CopyDirection::Read => libc::SYS_recvmsg,
        CopyDirection::Write => libc::SYS_sendmsg,
    };
    // SAFETY: `IoBlock` is laid out as `iovec`; the array outlives the call; the blocks come from a
    // `Data`, whose maker promised them valid.
    moved(unsafe { libc::syscall(call, socket.as_raw_fd(), &raw mut message, flags) })
}

/// Sends bytes on a socket, without waiting. Returns the bytes taken.
///
/// Not by the C library's `send`, which is a point where threads may be cancelled: two locked
/// instructions a call in a process of several threads.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], flags: libc::c_int) -> Result<usize> {
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the bytes outlive the call, which only reads them.
    moved(unsafe {
        libc::syscall(
            libc::SYS_sendto,
            socket.as_raw_fd(),
            bytes.as_ptr(),
            bytes.len(),
            flags,
            0usize,
            0usize,
        )
    })
}

/// Receives bytes from a socket, without waiting, as [`send`] sends them. Returns the bytes that
/// came; 0: nothing comes any more.
pub fn recv(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<usize> {
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: the bytes outlive the call, which writes at most as many.
    moved(unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            socket.as_raw_fd(),
            bytes.as_mut_ptr(),
            bytes.len(),
            flags,
            0usize,
            0usize,
        )
    })
}

/// Has a TCP socket take no more while so many bytes wait in it to be sent; `None`: while it has
/// room. A system that cannot lets more wait, which costs nothing but time.
pub fn bound_unsent(fd: BorrowedFd<'_>, bytes: Option<usize>) {
    // 0 is what the system has all sockets do.
    let bytes = bytes.map_or(0, |bytes| {
        libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX)
    });
    // SAFETY: the option is one int, which is read during the call.
    unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}

/// Bytes of a TCP socket that its other side has not acknowledged, sent or not.
pub fn unacknowledged(fd: BorrowedFd<'_>) -> Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request stores one int, for which there is room.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } < 0 {
        return Err(Error::last_os_error());
    }
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Returns the kernel's statistics of a TCP socket.
fn tcp_info(fd: BorrowedFd<'_>) -> Option<libc::tcp_info> {
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: `info` has room for `len` bytes; the kernel stores at most that many.
    let rc = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    // SAFETY: all fields are integers, for which zeros are values; the kernel has overwritten some.
    (rc == 0).then(|| unsafe { info.assume_init() })
}

/// Returns how long the other side of a TCP socket has left unanswered what a living host's kernel
/// answers whatever its processes do; `None`: it owes no answer. Bytes under way count, and probes
/// of a closed window.
pub fn unanswered(fd: BorrowedFd<'_>) -> Option<std::time::Duration> {
    let info = tcp_info(fd)?;
    let owed = info.tcpi_unacked > 0 || info.tcpi_probes > 1;
    owed.then(|| std::time::Duration::from_millis(info.tcpi_last_ack_recv.into()))
}

/// Bytes of a TCP socket that its other side has confirmed, and bytes that came from there, in
/// order.
pub fn carried(fd: BorrowedFd<'_>) -> Option<[u64; 2]> {
    tcp_info(fd).map(|info| [info.tcpi_bytes_acked, info.tcpi_bytes_received])
}

/// Microseconds of a round trip of a TCP socket, as the kernel has seen it last.
pub fn round_trip(fd: BorrowedFd<'_>) -> Option<u32> {
    tcp_info(fd).map(|info| info.tcpi_rtt)
}

/// Bytes of the longest segment that a TCP socket sends now.
pub fn segment(fd: BorrowedFd<'_>) -> Option<u32> {
    tcp_info(fd).map(|info| info.tcpi_snd_mss)
}

/// Has no segment of a TCP socket that is about to be connected have more bytes, whoever sends it.
/// Where the kernel refuses, segments are as long as the way allows.
pub fn limit_segments(fd: BorrowedFd<'_>, bytes: u32) {
    set(fd, (libc::IPPROTO_TCP, libc::TCP_MAXSEG), bytes as usize);
}

/// Has the kernel report a socket as readable only when so many bytes lie there, or it has ended.
/// Where it refuses, the socket is reported sooner.
pub fn set_low_water(fd: BorrowedFd<'_>, bytes: usize) {
    set(fd, (libc::SOL_SOCKET, libc::SO_RCVLOWAT), bytes);
}

fn set(fd: BorrowedFd<'_>, (level, option): (libc::c_int, libc::c_int), value: usize) {
    let value = libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX);
    // SAFETY: the kernel reads one integer from here.
    unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

/// Lets peers of an endpoint read part of user memory, until that is withdrawn or the endpoint
/// dropped.
///
/// # Errors
/// The library's.
pub fn lend(
    endpoint: &mut Endpoint,
    mem: UserMem,
    offset: isize,
    len: usize,
) -> std::result::Result<Region, garonne_ofi::library::Error> {
    // SAFETY: the range is part of a `Data` that its maker promised valid until its region's
    // revoking has ended, which waits for what is lent.
    unsafe { endpoint.expose(std::ptr::with_exposed_provenance(mem.addr(offset)), len) }
}

/// Prepares part of user memory for reads by an endpoint, until that is withdrawn or the endpoint
/// dropped.
///
/// # Errors
/// The library's.
pub fn prepare(
    endpoint: &mut Endpoint,
    mem: UserMem,
    offset: isize,
    len: usize,
) -> std::result::Result<Option<Region>, garonne_ofi::library::Error> {
    // SAFETY: the range is part of a `Data` that is valid until its read has ended, which waits for
    // the endpoint.
    unsafe { endpoint.prepare(std::ptr::with_exposed_provenance_mut(mem.addr(offset)), len) }
}

/// Begins to read a peer's memory to user memory. `false`: not now.
///
/// # Errors
/// The library's.
pub fn read_remote(
    endpoint: &mut Endpoint,
    token: u64,
    from: (garonne_ofi::endpoint::Peer, u64, u64),
    (mem, offset, len): (UserMem, isize, usize),
    prepared: Option<Region>,
) -> std::result::Result<bool, garonne_ofi::library::Error> {
    // SAFETY: the range is part of a `Data` that nobody else uses until its read has ended: not
    // before the endpoint told of this, or is dropped.
    unsafe {
        let to = std::ptr::with_exposed_provenance_mut(mem.addr(offset));
        endpoint.read(token, from, (to, len, prepared))
    }
}
