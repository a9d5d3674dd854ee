//! The interpreter of dataloops: packs, unpacks and lists any part of the packed stream.
//!
//! Owns the [`Layout`] that operations carry. Finding the start costs one division or binary search
//! per level of nesting; after that whole repetitions go to the strided copies of [`UserMem`].
//! Never allocates.

use super::dataloop::{Dataloop, LoopBody, LoopNode};
use crate::limits::{COLUMN_TILE_BYTES, COLUMNS_MAX};
use garonne_sync::user::{Layout, Packed, Strided, UserMem};

/// The layout of some number of elements of a datatype.
#[derive(Debug)]
pub(crate) struct ElementsLayout(pub Dataloop);

impl Layout for ElementsLayout {
    fn packed_len(&self) -> u64 {
        self.0.len
    }

    fn pack(&self, mem: UserMem, from: u64, dst: Packed) {
        let len = dst.len() as u64;
        assert!(
            from <= self.0.len && len <= self.0.len - from,
            "pack beyond the end of the data"
        );
        walk(
            &self.0.node,
            PackedSpan {
                at: self.0.offset,
                from,
                len,
            },
            &mut PackRuns { mem, out: dst },
        );
    }

    fn unpack(&self, mem: UserMem, from: u64, src: Packed) {
        let len = src.len() as u64;
        assert!(
            from <= self.0.len && len <= self.0.len - from,
            "unpack beyond the end of the data"
        );
        walk(
            &self.0.node,
            PackedSpan {
                at: self.0.offset,
                from,
                len,
            },
            &mut UnpackRuns { mem, input: src },
        );
    }

    fn blocks(&self, from: u64, len: u64, max_blocks: usize, out: &mut Vec<(isize, usize)>) -> u64 {
        let len = len.min(self.0.len.saturating_sub(from));
        if max_blocks <= out.len() || len == 0 {
            return 0;
        }
        let mut list = ListRuns {
            floor: out.len(),
            out,
            max: max_blocks,
            covered: 0,
            full: false,
        };
        walk(
            &self.0.node,
            PackedSpan {
                at: self.0.offset,
                from,
                len,
            },
            &mut list,
        );
        list.covered
    }
}

/// Packed bytes `[from, from + len)` of a node that lies at offset `at`.
#[derive(Clone, Copy)]
struct PackedSpan {
    at: i64,
    from: u64,
    len: u64,
}

/// A visitor of the runs of a layout, in packed order.
trait RunVisitor {
    fn run(&mut self, at: i64, len: u64);
    fn strided(&mut self, at: i64, block: u64, stride: i64, count: u64);
    fn equal(&mut self, at: i64, offsets: &[i64], block: u64);

    /// `count` repetitions of a few runs; `body_len` packed bytes each.
    fn columns(&mut self, at: i64, columns: &RunTable, stride: i64, count: u64) {
        for i in 0..count {
            if self.is_full() {
                return;
            }
            for &(offset, len) in columns.runs() {
                self.run(at + i as i64 * stride + offset, len);
            }
        }
    }

    /// Returns whether there is no point in going on.
    fn is_full(&self) -> bool {
        false
    }
}

/// A body of a few runs: offset and length of each.
struct RunTable {
    list: [(i64, u64); COLUMNS_MAX],
    count: usize,
    body_len: u64,
}

impl RunTable {
    fn of(body: &LoopBody) -> Option<Self> {
        let mut columns = Self {
            list: [(0, 0); COLUMNS_MAX],
            count: 0,
            body_len: body.len,
        };
        match &body.node {
            LoopNode::Strided {
                block,
                stride,
                count,
            } if *count <= COLUMNS_MAX as u64 => {
                (0..*count as i64).for_each(|i| columns.push(i * stride, *block));
            }
            LoopNode::Equal { offsets, block } if offsets.len() <= COLUMNS_MAX => {
                offsets
                    .iter()
                    .for_each(|&offset| columns.push(offset, *block));
            }
            LoopNode::Runs { offsets, ends } if offsets.len() <= COLUMNS_MAX => {
                let starts = std::iter::once(0).chain(ends.iter().copied());
                for ((&offset, &end), start) in offsets.iter().zip(ends.iter()).zip(starts) {
                    columns.push(offset, end - start);
                }
            }
            _ => return None,
        }
        Some(columns)
    }

    fn push(&mut self, offset: i64, len: u64) {
        self.list[self.count] = (offset, len);
        self.count += 1;
    }

    fn runs(&self) -> &[(i64, u64)] {
        &self.list[..self.count]
    }

    /// Repetitions per tile.
    fn tile(&self) -> u64 {
        (COLUMN_TILE_BYTES / self.body_len).max(1)
    }
}

fn walk<M: RunVisitor>(node: &LoopNode, span: PackedSpan, mover: &mut M) {
    let PackedSpan { at, from, len } = span;
    if len == 0 || mover.is_full() {
        return;
    }
    match node {
        LoopNode::Run => mover.run(at + from as i64, len),
        LoopNode::Strided { block, stride, .. } => walk_strided(*block, *stride, span, mover),
        LoopNode::Loop { stride, body, .. } => walk_loop(*stride, body, span, mover),
        LoopNode::Runs { offsets, ends } => {
            let first = ends.partition_point(|&end| end <= from);
            let mut start = if first == 0 { 0 } else { ends[first - 1] };
            let mut done = from;
            for (&offset, &end) in offsets[first..].iter().zip(&ends[first..]) {
                let take = (end - done).min(from + len - done);
                mover.run(at + offset + (done - start) as i64, take);
                done += take;
                if done == from + len || mover.is_full() {
                    return;
                }
                start = end;
            }
        }
        LoopNode::Equal { offsets, block } => walk_equal(offsets, *block, span, mover),
        LoopNode::Many { offsets, body } => {
            let (mut i, mut skip, mut left) = ((from / body.len) as usize, from % body.len, len);
            while left > 0 && !mover.is_full() {
                let take = (body.len - skip).min(left);
                walk(
                    &body.node,
                    PackedSpan {
                        at: at + offsets[i],
                        from: skip,
                        len: take,
                    },
                    mover,
                );
                (i, skip, left) = (i + 1, 0, left - take);
            }
        }
        LoopNode::Seq(parts) => {
            let first = parts.partition_point(|part| part.end <= from);
            let mut done = from;
            for part in &parts[first..] {
                let skip = done - (part.end - part.len);
                let take = (part.len - skip).min(from + len - done);
                walk(
                    &part.node,
                    PackedSpan {
                        at: at + part.offset,
                        from: skip,
                        len: take,
                    },
                    mover,
                );
                done += take;
                if done == from + len || mover.is_full() {
                    return;
                }
            }
        }
    }
}

fn walk_strided<M: RunVisitor>(block: u64, stride: i64, span: PackedSpan, mover: &mut M) {
    let PackedSpan { at, from, mut len } = span;
    let (mut i, skip) = if from == 0 {
        (0, 0)
    } else {
        ((from / block) as i64, from % block)
    };
    if skip != 0 || len < block {
        let head = (block - skip).min(len);
        mover.run(at + i * stride + skip as i64, head);
        (i, len) = (i + 1, len - head);
    }
    let whole = len / block;
    if whole > 0 {
        mover.strided(at + i * stride, block, stride, whole);
    }
    let tail = len - whole * block;
    if tail > 0 {
        mover.run(at + (i + whole as i64) * stride, tail);
    }
}

fn walk_equal<M: RunVisitor>(offsets: &[i64], block: u64, span: PackedSpan, mover: &mut M) {
    let PackedSpan { at, from, mut len } = span;
    let (mut i, skip) = ((from / block) as usize, from % block);
    if skip != 0 || len < block {
        let head = (block - skip).min(len);
        mover.run(at + offsets[i] + skip as i64, head);
        (i, len) = (i + 1, len - head);
    }
    let whole = (len / block) as usize;
    if whole > 0 {
        mover.equal(at, &offsets[i..i + whole], block);
    }
    let tail = len - whole as u64 * block;
    if tail > 0 {
        mover.run(at + offsets[i + whole], tail);
    }
}

fn walk_loop<M: RunVisitor>(stride: i64, body: &LoopBody, span: PackedSpan, mover: &mut M) {
    let PackedSpan { at, from, mut len } = span;
    let (mut i, skip) = if from == 0 {
        (0, 0)
    } else {
        ((from / body.len) as i64, from % body.len)
    };
    if skip != 0 || len < body.len {
        let head = (body.len - skip).min(len);
        walk(
            &body.node,
            PackedSpan {
                at: at + i * stride,
                from: skip,
                len: head,
            },
            mover,
        );
        (i, len) = (i + 1, len - head);
    }
    let whole = len / body.len;
    if whole > 1
        && let Some(columns) = RunTable::of(body)
    {
        mover.columns(at + i * stride, &columns, stride, whole);
    } else {
        for k in 0..whole as i64 {
            if mover.is_full() {
                return;
            }
            walk(
                &body.node,
                PackedSpan {
                    at: at + (i + k) * stride,
                    from: 0,
                    len: body.len,
                },
                mover,
            );
        }
    }
    let tail = len - whole * body.len;
    if tail > 0 {
        walk(
            &body.node,
            PackedSpan {
                at: at + (i + whole as i64) * stride,
                from: 0,
                len: tail,
            },
            mover,
        );
    }
}

/// Gathers.
struct PackRuns {
    mem: UserMem,
    out: Packed,
}

/// Takes the next `len` packed bytes off the front.
fn next(packed: &mut Packed, len: u64) -> Packed {
    let (head, rest) = packed.split(len as usize);
    *packed = rest;
    head
}

impl RunVisitor for PackRuns {
    #[inline]
    fn run(&mut self, at: i64, len: u64) {
        let to = next(&mut self.out, len);
        to.mem().copy_from(0, self.mem, at as isize, to.len());
    }

    fn strided(&mut self, at: i64, block: u64, stride: i64, count: u64) {
        let to = next(&mut self.out, block * count);
        self.mem.gather(strided(at, block, stride, count), to);
    }

    fn equal(&mut self, at: i64, offsets: &[i64], block: u64) {
        let to = next(&mut self.out, block * offsets.len() as u64);
        self.mem.gather_at(at as isize, offsets, block as usize, to);
    }

    fn columns(&mut self, at: i64, columns: &RunTable, stride: i64, count: u64) {
        let mut done = 0;
        while done < count {
            let n = columns.tile().min(count - done);
            let mut tile = next(&mut self.out, n * columns.body_len);
            for &(offset, len) in columns.runs() {
                let from = strided(at + done as i64 * stride + offset, len, stride, n);
                self.mem
                    .gather_spaced(from, tile, columns.body_len as usize);
                next(&mut tile, len);
            }
            done += n;
        }
    }
}

/// Scatters.
struct UnpackRuns {
    mem: UserMem,
    input: Packed,
}

impl RunVisitor for UnpackRuns {
    #[inline]
    fn run(&mut self, at: i64, len: u64) {
        let from = next(&mut self.input, len);
        self.mem.copy_from(at as isize, from.mem(), 0, from.len());
    }

    fn strided(&mut self, at: i64, block: u64, stride: i64, count: u64) {
        let from = next(&mut self.input, block * count);
        self.mem.scatter(strided(at, block, stride, count), from);
    }

    fn equal(&mut self, at: i64, offsets: &[i64], block: u64) {
        let from = next(&mut self.input, block * offsets.len() as u64);
        self.mem
            .scatter_at(at as isize, offsets, block as usize, from);
    }

    fn columns(&mut self, at: i64, columns: &RunTable, stride: i64, count: u64) {
        // A tile at a time, the fields of each tile one after the other. Where repetitions overlap
        // in memory (an erroneous receive), which bytes win is unspecified.
        let mut done = 0;
        while done < count {
            let n = columns.tile().min(count - done);
            let mut tile = next(&mut self.input, n * columns.body_len);
            for &(offset, len) in columns.runs() {
                let to = strided(at + done as i64 * stride + offset, len, stride, n);
                self.mem.scatter_spaced(to, tile, columns.body_len as usize);
                next(&mut tile, len);
            }
            done += n;
        }
    }
}

fn strided(at: i64, block: u64, stride: i64, count: u64) -> Strided {
    Strided {
        offset: at as isize,
        block: block as usize,
        stride: stride as isize,
        count: count as usize,
    }
}

/// Lists runs, merged where adjacent.
struct ListRuns<'a> {
    out: &'a mut Vec<(isize, usize)>,
    /// Entries from here on are ours to merge with.
    floor: usize,
    max: usize,
    covered: u64,
    /// A run did not fit any more.
    full: bool,
}

impl RunVisitor for ListRuns<'_> {
    fn run(&mut self, at: i64, len: u64) {
        if self.full {
            return;
        }
        let at = at as isize;
        if let Some((last, have)) = self.out[self.floor..].last_mut()
            && *last + *have as isize == at
        {
            *have += len as usize;
        } else if self.out.len() < self.max {
            self.out.push((at, len as usize));
        } else {
            self.full = true;
            return;
        }
        self.covered += len;
    }

    fn strided(&mut self, at: i64, block: u64, stride: i64, count: u64) {
        for i in 0..count as i64 {
            if self.full {
                return;
            }
            self.run(at + i * stride, block);
        }
    }

    fn equal(&mut self, at: i64, offsets: &[i64], block: u64) {
        for &offset in offsets {
            if self.full {
                return;
            }
            self.run(at + offset, block);
        }
    }

    fn is_full(&self) -> bool {
        self.full
    }
}
