//! A model of memory accesses, after mbench (Goglin 2014, 4.3; Putigny's thesis).
//!
//! A program that is bound by memory is a sequence of accesses to blocks. What an access costs
//! depends on the block's size, on the state of its lines in the caches (modified, exclusive,
//! shared, invalid) and on whose cache has them. [`benchmark`] brings blocks into each state and
//! measures accesses. [`model`] holds the times as curves over sizes, and [`model_file`] stores
//! them. [`kernel`] describes loops as accesses and predicts their times from curves. [`transfer`]
//! does that for messages between two ranks, and for thresholds of their protocols.
//!
//! Measuring needs two CPUs and some seconds; nothing here runs unless asked to. All else is pure.
//! The crate keeps no state.

pub mod benchmark;
pub mod curve;
pub mod kernel;
pub mod limits;
pub mod loops;
pub mod model;
pub mod model_file;
mod sys;
pub mod transfer;

pub use benchmark::BenchmarkPlan;
pub use curve::CostCurve;
pub use kernel::Kernel;
pub use model::{Access, CacheState, Operation};
pub use model_file::MemoryModel;
