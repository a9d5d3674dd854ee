//! The limits of this crate, each with the reason for its value.

/// Happenings of one simulation. The longest stock workload has some ten thousand on 16 processors;
/// a scheduler that moves threads about without end is stopped.
pub const HAPPENINGS_MAX: u64 = 20_000_000;
