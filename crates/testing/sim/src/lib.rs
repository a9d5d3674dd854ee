//! Worlds for tests: ranks as threads over queues, and simulated jobs from a seed.

#![forbid(unsafe_code)]

mod region_copy;
pub mod seeds;
pub mod fabric;
pub mod faults;
pub mod job;
mod links;
pub mod local;
pub mod transport;
pub mod random;
mod region_reads;
mod regions;
pub mod storm;
mod thread_ranks;
pub mod traffic;
mod paths;

pub use transport::MemoryAccess;
pub use thread_ranks::{
    AsyncEnvironment, ThreadEngine, ThreadWorld, leave_sharded, leave_together, seeds, threads, threads_with,
};
