//! System calls and raw copies between address spaces. The only unsafe code of this crate.
//!
//! Addresses of a peer's memory come from the peer; the kernel checks them for other processes.
//! Within one process (ranks as threads) they are trusted like any pointer of a program's own
//! thread.

#![allow(unsafe_code)]

use garonne_rails_ofi::endpoint::{Endpoint, Region};
use garonne_sync::copy::copy_mem;
use garonne_sync::user::UserMem;
use std::io::{Error, Result};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A contiguous block: address and length in bytes. Laid out as the kernel's `iovec`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoBlock {
    /// Address.
    pub addr: usize,
    /// Bytes.
    pub len: usize,
}

/// Blocks per call that the kernel takes on each side (`IOV_MAX`).
pub const BLOCKS_PER_CALL: usize = 1024;

/// Which way a transfer goes, seen from this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    /// From the peer to here.
    Read,
    /// From here to the peer.
    Write,
}

/// Moves bytes between `local` blocks of this process and `peer` blocks of process `pid`: one
/// call, at most [`BLOCKS_PER_CALL`] blocks on each side. Returns the bytes moved, which may be
/// fewer than asked for.
///
/// The local blocks must be memory that the caller was given as a `Data` for this purpose.
pub fn move_between(
    pid: u32,
    way: CopyDirection,
    local: &[IoBlock],
    remote: &[IoBlock],
) -> Result<usize> {
    let local_len = local.len().min(BLOCKS_PER_CALL) as libc::c_ulong;
    let remote_len = remote.len().min(BLOCKS_PER_CALL) as libc::c_ulong;
    let (local, remote) = (
        local.as_ptr().cast::<libc::iovec>(),
        remote.as_ptr().cast::<libc::iovec>(),
    );
    // SAFETY: `IoBlock` is laid out as `iovec`; the arrays outlive the call; local blocks come from a
    // `Data`, whose maker promised them valid; the kernel checks everything about the remote side.
    let returned = unsafe {
        match way {
            CopyDirection::Read => {
                libc::process_vm_readv(pid as libc::pid_t, local, local_len, remote, remote_len, 0)
            }
            CopyDirection::Write => {
                libc::process_vm_writev(pid as libc::pid_t, local, local_len, remote, remote_len, 0)
            }
        }
    };
    moved(returned)
}

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

/// What a call that moves bytes returned.
fn moved(returned: impl TryInto<usize>) -> Result<usize> {
    returned.try_into().map_err(|_| Error::last_os_error())
}

/// Reads `out.len()` blocks that lie as an array at `addr` in process `pid`.
pub fn read_blocks(pid: u32, addr: usize, out: &mut [IoBlock]) -> Result<()> {
    let bytes = size_of_val(out);
    let local = IoBlock {
        addr: out.as_mut_ptr().expose_provenance(),
        len: bytes,
    };
    let moved = move_between(
        pid,
        CopyDirection::Read,
        &[local],
        &[IoBlock { addr, len: bytes }],
    )?;
    if moved == bytes {
        Ok(())
    } else {
        Err(Error::from_raw_os_error(libc::EFAULT))
    }
}

/// Reads a word of process `pid`.
pub fn read_word(pid: u32, addr: usize) -> Result<u64> {
    let mut word = [IoBlock::default()];
    let local = IoBlock {
        addr: word.as_mut_ptr().expose_provenance(),
        len: 8,
    };
    let moved = move_between(
        pid,
        CopyDirection::Read,
        &[local],
        &[IoBlock { addr, len: 8 }],
    )?;
    if moved == 8 {
        Ok(word[0].addr as u64)
    } else {
        Err(Error::from_raw_os_error(libc::EFAULT))
    }
}

/// The blocks that lie as an array at `addr` in this process, as another rank of it left them
/// there.
pub fn own_blocks(addr: usize, out: &mut [IoBlock]) {
    // SAFETY: the address was put into a descriptor by a rank of this process, which keeps the
    // array until the region is revoked, and the caller holds a lease on it.
    let array = unsafe { UserMem::new(std::ptr::with_exposed_provenance_mut(addr)) };
    // SAFETY: as above for the source; the destination is the slice.
    let slice = unsafe { UserMem::new(out.as_mut_ptr().cast()) };
    copy_mem(slice, array, size_of_val(out));
}

/// Copies `len` bytes within this process.
pub fn copy_within(from: usize, to: usize, len: usize) {
    // SAFETY: both addresses come from `Data` of ranks of this process, valid while the region is
    // leased.
    let (from, to) = unsafe {
        (
            UserMem::new(std::ptr::with_exposed_provenance_mut(from)),
            UserMem::new(std::ptr::with_exposed_provenance_mut(to)),
        )
    };
    copy_mem(to, from, len);
}

/// A process, whoever gets its number later. The program may close the descriptor and use its
/// number.
#[derive(Debug)]
pub struct ProcessHandle {
    pid: u32,
    fd: ManuallyDrop<OwnedFd>,
}

impl ProcessHandle {
    /// The process that `pid` names now.
    pub fn new(pid: u32) -> Result<Self> {
        let fd = ManuallyDrop::new(pidfd(pid)?);
        Ok(Self { pid, fd })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it has not ended.
    pub fn is_alive(&self) -> bool {
        if is_alive(&self.fd) {
            return true;
        }
        // What is readable or closed may be another file of the program.
        !self.is_kept() && pidfd(self.pid).is_ok_and(|fd| is_alive(&fd))
    }

    /// Whether the descriptor refers to a process.
    fn is_kept(&self) -> bool {
        // SAFETY: signal 0 is sent to nobody; what is no descriptor of a process yields an error.
        let said = unsafe {
            let (info, flags) = (std::ptr::null::<libc::siginfo_t>(), 0);
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.fd.as_raw_fd(),
                0,
                info,
                flags,
            )
        };
        said == 0 || Error::last_os_error().raw_os_error() != Some(libc::EBADF)
    }
}

impl Drop for ProcessHandle {
    fn drop(&mut self) {
        if self.is_kept() {
            // SAFETY: it is open, and not used after this.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

/// A descriptor that refers to the process that `pid` names now, whoever gets the number later.
fn pidfd(pid: u32) -> Result<OwnedFd> {
    // SAFETY: a plain system call; PIDFD_NONBLOCK is not needed, the descriptor is close-on-exec by
    // definition.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the kernel just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Whether the process has not ended.
fn is_alive(pidfd: &OwnedFd) -> bool {
    let mut poll = libc::pollfd {
        fd: pidfd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&mut poll, 1, 0) == 0 }
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

/// What the kernel knows of a TCP socket.
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

/// How long the other side of a TCP socket has left unanswered what a living host's kernel answers
/// whatever its processes do; `None`: it owes no answer. Bytes under way count, and probes of a
/// closed window.
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

/// Starts a thread that takes no signals of the program: they are blocked in the calling thread
/// while `start` runs, which a new thread inherits.
pub fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both sets have room; the calls only read and write them and this thread's mask.
    let changed = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let started = start();
    if changed {
        // SAFETY: `before` was filled by the call that succeeded.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    started
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
) -> std::result::Result<Region, garonne_rails_ofi::library::Error> {
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
) -> std::result::Result<Option<Region>, garonne_rails_ofi::library::Error> {
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
    from: (garonne_rails_ofi::endpoint::Peer, u64, u64),
    (mem, offset, len): (UserMem, isize, usize),
    prepared: Option<Region>,
) -> std::result::Result<bool, garonne_rails_ofi::library::Error> {
    // SAFETY: the range is part of a `Data` that nobody else uses until its read has ended: not
    // before the endpoint told of this, or is dropped.
    unsafe {
        let to = std::ptr::with_exposed_provenance_mut(mem.addr(offset));
        endpoint.read(token, from, (to, len, prepared))
    }
}
