//! The communication engine of one rank, sans-IO: matching, protocols, credits, packet formats.
//!
//! The engine makes no system call, reads no clock, starts no thread, has no global and no
//! environment. The engine reaches the world through the `Transport` trait only, so the same code
//! runs under real processes, threads as ranks, and the simulator.

#![forbid(unsafe_code)]

pub mod api;
mod copy;
mod core;
pub mod engine;
pub mod fast;
pub mod faults;
mod key_map;
pub mod limits;
mod matching;
pub mod observe;
pub mod one_sided;
mod peer;
mod progress;
pub mod protocol;
pub mod reliable;
mod requests;
pub mod schedule;
pub mod transport;

pub use peer::credits::CreditQuotas;
#[cfg(fuzzing)]
pub use protocol::wire::decode_anything;
