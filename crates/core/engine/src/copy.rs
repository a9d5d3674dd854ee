//! Copies between user data of any shape and plain memory, without references over memory that
//! others may write.
//!
//! Used by the core and the shard. Large blocks are copied in place, small ones gathered and
//! scattered by their layout; through a bounce buffer that fits the first cache only where neither
//! side is plain memory, or where stores are to bypass the caches.

use crate::limits::{BLOCKS_AT_A_TIME, BLOCKS_AT_FIRST, BOUNCE_BYTES};
use crate::transport::PacketBuffer;
use garonne_sync::copy::{StoreKind, copy_mem_with};
use garonne_sync::user::{Data, Packed, UserMem};

/// From this mean block length on, copying block by block beats gathering.
const BLOCK_LARGE: u64 = 1024;

/// Reused space for shaped copies.
#[derive(Debug)]
pub(crate) struct BounceBuffer {
    bytes: Box<[u8]>,
    blocks: Vec<(isize, usize)>,
}

impl BounceBuffer {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; BOUNCE_BYTES].into_boxed_slice(),
            blocks: Vec::with_capacity(BLOCKS_AT_A_TIME),
        }
    }
}

/// Plain memory that is filled, and by which stores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyTarget {
    mem: UserMem,
    stores: StoreKind,
}

impl CopyTarget {
    /// Room for a packet, behind its first `skip` bytes.
    pub(crate) fn room(room: &PacketBuffer, skip: usize) -> Self {
        Self {
            mem: room.mem.offset(skip as isize),
            stores: room.stores,
        }
    }

    /// Copies `len` bytes to `at`.
    #[inline]
    fn put(self, at: usize, src: UserMem, offset: isize, len: usize) {
        match self.stores {
            StoreKind::Cached => self.mem.copy_from(at as isize, src, offset, len),
            StoreKind::Streamed => {
                copy_mem_with(
                    self.stores,
                    self.mem.offset(at as isize),
                    src.offset(offset),
                    len,
                );
            }
        }
    }
}

/// Copies a non-contiguous range block by block if its blocks are large. `each` gets (packed offset
/// in the range, offset from the base, length).
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
        // A few tell whether they are large: listing more would take as long as copying them where
        // they are not.
        let most = if done == 0 {
            BLOCKS_AT_FIRST
        } else {
            BLOCKS_AT_A_TIME
        };
        let covered = layout
            .blocks(from + done, len - done, most, blocks)
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
#[inline]
pub(crate) fn copy_out(
    data: &Data,
    from: u64,
    target: CopyTarget,
    len: usize,
    bounce: &mut BounceBuffer,
) {
    if data.layout.is_none() {
        return target.put(0, data.mem, from as isize, len);
    }
    copy_out_shaped(data, from, target, len, bounce);
}

#[inline(never)]
fn copy_out_shaped(
    data: &Data,
    from: u64,
    target: CopyTarget,
    len: usize,
    bounce: &mut BounceBuffer,
) {
    let BounceBuffer { bytes, blocks } = bounce;
    let mut done = by_blocks(data, from, len as u64, blocks, |at, offset, length| {
        target.put(at as usize, data.mem, offset, length)
    }) as usize;
    if target.stores == StoreKind::Cached && done < len {
        let rest = Packed::new(target.mem.offset(done as isize), len - done);
        return data.pack_to(from + done as u64, rest);
    }
    while done < len {
        let (step, _) = Packed::over(bytes).split((len - done).min(bytes.len()));
        data.pack_to(from + done as u64, step);
        target.put(done, step.mem(), 0, step.len());
        done += step.len();
    }
}

/// Copies `len` bytes at `source` to packed bytes `[from, from + len)` of `data`.
pub(crate) fn copy_in(
    data: &Data,
    from: u64,
    source: UserMem,
    len: usize,
    bounce: &mut BounceBuffer,
) {
    copy_in_with(StoreKind::Cached, data, from, (source, len), bounce);
}

/// Copies like [`copy_in`], but writes large blocks with the given stores. Stores that bypass the
/// caches are used only from memory that does not overlap.
pub(crate) fn copy_in_with(
    stores: StoreKind,
    data: &Data,
    from: u64,
    (source, len): (UserMem, usize),
    bounce: &mut BounceBuffer,
) {
    let done = by_blocks(
        data,
        from,
        len as u64,
        &mut bounce.blocks,
        |at, offset, length| match stores {
            // May overlap, in messages to the own rank.
            StoreKind::Cached => data.mem.copy_from(offset, source, at as isize, length),
            StoreKind::Streamed => copy_mem_with(
                stores,
                data.mem.offset(offset),
                source.offset(at as isize),
                length,
            ),
        },
    );
    if done < len as u64 {
        let rest = Packed::new(source.offset(done as isize), len - done as usize);
        data.unpack_from(from + done, rest);
    }
}

/// Copies the first `len` packed bytes of `source` to those of `target`.
pub(crate) fn copy_between(source: &Data, target: &Data, len: u64, bounce: &mut BounceBuffer) {
    if target.layout.is_none() {
        let target = CopyTarget {
            mem: target.mem,
            stores: StoreKind::Cached,
        };
        return copy_out(source, 0, target, len as usize, bounce);
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
