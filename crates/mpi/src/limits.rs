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

/// Contexts that one communicator owns: point-to-point, collectives, its own constructors, `MPI_Comm_create_group`.
pub const CONTEXTS_PER_COMM: u32 = 4;

/// Communicators that one process may hold at once: a million needs gigabytes for their names and tables alone, so
/// reaching it means a leak, which is better reported than suffered.
pub const COMMS_MAX: u32 = 1 << 20;

/// The largest tag (`MPI_TAG_UB`): every non-negative `int`.
pub const TAG_UB: i32 = i32::MAX;

/// `MPI_MAX_INFO_KEY` less the terminating zero, fixed by the standard ABI.
pub const INFO_KEY_LEN_MAX: usize = 255;

/// `MPI_MAX_INFO_VAL` less the terminating zero, fixed by the standard ABI.
pub const INFO_VALUE_LEN_MAX: usize = 1023;

/// `MPI_MAX_OBJECT_NAME` less the terminating zero, fixed by the standard ABI.
pub const OBJECT_NAME_LEN_MAX: usize = 127;

/// `MPI_BSEND_OVERHEAD`: what a buffered message occupies beside its bytes. Fixed by the standard ABI; our book-keeping
/// lives outside the buffer, and alignment to 64 bytes stays below it.
pub const BSEND_OVERHEAD: usize = 512;

/// `MPI_ERR_LASTCODE` of the standard ABI: classes and codes that a program adds are numbered from the one after it.
pub const ERR_LASTCODE: i32 = 0x3fff;

/// Error classes, codes and strings that a program may add: beyond this it adds them in a loop by mistake.
pub const USER_ERRORS_MAX: usize = 1 << 20;

/// Attribute keys alive at once, for the same reason.
pub const KEYVALS_MAX: usize = 1 << 20;

/// The longest string tag of `MPI_Comm_create_from_group` (`MPI_MAX_STRINGTAG_LEN` less the zero).
pub const STRINGTAG_LEN_MAX: usize = 1023;
