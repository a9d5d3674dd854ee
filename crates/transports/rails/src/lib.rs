//! The built-in rails: shared memory between the processes of a node, and between ranks that are
//! threads; TCP between hosts.
//!
//! Implements the engine's `Transport`; made by whoever assembles a rank. Both rails over shared
//! memory are one implementation over a [`shm::NodePeers`], which says where inboxes and doorbells
//! lie and how a peer's memory can be reached; [`tcp::Hosts`] says where the ranks of other hosts
//! listen. No unsafe code outside `sys.rs`.

#![deny(unsafe_code)]

pub mod conformance;
pub mod cost_model;
#[cfg(test)]
mod fuzz_seeds;
pub mod limits;
pub mod multi;
pub mod shm;
mod sys;
pub mod tcp;
