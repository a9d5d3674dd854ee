//! Bounds of the benchmarks and of files that hold a model.

/// Smallest block: what a message that is copied in one go has.
pub const BLOCK_MIN: u64 = 1 << 10;

/// Largest block unless a plan says otherwise: beyond the second-level caches of today's
/// processors, several times.
pub const BLOCK_MAX: u64 = 16 << 20;

/// Largest block that a plan may ask for: four of them and their copies fit into any machine that
/// computes.
pub const BLOCK_LIMIT: u64 = 256 << 20;

/// Smallest array of a kernel that is timed: shorter ones take as long as a loop's beginning and
/// end.
pub const KERNEL_MIN: u64 = 12 << 10;

/// Rounds of all benchmarks. A low sample of each counts: what slows a sample down is other
/// programs, as a rule.
pub const ROUNDS: usize = 24;

/// Rounds that are always made: fewer say nothing of what disturbs.
pub const ROUNDS_MIN: usize = 3;

/// The sample that counts, of all sorted ones: one in so many is quicker.
pub const QUICKER_ONE_IN: usize = 5;

/// Nanoseconds that a sample takes at least where accesses can be repeated: a hundred times what
/// reading the clock takes.
pub const SAMPLE_NS: f64 = 3000.0;

/// Bytes of a file with a model that are read at most: some hundred curves.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Curves of a model, and points of a curve: as many as all states, operations and distances of a
/// machine have, and as many as there are powers of two.
pub const CURVES_MAX: usize = 1024;
