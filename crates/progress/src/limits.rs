//! Every bound of this crate, each with the sentence that justifies it.

/// Operations that may wait for a busy engine: more threads than this at once only wait a little before they submit.
pub const SUBMISSIONS: usize = 64;

/// Tries for a busy engine before its holder is given the core: a few microseconds, longer than nearly every operation.
pub const TRIES_BEFORE_YIELD: u32 = 64;

/// Sleeps in one wait before it is told to those who watch: short waits, which are many, do not pay for telling.
pub const PARKS_BEFORE_TELLING: u32 = 1;

/// Sleeps between two publications of what was sent: a rank that sleeps often does not pay for each, and one that sleeps for long
/// is told of anyway.
pub const PARKS_PER_PUBLICATION: u32 = 16;

/// Polls of spinning on: some two hundred microseconds, twice the dearest wake-up seen.
pub const SPIN_ON_POLLS: u32 = 20_000;

/// News that come later than this after the beginning of spinning on came while the core was taken away: longer than the
/// polls take, shorter than a time slice.
pub const SPIN_ON_LIMIT: std::time::Duration = std::time::Duration::from_millis(1);

/// Most waits in a row that do not spin on: with them a lost time slice adds a tenth to as many wake-ups.
pub const SPIN_ON_SKIPS: u32 = 255;
