//! Protocols between two engines: packet formats, and how a message of each size travels.

pub(crate) mod control;
pub(crate) mod dispatch;
pub(crate) mod eager;
pub(crate) mod early_rtr;
pub(crate) mod fragments;
pub mod offload;
pub(crate) mod one_sided;
pub(crate) mod packet;
pub(crate) mod remote_probe;
pub(crate) mod remote_window;
pub(crate) mod rendezvous;
pub mod select;
pub(crate) mod transfers;
pub(crate) mod wire;
