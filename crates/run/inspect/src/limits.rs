//! Limits of an examination.

use std::time::Duration;

/// Frames of one stack: deeper recursions are told by their innermost part.
pub const FRAMES_MAX: usize = 256;

/// Bytes of a stack that are copied while its thread stands still: some hundred frames; the copy
/// takes some ten microseconds.
pub const STACK_BYTES_MAX: usize = 256 * 1024;

/// Threads of one process that are examined: those of programs with a thread for each core of the
/// largest hosts.
pub const THREADS_MAX: usize = 1024;

/// Time in which a thread stops. One that has not stopped by then sleeps where nothing wakes it, or
/// waits for a core.
pub const STOP_WAIT: Duration = Duration::from_millis(50);

/// Time in which a thread stops that waits for a core. On a machine where many threads share a core
/// a turn may be a second away.
pub const CORE_WAIT: Duration = Duration::from_secs(2);

/// Frames of an interpreter: as those of a stack.
pub const PYTHON_FRAMES_MAX: usize = 256;

/// Words of a crashed thread's stack that are read: a frame takes two to five, and damaged ones
/// lead anywhere.
pub const CRASHED_READS_MAX: usize = 8192;
