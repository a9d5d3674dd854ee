//! Memory of another process of the same host, copied by the kernel without that process's help.

use crate::user::{Data, UserMem};
use std::io::{Error, ErrorKind, Result};

/// Blocks of either side in one system call.
const BLOCKS_PER_CALL: usize = 256;

/// Direction of a copy between this process and another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerCopy {
    /// From the other process to this one.
    Read,
    /// From this process to the other one.
    Write,
}

/// Memory at an address that a peer of this process tells: a rank that is a thread of it. The peer
/// promises what a program promises of its own buffers, that the memory is valid for as long as the
/// peer lets others use it.
pub fn of_this_process(address: u64) -> UserMem {
    // SAFETY: the promise above; ranks of a process can reach each other's memory anyway.
    unsafe { UserMem::new(std::ptr::with_exposed_provenance_mut(address as usize)) }
}

/// Copies between the packed stream of `local` and that of `remote` from byte `from` on, as far as
/// both reach. Addresses of `remote` are addresses of process `process`, which the kernel checks;
/// bytes of `remote` are never touched here.
///
/// # Errors
/// What the system says; some bytes may have been copied.
pub fn copy(
    process: u32,
    direction: PeerCopy,
    local: &Data,
    (remote, from): (&Data, u64),
) -> Result<()> {
    let len = local.len.min(remote.len.saturating_sub(from));
    let (mut here, mut there) = (Vec::new(), Vec::new());
    let mut done = 0;
    while done < len {
        let covered = blocks(local, done, len - done, &mut here);
        blocks(remote, from + done, covered, &mut there);
        let moved = move_blocks(process, direction, &here, &there)?;
        if moved == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        done += moved as u64;
    }
    Ok(())
}

/// Lists blocks of the packed bytes `[from, from + len)`, and returns the bytes covered.
fn blocks(data: &Data, from: u64, len: u64, out: &mut Vec<libc::iovec>) -> u64 {
    out.clear();
    let block = |offset: isize, len: usize| libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(data.mem.addr(offset)),
        iov_len: len,
    };
    match &data.layout {
        None => {
            out.push(block(from as isize, len as usize));
            len
        }
        Some(layout) => {
            let mut list = Vec::with_capacity(BLOCKS_PER_CALL);
            let covered = layout.blocks(from, len, BLOCKS_PER_CALL, &mut list);
            out.extend(list.into_iter().map(|(offset, len)| block(offset, len)));
            covered
        }
    }
}

/// One system call. Ends where either list ends.
fn move_blocks(
    process: u32,
    direction: PeerCopy,
    local: &[libc::iovec],
    remote: &[libc::iovec],
) -> Result<usize> {
    let process = process as libc::pid_t;
    let (here, here_len) = (local.as_ptr(), local.len() as libc::c_ulong);
    let (there, there_len) = (remote.as_ptr(), remote.len() as libc::c_ulong);
    // SAFETY: the lists live during the call. Local blocks come from a `Data`, whose maker promised
    // them valid. The kernel checks everything about the remote side.
    let moved = unsafe {
        match direction {
            PeerCopy::Read => libc::process_vm_readv(process, here, here_len, there, there_len, 0),
            PeerCopy::Write => {
                libc::process_vm_writev(process, here, here_len, there, there_len, 0)
            }
        }
    };
    usize::try_from(moved).map_err(|_| Error::last_os_error())
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::user::Scratch;

    #[test]
    fn bytes_go_both_ways_and_an_address_that_is_not_there_is_an_error() {
        let (here, there) = (Scratch::new(64).unwrap(), Scratch::new(64).unwrap());
        let me = std::process::id();
        there.mem().write(0, &[7; 64]);
        let (local, remote) = (
            Data::contiguous(here.mem(), 64),
            Data::contiguous(there.mem(), 64),
        );
        copy(me, PeerCopy::Read, &local, (&remote, 0)).unwrap();
        let mut seen = [0; 64];
        here.mem().read(0, &mut seen);
        assert_eq!(seen, [7; 64]);
        here.mem().write(0, &[9; 64]);
        copy(me, PeerCopy::Write, &local, (&remote, 0)).unwrap();
        there.mem().read(0, &mut seen);
        assert_eq!(seen, [9; 64]);
        here.mem().write(0, &[5; 64]);
        copy(me, PeerCopy::Write, &local, (&remote, 60)).unwrap();
        there.mem().read(0, &mut seen);
        assert_eq!((seen[59], seen[60], seen[63]), (9, 5, 5));
        let nowhere = Data::contiguous(UserMem::null().offset(64), 64);
        assert!(copy(me, PeerCopy::Read, &local, (&nowhere, 0)).is_err());
    }
}
