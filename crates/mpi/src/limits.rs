//! Limits of the MPI layer, each with its reason.

/// Deepest nesting of loops and sequences in a datatype's layout. Walking a layout recurses once per level, about a
/// hundred bytes of stack each, and each level that repeats at least doubles the size: real programs stay below ten.
pub const LAYOUT_DEPTH_MAX: u32 = 512;

/// Parts of a sequence up to which it is dissolved into the sequence around it. Small structures nested in structures
/// become one flat list; large lists stay shared instead of being copied into every type that uses them.
pub const INLINE_PARTS_MAX: usize = 32;

/// Blocks of a loop's body up to which the loop is copied block by block over many iterations (one strided copy per
/// field of an array of structures) instead of iteration by iteration.
pub const COLUMNS_MAX: usize = 16;

/// Packed bytes of a tile in such a copy: all its fields must still be in the first-level cache when the next field of
/// the same structures is copied.
pub const COLUMN_TILE_BYTES: u64 = 8 * 1024;

/// Deepest nesting of datatype constructors (duplicates and resizings do not count). Walking a signature recurses once
/// or twice per level, a few hundred bytes of stack each, also on threads with small stacks.
pub const NESTING_MAX: u32 = 512;
