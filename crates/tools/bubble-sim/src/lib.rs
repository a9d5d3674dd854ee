//! Bubble schedulers in virtual time.
//!
//! A [`Simulation`] runs the threads of a [`Workload`] on a machine under the same framework and
//! scheduler as a thread runtime would. Computing takes virtual time. Far memory, cold caches and
//! switches make it longer, by [`Costs`]. Nothing depends on the real machine or its clock, so the
//! same arguments always give the same result.

#![forbid(unsafe_code)]

mod cache;
mod costs;
pub mod limits;
mod random;
mod simulation;
mod table;
mod workload;

pub use costs::Costs;
pub use simulation::{Outcome, Simulation, SimulationError, simulate};
pub use table::{conditions, table};
pub use workload::{
    BubblePlan, MemoryPlan, Part, Step, ThreadPlan, UnknownWorkload, WORKLOADS, Workload,
};
