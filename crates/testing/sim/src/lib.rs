//! Worlds for tests: ranks as threads over queues, and simulated jobs from a seed.

#![forbid(unsafe_code)]

pub mod fabric;
pub mod faults;
pub mod job;
mod links;
pub mod local;
mod paths;
pub mod random;
mod region_copy;
mod region_reads;
mod regions;
mod registered;
pub mod seeds;
pub mod storm;
mod thread_ranks;
pub mod traffic;
pub mod transport;

pub use thread_ranks::{
    AsyncEnvironment, ThreadEngine, ThreadWorld, leave_sharded, leave_together, seeds, threads,
    threads_with,
};
pub use transport::MemoryAccess;
