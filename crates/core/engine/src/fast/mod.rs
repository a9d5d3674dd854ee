//! Fast paths: small sends and plain receives that nothing hinders.
//!
//! Each function tries its short path and reports failure without a change; the caller then takes
//! the general path of [`crate::engine`].

pub mod recv;
pub(crate) mod recv_channel;
pub mod send;
pub mod send_channel;
pub(crate) mod send_log;
