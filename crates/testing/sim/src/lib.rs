//! Worlds for tests: ranks as threads over queues, and simulated jobs from a seed.

#![forbid(unsafe_code)]

mod copies;
pub mod course;
pub mod fabric;
pub mod faults;
pub mod job;
mod lines;
pub mod local;
pub mod rail;
pub mod random;
mod reads;
mod regions;
pub mod storm;
mod threads;
pub mod traffic;
mod ways;

pub use rail::Memory;
pub use threads::{
    Lending, Rank, Setup, leave_sharded, leave_together, seeds, threads, threads_with,
};
