//! Copies between data of two layouts.
//!
//! Large blocks are copied directly, small ones through a stage of [`STAGE_BYTES`] on the caller's
//! stack.

use super::{Data, Layout, Packed, UserMem};

/// Bytes of the buffer through which finely scattered data goes: half a first-level cache, so that
/// what was packed is still there when it is unpacked.
const STAGE_BYTES: usize = 16 * 1024;

/// Blocks looked at together when data goes from block to block.
const BLOCKS_AT_ONCE: usize = 64;

/// Mean block length from which blocks are copied one by one instead of through the stage.
const DIRECT_BLOCK_BYTES: u64 = 512;

/// Copies the packed stream of `src` to that of `dst`, as far as both reach, and returns the bytes
/// copied. Neither shape needs a buffer of the whole: large blocks go straight, small ones through
/// a stage that stays in cache. The two must not overlap in memory.
pub fn copy(src: &Data, dst: &Data) -> u64 {
    let len = src.len.min(dst.len);
    match (&src.layout, &dst.layout) {
        (None, None) => dst.mem.copy_from(0, src.mem, 0, len as usize),
        (Some(shape), None) => shape.pack(src.mem, 0, Packed::new(dst.mem, len as usize)),
        (None, Some(shape)) => shape.unpack(dst.mem, 0, Packed::new(src.mem, len as usize)),
        (Some(from), Some(to)) => copy_shaped((src.mem, &**from), (dst.mem, &**to), len),
    }
    len
}

fn copy_shaped(src: (UserMem, &dyn Layout), dst: (UserMem, &dyn Layout), len: u64) {
    let mut done = 0;
    let (mut from, mut to) = (Vec::new(), Vec::new());
    while done < len {
        from.clear();
        to.clear();
        let covered = src.1.blocks(done, len - done, BLOCKS_AT_ONCE, &mut from);
        let covered = covered.min(dst.1.blocks(done, covered, BLOCKS_AT_ONCE, &mut to));
        if covered >= DIRECT_BLOCK_BYTES * from.len().max(to.len()) as u64 {
            copy_blocks((src.0, &from), (dst.0, &to), covered as usize);
            done += covered;
            continue;
        }
        // Scattered here means scattered for a while: stay with the stage for many rounds before
        // looking again.
        let end = len.min(done + 64 * STAGE_BYTES as u64);
        let mut stage = [0; STAGE_BYTES];
        while done < end {
            let piece = &mut stage[..STAGE_BYTES.min((end - done) as usize)];
            src.1.pack(src.0, done, Packed::over(piece));
            dst.1.unpack(dst.0, done, Packed::of(piece));
            done += piece.len() as u64;
        }
    }
}

/// Copies `len` bytes between two lists of blocks.
fn copy_blocks(
    src: (UserMem, &[(isize, usize)]),
    dst: (UserMem, &[(isize, usize)]),
    mut len: usize,
) {
    let (mut from, mut to) = (src.1.iter().copied(), dst.1.iter().copied());
    let (mut a, mut b) = ((0, 0), (0, 0));
    while len > 0 {
        if a.1 == 0 {
            a = from.next().unwrap_or((0, len));
        }
        if b.1 == 0 {
            b = to.next().unwrap_or((0, len));
        }
        let piece = a.1.min(b.1).min(len);
        dst.0.copy_from(b.0, src.0, a.0, piece);
        (a, b) = (
            (a.0 + piece as isize, a.1 - piece),
            (b.0 + piece as isize, b.1 - piece),
        );
        len -= piece;
    }
}
