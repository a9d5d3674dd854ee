//! Blocks of memory: what a descriptor says of where a region lies, and walks over lists of blocks.
//!
//! Used by `region`. What a descriptor says is its sender's claim; the lengths asked for bound what
//! is done with it.

use crate::sys;
use garonne_engine::transport::RegionDescriptor;
use garonne_sync::user::Data;
use garonne_transport::iovec::{BLOCKS_PER_CALL, CopyDirection, IoBlock};
use garonne_transport::limits::{REGION_BLOCK_MIN, REGION_BLOCKS_MAX};

/// Place where a region lies, as its descriptor says in as many words as that takes: one, four, or
/// two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionLocation {
    /// All of it at this address.
    One(usize),
    /// In two blocks, told at once: a header and its data are the commonest shape, and reading a
    /// list costs a system call.
    Two([IoBlock; 2]),
    /// In blocks whose list lies at this address, and how many.
    List(usize, usize),
}

impl RegionLocation {
    /// Reads the bytes of a descriptor. `None`: they are none of a region.
    pub(crate) fn read(blob: &[u8]) -> Option<Self> {
        let word = |at: usize| {
            let bytes = blob.get(8 * at..8 * at + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?) as usize)
        };
        let block = |at| {
            let (addr, len) = (word(at)?, word(at + 1)?);
            Some(IoBlock { addr, len })
        };
        Some(match blob.len() {
            8 => Self::One(word(0)?),
            16 => {
                let count = word(1).filter(|count| (1..=REGION_BLOCKS_MAX).contains(count))?;
                Self::List(word(0)?, count)
            }
            32 => Self::Two([block(0)?, block(2)?]),
            _ => return None,
        })
    }

    pub(crate) fn descriptor(&self, cookie: u64) -> Option<RegionDescriptor> {
        let words = match *self {
            Self::One(addr) => [addr, 0, 0, 0],
            Self::List(addr, count) => [addr, count, 0, 0],
            Self::Two([a, b]) => [a.addr, a.len, b.addr, b.len],
        };
        let mut bytes = [0; 32];
        for (room, word) in bytes.chunks_exact_mut(8).zip(words) {
            room.copy_from_slice(&(word as u64).to_le_bytes());
        }
        let len = match self {
            Self::One(_) => 8,
            Self::List(..) => 16,
            Self::Two(_) => 32,
        };
        RegionDescriptor::new(cookie, &bytes[..len])
    }
}

/// Reads any bytes as where a region lies, and walks over it: what a peer says may be anything.
#[cfg(any(test, fuzzing))]
pub fn read_anything(bytes: &[u8]) {
    crate::region::read_registered(bytes);
    let Some(whereabouts) = RegionLocation::read(bytes) else {
        return;
    };
    let again = whereabouts
        .descriptor(7)
        .map(|descriptor| descriptor.blob() == bytes);
    assert_eq!(
        again,
        Some(true),
        "what is understood is written as it was read"
    );
    let RegionLocation::Two(blocks) = whereabouts else {
        return;
    };
    let room = blocks[0].len as u128 + blocks[1].len as u128;
    for skip in [0, 1, 4095, blocks[0].len as u64, u64::MAX] {
        let mut walk = IovecCursor::new(&blocks, skip);
        let mut part = Vec::new();
        let got = walk.gather(u64::MAX, &mut part);
        assert_eq!(
            u128::from(got),
            room.saturating_sub(skip.into()).min(u64::MAX.into())
        );
        walk.advance(got);
        assert!(got == u64::MAX || walk.gather(1, &mut part) == 0);
    }
}

/// The blocks of `[from, from + len)` of data, if they are at most `max`.
pub(crate) fn blocks(data: &Data, from: u64, len: u64, max: usize) -> Option<Vec<IoBlock>> {
    match &data.layout {
        None => Some(vec![IoBlock {
            addr: data.mem.addr(from as isize),
            len: len as usize,
        }]),
        Some(layout) => {
            let mut offsets = Vec::new();
            let covered = layout.blocks(from, len, max, &mut offsets);
            let block = |&(offset, len): &(isize, usize)| IoBlock {
                addr: data.mem.addr(offset),
                len,
            };
            (covered == len && offsets.len() <= max).then(|| offsets.iter().map(block).collect())
        }
    }
}

pub(crate) fn worthwhile(blocks: &[IoBlock], len: u64) -> bool {
    len / blocks.len().max(1) as u64 >= REGION_BLOCK_MIN
}

/// A walk over blocks that remembers where it is.
pub(crate) struct IovecCursor<'a> {
    blocks: &'a [IoBlock],
    index: usize,
    within: usize,
}

impl<'a> IovecCursor<'a> {
    pub(crate) fn new(blocks: &'a [IoBlock], skip: u64) -> Self {
        let mut walk = Self {
            blocks,
            index: 0,
            within: 0,
        };
        walk.advance(skip);
        walk
    }

    pub(crate) fn advance(&mut self, mut len: u64) {
        while let Some(block) = self.blocks.get(self.index) {
            let rest = (block.len - self.within) as u64;
            if len < rest {
                self.within += len as usize;
                return;
            }
            len -= rest;
            self.index += 1;
            self.within = 0;
        }
    }

    /// Up to a call's worth of blocks from here, of at most `len` bytes. Returns their bytes.
    pub(crate) fn gather(&self, mut len: u64, out: &mut Vec<IoBlock>) -> u64 {
        out.clear();
        let asked = len;
        for (i, block) in self.blocks[self.index..]
            .iter()
            .take(BLOCKS_PER_CALL)
            .enumerate()
        {
            let skip = if i == 0 { self.within } else { 0 };
            let take = ((block.len - skip) as u64).min(len);
            if take > 0 {
                out.push(IoBlock {
                    addr: block.addr.wrapping_add(skip),
                    len: take as usize,
                });
            }
            len -= take;
            if len == 0 {
                break;
            }
        }
        asked - len
    }
}

/// Copies between blocks of this process. Both lists hold the same number of bytes.
pub(crate) fn within(here: &[IoBlock], there: &[IoBlock], way: CopyDirection) -> u64 {
    let (mut local, mut remote) = (IovecCursor::new(here, 0), IovecCursor::new(there, 0));
    let mut moved = 0;
    while let (Some(a), Some(b)) = (
        local.blocks.get(local.index),
        remote.blocks.get(remote.index),
    ) {
        let (at, from) = (a.addr + local.within, b.addr + remote.within);
        let len = (a.len - local.within).min(b.len - remote.within);
        match way {
            CopyDirection::Read => sys::copy_within(from, at, len),
            CopyDirection::Write => sys::copy_within(at, from, len),
        }
        local.advance(len as u64);
        remote.advance(len as u64);
        moved += len as u64;
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_place_or_none(bytes in prop::collection::vec(any::<u8>(), 0..41)) {
            read_anything(&bytes);
        }

        #[test]
        fn two_blocks_of_any_length_are_walked_to_their_end(words in any::<[u64; 4]>(), small in any::<[u16; 2]>()) {
            for lens in [[words[1], words[3]], small.map(u64::from)] {
                let words = [words[0], lens[0], words[2], lens[1]];
                read_anything(&words.map(u64::to_le_bytes).concat());
            }
        }
    }
}
