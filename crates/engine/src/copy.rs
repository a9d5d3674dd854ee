//! Copies between user data of any shape and plain memory, without references over memory that others may write.
//!
//! Used by the core and the shard. Large blocks are copied in place, small ones gathered through a bounce buffer that fits
//! the first cache.

use crate::limits::{BLOCKS_AT_A_TIME, BOUNCE};
use garonne_sync::user::{Data, UserMem};

/// From this mean block length on, copying block by block beats gathering.
const BLOCK_LARGE: u64 = 1024;

/// Reused space for shaped copies.
#[derive(Debug)]
pub(crate) struct Bounce {
    bytes: Box<[u8]>,
    blocks: Vec<(isize, usize)>,
}

impl Bounce {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; BOUNCE].into_boxed_slice(),
            blocks: Vec::with_capacity(BLOCKS_AT_A_TIME),
        }
    }
}

/// One copy of a shaped range block by block, if its blocks are large. `each` gets (packed offset in the range, offset from
/// the base, length).
fn by_blocks(
    data: &Data,
    from: u64,
    len: u64,
    blocks: &mut Vec<(isize, usize)>,
    mut each: impl FnMut(u64, isize, usize),
) -> u64 {
    let Some(layout) = &data.layout else {
        each(0, from as isize, len as usize);
        return len;
    };
    let mut done = 0;
    while done < len {
        blocks.clear();
        let covered = layout
            .blocks(from + done, len - done, BLOCKS_AT_A_TIME, blocks)
            .min(len - done);
        if covered == 0 || covered / (blocks.len().max(1) as u64) < BLOCK_LARGE {
            break;
        }
        let mut at = done;
        for &(offset, length) in blocks.iter() {
            each(at, offset, length);
            at += length as u64;
        }
        done += covered;
    }
    done
}

/// Copies packed bytes `[from, from + len)` of `data` to `target`.
pub(crate) fn copy_out(data: &Data, from: u64, target: UserMem, len: usize, bounce: &mut Bounce) {
    let Bounce { bytes, blocks } = bounce;
    let mut done = by_blocks(data, from, len as u64, blocks, |at, offset, length| {
        target.copy_from(at as isize, data.mem, offset, length)
    }) as usize;
    while done < len {
        let step = (len - done).min(bytes.len());
        data.pack(from + done as u64, &mut bytes[..step]);
        target.write(done as isize, &bytes[..step]);
        done += step;
    }
}

/// Copies `len` bytes at `source` to packed bytes `[from, from + len)` of `data`.
pub(crate) fn copy_in(data: &Data, from: u64, source: UserMem, len: usize, bounce: &mut Bounce) {
    let Bounce { bytes, blocks } = bounce;
    let mut done = by_blocks(data, from, len as u64, blocks, |at, offset, length| {
        data.mem.copy_from(offset, source, at as isize, length)
    }) as usize;
    while done < len {
        let step = (len - done).min(bytes.len());
        source.read(done as isize, &mut bytes[..step]);
        data.unpack(from + done as u64, &bytes[..step]);
        done += step;
    }
}

/// Copies the first `len` packed bytes of `source` to those of `target`.
pub(crate) fn copy_between(source: &Data, target: &Data, len: u64, bounce: &mut Bounce) {
    if target.layout.is_none() {
        return copy_out(source, 0, target.mem, len as usize, bounce);
    }
    if source.layout.is_none() {
        return copy_in(target, 0, source.mem, len as usize, bounce);
    }
    let mut done = 0;
    while done < len {
        let step = (len - done).min(bounce.bytes.len() as u64) as usize;
        source.pack(done, &mut bounce.bytes[..step]);
        target.unpack(done, &bounce.bytes[..step]);
        done += step as u64;
    }
}
