//! Bubbles: nested sets of threads, and schedulers that move them over the machine.
//!
//! A bubble says that its threads belong together: they share data, or run at the same time. A
//! [`BubbleScheduler`] sees the machine, the run queues of its areas and the bubbles as a [`View`],
//! and answers each [`Event`] with [`Move`]s. The [`Framework`] checks each move, carries it out on
//! the view, and chooses the thread that a processor runs next.
//!
//! Nothing here starts a thread, reads a clock or has a lock. A thread runtime or a simulator owns
//! a framework and tells it what happens. So one scheduler runs on real machines and in virtual
//! time.

#![forbid(unsafe_code)]

pub mod bubble;
pub mod framework;
pub mod limits;
pub mod machine;
pub mod migration;
pub mod record;
pub mod scheduler;
pub mod schedulers;
pub mod statistics;
pub mod trace_line;
pub mod view;

pub use bubble::{Access, AffinityKind, Attributes, BubbleId, Entity, MemoryId, ThreadId};
pub use framework::{Framework, FrameworkError, SchedulerFault};
pub use machine::{Machine, PlaceId, ProcessorId};
pub use migration::{MayMove, MemoryCosts, MemoryUse, MigrationPlan, plan as plan_migration};
pub use record::{Position, Record};
pub use scheduler::{BubbleScheduler, Event, Move, MoveError, panic_text};
pub use schedulers::{NAMES, UnknownScheduler, by_name};
pub use statistics::Statistics;
pub use trace_line::{TRACE_VERSION, TraceHead, TraceLine, TraceLines};
pub use view::{BubbleState, ThreadState, View};
