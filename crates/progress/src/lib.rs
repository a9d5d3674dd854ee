//! Advances engines and waits for them: an engine behind its lock, the submission ring, spin then sleep.

#![deny(unsafe_code)]

mod backoff;
pub mod engine_host;
pub mod events;
mod facade;
mod habit;
pub mod host;
pub mod limits;
mod own_thread;
pub mod surroundings;
#[allow(unsafe_code)]
mod sys;
pub mod tasks;
mod ticket;
