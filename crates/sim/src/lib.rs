//! Worlds for tests: ranks as threads over queues, and simulated jobs from a seed.

#![forbid(unsafe_code)]

pub mod fabric;
pub mod job;
pub mod local;
pub mod rail;
pub mod random;
mod regions;
mod threads;

pub use rail::Memory;
pub use threads::{Lending, Rank, Setup, leave_together, seeds, threads, threads_with};
