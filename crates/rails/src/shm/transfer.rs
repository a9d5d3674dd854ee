//! Moving bytes between local memory and a peer's region, block by block, and whose fault it is when nothing moves.
//!
//! Used by the regions, which hold the lease and look after the peer's life; nothing is kept here.

use crate::shm::blocks::{Walk, Whereabouts, blocks, within};
use crate::sys::{self, Block, Way};
use garonne_engine::api::{Error, Peer};
use garonne_engine::rail::Bulk;

/// The blocks of a peer's region that were read last: peer, cookie, blocks.
pub(crate) type Known = (Peer, u64, Vec<Block>);

/// Moves what `bulk` says between its local memory and the region at a peer whose process is `pid` (`None`: this one).
pub(crate) fn copy_blocks(
    pid: Option<u32>,
    bulk: &Bulk<'_>,
    way: Way,
    list: &mut Option<Known>,
) -> Result<(), Error> {
    let damaged = Error::Peer {
        peer: bulk.peer,
        what: "its descriptor does not describe the region",
    };
    let whereabouts = Whereabouts::read(bulk.descriptor.blob()).ok_or(damaged.clone())?;
    let single;
    let mut remote = match &whereabouts {
        Whereabouts::One(addr) => {
            single = [Block {
                addr: addr.wrapping_add(bulk.offset as usize),
                len: bulk.len as usize,
            }];
            Walk::new(&single, 0)
        }
        Whereabouts::Two(blocks) => Walk::new(blocks, bulk.offset),
        Whereabouts::List(addr, count) => {
            let known = list
                .as_ref()
                .is_some_and(|(peer, cookie, _)| (*peer, *cookie) == (bulk.peer, bulk.descriptor.cookie));
            if !known {
                let mut blocks = vec![Block::default(); *count];
                match pid {
                    None => sys::own_blocks(*addr, &mut blocks),
                    Some(pid) => sys::read_blocks(pid, *addr, &mut blocks)
                        .map_err(|error| refused(bulk.peer, &error, &[]))?,
                }
                *list = Some((bulk.peer, bulk.descriptor.cookie, blocks));
            }
            match list {
                Some((_, _, blocks)) => Walk::new(blocks, bulk.offset),
                None => return Err(damaged),
            }
        }
    };
    let local_blocks = blocks(bulk.local, bulk.local_offset, bulk.len, usize::MAX).ok_or(damaged.clone())?;
    let mut local = Walk::new(&local_blocks, 0);
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
                .map_err(|error| refused(bulk.peer, &error, &here))? as u64,
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
fn refused(peer: Peer, error: &std::io::Error, here: &[Block]) -> Error {
    match error.raw_os_error() {
        Some(libc::ESRCH) => Error::Peer {
            peer,
            what: "died before its memory was read",
        },
        Some(libc::EFAULT) if !here.iter().all(is_mapped) => Error::System {
            what: "using the memory of this call's own buffer (was it freed, or does it lie on a device?)",
            errno: libc::EFAULT,
        },
        Some(libc::EFAULT) => Error::PeerMemory { peer },
        errno => Error::System {
            what: "moving data between processes",
            errno: errno.unwrap_or(0),
        },
    }
}
/// Whether the first and the last word of a block of this process can be read, by asking the system instead of reading.
fn is_mapped(block: &Block) -> bool {
    let word = |addr: usize| sys::read_word(std::process::id(), addr & !7).is_ok();
    block.len == 0 || (word(block.addr) && word(block.addr + block.len - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_blamed_on_the_side_whose_memory_is_not_there() {
        let fault = std::io::Error::from_raw_os_error(libc::EFAULT);
        let memory = [0u8; 40];
        let mine = Block {
            addr: memory.as_ptr().expose_provenance(),
            len: memory.len(),
        };
        let nothing = Block { addr: 4096, len: 100 };
        assert!(matches!(
            refused(3, &fault, &[mine]),
            Error::PeerMemory { peer: 3 }
        ));
        let own = Error::System {
            what: "using the memory of this call's own buffer (was it freed, or does it lie on a device?)",
            errno: libc::EFAULT,
        };
        assert_eq!(refused(3, &fault, &[mine, nothing]), own);
    }
}
