//! OpenMP's execution model on fibers.
//!
//! A thread of a team is a fiber with an identity of its own ([`garonne_fiber::Identity`]), so
//! that thread-local variables of compiled code stay its own wherever it runs. Thread 0 is the
//! thread that met the parallel region. A wait suspends a fiber, and its worker goes on with
//! others, so that teams may be larger than the machine, and nest. The entry points are in
//! `garonne-libgomp`.

#![forbid(unsafe_code)]

mod binding;
pub mod display;
pub mod environment;
pub mod icv;
pub mod limits;
pub mod lock;
mod loops;
mod parker;
mod places;
mod pool;
mod task;
mod team;
mod team_bubble;
mod thread;

pub use loops::{LoopRequest, Share, Space};
pub use places::Places;
pub use pool::forked;
pub use task::{Depend, DependKind, TaskGroup, TaskRequest, fulfill_event, new_event};
pub use team::Team;
pub use thread::{Code, Region, Thread, current};
