//! OpenMP's execution model on fibers.
//!
//! A thread of a team is a fiber with an identity of its own ([`garonne_fiber::Identity`]), so
//! that thread-local variables of compiled code stay its own wherever it runs. Thread 0 is the
//! thread that met the parallel region. A wait suspends a fiber, and its worker goes on with
//! others, so that teams may be larger than the machine, and nest. The entry points are in
//! `garonne-libgomp`.

#![forbid(unsafe_code)]

#[cfg(not(loom))]
mod binding;
#[cfg(not(loom))]
pub mod display;
#[cfg(not(loom))]
pub mod environment;
#[cfg_attr(loom, allow(dead_code))]
mod facade;
#[cfg(not(loom))]
pub mod icv;
#[cfg(not(loom))]
pub mod limits;
#[cfg(not(loom))]
pub mod lock;
#[cfg(not(loom))]
mod loops;
#[cfg_attr(loom, allow(dead_code))]
mod park_word;
#[cfg(not(loom))]
mod parker;
#[cfg(not(loom))]
mod places;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
mod task;
#[cfg(not(loom))]
mod team;
#[cfg_attr(loom, allow(dead_code))]
mod team_barrier;
#[cfg(not(loom))]
mod team_bubble;
#[cfg(not(loom))]
mod thread;

#[cfg(not(loom))]
pub use loops::{LoopRequest, Share, Space};
#[cfg(not(loom))]
pub use places::Places;
#[cfg(not(loom))]
pub use pool::forked;
#[cfg(not(loom))]
pub use task::{Depend, DependKind, TaskGroup, TaskRequest, fulfill_event, new_event};
#[cfg(not(loom))]
pub use team::Team;
#[cfg(not(loom))]
pub use thread::{Code, Region, Thread, current};
