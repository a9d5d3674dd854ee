//! Views of the engine for people and tools: events, counters, pending operations, traces.
//!
//! Nothing here decides anything.

pub mod completion_events;
pub mod contexts_in_use;
pub mod counters;
pub mod events;
pub(crate) mod pending;
pub mod post_mortem;
pub mod tracer;
pub(crate) mod undelivered;
