//! Copies between address spaces, and handles of processes. The only unsafe code of this crate.
//!
//! Addresses of a peer's memory come from the peer; the kernel checks them for other processes.
//! Within one process (ranks as threads) they are trusted like any pointer of a program's own
//! thread.

#![allow(unsafe_code)]

use garonne_sync::copy::copy_mem;
use garonne_sync::user::UserMem;
use garonne_transport::iovec::{BLOCKS_PER_CALL, CopyDirection, IoBlock};
use garonne_transport::sys::moved;
use std::io::{Error, Result};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

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
    // SAFETY: `IoBlock` is laid out as `iovec`; the arrays outlive the call; local blocks come from
    // a `Data`, whose maker promised them valid; the kernel checks everything about the remote
    // side.
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

/// Memory of a registered region of another rank of this process. To be used while a lease on the
/// region is held.
pub fn own_memory(addr: usize) -> UserMem {
    // SAFETY: the address was put into a descriptor by a rank of this process, which keeps the
    // memory until no lease is left, and the caller holds one when it accesses the memory.
    unsafe { UserMem::new(std::ptr::with_exposed_provenance_mut(addr)) }
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

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns whether the process has not ended.
    pub fn is_alive(&self) -> bool {
        if is_alive(&self.fd) {
            return true;
        }
        // What is readable or closed may be another file of the program.
        !self.is_kept() && pidfd(self.pid).is_ok_and(|fd| is_alive(&fd))
    }

    /// Returns whether the descriptor refers to a process.
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

/// Returns whether the process has not ended.
fn is_alive(pidfd: &OwnedFd) -> bool {
    let mut poll = libc::pollfd {
        fd: pidfd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&mut poll, 1, 0) == 0 }
}
