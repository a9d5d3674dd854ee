//! Bounds of this crate, each with its reason.

/// Pages of an area of memory that are asked for their place: enough to tell where most are.
pub const PAGES_ASKED: usize = 64;

/// Bytes of a page, by which the kernel tells where memory is and moves it.
pub const PAGE: usize = 4096;

/// Pages that one call asks about or moves: a call takes some ten milliseconds at most.
pub const PAGES_PER_CALL: usize = 1024;

/// Bytes that are read to measure a node's memory: more than a core's own caches have.
pub const COST_PROBE_BYTES: usize = 4 << 20;

/// Passes of which the quickest counts.
pub const COST_PASSES: u32 = 3;
