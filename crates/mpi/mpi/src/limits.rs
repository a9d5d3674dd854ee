//! Limits of the MPI layer, each with its reason.

use std::time::Duration;

/// Deepest nesting of loops and sequences in a datatype's layout. Walking a layout recurses once
/// per level, about a hundred bytes of stack each, and each level that repeats at least doubles the
/// size: real programs stay below ten.
pub const LAYOUT_DEPTH_MAX: u32 = 512;

/// Parts of a sequence up to which it is dissolved into the sequence around it. Small structures
/// nested in structures become one flat list; large lists stay shared instead of being copied into
/// every type that uses them.
pub const INLINE_PARTS_MAX: usize = 32;

/// Blocks of a loop's body up to which the loop is copied block by block over many iterations (one
/// strided copy per field of an array of structures) instead of iteration by iteration.
pub const COLUMNS_MAX: usize = 16;

/// Packed bytes of a tile in such a copy: all its fields must still be in the first-level cache
/// when the next field of the same structures is copied.
pub const COLUMN_TILE_BYTES: u64 = 8 * 1024;

/// Deepest nesting of datatype constructors; duplicates, resizings and one contiguous element do
/// not count. Walking a signature recurses once or twice per level, a few hundred bytes of stack
/// each, also on threads with small stacks.
pub const NESTING_MAX: u32 = 512;

/// Contexts that one communicator owns: point-to-point, collectives, its own constructors,
/// `MPI_Comm_create_group`, leaders of `MPI_Intercomm_create`, partitioned communication; a power
/// of two above that.
pub const CONTEXTS_PER_COMM: u32 = 8;

/// Communicators that one process may hold at once: a million needs gigabytes for their names and
/// tables alone, so reaching it means a leak, which is better reported than suffered.
pub const COMMS_MAX: u32 = 1 << 20;

/// The largest tag (`MPI_TAG_UB`): every non-negative `int`.
pub const TAG_UB: i32 = i32::MAX;

/// `MPI_MAX_INFO_KEY` less the terminating zero, fixed by the standard ABI.
pub const INFO_KEY_LEN_MAX: usize = 255;

/// `MPI_MAX_INFO_VAL` less the terminating zero, fixed by the standard ABI.
pub const INFO_VALUE_LEN_MAX: usize = 1023;

/// `MPI_MAX_OBJECT_NAME` less the terminating zero, fixed by the standard ABI.
pub const OBJECT_NAME_LEN_MAX: usize = 127;

/// `MPI_BSEND_OVERHEAD`: what a buffered message occupies beside its bytes. Fixed by the standard
/// ABI; our book-keeping lives outside the buffer, and alignment to 64 bytes stays below it.
pub const BSEND_OVERHEAD: usize = 512;

/// Attribute keys alive at once: beyond this a program makes them in a loop by mistake.
pub const KEYVALS_MAX: usize = 1 << 20;

/// Freed attribute keys that may be remembered before those without attributes are sorted out: a
/// few kilobytes, reached only by programs that make and free keys in a loop.
pub const FREED_KEYVALS_MIN: usize = 64;

/// The longest string tag of `MPI_Comm_create_from_group` (`MPI_MAX_STRINGTAG_LEN` less the zero).
pub const STRINGTAG_LEN_MAX: usize = 1023;

/// Limits of the collectives in shared memory. Those of algorithms and their choice are in
/// [`garonne_coll::limits`].
pub mod coll {
    pub use garonne_coll::limits::*;

    /// Bytes that fit one cell of a segment.
    pub const SHM_SMALL_BYTES: u64 = garonne_sync::shm_barrier::CELL_BYTES as u64;

    /// Members up to which a barrier uses flags, if each has a core: polling more flags takes
    /// longer than polling one counter.
    pub const FLAG_BARRIER_RANKS: u32 = 4;

    /// Longest contribution of a member in a slot, or block of an exchange: up to here
    /// two copies take less than the messages of its algorithm, each of which may be a wake-up.
    pub const SLOT_BYTES_MAX: u64 = 32 << 10;

    /// Bytes that all members together write into a slot, except in exchanges: one member may have
    /// to read all.
    pub const SLOT_BYTES_ALL: u64 = 512 << 10;

    /// Bytes from which on members learn by which stores contributions are best put down: below,
    /// bypassing the caches saves nothing.
    pub const SLOT_STORES_FROM: u64 = 2048;

    /// Quarters that bypassing the caches has to be quicker where ranks share cores: both ends of
    /// most copies have one cache there, and what lies in it is written again by the next call.
    pub const SLOT_STREAM_MARGIN: u32 = 4;

    /// Polls of a slot that a wait for one nonblocking collective begins with, where each rank has
    /// a core: a few microseconds, in which no message is polled for.
    pub const SLOT_SPINS: u32 = 64;

    /// Slots of a persistent collective in which all wait for all: two are enough.
    pub const PERSISTENT_SLOTS: u32 = 2;

    /// Slots of a persistent collective in which some members wait for nobody: those may be ahead
    /// by so many starts.
    pub const PERSISTENT_SLOTS_AHEAD: u32 = 4;

    /// Longest piece of a broadcast while every member has a core: as many as may be under way stay
    /// in a second-level cache together, and one leaves the first level while the next is written,
    /// from where it would be slow to fetch.
    pub const BCAST_PIECE: u64 = 32 << 10;

    /// From this length on, what only one rank wants from another may go as a message, whose way
    /// the transport chooses by what it measured: the blocks of gathers and scatters do, broadcasts
    /// on two ranks where that is quicker. A lane copies twice, a message of this length once.
    pub const SINGLE_COPY: u64 = 32 << 10;

    /// Blocks from this length on may be read from where they lie, where all members can read each
    /// other's memory: one copy instead of two can be worth a system call, the showing of what is
    /// lent and a second meeting.
    pub const DIRECT_BYTES: u64 = 32 << 10;

    /// Collectives from this length on choose their way by what earlier ones took: below, bypassing
    /// the caches saves nothing.
    pub const TUNE_FROM: u64 = 1 << TUNE_FROM_LOG2;

    /// The shortest piece where two members combine what they exchange: a meeting costs more there
    /// than it saves up to this.
    pub const COMBINE_PIECE_MIN: u64 = 64 << 10;

    /// Shortest piece that is made for two cores to copy at once.
    pub const LANE_PIECE_MIN: u64 = 32 << 10;

    /// Bytes that one direct read copies: other threads of the rank may use the engine in between.
    pub const DIRECT_PIECE: u64 = 1 << 20;

    /// Bytes that are read at a time where they are combined: long enough that the system call is a
    /// small part of it, and still in a second-level cache when it is combined. Measured on 2
    /// ranks: 64 KB take a quarter longer.
    pub const DIRECT_COMBINE: usize = 256 << 10;

    /// Ranks up to which everybody combines a prefix for itself: the work grows with their square.
    pub const LANE_SCAN_RANKS: u32 = 8;

    /// Bytes that are combined at a time: operands and result lie in a first-level cache.
    pub const COMBINE_BYTES: usize = 8 << 10;

    /// Meetings that an all-to-all with short pieces makes at most: beyond, direct single copies
    /// move more at a time.
    pub const LANE_ROUNDS_SHORT: u64 = 16;

    /// Bytes up to which a piece of an all-to-all counts as short.
    pub const LANE_PIECE_SHORT: u64 = 16 << 10;

    /// Polls of a barrier before progress is made between polls: a few microseconds, what the last
    /// arrival is late by in a tight loop.
    pub const SHM_SPINS: u32 = 2000;

    /// Polls of one of several threads of a rank before it gives its core to another: a microsecond
    /// or two, which is what a switch costs, and longer than a partner that runs takes to answer.
    pub const TURN_SPINS: u32 = 64;

    /// A core that was given away for at least this long was another thread's meanwhile.
    pub const TURN_TAKEN_FROM: std::time::Duration = std::time::Duration::from_micros(2);

    /// Turns before a thread sleeps, as long as others take the core in between: what it loses them
    /// is what their waking would cost.
    pub const TURNS: u32 = 16;
}

/// Bytes up to which a send asks the engine for its shortest way, which refuses what does not fit
/// the transport: above this no transport sends in line, and asking would be in vain.
pub const SMALL_LEN_MAX: u64 = 64 * 1024;

/// Freed requests that may lie about before the finished ones are sorted out: a handful of cache
/// lines, reached only by programs that free requests by habit.
pub const RETIRED_SWEEP_MIN: usize = 64;

/// Time that a receiver has had no more use for a message before `MPI_Finalize` says that it waits
/// for that: what was on its way when the receiver left has come by then, also on a busy machine.
pub const UNDELIVERED_AFTER: std::time::Duration = std::time::Duration::from_secs(3);

/// Number of times that this is looked at: nobody waits for the words.
pub const UNDELIVERED_CHECK: std::time::Duration = std::time::Duration::from_millis(500);

/// Sends of which `MPI_Finalize` knows at each moment whether they go on, the last ones: others are
/// not named, since all that are known are asked at each turn.
pub const UNDELIVERED_KNOWN: usize = 8;

/// Kinds of message that a report names where nobody received them: as many as a person reads.
pub const UNRECEIVED_NAMED: usize = 16;

/// Calls that an error names as the possible sender of a message: more than a few equal sends from
/// different places help nobody.
pub const CALLERS_NAMED: usize = 3;

/// Further looks at a sender's events by an error that names the send. A sender notes a small
/// message after the message has left.
pub const SENDER_LOOKS: u32 = 50;

/// Time between two looks at a sender's events.
pub const SENDER_LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Runs of equal elements in a message of which a digest is made, where types are checked: more
/// would take longer than sending them, and signatures that long are repetitions.
pub const MARKED_RUNS_MAX: usize = 64 * 1024;

/// Looks for room in a full buffer before a buffered send is refused: another thread may be about
/// to end the copy of a message that its receiver has, which takes milliseconds where it is long.
/// Each look leaves the core to others; only programs in error pay for all.
pub const BSEND_POLLS: u32 = 10_000;
