//! Worlds for tests: ranks as threads over queues, and simulated fabrics with a seed.

#![forbid(unsafe_code)]

pub mod local;
mod threads;

pub use threads::{Rank, Setup, threads, threads_with};
