//! Advances engines and waits for them: an engine behind its lock, spin then sleep. With
//! `--cfg shuttle` there are only tasks and events, under random schedules.

#![deny(unsafe_code)]
#![cfg_attr(shuttle, allow(dead_code, unused_imports, missing_docs))]

#[cfg(not(shuttle))]
pub mod audit;
#[cfg(not(shuttle))]
mod backoff;
#[cfg(not(shuttle))]
pub mod engine_host;
pub mod events;
mod facade;
#[cfg(not(shuttle))]
mod habit;
#[cfg(not(shuttle))]
pub mod host;
pub mod limits;
mod own_thread;
#[cfg(not(shuttle))]
pub mod sharded;
#[cfg(not(shuttle))]
pub mod surroundings;
#[allow(unsafe_code)]
#[cfg_attr(shuttle, path = "sys_shuttle.rs")]
mod sys;
pub mod tasks;
