//! Views of user memory: the buffers that a program hands to a communication call.
//!
//! This is the only place where a raw user address becomes something that safe code may copy from
//! and to. The promise is made once, when a [`UserMem`] is created at the C entry points (or over a
//! [`Scratch`] that the runtime owns). Every byte that the accompanying [`Layout`] can reach stays
//! valid until the operation that received the view completes. After that all methods are ordinary
//! calls. Copies never form references over memory that is not the caller's own slice. So a user
//! buffer that a peer writes meanwhile (a misused program) yields wrong bytes. It causes no
//! undefined behaviour of ours beyond what the program itself asked for.

mod atomic;
mod layout_copy;

pub use atomic::{AtomicOp, AtomicType};
pub use layout_copy::copy;

use crate::allocator::may_fail;
use std::sync::Arc;

/// A base address in this process's memory. Offsets are in bytes and may be negative (MPI lower
/// bounds).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserMem {
    base: usize,
}

/// `n` blocks of `block` bytes, their starts `stride` bytes apart, the first at `offset` from the
/// base.
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
    /// Whatever layout is used with this view must reach only memory that is valid for reads
    /// (sends) or reads and writes (receives) until the operation that takes the view has
    /// completed.
    pub unsafe fn new(base: *mut u8) -> Self {
        // Exposed on purpose: the address travels to other processes as part of a region.
        Self {
            base: base as usize,
        }
    }

    /// A view for operations of zero bytes; never dereferenced.
    pub fn null() -> Self {
        Self { base: 0 }
    }

    /// The address of the byte at `offset`.
    #[inline(always)]
    pub fn addr(self, offset: isize) -> usize {
        self.base.wrapping_add_signed(offset)
    }

    /// Returns a view of the same memory whose base is moved by `offset` bytes.
    pub fn offset(self, offset: isize) -> Self {
        Self {
            base: self.base.wrapping_add_signed(offset),
        }
    }

    #[inline(always)]
    fn ptr(self, offset: isize) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.addr(offset))
    }

    /// Copies `dst.len()` bytes at `offset` out of user memory.
    #[inline]
    pub fn read(self, offset: isize, dst: &mut [u8]) {
        // SAFETY: `new` promised that the memory reached is readable; `dst` is exclusively ours.
        // The two may only overlap if the runtime's own buffer was passed as user memory, which
        // `copy_bytes` tolerates.
        unsafe { copy_bytes(self.ptr(offset), dst.as_mut_ptr(), dst.len()) }
    }

    /// Reads `N` bytes at `offset`: a few moves, where `read` is a call.
    #[inline(always)]
    pub fn read_array<const N: usize>(self, offset: isize) -> [u8; N] {
        // SAFETY: as in `read`.
        unsafe { self.ptr(offset).cast::<[u8; N]>().read_unaligned() }
    }

    /// Puts so many bytes at `offset`, as `read_array` gets them.
    #[inline(always)]
    pub fn write_array<const N: usize>(self, offset: isize, bytes: [u8; N]) {
        // SAFETY: as in `write`.
        unsafe { self.ptr(offset).cast::<[u8; N]>().write_unaligned(bytes) }
    }

    /// Copies `src` into user memory at `offset`.
    #[inline]
    pub fn write(self, offset: isize, src: &[u8]) {
        // SAFETY: `new` promised that the memory reached is writable; overlap is tolerated as in
        // `read`.
        unsafe { copy_bytes(src.as_ptr(), self.ptr(offset), src.len()) }
    }

    /// Copies `len` bytes from `src` (another or the same view) to this view; the two may overlap.
    #[inline(always)]
    pub fn copy_from(self, offset: isize, src: UserMem, src_offset: isize, len: usize) {
        // SAFETY: both views were promised valid for what is reached; `copy_bytes` allows overlap.
        unsafe { copy_bytes(src.ptr(src_offset), self.ptr(offset), len) }
    }

    /// Lets `f` see `len` bytes at `offset` as a slice, for computing on them in place.
    #[inline]
    pub fn with<R>(self, offset: isize, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        if len == 0 {
            return f(&[]);
        }
        // SAFETY: valid for reads by the promise of `new`; the slice does not outlive the call.
        f(unsafe { std::slice::from_raw_parts(self.ptr(offset), len) })
    }

    /// Lets `f` see and change `len` bytes at `offset` as a slice.
    #[inline]
    pub fn with_mut<R>(self, offset: isize, len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
        if len == 0 {
            return f(&mut []);
        }
        // SAFETY: valid for reads and writes by the promise of `new`; the slice does not outlive
        // the call.
        f(unsafe { std::slice::from_raw_parts_mut(self.ptr(offset), len) })
    }

    /// Gathers strided blocks into `dst`, back to back. It has `block * count` bytes.
    #[inline]
    pub fn gather(self, from: Strided, dst: Packed) {
        assert_eq!(
            dst.len,
            from.block * from.count,
            "gather: destination has another size than the blocks"
        );
        self.gather_spaced(from, dst, from.block);
    }

    /// Scatters `src` over strided blocks. It has `block * count` bytes.
    #[inline]
    pub fn scatter(self, to: Strided, src: Packed) {
        assert_eq!(
            src.len,
            to.block * to.count,
            "scatter: source has another size than the blocks"
        );
        self.scatter_spaced(to, src, to.block);
    }

    /// Gathers strided blocks into `dst`, block `i` at `i * spacing`: one field of an array of
    /// structures at a time.
    pub fn gather_spaced(self, from: Strided, dst: Packed, spacing: usize) {
        assert!(
            from.fits(dst.len, spacing),
            "gather: the blocks do not fit into the destination"
        );
        // SAFETY: every block is valid by the promise of `new`, and `dst` has room for all of them
        // by the assert.
        unsafe { strided_copy(self.side(from), dst.side(spacing), from.block, from.count) }
    }

    /// Scatters blocks that lie `spacing` apart in `src` over strided blocks.
    pub fn scatter_spaced(self, to: Strided, src: Packed, spacing: usize) {
        assert!(
            to.fits(src.len, spacing),
            "scatter: the blocks reach beyond the source"
        );
        // SAFETY: as in `gather_spaced`, with the roles exchanged; the source side is only read.
        unsafe { strided_copy(src.side(spacing), self.side(to), to.block, to.count) }
    }

    /// Gathers equal blocks at `shift + offsets[i]` into `dst`, back to back.
    pub fn gather_at(self, shift: isize, offsets: &[i64], block: usize, dst: Packed) {
        assert_eq!(
            dst.len,
            block * offsets.len(),
            "gather: destination has another size than the blocks"
        );
        // SAFETY: every block is valid by the promise of `new`; block `i` of `dst` lies within it
        // by the assert.
        unsafe { indexed_copy::<true>(self.ptr(shift), offsets, block, dst.mem.ptr(0)) }
    }

    /// Scatters `src` over equal blocks at `shift + offsets[i]`.
    pub fn scatter_at(self, shift: isize, offsets: &[i64], block: usize, src: Packed) {
        assert_eq!(
            src.len,
            block * offsets.len(),
            "scatter: source has another size than the blocks"
        );
        // SAFETY: as in `gather_at` with the roles exchanged; `src` is only read.
        unsafe { indexed_copy::<false>(self.ptr(shift), offsets, block, src.mem.ptr(0)) }
    }

    fn side(self, blocks: Strided) -> StridedSide {
        StridedSide {
            ptr: self.ptr(blocks.offset),
            stride: blocks.stride,
        }
    }
}

/// Packed bytes on their way to or from user data: memory that others may write meanwhile, hence
/// never seen as a slice.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    mem: UserMem,
    len: usize,
}

impl Packed {
    /// `len` bytes at `mem`.
    pub fn new(mem: UserMem, len: usize) -> Self {
        Self { mem, len }
    }

    /// The bytes of a slice, to be written by calls that end before the slice is used otherwise.
    pub fn over(bytes: &mut [u8]) -> Self {
        // SAFETY: valid for reads and writes as long as the caller lends the slice.
        Self::new(unsafe { UserMem::new(bytes.as_mut_ptr()) }, bytes.len())
    }

    /// The bytes of a slice, to be read only: whoever takes packed bytes in (`scatter`,
    /// `unpack_from`) does no more.
    pub fn of(bytes: &[u8]) -> Self {
        // SAFETY: valid for reads as long as the caller lends the slice.
        Self::new(
            unsafe { UserMem::new(bytes.as_ptr().cast_mut()) },
            bytes.len(),
        )
    }

    /// Returns how many.
    pub fn len(self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns where they begin.
    pub fn mem(self) -> UserMem {
        self.mem
    }

    /// The first `at` bytes and the rest.
    pub fn split(self, at: usize) -> (Self, Self) {
        assert!(at <= self.len, "packed bytes end before that");
        let rest = Self::new(self.mem.offset(at as isize), self.len - at);
        (Self::new(self.mem, at), rest)
    }

    fn side(self, spacing: usize) -> StridedSide {
        StridedSide {
            ptr: self.mem.ptr(0),
            stride: spacing as isize,
        }
    }
}

impl Strided {
    /// Returns whether `count` blocks placed `spacing` apart stay within `len` bytes.
    fn fits(&self, len: usize, spacing: usize) -> bool {
        match self.count.checked_sub(1) {
            None => true,
            Some(last) => last
                .checked_mul(spacing)
                .and_then(|at| at.checked_add(self.block))
                .is_some_and(|end| end <= len),
        }
    }
}

/// Copies `len` bytes that may overlap. Up to 64 bytes go as two possibly overlapping moves: the
/// runs of an irregular datatype are mostly that small, and a call of `memmove` costs several times
/// the copy.
///
/// # Safety
/// `src` readable and `dst` writable for `len` bytes.
#[inline(always)]
unsafe fn copy_bytes(src: *const u8, dst: *mut u8, len: usize) {
    if len == 8 {
        // One number is what most small messages are.
        // SAFETY: by the function's contract.
        return unsafe {
            dst.cast::<u64>()
                .write_unaligned(src.cast::<u64>().read_unaligned())
        };
    }
    // SAFETY: by the function's contract.
    unsafe { copy_run(src, dst, len) }
}

/// # Safety
/// As [`copy_bytes`].
#[inline(never)]
unsafe fn copy_run(src: *const u8, dst: *mut u8, len: usize) {
    macro_rules! two {
        ($t:ty) => {{
            let tail = len - size_of::<$t>();
            // SAFETY: both moves lie within `len` bytes; both are loaded before either is stored,
            // so overlap is fine.
            unsafe {
                let head_value = src.cast::<$t>().read_unaligned();
                let tail_value = src.add(tail).cast::<$t>().read_unaligned();
                dst.cast::<$t>().write_unaligned(head_value);
                dst.add(tail).cast::<$t>().write_unaligned(tail_value);
            }
        }};
    }
    match len {
        0 => {}
        // SAFETY: one byte on both sides.
        1 => unsafe { dst.write(src.read()) },
        2..4 => two!(u16),
        4..8 => two!(u32),
        8..16 => two!(u64),
        16..=32 => two!(u128),
        33..=64 => two!([u128; 2]),
        // SAFETY: by the function's contract.
        _ => unsafe { crate::copy::copy_any(src, dst, len) },
    }
}

/// One side of a strided copy.
#[derive(Clone, Copy)]
struct StridedSide {
    ptr: *mut u8,
    stride: isize,
}

impl StridedSide {
    fn at(self, i: usize) -> *mut u8 {
        self.ptr
            .wrapping_offset((i as isize).wrapping_mul(self.stride))
    }
}

/// Runs `$moves!(N)` with the block size as a constant where it is a common one, `$other`
/// otherwise: a copy of constant size is a few moves, and the loop over an 8-byte column of a
/// matrix is what halo exchanges spend their time in.
macro_rules! by_block {
    ($block:expr, $moves:ident, $other:expr) => {
        match $block {
            1 => $moves!(1),
            2 => $moves!(2),
            3 => $moves!(3),
            4 => $moves!(4),
            6 => $moves!(6),
            8 => $moves!(8),
            12 => $moves!(12),
            16 => $moves!(16),
            20 => $moves!(20),
            24 => $moves!(24),
            32 => $moves!(32),
            40 => $moves!(40),
            48 => $moves!(48),
            64 => $moves!(64),
            96 => $moves!(96),
            128 => $moves!(128),
            _ => $other,
        }
    };
}

/// Copies `count` blocks of `block` bytes from `src` to `dst`.
///
/// # Safety
/// All source blocks readable, all destination blocks writable; the two sides do not overlap.
unsafe fn strided_copy(src: StridedSide, dst: StridedSide, block: usize, count: usize) {
    macro_rules! moves {
        ($n:literal) => {
            for i in 0..count {
                // SAFETY: block `i` of both sides is valid and they are disjoint by the function's
                // contract.
                unsafe { std::ptr::copy_nonoverlapping(src.at(i), dst.at(i), $n) }
            }
        };
    }
    by_block!(block, moves, {
        for i in 0..count {
            // SAFETY: as above.
            unsafe { copy_bytes(src.at(i), dst.at(i), block) }
        }
    });
}

/// Copies equal blocks between `base + offsets[i]` and `packed + i * block`, towards `packed` if
/// `GATHER`.
///
/// # Safety
/// All blocks on the source side readable, all on the destination side writable; the two sides do
/// not overlap.
unsafe fn indexed_copy<const GATHER: bool>(
    base: *mut u8,
    offsets: &[i64],
    block: usize,
    packed: *mut u8,
) {
    macro_rules! moves {
        ($n:literal) => {
            for (i, &offset) in offsets.iter().enumerate() {
                let here = base.wrapping_offset(offset as isize);
                // SAFETY: block `i` of both sides is valid and they are disjoint by the function's
                // contract.
                unsafe {
                    let there = packed.add(i * $n);
                    let (from, to) = if GATHER { (here, there) } else { (there, here) };
                    std::ptr::copy_nonoverlapping(from, to, $n);
                }
            }
        };
    }
    by_block!(block, moves, {
        for (i, &offset) in offsets.iter().enumerate() {
            let here = base.wrapping_offset(offset as isize);
            // SAFETY: as above.
            unsafe {
                let there = packed.add(i * block);
                if GATHER {
                    copy_bytes(here, there, block)
                } else {
                    copy_bytes(there, here, block)
                }
            }
        }
    });
}

/// The shape of data in memory: which bytes, in which order, make up the packed stream of
/// `packed_len` bytes.
///
/// Offsets are relative to a [`UserMem`] base. An implementation is immutable and may be shared by
/// many operations.
pub trait Layout: Send + Sync + std::fmt::Debug {
    /// Length of the packed stream in bytes.
    fn packed_len(&self) -> u64;

    /// Copies packed bytes `[from, from + dst.len())` of the data at `mem` into `dst`.
    fn pack(&self, mem: UserMem, from: u64, dst: Packed);

    /// Copies `src` to where packed bytes `[from, from + src.len())` live in the data at `mem`.
    fn unpack(&self, mem: UserMem, from: u64, src: Packed);

    /// Appends to `out` the contiguous blocks (offset from base, length) that hold packed bytes
    /// `[from, from + len)`, in packed order and merged where adjacent, until `out` holds
    /// `max_blocks`; returns the packed bytes covered.
    fn blocks(&self, from: u64, len: u64, max_blocks: usize, out: &mut Vec<(isize, usize)>) -> u64;
}

/// Memory that an operation sends or fills, with its shape.
#[derive(Clone, Debug)]
pub struct Data {
    /// Place where the data is.
    pub mem: UserMem,
    /// Length of the packed stream in bytes.
    pub len: u64,
    /// `None`: the `len` bytes at the base. `Some`: as the layout says.
    pub layout: Option<Arc<dyn Layout>>,
}

impl Data {
    /// `len` contiguous bytes at `mem`.
    pub fn contiguous(mem: UserMem, len: u64) -> Self {
        Self {
            mem,
            len,
            layout: None,
        }
    }

    /// Data of any shape at `mem`.
    pub fn shaped(mem: UserMem, layout: Arc<dyn Layout>) -> Self {
        Self {
            mem,
            len: layout.packed_len(),
            layout: Some(layout),
        }
    }

    /// No bytes at all.
    pub fn empty() -> Self {
        Self::contiguous(UserMem::null(), 0)
    }

    /// Copies packed bytes `[from, from + dst.len())` into `dst`. The range must lie within `len`.
    pub fn pack(&self, from: u64, dst: &mut [u8]) {
        self.pack_to(from, Packed::over(dst));
    }

    /// Packs bytes from `from` on into memory that others may write meanwhile.
    pub fn pack_to(&self, from: u64, dst: Packed) {
        assert!(
            from + dst.len() as u64 <= self.len,
            "pack beyond the end of the data"
        );
        match &self.layout {
            None => dst.mem.copy_from(0, self.mem, from as isize, dst.len),
            Some(layout) => layout.pack(self.mem, from, dst),
        }
    }

    /// Copies `src` to packed bytes `[from, from + src.len())`. The range must lie within `len`.
    pub fn unpack(&self, from: u64, src: &[u8]) {
        self.unpack_from(from, Packed::of(src));
    }

    /// Unpacks bytes from `from` on out of memory that others may write meanwhile.
    pub fn unpack_from(&self, from: u64, src: Packed) {
        assert!(
            from + src.len() as u64 <= self.len,
            "unpack beyond the end of the data"
        );
        match &self.layout {
            None => self.mem.copy_from(from as isize, src.mem, 0, src.len),
            Some(layout) => layout.unpack(self.mem, from, src),
        }
    }
}

/// Aligned memory that the runtime owns and lends to operations as user memory (collective
/// temporaries, packed buffers). Freed when dropped: keep it until the operations that use its view
/// have completed.
#[derive(Debug)]
pub struct Scratch {
    words: Box<[std::cell::UnsafeCell<u128>]>,
    len: usize,
}

// SAFETY: the cells are only reached through `UserMem` views, whose users order their accesses by
// operations' completion.
unsafe impl Send for Scratch {}
// SAFETY: as above.
unsafe impl Sync for Scratch {}

impl Scratch {
    /// `len` zeroed bytes, 16-byte aligned; `None` when there is no memory.
    pub fn new(len: usize) -> Option<Self> {
        let words = len.div_ceil(16);
        let mut cells = Vec::new();
        may_fail(|| cells.try_reserve_exact(words)).ok()?;
        cells.resize_with(words, Default::default);
        Some(Self {
            words: cells.into_boxed_slice(),
            len,
        })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether it holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A view of the whole. The caller keeps `self` alive while operations use it.
    pub fn mem(&self) -> UserMem {
        // SAFETY: the words live as long as `self`, which the holder keeps until the operations
        // complete.
        unsafe { UserMem::new(self.words.as_ptr().cast_mut().cast()) }
    }
}

#[cfg(test)]
mod tests;
