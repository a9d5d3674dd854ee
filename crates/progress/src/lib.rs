//! Advances engines and waits for them: an engine behind its lock, the submission ring, spin then sleep.

#![forbid(unsafe_code)]

pub mod engine_host;
pub mod host;
pub mod limits;
pub mod surroundings;
mod zeal;
