//! Advances engines and waits for them: an engine behind its lock, one polling thread per rank,
//! tasks and events. With `--cfg shuttle` there are only tasks and events, under random schedules.

#![deny(unsafe_code)]
#![cfg_attr(shuttle, allow(dead_code, unused_imports, missing_docs))]

#[cfg(not(shuttle))]
pub mod audit;
#[cfg(not(shuttle))]
mod backoff;
#[cfg(not(shuttle))]
mod call_site_profile;
#[cfg(not(shuttle))]
pub mod environment;
pub mod events;
mod facade;
mod library_thread;
pub mod limits;
#[cfg(not(shuttle))]
pub mod locked_engine;
#[cfg(not(shuttle))]
pub mod messaging;
#[cfg(not(shuttle))]
pub mod sharded;
#[allow(unsafe_code)]
#[cfg_attr(shuttle, path = "sys_shuttle.rs")]
mod sys;
pub mod tasks;
#[cfg(all(test, shuttle))]
mod waiters_shuttle;
#[cfg(not(shuttle))]
pub mod world_connector;
