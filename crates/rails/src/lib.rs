//! The built-in rails: shared memory between the processes of a node, and between ranks that are threads.
//!
//! Implements the engine's `Rail`; made by whoever assembles a rank. Both rails are one implementation over a
//! [`shm::Neighbours`], which says where inboxes and doorbells lie and how a peer's memory can be reached. No unsafe
//! code outside `sys.rs`.

#![deny(unsafe_code)]

pub mod conformance;
pub mod cost;
pub mod limits;
pub mod shm;
mod sys;
pub mod tcp;
