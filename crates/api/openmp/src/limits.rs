//! Bounds of this crate, each with its reason.

/// Rounds that a wait spins where threads fit CPUs: some ten microseconds, what a wake-up costs.
pub const SPIN_ROUNDS: u32 = 2000;

/// Rounds after which a wait that spins looks for tasks: some 100 ns.
pub const SPINS_PER_LOOK: u32 = 8;

/// Rounds after which it looks whether threads exceed CPUs: a multiple of [`SPINS_PER_LOOK`].
pub const SPINS_PER_COUNT: u32 = 256;

/// Buckets of the table of waits: more than threads that wait at once on usual machines.
pub const PARK_BUCKETS: usize = 256;

/// Bytes of a thread's stack where neither `OMP_STACKSIZE` nor `GOMP_STACKSIZE` says otherwise:
/// what a thread has on Linux. Only touched pages take memory.
pub const STACK_DEFAULT: usize = 8 << 20;

/// Tasks per thread of a team that wait at once. Beyond it a task runs when it is created.
pub const TASKS_PER_THREAD: usize = 64;

/// Tasks that a team of one thread runs inside of each other when they are created: stacks that
/// any program has room for. Those created deeper wait.
pub const NESTED_TASKS_MAX: u32 = 16;

/// Nested active regions at most: what GCC's headers promise.
pub const ACTIVE_LEVELS_MAX: u32 = 255;

/// Threads of a team at most: each needs a stack and a sleeping thread.
pub const TEAM_MAX: usize = 16384;
