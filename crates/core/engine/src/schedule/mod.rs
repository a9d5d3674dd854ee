//! Scheduling of sends: in which order messages leave, together with which, and over which rails.
//!
//! A strategy decides; [`builtin`] names those of the library, [`plugin`] calls one of a user.

pub mod builtin;
pub mod coalesce;
pub mod order;
pub(crate) mod plan;
pub mod plugin;
pub mod plugin_check;
pub mod priority;
pub mod stripe;
pub(crate) mod window;
