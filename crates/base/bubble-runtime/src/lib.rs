//! Bubbles of fibers: what a bubble scheduler decides happens to threads that run.
//!
//! A program makes a [`Bubble`], starts fibers in it and submits it. From then on the bubble
//! scheduler in force says which worker may run them. The program names it with `GARONNE_BUBBLES`
//! or [`set_scheduler`], and may change it at any time. Fibers that are in no bubble are none of
//! its business: workers take turns between both.
//!
//! A scheduler never takes a processor away from a fiber that computes. One whose bubble is closed
//! again leaves when it next waits or lets others run.

mod bubble;
mod limits;
mod member;
mod memory;
mod memory_costs;
mod recording;
mod runtime;
mod sys;

pub use bubble::{Bubble, BubbleBuilder};
pub use garonne_bubbles::MayMove;
pub use garonne_bubbles::{Access, AffinityKind, NAMES, Statistics};
pub use member::Member;
pub use memory::{Attached, attach_memory};
pub use runtime::{Activity, activity, is_asked_for, scheduler, set_scheduler, set_work_left};

use garonne_bubble_modules::SchedulerError;
use garonne_bubbles::FrameworkError;
use garonne_fiber::SpawnError;

/// Name of the bubble scheduler that a process has from its beginning.
pub const ENV_BUBBLES: &str = "GARONNE_BUBBLES";

/// File into which a process writes what its bubble scheduler decides.
pub const ENV_BUBBLES_TRACE: &str = "GARONNE_BUBBLES_TRACE";

/// Why something cannot be done with bubbles.
#[derive(Debug, thiserror::Error)]
pub enum BubbleError {
    /// No scheduler has the name, or a module does not fit.
    #[error(transparent)]
    Scheduler(#[from] SchedulerError),
    /// The bubble or thread is not in a state for this.
    #[error(transparent)]
    Framework(#[from] FrameworkError),
    /// The fiber cannot be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The file for the scheduler's decisions cannot be written.
    #[error("{0} cannot be written: {1}")]
    Trace(String, std::io::Error),
    /// The kernel does not tell where memory is, or does not move it.
    #[error("memory cannot be attached: {0}")]
    Memory(std::io::Error),
    /// The caller is a fiber of the bubble that it waits for.
    #[error("a fiber cannot wait for the bubble that it is in")]
    InsideItself,
}
