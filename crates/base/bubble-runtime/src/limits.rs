//! Bounds of this crate, each with its reason.

/// Pages of an area of memory that are asked for their place: enough to tell where most are.
pub const PAGES_ASKED: usize = 64;
