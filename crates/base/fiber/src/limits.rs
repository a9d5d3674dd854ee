//! Bounds of this crate, each with its reason.

/// Bytes of a stack where a fiber asks for none: enough for formatted output of the C library, and
/// 100,000 of them take 13 GB of addresses, of which only touched pages take memory.
pub const STACK_DEFAULT: usize = 128 << 10;

/// Least bytes of a stack: a start function that calls into the C library touches two pages.
pub const STACK_MIN: usize = 16 << 10;

/// Most bytes of a stack: programs that keep whole grids on it ask for some GB. Only touched pages
/// take memory.
pub const STACK_MAX: usize = 64 << 30;

/// Bytes of the guard under a stack: code that is not compiled with stack probes may step over one
/// page. An odd number of pages, so that not all stacks begin in the same few sets of a cache.
pub const GUARD_BYTES: usize = 20 << 10;

/// Cache lines by which stacks are shifted at most, each by another number, for the reason above.
pub const SHIFT_LINES: usize = 32;

/// Stacks of a slab: 100,000 stacks take 25 mappings.
pub const SLAB_STACKS: usize = 4096;

/// Most bytes of a slab: large stacks come in smaller numbers.
pub const SLAB_BYTES: usize = 1 << 30;

/// Free stacks of a size that keep their pages for ever; others keep them while they are needed now
/// and then.
pub const WARM_STACKS: usize = 1024;

/// Free stacks of a size that lose their pages in a tick of the monitor: some ms of its time.
pub const TRIMMED_STACKS: usize = 2048;

/// Ticks of the monitor between two looks at free stacks: half a second.
pub const TICKS_PER_TRIM: u32 = 50;

/// Turns after which a worker looks at wider run queues before its own, so that none starves.
pub const TURNS_PER_WIDE_LOOK: u32 = 64;

/// Fibers of another core's queue at which a worker looks for one that it may run. A queue may hold
/// many that are bound to their core, which its own worker runs sooner or later.
pub const STEAL_LOOKS: usize = 64;

/// Rounds over all run queues before a worker without work sleeps: about what a wake-up costs.
pub const SEARCH_ROUNDS: u32 = 200;

/// Rounds of a search of which one asks the guest scheduler.
pub const GUEST_ROUNDS: u32 = 20;

/// Rounds for each worker of a simulation in which a guest gives nobody what it holds, before it
/// counts as holding nothing.
pub const ROUNDS_IN_VAIN: u64 = 64;

/// Threads that carry fibers at once, stuck ones included: beyond it a stuck worker is not
/// replaced.
pub const WORKER_THREADS_MAX: usize = 512;

/// Time between two looks of the monitor at the workers.
pub const MONITOR_TICK: std::time::Duration = std::time::Duration::from_millis(10);

/// Time between two looks while a worker does not switch although fibers are ready.
pub const MONITOR_TICK_SHORT: std::time::Duration = std::time::Duration::from_millis(2);

/// Time without a switch after which a worker that sleeps in the kernel is replaced, in ns.
pub const PATIENCE_WITH_SLEEP: u64 = 4_000_000;

/// Time without a switch after which a worker gets company that runs a thread of the C library, in
/// ns. Such a thread may spin for a fiber that is queued; the kernel then shares the CPU out, by
/// slices about this long.
pub const PATIENCE_WITH_THREADS: u64 = 4_000_000;

/// The time of [`PATIENCE_WITH_THREADS`] for fibers that have an identity and a stack of their own.
/// These seldom spin, and lose their caches when the kernel shares the CPU out.
pub const PATIENCE_WITH_IDENTITIES: u64 = 50_000_000;

/// Rounds in which values of keys may set further ones at a fiber's end, as POSIX has it.
pub const DESTRUCTOR_ROUNDS: usize = 4;

/// Bytes of the stack on which the kernel thread of an unbound thread sleeps: a signal of the C
/// library's own puts the processor's registers there.
pub const SLEEP_STACK: usize = 16 << 10;

/// Buckets of a parking lot: with some hundred waiters two of them seldom share one.
pub const PARKING_BUCKETS: usize = 1024;

/// Wake-ups of signal handlers that wait until the interrupted part of a parking lot is left: more
/// than handlers make in some hundred instructions.
pub const DEFERRED_WAKES: usize = 32;
