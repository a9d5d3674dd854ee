//! What the algorithms know of datatypes and operations: where elements lie, and how to combine two
//! runs of them.
//!
//! The two traits are all that an algorithm may ask, which keeps algorithms and
//! their simulator free of the datatype engine. Nothing here allocates except [`slice()`] of a
//! non-contiguous [`Data`].

use super::autotune::CopyKind;
use garonne_sync::copy::{Routine, copy_mem_by};
use garonne_sync::local_copy::copy_local;
use garonne_sync::user::{Data, Layout, Packed, UserMem};
use std::sync::Arc;

/// A datatype, as far as collectives need it.
pub trait ElementLayout {
    /// Bytes of data in one element.
    fn size(&self) -> u64;
    /// Distance in bytes from one element to the next.
    fn extent(&self) -> i64;
    /// Offset of the first byte and of the byte after the last one that an element at 0 occupies,
    /// gaps at its ends included.
    fn true_bounds(&self) -> (i64, i64);
    /// `count` elements at `mem`.
    fn data(&self, mem: UserMem, count: u64) -> Data;
}

/// A reduction operation on one datatype.
pub trait ReduceOp: std::fmt::Debug + Send + Sync {
    /// `into[i] = left[i] op into[i]` for `count` elements: `left` holds the operand of lower rank.
    fn fold(&self, left: UserMem, into: UserMem, count: u64);
    /// Operands may be exchanged.
    fn commutative(&self) -> bool;
    /// Runs the program's code, so only on a user thread inside an MPI call.
    fn user(&self) -> bool;
    /// The datatype it works on.
    fn shape(&self) -> &dyn ElementLayout;
    /// A copy that a recorded schedule keeps.
    fn keep(&self) -> Arc<dyn ReduceOp>;
}

/// Elements of one datatype in memory, addressed by element index. In collectives an "element" of a
/// buffer that holds a block per rank is still one element of the datatype.
#[derive(Clone, Copy)]
pub struct TypedBuffer<'a> {
    /// Address of element 0.
    pub mem: UserMem,
    /// Datatype of the elements.
    pub shape: &'a dyn ElementLayout,
}

/// Packed bytes.
pub struct ByteElements;

impl ElementLayout for ByteElements {
    fn size(&self) -> u64 {
        1
    }

    fn extent(&self) -> i64 {
        1
    }

    fn true_bounds(&self) -> (i64, i64) {
        (0, 1)
    }

    fn data(&self, mem: UserMem, count: u64) -> Data {
        Data::contiguous(mem, count)
    }
}

impl<'a> TypedBuffer<'a> {
    /// Elements of `shape` at `mem`.
    pub fn new(mem: UserMem, shape: &'a dyn ElementLayout) -> Self {
        Self { mem, shape }
    }

    /// Address of element `index`.
    pub fn at(&self, index: i64) -> UserMem {
        self.mem
            .offset(index.wrapping_mul(self.shape.extent()) as isize)
    }

    /// `count` elements from element `index`.
    pub fn data(&self, index: i64, count: u64) -> Data {
        if count == 0 {
            return Data::empty();
        }
        self.shape.data(self.at(index), count)
    }

    /// Bytes of data in `count` elements.
    pub fn bytes(&self, count: u64) -> u64 {
        self.shape.size() * count
    }
}

/// Alignment of scratch memory, enough for any C type.
const ALIGN: i64 = 16;

/// The bytes of memory that `count` elements of `shape` at offset 0 occupy: offset of the first,
/// and length.
pub fn span(shape: &dyn ElementLayout, count: u64) -> (i64, u64) {
    if count == 0 {
        return (0, 0);
    }
    let (lb, ub) = shape.true_bounds();
    let last = (count as i64 - 1) * shape.extent();
    // Rounded so that element 0 is as well aligned as the memory.
    let low = (lb + last.min(0)).div_euclid(ALIGN) * ALIGN;
    (low, (ub + last.max(0) - low).max(0) as u64)
}

/// Packed bytes `[from, from + len)` of `data` as data of its own.
pub fn slice(data: &Data, from: u64, len: u64) -> Data {
    assert!(from + len <= data.len, "slice beyond the end of the data");
    match &data.layout {
        _ if len == 0 => Data::empty(),
        _ if len == data.len => data.clone(),
        None => Data::contiguous(data.mem.offset(from as isize), len),
        Some(layout) => Data::shaped(
            data.mem,
            Arc::new(LayoutSlice {
                whole: layout.clone(),
                from,
                len,
            }),
        ),
    }
}

/// A run of another layout's packed stream.
#[derive(Debug)]
struct LayoutSlice {
    whole: Arc<dyn Layout>,
    from: u64,
    len: u64,
}

impl Layout for LayoutSlice {
    fn packed_len(&self) -> u64 {
        self.len
    }

    fn pack(&self, mem: UserMem, from: u64, dst: Packed) {
        self.whole.pack(mem, self.from + from, dst);
    }

    fn unpack(&self, mem: UserMem, from: u64, src: Packed) {
        self.whole.unpack(mem, self.from + from, src);
    }

    fn blocks(&self, from: u64, len: u64, max_blocks: usize, out: &mut Vec<(isize, usize)>) -> u64 {
        self.whole
            .blocks(self.from + from, len.min(self.len - from), max_blocks, out)
    }
}

/// Bytes that a copy between two non-contiguous shapes carries through the stack at a time: a few
/// cache lines more than the cost of two layout walks, small enough for any thread's stack.
const BOUNCE_LEN: usize = 4096;

/// Copies the packed stream of `src` to `dst`, as a message from this process to itself would. The
/// shorter one ends it. Identical memory is left alone (the two sides of an in-place collective).
pub fn copy(src: &Data, dst: &Data) {
    let len = src.len.min(dst.len);
    match (&src.layout, &dst.layout) {
        _ if len == 0 => {}
        (None, None) if src.mem == dst.mem => {}
        (None, None) => dst.mem.copy_from(0, src.mem, 0, len as usize),
        (None, Some(_)) => dst.unpack_from(0, Packed::new(src.mem, len as usize)),
        (Some(_), None) => src.pack_to(0, Packed::new(dst.mem, len as usize)),
        (Some(_), Some(_)) => {
            let mut bounce = [0; BOUNCE_LEN];
            let mut done = 0;
            while done < len {
                let part = &mut bounce[..(len - done).min(BOUNCE_LEN as u64) as usize];
                src.pack(done, part);
                dst.unpack(done, part);
                done += part.len() as u64;
            }
        }
    }
}

/// Copies between two places of this process's own memory that are equal or do not overlap.
pub fn copy_own(src: &Data, dst: &Data) {
    match (&src.layout, &dst.layout) {
        (None, None) if src.mem != dst.mem => {
            copy_local(dst.mem, src.mem, src.len.min(dst.len) as usize);
        }
        _ => copy(src, dst),
    }
}

/// Copies by stores of this kind where neither side has gaps. The two sides must not overlap.
pub fn copy_by(stroke: CopyKind, src: &Data, dst: &Data) {
    let routine = match stroke {
        CopyKind::Cached => None,
        CopyKind::Streamed => Some(Routine::Streaming),
        CopyKind::Library => Some(Routine::Library),
    };
    match (routine, &src.layout, &dst.layout) {
        (Some(routine), None, None) if src.mem != dst.mem => {
            copy_mem_by(routine, dst.mem, src.mem, src.len.min(dst.len) as usize);
        }
        _ => copy(src, dst),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_sync::user::Scratch;

    #[test]
    fn a_slice_of_a_slice_reads_the_bytes_of_the_whole() {
        let scratch = Scratch::new(64).unwrap();
        scratch.mem().write(0, &(0..64).collect::<Vec<u8>>());
        let data = Data::contiguous(scratch.mem(), 64);
        let inner = slice(&slice(&data, 10, 30), 5, 7);
        let mut bytes = [0; 7];
        inner.pack(0, &mut bytes);
        assert_eq!(bytes, [15, 16, 17, 18, 19, 20, 21]);
    }
}
