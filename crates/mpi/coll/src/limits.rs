//! Limits of collectives that algorithms, their choice, the autotuner and the allocator of segments
//! follow.
//!
//! Bytes are packed ones. Latency counts below, bandwidth above; the values sit where a step of a
//! small message (about a microsecond) costs as much as copying the data (about ten gigabytes a
//! second).

/// Broadcasts, allgathers (whole result) and scans up to this travel down trees.
pub const TREE_BYTES: u64 = 16 * 1024;

/// Reductions up to this combine whole vectors: a slice per rank would be shorter than its
/// messages' cost.
pub const REDUCE_TREE_BYTES: u64 = 8 * 1024;

/// Blocks of gathers and scatters up to this are packed by inner processes of a tree; longer
/// ones would be copied too often.
pub const GATHER_TREE_BLOCK: u64 = 2 * 1024;

/// Above this, pipelines and rings beat algorithms with fewer, longer steps: their start-up is
/// small beside the transfer.
pub const CHAIN_BYTES: u64 = 512 * 1024;

/// Segment of a chain: a quarter of a second-level cache, so that a rank forwards what it has
/// just read.
pub const CHAIN_SEGMENT: u64 = 128 * 1024;

/// Most segments of one chain: bounds the steps of a schedule, and leaves pipelines 98 % full
/// on 10 ranks.
pub const CHAIN_SEGMENTS: u64 = 512;

/// Ranks up to which everybody reads from everybody directly: more readers than cores of one
/// cache only disturb each other.
pub const DIRECT_RANKS: u32 = 16;

/// Ranks up to which slices are taken from all others in other reductions: the square of it
/// messages are under way.
pub const SLICED_RANKS: u32 = 64;

/// Least ranks of a Bruck all-to-all: below, direct exchanges need hardly more messages and no
/// packing.
pub const BRUCK_RANKS: u32 = 8;

/// Longest block of a Bruck all-to-all: each is copied twice in every one of log2 n steps.
pub const BRUCK_BLOCK: u64 = 256;

/// Longest block of an all-to-all that is brought together node by node: each is copied five
/// times, which costs less than a message between nodes as long as it is short.
pub const HIERARCHICAL_BLOCK: u64 = 1024;

/// Blocks up to this go to many partners at once: latency counts.
pub const ALLTOALL_BLOCK: u64 = 32 * 1024;

/// Partners at a time then: enough to hide latency, few enough for any peer's credits.
pub const ALLTOALL_PARTNERS: u32 = 32;

/// Partners at a time for longer blocks: two keep a copy going while the next is being agreed
/// on.
pub const ALLTOALL_LARGE_PARTNERS: u32 = 4;

/// Longest wide cell of a slot: what a member of an exchange gives to four others.
pub const SLOT_CELL_MAX: usize = 128 << 10;

/// Bytes of a member up to which the data in a slot is left to its receiver: waking a progress
/// thread costs more than the copy.
pub const SLOT_SHORT: u64 = 4 << 10;

/// Bytes of a process's heap for slots of persistent collectives. An allreduce of 8 B on two
/// ranks takes 2 KB, one of 1 KB takes 8 KB. A quarter of the heap, since communicators need
/// room for their segments.
pub const PERSISTENT_SLOTS_BYTES: usize = 4 << 20;

/// Released slots that are checked for reuse before more of the heap is taken. Slots that were
/// released first are deserted first, but for ranks that are slow to free.
pub const PERSISTENT_SLOTS_CHECKED: usize = 4;

/// Temporary memory from this length on is kept for the next collective: what the C library
/// gives back to the kernel, and gets anew page by page.
pub const TEMP_BUFFER_KEPT_FROM: usize = 64 << 10;

/// Bytes of temporary memory that a process keeps: what nonblocking reductions of 4 MB on few
/// ranks need, and little beside the data of such calls.
pub const TEMP_BUFFERS_KEPT: usize = 4 << 20;

/// Bytes of the wide cells of one segment, all together: 15 ranks have cells of 128 KB, 63 have
/// cells of 32 KB. Virtual until touched.
pub const SLOTS_BYTES: usize = 8 << 20;

/// Bytes of the lanes of one segment, all together: what a second-level cache or two holds, and
/// 64 ranks take 64 blocks of 1 KB.
pub const LANES_BYTES: usize = 8 << 20;

/// Longest lane: long enough that a meeting costs little beside the copies, short enough to
/// stay in a core's own cache.
pub const LANE_BYTES_MAX: usize = 256 << 10;

/// Shortest lane: below a page, meetings outweigh what they move.
pub const LANE_BYTES_MIN: usize = 4 << 10;

/// The first class of lengths is that of 8 KB.
pub const TUNE_FROM_LOG2: u32 = 13;

/// Classes of length, each twice the one before: the last is that of 64 MB and more, which no
/// cache holds.
pub const TUNE_CLASSES: usize = 14;

/// Times that a way must have been measured to count as known: one may meet a preemption.
pub const TUNE_SAMPLES: u8 = 2;

/// Calls of one sort between two tries of a way that is only known from other lengths.
pub const TUNE_LEARN_EVERY: u32 = 8;

/// Calls of one sort between two tries of a way that is not the usual one: where it takes three
/// times as long, that costs two per cent.
pub const TUNE_RETRY_EVERY: u32 = 100;

/// The first such try; until [`TUNE_RETRY_EVERY`] each follows after as many calls as there
/// were before.
pub const TUNE_RETRY_FIRST: u32 = 16;

/// One of so many calls is timed, which takes two meetings and two readings of a clock.
pub const TUNE_TIMED_EVERY: u32 = 8;

/// From this length on all are: that takes less than a hundredth of the call.
pub const TUNE_TIMED_ALL: u64 = 1 << 20;

/// Calls in a row that take half as long again as usual until that counts as the new usual: two
/// may be preemptions.
pub const TUNE_CHANGED_AFTER: u8 = 3;

/// Part of the time of calls that tries of ways other than the usual one may lose.
pub const TUNE_BUDGET_SHARE: i64 = 16;

/// Calls whose time may be saved up for such tries: a way eight times as slow says nothing that
/// is worth more.
pub const TUNE_BUDGET_MAX: i64 = 8;
