//! One rank's communication core, sans-IO: gates, tags, matching, window, strategies, rendezvous,
//! credits, formats.
//!
//! It makes no system call, reads no clock, starts no thread, has no global and no environment. It
//! reaches the world through the `Rail` trait only, so the same code runs under real processes,
//! threads as ranks, and the simulator.

#![forbid(unsafe_code)]

mod ahead;
pub mod api;
mod arrive;
mod audit;
mod concurrent;
mod copy;
mod core;
pub mod counters;
mod credit;
pub mod event;
mod fetch;
mod flow;
mod gate;
mod held;
pub mod in_use;
pub mod lift;
pub mod limits;
mod matcher;
pub mod news;
mod packet;
mod plan;
pub mod post_mortem;
pub mod priority;
mod pump;
pub mod quick;
pub mod rail;
mod ready;
pub mod reliable;
mod request;
mod route;
pub mod shard;
mod store;
pub mod strategy;
mod streams;
mod table;
pub mod track;
mod trail;
mod waiting;
pub mod watch;
mod wire;
#[cfg(fuzzing)]
pub use wire::decode_anything;

pub use gate::Quotas;
