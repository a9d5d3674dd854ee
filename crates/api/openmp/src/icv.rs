//! Internal control variables: those of a task, and those of the process.

use crate::environment;
use crate::places::Places;
use std::sync::OnceLock;

/// How a loop is dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Alike, decided beforehand.
    Static,
    /// Whoever is ready takes a chunk.
    Dynamic,
    /// Chunks that become smaller.
    Guided,
    /// The runtime chooses: static.
    Auto,
}

/// A schedule with its chunk; 0: none was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// How.
    pub kind: Kind,
    /// Iterations of a chunk.
    pub chunk: u64,
    /// Chunks go out in order; what the program asked for, to be told again.
    pub monotonic: bool,
}

/// How threads are bound to places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcBind {
    /// Not at all.
    False = 0,
    /// Somehow.
    True = 1,
    /// At the primary thread's place.
    Primary = 2,
    /// Near to it.
    Close = 3,
    /// Far from each other.
    Spread = 4,
}

impl ProcBind {
    /// How a region is bound that has this clause `proc_bind`, as the compiler numbers it.
    pub(crate) fn with_clause(self, clause: u32) -> Self {
        match clause {
            _ if self == Self::False => self,
            2 => Self::Primary,
            3 => Self::Close,
            4 => Self::Spread,
            _ => self,
        }
    }
}

/// Control variables that each task has for itself.
#[derive(Clone, Copy, Debug)]
pub struct Icv {
    /// Threads of the next region.
    pub threads: u32,
    /// Limit of the contention group's threads; `u32::MAX`: none.
    pub thread_limit: u32,
    /// Whether the runtime may take fewer threads.
    pub dynamic: bool,
    /// Active regions that may nest.
    pub max_active_levels: u32,
    /// Schedule of loops that say `runtime`.
    pub schedule: Schedule,
    /// How the next region's threads are bound.
    pub bind: ProcBind,
    /// Device of target regions that name none.
    pub default_device: i32,
    /// Handle of the default allocator.
    pub allocator: usize,
}

/// What the environment says for the whole process.
#[derive(Debug)]
pub struct Globals {
    /// Control variables of the initial task.
    pub initial: Icv,
    /// Numbers of threads by level of nesting.
    pub threads_list: Vec<u32>,
    /// Kinds of binding by level of nesting.
    pub bind_list: Vec<ProcBind>,
    /// CPUs that the process may use.
    pub cpus: Vec<u32>,
    /// The places; none were asked for: empty.
    pub places: Places,
    /// Whether `cancel` does anything.
    pub cancellation: bool,
    /// Bytes of a thread's stack.
    pub stack: usize,
    /// Whether the environment set it.
    pub stack_given: bool,
    /// Rounds of spinning, if the environment says so.
    pub spins: Option<u32>,
    /// `OMP_WAIT_POLICY`: `Some(true)` is active.
    pub wait_active: Option<bool>,
    /// Largest priority of a task.
    pub max_priority: i32,
    /// Whether threads tell where they are.
    pub display_affinity: bool,
    /// How they tell it.
    pub affinity_format: String,
    /// A target region must not run on the host.
    pub offload_mandatory: bool,
    /// `OMP_TARGET_OFFLOAD=DISABLED`.
    pub offload_disabled: bool,
    /// Teams of a league that asks for no number; 0: not set.
    pub teams: u32,
    /// Threads of each team of a league; 0: not set.
    pub teams_thread_limit: u32,
}

static GLOBALS: OnceLock<Globals> = OnceLock::new();

/// The process's control variables, read from the environment when first asked for.
pub fn globals() -> &'static Globals {
    GLOBALS.get_or_init(|| environment::read(|name| std::env::var(name).ok()))
}
