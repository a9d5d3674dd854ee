//! Blocks of memory as the kernel takes them in one call, and the direction of a copy.

/// A contiguous block: address and length in bytes. Laid out as the kernel's `iovec`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoBlock {
    /// Address.
    pub addr: usize,
    /// Bytes.
    pub len: usize,
}

/// Blocks per call that the kernel takes on each side (`IOV_MAX`).
pub const BLOCKS_PER_CALL: usize = 1024;

/// Which way a transfer goes, seen from this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    /// From the peer to here.
    Read,
    /// From here to the peer.
    Write,
}
