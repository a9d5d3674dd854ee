//! Bounds of this crate.

/// Bytes that the kernel moves in one call at most (`MAX_RW_COUNT`); more is cut by itself there.
pub const CALL_BYTES_MAX: usize = 0x7fff_f000;

/// Buffers handed over in one call: fewer than the kernel's 1024, so that the list is on the stack.
pub const CALL_BUFFERS_MAX: usize = 128;

/// Last byte that a file may have: offsets of the kernel are signed.
pub const OFFSET_MAX: u64 = i64::MAX as u64;

/// Zeros written by one call where space is allocated by writing.
pub const ZEROS_BYTES: usize = 256 * 1024;

/// Sizes of blocks that are believed.
pub const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 512..=64 << 20;

/// Size of blocks where what the file system says is not believed.
pub const BLOCK_BYTES_DEFAULT: u64 = 4096;
