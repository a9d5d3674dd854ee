//! Views of user memory: the buffers that a program hands to a communication call.
//!
//! Owns the one place where a raw user address becomes something that safe code may copy from and to. The promise is
//! made once, when a [`UserMem`] is created at the C edge (or over a [`Scratch`] that the runtime owns): every byte
//! that the accompanying [`Layout`] can reach stays valid until the operation that received the view completes.
//! After that all methods are ordinary calls. Copies never form references over the memory that is not the caller's
//! own slice, so user buffers that a peer writes meanwhile (a misused program) yield wrong bytes, not undefined
//! behaviour of ours beyond what the program itself asked for.

use std::sync::Arc;

/// A base address in this process's memory. Offsets are in bytes and may be negative (MPI lower bounds).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserMem {
    base: usize,
}

/// `n` blocks of `block` bytes, their starts `stride` bytes apart, the first at `offset` from the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strided {
    /// Offset in bytes of the first block from the view's base.
    pub offset: isize,
    /// Bytes in each block.
    pub block: usize,
    /// Distance in bytes between the starts of two blocks; may be negative.
    pub stride: isize,
    /// Number of blocks.
    pub count: usize,
}

impl UserMem {
    /// Wraps a user address.
    ///
    /// # Safety
    /// Whatever layout is used with this view must reach only memory that is valid for reads (sends) or reads and
    /// writes (receives) until the operation that takes the view has completed.
    pub unsafe fn new(base: *mut u8) -> Self {
        // Exposed on purpose: the address travels to other processes as part of a region.
        Self { base: base as usize }
    }

    /// A view for operations of zero bytes; never dereferenced.
    pub fn null() -> Self {
        Self { base: 0 }
    }

    /// The address of the byte at `offset`.
    pub fn addr(self, offset: isize) -> usize {
        self.base.wrapping_add_signed(offset)
    }

    /// The same memory seen from a base moved by `offset` bytes.
    pub fn offset(self, offset: isize) -> Self {
        Self { base: self.base.wrapping_add_signed(offset) }
    }

    fn ptr(self, offset: isize) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.addr(offset))
    }

    /// Copies `dst.len()` bytes at `offset` out of user memory.
    pub fn read(self, offset: isize, dst: &mut [u8]) {
        // SAFETY: `new` promised that the memory reached is readable; `dst` is exclusively ours. The two may only
        // overlap if the runtime's own buffer was passed as user memory, which `copy` tolerates.
        unsafe { std::ptr::copy(self.ptr(offset), dst.as_mut_ptr(), dst.len()) }
    }

    /// Copies `src` into user memory at `offset`.
    pub fn write(self, offset: isize, src: &[u8]) {
        // SAFETY: `new` promised that the memory reached is writable; overlap is tolerated as in `read`.
        unsafe { std::ptr::copy(src.as_ptr(), self.ptr(offset), src.len()) }
    }

    /// Copies `len` bytes from `src` (another or the same view) to this view; the two may overlap.
    pub fn copy_from(self, offset: isize, src: UserMem, src_offset: isize, len: usize) {
        // SAFETY: both views were promised valid for what is reached; `copy` allows overlap.
        unsafe { std::ptr::copy(src.ptr(src_offset), self.ptr(offset), len) }
    }

    /// Lets `f` see `len` bytes at `offset` as a slice, for computing on them in place.
    pub fn with<R>(self, offset: isize, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        if len == 0 {
            return f(&[]);
        }
        // SAFETY: valid for reads by the promise of `new`; the slice does not outlive the call.
        f(unsafe { std::slice::from_raw_parts(self.ptr(offset), len) })
    }

    /// Lets `f` see and change `len` bytes at `offset` as a slice.
    pub fn with_mut<R>(self, offset: isize, len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
        if len == 0 {
            return f(&mut []);
        }
        // SAFETY: valid for reads and writes by the promise of `new`; the slice does not outlive the call.
        f(unsafe { std::slice::from_raw_parts_mut(self.ptr(offset), len) })
    }

    /// Gathers strided blocks into `dst`, back to back. `dst.len()` must be `block * count`.
    pub fn gather(self, from: Strided, dst: &mut [u8]) {
        assert_eq!(dst.len(), from.block * from.count, "gather: destination has another size than the blocks");
        // SAFETY: every block is valid by the promise of `new`, and `dst` has room for all of them by the assert.
        unsafe { strided_copy(self.ptr(from.offset), from.stride, dst.as_mut_ptr(), from.block as isize, from.block, from.count) }
    }

    /// Scatters `src` over strided blocks. `src.len()` must be `block * count`.
    pub fn scatter(self, to: Strided, src: &[u8]) {
        assert_eq!(src.len(), to.block * to.count, "scatter: source has another size than the blocks");
        // SAFETY: as in `gather`, with the roles exchanged.
        unsafe { strided_copy(src.as_ptr(), to.block as isize, self.ptr(to.offset), to.stride, to.block, to.count) }
    }
}

/// Copies `count` blocks of `block` bytes. Small powers of two become single moves: the loop over an 8-byte column of
/// a matrix is what halo exchanges spend their time in.
///
/// # Safety
/// All source blocks readable, all destination blocks writable.
unsafe fn strided_copy(src: *const u8, sstride: isize, dst: *mut u8, dstride: isize, block: usize, count: usize) {
    macro_rules! moves {
        ($t:ty) => {
            for i in 0..count as isize {
                // SAFETY: block `i` of both sides is valid by the function's contract; unaligned moves.
                unsafe {
                    let value = src.wrapping_offset(i * sstride).cast::<$t>().read_unaligned();
                    dst.wrapping_offset(i * dstride).cast::<$t>().write_unaligned(value);
                }
            }
        };
    }
    match block {
        1 => moves!(u8),
        2 => moves!(u16),
        4 => moves!(u32),
        8 => moves!(u64),
        16 => moves!(u128),
        32 => moves!([u128; 2]),
        64 => moves!([u128; 4]),
        _ => {
            for i in 0..count as isize {
                // SAFETY: as above.
                unsafe { std::ptr::copy(src.wrapping_offset(i * sstride), dst.wrapping_offset(i * dstride), block) }
            }
        }
    }
}

/// The shape of data in memory: which bytes, in which order, make up the packed stream of `packed_len` bytes.
///
/// Offsets are relative to a [`UserMem`] base. An implementation is immutable and may be shared by many operations.
pub trait Layout: Send + Sync + std::fmt::Debug {
    /// Length of the packed stream in bytes.
    fn packed_len(&self) -> u64;

    /// Copies packed bytes `[from, from + dst.len())` of the data at `mem` into `dst`.
    fn pack(&self, mem: UserMem, from: u64, dst: &mut [u8]);

    /// Copies `src` to where packed bytes `[from, from + src.len())` live in the data at `mem`.
    fn unpack(&self, mem: UserMem, from: u64, src: &[u8]);

    /// Appends to `out` the contiguous blocks (offset from base, length) that hold packed bytes `[from, from + len)`,
    /// in packed order and merged where adjacent, until `out` holds `max_blocks`; returns the packed bytes covered.
    fn blocks(&self, from: u64, len: u64, max_blocks: usize, out: &mut Vec<(isize, usize)>) -> u64;
}

/// What an operation sends or fills: memory and its shape.
#[derive(Clone, Debug)]
pub struct Data {
    /// Where the data is.
    pub mem: UserMem,
    /// Length of the packed stream in bytes.
    pub len: u64,
    /// `None`: the `len` bytes at the base. `Some`: as the layout says.
    pub layout: Option<Arc<dyn Layout>>,
}

impl Data {
    /// `len` contiguous bytes at `mem`.
    pub fn contiguous(mem: UserMem, len: u64) -> Self {
        Self { mem, len, layout: None }
    }

    /// Data of any shape at `mem`.
    pub fn shaped(mem: UserMem, layout: Arc<dyn Layout>) -> Self {
        Self { mem, len: layout.packed_len(), layout: Some(layout) }
    }

    /// No bytes at all.
    pub fn empty() -> Self {
        Self::contiguous(UserMem::null(), 0)
    }

    /// Copies packed bytes `[from, from + dst.len())` into `dst`. The range must lie within `len`.
    pub fn pack(&self, from: u64, dst: &mut [u8]) {
        assert!(from + dst.len() as u64 <= self.len, "pack beyond the end of the data");
        match &self.layout {
            None => self.mem.read(from as isize, dst),
            Some(layout) => layout.pack(self.mem, from, dst),
        }
    }

    /// Copies `src` to packed bytes `[from, from + src.len())`. The range must lie within `len`.
    pub fn unpack(&self, from: u64, src: &[u8]) {
        assert!(from + src.len() as u64 <= self.len, "unpack beyond the end of the data");
        match &self.layout {
            None => self.mem.write(from as isize, src),
            Some(layout) => layout.unpack(self.mem, from, src),
        }
    }
}

/// Aligned memory that the runtime owns and lends to operations as user memory (collective temporaries, packed
/// buffers). Freed when dropped: keep it until the operations that use its view have completed.
#[derive(Debug)]
pub struct Scratch {
    words: Box<[std::cell::UnsafeCell<u128>]>,
    len: usize,
}

// SAFETY: the cells are only reached through `UserMem` views, whose users order their accesses by operations' completion.
unsafe impl Send for Scratch {}
// SAFETY: as above.
unsafe impl Sync for Scratch {}

impl Scratch {
    /// `len` zeroed bytes, 16-byte aligned; `None` when there is no memory.
    pub fn new(len: usize) -> Option<Self> {
        let words = len.div_ceil(16);
        let mut cells = Vec::new();
        cells.try_reserve_exact(words).ok()?;
        cells.resize_with(words, Default::default);
        Some(Self { words: cells.into_boxed_slice(), len })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A view of the whole. The caller keeps `self` alive while operations use it.
    pub fn mem(&self) -> UserMem {
        // SAFETY: the words live as long as `self`, which the holder keeps until the operations complete.
        unsafe { UserMem::new(self.words.as_ptr().cast_mut().cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathering_and_scattering_strided_blocks_are_inverse() {
        for block in [1usize, 3, 8, 16, 32, 64, 65] {
            let scratch = Scratch::new(block * 3 * 5).unwrap();
            let shape = Strided { offset: 0, block, stride: 3 * block as isize, count: 5 };
            let bytes: Vec<u8> = (0..block * 5).map(|i| i as u8).collect();
            scratch.mem().scatter(shape, &bytes);
            let mut back = vec![0; block * 5];
            scratch.mem().gather(shape, &mut back);
            assert_eq!(back, bytes);
        }
    }
}
