//! The machine as far as starting ranks needs it: which CPUs may be used, how they share cores,
//! caches, packages and NUMA nodes, how much processor time a control group grants, and where to
//! put ranks.
//!
//! Reads a few files of sysfs and procfs, because a job's start must not wait for a full discovery;
//! `garonne map` shows hwloc's view. Reading is separate from deciding: [`binding`] and
//! [`placement`] are pure functions over a [`Machine`] or a [`Tree`], so that any machine can be
//! tested anywhere.

#![forbid(unsafe_code)]

pub mod binding;
pub mod cpuset;
pub mod device;
pub mod limits;
pub mod machine;
pub mod nuioa;
pub mod placement;
pub mod quota;
mod resources;
pub mod tree;

pub use cpuset::CpuSet;
pub use machine::{Machine, Pu, allowed, allowed_to_program, online};
pub use resources::{Resource, resources};
pub use tree::{Area, Kind, Tree};
