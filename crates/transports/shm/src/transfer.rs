//! Moving bytes between local memory and a peer's region, block by block, and whose fault it is
//! when nothing moves.
//!
//! Used by the regions, which hold the lease and look after the peer's life; nothing is kept here.

use crate::iovec::{IovecCursor, RegionLocation, blocks, within};
use crate::sys;
use garonne_engine::api::{Error, Peer};
use garonne_engine::transport::BulkTransfer;
use garonne_transport::iovec::{CopyDirection, IoBlock};

/// The blocks of a peer's region that were read last: peer, cookie, blocks.
pub(crate) type PeerMemory = (Peer, u64, Vec<IoBlock>);

/// Moves what `bulk` says between its local memory and the region at a peer whose process is `pid`
/// (`None`: this one).
pub(crate) fn copy_blocks(
    pid: Option<u32>,
    bulk: &BulkTransfer<'_>,
    way: CopyDirection,
    list: &mut Option<PeerMemory>,
) -> Result<(), Error> {
    let damaged = Error::Peer {
        peer: bulk.peer,
        what: "its descriptor does not describe the region",
    };
    let whereabouts = RegionLocation::read(bulk.descriptor.blob()).ok_or(damaged.clone())?;
    let single;
    let mut remote = match &whereabouts {
        RegionLocation::One(addr) => {
            single = [IoBlock {
                addr: addr.wrapping_add(bulk.offset as usize),
                len: bulk.len as usize,
            }];
            IovecCursor::new(&single, 0)
        }
        RegionLocation::Two(blocks) => IovecCursor::new(blocks, bulk.offset),
        RegionLocation::List(addr, count) => {
            let known = list.as_ref().is_some_and(|(peer, cookie, _)| {
                (*peer, *cookie) == (bulk.peer, bulk.descriptor.cookie)
            });
            if !known {
                let mut blocks = vec![IoBlock::default(); *count];
                match pid {
                    None => sys::own_blocks(*addr, &mut blocks),
                    Some(pid) => sys::read_blocks(pid, *addr, &mut blocks)
                        .map_err(|error| refused(bulk.peer, &error, CopyDirection::Read, &[]))?,
                }
                *list = Some((bulk.peer, bulk.descriptor.cookie, blocks));
            }
            match list {
                Some((_, _, blocks)) => IovecCursor::new(blocks, bulk.offset),
                None => return Err(damaged),
            }
        }
    };
    let local_blocks =
        blocks(bulk.local, bulk.local_offset, bulk.len, usize::MAX).ok_or(damaged.clone())?;
    let mut local = IovecCursor::new(&local_blocks, 0);
    let (mut here, mut there) = (Vec::new(), Vec::new());
    let mut left = bulk.len;
    while left > 0 {
        let room = local.gather(left, &mut here);
        let ready = remote.gather(room, &mut there);
        if ready == 0 {
            return Err(damaged);
        }
        if ready < room {
            local.gather(ready, &mut here);
        }
        let moved = match pid {
            None => within(&here, &there, way),
            Some(pid) => sys::move_between(pid, way, &here, &there)
                .map_err(|error| refused(bulk.peer, &error, way, &here))?
                as u64,
        };
        if moved == 0 {
            return Err(damaged);
        }
        local.advance(moved);
        remote.advance(moved);
        left = left.saturating_sub(moved);
    }
    Ok(())
}

/// Why the system moved nothing between a peer's memory and `here`.
#[cold]
fn refused(peer: Peer, error: &std::io::Error, way: CopyDirection, here: &[IoBlock]) -> Error {
    match error.raw_os_error() {
        Some(libc::ESRCH) => Error::Peer {
            peer,
            what: "died before its memory was read",
        },
        Some(libc::EFAULT) if !here.iter().all(|block| is_usable(block, way)) => Error::System {
            what: OWN_BUFFER,
            errno: libc::EFAULT,
        },
        Some(libc::EFAULT) => Error::PeerMemory { peer },
        errno => Error::System {
            what: "moving data between processes",
            errno: errno.unwrap_or(0),
        },
    }
}

/// Reason given when the fault is in this process.
const OWN_BUFFER: &str = "using the memory of this call's own buffer (was it freed, may it only be read, or does it lie on a device?)";

/// Returns whether the first and the last byte of a block of this process can be read, and written
/// where data comes in: the system is asked to move each to its own place. Bytes of a receive that
/// is under way are ours to write.
fn is_usable(block: &IoBlock, way: CopyDirection) -> bool {
    let usable = |addr: usize| match way {
        CopyDirection::Read => sys::move_between(
            std::process::id(),
            CopyDirection::Read,
            &[IoBlock { addr, len: 1 }],
            &[IoBlock { addr, len: 1 }],
        )
        .is_ok(),
        CopyDirection::Write => sys::read_word(std::process::id(), addr & !7).is_ok(),
    };
    block.len == 0 || (usable(block.addr) && usable(block.addr + block.len - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Constant data, which no process may write.
    static READ_ONLY: [u8; 64] = [7; 64];

    #[test]
    fn a_fault_is_blamed_on_the_side_whose_memory_is_not_there() {
        let fault = std::io::Error::from_raw_os_error(libc::EFAULT);
        let mut memory = [0u8; 40];
        let mine = IoBlock {
            addr: memory.as_mut_ptr().expose_provenance(),
            len: memory.len(),
        };
        let nothing = IoBlock {
            addr: 4096,
            len: 100,
        };
        let constant = IoBlock {
            addr: READ_ONLY.as_ptr().expose_provenance(),
            len: READ_ONLY.len(),
        };
        let theirs = Error::PeerMemory { peer: 3 };
        let own = Error::System {
            what: OWN_BUFFER,
            errno: libc::EFAULT,
        };
        assert_eq!(refused(3, &fault, CopyDirection::Read, &[mine]), theirs);
        assert_eq!(
            refused(3, &fault, CopyDirection::Write, &[constant]),
            theirs
        );
        assert_eq!(
            refused(3, &fault, CopyDirection::Read, &[mine, nothing]),
            own
        );
        assert_eq!(
            refused(3, &fault, CopyDirection::Write, &[mine, nothing]),
            own
        );
        assert_eq!(
            refused(3, &fault, CopyDirection::Read, &[mine, constant]),
            own
        );
    }
}
