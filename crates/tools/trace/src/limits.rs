//! The limits of this crate, each with the reason for its value.

/// Records that a rank's trace ring holds: 2 MB, touched only while traced. No program made so far
/// writes a million records a second. At that rate the half that may be unread lasts 16 ms, longer
/// than a reader that looks every few milliseconds is away.
pub const RECORDS: u64 = 1 << 15;

/// Intervals inside MPI that are remembered of a thread: those of some seconds of a chatty program.
/// An operation that was open for longer is judged by what is left of them.
pub const SPANS_KEPT: usize = 1 << 16;

/// Operations of one rank that may be open at once; more are not followed. Programs with a million
/// open requests do not look at each.
pub const OPEN_OPERATIONS: usize = 1 << 16;

/// Messages of which one side has ended and the other not yet: beyond that the oldest are judged by
/// one side alone.
pub const PENDING_PAIRS_KEPT: usize = 1 << 16;

/// Members of blocking collectives whose waits are not judged yet: 250 collectives of a thousand
/// ranks, in some 20 MB.
pub const LAST_CALLS_KEPT: usize = 1 << 18;

/// Times that bytes of one operation were moved that are remembered apart; later ones are joined to
/// the last.
pub const MOVES_KEPT: usize = 256;

/// Threads of one rank that have a track of their own: as many as cores of the largest nodes.
/// Hostile records cannot make more.
pub const THREADS: usize = 1024;

/// Calls within calls (of callbacks) that are followed on one thread.
pub const DEPTH: usize = 64;

/// Different call sites; beyond that all others are one. More than any program has, and a bound on
/// hostile ones.
pub const SITES: usize = 1 << 16;

/// Moving that takes less is not worth hiding: about what posting an operation and waiting for it
/// costs.
pub const SMALL_NS: u64 = 3_000;

/// Waiting in which nobody moves anything, from which on a reason is sought where next to nothing
/// had to move or most was hidden. The value is several times what waking a sleeper takes.
pub const LATE_NS: u64 = 100_000;

/// Hidden hundredths of the moved time above which an operation counts as hidden: no reason is
/// sought.
pub const LITTLE_PERCENT: u64 = 50;

/// Bytes of a frame from which on it is sent to another host. They are half a millisecond of a line
/// of 1 Gbit/s and some thousand events, so that what a message costs is spread.
pub const FRAME_BYTES: usize = 64 << 10;

/// Bytes of a name that another host tells: a function, or a file and a line.
pub const NAME_BYTES: usize = 512;
